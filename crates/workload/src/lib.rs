//! Loads and their results: profile, pacing, measurement, verdict.
//!
//! A load tool is a pipe of passive data. A *profile* describes the operations of one kind of user, a *plan* their
//! amount and the storage; the *driver* runs and measures them; *results* are plain values that can be saved and judged
//! again later; a *verdict* compares them with published limits, and a *document* is the report. Nothing here parses
//! arguments, draws progress or writes report files; the command line does.
//!
//! * [`database`]: real mailbox databases under real transactions (as Jetstress did).
//!
//! Every other module is independent of the kind of load: none uses `database`. Simulated mail clients (as LoadSim and
//! LoadGen did) will become a second module, `client`, with their first code.

pub mod database;
pub mod measure;
pub mod meter;
pub mod pacing;
pub mod record;
pub mod search;
pub mod significance;
mod suggestion;
pub mod time_span;
pub mod verdict;
mod yield_now;
