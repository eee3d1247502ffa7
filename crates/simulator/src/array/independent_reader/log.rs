//! The log behind the checkpoint: the records a replay finds.

use super::{
    ReadResult,
    bytes::{array, block_checksum, check_sealed, u16_at, u32_at, u64_at},
    platters::BLOCK,
    segments::{Mirrored, RawSegmentKind, RawSegments, Slot},
};
use std::{collections::BTreeSet, ops::Range};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    pub position: u64,
    /// All positions below were acknowledged when it was written.
    pub acknowledged_below: u64,
    /// Slots with its header, on drives that are up to date.
    pub slots: Vec<Slot>,
    /// Block in those slots.
    pub block: u32,
    /// Index of its log segment.
    pub segment: usize,
    /// Blocks of any branch that it changes.
    pub changes: Vec<Range<u64>>,
    /// It writes or removes rows other than those of segments.
    pub has_rows: bool,
}

/// The log behind the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLog {
    pub records: Vec<FoundRecord>,
    /// The segments searched, in order; no other segment shares their slots.
    pub segments: Vec<Mirrored>,
}

/// The state of the log reader.
struct Reader<'a> {
    segments: &'a RawSegments<'a>,
    previous: (u64, u32),
    incarnation: u64,
    /// Position and seal of the records of this opening, and of the one before its first.
    joints: BTreeSet<(u64, u32)>,
}

/// Reads all records behind the checkpoint, in order.
///
/// # Errors
///
/// A record that a superblock declares acknowledged is missing.
pub fn read(segments: &RawSegments<'_>) -> ReadResult<RawLog> {
    let superblock = segments.superblock;
    let mut reader = Reader {
        segments,
        previous: superblock.previous,
        incarnation: 0,
        joints: BTreeSet::from([superblock.previous]),
    };
    let mut records: Vec<FoundRecord> = Vec::new();
    let (mut log, mut block) = (vec![superblock.log_segment.clone()], superblock.log_block);
    loop {
        let segment = log.last().expect("the log begins somewhere");
        if let Some((record, blocks)) = reader.next(segment, block) {
            records.push(FoundRecord { segment: log.len() - 1, ..record });
            block += blocks;
            continue;
        }
        let successors = reader.successors(segment);
        let Some(next) = successors.into_iter().find(|next| reader.clone().next(next, 0).is_some()) else {
            break;
        };
        log.push(next);
        block = 0;
    }
    let acknowledged = records.iter().map(|record| record.acknowledged_below).max().unwrap_or(0);
    let acknowledged = acknowledged.max(superblock.acknowledged_below);
    if acknowledged > reader.previous.0 + 1 {
        return Err(format!("the log ends at {}, and {acknowledged} was acknowledged", reader.previous.0));
    }
    Ok(RawLog { records, segments: log })
}

/// Blocks that a record's entries change, and whether they change rows other than those of segments.
fn changes(header: &[u8]) -> (Vec<Range<u64>>, bool) {
    const SEGMENTS: u8 = 1;
    let (mut changes, mut has_rows, mut at) = (Vec::new(), false, 128);
    for _ in 0..u16_at(header, 10) {
        let entry = &header[at..];
        at += if entry[0] == 4 { 64 } else { 32 };
        let first = u64_at(entry, 8);
        match entry[0] {
            1 => changes.push(first..first + 1),
            2 | 3 => changes.push(first..first + u64_at(entry, 24)),
            5 | 6 => has_rows |= entry[1] != SEGMENTS,
            _ => {}
        }
    }
    (changes, has_rows)
}

