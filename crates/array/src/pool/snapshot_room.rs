//! Space that deleting snapshots would free, reported when a full pool refuses writes.

use super::snapshots::deletion_bytes;
use crate::{
    engine::{MapReader, PlannedDeletion, events::SnapshotRoom},
    error::Result,
    format::{BranchNumber, Stamp, row::VolumeState},
};

/// Limit of the history scans for single snapshots; all snapshots of a volume together need one scan.
const WALKS_MAX: usize = 16;

/// The snapshots of one volume on one of its branches.
struct Snapshots {
    volume: String,
    branch: BranchNumber,
    points: Vec<(Stamp, String)>,
}

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
    for Snapshots { volume, branch, points } in snapshots(map) {
        let together = freed_by(map, branch, points.iter().map(|(stamp, _)| *stamp)).await?;
        if let [(_, name)] = &points[..] {
            rooms.push(SnapshotRoom { volume, snapshot: Some(name.clone()), bytes: together });
            continue;
        }
        if together > 0
            && let Some(left) = walks_left.checked_sub(points.len())
        {
            walks_left = left;
            for (stamp, name) in points {
                let bytes = freed_by(map, branch, [stamp]).await?;
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

async fn freed_by(
    map: &MapReader,
    branch: BranchNumber,
    stamps: impl IntoIterator<Item = Stamp>,
) -> Result<u64> {
    let snapshots = stamps.into_iter().map(|stamp| (branch, stamp)).collect();
    deletion_bytes(map, &PlannedDeletion { snapshots, ..PlannedDeletion::default() }).await
}

/// The snapshots of all live volumes, by branch.
fn snapshots(map: &MapReader) -> Vec<Snapshots> {
    let state = map.shared.state.borrow();
    let mut all = Vec::<Snapshots>::new();
    for (number, row) in state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live) {
        for (branch, stamp, point) in state.catalogue.snapshots_of(number) {
            let point = (stamp, point.name.clone());
            match all.last_mut() {
                Some(last) if last.branch == branch => last.points.push(point),
                _ => all.push(Snapshots { volume: row.name.clone(), branch, points: vec![point] }),
            }
        }
    }
    all
}
