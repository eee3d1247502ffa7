//! Changes of a volume or a snapshot since each older snapshot, as dirty bitmaps `since-NAME`.

use super::identity::IdentityOrigin;
use array::{
    format::{SnapshotId, VolumeId},
    pool::{ChangeMap, Pool, SnapshotKey},
};
use nbd::{DirtyBitmap, DirtyBitmaps, DirtyExtent};
use std::rc::Rc;
use world::{ByteCount, ByteOffset, IoResult, LocalFuture};

const SINCE: &str = "since-";

/// The pool of an export: a volume may move to another one.
pub type PoolNow = Rc<dyn Fn() -> Rc<Pool>>;

/// The snapshots before an exported state.
pub struct VolumeChanges {
    /// The pool that it is in.
    pool: PoolNow,
    volume: VolumeId,
    /// The exported snapshot; none for the volume as it is now.
    to: Option<SnapshotId>,
}

impl VolumeChanges {
    /// Of an export with this origin; none unless that is a volume or a snapshot.
    pub fn of(pool: &PoolNow, origin: &IdentityOrigin) -> Option<Rc<dyn DirtyBitmaps>> {
        let (volume, to) = match *origin {
            IdentityOrigin::Volume(volume) => (volume, None),
            IdentityOrigin::Snapshot(volume, snapshot) => (volume, Some(snapshot)),
            IdentityOrigin::File { .. } | IdentityOrigin::Device => return None,
        };
        Some(Rc::new(Self { pool: Rc::clone(pool), volume, to }))
    }

    /// Oldest first; none if the volume or the snapshot was deleted.
    fn earlier(&self) -> Vec<(String, SnapshotId)> {
        (self.pool)().earlier_snapshots(self.volume, self.to.map(SnapshotKey::from)).unwrap_or_default()
    }
}

impl DirtyBitmaps for VolumeChanges {
    fn names(&self) -> Vec<String> {
        self.earlier().into_iter().map(|(name, _)| format!("{SINCE}{name}")).collect()
    }

    fn find(&self, name: &str) -> Option<Rc<dyn DirtyBitmap>> {
        let wanted = name.strip_prefix(SINCE)?;
        let (_, snapshot) = self.earlier().into_iter().find(|(name, _)| name == wanted)?;
        let to = self.to.map(SnapshotKey::from);
        let map = (self.pool)().changes_since(self.volume, snapshot.into(), to).ok()?;
        Some(Rc::new(ChangesSince(Rc::new(map))))
    }
}

struct ChangesSince(Rc<ChangeMap>);

impl DirtyBitmap for ChangesSince {
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<DirtyExtent>>> {
        let map = Rc::clone(&self.0);
        Box::pin(async move {
            let extents = map.extents(at, length).await?;
            let dirty = extents
                .iter()
                .map(|extent| DirtyExtent { length: extent.length, is_dirty: extent.is_changed });
            Ok(dirty.collect())
        })
    }
}
