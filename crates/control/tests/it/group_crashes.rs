//! Groups over two pools, changed over the API in simulated time: the power fails, or the process is killed, between any two
//! awaits.
//!
//! A caller sends each change with a key, and sends it again after a crash. After each start both pools agree: each has all of a
//! snapshot, a clone or a rollback, or neither has any of it. A model makes each answered change once, and the pools are as it.

use crate::seeds::Seeds;
use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    events::DaemonEventLog,
    journal::audit::check_audit,
    notice,
    planted::{GroupBug, with_group_bug},
    site::{
        SiteContext, SiteServer,
        handle::SiteHandle,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{
            ApiClient, ApiReply, GroupRollbackBody, Method, NewGroupBody, NewGroupClonesBody,
            NewGroupSnapshotBody, NewSnapshotsBody, NewVolumeBody, SettlementBody,
        },
        group_rows::{GroupEntry, GroupPage, MadeByGroup, Settlement},
        rows::{PoolRow, SnapshotPage, VolumeEntry, VolumePage},
    },
};
use fragile::Fragile;
use report::Refusal;
use serde::Serialize;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    Address, ByteCount, Random, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
    with_deadline,
};

const POOLS: [&str; 2] = ["logs", "mail"];
const SITE: &str = "[[group]]\nname = 'logs'\n[[group]]\nname = 'mail'\n";
/// Volume of the group in each pool.
const VOLUME: &str = "v";
/// Changes of one caller.
const CHANGES: usize = 14;

/// A change that was drawn, with its key.
#[derive(Clone, Debug)]
struct DrawnChange {
    key: String,
    kind: ChangeKind,
    method: Method,
    path: String,
    body: Option<String>,
}

/// Kind of a change, and its effect in the model.
#[derive(Clone, Debug)]
enum ChangeKind {
    Create,
    Snapshot(String),
    /// Of both volumes, without their group.
    Cut(String),
    Clone(String),
    RollBack,
    DeleteSnapshot(String),
    Delete,
}

/// Contents of both pools.
#[derive(Clone, Debug, Default, PartialEq)]
struct GroupModel {
    /// Names of the group's snapshots; `None` without the group.
    group: Option<BTreeSet<String>>,
    /// Names of all snapshots of each volume.
    snapshots: BTreeSet<String>,
    /// Names of all volumes of each pool.
    volumes: BTreeSet<String>,
}

/// The caller, who outlives the server.
struct Caller {
    random: Random,
    model: GroupModel,
    drawn: usize,
    open: Option<DrawnChange>,
    repeated: usize,
    refused: usize,
    has_volumes: bool,
}

fn json(body: &impl Serialize) -> Option<String> {
    Some(serde_json::to_string(body).unwrap())
}

fn said(refusal: Refusal) -> String {
    refusal.to_string()
}

/// The pools as the server shows them.
struct SeenPools {
    group: Option<GroupEntry>,
    /// UUIDs of the group's volumes.
    volumes: Vec<String>,
    by_pool: BTreeMap<String, GroupModel>,
}

async fn look(client: &ApiClient) -> Result<SeenPools, String> {
    let page: GroupPage = client.get("/v1/groups").await.map_err(said)?;
    let group = page.groups.into_iter().next();
    let all: VolumePage = client.get("/v1/volumes").await.map_err(said)?;
    let (mut by_pool, mut volumes) = (BTreeMap::new(), Vec::new());
    for pool in POOLS {
        let of_pool: Vec<&VolumeEntry> = all.volumes.iter().filter(|row| row.pool == pool).collect();
        let mut model = GroupModel {
            volumes: of_pool.iter().map(|row| row.name.clone()).collect(),
            ..GroupModel::default()
        };
        if let Some(row) = of_pool.iter().find(|row| row.name == VOLUME) {
            volumes.push(row.id.clone());
            let path = format!("/v1/volumes/{}/snapshots", row.id);
            let page: SnapshotPage = client.get(&path).await.map_err(said)?;
            if let Some(pending) = page.snapshots.iter().find(|row| row.is_pending) {
                return Err(format!("{} is pending in {pool}", pending.name));
            }
            model.snapshots = page.snapshots.into_iter().map(|row| row.name).collect();
        }
        let part = group.iter().flat_map(|row| &row.parts).find(|part| part.pool == pool);
        if let Some(unsettled) = part.and_then(|part| part.unsettled.as_ref()) {
            return Err(format!("{unsettled:?} waits in {pool}"));
        }
        model.group = part.map(|part| part.snapshots.iter().map(|row| row.name.clone()).collect());
        by_pool.insert(pool.to_owned(), model);
    }
    Ok(SeenPools { group, volumes, by_pool })
}

