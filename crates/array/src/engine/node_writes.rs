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
        BLOCK_BYTES, CheckpointNumber, MemberIndex, SegmentBlock, SegmentNumber, SlotAddress, SlotHeader,
    },
    redundancy::mirror_shape,
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
            let begin = |slots: &[SlotAddress]| {
                self.drives.write_all(slots, 1 + block.0, &buffers, Stability::Volatile)
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
            let begin = |slots: &[SlotAddress]| {
                let shape = mirror_shape(self.drives.geometry().slot_blocks(), slots.len());
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
        begin: impl FnOnce(&[SlotAddress]) -> DriveWrites,
    ) -> Result<bool> {
        let slots_still = self.node_slots.read().await;
        let writes = begin(&self.slots_of(number)?);
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
            let is_missed = self.slots_of(number)?.iter().any(is_missed);
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
        let slots = self.slots_of(number)?;
        if slots.iter().any(|slot| self.drives.has_space(slot.member)) {
            return Ok(());
        }
        let old = slots.iter().position(|slot| self.drives.has(slot.member));
        let old = old.ok_or(Error::TooFewDrives { present: 0, needed: 1 })?;
        let new = self.state.borrow_mut().segments.allocate_slot(&self.drives.members_with_space());
        let Some(new) = new else { return self.wait_for_space().await };
        let moved = self.copy_slot(&slots, old, new).await;
        let mut state = self.state.borrow_mut();
        let from = CheckpointNumber(state.checkpoint.0 + checkpoints);
        match moved {
            Ok(true) => {
                sometimes::reached(Sometimes::NodesMovedForSpace);
                state.segments.move_copy(number, (slots[old], new), from);
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

    /// Copies a slot as far as any copy is readable. False if the target drive cannot take it.
    async fn copy_slot(&self, slots: &[SlotAddress], old: usize, new: SlotAddress) -> Result<bool> {
        let blocks = u32::from(self.drives.geometry().slot_blocks());
        let mut first = 0;
        while first < blocks {
            let count = COPIED_AT_ONCE.min(blocks - first);
            // A block that no copy can read is not a node, and stays so.
            let (mut data, _) = self.drives.read_any(slots, first, count).await;
            if first == 0 {
                set_slot_index(&mut data, old);
            }
            let writes = self.drives.write_all(&[new], first, &[Arc::new(data)], Stability::Volatile);
            if writes.is_empty() {
                return Ok(false);
            }
            if let Err(failures) = all_written(writes).await {
                self.failed_to_write(failures).await?;
                return Ok(false);
            }
            first += count;
        }
        Ok(true)
    }
}

/// Sets the slot index in a slot's header. A block that is not a header is left unchanged.
pub(crate) fn set_slot_index(slot: &mut Buffer, slot_index: usize) {
    if let Ok(header) = SlotHeader::decode(&slot[..BLOCK_BYTES])
        && slot_index < header.slots.len()
    {
        let header = SlotHeader { slot_index, ..header };
        slot[..BLOCK_BYTES].copy_from_slice(&header.encode());
    }
}
