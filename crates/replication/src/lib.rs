//! Replication of consistency groups between two sites.
//!
//! Most of it decides, and does no I/O: the [`lineage`] of a group, the outcome of a connection
//! ([`connect`](mod@connect)), the [`frame`]s of a session, the state of a group towards its peer
//! ([`session`]), and the [answers](held_answers) that wait for it. The [`link`] carries the frames.
//! `docs/replication.md` is the design.

pub mod channel;
pub mod connect;
pub mod cut;
pub mod exchange;
pub mod frame;
pub mod group_state;
pub mod held_answers;
pub mod lineage;
pub mod link;
pub mod member;
mod outbox;
mod pass;
#[doc(hidden)]
pub mod planted;
pub mod primary;
mod record_log;
pub mod secondary;
mod sent_changes;
pub mod session;
mod taken_records;
