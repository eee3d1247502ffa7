//! Shapes: the layout of a segment's data over its slots.
//!
//! The first block of each slot is its header. The rest is cut into rows of `stripe_blocks`; the last row may
//! be lower. A row has one chunk on each slot. Data fills row after row, within a row chunk after chunk. With
//! parity, its chunk moves one slot to the left from row to row, and data begins to the right of it
//! (left-symmetric).

use super::{
    decode_error::{DecodeError, Structure},
    segment::{MIRRORS_MAX, RedundancyClass, SLOTS_MAX},
    units::SegmentBlock,
};

/// Blocks of a chunk of raid0: 64 KiB.
const RAID0_STRIPE_BLOCKS: u16 = 16;

/// Shape of a segment. Only [`SegmentShape::new`] makes one, and checks the rules of each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentShape {
    class: RedundancyClass,
    slot_blocks: u16,
    stripe_blocks: u16,
    group_slots: u8,
    slot_count: u8,
}

/// A block of one slot of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotBlock {
    /// Index among the segment's slots.
    pub slot_index: usize,
    /// Block 0 is the slot's header.
    pub block: u32,
}

/// Position of one row in each slot, and its parity chunks.
struct Row {
    number: u32,
    height: u32,
    /// Block of the slot where the row begins.
    first_block: u32,
}

impl SegmentShape {
    /// `copies` slots with the same data.
    pub fn mirrored(slot_blocks: u16, copies: u8) -> Self {
        Self::new(RedundancyClass::Raid1, slot_blocks, 0, 0, copies).expect("two or three copies")
    }

    /// One slot without a copy, for data of raid0 volumes.
    pub fn raid0(slot_blocks: u16) -> Self {
        Self::new(RedundancyClass::Raid0, slot_blocks, RAID0_STRIPE_BLOCKS, 0, 1).expect("one slot")
    }

    /// True for mirrors, and for the single copy of data that will be mirrored once the pool has drives for
    /// it. The latter is of class raid0, too, but has one chunk, the whole slot.
    pub fn is_mirror(self) -> bool {
        let is_one_chunk = self.slot_count == 1 && self.stripe_blocks + 1 == self.slot_blocks;
        match self.class {
            RedundancyClass::Raid1 => true,
            RedundancyClass::Raid0 => is_one_chunk,
            _ => false,
        }
    }

    /// A shape; none if its class does not allow it. `slot_blocks` counts the header, `stripe_blocks` is the
    /// length of a chunk (0 for raid1), `group_slots` the slots of one raid5 group of raid50 (otherwise 0).
    pub fn new(
        class: RedundancyClass,
        slot_blocks: u16,
        stripe_blocks: u16,
        group_slots: u8,
        slot_count: u8,
    ) -> Option<Self> {
        use RedundancyClass as Class;
        let count = usize::from(slot_count);
        let group = usize::from(group_slots);
        let is_striped = class != Class::Raid1;
        let slots_fit = match class {
            Class::Raid0 => count >= 1,
            Class::Raid1 => (2..=MIRRORS_MAX).contains(&count),
            Class::Raid5 => count >= 3,
            Class::Raid6 => count >= 4,
            Class::Raid10 => count >= 2 && count.is_multiple_of(2),
            Class::Raid50 => group >= 3 && count >= 2 * group && count.is_multiple_of(group),
        };
        let keeps = slots_fit
            && count <= SLOTS_MAX
            && slot_blocks >= 2
            && is_striped == (stripe_blocks > 0)
            && stripe_blocks < slot_blocks
            && (class == Class::Raid50 || group == 0);
        keeps.then_some(Self { class, slot_blocks, stripe_blocks, group_slots, slot_count })
    }

    pub(super) fn decode(
        structure: Structure,
        class: RedundancyClass,
        [slot_blocks, stripe_blocks]: [u16; 2],
        [group_slots, slot_count]: [u8; 2],
        at: usize,
    ) -> Result<Self, DecodeError> {
        let shape = Self::new(class, slot_blocks, stripe_blocks, group_slots, slot_count);
        structure.agree(shape.is_some(), at, "slots, stripe and group do not make a segment of its class")?;
        Ok(shape.expect("looked at above"))
    }

    pub fn class(self) -> RedundancyClass {
        self.class
    }

    /// Blocks of a slot, its header included.
    pub fn slot_blocks(self) -> u16 {
        self.slot_blocks
    }

