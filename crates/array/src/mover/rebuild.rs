//! Rebuild: segments that lost a copy get another one, on a drive that is there.
//!
//! A segment that is written no more is copied slot for slot; then its row names the new slot, durably with the next
//! checkpoint. A crash before that leaves the row as it was, and the work is done again. When no segment names a lost
//! drive any more it is gone, and its place in the member table is free.

use super::Urgency;
use crate::{
    error::{Error, Result},
    format::{
        BLOCK_BYTES, MemberIndex, MemberState, SegmentNumber, SegmentUse, SlotAddress, row::SegmentState,
    },
    pool::{NewDrive, Pool},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
};
use std::{collections::BTreeSet, rc::Rc, sync::Arc};
use world::{Buffer, Stability};

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Degraded {
    /// Segments with a copy on a drive that is not there.
    pub segments: u64,
    /// Those of them that are still written, and wait for the next checkpoint or two.
    pub still_written: u64,
}

/// One copy to make.
#[derive(Clone, Debug)]
struct Copying {
    number: SegmentNumber,
    segment_use: SegmentUse,
    from: Vec<SlotAddress>,
    /// What the new one takes the place of; none of a segment that was written when there were too few drives.
    lost: Option<SlotAddress>,
}

impl Pool {
    /// Segments that have fewer copies than they should.
    pub fn degraded(&self) -> Degraded {
        let copies = self.shared.drives.copies_wanted();
        let state = self.shared.state.borrow();
        let mut degraded = Degraded::default();
        for (_, row) in
            state.segments.iter().filter(|(_, row)| self.shared.drives.copies_there(&row.slots) < copies)
        {
            degraded.segments += 1;
            degraded.still_written += u64::from(row.state == SegmentState::Open);
        }
        degraded
    }

    /// Gives one more segment its copy back. Whether there was one that it could be done for.
    ///
    /// # Errors
    ///
    /// No copy of it can be read, or the pool has stopped.
    pub async fn rebuild_one(&self) -> Result<bool> {
        self.shared.check_runs()?;
        let _one_at_a_time = self.rebuilding.lock().await;
        let Some(copying) = self.next_to_rebuild() else { return Ok(false) };
        let holders: BTreeSet<MemberIndex> = copying.from.iter().map(|slot| slot.member).collect();
        let others: Vec<_> =
            self.shared.drives.members().into_iter().filter(|member| !holders.contains(member)).collect();
        let Some(to) = self.shared.state.borrow_mut().segments.allocate_slot(&others) else {
            return Ok(false);
        };
        let copied = {
            let under_way = UnderWay::begin(Sometimes::CutWhileRebuilding);
            let copied = self.copy_slot(&copying, to).await;
            under_way.end();
            copied
        };
        let mut state = self.shared.state.borrow_mut();
        // It may have come free meanwhile.
        let is_it =
            state.segments.row(copying.number).is_some_and(|row| row.segment_use == copying.segment_use);
        if copied.is_err() || !is_it {
            sometimes::reached(Sometimes::RebuildInVain);
            state.segments.give_back_slot(to);
            drop(state);
            return copied.map(|()| true);
        }
        match copying.lost {
            Some(lost) => state.segments.replace_slot(copying.number, lost, to),
            None => state.segments.add_slot(copying.number, to),
        }
        sometimes::reached(Sometimes::CopyRebuilt);
        Ok(true)
    }

    fn next_to_rebuild(&self) -> Option<Copying> {
        let copies = self.shared.drives.copies_wanted();
        let state = self.shared.state.borrow();
        let is_there = |slot: &SlotAddress| self.shared.drives.has(slot.member);
        state.segments.iter().find_map(|(number, row)| {
            let from: Vec<_> = row.slots.iter().copied().filter(is_there).collect();
            let can_be_copied = row.state == SegmentState::Sealed && !from.is_empty();
            let lost = row.slots.iter().copied().find(|slot| !is_there(slot));
            let segment_use = row.segment_use;
            (can_be_copied && from.len() < copies).then_some(Copying { number, segment_use, from, lost })
        })
    }

