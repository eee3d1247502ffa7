//! Presentations: a point of a volume, or a clone of it, served to one host for a bounded time
//! ([the decision](../../../../docs/decisions/2026-11-30-presentations.md)).
//!
//! Reading order: [`presentation`] (the record), `board` (all of them, as the threads share them), `pool_presentations` (those of
//! a pool, beside what the site file wants), `presenter` (begin and end), `keeper` (the clock).
//!
//! Invariants:
//!
//! 1. The journal knows a presentation before anything is made for it, and until all of it is gone. One that a crash left
//!    half-begun is undone; one that was to end is ended.
//! 2. A host reaches what is presented to it from the record of its beginning until its end by the clock, and never after
//!    that, also if the server was down then.
//! 3. A presentation reaches its initiator alone. It opens no target, and gives nobody a right who is not named in it.
//! 4. Its point stays as long as the journal knows the presentation.
//! 5. A clone that the site file has by then is a volume of the site: it stays.

pub(crate) mod board;
pub(crate) mod keeper;
pub(crate) mod pool_presentations;
pub mod presentation;
pub(crate) mod presenter;

pub use presentation::{EndReason, Presentation, PresentationStage, PresentedClone};
