//! Pools opened for reading only, intact and damaged: all that exists is read, all that is missing is
//! reported, nothing is written.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, read, small, write};
use array::{
    election::OpenRefusal,
    error::Error,
    format::{
        BLOCK_BYTES, DriveId, MirroredSegment, NodePointer, PoolGeometry, RedundancyClass, SegmentBlock,
        SnapshotId, Superblock,
    },
    pool::{
        OpenSetting, PartContent, ReadOnlyPool, ReadOnlyVolume, UnusedReason, VolumeSetting, check_opens,
        open, open_read_only,
    },
    superblocks::read_places,
};
use std::{ops::Range, rc::Rc};
use world::{BlockDevice, ByteCount, ByteOffset, IoErrorKind, World, sim::SimDrive};

const CACHE: usize = 1 << 20;
const DRIVE_BYTES: u64 = 101 * MIB;

/// A checksum over all bytes of each drive.
fn digests(drives: &[Rc<SimDrive>]) -> Vec<u32> {
    let digest = |drive: &Rc<SimDrive>| {
        let mut bytes = vec![0; DRIVE_BYTES as usize];
        drive.peek(0, &mut bytes);
        array::format::checksum::crc32c(&bytes)
    };
    drives.iter().map(digest).collect()
}

async fn opened(devices: &[Rc<dyn BlockDevice>]) -> Rc<ReadOnlyPool> {
    open_read_only(devices, CACHE).await.expect("a drive has a superblock")
}

/// Ends the pool without further writes, like a killed process.
async fn kill(world: &World, pool: Rc<array::pool::Pool>) {
    drop(pool);
    world.sleep(std::time::Duration::from_millis(1)).await;
}

async fn superblock(device: &Rc<dyn BlockDevice>) -> Superblock {
    read_places(device).await.newest.expect("it has one")
}

/// Overwrites blocks of a segment's data in every copy.
fn destroy(drives: &[Rc<SimDrive>], of: (PoolGeometry, &MirroredSegment), blocks: Range<u32>) {
    let (geometry, segment) = of;
    for slot in &segment.slots {
        let at = geometry.slot_start_bytes(slot.slot) + (1 + u64::from(blocks.start)) * BLOCK_BYTES as u64;
        drives[usize::from(slot.member.0)].poke(at, &vec![0; blocks.len() * BLOCK_BYTES]);
    }
}

fn destroy_node(
    drives: &[Rc<SimDrive>],
    superblock: &Superblock,
    segments: &[MirroredSegment],
    node: NodePointer,
) {
    let segment = segments.iter().find(|segment| segment.number == node.segment).expect("it is known");
    let SegmentBlock(block) = node.block;
    destroy(drives, (superblock.geometry, segment), block..block + u32::from(node.blocks));
}

async fn byte_at(volume: &ReadOnlyVolume, at: u64) -> Option<u8> {
    let read = volume.read(ByteOffset(at), vec![world::Buffer::zeroed(4096)]).await;
    match read {
        Ok(read) => {
            assert!(read[0].iter().all(|byte| *byte == read[0][0]));
            Some(read[0][0])
        }
        Err(error) => {
            assert_eq!(error.kind(), IoErrorKind::Medium, "{error}");
            None
        }
    }
}

/// Checks that device, parts and survey agree.
async fn agrees(volume: &ReadOnlyVolume) {
    let survey = volume.survey(|_| ()).await;
    let parts = volume.parts(0..volume.size_bytes()).await.expect("it is the volume");
    let mut at = 0;
    for part in &parts {
        assert_eq!(part.range.start, at, "parts follow each other");
        at = part.range.end;
        let extents =
            volume.extents(ByteOffset(part.range.start), ByteCount(part.range.end - part.range.start)).await;
        let is_hole = matches!(part.content, PartContent::Hole);
        assert!(extents.expect("it is in the volume").iter().all(|extent| extent.is_hole == is_hole));
        match &part.content {
            PartContent::Data(data) => {
                assert_eq!(data.len() as u64, part.range.end - part.range.start);
                assert_eq!(&read(volume, part.range.start, data.len()).await[..], &data[..]);
            }
            PartContent::Hole => assert_eq!(byte_at(volume, part.range.start).await, Some(0)),
            PartContent::Unreadable(_) => assert_eq!(byte_at(volume, part.range.start).await, None),
        }
    }
    assert_eq!(at, volume.size_bytes());
    let lost = parts.iter().filter(|part| matches!(part.content, PartContent::Unreadable(_)));
    let lost: Vec<_> = lost.map(|part| part.range.clone()).collect();
    assert_eq!(survey.unreadable, lost);
}

