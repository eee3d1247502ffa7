//! A volume that hosts write over NBD and iSCSI moves between the pools of a server, again and again, in simulated time: the
//! power fails, or the process is killed, between any two awaits. The site file says all the time where it was first.
//!
//! No host sees an error. In each life at most one pool has the volume under its name, with every answered block, and what serves
//! it is there when its move has ended. A start makes no empty volume in the place that it left.

#[cfg(debug_assertions)]
use crate::planted::assert_panics;
use crate::{
    seeds::Seeds,
    sim_site::{Drives, MIB, MadePools},
    transfer_crashes::{life_with, said},
};
use control::{
    job_request::JobOutcome,
    site::{
        handle::{SiteHandle, SiteText, WantedAnswer},
        server::PortalUse,
    },
    web::{
        client::{ApiClient, Method, MoveBody, NewSnapshotBody},
        health_rows::JobRow,
        rows::{SnapshotPage, VolumePage},
    },
};
use iscsi::initiator::{Initiator, InitiatorOptions};
use nbd::{Client, ClientOptions};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability, World,
    sim::{DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, Simulation},
    with_deadline,
};

const SITE: &str = "
[serve]
iscsi = 'server:3260'
nbd = 'server:10809'
[[group]]
name = 'logs'
[[group]]
name = 'mail'
[[volume]]
name = 'store'
group = 'logs'
gb = 0.0009765625
[[volume]]
name = 'other'
group = 'logs'
gb = 0.0009765625
[[target]]
name = 'disks'
[[target.unit]]
number = 5
volume = 'store'
[[initiator]]
name = 'iqn.x:host'
uses = ['disks']
[[nbd]]
name = 'store'
volume = 'store'
[[nbd]]
name = 'monday'
volume = 'logs/store@monday'
[[snapshots]]
name = 'hourly'
volumes = ['store', 'other']
every_hours = 1.0
keep = 3
";
const POOLS: [&str; 2] = ["logs", "mail"];
const BLOCK: usize = 4096;
/// Each host has half of them.
const BLOCKS: usize = 64;
const MOVES: usize = 3;
/// Looks at a job without an end.
const LOOKS_MAX: usize = 3_000;

/// A host and what it knows of its blocks; it outlives the server.
struct Host {
    random: Random,
    first_block: usize,
    blocks: Vec<u8>,
    /// A write that was not answered.
    open: Option<(usize, u8)>,
    written: u64,
}

/// All that outlives the server.
struct Scene {
    hosts: [RefCell<Host>; 2],
    /// Moves that have ended.
    moved: Cell<usize>,
    has_snapshot: Cell<bool>,
    crashes: Cell<usize>,
}

type Outcome<T> = Result<T, String>;

async fn volume_of(client: &ApiClient, name: &str) -> Outcome<(String, String)> {
    let page: VolumePage = client.get("/v1/volumes").await.map_err(said)?;
    let is_it = |row: &str| row == name || row.strip_suffix("~moved") == Some(name);
    let row = page.volumes.into_iter().find(|row| is_it(&row.name));
    row.map(|row| (row.id, row.pool)).ok_or_else(|| format!("no pool has {name}"))
}

/// A host looks at all that it was answered.
async fn look(host: &RefCell<Host>, device: &dyn BlockDevice) -> Outcome<()> {
    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(BLOCKS * BLOCK)]).await;
    let read = read.map_err(|error| error.to_string())?;
    let host = &mut *host.borrow_mut();
    let there = |block: usize| read[0][block * BLOCK];
    if let Some((block, byte)) = host.open.take()
        && there(block) == byte
    {
        host.blocks[block] = byte;
    }
    let mut own = host.first_block..host.first_block + BLOCKS / 2;
    match own.find(|&block| there(block) != host.blocks[block]) {
        Some(block) => Err(format!("block {block} has {} and not {}", there(block), host.blocks[block])),
        None => Ok(()),
    }
}

/// A host writes and reads on until the scene ends.
async fn use_it(world: &World, host: &RefCell<Host>, device: &dyn BlockDevice) -> Outcome<()> {
    look(host, device).await?;
    loop {
        let (block, byte, pause, looks) = {
            let mut host = host.borrow_mut();
            let block = host.first_block + host.random.below(BLOCKS as u64 / 2) as usize;
            let (byte, pause) = (1 + host.random.below(200) as u8, 1 + host.random.below(8));
            (block, byte, pause, host.random.percent(10.0))
        };
        let mut data = Buffer::zeroed(BLOCK);
        data.fill(byte);
        host.borrow_mut().open = Some((block, byte));
        let at = ByteOffset((block * BLOCK) as u64);
        let written = device.write(at, vec![Arc::new(data)], Stability::Stable).await;
        written.map_err(|error| error.to_string())?;
        {
            let mut host = host.borrow_mut();
            host.open = None;
            host.blocks[block] = byte;
            host.written += 1;
        }
        if looks {
            look(host, device).await?;
        }
        world.sleep(Duration::from_millis(pause)).await;
    }
}

