//! Conditions of real pools in simulated time: a pool that fills and empties, a drive that fails, a pool that stops.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use array::volume::VolumeDevice;
use control::{
    events::DaemonEventLog,
    kinds::{CONDITION, RAISED, STATE},
    notice,
    notifying::{EventThread, EventThreadSetting},
    pool_thread::ServedPool,
    site::{
        SiteContext, SiteServer,
        handle::WantedAnswer,
        planning::PlanOccasion,
        power::SitePower,
        server::{PortalUse, SiteServerSetting},
    },
};
use fragile::Fragile;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, LocalFuture, Stability, World,
    network::accept_next,
    sim::{
        DriveOptions, FaultPlan, NetworkOptions, SimLimits, SimNetwork, SimStateFile, SimThreads, Simulation,
        StateFileFaults,
    },
};

const SITE: &str = "
    [serve]
    iscsi = 'none'
    nbd = 'none'
    [[group]]
    name = 'mail'
    [[volume]]
    name = 'store'
    gb = 0.0625
    [[volume]]
    name = 'more'
    gb = 0.0625
";

/// A served site with its thread of events.
struct SeenSite {
    world: World,
    server: SiteServer,
    events: EventThread,
    log: DaemonEventLog,
}

impl SeenSite {
    async fn begin(world: &World, network: SimNetwork, drives: Drives, file: &SimStateFile) -> Self {
        Self::begin_with(world, network, (drives, MadePools::default()), file, SITE).await
    }

    async fn begin_with(
        world: &World,
        network: SimNetwork,
        (drives, made): (Drives, MadePools),
        file: &SimStateFile,
        text: &str,
    ) -> Self {
        Self::begin_on(world, network, (drives, made), (file, StateFileFaults::default()), text).await
    }

    /// With these faults of the state file once it is open.
    async fn begin_on(
        world: &World,
        network: SimNetwork,
        (drives, made): (Drives, MadePools),
        (file, faults): (&SimStateFile, StateFileFaults),
        text: &str,
    ) -> Self {
        let journal = Arc::new(journal_of(file).unwrap());
        let log = DaemonEventLog::of(journal.event_records().unwrap(), world.wall());
        let is_new = journal.served_site().unwrap().is_none();
        file.set_faults(faults);
        let threads = Rc::new(SimThreads(world.clone()));
        let (own, other) = (Fragile::new(network.clone()), Fragile::new(network));
        let setting = SiteServerSetting {
            context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
            places: Rc::new(SimPlaces { drives, made }),
            threads: Rc::clone(&threads) as _,
            network: Box::new(move || own.get().host("server")),
            journal: Arc::clone(&journal),
            catalogues: Rc::new(SimCatalogues::default()),
        };
        let (notices, reader) = notice::channel("serve");
        let mut reader = reader.keeping(&log, world);
        let mut server = SiteServer::start(world, setting, text, PortalUse::None, &notices).await.unwrap();
        let occasion = if is_new { PlanOccasion::Apply } else { PlanOccasion::Start };
        let plan = server.plan(text, &[], occasion).await.unwrap();
        let applied = server.apply(plan, |_| ()).await;
        assert!(applied.is_ok() || !is_new, "{applied:?}");
        server.open();
        let setting = EventThreadSetting {
            network: Box::new(move || other.get().host("server")),
            site: server.handle(),
            watched: server.watched(),
            link: None,
            journal,
            log: log.clone(),
        };
        let events = EventThread::start(world, &*threads, setting, notices).unwrap();
        world.spawn("reader", async move { while reader.next().await.is_some() {} });
        Self { world: world.clone(), server, events, log }
    }

    async fn order<T: Send + 'static>(
        &self,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> T {
        let pool = self.server.handle().look().pools["mail"].clone();
        pool.begin("test", work).unwrap().await.unwrap()
    }