    /// Blocks of a chunk; 0 for mirrors.
    pub fn stripe_blocks(self) -> u16 {
        self.stripe_blocks
    }

    /// Slots of one raid5 group of raid50, otherwise 0.
    pub fn group_slots(self) -> u8 {
        self.group_slots
    }

    pub fn slot_count(self) -> usize {
        usize::from(self.slot_count)
    }

    /// Number of slots' worth of data.
    pub fn data_columns(self) -> usize {
        let count = self.slot_count();
        match self.class {
            RedundancyClass::Raid0 => count,
            RedundancyClass::Raid1 => 1,
            RedundancyClass::Raid5 => count - 1,
            RedundancyClass::Raid6 => count - 2,
            RedundancyClass::Raid10 => count / 2,
            RedundancyClass::Raid50 => count - count / usize::from(self.group_slots),
        }
    }

    /// Blocks of data.
    pub fn data_blocks(self) -> u32 {
        (u32::from(self.slot_blocks) - 1) * self.data_columns() as u32
    }

    /// Slot blocks of a data block, one a copy; all are equivalent.
    ///
    /// # Panics
    ///
    /// If the segment has no such block.
    pub fn copies(self, block: SegmentBlock) -> impl Iterator<Item = SlotBlock> {
        assert!(block.0 < self.data_blocks(), "block {block} of a segment of {}", self.data_blocks());
        let (row, column, depth) = self.locate(block);
        let first = match self.class {
            RedundancyClass::Raid10 => 2 * column,
            RedundancyClass::Raid0 => column,
            RedundancyClass::Raid1 => 0,
            RedundancyClass::Raid5 | RedundancyClass::Raid6 | RedundancyClass::Raid50 => {
                self.data_slot(row.number, column)
            }
        };
        let copies = match self.class {
            RedundancyClass::Raid1 => self.slot_count(),
            RedundancyClass::Raid10 => 2,
            _ => 1,
        };
        (first..first + copies)
            .map(move |slot_index| SlotBlock { slot_index, block: row.first_block + depth })
    }

    /// Slots that hold parity of the row of `block`: P of each group, then Q.
    pub fn parity_slots(self, block: SegmentBlock) -> Vec<usize> {
        let (row, ..) = self.locate(block);
        let width = self.group_width();
        let parities = self.parities();
        let groups = (0..self.slot_count()).step_by(width);
        groups
            .flat_map(|first| {
                let p = Self::parity_place(row.number, width);
                (0..parities).map(move |index| first + (p + index) % width)
            })
            .collect()
    }

    fn parities(self) -> usize {
        match self.class {
            RedundancyClass::Raid5 | RedundancyClass::Raid50 => 1,
            RedundancyClass::Raid6 => 2,
            _ => 0,
        }
    }

    fn group_width(self) -> usize {
        if self.group_slots > 0 { usize::from(self.group_slots) } else { self.slot_count() }
    }

    fn parity_place(row: u32, width: usize) -> usize {
        width - 1 - row as usize % width
    }

    fn data_slot(self, row: u32, column: usize) -> usize {
        let width = self.group_width();
        let data_width = width - self.parities();
        let (group, column) = (column / data_width, column % data_width);
        group * width + (Self::parity_place(row, width) + self.parities() + column) % width
    }

