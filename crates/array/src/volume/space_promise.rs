//! Limits and reserves of volumes.
//!
//! A write to a bounded volume is admitted if what it adds is within the volume's limit and leaves the
//! reserves of other volumes. Overwritten blocks count until the next checkpoint. Before a write is refused,
//! its blocks are therefore looked up, since one that only replaces blocks that no snapshot sees adds
//! nothing, and then one checkpoint is made. If a snapshot is taken while such a write waits for its turn,
//! the check is repeated.

use super::{
    Bounds,
    admission::{Admission, DeletionWait},
};
use crate::{
    engine::SpacePromise,
    error::{Error, Result},
    format::{BLOCK_BYTES, BLOCK_GRAINS, BlockIndex, BranchNumber, VolumeNumber, row::VolumeState},
};

/// This part of the usable space cannot be reserved, and at least so many segments.
const HELD_BACK_PART: u64 = 8;
const HELD_BACK_SEGMENTS_MIN: u64 = 16;

/// A volume that has a reserve, or is written to.
#[derive(Clone, Copy, Debug)]
struct Bounded {
    number: VolumeNumber,
    branch: BranchNumber,
    limit_grains: u64,
    reserve_grains: u64,
}

/// The blocks of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteScope {
    /// A range of blocks: the first, and their number.
    Blocks(BlockIndex, u64),
    /// So many blocks that have no version of the branch yet.
    Added(u64),
}

impl WriteScope {
    /// Number of blocks.
    pub fn count(self) -> u64 {
        match self {
            Self::Blocks(_, count) | Self::Added(count) => count,
        }
    }
}

fn grains(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_GRAINS as u64)
}

impl Admission {
    /// Promises a write the space for the blocks that it adds, within the pool and the volume's bounds. Close
    /// to either limit the blocks are looked up.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::LimitReached`], [`Error::Reserved`]; or a part of the map cannot be read.
    pub(super) async fn promise(&self, number: VolumeNumber, scope: WriteScope) -> Result<SpacePromise> {
        let mut is_as_of_now = false;
        let mut in_order = None;
        let mut deletion_wait = DeletionWait::default();
        loop {
            let (own, others) = self.bounded(number)?;
            let is_bounded = own.limit_grains > 0 || own.reserve_grains > 0 || !others.is_empty();
            if is_bounded {
                for bounded in others.iter().chain([&own]) {
                    self.usage.count_volume(bounded.number).await?;
                }
            }
            let refusal = |added| if is_bounded { self.refusal(own, &others, added) } else { None };
            let all = grains(scope.count());
            if refusal(all).is_none() && self.has_left(all) {
                return Ok(self.usage.promise(own.branch, all, None));
            }
            let newest_point = self.shared.state.borrow().catalogue.points().of(own.branch).last().copied();
            let added = match scope {
                WriteScope::Blocks(first, count) => {
                    grains(self.blocks_added(own.branch, first, count).await?)
                }
                WriteScope::Added(_) => all,
            };
            let refused = refusal(added).filter(|_| added > 0);
            if refused.is_none() && (added == 0 || self.has_left(added)) {
                return Ok(self.usage.promise(own.branch, added, Some(newest_point)));
            }
            let Some(refused) = refused else {
                self.wait_for_left(added, &mut deletion_wait).await?;
                continue;
            };
            if self.usage.pending_of_all() > 0 {
                // The pending writes may turn out to add nothing. Others that fit are not held back by this
                // one, which waits for an exact count and not for their space.
                if in_order.is_none() {
                    in_order = Some(self.promise_order.lock().await);
                    continue;
                }
                self.usage.release().await;
            } else if is_as_of_now {
                return Err(refused);
            } else {
                self.checkpoints.make_to_its_end().await?;
                is_as_of_now = true;
            }
        }
    }

    /// The volume, and all others that have a reserve.
    fn bounded(&self, number: VolumeNumber) -> Result<(Bounded, Vec<Bounded>)> {
        let state = self.shared.state.borrow();
        let of = |(number, row): (VolumeNumber, &crate::format::row::VolumeRow)| Bounded {
            number,
            branch: row.branch,
            limit_grains: grains(row.limit.0),
            reserve_grains: grains(row.reserve.0),
        };
        let gone = || Error::NoVolume(format!("number {number}"));
        let own = state.catalogue.volume(number).filter(|row| row.state == VolumeState::Live);
        let own = of((number, own.ok_or_else(gone)?));
        let others = state.catalogue.reserved().filter(|(other, _)| *other != number).map(of);
        Ok((own, others.collect()))
    }

