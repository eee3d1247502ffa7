//! The witness: a third party that gives each DR group's right to write as a lease with a fence.
//!
//! The witness decides which site is primary when the sites cannot reach each other. It knows no data: of
//! each group it keeps the holder, the fence, and whether the holder goes on alone.
//!
//! Reading order: [`lease`] (time at both ends), [`group`] (the decisions about one group), [`ledger`] (all
//! groups, and a restart), [`codec`] and [`file`](mod@file) (the ledger on disk),
//! [`message`] and [`session`] (the line), [`server`], [`client`], [`keeper`] and [`held_right`].

pub mod client;
pub mod codec;
pub mod file;
pub mod group;
pub mod held_right;
pub mod keeper;
pub mod lease;
pub mod ledger;
pub mod message;
pub mod server;
pub mod session;
