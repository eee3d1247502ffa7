//! Segments and the location of their blocks.

use super::{
    ReadResult,
    bytes::{check_sealed, u16_at, u32_at, u64_at},
    platters::{BLOCK, Platters},
    superblock::RawSuperblock,
};
use std::collections::{BTreeMap, BTreeSet};

/// Slot of a drive: member and number.
pub type Slot = (u16, u32);

/// A segment as superblocks and headers reference it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// Use counter of the segment.
    pub segment_use: u64,
    pub number: u32,
    pub slots: Vec<Slot>,
}

/// The content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawSegmentKind {
    Log = 1,
    /// Blocks moved from the log.
    Data = 2,
    Nodes = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSegment {
    /// Use counter of the segment.
    pub segment_use: u64,
    pub kind: RawSegmentKind,
    /// Redundancy class of its data.
    pub class: u8,
    /// Blocks of a slot.
    pub slot_blocks: u32,
    /// Blocks of a stripe.
    pub stripe: u32,
    pub slots: Vec<Slot>,
    /// Referenced grains, if its row stores them.
    pub live: Option<u64>,
}

fn slots_at(bytes: &[u8], at: usize, count: u8) -> Vec<Slot> {
    let places = (0..usize::from(count)).map(|index| at + 8 * index);
    places.map(|at| (u16_at(bytes, at), u32_at(bytes, at + 4))).collect()
}

impl Mirrored {
    pub fn read(bytes: &[u8]) -> Self {
        let slots = slots_at(bytes, 16, bytes[12].min(3));
        Self { segment_use: u64_at(bytes, 0), number: u32_at(bytes, 8), slots }
    }

    /// The same segment with a pool's default shape.
    pub fn of_kind(&self, kind: RawSegmentKind, superblock: &RawSuperblock) -> RawSegment {
        let slot_blocks = superblock.slot_bytes / BLOCK as u32;
        RawSegment {
            segment_use: self.segment_use,
            kind,
            class: u8::from(self.slots.len() > 1),
            slot_blocks,
            stripe: if self.slots.len() > 1 { 0 } else { slot_blocks - 1 },
            slots: self.slots.clone(),
            live: None,
        }
    }
}

impl RawSegment {
    /// Parses a catalogue row; `None` for a freed segment.
    pub fn of_row(row: &[u8]) -> ReadResult<Option<Self>> {
        if row[30] == 3 {
            return Ok(None);
        }
        let kind = kind_of(row[2])?;
        Ok(Some(Self {
            segment_use: u64_at(row, 8),
            kind,
            class: row[3],
            slot_blocks: u16_at(row, 24).into(),
            stripe: u16_at(row, 26).into(),
            slots: slots_at(row, 32, row[29]),
            live: Some(u32_at(row, 4).into()),
        }))
    }

    /// True if it has several copies, or will have once there are drives for them.
    pub fn is_mirror(&self) -> bool {
        self.class == 1 || self.class == 0 && self.slots.len() == 1 && self.stripe == self.slot_blocks - 1
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> u32 {
        self.columns() * (self.slot_blocks - 1)
    }

    fn columns(&self) -> u32 {
        match self.class {
            0 => self.slots.len() as u32,
            10 => self.slots.len() as u32 / 2,
            _ => 1,
        }
    }

    /// The location of every copy of a block: slot, and block in it.
    pub fn copies(&self, block: u32) -> ReadResult<Vec<(Slot, u32)>> {
        if block >= self.data_blocks() {
            return Err(format!("block {block} of a segment that has {}", self.data_blocks()));
        }
        if self.class == 1 {
            return Ok(self.slots.iter().map(|&slot| (slot, 1 + block)).collect());
        }
        if !matches!(self.class, 0 | 10) {
            return Err(format!("class {}", self.class));
        }
        let (columns, body) = (self.columns(), self.slot_blocks - 1);
        let row = block / (self.stripe * columns);
        let height = self.stripe.min(body - row * self.stripe);
        let within = block - row * self.stripe * columns;
        let (column, place) = (within / height, 1 + row * self.stripe + within % height);
        let slots = if self.class == 0 { column..column + 1 } else { 2 * column..2 * column + 2 };
        Ok(slots.map(|slot| (self.slots[slot as usize], place)).collect())
    }
}

fn kind_of(number: u8) -> ReadResult<RawSegmentKind> {
    match number {
        1 => Ok(RawSegmentKind::Log),
        2 => Ok(RawSegmentKind::Data),
        3 => Ok(RawSegmentKind::Nodes),
        _ => Err(format!("a segment of kind {number}")),
    }
}

/// A pool's segments and their drives.
pub struct RawSegments<'a> {
    pub platters: &'a Platters,
    /// The superblock that counts.
    pub superblock: &'a RawSuperblock,
    /// Up-to-date drives by member.
    pub drives: &'a BTreeMap<u16, usize>,
    /// All known segments.
    pub all: BTreeMap<u32, RawSegment>,
}

