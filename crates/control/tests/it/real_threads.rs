//! Pools on threads of their own, and clients of QEMU and fio.

use array::{format::VolumeId, pool::NewVolume};
use control::{
    Daemon, DaemonSetting, FolderPool,
    metrics::{MetricsFormat, MetricsSetting, render},
    notice::{self, NoticeReader},
    order::{OrderAnswer, OrderRefusal},
    pool_thread::PoolSetting,
    portal::PortalSetting,
    view::VIEWS_EVERY,
};
use iscsi::target::access::AccessList;
use nbd::{NbdUri, ServerOptions};
use serving::{
    export::{ExportSettings, PlannedTarget, PlannedUnit, name_of},
    figures::{FiguresCollector, PoolFigures},
    notices::Notices,
    pool::{
        create::{NewPoolDrives, NewPoolSetting, create},
        folder::OpenPool,
        pool_change::{NewDriveSource, PoolChange, perform},
    },
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use world::{
    Address, ByteCount, DeviceOperation, Network, ProgramCall, ProgramEnd, Programs, World,
    real::{self, RealOptions, RealPrograms, RealThreads, Sockets},
};

const POOLS: [&str; 3] = ["mail", "logs", "archive"];
const SIZE: &str = "8M";

struct Silent;

impl Notices for Silent {
    fn warn(&self, _: &str) {}
    fn note(&self, _: &str) {}
}

/// Three pools in a folder, each with the volume "store".
async fn make_pools(world: &World, folder: &Path) {
    for (number, name) in (1..).zip(POOLS) {
        let folder = folder.join(name);
        let drives = NewPoolDrives::Files { count: 2, size: ByteCount::mib(100) };
        create(world, &folder, drives, NewPoolSetting::default(), &Silent).await.unwrap();
        let silent: Rc<dyn Notices> = Rc::new(Silent);
        let open = OpenPool::open(world, &folder, &silent).await.unwrap();
        let (name, volume) = ("store".to_owned(), VolumeId([number; 16]));
        let setting = Default::default();
        open.pool.create_volume(&NewVolume { name, volume, size_bytes: 8 << 20, setting }).await.unwrap();
        open.close().await.unwrap();
    }
}

fn pool(folder: &Path, name: &str) -> FolderPool {
    let unit = PlannedUnit { export: name.to_owned(), number: 0, write_cache: None, is_read_only: false };
    FolderPool {
        name: name.to_owned(),
        folder: folder.join(name),
        exports: vec![(name.to_owned(), "store".to_owned())],
        settings: ExportSettings {
            read_only: false,
            create: None,
            write_cache: None,
            block_bytes: (512, 4096),
            is_removable: false,
            is_movable: false,
        },
        targets: vec![PlannedTarget { name: name.to_owned(), is_named: true, units: vec![unit] }],
        access: AccessList::everybody(),
        state: folder.join("state"),
        on_open: Box::new(|_, _| ()),
        on_served: Box::new(drop),
    }
}

async fn start(world: &World, folder: &Path, options: RealOptions) -> (Daemon, NoticeReader) {
    let any = Address::parse("127.0.0.1:0", 0).unwrap();
    let portal = PortalSetting {
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        nbd: Some(any.clone()),
        iscsi: Some(any),
        nbd_options: ServerOptions::default(),
    };
    let setting = DaemonSetting { pools: POOLS.map(|name| pool(folder, name).into()).into(), portal };
    let (notices, reader) = notice::channel("daemon");
    let daemon = Daemon::start(world, Rc::new(RealThreads { seed: 1, options }), setting, &notices)
        .await
        .expect("it starts");
    (daemon, reader)
}

/// URIs of an export by NBD and by iSCSI.
fn uris(daemon: &Daemon, name: &str) -> [String; 2] {
    let address = daemon.addresses().nbd.clone().unwrap();
    let nbd = NbdUri { address, others: Vec::new(), export: name.to_owned(), tls: None };
    [nbd.to_string(), format!("iscsi://{}/{}/0", daemon.addresses().iscsi.as_ref().unwrap(), name_of(name))]
}

/// Runs QEMU's client; false if it failed.
async fn qemu_io(uri: &str, commands: &[&str]) -> (bool, String) {
    let mut arguments: Vec<String> = ["-f", "raw", "-t", "none"].map(str::to_owned).into();
    arguments.extend(commands.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
    arguments.push(uri.to_owned());
    let ended = RealPrograms::default().run(call("qemu-io", arguments)).await.unwrap();
    let said = String::from_utf8_lossy(&ended.output.bytes).into_owned();
    (ended.end == ProgramEnd::Exited(0), said)
}

pub fn call(program: &str, arguments: Vec<String>) -> ProgramCall {
    let time_limit = Duration::from_secs(60);
    ProgramCall {
        program: program.to_owned(),
        arguments,
        environment: Vec::new(),
        time_limit,
        grace: Duration::ZERO,
        user: None,
    }
}

/// True if a judge is there. If not, prints a line, and fails where judges are required.
pub async fn is_here(program: &str, package: &str) -> bool {
    let here = RealPrograms::default().run(call(program, vec!["--version".to_owned()])).await.is_ok();
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "{program} is required: apt-get install {package}");
    if !here {
        println!("skipped: {program} is not installed (apt-get install {package})");
    }
    here
}

/// A program that is started holds the locks of this process for a moment, those on pools too: one test at a time.
pub static ALONE: Mutex<()> = Mutex::new(());

fn with_daemon(options: RealOptions, test: impl AsyncFnOnce(World, Daemon, NoticeReader, PathBuf)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    real::run(1, options, async |world: World| {
        if !is_here("qemu-io", "qemu-utils").await {
            return;
        }
        make_pools(&world, folder.path()).await;
        let (daemon, notices) = start(&world, folder.path(), options).await;
        test(world, daemon, notices, folder.path().to_owned()).await;
    });
}

#[test]
fn qemu_reads_what_it_wrote_to_three_pools_by_nbd_and_iscsi() {
    with_daemon(RealOptions::default(), async |world, daemon, mut notices, folder| {
        for (value, name) in (1..).zip(POOLS) {
            let [nbd, iscsi] = uris(&daemon, name);
            let write = format!("write -P {value} 0 {SIZE}");
            let (is_done, said) = qemu_io(&nbd, &[&write, "flush"]).await;
            assert!(is_done && said.contains("wrote 8388608/8388608"), "{said}");
            let (is_done, said) = qemu_io(&iscsi, &["write -P 9 4k 4k"]).await;
            assert!(is_done, "{said}");
        }
        for (value, name) in (1..).zip(POOLS) {
            for uri in uris(&daemon, name) {
                let (first, rest) = (format!("read -P {value} 0 4k"), format!("read -P {value} 8k 8184k"));
                let (is_done, said) = qemu_io(&uri, &[&first, "read -P 9 4k 4k", &rest]).await;
                assert!(is_done && !said.contains("failed"), "{uri}: {said}");
            }
        }
        // Each client is named by the thread that served it.
        let mut said = Vec::new();
        while let Some(notice) = notices.try_next() {
            said.push(format!("{}: {}", notice.thread, notice.text));
        }
        for name in POOLS {
            let uses = |text: &String| text.starts_with(&format!("{name}: ")) && text.contains(" uses ");
            assert_eq!(said.iter().filter(|text| uses(text)).count(), 4, "{said:#?}");
        }
        assert_eq!(daemon.stop().await, []);
        // They are closed: another process may open them.
        let silent: Rc<dyn Notices> = Rc::new(Silent);
        for name in POOLS {
            OpenPool::open(&world, &folder.join(name), &silent).await.unwrap().close().await.unwrap();
        }
    });
}

#[test]
fn a_panic_on_a_pools_thread_stops_that_pool_alone() {
    for plain in [false, true] {
        with_daemon(RealOptions::plain(plain), async |world, daemon, _notices, folder| {
            let [lost, _] = uris(&daemon, "mail");
            let [kept, by_iscsi] = uris(&daemon, "logs");
            assert!(qemu_io(&lost, &["write -P 1 0 64k"]).await.0);
            assert!(qemu_io(&kept, &["write -P 2 0 64k"]).await.0);
            let orders = daemon.pool("mail").unwrap().orders.clone();
            // A task of the pool, not the order itself: nobody waits for it.
            let planted = orders.give(&world, "panic", |pool| {
                Box::pin(async move {
                    drop(pool.world.spawn("mover", async { panic!("the map contradicts itself") }))
                })
            });
            let planted = planted.await;
            assert!(matches!(planted, Ok(OrderAnswer::Done(())) | Err(OrderRefusal::Stopped)), "{planted:?}");
            let mut waits = 0;
            while daemon.pool("mail").unwrap().view().is_some() {
                world.sleep(Duration::from_millis(5)).await;
                waits += 1;
                assert!(waits < 2_000, "its thread has ended");
            }
            let (is_done, said) = qemu_io(&lost, &["read 0 4k"]).await;
            assert!(!is_done && said.contains("the pool of the export is stopped"), "{said}");
            let late = orders.give(&world, "late", |_| Box::pin(async {})).await;
            assert_eq!(late.err(), Some(OrderRefusal::Stopped));
            for uri in [kept, by_iscsi] {
                let (is_done, said) = qemu_io(&uri, &["read -P 2 0 64k", "write -P 2 64k 64k"]).await;
                assert!(is_done && !said.contains("failed"), "{said}");
            }
            let panicked = daemon.stop().await;
            assert_eq!(panicked, [("mail".to_owned(), "the map contradicts itself".to_owned())]);
            // Nothing acknowledged is lost with the thread.
            let (daemon, _) = start(&world, &folder, RealOptions::plain(plain)).await;
            let [again, _] = uris(&daemon, "mail");
            let (is_done, said) = qemu_io(&again, &["read -P 1 0 64k"]).await;
            assert!(is_done && !said.contains("failed"), "{said}");
            assert_eq!(daemon.stop().await, []);
        });
    }
}

/// A unit of an access file may turn on the write cache of its volume, which NBD clients were not promised.
#[test]
fn the_write_cache_of_a_unit_is_not_that_of_the_nbd_export() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    real::run(2, RealOptions::default(), async |world: World| {
        make_pools(&world, folder.path()).await;
        let mut pool = pool(folder.path(), "mail");
        pool.targets[0].units[0].write_cache = Some(true);
        let (offers, shown) = std::sync::mpsc::channel();
        pool.on_served = Box::new(move |all| offers.send(all).unwrap());
        let (notices, _reader) = notice::channel("test");
        let setting = PoolSetting::from(pool);
        let Ok(opened) = (setting.open)(world.clone(), notices).await else { panic!("it opens") };
        let offer = &shown.recv().unwrap()[0];
        assert!(!offer.write_cache.is_on && offer.unit.write_cache.is_on, "{offer:?}");
        assert!(!opened.services.exports[0].has_write_cache, "as it is shown");
        (opened.close)().await.unwrap();
    });
}

