//! Log segments whose headers no drive can read. Only the header names the segments that follow, so a pool
//! without one must not open as if its log ended there.

use crate::{
    scene::{MIB, Scene, make_volume, read, write},
    superblocks::Scratched,
};
use array::{
    election::OpenRefusal,
    error::Error,
    format::{BLOCK_BYTES, MirroredSegment, PoolGeometry, SlotAddress, SlotHeader},
    pool::{OpenSetting, ReadOnlyVolume, check_opens, open, open_read_only},
    superblocks::read_places,
    volume::VolumeDevice,
};
use std::{cell::RefCell, ops::Range, rc::Rc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, sim::SimDrive};

const CACHE: usize = 1 << 20;
const WRITE_BYTES: usize = 16 << 10;
/// Writes are a header and four blocks each: 50 fill a segment of 1 MiB.
const PER_SEGMENT: u64 = 50;

/// Content of write number `at`.
fn byte_of(at: u64) -> u8 {
    (at % 251) as u8 + 1
}

/// Damage to a header that its drive still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Zeroed,
    Rotten,
}

/// A header block, on one drive or on all of its copies.
fn spoil(drives: &[Rc<SimDrive>], geometry: PoolGeometry, slots: &[SlotAddress], how: Loss) {
    for slot in slots {
        let (drive, at) = (&drives[usize::from(slot.member.0)], geometry.slot_start_bytes(slot.slot));
        let mut header = vec![0; BLOCK_BYTES];
        drive.peek(at, &mut header);
        assert!(SlotHeader::decode(&header).is_ok(), "a header lies there");
        match how {
            Loss::Zeroed => drive.poke(at, &vec![0; BLOCK_BYTES]),
            Loss::Rotten => {
                header[100] ^= 1;
                drive.poke(at, &header);
            }
        }
    }
}

/// Devices that cannot read the headers of a segment.
fn scratch(
    devices: Vec<Rc<dyn BlockDevice>>,
    geometry: PoolGeometry,
    segment: &MirroredSegment,
) -> Vec<Rc<dyn BlockDevice>> {
    let scratched = devices.into_iter().enumerate().map(|(drive, inner)| {
        let slots = segment.slots.iter().filter(|slot| usize::from(slot.member.0) == drive);
        let bad = slots.map(|slot| geometry.slot_start_bytes(slot.slot)).collect();
        Rc::new(Scratched { inner, bad }) as Rc<dyn BlockDevice>
    });
    scratched.collect()
}

/// A pool whose process was killed, and the segments of its log.
struct Killed {
    scene: Scene,
    geometry: PoolGeometry,
    /// In the order of the log, from the segment that the superblock names on.
    log: Vec<MirroredSegment>,
    /// Successors named by the last header, which the log has not entered.
    ahead: Vec<MirroredSegment>,
    writes: u64,
}

/// A pool killed after so many acknowledged writes, each to a block of its own.
fn killed(seed: u64, drives: usize, writes: u64) -> Killed {
    let mut scene = Scene::new(seed, drives);
    let found = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&found);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
        pool.checkpoint().await.expect("it is made");
        for at in 0..writes {
            write(&volume, at * WRITE_BYTES as u64, byte_of(at), WRITE_BYTES).await;
        }
        drop((pool, volume));
        world.sleep(Duration::from_millis(1)).await;
        *seen.borrow_mut() = Some(log_of(&devices).await);
    });
    let (geometry, log, ahead) = found.take().expect("it was looked at");
    Killed { scene, geometry, log, ahead, writes }
}

/// Segments of the log in order of their headers, and the successors not entered.
async fn log_of(
    devices: &[Rc<dyn BlockDevice>],
) -> (PoolGeometry, Vec<MirroredSegment>, Vec<MirroredSegment>) {
    let superblock = read_places(&devices[0]).await.newest.expect("it has one");
    let geometry = superblock.geometry;
    let mut log = vec![superblock.checkpoint.log.segment];
    loop {
        let last = log.last().expect("the log begins somewhere");
        let header = header_of(devices, geometry, last).await.expect("it was entered");
        let mut next = None;
        for successor in &header.successors {
            if header_of(devices, geometry, successor).await.is_some() {
                next = Some(successor.clone());
                break;
            }
        }
        match next {
            Some(next) => log.push(next),
            None => return (geometry, log, header.successors),
        }
    }
}

