//! The rules at the top of `block_device.rs`, power cuts, and each fault.

use super::{
    DriveOptions, FaultPlan, ServiceKind, ServiceModel, ServiceQueue, ServiceRequest, SimDrive, SimFault,
    SimLimits, SimOutcome, Simulation,
};
use crate::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Random, Stability, World};
use std::{rc::Rc, sync::Arc, time::Duration};

const SECTOR: usize = 512;
const SECTORS: usize = 64;

fn options() -> DriveOptions {
    DriveOptions::new(ByteCount((SECTORS * SECTOR) as u64))
}

fn filled(sectors: usize, version: u8) -> Vec<Arc<Buffer>> {
    vec![Arc::new(Buffer::copy_of(&vec![version; sectors * SECTOR]))]
}

async fn write(drive: &SimDrive, sector: usize, sectors: usize, version: u8, stability: Stability) {
    let at = ByteOffset((sector * SECTOR) as u64);
    drive.write(at, filled(sectors, version), stability).await.expect("within the drive");
}

/// The version in each sector; panics if one holds a mixture.
async fn versions(drive: &SimDrive) -> Vec<u8> {
    let buffers = drive.read(ByteOffset(0), vec![Buffer::zeroed(SECTORS * SECTOR)]).await.expect("readable");
    let version = |sector: &[u8]| {
        assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is written whole or not at all");
        sector[0]
    };
    buffers[0].chunks_exact(SECTOR).map(version).collect()
}

fn read_versions(simulation: &mut Simulation, drive: &Rc<SimDrive>) -> Vec<u8> {
    let drive = Rc::clone(drive);
    simulation.run(SimLimits::generous(), |_| async move { versions(&drive).await }).completed()
}

/// Writes at random for ever and records what was acknowledged and synced.
#[derive(Clone)]
struct Writes(Rc<std::cell::RefCell<Vec<Sector>>>);

/// Versions a sector may hold after a power cut.
#[derive(Clone, Debug)]
struct Sector {
    allowed: Vec<u8>,
}

impl Writes {
    fn new() -> Self {
        Self(Rc::new(std::cell::RefCell::new(vec![Sector { allowed: vec![0] }; SECTORS])))
    }

    async fn work(self, world: World, drive: Rc<SimDrive>, own: std::ops::Range<usize>) {
        let mut random = Random::new(world.random("writes").next_u64(), &format!("{own:?}"));
        loop {
            let sector = own.start + random.below(own.len() as u64) as usize;
            let sectors = 1 + random.below((own.end - sector) as u64) as usize;
            let version = 1 + random.below(255) as u8;
            let range = sector..sector + sectors;
            self.0.borrow_mut()[range.clone()].iter_mut().for_each(|sector| sector.allowed.push(version));
            let stability = if random.percent(30.0) { Stability::Stable } else { Stability::Volatile };
            write(&drive, sector, sectors, version, stability).await;
            if stability == Stability::Stable {
                self.0.borrow_mut()[range].iter_mut().for_each(|sector| sector.allowed = vec![version]);
            }
            if random.percent(20.0) {
                let last: Vec<usize> =
                    self.0.borrow()[own.clone()].iter().map(|sector| sector.allowed.len() - 1).collect();
                drive.flush().await.expect("a flush succeeds");
                // No other task writes here: the last version before the flush began is stable now.
                for (sector, last) in self.0.borrow_mut()[own.clone()].iter_mut().zip(last) {
                    sector.allowed.drain(..last);
                }
            }
        }
    }
}

/// Crashes the writers at some poll; returns the drive's contents and the versions allowed.
fn crash(seed: u64, end: fn(&mut Simulation)) -> (Vec<u8>, Vec<Sector>) {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(options());
    let writes = Writes::new();
    let limits =
        SimLimits { polls: Some(20 + seed % 400), span: Duration::from_secs(10), ..SimLimits::generous() };
    let outcome: SimOutcome<()> = simulation.run(limits, |world| {
        for own in [0..16, 16..40, 40..SECTORS] {
            let task = writes.clone().work(world.clone(), Rc::clone(&drive), own);
            world.spawn("writer", task);
        }
        std::future::pending()
    });
    assert_eq!(outcome, SimOutcome::Crashed);
    end(&mut simulation);
    let found = read_versions(&mut simulation, &drive);
    (found, writes.0.take())
}

#[test]
fn a_power_cut_keeps_stable_data_and_any_part_of_the_rest() {
    let (mut old, mut lost) = (0, 0);
    for seed in 0..300 {
        let (found, sectors) = crash(seed, Simulation::cut_power);
        for (version, sector) in found.iter().zip(&sectors) {
            assert!(sector.allowed.contains(version), "seed {seed}: {version} is none of {sector:?}");
            let last = sector.allowed.last().expect("at least one");
            lost += usize::from(version != last);
            old += usize::from(version != last && *version != sector.allowed[0]);
        }
    }
    assert!(
        lost > 500 && old > 50,
        "the cuts lost too little: {lost} sectors lost, {old} of a version between"
    );
}

