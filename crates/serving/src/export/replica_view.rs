//! `VOLUME@replica`: a volume of another site's, for readers here.

use super::{identity::IdentityOrigin, shared::SharedDevice, withholding::ServedAs};
use crate::{figures::PoolMeters, pool::folder::VolumePath};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{Pool, REPLICA_POINT},
};
use report::Refusal;
use std::{path::Path, rc::Rc};
use world::{BlockDevice, Sparse};

/// Stands for that point in the identity of its disk, which is not the volume's.
const REPLICA_IDENTITY: SnapshotId = SnapshotId(*b"replica's newest");

/// Difference between the identity of a volume and that of its clone that the readers of its replica see.
pub const READERS_CLONE: [u8; 16] = *b"readers' replica";

/// The clone of a volume that the readers of its replica see; of that clone, the volume.
pub fn readers_clone_of(VolumeId(mut id): VolumeId) -> VolumeId {
    id.iter_mut().zip(READERS_CLONE).for_each(|(byte, other)| *byte ^= other);
    VolumeId(id)
}

/// A read-only device that knows its holes.
pub type ReplicaDevice = (Rc<dyn BlockDevice>, Rc<dyn Sparse>);

/// The replicas among the volumes of a pool.
pub trait ReplicaViews {
    /// The device that is read as `VOLUME@replica`.
    ///
    /// # Errors
    ///
    /// The volume has no other site.
    fn device(&self, volume: VolumeId) -> Result<ReplicaDevice, Refusal>;
}

/// The volume that is meant by `VOLUME@replica`; `None` for anything else, also for a snapshot that has the name from before it
/// was reserved.
pub fn replica_of(pool: &Pool, meant: &str) -> Option<VolumeId> {
    // A path has the pool in front.
    let path = VolumePath::of(&Path::new("pool").join(meant))?;
    let volume = path.volume.as_str();
    let is_view = path.snapshot.as_deref() == Some(REPLICA_POINT);
    let is_taken = || {
        let all = pool.snapshots(volume).unwrap_or_default();
        all.iter().any(|snapshot| snapshot.name == REPLICA_POINT)
    };
    if !is_view || is_taken() { None } else { pool.volume_id(volume).ok() }
}

/// The origin of a replica: its identity is its own.
pub(super) fn origin_of(volume: VolumeId) -> IdentityOrigin {
    IdentityOrigin::Snapshot(volume, REPLICA_IDENTITY)
}

impl SharedDevice {
    /// The replica of a volume.
    pub(super) fn of_replica(
        meters: &PoolMeters,
        (name, path): (String, &Path),
        volume: VolumeId,
        (device, sparse): ReplicaDevice,
    ) -> Self {
        let point = (volume, Some(REPLICA_IDENTITY));
        let (device, sparse) = meters.meter(point, (device, Some(sparse)));
        Self {
            name,
            path: path.to_owned(),
            device,
            sparse,
            bitmaps: None,
            fill: None,
            is_thin: false,
            is_read_only: true,
            volume: None,
            what: "a replica",
            origin: origin_of(volume),
            served: ServedAs::default(),
        }
    }
}
