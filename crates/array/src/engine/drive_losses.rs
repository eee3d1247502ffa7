//! Room of a pool without some of its drives, and the number of drives that it can lose.

use super::{PoolSpace, Shared};
use crate::{
    format::{BLOCK_GRAINS, GRAIN_BYTES, MemberIndex},
    log::room_blocks,
    redundancy::SegmentLayout,
    segments::segments_in,
};

/// Drives that a pool can lose, and why no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossTolerance {
    /// Drives that may be lost at once, now.
    pub at_once: usize,
    pub limit_at_once: LossLimit,
    /// Drives that may be lost one after another, if all copies are made after each loss.
    pub in_turn: usize,
    pub limit_in_turn: LossLimit,
}

/// The reason why a pool can lose no more drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossLimit {
    /// Mirrored data has this number of copies.
    Copies(usize),
    /// This number of bytes of mirrored data, of one copy, has fewer copies than the rest.
    Degraded(u64),
    /// More drives would be a majority.
    Votes,
    /// The others would be fewer than the copies.
    Drives,
    /// The others have room for that many bytes too few.
    Room(u64),
}

impl Shared {
    /// Bytes of host data for which the members `staying` lack room, with further drives of `more` slots each, and
    /// without the `spared` largest of all.
    pub(crate) fn lacking_room(&self, staying: &[MemberIndex], more: &[u64], spared: u8) -> u64 {
        let space = self.space();
        let state = self.state.borrow();
        let slots: Vec<u64> = staying.iter().map(|&member| state.segments.slots_of(member).0).collect();
        let slots = without_largest([&slots[..], more].concat(), spared);
        let segments = segments_in(&slots, self.drives.copies().most());
        let room = PoolSpace::of_segments(segments, 0);
        let shape = self.drives.mirror_shape(self.drives.copies().data);
        let node_grains = u64::from(shape.data_blocks()) * BLOCK_GRAINS as u64;
        let node_segments = state.segments.node_grains().div_ceil(node_grains);
        let room_grains = u64::from(room_blocks(shape)) * BLOCK_GRAINS as u64;
        let usable_grains = room.fillable(node_segments) * room_grains + self.saved_grains(&state);
        space.used_bytes.saturating_sub(usable_grains * GRAIN_BYTES as u64)
    }

    /// Bytes that must become free on `staying` before the pool can do without the others: the reserve, and the
    /// room of the `spared` largest drives, must be there at any time.
    pub(crate) fn lacking_reserve(&self, staying: &[MemberIndex], more: &[u64], spared: u8) -> u64 {
        let state = self.state.borrow();
        let (all, free): (Vec<u64>, Vec<u64>) = staying
            .iter()
            .map(|&member| state.segments.slots_of(member))
            .map(|(all, used)| (all, all - used))
            .chain(more.iter().map(|&slots| (slots, slots)))
            .unzip();
        let copies = self.drives.copies().most();
        let segments = segments_in(&all, copies);
        let rest = segments_in(&without_largest(all, spared), copies);
        let needed = PoolSpace::of_segments(rest, 0).reserve + (segments - rest);
        let lacking = needed.saturating_sub(segments_in(&free, copies));
        lacking * u64::from(self.drives.geometry().slot_bytes)
    }

    /// The drives that the pool can lose. Reads the rows of all segments.
    pub fn loss_tolerance(&self) -> LossTolerance {
        let (at_once, limit_at_once) = self.losses_at_once();
        let (in_turn, limit_in_turn) = self.losses_in_turn();
        LossTolerance { at_once, limit_at_once, in_turn, limit_in_turn }
    }

    /// Copies that each mirrored segment has at least, and bytes of one copy of those that lack one. Reads the rows of
    /// all segments.
    fn copies_least(&self) -> (usize, u64) {
        let (mut least, mut degraded_bytes) = (usize::MAX, 0);
        let copies = self.drives.copies();
        for (_, row) in self.state.borrow().segments.iter() {
            let segment = SegmentLayout::of(row);
            let there = self.drives.copies_there(&row.slots);
            if segment.scheme().is_redundant() && there > 0 {
                least = least.min(there);
                let is_degraded = there < copies.of_kind(row.kind);
                degraded_bytes += u64::from(is_degraded) * u64::from(self.drives.geometry().slot_bytes);
            }
        }
        (least.min(copies.most()), degraded_bytes)
    }

    /// Drives of one failure set that may be lost at once, if no segment lies across sets.
    pub(super) fn losses_per_set(&self) -> usize {
        self.copies_least().0.saturating_sub(1)
    }

    fn losses_at_once(&self) -> (usize, LossLimit) {
        let (copies, (least, degraded_bytes)) = (self.drives.copies(), self.copies_least());
        let of_copies = least.saturating_sub(1);
        let of_votes = self.losses_by_votes();
        match of_copies {
            _ if of_votes < of_copies => (of_votes, LossLimit::Votes),
            _ if degraded_bytes > 0 && least < copies.most() => {
                (of_copies, LossLimit::Degraded(degraded_bytes))
            }
            _ => (of_copies, LossLimit::Copies(least)),
        }
    }

    /// Drives that may be lost at once by votes: the remaining ones must be half of the voters.
    pub(super) fn losses_by_votes(&self) -> usize {
        let members = &self.superblock.borrow().members;
        members.iter().filter(|member| member.state.has_vote()).count() / 2
    }

    /// The largest drives are lost first.
    fn losses_in_turn(&self) -> (usize, LossLimit) {
        let mut staying = self.drives.staying_members();
        {
            let state = self.state.borrow();
            staying.sort_by_key(|&member| state.segments.slots_of(member).0);
        }
        let copies = self.drives.copies().most();
        let mut losses = 0;
        loop {
            staying.pop();
            if staying.len() < copies {
                return (losses, LossLimit::Drives);
            }
            match self.lacking_room(&staying, &[], 0) {
                0 => losses += 1,
                lacking => return (losses, LossLimit::Room(lacking)),
            }
        }
    }
}

/// The sizes of drives, in slots, without the `spared` largest.
fn without_largest(mut slots: Vec<u64>, spared: u8) -> Vec<u64> {
    slots.sort_unstable_by(|one, other| other.cmp(one));
    slots.drain(..usize::from(spared).min(slots.len()));
    slots
}
