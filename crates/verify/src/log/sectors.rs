//! Logs of 512-byte sectors: a chain of checksum records, each covering the data written with it.
//!
//! Untested: this follows the description of the format; no real file was available.
//!
//! A checksum record stands at the start of the data of one flush. It stores the number of bytes covered
//! before and behind it, and the position of the next checksum record. A flush of several sectors has a
//! second, short checksum of its first sector. The last sector, while it is not full, is followed by its
//! shadow.

use super::{HEADER_BYTES, LogFileVerdict, records};
use crate::{
    fields::{bytes_at, u16_at, u32_at},
    finding::{FileFinding, FileLocation, FilePart},
};
use world::ByteOffset;

const SECTOR_BYTES: usize = 512;
/// Type and length of a checksum record.
const CHECKSUM: u8 = 42;
const CHECKSUM_BYTES: usize = 22;
/// Seeds of both checksums, and the addition for a shadow.
const SEED: u32 = 0xFEED_BEAF;
const SHORT_SEED: u32 = 0xDEAD_C0DE;
const SHADOW: u32 = 0x5AD0_5EC7;
/// Marks of a record with and without a short checksum.
const HAS_SHORT: u8 = 0x9A;
const NO_SHORT: u8 = 0xD1;

#[derive(Clone, Copy)]
struct Checksum {
    /// Offset in the file.
    at: usize,
    back: usize,
    forward: usize,
    next: usize,
    sum: u32,
    short: u32,
    short_use: u8,
}

struct Sectors<'a> {
    bytes: &'a [u8],
    generation: u32,
}

/// Checks the sectors of a file whose header was checked.
pub fn judge(bytes: &[u8], walk_records: bool, verdict: &mut LogFileVerdict) {
    let Some(facts) = &verdict.facts else { return };
    let length = usize::from(u16_at(bytes, 12)) * SECTOR_BYTES;
    let sectors = Sectors { bytes: &bytes[..length.min(bytes.len())], generation: facts.generation };
    let mut at = HEADER_BYTES;
    // Offset up to which valid checksums cover everything.
    let mut end = at;
    let mut last = None;
    loop {
        match sectors.checksum_at(at).filter(|found| sectors.sum(found) == found.sum) {
            Some(found) => {
                if at - found.back > end {
                    let place = sectors.place(end);
                    let what = format!("{} bytes that no checksum covers", at - found.back - end);
                    verdict.findings.push(FileFinding::note(place, what));
                }
                end = at + CHECKSUM_BYTES + found.forward;
                last = Some(found);
                if found.next == 0 {
                    break;
                }
                at += CHECKSUM_BYTES + found.next;
            }
            None => {
                end = sectors.find_broken(at, end, last, verdict);
                break;
            }
        }
    }
    let used = (end.div_ceil(SECTOR_BYTES) - HEADER_BYTES / SECTOR_BYTES) as u64;
    verdict.tally.good = used;
    if last.is_some_and(|last| sectors.has_shadow(&last)) {
        verdict.tally.shadow = 1;
    }
    let all = (sectors.bytes.len() / SECTOR_BYTES).saturating_sub(HEADER_BYTES / SECTOR_BYTES) as u64;
    verdict.tally.empty = all.saturating_sub(used + verdict.tally.shadow + verdict.tally.damaged);
    if walk_records && verdict.tally.damaged == 0 && end > HEADER_BYTES {
        let walk = records::RecordWalk { is_spindle: false, is_newer: false };
        verdict.tally.records = walk.stream(&sectors.bytes[..end], HEADER_BYTES, &mut verdict.findings);
    }
}

