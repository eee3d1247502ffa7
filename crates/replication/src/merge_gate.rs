//! Turns of groups that merge: passes of many groups at one time would make each of them, and hosts, slow.

use crate::merge_plan::MergeStart;
use std::time::Duration;

/// A wish for a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRequest {
    pub start: MergeStart,
    /// First copies take turns among themselves: one may take days, and a merge ends an exposure.
    pub is_first_copy: bool,
    /// Turns that the group had since its connection began: one that does not catch up lets others go first.
    pub turns_before: u32,
}

/// Reason for which a merge stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeStandstill {
    /// These groups merge, or merge before it.
    Turn(Vec<String>),
    /// Its window is closed, and opens after this time.
    Window(Duration),
}

/// The turns of all groups of a site with one peer.
pub trait MergeGate {
    /// Wants a turn, which lasts until the answer is dropped; or the reason for which it has to wait. Until it is asked
    /// again, or [`MergeGate::leave`] is called, it waits in its place.
    ///
    /// # Errors
    ///
    /// It has to wait.
    fn enter(&self, request: &TurnRequest) -> Result<(), MergeStandstill>;

    /// The group merges no more, and does not wait.
    fn leave(&self);
}
