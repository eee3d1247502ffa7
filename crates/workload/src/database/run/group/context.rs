//! Facts that every part of a group's run needs, and its messages to the run.

use crate::{
    database::{
        measure::pools::{PoolFacts, PoolSet},
        plan::{RunPlan, protection::ProtectionPlan},
        record::RunEvent,
        results::test_log::Phase,
        run::progress::{GroupProgress, PhaseWork, RunState},
    },
    meter::{Meter, SlowTally},
};
use protect::backup::BackupCutter;
use std::rc::Rc;
use world::World;

/// One group of a run. Cheap to clone.
#[derive(Clone)]
pub(super) struct GroupContext {
    pub(super) world: World,
    pub(super) plan: Rc<RunPlan>,
    /// From 0.
    pub(super) number: u32,
    /// Shared with the other groups and the driver.
    pub(super) state: RunState,
    /// The meter of the log, then those of the volumes with databases.
    pub(super) meters: Vec<Rc<Meter>>,
    /// The pools below the files, if their statistics are wanted.
    pub(super) pools: Option<Rc<dyn PoolSet>>,
}

impl GroupContext {
    /// Adds a line to the test log, with the group's name if there are several.
    pub(super) fn say(&self, text: impl Into<String>) {
        let text: String = text.into();
        let text = if self.plan.groups > 1 { format!("group {}: {text}", self.number + 1) } else { text };
        self.state.line(self.world.wall(), text);
    }

    pub(super) fn progress(&self, change: impl FnOnce(&mut GroupProgress)) {
        self.state.update(self.number, change);
    }

    /// Enters `phase`, or goes on in it, with `done` of `total` in the unit of the phase.
    pub(super) fn reach(&self, phase: Phase, done: u64, total: u64) {
        self.progress(|progress| progress.reach(phase, PhaseWork { done, total }));
    }

    pub(super) fn record(&self, event: impl FnOnce() -> RunEvent) {
        self.state.record(event);
    }

    /// Waits for the other groups; see [`RunState::meet`].
    pub(super) async fn meet(&self, meeting: u32) {
        self.state.meet(&self.world, meeting).await;
    }

    pub(super) fn pool_facts(&self) -> Vec<PoolFacts> {
        self.pools.as_ref().map(|pools| pools.facts()).unwrap_or_default()
    }

    /// The plan of backups, and what cuts them; `None` if there are none on this storage.
    pub(super) fn backup_cutter(&self) -> Option<(ProtectionPlan, Rc<dyn BackupCutter>)> {
        self.plan.protection.zip(self.pools.as_ref()?.cutter())
    }

    /// Slow operations of all volumes.
    pub(super) fn slow(&self) -> SlowTally {
        self.meters.iter().map(Rc::as_ref).map(Meter::slow).fold(SlowTally::default(), |mut sum, slow| {
            sum.merge(&slow);
            sum
        })
    }
}
