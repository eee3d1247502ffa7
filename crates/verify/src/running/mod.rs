//! Runs the checks over real files: reading, rate limit, resumption.
//!
//! One thread reads large blocks ahead through [`world`]; checks run on worker threads. A run returns a value
//! ([`VerifyOutcome`]) and prints nothing.
//!
//! Reading order: [`places`] finds the files, in folders and on a [`divided_device`]; [`source`] gives access to the
//! bytes of one file, [`reading`]
//! feeds them to the checks; `database` and `small` check a file, `sets` groups files, [`run`](mod@run) does
//! a whole run. `resume` stores progress; `fix` writes a copy with single wrong bits corrected; `scan`
//! searches devices without a mountable filesystem.

pub mod divided_device;
pub mod file_place;
pub mod fix;
pub mod outcome;
pub mod places;
pub mod rate_limiter;
pub mod reading;
pub mod recovery;
pub mod resume;
pub mod run;
pub mod scan;
pub mod source;
pub mod verify_level;

mod database;
mod journal;
mod paging;
mod sets;
mod small;
pub(crate) mod stamps;

pub use divided_device::{DividedDevice, UndividedDevice};
pub use file_place::FilePlace;
pub use fix::{FixError, FixedCopy, write_fixed_copy};
pub use outcome::{
    Completion, Coverage, DatabaseCheck, FileOutcome, Findings, RunVerdict, SetOutcome, VerifyOutcome,
};
pub use places::{Candidate, FileDiscovery, find};
pub use rate_limiter::{RateLimiter, VerifyProgress};
pub use recovery::{
    BroughtUp, BroughtUpGroup, RecoveredContents, RecoveredDatabase, RecoveryTrial, StorageGroupPlace,
    StorageGroupPlaces, TrialEnd, bring_up, storage_groups,
};
pub use resume::{ResumeError, ResumeState};
pub use run::{Settings, run};
pub use scan::{Placement, ScanOutcome, scan};
pub use source::Source;
pub use verify_level::VerifyLevel;
