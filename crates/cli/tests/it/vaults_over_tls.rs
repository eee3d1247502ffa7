//! A vault in an object store behind TLS: moto's server with a certificate of an authority that openssl made. Nothing is sent to
//! one that is not trusted, and restic reads what is there.

use crate::{
    exported::is_here,
    judged_exports::until,
    spindle::{Bench, ProgramOutput, is_full_run},
};
use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

/// moto's server; ended when dropped.
struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An authority, and a certificate of it for this address and for no name.
const CERTIFICATES: &str = "set -e
for authority in ca other; do
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$authority -keyout $authority.key -out $authority.pem
done
openssl req -newkey rsa:2048 -nodes -subj /CN=store -keyout store.key -out store.csr
printf 'subjectAltName=IP:127.0.0.1\n' > store.ext
openssl x509 -req -in store.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile store.ext -out store.pem";

struct Store {
    bench: Bench,
    port: u16,
    _server: Moto,
}

impl Store {
    /// `None` if moto is not installed.
    fn begin() -> Option<Self> {
        let help = Command::new("moto_server").arg("--help").output();
        if !help.is_ok_and(|said| said.status.success()) {
            println!("skipped: moto_server is not installed (pip install 'moto[s3,server]')");
            return None;
        }
        if !is_here("openssl", "openssl") || !is_here("restic", "restic") || !is_here("curl", "curl") {
            return None;
        }
        let bench = Bench::new();
        let made =
            Command::new("sh").args(["-c", CERTIFICATES]).current_dir(bench.path("")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let secret = bench.make_file("secret", b"a good password\n");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new("moto_server");
        server.args(["-H", "127.0.0.1", "-p", &port.to_string(), "-c", "store.pem", "-k", "store.key"]);
        let log = fs::File::create(bench.path("moto.log")).unwrap();
        server.current_dir(bench.path("")).stdout(Stdio::null()).stderr(log);
        let server = Moto(server.spawn().unwrap());
        until("moto listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let store = Self { bench, port, _server: server };
        let mut curl = Command::new("curl");
        curl.args(["-s", "--cacert", "ca.pem", "-X", "PUT", &format!("{}/mail-vault", store.endpoint())]);
        let said = curl.current_dir(store.bench.path("")).output().unwrap();
        assert!(said.status.success(), "curl: {}", String::from_utf8_lossy(&said.stderr));
        Some(store)
    }

    fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A vault verb with these authorities; those of the machine if there are none.
    fn vault(&self, verb: &str, endpoint: &str, authorities: Option<&str>) -> ProgramOutput {
        let place = ["protect", "vault", verb, "s3://mail-vault/posts", "--password-file", "secret"];
        let mut command = self.bench.command(&place);
        command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "no-secret-of-mine");
        command.env("AWS_ENDPOINT_URL", endpoint).env_remove("AWS_CA_BUNDLE");
        if let Some(file) = authorities {
            command.env("AWS_CA_BUNDLE", file);
        }
        self.bench.said(command.output().unwrap())
    }

    #[track_caller]
    fn refused(&self, endpoint: &str, authorities: Option<&str>) -> String {
        let said = self.vault("init", endpoint, authorities);
        assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
        assert!(!said.stderr.contains("no-secret-of-mine"), "{}", said.stderr);
        assert_eq!(said.stderr.trim_end().lines().count(), 1, "one line: {}", said.stderr);
        said.stderr
    }

    /// Requests that moto was sent.
    fn requests(&self) -> usize {
        let log = fs::read_to_string(self.bench.path("moto.log")).unwrap();
        log.lines().filter(|line| line.contains("HTTP/1.1\"")).count()
    }
}

#[test]
fn a_store_behind_tls_is_used_if_its_authority_is_trusted_and_is_sent_nothing_otherwise() {
    if !is_full_run("stores behind TLS") {
        return;
    }
    let Some(store) = Store::begin() else { return };
    let before = store.requests();
    for authorities in [None, Some("other.pem")] {
        let refused = store.refused(&store.endpoint(), authorities);
        assert!(refused.contains("invalid peer certificate: UnknownIssuer"), "{refused}");
        assert!(refused.contains("AWS_CA_BUNDLE"), "{refused}");
    }
    // A certificate of the right authority for another name.
    let by_name = store.endpoint().replace("127.0.0.1", "localhost");
    let refused = store.refused(&by_name, Some("ca.pem"));
    assert!(
        refused.contains("invalid peer certificate: certificate not valid for name \"localhost\""),
        "{refused}"
    );
    let plain = store.endpoint().replace("https", "http");
    assert!(!store.refused(&plain, None).is_empty(), "without TLS");
    for (file, why) in [("nowhere.pem", "nowhere.pem"), ("store.key", "AWS_CA_BUNDLE=store.key: ")] {
        let refused = store.refused(&store.endpoint(), Some(file));
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(store.requests(), before, "nothing was sent to a store that is not trusted");

    let made = store.vault("init", &store.endpoint(), Some("ca.pem"));
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    let checked = store.vault("check", &store.endpoint(), Some("ca.pem"));
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let mut restic = Command::new("restic");
    let repository = format!("s3:{}/mail-vault/posts", store.endpoint());
    restic.args(["-r", &repository, "--cacert", "ca.pem", "--no-cache", "check", "--read-data"]);
    restic.env("RESTIC_PASSWORD", "a good password").env("AWS_ACCESS_KEY_ID", "id");
    restic.env("AWS_SECRET_ACCESS_KEY", "no-secret-of-mine").current_dir(store.bench.path(""));
    let said = restic.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