#[test]
fn a_killed_pool_reads_as_acknowledged_and_no_byte_of_it_changes() {
    let mut scene = Scene::new(71, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        for at in 0..64 {
            write(&volume, at * 65_536, 1, 65_536).await;
        }
        pool.snapshot(&["mail"], "monday", SnapshotId([9; 16])).await.expect("it is made");
        pool.checkpoint().await.expect("it is made");
        for at in 0..16 {
            write(&volume, at * 65_536, 2, 65_536).await;
        }
        volume.discard(ByteOffset(63 * 65_536), ByteCount(65_536)).await.expect("it is let go");
        kill(&world, pool).await;
    });
    let before = digests(&scene.drives);
    scene.run(|_, devices| async move {
        let pool = opened(&devices).await;
        let condition = pool.condition();
        assert!(condition.is_whole() && condition.log.records > 0, "{condition:?}");
        assert_eq!(condition.log.missing_records(), Some(0));
        let (volume, monday) = (pool.volume("mail").unwrap(), pool.snapshot("mail", "monday").unwrap());
        for at in 0..64 {
            let expected = if at < 16 {
                2
            } else if at == 63 {
                0
            } else {
                1
            };
            assert_eq!(byte_at(&volume, at * 65_536).await, Some(expected), "{at}");
            assert_eq!(byte_at(&monday, at * 65_536).await, Some(1), "{at}");
        }
        agrees(&volume).await;
        agrees(&monday).await;
        let refused = volume.write(ByteOffset(0), Vec::new(), world::Stability::Stable).await;
        assert_eq!(refused.expect_err("it is only read").kind(), IoErrorKind::ReadOnly);
        assert_eq!(pool.snapshots("mail").unwrap()[0].name, "monday");
        assert!(matches!(pool.volume("none"), Err(Error::NoVolume(_))));
    });
    assert_eq!(digests(&scene.drives), before, "nothing was written");
    // An opening for writing finds the same.
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = array::volume::VolumeDevice(pool.volume("mail").unwrap());
        assert_eq!(read(&volume, 15 * 65_536, 512).await, [2; 512]);
    });
}

#[test]
fn a_log_with_a_hole_is_read_up_to_it_and_the_missing_records_are_counted() {
    let mut scene = Scene::new(72, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        pool.checkpoint().await.expect("it is made");
        for at in 0..10 {
            write(&volume, at * 4096, at as u8 + 1, 4096).await;
        }
        kill(&world, pool).await;
    });
    let drives = scene.drives.clone();
    scene.run(move |_, devices| async move {
        // Each record is a header and a block of data. The fifth one is destroyed in all copies.
        let superblock = superblock(&devices[0]).await;
        let log = &superblock.checkpoint.log;
        let fifth = log.block.0 + 8;
        destroy(&drives, (superblock.geometry, &log.segment), fifth..fifth + 1);
    });
    scene.run(|world, devices| async move {
        let refused = open(&world, &devices, OpenSetting::default()).await.err().expect("it is damaged");
        assert!(matches!(refused, Error::LostRecords { .. }), "{refused}");
        assert!(!refused.to_string().contains("stays read-only"), "{refused}");
        for forced in [false, true] {
            let setting = OpenSetting { forced, ..OpenSetting::default() };
            let tried = check_opens(&world, &devices, setting).await.expect_err("force does not help");
            assert_eq!(tried.to_string(), refused.to_string());
        }
    });
    let digests_of_refused = digests(&scene.drives);
    scene.run(|_, devices| async move {
        let pool = opened(&devices).await;
        let log = &pool.condition().log;
        assert!(log.is_cut_short() && pool.condition().may_be_older());
        // The last record cannot say that it was acknowledged itself.
        assert_eq!((log.records, log.missing_records()), (4, Some(5)), "{log:?}");
        let volume = pool.volume("mail").unwrap();
        for at in 0..10 {
            let expected = if at < 4 { at as u8 + 1 } else { 0 };
            assert_eq!(byte_at(&volume, at * 4096).await, Some(expected), "{at}");
        }
        agrees(&volume).await;
    });
    assert_eq!(digests(&scene.drives), digests_of_refused, "nothing was written");
}