#[test]
fn a_host_crash_loses_nothing_acknowledged() {
    for seed in 0..100 {
        let (found, sectors) = crash(seed, Simulation::kill);
        for (version, sector) in found.iter().zip(&sectors) {
            // One write of each writer was under way; everything before it had been acknowledged.
            let recent = &sector.allowed[sector.allowed.len().saturating_sub(2)..];
            assert!(recent.contains(version), "seed {seed}: {version} is none of {recent:?}");
        }
    }
}

#[test]
fn unsynced_writes_of_a_crashed_host_can_be_lost_in_a_later_power_cut() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(options());
        let writer = Rc::clone(&drive);
        simulation
            .run(SimLimits::generous(), |_| async move { write(&writer, 0, 1, 7, Stability::Volatile).await })
            .completed();
        simulation.kill();
        assert_eq!(read_versions(&mut simulation, &drive)[0], 7);
        simulation.cut_power();
        lost += usize::from(read_versions(&mut simulation, &drive)[0] == 0);
    }
    assert!((4..=16).contains(&lost), "{lost} of 20");
}

#[test]
fn a_drive_never_tears_an_atomic_unit() {
    const UNIT_SECTORS: usize = 8;
    let mut torn_writes = 0;
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed);
        let atomic_unit = ByteCount((UNIT_SECTORS * SECTOR) as u64);
        let drive = simulation.add_drive(DriveOptions { atomic_unit, ..options() });
        let writer = Rc::clone(&drive);
        simulation
            .run(SimLimits::generous(), |_| async move {
                write(&writer, 0, SECTORS, 9, Stability::Volatile).await
            })
            .completed();
        simulation.cut_power();
        let found = read_versions(&mut simulation, &drive);
        for unit in found.chunks_exact(UNIT_SECTORS) {
            assert!(unit.iter().all(|&version| version == unit[0]), "seed {seed}: a torn unit {unit:?}");
        }
        torn_writes += usize::from(found.contains(&0) && found.contains(&9));
    }
    assert!(torn_writes > 30, "units of one write survive one by one: {torn_writes} of 100 were torn");
}

#[test]
fn operations_complete_out_of_order_up_to_the_queue_depth() {
    let order_with_depth = |queue_depth| {
        let mut simulation = Simulation::new(4);
        let drive = simulation.add_drive(DriveOptions { queue_depth, ..options() });
        let main = |world: World| async move {
            let order = Rc::new(std::cell::RefCell::new(Vec::new()));
            let reads: Vec<_> = (0..20)
                .map(|number| {
                    let (order, drive) = (Rc::clone(&order), Rc::clone(&drive));
                    let read = drive.read(ByteOffset(0), vec![Buffer::zeroed(SECTOR)]);
                    world.spawn("reader", async move {
                        read.await.expect("readable");
                        order.borrow_mut().push(number);
                    })
                })
                .collect();
            for read in reads {
                read.await;
            }
            order.take()
        };
        let order = simulation.run(SimLimits::generous(), main).completed();
        (order, simulation.now())
    };
    let (one_by_one, slow) = order_with_depth(1);
    let (at_once, fast) = order_with_depth(20);
    assert_eq!(one_by_one, (0..20).collect::<Vec<_>>());
    assert_ne!(at_once, one_by_one);
    assert!(fast.0 * 5 < slow.0, "{fast:?} {slow:?}");
}

#[test]
fn an_out_of_range_or_unaligned_operation_changes_nothing() {
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(options());
    let end = (SECTORS * SECTOR) as u64;
    let tried = Rc::clone(&drive);
    let main = |_| async move {
        let mut kinds = Vec::new();
        for at in [end - 512, end, u64::MAX - 511, 100] {
            let written = tried.write(ByteOffset(at), filled(2, 1), Stability::Stable).await;
            kinds.push(written.unwrap_err().kind());
            let read = tried.read(ByteOffset(at), vec![Buffer::zeroed(1024)]).await;
            assert_eq!(read.unwrap_err().kind(), *kinds.last().unwrap());
        }
        let cut = tried.read(ByteOffset(0), vec![Buffer::zeroed(100)]).await;
        kinds.push(cut.unwrap_err().kind());
        kinds
    };
    use IoErrorKind::{OutOfRange, Unaligned};
    let kinds = simulation.run(SimLimits::generous(), main).completed();
    assert_eq!(kinds, [OutOfRange, OutOfRange, OutOfRange, Unaligned, Unaligned]);
    assert_eq!(read_versions(&mut simulation, &drive), [0; SECTORS]);
}

