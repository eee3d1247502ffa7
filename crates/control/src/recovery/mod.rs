//! The site in its pools: after the loss of the machine with its state and configuration folders, drives are enough
//! ([the decision](../../../../docs/decisions/2026-11-27-the-site-in-the-pools.md)).
//!
//! Reading order: [`document`] (what a pool keeps), `parts` (which part of a site is a pool's), [`key`] and [`sealing`]
//! (secrets in it), [`secrets`] (the files that a site names), [`merging`]
//! (the site of the documents that were found). A served site writes its documents in `site::kept_documents`.
//!
//! Invariants:
//!
//! 1. After an apply that has ended, each open pool keeps its part of the site, under the number of the last change.
//! 2. A secret leaves the machine sealed only. The recovery key is in the journal and where a person put it: never in a
//!    document, a line of a log, an event, the audit or an answer of the API.
//! 3. A sealed secret opens only as what it is, of the site and the pool for which it was sealed.

pub mod document;
pub mod key;
pub mod merging;
pub(crate) mod parts;
pub mod sealing;
pub mod secrets;

pub use document::PoolDocument;
pub use key::RecoveryKey;
