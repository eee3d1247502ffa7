//! Copies, refreshes and moves between two pools of a server in simulated time, each pool on its thread: the power fails, or the
//! process is killed, between any two awaits.
//!
//! A caller makes a volume, writes it, has it copied, refreshed and moved there and back, and knows each answered block. In
//! each life at most one pool has the volume under its name, with every answered block; a job that was answered comes to its
//! end, and what it made is complete.

use crate::seeds::Seeds;
use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use array::volume::VolumeDevice;
use control::{
    events::DaemonEventLog,
    job_request::JobOutcome,
    notice,
    planted::{ApplyBug, with_bug},
    pool_thread::ServedPool,
    site::{
        SiteContext, SiteServer,
        handle::{PoolHandle, SiteHandle},
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{ApiClient, MoveBody, NewCopyBody, NewSnapshotBody, NewVolumeBody, RefreshBody},
        health_rows::JobRow,
        rows::{SnapshotPage, VolumePage},
    },
};
use fragile::Fragile;
use report::Refusal;
use serde::Serialize;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, LocalFuture, Random, Stability, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
    with_deadline,
};

const POOLS: [&str; 2] = ["logs", "mail"];
const SITE: &str = "[[group]]\nname = 'logs'\n[[group]]\nname = 'mail'\n";
const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
/// Polls of a job without an end.
const LOOKS_MAX: usize = 20_000;

type Content = Vec<u8>;

/// The caller, who outlives the server.
struct Caller {
    random: Random,
    step: usize,
    /// The first byte of each block of the volume.
    blocks: Content,
    /// A write that was not answered.
    open: Option<(usize, u8)>,
    at: BTreeMap<&'static str, Content>,
    crashes: usize,
}

