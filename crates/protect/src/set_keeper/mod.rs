//! The keeper of one set: it makes backups when they are due, removes those that no rule wants, and writes everything in
//! the set's catalogue. A daemon runs it over its own pools, an agent on a mail host over a daemon's API.
//!
//! Invariants:
//!
//! 1. Catalogue and pools are compared before the first round, and again before anything is deleted.
//! 2. The catalogue has *begun* before the first freeze, *cut* or *failed* before the next round, *deleting* before the
//!    first point goes.
//! 3. No round begins while one before it has not ended: its points may be anywhere.
//! 4. A problem that lasts is said when it begins, when it changes and when it has ended.
//! 5. What is in use is not deleted: the pools were asked for it in the same look.
//! 6. Logs go for the newest proven backup alone, and only when the pools have shown in the same look that its points are there.
//!
//! After an error of the catalogue's file the keeper is dropped: its caller opens it again.
//!
//! Reading order: [`settings`], [`pools`] (what it asks of pools), [`freezing`], `keeper` (one look), `making` (one round),
//! `settling` (catalogue and pools agree), `deleting`, `people` (orders of people), `proving` (verifications that are due, and
//! results of verifications, restores and drills), `replica_proving` (verifications at the site that follows), `releasing` (logs that a proven backup has), `copying`, `summing_up` (old lines of the catalogue), `rebuilding` (a
//! catalogue that was lost), `following` and `succession` (another site of a DR group keeps the set, or kept it before),
//! [`notice`], [`view`].

mod copying;
mod deleting;
mod following;
pub mod freezing;
mod keeper;
mod making;
pub mod notice;
mod people;
pub mod pools;
mod proving;
mod rebuilding;
mod releasing;
mod replica_proving;
pub mod settings;
mod settling;
mod succession;
mod summing_up;
pub mod view;

pub use copying::{CopyDue, CopyResult};
pub use freezing::{DatabasesFrozen, NothingFrozen, ReleasedLogs, RoundFreeze, SetFreezing};
pub use keeper::{KeeperLook, SetKeeper, SetOpening};
pub use making::MadeBackup;
pub use notice::{SetNotice, SetProblem};
pub use people::{PersonOrder, PersonRefusal};
pub use pools::{BackupPools, PoolRoom, PoolsAnswer, WantedCut};
pub use proving::{DrillResult, RestoreResult, VerificationDue, VerificationResult, VerificationVerdict};
pub use rebuilding::{CollectingError, collect_backups};
pub use replica_proving::{FINDINGS_MAX, ReplicaSite, ReplicaVerdict, ReplicaVerification, point_identities};
pub use settings::{SetSettings, SetVolume};
pub use succession::{NUMBERS_GAP, PredecessorSite, unseen_hold};
pub use view::{BackupView, SetView};
