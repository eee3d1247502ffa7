//! Presentations in simulated time: the power fails, or the process is killed, between any two awaits, and the civil clock of the
//! next life is another one: the end of a presentation passes while the server is down, or is a day away.
//!
//! The model knows what was asked for and answered. What is answered is served until its time and not for a second longer, its
//! point stays as long, and nothing is left of it then.

#[cfg(debug_assertions)]
use crate::planted::assert_panics;
use crate::seeds::Seeds;
use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    events::DaemonEventLog,
    notice::{self, NoticeReader},
    presenting::PresentationStage,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{
            ApiClient, ApiReply, Method, NewPresentationBody, NewSnapshotBody, PresentationEndRow,
            PresentationList, PresentationRow, PresentationState,
        },
        rows::{SnapshotPage, SnapshotRow, VolumePage},
    },
};
use fragile::Fragile;
use iscsi::initiator::{Initiator, InitiatorOptions, IscsiUri, discover};
use report::{Refusal, calendar::parse_time};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Random, Stability, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
    with_deadline,
};

const SITE: &str = "
[serve]
iscsi = 'server:3260'
[[group]]
name = 'mail'
[[volume]]
name = 'store'
group = 'mail'
gb = 0.001
[[target]]
name = 'disks'
[[target.unit]]
number = 0
volume = 'store'
[[initiator]]
name = 'iqn.x:mail1'
uses = ['disks']
[[initiator]]
name = 'iqn.x:backup1'
";
const POINTS: [&str; 2] = ["monday", "tuesday"];
/// Requests of one seed.
const REQUESTS: usize = 24;

#[derive(Clone, Debug)]
struct KnownPresentation {
    ends: i64,
    point: String,
    /// Its clone, and whether it stays.
    clone: Option<(String, bool)>,
}

/// A request, with its key.
#[derive(Clone, Debug)]
struct Sent {
    key: String,
    kind: SentKind,
    path: String,
    body: Option<String>,
}

#[derive(Clone, Debug)]
enum SentKind {
    Present,
    Withdraw { id: String, keeps_clone: bool },
}

/// The caller, who outlives the server.
struct Caller {
    random: Random,
    known: BTreeMap<String, KnownPresentation>,
    /// Clones that were to stay.
    kept: Vec<String>,
    done: usize,
    open: Option<Sent>,
    /// The civil clock's highest time in a life that has ended without a look at it.
    wall_max: i64,
    crashes: usize,
    /// Presentations whose time has come.
    ended: usize,
    /// Requests whose callers gave up in a crash: they are done, or not.
    abandoned: usize,
    refused: usize,
}

/// A served site and its API.
struct Served {
    world: World,
    server: SiteServer,
    web: WebThread,
    client: Rc<ApiClient>,
    reader: NoticeReader,
}

