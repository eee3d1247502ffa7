//! Space that deleting snapshots would free, reported when a full pool refuses writes.

use super::snapshots::reclaimable_bytes;
use crate::{
    engine::{MapReader, events::SnapshotRoom},
    error::Result,
    format::{BranchNumber, Stamp, row::VolumeState},
};

/// Limit of the history scans for single snapshots; all snapshots of a volume together need one scan.
const WALKS_MAX: usize = 16;

/// The snapshots of one volume.
struct Snapshots {
    volume: String,
    branch: BranchNumber,
    points: Vec<(Stamp, String)>,
}

/// Space that deleting snapshots would free, largest first: for each volume with snapshots all of them together,
/// and, if there are few, each one that frees something. A snapshot that frees nothing yet still prevents
/// overwrites in a full pool. Scans the history tree.
///
/// # Errors
///
/// A part of the map cannot be read.
pub(super) async fn snapshot_room(map: &MapReader) -> Result<Vec<SnapshotRoom>> {
    let mut rooms = Vec::new();
    let mut walks_left = WALKS_MAX;
    for Snapshots { volume, branch, points } in snapshots(map) {
        let stamps: Vec<Stamp> = points.iter().map(|(stamp, _)| *stamp).collect();
        let together = reclaimable_bytes(map, branch, &stamps).await?;
        if let [(_, name)] = &points[..] {
            rooms.push(SnapshotRoom { volume, snapshot: Some(name.clone()), bytes: together });
            continue;
        }
        if together > 0
            && let Some(left) = walks_left.checked_sub(points.len())
        {
            walks_left = left;
            for (stamp, name) in points {
                let bytes = reclaimable_bytes(map, branch, &[stamp]).await?;
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

/// All live volumes that have snapshots.
fn snapshots(map: &MapReader) -> Vec<Snapshots> {
    let state = map.shared.state.borrow();
    let live = state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
    let of_volume = live.map(|(_, row)| {
        let points = state.catalogue.snapshots_of(row.branch).map(|(stamp, row)| (stamp, row.name.clone()));
        Snapshots { volume: row.name.clone(), branch: row.branch, points: points.collect() }
    });
    of_volume.filter(|snapshots| !snapshots.points.is_empty()).collect()
}
