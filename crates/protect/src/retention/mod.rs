//! Retention: which backups of a set stay, and why; which goes when a pool is full; and the room that all this takes.
//!
//! Pure functions of values. Ages come from a clock that never jumps, order from sequence numbers.
//!
//! Invariants:
//!
//! 1. Held, locked and used backups, the last proven one, bases of copies, and the full backups that such logs need are
//!    never deleted, by no rule.
//! 2. A schedule keeps the newest COUNT backups that filled a slot of it: backups that exist, however much time passes.
//! 3. A round that failed deletes nothing, except what is older than `at_most`.
//! 4. Deciding again after the deletions deletes nothing more.
//! 5. A set neither counts nor deletes a backup that another set, or a person, made.
//! 6. Thinning out takes one backup at a time, and never one that `at_least` wants.
//!
//! Reading order: [`policy`] (the keys of `keep`), [`decision`], [`thinning`], [`prognosis()`].

pub mod decision;
pub mod policy;
pub mod prognosis;
pub mod thinning;

pub use decision::{
    BackupProof, DeletionRule, KeepReason, RetainedBackup, RetentionDecision, RetentionOutcome, RoundOutcome,
    decide,
};
pub use policy::{KeepPolicy, KeepPolicyError, KeepSettings, OnFull};
pub use prognosis::{ChangeRate, PrognosisRow, ScheduleOutlook, prognosis};
pub use thinning::{ThinningStage, ThinningStep, is_full, thin_out};