impl RawSegments<'_> {
    pub fn get(&self, number: u32) -> ReadResult<&RawSegment> {
        self.all.get(&number).ok_or_else(|| format!("segment {number} is pointed to, and not there"))
    }

    /// A segment with one of these kinds.
    pub fn of_kind(&self, number: u32, kinds: &[RawSegmentKind]) -> ReadResult<&RawSegment> {
        let segment = self.get(number)?;
        if kinds.contains(&segment.kind) {
            Ok(segment)
        } else {
            Err(format!("segment {number} is of {:?}, not of {kinds:?}", segment.kind))
        }
    }

    /// Reads blocks of a slot, if its drive is up to date.
    pub fn read_slot(&self, (member, slot): Slot, block: u32, blocks: u32) -> Option<Vec<u8>> {
        let start = self.superblock.data_start + u64::from(slot) * u64::from(self.superblock.slot_bytes);
        let at = start + u64::from(block) * BLOCK as u64;
        Some(self.platters.read(*self.drives.get(&member)?, at, blocks as usize * BLOCK))
    }

    /// Every copy of some consecutive blocks.
    pub fn read(&self, number: u32, block: u32, blocks: u32) -> ReadResult<Vec<Vec<u8>>> {
        let segment = self.get(number)?;
        segment.copies(block + blocks - 1)?;
        let copies = segment.copies(block)?.into_iter();
        Ok(copies.filter_map(|(slot, place)| self.read_slot(slot, place, blocks)).collect())
    }

    /// Checks that no slot is used twice or lies beyond its drive, and that no segment has two slots on one
    /// drive.
    pub fn check_slots(&self) -> ReadResult<()> {
        let mut taken = BTreeSet::new();
        for (number, segment) in &self.all {
            let members: BTreeSet<u16> = segment.slots.iter().map(|slot| slot.0).collect();
            if members.len() != segment.slots.len() || segment.slots.is_empty() {
                return Err(format!("segment {number} lies on {:?}", segment.slots));
            }
            if segment.segment_use >= self.superblock.segment_use_next {
                return Err(format!("segment {number} has use {}, which is free", segment.segment_use));
            }
            for &slot in &segment.slots {
                let member = self.superblock.members.get(usize::from(slot.0));
                if !member.is_some_and(|member| member.state != 5 && slot.1 < member.slot_count) {
                    return Err(format!("segment {number} lies in {slot:?}, which is no slot"));
                }
                if !taken.insert(slot) {
                    return Err(format!("slot {slot:?} is in segment {number} and in another one"));
                }
            }
        }
        Ok(())
    }

    /// Checks the header of a slot against its segment.
    pub fn check_header(&self, number: u32, segment: &RawSegment, index: usize) -> ReadResult<()> {
        let Some(header) = self.read_slot(segment.slots[index], 0, 1) else { return Ok(()) };
        let wrong = |what: &str| Err(format!("slot {index} of segment {number}: {what}"));
        if let Err(error) = check_sealed(&header, b"SPNDLSEG") {
            return wrong(&error);
        }
        let is_it = u64_at(&header, 32) == segment.segment_use
            && u32_at(&header, 56) == number
            && header[10] == segment.kind as u8
            && header[16..32] == self.superblock.pool;
        if is_it { Ok(()) } else { wrong("its header is another one's") }
    }
}