#[test]
fn fio_counts_what_the_figures_count_and_both_drives_do_it_too() {
    with_daemon(RealOptions::default(), async |world, daemon, _notices, folder| {
        if !is_here("fio", "fio").await {
            return;
        }
        let [nbd, _] = uris(&daemon, "mail");
        let said = folder.join("said.json");
        let mut arguments: Vec<String> =
            ["--name=mixed", "--ioengine=nbd", "--rw=randrw", "--bs=8k", "--size=8M", "--iodepth=8"]
                .map(str::to_owned)
                .into();
        arguments.extend(["--loops=3".to_owned(), "--output-format=json".to_owned(), format!("--uri={nbd}")]);
        arguments.push(format!("--output={}", said.display()));
        let ended = RealPrograms::default().run(call("fio", arguments)).await.unwrap();
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.output.bytes));
        let said: serde_json::Value = serde_json::from_slice(&std::fs::read(said).unwrap()).unwrap();
        let of_fio = |kind: &str| {
            let job = &said["jobs"][0][kind];
            (job["total_ios"].as_u64().unwrap(), job["io_bytes"].as_u64().unwrap())
        };
        // Figures are a second old at most.
        world.sleep(2 * VIEWS_EVERY).await;
        let figures = daemon.pool("mail").unwrap().figures().unwrap();
        let [store] = &figures.volumes[..] else { panic!("{figures:?}") };
        let counts = store.counts.as_ref().expect("it was served");
        let of_us = |operation| (counts.of(operation).count(), counts.of(operation).bytes);
        assert_eq!(of_us(DeviceOperation::Read), of_fio("read"));
        assert_eq!(of_us(DeviceOperation::Write), of_fio("write"));
        assert_eq!(counts.in_flight, 0);
        let commands = of_fio("read").0 + of_fio("write").0;
        let [queue, log, device, reply] = figures.stages.each_ref().map(|(_, latencies)| latencies);
        for (stage, of) in
            [(queue, commands), (device, commands), (log, of_fio("write").0), (reply, commands)]
        {
            // One of seven. Which of them are writes is chance, and other requests have replies, too.
            let share = stage.count() as f64 * 7.0 / of as f64;
            assert!(
                (0.8..1.2).contains(&share),
                "{share}: {:?}",
                figures.stages.each_ref().map(|(_, one)| one.count())
            );
        }
        let total = |operation| counts.of(operation).latencies().unwrap().total();
        let host = (total(DeviceOperation::Read) + total(DeviceOperation::Write)).as_secs_f64();
        let stages = (queue.total() + log.total() + device.total()).as_secs_f64() * 7.0;
        assert!((0.6..1.2).contains(&(stages / host)), "{stages} s in stages, {host} s at the volume");
        let names: Vec<_> = figures.drives.iter().map(|drive| drive.label.name.as_str()).collect();
        assert_eq!(names, ["drive-1", "drive-2"]);
        for drive in figures.drives.iter() {
            let (_, written) = of_fio("write");
            assert!(drive.is_in_use && drive.counts.of(DeviceOperation::Write).bytes >= written, "{drive:?}");
        }
        let idle = daemon.pool("logs").unwrap().figures().unwrap();
        assert_eq!(
            idle.volumes[0].counts.as_ref().map_or(0, |counts| counts.of(DeviceOperation::Read).count()),
            0
        );
        let reader = daemon.pool("mail").unwrap().figures_reader();
        // On a thread that is not the daemon's.
        let rendering = std::thread::spawn(move || {
            let text = render(&[reader.read()], &MetricsSetting::default(), MetricsFormat::OpenMetrics);
            (text, reader)
        });
        let (text, reader) = rendering.join().unwrap();
        assert!(text.contains("spindle_pool_up{pool=\"mail\"} 1\n"), "{text}");
        assert_eq!(daemon.stop().await, []);
        assert!(reader.read().figures.is_none(), "its thread has ended");
    });
}