impl Sectors<'_> {
    fn place(&self, at: usize) -> FileLocation {
        FileLocation::new(FilePart::Sector((at / SECTOR_BYTES) as u32), ByteOffset(at as u64))
    }

    /// The checksum record at `at`, if its fields are possible; its sums are not verified.
    fn checksum_at(&self, at: usize) -> Option<Checksum> {
        let record = self.bytes.get(at..at.checked_add(CHECKSUM_BYTES)?)?;
        let number = |at: usize| u32_at(record, at);
        let [short_use] = bytes_at(record, 21);
        let found = Checksum {
            at,
            back: number(1) as usize,
            forward: number(5) as usize,
            next: number(9) as usize,
            sum: number(13),
            short: number(17),
            short_use,
        };
        let in_sector = at % SECTOR_BYTES;
        let is_possible = record[0] == CHECKSUM
            && (found.back == 0 || found.back == in_sector)
            && at + CHECKSUM_BYTES + found.forward <= self.bytes.len()
            && in_sector + CHECKSUM_BYTES <= SECTOR_BYTES;
        let is_short_right = || match short_use {
            HAS_SHORT => found.short == self.short_sum(&found),
            NO_SHORT => found.short == 0,
            _ => false,
        };
        (is_possible && is_short_right()).then_some(found)
    }

    /// The common part of both checksums.
    fn base(&self, found: &Checksum, seed: u32) -> u32 {
        let fields =
            found.back as u32 ^ found.forward as u32 ^ found.next as u32 ^ u32::from(found.short_use);
        seed ^ lanes(&self.bytes[found.at - found.back..found.at]) ^ fields ^ self.generation
    }

    fn sum(&self, found: &Checksum) -> u32 {
        let from = found.at + CHECKSUM_BYTES;
        self.base(found, SEED) ^ lanes(&self.bytes[from..from + found.forward])
    }

    fn short_sum(&self, found: &Checksum) -> u32 {
        let from = found.at + CHECKSUM_BYTES;
        let sector_end = (found.at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        self.base(found, SHORT_SEED) ^ lanes(self.bytes.get(from..sector_end).unwrap_or_default())
    }

    /// Handles a break of the chain at `at`: reports it and returns the offset up to which the log is intact.
    fn find_broken(
        &self,
        at: usize,
        end: usize,
        last: Option<Checksum>,
        verdict: &mut LogFileVerdict,
    ) -> usize {
        if self.shadow_behind(at).is_some() {
            verdict.tally.repairable += 1;
            let what = "the last write to it is torn; its copy behind it is whole, and recovery uses that";
            verdict.findings.push(FileFinding::warning(self.place(at), what));
            return end;
        }
        let is_shadow_of_last = last.is_some_and(|last| self.has_shadow(&last));
        if !is_shadow_of_last && let Some(behind) = self.checksum_behind(at) {
            verdict.tally.damaged += 1;
            let what = format!("this write does not verify, but sector {behind} behind it does");
            verdict.findings.push(FileFinding::damage(self.place(at), what));
            return end;
        }
        let what = "the log ends in bytes that do not verify: an incomplete write, or damage";
        verdict.findings.push(FileFinding::warning(self.place(at), what));
        if let Some(facts) = &mut verdict.facts {
            facts.is_torn = true;
        }
        end
    }

    /// The shadow, one sector behind, of the checksum record expected at `at`.
    fn shadow_behind(&self, at: usize) -> Option<Checksum> {
        let found = self.checksum_at(at + SECTOR_BYTES)?;
        (found.short_use == NO_SHORT && found.next == 0 && self.sum(&found) ^ SHADOW == found.sum)
            .then_some(found)
    }

    fn has_shadow(&self, last: &Checksum) -> bool {
        let behind = self.checksum_at(last.at + SECTOR_BYTES);
        behind.is_some_and(|found| found.short_use == NO_SHORT && self.sum(&found) ^ SHADOW == found.sum)
    }

    /// The first sector behind that of `at` whose checksum record verifies.
    fn checksum_behind(&self, at: usize) -> Option<usize> {
        let first = at / SECTOR_BYTES + 1;
        (first..self.bytes.len() / SECTOR_BYTES).find(|sector| {
            let from = sector * SECTOR_BYTES;
            let places = from..from + SECTOR_BYTES - CHECKSUM_BYTES + 1;
            places.filter(|&at| self.bytes[at] == CHECKSUM).any(|at| {
                self.checksum_at(at).is_some_and(|found| {
                    let is_one_sector =
                        found.at % SECTOR_BYTES + CHECKSUM_BYTES + found.forward <= SECTOR_BYTES;
                    // A valid short checksum is proof enough, and covers one sector.
                    found.short_use == HAS_SHORT || is_one_sector && self.sum(&found) == found.sum
                })
            })
        })
    }
}

/// XOR of the bytes in four little-endian lanes, starting with the first byte.
fn lanes(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().fold(u32::from_le_bytes(last), |xor, word| xor ^ u32::from_le_bytes(*word))
}
