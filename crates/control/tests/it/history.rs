//! Performance over time of a simulated site, against what a host did: at a steady rate, over a restart, with a state folder that
//! is full, and with files that are damaged or newer.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    events::DaemonEventLog,
    history::{HistoryFiles, IoSample, MemoryHistory, decode_day},
    notice,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::ApiClient,
        history::{HistoryRow, HistorySeriesList, HistorySeriesRow},
    },
};
use fragile::Fragile;
use nbd::{Client, ClientOptions, NbdUri};
use report::calendar::utc_time;
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, Stability, World,
    sim::{DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimStateFile, SimThreads, Simulation},
    with_deadline,
};

const SITE: &str = "
[serve]
nbd = 'server:10809'
iscsi = 'none'
[[group]]
name = 'mail'
[[volume]]
name = 'store'
group = 'mail'
gb = 0.03125
[[volume]]
name = 'idle'
group = 'mail'
gb = 0.03125
[[nbd]]
name = 'store'
volume = 'store'
";
/// Of the host, a second.
const WRITES: f32 = 20.0;
const READS: f32 = 10.0;
const WRITE_BYTES: usize = 4096;
const READ_BYTES: usize = 8192;
const DAY_S: i64 = 86_400;
/// Between operations, for tests that only want some.
const SELDOM: Duration = Duration::from_secs(2);

/// A machine with a pool, which outlives its servers.
#[derive(Clone)]
struct Machine {
    world: World,
    network: SimNetwork,
    drives: Drives,
    made: MadePools,
    journal: SimStateFile,
    history: Arc<MemoryHistory>,
    said: Rc<RefCell<Vec<String>>>,
}

/// A server's life, as those see it who ask.
struct Life {
    world: World,
    network: SimNetwork,
    client: ApiClient,
}

/// Runs a test on a machine.
fn on_machine(seed: u64, test: impl AsyncFnOnce(&Machine) + 'static) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let machine = Machine {
            world,
            network,
            drives: [("mail".to_owned(), drives)].into(),
            made: MadePools::default(),
            journal: SimStateFile::new("journal", seed),
            history: Arc::default(),
            said: Rc::default(),
        };
        test(&machine).await;
    });
    run.completed();
}

impl Machine {
    /// A server until the caller has seen enough.
    async fn life(&self, calling: impl AsyncFnOnce(&Life)) {
        let Self { world, network, drives, made, journal, history, said } = self.clone();
        let journal = Arc::new(journal_of(&journal).unwrap());
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
        let mut server = SiteServer::start(&world, setting, SITE, PortalUse::Listen, &notices).await.unwrap();
        let socket = Address::Unix("/state/spindle.sock".into());
        let setting = WebSetting {
            network: Box::new(move || api.get().host("server")),
            addresses: vec![(socket.clone(), "socket")],
            tls: None,
            own_user: 1000,
            site: server.handle(),
            journal,
            events: DaemonEventLog::new(world.wall()),
            history: Box::new(history),
            reports: None,
            link: None,
            pages: None,
        };
        let web = WebThread::start(&world, &*threads, setting, notices.of("api")).await.unwrap();
        let plan = server.plan(SITE, &[], PlanOccasion::Start).await.unwrap();
        server.apply(plan, |_| ()).await.unwrap();
        server.open();
        let client = ApiClient::new(network.host("server"), socket, None);
        let life = Life { world: world.clone(), network, client };
        let hearing = async {
            while let Some(notice) = reader.next().await {
                said.borrow_mut().push(notice.text);
            }
            std::future::pending().await
        };
        let answering = async {
            loop {
                let request = server.next_request().await;
                server.answer(request).await;
            }
        };
        let serving = async {
            with_deadline(hearing, answering).await;
        };
        assert!(with_deadline(serving, calling(&life)).await.is_some(), "serving does not end");
        web.stop().await.unwrap();
        server.stop().await;
    }

    fn said(&self, what: &str) -> usize {
        self.said.borrow().iter().filter(|text| text.contains(what)).count()
    }
}

impl Life {
    /// A host that writes and reads at its rates for so long.
    async fn work(&self, time: Duration) {
        self.work_each(time, Duration::from_millis(50)).await;
    }

