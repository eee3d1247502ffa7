//! A database file: its headers, its pages one by one, and how far they are its own.
//!
//! 1. [`judge_headers`] over the beginning of the file: the facts that everything else needs.
//! 2. [`owned_extents`] over a [`PageSource`]: pages that are not in them are slack, and never damaged.
//! 3. [`Pages`], over all the rest in chunks, in any order and on any thread.

mod check;
mod header;
mod owned;
mod pages;
mod source;

pub(crate) use check::NEW_CHECKSUM;
pub use check::{Check, Form, check};
pub use header::{CopyState, DatabaseFacts, HeadersVerdict, Version, judge_headers};
pub use owned::{Owned, owned_extents};
pub use pages::{Pages, Tally};
pub use source::{PageSource, SourceError};

pub(crate) use owned::{SHELVED, merged, read_extents};
pub(crate) use source::{PageFault, Trouble, good_page};
