//! The first write of an epoch: a block as it is. An epoch without one is no history of its own: an old primary that returns
//! with more than this side has would be ahead of it, and not beside it.
//!
//! Invariants:
//!
//! 1. It changes nothing that a host can read.
//! 2. It is done before the first host is served, so no write of a host comes between its read and its write.

use super::{PromotionError, SecondaryGroup};
use crate::{
    group_state::GroupState,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::{BLOCK_BYTES, EpochId, Fence, Stamp},
    pool::VolumeKey,
    volume::VolumeDevice,
};
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteOffset};

impl SecondaryGroup {
    /// Promotes this side as [`SecondaryGroup::promote`] does, although the old primary may have answered what is not here.
    /// If that returns, both have a history of their own, and a person chooses: hosts that were served here are never shown
    /// what the other side brings back.
    ///
    /// If a crash leaves the epoch without its write, nobody was served in it: this side compares before it serves, and
    /// gets what the other one has. A pool that takes no write serves what it has all the same; then the old primary is
    /// refused until a host has written.
    ///
    /// # Errors
    ///
    /// Those of [`SecondaryGroup::promote`].
    pub async fn promote_with_loss(
        &self,
        epoch: EpochId,
        fence: Fence,
    ) -> std::result::Result<GroupState, PromotionError> {
        let state = self.promote(epoch, fence).await?;
        let lineage = state.lineage.as_ref().expect("a primary has a lineage");
        if !planted::is(ReplicationBug::LossyEpochUnwritten) {
            // See above: a promotion does not fail for it.
            let _ = self.begin_epoch(lineage.current().spans[0].start).await;
        }
        Ok(state)
    }

    /// Writes a block as it is, under the first stamp of an epoch.
    pub(super) async fn begin_epoch(&self, first: Stamp) -> Result<()> {
        let volume = *self.member.volumes.first().expect("a group has a volume");
        let volume = self.member.pool.volume(VolumeKey::Id(volume))?;
        let device = VolumeDevice(Rc::clone(&volume));
        let read = device.read(ByteOffset(0), vec![Buffer::zeroed(BLOCK_BYTES)]).await;
        let block: Vec<_> = read.map_err(Error::Copy)?.into_iter().map(Arc::new).collect();
        volume.ensure_write(ByteOffset(0), &block, first).await.map_err(Error::Copy)?;
        self.has.set(first);
        self.begun_until.set((first, false));
        Ok(())
    }
}