#[test]
fn a_lost_node_loses_the_blocks_below_it_and_no_others() {
    let mut scene = Scene::new(73, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
        // Every other block: all runs have one block, so there are many leaves.
        for round in 0..64u64 {
            for at in 0..64 {
                write(&volume, (round * 128 + at * 2) * 4096, (round + 1) as u8, 4096).await;
            }
        }
        pool.snapshot(&["mail"], "monday", SnapshotId([9; 16])).await.expect("it is made");
        pool.close().await.expect("it closes");
    });
    let drives = scene.drives.clone();
    scene.run(move |_, devices| async move {
        let superblock = superblock(&devices[0]).await;
        let root = superblock.checkpoint.roots.head.expect("there are versions");
        assert!(root.level > 0, "there are several leaves");
        // Nodes of the map are in one segment, and the one before the root is a leaf.
        let leaf = leaf_before(&drives, &superblock, root);
        for (drive, at) in leaf {
            drives[drive].poke(at, &[0; 4096]);
        }
    });
    let before = digests(&scene.drives);
    scene.run(|_, devices| async move {
        let pool = opened(&devices).await;
        assert!(pool.condition().is_whole(), "a survey finds it: {:?}", pool.condition());
        for volume in [pool.volume("mail").unwrap(), pool.snapshot("mail", "monday").unwrap()] {
            let survey = volume.survey(|_| ()).await;
            assert_eq!(survey.unreadable.len(), 1, "{:?}", survey.unreadable);
            let lost = survey.unreadable_bytes();
            assert!((MIB..48 * MIB).contains(&lost), "a leaf of several: {lost}");
            for at in (0..64 * 128).step_by(2) {
                let is_lost = survey.unreadable[0].contains(&(at * 4096));
                let expected = (!is_lost).then_some((at / 128 + 1) as u8);
                assert_eq!(
                    byte_at(&volume, at * 4096).await,
                    expected.filter(|_| at / 128 < 64),
                    "block {at}"
                );
            }
            agrees(&volume).await;
        }
    });
    assert_eq!(digests(&scene.drives), before);
}

/// Location of each copy of the node before `node` in its segment, as drive and byte.
fn leaf_before(drives: &[Rc<SimDrive>], superblock: &Superblock, node: NodePointer) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    for (index, drive) in drives.iter().enumerate() {
        let geometry = superblock.geometry;
        for slot in 0..100 {
            let start = geometry.slot_start_bytes(array::format::SlotNumber(slot));
            let at = start + u64::from(1 + node.block.0) * 4096;
            let mut bytes = vec![0; node.node_bytes()];
            drive.peek(at, &mut bytes);
            if node.seals(&bytes) {
                found.push((index, at - node.node_bytes() as u64));
            }
        }
    }
    assert_eq!(found.len(), 2, "each node has two copies");
    found
}

