//! Groups whose log generations stay until they are released.

use crate::{
    model::{self, Mix},
    simulated::{SimulatedDrive, open, read_all},
};
use maildb::{
    InstanceConfig, LogRetention, PageSize,
    log::LogFiles,
    planted::{LogBug, with_log_bug},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Directory, Random, sim::DriveOptions};

const CHANGES: Mix = Mix { body_bytes_max: 400, mailboxes: 10, delete_percent: 30.0 };

fn config() -> InstanceConfig {
    let mut config = model::config(PageSize::Kib4, ByteCount::kib(512));
    config.log_file = ByteCount::kib(64);
    config.checkpoint_depth = ByteCount::kib(128);
    config.log_retention = LogRetention::UntilReleased;
    config
}

/// The generations in the folder.
async fn generations(directory: &Rc<dyn Directory>) -> Vec<u32> {
    let files = LogFiles::scan(directory, "E00").await.expect("the logs can be read");
    files.iter().map(|file| file.header.generation).collect()
}

/// A group works, releases all logs that it may, and crashes; it comes back with every answered commit.
fn released_and_crashed(seed: u64) {
    let mut disk = SimulatedDrive::formatted(seed, DriveOptions::new(ByteCount::mib(64)));
    let rows = disk.run(move |world, directory| async move {
        let instance = open(&world, &directory, config()).await.expect("a new group opens");
        let table = model::mail_table(&instance.databases()[0]).await;
        let (mut session, mut rows) = (instance.session(), model::Rows::new());
        let mut random = Random::new(seed, "changes");
        model::change_at_random(&mut session, &table, &mut rows, &mut random, 1500, CHANGES).await;
        // Old pages are written about once a second.
        world.sleep(Duration::from_secs(3)).await;
        instance.checkpoint().await.expect("a checkpoint");
        let kept = generations(&directory).await;
        let newest = *kept.last().expect("there is a log");
        assert_eq!(kept, (1..=newest).collect::<Vec<_>>(), "all are kept");
        assert!(newest > 6, "{newest} generations");

        assert_eq!(instance.release_logs(4).await.expect("released"), 4);
        assert_eq!(generations(&directory).await, (4..=newest).collect::<Vec<_>>());
        model::change_at_random(&mut session, &table, &mut rows, &mut random, 300, CHANGES).await;
        instance.checkpoint().await.expect("lazy commits are stable");
        let oldest = instance.release_logs(u32::MAX).await.expect("released");
        let kept = generations(&directory).await;
        assert_eq!(kept.first(), Some(&oldest), "recovery needs the others");
        assert!(kept.len() > 1, "the checkpoint is generations behind: {kept:?}");
        rows
    });
    disk.simulation.cut_power();
    disk.run(move |world, directory| async move {
        let instance = open(&world, &directory, config()).await.expect("the group opens again");
        assert!(!instance.recovery().clean);
        assert!(
            read_all(&instance.databases()[0]).await.expect("it can be read") == rows,
            "every commit is there"
        );
        instance.close().await.expect("and closes");
    });
}

#[test]
fn logs_stay_until_they_are_released_and_those_of_recovery_stay_then() {
    (0..3).for_each(released_and_crashed);
}

#[test]
fn logs_released_beyond_the_checkpoint_are_noticed() {
    let bug = LogBug::ReleasedBeyondCheckpoint;
    let fails = with_log_bug(bug, || catch_unwind(AssertUnwindSafe(|| released_and_crashed(0))).is_err());
    assert!(fails, "nothing noticed {bug:?}");
}
