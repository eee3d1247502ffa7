//! Drives and jobs of a real pool, changed over the API while fio writes.

use crate::real_threads::{ALONE, call, is_here};
use crate::sim_site::SimCatalogues;
use array::{mover::ThrottleSetting, volume::VolumeDevice};
use control::{
    DaemonJournal,
    events::DaemonEventLog,
    notice,
    site::{
        FolderPlaces, SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        CallerRole, DomainBody, MadeToken, NewDriveBody, NewToken, PoolPatch, SparingChoice, WebSetting,
        WebThread,
        client::{ApiClient, ApiReply},
        health_rows::{DriveRow, DriveState, JobName, JobRow, JobState},
        rows::PoolRow,
    },
};
use nbd::NbdUri;
use serde::Serialize;
use std::{
    path::Path,
    rc::Rc,
    sync::{Arc, PoisonError},
    time::Duration,
};
use world::{
    Address, BlockDevice, Buffer, ByteOffset, Network, ProgramEnd, Programs, Stability, World,
    real::{self, HostStateFile, RealOptions, RealPrograms, RealThreads, Sockets},
    with_deadline,
};

const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = 'none'
[[group]]
name = 'mail'
drives = 3
drive_gb = 0.11
[[volume]]
name = 'store'
group = 'mail'
gb = 0.03125
[[nbd]]
name = 'store'
volume = 'store'
";
const MIB: u64 = 1 << 20;

/// A served site with one pool, and a caller who may do everything.
struct Bench {
    world: World,
    server: SiteServer,
    web: WebThread,
    socket: Address,
    client: ApiClient,
    /// Path of the pool.
    pool: String,
}

async fn start(world: &World, state: &Path) -> Bench {
    let journal = HostStateFile::open(&state.join("journal")).unwrap();
    let journal = Arc::new(DaemonJournal::open(Arc::new(journal)).unwrap());
    let threads = Rc::new(RealThreads { seed: 1, options: RealOptions::default() });
    let setting = SiteServerSetting {
        context: SiteContext { folder: state.to_owned(), state: state.to_owned(), site: None },
        places: Rc::new(FolderPlaces { socket: None }),
        threads: Rc::clone(&threads) as _,
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        journal: Arc::clone(&journal),
        catalogues: Rc::new(SimCatalogues::default()),
    };
    let (notices, _) = notice::channel("serve");
    let mut server = SiteServer::start(world, setting, SITE, PortalUse::Listen, &notices).await.unwrap();
    let socket = Address::Unix(state.join("socket"));
    let setting = WebSetting {
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        addresses: vec![(socket.clone(), "socket")],
        tls: server.api_certificates().cloned(),
        own_user: std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(state).unwrap()),
        site: server.handle(),
        journal,
        events: DaemonEventLog::new(world.wall()),
        history: Box::new(control::history::MemoryHistory::default()),
        reports: None,
        link: None,
        pages: None,
    };
    let web = WebThread::start(world, &*threads, setting, notices.of("api")).await.unwrap();
    let plan = server.plan(SITE, &[], PlanOccasion::Start).await.unwrap();
    server.apply(plan, |_| ()).await.unwrap();
    server.open();
    let client = ApiClient::new(Rc::new(Sockets), socket.clone(), None);
    let rows: Vec<PoolRow> = client.get("/v1/pools").await.unwrap();
    let pool = format!("/v1/pools/{}", rows[0].id.as_ref().unwrap());
    Bench { world: world.clone(), server, web, socket, client, pool }
}

impl Bench {
    async fn send(&self, method: &str, end: &str, body: Option<String>, key: &str) -> ApiReply {
        let key = [("idempotency-key", key)];
        let headers = if key[0].1.is_empty() { &key[..0] } else { &key[..] };
        let path = format!("{}{end}", self.pool);
        self.client.send(method.parse().unwrap(), &path, body, headers).await.unwrap()
    }

    async fn status(&self, method: &str, end: &str, body: Option<String>) -> u16 {
        self.send(method, end, body, "").await.status
    }

    async fn drives(&self) -> Vec<DriveRow> {
        self.client.get(&format!("{}/drives", self.pool)).await.unwrap()
    }

    async fn job(&self, name: JobName) -> JobRow {
        let jobs: Vec<JobRow> = self.client.get(&format!("{}/jobs", self.pool)).await.unwrap();
        jobs.into_iter().find(|job| job.kind == name).unwrap()
    }

    async fn row(&self) -> PoolRow {
        self.client.get(&self.pool).await.unwrap()
    }

    /// Waits until a look is as wanted.
    async fn until<T>(&self, what: &str, look: impl AsyncFn() -> T, is_so: impl Fn(&T) -> bool) -> T
    where
        T: std::fmt::Debug,
    {
        for _ in 0..1_500 {
            let found = look().await;
            if is_so(&found) {
                return found;
            }
            self.world.sleep(Duration::from_millis(20)).await;
        }
        panic!("{what}: {:?}", look().await);
    }

