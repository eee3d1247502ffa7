//! Three pools behind one portal, in simulated time.

use array::{
    format::{DriveId, PoolId, SnapshotId, SparingLevel, VolumeId},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, create, open},
    volume::VolumeDevice,
};
use control::{
    Daemon, DaemonSetting,
    notice::{self, NoticeReader},
    order::{ORDERS_MAX, OrderAnswer, OrderRefusal},
    pool_thread::{OpenedPool, PoolServices, PoolSetting},
    portal::PortalSetting,
};
use fragile::Fragile;
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    scsi::{identity::UnitIdentity, properties::UnitProperties, unit::LogicalUnit},
    target::{
        Target,
        access::{AccessList, AccessRight, InitiatorRights},
    },
};
use nbd::{Client, ClientOptions, Export, NbdUri, ServerOptions};
use report::Refusal;
use serving::figures::PoolMeters;
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, SimThreads, Simulation},
};

const MIB: u64 = 1 << 20;
const POOLS: [&str; 3] = ["mail", "logs", "archive"];

fn iqn(pool: &str) -> String {
    format!("iqn.2026-11.test:{pool}")
}

pub struct Scene {
    simulation: Simulation,
    network: SimNetwork,
    drives: Vec<Vec<Rc<SimDrive>>>,
}

impl Scene {
    /// Three pools of two drives, each with the volume "store".
    pub fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let network = simulation.add_network(NetworkOptions::rack());
        let options = DriveOptions::new(ByteCount(65 * MIB));
        let drives: Vec<Vec<_>> =
            POOLS.map(|_| (0..2).map(|_| simulation.add_drive(options.clone())).collect()).into();
        let made = drives.clone();
        let run = simulation.run(SimLimits::generous(), |world| async move {
            for (number, drives) in (1..).zip(&made) {
                make_pool(&world, number, drives).await;
            }
        });
        run.completed();
        Self { simulation, network, drives }
    }

    pub fn run<F: Future<Output = ()> + 'static>(
        &mut self,
        test: impl FnOnce(World, SimNetwork, Vec<Vec<Rc<SimDrive>>>) -> F,
    ) {
        let (network, drives) = (self.network.clone(), self.drives.clone());
        self.simulation.run(SimLimits::generous(), |world| test(world, network, drives)).completed();
    }
}

fn devices(drives: &[Rc<SimDrive>]) -> Vec<Rc<dyn BlockDevice>> {
    drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
}

async fn make_pool(world: &World, number: u8, drives: &[Rc<SimDrive>]) {
    let new = NewPool {
        pool: PoolId([number; 16]),
        name: POOLS[usize::from(number) - 1].to_owned(),
        slot_bytes: MIB as u32,
        sparing: SparingLevel::None,
    };
    let drive = |(index, device): (usize, Rc<dyn BlockDevice>)| NewDrive {
        drive: DriveId([number * 16 + index as u8; 16]),
        serial: format!("S{number}{index}"),
        domain: None,
        device,
    };
    let new_drives: Vec<_> = devices(drives).into_iter().enumerate().map(drive).collect();
    create(world, &new, &new_drives).await.unwrap();
    let pool = open(world, &devices(drives), OpenSetting::default()).await.unwrap();
    let volume = NewVolume {
        name: "store".to_owned(),
        volume: VolumeId([number; 16]),
        size_bytes: 8 * MIB,
        setting: Default::default(),
    };
    pool.create_volume(&volume).await.unwrap();
    pool.close().await.unwrap();
}

/// The volume "store" as the export `name`, and as unit 0 of a target.
fn services(pool: &Rc<Pool>, name: &str, access: AccessList) -> PoolServices {
    let device: Rc<dyn BlockDevice> = Rc::new(VolumeDevice(pool.volume("store").unwrap()));
    let export = Export {
        name: name.to_owned(),
        description: "a volume".to_owned(),
        device: Rc::clone(&device),
        sparse: None,
        bitmaps: None,
        is_read_only: false,
        gate: Rc::default(),
        has_write_cache: false,
    };
    let properties = UnitProperties {
        product: "EXPORT".to_owned(),
        revision: "0001".to_owned(),
        identity: UnitIdentity(pool.volumes()[0].volume.0),
        block_bytes: 512,
        physical_bytes: 4096,
        is_read_only: false,
        is_thin: false,
        is_removable: false,
        port: 1,
    };
    let unit = Rc::new(LogicalUnit::new(properties, device, None, false));
    let targets = vec![Target { name: iqn(name), units: BTreeMap::from([(0, unit)]) }];
    PoolServices { exports: vec![export], targets, access }
}

