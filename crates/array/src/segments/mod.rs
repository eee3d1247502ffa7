//! The segments of a pool: allocation, live data, and reuse.
//!
//! Invariants:
//!
//! 1. A slot is free, or belongs to one segment, or waits to become free (`condemned`).
//! 2. So does a number.
//! 3. `live_grains` of a segment counts the grains the trees reference, as of the last merge. It is never
//!    negative. `raid0_grains` is its sum over segments without redundancy, each of one slot, by drive.
//! 4. The slots of a segment become free only when a checkpoint without it is complete, and all readers from
//!    before that are done.
//! 5. A new slot of a segment is never on the drive of a slot that the segment keeps, and in its failure domain only
//!    if no other one has room; and it is in their failure set, if a drive there has room.

mod allocation;
mod domains;
mod failure_sets;
mod free_slots;
mod heat;
mod room;
mod room_plan;

pub use room::segments_in;
pub use room_plan::RoomPlan;

use crate::{
    format::{
        CheckpointNumber, MemberIndex, MirroredSegment, PoolGeometry, SegmentKind, SegmentNumber, SegmentUse,
        SlotAddress, SlotNumber,
        row::{SegmentRow, SegmentState},
    },
    redundancy::scheme_of,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use free_slots::FreeSlots;
use heat::Heat;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// All segments of a pool, and its free slots.
#[derive(Debug)]
pub struct Segments {
    geometry: PoolGeometry,
    /// By number.
    rows: Vec<Option<SegmentRow>>,
    /// Unused numbers below `rows.len()`, without those of condemned segments.
    free_numbers: BTreeSet<u32>,
    slots: BTreeMap<MemberIndex, FreeSlots>,
    use_next: SegmentUse,
    /// Rows that differ from those of the last checkpoint.
    changed: BTreeSet<SegmentNumber>,
    condemned: VecDeque<Condemned>,
    /// Slots of dropped copies, each with the checkpoint from which on it is not needed.
    dropped: VecDeque<(CheckpointNumber, SlotAddress)>,
    /// Of all segments but those of nodes.
    live_grains: u64,
    /// Of those of nodes.
    node_grains: u64,
    /// Of those without redundancy, by drive.
    raid0_grains: BTreeMap<MemberIndex, u64>,
    /// Counts changes of which slots are free, and of how many there are.
    slot_changes: u64,
    /// Counts slots that were allocated in the domain of all other slots of their segment, and other changes after which
    /// a segment may lie in one domain.
    shared_placements: u64,
    /// Counts slots that were allocated in another failure set than one of their segment.
    across_placements: u64,
    heat: Heat,
}

/// A segment that is not needed from a checkpoint on.
#[derive(Debug)]
struct Condemned {
    number: SegmentNumber,
    row: SegmentRow,
    from: CheckpointNumber,
}

impl Segments {
    /// No segments, on drives with so many slots each.
    pub fn new(
        geometry: PoolGeometry,
        slot_counts: impl IntoIterator<Item = (MemberIndex, u32)>,
        use_next: SegmentUse,
    ) -> Self {
        let slots = slot_counts.into_iter().map(|(member, count)| (member, FreeSlots::all(count))).collect();
        Self {
            geometry,
            rows: Vec::new(),
            free_numbers: BTreeSet::new(),
            slots,
            use_next,
            changed: BTreeSet::new(),
            condemned: VecDeque::new(),
            dropped: VecDeque::new(),
            live_grains: 0,
            node_grains: 0,
            raid0_grains: BTreeMap::new(),
            slot_changes: 0,
            shared_placements: 0,
            across_placements: 0,
            heat: Heat::default(),
        }
    }

    /// Adds an existing segment, from the catalogue, the checkpoint or the log. The last row of a number
    /// wins.
    ///
    /// # Errors
    ///
    /// A slot that is not free: the pool's tables contradict each other.
    pub fn adopt(&mut self, number: SegmentNumber, row: SegmentRow) -> Result<(), SlotAddress> {
        if let Some(before) = self.take_row(number) {
            self.give_back(&before.slots);
        }
        self.slot_changes += 1;
        for &slot in &row.slots {
            // A member that is gone has no slots left.
            if let Some(free) = self.slots.get_mut(&slot.member)
                && !free.take(slot.slot)
            {
                return Err(slot);
            }
        }
        self.put_row(number, row);
        Ok(())
    }

    /// The next use of a segment; no lower one is free.
    pub fn use_next(&self) -> SegmentUse {
        self.use_next
    }

    /// Frees an allocated slot that proved its drive writable; it is the next to be allocated there.
    pub fn give_back_as_next(&mut self, slot: SlotAddress) {
        self.give_back(&[slot]);
        if let Some(free) = self.slots.get_mut(&slot.member) {
            free.set_next(slot.slot);
        }
    }

    /// Frees an allocated slot that is not needed after all.
    pub fn give_back_slot(&mut self, slot: SlotAddress) {
        self.give_back(&[slot]);
    }

    /// Moves a copy of a segment to another slot.
    pub fn replace_slot(&mut self, number: SegmentNumber, old: SlotAddress, new: SlotAddress) {
        let row = self.rows[number.0 as usize].as_mut().expect("a segment that is rebuilt is there");
        let place = row.slots.iter().position(|&slot| slot == old).expect("it had the old one");
        row.slots[place] = new;
        self.changed.insert(number);
        // Nothing writes to a lost drive: its slots need not wait for readers.
        self.give_back(&[old]);
    }

    /// Drops a copy of a mirrored segment that could not be written. Its slot becomes free after the
    /// checkpoint `from`, the first one whose row lacks it. Must not be the last copy.
    pub fn drop_copy(&mut self, number: SegmentNumber, slot: SlotAddress, from: CheckpointNumber) {
        let row = self.rows[number.0 as usize].as_mut().expect("a segment that lost a copy is there");
        assert!(row.shape.is_mirror() && row.slots.len() > 1, "another copy is left");
        row.slots.retain(|&other| other != slot);
        row.shape = scheme_of(row.shape).shape(row.shape.slot_blocks(), row.slots.len());
        self.changed.insert(number);
        // The others may be in one domain.
        self.shared_placements += 1;
        self.dropped.push_back((from, slot));
    }

    /// True if a slot exists and is free.
    pub fn is_free(&self, slot: SlotAddress) -> bool {
        self.slots.get(&slot.member).is_some_and(|free| free.is_free(slot.slot))
    }

    /// Takes a given slot; false if it is not free.
    pub fn take_slot(&mut self, slot: SlotAddress) -> bool {
        self.slot_changes += 1;
        self.slots.get_mut(&slot.member).is_some_and(|free| free.take(slot.slot))
    }

    /// Lets new data go to these slots of a member last.
    pub fn take_last(&mut self, member: MemberIndex, slots: &[SlotNumber]) {
        if let Some(free) = self.slots.get_mut(&member) {
            slots.iter().for_each(|&slot| free.take_last(slot));
        }
    }

    /// Moves a copy from the checkpoint `from` on; the one before still needs the old slot.
    pub fn move_copy(
        &mut self,
        number: SegmentNumber,
        (old, new): (SlotAddress, SlotAddress),
        from: CheckpointNumber,
    ) {
        let row = self.rows[number.0 as usize].as_mut().expect("a segment that is moved is there");
        let place = row.slots.iter().position(|&slot| slot == old).expect("it had the old one");
        let is_apart = row.slots.iter().all(|&slot| slot == old || slot.member != new.member);
        assert!(is_apart, "segment {number} has a copy on member {} already", new.member);
        row.slots[place] = new;
        if !scheme_of(row.shape).is_redundant() {
            let grains = u64::from(row.live_grains);
            *self.raid0_grains.entry(old.member).or_default() -= grains;
            *self.raid0_grains.entry(new.member).or_default() += grains;
        }
        self.changed.insert(number);
        self.dropped.push_back((from, old));
    }

    /// Adds a copy to a mirrored segment. The layout of its data does not depend on the number of copies.
    pub fn add_slot(&mut self, number: SegmentNumber, new: SlotAddress) {
        let row = self.rows[number.0 as usize].as_mut().expect("a segment that is rebuilt is there");
        assert!(row.shape.is_mirror(), "what rests in one copy gets no other");
        row.slots.push(new);
        row.shape = scheme_of(row.shape).shape(row.shape.slot_blocks(), row.slots.len());
        self.changed.insert(number);
    }

    /// Adds a drive.
    pub fn add_member(&mut self, member: MemberIndex, slot_count: u32) {
        self.slot_changes += 1;
        let before = self.slots.insert(member, FreeSlots::all(slot_count));
        assert!(before.is_none(), "member {member} is new");
    }

    /// Adds free slots to a drive that has become larger.
    pub fn grow_member(&mut self, member: MemberIndex, slot_count: u32) {
        self.slot_changes += 1;
        self.slots.get_mut(&member).expect("it is a member").grow(slot_count);
    }

    /// True if no slot of a drive is used: no segment names it, now or in a checkpoint that a crash would find,
    /// and no reader uses it.
    pub fn has_nothing_on(&self, member: MemberIndex) -> bool {
        if canary::is(Canary::RetiredDriveHasTheLastCopy) {
            return self.iter().all(|(_, row)| row.slots.iter().all(|slot| slot.member != member));
        }
        self.slots.get(&member).is_none_or(|slots| slots.free() == slots.all_slots())
    }

    /// Removes a drive on which nothing lies.
    pub fn remove_member(&mut self, member: MemberIndex) {
        assert!(self.has_nothing_on(member), "member {member} has slots in use");
        self.slot_changes += 1;
        self.slots.remove(&member);
    }

    /// Marks a segment as complete.
    pub fn seal(&mut self, number: SegmentNumber) {
        let row = self.rows[number.0 as usize].as_mut().expect("a segment that is sealed is there");
        row.state = SegmentState::Sealed;
        self.changed.insert(number);
    }

    /// Changes the number of live grains of a segment.
    pub fn add_live(&mut self, number: SegmentNumber, grains: i64) {
        let row = self.rows[number.0 as usize].as_mut().expect("what is pointed to is there");
        let live = i64::from(row.live_grains) + grains;
        assert!(live >= 0, "segment {number}: {} grains live, and {grains} go", row.live_grains);
        assert!(
            live <= i64::from(row.shape.data_blocks()) * 64,
            "segment {number} holds no more than its data"
        );
        row.live_grains = live as u32;
        let sum = match row.kind {
            SegmentKind::Nodes => &mut self.node_grains,
            _ => &mut self.live_grains,
        };
        *sum = sum.checked_add_signed(grains).expect("a sum of counts");
        if !scheme_of(row.shape).is_redundant() {
            let sum = self.raid0_grains.entry(row.slots[0].member).or_default();
            *sum = sum.checked_add_signed(grains).expect("a sum of counts");
        }
        self.changed.insert(number);
    }

    /// Call it before a checkpoint changes the live grains: [`Segments::is_cold`] compares with the state
    /// `span` segments, or up to about twice as many, before.
    pub fn note_heat(&mut self, span: u64) {
        self.heat.note(&self.rows, self.use_next, span);
    }

    /// True if the segment lost little live data for some time; a hot segment will become free by overwrites.
    pub fn is_cold(&self, number: SegmentNumber) -> bool {
        self.row(number).is_some_and(|row| self.heat.is_cold(number, row))
    }

    /// Gives a segment up from the checkpoint `from` on.
    pub fn condemn(&mut self, number: SegmentNumber, from: CheckpointNumber) {
        let row = self.rows[number.0 as usize].take().expect("a segment is condemned once");
        assert_eq!(row.live_grains, 0, "segment {number} is pointed to");
        self.changed.insert(number);
        self.condemned.push_back(Condemned { number, row, from });
    }

    /// Frees what checkpoints up to `complete` do not need, except for readers that began at `oldest_reader`.
    pub fn release(&mut self, complete: CheckpointNumber, oldest_reader: Option<CheckpointNumber>) {
        let until = oldest_reader.map_or(complete, |oldest| oldest.min(complete));
        while self.condemned.front().is_some_and(|condemned| condemned.from <= until) {
            let condemned = self.condemned.pop_front().expect("looked at");
            self.give_back(&condemned.row.slots);
            self.free_numbers.insert(condemned.number.0);
        }
        while self.dropped.front().is_some_and(|(from, _)| *from <= until) {
            let (_, slot) = self.dropped.pop_front().expect("looked at");
            self.give_back(&[slot]);
        }
        sometimes::reached_if(self.is_held(complete), Sometimes::ReaderHoldsSegments);
    }

    /// True if readers hold segments that would be free after checkpoint `complete`.
    pub fn is_held(&self, complete: CheckpointNumber) -> bool {
        self.condemned.front().is_some_and(|condemned| condemned.from <= complete)
    }

    /// The row of a segment for a reader. Includes condemned segments: they stay until readers from before
    /// are done.
    pub fn readable(&self, number: SegmentNumber) -> Option<&SegmentRow> {
        let condemned = || {
            sometimes::reached(Sometimes::CondemnedSegmentRead);
            self.condemned.iter().find(|condemned| condemned.number == number)
        };
        self.row(number).or_else(|| condemned().map(|condemned| &condemned.row))
    }

    /// All rows that the last complete checkpoint may reference.
    pub fn with_condemned(&self) -> impl Iterator<Item = &SegmentRow> {
        self.rows.iter().flatten().chain(self.condemned.iter().map(|condemned| &condemned.row))
    }

    /// A number above those of all segments.
    pub fn number_end(&self) -> u32 {
        self.rows.len() as u32
    }

    /// The row of a segment.
    pub fn row(&self, number: SegmentNumber) -> Option<&SegmentRow> {
        self.rows.get(number.0 as usize)?.as_ref()
    }

    /// A segment by number, use and slots.
    pub fn mirrored(&self, number: SegmentNumber) -> Option<MirroredSegment> {
        let row = self.row(number)?;
        Some(MirroredSegment { number, segment_use: row.segment_use, slots: row.slots.clone() })
    }

    /// All segments.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentNumber, &SegmentRow)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(number, row)| Some((SegmentNumber(number as u32), row.as_ref()?)))
    }

    /// Live grains of all segments of log and data.
    pub fn live_grains(&self) -> u64 {
        self.live_grains
    }

    /// Live grains of all nodes.
    pub fn node_grains(&self) -> u64 {
        self.node_grains
    }

    /// Live grains without redundancy, by drive.
    pub fn raid0_grains(&self) -> impl Iterator<Item = (MemberIndex, u64)> {
        self.raid0_grains.iter().map(|(&member, &grains)| (member, grains))
    }

    /// Rows changed since the last checkpoint, none for a deleted one. Resets the list.
    pub fn take_changes(&mut self) -> Vec<(SegmentNumber, Option<SegmentRow>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|number| (number, self.row(number).cloned())).collect()
    }

    /// Counts changes of which slots are free, and of how many there are. While it is unchanged, so is the
    /// number of segments that can be allocated.
    pub fn slot_changes(&self) -> u64 {
        self.slot_changes
    }

    fn take_row(&mut self, number: SegmentNumber) -> Option<SegmentRow> {
        let row = self.rows.get_mut(number.0 as usize)?.take()?;
        let sum = match row.kind {
            SegmentKind::Nodes => &mut self.node_grains,
            _ => &mut self.live_grains,
        };
        *sum -= u64::from(row.live_grains);
        if !scheme_of(row.shape).is_redundant() {
            *self.raid0_grains.entry(row.slots[0].member).or_default() -= u64::from(row.live_grains);
        }
        Some(row)
    }

    fn put_row(&mut self, number: SegmentNumber, row: SegmentRow) {
        let index = number.0 as usize;
        if index >= self.rows.len() {
            self.free_numbers.extend(self.rows.len() as u32..number.0);
            self.rows.resize(index + 1, None);
        }
        self.free_numbers.remove(&number.0);
        assert!(self.rows[index].is_none(), "segment {number} is there once");
        let sum = match row.kind {
            SegmentKind::Nodes => &mut self.node_grains,
            _ => &mut self.live_grains,
        };
        *sum += u64::from(row.live_grains);
        if !scheme_of(row.shape).is_redundant() {
            *self.raid0_grains.entry(row.slots[0].member).or_default() += u64::from(row.live_grains);
        }
        self.rows[index] = Some(row);
        self.changed.insert(number);
    }

    fn give_back(&mut self, slots: &[SlotAddress]) {
        self.slot_changes += 1;
        for slot in slots {
            if let Some(free) = self.slots.get_mut(&slot.member) {
                free.give_back(slot.slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{FailureDomains, Placement, Raid0, Raid1};

    const MEMBER: MemberIndex = MemberIndex(0);

    #[test]
    fn a_drive_has_nothing_on_it_when_what_was_moved_away_is_free() {
        let geometry =
            crate::format::PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 1 };
        let members = [MEMBER, MemberIndex(1)];
        let mut segments = Segments::new(geometry, members.map(|member| (member, 4)), SegmentUse(1));
        let segment = segments
            .allocate(SegmentKind::Data, &Raid0, 1, Placement::on(&[MEMBER], &FailureDomains::default()))
            .expect("there is room");
        segments.seal(segment.number);
        segments.add_live(segment.number, 64);
        let old = segment.slots[0];
        let new = segments
            .allocate_slot(Placement::on(&members[1..], &FailureDomains::default()), &[])
            .expect("there is room");
        segments.move_copy(segment.number, (old, new), CheckpointNumber(5));
        assert_eq!(segments.raid0_grains().collect::<Vec<_>>(), [(MEMBER, 0), (members[1], 64)]);
        segments.release(CheckpointNumber(4), None);
        assert!(!segments.has_nothing_on(MEMBER), "the last checkpoint names it");
        segments.release(CheckpointNumber(5), Some(CheckpointNumber(4)));
        assert!(!segments.has_nothing_on(MEMBER), "a reader uses it");
        segments.release(CheckpointNumber(5), None);
        assert!(segments.has_nothing_on(MEMBER) && !segments.has_nothing_on(members[1]));
        segments.remove_member(MEMBER);
        segments.add_live(segment.number, -64);
        assert_eq!(segments.slots_of(MEMBER), (0, 0));
    }

    /// One drive of four slots and one segment, condemned from checkpoint 5 on.
    fn condemned_from_5() -> Segments {
        let geometry =
            crate::format::PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 1 };
        let mut segments = Segments::new(geometry, [(MEMBER, 4)], SegmentUse(1));
        let segment = segments
            .allocate(SegmentKind::Log, &Raid1, 1, Placement::on(&[MEMBER], &FailureDomains::default()))
            .expect("there is room");
        segments.seal(segment.number);
        segments.condemn(segment.number, CheckpointNumber(5));
        segments
    }

    fn free_after(complete: u64, oldest_reader: Option<u64>) -> u64 {
        let mut segments = condemned_from_5();
        segments.release(CheckpointNumber(complete), oldest_reader.map(CheckpointNumber));
        segments.free_segments(1, &[MEMBER])
    }

    #[test]
    fn what_a_checkpoint_condemned_is_free_when_that_checkpoint_is_complete_and_not_before() {
        assert_eq!(free_after(4, None), 3, "the checkpoint before it still needs the segment");
        assert_eq!(free_after(5, None), 4, "it waits for no other checkpoint");
        assert_eq!(free_after(6, None), 4);
    }

    #[test]
    fn a_reader_holds_what_was_condemned_after_it_began_and_nothing_else() {
        assert_eq!(free_after(6, Some(4)), 3, "it may have found the segment in checkpoint 4");
        assert_eq!(free_after(6, Some(5)), 4, "checkpoint 5 leads nobody there");
    }
}
