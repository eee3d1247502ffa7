//! The mailbox database: a transactional engine on the true ESE page format.
//!
//! A *storage group* ([`Instance`]) is one transaction log shared by one to ten databases. A
//! database is a file of fixed-size pages; its tables are B+trees; every page carries the format's
//! own checksum, so third-party readers open the files. Records are inserted, replaced, deleted and
//! read through a [`Session`] in transactions that are durable (stable before `commit` returns) or
//! lazy (stable a little later, always as a prefix of what was committed).
//!
//! The engine runs on one thread and knows only [`world`]: a clock, a spawner, and a
//! [`world::Directory`] of files. Its central rule: **every change of pages is one synchronous step
//! over cached pages.** A step that meets a page not in the cache changes nothing and names the
//! page; the caller reads it and tries again. So no half-changed state exists across an await, and
//! there are no latches to order.
//!
//! Layers, each using only those before it: [`format`](mod@format) (bytes of pages and headers), [`log`] (the
//! transaction log), `engine/` (cache, tree, space, catalogue, transactions, checkpoint, recovery),
//! [`verify`].

pub mod config;
mod engine;
pub mod error;
pub mod format;
pub mod log;
pub mod planted;
pub mod statistics;
pub mod verify;

/// Disk space and file name of a database's page stamps.
pub mod stamps {
    pub use crate::engine::page_stamps::{BYTES_A_PAGE, file_name, space_max};
}

pub use config::{DatabaseLocation, InstanceConfig, LogRetention, PageStampMode};
pub use engine::{
    bulk_load::{BulkLoadSettings, BulkLoader},
    database::Database,
    freeze::{FrozenGroup, GroupFreezer},
    instance::Instance,
    put_back::{DatabasePlace, put_back},
    recovery::RecoverySummary,
    table::{Table, TableDefinition},
    transaction::{Durability, Session},
};
pub use error::{Error, Result, StampFinding};
pub use format::{
    key::Value,
    page_size::{PageNumber, PageSize},
    record::{ColumnDefinition, ColumnId, ColumnType},
};
pub use statistics::Statistics;
