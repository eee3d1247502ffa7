//! The switch that ends a run early.

use std::{cell::Cell, rc::Rc};
use world::Cancellation;

/// Ends a run early: the owner sets it, or a limit of the run does. Clones are one switch.
#[derive(Clone, Debug, Default)]
pub struct StopSwitch {
    cancellation: Cancellation,
    leaves_report: Rc<Cell<bool>>,
}

impl StopSwitch {
    pub fn set(&self) {
        self.cancellation.cancel();
    }

    pub fn is_set(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// The cancellation of the jobs that the switch ends.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// True while an early end still leaves a report.
    pub fn leaves_report(&self) -> bool {
        self.leaves_report.get()
    }

    pub(crate) fn set_leaves_report(&self, leaves_report: bool) {
        self.leaves_report.set(leaves_report);
    }
}