async fn serve(
    world: &World,
    (network, drives, made): (&SimNetwork, Drives, MadePools),
    file: &SimStateFile,
) -> Result<Served, String> {
    let said = |refusal: Refusal| refusal.to_string();
    let journal = Arc::new(journal_of(file)?);
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
    let (notices, reader) = notice::channel("serve");
    let events = DaemonEventLog::new(world.wall());
    let reader = reader.keeping(&events, world);
    let mut server =
        SiteServer::start(world, setting, SITE, PortalUse::Listen, &notices).await.map_err(said)?;
    let socket = Address::Unix("/state/spindle.sock".into());
    let setting = WebSetting {
        network: Box::new(move || api.get().host("server")),
        addresses: vec![(socket.clone(), "socket")],
        tls: None,
        own_user: 1000,
        site: server.handle(),
        journal: Arc::clone(&journal),
        events,
        history: Box::new(control::history::MemoryHistory::default()),
        reports: None,
        link: None,
        pages: None,
    };
    let web = WebThread::start(world, &*threads, setting, notices.of("api")).await.map_err(said)?;
    let plan = server.plan(SITE, &[], PlanOccasion::Start).await.map_err(said)?;
    server.apply(plan, |_| ()).await.map_err(said)?;
    // Before the keeper has looked: what is over is not served.
    let now = world.wall().seconds;
    let over = journal.presentations().map_err(|error| error.to_string())?.into_iter();
    let over: Vec<(String, u64)> = over
        .filter(|one| one.ends_unix_s <= now || one.stage != PresentationStage::Presented)
        .map(|one| (one.target_name(), one.number))
        .collect();
    let view = server.daemon().pool("mail").and_then(|pool| pool.view()).ok_or("the pool is open")?;
    let mut served = view.targets.iter().flat_map(|target| {
        target.units.iter().map(|number| (target.name.clone(), *number)).collect::<Vec<_>>()
    });
    if let Some((target, number)) = served.find(|unit| over.contains(unit)) {
        return Err(format!("{target}/{number} is served after its end"));
    }
    server.open();
    let client = Rc::new(ApiClient::new(network.host("server"), socket, None));
    Ok(Served { world: world.clone(), server, web, client, reader })
}

impl Served {
    /// Answers requests to the site beside `work`.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let answering = async {
            loop {
                let request = self.server.next_request().await;
                self.server.answer(request).await;
            }
        };
        with_deadline(answering, work).await.expect("answering does not end")
    }

    async fn stop(self) -> Result<Vec<String>, String> {
        let Self { server, web, mut reader, .. } = self;
        web.stop().await?;
        server.stop().await;
        let mut lines = Vec::new();
        while let Some(notice) = reader.try_next() {
            lines.push(format!("{} {}", notice.kind.unwrap_or("line"), notice.text));
        }
        Ok(lines)
    }
}

async fn points(client: &ApiClient) -> Result<(String, Vec<SnapshotRow>), String> {
    let said = |refusal: Refusal| refusal.to_string();
    let page: VolumePage = client.get("/v1/volumes?name=store").await.map_err(said)?;
    let id = page.volumes.first().ok_or("the volume is there")?.id.clone();
    let page: SnapshotPage = client.get(&format!("/v1/volumes/{id}/snapshots")).await.map_err(said)?;
    Ok((id, page.snapshots))
}

/// Takes the points that are not there.
async fn take_points(client: &ApiClient) -> Result<(), String> {
    let (id, known) = points(client).await?;
    for name in POINTS {
        if known.iter().all(|row| row.name != name) {
            let body = NewSnapshotBody { name: name.to_owned(), note: String::new() };
            let path = format!("/v1/volumes/{id}/snapshots");
            let taken: Result<SnapshotRow, Refusal> = client.call(Method::POST, &path, &body).await;
            taken.map_err(|refusal| refusal.to_string())?;
        }
    }
    Ok(())
}

async fn listed(client: &ApiClient) -> Result<Vec<PresentationRow>, String> {
    let list: PresentationList =
        client.get("/v1/presentations").await.map_err(|refusal| refusal.to_string())?;
    Ok(list.presentations)
}

/// A host reaches a point that was asked for as long as it was asked for.
async fn check(world: &World, client: &ApiClient, caller: &Rc<RefCell<Caller>>) -> Result<(), String> {
    let rows = listed(client).await?;
    let now = world.wall().seconds;
    let mut caller = caller.borrow_mut();
    let highest = caller.wall_max.max(now);
    caller.wall_max = now;
    let (mut ended, mut lost) = (0, None);
    caller.known.retain(|id, known| {
        let is_there = rows.iter().any(|row| row.id == *id);
        match is_there {
            _ if known.ends <= now => {
                ended += 1;
                false
            }
            true => true,
            // It ended in a life whose clock was ahead.
            false if known.ends <= highest + 1 => false,
            false => {
                lost = Some(format!("{id} {known:?} is gone at {now}: {rows:#?}"));
                false
            }
        }
    });
    caller.ended += ended;
    if let Some(lost) = lost {
        return Err(lost);
    }
    for row in &rows {
        let is_due = row.state == PresentationState::Presented && row.seconds_left > 1;
        if is_due && !row.is_served {
            return Err(format!("it is not served: {row:#?}"));
        }
    }
    let is_unknown = |row: &&PresentationRow| !caller.known.contains_key(&row.id) && row.seconds_left > 0;
    match rows.iter().filter(is_unknown).count() {
        unknown if unknown > caller.abandoned => {
            Err(format!("nobody asked for {unknown} of these: {rows:#?}"))
        }
        _ => Ok(()),
    }
}

