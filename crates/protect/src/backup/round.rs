//! The sequence of a backup.

use super::{
    BackupCutter, BackupLabel, BackupPolicy, Consistency, Freezable, FreezeEvidence, StepError, StepResult,
    UncoveredCut, label::label_of,
};
use crate::planted::{self, BackupBug};
use std::{rc::Rc, time::Duration};
use world::{JoinHandle, Moment, World, with_deadline};

/// The things to freeze, in this order, and the one that cuts.
#[derive(Clone)]
pub struct BackupSet {
    pub things: Vec<Rc<dyn Freezable>>,
    pub cutter: Rc<dyn BackupCutter>,
}

/// The end of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOutcome {
    pub name: String,
    /// `None` if there is no cut: see the problems.
    pub label: Option<BackupLabel>,
    pub evidence: Vec<FreezeEvidence>,
    /// The moments at which the first freeze began, the cut returned, and the last thaw had ended.
    pub freeze_began: Option<Moment>,
    pub cut_returned: Option<Moment>,
    pub thawed: Option<Moment>,
    /// Steps that failed, in their order.
    pub problems: Vec<String>,
}

/// Starts a backup in a task of its own: it is taken to its end even if the caller stops waiting.
pub fn start_backup(
    world: &World,
    set: BackupSet,
    policy: BackupPolicy,
    name: &str,
) -> JoinHandle<BackupOutcome> {
    let round = Round {
        world: world.clone(),
        states: set.things.iter().map(|_| ThingState::default()).collect(),
        set,
        policy,
        name: name.to_owned(),
        is_hold_asked: false,
        outcome: BackupOutcome {
            name: name.to_owned(),
            label: None,
            evidence: Vec::new(),
            freeze_began: None,
            cut_returned: None,
            thawed: None,
            problems: Vec::new(),
        },
    };
    world.spawn("backup", round.complete())
}

/// The step that a thing has reached.
#[derive(Default)]
struct ThingState {
    is_prepare_asked: bool,
    is_freeze_asked: bool,
    /// The reason why it was not frozen to the end.
    failure: Option<String>,
}

struct Round {
    world: World,
    set: BackupSet,
    policy: BackupPolicy,
    name: String,
    states: Vec<ThingState>,
    is_hold_asked: bool,
    outcome: BackupOutcome,
}

impl Round {
    async fn complete(mut self) -> BackupOutcome {
        let is_frozen = self.prepare().await && self.freeze().await;
        let mut is_cut_asked = false;
        if is_frozen || self.policy.uncovered == UncoveredCut::KeepAsCrash {
            is_cut_asked = self.hold_and_cut().await;
        }
        self.release().await;
        if self.outcome.problems.is_empty() || !planted::is(BackupBug::ThawForgottenOnError) {
            self.thaw().await;
        }
        if is_frozen || !planted::is(BackupBug::AfterForgottenOnError) {
            self.after().await;
        }
        self.conclude(is_cut_asked).await;
        self.outcome
    }

    async fn prepare(&mut self) -> bool {
        for index in 0..self.set.things.len() {
            self.states[index].is_prepare_asked = true;
            let until = self.world.now() + self.policy.preparation_max;
            let prepared = self.set.things[index].prepare();
            if let Err(error) = self.by(until, prepared).await {
                self.fail_thing(index, "was not prepared", &error);
                return false;
            }
        }
        true
    }

    async fn freeze(&mut self) -> bool {
        let deadline = self.deadline();
        for index in 0..self.set.things.len() {
            self.states[index].is_freeze_asked = true;
            let frozen = self.set.things[index].freeze(deadline);
            if let Err(error) = self.by(deadline, frozen).await {
                self.fail_thing(index, "was not frozen", &error);
                return planted::is(BackupBug::FailedFreezeIgnored);
            }
        }
        true
    }

    /// Holds and cuts; true if a cut may be there.
    async fn hold_and_cut(&mut self) -> bool {
        let deadline = self.deadline();
        self.is_hold_asked = true;
        let held = self.set.cutter.hold(deadline);
        if let Err(error) = self.by(deadline, held).await {
            self.note("the volumes were not held", &error);
            return false;
        }
        let cut = self.set.cutter.cut(&self.name, deadline);
        match self.by(deadline, cut).await {
            Ok(()) => self.outcome.cut_returned = Some(self.world.now()),
            Err(error) => self.note("the cut failed", &error),
        }
        true
    }

    async fn release(&mut self) {
        let is_forgotten = planted::is(BackupBug::HoldNotReleased) && self.outcome.cut_returned.is_none();
        if !self.is_hold_asked || is_forgotten {
            return;
        }
        let released = self.set.cutter.release();
        if let Err(error) = self.undone(released).await {
            self.note("the hold was not released", &error);
        }
    }

