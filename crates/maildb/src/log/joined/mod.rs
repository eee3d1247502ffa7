//! A log joined from copies of it: databases of an earlier backup are brought forward with later logs.
//!
//! Each copy is a folder with the log as it stood at some moment. The *base* lies with the databases that are to
//! be brought forward; the others are later: of later backups, or of the running group. Together they must hold
//! every generation from the base's checkpoint to the end that is wanted. [`JoinedLog::prove`] finds the
//! generations, proves that they are one log without a gap, and changes nothing; [`JoinedLog::join`] then makes the
//! base's folder hold them, and an ordinary recovery replays them.
//!
//! # One line
//!
//! A group that is restored continues its old log under the same signature, in generations that the live group
//! has written too, with other records: the log *forks*. No log of one line may be replayed onto the other. So:
//!
//! 1. Copies of a generation in several folders have the same header: it holds the times at which the generation
//!    and the one before were created, where the one before ended, and the XOR of its checksums.
//! 2. The newest generation of a folder was still being written there. Its records begin the same generation in
//!    the other folders, byte for byte.
//! 3. Each generation follows the one before, as in any log (rule 4 of [`crate::log`]).
//!
//! # Killed while joining
//!
//! Generations come into the base's folder one after the other, oldest first, each whole under a foreign name and
//! then renamed. So the folder holds a log that recovery accepts at every moment, and the same call goes on.
//!
//! # Not in any log
//!
//! Pages of a bulk load are written without log records. A chain that holds the link of such pages is refused.

mod copies;
mod error;
mod join;
mod proof;

pub use error::LogJoinError;

use super::LogFiles;
use crate::format::header::{LogPosition, LogTime};
use std::{collections::BTreeMap, rc::Rc};
use world::Directory;

/// A folder that holds a copy of the log.
#[derive(Clone)]
pub struct LogFolder {
    pub directory: Rc<dyn Directory>,
    /// Its name in messages.
    pub name: String,
}

/// Wanted end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinEnd {
    /// The last record that any folder has.
    Newest,
    /// The end of a generation.
    Generation(u32),
    /// The last log segment written at this time or before (UTC). Records of a segment that was filled up later
    /// are left out, up to 4 KiB of them.
    Time(LogTime),
}

/// Generations that come from one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinPart {
    /// Name of the folder.
    pub folder: String,
    pub first: u32,
    pub last: u32,
}

/// Extent of a proven chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSummary {
    /// End of the base's own log.
    pub base_end: LogPosition,
    /// End of the chain; `base_end` if nothing is joined.
    pub end: LogPosition,
    /// Time (UTC) at which the last of its records were written.
    pub time: LogTime,
    /// Generations that the base lacks in whole or in part, oldest first.
    pub parts: Vec<JoinPart>,
    /// Transactions that were committed behind `base_end`.
    pub commits: u64,
}

/// A proven chain of log generations.
pub struct JoinedLog {
    base: LogFolder,
    /// All generations from the base's checkpoint to the end, each in the folder it is taken from.
    files: LogFiles,
    /// Last segment of the last generation, if the chain ends within it.
    last_segment: Option<u16>,
    summary: JoinSummary,
}

impl JoinedLog {
    pub fn summary(&self) -> &JoinSummary {
        &self.summary
    }
}

/// Consecutive generations of one folder as one part.
fn parts_of(folders: &BTreeMap<u32, String>) -> Vec<JoinPart> {
    let mut parts: Vec<JoinPart> = Vec::new();
    for (&generation, folder) in folders {
        match parts.last_mut() {
            Some(part) if part.folder == *folder && part.last + 1 == generation => part.last = generation,
            _ => parts.push(JoinPart { folder: folder.clone(), first: generation, last: generation }),
        }
    }
    parts
}
