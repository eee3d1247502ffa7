//! TLS: who shows which certificate, and whom one believes.
//!
//! A connection begins in the clear; STARTTLS makes the rest of it TLS, 1.2 or 1.3. Keys and nonces are drawn by the
//! provider of the cryptography, and not by the world: two runs of one seed differ in these bytes. What time it is
//! says the world, once for each connection.

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    time_provider::TimeProvider,
};
use std::{fmt, io, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use world::{Stream, WallTime, World, with_deadline};

/// A client that was refused may take so long to hear of it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Certificates or keys that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}: {problem}")]
pub struct TlsError {
    what: &'static str,
    problem: String,
}

impl TlsError {
    fn of(what: &'static str) -> impl Fn(&dyn fmt::Display) -> Self {
        move |problem| Self { what, problem: problem.to_string() }
    }
}

/// Who one is: both are PEM.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// One's own certificate, then those between it and the authority's.
    pub certificate: &'a [u8],
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: &'a [u8],
}

impl Identity<'_> {
    fn read(self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_slice(self.key);
        let key = key.map_err(|error| TlsError::of("the private key")(&error))?;
        Ok((certificates("the certificate", self.certificate)?, key))
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError::of(what)(&error))?;
    if found.is_empty() { Err(TlsError::of(what)(&"there is none")) } else { Ok(found) }
}

fn authorities(pem: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let what = "the authority's certificate";
    let mut store = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        store.add(certificate).map_err(|error| TlsError::of(what)(&error))?;
    }
    Ok(store.into())
}

/// What a server shows, and whom it lets in.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    asks_who: bool,
}

impl ServerTls {
    /// Shows `identity`. With `clients`, PEM certificates of authorities, only clients are let in that show a
    /// certificate of one of them.
    ///
    /// # Errors
    ///
    /// One of them cannot be used, or the key is not the certificate's.
    pub fn new(identity: Identity<'_>, clients: Option<&[u8]>) -> Result<Self, TlsError> {
        let (chain, key) = identity.read()?;
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(pem) => WebPkiClientVerifier::builder_with_provider(authorities(pem)?, provider())
                .build()
                .map_err(|error| TlsError::of("the authority's certificate")(&error))?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::of("the certificate and its key")(&error))?;
        // Connections last: each one shows its certificates anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: config.into(), asks_who: clients.is_some() })
    }

    /// Whether clients must show a certificate.
    pub fn asks_who(&self) -> bool {
        self.asks_who
    }

    /// The server's side of the handshake.
    pub(crate) async fn accept(&self, world: &World, stream: Stream) -> io::Result<Stream> {
        let mut config = (*self.config).clone();
        config.time_provider = Arc::new(Now(world.wall()));
        match TlsAcceptor::from(Arc::new(config)).accept(stream).into_fallible().await {
            Ok(stream) => Ok(Box::new(stream)),
            Err((error, stream)) => {
                with_deadline(world.sleep(FAREWELL_MAX), hear_out(stream)).await;
                Err(error)
            }
        }
    }
}

/// Lets a client go that was told why. What it sent meanwhile is read: closed over it, the connection would be reset,
/// and the client might never read the reason.
async fn hear_out(mut stream: Stream) {
    if stream.shutdown().await.is_ok() {
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

/// Whether a server speaks TLS, under the names the protocol has for it.
#[derive(Clone, Debug, Default)]
pub enum TlsMode {
    /// NOTLS: it does not.
    #[default]
    Off,
    /// SELECTIVETLS, and no export asks for it: with those who want it.
    Allowed(ServerTls),
    /// FORCEDTLS: with all, and nothing is said before it.
    Required(ServerTls),
}

/// Whom a client believes, and what it shows.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientTls {
    /// Believes servers called `server` (a name or a number) that show a certificate of one of `authorities`, PEM;
    /// shows `identity` to those that ask.
    ///
    /// # Errors
    ///
    /// One of them cannot be used.
    pub fn new(
        server: &str,
        authorities_pem: &[u8],
        identity: Option<Identity<'_>>,
    ) -> Result<Self, TlsError> {
        let server = ServerName::try_from(server.to_owned());
        let server = server.map_err(|error| TlsError::of("the server's name")(&error))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities(authorities_pem)?, provider())
            .build()
            .map_err(|error| TlsError::of("the authority's certificate")(&error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_webpki_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsError::of("the certificate and its key")(&error))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self { config: config.into(), server })
    }

    /// The client's side of the handshake.
    pub(crate) async fn connect(&self, world: &World, stream: Stream) -> io::Result<Stream> {
        let mut config = (*self.config).clone();
        config.time_provider = Arc::new(Now(world.wall()));
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(self.server.clone(), stream).await?))
    }
}

/// What TLS found wrong, if that is why `error` came.
pub(crate) fn complaint(error: &io::Error) -> Option<String> {
    let complaint = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(complaint.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    ring::default_provider().into()
}

/// The moment a connection is made, by which certificates are judged.
#[derive(Debug)]
struct Now(WallTime);

impl TimeProvider for Now {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.seconds).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::new(seconds, self.0.nanos)))
    }
}