    /// Writes one MiB of a volume. False if a write failed.
    async fn write(&self, volume: &'static str, mib: u64) -> bool {
        self.order(move |served| {
            Box::pin(async move {
                let device: Rc<dyn BlockDevice> = Rc::new(VolumeDevice(served.pool.volume(volume).unwrap()));
                for place in mib * 4..mib * 4 + 4 {
                    let data = vec![Arc::new(Buffer::copy_of(&vec![place as u8 | 1; MIB as usize / 4]))];
                    if device.write(ByteOffset(place * MIB / 4), data, Stability::Stable).await.is_err() {
                        return false;
                    }
                }
                true
            })
        })
        .await
    }

    /// The time of 64 writes of a block each to the volume "store".
    async fn time_of(&self, stability: Stability) -> Duration {
        self.order(move |served| {
            Box::pin(async move {
                let device: Rc<dyn BlockDevice> = Rc::new(VolumeDevice(served.pool.volume("store").unwrap()));
                let begun = served.world.now();
                for block in 0..64 {
                    let data = vec![Arc::new(Buffer::copy_of(&[7; 4096]))];
                    device.write(ByteOffset(block * 4096), data, stability).await.unwrap();
                }
                served.world.now().since(begun)
            })
        })
        .await
    }

    async fn tell(&mut self, power: SitePower) {
        let answer = self.server.handle().ask(WantedAnswer::Power(power)).unwrap();
        let request = self.server.next_request().await;
        self.server.answer(request).await;
        assert_eq!(answer.await.unwrap().unwrap().notes, Vec::<String>::new());
    }

    async fn sleep(&self, seconds: u64) {
        self.world.sleep(Duration::from_secs(seconds)).await;
    }

    /// Use of the pool, in percent.
    fn percent(&self) -> u64 {
        let view = self.server.handle().look().pools["mail"].last_view();
        view.used.0 * 100 / view.usable.0
    }

    /// Events of conditions, as `ID KIND STATE`, of one topic.
    fn told(&self, topic: &str) -> Vec<String> {
        let events = self.log.after(0, 10_000).into_iter();
        let shown = events.filter_map(|event| {
            let id = event.report.details.get(CONDITION)?.as_str()?;
            let state = event.report.details[STATE].as_str()?;
            id.starts_with(topic).then(|| format!("{id} {} {state}", event.report.event))
        });
        shown.collect()
    }

    fn open(&self) -> Vec<String> {
        self.log.conditions().into_iter().map(|open| open.id).collect()
    }
}

#[test]
fn a_pool_that_fills_and_empties_has_each_level_once_up_and_once_down() {
    let mut simulation = Simulation::new(1);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..3).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 1);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let site = SeenSite::begin(&world, network, drives, &file).await;
        site.sleep(5).await;
        assert_eq!(site.open(), Vec::<String>::new());
        let mut mib = 0;
        while site.percent() < 81 {
            assert!(site.write("more", mib).await, "{mib} MiB, {} %", site.percent());
            mib += 1;
            site.sleep(2).await;
        }
        let told = site.told("space");
        assert_eq!(told[0], "space:mail space_80 raised", "{told:?}");
        // Writing a little again moves the use about the level.
        for _ in 0..3 {
            site.write("more", 1).await;
            site.sleep(40).await;
        }
        site.order(|served| Box::pin(async move { served.pool.delete_volume("more", true).await.unwrap() }))
            .await;
        site.sleep(300).await;
        assert!(site.percent() < 78, "{} %", site.percent());
        let told = site.told("space");
        let raised = told.iter().filter(|told| told.ends_with(RAISED)).count();
        assert!(told.last().unwrap().ends_with(" cleared") && raised == told.len() - 1, "{told:?}");
        assert_eq!(site.open(), Vec::<String>::new());
        // The journal has the same.
        site.sleep(2).await;
        assert!(journal_of(&file).is_ok());
        site.server.stop().await;
        site.events.stop().await.unwrap();
        assert_eq!(site.log.conditions(), [], "pools that are closed have not failed");
    });
    run.completed();
}

