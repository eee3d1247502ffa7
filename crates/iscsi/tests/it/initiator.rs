//! Our initiator and our target over a simulated network.

use crate::scene::{BLOCKS, properties};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    scsi::{properties::UnitProperties, unit::LogicalUnit},
    target::{Target, Targets, serve},
    wire::pdu::{Digests, Pdu},
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, IoResult, Stability, World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, SimOutcome, Simulation},
    with_deadline,
};

const SIZE: u64 = BLOCKS * 512;

fn uri(target: &str, unit: u16) -> IscsiUri {
    IscsiUri {
        address: Address::parse("server", 3260).unwrap(),
        others: Vec::new(),
        target: format!("iqn.x:{target}"),
        unit,
    }
}

/// Serves the drive as LUN 0 of target `mail` until the world ends.
async fn start(
    world: &World,
    network: &SimNetwork,
    drive: &Rc<SimDrive>,
    properties: UnitProperties,
    has_cache: bool,
) {
    let listener = network.host("server").listen(&uri("mail", 0).address).await.unwrap();
    let unit = LogicalUnit::new(properties, Rc::clone(drive) as Rc<dyn BlockDevice>, None, has_cache);
    let units = BTreeMap::from([(0, Rc::new(unit))]);
    let target = Target { name: "iqn.x:mail".to_owned(), units };
    let serving = serve(world.clone(), listener.into(), Targets::new(vec![target]), Rc::new(drop));
    world.spawn("server", serving);
}

async fn connect(world: &World, network: &SimNetwork) -> IoResult<Initiator> {
    Initiator::connect(world, network.host("client"), uri("mail", 0), InitiatorOptions::default()).await
}

async fn read(device: &dyn BlockDevice, at: u64, length: usize) -> IoResult<Vec<u8>> {
    let read = device.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await?;
    Ok(read[0].to_vec())
}

struct Scene {
    simulation: Simulation,
    drive: Rc<SimDrive>,
    network: SimNetwork,
}

fn scene(seed: u64, network: NetworkOptions) -> Scene {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(SIZE)));
    let network = simulation.add_network(network);
    Scene { simulation, drive, network }
}

#[test]
fn reads_return_writes_with_and_without_digests() {
    for seed in 0..16 {
        let Scene { mut simulation, drive, network } = scene(seed, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start(&world, &network, &drive, properties(), seed % 2 == 0).await;
            let digests = Digests { header: seed & 2 != 0, data: seed & 4 != 0 };
            let options = InitiatorOptions { digests, ..InitiatorOptions::default() };
            let host = network.host("client");
            let device = Initiator::connect(&world, host, uri("mail", 0), options).await.unwrap();
            assert_eq!(device.geometry().size, ByteCount(SIZE));
            assert_eq!(device.info().has_write_cache, seed % 2 == 0);
            let content = RefCell::new(vec![0_u8; SIZE as usize]);
            let mut random = world.random("operations");
            for _ in 0..30 {
                // Concurrent writes to disjoint ranges.
                let mut writes = Vec::new();
                for lane in 0..8 {
                    let room = SIZE / 8;
                    let length = 512 * (1 + random.below(room / 512));
                    let at = lane * room + 512 * random.below((room - length) / 512 + 1);
                    let mut data = Buffer::zeroed(length as usize);
                    random.fill(&mut data);
                    content.borrow_mut()[at as usize..][..data.len()].copy_from_slice(&data);
                    let piece = 512 * (1 + random.below(length / 512)) as usize;
                    let from = data.chunks(piece).map(|piece| Arc::new(Buffer::copy_of(piece))).collect();
                    let stability = [Stability::Volatile, Stability::Stable][random.below(2) as usize];
                    writes.push(device.write(ByteOffset(at), from, stability));
                }
                for write in writes {
                    write.await.unwrap();
                }
                let at = 512 * random.below(BLOCKS);
                let length = 512 * (1 + random.below((SIZE - at) / 512)) as usize;
                let found = read(&device, at, length).await.unwrap();
                assert!(found == content.borrow()[at as usize..][..length], "seed {seed}");
            }
            device.flush().await.unwrap();
            assert!(read(&device, 0, SIZE as usize).await.unwrap() == *content.borrow(), "seed {seed}");
            assert!(read(&*drive, 0, SIZE as usize).await.unwrap() == *content.borrow(), "seed {seed}");
            assert_eq!(device.breaks(), 0);
        });
        run.completed();
    }
}

