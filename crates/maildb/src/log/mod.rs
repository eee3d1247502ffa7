//! The transaction log of a storage group.
//!
//! A log is a chain of files, the *generations*, 1 MiB each unless configured otherwise. The container
//! is ESE's version 8; the contents of records are ours ([`record`]).
//!
//! ```text
//! file      = header 4096 B | segment 1 | segment 2 | ... | last segment, only ever a shadow
//! segment   = 40 B of header | 4056 B of records, zero-filled behind the last
//! E00.log     the current generation          E0000000001.log  an archived one (8 hex digits)
//! E00tmp.log  the next one, being prepared    E00.chk          the checkpoint
//! ```
//!
//! Rules of durability:
//!
//! 1. One writer task, one write in flight, every write `Stable`. A commit is acknowledged when a
//!    completed write holds all of it; many commits share a write.
//! 2. A partial segment *s* is written with a byte-identical *shadow* at *s+1*. It is rewritten only
//!    while that shadow is intact, and alone; so a torn rewrite can always be repaired.
//! 3. Every segment stores where its write began. A bad segment below the start of a later write was
//!    acknowledged, hence is damage; one inside the last write is a torn tail. So recovery distinguishes
//!    the two without guessing.
//! 4. A generation starts only when all of the one before is stable, and its header records where the
//!    one before ended and the XOR of its segment checksums. After recovery the log continues in a new
//!    generation, so bytes behind a recovered tail never count.
//! 5. A record never spans two generations.
//! 6. A held log writes nothing: a freeze ends a generation, makes it stable, and holds the next one empty.
//!
//! The log uses [`format`](mod@crate::format) and never the engine. Reading order: [`record`], [`segment`],
//! [`file_header`], `framing`, `buffer`, [`LogHandle`] (`handle`, `writer`, `next_file`), [`files`],
//! [`reader`], [`checkpoint`], [`joined`].

mod buffer;
pub mod checkpoint;
pub mod config;
pub mod error;
mod fields;
pub mod file_header;
pub mod files;
mod framing;
mod generation;
mod handle;
pub mod joined;
pub mod names;
mod next_file;
mod node_operation;
mod page_change;
mod page_image;
mod page_stamp;
pub mod reader;
pub mod record;
pub mod segment;
mod stamp;
mod writer;

pub use checkpoint::{CheckpointFile, LogCheckpoint};
pub use config::LogConfig;
pub use error::{Damage, LogError};
pub use files::LogFiles;
pub use generation::last_with_records;
pub use handle::{LogHandle, LogRange, LogStatistics};
pub use joined::{JoinEnd, JoinPart, JoinSummary, JoinedLog, LogFolder, LogJoinError};
pub use names::LogNames;
pub use node_operation::{COMPENSATES, NodeOperation};
pub use page_change::{PageChange, PageOperation};
pub use page_image::PageImage;
pub use page_stamp::PageStamp;
pub use reader::{LogReader, LoggedRecord, RecoveredTail, ReplayRange};
pub use record::{LogRecord, LogRecordError, RestructureKind};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod memory_world;
#[cfg(test)]
mod record_tests;
