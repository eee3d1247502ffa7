//! Backups brought forward with the logs of later backups and of the running group.

mod refused;
mod story;

use maildb::{
    log::{JoinEnd, LogJoinError},
    planted::{LogBug, with_log_bug},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use story::Story;

/// Every backup of a group reaches every later state, and no other.
fn brought_forward(seed: u64) {
    story::in_world(seed, async move |world| {
        let story = Story::new(&world, seed).await;
        for (index, base) in story.cuts.iter().enumerate() {
            let later: Vec<_> = story.cuts[index + 1..].iter().map(|cut| &cut.folder).collect();
            let newest = story.cuts.last().expect("there is a head");
            let (rows, summary) =
                story.recovered(&world, base, &later, JoinEnd::Newest).await.expect("joined");
            assert!(rows == newest.rows, "{summary:?}");
            assert_eq!(summary.parts.is_empty(), later.is_empty(), "{summary:?}");
            for cut in story.cuts[index + 1..].iter().filter(|cut| cut.is_frozen) {
                let border = JoinEnd::Generation(cut.generation - 1);
                let (rows, summary) = story.recovered(&world, base, &later, border).await.expect("joined");
                assert!(rows == cut.rows, "up to generation {}: {summary:?}", cut.generation - 1);
                let by = JoinEnd::Time(cut.time);
                let (rows, by_time) = story.recovered(&world, base, &later, by).await.expect("joined");
                assert!(rows == cut.rows, "up to {}: {by_time:?}", cut.time);
                assert_eq!(by_time.end, summary.end);
                assert!(by_time.commits > 0 && !cut.time.is_before(by_time.time), "{by_time:?}");
            }
        }
    });
}

/// The joining is killed at every write of it; the same call goes on.
fn killed(seed: u64) {
    story::in_world(seed, async move |world| {
        let story = Story::new(&world, seed).await;
        let [base, .., newest] = &story.cuts[..] else { unreachable!("there are several cuts") };
        let later: Vec<_> = story.cuts[1..].iter().map(|cut| &cut.folder).collect();
        for writes in (0..40).step_by(5) {
            let folder = base.folder.copy();
            let joined = story::proof(&world, &folder, &later, JoinEnd::Newest).await.expect("proven");
            folder.fail_after(writes);
            match joined.join().await {
                Ok(()) => break,
                Err(LogJoinError::Joining { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            // The folder holds a log by now, if a shorter one.
            let partly = folder.copy();
            drop(story.open_and_read(&world, &partly).await);
            let again = folder.copy();
            let joined = story::proof(&world, &again, &later, JoinEnd::Newest).await.expect("proven again");
            joined.join().await.expect("joined now");
            assert!(story.open_and_read(&world, &again).await == newest.rows);
        }
    });
}

#[test]
fn a_backup_is_brought_forward_to_any_later_state() {
    (0..4).for_each(brought_forward);
}

#[test]
fn joining_goes_on_after_it_was_killed() {
    killed(0);
}

#[test]
fn what_is_no_one_log_is_refused_and_nothing_changes() {
    (0..2).for_each(refused::all);
}

#[test]
fn the_end_of_a_bulk_load_is_refused() {
    refused::bulk_load(1);
}

#[test]
fn every_planted_bug_of_joined_logs_is_noticed() {
    let bugs =
        [LogBug::GapAccepted, LogBug::OtherLineAccepted, LogBug::GenerationLeftOut, LogBug::EndBeforeBackup];
    for bug in bugs {
        let fails =
            |story: fn(u64)| with_log_bug(bug, || catch_unwind(AssertUnwindSafe(|| story(0))).is_err());
        assert!(fails(brought_forward) || fails(refused::all), "nothing noticed {bug:?}");
    }
}