    async fn end(self) {
        assert_eq!(self.web.stop().await, Ok(()));
        assert_eq!(self.server.stop().await, []);
    }
}

fn json(body: &impl Serialize) -> Option<String> {
    Some(serde_json::to_string(body).unwrap())
}

fn file(size_bytes: u64) -> Option<String> {
    json(&NewDriveBody { size_bytes: Some(size_bytes), ..Default::default() })
}

fn drive(reply: &ApiReply) -> DriveRow {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn with_site(test: impl AsyncFnOnce(Bench, &Path)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    real::run(1, RealOptions::default(), async |world: World| {
        test(start(&world, folder.path()).await, folder.path()).await;
    });
}

#[test]
fn drives_join_and_leave_while_fio_writes_and_reads_what_it_wrote() {
    with_site(async |bench, state| {
        if !is_here("fio", "fio").await {
            return bench.end().await;
        }
        let address = bench.server.daemon().addresses().nbd.clone().unwrap();
        let uri = NbdUri { address, others: Vec::new(), export: "store".to_owned(), tls: None };
        let mut arguments: Vec<String> =
            ["--name=verified", "--ioengine=nbd", "--rw=randwrite", "--bs=16k", "--size=24M", "--iodepth=4"]
                .map(str::to_owned)
                .into();
        // Without its state file, which would lie in the folder of the crate.
        let verify = ["--rate=6m", "--verify=crc32c", "--do_verify=1", "--verify_state_save=0"];
        arguments.extend(verify.map(str::to_owned));
        arguments.push(format!("--uri={uri}"));
        let fio = bench
            .world
            .spawn("fio", async move { RealPrograms::default().run(call("fio", arguments)).await.unwrap() });
        let first = bench.drives().await;
        assert!(first.iter().all(|row| row.state == DriveState::InUse), "{first:?}");
        let added = bench.send("POST", "/drives", file(112 * MIB), "add").await;
        assert_eq!(added.status, 201, "{added:?}");
        let joined = drive(&added);
        assert_eq!((joined.state, joined.path.ends_with("drive-4.spindle")), (DriveState::InUse, true));
        assert_eq!(bench.drives().await.len(), 4, "it is shown at once");
        let again = bench.send("POST", "/drives", file(112 * MIB), "add").await;
        assert_eq!((again.status, drive(&again).id), (201, joined.id.clone()));
        let leaving = format!("/drives/{}", first[0].id.as_ref().unwrap());
        let retired = bench.send("DELETE", &leaving, None, "retire").await;
        assert_eq!(retired.status, 202, "{retired:?}");
        let left = bench.until("it leaves", async || bench.drives().await, |rows| rows.len() == 3).await;
        assert!(left.iter().any(|row| row.id == joined.id), "{left:?}");
        let record = std::fs::read_to_string(state.join("pools/mail/spindle-pool.json"));
        let record = record.unwrap_or_else(|_| {
            let names = std::fs::read_dir(state.join("pools/mail")).unwrap();
            panic!("{:?}", names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>())
        });
        assert!(!record.contains("drive-1.spindle") && record.contains("drive-4.spindle"), "{record}");
        assert_eq!(bench.status("DELETE", &leaving, None).await, 404);
        assert_eq!(bench.send("DELETE", &leaving, None, "retire").await.status, 202, "the same request");
        // One that was made in the middle is named like the others.
        let replaced = format!("/drives/{}/replacement", joined.id.as_ref().unwrap());
        let replacement = bench.send("POST", &replaced, file(112 * MIB), "replace").await;
        assert_eq!(replacement.status, 201, "{replacement:?}");
        let is_gone = |rows: &Vec<DriveRow>| rows.len() == 3 && rows.iter().all(|row| row.id != joined.id);
        bench.until("it is replaced", async || bench.drives().await, is_gone).await;
        let ended = fio.await;
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.output.bytes));
        let shown = bench.row().await;
        assert_eq!((shown.drives_in_use, shown.change_under_way.as_deref()), (3, None));
        assert_eq!(shown.health.unwrap().lost_segments, 0);
        bench.end().await;
    });
}