/// One step of the caller.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    /// Into the pool of that index.
    Write(usize),
    Snapshot(&'static str),
    Copy(&'static str),
    Refresh(&'static str),
    /// From the pool of that index to the other one.
    Move(usize),
}

const STEPS: [Step; 11] = [
    Step::Create,
    Step::Write(0),
    Step::Snapshot("one"),
    Step::Copy("one"),
    Step::Write(0),
    Step::Snapshot("two"),
    Step::Refresh("two"),
    Step::Write(0),
    Step::Move(0),
    Step::Write(1),
    Step::Move(1),
];

pub fn said(refusal: Refusal) -> String {
    refusal.to_string()
}

/// Has a pool's thread do some work.
async fn on_pool<T: Send + 'static>(
    pool: &PoolHandle,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    pool.begin("test", work).map_err(|error| error.to_string())?.await.map_err(|error| error.to_string())?
}

/// The first bytes of all blocks of a volume; `None` if the pool has none of that name.
async fn content(pool: &PoolHandle, name: &'static str) -> Result<Option<Content>, String> {
    on_pool(pool, move |served| {
        Box::pin(async move {
            let Ok(volume) = served.pool.volume(name) else { return Ok(None) };
            let buffers = vec![Buffer::zeroed(BLOCKS * BLOCK)];
            let read = VolumeDevice(volume).read(ByteOffset(0), buffers).await;
            let read = read.map_err(|error| error.to_string())?;
            Ok(Some((0..BLOCKS).map(|block| read[0][block * BLOCK]).collect()))
        })
    })
    .await
}

async fn write(pool: &PoolHandle, block: usize, byte: u8) -> Result<(), String> {
    on_pool(pool, move |served| {
        Box::pin(async move {
            let device = VolumeDevice(served.pool.volume("store").map_err(|error| error.to_string())?);
            let mut data = Buffer::zeroed(BLOCK);
            data.fill(byte);
            let at = ByteOffset((block * BLOCK) as u64);
            let written = device.write(at, vec![Arc::new(data)], Stability::Stable).await;
            written.map_err(|error| error.to_string())
        })
    })
    .await
}

/// At most one pool has the volume under its name, with every answered block.
async fn check(
    site: &SiteHandle,
    caller: &Rc<RefCell<Caller>>,
    must_be: Option<usize>,
) -> Result<(), String> {
    let view = site.look();
    let mut found = Vec::new();
    for pool in POOLS {
        found.push(content(&view.pools[pool], "store").await?);
    }
    if let [Some(_), Some(_)] = found[..] {
        return Err("both pools have the volume under its name".to_owned());
    }
    if let Some(index) = must_be.filter(|&index| found[index].is_none()) {
        return Err(format!("pool {} has no volume", POOLS[index]));
    }
    let Some(there) = found.into_iter().flatten().next() else { return Ok(()) };
    let caller = &mut *caller.borrow_mut();
    if let Some((block, byte)) = caller.open.take()
        && there[block] == byte
    {
        caller.blocks[block] = byte;
    }
    let differs = (0..BLOCKS).find(|&block| there[block] != caller.blocks[block]);
    match differs {
        Some(block) => Err(format!("block {block} has {} and not {}", there[block], caller.blocks[block])),
        None => Ok(()),
    }
}

/// Sends a request with its key until it is answered.
async fn send(
    (world, client): (&World, &ApiClient),
    (path, key): (&str, usize),
    body: &impl Serialize,
) -> Result<String, String> {
    let (body, key) = (serde_json::to_string(body).unwrap(), format!("key-{key}"));
    loop {
        let method = "POST".parse().unwrap();
        let headers = [("idempotency-key", key.as_str())];
        let reply = client.send(method, path, Some(body.clone()), &headers).await.map_err(said)?;
        if reply.status == 409 && reply.body.contains("a request with this Idempotency-Key") {
            world.sleep(Duration::from_millis(1)).await;
            continue;
        }
        return if reply.status < 300 { Ok(reply.body) } else { Err(format!("{path}: {reply:?}")) };
    }
}

/// Begins a job, and waits for its end.
async fn transfer(
    (world, client): (&World, &ApiClient),
    (path, key): (&str, usize),
    body: &impl Serialize,
    pool: &PoolHandle,
) -> Result<(), String> {
    let row: JobRow = serde_json::from_str(&send((world, client), (path, key), body).await?).unwrap();
    let id = row.request.map(|request| request.id);
    for _ in 0..LOOKS_MAX {
        let end = format!("/v1/pools/{}/jobs/{}", pool.id, row.kind.name());
        let row: JobRow = client.get(&end).await.map_err(said)?;
        let request = row.request.clone().filter(|request| Some(&request.id) == id.as_ref());
        let request = request.ok_or_else(|| format!("the job is forgotten: {row:?}"))?;
        match request.outcome {
            None => world.sleep(Duration::from_millis(20)).await,
            Some(JobOutcome::Done) => return Ok(()),
            Some(_) => return Err(format!("{path}: {request:?}")),
        }
    }
    Err(format!("{path}: the job has no end"))
}

async fn volume_id(client: &ApiClient, (pool, name): (&PoolHandle, &str)) -> Result<String, String> {
    let path = format!("/v1/volumes?pool={}&name={name}", pool.id);
    let page: VolumePage = client.get(&path).await.map_err(said)?;
    let first = page.volumes.into_iter().next();
    first.map(|row| row.id).ok_or_else(|| format!("{} has no {name}", pool.name))
}

/// The volume's UUID, wherever it is.
async fn store_id(client: &ApiClient) -> Result<String, String> {
    let page: VolumePage = client.get("/v1/volumes").await.map_err(said)?;
    let is_store = |name: &str| name == "store" || name == "store~moved";
    let row = page.volumes.into_iter().find(|row| is_store(&row.name));
    row.map(|row| row.id).ok_or_else(|| "no pool has the volume".to_owned())
}

async fn step(
    world: &World,
    (client, site): (&ApiClient, &SiteHandle),
    caller: &Rc<RefCell<Caller>>,
    number: usize,
) -> Result<(), String> {
    let view = site.look();
    let [logs, mail] = POOLS.map(|name| view.pools[name].clone());
    let pools = [&logs, &mail];
    match STEPS[number] {
        Step::Create => {
            let body =
                NewVolumeBody { name: "store".to_owned(), size_bytes: MIB, ..NewVolumeBody::default() };
            send((world, client), (&format!("/v1/pools/{}/volumes", logs.id), number), &body).await?;
        }
        Step::Write(index) => {
            check(site, caller, Some(index)).await?;
            for _ in 0..12 {
                let (block, byte) = {
                    let random = &mut caller.borrow_mut().random;
                    (random.below(BLOCKS as u64) as usize, 1 + random.below(200) as u8)
                };
                caller.borrow_mut().open = Some((block, byte));
                write(pools[index], block, byte).await?;
                let mut caller = caller.borrow_mut();
                caller.blocks[block] = byte;
                caller.open = None;
            }
        }
        Step::Snapshot(name) => {
            let id = store_id(client).await?;
            let body = NewSnapshotBody { name: name.to_owned(), ..NewSnapshotBody::default() };
            send((world, client), (&format!("/v1/volumes/{id}/snapshots"), number), &body).await?;
            let blocks = caller.borrow().blocks.clone();
            caller.borrow_mut().at.insert(name, blocks);
        }
        Step::Copy(snapshot) => {
            let body = NewCopyBody {
                pool: mail.id.to_string(),
                name: "copy".to_owned(),
                snapshot: snapshot.to_owned(),
            };
            let path = format!("/v1/volumes/{}/copies", store_id(client).await?);
            transfer((world, client), (&path, number), &body, &mail).await?;
            check_copy(caller, &mail, snapshot).await?;
        }
        Step::Refresh(snapshot) => {
            let body = RefreshBody { source: store_id(client).await?, snapshot: snapshot.to_owned() };
            let copy = match volume_id(client, (&mail, "copy")).await {
                Ok(id) => id,
                Err(_) => volume_id(client, (&mail, "copy~copy")).await?,
            };
            let path = format!("/v1/volumes/{copy}/refresh");
            transfer((world, client), (&path, number), &body, &mail).await?;
            check_copy(caller, &mail, snapshot).await?;
        }
        Step::Move(from) => {
            let to = 1 - from;
            let body = MoveBody { pool: pools[to].id.to_string(), name: None };
            let path = format!("/v1/volumes/{}/move", store_id(client).await?);
            transfer((world, client), (&path, number), &body, pools[to]).await?;
            check(site, caller, Some(to)).await?;
            let id = volume_id(client, (pools[to], "store")).await?;
            let page: SnapshotPage =
                client.get(&format!("/v1/volumes/{id}/snapshots")).await.map_err(said)?;
            let names: Vec<String> = page.snapshots.into_iter().map(|row| row.name).collect();
            if names != ["one", "two"] {
                return Err(format!("snapshots came along: {names:?}"));
            }
        }
    }
    Ok(())
}

async fn check_copy(
    caller: &Rc<RefCell<Caller>>,
    pool: &PoolHandle,
    snapshot: &'static str,
) -> Result<(), String> {
    let found = content(pool, "copy").await?.ok_or("a copy that was done is not there")?;
    match found == caller.borrow().at[snapshot] {
        true => Ok(()),
        false => Err(format!("the copy is not as of {snapshot}")),
    }
}

/// One life of a server with a site file, as long as `calling` lasts; it is not ended.
pub async fn life_with(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    (file, site_file, portal): (SimStateFile, &'static str, PortalUse),
    calling: impl AsyncFnOnce(&ApiClient, &SiteHandle) -> Result<(), String>,
) -> Result<(), String> {
    let journal = Arc::new(journal_of(&file)?);
    let (own, api) = (Fragile::new(network.clone()), Fragile::new(network.clone()));
    let threads = Rc::new(SimThreads(world.clone()));
    let setting = SiteServerSetting {
        context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
        places: Rc::new(SimPlaces { drives, made }),
        threads: Rc::clone(&threads) as _,
        network: Box::new(move || own.get().host("server")),
        journal: Arc::clone(&journal),
        catalogues: Rc::new(SimCatalogues::default()),
    };
    let (notices, _reader) = notice::channel("serve");
    let mut server = SiteServer::start(&world, setting, site_file, portal, &notices).await.map_err(said)?;
    let socket = Address::Unix("/state/spindle.sock".into());
    let setting = WebSetting {
        network: Box::new(move || api.get().host("server")),
        addresses: vec![(socket.clone(), "socket")],
        tls: None,
        own_user: 1000,
        site: server.handle(),
        journal: Arc::clone(&journal),
        events: DaemonEventLog::new(world.wall()),
        history: Box::new(control::history::MemoryHistory::default()),
        reports: None,
        link: None,
        pages: None,
    };
    let web = WebThread::start(&world, &*threads, setting, notices.of("api")).await.map_err(said)?;
    let plan = server.plan(site_file, &[], PlanOccasion::Start).await.map_err(said)?;
    server.apply(plan, |_| ()).await.map_err(said)?;
    server.open();
    let client = ApiClient::new(network.host("server"), socket, None);
    let site = server.handle();
    let answering = async {
        loop {
            let request = server.next_request().await;
            server.answer(request).await;
        }
    };
    with_deadline(answering, calling(&client, &site)).await.expect("answering does not end")?;
    web.stop().await?;
    server.stop().await;
    Ok(())
}

/// One life of the server, until the caller has nothing more to ask for.
async fn life(
    world: World,
    pools: (SimNetwork, Drives, MadePools),
    file: SimStateFile,
    caller: Rc<RefCell<Caller>>,
) -> Result<(), String> {
    let own = world.clone();
    let calling = async |client: &ApiClient, site: &SiteHandle| {
        check(site, &caller, None).await?;
        loop {
            let number = caller.borrow().step;
            if number == STEPS.len() {
                return Ok(());
            }
            let done = step(&own, (client, site), &caller, number).await;
            done.map_err(|problem| format!("{:?}: {problem}", STEPS[number]))?;
            caller.borrow_mut().step += 1;
        }
    };
    life_with(world, pools, (file, SITE, PortalUse::None), calling).await
}

/// The crashes of a seed.
fn lives(seed: u64) -> Result<usize, String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let made = MadePools::default();
    let file = SimStateFile::new("journal", seed);
    let mut random = simulation.random("crashes");
    let caller = Rc::new(RefCell::new(Caller {
        random: simulation.random("caller"),
        step: 0,
        blocks: vec![0; BLOCKS],
        open: None,
        at: BTreeMap::new(),
        crashes: 0,
    }));
    let mut left = 8 + random.below(16);
    loop {
        let polls = (left > 0).then(|| 150 + random.below(1000));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let (network, file_now, drives, made) =
            (network.clone(), file.clone(), drives.clone(), Rc::clone(&made));
        let caller_now = Rc::clone(&caller);
        let outcome = simulation.run(limits, |own| life(own, (network, drives, made), file_now, caller_now));
        match outcome {
            SimOutcome::Completed(ended) => {
                ended?;
                return Ok(caller.borrow().crashes);
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                file.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        caller.borrow_mut().crashes += 1;
        left -= 1;
    }
}

#[test]
fn copies_refreshes_and_moves_come_to_their_end_however_often_the_server_is_killed() {
    let seeds = Seeds::of(10, 2_000);
    let mut crashes = 0;
    seeds.live_all(|seed| {
        crashes += lives(seed)?;
        Ok(())
    });
    seeds.check(crashes > 3 * seeds.count(), &format!("{crashes} crashes"));
}

#[test]
fn a_copy_that_is_taken_for_done_is_noticed() {
    let bug = ApplyBug::IncompleteCopyTakenForDone;
    let noticed = crate::planted::noticed(bug, (7, 40), |seed| with_bug(bug, || lives(seed).err()));
    let (_, found) = noticed.expect("one of the seeds interrupts a copy");
    assert!(found.contains("is not there") || found.contains("Refresh"), "{found}");
}

#[test]
fn a_copy_waits_for_the_pool_of_its_source_and_can_be_cancelled() {
    cancel_a_copy_that_waits(false);
}

#[test]
fn a_copy_that_was_cancelled_does_not_go_on_after_a_restart() {
    cancel_a_copy_that_waits(true);
}

/// The server of a copy is killed, the next one has no pool of its source; that one may be killed once it has answered.
fn cancel_a_copy_that_waits(is_killed: bool) {
    let mut simulation = Simulation::new(7);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let (made, file) = (MadePools::default(), SimStateFile::new("journal", 7));
    let pools = || (network.clone(), drives.clone(), Rc::clone(&made));
    let (first, own) = (pools(), file.clone());
    let ended = simulation.run(SimLimits::generous(), |world| async move {
        let clock = world.clone();
        let calling = async |client: &ApiClient, site: &SiteHandle| {
            let [logs, mail] = POOLS.map(|name| site.look().pools[name].clone());
            let body =
                NewVolumeBody { name: "store".to_owned(), size_bytes: 16 * MIB, ..NewVolumeBody::default() };
            send((&clock, client), (&format!("/v1/pools/{}/volumes", logs.id), 0), &body).await?;
            on_pool(&logs, |served| {
                Box::pin(async move {
                    let device =
                        VolumeDevice(served.pool.volume("store").map_err(|error| error.to_string())?);
                    let mut data = Buffer::zeroed(16 * MIB as usize);
                    data.fill(7);
                    let written = device.write(ByteOffset(0), vec![Arc::new(data)], Stability::Stable).await;
                    written.map_err(|error| error.to_string())
                })
            })
            .await?;
            let store = store_id(client).await?;
            let body = NewSnapshotBody { name: "one".to_owned(), ..NewSnapshotBody::default() };
            send((&clock, client), (&format!("/v1/volumes/{store}/snapshots"), 1), &body).await?;
            let (pool, name, snapshot) = (mail.id.to_string(), "copy".to_owned(), "one".to_owned());
            let body = NewCopyBody { pool, name, snapshot };
            let path = format!("/v1/volumes/{store}/copies");
            send((&clock, client), (&path, 2), &body).await?;
            // One at a time.
            let other = send((&clock, client), (&path, 3), &body).await;
            let refused = other.expect_err("it is refused");
            assert!(
                refused.contains("another copy into this pool is under way: of logs/store@one"),
                "{refused}"
            );
            let inside = NewCopyBody { pool: logs.id.to_string(), ..body };
            let refused = send((&clock, client), (&path, 4), &inside).await.expect_err("it is refused");
            assert!(refused.contains("a copy in the pool of its source is a clone"), "{refused}");
            Err("killed".to_owned())
        };
        life_with(world, first, (own, SITE, PortalUse::None), calling).await
    });
    assert!(matches!(&ended, SimOutcome::Completed(Err(killed)) if killed == "killed"), "{ended:?}");
    simulation.kill();
    let without_source = "[[group]]\nname = 'mail'\n";
    let (second, own) = (pools(), file.clone());
    let ended = simulation.run(SimLimits::generous(), |world| async move {
        let clock = world.clone();
        let calling = async |client: &ApiClient, site: &SiteHandle| {
            let mail = site.look().pools["mail"].clone();
            let path = format!("/v1/pools/{}/jobs/copy", mail.id);
            clock.sleep(Duration::from_secs(3)).await;
            let row: JobRow = client.get(&path).await.map_err(said)?;
            let waits = "the pool of logs/store@one is not open";
            assert_eq!((row.problem.as_deref(), row.is_open()), (Some(waits), true), "{row:?}");
            let cancelled = client.send("DELETE".parse().unwrap(), &path, None, &[]).await.map_err(said)?;
            assert_eq!(cancelled.status, 204, "{cancelled:?}");
            if is_killed { Err("killed".to_owned()) } else { is_cancelled((&clock, client), &path).await }
        };
        life_with(world, second, (own, without_source, PortalUse::None), calling).await
    });
    if !is_killed {
        return assert!(matches!(ended, SimOutcome::Completed(Ok(()))), "{ended:?}");
    }
    assert!(matches!(&ended, SimOutcome::Completed(Err(killed)) if killed == "killed"), "{ended:?}");
    simulation.kill();
    // Its source is there again: it could go on.
    let (third, own) = (pools(), file.clone());
    let ended = simulation.run(SimLimits::generous(), |world| async move {
        let clock = world.clone();
        let calling = async |client: &ApiClient, site: &SiteHandle| {
            let path = format!("/v1/pools/{}/jobs/copy", site.look().pools["mail"].id);
            is_cancelled((&clock, client), &path).await
        };
        life_with(world, third, (own, SITE, PortalUse::None), calling).await
    });
    assert!(matches!(ended, SimOutcome::Completed(Ok(()))), "{ended:?}");
}

/// After a while a job has ended early.
async fn is_cancelled((world, client): (&World, &ApiClient), path: &str) -> Result<(), String> {
    world.sleep(Duration::from_secs(3)).await;
    let row: JobRow = client.get(path).await.map_err(said)?;
    let outcome = row.request.as_ref().and_then(|request| request.outcome);
    assert_eq!((outcome, row.is_open()), (Some(JobOutcome::Cancelled), false), "{row:?}");
    Ok(())
}
