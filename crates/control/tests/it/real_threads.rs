//! Pools on threads of their own, and QEMU's clients.

use array::{format::VolumeId, pool::NewVolume};
use control::{
    Daemon, DaemonSetting, FolderPool,
    notice::{self, NoticeReader},
    order::{OrderAnswer, OrderRefusal},
    pool_thread::PoolSetting,
    portal::PortalSetting,
};
use iscsi::target::access::AccessList;
use nbd::{NbdUri, ServerOptions};
use serving::{
    export::{ExportSettings, PlannedTarget, PlannedUnit, name_of},
    notices::Notices,
    pool::{
        create::{NewPoolDrives, NewPoolSetting, create},
        folder::OpenPool,
    },
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use world::{
    Address, ByteCount, Network, ProgramCall, ProgramEnd, Programs, World,
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
    let nbd = NbdUri { address, export: name.to_owned(), tls: None };
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

fn call(program: &str, arguments: Vec<String>) -> ProgramCall {
    let time_limit = Duration::from_secs(60);
    ProgramCall { program: program.to_owned(), arguments, environment: Vec::new(), time_limit }
}

/// True if QEMU's tools are there. If not, prints a line, and fails where judges are required.
async fn qemu_is_here() -> bool {
    let here = RealPrograms::default().run(call("qemu-io", vec!["--version".to_owned()])).await.is_ok();
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "qemu-io is required: apt-get install qemu-utils");
    if !here {
        println!("skipped: qemu-io is not installed (apt-get install qemu-utils)");
    }
    here
}

/// A program that is started holds the locks of this process for a moment, those on pools too: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn with_daemon(options: RealOptions, test: impl AsyncFnOnce(World, Daemon, NoticeReader, PathBuf)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    real::run(1, options, async |world: World| {
        if !qemu_is_here().await {
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
