//! A server killed while fio writes and a caller changes things over the API: what was answered is there, once.

use crate::{
    exported::is_here,
    judged_exports::{BLOCK, Endpoint, JOBS, PART, answered_lengths, fio, until},
    spindle::Bench,
};
use control::web::{
    client::{ApiClient, NewCloneBody, NewSnapshotBody, NewVolumeBody},
    rows::{PoolRow, SnapshotPage, VolumeEntry, VolumePage},
};
use report::Refusal;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use world::{
    Address, Random, World,
    real::{self, Sockets},
};

/// `spindle serve`, killed when dropped.
struct Served(Child);

impl Served {
    fn begin(bench: &Bench) -> Self {
        let mut command = bench.command(&["serve", "site.toml", "--state", "state", "--quiet"]);
        let log = fs::File::options().create(true).append(true).open(bench.path("log")).unwrap();
        let served = Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until("it listens before long", || {
            ["socket", "state/spindle.sock"].iter().all(|path| UnixStream::connect(bench.path(path)).is_ok())
        });
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Volumes and snapshots that the caller knows from answers.
#[derive(Default)]
struct CallerModel {
    volumes: BTreeSet<String>,
    /// Of the volume `disk`.
    snapshots: BTreeSet<String>,
    /// Changes that were sent again, because no answer had come.
    repeated: u64,
}

/// Facts that the test and the caller tell each other.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Changes that were answered.
    answered: AtomicU64,
    used_bytes: AtomicU64,
}

/// A caller that sends changes until it is over, each until it is answered, and compares at the end.
async fn call(world: World, socket: PathBuf, seed: u64, shared: Arc<Shared>) -> CallerModel {
    let client = ApiClient::new(Rc::new(Sockets), Address::Unix(socket), None);
    let mut random = Random::new(seed, "caller");
    let mut told = CallerModel::default();
    let mut waited = 0;
    let pools = again(&world, &mut waited, async || client.get::<Vec<PoolRow>>("/v1/pools").await).await;
    let pool = pools[0].id.clone().unwrap();
    let disk: VolumePage = client.get("/v1/volumes?name=disk").await.unwrap();
    let disk = disk.volumes[0].id.clone();
    told.volumes.insert("disk".to_owned());
    let mut number = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        number += 1;
        let rows = again(&world, &mut waited, async || client.get::<Vec<PoolRow>>("/v1/pools").await).await;
        shared.used_bytes.store(rows[0].used_bytes, Ordering::Relaxed);
        let made: Vec<&String> = told.volumes.iter().filter(|name| *name != "disk").collect();
        let (method, path, body, name) = match random.below(4) {
            0 => {
                let body =
                    NewVolumeBody { name: format!("v{number}"), size_bytes: 1 << 20, ..Default::default() };
                ("POST", format!("/v1/pools/{pool}/volumes"), serde_json::to_string(&body).ok(), body.name)
            }
            1 => {
                let body = NewSnapshotBody { name: format!("s{number}"), ..Default::default() };
                (
                    "POST",
                    format!("/v1/volumes/{disk}/snapshots"),
                    serde_json::to_string(&body).ok(),
                    body.name,
                )
            }
            2 => {
                let body = NewCloneBody { name: format!("c{number}"), ..Default::default() };
                ("POST", format!("/v1/volumes/{disk}/clones"), serde_json::to_string(&body).ok(), body.name)
            }
            _ if made.is_empty() => continue,
            _ => {
                let name = made[random.below(made.len() as u64) as usize].clone();
                let row = again(&world, &mut told.repeated, async || {
                    client.get::<VolumePage>(&format!("/v1/volumes?name={name}")).await
                });
                let rows: Vec<VolumeEntry> = row.await.volumes;
                assert_eq!(rows.len(), 1, "{name}: {rows:?}");
                ("DELETE", format!("/v1/volumes/{}", rows[0].id), None, name)
            }
        };
        let key = format!("{seed}-{number}");
        let reply = again(&world, &mut told.repeated, async || {
            let headers = [("idempotency-key", key.as_str())];
            let sent = client.send(method.parse().unwrap(), &path, body.clone(), &headers).await?;
            // While the server starts.
            if sent.status >= 500 { Err(Refusal::new(sent.body, "again")) } else { Ok(sent) }
        });
        let reply = reply.await;
        assert!(reply.status < 400, "{method} {path}: {reply:?}");
        match (method, name.starts_with('s')) {
            ("DELETE", _) => assert!(told.volumes.remove(&name)),
            (_, true) => assert!(told.snapshots.insert(name)),
            (_, false) => assert!(told.volumes.insert(name)),
        }
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    let page: VolumePage = client.get("/v1/volumes?limit=5000").await.unwrap();
    let found: BTreeSet<String> = page.volumes.into_iter().map(|row| row.name).collect();
    assert_eq!(found, told.volumes);
    let page: SnapshotPage = client.get(&format!("/v1/volumes/{disk}/snapshots?limit=5000")).await.unwrap();
    let found: BTreeSet<String> = page.snapshots.into_iter().map(|row| row.name).collect();
    assert_eq!(found, told.snapshots);
    told
}

/// Tries until it is answered.
async fn again<T>(world: &World, repeated: &mut u64, attempt: impl AsyncFn() -> Result<T, Refusal>) -> T {
    for tries in 0.. {
        match attempt().await {
            Ok(answer) => return answer,
            Err(refusal) => {
                assert!(tries < 400, "{refusal}");
                *repeated += u64::from(tries == 0);
                world.sleep(Duration::from_millis(50)).await;
            }
        }
    }
    unreachable!("it is answered, or it has failed")
}

/// Returns how many changes were sent again.
fn kill_under_fio_and_a_caller(seed: u64) -> u64 {
    let bench = Bench::new();
    let socket = bench.path("socket");
    let site = format!(
        "[serve]\nnbd = 'unix:{}'\niscsi = 'none'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 0.6\n\
         [[volume]]\nname = 'disk'\ngroup = 'mail'\ngb = 0.125\n[[nbd]]\nname = 'disk'\nvolume = 'disk'\n",
        socket.display()
    );
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    let endpoint = Endpoint::Socket(socket);
    let by = (&bench, Path::new("fio"));
    let shared = Arc::<Shared>::default();
    let caller = {
        let (socket, shared) = (bench.path("state/spindle.sock"), Arc::clone(&shared));
        thread::spawn(move || {
            real::run(seed, Default::default(), async |world: World| call(world, socket, seed, shared).await)
        })
    };
    let mut writing =
        fio(by, &endpoint, "do_verify=0\nrate_iops=1000", [PART; JOBS as usize]).spawn().unwrap();
    let answered = || shared.answered.load(Ordering::Relaxed);
    until("changes are answered while fio writes", || {
        let has_written = shared.used_bytes.load(Ordering::Relaxed) > 400 * BLOCK;
        (has_written && answered() >= 20 + seed % 7) || caller.is_finished()
    });
    assert!(!caller.is_finished(), "{:?}", caller.join().err());
    drop(served);
    let _served = Served::begin(&bench);
    until("fio hears of it", || writing.try_wait().unwrap().is_some());
    let lengths = answered_lengths(&bench);
    assert!(lengths.iter().sum::<u64>() > 100 * BLOCK, "{lengths:?}");
    let before = answered();
    until("changes are answered again", || answered() >= before + 10 || caller.is_finished());
    shared.is_over.store(true, Ordering::Relaxed);
    let told = caller
        .join()
        .unwrap_or_else(|_| panic!("seed {seed}: {}", fs::read_to_string(bench.path("log")).unwrap()));
    let verified = fio(by, &endpoint, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}", fs::read_to_string(bench.path("said.json")).unwrap());
    told.repeated
}

#[test]
fn what_was_answered_is_there_once_after_the_server_was_killed_under_fio_and_a_caller() {
    if !is_here("fio", "fio") {
        return;
    }
    let kills = if std::env::var_os("SPINDLE_FULL").is_some() { 100 } else { 3 };
    let repeated: u64 = (0..kills).map(kill_under_fio_and_a_caller).sum();
    println!("{kills} kills, {repeated} requests repeated");
    assert!(repeated >= kills / 2, "{repeated} requests were repeated in {kills} kills");
}
