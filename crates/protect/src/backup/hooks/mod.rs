//! An application behind hooks: programs that prepare, freeze and thaw it.
//!
//! Invariants:
//!
//! 1. Hooks of one round run one after another, also if a step was abandoned: a thaw hook never runs beside a
//!    freeze hook, which might freeze after it.
//! 2. A freeze hook is not started again once the thaw was asked for.
//! 3. `thaw` says that it was frozen only if the freeze hook and the thaw hook exited with 0 in time. The worth of
//!    the cut is the least of what was configured and what both said.
//!
//! A hook that freezes must see to it that its application thaws at the deadline, even if this process died: it
//! learns how long that is. The contract for people is in `docs/protect.md`.
//!
//! Reading order: [`settings`], [`statement`] (lines of a hook's output), [`run`] (one step, with repetitions).

pub mod run;
pub mod settings;
pub mod statement;

pub use run::{EXIT_NOT_FROZEN, EXIT_NOT_NOW, HookEnd, HookRun};
pub use settings::{HookCommand, HookRefusal, HookSettings};
pub use statement::HookStatement;

use super::{Consistency, Freezable, StepError, StepResult};
use crate::planted::{self, BackupBug};
use run::HookStep;
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};
use world::{LocalFuture, Moment, Programs, World};

/// A step in which a hook runs: `SPINDLE_PHASE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookPhase {
    Prepare,
    Freeze,
    Thaw,
    After,
}

impl fmt::Display for HookPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::After => "after",
        })
    }
}

/// An application that hooks freeze, for one round.
pub struct HookedApplication(Rc<Shared>);

struct Shared {
    world: World,
    programs: Rc<dyn Programs>,
    settings: HookSettings,
    set: String,
    point: String,
    turn: HookTurn,
    is_frozen: Cell<bool>,
    is_thaw_asked: Cell<bool>,
    /// The least that the hooks said.
    statement: Cell<Option<HookStatement>>,
    runs: RefCell<Vec<HookRun>>,
}

impl HookedApplication {
    /// The application for one round of `set`, whose cut will be called `point`.
    pub fn new(
        world: &World,
        programs: Rc<dyn Programs>,
        settings: HookSettings,
        set: &str,
        point: &str,
    ) -> Self {
        Self(Rc::new(Shared {
            world: world.clone(),
            programs,
            settings,
            set: set.to_owned(),
            point: point.to_owned(),
            turn: HookTurn::default(),
            is_frozen: Cell::default(),
            is_thaw_asked: Cell::default(),
            statement: Cell::default(),
            runs: RefCell::default(),
        }))
    }

    /// The steps so far, in their order.
    pub fn runs(&self) -> Vec<HookRun> {
        self.0.runs.borrow().clone()
    }

    /// Starts a step in a task of its own: it is taken to its end even if the round does not wait for it.
    fn start(&self, phase: HookPhase, freeze_deadline: Option<Moment>) -> LocalFuture<HookEnd> {
        let shared = Rc::clone(&self.0);
        Box::pin(self.0.world.spawn("hook", async move { shared.step(phase, freeze_deadline).await }))
    }

    fn start_plain(&self, phase: HookPhase) -> LocalFuture<StepResult> {
        let (step, shared) = (self.start(phase, None), Rc::clone(&self.0));
        Box::pin(async move { shared.result_of(phase, step.await) })
    }
}

impl Shared {
    async fn step(&self, phase: HookPhase, freeze_deadline: Option<Moment>) -> HookEnd {
        if phase != HookPhase::Thaw || !planted::is(BackupBug::ThawBesideFreeze) {
            self.turn.take().await;
        }
        if phase == HookPhase::Freeze && self.is_thaw_asked.get() {
            self.turn.pass();
            return HookEnd::Failed("was not started: the round is over".to_owned());
        }
        let step = HookStep {
            world: &self.world,
            programs: &*self.programs,
            settings: &self.settings,
            phase,
            set: &self.set,
            point: &self.point,
            freeze_deadline,
        };
        let run = step.run(|| phase != HookPhase::Freeze || !self.is_thaw_asked.get()).await;
        let end = run.as_ref().map_or(HookEnd::Done(None), |run| run.end.clone());
        if let HookEnd::Done(statement) = end
            && !planted::is(BackupBug::StatementIgnored)
        {
            self.statement.set(self.statement.get().max(statement));
        }
        if phase == HookPhase::Freeze {
            self.is_frozen.set(matches!(end, HookEnd::Done(_)));
        }
        self.runs.borrow_mut().extend(run);
        self.turn.pass();
        end
    }

    fn result_of(&self, phase: HookPhase, end: HookEnd) -> StepResult {
        let program = self.settings.command(phase).map_or("", HookCommand::program);
        match end {
            HookEnd::Done(_) => Ok(()),
            HookEnd::NotFrozen => Err(StepError(format!("{program} found it no longer frozen"))),
            HookEnd::Failed(reason) => Err(StepError(format!("{program} {reason}"))),
        }
    }

    fn worth(&self) -> Option<Consistency> {
        let said = self.statement.get().map_or(Some(self.settings.consistency), HookStatement::consistency);
        said.map(|said| said.max(self.settings.consistency))
    }
}

impl Freezable for HookedApplication {
    fn describe(&self) -> String {
        format!("the application behind {}", self.0.settings.freeze.program())
    }

    fn consistency(&self) -> Consistency {
        self.0.worth().unwrap_or(Consistency::Filesystem)
    }

    fn is_witness(&self) -> bool {
        self.0.worth().is_some()
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        self.start_plain(HookPhase::Prepare)
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let (step, shared) = (self.start(HookPhase::Freeze, Some(deadline)), Rc::clone(&self.0));
        Box::pin(async move { shared.result_of(HookPhase::Freeze, step.await) })
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        self.0.is_thaw_asked.set(true);
        let (step, shared) = (self.start(HookPhase::Thaw, None), Rc::clone(&self.0));
        Box::pin(async move {
            match step.await {
                HookEnd::NotFrozen => Ok(planted::is(BackupBug::NotFrozenCountsAsHeld)),
                end => shared.result_of(HookPhase::Thaw, end).map(|()| shared.is_frozen.get()),
            }
        })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        self.start_plain(HookPhase::After)
    }
}

/// One hook at a time.
#[derive(Default)]
struct HookTurn {
    is_taken: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl HookTurn {
    async fn take(&self) {
        poll_fn(|context| {
            if self.is_taken.replace(true) {
                self.waiting.borrow_mut().push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    fn pass(&self) {
        self.is_taken.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}
