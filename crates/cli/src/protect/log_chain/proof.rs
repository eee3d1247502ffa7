//! The proof that copies of a log are one chain, from a backup to the wanted end.

use super::{backup_groups::BackupGroup, later_logs::LaterLogs};
use crate::server::{connection::ServerConnection, place::ServerPlace};
use maildb::log::{JoinEnd, JoinedLog, LogFolder, LogJoinError};
use report::Refusal;
use std::collections::BTreeSet;
use world::World;

/// Proves the chain; opens older copies of the log until it has no gap.
///
/// # Errors
///
/// There is a gap or a fork, or a copy cannot be read.
pub(super) async fn prove(
    world: &World,
    (server, place): (&ServerConnection, &ServerPlace),
    (group, base): (&BackupGroup, &LogFolder),
    later: &mut LaterLogs,
    end: JoinEnd,
) -> Result<JoinedLog, Refusal> {
    // Backups of another line, which cannot close a gap of this one.
    let mut other_lines = BTreeSet::new();
    if later.open().is_empty() {
        later.open_next(world, server, place).await?;
    }
    loop {
        let folders: Vec<LogFolder> =
            later.open().iter().filter(|folder| !other_lines.contains(&folder.name)).cloned().collect();
        let newest = folders.first().map(|folder| folder.name.clone());
        let proven = JoinedLog::prove(&group.config.base_name, base.clone(), folders, end).await;
        match proven {
            Ok(joined) => return Ok(joined),
            Err(LogJoinError::Gap { .. }) if later.open_next(world, server, place).await? => {}
            // The newest one says which line is meant. Backups of a dial tone have a log of their own.
            Err(LogJoinError::OtherLine { folder, .. } | LogJoinError::OtherLog { folder })
                if newest.as_ref() != Some(&folder)
                    && folder != base.name
                    && later.open().iter().any(|open| open.name == folder) =>
            {
                other_lines.insert(folder);
            }
            Err(error) => return Err(refusal(group, &error)),
        }
    }
}

/// The refusal of logs that cannot be joined.
pub(super) fn refusal(group: &BackupGroup, error: &LogJoinError) -> Refusal {
    let to_log = |first: u32| {
        format!("⟨to-log⟩ {:X} goes no further than that; ⟨logs⟩ none restores the backup alone", first - 1)
    };
    let remedy = match error {
        LogJoinError::Gap { first, .. } => to_log(*first),
        LogJoinError::BulkLoad { generation } => to_log(*generation),
        LogJoinError::OtherLine { .. } | LogJoinError::OtherLog { .. } => {
            "give ⟨logs⟩ a backup of the same line, or the volume that the restore or the dial tone left (such as log~1), or \
             none".to_owned()
        }
        LogJoinError::Joining { .. } => "the same command does it again".to_owned(),
        _ => "⟨logs⟩ none restores the backup alone".to_owned(),
    };
    Refusal::new(format!("{}: {error}", group.names()), remedy)
}
