//! Remains of a `dr create` that failed half-way, at the other site, and their undoing.
//!
//! Replicas come before the record of their group, and that before the group at the primary. So a crash may leave replicas
//! of no group, or a group that its primary never made. Both are empty.
//!
//! Invariants:
//!
//! 1. Only replicas without any data are deleted, and only if no record of the pool may have them.
//! 2. A group is undone only if nothing of its first copy came, and the other site, which is connected, has not named it
//!    for [`OFFER_KEPT`].

use super::pool_groups::PoolDrGroups;
use crate::planted::{self, DrBug};
use array::{
    error::Error,
    format::{GroupId, VolumeId},
    pool::{Pool, VolumeKey},
};
use replication::connect::SiteRole;
use report::Refusal;
use std::{rc::Rc, time::Duration};
use world::{ByteCount, ByteOffset};

/// Time for the other site to make its side of a group that it offered.
pub(super) const OFFER_KEPT: Duration = Duration::from_secs(600);
/// Pause before a deletion that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// True if nothing is mapped.
async fn is_empty(pool: &Pool, volume: VolumeId) -> Result<bool, Error> {
    let device = pool.volume(VolumeKey::Id(volume))?;
    let (mut at, size) = (0, device.size_bytes());
    while at < size {
        let extents = device.extents(ByteOffset(at), ByteCount(size - at)).await.map_err(Error::Copy)?;
        if extents.iter().any(|extent| !extent.is_hole) {
            return Ok(false);
        }
        at += extents.iter().map(|extent| extent.length.0).sum::<u64>();
    }
    Ok(true)
}

impl PoolDrGroups {
    /// Replicas that are in no group. A record that cannot be read may have them.
    pub(super) fn orphans(&self) -> Vec<VolumeId> {
        if !self.damaged.borrow().is_empty() {
            return Vec::new();
        }
        let grouped = self.all_volumes();
        let is_orphan = |id: &VolumeId| !grouped.contains(id) && self.pool.is_replica(*id).unwrap_or(false);
        self.pool.volumes().into_iter().map(|info| info.volume).filter(is_orphan).collect()
    }

    /// Deletes replicas that a creation left before it had a group.
    pub(super) fn delete_orphans(self: &Rc<Self>) {
        if self.orphans().is_empty() || planted::is_in_dr(DrBug::OrphansKept) {
            return;
        }
        let own = Rc::downgrade(self);
        let world = self.world.clone();
        self.world.spawn("half-made replicas", async move {
            while let Some(groups) = own.upgrade() {
                let one_at_a_time = groups.making.lock().await;
                let deleted = groups.delete_empty(&groups.orphans()).await;
                drop(one_at_a_time);
                match deleted {
                    Ok(deleted) if deleted > 0 => {
                        return groups.notices.note(format!(
                            "{deleted} empty replicas of a DR group that was never made were deleted"
                        ));
                    }
                    Ok(_) => return,
                    Err(_) => {}
                }
                drop(groups);
                world.sleep(TRY_AGAIN).await;
            }
        });
    }

    /// Deletes those of some replicas that have no data, and returns their number.
    pub(super) async fn delete_empty(&self, replicas: &[VolumeId]) -> Result<usize, Error> {
        let mut deleted = 0;
        for &replica in replicas {
            if is_empty(&self.pool, replica).await? {
                // A crash behind this leaves an empty volume, which a person can delete.
                self.pool.set_replica(&[replica], false).await?;
                match self.pool.delete_volume(VolumeKey::Id(replica), true).await {
                    Ok(()) => deleted += 1,
                    Err(Error::NoVolume(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(deleted)
    }

    /// True if nothing of the first copy of a group came here.
    fn is_untouched(&self, group: GroupId) -> bool {
        let groups = self.groups.borrow();
        let state = groups.get(&group).map(|group| group.member.state());
        state.is_some_and(|state| {
            state.role == SiteRole::Secondary && state.lineage.is_none() && state.unfinished.is_none()
        })
    }

    /// Removes a group that the other site offered and never made, with its replicas.
    ///
    /// # Errors
    ///
    /// Something of it came after all, or the pool cannot write.
    pub async fn undo_offer(&self, group: GroupId) -> Result<(), Refusal> {
        let _one_at_a_time = self.making.lock().await;
        let hosted = self.groups.borrow().get(&group).cloned();
        let Some(hosted) = hosted.filter(|_| self.is_untouched(group)) else {
            return Err(Refusal::new(format!("there is no DR group {group} here that could be undone"), ""));
        };
        let (name, volumes) = (hosted.settings().name.clone(), hosted.volumes());
        self.remove(group).await?;
        let deleted = self.delete_empty(&volumes).await;
        let deleted = deleted.map_err(|error| Refusal::new(format!("DR group {name}: {error}"), ""))?;
        self.notices.occurred(
            "dr_offer_undone",
            format!(
                "{name}: the other site asked for replicas and never made the group; it is removed here, and {deleted} empty \
                 replicas with it"
            ),
        );
        Ok(())
    }
}