/// Nothing is left of what is over.
async fn check_settled(client: &ApiClient, caller: &Rc<RefCell<Caller>>) -> Result<(), String> {
    let said = |refusal: Refusal| refusal.to_string();
    let rows = listed(client).await?;
    if let Some(row) = rows.iter().find(|row| row.state != PresentationState::Presented) {
        return Err(format!("it neither begins nor ends: {row:#?}"));
    }
    let volumes: VolumePage = client.get("/v1/volumes").await.map_err(said)?;
    let clones: Vec<&String> = rows.iter().filter_map(|row| row.clone_volume.as_ref()).collect();
    let caller = caller.borrow();
    for row in volumes.volumes.iter().filter(|row| row.name != "store") {
        if !clones.contains(&&row.id) && !caller.kept.contains(&row.id) {
            return Err(format!("{} was left behind", row.name));
        }
    }
    Ok(())
}

async fn send(client: &ApiClient, sent: &Sent, world: &World) -> Result<ApiReply, String> {
    loop {
        let method = if matches!(sent.kind, SentKind::Present) { Method::POST } else { Method::DELETE };
        let reply = client.change((method, &sent.path), sent.body.clone(), &sent.key).await;
        let reply = reply.map_err(|refusal| refusal.to_string())?;
        // The keeper is at it.
        if reply.status != 503 {
            return Ok(reply);
        }
        world.sleep(Duration::from_millis(20)).await;
    }
}

fn note_answer(caller: &mut Caller, sent: &Sent, reply: &ApiReply) -> Result<(), String> {
    match &sent.kind {
        SentKind::Present if reply.status == 201 => {
            let row: PresentationRow =
                serde_json::from_str(&reply.body).map_err(|error| error.to_string())?;
            let clone = row.clone_volume.clone().map(|id| (id, row.keeps_clone));
            let ends = parse_time(&row.ends).expect("a time");
            if let Some((id, true)) = &clone {
                caller.kept.push(id.clone());
            }
            caller.known.insert(row.id.clone(), KnownPresentation { ends, point: row.snapshot, clone });
        }
        SentKind::Withdraw { id, keeps_clone } if [200, 404].contains(&reply.status) => {
            let known = caller.known.remove(id);
            if let Some((clone, _)) = known.and_then(|known| known.clone)
                && *keeps_clone
            {
                caller.kept.push(clone);
            }
        }
        _ if reply.status == 409 || reply.status == 400 => caller.refused += 1,
        _ => return Err(format!("{sent:?}: {reply:?}")),
    }
    Ok(())
}

