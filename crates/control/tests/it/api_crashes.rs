//! Changes over the API in simulated time: the power fails, or the process is killed, between any two awaits.
//!
//! A caller sends each change with a key, and sends it again after a crash. The checker has a model of volumes and snapshots
//! that makes each answered change once; after each life and at the end the pools are as the model. Rows of the site and jobs
//! are among the changes (`api_rows`); drives are not: simulated pools have no folders.

use crate::{
    api_rows::{ModelRows, RowKind, SCHEDULE},
    seeds::Seeds,
    sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of},
};
use control::{
    events::DaemonEventLog,
    journal::audit::check_audit,
    notice,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{
            ApiClient, ApiReply, NewCloneBody, NewSnapshotBody, NewVolumeBody, RollbackBody, VolumePatch,
        },
        rows::{RollbackRow, SnapshotPage, VolumeEntry, VolumePage},
    },
};
use fragile::Fragile;
use report::Refusal;
use serde::Serialize;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, ByteCount, Random, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
    with_deadline,
};

pub const POOLS: [&str; 2] = ["logs", "mail"];
const SITE: &str = "[[group]]\nname = 'logs'\n[[group]]\nname = 'mail'\n";
/// Changes of one caller.
const CHANGES: usize = 40;

/// A change that was drawn, with its key.
#[derive(Clone, Debug)]
struct DrawnChange {
    key: String,
    kind: ChangeKind,
    method: &'static str,
    path: String,
    body: Option<String>,
}

/// Kind of a change, and its effect in the model.
#[derive(Clone, Debug)]
enum ChangeKind {
    Create {
        pool: &'static str,
        body: NewVolumeBody,
    },
    Patch {
        id: String,
        patch: VolumePatch,
    },
    Delete {
        id: String,
    },
    Snapshot {
        id: String,
        name: String,
    },
    DeleteSnapshot {
        id: String,
        name: String,
    },
    Clone {
        id: String,
        body: NewCloneBody,
    },
    RollBack {
        id: String,
        name: String,
    },
    /// `other` takes the place of the volume.
    TakePlace {
        id: String,
        other: String,
        name: String,
    },
    Row(RowKind),
}

/// A volume of the model.
#[derive(Clone, Debug, PartialEq)]
struct ModelVolume {
    pool: &'static str,
    name: String,
    size: u64,
    iops_max: u32,
    /// Names, and the volume's size at that time.
    snapshots: BTreeMap<String, u64>,
    /// A rollback left it: nothing more is done with it.
    is_left: bool,
}

/// The caller, who outlives the server.
struct Caller {
    random: Random,
    /// By UUID.
    model: BTreeMap<String, ModelVolume>,
    rows: ModelRows,
    drawn: usize,
    /// It was sent, and has no answer yet.
    open: Option<DrawnChange>,
    repeated: usize,
    refused: usize,
    places_taken: usize,
    crashes: usize,
}

pub fn json(body: &impl Serialize) -> Option<String> {
    Some(serde_json::to_string(body).unwrap())
}