fn pool_setting(name: &str, served_as: &str, drives: &[Rc<SimDrive>], access: &AccessList) -> PoolSetting {
    // All simulated threads are one.
    let drives = Fragile::new(drives.to_vec());
    let (served_as, access) = (served_as.to_owned(), access.clone());
    let open = move |world: World, _| -> world::LocalFuture<Result<OpenedPool, Refusal>> {
        Box::pin(async move {
            let devices = devices(drives.get());
            let pool = open(&world, &devices, OpenSetting::default()).await;
            let pool = pool.map_err(|error| Refusal::new(error.to_string(), "connect its drives"))?;
            let services = services(&pool, &served_as, access);
            let closing = Rc::clone(&pool);
            let close = Box::new(move || -> world::LocalFuture<Result<(), Refusal>> {
                Box::pin(async move {
                    closing.close().await.unwrap();
                    Ok(())
                })
            });
            Ok(OpenedPool { pool, meters: PoolMeters::new(&world), services, drives: None, close })
        })
    };
    PoolSetting { name: name.to_owned(), open: Box::new(open) }
}

fn portal(network: &SimNetwork) -> PortalSetting {
    let network = Fragile::new(network.clone());
    PortalSetting {
        network: Box::new(move || network.get().host("server")),
        nbd: Some(Address::parse("server:10809", 0).unwrap()),
        iscsi: Some(Address::parse("server:3260", 0).unwrap()),
        nbd_options: ServerOptions::default(),
    }
}

/// Starts the daemon with the pools under their own names.
pub async fn start(
    world: &World,
    network: &SimNetwork,
    drives: &[Vec<Rc<SimDrive>>],
    access: &AccessList,
) -> (Daemon, NoticeReader) {
    let pools = POOLS.iter().zip(drives).map(|(name, drives)| pool_setting(name, name, drives, access));
    let setting = DaemonSetting { pools: pools.collect(), portal: portal(network) };
    let (notices, reader) = notice::channel("daemon");
    let daemon =
        Daemon::start(world, Rc::new(SimThreads(world.clone())), setting, &notices).await.expect("it starts");
    (daemon, reader)
}

pub async fn nbd_client(world: &World, network: &SimNetwork, export: &str) -> world::IoResult<Client> {
    let address = Address::parse("server:10809", 0).unwrap();
    let uri = NbdUri { address, others: Vec::new(), export: export.to_owned(), tls: None };
    Client::connect(world, network.host("client"), uri, ClientOptions::default()).await
}

pub fn initiator(host: &str) -> InitiatorOptions {
    InitiatorOptions { name: format!("iqn.2026-11.test.host:{host}"), ..InitiatorOptions::default() }
}

async fn iscsi_client(
    world: &World,
    network: &SimNetwork,
    pool: &str,
    host: &str,
) -> world::IoResult<Initiator> {
    let uri = format!("iscsi://server:3260/{}/0", iqn(pool)).parse::<IscsiUri>().unwrap();
    Initiator::connect(world, network.host(host), uri, initiator(host)).await
}

pub async fn write(device: &dyn BlockDevice, block: u64, value: u8) {
    let data = vec![Arc::new(Buffer::copy_of(&[value; 4096]))];
    device.write(ByteOffset(block * 4096), data, Stability::Stable).await.unwrap();
}

pub async fn read(device: &dyn BlockDevice, block: u64) -> u8 {
    let read = device.read(ByteOffset(block * 4096), vec![Buffer::zeroed(4096)]).await.unwrap();
    assert!(read[0].iter().all(|byte| *byte == read[0][0]), "one write");
    read[0][0]
}

#[test]
fn three_pools_serve_through_one_portal_and_keep_what_was_written() {
    for seed in 0..10 {
        let mut scene = Scene::new(seed);
        scene.run(|world, network, drives| async move {
            let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
            assert_eq!(daemon.addresses().nbd.as_ref().unwrap().to_string(), "server:10809");
            for (value, pool) in (1..).zip(POOLS) {
                let by_nbd = nbd_client(&world, &network, pool).await.unwrap();
                let by_iscsi = iscsi_client(&world, &network, pool, "host").await.unwrap();
                write(&by_nbd, 0, value).await;
                write(&by_iscsi, 1, value + 10).await;
                assert_eq!((read(&by_iscsi, 0).await, read(&by_nbd, 1).await), (value, value + 10));
            }
            let address = Address::parse("server:3260", 0).unwrap();
            let host = network.host("host");
            let found = discover(&world, &*host, &address, &initiator("host")).await.unwrap();
            assert_eq!(found.iter().map(|target| target.name.clone()).collect::<Vec<_>>(), POOLS.map(iqn));
            assert!(found.iter().all(|target| target.portals == ["server:3260,1"]), "{found:?}");
            let unknown = nbd_client(&world, &network, "cellar").await.err().unwrap();
            assert_eq!(unknown.kind(), IoErrorKind::NotFound);
            assert!(iscsi_client(&world, &network, "cellar", "host").await.is_err());
            assert_eq!(daemon.stop().await, []);
        });
        scene.run(|world, _, drives| async move {
            for (value, drives) in (1..).zip(&drives) {
                let pool = open(&world, &devices(drives), OpenSetting::default()).await.unwrap();
                let store = VolumeDevice(pool.volume("store").unwrap());
                assert_eq!(
                    (read(&store, 0).await, read(&store, 1).await),
                    (value, value + 10),
                    "seed {seed}"
                );
                pool.close().await.unwrap();
            }
        });
    }
}

