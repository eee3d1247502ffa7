//! Errors of joining logs.

use crate::{
    format::header::{LogPosition, LogTime},
    log::LogError,
};

/// Reasons why logs cannot be joined. Nothing was changed, except by [`LogJoinError::Joining`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogJoinError {
    /// A folder holds no log of the group.
    #[error("{folder}: there is no log of this storage group")]
    NoLog { folder: String },
    /// The log of a folder is damaged, or cannot be read.
    #[error("{folder}: {error}")]
    Log { folder: String, error: LogError },
    /// The log of another group, by its signature.
    #[error("{folder}: it is the log of another storage group")]
    OtherLog { folder: String },
    /// The log of the same group after a restore, or of the group that went on beside it.
    #[error(
        "{folder}: its log forks from the others in generation {generation:#X}: one of them was written after a restore, \
         and neither can be replayed onto the other"
    )]
    OtherLine { folder: String, generation: u32 },
    /// No folder has these generations in whole.
    #[error("log generations {first:#X} to {last:#X} are missing: no folder has them in whole")]
    Gap { first: u32, last: u32 },
    /// The wanted end is before the end of the base's own log, which its databases need.
    #[error(
        "the backup itself reaches generation {:#X}, written {time}: choose an earlier backup", base_end.generation
    )]
    BeforeBackup { base_end: LogPosition, time: LogTime },
    /// The wanted end is a generation that no folder has.
    #[error("the logs end in generation {newest:#X}: there is no generation {wanted:#X}")]
    BeyondEnd { wanted: u32, newest: u32 },
    /// Pages of a bulk load are in no log.
    #[error(
        "generation {generation:#X} holds the end of a bulk load, whose pages are in no log: choose a backup taken after it, \
         or an end before that generation"
    )]
    BulkLoad { generation: u32 },
    /// The storage failed while generations came into the folder of the base. The same call goes on.
    #[error("{folder}: joining the log failed: {error}; the same call goes on")]
    Joining { folder: String, error: LogError },
}
