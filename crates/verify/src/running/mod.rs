//! Running the judges over real files: who reads, how fast, where it goes on after a stop.
//!
//! One thread reads, large and ahead, through [`world`]; judges work on threads of their own. What a run finds is a value
//! ([`Outcome`]); nothing here prints.
//!
//! Reading order: [`places`] is what there is to check, [`source`] the bytes of one file, [`reading`] how they come to
//! the judges; `database` and `small` check a file, `sets` says which belong together, [`run`](mod@run) is all of it.
//! `resume` remembers how far a run got; `mend` writes a copy without single wrong bits; `scan` finds what lies where no
//! filesystem can be mounted.

pub mod mend;
pub mod outcome;
pub mod pace;
pub mod places;
pub mod reading;
pub mod resume;
pub mod run;
pub mod scan;
pub mod source;

mod database;
mod journal;
mod paging;
mod sets;
mod small;
pub(crate) mod stamps;

pub use mend::{MendError, Mended, mend};
pub use outcome::{Answer, Checked, DatabaseCheck, Ended, FileOutcome, Findings, Outcome, SetOutcome};
pub use pace::{Pace, Progress};
pub use places::{Candidate, Found, find};
pub use resume::{ResumeError, State};
pub use run::{Settings, run};
pub use scan::{Placement, Scanned, scan};
pub use source::Source;