fn draw(caller: &mut Caller, (volume, points): (&str, &[SnapshotRow])) -> Sent {
    let random = &mut caller.random;
    let key = format!("{:08}", random.below(1 << 26));
    let known: Vec<String> = caller.known.keys().cloned().collect();
    if !known.is_empty() && random.percent(35.0) {
        let id = known[random.below(known.len() as u64) as usize].clone();
        let keeps_clone = random.percent(30.0);
        let path = format!("/v1/presentations/{id}?keep_clone={keeps_clone}");
        return Sent { key, kind: SentKind::Withdraw { id, keeps_clone }, path, body: None };
    }
    let clone = random.percent(50.0);
    let is_in_target = random.percent(30.0);
    let body = NewPresentationBody {
        snapshot: points[random.below(points.len() as u64) as usize].id.clone(),
        initiator: ["backup1", "iqn.y:lab"][random.below(2) as usize].to_owned(),
        seconds: [2, 5, 40_000][random.below(3) as usize],
        target: is_in_target.then(|| "disks".to_owned()),
        number: random.percent(20.0).then(|| random.below(3)),
        clone,
        clone_name: None,
        keep_clone: clone && random.percent(25.0),
    };
    let path = format!("/v1/volumes/{volume}/presentations");
    Sent { key, kind: SentKind::Present, path, body: Some(serde_json::to_string(&body).unwrap()) }
}

/// A point that is presented is not deleted.
async fn try_deletion(world: &World, client: &ApiClient, caller: &Rc<RefCell<Caller>>) -> Result<(), String> {
    let (volume, known) = points(client).await?;
    let point = known.first().ok_or("there is a point")?;
    let path = format!("/v1/volumes/{volume}/snapshots/{}", point.id);
    let reply = client.send(Method::DELETE, &path, None, &[]).await.map_err(|refusal| refusal.to_string())?;
    let now = world.wall().seconds;
    let is_held = caller.borrow().known.values().any(|known| known.point == point.id && known.ends > now);
    match reply.status {
        409 if reply.body.contains("presented to") => {
            caller.borrow_mut().refused += 1;
            Ok(())
        }
        204 if !is_held => take_points(client).await,
        _ => Err(format!("the deletion of {} was answered {reply:?}", point.name)),
    }
}

fn note_wall(world: &World, caller: &Rc<RefCell<Caller>>) {
    let mut caller = caller.borrow_mut();
    caller.wall_max = caller.wall_max.max(world.wall().seconds);
}

async fn call(world: &World, client: &Rc<ApiClient>, caller: &Rc<RefCell<Caller>>) -> Result<(), String> {
    take_points(client).await?;
    loop {
        let open = caller.borrow().open.clone();
        let sent = match open {
            Some(open) => open,
            None if caller.borrow().done == REQUESTS => break,
            None => {
                let (volume, points) = points(client).await?;
                let sent = draw(&mut caller.borrow_mut(), (&volume, &points));
                caller.borrow_mut().open = Some(sent.clone());
                sent
            }
        };
        note_wall(world, caller);
        let reply = send(client, &sent, world).await?;
        note_answer(&mut caller.borrow_mut(), &sent, &reply)?;
        caller.borrow_mut().open = None;
        caller.borrow_mut().done += 1;
        check(world, client, caller).await?;
        let (pause, deletes) = {
            let random = &mut caller.borrow_mut().random;
            (random.below(2_500), random.percent(30.0))
        };
        if deletes {
            try_deletion(world, client, caller).await?;
        }
        for _ in 0..pause / 100 {
            world.sleep(Duration::from_millis(100)).await;
            caller.borrow_mut().wall_max = world.wall().seconds;
        }
        check(world, client, caller).await?;
    }
    // All short ones are over. A life before may have ended some without a look at them.
    for _ in 0..80 {
        world.sleep(Duration::from_millis(100)).await;
        note_wall(world, caller);
    }
    check(world, client, caller).await?;
    check_settled(client, caller).await
}

async fn life(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    file: SimStateFile,
    caller: Rc<RefCell<Caller>>,
) -> Result<(), String> {
    note_wall(&world, &caller);
    let mut served = serve(&world, (&network, drives, made), &file).await?;
    let client = Rc::clone(&served.client);
    served.beside(call(&world, &client, &caller)).await?;
    served.stop().await.map(drop)
}

