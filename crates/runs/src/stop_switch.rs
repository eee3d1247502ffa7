//! The switch that ends a run early.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Ends a run early: the owner sets it, or a limit of the run does. Clones are one switch.
#[derive(Clone, Debug, Default)]
pub struct StopSwitch {
    is_set: Arc<AtomicBool>,
    leaves_report: Rc<Cell<bool>>,
}

impl StopSwitch {
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// The flag itself, for other threads.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.is_set
    }

    /// True while an early end still leaves a report.
    pub fn leaves_report(&self) -> bool {
        self.leaves_report.get()
    }

    pub(crate) fn set_leaves_report(&self, leaves_report: bool) {
        self.leaves_report.set(leaves_report);
    }
}