#[test]
fn if_the_newest_catalogue_is_lost_the_previous_one_and_a_longer_log_restore_everything() {
    let mut scene = Scene::new(74, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        write(&volume, 0, 1, 65_536).await;
        pool.checkpoint().await.expect("it is made");
        write(&volume, 0, 2, 4096).await;
        pool.checkpoint().await.expect("it is made");
        write(&volume, 4096, 3, 4096).await;
        kill(&world, pool).await;
    });
    let drives = scene.drives.clone();
    scene.run(move |_, devices| async move {
        let superblock = superblock(&devices[0]).await;
        let root = superblock.checkpoint.roots.catalogue.expect("it has rows");
        destroy_node(&drives, &superblock, &superblock.checkpoint.catalogue_segments, root);
    });
    let before = digests(&scene.drives);
    scene.run(|world, devices| async move {
        let refused = check_opens(&world, &devices, OpenSetting::default()).await.expect_err("it is damaged");
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
        let pool = opened(&devices).await;
        let condition = pool.condition();
        assert_eq!(condition.skipped.len(), 1, "{condition:?}");
        assert!(condition.may_be_older() && condition.log.missing_records() == Some(0), "{condition:?}");
        let volume = pool.volume("mail").unwrap();
        assert_eq!(byte_at(&volume, 0).await, Some(2), "the log goes on through the newer checkpoint");
        assert_eq!(byte_at(&volume, 4096).await, Some(3));
        assert_eq!(byte_at(&volume, 8192).await, Some(1));
        agrees(&volume).await;
    });
    assert_eq!(digests(&scene.drives), before);
}

#[test]
fn half_of_the_drives_give_half_of_the_data() {
    let mut scene = Scene::new(75, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..32 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        pool.close().await.expect("it closes");
    });
    let before = digests(&scene.drives);
    scene.run(|world, devices| async move {
        let mut read = 0;
        for [one, other] in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
            let half = [Rc::clone(&devices[one]), Rc::clone(&devices[other])];
            let refused =
                check_opens(&world, &half, OpenSetting::default()).await.expect_err("half is too few");
            assert!(matches!(refused, Error::OpenRefused(_)), "{refused}");
            let pool = opened(&half).await;
            let condition = pool.condition();
            assert!(!condition.is_whole() && !condition.may_be_newer_on.is_empty(), "{condition:?}");
            assert_eq!(condition.drives.iter().filter(|drive| drive.given.is_none()).count(), 2);
            let Ok(volume) = pool.volume("mail") else {
                assert!(!condition.catalogue_gaps.is_empty(), "it is said why: {condition:?}");
                continue;
            };
            agrees(&volume).await;
            let survey = volume.survey(|_| ()).await;
            assert!(survey.unreadable_bytes() < 32 * MIB, "{survey:?}");
            for at in 0..32u64 * 256 {
                let found = byte_at(&volume, at * 4096).await;
                assert!(found.is_none() || found == Some((at / 256) as u8 + 1), "block {at}: {found:?}");
                read += usize::from(found.is_some());
            }
        }
        assert!(read > 3 * 32 * 256, "most of it, over all halves: {read}");
    });
    assert_eq!(digests(&scene.drives), before);
}