    /// A host that writes, and half as often reads, at this interval.
    async fn work_each(&self, time: Duration, interval: Duration) {
        let address = Address::parse("server:10809", 0).unwrap();
        let uri = NbdUri { address, others: Vec::new(), export: "store".to_owned(), tls: None };
        let store = Client::connect(&self.world, self.network.host("host"), uri, ClientOptions::default())
            .await
            .unwrap();
        let began = self.world.now();
        let mut turn = 0_u64;
        while self.world.now().since(began) < time {
            let at = ByteOffset(turn % 512 * WRITE_BYTES as u64);
            store.write(at, vec![Arc::new(Buffer::zeroed(WRITE_BYTES))], Stability::Volatile).await.unwrap();
            if turn.is_multiple_of(2) {
                store.read(ByteOffset(0), vec![Buffer::zeroed(READ_BYTES)]).await.unwrap();
            }
            turn += 1;
            self.world.sleep_until(began + interval * turn as u32).await;
        }
    }

    fn now_s(&self) -> i64 {
        self.world.wall().seconds
    }

    async fn row(&self, series: &HistorySeriesRow, more: &str) -> HistoryRow {
        let volume = series.volume_id.as_ref().map(|id| format!("&volume={id}")).unwrap_or_default();
        self.client.get(&format!("/v1/history?pool={}{volume}{more}", series.pool_id)).await.unwrap()
    }

    async fn samples(&self, series: &HistorySeriesRow, more: &str) -> Vec<IoSample> {
        self.row(series, more).await.samples().into_iter().flatten().collect()
    }

    async fn series(&self) -> HistorySeriesList {
        let to = utc_time(self.now_s() + 1);
        self.client
            .get(&format!("/v1/history/series?from={}&to={to}", utc_time(self.now_s() - 2 * DAY_S)))
            .await
            .unwrap()
    }

    /// The volume with I/O.
    async fn store(&self) -> HistorySeriesRow {
        let list = self.series().await;
        list.series.into_iter().find(|row| row.volume.as_deref() == Some("store")).expect("it had I/O")
    }
}

/// True if both rates are the host's, with so much tolerance.
fn is_the_hosts(sample: &IoSample, tolerance: f32) -> bool {
    let near = |value: f32, wanted: f32| (value / wanted - 1.0).abs() <= tolerance;
    near(sample.writes.per_s, WRITES)
        && near(sample.reads.per_s, READS)
        && near(sample.writes.bytes_per_s, WRITES * WRITE_BYTES as f32)
        && near(sample.reads.bytes_per_s, READS * READ_BYTES as f32)
        && sample.reads.mean_s > 0.0
        && sample.reads.p99_s >= sample.reads.mean_s / 1.1
}

#[test]
fn a_steady_load_is_steady_at_each_step_and_its_days_outlive_the_server() {
    on_machine(3, async |machine| {
        machine
            .life(async |life| {
                life.work(Duration::from_mins(12)).await;
                let store = life.store().await;
                let names: Vec<_> =
                    life.series().await.series.into_iter().map(|row| (row.pool, row.volume)).collect();
                assert_eq!(names, [("mail".to_owned(), None), ("mail".to_owned(), Some("store".to_owned()))]);
                for series in [&store, &HistorySeriesRow { volume_id: None, ..store.clone() }] {
                    let seconds = life.row(series, "").await;
                    assert_eq!(seconds.step_seconds, 1);
                    let seconds: Vec<IoSample> = seconds.samples().into_iter().flatten().collect();
                    assert!((710..=730).contains(&seconds.len()), "{} seconds", seconds.len());
                    let other =
                        seconds[5..seconds.len() - 2].iter().find(|sample| !is_the_hosts(sample, 0.11));
                    assert_eq!(other, None, "the load is the same each second");
                    let minutes = life.samples(series, "&step_seconds=60").await;
                    assert!((11..=12).contains(&minutes.len()), "{} minutes", minutes.len());
                    assert_eq!(minutes[1..].iter().find(|sample| !is_the_hosts(sample, 0.02)), None);
                    let fives = life.samples(series, "&step_seconds=300").await;
                    assert!(fives.len() >= 2, "{fives:?}");
                    assert_eq!(fives[1..].iter().find(|sample| !is_the_hosts(sample, 0.07)), None);
                }
            })
            .await;

        // A server that was off for 20 minutes has recorded nothing of them.
        machine.world.sleep(Duration::from_mins(20)).await;
        machine
            .life(async |life| {
                life.work(Duration::from_mins(6)).await;
                let store = life.store().await;
                let row = life.row(&store, &format!("&from={}", utc_time(life.now_s() - 3000))).await;
                assert_eq!(row.step_seconds, 300, "the seconds went with the server before");
                let is_known: Vec<bool> = row.samples().iter().map(Option::is_some).collect();
                let first = is_known.iter().position(|is_known| *is_known).expect("the life before");
                assert!(is_known[first..].contains(&false), "{is_known:?}");
                let busy =
                    row.samples().into_iter().flatten().filter(|sample| is_the_hosts(sample, 0.07)).count();
                assert!(busy >= 2, "{row:?}");
                let idle = life
                    .samples(&HistorySeriesRow { volume_id: Some(store.pool_id.clone()), ..store }, "")
                    .await;
                assert!(idle.iter().all(IoSample::is_idle), "another volume had none");
            })
            .await;
        assert_eq!(machine.said("performance"), 0, "{:?}", machine.said.borrow());
    });
}