#[test]
fn a_unit_is_probed_and_missing_units_are_refused() {
    let Scene { mut simulation, drive, network } = scene(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, &drive, UnitProperties { is_read_only: true, ..properties() }, false).await;
        let host = || network.host("client");
        let device = connect(&world, &network).await.unwrap();
        let found = device.info();
        assert_eq!((found.vendor.as_str(), found.product.as_str()), ("SPINDLE", "VOLUME"));
        assert_eq!(found.serial.as_deref(), Some("00000000000000000000000000000001"));
        assert!(found.is_read_only && found.can_fua && !found.has_write_cache);
        let data = || vec![Arc::new(Buffer::zeroed(512))];
        let refused = device.write(ByteOffset(0), data(), Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly);
        for (at, kind) in [(1, IoErrorKind::Unaligned), (SIZE, IoErrorKind::OutOfRange)] {
            assert_eq!(read(&device, at, 512).await.unwrap_err().kind(), kind);
        }
        for (target, unit, story) in [("male", 0, "no such target"), ("mail", 7, "no such unit")] {
            let refused =
                Initiator::connect(&world, host(), uri(target, unit), InitiatorOptions::default()).await;
            let refused = refused.err().expect("it is not there");
            assert_eq!(refused.kind(), IoErrorKind::NotFound);
            assert!(refused.to_string().contains(story), "{refused}");
        }
        let nobody = IscsiUri { address: Address::parse("server:1", 0).unwrap(), ..uri("mail", 0) };
        assert!(Initiator::connect(&world, host(), nobody, InitiatorOptions::default()).await.is_err());
        let found =
            discover(&world, &*host(), &uri("", 0).address, &InitiatorOptions::default()).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].portals.as_slice()),
            ("iqn.x:mail", &["server:3260,1".to_owned()][..])
        );
    });
    run.completed();
}

#[test]
fn unanswered_requests_are_sent_again_over_the_next_connection() {
    let mut breaks = 0;
    for seed in 0..20 {
        let options = NetworkOptions { reset_percent: 1.5, ..NetworkOptions::rack() };
        let Scene { mut simulation, drive, network } = scene(seed, options);
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start(&world, &network, &drive, properties(), true).await;
            let device = loop {
                if let Ok(device) = connect(&world, &network).await {
                    break device;
                }
            };
            let mut random = world.random("operations");
            let mut content = vec![0_u8; SIZE as usize];
            for round in 0..120_u32 {
                let at = 4096 * random.below(SIZE / 4096);
                if random.percent(60.0) {
                    let data = Buffer::copy_of(&[round as u8 + 1; 4096]);
                    content[at as usize..][..4096].copy_from_slice(&data);
                    device.write(ByteOffset(at), vec![Arc::new(data)], Stability::Stable).await.unwrap();
                } else {
                    let found = read(&device, at, 4096).await.unwrap();
                    assert!(found == content[at as usize..][..4096], "seed {seed}");
                }
            }
            device.flush().await.expect("all writes were stable when they were answered");
            device.breaks()
        });
        breaks += run.completed();
    }
    assert!(breaks > 20, "connections did break: {breaks}");
}

#[test]
fn a_flush_fails_if_writes_may_be_lost() {
    for has_cache in [true, false] {
        let Scene { mut simulation, drive, network } = scene(3, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start(&world, &network, &drive, properties(), has_cache).await;
            let device = connect(&world, &network).await.unwrap();
            let data = || vec![Arc::new(Buffer::zeroed(4096))];
            device.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
            device.flush().await.unwrap();
            network.reset("client", "server");
            world.sleep(Duration::from_secs(5)).await;
            device.flush().await.expect("nothing was written since the last one");
            device.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
            network.reset("client", "server");
            world.sleep(Duration::from_secs(5)).await;
            let flushed = device.flush().await;
            match has_cache {
                true => assert_eq!(flushed.unwrap_err().kind(), IoErrorKind::CacheLost),
                false => flushed.expect("what has no cache loses nothing of it"),
            }
            device.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
            device.flush().await.expect("it was told once, and what came since is stable");
            assert_eq!(device.breaks(), 2);
        });
        run.completed();
    }
}

