//! Writes of nodes to their copies, wherever there is space.
//!
//! If a drive has no space, its copy is given up, provided that another was written; the rebuild replaces it.
//! If none was written, the segment gets a slot on a drive with space, and the old slot's content is copied
//! there. Trees refer to segments, not slots, so pointers stay valid.

use super::Shared;
use crate::{
    drive::{DriveWrites, all_written},
    error::{Error, Result},
    format::{
        CheckpointNumber, MemberIndex, SegmentBlock, SegmentNumber, SegmentShape, SlotAddress, SlotHeader,
    },
    redundancy::{Placement, Reconstruction, SegmentLayout},
    simulation::sometimes::{self, Sometimes},
};
use std::{collections::BTreeSet, sync::Arc};
use world::{Buffer, Stability};

/// Blocks of one step when a slot is copied.
const COPIED_AT_ONCE: u32 = 64;

impl Shared {
    /// Writes nodes to every present copy. One successful copy suffices; a drive that fails is removed.
    ///
    /// # Errors
    ///
    /// No copy can be written, or the pool has stopped.
    pub(super) async fn write_nodes(
        &self,
        at: (SegmentNumber, SegmentBlock),
        nodes: &[Vec<u8>],
    ) -> Result<()> {
        let (number, block) = at;
        let buffers: Vec<_> = nodes.iter().map(|node| Arc::new(Buffer::copy_of(node))).collect();
        loop {
            let begin = |segment: SegmentLayout<'_>| {
                self.drives.write_data(segment, block, &buffers, Stability::Volatile)
            };
            // The row of the segment is written after its nodes.
            if self.write_copies(number, 1, begin).await? {
                return Ok(());
            }
        }
    }

    /// Completes the write of a segment's header.
    ///
    /// # Errors
    ///
    /// No copy can be written, or the pool has stopped.
    pub(super) async fn finish_header(&self, header: SlotHeader, begun: DriveWrites) -> Result<()> {
        let mut begun = Some(begun);
        loop {
            let begin = |SegmentLayout { shape, slots }: SegmentLayout<'_>| {
                let header = SlotHeader { slots: slots.to_vec(), shape, ..header.clone() };
                begun.take().unwrap_or_else(|| self.drives.write_headers(&header, Stability::Volatile))
            };
            // The row of the segment may be written already, so the next checkpoint's is the first to differ.
            if self.write_copies(header.number, 2, begin).await? {
                return Ok(());
            }
        }
    }

    /// Awaits the writes of `begin` to the copies of a segment. False if they must be repeated. The row of
    /// the segment names the remaining copies `checkpoints` checkpoints from now.
    async fn write_copies(
        &self,
        number: SegmentNumber,
        checkpoints: u64,
        begin: impl FnOnce(SegmentLayout<'_>) -> DriveWrites,
    ) -> Result<bool> {
        let slots_still = self.node_slots.read().await;
        let (shape, slots) = self.layout_of(number)?;
        let writes = begin(SegmentLayout { shape, slots: &slots });
        let begun: BTreeSet<MemberIndex> = writes.iter().map(|(member, _)| *member).collect();
        let failures = all_written(writes).await.err().unwrap_or_default();
        drop(slots_still);
        let failing: BTreeSet<MemberIndex> = failures.iter().map(|(member, _)| *member).collect();
        let written: BTreeSet<MemberIndex> = begun.difference(&failing).copied().collect();
        sometimes::reached_if(!failing.is_empty(), Sometimes::NodeWrittenToFewer);
        let failed = self.drives.set_aside_out_of_space(failures);
        if !failing.is_empty() {
            self.note_drive_change();
        }
        let is_all = failed.len() == failing.len();
        if !failed.is_empty() {
            self.lose(failed).await?;
        }
        let is_missed = |slot: &SlotAddress| self.drives.has(slot.member) && !begun.contains(&slot.member);
        if is_all {
            // The segment may have got another slot since its header was begun.
            let is_missed = self.layout_of(number)?.1.iter().any(is_missed);
            let is_written = !written.is_empty();
            return if is_written {
                Ok(!is_missed)
            } else {
                Err(Error::TooFewDrives { present: 0, needed: 1 })
            };
        }
        if !self.drives.has_space_enough() {
            self.wait_for_space().await?;
            return Ok(false);
        }
        if self.drop_unwritten((number, checkpoints), &written) {
            return Ok(true);
        }
        self.move_to_space((number, checkpoints)).await?;
        Ok(false)
    }

    /// Gives up the copies that were not written, provided that one of the others is valid.
    fn drop_unwritten(
        &self,
        (number, checkpoints): (SegmentNumber, u64),
        written: &BTreeSet<MemberIndex>,
    ) -> bool {
        let mut state = self.state.borrow_mut();
        let slots = state.segments.row(number).map_or_else(Vec::new, |row| row.slots.clone());
        let (kept, dropped): (Vec<_>, Vec<_>) = slots
            .into_iter()
            .partition(|slot| written.contains(&slot.member) || !self.drives.has(slot.member));
        if !kept.iter().any(|slot| self.drives.has(slot.member)) {
            return false;
        }
        let from = CheckpointNumber(state.checkpoint.0 + checkpoints);
        for slot in dropped {
            sometimes::reached(Sometimes::CopyGivenUpForSpace);
            state.segments.drop_copy(number, slot, from);
        }
        true
    }

    /// Gives a node segment a slot on a drive with space, unless it has one by now. It replaces a copy on a
    /// drive without space. The caller must not hold `node_slots`.
    async fn move_to_space(&self, (number, checkpoints): (SegmentNumber, u64)) -> Result<()> {
        let _alone = self.node_slots.write().await;
        let (shape, slots) = self.layout_of(number)?;
        if slots.iter().any(|slot| self.drives.has_space(slot.member)) {
            return Ok(());
        }
        let is_present = |member| self.drives.has(member);
        let old = slots.iter().position(|slot| is_present(slot.member));
        let plan =
            old.and_then(|old| SegmentLayout { shape, slots: &slots }.plan_reconstruction(old, is_present));
        let plan = plan.ok_or(Error::TooFewDrives { present: 0, needed: 1 })?;
        let old = slots[plan.slot_index()];
        let staying: Vec<_> =
            slots.iter().copied().filter(|&slot| slot != old && is_present(slot.member)).collect();
        let members = self.drives.members_for_new_data();
        let (domains, sets) = (self.drives.domains(), self.drives.sets());
        let placement = Placement::on(&members, &domains).within(&sets);
        let new = self.state.borrow_mut().segments.allocate_slot(placement, &staying);
        let Some(new) = new else { return self.wait_for_space().await };
        let moved = self.fill_slot(&plan, new).await;
        let mut state = self.state.borrow_mut();
        let from = CheckpointNumber(state.checkpoint.0 + checkpoints);
        match moved {
            Ok(true) => {
                sometimes::reached(Sometimes::NodesMovedForSpace);
                state.segments.move_copy(number, (old, new), from);
                Ok(())
            }
            Ok(false) => {
                state.segments.give_back_slot(new);
                self.demand.note_change();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Fills a slot as far as its content can be read. False if the target drive cannot take it.
    async fn fill_slot(&self, plan: &Reconstruction, new: SlotAddress) -> Result<bool> {
        let blocks = u32::from(self.drives.geometry().slot_blocks());
        let mut first = 0;
        while first < blocks {
            let count = COPIED_AT_ONCE.min(blocks - first);
            // A block that no copy can read is not a node, and stays so.
            let (data, _) = self.drives.reconstruct(plan, first, count).await;
            let write = self.drives.write(new, first, vec![Arc::new(data)], Stability::Volatile);
            let Some(write) = write else { return Ok(false) };
            if let Err(error) = write.await {
                self.failed_to_write(vec![(new.member, error)]).await?;
                return Ok(false);
            }
            first += count;
        }
        Ok(true)
    }

    /// Shape and slots of a segment, also of a condemned one.
    fn layout_of(&self, number: SegmentNumber) -> Result<(SegmentShape, Vec<SlotAddress>)> {
        let state = self.state.borrow();
        let row = state.segments.readable(number).ok_or(Error::NoSegment(number))?;
        Ok((row.shape, row.slots.clone()))
    }
}
