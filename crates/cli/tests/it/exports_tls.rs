//! NBD over TLS, as libnbd, QEMU and our own client meet it. Certificates are made for each test.

use crate::{
    exported::{Exported, is_here, judge, judged, noise, text},
    spindle::{Bench, answered, short},
};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// One who signs.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn called(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A folder with its certificate, and one that it signed for this machine: a `server`'s or a `client`'s.
    pub fn folder(&self, bench: &Bench, name: &str, whose: &str) {
        self.folder_until(bench, (name, whose), (4000, 1, 1));
    }

    /// The same with a certificate that ends on that day.
    pub fn folder_until(&self, bench: &Bench, names: (&str, &str), day: (i32, u8, u8)) {
        let addresses = &["127.0.0.1", "localhost"];
        self.sign_into(&bench.make_folder(names.0), (names.1, Some(names.1)), (addresses, day));
    }

    /// Puts its certificate into a folder, and one that it signed for machines at these addresses, until that day; with a common
    /// name or without.
    pub fn sign_into(
        &self,
        folder: &Path,
        (whose, common_name): (&str, Option<&str>),
        (addresses, (year, month, day)): (&[&str], (i32, u8, u8)),
    ) {
        fs::write(folder.join("ca-cert.pem"), &self.pem).unwrap();
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(addresses).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.not_after = rcgen::date_time_ymd(year, month, day);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(folder.join(format!("{whose}-cert.pem")), certificate.pem()).unwrap();
        let path = folder.join(format!("{whose}-key.pem"));
        fs::write(&path, key.serialize_pem()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// `disk.img` of the bench, served at a port that was free.
struct Served {
    #[expect(dead_code, reason = "it serves for as long as it is here")]
    exported: Exported,
    port: u16,
}

impl Served {
    fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        let common = ["disk.img", "--name", "disk", "--nbd", "127.0.0.1:0"];
        let exported = Exported::begin(bench, &[&common, arguments].concat());
        let uri = &exported.uris[0];
        let port = uri.strip_prefix("nbds://127.0.0.1:").and_then(|rest| rest.strip_suffix("/disk"));
        Self { port: port.expect(uri).parse().unwrap(), exported }
    }

    fn uri(&self, bench: &Bench, folder: &str) -> String {
        let folder = text(&bench.path(folder));
        format!("nbds://127.0.0.1:{}/disk?tls-certificates={folder}", self.port)
    }
}

#[test]
fn libnbd_copies_over_tls_and_nobody_else_gets_in() {
    if !is_here("nbdinfo", "libnbd-bin") || !is_here("nbdcopy", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    let (authority, stranger) = (Authority::called("authority"), Authority::called("stranger"));
    authority.folder(&bench, "server", "server");
    authority.folder(&bench, "client", "client");
    stranger.folder(&bench, "stranger", "client");
    let nobody = bench.make_folder("nobody");
    fs::write(nobody.join("ca-cert.pem"), &authority.pem).unwrap();
    let served = Served::begin(&bench, &["--create", "8MiB", "--nbd-tls", "server"]);
    let uri = served.uri(&bench, "client");
    let info = judge("nbdinfo", &[&uri]);
    assert!(info.contains("with TLS") && info.contains("export-size: 8388608"), "{info}");
    let source = bench.make_file("source", &noise(8 << 20, 1));
    judge("nbdcopy", &[&text(&source), &uri]);
    judge("nbdcopy", &[&uri, &text(&bench.path("back"))]);
    assert!(fs::read(bench.path("back")).unwrap() == fs::read(&source).unwrap());
    let plain = format!("nbd://127.0.0.1:{}/disk", served.port);
    for stranger in [plain, served.uri(&bench, "stranger"), served.uri(&bench, "nobody")] {
        let output = judged("nbdinfo", &[&stranger]);
        assert!(!output.status.success(), "{stranger}: {output:?}");
    }
}

#[test]
fn qemu_converts_and_compares_over_tls() {
    if !is_here("qemu-img", "qemu-utils") || !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    let authority = Authority::called("authority");
    authority.folder(&bench, "server", "server");
    authority.folder(&bench, "client", "client");
    let served = Served::begin(&bench, &["--create", "8MiB", "--nbd-tls", "server"]);
    let image = text(&bench.make_file("image", &noise(8 << 20, 2)));
    let folder = text(&bench.path("client"));
    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={folder}");
    let file = format!("driver=raw,file.driver=file,file.filename={image}");
    let port = served.port;
    let disk = format!("driver=nbd,host=127.0.0.1,port={port},export=disk,tls-creds=tls");
    judge(
        "qemu-img",
        &["convert", "-n", "--object", &credentials, "--image-opts", "--target-image-opts", &file, &disk],
    );
    judge("qemu-img", &["compare", "--object", &credentials, "--image-opts", &file, &disk]);
    let commands = ["-c", "write -P 7 64k 64k", "-c", "flush", "-c", "read -P 7 64k 64k"];
    let arguments = [&["--object", &credentials, "--image-opts"][..], &commands, &[&disk]].concat();
    let said = judge("qemu-io", &arguments);
    assert!(!said.contains("verification failed"), "{said}");
}

#[test]
fn our_client_proves_over_tls_and_believes_only_whom_it_should() {
    let bench = Bench::new();
    fs::File::create(bench.path("disk.img")).unwrap().set_len(160 << 20).unwrap();
    let (authority, stranger) = (Authority::called("authority"), Authority::called("stranger"));
    authority.folder(&bench, "server", "server");
    authority.folder(&bench, "client", "client");
    stranger.folder(&bench, "stranger", "client");
    let served = Served::begin(&bench, &["--nbd-tls", "server"]);
    let uri = served.uri(&bench, "client");
    answered(&bench.run(&short(&[&uri, "--quiet", "--report", "result"])));
    let report = fs::read_to_string(bench.path("result.json")).unwrap();
    assert!(report.contains("NBD over TLS, one connection a group"), "it says how it is reached");
    let bare = format!("nbds://127.0.0.1:{}/disk", served.port);
    for (uri, story) in [
        (served.uri(&bench, "stranger"), "no TLS: invalid peer certificate: "),
        (format!("nbd://127.0.0.1:{}/disk", served.port), "only over TLS"),
        (bare, "no certificate authority is given; add ?tls-certificates=FOLDER"),
        (served.uri(&bench, "none"), "none is no folder"),
        (served.uri(&bench, "client") + "&tls-hostname=other.example", "not valid for name"),
    ] {
        let refused = bench.refused(&short(&[&uri]));
        assert!(refused.contains(story), "{uri}: {refused}");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused_in_a_line() {
    let bench = Bench::new();
    bench.make_file("disk.img", &[0; 4096]);
    let authority = Authority::called("authority");
    for name in ["open", "mixed", "half", "revoked"] {
        authority.folder(&bench, name, "server");
    }
    fs::set_permissions(bench.path("open/server-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::copy(bench.path("half/server-key.pem"), bench.path("mixed/server-key.pem")).unwrap();
    fs::remove_file(bench.path("half/server-key.pem")).unwrap();
    bench.make_file("revoked/ca-crl.pem", b"");
    let place = format!("unix:{}", bench.path("socket").display());
    for (arguments, story) in [
        (&["--nbd", &place, "--nbd-tls", "none"][..], "none is no folder; give one with certificates"),
        (&["--nbd", &place, "--nbd-tls", "."], ". has no server-cert.pem; make certificates with"),
        (&["--nbd", &place, "--nbd-tls", "half"], "half has no server-key.pem; make certificates with"),
        (&["--nbd", &place, "--nbd-tls", "open"], "open/server-key.pem: others may read this key; chmod 600"),
        (&["--nbd", &place, "--nbd-tls", "mixed"], "mixed: the certificate and its key: "),
        (
            &["--nbd", &place, "--nbd-tls", "revoked"],
            "revoked/ca-crl.pem: revocation lists are not supported",
        ),
        (&["--iscsi", "127.0.0.1:0", "--nbd-tls", "half"], "--nbd-tls without NBD; say where"),
        (&["--nbd", &place, "--nbd-tls-optional"], "the following required arguments were not provided"),
    ] {
        let said = bench.refused(&[&["export", "disk.img"], arguments].concat());
        assert!(said.starts_with(&format!("spindle: {story}")), "{said}");
    }
}
