//! Points of backups in the pools, known by their notes.

use crate::{order::OrderRefusal, pool_thread::ServedPool, site::handle::PoolHandle};
use array::{
    format::{SnapshotId, VolumeId, WallNanoseconds},
    pool::Snapshot,
};
use protect::{
    backup_schedule::set_and_sequence_of,
    catalogue::{CutPoint, FoundPoint, PointNote},
};
use serving::export::IdentityOrigin;
use std::rc::Rc;
use thiserror::Error;

/// A point of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPoint {
    /// Its identity is `VOLUME/SNAPSHOT`, both UUIDs: volumes may be renamed.
    pub found: FoundPoint,
    /// The exports and units by which it can be used, in words.
    pub services: Vec<String>,
    /// When it was taken, by the pool's clock of then.
    pub taken: WallNanoseconds,
}

/// The reason why a pool's points are not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointsRefusal {
    #[error("{0}")]
    Order(#[from] OrderRefusal),
    #[error("a snapshot over several pools is not settled: {0}")]
    Unsettled(String),
}

/// The identity of a point: both UUIDs, so that it stays when the volume is renamed.
pub fn point_id(volume: VolumeId, snapshot: SnapshotId) -> String {
    format!("{volume}/{snapshot}")
}

/// UUIDs of the volume and of the snapshot in the identity of a point; the second is empty in what is no such identity.
pub fn parts_of_id(id: &str) -> (&str, &str) {
    id.split_once('/').unwrap_or((id, ""))
}

/// The points of backups in a pool; of one set's, by its name, if it is given.
///
/// # Errors
///
/// The pool does not answer, or may yet lose one of its points.
pub(crate) async fn points_in(
    pool: &PoolHandle,
    set: Option<String>,
) -> Result<Vec<BackupPoint>, PointsRefusal> {
    let name = pool.name.clone();
    let reading = pool.begin("list points of backups", move |served| {
        Box::pin(async move { read(&served, &name, set.as_deref()).await })
    })?;
    reading.await?
}

async fn read(
    served: &Rc<ServedPool>,
    pool: &str,
    set: Option<&str>,
) -> Result<Vec<BackupPoint>, PointsRefusal> {
    let mut points = Vec::new();
    for volume in served.pool.volumes().into_iter().filter(|volume| volume.snapshots > 0) {
        for snapshot in served.pool.snapshots(volume.volume).unwrap_or_default() {
            if !is_wanted(&snapshot, set) {
                continue;
            }
            if snapshot.cut.is_some() {
                return Err(PointsRefusal::Unsettled(snapshot.name));
            }
            let origin = IdentityOrigin::Snapshot(volume.volume, snapshot.snapshot);
            let id = point_id(volume.volume, snapshot.snapshot);
            let point = CutPoint { pool: pool.to_owned(), volume: volume.name.clone(), id };
            let found = FoundPoint { point, name: snapshot.name, note: snapshot.note };
            let services = served.exports.services_of(&origin);
            points.push(BackupPoint { found, services, taken: snapshot.created_at });
        }
        served.world.yield_now().await;
    }
    Ok(points)
}

fn is_wanted(snapshot: &Snapshot, set: Option<&str>) -> bool {
    let is_of_backup = !matches!(PointNote::decode(&snapshot.note), Ok(None));
    is_of_backup && set.is_none_or(|set| set_and_sequence_of(&snapshot.name).is_some_and(|(of, _)| of == set))
}