#[test]
fn discovery_shows_an_initiator_what_it_may_use_in_any_pool() {
    let mut scene = Scene::new(11);
    scene.run(|world, network, drives| async move {
        let units = |pools: &[&str]| {
            let unit = |pool: &&str| (iqn(pool), BTreeMap::from([(0, AccessRight::Write)]));
            InitiatorRights { units: pools.iter().map(unit).collect(), ..InitiatorRights::default() }
        };
        let (some, none) = (initiator("host").name, initiator("other").name);
        let access =
            AccessList::only([(some, units(&["logs", "archive"])), (none, units(&[]))], None).unwrap();
        let (daemon, _) = start(&world, &network, &drives, &access).await;
        let address = Address::parse("server:3260", 0).unwrap();
        for (host, visible) in [("host", vec![iqn("logs"), iqn("archive")]), ("other", vec![])] {
            let found = discover(&world, &*network.host(host), &address, &initiator(host)).await.unwrap();
            assert_eq!(found.into_iter().map(|target| target.name).collect::<Vec<_>>(), visible, "{host}");
        }
        assert!(discover(&world, &*network.host("wild"), &address, &initiator("wild")).await.is_err());
        assert!(iscsi_client(&world, &network, "mail", "host").await.is_err(), "hidden from it");
        let client = iscsi_client(&world, &network, "logs", "host").await.unwrap();
        write(&client, 0, 5).await;
        daemon.stop().await;
    });
}

#[test]
fn orders_are_done_one_at_a_time_in_order_and_bounded() {
    let mut scene = Scene::new(21);
    scene.run(|world, network, drives| async move {
        let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
        let orders = &daemon.pool("mail").unwrap().orders;
        // An order that takes long, and as many behind it as may wait.
        let (long, own) = (orders.clone(), world.clone());
        let long = world.spawn("long", async move {
            let answer = long.give(&own, "long", |pool| {
                Box::pin(async move {
                    pool.world.sleep(Duration::from_secs(45)).await;
                    "long"
                })
            });
            answer.await
        });
        world.sleep(Duration::from_millis(1)).await;
        let waiting: Vec<_> = (0..ORDERS_MAX)
            .map(|number| {
                let (orders, own) = (orders.clone(), world.clone());
                world.spawn("order", async move {
                    orders
                        .give(&own, "count", move |pool| {
                            Box::pin(async move { (number, pool.pool.volumes().len()) })
                        })
                        .await
                })
            })
            .collect();
        world.sleep(Duration::from_millis(1)).await;
        let refused = orders.give(&world, "one more", |_| Box::pin(async {})).await;
        assert_eq!(refused.err(), Some(OrderRefusal::Full));
        // Other pools, and hosts of this one, notice nothing.
        let begun = world.now();
        let other = daemon
            .pool("logs")
            .unwrap()
            .orders
            .give(&world, "count", |pool| Box::pin(async move { pool.pool.volumes().len() }));
        assert!(matches!(other.await, Ok(OrderAnswer::Done(1))));
        write(&nbd_client(&world, &network, "mail").await.unwrap(), 0, 7).await;
        assert!(world.now().since(begun) < Duration::from_secs(1));
        // The callers are answered after 30 s; the orders go on.
        let Ok(OrderAnswer::UnderWay(pending)) = long.await else { panic!("it takes 45 s") };
        assert_eq!(pending.await, Ok("long"));
        for (number, order) in waiting.into_iter().enumerate() {
            match order.await {
                Ok(OrderAnswer::UnderWay(pending)) => assert_eq!(pending.await, Ok((number, 1))),
                other => panic!("it waited for 45 s: {other:?}"),
            }
        }
        world.sleep(Duration::from_secs(1)).await;
        let view = daemon.pool("mail").unwrap().view().unwrap();
        assert_eq!((view.orders_done, view.order_under_way), (ORDERS_MAX as u64 + 1, None));
        let orders = orders.clone();
        daemon.stop().await;
        let late = orders.give(&world, "late", |_| Box::pin(async {})).await;
        assert_eq!(late.err(), Some(OrderRefusal::Stopped));
    });
}