#[test]
fn a_history_that_cannot_be_written_is_said_once_and_goes_on_later() {
    on_machine(4, async |machine| {
        let history = &machine.history;
        history.set_full(true);
        machine
            .life(async |life| {
                life.work_each(Duration::from_mins(11), SELDOM).await;
                assert_eq!(history.days().unwrap(), []);
                history.set_full(false);
                life.work_each(Duration::from_mins(6), SELDOM).await;
                assert_eq!(history.days().unwrap().len(), 1, "with what was not written before");
                let day = decode_day(&history.read(history.days().unwrap()[0].0).unwrap()).unwrap();
                assert!(day.recorded_slots().count() >= 3);
            })
            .await;
        assert_eq!(
            (machine.said("is not written: "), machine.said("is written again")),
            (1, 1),
            "{:?}",
            machine.said.borrow()
        );
    });
}

#[test]
fn days_that_are_damaged_are_set_aside_and_newer_ones_stay() {
    on_machine(5, async |machine| {
        machine.life(async |life| life.work_each(Duration::from_mins(6), SELDOM).await).await;
        let (day, _) = machine.history.days().unwrap()[0];
        let whole = machine.history.read(day).unwrap();
        let mut damaged = whole.clone();
        damaged[70] ^= 1;
        machine.history.replace(day, &damaged).unwrap();
        machine.life(async |life| life.work_each(Duration::from_mins(6), SELDOM).await).await;
        assert_eq!(machine.history.aside(), std::slice::from_ref(&damaged));
        assert_eq!(
            machine.said("until now is lost: it is damaged: its checksum differs"),
            1,
            "{:?}",
            machine.said.borrow()
        );
        assert!(decode_day(&machine.history.read(day).unwrap()).is_ok(), "the rest of the day is written");

        let mut newer = whole;
        newer[8] = 9;
        machine.history.replace(day, &newer).unwrap();
        machine.life(async |life| life.work_each(Duration::from_mins(6), SELDOM).await).await;
        assert_eq!(machine.history.read(day).unwrap(), newer, "another program reads it");
        assert_eq!(machine.said("version 9"), 1, "{:?}", machine.said.borrow());
    });
}

#[test]
fn old_days_go_and_asking_for_too_much_is_refused() {
    on_machine(6, async |machine| {
        let history = &machine.history;
        machine
            .life(async |life| {
                let today = life.now_s().div_euclid(DAY_S);
                for day in [today - 401, today - 400, today - 399] {
                    history.replace(day, b"a day").unwrap();
                }
                life.work_each(Duration::from_mins(6), SELDOM).await;
                let days: Vec<i64> = history.days().unwrap().into_iter().map(|(day, _)| day).collect();
                assert_eq!(days, [today - 399, today]);
                let store = life.store().await;
                let ask = async |more: &str| {
                    let path = format!("/v1/history?pool={}&{more}", store.pool_id);
                    life.client
                        .get::<HistoryRow>(&path)
                        .await
                        .map(|row| row.problems)
                        .map_err(|refusal| refusal.to_string())
                };
                let old = utc_time((today - 399) * DAY_S);
                let read = ask(&format!("from={old}&to={}", utc_time((today - 398) * DAY_S))).await.unwrap();
                assert!(read[0].contains("cannot be read: it is damaged"), "{read:?}");
                for (more, problem) in [
                    (format!("from={old}"), "at most 2678400 seconds"),
                    ("from=2026-11-02&to=2026-11-01".to_owned(), "ends before it begins"),
                    ("from=yesterday".to_owned(), "\"yesterday\" is no time"),
                    ("step_seconds=7".to_owned(), "no samples each 7 s"),
                    ("volume=store".to_owned(), "no UUID"),
                ] {
                    let refused = ask(&more).await.unwrap_err();
                    assert!(refused.contains(problem), "{more}: {refused}");
                }
            })
            .await;
    });
}