#[test]
fn commands_wait_out_a_network_cut_until_their_deadline() {
    let Scene { mut simulation, drive, network } = scene(4, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, &drive, properties(), false).await;
        let device = connect(&world, &network).await.unwrap();
        network.cut("client", "server");
        let waiting = device.read(ByteOffset(0), vec![Buffer::zeroed(512)]);
        world.sleep(Duration::from_secs(30)).await;
        assert!(device.breaks() > 0, "who says nothing for long is not there");
        network.restore("client", "server");
        waiting.await.expect("the target is there again in time");
        network.cut("client", "server");
        let began = world.now();
        let refused = read(&device, 0, 512).await.unwrap_err();
        let took = world.now().since(began);
        assert_eq!(refused.kind(), IoErrorKind::Disconnected);
        assert!(refused.to_string().contains("no answer within 60 s"), "{refused}");
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(62), "{took:?}");
        network.restore("client", "server");
        assert!(read(&device, 0, 512).await.is_ok(), "the target is there again");
    });
    run.completed();
}

#[test]
fn flushed_writes_survive_a_power_cut_of_the_target() {
    for seed in 0..30 {
        let Scene { mut simulation, drive, network } = scene(seed, NetworkOptions::rack());
        let flushed = Rc::new(RefCell::new(vec![0_u8; SIZE as usize]));
        let limits = SimLimits { polls: Some(600 + 60 * seed), ..SimLimits::generous() };
        let first = simulation.run(limits, |world| {
            let (drive, network, flushed) = (Rc::clone(&drive), network.clone(), Rc::clone(&flushed));
            async move {
                start(&world, &network, &drive, properties(), true).await;
                let device = connect(&world, &network).await.unwrap();
                let mut written = vec![0_u8; SIZE as usize];
                for round in 0.. {
                    let at = 512 * (round % BLOCKS);
                    let mark = (round % 255) as u8 + 1;
                    written[at as usize..][..512].fill(mark);
                    let data = vec![Arc::new(Buffer::copy_of(&[mark; 512]))];
                    device.write(ByteOffset(at), data, Stability::Volatile).await.unwrap();
                    if round % 8 == 7 {
                        device.flush().await.unwrap();
                        flushed.borrow_mut().clone_from(&written);
                    }
                }
            }
        });
        assert_eq!(first, SimOutcome::Crashed, "seed {seed}");
        simulation.cut_power();
        let own = Rc::clone(&drive);
        let found =
            simulation.run(SimLimits::generous(), |_| async move { read(&*own, 0, SIZE as usize).await });
        let found = found.completed().unwrap();
        for (sector, kept) in flushed.borrow().chunks(512).enumerate() {
            let is_kept = kept.iter().all(|&byte| byte == 0) || found[sector * 512..][..512] == *kept;
            assert!(is_kept, "seed {seed}, sector {sector}");
        }
    }
}

/// Closes every connection after its login request, for the duration `from`; returns how many.
async fn hang_up_until(world: &World, network: &SimNetwork, from: Duration) -> u32 {
    let listener = network.host("server").listen(&uri("mail", 0).address).await.unwrap();
    let begun = world.now();
    let mut count = 0;
    while world.now().since(begun) < from {
        let coming = with_deadline(world.sleep(from), listener.accept()).await;
        let Some(accepted) = coming else { break };
        let mut stream = accepted.unwrap().stream;
        // The login request has arrived.
        let _ = Pdu::read(&mut stream, Digests::default(), 65_536).await;
        count += 1;
    }
    count
}

#[test]
fn a_login_is_retried_if_the_target_closes_the_connection() {
    let Scene { mut simulation, drive, network } = scene(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let (own, hung_up_on) = (world.clone(), network.clone());
        let five = Duration::from_secs(5);
        world.spawn("server that begins", async move {
            assert!(hang_up_until(&own, &hung_up_on, five).await >= 4);
            start(&own, &hung_up_on, &drive, properties(), false).await;
        });
        world.sleep(Duration::from_millis(1)).await;
        let begun = world.now();
        let device = connect(&world, &network).await.expect("it is there after 5 s");
        assert!(world.now().since(begun) >= five);
        assert_eq!(read(&device, 0, 512).await.unwrap().len(), 512);
    });
    run.completed();
}

#[test]
fn login_retries_end_at_connect_max() {
    let Scene { mut simulation, network, .. } = scene(2, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let (own, hung_up_on) = (world.clone(), network.clone());
        let minute = Duration::from_secs(60);
        world.spawn("server", async move { hang_up_until(&own, &hung_up_on, minute).await });
        world.sleep(Duration::from_millis(1)).await;
        let begun = world.now();
        let refused = connect(&world, &network).await.err().unwrap().to_string();
        assert!(
            refused.contains("tried for 10 s: ") && refused.contains("the target closed the connection"),
            "{refused}"
        );
        let took = world.now().since(begun).as_secs();
        assert!((7..=10).contains(&took), "{took} s");
    });
    run.completed();
}
