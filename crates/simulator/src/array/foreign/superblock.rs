//! Superblocks, and which of them counts.

use super::{
    Reading,
    bytes::{array, check_sealed, u16_at, u32_at, u64_at},
    platters::{BLOCK, Platters},
    segments::Mirrored,
};
use std::collections::BTreeMap;

/// Where the four places begin.
const PLACES: [u64; 4] = [0, 256 << 10, 512 << 10, 768 << 10];
/// Bytes of one at most.
const IMAGE_MAX: usize = 64 << 10;

/// A row of the member table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub drive: [u8; 16],
    /// 1 active, 2 missing, 3 joining, 4 leaving, 5 gone, 6 withdrawn.
    pub state: u8,
    /// Slots it has.
    pub slot_count: u32,
}

impl Member {
    fn holds_superblocks(&self) -> bool {
        matches!(self.state, 1 | 3 | 4)
    }
}

/// A pointer to a node; none of an empty tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Which segment.
    pub segment: u32,
    /// Where in its data.
    pub block: u32,
    /// Of the node.
    pub seal: u32,
    /// Its length in blocks.
    pub blocks: u8,
    /// 0 of a leaf.
    pub level: u8,
    /// No version below was born later.
    pub stamp_max: u64,
}

/// An image.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Whose.
    pub pool: [u8; 16],
    /// Counted up.
    pub generation: u64,
    mark: u64,
    previous_mark: u64,
    /// Where slots begin, in bytes.
    pub data_start: u64,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// All members.
    pub members: Vec<Member>,
    this: u16,
    /// Counted up.
    pub checkpoint: u64,
    /// The opening of the pool that wrote it.
    pub incarnation: u64,
    /// No lower one is free.
    pub stamp_next: u64,
    /// No lower one is free.
    pub segment_use_next: u64,
    /// All below was acknowledged.
    pub acknowledged_below: u64,
    /// Position and seal of the last record that is in the trees.
    pub previous: (u64, u32),
    /// Where in the log's segment the next one lies.
    pub log_block: u32,
    /// The log's segment.
    pub log_segment: Mirrored,
    /// Head, history, catalogue.
    pub roots: [Option<Pointer>; 3],
    /// Where nodes of the catalogue lie.
    pub catalogue_segments: Vec<Mirrored>,
}

impl Pointer {
    /// Reads one; all zero is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let is_some = bytes[..24].iter().any(|&byte| byte != 0);
        is_some.then(|| Self {
            segment: u32_at(bytes, 0),
            block: u32_at(bytes, 4),
            seal: u32_at(bytes, 8),
            blocks: bytes[12],
            level: bytes[13],
            stamp_max: u64_at(bytes, 16),
        })
    }
}

impl Superblock {
    fn read(image: &[u8], place: usize) -> Reading<Self> {
        let length = u32_at(image, 104) as usize;
        if !(2 * BLOCK..=IMAGE_MAX).contains(&length) || !length.is_multiple_of(BLOCK) {
            return Err(format!("a superblock of {length} bytes"));
        }
        let image = &image[..length];
        check_sealed(image, b"SPNDLSUP")?;
        let generation = u64_at(image, 48);
        if usize::from(image[116]) != place || place as u64 % 2 != generation % 2 {
            return Err(format!("generation {generation} in place {place}"));
        }
        let members = (0..usize::from(u16_at(image, 112))).map(|index| {
            let row = &image[256 + 96 * index..][..96];
            Member { drive: array(row, 0), state: row[78], slot_count: u32_at(row, 72) }
        });
        let checkpoint = &image[u32_at(image, 108) as usize..];
        let checkpoint = &checkpoint[..u32_at(checkpoint, 224) as usize];
        check_sealed(checkpoint, b"SPNDLCHK")?;
        let segments = (0..usize::from(u16_at(checkpoint, 228)))
            .map(|index| Mirrored::read(&checkpoint[256 + 40 * index..]));
        Ok(Self {
            pool: array(image, 16),
            generation,
            mark: u64_at(image, 192),
            previous_mark: u64_at(image, 200),
            data_start: u64_at(image, 80),
            slot_bytes: u32_at(image, 96),
            members: members.collect(),
            this: u16_at(image, 114),
            checkpoint: u64_at(checkpoint, 32),
            incarnation: u64_at(checkpoint, 40),
            stamp_next: u64_at(checkpoint, 64),
            segment_use_next: u64_at(checkpoint, 72),
            acknowledged_below: u64_at(checkpoint, 56),
            previous: (u64_at(checkpoint, 96), u32_at(checkpoint, 104)),
            log_block: u32_at(checkpoint, 108),
            log_segment: Mirrored::read(&checkpoint[112..]),
            roots: [152, 176, 200].map(|at| Pointer::read(&checkpoint[at..])),
            catalogue_segments: segments.collect(),
        })
    }

    /// The valid one with the highest generation on a drive.
    fn newest(platters: &Platters, drive: usize) -> Option<Self> {
        let images = PLACES.iter().enumerate().filter_map(|(place, &at)| {
            let image = platters.read(drive, at, IMAGE_MAX);
            Self::read(&image, place).ok()
        });
        images.max_by_key(|image| image.generation)
    }
}

/// What `own` means for `wanted`, if its drive should have that: whether it is up to date, or disproves it.
fn standing(wanted: &Superblock, own: &Superblock) -> Option<bool> {
    let row = wanted.members.get(usize::from(own.this))?;
    let name = &own.members[usize::from(own.this)].drive;
    if !row.holds_superblocks() || row.drive != *name {
        return None;
    }
    match own.generation {
        generation if generation == wanted.generation => Some(own.mark == wanted.mark),
        generation if generation + 1 == wanted.generation => Some(own.mark == wanted.previous_mark),
        _ => None,
    }
}

/// The superblock that counts, and which drive is which member, of those that are up to date.
pub fn elect(platters: &Platters) -> Reading<(Superblock, BTreeMap<u16, usize>)> {
    let newest: Vec<(usize, Superblock)> = (0..platters.0.len())
        .filter_map(|drive| Some((drive, Superblock::newest(platters, drive)?)))
        .collect();
    let all: Vec<&Superblock> = newest.iter().map(|(_, own)| own).collect();
    let highest = all.iter().map(|own| own.generation).max().ok_or("no superblock counts")?;
    // What is older than the highest counts only if it is what speaks against it.
    let mut candidates: Vec<&Superblock> =
        all.iter().copied().filter(|own| own.generation == highest).collect();
    for looked_at in 0.. {
        let Some(wanted) = candidates.get(looked_at).copied() else { break };
        let speaks_against = |own: &&Superblock| {
            standing(wanted, own) == Some(false) && !candidates.iter().any(|known| std::ptr::eq(*known, *own))
        };
        let more: Vec<&Superblock> = all.iter().copied().filter(speaks_against).collect();
        candidates.extend(more);
    }
    candidates.sort_by_key(|wanted| std::cmp::Reverse(wanted.generation));
    let is_disproved = |wanted: &Superblock| all.iter().any(|own| standing(wanted, own) == Some(false));
    let proved = candidates.iter().find(|wanted| !is_disproved(wanted));
    let known_to =
        |wanted: &&Superblock| all.iter().filter(|own| standing(wanted, own) == Some(true)).count();
    let elected = proved.or_else(|| candidates.iter().rev().max_by_key(|wanted| known_to(wanted)));
    let elected = *elected.ok_or("no superblock counts")?;
    let up_to_date = newest.iter().filter(|(_, own)| standing(elected, own) == Some(true));
    Ok((elected.clone(), up_to_date.map(|(drive, own)| (own.this, *drive)).collect()))
}
