//! Delivery of events in simulated time: the power fails, or the process is killed, between any two awaits, and the receiver
//! fails as it likes.
//!
//! The checker knows what the receiver accepted, and what the journal has after each crash. Nothing that the journal had is
//! skipped, nothing counts as delivered that was not accepted, and each life is told events in order.

use crate::seeds::Seeds;
use crate::sim_site::{Drives, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    conditions::ConditionClaim,
    events::DaemonEventLog,
    kinds::{RAISED, STATE},
    notice,
    notifying::{EventThread, EventThreadSetting},
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
};
use fragile::Fragile;
use report::{Refusal, Severity};
use serving::pool::events::EventReport;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, Random, Stream, World,
    network::accept_next,
    sim::{
        NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
        StateFileFaults,
    },
};

const SITE: &str = "
    [serve]
    iscsi = 'none'
    nbd = 'none'
    [[notify]]
    name = 'ops'
    kind = 'webhook'
    url = 'http://127.0.0.1:9000/hook'
    severity = 'warning'
";
/// Events of a seed.
const EVENTS: u64 = 40;
const NAME: &str = "ops";

/// The receiver's memory, which outlives the server.
#[derive(Default)]
struct Receiver {
    /// Numbers in the order in which they were accepted, by life.
    accepted: Vec<Vec<u64>>,
    repeated: usize,
    failed: usize,
    /// A planted bug: it accepts some, and keeps nothing of them.
    forgets: bool,
}

impl Receiver {
    fn all(&self) -> BTreeSet<u64> {
        self.accepted.iter().flatten().copied().collect()
    }
}

/// Answers one request after the other.
async fn receive(world: World, network: SimNetwork, receiver: Rc<RefCell<Receiver>>, mut random: Random) {
    let host = network.host("127.0.0.1");
    let listener = host.listen(&Address::parse("127.0.0.1:9000", 80).unwrap()).await.unwrap();
    loop {
        let mut stream = accept_next(&world, &*listener, drop).await.stream;
        if random.percent(10.0) {
            receiver.borrow_mut().failed += 1;
            continue;
        }
        let Some(id) = read_request(&mut stream).await else { continue };
        if random.percent(10.0) {
            // Longer than a sender waits.
            receiver.borrow_mut().failed += 1;
            world.sleep(Duration::from_secs(40)).await;
            continue;
        }
        if random.percent(15.0) {
            receiver.borrow_mut().failed += 1;
            let _ =
                stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy").await;
            continue;
        }
        {
            let mut receiver = receiver.borrow_mut();
            if receiver.all().contains(&id) {
                receiver.repeated += 1;
            }
            if !(receiver.forgets && random.percent(30.0)) {
                receiver.accepted.last_mut().unwrap().push(id);
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let _ = stream.flush().await;
    }
}

/// The number of the event in a request's body, once all of it is there.
async fn read_request(stream: &mut Stream) -> Option<u64> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).await.ok()?;
        if count == 0 {
            return None;
        }
        bytes.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        if body.len() == length.parse::<usize>().ok()? {
            return serde_json::from_str::<serde_json::Value>(body).ok()?["id"].as_u64();
        }
    }
}

fn report(severity: Severity, number: u64) -> EventReport {
    EventReport {
        event: if severity == Severity::Note { "note" } else { "warning" }.to_owned(),
        severity,
        time: "2026-11-27T02:00:00Z".to_owned(),
        pool: "test".to_owned(),
        text: format!("number {number}"),
        next_step: String::new(),
        details: serde_json::Map::new(),
    }
}

