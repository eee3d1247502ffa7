//! Room that the deletion of snapshots would free.

use array::pool::SnapshotRoom;
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// The deletions shown: those that free the most.
const NAMED_MAX: usize = 4;

/// Room that the deletion of one snapshot of a volume, or of all of them, would free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRoomStatus {
    pub volume: String,
    /// `None` stands for all snapshots of the volume.
    pub snapshot: Option<String>,
    pub bytes: u64,
}

impl SnapshotRoomStatus {
    pub fn of(room: &SnapshotRoom) -> Self {
        let SnapshotRoom { volume, snapshot, bytes } = room.clone();
        Self { volume, snapshot, bytes }
    }
}

/// Advice on deleting snapshots.
pub fn room_to_make(snapshots: &[SnapshotRoomStatus]) -> String {
    if snapshots.is_empty() {
        return "no snapshot keeps anything: delete or discard data".to_owned();
    }
    let deletion = |room: &SnapshotRoomStatus| {
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
        let room = |snapshot: Option<&str>, bytes| SnapshotRoomStatus {
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