    /// The reason to refuse a write that adds `added` grains; `None` to admit it.
    fn refusal(&self, own: Bounded, others: &[Bounded], added: u64) -> Option<Error> {
        let taken = self.usage.taken_by_volume(own.number);
        if own.limit_grains > 0 && taken + added > own.limit_grains {
            return Some(Error::LimitReached(own.number));
        }
        // Its own reserve is available to it, however full the pool is.
        let beyond = (taken + added).saturating_sub(own.reserve_grains.max(taken));
        let is_kept = beyond > 0 && beyond > self.free_of_reserves(own, others, taken);
        is_kept.then_some(Error::Reserved(own.number))
    }

    /// Free space beyond all reserves.
    fn free_of_reserves(&self, own: Bounded, others: &[Bounded], taken: u64) -> u64 {
        let kept = others
            .iter()
            .map(|other| other.reserve_grains.saturating_sub(self.usage.taken_by_volume(other.number)));
        let kept = kept.sum::<u64>() + own.reserve_grains.saturating_sub(taken);
        self.free_grains().saturating_sub(self.usage.pending_of_all() + kept)
    }

    /// Space that is free or reserved. Nodes of trees, record headers and half-full segments need some of the
    /// rest.
    fn free_grains(&self) -> u64 {
        let space = self.shared.space();
        let segment_bytes = space.usable_bytes / (space.segments - space.reserve).max(1);
        let held_back = (space.usable_bytes / HELD_BACK_PART).max(HELD_BACK_SEGMENTS_MIN * segment_bytes);
        space.usable_bytes.saturating_sub(held_back + space.used_bytes) / crate::format::GRAIN_BYTES as u64
    }

    /// Blocks of a range that a write would add: those that store nothing yet, or that a snapshot sees.
    async fn blocks_added(&self, branch: BranchNumber, first: BlockIndex, count: u64) -> Result<u64> {
        let _reading = self.shared.begin_reading();
        let mapped = self.usage.map.map_of(branch, first, count, None).await?;
        let state = self.shared.state.borrow();
        let added = mapped.iter().filter(|mapped| match mapped {
            Some(mapped) if mapped.branch == branch && !mapped.version.is_zero() => {
                state.catalogue.points().sees(branch, mapped.version.birth, state.stamp_next)
            }
            _ => true,
        });
        Ok(added.count() as u64)
    }

    /// Fails unless there is room for the reserve. `number` is the volume, if it exists already.
    pub async fn check_bounds(&self, number: Option<VolumeNumber>, bounds: Bounds) -> Result<()> {
        let Bounds { reserve_bytes, limit_bytes } = bounds;
        let block_bytes = BLOCK_BYTES as u64;
        let are_blocks = reserve_bytes.is_multiple_of(block_bytes) && limit_bytes.is_multiple_of(block_bytes);
        if !are_blocks || (limit_bytes > 0 && reserve_bytes > limit_bytes) {
            return Err(Error::BadBounds { reserve_bytes, limit_bytes });
        }
        if reserve_bytes == 0 {
            return Ok(());
        }
        let wanted = grains(reserve_bytes / block_bytes);
        let others: Vec<_> = {
            let state = self.shared.state.borrow();
            let others = state.catalogue.reserved().filter(|(other, _)| Some(*other) != number);
            others.map(|(other, row)| (other, grains(row.reserve.0))).collect()
        };
        let mut kept = 0;
        for (other, reserve) in others {
            self.usage.count_volume(other).await?;
            kept += reserve.saturating_sub(self.usage.taken_by_volume(other));
        }
        let taken = match number {
            Some(number) => {
                self.usage.count_volume(number).await?;
                self.usage.taken_by_volume(number)
            }
            None => 0,
        };
        let left = self.free_grains().saturating_sub(kept);
        if wanted.saturating_sub(taken) > left {
            let left_bytes = (left + taken) * crate::format::GRAIN_BYTES as u64;
            return Err(Error::NoRoomToReserve { wanted_bytes: reserve_bytes, left_bytes });
        }
        Ok(())
    }
}