/// One life of the server, until everything that happened is delivered.
async fn life(
    world: World,
    network: SimNetwork,
    file: SimStateFile,
    (receiver, happened): (Rc<RefCell<Receiver>>, Rc<RefCell<u64>>),
    mut random: Random,
) -> Result<u64, String> {
    let said = |refusal: Refusal| refusal.to_string();
    let journal = Arc::new(journal_of(&file)?);
    let log = DaemonEventLog::of(journal.event_records().map_err(|error| error.to_string())?, world.wall());
    let threads = Rc::new(SimThreads(world.clone()));
    let own = Fragile::new(network.clone());
    let setting = SiteServerSetting {
        context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
        places: Rc::new(SimPlaces { drives: Drives::new(), made: MadePools::default() }),
        threads: Rc::clone(&threads) as _,
        network: Box::new(move || own.get().host("server")),
        journal: Arc::clone(&journal),
        catalogues: Rc::new(SimCatalogues::default()),
    };
    let (notices, reader) = notice::channel("serve");
    let mut reader = reader.keeping(&log, &world);
    let mut server =
        SiteServer::start(&world, setting, SITE, PortalUse::None, &notices).await.map_err(said)?;
    let plan = server.plan(SITE, &[], PlanOccasion::Start).await.map_err(said)?;
    server.apply(plan, |_| ()).await.map_err(said)?;
    server.open();
    world.spawn(
        "receiver",
        receive(world.clone(), network.clone(), receiver, Random::new(random.next_u64(), "part")),
    );
    let own = Fragile::new(network.clone());
    let setting = EventThreadSetting {
        network: Box::new(move || own.get().host("server")),
        site: server.handle(),
        watched: server.watched(),
        link: None,
        journal: Arc::clone(&journal),
        log: log.clone(),
    };
    let events = EventThread::start(&world, &*threads, setting, notices.of("serve")).map_err(said)?;
    world.sleep(Duration::from_millis(10)).await;
    loop {
        while reader.try_next().is_some() {}
        let number = *happened.borrow();
        if number == EVENTS {
            break;
        }
        *happened.borrow_mut() += 1;
        match random.below(5) {
            0 => drop(log.append(report(Severity::Note, number))),
            1 => drop(log.raise(&claim(), world.wall())),
            2 => drop(log.clear(&claim().id(), world.wall())),
            _ => drop(log.append(report(Severity::Warning, number))),
        }
        world.sleep(Duration::from_millis(random.below(1_500))).await;
    }
    let last = log.newest();
    while log.place(NAME).of_lane("all") < last {
        while reader.try_next().is_some() {}
        world.sleep(Duration::from_secs(1)).await;
    }
    events.stop().await?;
    server.stop().await;
    Ok(last)
}

fn claim() -> ConditionClaim {
    ConditionClaim::new("drive_warned", "test", "it is warm").of("drive")
}

/// Facts of a seed.
#[derive(Default)]
struct Lives {
    crashes: usize,
    repeated: usize,
    failed: usize,
}

fn lives(seed: u64, forgets: bool) -> Result<Lives, String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let file = SimStateFile::new("journal", seed);
    let mut random = simulation.random("crashes");
    let receiver = Rc::new(RefCell::new(Receiver { forgets, ..Receiver::default() }));
    let happened = Rc::new(RefCell::new(0));
    // Events that the journal has had, and those of them that are wanted.
    let mut durable: BTreeMap<u64, bool> = BTreeMap::new();
    let mut born_at = None;
    let mut left = 2 + random.below(5) as usize;
    let mut crashes = 0;
    loop {
        receiver.borrow_mut().accepted.push(Vec::new());
        let polls = (left > 0).then(|| 60 + random.below(500));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let parts = (Rc::clone(&receiver), Rc::clone(&happened));
        let (own_network, own_file, own_random) =
            (network.clone(), file.clone(), Random::new(random.next_u64(), "part"));
        let outcome = simulation.run(limits, |world| life(world, own_network, own_file, parts, own_random));
        let delivered_to = match outcome {
            SimOutcome::Completed(last) => Some(last?),
            SimOutcome::Crashed if random.percent(50.0) => {
                simulation.kill();
                None
            }
            SimOutcome::Crashed => {
                simulation.cut_power();
                file.cut_power();
                None
            }
            other => return Err(format!("{other:?}")),
        };
        check(&file, &receiver.borrow(), (&mut durable, &mut born_at), delivered_to)?;
        if delivered_to.is_some() {
            let receiver = receiver.borrow();
            return Ok(Lives { crashes, repeated: receiver.repeated, failed: receiver.failed });
        }
        crashes += 1;
        left -= 1;
    }
}