impl Caller {
    fn draw(&mut self, pools: &BTreeMap<&'static str, String>) -> DrawnChange {
        let random = &mut self.random;
        let key = format!("{:06}", random.below(1 << 20));
        let known: Vec<(&String, &ModelVolume)> =
            self.model.iter().filter(|(_, known)| !known.is_left).collect();
        let pick = |random: &mut Random| {
            let (id, known) = known[random.below(known.len() as u64) as usize];
            (id.clone(), known.clone())
        };
        let name = format!("v{}", random.below(6));
        let size = MIB * (1 + random.below(3));
        let volumes: Vec<String> =
            known.iter().map(|(_, known)| format!("{}/{}", known.pool, known.name)).collect();
        let is_row = random.percent(35.0);
        let kind = match random.below(if known.is_empty() { 1 } else { 10 }) {
            _ if is_row => ChangeKind::Row(RowKind::draw(random, &volumes)),
            0 | 1 => {
                let pool = POOLS[random.below(2) as usize];
                ChangeKind::Create {
                    pool,
                    body: NewVolumeBody { name, size_bytes: size, ..Default::default() },
                }
            }
            2 => {
                let patch = VolumePatch {
                    size_bytes: Some(size),
                    may_shrink: random.percent(60.0),
                    ..Default::default()
                };
                ChangeKind::Patch { id: pick(random).0, patch }
            }
            3 => ChangeKind::Patch {
                id: pick(random).0,
                patch: VolumePatch { name: Some(name), ..Default::default() },
            },
            4 => {
                let patch = VolumePatch { iops_max: Some(random.below(1000) as u32), ..Default::default() };
                ChangeKind::Patch { id: pick(random).0, patch }
            }
            5 => ChangeKind::Delete { id: pick(random).0 },
            6 | 7 => ChangeKind::Snapshot { id: pick(random).0, name: format!("s{}", random.below(3)) },
            8 => {
                let (id, source) = pick(random);
                let mut taking = known.iter().filter(|(other, one)| {
                    **other != id && one.pool == source.pool && one.snapshots.is_empty()
                });
                match taking.next().filter(|_| random.percent(60.0)) {
                    Some((other, one)) => {
                        ChangeKind::TakePlace { id, other: (*other).clone(), name: one.name.clone() }
                    }
                    None => {
                        let body = NewCloneBody { name, snapshot: None, independent: false };
                        ChangeKind::Clone { id, body }
                    }
                }
            }
            _ => {
                let (id, volume) = pick(random);
                let name = volume.snapshots.keys().next().cloned().unwrap_or_else(|| "none".to_owned());
                match random.percent(70.0) {
                    true => ChangeKind::RollBack { id, name },
                    false => ChangeKind::DeleteSnapshot { id, name },
                }
            }
        };
        let of = |id: &String, end: &str| format!("/v1/volumes/{id}{end}");
        let (method, path, body) = match &kind {
            ChangeKind::Create { pool, body } => {
                ("POST", format!("/v1/pools/{}/volumes", pools[pool]), json(body))
            }
            ChangeKind::Patch { id, patch } => ("PATCH", of(id, ""), json(patch)),
            ChangeKind::Delete { id } => ("DELETE", of(id, ""), None),
            ChangeKind::Snapshot { id, name } => {
                let body = NewSnapshotBody { name: name.clone(), note: key.clone() };
                ("POST", of(id, "/snapshots"), json(&body))
            }
            // The UUID of the snapshot is looked up when it is sent.
            ChangeKind::DeleteSnapshot { id, .. } => ("DELETE", of(id, "/snapshots/"), None),
            ChangeKind::Clone { id, body } => ("POST", of(id, "/clones"), json(body)),
            ChangeKind::RollBack { id, name } => {
                let body = RollbackBody { snapshot: Some(name.clone()), ..RollbackBody::default() };
                ("POST", of(id, "/rollback"), json(&body))
            }
            ChangeKind::TakePlace { id, name, .. } => {
                let body = RollbackBody { to_volume: Some(name.clone()), ..RollbackBody::default() };
                ("POST", of(id, "/rollback"), json(&body))
            }
            ChangeKind::Row(kind) => kind.request(pools),
        };
        DrawnChange { key: format!("{key}-{}", self.drawn), kind, method, path, body }
    }

