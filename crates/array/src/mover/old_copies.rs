//! Copies that a drive still holds when it comes back.
//!
//! Such a drive is a new member, and nothing on it counts. But each of its slots may hold what the missing member
//! had there, and the rows of segments still name that. A rebuild that finds such a copy completes it in place:
//! it compares, and writes only what differs.
//!
//! Invariants:
//!
//! 1. No reader gets bytes of an old copy before all of it was compared and is stable, whatever its header says:
//!    it may be of any age. The exception has no other copy to compare with: its readers check every block.
//! 2. Where an old copy differs from the one in use, the one that matches its checksum counts. The one in use
//!    may have gone bad meanwhile; then it is repaired.

use super::{Mover, contents::RecordReader, copying::CopyJob};
use crate::{
    engine::stored_blocks,
    error::Result,
    format::{
        BLOCK_BYTES, CheckpointNumber, SegmentKind, SegmentNumber, SlotAddress, Stored, SummaryEntry,
        row::{SegmentRow, SegmentState},
    },
    simulation::sometimes::{self, Sometimes},
};
use futures_util::{StreamExt, stream};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};
use world::{Buffer, Stability};

/// Slots looked at in parallel.
const LOOKS_MAX: usize = 16;

/// Blocks of a segment, by their place in a slot of a mirror.
type KnownBlocks = BTreeMap<u32, SummaryEntry>;

/// A copy that is being completed.
pub(super) struct OldCopy {
    slot: SlotAddress,
    row: SegmentRow,
    /// Read from the segment when the copies first differ.
    blocks: Option<KnownBlocks>,
}

impl OldCopy {
    /// None if the segment is gone, or the job writes a slot of another content.
    pub fn of(job: &CopyJob, to: SlotAddress, row: Option<&SegmentRow>) -> Option<Self> {
        let row = row.filter(|row| row.segment_use == job.segment_use && job.old_copy == Some(to))?;
        Some(Self { slot: to, row: row.clone(), blocks: None })
    }
}

impl Mover {
    /// Looks for each copy to make on the drives that came after the one that had it.
    pub(super) async fn with_old_copies(&self, jobs: VecDeque<CopyJob>) -> VecDeque<CopyJob> {
        let members = self.shared.drives.members_for_new_data();
        let look = async |mut job: CopyJob| {
            if let Some(lost) = job.replaced {
                job.old_copy =
                    self.shared.find_old_copy((job.number, job.segment_use), lost, &job.kept, &members).await;
            }
            job
        };
        stream::iter(jobs).map(look).buffered(LOOKS_MAX).collect().await
    }

    /// Takes over old copies of segments that have no other: what was lost is there again. Returns their number.
    pub(super) async fn take_over_old_copies(&self) -> u64 {
        let lost: Vec<(SegmentNumber, SegmentRow)> = {
            let (drives, state) = (&self.shared.drives, self.shared.state.borrow());
            let is_lost = |row: &SegmentRow| {
                row.state == SegmentState::Sealed
                    && row.live_grains > 0
                    && drives.copies_there(&row.slots) == 0
            };
            let lost = state.segments.iter().filter(|(_, row)| is_lost(row));
            lost.map(|(number, row)| (number, row.clone())).collect()
        };
        let mut taken = 0;
        for (number, row) in lost {
            for &slot in &row.slots {
                let members = self.shared.drives.members_for_new_data();
                let found = self.shared.find_old_copy((number, row.segment_use), slot, &[], &members).await;
                let Some(found) = found else { continue };
                let Some(flush) = self.shared.drives.device(found.member).map(|device| device.flush()) else {
                    continue;
                };
                // It may be in the drive's cache since before the drive was away.
                if self.on_target(found.member, Some(flush)).await.is_ok()
                    && self.take_over(number, &row, slot, found)
                {
                    taken += 1;
                    break;
                }
            }
        }
        if taken > 0 {
            sometimes::reached(Sometimes::OldCopyTakenOver);
            self.shared.note_unsaved_rows();
        }
        taken
    }

    fn take_over(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
        lost: SlotAddress,
        found: SlotAddress,
    ) -> bool {
        let mut state = self.shared.state.borrow_mut();
        let is_same = state.segments.row(number).is_some_and(|now| {
            now.segment_use == row.segment_use
                && now.slots == row.slots
                && self.shared.drives.has(found.member)
        });
        if !is_same || !state.segments.take_slot(found) {
            return false;
        }
        let kept_until = CheckpointNumber(state.checkpoint.0 + super::copying::CHECKPOINTS_KEPT);
        state.segments.move_copy(number, (lost, found), kept_until);
        true
    }

