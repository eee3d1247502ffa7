//! Segments: where their blocks lie, on which drives.

use super::{
    Reading,
    bytes::{check_sealed, u16_at, u32_at, u64_at},
    platters::{BLOCK, Platters},
    superblock::Superblock,
};
use std::collections::{BTreeMap, BTreeSet};

/// Slot of a drive: member, number.
pub type Slot = (u16, u32);

/// A segment as superblocks and headers name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// Of its lives, which.
    pub segment_use: u64,
    /// Which.
    pub number: u32,
    /// Where.
    pub slots: Vec<Slot>,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records.
    Log = 1,
    /// What was moved.
    Data = 2,
    /// Nodes.
    Nodes = 3,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Of its lives, which.
    pub segment_use: u64,
    /// What it holds.
    pub kind: Kind,
    /// How its data is laid out.
    pub class: u8,
    /// Blocks of a slot.
    pub slot_blocks: u32,
    /// Blocks of a stripe.
    pub stripe: u32,
    /// Where it is.
    pub slots: Vec<Slot>,
    /// Grains that are pointed to, if its row says so.
    pub live: Option<u64>,
}

fn slots_at(bytes: &[u8], at: usize, count: u8) -> Vec<Slot> {
    let places = (0..usize::from(count)).map(|index| at + 8 * index);
    places.map(|at| (u16_at(bytes, at), u32_at(bytes, at + 4))).collect()
}

impl Mirrored {
    /// Reads one.
    pub fn read(bytes: &[u8]) -> Self {
        let slots = slots_at(bytes, 16, bytes[12].min(3));
        Self { segment_use: u64_at(bytes, 0), number: u32_at(bytes, 8), slots }
    }

    /// As a segment of a pool.
    pub fn of_kind(&self, kind: Kind, superblock: &Superblock) -> Segment {
        let slot_blocks = superblock.slot_bytes / BLOCK as u32;
        Segment {
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

impl Segment {
    /// A row of the catalogue; none of a segment that was freed.
    pub fn of_row(row: &[u8]) -> Reading<Option<Self>> {
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

    /// Whether it has copies, or is to have them when there are drives for them; else it rests in one.
    pub fn is_mirror(&self) -> bool {
        self.class == 1 || self.class == 0 && self.slots.len() == 1 && self.stripe == self.slot_blocks - 1
    }

    /// Blocks of its data.
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

    /// Every copy of a block: slot, and block in it.
    pub fn copies(&self, block: u32) -> Reading<Vec<(Slot, u32)>> {
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

fn kind_of(number: u8) -> Reading<Kind> {
    match number {
        1 => Ok(Kind::Log),
        2 => Ok(Kind::Data),
        3 => Ok(Kind::Nodes),
        _ => Err(format!("a segment of kind {number}")),
    }
}

/// A pool's segments, and the drives they lie on.
pub struct Segments<'a> {
    /// The drives.
    pub platters: &'a Platters,
    /// The superblock that counts.
    pub superblock: &'a Superblock,
    /// Drives that are up to date, by member.
    pub drives: &'a BTreeMap<u16, usize>,
    /// All that are known.
    pub all: BTreeMap<u32, Segment>,
}

impl Segments<'_> {
    /// A segment.
    pub fn get(&self, number: u32) -> Reading<&Segment> {
        self.all.get(&number).ok_or_else(|| format!("segment {number} is pointed to, and not there"))
    }

    /// One that something is used for.
    pub fn of_kind(&self, number: u32, kinds: &[Kind]) -> Reading<&Segment> {
        let segment = self.get(number)?;
        match kinds.contains(&segment.kind) {
            true => Ok(segment),
            false => Err(format!("segment {number} is of {:?}, not of {kinds:?}", segment.kind)),
        }
    }

    /// Bytes of a slot, if its drive is up to date.
    pub fn read_slot(&self, (member, slot): Slot, block: u32, blocks: u32) -> Option<Vec<u8>> {
        let start = self.superblock.data_start + u64::from(slot) * u64::from(self.superblock.slot_bytes);
        let at = start + u64::from(block) * BLOCK as u64;
        Some(self.platters.read(*self.drives.get(&member)?, at, blocks as usize * BLOCK))
    }

    /// Every copy of some blocks that lie one behind the other.
    pub fn read(&self, number: u32, block: u32, blocks: u32) -> Reading<Vec<Vec<u8>>> {
        let segment = self.get(number)?;
        segment.copies(block + blocks - 1)?;
        let copies = segment.copies(block)?.into_iter();
        Ok(copies.filter_map(|(slot, place)| self.read_slot(slot, place, blocks)).collect())
    }

    /// No slot is in two segments, or beyond its drive; no segment has two on one drive.
    pub fn check_slots(&self) -> Reading<()> {
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

    /// Whether the header of a slot says what the segment is.
    pub fn check_header(&self, number: u32, segment: &Segment, index: usize) -> Reading<()> {
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