impl Reader<'_> {
    fn clone(&self) -> Self {
        Self { joints: self.joints.clone(), ..*self }
    }

    fn copies(&self, segment: &Mirrored) -> Vec<Slot> {
        let there = segment.slots.iter().filter(|slot| self.segments.drives.contains_key(&slot.0));
        there.copied().collect()
    }

    /// The next record, if present, and its length in blocks.
    fn next(&mut self, segment: &Mirrored, block: u32) -> Option<(FoundRecord, u32)> {
        let slots = self.copies(segment);
        for &slot in &slots {
            if 1 + block >= self.segments.superblock.slot_bytes / BLOCK as u32 {
                return None;
            }
            let header = self.segments.read_slot(slot, 1 + block, 1)?;
            if !self.follows(&header, segment, block) || !self.is_whole(&header, &slots, block) {
                continue;
            }
            let incarnation = u64_at(&header, 32);
            if incarnation > self.incarnation {
                self.incarnation = incarnation;
                self.joints = BTreeSet::from([(u64_at(&header, 48), u32_at(&header, 96))]);
            }
            self.previous = (u64_at(&header, 40), u32_at(&header, 12));
            self.joints.insert(self.previous);
            let (changes, has_rows) = changes(&header);
            let record = FoundRecord {
                position: self.previous.0,
                acknowledged_below: u64_at(&header, 56),
                slots,
                block,
                segment: 0,
                changes,
                has_rows,
            };
            return Some((record, 1 + u32::from(u16_at(&header, 100))));
        }
        None
    }

    fn follows(&self, header: &[u8], segment: &Mirrored, block: u32) -> bool {
        let previous = (u64_at(header, 48), u32_at(header, 96));
        let joins = previous == self.previous
            || block == 0 && u64_at(header, 32) == self.incarnation && self.joints.contains(&previous);
        check_sealed(header, b"SPNDLREC").is_ok()
            && header[16..32] == self.segments.superblock.pool
            && u32_at(header, 88) == segment.number
            && u64_at(header, 80) == segment.segment_use
            && u32_at(header, 92) == block
            && u64_at(header, 40) > self.previous.0
            && joins
    }

    /// True if every part of the payload has its checksum on some copy.
    fn is_whole(&self, header: &[u8], slots: &[Slot], block: u32) -> bool {
        let blocks = u32::from(u16_at(header, 100));
        let read = |&slot| self.segments.read_slot(slot, 2 + block, blocks);
        let copies: Vec<Vec<u8>> = slots.iter().filter_map(read).collect();
        let pool: [u8; 16] = array(header, 16);
        let mut at = 128;
        for _ in 0..u16_at(header, 10) {
            let entry = &header[at..];
            at += if entry[0] == 4 { 64 } else { 32 };
            let start = 64 * usize::from(u16_at(entry, 2));
            let is_right = |part: &[u8]| match entry[0] {
                1 => {
                    let key = (u32_at(entry, 4), u64_at(entry, 8), u64_at(entry, 16));
                    block_checksum(&pool, key, part) == u32_at(entry, 24)
                }
                _ => world::crc32c::crc32c(&[part]) == u32_at(entry, 4),
            };
            let length = match entry[0] {
                1 => usize::from(u16_at(entry, 28)),
                5 => usize::from(u16_at(entry, 24)),
                _ => continue,
            };
            if !copies.iter().any(|copy| is_right(&copy[start..start + length])) {
                return false;
            }
        }
        true
    }

    /// Possible next segments behind a segment, from all its headers.
    fn successors(&self, segment: &Mirrored) -> Vec<Mirrored> {
        let headers = self.copies(segment).into_iter().filter_map(|slot| self.segments.read_slot(slot, 0, 1));
        let mut of_it = headers.filter(|header| self.is_header(header, segment));
        let Some(header) = of_it.next() else { return Vec::new() };
        let all =
            (0..usize::from(header[67]).min(4)).map(|index| Mirrored::read(&header[384 + 40 * index..]));
        let has_header = |next: &Mirrored| {
            let slots = self.copies(next).into_iter();
            let mut headers = slots.filter_map(|slot| self.segments.read_slot(slot, 0, 1));
            headers.any(|header| self.is_header(&header, next))
        };
        all.filter(has_header).collect()
    }

    fn is_header(&self, header: &[u8], segment: &Mirrored) -> bool {
        check_sealed(header, b"SPNDLSEG").is_ok()
            && header[16..32] == self.segments.superblock.pool
            && header[10] == RawSegmentKind::Log as u8
            && u32_at(header, 56) == segment.number
            && u64_at(header, 32) == segment.segment_use
    }
}