#[test]
fn a_scrub_is_a_job_that_can_be_ended_and_is_begun_once() {
    with_site(async |bench, _| {
        let slow = ThrottleSetting { ceiling_bytes_per_second: MIB, ..Default::default() };
        let orders = bench.server.daemon().pool("mail").unwrap().orders.clone();
        let prepared = orders.give(&bench.world, "prepare", move |served| {
            Box::pin(async move {
                let store = VolumeDevice(served.pool.volume("store").unwrap());
                let part = Arc::new(Buffer::copy_of(&[7; MIB as usize]));
                for at in (0..4).map(|part| ByteOffset(part * MIB)) {
                    store.write(at, vec![Arc::clone(&part)], Stability::Stable).await.unwrap();
                }
                // What is to be checked is counted by checkpoints.
                served.pool.checkpoint().await.unwrap();
                served.pool.set_throttle(slow);
            })
        });
        prepared.await.unwrap();
        assert_eq!(bench.job(JobName::Scrub).await.state, JobState::Idle);
        for _ in 0..2 {
            assert_eq!(bench.status("PUT", "/scrub", None).await, 202);
            let job = bench.job(JobName::Scrub).await;
            assert!(job.state == JobState::Running && job.done < job.total, "{job:?}");
        }
        // Volumes have their orders meanwhile.
        assert!(orders.give(&bench.world, "another", |_| Box::pin(async {})).await.is_ok());
        assert_eq!(bench.status("DELETE", "/scrub", None).await, 204);
        let is_idle = |job: &JobRow| job.state == JobState::Idle;
        let ended = bench.until("it ends", async || bench.job(JobName::Scrub).await, is_idle).await;
        assert!(ended.done < ended.total, "{ended:?}");
        let rounds = orders.give(&bench.world, "rounds", |served| {
            Box::pin(async move {
                served.pool.set_throttle(ThrottleSetting::default());
                served.pool.scrub_progress().rounds
            })
        });
        assert!(matches!(rounds.await, Ok(control::order::OrderAnswer::Done(0))));
        assert_eq!(bench.status("PUT", "/scrub", None).await, 202);
        let is_whole = |job: &JobRow| job.state == JobState::Idle && job.done == job.total;
        bench.until("it is done", async || bench.job(JobName::Scrub).await, is_whole).await;
        assert_eq!(bench.status("PUT", "/levelling", None).await, 202);
        let is_idle = |job: &JobRow| job.state == JobState::Idle;
        bench.until("they are level", async || bench.job(JobName::Level).await, is_idle).await;
        assert_eq!(bench.status("DELETE", "/levelling", None).await, 204);
        bench.end().await;
    });
}

#[test]
fn roles_and_refusals_leave_all_as_it_was() {
    with_site(async |bench, state| {
        let before = bench.drives().await;
        let files = || {
            let names = std::fs::read_dir(state.join("pools/mail")).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.retain(|name| name.to_string_lossy().starts_with("drive"));
            names.sort();
            names
        };
        let files_before = files();
        let of_first = |end: &str| format!("/drives/{}{end}", before[0].id.as_ref().unwrap());
        let device = |device: &str| json(&NewDriveBody { device: Some(device.into()), ..Default::default() });
        let both =
            NewDriveBody { size_bytes: Some(MIB), device: Some("/dev/null".into()), ..Default::default() };
        let missing = "/drives/00000000-0000-0000-0000-000000000000";
        let double = PoolPatch { sparing: Some(SparingChoice::Double), ..Default::default() };
        let two = PoolPatch { failure_sets: Some(true), ..double.clone() };
        let domain = DomainBody { name: "a name that is long".into(), drives: vec![] };
        let long = PoolPatch { domains: vec![domain], ..Default::default() };
        for (method, end, body, status, words) in [
            ("POST", "/drives".to_owned(), json(&both), 400, "a file or a device"),
            ("POST", "/drives".to_owned(), json(&NewDriveBody::default()), 400, "a file or a device"),
            ("POST", "/drives".to_owned(), file(1000), 400, "size_bytes is 1000"),
            ("POST", "/drives".to_owned(), file(4096), 409, ""),
            ("POST", "/drives".to_owned(), file(1 << 60), 409, ""),
            ("POST", "/drives".to_owned(), device("sda"), 400, "neither an absolute path"),
            ("POST", "/drives".to_owned(), device("/dev/null"), 409, "no block device"),
            ("POST", "/drives".to_owned(), Some("{\"bytes\":1}".to_owned()), 422, "unknown field"),
            ("DELETE", missing.to_owned(), None, 404, "has no drive"),
            ("POST", of_first("/grow"), None, 409, "has not become larger"),
            ("POST", of_first("/readmit"), None, 409, "is in use"),
            ("POST", of_first("/forget"), None, 409, ""),
            ("POST", of_first("/replacement"), file(4096), 409, ""),
            ("PATCH", String::new(), json(&double), 409, "sparing cannot be double"),
            ("PATCH", String::new(), json(&two), 400, "one of these"),
            ("PATCH", String::new(), json(&PoolPatch::default()), 400, "one of these"),
            ("PATCH", String::new(), json(&long), 400, "is none"),
        ] {
            let reply = bench.send(method, &end, body, "").await;
            assert_eq!(reply.status, status, "{method} {end}: {reply:?}");
            assert!(reply.body.contains(words), "{method} {end}: {reply:?}");
            assert_eq!((bench.drives().await, files()), (before.clone(), files_before.clone()), "{end}");
        }
        assert_eq!(bench.status("POST", &of_first("/keep"), None).await, 200, "it stays anyway");
        let domain = DomainBody { name: "shelf".into(), drives: vec![before[0].id.clone().unwrap()] };
        let domains = PoolPatch { domains: vec![domain], ..Default::default() };
        assert_eq!(bench.status("PATCH", "", json(&domains)).await, 200);
        assert_eq!(bench.drives().await[0].domain.as_deref(), Some("shelf"));
        for (name, role, statuses) in
            [("r", CallerRole::Read, [200, 403, 403, 403]), ("o", CallerRole::Operate, [200, 400, 403, 403])]
        {
            let new = NewToken { name: name.to_owned(), role, pools: vec![], days: None };
            let made: MadeToken =
                bench.client.call("POST".parse().unwrap(), "/v1/tokens", &new).await.unwrap();
            let caller = ApiClient::new(Rc::new(Sockets), bench.socket.clone(), Some(made.token));
            let requests = [
                ("GET", "/drives".to_owned(), None),
                ("POST", "/drives".to_owned(), file(1000)),
                ("DELETE", of_first(""), None),
                ("PATCH", String::new(), json(&PoolPatch::default())),
            ];
            for ((method, end, body), status) in requests.into_iter().zip(statuses) {
                let path = format!("{}{end}", bench.pool);
                let reply = caller.send(method.parse().unwrap(), &path, body, &[]).await.unwrap();
                assert_eq!(reply.status, status, "{name} {method} {end}: {reply:?}");
            }
        }
        bench.end().await;
    });
}

