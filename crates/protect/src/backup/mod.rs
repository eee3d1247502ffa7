//! One backup: prepare → freeze → hold → cut → release → thaw → after.
//!
//! What is frozen and what cuts are traits: a storage group, an application behind hooks, a filesystem; pools in
//! this process or behind a daemon.
//!
//! Invariants:
//!
//! 1. Whatever fails or hangs: what `freeze` was called for is thawed once, what `prepare` was called for gets
//!    `after` once, both in reverse order. A hold that was asked for is released once, before the first thaw.
//! 2. From the first freeze on, a step ends with the budget. A cut is ordered with the time that is left.
//! 3. A backup is labelled by what its things said when they were thawed: *application* or *filesystem* only if
//!    each of them was frozen until then, hence when the cut returned.
//! 4. A cut that is not covered by a freeze is removed, unless the policy keeps it as *crash*.
//!
//! Reading order: [`label`] (labels and their evidence, pure), [`policy`], `round` (the sequence), then things that
//! freeze: [`hooks`], [`filesystem`], [`control_socket`].

pub mod control_socket;
pub mod filesystem;
pub mod hooks;
pub mod label;
pub mod policy;
mod round;

pub use label::{BackupLabel, Consistency, FreezeEvidence};
pub use policy::{BackupPolicy, BackupPolicyError, UncoveredCut};
pub use round::{BackupOutcome, BackupSet, start_backup};

use thiserror::Error;
use world::{LocalFuture, Moment};

/// A step that failed, in words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StepError(pub String);

pub type StepResult = Result<(), StepError>;

/// Something that is at rest while its volumes are cut.
pub trait Freezable {
    /// Name for people: `storage group 1`.
    fn describe(&self) -> String;

    /// The worth of a cut that was taken while it was frozen.
    fn consistency(&self) -> Consistency;

    /// False if it freezes nothing and only prepares the cut: unless it fails, the label does not depend on it.
    /// Asked after the thaw, as [`Freezable::consistency`] is.
    fn is_witness(&self) -> bool {
        true
    }

    /// Prepares the freeze while work goes on.
    fn prepare(&self) -> LocalFuture<StepResult>;

    /// Freezes it at most until `deadline`; it thaws then, even if its owner died.
    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult>;

    /// Thaws it, also if `freeze` failed or did not end. True if it was frozen until now.
    fn thaw(&self) -> LocalFuture<Result<bool, StepError>>;

    /// Undoes what `prepare` did, also if that failed.
    fn after(&self) -> LocalFuture<StepResult>;
}

/// Something that cuts the volumes of a set at one moment.
pub trait BackupCutter {
    /// Holds the answers of the volumes, if the cut does not do that itself.
    fn hold(&self, deadline: Moment) -> LocalFuture<StepResult>;

    /// Takes the cut `name`. An order that arrives after `deadline` is refused.
    fn cut(&self, name: &str, deadline: Moment) -> LocalFuture<StepResult>;

    /// Lets answers go on, also if `hold` or `cut` failed.
    fn release(&self) -> LocalFuture<StepResult>;

    /// Removes a cut, or whatever there is of it.
    fn remove(&self, name: &str) -> LocalFuture<StepResult>;
}
