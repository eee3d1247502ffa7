//! Folders of certificates, in the layout of QEMU and libnbd: `ca-cert.pem`, and `server-` or `client-` with
//! `cert.pem` and `key.pem`.

use report::Refusal;
use rustix::fs::stat;
use std::path::{Path, PathBuf};
use tls::{ClientTls, ServerTls, TlsError, TlsIdentity, certificate_end};
use world::{
    IoErrorKind,
    real::host_files::{self, PathKind},
};

const SERVER: &str = "server-cert.pem";
const CLIENT: &str = "client-cert.pem";
const AUTHORITY: &str = "ca-cert.pem";
/// Revocation lists are not supported: a folder that holds one is refused rather than served without it.
const REVOKED: &str = "ca-crl.pem";
/// Larger files are no certificates.
const BYTES_MAX: u64 = 1 << 20;
/// A name that no server has, where names come later.
const ANY_SERVER: &str = "server.invalid";

/// Certificates of a server, and their ends.
pub struct ServerCertificates {
    pub tls: ServerTls,
    /// The files, with the seconds since 1970 (UTC) at which their certificates end.
    pub ends: Vec<(PathBuf, i64)>,
}

/// The server's certificate and key, and the authority that clients are checked against if the folder has one.
pub fn of_server(folder: &Path) -> Result<ServerCertificates, Refusal> {
    check(folder)?;
    let own = KeyPair::read(folder, "server")?.ok_or_else(|| missing(folder, SERVER))?;
    let authority = read(folder, AUTHORITY)?;
    let tls = ServerTls::new(own.identity(), authority.as_deref());
    let tls = tls.map_err(|error| unusable(folder, &error))?;
    let pems = [(SERVER, Some(&own.certificate)), (AUTHORITY, authority.as_ref())];
    let end = |(name, pem): (&str, Option<&Vec<u8>>)| Some((folder.join(name), certificate_end(pem?)?));
    Ok(ServerCertificates { tls, ends: pems.into_iter().filter_map(end).collect() })
}

/// Authority that a client trusts for `uri`, and its own certificate if the folder has one; `None`
/// without TLS.
pub fn of_client(uri: &nbd::NbdUri) -> Result<Option<ClientTls>, Refusal> {
    let Some(tls) = &uri.tls else { return Ok(None) };
    let Some(folder) = &tls.certificates else {
        let problem = format!("{uri}: no certificate authority is given");
        return Err(Refusal::new(problem, format!("add ?tls-certificates=FOLDER, of one with {AUTHORITY}")));
    };
    of_client_in(folder, uri.server_name()).map(Some)
}

/// Authority of a folder that a client trusts for `server`, a host name or IP address, and its own certificate if the folder
/// has one.
pub fn of_client_in(folder: &Path, server: &str) -> Result<ClientTls, Refusal> {
    check(folder)?;
    let authority = read(folder, AUTHORITY)?.ok_or_else(|| missing(folder, AUTHORITY))?;
    let own = KeyPair::read(folder, "client")?;
    let made = ClientTls::new(server, &authority, own.as_ref().map(KeyPair::identity));
    made.map_err(|error| unusable(folder, &error))
}

/// Trust and identity of a client, whatever the names of its servers ([`ClientTls::to`]), and the ends of the certificates.
pub struct ClientCertificates {
    pub tls: ClientTls,
    /// The files, with the seconds since 1970 (UTC) at which their certificates end.
    pub ends: Vec<(PathBuf, i64)>,
}

/// The authority of a folder, and the client's own certificate if the folder has one.
pub fn of_client_to_several(folder: &Path) -> Result<ClientCertificates, Refusal> {
    let tls = of_client_in(folder, ANY_SERVER)?;
    let end = |name: &str| Some((folder.join(name), certificate_end(&read(folder, name).ok()??)?));
    Ok(ClientCertificates { tls, ends: [AUTHORITY, CLIENT].into_iter().filter_map(end).collect() })
}

fn check(folder: &Path) -> Result<(), Refusal> {
    if !matches!(host_files::kind(folder), Ok(PathKind::Folder)) {
        let problem = format!("{} is no folder", folder.display());
        return Err(Refusal::new(problem, "give one with certificates"));
    }
    if read(folder, REVOKED)?.is_some() {
        let problem = format!("{}: revocation lists are not supported", folder.join(REVOKED).display());
        return Err(Refusal::new(problem, "move it away, or issue certificates from a new authority"));
    }
    Ok(())
}

struct KeyPair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl KeyPair {
    /// The key pair of a `server` or a `client`; `None` if both files are missing.
    fn read(folder: &Path, whose: &str) -> Result<Option<Self>, Refusal> {
        let (certificate, key) = (format!("{whose}-cert.pem"), format!("{whose}-key.pem"));
        match (read(folder, &certificate)?, read(folder, &key)?) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(missing(folder, &certificate)),
            (Some(_), None) => Err(missing(folder, &key)),
            (Some(certificate), Some(bytes)) => {
                check_secrecy(&folder.join(key))?;
                Ok(Some(Self { certificate, key: bytes }))
            }
        }
    }

    fn identity(&self) -> TlsIdentity<'_> {
        TlsIdentity { certificate: &self.certificate, key: &self.key }
    }
}

fn check_secrecy(key: &Path) -> Result<(), Refusal> {
    let refuse = |problem: &str, remedy| Refusal::new(format!("{}: {problem}", key.display()), remedy);
    let mode = stat(key).map_err(|error| refuse(&error.to_string(), ""))?.st_mode;
    if mode & 0o077 != 0 { Err(refuse("others may read this key", "chmod 600 it")) } else { Ok(()) }
}

fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
    match host_files::read_file_at_most(&folder.join(name), BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(Refusal::new(error.to_string(), "give a folder whose files can be read")),
    }
}

fn missing(folder: &Path, name: &str) -> Refusal {
    let remedy = "make certificates with certtool or openssl (docs/targets.md)";
    Refusal::new(format!("{} has no {name}", folder.display()), remedy)
}

fn unusable(folder: &Path, error: &TlsError) -> Refusal {
    Refusal::new(format!("{}: {error}", folder.display()), "make a new one")
}
