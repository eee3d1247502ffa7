//! What the deletion of snapshots would free: said where a full pool refuses writes.

use super::Pool;
use crate::error::Result;

/// Histories that are walked for single snapshots, at most; all snapshots of a volume together are one walk each.
const WALKS_MAX: usize = 16;

/// What deletion of some snapshots of a volume would free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRoom {
    /// Their volume.
    pub volume: String,
    /// One of them; none stands for all that the volume has.
    pub snapshot: Option<String>,
    /// In bytes.
    pub bytes: u64,
}

impl Pool {
    /// What the deletion of snapshots would free: of each volume that has some all of them together, and where there are few each
    /// that frees something. The most comes first. What frees nothing yet still keeps blocks from being overwritten in a full
    /// pool. Reads what the trees have of history.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn snapshot_room(&self) -> Result<Vec<SnapshotRoom>> {
        let mut rooms = Vec::new();
        let mut walks_left = WALKS_MAX;
        for volume in self.volumes() {
            let volume = volume.name;
            // It may be deleted meanwhile.
            let Ok(snapshots) = self.snapshots(&volume) else { continue };
            let names: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
            if names.is_empty() {
                continue;
            }
            let together = self.gives_back(&volume, &names).await?;
            if names.len() == 1 {
                rooms.push(SnapshotRoom { volume, snapshot: Some(names[0].to_owned()), bytes: together });
                continue;
            }
            if together > 0
                && let Some(left) = walks_left.checked_sub(names.len())
            {
                walks_left = left;
                for name in names {
                    let bytes = self.gives_back(&volume, &[name]).await?;
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