    /// Row, data column and block within the chunk.
    fn locate(self, block: SegmentBlock) -> (Row, usize, u32) {
        let body = u32::from(self.slot_blocks) - 1;
        let stripe = if self.stripe_blocks > 0 { u32::from(self.stripe_blocks) } else { body };
        let columns = self.data_columns() as u32;
        let full_rows = body / stripe;
        let number = (block.0 / (stripe * columns)).min(full_rows);
        let height = if number < full_rows { stripe } else { body - full_rows * stripe };
        let in_row = block.0 - number * stripe * columns;
        let row = Row { number, height, first_block: 1 + number * stripe };
        let (column, depth) = (in_row / row.height, in_row % row.height);
        (row, column as usize, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RedundancyClass as Class;
    use std::collections::BTreeSet;

    const SHAPES: [(Class, u16, u16, u8, u8); 11] = [
        (Class::Raid0, 256, 16, 0, 1),
        (Class::Raid0, 256, 16, 0, 5),
        (Class::Raid1, 256, 0, 0, 2),
        (Class::Raid1, 1024, 0, 0, 3),
        (Class::Raid5, 256, 16, 0, 3),
        (Class::Raid5, 256, 15, 0, 8),
        (Class::Raid6, 256, 16, 0, 4),
        (Class::Raid6, 1024, 16, 0, 12),
        (Class::Raid10, 256, 255, 0, 6),
        (Class::Raid10, 256, 1, 0, 2),
        (Class::Raid50, 256, 16, 4, 12),
    ];

    fn shapes() -> impl Iterator<Item = SegmentShape> {
        SHAPES.into_iter().map(|(class, slot, stripe, group, count)| {
            SegmentShape::new(class, slot, stripe, group, count).expect("allowed")
        })
    }

    #[test]
    fn every_block_of_every_slot_is_a_header_or_data_or_parity_and_only_one_of_them() {
        for shape in shapes() {
            let mut taken = BTreeSet::new();
            for block in (0..shape.data_blocks()).map(SegmentBlock) {
                for place in shape.copies(block) {
                    assert!(place.block > 0, "{shape:?} {block}: a header is in the way");
                    assert!(taken.insert(place), "{shape:?} {block}: {place:?} is taken");
                    let parity = shape.parity_slots(block);
                    assert!(!parity.contains(&place.slot_index), "{shape:?} {block}: data on parity");
                }
            }
            let parity_columns =
                shape.slot_count() - shape.data_columns() * shape.copies(SegmentBlock(0)).count();
            let body = usize::from(shape.slot_blocks()) - 1;
            assert_eq!(taken.len() + parity_columns * body, shape.slot_count() * body, "{shape:?}");
        }
    }

    #[test]
    fn copies_of_a_block_lie_on_different_slots_at_one_height() {
        for shape in shapes() {
            for block in (0..shape.data_blocks()).map(SegmentBlock) {
                let places: Vec<SlotBlock> = shape.copies(block).collect();
                let slots: BTreeSet<usize> = places.iter().map(|place| place.slot_index).collect();
                assert_eq!(slots.len(), places.len(), "{shape:?} {block}");
                assert!(places.iter().all(|place| place.block == places[0].block), "{shape:?} {block}");
            }
        }
    }

    #[test]
    fn parity_moves_to_the_left_from_row_to_row() {
        let shape = SegmentShape::new(Class::Raid5, 17, 4, 0, 3).unwrap();
        let parity: Vec<usize> = (0..4).map(|row| shape.parity_slots(SegmentBlock(row * 8))[0]).collect();
        assert_eq!(parity, [2, 1, 0, 2]);
        let data = |block| shape.copies(SegmentBlock(block)).next().unwrap();
        assert_eq!(data(0), SlotBlock { slot_index: 0, block: 1 });
        assert_eq!(data(4), SlotBlock { slot_index: 1, block: 1 });
        assert_eq!(data(8), SlotBlock { slot_index: 2, block: 5 }, "to the right of parity");
    }

    #[test]
    fn data_that_rests_in_one_copy_is_no_mirror_that_lacks_one() {
        let resting = SegmentShape::raid0(256);
        let lacking = SegmentShape::new(Class::Raid0, 256, 255, 0, 1).unwrap();
        assert!(lacking.is_mirror() && SegmentShape::mirrored(256, 3).is_mirror() && !resting.is_mirror());
        for block in (0..255).map(SegmentBlock) {
            assert!(resting.copies(block).eq(lacking.copies(block)), "blocks lie alike in both");
        }
    }

    #[test]
    fn shapes_no_class_allows_are_refused() {
        for (class, slot, stripe, group, count) in [
            (Class::Raid0, 256, 16, 0, 0),
            (Class::Raid0, 256, 0, 0, 2),
            (Class::Raid0, 256, 16, 0, 33),
            (Class::Raid1, 256, 16, 0, 2),
            (Class::Raid1, 256, 0, 0, 4),
            (Class::Raid1, 1, 0, 0, 2),
            (Class::Raid5, 256, 256, 0, 3),
            (Class::Raid5, 256, 16, 3, 3),
            (Class::Raid6, 256, 16, 0, 3),
            (Class::Raid10, 256, 16, 0, 3),
            (Class::Raid50, 256, 16, 3, 7),
            (Class::Raid50, 256, 16, 6, 6),
        ] {
            assert_eq!(SegmentShape::new(class, slot, stripe, group, count), None, "{class:?} {count}");
        }
    }
}