fn lives(seed: u64) -> Result<(usize, usize, usize), String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let (made, file) = (MadePools::default(), SimStateFile::new("journal", seed));
    let mut random = simulation.random("crashes");
    let caller = Rc::new(RefCell::new(Caller {
        random: simulation.random("caller"),
        known: BTreeMap::new(),
        kept: Vec::new(),
        done: 0,
        open: None,
        wall_max: 0,
        crashes: 0,
        ended: 0,
        abandoned: 0,
        refused: 0,
    }));
    let mut left = 3 + random.below(5);
    loop {
        let polls = (left > 0).then(|| 100 + random.below(2_500));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let (own, file_now) = ((network.clone(), drives.clone(), Rc::clone(&made)), file.clone());
        let caller_now = Rc::clone(&caller);
        match simulation.run(limits, |world| life(world, own, file_now, caller_now)) {
            SimOutcome::Completed(ended) => {
                ended?;
                let caller = caller.borrow();
                return Ok((caller.crashes, caller.ended, caller.refused));
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                file.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        let mut caller = caller.borrow_mut();
        caller.crashes += 1;
        left -= 1;
        if random.percent(40.0) {
            give_up(&mut caller);
        }
    }
}

/// The caller does not ask again for what a crash left without an answer. A clone that is to stay is asked for again.
fn give_up(caller: &mut Caller) {
    let Some(open) =
        caller.open.take_if(|open| !open.body.as_ref().is_some_and(|body| body.contains("keep_clone")))
    else {
        return;
    };
    caller.abandoned += 1;
    if let SentKind::Withdraw { id, keeps_clone } = &open.kind {
        let known = caller.known.remove(id);
        let clone = known.and_then(|known| known.clone).filter(|_| *keeps_clone);
        caller.kept.extend(clone.map(|(id, _)| id));
    }
}

#[test]
fn what_is_presented_is_served_until_its_time_and_gone_then_however_often_the_server_is_killed() {
    let seeds = Seeds::of(12, 2_000);
    let (mut crashes, mut ended, mut refused) = (0, 0, 0);
    seeds.live_all(|seed| {
        let of_seed = lives(seed)?;
        crashes += of_seed.0;
        ended += of_seed.1;
        refused += of_seed.2;
        Ok(())
    });
    seeds.check(crashes > seeds.count(), &format!("{crashes} crashes"));
    seeds.check(ended > seeds.count(), &format!("{ended} presentations came to their end"));
    seeds.check(refused > 0, "nothing was refused");
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_of_presentations_are_noticed() {
    use control::planted::{PresentBug, with_present_bug};
    let live = |bug, seed| with_present_bug(bug, || lives(seed)).unwrap();
    let remembered = [
        (PresentBug::ServedAfterItsTime, 1),
        (PresentBug::CloneLeftBehind, 0),
        (PresentBug::HalfBegunStays, 68),
        (PresentBug::PointNotHeld, 0),
    ];
    assert_eq!(remembered.map(|(bug, _)| bug), PresentBug::ALL);
    assert_panics(remembered, 200, live);
}

/// A site in one life, and what `test` does with it.
fn one_life<F: Future<Output = Result<(), String>> + 'static>(
    seed: u64,
    test: impl FnOnce(World, SimNetwork, Rc<ApiClient>) -> F + 'static,
    lines: impl FnOnce(Vec<String>) + 'static,
) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let (made, file) = (MadePools::default(), SimStateFile::new("journal", seed));
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let mut served = serve(&world, (&network, drives, made), &file).await.unwrap();
        let client = Rc::clone(&served.client);
        let world = served.world.clone();
        served.beside(test(world, network, client)).await.unwrap();
        lines(served.stop().await.unwrap());
    });
    run.completed();
}

async fn present(
    client: &ApiClient,
    change: impl FnOnce(&mut NewPresentationBody),
) -> Result<PresentationRow, String> {
    let (volume, points) = points(client).await?;
    let mut body = NewPresentationBody {
        snapshot: points[0].id.clone(),
        initiator: "backup1".to_owned(),
        seconds: 30,
        ..NewPresentationBody::default()
    };
    change(&mut body);
    let path = format!("/v1/volumes/{volume}/presentations");
    client.call(Method::POST, &path, &body).await.map_err(|refusal| refusal.to_string())
}

