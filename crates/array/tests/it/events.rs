//! Events of a pool: each incident is reported once, in order.

use crate::scene::{MIB, Scene, make_volume, write};
use array::{
    format::DriveId,
    pool::{
        Alarm, NewDrive, OpenSetting, Pool,
        events::{BackgroundTask, EventKind, PoolEvent, PoolEventReader},
        open,
    },
    volume::VolumeDevice,
};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability,
    sim::{DriveOptions, FaultPlan},
};

fn dead() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}

/// All events that were not read yet.
fn read_all(reader: &mut PoolEventReader) -> Vec<PoolEvent> {
    std::iter::from_fn(|| reader.try_next()).collect()
}

/// A label of one or two words for each event.
fn labels(events: &[PoolEvent]) -> Vec<String> {
    let level = |alarm: &Option<Alarm>| alarm.map_or(0, |alarm| alarm as u8);
    let label = |event: &PoolEvent| match &event.kind {
        EventKind::DriveLoss { drive, .. } => format!("{} lost", drive.serial),
        EventKind::StaleDrive { drive } => format!("{} stale", drive.serial),
        EventKind::DriveOutOfSpace { drive, .. } => format!("{} out of space", drive.serial),
        EventKind::DriveReturn { drive } => format!("{} back", drive.serial),
        EventKind::DriveAddition { drive } => format!("{} added", drive.serial),
        EventKind::RedundancyLoss(_) => "redundancy lost".to_owned(),
        EventKind::FullRedundancy(_) => "whole".to_owned(),
        EventKind::Alarm { before, now, .. } => format!("{} to {} %", level(before), level(now)),
        EventKind::WriteRefusal { .. } => "refusing".to_owned(),
        EventKind::WriteAdmission { .. } => "admitting".to_owned(),
        EventKind::ScrubFindings { .. } => "findings".to_owned(),
        EventKind::TaskFailure { task, .. } => format!("{task} failed"),
        EventKind::Stop { .. } => "stopped".to_owned(),
        EventKind::Overflow { events } => format!("{events} missed"),
        EventKind::DriveLeaving { drive } => format!("{} leaves", drive.serial),
        EventKind::DriveLeft { drive } => format!("{} has left", drive.serial),
        EventKind::DriveKept { drive } => format!("{} is kept", drive.serial),
        EventKind::DriveForgotten { drive } => format!("{} is forgotten", drive.serial),
        EventKind::FormatRaised { from, to } => format!("format level {from} to {to}"),
        EventKind::SparingChange { sparing } => format!("room for {} drives", sparing.kept_drives),
        EventKind::DomainsShared { segments, .. } => format!("{segments} segments in one domain"),
        EventKind::DomainsApart => "domains apart".to_owned(),
        EventKind::SetsSpanned { segments, .. } => format!("{segments} segments across sets"),
        EventKind::SetsKept => "sets kept".to_owned(),
        EventKind::SetChange { sets } => format!("{sets} sets"),
        EventKind::LevellingStart { .. } => "levelling".to_owned(),
        EventKind::LevellingEnd { outcome, .. } => format!("{outcome:?}"),
        EventKind::LogPinLoss { bytes } => format!("{bytes} bytes of pinned log"),
        EventKind::VolumeImported { volume, .. } => format!("{volume} imported"),
    };
    events.iter().map(label).collect()
}

async fn filled(pool: &Rc<Pool>, mib: u64) -> VolumeDevice {
    let volume = make_volume(pool, "mail", 400 * MIB).await.expect("thin");
    for at in 0..mib {
        write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
    }
    volume
}

async fn try_write(volume: &VolumeDevice, at: u64) -> world::IoResult<()> {
    volume.write(ByteOffset(at), vec![Arc::new(Buffer::zeroed(65536))], Stability::Stable).await
}