    /// Makes an answered change in the model.
    fn answered(&mut self, change: &DrawnChange, reply: &ApiReply) -> Result<(), String> {
        if reply.status >= 500 || reply.status == 422 {
            return Err(format!("{change:?} was answered {reply:?}"));
        }
        if reply.status >= 400 {
            self.refused += 1;
            return Ok(());
        }
        let row = || {
            serde_json::from_str::<VolumeEntry>(&reply.body).map_err(|error| format!("{error}: {reply:?}"))
        };
        match &change.kind {
            ChangeKind::Row(kind) => self.rows.answered(kind, reply)?,
            ChangeKind::Create { pool, body } => {
                let row = row()?;
                let new = ModelVolume {
                    pool,
                    name: body.name.clone(),
                    size: body.size_bytes,
                    iops_max: 0,
                    snapshots: BTreeMap::new(),
                    is_left: false,
                };
                match (self.model.insert(row.id, new), reply.status) {
                    (Some(before), 200) if before.name == body.name && before.size == body.size_bytes => {
                        let row = self
                            .model
                            .iter_mut()
                            .find(|(_, known)| known.name == before.name && known.pool == *pool);
                        *row.expect("it was inserted").1 = before;
                    }
                    (None, 201) => {}
                    (before, status) => return Err(format!("{before:?} was created again: {status}")),
                }
            }
            ChangeKind::Patch { id, patch } => {
                let known = self.model.get_mut(id).ok_or("a patch of what is not there")?;
                known.size = patch.size_bytes.unwrap_or(known.size);
                known.iops_max = patch.iops_max.unwrap_or(known.iops_max);
                known.name = patch.name.clone().unwrap_or_else(|| known.name.clone());
            }
            ChangeKind::Delete { id } => drop(self.model.remove(id)),
            ChangeKind::Snapshot { id, name } => {
                let known = self.model.get_mut(id).ok_or("a snapshot of what is not there")?;
                if known.snapshots.insert(name.clone(), known.size).is_some() {
                    return Err(format!("a snapshot {name} was taken twice"));
                }
            }
            ChangeKind::DeleteSnapshot { id, name } => {
                self.model.get_mut(id).ok_or("a snapshot of what is not there")?.snapshots.remove(name);
            }
            ChangeKind::Clone { id, body } => {
                let source = self.model[id].clone();
                let new = ModelVolume { name: body.name.clone(), snapshots: BTreeMap::new(), ..source };
                if self.model.insert(row()?.id, new).is_some() {
                    return Err("a clone was made twice".to_owned());
                }
            }
            ChangeKind::RollBack { id, .. } | ChangeKind::TakePlace { id, .. } => {
                let row: RollbackRow =
                    serde_json::from_str(&reply.body).map_err(|error| error.to_string())?;
                let ended = match &change.kind {
                    ChangeKind::TakePlace { other, .. } => {
                        self.places_taken += 1;
                        Some(self.model.remove(other).ok_or("a volume took two places")?)
                    }
                    _ => None,
                };
                if ended.as_ref().is_some_and(|ended| !ended.snapshots.is_empty()) {
                    return Err(format!("a volume with snapshots took a place: {ended:?}"));
                }
                let known = self.model.get_mut(id).ok_or("a rollback of what is not there")?;
                let left = ModelVolume {
                    name: row.left,
                    // It is not used, so it has no limits.
                    iops_max: 0,
                    is_left: true,
                    snapshots: BTreeMap::new(),
                    ..known.clone()
                };
                known.size = match &change.kind {
                    ChangeKind::RollBack { name, .. } => known.snapshots[name],
                    _ => ended.expect("it took the place").size,
                };
                if self.model.insert(row.left_id, left).is_some() {
                    return Err("a rollback was done twice".to_owned());
                }
            }
        }
        Ok(())
    }
}

