//! The database load: mailbox databases, the operations on them, and the sessions that run these. Uses
//! [`plan`](super::plan).

pub mod answer_gap;
pub mod create;
pub mod dial_tone;
pub mod error;
pub mod key_space;
pub mod mail_bytes;
mod mail_message;
pub mod mail_record;
pub mod mail_table;
pub mod mailbox;
pub mod merge;
pub mod operation;
pub mod scan;
pub mod session;
