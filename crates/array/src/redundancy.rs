//! Redundancy: the copies each kind of segment has, and the schemes by which a segment survives lost drives.
//!
//! 1. Copies of log, nodes and data are three numbers. The superblock stores one, *log copies*, and
//!    [`Copies::of`] alone derives the three from it.
//! 2. A scheme decides how many slots a segment gets, how its data is laid out over them, what a rebuild has to
//!    replace, and when data is lost. [`Raid0`] and [`Raid1`] are the schemes so far.
//! 3. No two slots of a segment are in one failure set.

use crate::format::{MemberIndex, PoolGeometry, RedundancyClass, SegmentKind, SegmentShape};

/// Copies of each kind of segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub log: usize,
    pub nodes: usize,
    /// Of data that is mirrored.
    pub data: usize,
}

impl Copies {
    /// The numbers of a pool.
    pub fn of(geometry: PoolGeometry) -> Self {
        let copies = usize::from(geometry.log_copies);
        Self { log: copies, nodes: copies, data: copies }
    }

    pub fn of_kind(self, kind: SegmentKind) -> usize {
        match kind {
            SegmentKind::Log => self.log,
            SegmentKind::Nodes => self.nodes,
            SegmentKind::Data => self.data,
        }
    }

    /// The largest of the three.
    pub fn most(self) -> usize {
        self.log.max(self.nodes).max(self.data)
    }
}

/// A way to lay a segment out over drives.
pub trait RedundancyScheme {
    /// Slots of a new segment whose kind has `copies` copies.
    fn slots(&self, copies: usize) -> usize;

    /// Shape of a segment with `slots` slots.
    fn shape(&self, slot_blocks: u16, slots: usize) -> SegmentShape;

    /// Slots that a rebuild has to make for a segment with `present` slots, whose kind should have `copies`.
    fn missing(&self, present: usize, copies: usize) -> usize;

    /// True if data is lost of a segment that has `present` of its `slots` slots.
    fn is_lost(&self, present: usize, slots: usize) -> bool;
}

/// One slot, no copy: nothing can be rebuilt.
#[derive(Clone, Copy, Debug)]
pub struct Raid0;

/// The same data in every slot.
#[derive(Clone, Copy, Debug)]
pub struct Raid1;

impl RedundancyScheme for Raid0 {
    fn slots(&self, _copies: usize) -> usize {
        1
    }

    fn shape(&self, slot_blocks: u16, _slots: usize) -> SegmentShape {
        SegmentShape::raid0(slot_blocks)
    }

    fn missing(&self, _present: usize, _copies: usize) -> usize {
        0
    }

    fn is_lost(&self, present: usize, slots: usize) -> bool {
        present < slots
    }
}

impl RedundancyScheme for Raid1 {
    fn slots(&self, copies: usize) -> usize {
        copies
    }

    fn shape(&self, slot_blocks: u16, slots: usize) -> SegmentShape {
        mirror_shape(slot_blocks, slots)
    }

    fn missing(&self, present: usize, copies: usize) -> usize {
        copies.saturating_sub(present)
    }

    fn is_lost(&self, present: usize, _slots: usize) -> bool {
        present == 0
    }
}

/// The scheme of volumes of a class. Classes that are not implemented are mirrored.
pub fn scheme_of_class(class: RedundancyClass) -> &'static dyn RedundancyScheme {
    match class {
        RedundancyClass::Raid0 => &Raid0,
        _ => &Raid1,
    }
}

/// The scheme of an existing segment.
pub fn scheme_of(shape: SegmentShape) -> &'static dyn RedundancyScheme {
    if shape.is_mirror() { &Raid1 } else { &Raid0 }
}

/// Shape of a mirrored segment of `copies` copies.
pub fn mirror_shape(slot_blocks: u16, copies: usize) -> SegmentShape {
    match copies {
        1 => SegmentShape::new(RedundancyClass::Raid0, slot_blocks, slot_blocks - 1, 0, 1)
            .expect("one slot, one row"),
        copies => SegmentShape::mirrored(slot_blocks, copies as u8),
    }
}

/// Drives that may fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureSet(pub u16);

impl FailureSet {
    /// Every drive fails alone.
    pub fn of_drive(member: MemberIndex) -> Self {
        Self(member.0)
    }
}

/// The drives that may hold a new segment. A caller that wants one kind of drive lists only those.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    pub members: &'a [MemberIndex],
    pub failure_set: fn(MemberIndex) -> FailureSet,
}

impl<'a> Placement<'a> {
    /// On any of `members`, each of which fails alone.
    pub fn on(members: &'a [MemberIndex]) -> Self {
        Self { members, failure_set: FailureSet::of_drive }
    }

    /// The first member of each failure set, in the order given.
    pub(crate) fn spread(&self, members: impl IntoIterator<Item = MemberIndex>) -> Vec<MemberIndex> {
        let mut chosen: Vec<MemberIndex> = Vec::new();
        for member in members {
            let set = (self.failure_set)(member);
            if chosen.iter().all(|&other| (self.failure_set)(other) != set) {
                chosen.push(member);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_on_disk_is_three_in_code() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let copies = Copies::of(geometry);
        assert_eq!(copies, Copies { log: 2, nodes: 2, data: 2 });
        let copies = Copies { log: 3, ..copies };
        assert_eq!([SegmentKind::Log, SegmentKind::Nodes].map(|kind| copies.of_kind(kind)), [3, 2]);
        assert_eq!(copies.most(), 3);
    }

    #[test]
    fn a_mirror_is_rebuilt_to_all_its_copies_and_lost_with_the_last_one() {
        assert_eq!([0, 1, 2, 3].map(|present| Raid1.missing(present, 2)), [2, 1, 0, 0]);
        assert_eq!([0, 1, 2].map(|present| Raid1.is_lost(present, 2)), [true, false, false]);
        assert_eq!((Raid0.missing(0, 2), Raid0.is_lost(0, 1), Raid0.is_lost(1, 1)), (0, true, false));
    }

    #[test]
    fn the_shape_of_a_segment_names_its_scheme() {
        for copies in 1..=3 {
            assert_eq!(scheme_of(Raid1.shape(256, copies)).slots(copies), copies);
        }
        assert_eq!(scheme_of(Raid0.shape(256, 1)).slots(2), 1);
    }
}