    /// Makes a part of an old copy like `data`, which was read from the copies in use, `unreadable` blocks of it
    /// from none. Returns the bytes written.
    pub(super) async fn complete_old_copy(
        &self,
        job: &CopyJob,
        old: &mut OldCopy,
        first: u32,
        (mut data, unreadable): (Buffer, u32),
    ) -> Result<u64> {
        let drives = &self.shared.drives;
        let count = data.len() / BLOCK_BYTES;
        let there = drives.read(old.slot, first, count).await;
        let mut mended = 0;
        if let Ok(there) = &there {
            for index in 0..count {
                if block_of(&data, index) == block_of(there, index) {
                    continue;
                }
                if self
                    .is_better(job, old, first + index as u32, block_of(&data, index), block_of(there, index))
                    .await
                {
                    self.mend(job, first + index as u32, block_of(there, index)).await;
                    data[index * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(block_of(there, index));
                    mended += 1;
                }
            }
        }
        self.note_unreadable(unreadable.saturating_sub(mended));
        let differing = match &there {
            Ok(there) => runs(count, |index| block_of(&data, index) != block_of(there, index)),
            Err(_) => runs(count, |_| true),
        };
        let mut written = 0;
        for run in differing {
            let part = Arc::new(Buffer::copy_of(&data[run.start * BLOCK_BYTES..run.end * BLOCK_BYTES]));
            written += part.len() as u64;
            let write = drives.write(old.slot, first + run.start as u32, vec![part], Stability::Volatile);
            self.on_target(old.slot.member, write).await?;
        }
        Ok(written)
    }

    /// True if the block of the old copy matches its checksum and the one in use does not.
    async fn is_better(
        &self,
        job: &CopyJob,
        old: &mut OldCopy,
        block: u32,
        used: &[u8],
        there: &[u8],
    ) -> bool {
        if old.blocks.is_none() {
            old.blocks = Some(self.known_blocks(job.number, &old.row).await);
        }
        let known = old.blocks.as_ref().and_then(|blocks| blocks.get(&block));
        let is_right = |entry: &SummaryEntry, bytes: &[u8]| {
            self.shared.seed.checksum(entry.key, bytes) == entry.checksum
        };
        known.is_some_and(|entry| is_right(entry, there) && !is_right(entry, used))
    }

    /// Blocks whose checksums the segment has. Those of nodes are with the nodes that point to them.
    async fn known_blocks(&self, number: SegmentNumber, row: &SegmentRow) -> KnownBlocks {
        let mut entries = Vec::new();
        match row.kind {
            SegmentKind::Log => {
                let mut records = RecordReader::of(number, row);
                while let Some(record) = records.next(&self.shared).await {
                    entries.extend(stored_blocks(&record));
                }
            }
            SegmentKind::Data => entries = self.shared.summary_of(number, row).await.unwrap_or_default(),
            SegmentKind::Nodes => {}
        }
        let plain = entries.into_iter().filter(|entry| entry.stored == Stored::PLAIN);
        plain.map(|entry| (1 + entry.at.block().0, entry)).collect()
    }

    /// Repairs a block of the copies in use. A failure shows with the next write that matters.
    async fn mend(&self, job: &CopyJob, block: u32, right: &[u8]) {
        sometimes::reached(Sometimes::UsedCopyMended);
        for &slot in &job.kept {
            let right = vec![Arc::new(Buffer::copy_of(right))];
            if let Some(write) = self.shared.drives.write(slot, block, right, Stability::Volatile)
                && write.await.is_ok()
            {
                self.shared.repaired.set(self.shared.repaired.get() + 1);
            }
        }
    }
}

fn block_of(data: &[u8], index: usize) -> &[u8] {
    &data[index * BLOCK_BYTES..][..BLOCK_BYTES]
}

/// Runs of the indices below `count` that are chosen.
fn runs(count: usize, is_chosen: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for index in (0..count).filter(|&index| is_chosen(index)) {
        match runs.last_mut() {
            Some(run) if run.end == index => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        assert_eq!(runs(7, |index| [0, 1, 4, 6].contains(&index)), [0..2, 4..5, 6..7]);
        assert!(runs(7, |_| false).is_empty());
    }
}