async fn header_of(
    devices: &[Rc<dyn BlockDevice>],
    geometry: PoolGeometry,
    segment: &MirroredSegment,
) -> Option<SlotHeader> {
    let slot = segment.slots[0];
    let at = ByteOffset(geometry.slot_start_bytes(slot.slot));
    let read = devices[usize::from(slot.member.0)].read(at, vec![Buffer::zeroed(BLOCK_BYTES)]).await;
    let header = SlotHeader::decode(&read.expect("it can be read")[0]).ok()?;
    (header.segment_use == segment.segment_use && header.number == segment.number).then_some(header)
}

/// Number of leading writes that can be read; behind them everything must be empty.
async fn readable(volume: &ReadOnlyVolume, writes: u64) -> u64 {
    let mut count = 0;
    for at in 0..writes {
        let found = read(volume, at * WRITE_BYTES as u64, WRITE_BYTES).await;
        assert!(found.iter().all(|byte| *byte == found[0]), "a write is whole or not there");
        match found[0] {
            0 => continue,
            byte => assert_eq!((byte, count), (byte_of(at), at), "what was written, in order"),
        }
        count += 1;
    }
    count
}

async fn is_all_there(volume: &VolumeDevice, writes: u64) {
    for at in 0..writes {
        let found = read(volume, at * WRITE_BYTES as u64, WRITE_BYTES).await;
        assert!(found.iter().all(|byte| *byte == byte_of(at)), "write {at}");
    }
}

/// Opening is refused, with force too; reading gives `readable_writes` writes and reports a cut log. Without
/// `how`, no drive can read the header.
fn is_refused_and_read(mut killed: Killed, (lost, how): (usize, Option<Loss>), readable_writes: Range<u64>) {
    let (segment, writes, geometry) = (killed.log[lost].clone(), killed.writes, killed.geometry);
    if let Some(how) = how {
        spoil(&killed.scene.drives, geometry, &segment.slots, how);
    }
    let number = segment.number;
    killed.scene.run(move |world, devices| async move {
        let devices = match how {
            Some(_) => devices,
            None => scratch(devices, geometry, &segment),
        };
        for forced in [false, true] {
            let setting = OpenSetting { forced, ..OpenSetting::default() };
            let tried = check_opens(&world, &devices, setting).await;
            let refused = open(&world, &devices, setting).await.err().expect("acknowledged writes are gone");
            assert!(matches!(refused, Error::NoLogHeader { .. }), "{refused}");
            assert!(refused.to_string().contains(&format!("log segment {number}")), "{refused}");
            assert_eq!(tried.expect_err("it does not open").to_string(), refused.to_string());
        }
        let pool = open_read_only(&devices, CACHE).await.expect("it can be read");
        let log = &pool.condition().log;
        assert!(log.is_cut_short() && log.may_go_on && pool.condition().may_be_older(), "{log:?}");
        assert_eq!(log.missing_records(), None, "nobody knows how many");
        let count = readable(&pool.volume("mail").expect("it is known"), writes).await;
        assert!(readable_writes.contains(&count), "{count} of {writes} writes, not {readable_writes:?}");
    });
}

#[test]
fn a_log_whose_first_header_is_gone_on_all_copies_is_no_empty_log() {
    for (seed, how) in [(90, Some(Loss::Zeroed)), (91, Some(Loss::Rotten)), (92, None)] {
        let killed = killed(seed, 3, 3 * PER_SEGMENT);
        assert!(killed.log.len() >= 3, "{} segments", killed.log.len());
        is_refused_and_read(killed, (0, how), PER_SEGMENT - 2..PER_SEGMENT + 1);
    }
}

#[test]
fn a_log_whose_last_header_is_gone_on_all_copies_is_read_to_the_end_of_that_segment() {
    for (seed, how) in [(93, Some(Loss::Zeroed)), (94, Some(Loss::Rotten)), (95, None)] {
        let killed = killed(seed, 3, 3 * PER_SEGMENT);
        let (last, writes) = (killed.log.len() - 1, killed.writes);
        is_refused_and_read(killed, (last, how), writes..writes + 1);
    }
}

