//! Commands of the primary that change rows, at a secondary: each is one record of its log, so it is there or not.

use crate::{
    frame::{SentChange, SentSnapshot},
    member::GroupMember,
};
use array::{
    error::Result,
    format::Stamp,
    pool::{GivenSnapshot, NewSnapshot},
};

/// Applies a command that changes rows, which is stable then. It may come again.
///
/// # Errors
///
/// It contradicts what is there, or deletes a volume with a locked snapshot; or the pool cannot write.
pub(super) async fn apply(member: &GroupMember, change: SentChange, stamp: Stamp) -> Result<()> {
    let pool = &member.pool;
    match change {
        SentChange::Resize { volume, sectors } => pool.ensure_size(volume, sectors, stamp).await.map(drop),
        SentChange::Snapshot(SentSnapshot { snapshot, created_at, name, note, volumes }) => {
            for &volume in &volumes {
                member.free_name(volume, (&name, snapshot)).await?;
            }
            let new = NewSnapshot { name: &name, snapshot, note: &note };
            pool.ensure_snapshot(&volumes, &GivenSnapshot { new, created_at, stamp }).await.map(drop)
        }
        SentChange::SnapshotDeleted { snapshot, volumes } => {
            member.follow_deletion((&volumes, snapshot), stamp).await
        }
        SentChange::RollBack { volume, snapshot, left } => {
            pool.ensure_rolled_back(volume, snapshot, left, stamp).await.map(drop)
        }
        SentChange::VolumeDeleted { volume } => {
            member.check_volume_unlocked(volume, stamp)?;
            pool.ensure_volume_deleted(volume, stamp).await.map(drop)
        }
        SentChange::Write { .. } | SentChange::Zeroes { .. } | SentChange::Discard { .. } => {
            unreachable!("content is begun as such")
        }
    }
}