#[test]
fn a_drive_that_fails_and_a_pool_that_stops_are_said_once() {
    let mut simulation = Simulation::new(2);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let all: Vec<_> = (0..3).map(|_| simulation.add_drive(options.clone())).collect();
    let drives: Drives = [("mail".to_owned(), all.clone())].into();
    let file = SimStateFile::new("journal", 2);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let site = SeenSite::begin(&world, network, drives, &file).await;
        let mut mib = 0;
        while site.percent() < 74 {
            assert!(site.write("store", mib).await);
            mib += 1;
            site.sleep(2).await;
        }
        assert_eq!(site.told(""), Vec::<String>::new());
        let fails =
            FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() };
        all[0].set_faults(fails.clone());
        site.write("store", 1).await;
        // The others have no room for all of its copies.
        site.sleep(600).await;
        let told = site.told("redundancy");
        assert_eq!(told, ["redundancy:mail redundancy_reduced raised"], "{:?}", site.told(""));
        assert_eq!(site.told("pool"), Vec::<String>::new());
        all.iter().for_each(|drive| drive.set_faults(fails.clone()));
        site.write("store", 2).await;
        site.sleep(30).await;
        assert_eq!(site.told("pool"), ["pool:mail pool_failed raised"], "{:?}", site.told(""));
        assert!(site.open().contains(&"pool:mail".to_owned()));
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// Volatile writes to a volume with a write cache: fast, as slow as stable ones on a battery, and fast again.
#[test]
fn write_caches_are_suspended_on_a_battery_and_pools_are_closed_when_it_is_low() {
    let mut simulation = Simulation::new(3);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..3).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 3);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let mut site = SeenSite::begin(&world, network, drives, &file).await;
        let cached = SITE.replacen("gb = 0.0625", "gb = 0.0625\n    write_cache = true", 1);
        let plan = site.server.plan(&cached, &[], PlanOccasion::Apply).await.unwrap();
        site.server.apply(plan, |_| ()).await.unwrap();
        let usual = site.time_of(Stability::Volatile).await;
        let stable = site.time_of(Stability::Stable).await;
        site.tell(SitePower::OnBattery).await;
        let suspended = site.time_of(Stability::Volatile).await;
        site.tell(SitePower::OnLine).await;
        let resumed = site.time_of(Stability::Volatile).await;
        let times =
            format!("{usual:?} usual, {stable:?} stable, {suspended:?} suspended, {resumed:?} resumed");
        assert!(
            usual * 4 < stable * 3 && usual * 4 < suspended * 3 && resumed * 4 < suspended * 3,
            "{times}"
        );
        site.tell(SitePower::Low).await;
        site.sleep(30).await;
        let view = site.server.handle().look();
        assert!(view.pools.is_empty() && view.power == SitePower::Low);
        assert!(site.server.plan(&cached, &[], PlanOccasion::Reload).await.is_err(), "nothing is opened");
        site.tell(SitePower::OnLine).await;
        site.sleep(30).await;
        assert!(site.write("store", 1).await, "it is served again");
        let told = ["on_battery raised", "on_battery cleared", "battery_low raised", "battery_low cleared"];
        assert_eq!(site.told(""), told.map(|told| format!("power:power {told}")));
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// A pool that is served again by a server whose state disk is full.
#[test]
fn a_start_on_a_full_disk_is_a_condition_and_the_others_are_seen() {
    let mut simulation = Simulation::new(5);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..3).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let (file, made) = (SimStateFile::new("journal", 5), MadePools::default());
    let parts = (network.clone(), drives.clone(), file.clone(), Rc::clone(&made));
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let (network, drives, file, made) = parts;
        let mut site = SeenSite::begin_with(&world, network, (drives, made), &file, SITE).await;
        site.tell(SitePower::OnBattery).await;
        site.sleep(5).await;
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
    let full = StateFileFaults { no_space: 0..u64::MAX, ..StateFileFaults::default() };
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let mut site = SeenSite::begin_on(&world, network, (drives, made), (&file, full), SITE).await;
        site.sleep(5).await;
        assert_eq!(site.open(), ["journal:serve", "power:power", "site_file:serve"]);
        assert_eq!(site.server.handle().look().power, SitePower::OnBattery, "nobody has said otherwise");
        file.set_faults(StateFileFaults::default());
        let plan = site.server.plan(SITE, &[], PlanOccasion::Apply).await.unwrap();
        site.server.apply(plan, |_| ()).await.unwrap();
        site.tell(SitePower::OnLine).await;
        site.sleep(60).await;
        assert_eq!(site.open(), Vec::<String>::new());
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// Each request that a receiver gets, as text.
async fn receive(world: World, network: SimNetwork, told: Rc<RefCell<Vec<String>>>) {
    answer(world, network, told, Rc::new(Cell::new(200))).await;
}