#[test]
fn a_drive_that_fails_under_load_is_reported_with_its_error_and_redundancy_is_restored() {
    let mut scene = Scene::new(61, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let mut reader = pool.events();
        let volume = filled(&pool, 20).await;
        world.sleep(Duration::from_secs(1)).await;
        assert!(read_all(&mut reader).is_empty(), "nothing happened");
        drives[2].set_faults(dead());
        for at in 0..20 {
            write(&volume, at * MIB, 100, MIB as usize).await;
        }
        world.sleep(Duration::from_secs(60)).await;
        let events = read_all(&mut reader);
        assert_eq!(labels(&events), ["S2 lost", "redundancy lost", "whole"]);
        let EventKind::DriveLoss { drive, error } = &events[0].kind else { unreachable!() };
        assert_eq!((drive.member.0, drive.drive, drive.given), (2, DriveId([3; 16]), Some(2)));
        let story = error.to_string();
        assert!(story.contains("of simulated drive 2: ") && story.contains("FailedWrite"), "{story}");
        let EventKind::RedundancyLoss(lost) = &events[1].kind else { unreachable!() };
        assert_eq!((lost.copies, lost.drives), (2, 3), "{lost:?}");
        assert!(lost.segments > 3 && lost.bytes == lost.segments * MIB, "{lost:?}");
        assert_eq!(lost.single_copy_bytes, lost.bytes, "{lost:?}");
        let EventKind::FullRedundancy(whole) = &events[2].kind else { unreachable!() };
        assert_eq!((whole.segments, whole.single_copy_bytes), (0, 0), "{whole:?}");
        assert!(events.windows(2).all(|two| two[0].time <= two[1].time), "{events:?}");
        pool.close().await.expect("it closes");
        assert!(reader.next().await.is_none(), "closing is no accident, and ends the stream");
    });
}

