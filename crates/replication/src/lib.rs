//! Replication of consistency groups between two sites.
//!
//! What is here decides, and does no I/O: the [`lineage`] of a group, the outcome of a connection
//! ([`connect`](mod@connect)), the [`frame`]s of a session, the state of a group towards its peer
//! ([`session`]), and the [answers](held_answers) that wait for it. `docs/replication.md` is the design.

pub mod connect;
pub mod cut;
pub mod frame;
pub mod held_answers;
pub mod lineage;
pub mod session;
pub mod witness;