#[test]
fn where_the_log_goes_on_behind_a_lost_header_the_one_before_says_so() {
    let mut killed = killed(97, 3, 4 * PER_SEGMENT);
    for segment in &killed.log[1..3] {
        spoil(&killed.scene.drives, killed.geometry, &segment.slots, Loss::Zeroed);
    }
    assert!(killed.log.len() > 3, "a header is left behind them");
    let writes = killed.writes;
    killed.scene.run(move |world, devices| async move {
        let pool = open_read_only(&devices, CACHE).await.expect("it can be read");
        assert!(!pool.condition().log.is_cut_short(), "{:?}", pool.condition().log);
        assert_eq!(readable(&pool.volume("mail").expect("it is known"), writes).await, writes);
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("nothing is missing");
        is_all_there(&VolumeDevice(pool.volume("mail").expect("it is there")), writes).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn the_only_record_of_a_segment_without_a_header_is_not_forgotten() {
    // Nothing behind that record proves that it was acknowledged.
    let all = killed(96, 3, PER_SEGMENT + 10);
    let first_in_second = (1..PER_SEGMENT + 10).find(|&writes| killed(96, 3, writes).log.len() == 2);
    let writes = first_in_second.expect("so many fill a segment");
    let killed = killed(96, 3, writes);
    assert_eq!(all.log[..2], killed.log[..], "a seed is a run");
    is_refused_and_read(killed, (1, Some(Loss::Zeroed)), writes..writes + 1);
}

#[test]
fn with_a_header_on_one_copy_a_log_is_whole() {
    for (seed, lost, drive) in [(100, 0, 0), (101, 0, 1), (102, 1, 0), (103, 2, 1)] {
        let mut killed = killed(seed, 2, 3 * PER_SEGMENT);
        let slot = killed.log[lost].slots[drive];
        spoil(&killed.scene.drives, killed.geometry, &[slot], Loss::Zeroed);
        killed.scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("another copy has it");
            let volume = VolumeDevice(pool.volume("mail").expect("it is there"));
            is_all_there(&volume, 3 * PER_SEGMENT).await;
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn segments_ahead_of_the_log_need_no_header() {
    let mut killed = killed(104, 3, PER_SEGMENT / 2);
    assert!(!killed.ahead.is_empty(), "it has successors");
    for slot in killed.ahead.iter().flat_map(|segment| &segment.slots) {
        let at = killed.geometry.slot_start_bytes(slot.slot);
        killed.scene.drives[usize::from(slot.member.0)].poke(at, &[0x5a; BLOCK_BYTES]);
    }
    killed.scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("nothing is missing");
        let volume = VolumeDevice(pool.volume("mail").expect("it is there"));
        is_all_there(&volume, PER_SEGMENT / 2).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_log_that_may_go_on_where_no_drive_is_there_opens_by_force_alone() {
    // Its last segment is on two of the drives; the rest are more than half.
    let mut tried = 0;
    for (drives, segments) in (5..8).flat_map(|drives| (1..7).map(move |segments| (drives, segments))) {
        // No checkpoint knows the segments from the sixth on, only the header before does.
        let mut killed = killed(110 + drives, drives as usize, segments * PER_SEGMENT + 20);
        let members = |segment: &MirroredSegment| -> Vec<usize> {
            segment.slots.iter().map(|slot| usize::from(slot.member.0)).collect()
        };
        let (last, earlier) = killed.log.split_last().expect("the log begins somewhere");
        let away = members(last);
        if !earlier.iter().all(|segment| members(segment).iter().any(|member| !away.contains(member))) {
            continue;
        }
        tried += 1;
        let writes = killed.writes;
        killed.scene.run(move |world, devices| async move {
            let there = (0..devices.len()).filter(|drive| !away.contains(drive));
            let there: Vec<_> = there.map(|drive| Rc::clone(&devices[drive])).collect();
            let refused = open(&world, &there, OpenSetting::default()).await.err();
            let is_for_them = matches!(
                &refused,
                Some(Error::OpenRefused(OpenRefusal::TooFewDrives(drives))) if drives.len() == away.len()
            );
            assert!(
                is_for_them,
                "acknowledged writes lie on drives {away:?} alone, and it said: {refused:?}"
            );
            let pool =
                open(&world, &devices, OpenSetting::default()).await.expect("all of them have all of it");
            let volume = VolumeDevice(pool.volume("mail").expect("it is there"));
            is_all_there(&volume, writes).await;
            pool.close().await.expect("it closes");
        });
    }
    assert!(tried > 5, "{tried} pools whose last segment lies apart");
}
