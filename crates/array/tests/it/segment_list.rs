//! The list of segments agrees with the counts of the pool: whole, degraded while a drive is lost, whole again.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, write};
use array::{
    format::{DriveId, RedundancyClass, SegmentKind},
    pool::{OpenSetting, Pool, SegmentFacts, SegmentStanding, VolumeSetting, open},
};
use std::{collections::BTreeSet, time::Duration};
use world::sim::FaultPlan;

fn all(pool: &Pool) -> Vec<SegmentFacts> {
    pool.segments_listed(0..pool.segment_number_end())
}

fn count(segments: &[SegmentFacts], standing: SegmentStanding) -> u64 {
    segments.iter().filter(|segment| segment.standing == standing).count() as u64
}

#[test]
fn each_segment_is_listed_once_with_its_drives_and_its_standing() {
    let mut scene = Scene::new(71, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 40 * MIB).await.expect("it is made");
        for at in 0..20 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        let segments = all(&pool);
        let numbers: BTreeSet<u32> = segments.iter().map(|segment| segment.number.0).collect();
        assert_eq!(numbers.len(), segments.len(), "each once");
        assert_eq!(count(&segments, SegmentStanding::Whole), segments.len() as u64);
        let in_use: BTreeSet<DriveId> = pool.drives_in_use().into_iter().collect();
        for segment in &segments {
            let of: BTreeSet<DriveId> = segment.drives.iter().copied().collect();
            assert!(of.len() == 2 && of.is_subset(&in_use), "two copies on two drives: {segment:?}");
            assert!(segment.live <= segment.size, "{segment:?}");
        }
        let live = |kind| -> u64 {
            let of_kind = segments.iter().filter(|segment| segment.kind == kind);
            of_kind.map(|segment| segment.live.0).sum()
        };
        assert_eq!(live(SegmentKind::Log) + live(SegmentKind::Data), 20 * MIB, "what was written");
        assert!(segments.iter().any(|segment| segment.is_open && segment.kind == SegmentKind::Log));
        let steps: Vec<_> = (0..pool.segment_number_end())
            .step_by(7)
            .flat_map(|from| pool.segments_listed(from..from + 7))
            .collect();
        assert_eq!(steps, segments, "steps give the same");

        drives[1].set_faults(FaultPlan {
            failed_write_percent: 100.0,
            failed_flush_percent: 100.0,
            ..FaultPlan::none()
        });
        let lost = pool.drives_in_use();
        while pool.degraded().segments == 0 {
            write(&volume, 30 * MIB, 1, MIB as usize).await;
            world.sleep(Duration::from_micros(100)).await;
        }
        let segments = all(&pool);
        let gone = lost.into_iter().find(|drive| !pool.drives_in_use().contains(drive)).expect("it is out");
        assert_eq!(count(&segments, SegmentStanding::Degraded), pool.degraded().segments);
        for segment in &segments {
            let is_short = segment.standing == SegmentStanding::Degraded;
            // A segment that was written when the drive failed has left its copy there.
            let lacks_one = segment.drives.contains(&gone) || segment.drives.len() == 1;
            assert_eq!(is_short, lacks_one, "{segment:?}");
        }
        pool.rebuild().await.expect("it ends");
        let segments = all(&pool);
        assert_eq!(count(&segments, SegmentStanding::Whole), segments.len() as u64, "all have two again");
    });
}

#[test]
fn a_raid0_segment_on_a_lost_drive_is_lost_and_no_other_one() {
    let mut scene = Scene::new(72, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let setting = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        let volume = make_volume_with(&pool, "scratch", 40 * MIB, setting).await.expect("it is made");
        for at in 0..20 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        pool.destage().await.expect("it ends");
        let single =
            |segments: &[SegmentFacts]| segments.iter().filter(|segment| segment.drives.len() == 1).count();
        assert!(single(&all(&pool)) >= 10, "older data has one copy");
        assert_eq!(count(&all(&pool), SegmentStanding::Lost), 0);
        drives[2].set_faults(FaultPlan {
            failed_write_percent: 100.0,
            failed_flush_percent: 100.0,
            ..FaultPlan::none()
        });
        while pool.drives_present() == 4 {
            write(&volume, 30 * MIB, 1, MIB as usize).await;
            world.sleep(Duration::from_micros(100)).await;
        }
        let lost = count(&all(&pool), SegmentStanding::Lost);
        assert!(lost > 0, "it had some of them");
        assert_eq!(lost, pool.degraded().lost);
    });
}