/// Sends the open change again, then new ones, until all are answered.
async fn call(world: &World, client: &Rc<ApiClient>, caller: &Rc<RefCell<Caller>>) -> Result<(), String> {
    let said = |refusal: Refusal| refusal.to_string();
    let mut pools = BTreeMap::new();
    let rows: Vec<control::web::rows::PoolRow> = client.get("/v1/pools").await.map_err(said)?;
    for row in rows {
        let name = POOLS.into_iter().find(|name| *name == row.name).unwrap();
        pools.insert(name, row.id.ok_or_else(|| format!("{name} is not open: {:?}", row.reason))?);
    }
    loop {
        let open = caller.borrow_mut().open.clone();
        let change = match open {
            Some(open) => {
                caller.borrow_mut().repeated += 1;
                open
            }
            None if caller.borrow().drawn == CHANGES => {
                let (model, rows) = (caller.borrow().model.clone(), caller.borrow().rows.clone());
                rows.check(client).await?;
                return check(client, &model).await;
            }
            None => {
                let mut drawn = caller.borrow_mut().draw(&pools);
                if let ChangeKind::DeleteSnapshot { id, name } = &drawn.kind {
                    let path = format!("/v1/volumes/{id}/snapshots?name={name}");
                    let page: SnapshotPage = client.get(&path).await.map_err(said)?;
                    let snapshot = page.snapshots.first().map_or(id.clone(), |row| row.id.clone());
                    drawn.path += &snapshot;
                }
                // Sent from here on.
                let mut caller = caller.borrow_mut();
                caller.drawn += 1;
                caller.open = Some(drawn.clone());
                drawn
            }
        };
        let reply = send(world, client, &change, caller).await?;
        caller.borrow_mut().answered(&change, &reply)?;
        caller.borrow_mut().open = None;
        if caller.borrow_mut().random.percent(20.0) {
            let (model, rows) = (caller.borrow().model.clone(), caller.borrow().rows.clone());
            rows.check(client).await.map_err(|why| format!("{change:?}, {reply:?}: {why}"))?;
            check(client, &model).await?;
        }
        world.yield_now().await;
    }
}

/// Sends a change until it is answered. Some are sent twice at the same time, and some callers break off and ask again.
async fn send(
    world: &World,
    client: &Rc<ApiClient>,
    change: &DrawnChange,
    caller: &Rc<RefCell<Caller>>,
) -> Result<ApiReply, String> {
    let attempt = || {
        let (client, change) = (Rc::clone(client), change.clone());
        async move {
            let key = [("idempotency-key", change.key.as_str())];
            let method = change.method.parse().unwrap();
            let sent = client.send(method, &change.path, change.body.clone(), &key).await;
            sent.map_err(|refusal| refusal.to_string())
        }
    };
    let is_under_way = |reply: &ApiReply| reply.status == 409 && reply.body.contains("under-way");
    let (is_twice, breaks_off) = {
        let random = &mut caller.borrow_mut().random;
        (random.percent(15.0), random.percent(15.0))
    };
    let mut answered = None;
    if breaks_off {
        let patience = Duration::from_micros(caller.borrow_mut().random.below(3_000));
        // It may have begun by then.
        answered = with_deadline(world.sleep(patience), attempt()).await.transpose()?;
    }
    if is_twice {
        let other = world.spawn("the same again", attempt());
        let first = attempt().await?;
        let second = other.await?;
        let ended = [&first, &second].into_iter().filter(|reply| !is_under_way(reply)).collect::<Vec<_>>();
        // A thing that is not there is refused, and said to be gone when it is to be deleted again.
        if let [first, second] = ended[..]
            && (first.status, &first.body) != (second.status, &second.body)
            && change.method != "DELETE"
        {
            return Err(format!("{change:?} was answered {first:?} and {second:?}"));
        }
        answered = answered.or(ended.first().map(|reply| (*reply).clone()));
    }
    if let Some(reply) = answered.filter(|reply| !is_under_way(reply)) {
        return Ok(reply);
    }
    loop {
        let reply = attempt().await?;
        if !is_under_way(&reply) {
            return Ok(reply);
        }
        world.sleep(Duration::from_millis(1)).await;
    }
}

/// The server shows what the model has.
async fn check(client: &ApiClient, model: &BTreeMap<String, ModelVolume>) -> Result<(), String> {
    let said = |refusal: Refusal| refusal.to_string();
    let page: VolumePage = client.get("/v1/volumes").await.map_err(said)?;
    let mut found = BTreeMap::new();
    for row in page.volumes {
        let page: SnapshotPage =
            client.get(&format!("/v1/volumes/{}/snapshots", row.id)).await.map_err(said)?;
        let is_left = row.left_by.is_some();
        // Those of schedules come when their time has come.
        let own = page.snapshots.into_iter().filter(|row| !row.name.starts_with(SCHEDULE));
        let snapshots = own.map(|row| (row.name, row.size_bytes));
        let known = ModelVolume {
            pool: POOLS.into_iter().find(|name| *name == row.pool).unwrap(),
            name: row.name,
            size: row.size_bytes,
            iops_max: row.iops_max,
            snapshots: if is_left { BTreeMap::new() } else { snapshots.collect() },
            is_left,
        };
        if found.insert(row.id, known).is_some() {
            return Err("two volumes have one UUID".to_owned());
        }
    }
    match found == *model {
        true => Ok(()),
        false => Err(format!("the server has {found:#?}, and was asked for {model:#?}")),
    }
}