/// Writes 1 everywhere, syncs, then writes 2 to sectors 8..16 and flushes, under a fault that always occurs.
/// Returns both results, and the contents before and after a power cut (read without faults).
fn under(faults: FaultPlan) -> (Vec<Option<IoErrorKind>>, Vec<u8>, Vec<u8>) {
    let mut simulation = Simulation::new(6);
    let drive = simulation.add_drive(options());
    let writer = Rc::clone(&drive);
    let main = |_| async move {
        write(&writer, 0, SECTORS, 1, Stability::Stable).await;
        writer.set_faults(faults);
        let written = writer.write(ByteOffset(8 * 512), filled(8, 2), Stability::Volatile).await;
        let flushed = writer.flush().await;
        writer.set_faults(FaultPlan::none());
        [written, flushed].map(|result| result.err().map(|error| error.kind())).to_vec()
    };
    let said = simulation.run(SimLimits::generous(), main).completed();
    let before = read_versions(&mut simulation, &drive);
    (0..10).for_each(|_| simulation.cut_power());
    let after = read_versions(&mut simulation, &drive);
    (said, before, after)
}

#[test]
fn planned_faults_of_writes_and_flushes_occur() {
    let none = FaultPlan::none;
    let written: Vec<u8> = (0..SECTORS).map(|sector| if (8..16).contains(&sector) { 2 } else { 1 }).collect();
    let old = vec![1; SECTORS];

    assert_eq!(under(none()), (vec![None, None], written.clone(), written.clone()));
    let lost = under(FaultPlan { lost_write_percent: 100.0, ..none() });
    assert_eq!(lost, (vec![None, None], old.clone(), old.clone()));

    let (said, before, after) = under(FaultPlan { misdirected_write_percent: 100.0, ..none() });
    assert_eq!((said, before.iter().filter(|&&version| version == 2).count()), (vec![None, None], 8));
    assert_eq!(before, after);

    let (said, before, _) = under(FaultPlan { failed_write_percent: 100.0, ..none() });
    assert_eq!(said, [Some(IoErrorKind::Medium), None]);
    assert!(before != old && before != written, "a failing write is done in part: {before:?}");

    let (said, before, after) = under(FaultPlan { lying_flush_percent: 100.0, ..none() });
    assert_eq!((said, before), (vec![None, None], written.clone()));
    assert_ne!(after, written, "ten power cuts in a row kept what was never stable");

    let (said, ..) = under(FaultPlan { failed_flush_percent: 100.0, ..none() });
    assert_eq!(said, [None, Some(IoErrorKind::Medium)]);

    let (said, before, _) = under(FaultPlan { space: Some(ByteCount::kib(4)), ..none() });
    assert_eq!((said, before), (vec![None, None], written), "rewriting takes no space");
}

#[test]
fn a_full_drive_refuses_writes_to_new_blocks() {
    let mut simulation = Simulation::new(2);
    let drive = simulation.add_drive(options());
    drive.set_faults(FaultPlan { space: Some(ByteCount::kib(8)), ..FaultPlan::none() });
    let main = |_| async move {
        write(&drive, 0, 16, 1, Stability::Stable).await;
        let refused = drive.write(ByteOffset(4096), filled(16, 2), Stability::Stable).await;
        assert_eq!(refused.unwrap_err().kind(), IoErrorKind::NoSpace);
        assert_eq!(drive.space_used(), ByteCount::kib(8));
        drive.set_faults(FaultPlan::none());
        assert_eq!(versions(&drive).await[8], 1, "a refused write changes nothing");
        write(&drive, 8, 16, 2, Stability::Stable).await;
    };
    simulation.run(SimLimits::generous(), main).completed();
}