/// Both pools have the same: all of each change, or none of it. Deletions and the making of the group go pool by pool.
fn check_agreed(shown: &SeenPools, open: Option<&ChangeKind>) -> Result<(), String> {
    let (logs, mail) = (&shown.by_pool["logs"], &shown.by_pool["mail"]);
    let is_excused =
        matches!(open, Some(ChangeKind::Create | ChangeKind::Delete | ChangeKind::DeleteSnapshot(_)));
    match logs == mail || is_excused {
        true => Ok(()),
        false => Err(format!("the pools differ: {logs:#?} and {mail:#?}, with {open:?} open")),
    }
}

impl Caller {
    fn draw(&mut self, shown: &SeenPools) -> DrawnChange {
        let random = &mut self.random;
        let key = format!("{}-{:06}", self.drawn, random.below(1 << 20));
        let name = format!("s{}", random.below(4));
        let existing = self.model.group.iter().flatten().next().cloned().unwrap_or_else(|| "none".to_owned());
        let (method, kind, end, body) = match random.below(12) {
            _ if self.model.group.is_none() => {
                let body = NewGroupBody { name: "all".to_owned(), volumes: shown.volumes.clone() };
                (Method::POST, ChangeKind::Create, "", json(&body))
            }
            0..4 => {
                let body = NewGroupSnapshotBody { name: name.clone(), note: key.clone() };
                (Method::POST, ChangeKind::Snapshot(name), "/snapshots", json(&body))
            }
            4 => {
                let (volumes, note) = (shown.volumes.iter().rev().cloned().collect(), key.clone());
                let body = NewSnapshotsBody { name: name.clone(), note, volumes, within_ms: None };
                (Method::POST, ChangeKind::Cut(name), "", json(&body))
            }
            5 | 6 => {
                let suffix = format!("-{}", random.below(6));
                let body =
                    NewGroupClonesBody { snapshot: existing, suffix: suffix.clone(), independent: false };
                (Method::POST, ChangeKind::Clone(suffix), "/clones", json(&body))
            }
            7..10 => {
                let body = GroupRollbackBody { snapshot: existing, force: false };
                (Method::POST, ChangeKind::RollBack, "/rollback", json(&body))
            }
            10 => (Method::DELETE, ChangeKind::DeleteSnapshot(existing), "/snapshots/", None),
            _ => (Method::DELETE, ChangeKind::Delete, "", None),
        };
        let group = || shown.group.as_ref().expect("the model has it");
        let path = match &kind {
            ChangeKind::Create => "/v1/groups".to_owned(),
            ChangeKind::Cut(_) => "/v1/snapshots".to_owned(),
            ChangeKind::DeleteSnapshot(name) => {
                let mut all = group().parts.iter().flat_map(|part| &part.snapshots);
                let id = all.find(|row| row.name == *name).map_or(group().id.clone(), |row| row.id.clone());
                format!("/v1/groups/{}{end}{id}", group().id)
            }
            _ => format!("/v1/groups/{}{end}", group().id),
        };
        DrawnChange { key, kind, method, path, body }
    }

    /// Makes an answered change in the model.
    fn answered(&mut self, change: &DrawnChange, reply: &ApiReply) -> Result<(), String> {
        if reply.status >= 500 || reply.status == 422 || reply.status == 412 {
            return Err(format!("{change:?} was answered {reply:?}"));
        }
        if reply.status >= 400 {
            self.refused += 1;
            return Ok(());
        }
        let model = &mut self.model;
        match &change.kind {
            ChangeKind::Create => model.group = Some(BTreeSet::new()),
            ChangeKind::Snapshot(name) => {
                let group = model.group.as_mut().ok_or("a snapshot without a group")?;
                if !group.insert(name.clone()) || !model.snapshots.insert(name.clone()) {
                    return Err(format!("a snapshot {name} was taken twice"));
                }
            }
            ChangeKind::Cut(name) => {
                if !model.snapshots.insert(name.clone()) {
                    return Err(format!("a snapshot {name} was taken twice"));
                }
            }
            ChangeKind::Clone(suffix) => {
                if !model.volumes.insert(format!("{VOLUME}{suffix}")) {
                    return Err(format!("clones {suffix} were made twice"));
                }
            }
            ChangeKind::RollBack => {
                let MadeByGroup { made } =
                    serde_json::from_str(&reply.body).map_err(|error| error.to_string())?;
                let left: BTreeSet<String> = made.iter().map(|row| row.made.clone()).collect();
                let [left] = left.into_iter().collect::<Vec<_>>().try_into().map_err(|all| {
                    format!("the pools count their rollbacks differently, or not at all: {all:?}")
                })?;
                if made.len() != 2 || !model.volumes.insert(left) {
                    return Err(format!("a rollback was done twice: {made:?}"));
                }
            }
            ChangeKind::DeleteSnapshot(name) => {
                model.group.as_mut().ok_or("a snapshot without a group")?.remove(name);
                model.snapshots.remove(name);
            }
            ChangeKind::Delete => model.group = None,
        }
        Ok(())
    }
}