/// One life of the server, until the caller has nothing more to ask for.
async fn life(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    file: SimStateFile,
    caller: Rc<RefCell<Caller>>,
) -> Result<(), String> {
    let said = |refusal: Refusal| refusal.to_string();
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
    let answering = async {
        loop {
            let request = server.next_request().await;
            server.answer(request).await;
        }
    };
    call_beside(answering, call(&world, &client, &caller)).await?;
    web.stop().await?;
    server.stop().await;
    while let Some(notice) = reader.try_next() {
        if notice.is_warning {
            return Err(format!("warned of {notice:?}"));
        }
    }
    let audit = journal.audit_lines(0, 5000).map_err(|error| error.to_string())?;
    check_audit(&audit).map_err(|broken| format!("{broken:?}"))?;
    let ended = audit.iter().filter(|line| line.event.of.is_some()).count();
    let begun = audit.iter().filter(|line| line.event.of.is_none()).count();
    if begun - ended > caller.borrow().crashes {
        return Err(format!("{begun} changes were begun, {ended} have an outcome"));
    }
    if ended < CHANGES - caller.borrow().repeated {
        return Err(format!("{ended} outcomes of {CHANGES} changes are in the audit"));
    }
    Ok(())
}

async fn call_beside(
    answering: impl Future<Output = ()>,
    calling: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    with_deadline(answering, calling).await.expect("answering does not end")
}

/// Facts of a seed.
#[derive(Default)]
struct Lives {
    crashes: usize,
    repeated: usize,
    refused: usize,
    places_taken: usize,
}

fn lives(seed: u64) -> Result<Lives, String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let made = MadePools::default();
    let file = SimStateFile::new("journal", seed);
    let mut random = simulation.random("crashes");
    let caller = Caller {
        random: simulation.random("caller"),
        model: BTreeMap::new(),
        rows: ModelRows::default(),
        drawn: 0,
        open: None,
        repeated: 0,
        refused: 0,
        places_taken: 0,
        crashes: 0,
    };
    let caller = Rc::new(RefCell::new(caller));
    let mut left = 3 + random.below(6) as usize;
    let mut crashes = 0;
    loop {
        let polls = (left > 0).then(|| 100 + random.below(800));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let (world, drives, made) = ((network.clone(), file.clone()), drives.clone(), Rc::clone(&made));
        let caller_now = Rc::clone(&caller);
        let outcome = simulation.run(limits, |own| life(own, (world.0, drives, made), world.1, caller_now));
        match outcome {
            SimOutcome::Completed(ended) => {
                ended?;
                let caller = caller.borrow();
                let Caller { repeated, refused, places_taken, .. } = *caller;
                return Ok(Lives { crashes, repeated, refused, places_taken });
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                file.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        crashes += 1;
        caller.borrow_mut().crashes += 1;
        left -= 1;
    }
}

#[test]
fn each_change_is_done_once_however_often_the_server_is_killed() {
    let seeds = Seeds::of(10, 2_000);
    let mut sum = Lives::default();
    seeds.live_all(|seed| {
        let Lives { crashes, repeated, refused, places_taken } = lives(seed)?;
        sum.places_taken += places_taken;
        sum.crashes += crashes;
        sum.repeated += repeated;
        sum.refused += refused;
        Ok(())
    });
    seeds.check(sum.crashes > seeds.count(), &format!("{} crashes", sum.crashes));
    seeds.check(sum.repeated > seeds.count() / 4, &format!("{} changes were repeated", sum.repeated));
    seeds.check(sum.refused > 0, "nothing was refused");
    seeds.check(sum.places_taken > 0, "no volume took the place of another");
}
