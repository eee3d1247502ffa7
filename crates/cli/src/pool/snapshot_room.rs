//! What the deletion of snapshots would free, in words.

use array::pool::SnapshotRoom;
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Deletions that are named, at most: those that free the most.
const NAMED_MAX: usize = 4;

/// What deletion of one snapshot of a volume would free, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownSnapshotRoom {
    /// Their volume.
    pub volume: String,
    /// One of them; none stands for all that the volume has.
    pub snapshot: Option<String>,
    /// What it would free.
    pub bytes: u64,
}

impl ShownSnapshotRoom {
    /// As the pool says it.
    pub fn of(room: &SnapshotRoom) -> Self {
        let SnapshotRoom { volume, snapshot, bytes } = room.clone();
        Self { volume, snapshot, bytes }
    }
}

/// What to delete for room.
pub fn room_to_make(snapshots: &[ShownSnapshotRoom]) -> String {
    if snapshots.is_empty() {
        return "no snapshot keeps anything: delete or discard data".to_owned();
    }
    let deletion = |room: &ShownSnapshotRoom| {
        let volume = &room.volume;
        let what = match &room.snapshot {
            Some(snapshot) => format!("deleting snapshot {volume}@{snapshot}"),
            None => format!("deleting all snapshots of {volume}"),
        };
        match room.bytes {
            0 => format!("{what} frees nothing yet but lets {volume} be overwritten"),
            bytes => format!("{what} frees {}", ByteCount(bytes)),
        }
    };
    snapshots.iter().take(NAMED_MAX).map(deletion).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deletions_that_free_the_most_are_named_or_that_none_frees_anything() {
        assert_eq!(room_to_make(&[]), "no snapshot keeps anything: delete or discard data");
        let room = |snapshot: Option<&str>, bytes| ShownSnapshotRoom {
            volume: "mail".to_owned(),
            snapshot: snapshot.map(str::to_owned),
            bytes,
        };
        assert_eq!(
            room_to_make(&[room(None, 3 << 30), room(Some("monday"), 1 << 20)]),
            "deleting all snapshots of mail frees 3.00 GiB, deleting snapshot mail@monday frees 1.00 MiB"
        );
        assert_eq!(
            room_to_make(&[room(Some("new"), 0)]),
            "deleting snapshot mail@new frees nothing yet but lets mail be overwritten"
        );
    }
}