#[test]
fn a_drive_that_is_missing_is_shown_and_so_is_one_that_joins() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    real::run(1, RealOptions::default(), async |world: World| {
        let folder = place.path().join("mail");
        let drives = NewPoolDrives::Files { count: 3, size: ByteCount::mib(100) };
        create(&world, &folder, drives, NewPoolSetting::default(), &Silent).await.unwrap();
        std::fs::remove_file(folder.join("drive-2.spindle")).unwrap();
        let silent: Rc<dyn Notices> = Rc::new(Silent);
        let mut open = OpenPool::open(&world, &folder, &silent).await.unwrap();
        let mut collector = FiguresCollector::new(&world, &open.pool, &open.meters);
        let in_use = |figures: PoolFigures| -> Vec<(String, bool)> {
            figures.drives.iter().map(|drive| (drive.label.name.clone(), drive.is_in_use)).collect()
        };
        let of = |name: &str, is_in_use| (name.to_owned(), is_in_use);
        let before = in_use(collector.collect().await);
        assert_eq!(before, [of("drive-1", true), of("drive-2", false), of("drive-3", true)]);
        let source = NewDriveSource::File(ByteCount::mib(100));
        let change = PoolChange::AddDrive { source, domain: None };
        perform(&change, (&world, &mut open), &Silent).await.unwrap();
        let figures = collector.collect().await;
        let joined =
            figures.drives.iter().find(|drive| drive.label.name == "drive-4").expect("it has joined");
        assert!(joined.counts.of(DeviceOperation::Write).bytes > 0, "it was written");
        assert_eq!(in_use(figures), [before, vec![of("drive-4", true)]].concat());
        open.close().await.unwrap();
    });
}
