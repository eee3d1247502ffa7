//! Logs of what is frozen: they go once for each proven backup, if its points are there.

use super::{HOUR, History, undisturbed};
use protect::{
    planted_keeping::{KeepingBug, with_keeping_bug},
    set_keeper::{PersonOrder, SetKeeper, SetNotice, SetProblem, VerificationResult, VerificationVerdict},
};
use std::{panic::catch_unwind, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

/// Longer than the pause after a release that failed.
const LONG: Duration = Duration::from_secs(301);

/// A set whose application is frozen each hour.
fn frozen() -> History {
    let mut history = undisturbed();
    (history.settings.freeze_limit.has_freeze, history.has_freeze) = (true, true);
    history
}

fn in_a_day<F: Future<Output = ()> + 'static>(story: impl FnOnce(World) -> F + 'static) {
    let limits = SimLimits { span: HOUR * 24, ..SimLimits::generous() };
    Simulation::new(2).run(limits, story).completed();
}

/// Opens the keeper, and lets it make the first backup; its number.
async fn first_backup(history: &History, world: &World) -> (SetKeeper, u64) {
    let mut keeper = history.open(world);
    keeper.look().await.expect("a look");
    let number = keeper.view().backups[0].number;
    (keeper, number)
}

/// Notes that a verification at this level found nothing wrong.
async fn prove(keeper: &mut SetKeeper, number: u64, level: &str) {
    let (level, version, verdict) = (level.to_owned(), "1".to_owned(), VerificationVerdict::Proven);
    let result = VerificationResult { level, version, verdict, findings: Vec::new(), points: Vec::new() };
    let noted = keeper.follow(number, &PersonOrder::NoteVerification(result), "verifier").await;
    noted.expect("noted");
    keeper.take_notices();
}

/// Logs that went in a look, and the problem that is left.
async fn look(keeper: &mut SetKeeper) -> (usize, Option<String>) {
    keeper.look().await.expect("a look");
    let is_release =
        |notice: &&SetNotice| matches!(notice, SetNotice::Note(text) if text.contains("logs before"));
    let went = keeper.take_notices().iter().filter(is_release).count();
    (went, keeper.view().problems.get(&SetProblem::Unreleased).cloned())
}

#[test]
fn logs_go_once_for_each_proven_backup_and_those_that_cannot_are_said() {
    in_a_day(|world| async move {
        let history = frozen();
        let (mut keeper, first) = first_backup(&history, &world).await;
        assert_eq!(look(&mut keeper).await, (0, None), "it is not verified");
        prove(&mut keeper, first, "chain").await;
        assert_eq!(look(&mut keeper).await, (0, None), "a chain of logs proves no database");
        prove(&mut keeper, first, "deep").await;
        history.place.is_log_stuck.set(true);
        let (went, problem) = look(&mut keeper).await;
        assert!(problem.is_some_and(|text| text.ends_with("the log volume is gone")));
        history.place.is_log_stuck.set(false);
        let (went_early, problem) = look(&mut keeper).await;
        assert!(went + went_early == 0 && problem.is_some(), "it is tried again later");
        world.sleep(LONG).await;
        assert_eq!(look(&mut keeper).await, (1, None));
        world.sleep(LONG).await;
        assert_eq!(look(&mut keeper).await, (0, None), "once");
    });
}

#[test]
fn logs_stay_if_points_of_the_backup_that_has_them_are_gone() {
    let story = || {
        in_a_day(|world| async move {
            let history = frozen();
            let (mut keeper, first) = first_backup(&history, &world).await;
            let mut random = world.random("person");
            history.place.remove_by_person(&mut random);
            prove(&mut keeper, first, "deep").await;
            assert_eq!(look(&mut keeper).await, (0, None));
        });
    };
    story();
    let noticed = catch_unwind(|| with_keeping_bug(KeepingBug::LostReleases, story));
    assert!(noticed.is_err(), "nothing noticed the planted bug");
}