async fn use_by_iscsi(world: &World, network: &SimNetwork, host: &RefCell<Host>) -> Outcome<()> {
    let options = InitiatorOptions { name: "iqn.x:host".to_owned(), ..InitiatorOptions::default() };
    let uri = format!("iscsi://server:3260/{}/5", serving::export::name_of("disks"));
    let connected = Initiator::connect(world, network.host("by iscsi"), uri.parse().unwrap(), options).await;
    use_it(world, host, &connected.map_err(|error| format!("login: {error}"))?).await
}

async fn use_by_nbd(world: &World, network: &SimNetwork, host: &RefCell<Host>) -> Outcome<()> {
    use_it(world, host, &connect_by_nbd(world, network, "by nbd").await?).await
}

async fn connect_by_nbd(world: &World, network: &SimNetwork, name: &str) -> Outcome<Client> {
    let uri = "nbd://server:10809/store".parse().unwrap();
    let connected = Client::connect(world, network.host(name), uri, ClientOptions::default()).await;
    connected.map_err(|error| format!("nbd: {error}"))
}

/// Everything that serves the volume is in this pool, and the file, applied again, changes nothing.
async fn check_followed(site: &SiteHandle, pool: &str) -> Outcome<()> {
    let view = site.look();
    for name in POOLS {
        let shown = view.pools[name].view().ok_or("the pool is open")?;
        let exports =
            shown.exports.iter().filter(|export| ["store", "monday"].contains(&&*export.name)).count();
        let units = shown.targets.iter().map(|target| target.units.len()).sum::<usize>();
        let mut volumes: Vec<&str> = shown.volumes.iter().map(|volume| &*volume.name).collect();
        volumes.retain(|name| name.starts_with("store"));
        let expected = if name == pool { (2, 1, vec!["store"]) } else { (0, 0, Vec::new()) };
        if (exports, units, volumes) != expected {
            return Err(format!(
                "{pool} is to serve; {name}: {exports} exports, {units} units, {:?}",
                shown.volumes
            ));
        }
    }
    let scheduled = &view.site.snapshots[0].volumes;
    if *scheduled != [format!("{pool}/store"), "logs/other".to_owned()] {
        return Err(format!("{pool} serves, and {scheduled:?} are on schedule"));
    }
    let text = SiteText { text: SITE.to_owned(), destroy: Vec::new() };
    let plan = site.ask(WantedAnswer::Plan(text)).map_err(|refused| refused.to_string())?;
    let plan = plan.await.map_err(|error| error.to_string())?.map_err(|refused| said(refused.refusal))?;
    let is_stale = plan.notes.iter().any(|note| note.contains("was moved, and the file is read as if"));
    match (plan.changes.is_empty(), is_stale == (pool == "mail")) {
        (true, true) => Ok(()),
        _ => Err(format!("{pool} serves, and the file's plan is {plan:?}")),
    }
}