fn check(
    file: &SimStateFile,
    receiver: &Receiver,
    (durable, born_at): (&mut BTreeMap<u64, bool>, &mut Option<u64>),
    ended_at: Option<u64>,
) -> Result<(), String> {
    let records = journal_of(file)?.event_records().map_err(|error| error.to_string())?;
    for event in &records.events {
        let is_wanted = control::kinds::notified_severity(&event.report) <= Severity::Warning
            && control::kinds::is_notified(&event.report);
        durable.insert(event.id, is_wanted);
    }
    let is_there = |id: &u64| records.events.iter().any(|event| event.id == *id);
    if let Some(gone) = durable.keys().find(|id| !is_there(id)) {
        return Err(format!("event {gone} was in the journal, and is not any more"));
    }
    let ids: Vec<u64> = records.events.iter().map(|event| event.id).collect();
    if let Some(twice) = ids.iter().find(|id| **id >= records.numbers_below) {
        return Err(format!("number {twice} may be given again"));
    }
    // A condition is open if its last event says so.
    let is_raised = |id: &str| {
        let mut of_it = records
            .events
            .iter()
            .rev()
            .filter(|event| event.report.details.get("condition").is_some_and(|known| known == id));
        of_it.next().is_some_and(|event| event.report.details[STATE] == RAISED)
    };
    if records.conditions.iter().any(|open| open.id == claim().id()) != is_raised(&claim().id()) {
        return Err("the condition and its events disagree".to_owned());
    }
    for told in &receiver.accepted {
        // One that was sent again because its answer was lost is told twice.
        if told.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(format!("told out of order: {told:?}"));
        }
    }
    let Some(place) = records.places.get(NAME) else { return Ok(()) };
    let born = *born_at.get_or_insert(place.beginning);
    if place.beginning != born {
        return Err("a notifier was born twice".to_owned());
    }
    let accepted = receiver.all();
    let delivered_to = place.of_lane("all");
    if ended_at.is_some_and(|last| delivered_to < last) {
        return Err("it ended before all was delivered".to_owned());
    }
    let wanted =
        durable.iter().filter(|(id, is_wanted)| **is_wanted && (born + 1..=delivered_to).contains(id));
    match wanted.map(|(id, _)| id).find(|id| !accepted.contains(id)) {
        Some(skipped) => Err(format!("event {skipped} counts as delivered, and was not accepted")),
        None => Ok(()),
    }
}

#[test]
fn nothing_is_skipped_and_nothing_counts_as_delivered_that_was_not_accepted() {
    let seeds = Seeds::of(25, 1_000);
    let mut sum = Lives::default();
    seeds.live_all(|seed| {
        let Lives { crashes, repeated, failed } = lives(seed, false)?;
        sum.crashes += crashes;
        sum.repeated += repeated;
        sum.failed += failed;
        Ok(())
    });
    let Lives { crashes, repeated, failed } = sum;
    seeds.check(crashes > seeds.count(), &format!("{crashes} crashes"));
    seeds
        .check(repeated > 0 && failed > 100, &format!("{repeated} events came again, {failed} tries failed"));
}

/// A bug that is planted: the checker has to find it.
#[test]
fn a_receiver_that_forgets_is_noticed() {
    let noticed = (0..10).filter(|&seed| lives(seed, true).is_err()).count();
    assert!(noticed >= 9, "{noticed} of 10");
}

#[test]
fn a_full_disk_is_said_and_events_go_on_and_reach_the_journal_later() {
    let mut simulation = Simulation::new(1);
    let network = simulation.add_network(NetworkOptions::rack());
    let file = SimStateFile::new("journal", 1);
    let receiver = Rc::new(RefCell::new(Receiver { accepted: vec![Vec::new()], ..Receiver::default() }));
    let own = (file.clone(), Rc::clone(&receiver));
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let (file, receiver) = own;
        let happened = Rc::new(RefCell::new(0));
        let filling = (world.clone(), file.clone());
        world.spawn("filling", async move {
            let (world, file) = filling;
            world.sleep(Duration::from_secs(5)).await;
            file.set_faults(StateFileFaults { no_space: 0..u64::MAX, ..StateFileFaults::default() });
            world.sleep(Duration::from_secs(20)).await;
            file.set_faults(StateFileFaults::default());
        });
        life(world.clone(), network, file, (receiver, happened), world.random("life")).await
    });
    run.completed().unwrap();
    let records = journal_of(&file).unwrap().event_records().unwrap();
    let said: Vec<&str> = records
        .events
        .iter()
        .filter(|event| event.report.event == "events_not_kept")
        .map(|event| event.report.details[STATE].as_str().unwrap())
        .collect();
    assert_eq!(said, ["raised", "cleared"]);
    let (mut durable, mut born) = (BTreeMap::new(), None);
    check(&file, &receiver.borrow(), (&mut durable, &mut born), None).unwrap();
    assert!(durable.len() > 40, "{}", durable.len());
}