/// The server shows what the model has.
async fn check(client: &ApiClient, model: &GroupModel) -> Result<(), String> {
    let shown = look(client).await?;
    match shown.by_pool.values().all(|of_pool| of_pool == model) {
        true => Ok(()),
        false => Err(format!("the server has {:#?}, and was asked for {model:#?}", shown.by_pool)),
    }
}

/// Sends a change until it is answered.
async fn send(world: &World, client: &ApiClient, change: &DrawnChange) -> Result<ApiReply, String> {
    loop {
        let key = [("idempotency-key", change.key.as_str())];
        let sent = client.send(change.method.clone(), &change.path, change.body.clone(), &key);
        let reply = sent.await.map_err(said)?;
        if reply.status != 503 && !reply.body.contains("under-way") {
            return Ok(reply);
        }
        world.sleep(Duration::from_millis(10)).await;
    }
}

/// Sends the open change again, then new ones, until all are answered.
async fn call(world: World, client: Rc<ApiClient>, caller: Rc<RefCell<Caller>>) -> Result<(), String> {
    if !caller.borrow().has_volumes {
        make_volumes(&client).await?;
        let mut caller = caller.borrow_mut();
        caller.has_volumes = true;
        caller.model.volumes.insert(VOLUME.to_owned());
    }
    let open = caller.borrow().open.as_ref().map(|open| open.kind.clone());
    check_agreed(&look(&client).await?, open.as_ref())?;
    loop {
        let open = caller.borrow().open.clone();
        let change = match open {
            Some(open) => {
                caller.borrow_mut().repeated += 1;
                open
            }
            None if caller.borrow().drawn == CHANGES => return Ok(()),
            None => {
                let shown = look(&client).await?;
                let mut caller = caller.borrow_mut();
                let drawn = caller.draw(&shown);
                // Sent from here on.
                caller.drawn += 1;
                caller.open = Some(drawn.clone());
                drawn
            }
        };
        let reply = send(&world, &client, &change).await?;
        caller.borrow_mut().answered(&change, &reply)?;
        caller.borrow_mut().open = None;
        let model = caller.borrow().model.clone();
        check(&client, &model).await.map_err(|error| format!("after {change:?}, {reply:?}: {error}"))?;
    }
}

/// Makes a volume in each pool. Returns their UUIDs.
async fn make_volumes(client: &ApiClient) -> Result<Vec<String>, String> {
    let rows: Vec<PoolRow> = client.get("/v1/pools").await.map_err(said)?;
    let mut ids = Vec::new();
    for row in rows {
        let body = NewVolumeBody { name: VOLUME.to_owned(), size_bytes: MIB, ..Default::default() };
        let path = format!("/v1/pools/{}/volumes", row.id.unwrap());
        let made: VolumeEntry = client.call(Method::POST, &path, &body).await.map_err(said)?;
        ids.push(made.id);
    }
    Ok(ids)
}

type SimulatedPlace = (SimNetwork, Drives, MadePools, SimStateFile);