#[test]
fn a_pool_of_two_drives_that_loses_one_lacks_redundancy_until_another_is_added() {
    let mut scene = Scene::new(62, 2);
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        filled(&pool, 8).await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices[1..], OpenSetting { forced: true, ..OpenSetting::default() }).await;
        let pool = pool.expect("it opens");
        let mut reader = pool.events();
        world.sleep(Duration::from_secs(20)).await;
        let events = read_all(&mut reader);
        assert_eq!(labels(&events), ["S0 lost", "redundancy lost"], "one drive has no second copy");
        let EventKind::DriveLoss { drive, error } = &events[0].kind else { unreachable!() };
        assert_eq!((drive.given, error.kind()), (None, IoErrorKind::NotFound));
        let new = NewDrive {
            drive: DriveId([9; 16]),
            serial: "SPARE".to_owned(),
            device: spare as _,
            domain: None,
        };
        pool.add_drive(&new).await.expect("it is taken in");
        pool.rebuild().await.expect("nothing fails");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(labels(&read_all(&mut reader)), ["SPARE added", "whole"]);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_drive_that_returns_out_of_date_is_reported_as_stale() {
    let mut scene = Scene::new(63, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        filled(&pool, 4).await;
        pool.close().await.expect("it closes");
        let pool = open(&world, &devices[..2], OpenSetting::default()).await.expect("two of three");
        // It is waited for.
        world.sleep(Duration::from_secs(320)).await;
        assert_eq!(labels(&read_all(&mut pool.events())), ["S2 lost", "redundancy lost", "whole"]);
        pool.close().await.expect("it closes");
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        world.sleep(Duration::from_secs(20)).await;
        let events = read_all(&mut pool.events());
        assert_eq!(labels(&events), ["S2 stale"]);
        let EventKind::StaleDrive { drive } = &events[0].kind else { unreachable!() };
        assert_eq!(drive.given, Some(2));
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_drive_that_does_not_answer_is_reported_with_that_reason() {
    let mut scene = Scene::new(64, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let setting = OpenSetting { answer_within: Duration::from_secs(10), ..OpenSetting::default() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = filled(&pool, 8).await;
        drives[1].set_faults(FaultPlan { stuck_percent: 100.0, ..FaultPlan::none() });
        for at in 0..8 {
            write(&volume, at * MIB, 9, MIB as usize).await;
        }
        world.sleep(Duration::from_secs(60)).await;
        let events = read_all(&mut pool.events());
        assert_eq!(labels(&events), ["S1 lost", "redundancy lost", "whole"]);
        let EventKind::DriveLoss { error, .. } = &events[0].kind else { unreachable!() };
        assert_eq!(error.to_string(), "no answer for 10 s: the drive is failed");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn alarms_and_refusals_begin_while_a_pool_fills_and_end_when_it_is_emptied() {
    let mut scene = Scene::of(65, 2, &DriveOptions::new(ByteCount(301 * MIB)));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let mut reader = pool.events();
        let volume = make_volume(&pool, "mail", 600 * MIB).await.expect("thin");
        let mut at = 0;
        while try_write(&volume, at).await.is_ok() {
            at += 65536;
        }
        assert!(try_write(&volume, at).await.is_err(), "refused once more");
        world.sleep(Duration::from_secs(1)).await;
        let filling = labels(&read_all(&mut reader));
        assert_eq!(filling[..3], ["0 to 80 %", "80 to 90 %", "90 to 95 %"]);
        assert!(filling.ends_with(&["refusing".to_owned()]), "{filling:?}");
        assert!(filling.len() <= 5, "each once, 100 % perhaps: {filling:?}");
        volume.discard(ByteOffset(0), ByteCount(at)).await.expect("it is discarded");
        for _ in 0..4 {
            pool.checkpoint().await.expect("it is made");
        }
        world.sleep(Duration::from_secs(20)).await;
        let emptying = labels(&read_all(&mut reader));
        assert!(emptying[0].ends_with(" to 0 %") && emptying[1..] == ["admitting"], "{emptying:?}");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_pool_that_stops_reports_it_once_with_the_reason() {
    let mut scene = Scene::new(66, 2);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let mut reader = pool.events();
        let volume = filled(&pool, 4).await;
        drives.iter().for_each(|drive| drive.set_faults(dead()));
        for at in 0..4 {
            try_write(&volume, at * MIB).await.expect_err("no drive is left");
        }
        world.sleep(Duration::from_secs(10)).await;
        let events = read_all(&mut reader);
        let stops = labels(&events).iter().filter(|label| *label == "stopped").count();
        assert_eq!(stops, 1, "{events:?}");
        let EventKind::Stop { error } =
            &events.iter().find(|event| matches!(event.kind, EventKind::Stop { .. })).unwrap().kind
        else {
            unreachable!()
        };
        assert_eq!(Some(error.to_string()), pool.failure());
        pool.close().await.expect_err("it has stopped");
        assert!(labels(&read_all(&mut reader)).iter().all(|label| label != "stopped"));
        assert!(reader.next().await.is_none());
    });
}

#[test]
fn a_scrub_that_fails_repeatedly_is_reported_once() {
    let mut scene = Scene::new(67, 2);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let setting = OpenSetting {
            scrub_every: Duration::from_secs(70),
            interval: Duration::from_secs(3600),
            cache_bytes: 0,
            ..OpenSetting::default()
        };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        filled(&pool, 8).await;
        pool.checkpoint().await.expect("it is made");
        let unreadable = FaultPlan { unreadable_percent: 100.0, ..FaultPlan::none() };
        drives.iter().for_each(|drive| drive.set_faults(unreadable.clone()));
        let reads = drives[0].statistics().reads;
        world.sleep(Duration::from_secs(15)).await;
        let reads_once = drives[0].statistics().reads;
        world.sleep(Duration::from_secs(45)).await;
        assert!(reads_once > reads && drives[0].statistics().reads > reads_once, "it was tried again");
        let events = read_all(&mut pool.events());
        assert_eq!(labels(&events), ["scrub failed"]);
        let EventKind::TaskFailure { task, is_retried, .. } = &events[0].kind else { unreachable!() };
        assert_eq!((*task, *is_retried), (BackgroundTask::Scrub, true));
    });
}
