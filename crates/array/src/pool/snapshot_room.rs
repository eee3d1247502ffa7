//! Space that deleting snapshots would free, reported when a full pool refuses writes.

use super::snapshots::deletion_bytes;
use crate::{
    engine::{MapReader, PlannedDeletion, events::SnapshotRoom},
    error::Result,
    format::{BranchNumber, Stamp, row::VolumeState},
};

/// Limit of the history scans for single snapshots; all snapshots of a volume together need one scan.
const WALKS_MAX: usize = 16;

/// A snapshot: its point and its name.
type NamedPoint = ((BranchNumber, Stamp), String);

/// Space that deleting snapshots would free, largest first: for each volume with snapshots all of them
/// together, and, if there are few, each one that frees something. A snapshot that frees nothing yet still
/// prevents overwrites in a full pool. Scans the history tree.
///
/// # Errors
///
/// A part of the map cannot be read.
pub(super) async fn snapshot_room(map: &MapReader) -> Result<Vec<SnapshotRoom>> {
    let mut rooms = Vec::new();
    let mut walks_left = WALKS_MAX;
    for (volume, points) in snapshots(map) {
        let together = freed_by(map, points.iter().map(|(point, _)| *point)).await?;
        if let [(_, name)] = &points[..] {
            rooms.push(SnapshotRoom { volume, snapshot: Some(name.clone()), bytes: together });
            continue;
        }
        if together > 0
            && let Some(left) = walks_left.checked_sub(points.len())
        {
            walks_left = left;
            for (point, name) in points {
                let bytes = freed_by(map, [point]).await?;
                if bytes > 0 {
                    rooms.push(SnapshotRoom { volume: volume.clone(), snapshot: Some(name), bytes });
                }
            }
        }
        rooms.push(SnapshotRoom { volume, snapshot: None, bytes: together });
    }
    rooms.sort_by_key(|room| std::cmp::Reverse(room.bytes));
    Ok(rooms)
}

async fn freed_by(map: &MapReader, points: impl IntoIterator<Item = (BranchNumber, Stamp)>) -> Result<u64> {
    let snapshots = points.into_iter().collect();
    deletion_bytes(map, &PlannedDeletion { snapshots, ..PlannedDeletion::default() }).await
}

/// The live volumes that have snapshots, with them, on whichever of their branches.
fn snapshots(map: &MapReader) -> Vec<(String, Vec<NamedPoint>)> {
    let state = map.shared.state.borrow();
    let live = state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
    let all = live.map(|(number, row)| {
        // Those of a cut that is not settled cannot be deleted.
        let snapshots = state
            .catalogue
            .snapshots_of(number)
            .filter(|(_, _, row)| state.catalogue.cut(row.snapshot).is_none());
        let points = snapshots.map(|(branch, stamp, point)| ((branch, stamp), point.name.clone()));
        (row.name.clone(), points.collect::<Vec<_>>())
    });
    all.filter(|(_, points)| !points.is_empty()).collect()
}
