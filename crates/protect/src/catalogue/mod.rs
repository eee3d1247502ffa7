//! The catalogue of a set: everything that happened to its backups, in `SET.catalogue`.
//!
//! `docs/formats/backup-catalogue.md` describes the format. Lines are appended one by one, and each is stable before the
//! next act:
//!
//! | Line | Stable before | Written after |
//! |---|---|---|
//! | `begun` | the freeze, and the order to cut | |
//! | `cut` or `failed` | the next round, and any deletion that this one allows | thaw and label |
//! | `deleting` | the first point is deleted | the decision |
//! | `deleted` | | the last point is deleted |
//!
//! So a crash leaves at most one backup that has begun and not ended, and deletions that are repeated: [`reconcile()`] finds
//! them by comparing the catalogue with the points that exist.
//!
//! Lines that are older than [`CatalogueDetail`] are summed up, a line a day, in a file that takes the place of the one before:
//! [`compaction`].
//!
//! Reading order: [`entry`] (what lines say), [`line`](mod@line) (their form), [`state`] (rows of backups, and
//! contradictions), [`clock`] (confirmed time), [`reader`], [`file`](mod@file), [`note`] (text that a pool keeps with a
//! point), [`summary`] and [`compaction`], [`reconcile()`], [`rebuild()`], [`extract`] (for the other site of a DR group), [`account`] (every slot, made, missed or failed).

pub mod account;
pub mod clock;
pub mod compaction;
pub mod entry;
pub mod extract;
pub mod file;
pub mod line;
pub mod note;
pub mod reader;
pub mod rebuild;
pub mod reconcile;
pub mod state;
pub mod summary;
mod words;

pub use account::{SlotAccount, SlotFate, slot_accounts};
pub use clock::{CatalogueClock, MachineTime};
pub use compaction::{CatalogueDetail, CompactionError, CompactionResult};
pub use entry::{
    BackupCopy, BackupCut, BackupDeletion, BackupDrill, BackupHold, BackupLock, BackupRestore, BackupStart,
    BackupVerification, CatalogueEntry, CatalogueHeader, CutPoint, EvidenceLine, FailedBackup,
    FilledSlotLine, FoundBackup, HookRunLine, LabelWord, LostBackup, MissedRange, RunnerOpening, SetId,
};
pub use extract::{CatalogueExtract, ExtractedBackup, ExtractedVerification};
pub use file::{CatalogueFile, CatalogueFileError};
pub use line::{CATALOGUE_FORMAT, CATALOGUE_VERSION, COMPACTED_VERSION, CatalogueDamage, CatalogueLine};
pub use note::{POINT_NOTE_BYTES_MAX, PointNote, PointNoteError};
pub use reader::{CatalogueReadError, CatalogueReader, ReadCatalogue};
pub use rebuild::{RebuildError, RebuiltSet, rebuild};
pub use reconcile::{CatalogueRepair, FoundPoint, reconcile};
pub use state::{BackupCatalogue, BackupRow, BackupStage, CatalogueContradiction, CatalogueScope, PointUse};
pub use summary::{CompactedPart, FilledRuns, SummedDay, SummedDeletions, SummedSlots};
