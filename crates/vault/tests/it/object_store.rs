//! Vaults in an object store: one over a simulated network that is busy, hangs up and answers late; and moto's server, where
//! it is installed, judged by restic as well.

use crate::volumes::{MemoryVolume, SMALL, access, order, source};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::Write,
    process::{Child, Command, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};
use vault::{
    VaultError,
    checking::check,
    contents::{CopiedVolume, copied_backups},
    copying::copy,
    pruning::prune,
    repository::Repository,
    restoring::{VaultRestoreTarget, restore},
    sealing::SealingKey,
    store::{S3Credentials, S3Settings, S3Store, VaultFileKind, VaultStore},
};
use world::{
    Address, IoErrorKind, Job, Network, Random, World,
    real::{self, RealOptions, Sockets},
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

fn settings(address: Address, host: &str) -> S3Settings {
    S3Settings {
        address,
        host: host.to_owned(),
        tls: None,
        region: "us-east-1".to_owned(),
        bucket: "mail-vault".to_owned(),
        prefix: "a b".to_owned(),
        credentials: S3Credentials { key_id: "id".into(), secret: "secret".into(), session_token: None },
    }
}

/// Objects, and how the server behaves.
#[derive(Default)]
struct Bucket {
    objects: RefCell<BTreeMap<String, Vec<u8>>>,
    requests: Cell<u64>,
    /// Of so many requests, one is refused and one is hung up on.
    faults_every: Cell<u64>,
    /// Objects of a page.
    page: Cell<usize>,
    policy: Cell<BucketPolicy>,
    /// Requests that the policy refused.
    refused: Cell<u64>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum BucketPolicy {
    #[default]
    All,
    /// Nothing is written over, and locks alone are deleted.
    AppendOnly,
    /// Conditions of writes are not known.
    NoConditions,
}

impl Bucket {
    async fn answer(
        &self,
        world: &World,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let number = self.requests.get() + 1;
        self.requests.set(number);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        assert!(
            parts.headers["authorization"].to_str().unwrap().starts_with("AWS4-HMAC-SHA256 Credential=id/")
        );
        let status = |status| Response::builder().status(status).body(Full::default()).unwrap();
        match self.faults_every.get() {
            0 => {}
            every if number.is_multiple_of(every) => return Ok(status(StatusCode::SERVICE_UNAVAILABLE)),
            // The change takes place, and nobody hears of it.
            every if number % every == 1 => {
                self.apply(&parts, &body);
                return Err(std::io::Error::other("hung up"));
            }
            _ if number % 50 == 2 => world.sleep(Duration::from_secs(200)).await,
            _ => {}
        }
        Ok(self.apply(&parts, &body))
    }

    fn apply(&self, parts: &hyper::http::request::Parts, body: &Bytes) -> Response<Full<Bytes>> {
        let mut objects = self.objects.borrow_mut();
        let respond = |status: u16, body: Vec<u8>| {
            Response::builder().status(status).body(Full::new(body.into())).unwrap()
        };
        let Some(key) = parts.uri.path().strip_prefix("/mail-vault/a%20b/") else {
            assert_eq!(parts.uri.path(), "/mail-vault");
            return respond(200, self.list(&objects, parts.uri.query().unwrap()).into_bytes());
        };
        let (policy, has_condition) = (self.policy.get(), parts.headers.contains_key("if-none-match"));
        let refuse = |status| {
            self.refused.set(self.refused.get() + 1);
            respond(status, b"<Error><Code>Refused</Code><Message>by the policy</Message></Error>".to_vec())
        };
        match (&parts.method, objects.get(key)) {
            (&Method::PUT, _) if policy == BucketPolicy::NoConditions && has_condition => refuse(501),
            (&Method::PUT, _) if policy == BucketPolicy::AppendOnly && !has_condition => refuse(403),
            (&Method::PUT, Some(_)) if policy == BucketPolicy::AppendOnly => refuse(412),
            (&Method::DELETE, _) if policy == BucketPolicy::AppendOnly && !key.starts_with("locks/") => {
                refuse(403)
            }
            (&Method::PUT, _) => {
                objects.insert(key.to_owned(), body.to_vec());
                respond(200, Vec::new())
            }
            (&Method::DELETE, _) => {
                objects.remove(key);
                respond(204, Vec::new())
            }
            (&Method::GET, None) => {
                respond(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>".to_vec())
            }
            (&Method::GET, Some(bytes)) => match parts.headers.get("range") {
                None => respond(200, bytes.clone()),
                Some(range) => {
                    let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
                    let (from, to) = range.split_once('-').unwrap();
                    let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                    match bytes.get(from..(to + 1).min(bytes.len())) {
                        Some(part) => respond(206, part.to_vec()),
                        None => respond(416, Vec::new()),
                    }
                }
            },
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, objects: &BTreeMap<String, Vec<u8>>, query: &str) -> String {
        let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let prefix = query["prefix"].replace("%2F", "/").replace("%20", " ");
        let prefix = prefix.strip_prefix("a b/").unwrap();
        let after =
            query.get("continuation-token").map(|token| token.replace("%2F", "/")).unwrap_or_default();
        let mut names = objects.iter().filter(|(name, _)| name.starts_with(prefix) && **name > after);
        let page: Vec<_> = names.by_ref().take(self.page.get().max(1)).collect();
        let mut text = "<ListBucketResult>".to_owned();
        for (name, bytes) in &page {
            write!(text, "<Contents><Key>a b/{name}</Key><Size>{}</Size></Contents>", bytes.len()).unwrap();
        }
        match (names.next(), page.last()) {
            (Some(_), Some((last, _))) => {
                write!(
                    text,
                    "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
                )
                .unwrap();
            }
            _ => text += "<IsTruncated>false</IsTruncated>",
        }
        text + "</ListBucketResult>"
    }
}

async fn serve(world: World, network: Rc<dyn Network>, address: Address, bucket: Rc<Bucket>) {
    let listener = network.listen(&address).await.unwrap();
    world.clone().spawn("object store", async move {
        loop {
            let Ok(incoming) = listener.accept().await else { continue };
            let (bucket, own) = (Rc::clone(&bucket), world.clone());
            world.spawn("connection", async move {
                let answer = service_fn(move |request| {
                    let (bucket, own) = (Rc::clone(&bucket), own.clone());
                    async move { bucket.answer(&own, request).await }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(incoming.stream), answer).await;
            });
        }
    });
}

/// Runs `test` beside an object store.
fn beside<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(World, Rc<dyn VaultStore>, Rc<Bucket>) -> F + 'static,
) {
    let mut simulation = Simulation::new(1);
    let network: SimNetwork = simulation.add_network(NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let address = Address::parse("store:9000", 9000).unwrap();
        let bucket = Rc::new(Bucket::default());
        bucket.page.set(1000);
        serve(world.clone(), network.host("store"), address.clone(), Rc::clone(&bucket)).await;
        let store = S3Store::new(&world, network.host("client"), settings(address, "store:9000"));
        test(world, Rc::new(store), bucket).await;
    });
    run.completed();
}

/// Copies a volume, checks the vault, and compares what is restored.
async fn copy_and_restore(world: &World, repository: &Rc<Repository>) {
    let mut content = vec![0; 64 * 4096];
    Random::new(1, "content").fill(&mut content[4096..40 * 4096]);
    let device = MemoryVolume::new(world, content.clone());
    let job = Job::under_way(world);
    copy(repository, order(1, vec![source(&device, "store", 1, SMALL)]), &job).await.unwrap();
    let checked = check(repository, true, None, &job).await.unwrap();
    assert_eq!((checked.findings, checked.snapshots), (Vec::new(), 1));
    let copies = copied_backups(repository).await.unwrap();
    let volume = CopiedVolume::open(repository, &copies[0], &copies[0].record.volumes[0]).await.unwrap();
    let target = MemoryVolume::new(world, vec![0; content.len()]);
    let (device, holes) = (Rc::new(target.clone()), Some(Rc::new(target.clone()) as _));
    let into = VaultRestoreTarget { name: "target".into(), device, holes };
    restore(repository, &volume, &into, None, &job).await.unwrap();
    assert!(target.bytes() == content);
}

#[test]
fn a_store_that_is_busy_hangs_up_and_is_late_is_asked_again() {
    beside(|world, store, bucket| async move {
        bucket.faults_every.set(7);
        bucket.page.set(3);
        let access = access(&world, store, 7);
        let repository = Rc::new(Repository::make_with_key(&access, SealingKey::draw(&world)).await.unwrap());
        copy_and_restore(&world, &repository).await;
        assert!(bucket.requests.get() > 60, "{}", bucket.requests.get());
        let names: Vec<String> = bucket.objects.borrow().keys().cloned().collect();
        assert!(names.iter().any(|name| name.starts_with("data/")) && names.contains(&"config".to_owned()));
        assert!(!names.iter().any(|name| name.starts_with("locks/")), "{names:?}");
    });
}

#[test]
fn what_a_store_lacks_and_refuses_for_good_is_an_error() {
    beside(|world, store, bucket| async move {
        let opened =
            Repository::open_with_key(&access(&world, Rc::clone(&store), 7), SealingKey::draw(&world)).await;
        assert!(matches!(opened, Err(VaultError::NoVault(place)) if place == "s3://mail-vault/a b"));
        store.write(VaultFileKind::Index, &"01".repeat(32), vec![5; 10]).await.unwrap();
        let kind_of = |read: world::IoResult<Vec<u8>>| read.unwrap_err().kind();
        let beyond = store.read_range(VaultFileKind::Index, &"01".repeat(32), (8, 4)).await;
        assert_eq!(kind_of(beyond), IoErrorKind::OutOfRange);
        assert_eq!(
            kind_of(store.read(VaultFileKind::Index, &"01".repeat(32), 9).await),
            IoErrorKind::Damaged
        );
        assert_eq!(store.read_range(VaultFileKind::Index, &"01".repeat(32), (8, 2)).await.unwrap(), [5, 5]);
        bucket.faults_every.set(1);
        let before = world.now();
        assert_eq!(
            kind_of(store.read(VaultFileKind::Index, &"01".repeat(32), 10).await),
            IoErrorKind::Disconnected
        );
        assert!(world.now().since(before) > Duration::from_secs(5));
    });
}

#[test]
fn a_key_that_may_only_add_makes_copies_and_takes_nothing_away() {
    beside(|world, store, bucket| async move {
        bucket.policy.set(BucketPolicy::AppendOnly);
        // A write is done and nobody hears of it: the next attempt finds it there.
        bucket.faults_every.set(7);
        let access = access(&world, Rc::clone(&store), 7);
        let repository = Rc::new(Repository::make_with_key(&access, SealingKey::draw(&world)).await.unwrap());
        copy_and_restore(&world, &repository).await;
        assert!(bucket.refused.get() > 0, "no attempt came twice");
        bucket.faults_every.set(0);
        let other = store.write(VaultFileKind::Config, "", b"another vault".to_vec()).await.unwrap_err();
        assert_eq!(other.kind(), IoErrorKind::AlreadyExists);
        // Nothing needs the contents of the one copy any more.
        bucket.objects.borrow_mut().retain(|name, _| !name.starts_with("snapshots/"));
        let before = bucket.objects.borrow().clone();
        let job = Job::under_way(&world);
        let pruned = prune(&repository, &job).await;
        assert!(matches!(pruned, Err(VaultError::NoDeletion(_))), "{pruned:?}");
        assert!(*bucket.objects.borrow() == before, "something was written or went");
        bucket.policy.set(BucketPolicy::All);
        let pruned = prune(&repository, &job).await.unwrap();
        assert!(pruned.packs_removed > 0, "{pruned:?}");
    });
}

#[test]
fn a_store_without_conditional_writes_says_so_once() {
    beside(|world, store, bucket| async move {
        bucket.policy.set(BucketPolicy::NoConditions);
        let access = access(&world, store, 7);
        let repository = Rc::new(Repository::make_with_key(&access, SealingKey::draw(&world)).await.unwrap());
        copy_and_restore(&world, &repository).await;
        assert_eq!(bucket.refused.get(), 1);
    });
}

/// moto's server; ended when dropped.
struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn restic_reads_a_vault_in_the_object_store_of_moto() {
    let is_here =
        |program: &str| Command::new(program).arg("--help").output().is_ok_and(|said| said.status.success());
    if !is_here("moto_server") || !is_here("restic") {
        println!(
            "skipped: moto_server or restic is not installed (pip install 'moto[s3,server]', apt-get install restic)"
        );
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = format!("127.0.0.1:{port}");
    let mut server = Command::new("moto_server");
    let _server = Moto(
        server.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stderr(Stdio::null()).spawn().unwrap(),
    );
    while std::net::TcpStream::connect(&host).is_err() {
        thread::sleep(Duration::from_millis(50));
    }
    let curl = Command::new("curl")
        .args(["-s", "-X", "PUT", &format!("http://{host}/mail-vault")])
        .output()
        .unwrap();
    assert!(curl.status.success());
    real::run(0, RealOptions::default(), async |world: World| {
        let settings =
            S3Settings { prefix: "posts".into(), ..settings(Address::parse(&host, 1).unwrap(), &host) };
        let store = S3Store::new(&world, Rc::new(Sockets), settings);
        let access = access(&world, Rc::new(store), std::process::id());
        let repository = Rc::new(Repository::make(&access, b"a good password").await.unwrap());
        copy_and_restore(&world, &repository).await;
    });
    let mut restic = Command::new("restic");
    restic.args(["-r", &format!("s3:http://{host}/mail-vault/posts"), "--no-cache", "check", "--read-data"]);
    restic
        .env("RESTIC_PASSWORD", "a good password")
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    let said = restic.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