    async fn thaw(&mut self) {
        for index in self.backwards() {
            if !self.states[index].is_freeze_asked {
                continue;
            }
            let thawed = self.set.things[index].thaw();
            match self.undone(thawed).await {
                Ok(true) => {}
                // It was never frozen, which is known.
                Ok(false) if self.states[index].failure.is_some() => {}
                Ok(false) => {
                    let error = StepError("something else had thawed it before the cut was known".to_owned());
                    self.fail_thing(index, "was not held", &error);
                }
                Err(error) => self.fail_thing(index, "did not thaw", &error),
            }
        }
        self.outcome.thawed = self.outcome.freeze_began.map(|_| self.world.now());
    }

    async fn after(&mut self) {
        for index in self.backwards() {
            if !self.states[index].is_prepare_asked {
                continue;
            }
            let done = self.set.things[index].after();
            if let Err(error) = self.undone(done).await {
                let what = self.set.things[index].describe();
                self.note(&format!("{what}: what comes after the thaw failed"), &error);
            }
        }
    }

    /// Labels the cut, or removes it.
    async fn conclude(&mut self, is_cut_asked: bool) {
        let things = self.set.things.iter().zip(&self.states).filter(|(thing, state)| {
            let is_sound = state.is_freeze_asked && state.failure.is_none();
            thing.is_witness() || !is_sound || planted::is(BackupBug::NothingIsEvidence)
        });
        let evidence = things.map(|(thing, state)| FreezeEvidence {
            what: thing.describe(),
            consistency: thing.consistency(),
            held: match &state.failure {
                None if state.is_freeze_asked => Ok(()),
                None => Err("it was not frozen, because something before it failed".to_owned()),
                Some(failure) => Err(failure.clone()),
            },
        });
        self.outcome.evidence = evidence.collect();
        let label = label_of(&self.outcome.evidence);
        let is_covered = !matches!(label, BackupLabel::Crash(_)) || self.set.things.is_empty();
        let is_wanted = is_covered
            || self.policy.uncovered == UncoveredCut::KeepAsCrash
            || planted::is(BackupBug::UncoveredCutKept);
        if self.outcome.cut_returned.is_some() && is_wanted {
            self.outcome.label = Some(label);
            return;
        }
        if let (BackupLabel::Crash(reason), true) = (&label, self.outcome.problems.is_empty()) {
            self.outcome.problems.push(format!("the cut is not kept: {reason}"));
        }
        if is_cut_asked {
            let removed = self.set.cutter.remove(&self.name);
            if let Err(error) = self.undone(removed).await {
                self.note("the cut was not removed", &error);
            }
        }
    }

    /// The moment at which the freeze must end; counts from the first call.
    fn deadline(&mut self) -> Moment {
        *self.outcome.freeze_began.get_or_insert(self.world.now()) + self.policy.budget()
    }

    fn backwards(&self) -> Vec<usize> {
        let all = 0..self.set.things.len();
        if planted::is(BackupBug::UndoneForwards) { all.collect() } else { all.rev().collect() }
    }

    async fn by(&self, until: Moment, step: impl Future<Output = StepResult>) -> StepResult {
        if planted::is(BackupBug::BudgetIgnored) {
            return step.await;
        }
        let ended = with_deadline(self.world.sleep_until(until), step).await;
        ended.unwrap_or_else(|| Err(StepError("it did not end in time".to_owned())))
    }

    async fn undone<T>(&self, step: impl Future<Output = Result<T, StepError>>) -> Result<T, StepError> {
        let span: Duration = self.policy.undoing_max;
        let ended = with_deadline(self.world.sleep(span), step).await;
        ended.unwrap_or_else(|| Err(StepError(format!("it did not answer within {} s", span.as_secs()))))
    }

    fn fail_thing(&mut self, index: usize, what: &str, error: &StepError) {
        let name = self.set.things[index].describe();
        self.note(&format!("{name} {what}"), error);
        if !planted::is(BackupBug::FailedFreezeIgnored) || what != "was not frozen" {
            self.states[index].failure.get_or_insert(format!("it {what}: {error}"));
        }
    }

    fn note(&mut self, what: &str, error: &StepError) {
        self.outcome.problems.push(format!("{what}: {error}"));
    }
}

impl BackupOutcome {
    /// The best that the set could have got.
    pub fn wanted(&self) -> Option<Consistency> {
        self.evidence.iter().map(|one| one.consistency).min()
    }
}
