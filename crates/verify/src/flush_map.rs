//! The flush map beside a database: two bits per page, with which the engine detects lost writes.
//!
//! Pages of 8 KiB: a header with the old checksum, then data pages with the new one, seeded with their number
//! from 0. The engine recreates the map whenever it is unusable, so damage here loses no mail. But lost
//! writes go undetected without it, and storage that damages this file damages others.

use crate::{
    fields::{is_blank, signature_at, u32_at, u64_at},
    finding::{BitFix, FileFinding, FileLocation, FilePart},
};
use maildb::{
    PageNumber,
    format::{
        checksum::{flipped_bit, old_xor, xe},
        header::Signature,
    },
};
use world::{ByteCount, ByteOffset};

/// Length of a page of a map, header included.
pub const MAP_PAGE_BYTES: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushMapFacts {
    /// Set at the last flush of the database's header, which stores it too.
    pub header_flush_signature: Signature,
    /// Set at the last flush of this header; the database's header stores it too.
    pub flush_map_signature: Signature,
}

/// The result of checking a map's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushMapVerdict {
    /// Contents of the header; `None` if it does not verify.
    pub facts: Option<FlushMapFacts>,
    pub findings: Vec<FileFinding>,
}

/// The result of checking data pages of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapTally {
    pub good: u64,
    pub blank: u64,
    pub damaged: u64,
    pub findings: Vec<FileFinding>,
}

/// Checks the header, the first 8 KiB of the file.
pub fn judge_map_header(start: &[u8]) -> FlushMapVerdict {
    let place = FileLocation::new(FilePart::HeaderCopy(0), ByteOffset(0));
    let header = start.get(..MAP_PAGE_BYTES).filter(|header| u32_at(header, 0) == old_xor(header));
    let Some(header) = header else {
        let findings = vec![FileFinding::damage(place, "it does not verify, and there is no other copy")];
        return FlushMapVerdict { facts: None, findings };
    };
    let facts = FlushMapFacts {
        header_flush_signature: signature_at(header, 88),
        flush_map_signature: signature_at(header, 116),
    };
    FlushMapVerdict { facts: Some(facts), findings: Vec::new() }
}

/// Checks data pages; `first` is the number of the first one, counted from 0 behind the header.
pub fn judge_map_pages(first: u32, chunk: &[u8]) -> MapTally {
    let mut tally = MapTally::default();
    for (index, page) in chunk.chunks_exact(MAP_PAGE_BYTES).enumerate() {
        let number = first.saturating_add(index as u32);
        let (stored, computed) = (u64_at(page, 0), xe(page, PageNumber(number), true));
        let at = ByteOffset((u64::from(number) + 1) * MAP_PAGE_BYTES as u64);
        if stored == computed {
            tally.good += 1;
        } else if is_blank(page) {
            tally.blank += 1;
        } else {
            tally.damaged += 1;
            let fix = flipped_bit(stored, computed, MAP_PAGE_BYTES)
                .map(|bit| BitFix { byte: at + ByteCount(bit as u64 / 8), bit: (bit % 8) as u8 });
            let what = format!("checksum {stored:016x} should be {computed:016x}");
            tally.findings.push(
                FileFinding::damage(FileLocation::new(FilePart::MapPage(number), at), what).with_fix(fix),
            );
        }
    }
    tally
}