#[test]
fn a_change_whose_caller_is_gone_is_done_once() {
    with_site(async |bench, _| {
        let added = bench.send("POST", "/drives", file(112 * MIB), "gone");
        let given_up = with_deadline(bench.world.sleep(Duration::from_millis(2)), added).await;
        // The same request finds it under way, or what it has made.
        let is_answered = |reply: &ApiReply| reply.status == 201;
        let again = async || bench.send("POST", "/drives", file(112 * MIB), "gone").await;
        let reply = bench.until("it is answered", again, is_answered).await;
        let rows = bench.drives().await;
        assert_eq!(rows.len(), 4, "{rows:?}; the first caller had {given_up:?}");
        assert!(rows.iter().any(|row| row.id == drive(&reply).id), "{reply:?}");
        bench.end().await;
    });
}

#[test]
fn a_lost_drive_is_forgotten_once_its_copies_are_made_elsewhere() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    real::run(1, RealOptions::default(), async |world: World| {
        let bench = start(&world, folder.path()).await;
        let orders = bench.server.daemon().pool("mail").unwrap().orders.clone();
        let written = orders.give(&world, "write", |served| {
            Box::pin(async move {
                let store = VolumeDevice(served.pool.volume("store").unwrap());
                let part = vec![Arc::new(Buffer::copy_of(&[7; 4 * MIB as usize]))];
                store.write(ByteOffset(0), part, Stability::Stable).await.unwrap();
            })
        });
        written.await.unwrap();
        bench.end().await;
        std::fs::remove_file(folder.path().join("pools/mail/drive-2.spindle")).unwrap();
        std::fs::remove_file(folder.path().join("socket")).unwrap_or_default();
        let bench = start(&world, folder.path()).await;
        let rows = bench.drives().await;
        let lost = rows.iter().find(|row| row.state == DriveState::Missing).expect("it is shown");
        assert!(lost.reason.is_some() && lost.name.contains("drive-2"), "{lost:?}");
        let health = bench.row().await.health.unwrap();
        assert!(health.degraded_segments > 0, "{health:?}");
        let forget = format!("/drives/{}/forget", lost.id.as_ref().unwrap());
        let reply = bench.send("POST", &forget, None, "forget").await;
        assert_eq!(reply.status, 202, "{reply:?}");
        // The pool takes other changes meanwhile.
        assert_eq!(bench.status("POST", "/drives", file(112 * MIB)).await, 201);
        let is_gone = |rows: &Vec<DriveRow>| rows.iter().all(|row| row.id != lost.id) && rows.len() == 3;
        bench.until("it is forgotten", async || bench.drives().await, is_gone).await;
        assert_eq!(bench.row().await.health.unwrap().degraded_segments, 0);
        assert_eq!(bench.send("POST", &forget, None, "forget").await.status, 202, "the same request");
        assert_eq!(bench.status("POST", &forget, None).await, 404);
        bench.end().await;
    });
}