/// Moves the volume as often as it is to move.
async fn move_it(world: &World, (client, site): (&ApiClient, &SiteHandle), scene: &Scene) -> Outcome<()> {
    let (id, _) = volume_of(client, "store").await?;
    if !scene.has_snapshot.get() {
        let path = format!("/v1/volumes/{id}/snapshots");
        let body = NewSnapshotBody { name: "monday".to_owned(), ..NewSnapshotBody::default() };
        let body = serde_json::to_string(&body).unwrap();
        let reply = client.change((Method::POST, &path), Some(body), "snapshot").await.map_err(said)?;
        if reply.status >= 300 {
            return Err(format!("{reply:?}"));
        }
        scene.has_snapshot.set(true);
    }
    while scene.moved.get() < MOVES {
        let to = POOLS[1 - scene.moved.get() % 2];
        let pool = site.look().pools[to].id;
        let body = MoveBody { pool: pool.to_string(), name: None };
        let path = format!("/v1/volumes/{id}/move");
        let (body, key) = (serde_json::to_string(&body).unwrap(), format!("move {}", scene.moved.get()));
        let reply = client.change((Method::POST, &path), Some(body), &key).await.map_err(said)?;
        if reply.status >= 300 {
            return Err(format!("{reply:?}"));
        }
        let asked: JobRow = serde_json::from_str(&reply.body).unwrap();
        let asked = asked.request.map(|request| request.id);
        let end = format!("/v1/pools/{pool}/jobs/move");
        let mut looks = 0;
        loop {
            let row: JobRow = client.get(&end).await.map_err(said)?;
            let request = row.request.clone().filter(|request| Some(&request.id) == asked.as_ref());
            match request.ok_or_else(|| format!("the job is forgotten: {row:?}"))?.outcome {
                Some(JobOutcome::Done) => break,
                Some(_) => return Err(format!("{row:?}")),
                None if looks == LOOKS_MAX => return Err(format!("it has no end: {row:?}")),
                None => looks += 1,
            }
            world.sleep(Duration::from_millis(20)).await;
        }
        check_followed(site, to).await?;
        let snapshots: SnapshotPage =
            client.get(&format!("/v1/volumes/{id}/snapshots")).await.map_err(said)?;
        if !snapshots.snapshots.iter().any(|row| row.name == "monday") {
            return Err("its snapshot did not come along".to_owned());
        }
        scene.moved.set(scene.moved.get() + 1);
        world.sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

/// One life of a server, until all moves are done; it is not ended before.
async fn life(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    file: SimStateFile,
    scene: Rc<Scene>,
) -> Outcome<()> {
    let own = world.clone();
    let pools = (network.clone(), drives, made);
    life_with(world, pools, (file, SITE, PortalUse::Listen), async |client, site| {
        let failed: RefCell<Option<String>> = RefCell::default();
        let using = async {
            // Their server was killed in the middle of a move: the volume is served when that has ended.
            while !is_served(site) {
                own.sleep(Duration::from_millis(10)).await;
            }
            let hosts = futures_util::future::try_join(
                use_by_iscsi(&own, &network, &scene.hosts[0]),
                use_by_nbd(&own, &network, &scene.hosts[1]),
            );
            failed.replace(hosts.await.err());
        };
        let moved = with_deadline(using, Box::pin(move_it(&own, (client, site), &scene))).await;
        moved.unwrap_or_else(|| Err(format!("a host: {}", failed.take().unwrap_or_default())))?;
        let last = connect_by_nbd(&own, &network, "last").await?;
        for host in &scene.hosts {
            look(host, &last).await?;
        }
        Ok(())
    })
    .await
}

fn is_served(site: &SiteHandle) -> bool {
    let view = site.look();
    let mut pools = view.pools.values().filter_map(|pool| pool.view());
    pools.any(|view| view.exports.iter().any(|export| export.name == "store"))
}

/// The crashes of a seed, and the writes of its hosts.
fn lives(seed: u64) -> Outcome<(usize, u64)> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let made = MadePools::default();
    let file = SimStateFile::new("journal", seed);
    let mut random = simulation.random("crashes");
    let host = |number: usize| {
        RefCell::new(Host {
            random: simulation.random(&format!("host {number}")),
            first_block: number * BLOCKS / 2,
            blocks: vec![0; BLOCKS],
            open: None,
            written: 0,
        })
    };
    let scene = Rc::new(Scene {
        hosts: [host(0), host(1)],
        moved: Cell::default(),
        has_snapshot: Cell::default(),
        crashes: Cell::default(),
    });
    let mut left = 2 + random.below(14);
    loop {
        let polls = (left > 0).then(|| 400 + random.below(3_600));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let pools = (network.clone(), drives.clone(), Rc::clone(&made));
        let (file_now, scene_now) = (file.clone(), Rc::clone(&scene));
        match simulation.run(limits, |own| life(own, pools, file_now, scene_now)) {
            SimOutcome::Completed(ended) => {
                ended?;
                let written = scene.hosts.iter().map(|host| host.borrow().written).sum();
                return Ok((scene.crashes.get(), written));
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                file.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        scene.crashes.set(scene.crashes.get() + 1);
        left -= 1;
    }
}

#[test]
fn a_volume_moves_under_its_hosts_however_often_the_server_is_killed() {
    let seeds = Seeds::of(10, 2_000);
    let (mut crashes, mut written) = (0, 0);
    seeds.live_all(|seed| {
        let (of_seed, writes) = lives(seed)?;
        crashes += of_seed;
        written += writes;
        Ok(())
    });
    let story = format!("{crashes} crashes, {written} writes of hosts");
    println!("note: {story}");
    seeds.check(crashes > 2 * seeds.count() && written > 100 * seeds.count() as u64, &story);
}

#[cfg(debug_assertions)]
#[test]
fn mistakes_in_moves_of_served_volumes_are_noticed() {
    use control::planted::{ApplyBug, with_bug};
    let bugs = [(ApplyBug::MovesForgotten, 0), (ApplyBug::NotFollowed, 0)];
    assert_panics(bugs, 20, |bug, seed| with_bug(bug, || lives(seed).unwrap()));
}