    async fn copy_slot(&self, copying: &Copying, to: SlotAddress) -> Result<()> {
        let drives = &self.shared.drives;
        let blocks = u32::from(drives.geometry().slot_blocks());
        let mut first = 0;
        while first < blocks {
            let permit = self.pace.permit(Urgency::Urgent).await?;
            let count = permit.blocks_max.min(blocks - first);
            permit.moves(2 * count as usize * BLOCK_BYTES);
            let is_stale = canary::is(Canary::RebuildReadsAStaleSlot);
            let from = if is_stale { std::slice::from_ref(&to) } else { &copying.from[..] };
            let data = self.read_slot(from, first, count).await;
            let Some(write) = drives.write(to, first, vec![Arc::new(data)], Stability::Stable) else {
                return Err(Error::TooFewDrives { present: drives.members().len(), needed: 2 });
            };
            if let Err(error) = write.await {
                self.shared.lose(to.member, error.clone()).await?;
                return Err(Error::Drive { member: to.member, error });
            }
            first += count;
        }
        Ok(())
    }

    /// Blocks of a slot as they are. What no copy can read is zero: whoever needs it finds that its checksum is wrong.
    async fn read_slot(&self, from: &[SlotAddress], first: u32, count: u32) -> Buffer {
        let drives = &self.shared.drives;
        for &slot in from {
            if let Ok(data) = drives.read(slot, first, count as usize).await {
                return data;
            }
        }
        let mut data = Buffer::zeroed(count as usize * BLOCK_BYTES);
        for index in 0..count {
            for &slot in from {
                if let Ok(block) = drives.read(slot, first + index, 1).await {
                    data[index as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block);
                    break;
                }
            }
        }
        data
    }

    /// Takes one more drive into the pool. What it held is lost; it gets new segments, and copies of those that lack
    /// one. A drive that was a member and was lost comes back in this way, under a new name.
    ///
    /// # Errors
    ///
    /// It is too small, or is there already, or cannot be written; or the pool has stopped.
    pub async fn add_drive(&self, new: &NewDrive) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        self.shared.check_runs()?;
        let member = self.shared.new_member(new)?;
        let index = {
            let superblock = self.shared.superblock.borrow();
            if superblock.members.iter().any(|known| known.drive == new.drive) {
                return Err(Error::NameTaken(new.drive.to_string()));
            }
            MemberIndex(superblock.members.len() as u16)
        };
        let under_way = UnderWay::begin(Sometimes::CutWhileAdding);
        crate::superblocks::clear_device(index, &new.device).await?;
        self.shared.state.borrow_mut().segments.add_member(index, member.slot_count);
        self.shared.drives.add(index, Rc::clone(&new.device));
        self.shared
            .publish(|superblock| {
                let mut member = member.clone();
                member.since = superblock.generation;
                superblock.members.push(member);
            })
            .await?;
        under_way.end();
        sometimes::reached(Sometimes::DriveAdded);
        self.lane.look_at_copies();
        Ok(())
    }

    /// Takes drives out of the member table that are not there and that no segment names any more.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub(crate) async fn forget_lost_drives(&self) -> Result<()> {
        // Rows that name them must be so on disk, not only here.
        let named: BTreeSet<MemberIndex> = {
            let state = self.shared.state.borrow();
            state.segments.iter().flat_map(|(_, row)| row.slots.iter().map(|slot| slot.member)).collect()
        };
        let is_forgotten = |index: usize, state: MemberState| {
            state == MemberState::Missing && !named.contains(&MemberIndex(index as u16))
        };
        let superblock = self.shared.superblock.borrow().clone();
        if !superblock.members.iter().enumerate().any(|(index, member)| is_forgotten(index, member.state)) {
            return Ok(());
        }
        sometimes::reached(Sometimes::DriveForgotten);
        // With this checkpoint no superblock and no row leads to them.
        self.checkpoint().await?;
        self.shared
            .publish(|superblock| {
                let generation = superblock.generation;
                for (index, member) in superblock.members.iter_mut().enumerate() {
                    if is_forgotten(index, member.state) {
                        member.state = MemberState::Gone;
                        member.since = generation;
                    }
                }
            })
            .await
    }
}
