//! Verdicts of the site that follows a set: they count for the points that were asked for alone.

use super::{HOUR, History, undisturbed};
use protect::{
    planted_keeping::{KeepingBug, with_keeping_bug},
    retention::BackupProof,
    set_keeper::{
        ReplicaSite, ReplicaVerdict, ReplicaVerification, SetKeeper, SetProblem, VerificationVerdict,
    },
    verification::{VerificationPolicy, VerificationSettings},
};
use std::{collections::BTreeSet, panic::catch_unwind};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

fn at_replica() -> History {
    let mut history = undisturbed();
    let at = Some("replica".to_owned());
    let settings = VerificationSettings { level: "deep".to_owned(), at, ..VerificationSettings::default() };
    history.settings.verification = Some(VerificationPolicy::new(&settings).unwrap());
    history
}

fn in_days<F: Future<Output = ()> + 'static>(story: impl FnOnce(World) -> F + 'static) {
    let limits = SimLimits { span: HOUR * 72, ..SimLimits::generous() };
    Simulation::new(2).run(limits, story).completed();
}

fn denver(keeper: &SetKeeper) -> ReplicaSite {
    let here: BTreeSet<u64> = keeper.view().backups.iter().map(|backup| backup.number).collect();
    ReplicaSite { name: "denver".to_owned(), here, away: None }
}

fn verdict(of: &ReplicaVerification, points: Vec<String>) -> ReplicaVerdict {
    ReplicaVerdict {
        request: of.request.clone(),
        id: of.id.clone(),
        backup: of.backup,
        points,
        level: of.level.clone(),
        version: "2".to_owned(),
        by: "spindle serve".to_owned(),
        verdict: VerificationVerdict::Proven,
        findings: Vec::new(),
    }
}

fn proof(keeper: &SetKeeper, number: u64) -> (BackupProof, Option<String>, Option<String>) {
    let view = keeper.view();
    let backup = view.backups.into_iter().find(|backup| backup.number == number).expect("it is there");
    (backup.proof, backup.verified_by, backup.not_verified)
}

/// Makes a backup, and asks for its verification.
async fn asked(history: &History, world: &World) -> (SetKeeper, ReplicaVerification) {
    let mut keeper = history.open(world);
    keeper.look().await.expect("a look");
    keeper.set_replica(Some(denver(&keeper)));
    let due = keeper.replica_verification_due().expect("it is due there");
    assert_eq!(keeper.view().verification_due, None, "nothing is due here");
    (keeper, due)
}

#[test]
fn a_verdict_about_the_points_of_the_backup_proves_it_at_the_other_site() {
    in_days(|world| async move {
        let history = at_replica();
        let (mut keeper, due) = asked(&history, &world).await;
        let good = verdict(&due, due.points.clone());
        keeper.note_replica_verdict("denver", &due, &good).expect("noted");
        let by = Some("site denver: spindle serve".to_owned());
        assert_eq!(proof(&keeper, due.backup), (BackupProof::Proven, by, None));
        assert_eq!(keeper.replica_verification_due(), None, "it is done");
        // Once more, as after a lost link: nothing changes.
        let bad = ReplicaVerdict { verdict: VerificationVerdict::Damaged, ..good };
        keeper.note_replica_verdict("denver", &due, &bad).expect("noted");
        assert_eq!(proof(&keeper, due.backup).0, BackupProof::Proven);
    });
}

#[test]
fn a_verdict_about_another_clone_another_request_or_another_level_proves_nothing() {
    let story = |change: fn(&mut ReplicaVerdict)| {
        in_days(move |world| async move {
            let history = at_replica();
            let (mut keeper, due) = asked(&history, &world).await;
            let mut wrong = verdict(&due, due.points.clone());
            change(&mut wrong);
            keeper.note_replica_verdict("denver", &due, &wrong).expect("it is a verdict");
            let (found, _, why) = proof(&keeper, due.backup);
            assert_eq!(found, BackupProof::Unproven);
            assert_eq!(why.unwrap(), "the verdict of site denver is not about the points of this backup");
        });
    };
    let of_clone: fn(&mut ReplicaVerdict) = |verdict| verdict.points[0] = "a clone".to_owned();
    let of_part: fn(&mut ReplicaVerdict) = |verdict| drop(verdict.points.pop());
    story(of_clone);
    story(of_part);
    story(|verdict| verdict.request.push('0'));
    story(|verdict| verdict.level = "chain".to_owned());
    for change in [of_clone, of_part] {
        let noticed = catch_unwind(|| with_keeping_bug(KeepingBug::VerdictOfAnotherClone, || story(change)));
        assert!(noticed.is_err(), "nothing noticed the planted bug");
    }
}

#[test]
fn nothing_is_verified_while_the_other_site_is_away_and_that_is_said() {
    in_days(|world| async move {
        let history = at_replica();
        let (mut keeper, due) = asked(&history, &world).await;
        let none = ReplicaSite { here: BTreeSet::new(), ..denver(&keeper) };
        keeper.set_replica(Some(none));
        assert_eq!(keeper.replica_verification_due(), None);
        let text = proof(&keeper, due.backup).2;
        assert_eq!(text.as_deref(), Some("its points are not at site denver yet"));
        let away = Some("site denver is not connected since then".to_owned());
        keeper.set_replica(Some(ReplicaSite { away, ..denver(&keeper) }));
        assert_eq!((keeper.replica_verification_due(), keeper.view().verification_due), (None, None));
        let mut said_at_h = None;
        for hour in 0..30 {
            keeper.look().await.expect("a look");
            let view = keeper.view();
            if let Some(text) = view.problems.get(&SetProblem::Unverified) {
                assert!(text.ends_with("waits for it; site denver is not connected since then"), "{text}");
                said_at_h = said_at_h.or(Some(hour));
            }
            world.sleep(HOUR).await;
        }
        assert_eq!(said_at_h, Some(24));
        keeper.set_replica(None);
        let newest = keeper.view().backups.last().expect("there are some").number;
        let text = proof(&keeper, newest).2.unwrap();
        assert!(text.starts_with("no other site has its points"), "{text}");
    });
}