fn options(name: &str) -> InitiatorOptions {
    let answer_max = Duration::from_secs(3);
    InitiatorOptions { name: name.to_owned(), answer_max, ..InitiatorOptions::default() }
}

async fn log_in(
    world: &World,
    network: &SimNetwork,
    (target, number): (&str, u64),
    name: &str,
) -> world::IoResult<Initiator> {
    let uri = format!("iscsi://server:3260/{target}/{number}").parse::<IscsiUri>().unwrap();
    Initiator::connect(world, network.host("client"), uri, options(name)).await
}

async fn read(device: &dyn BlockDevice) -> world::IoResult<u8> {
    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await?;
    Ok(read[0][0])
}

async fn write(device: &dyn BlockDevice, value: u8) -> world::IoResult<()> {
    let data = vec![Arc::new(Buffer::copy_of(&[value; 4096]))];
    device.write(ByteOffset(0), data, Stability::Stable).await
}

#[test]
fn one_host_reads_the_point_and_is_logged_out_when_the_time_is_over() {
    let test = |world: World, network: SimNetwork, client: Rc<ApiClient>| async move {
        let disks = "iqn.2026-11.org.spindle:disks";
        let mail = log_in(&world, &network, (disks, 0), "iqn.x:mail1").await.unwrap();
        write(&mail, 1).await.unwrap();
        take_points(&client).await?;
        write(&mail, 2).await.unwrap();
        let row = present(&client, |_| ()).await?;
        assert!(row.is_served && row.is_read_only && !row.has_chap, "{row:#?}");
        let target = (row.target.as_str(), row.number);
        let backup = log_in(&world, &network, target, "iqn.x:backup1").await.unwrap();
        assert_eq!((read(&backup).await.unwrap(), read(&mail).await.unwrap()), (1, 2));
        assert_eq!(write(&backup, 3).await.unwrap_err().kind(), IoErrorKind::ReadOnly);
        // Another host sees neither the target nor its unit.
        let portal = Address::parse("server", 3260).unwrap();
        let host = network.host("client");
        let seen = async |name: &str| discover(&world, &*host, &portal, &options(name)).await;
        let names = |found: Vec<iscsi::initiator::DiscoveredTarget>| {
            found.into_iter().map(|target| target.name).collect::<Vec<_>>()
        };
        assert_eq!(names(seen("iqn.x:mail1").await.unwrap()), [disks]);
        assert_eq!(names(seen("iqn.x:backup1").await.unwrap()), std::slice::from_ref(&row.target));
        assert!(log_in(&world, &network, target, "iqn.x:mail1").await.is_err());
        // The same point for a second host, as a clone.
        let lab = present(&client, |body| {
            (body.initiator, body.clone, body.seconds) = ("iqn.y:lab".to_owned(), true, 20);
        });
        let lab = lab.await?;
        assert_ne!(lab.identity, row.identity);
        let disk = log_in(&world, &network, (&lab.target, lab.number), "iqn.y:lab").await.unwrap();
        write(&disk, 7).await.unwrap();
        assert_eq!((read(&disk).await.unwrap(), read(&backup).await.unwrap()), (7, 1));
        world.sleep(Duration::from_secs(2)).await;
        let sessions: Vec<usize> = listed(&client).await?.iter().map(|row| row.sessions).collect();
        assert_eq!(sessions, [1, 1]);
        world.sleep(Duration::from_secs(30)).await;
        assert!(read(&backup).await.is_err(), "it was logged out");
        assert!(log_in(&world, &network, target, "iqn.x:backup1").await.is_err());
        assert_eq!(read(&mail).await.unwrap(), 2, "the volume's own host goes on");
        assert_eq!(listed(&client).await?, []);
        let volumes: VolumePage = client.get("/v1/volumes").await.unwrap();
        assert_eq!(volumes.volumes.len(), 1, "the clone is gone");
        // And so is the hold.
        let (volume, points) = points(&client).await?;
        let path = format!("/v1/volumes/{volume}/snapshots/{}", points[0].id);
        client.command(Method::DELETE, &path).await.unwrap();
        Ok(())
    };
    one_life(7, test, |lines| {
        let of = |kind: &str| lines.iter().filter(|line| line.starts_with(kind)).cloned().collect::<Vec<_>>();
        assert_eq!(of("presented ").len(), 2, "{lines:#?}");
        assert_eq!(of("presentation_ends_soon ").len(), 2, "{lines:#?}");
        let ended = of("presentation_cut_off ");
        assert!(
            ended[0].contains("its clone store-monday and what was written to it are removed"),
            "{ended:#?}"
        );
        assert!(ended[1].contains("logged out: iqn.x:backup1 ("), "{ended:#?}");
    });
}

