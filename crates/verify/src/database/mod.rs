//! A database file: its headers, its pages, and the pages it owns.
//!
//! 1. [`judge_headers`] checks the start of the file and returns the facts that every other check needs.
//! 2. [`owned_extents`] reads the owned pages through a [`PageSource`]: other pages are slack and never
//!    damaged.
//! 3. [`PageChecker`] checks the rest in chunks, in any order and on any thread.

mod check;
mod header;
mod owned;
mod pages;
mod source;

pub(crate) use check::NEW_CHECKSUM;
pub use check::{ChecksumForm, PageStatus, check};
pub use header::{DatabaseFacts, FormatVersion, HeaderCopyState, HeadersVerdict, judge_headers};
pub use owned::{OwnedPages, owned_extents};
pub use pages::{PageChecker, PageTally};
pub use source::{PageSource, SourceError};

pub(crate) use owned::{SHELVED, merged, read_extents};
pub(crate) use source::{PageError, PageFault, good_page};
