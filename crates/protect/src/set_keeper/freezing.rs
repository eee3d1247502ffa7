//! The things that a set freezes around a full backup.

use crate::backup::{Freezable, hooks::HookRun};
use std::rc::Rc;

/// Brings the things that a set freezes, new ones for each round.
pub trait SetFreezing {
    /// The things to freeze for the cut that will be called `point`.
    fn round(&self, point: &str) -> RoundFreeze;
}

/// The things of one round.
pub struct RoundFreeze {
    /// In this order: applications before the filesystems under them.
    pub things: Vec<Rc<dyn Freezable>>,
    /// The hooks that ran, to be asked after the round.
    pub hook_runs: Box<dyn Fn() -> Vec<HookRun>>,
}

/// A set that freezes nothing: its backups are as after a power cut.
pub struct NothingFrozen;

impl RoundFreeze {
    pub fn nothing() -> Self {
        Self { things: Vec::new(), hook_runs: Box::new(Vec::new) }
    }
}

impl SetFreezing for NothingFrozen {
    fn round(&self, _point: &str) -> RoundFreeze {
        RoundFreeze::nothing()
    }
}
