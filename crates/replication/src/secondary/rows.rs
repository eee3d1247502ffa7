//! Commands of the primary that change rows, at a secondary: each is one record of its log, so it is there or not.

use crate::frame::{SentChange, SentSnapshot};
use array::{
    error::Result,
    format::Stamp,
    pool::{GivenSnapshot, NewSnapshot, Pool},
};

/// Applies a command that changes rows, which is stable then. It may come again.
///
/// # Errors
///
/// It contradicts what is there, or the pool cannot write.
pub(super) async fn apply(pool: &Pool, change: SentChange, stamp: Stamp) -> Result<()> {
    match change {
        SentChange::Resize { volume, sectors } => pool.ensure_size(volume, sectors, stamp).await.map(drop),
        SentChange::Snapshot(SentSnapshot { snapshot, created_at, name, note, volumes }) => {
            let new = NewSnapshot { name: &name, snapshot, note: &note };
            pool.ensure_snapshot(&volumes, &GivenSnapshot { new, created_at, stamp }).await.map(drop)
        }
        SentChange::SnapshotDeleted { snapshot, volumes } => {
            pool.ensure_snapshot_deleted(&volumes, snapshot, stamp).await.map(drop)
        }
        SentChange::RollBack { volume, snapshot, left } => {
            pool.ensure_rolled_back(volume, snapshot, left, stamp).await.map(drop)
        }
        SentChange::VolumeDeleted { volume } => pool.ensure_volume_deleted(volume, stamp).await.map(drop),
        SentChange::Write { .. } | SentChange::Zeroes { .. } | SentChange::Discard { .. } => {
            unreachable!("content is begun as such")
        }
    }
}