#[test]
fn a_presentation_that_would_show_too_much_is_refused_and_leaves_nothing() {
    let test = |_: World, _: SimNetwork, client: Rc<ApiClient>| async move {
        take_points(&client).await?;
        let refused = async |change: fn(&mut NewPresentationBody), words: &str| {
            let said = present(&client, change).await.unwrap_err();
            assert!(said.contains(words), "{said}, not {words}");
        };
        refused(|body| body.initiator = "nobody".to_owned(), "the site has no initiator nobody").await;
        refused(|body| body.seconds = 0, "0 s are not a time").await;
        refused(|body| body.target = Some("other".to_owned()), "pool mail has no target other").await;
        let taken =
            |body: &mut NewPresentationBody| (body.target, body.number) = (Some("disks".to_owned()), Some(0));
        refused(taken, "target disks has a unit 0").await;
        refused(|body| body.keep_clone = true, "no clone is made").await;
        let name = |body: &mut NewPresentationBody| {
            (body.clone, body.clone_name) = (true, Some("store".to_owned()));
        };
        refused(name, "\"store\" exists already").await;
        assert_eq!(listed(&client).await?, []);
        let row = present(&client, |body| body.target = Some("disks".to_owned())).await?;
        assert_eq!((row.number, row.target.as_str()), (1, "iqn.2026-11.org.spindle:disks"));
        // Its clone is a volume that nobody takes away meanwhile.
        let row = present(&client, |body| body.clone = true).await?;
        let own = row.target.strip_prefix("iqn.2026-11.org.spindle:").unwrap().to_owned();
        let said = present(&client, |body| body.target = Some(own)).await.unwrap_err();
        assert!(said.contains("has no target presented-store-monday."), "{said}");
        let path = format!("/v1/volumes/{}", row.clone_volume.clone().unwrap());
        let said = client.command(Method::DELETE, &path).await.unwrap_err().to_string();
        assert!(said.contains("presented to iqn.x:backup1") && said.contains("volume withdraw"), "{said}");
        // A clone that somebody took a snapshot of is not removed.
        let taken: SnapshotRow = client
            .call(
                Method::POST,
                &format!("{path}/snapshots"),
                &NewSnapshotBody { name: "own".to_owned(), note: String::new() },
            )
            .await
            .unwrap();
        assert_eq!(taken.name, "own");
        let path = format!("/v1/presentations/{}", row.id);
        let reply = client.send(Method::DELETE, &path, None, &[]).await.unwrap();
        let end: PresentationEndRow = reply.parsed().unwrap();
        assert!(end.clone.unwrap().contains("stays, because it cannot be removed"));
        let gone = client.send(Method::DELETE, &path, None, &[]).await.unwrap();
        assert_eq!(gone.status, 404);
        Ok(())
    };
    one_life(8, test, |_| ());
}
