//! The right of a site to write a group, as its process has it: one for all parts of the group, on whichever threads they run.
//!
//! Invariants:
//!
//! 1. One request is on its way at a time, whichever part asks: what one learns is known to the next, and a lease that was
//!    given to one part ends with no request of another.
//! 2. The witness hears that the group is in sync only while no part is alone. A part that is not open stands as it did when
//!    this process first heard of the group.
//! 3. The history that the witness knows is that of the first part.

use super::{
    group::{WitnessCondition, WitnessGroup},
    keeper::WitnessContact,
    lease::LeaseGuard,
};
use array::format::{EpochId, SiteId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The right of a site, shared by the keepers of all parts.
pub struct HeldRight {
    state: Mutex<RightState>,
    pub(super) asking: tokio::sync::Mutex<()>,
}

/// The right, as the process knows it.
pub(super) struct RightState {
    pub guard: LeaseGuard,
    pub is_holder: bool,
    /// The last right was given to the other site, and not taken away.
    pub is_given_away: bool,
    /// Nothing had been answered at the other site alone when this one became holder.
    pub took_whole: bool,
    /// The newest state of the group that the witness has shown.
    pub seen: Option<WitnessGroup>,
    /// The first one said that no part was alone.
    pub was_in_sync: bool,
    pub contact: WitnessContact,
    pub parts: Vec<PartOfRight>,
}

/// A part of the group.
#[derive(Clone, Copy)]
pub(super) struct PartOfRight {
    /// `None` until it has led here.
    pub is_alone: Option<bool>,
    /// The last epoch of its history, once it was said.
    pub head: Option<EpochId>,
}

impl HeldRight {
    /// The right of a group of so many parts, which nobody has asked for yet.
    pub fn new(parts: usize) -> Arc<Self> {
        let state = RightState {
            guard: LeaseGuard::default(),
            is_holder: false,
            is_given_away: false,
            took_whole: false,
            seen: None,
            was_in_sync: false,
            contact: WitnessContact::default(),
            parts: vec![PartOfRight { is_alone: None, head: None }; parts],
        };
        Arc::new(Self { state: Mutex::new(state), asking: tokio::sync::Mutex::default() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RightState> {
        // A thread that panicked within has left a state that is whole: changes are assignments.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RightState {
    /// Ends the right here.
    pub fn give_up(&mut self) {
        let fence = self.guard.fence();
        self.guard.give_up(fence);
        self.is_holder = false;
    }

    /// The holder went on alone, as the witness has it.
    pub fn is_alone(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.condition != WitnessCondition::InSync)
    }

    /// A part answers without the other site, or may do so once it is open.
    pub fn is_any_part_alone(&self) -> bool {
        self.parts.iter().any(|part| part.is_alone.unwrap_or(!self.was_in_sync))
    }

    /// The witness names this site.
    pub fn is_named(&self, site: SiteId) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder == Some(site))
    }

    /// The last epoch of the group's history; `None` if the first part has not said it yet.
    pub fn head(&self) -> Option<EpochId> {
        self.parts[0].head
    }
}