#[test]
fn planned_faults_of_reads_occur() {
    let mut simulation = Simulation::new(11);
    let drive = simulation.add_drive(options());
    let main = |_| async move {
        for sector in 0..SECTORS {
            write(&drive, sector, 1, sector as u8, Stability::Stable).await;
        }
        let read = async |faults| {
            drive.set_faults(faults);
            let answer = drive.read(ByteOffset(512), vec![Buffer::zeroed(SECTOR)]).await;
            drive.set_faults(FaultPlan::none());
            answer.map(|buffers| buffers[0].to_vec()).map_err(|error| error.kind())
        };
        let right = vec![1; SECTOR];
        let rot = read(FaultPlan { bit_rot_percent: 100.0, ..FaultPlan::none() }).await.expect("readable");
        let flipped: u32 = rot.iter().map(|byte| (byte ^ 1).count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(read(FaultPlan::none()).await, Ok(rot), "rot stays");
        write(&drive, 1, 1, 1, Stability::Stable).await;
        assert_eq!(read(FaultPlan::none()).await, Ok(right.clone()), "until it is written again");

        let misdirected = FaultPlan { misdirected_read_percent: 100.0, ..FaultPlan::none() };
        assert_ne!(read(misdirected).await, Ok(right.clone()));
        assert_eq!(read(FaultPlan::none()).await, Ok(right.clone()));

        let unreadable = FaultPlan { unreadable_percent: 100.0, ..FaultPlan::none() };
        assert_eq!(read(unreadable).await, Err(IoErrorKind::Medium));
        assert_eq!(read(FaultPlan::none()).await, Err(IoErrorKind::Medium), "and stays so");
        let stale = FaultPlan { stale_read_percent: 100.0, ..FaultPlan::none() };
        drive.set_faults(stale.clone());
        write(&drive, 1, 1, 77, Stability::Stable).await;
        assert_eq!(read(stale).await, Ok(right));
        assert_eq!(read(FaultPlan::none()).await, Ok(vec![77; SECTOR]));
        drive.statistics().faults
    };
    let faults = simulation.run(SimLimits::generous(), main).completed();
    let kinds: Vec<SimFault> = faults.into_keys().collect();
    assert_eq!(
        kinds,
        [SimFault::BitRot, SimFault::Unreadable, SimFault::MisdirectedRead, SimFault::StaleRead]
    );
}

#[test]
fn a_slow_operation_is_late_and_a_stuck_one_never_completes() {
    let mut simulation = Simulation::new(9);
    let drive = simulation.add_drive(options());
    let slow = FaultPlan { slow_percent: 100.0, slow_span: Duration::from_secs(41), ..FaultPlan::none() };
    drive.set_faults(slow);
    let flushed = Rc::clone(&drive);
    simulation
        .run(SimLimits::generous(), |_| async move { flushed.flush().await })
        .completed()
        .expect("late");
    assert!(simulation.now().0 > 41_000_000_000);
    drive.set_faults(FaultPlan { stuck_percent: 100.0, ..FaultPlan::none() });
    let stuck = Rc::clone(&drive);
    let outcome = simulation.run(SimLimits::generous(), |_| async move { stuck.flush().await.is_ok() });
    assert_eq!(outcome, SimOutcome::Deadlocked(vec!["main"]));
    simulation.cut_power();
    drive.set_faults(FaultPlan::none());
    read_versions(&mut simulation, &drive);
}

#[test]
fn a_write_completes_though_its_future_was_dropped() {
    let mut simulation = Simulation::new(10);
    let drive = simulation.add_drive(options());
    let writer = Rc::clone(&drive);
    let main = |world: World| async move {
        drop(writer.write(ByteOffset(0), filled(3, 5), Stability::Stable));
        world.sleep(Duration::from_secs(1)).await;
        versions(&writer).await
    };
    assert_eq!(simulation.run(SimLimits::generous(), main).completed()[..4], [5, 5, 5, 0]);
}

/// A disk arm: service time grows with the distance from the last address, and with the queue.
struct Seek {
    last: u64,
}

impl ServiceModel for Seek {
    fn service_time(&mut self, request: &ServiceRequest, queue: ServiceQueue, _: &mut Random) -> Duration {
        let distance = request.at.0.abs_diff(self.last);
        self.last = request.at.0 + request.length.0;
        let base = if request.kind == ServiceKind::Read { 100 } else { 200 };
        Duration::from_micros(base + distance / SECTOR as u64 + 10_000 * queue.waiting as u64)
    }
}

#[test]
fn a_service_model_sees_kind_address_and_queue() {
    let mut simulation = Simulation::new(3);
    let drive = simulation.add_drive(DriveOptions { queue_depth: 1, ..options() });
    drive.set_service_model(Seek { last: 0 });
    let main = |world: World| async move {
        let read =
            |sector: usize| drive.read(ByteOffset((sector * SECTOR) as u64), vec![Buffer::zeroed(SECTOR)]);
        let mut took = Vec::new();
        let mut start = world.now();
        let mut lap = |world: &World| {
            took.push(world.now().since(start).as_micros());
            start = world.now();
        };
        read(0).await.expect("readable");
        lap(&world);
        read(51).await.expect("readable");
        lap(&world);
        write(&drive, 52, 1, 1, Stability::Stable).await;
        lap(&world);
        for read in [read(53), read(54), read(55)] {
            read.await.expect("readable");
            lap(&world);
        }
        took
    };
    let took = simulation.run(SimLimits::generous(), main).completed();
    assert_eq!(took, [100, 150, 200, 100, 10_100, 100]);
}
