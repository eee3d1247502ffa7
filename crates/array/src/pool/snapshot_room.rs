//! Space that deleting snapshots would free, reported when a full pool refuses writes.

use super::Pool;
use crate::error::Result;

/// Limit of the history scans for single snapshots; all snapshots of a volume together need one scan.
const WALKS_MAX: usize = 16;

/// Space that deleting a snapshot, or all of a volume, would free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRoom {
    pub volume: String,
    /// `None` stands for all snapshots of the volume.
    pub snapshot: Option<String>,
    pub bytes: u64,
}

impl Pool {
    /// Space that deleting snapshots would free, largest first: for each volume with snapshots all of them
    /// together, and, if there are few, each one that frees something. A snapshot that frees nothing yet
    /// still prevents overwrites in a full pool. Scans the history tree.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn snapshot_room(&self) -> Result<Vec<SnapshotRoom>> {
        let mut rooms = Vec::new();
        let mut walks_left = WALKS_MAX;
        for volume in self.volumes() {
            let volume = volume.name;
            // The volume may be deleted meanwhile.
            let Ok(snapshots) = self.snapshots(&volume) else { continue };
            let names: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
            if names.is_empty() {
                continue;
            }
            let together = self.reclaimable_bytes(&volume, &names).await?;
            if names.len() == 1 {
                rooms.push(SnapshotRoom { volume, snapshot: Some(names[0].to_owned()), bytes: together });
                continue;
            }
            if together > 0
                && let Some(left) = walks_left.checked_sub(names.len())
            {
                walks_left = left;
                for name in names {
                    let bytes = self.reclaimable_bytes(&volume, &[name]).await?;
                    if bytes > 0 {
                        let (volume, snapshot) = (volume.clone(), Some(name.to_owned()));
                        rooms.push(SnapshotRoom { volume, snapshot, bytes });
                    }
                }
            }
            rooms.push(SnapshotRoom { volume, snapshot: None, bytes: together });
        }
        rooms.sort_by_key(|room| std::cmp::Reverse(room.bytes));
        Ok(rooms)
    }
}
