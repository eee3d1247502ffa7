//! A database file: its headers, its pages one by one, and how far they are its own.
//!
//! 1. [`judge_headers`] over the beginning of the file: the facts that everything else needs.
//! 2. [`owned_extents`] over a [`PageSource`]: pages that are not in them are slack, and never damaged.
//! 3. [`Pages`], over all the rest in chunks, in any order and on any thread.

mod header;
mod owned;
mod pages;

pub use header::{CopyState, DatabaseFacts, HeadersVerdict, Version, judge_headers};
pub use owned::{Owned, owned_extents};
pub use pages::{Form, Pages, Tally};

use maildb::PageNumber;

/// Where a judge that follows pointers gets its pages.
pub trait PageSource {
    /// The page, as it lies in the file.
    fn page(&mut self, page: PageNumber) -> Result<&[u8], SourceError>;
}

/// Why a source has no page to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The file ends before it.
    Beyond,
    /// The storage under it refuses, with its reason. The judge notes that and goes on.
    Unreadable(String),
    /// The run is to end: the judge returns what it has.
    Stopped,
}