#[test]
fn an_order_whose_caller_has_gone_is_done() {
    let mut scene = Scene::new(22);
    scene.run(|world, network, drives| async move {
        let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
        let orders = daemon.pool("mail").unwrap().orders.clone();
        let own = world.clone();
        let giving = orders.give(&own, "snapshot", |pool| {
            Box::pin(
                async move { pool.pool.snapshot(&["store"], "monday", SnapshotId([7; 16])).await.is_ok() },
            )
        });
        let gone = world::with_deadline(world.sleep(Duration::from_micros(1)), giving).await;
        assert!(gone.is_none(), "a snapshot takes longer");
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(daemon.pool("mail").unwrap().view().unwrap().volumes[0].snapshots, 1);
        daemon.stop().await;
    });
}

#[test]
fn views_follow_the_pool_within_a_second_and_cost_it_nothing() {
    let mut scene = Scene::new(31);
    scene.run(|world, network, drives| async move {
        let (daemon, _) = start(&world, &network, &drives, &AccessList::everybody()).await;
        let pool = daemon.pool("mail").unwrap();
        let first = pool.view().unwrap();
        assert_eq!((first.volumes.len(), first.drives_in_use, first.orders_done), (1, 2, 0));
        assert_eq!(first.exports[0].name, "mail");
        world.sleep(Duration::from_secs(5)).await;
        assert!(Arc::ptr_eq(&first.volumes, &pool.view().unwrap().volumes), "nothing changed");
        let made = pool.orders.give(&world, "create", |pool| {
            Box::pin(async move {
                let setting = Default::default();
                let (name, volume) = ("another".to_owned(), VolumeId([99; 16]));
                pool.pool.create_volume(&NewVolume { name, volume, size_bytes: MIB, setting }).await.is_ok()
            })
        });
        assert!(matches!(made.await, Ok(OrderAnswer::Done(true))));
        for _ in 0..10_000 {
            assert!(pool.view().is_some());
        }
        world.sleep(Duration::from_secs(1)).await;
        let view = pool.view().unwrap();
        let names: Vec<_> = view.volumes.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!((names, view.orders_done), (vec!["another", "store"], 1), "reading views is no order");
        daemon.stop().await;
    });
}

#[test]
fn a_daemon_that_cannot_start_leaves_its_pools_closed_and_says_why() {
    let mut scene = Scene::new(41);
    scene.run(|world, network, drives| async move {
        let everybody = AccessList::everybody();
        let setting = |names: [&str; 3], served_as: [&str; 3], drives: &[Vec<Rc<SimDrive>>]| {
            let pools = names.iter().zip(served_as).zip(drives);
            let pools =
                pools.map(|((name, served_as), drives)| pool_setting(name, served_as, drives, &everybody));
            DaemonSetting { pools: pools.collect(), portal: portal(&network) }
        };
        let (notices, _reader) = notice::channel("daemon");
        let threads = || Rc::new(SimThreads(world.clone()));
        let twice_drives = [drives[0].clone(), drives[1].clone(), Vec::new()];
        for (names, served_as, drives, problem) in [
            (["mail", "mail", "logs"], POOLS, &drives[..], "two pools are called \"mail\""),
            (POOLS, ["a", "b", "a"], &drives[..], "two pools would serve \"a\""),
            (POOLS, POOLS, &twice_drives[..], "drive"),
        ] {
            let refused = Daemon::start(&world, threads(), setting(names, served_as, drives), &notices).await;
            let refused = refused.err().expect("it is refused").to_string();
            assert!(refused.contains(problem), "{refused}");
        }
        let host = network.host("server");
        let taken = host.listen(&Address::parse("server:3260", 0).unwrap()).await.unwrap();
        let refused = Daemon::start(&world, threads(), setting(POOLS, POOLS, &drives), &notices).await;
        let refused = refused.err().expect("the address is taken").to_string();
        assert!(refused.contains("address in use"), "{refused}");
        drop(taken);
        // All are closed: they open, and their addresses are free.
        let daemon = Daemon::start(&world, threads(), setting(POOLS, POOLS, &drives), &notices)
            .await
            .expect("it starts");
        daemon.stop().await;
    });
}
