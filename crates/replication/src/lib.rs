//! Replication of consistency groups between two sites.
//!
//! The deciding parts do no I/O: the [`lineage`] of a group, the outcome of a connection ([`connect`](mod@connect)), the
//! [`frame`]s, the state of a group towards its peer ([`session`]), and the [answers](held_answers) that wait for it.
//! The flows of a group do the rest: a [`member`] is what a site has of it, led by a [`primary`] or following as a
//! [`secondary`], over a [`channel`] of the [`link`] between both sites. The [`witness`] is the third party.
//! `docs/replication.md` is the design.

pub mod channel;
pub mod connect;
pub mod cut;
pub mod exchange;
pub mod frame;
pub mod group_record;
pub mod group_state;
pub mod held_answers;
pub mod held_snapshots;
pub mod joint_cut;
pub mod joint_group;
pub mod lineage;
pub mod link;
pub mod member;
pub mod merge_gate;
pub mod merge_plan;
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
pub mod transfer_meter;
pub mod verification;
pub mod witness;