/// The same, with this status.
async fn answer(world: World, network: SimNetwork, told: Rc<RefCell<Vec<String>>>, status: Rc<Cell<u16>>) {
    let host = network.host("127.0.0.1");
    let listener = host.listen(&Address::parse("127.0.0.1:9000", 80).unwrap()).await.unwrap();
    loop {
        let mut stream = accept_next(&world, &*listener, drop).await.stream;
        let mut bytes = Vec::new();
        let text = loop {
            let mut some = [0; 4096];
            let count = stream.read(&mut some).await.unwrap();
            bytes.extend_from_slice(&some[..count]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if count == 0 || text.ends_with('}') {
                break text;
            }
        };
        told.borrow_mut().push(text);
        let head = format!("HTTP/1.1 {} So\r\ncontent-length: 0\r\n\r\n", status.get());
        let _ = stream.write_all(head.as_bytes()).await;
    }
}

#[test]
fn a_digest_comes_once_a_day_also_over_a_restart() {
    let mut simulation = Simulation::new(4);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 4);
    let told = Rc::new(RefCell::new(Vec::new()));
    let made = MadePools::default();
    for life in 0..2 {
        let parts = (network.clone(), drives.clone(), file.clone(), Rc::clone(&told), Rc::clone(&made));
        let limits = SimLimits { span: Duration::from_secs(90_000), ..SimLimits::generous() };
        let run = simulation.run(limits, |world| async move {
            let (network, drives, file, told, made) = parts;
            world.spawn("receiver", receive(world.clone(), network.clone(), told));
            // Two minutes after the first start.
            let minutes = (world.wall().seconds / 60 + if life == 0 { 2 } else { -1 }).rem_euclid(24 * 60);
            let notifier = format!(
                "[[notify]]\nname = 'ops'\nkind = 'webhook'\nurl = 'http://127.0.0.1:9000/'\ndigest = '{:02}:{:02}'\n",
                minutes / 60,
                minutes % 60
            );
            let text = format!("{SITE}{}", if life == 0 { notifier } else { served_notifier(&file) });
            let site = SeenSite::begin_with(&world, network, (drives, made), &file, &text).await;
            site.sleep(300).await;
            site.server.stop().await;
            site.events.stop().await.unwrap();
        });
        run.completed();
        assert_eq!(told.borrow().len(), 1, "{told:?}");
    }
    let told = told.borrow();
    assert!(told[0].contains("\"event\":\"digest\"") && told[0].contains("digest: all well"), "{told:?}");
    assert!(told[0].contains("* mail: "), "{told:?}");
}

const OPS: &str = "[[notify]]\nname = 'ops'\nkind = 'webhook'\nurl = 'http://127.0.0.1:9000/'\n";