#[test]
fn a_stale_drive_is_read_for_blocks_of_which_it_has_the_only_copy() {
    let mut scene = Scene::new(76, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        write(&volume, 0, 1, MIB as usize).await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        // The second drive is absent, and the pool continues.
        let forced = OpenSetting { forced: true, ..small() };
        let pool = open(&world, &devices[..1], forced).await.expect("it opens");
        let volume = array::volume::VolumeDevice(pool.volume("mail").unwrap());
        write(&volume, 4096, 2, 4096).await;
        pool.close().await.expect("it closes");
    });
    let drives = scene.drives.clone();
    scene.run(move |_, devices| async move {
        // Blocks written while both were present are corrupted on the first.
        let superblock = superblock(&devices[0]).await;
        for slot in 0..100u32 {
            let at = superblock.geometry.slot_start_bytes(array::format::SlotNumber(slot));
            for block in 1..256 {
                let mut bytes = [0; 4096];
                drives[0].peek(at + block * 4096, &mut bytes);
                if bytes == [1; 4096] {
                    drives[0].poke(at + block * 4096, &[7; 4096]);
                }
            }
        }
    });
    let before = digests(&scene.drives);
    scene.run(|_, devices| async move {
        let alone = opened(&devices[..1]).await;
        let volume = alone.volume("mail").unwrap();
        assert_eq!((byte_at(&volume, 0).await, byte_at(&volume, 4096).await), (None, Some(2)));
        let pool = opened(&devices).await;
        let behind: Vec<_> = pool.condition().drives.iter().map(|drive| drive.is_behind).collect();
        assert_eq!(behind, [false, true]);
        let volume = pool.volume("mail").unwrap();
        assert_eq!(byte_at(&volume, 0).await, Some(1), "the copy of the drive that fell behind");
        assert_eq!(byte_at(&volume, 4096).await, Some(2), "and never what is older than the other one knows");
        agrees(&volume).await;
    });
    assert_eq!(digests(&scene.drives), before);
}

#[test]
fn a_trial_opening_tells_if_force_helps_and_writes_nothing() {
    let mut scene = Scene::new(77, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        write(&volume, 0, 1, MIB as usize).await;
        kill(&world, pool).await;
    });
    let before = digests(&scene.drives);
    scene.run(|world, devices| async move {
        let one = &devices[..1];
        let refused =
            check_opens(&world, one, OpenSetting::default()).await.expect_err("the other may be newer");
        let missing = vec![DriveId([2; 16])];
        assert!(
            matches!(refused, Error::OpenRefused(OpenRefusal::MayBeNewerElsewhere(away)) if away == missing)
        );
        let forced = OpenSetting { forced: true, ..OpenSetting::default() };
        check_opens(&world, one, forced).await.expect("it would open by force");
        check_opens(&world, &devices, OpenSetting::default()).await.expect("it would open");
    });
    assert_eq!(digests(&scene.drives), before, "a trial writes nothing");
}

#[test]
fn devices_of_no_use_are_listed_with_the_reason() {
    let mut scene = Scene::new(78, 3);
    let blank = scene.simulation.add_drive(world::sim::DriveOptions::new(ByteCount(DRIVE_BYTES)));
    scene.drives.push(blank);
    scene.run(|_, devices| async move {
        assert!(matches!(
            open_read_only(&devices[3..], CACHE).await,
            Err(Error::OpenRefused(OpenRefusal::NoPool))
        ));
        let twice = [&devices[..], &devices[..1]].concat();
        let pool = opened(&twice).await;
        let not_used = [(3, UnusedReason::NoSuperblock), (4, UnusedReason::Copy(DriveId([1; 16])))];
        assert_eq!(pool.condition().not_used, not_used);
        assert!(pool.volumes().is_empty() && pool.condition().is_whole());
    });
}

#[test]
fn data_that_only_stale_drives_have_is_counted() {
    let mut scene = Scene::new(79, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let raid0 = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        let volume = make_volume_with(&pool, "scratch", 16 * MIB, raid0).await.expect("it is made");
        for at in 0..16 {
            write(&volume, at * MIB, 1, MIB as usize).await;
        }
        // Blocks are destaged to one copy.
        world.sleep(std::time::Duration::from_secs(600)).await;
        assert!(pool.only_copies_elsewhere().is_empty());
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let one = &devices[..1];
        let read_only = opened(one).await;
        let forced = OpenSetting { forced: true, ..small() };
        let pool = open(&world, one, forced).await.expect("it opens");
        let elsewhere = pool.only_copies_elsewhere();
        let bytes = elsewhere[&DriveId([2; 16])];
        assert!(elsewhere.len() == 1 && (2 * MIB..15 * MIB).contains(&bytes), "{elsewhere:?}");
        assert_eq!(read_only.bytes_without_copy(), bytes, "known before it was forced open");
        pool.close().await.expect("it closes");
    });
}