/// One life of the server, with `work` beside it.
async fn serve<F: Future<Output = Result<(), String>>>(
    world: World,
    (network, drives, made, file): SimulatedPlace,
    work: impl FnOnce(Rc<ApiClient>, SiteHandle) -> F,
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
    let (notices, mut reader) = notice::channel("serve");
    let mut server =
        SiteServer::start(&world, setting, SITE, PortalUse::None, &notices).await.map_err(said)?;
    let socket = Address::Unix("/state/spindle.sock".into());
    let setting = WebSetting {
        network: Box::new(move || api.get().host("server")),
        addresses: vec![(socket.clone(), "socket")],
        tls: server.api_certificates().cloned(),
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
    let plan = server.plan(SITE, &[], PlanOccasion::Start).await.map_err(said)?;
    server.apply(plan, |_| ()).await.map_err(said)?;
    server.open();
    let client = Rc::new(ApiClient::new(network.host("server"), socket, None));
    let handle = server.handle();
    let answering = async {
        loop {
            let request = server.next_request().await;
            server.answer(request).await;
        }
    };
    with_deadline(answering, work(client, handle)).await.expect("answering does not end")?;
    web.stop().await?;
    server.stop().await;
    while let Some(notice) = reader.try_next() {
        // A test fills the queue of a pool, and its jobs are asked for as well.
        if notice.is_warning && !notice.text.contains("orders wait for the pool already") {
            return Err(format!("warned of {notice:?}"));
        }
    }
    let audit = journal.audit_lines(0, 5000).map_err(|error| error.to_string())?;
    check_audit(&audit).map_err(|broken| format!("{broken:?}"))?;
    Ok(())
}

/// Facts of a seed.
#[derive(Default)]
struct Lives {
    crashes: usize,
    repeated: usize,
    refused: usize,
    made: usize,
}

fn place(simulation: &mut Simulation, seed: u64) -> SimulatedPlace {
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    (network, drives, MadePools::default(), SimStateFile::new("journal", seed))
}

fn lives(seed: u64) -> Result<Lives, String> {
    let mut simulation = Simulation::new(seed);
    let place = place(&mut simulation, seed);
    let mut random = simulation.random("crashes");
    let caller = Caller {
        random: simulation.random("caller"),
        model: GroupModel::default(),
        drawn: 0,
        open: None,
        repeated: 0,
        refused: 0,
        has_volumes: false,
    };
    let caller = Rc::new(RefCell::new(caller));
    let mut left = 4 + random.below(6) as usize;
    let mut crashes = 0;
    loop {
        let polls = (left > 0).then(|| 150 + random.below(700));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let (of_life, caller_now) = (place.clone(), Rc::clone(&caller));
        let outcome = simulation.run(limits, |own| async move {
            let world = own.clone();
            let of_caller = Rc::clone(&caller_now);
            serve(own, of_life, |client, _| call(world, client, of_caller)).await
        });
        match outcome {
            SimOutcome::Completed(ended) => {
                ended?;
                let caller = caller.borrow();
                let made = caller.model.volumes.len() + caller.model.snapshots.len();
                let Caller { repeated, refused, .. } = *caller;
                return Ok(Lives { crashes, repeated, refused, made });
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                place.3.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        crashes += 1;
        left -= 1;
    }
}

#[test]
fn a_group_of_two_pools_is_changed_in_both_or_in_neither_and_once() {
    let mut sum = Lives::default();
    let seeds = Seeds::of(8, 800);
    seeds.live_all(|seed| {
        let Lives { crashes, repeated, refused, made } = lives(seed)?;
        sum.crashes += crashes;
        sum.repeated += repeated;
        sum.refused += refused;
        sum.made += made;
        Ok(())
    });
    let count = seeds.count();
    seeds.check(sum.crashes > count, &format!("{} crashes", sum.crashes));
    seeds.check(sum.repeated > count / 2, &format!("{} changes were repeated", sum.repeated));
    seeds.check(sum.refused > 0, "nothing was refused");
    seeds.check(sum.made > 3 * count, &format!("{} changes were made", sum.made));
}

#[test]
fn planted_bugs_of_groups_are_noticed() {
    if !crate::is_full_run("planted bugs of groups are of") {
        return;
    }
    for bug in GroupBug::ALL {
        let noticed = crate::planted::noticed(bug, (0, 60), |seed| with_group_bug(bug, || lives(seed).err()));
        let (seed, _) = noticed.unwrap_or_else(|| panic!("{bug:?}"));
        println!("note: {bug:?} was noticed by seed {seed}");
    }
}

/// Runs `work` beside a server with a volume in each pool.
fn with_server<F: Future<Output = Result<(), String>> + 'static>(
    work: impl FnOnce(World, Rc<ApiClient>, SiteHandle, Vec<String>) -> F + 'static,
) {
    let mut simulation = Simulation::new(7);
    let place = place(&mut simulation, 7);
    let outcome = simulation.run(SimLimits::generous(), |own| async move {
        let world = own.clone();
        let beside = |client: Rc<ApiClient>, site: SiteHandle| async move {
            let volumes = make_volumes(&client).await?;
            work(world, client, site, volumes).await
        };
        serve(own, place, beside).await
    });
    match outcome {
        SimOutcome::Completed(ended) => ended.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cuts_of_the_same_pools_in_opposite_order_do_not_wait_for_each_other() {
    with_server(|world, client, _, volumes| async move {
        let began = world.now();
        let cuts: Vec<_> = (0..24)
            .map(|number| {
                let mut volumes = volumes.clone();
                if number % 2 == 1 {
                    volumes.reverse();
                }
                let body = NewSnapshotsBody {
                    name: format!("c{number}"),
                    note: String::new(),
                    volumes,
                    within_ms: None,
                };
                let client = Rc::clone(&client);
                world.spawn("cut", async move {
                    client.send(Method::POST, "/v1/snapshots", json(&body), &[]).await.map_err(said)
                })
            })
            .collect();
        for cut in cuts {
            let reply = cut.await?;
            assert_eq!(reply.status, 201, "{reply:?}");
        }
        assert!(world.now().since(began) < Duration::from_secs(5));
        Ok(())
    });
}

#[test]
fn a_pool_that_is_busy_or_has_stopped_is_named_and_the_other_one_goes_on() {
    with_server(|world, client, site, volumes| async move {
        let body = NewGroupBody { name: "all".to_owned(), volumes };
        let group: GroupEntry = client.call(Method::POST, "/v1/groups", &body).await.map_err(said)?;
        let pools = site.look().pools.clone();
        let (logs, mail) = (&pools["logs"], &pools["mail"]);
        // An order that takes a minute.
        let busy = mail.begin("long", |served| {
            Box::pin(async move { served.world.sleep(Duration::from_secs(60)).await })
        });
        let path = format!("/v1/groups/{}/snapshots", group.id);
        let snapshot =
            |name: &str| json(&NewGroupSnapshotBody { name: name.to_owned(), note: String::new() });
        // It cannot even be looked at: the caller hears so after 30 s, and its work goes on.
        let reply = client
            .send(Method::POST, &path, snapshot("a"), &[("idempotency-key", "a")])
            .await
            .map_err(said)?;
        assert_eq!((reply.status, reply.body.contains("goes-on")), (504, true), "{reply:?}");
        let began = world.now();
        logs.begin("quick", |_| Box::pin(async {})).unwrap().await.unwrap();
        assert!(world.now().since(began) < Duration::from_millis(10), "the other pool has orders");
        busy.unwrap().await.unwrap();
        let reply = loop {
            let reply = client
                .send(Method::POST, &path, snapshot("a"), &[("idempotency-key", "a")])
                .await
                .map_err(said)?;
            if !reply.body.contains("under-way") {
                break reply;
            }
            world.sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(reply.status, 201, "{reply:?}");

        // Its queue is full: the one that has a place is given up, and holds nothing.
        let busy: Vec<_> = (0..80)
            .map_while(|_| {
                mail.begin("long", |served| {
                    Box::pin(async move { served.world.sleep(Duration::from_secs(1)).await })
                })
                .ok()
            })
            .collect();
        let began = world.now();
        let cut = NewSnapshotsBody {
            name: "b".to_owned(),
            note: String::new(),
            volumes: group.parts.iter().flat_map(|part| &part.volumes).map(|row| row.id.clone()).collect(),
            within_ms: None,
        };
        let reply = client.send(Method::POST, "/v1/snapshots", json(&cut), &[]).await.map_err(said)?;
        assert_eq!((reply.status, reply.body.contains("busy")), (503, true), "{reply:?}");
        assert!(world.now().since(began) < Duration::from_secs(6), "nobody waits for the whole queue");
        let began = world.now();
        logs.begin("quick", |_| Box::pin(async {})).unwrap().await.unwrap();
        assert!(world.now().since(began) < Duration::from_millis(10), "it waits for its part no more");
        for order in busy {
            order.await.unwrap();
        }

        let settled: Settlement =
            client.call(Method::POST, "/v1/settlement", &SettlementBody::default()).await.map_err(said)?;
        assert!(settled.settled.is_empty(), "{settled:?}");
        let page: GroupPage = client.get("/v1/groups").await.map_err(said)?;
        let names = page.groups[0].parts.iter().map(|part| part.snapshots.len());
        assert_eq!(names.collect::<Vec<_>>(), [1, 1], "the same in both");
        Ok(())
    });
}