#[test]
fn a_failing_notifier_goes_on_over_applies_and_passes_what_is_refused_for_good() {
    let mut simulation = Simulation::new(6);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 6);
    let limits = SimLimits { span: Duration::from_secs(90_000), ..SimLimits::generous() };
    let run = simulation.run(limits, |world| async move {
        let (told, status) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(500)));
        world.spawn("receiver", answer(world.clone(), network.clone(), Rc::clone(&told), Rc::clone(&status)));
        let text = format!("{SITE}{OPS}");
        let made = MadePools::default();
        let mut site = SeenSite::begin_with(&world, network, (drives, made), &file, &text).await;
        site.sleep(1).await;
        let log = site.log.clone();
        let warning = || {
            let mut report = log.after(0, 1)[0].report.clone();
            (report.event, report.severity) = ("warning".to_owned(), report::Severity::Warning);
            log.append(report).id
        };
        let is_failing = |log: &DaemonEventLog| log.condition("notifier:notify:ops").is_some();
        warning();
        world.sleep(Duration::from_secs(100)).await;
        assert!(is_failing(&site.log));
        // An apply that leaves it as it was is no new beginning: the next try is minutes away.
        let tried = told.borrow().len();
        let plan = site.server.plan(&text, &[], PlanOccasion::Apply).await.unwrap();
        site.server.apply(plan, |_| ()).await.unwrap();
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(told.borrow().len(), tried);
        // One that changes it is, and its failures end with the first success.
        status.set(200);
        let changed = format!("{text}fallback_minutes = 5\n");
        let plan = site.server.plan(&changed, &[], PlanOccasion::Apply).await.unwrap();
        site.server.apply(plan, |_| ()).await.unwrap();
        world.sleep(Duration::from_secs(5)).await;
        assert!(!is_failing(&site.log) && told.borrow().len() > tried);
        status.set(400);
        let refused = warning();
        world.sleep(Duration::from_secs(590)).await;
        assert!(site.log.place("ops").of_lane("all") < refused, "it is tried for ten minutes");
        world.sleep(Duration::from_secs(400)).await;
        assert!(site.log.place("ops").of_lane("all") >= refused);
        let events = site.log.after(refused, 100);
        let passed = events.iter().find(|event| event.report.event == "message_passed").unwrap();
        assert!(passed.report.text.contains("400"), "{passed:?}");
        status.set(200);
        world.sleep(Duration::from_secs(400)).await;
        assert!(!is_failing(&site.log));
        assert!(!told.borrow().iter().any(|told| told.contains("message_passed")), "it refuses such news");
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// A mail server that looks into each mail for five minutes before it takes it, and says no goodbye.
async fn take_mail(world: World, network: SimNetwork, taken: Rc<RefCell<Vec<String>>>) {
    let host = network.host("127.0.0.1");
    let listener = host.listen(&Address::parse("127.0.0.1:2525", 25).unwrap()).await.unwrap();
    loop {
        let mut stream = accept_next(&world, &*listener, drop).await.stream;
        stream.write_all(b"220 sink\r\n").await.unwrap();
        let (mut text, mut is_mail) = (String::new(), false);
        loop {
            let mut some = [0; 4096];
            let Ok(count @ 1..) = stream.read(&mut some).await else { break };
            text += &String::from_utf8_lossy(&some[..count]);
            let end = if is_mail { "\r\n.\r\n" } else { "\r\n" };
            let Some((said, rest)) = text.split_once(end) else { continue };
            let (said, rest) = (said.to_owned(), rest.to_owned());
            text = rest;
            let answer = match (is_mail, said.get(..4).unwrap_or_default()) {
                (true, _) => {
                    taken.borrow_mut().push(said);
                    world.sleep(Duration::from_secs(300)).await;
                    "250 taken\r\n"
                }
                (false, "DATA") => "354 go on\r\n",
                (false, "QUIT") => "",
                (false, _) => "250 ok\r\n",
            };
            is_mail = answer.starts_with("354");
            if stream.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_mail_that_is_taken_late_is_sent_once() {
    let mut simulation = Simulation::new(9);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 9);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let taken = Rc::new(RefCell::new(Vec::new()));
        world.spawn("mail server", take_mail(world.clone(), network.clone(), Rc::clone(&taken)));
        let mail = "[[notify]]\nname = 'post'\nkind = 'mail'\nsmtp = '127.0.0.1:2525'\n\
                    from = 'spindle@example.org'\nto = ['ops@example.org']\n";
        let text = format!("{SITE}{mail}");
        let site = SeenSite::begin_with(&world, network, (drives, MadePools::default()), &file, &text).await;
        site.sleep(1).await;
        let mut report = site.log.after(0, 1)[0].report.clone();
        (report.event, report.severity) = ("warning".to_owned(), report::Severity::Warning);
        let warning = site.log.append(report).id;
        site.sleep(1_200).await;
        assert_eq!(taken.borrow().len(), 1, "{taken:?}");
        assert!(site.log.place("post").of_lane("warning") >= warning);
        assert_eq!(site.open(), Vec::<String>::new());
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// The second one's drives are slow: the thread of the first one has ended for longer than a pool's may that has not failed.
#[test]
fn pools_that_the_site_has_no_more_are_closed_and_have_not_failed() {
    let mut simulation = Simulation::new(8);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let slow: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    let mail = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    let first = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    let drives: Drives =
        [("mail".to_owned(), mail), ("first".to_owned(), first), ("logs".to_owned(), slow.clone())].into();
    let file = SimStateFile::new("journal", 8);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let one = SITE.replace("gb = 0.0625", "gb = 0.0625\n    group = 'mail'");
        let group = |name: &str| {
            format!(
                "[[group]]\nname = '{name}'\n[[volume]]\nname = '{name}s'\ngb = 0.0625\ngroup = '{name}'\n"
            )
        };
        let all = format!("{one}{}{}", group("first"), group("logs"));
        let made = MadePools::default();
        let mut site = SeenSite::begin_with(&world, network, (drives, made), &file, &all).await;
        site.sleep(5).await;
        let plan = site.server.plan(&one, &[], PlanOccasion::Apply).await.unwrap();
        let spans = FaultPlan { slow_percent: 100.0, slow_span: Duration::from_secs(3), ..FaultPlan::none() };
        slow.iter().for_each(|drive| drive.set_faults(spans.clone()));
        let begun = world.now();
        site.server.apply(plan, |_| ()).await.unwrap();
        let span = world.now().since(begun);
        site.sleep(5).await;
        assert!(span > Duration::from_secs(5), "{span:?}");
        assert_eq!(site.told("pool"), Vec::<String>::new());
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

#[test]
fn a_clock_that_was_ahead_does_not_end_the_digests() {
    let mut simulation = Simulation::new(7);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives =
        [("mail".to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect())].into();
    let file = SimStateFile::new("journal", 7);
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let told = Rc::new(RefCell::new(Vec::new()));
        world.spawn("receiver", receive(world.clone(), network.clone(), Rc::clone(&told)));
        let minutes = (world.wall().seconds / 60 + 3).rem_euclid(24 * 60);
        let text = format!("{SITE}{OPS}digest = '{:02}:{:02}'\n", minutes / 60, minutes % 60);
        let site = SeenSite::begin_with(&world, network, (drives, MadePools::default()), &file, &text).await;
        site.sleep(5).await;
        site.log.change_place("ops", |place| place.digest_day = place.digest_day.map(|day| day + 400));
        site.sleep(300).await;
        assert_eq!(told.borrow().len(), 1, "{told:?}");
        site.server.stop().await;
        site.events.stop().await.unwrap();
    });
    run.completed();
}

/// The notifiers of the site file that was applied last.
fn served_notifier(file: &SimStateFile) -> String {
    let text = journal_of(file).unwrap().served_site().unwrap().unwrap();
    text[text.find("[[notify]]").unwrap()..].to_owned()
}
