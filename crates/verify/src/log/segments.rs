//! Logs of 4 KiB segments: every segment has a checksum, and the last one, while it is not full, is followed
//! by a shadow.
//!
//! A segment's state follows from its checksum and from the position and generation it stores. Its meaning
//! depends on its neighbours: between records only records may stand; behind the last there may be its
//! shadow, remains of an earlier use of the file, zeros, or an incomplete write.
//!
//! A crash may leave any subset of the segments of the last write. Spindle's segments store where their write
//! began, which distinguishes a segment that never reached the disk from one that was lost.

use super::{LogFileVerdict, header::is_newer, records};
use crate::{
    fields::{is_blank, position_at, u16_at, u64_at},
    finding::{BitFix, FileFinding, FileLocation, FilePart},
};
use maildb::{
    PageNumber,
    format::checksum::{flipped_bit, xe},
    log::segment::{LogSegmentState, SEGMENT_BYTES, inspect_segment},
};
use world::ByteOffset;

/// The state of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Records of this generation, at their position.
    Good,
    /// A shadow of the segment before.
    Shadow,
    /// Left from an earlier use of the file.
    Stale,
    Empty,
    /// Invalid; the wrong bit if there is a single one, and whether the segment is a shadow with it flipped.
    Bad(Option<(usize, bool)>),
}

struct Segments<'a> {
    bytes: &'a [u8],
    generation: u32,
    /// True if Spindle wrote it and stamped every segment.
    is_stamped: bool,
    /// Number of segments, with the header and the last one, which only ever holds a shadow.
    count: u16,
}

/// Checks the segments of a file whose header was checked.
pub fn judge(bytes: &[u8], walk_records: bool, verdict: &mut LogFileVerdict) {
    let Some(segments) = Segments::of(bytes, verdict) else { return };
    let states: Vec<State> = (1..segments.count).map(|index| segments.state(index)).collect();
    let missing = segments.missing_from_last_write(&states);
    let last_good = match missing {
        Some(index) => usize::from(index) - 1,
        None => states.iter().rposition(|state| *state == State::Good).map_or(0, |at| at + 1),
    };
    let mut whole: Vec<&[u8]> = (1..=last_good as u16).map(|index| segments.get(index)).collect();
    let mut is_torn = false;
    for (index, &state) in (1_u16..).zip(&states) {
        let next = states.get(usize::from(index)).copied();
        match state {
            State::Good if usize::from(index) <= last_good => verdict.tally.good += 1,
            _ if usize::from(index) < last_good => segments.find_between(index, state, verdict),
            State::Bad(None) | State::Stale | State::Empty | State::Shadow
                if usize::from(index) == last_good + 1 && next == Some(State::Shadow) =>
            {
                verdict.tally.repairable += 1;
                verdict.findings.push(FileFinding::warning(
                    segments.place(index),
                    "the last write to it is torn; its copy behind it is whole, and recovery uses that",
                ));
                whole.push(segments.get(index + 1));
            }
            State::Shadow if is_shadow_in_place(index, last_good, &states) => verdict.tally.shadow += 1,
            State::Good | State::Shadow => match missing {
                Some(missing) => {
                    is_torn = true;
                    segments.find_incomplete(index, missing, verdict);
                }
                None => segments.find_lost(index, verdict),
            },
            State::Stale => verdict.tally.stale += 1,
            State::Empty => verdict.tally.empty += 1,
            State::Bad(_) => is_torn |= segments.find_behind(index, last_good, state, verdict),
        }
    }
    if let Some(facts) = &mut verdict.facts {
        facts.is_torn = is_torn;
        let mut xor = 0;
        facts.accumulated = whole
            .iter()
            .map(|segment| {
                xor ^= u64_at(segment, 0);
                xor
            })
            .collect();
        if walk_records && verdict.tally.damaged == 0 {
            let walk = records::RecordWalk { is_spindle: segments.is_stamped, is_newer: is_newer(facts) };
            verdict.tally.records = walk.segments(&whole, &mut verdict.findings);
        }
    }
}

/// True if the shadow at `index` follows the last segment, or one that it repairs.
fn is_shadow_in_place(index: u16, last_good: usize, states: &[State]) -> bool {
    let index = usize::from(index);
    let is_behind_torn = index == last_good + 2 && !matches!(states[index - 2], State::Bad(Some(_)));
    index == last_good + 1 && last_good > 0 || is_behind_torn
}

impl<'a> Segments<'a> {
    fn of(bytes: &'a [u8], verdict: &LogFileVerdict) -> Option<Self> {
        let there = u16::try_from(bytes.len() / SEGMENT_BYTES).unwrap_or(u16::MAX);
        let first = bytes.get(SEGMENT_BYTES..2 * SEGMENT_BYTES)?;
        Some(match &verdict.facts {
            Some(facts) => Self {
                bytes,
                generation: facts.generation,
                is_stamped: facts.previous_end.is_some(),
                count: u16_at(bytes, 12).min(there),
            },
            None => {
                Self { bytes, generation: position_at(first, 8).generation, is_stamped: false, count: there }
            }
        })
    }

    fn get(&self, index: u16) -> &'a [u8] {
        &self.bytes[usize::from(index) * SEGMENT_BYTES..][..SEGMENT_BYTES]
    }

    fn place(&self, index: u16) -> FileLocation {
        FileLocation::new(FilePart::Segment(index), ByteOffset(u64::from(index) * SEGMENT_BYTES as u64))
    }

    fn fix(&self, index: u16, bit: usize) -> BitFix {
        let byte = ByteOffset(usize::from(index) as u64 * SEGMENT_BYTES as u64 + bit as u64 / 8);
        BitFix { byte, bit: (bit % 8) as u8 }
    }

    fn state(&self, index: u16) -> State {
        let segment = self.get(index);
        if self.is_stamped {
            match inspect_segment(segment, self.generation, index) {
                LogSegmentState::Good { .. } => return State::Good,
                LogSegmentState::Shadow { .. } => return State::Shadow,
                LogSegmentState::Stale => return State::Stale,
                LogSegmentState::Empty => return State::Empty,
                LogSegmentState::Bad => return State::Bad(self.flipped(segment, index)),
            }
        }
        let position = position_at(segment, 8);
        let found = [(index, State::Good), (index - 1, State::Shadow)].into_iter().find(|(own, _)| {
            *own > 0 && position.segment == *own && u64_at(segment, 0) == checksum(segment, *own)
        });
        match found {
            Some((_, state)) if position.generation == self.generation => state,
            Some(_) if position.generation < self.generation => State::Stale,
            None if is_blank(segment) => State::Empty,
            _ => State::Bad(self.flipped(segment, index)),
        }
    }

    /// The single bit whose flip makes this a segment of this generation, or a shadow.
    fn flipped(&self, segment: &[u8], index: u16) -> Option<(usize, bool)> {
        [(index, false), (index - 1, true)].into_iter().filter(|(own, _)| *own > 0).find_map(
            |(own, is_shadow)| {
                let (stored, computed) = (u64_at(segment, 0), checksum(segment, own));
                let difference = stored ^ computed;
                let in_checksum =
                    difference.is_power_of_two().then_some(difference.trailing_zeros() as usize);
                let bit = flipped_bit(stored, computed, SEGMENT_BYTES).or(in_checksum)?;
                let mut fixed = segment.to_vec();
                fixed[bit / 8] ^= 1 << (bit % 8);
                let position = position_at(&fixed, 8);
                let is_ours = position.segment == own && position.generation == self.generation;
                let verifies = u64_at(&fixed, 0) == checksum(&fixed, own);
                (is_ours && verifies).then_some((bit, is_shadow))
            },
        )
    }

    /// The first missing segment of the log's last write, if later segments of that write are present. A
    /// segment with one flipped bit was written, so it is not missing.
    fn missing_from_last_write(&self, states: &[State]) -> Option<u16> {
        let at = states.iter().position(|state| *state != State::Good)?;
        if !self.is_stamped || matches!(states[at], State::Bad(Some(_))) {
            return None;
        }
        let missing = at as u16 + 1;
        let mut behind = (missing + 1..self.count)
            .filter(|&index| matches!(states[usize::from(index) - 1], State::Good | State::Shadow))
            .peekable();
        behind.peek()?;
        let mut writes = behind.map(|index| self.first_of_write(index));
        writes.all(|first| first.is_some_and(|first| first <= missing)).then_some(missing)
    }

    /// The first segment of the write that the segment or shadow at `index` was part of, if Spindle wrote it.
    fn first_of_write(&self, index: u16) -> Option<u16> {
        match inspect_segment(self.get(index), self.generation, index) {
            LogSegmentState::Good { write_first } | LogSegmentState::Shadow { write_first } => write_first,
            LogSegmentState::Stale | LogSegmentState::Empty | LogSegmentState::Bad => None,
        }
    }

    /// Reports a segment without records where records belong.
    fn find_between(&self, index: u16, state: State, verdict: &mut LogFileVerdict) {
        verdict.tally.damaged += 1;
        let what = match state {
            State::Empty => "nothing was written here, and records follow",
            State::Stale => "it is from an earlier use of the file, and records follow",
            State::Shadow => "a copy of the segment before lies where records belong",
            State::Good | State::Bad(_) => "it does not verify, and records follow",
        };
        let fix = match state {
            State::Bad(Some((bit, false))) => Some(self.fix(index, bit)),
            _ => None,
        };
        verdict.findings.push(FileFinding::damage(self.place(index), what).with_fix(fix));
    }

    /// Reports a segment of the last write, of which segment `missing` never reached the disk.
    fn find_incomplete(&self, index: u16, missing: u16, verdict: &mut LogFileVerdict) {
        let what = format!("it belongs to an incomplete write, of which segment {missing} is missing");
        verdict.findings.push(FileFinding::warning(self.place(index), what));
    }

    /// Reports a shadow of a segment that is neither present nor the last one.
    fn find_lost(&self, index: u16, verdict: &mut LogFileVerdict) {
        verdict.tally.damaged += 1;
        let what = format!("it is a copy of segment {}, which is not there", index - 1);
        verdict.findings.push(FileFinding::damage(self.place(index), what));
    }

    /// Reports invalid bytes behind the last segment. True if they may be the rest of a torn write.
    fn find_behind(&self, index: u16, last_good: usize, state: State, verdict: &mut LogFileVerdict) -> bool {
        let place = self.place(index);
        if let State::Bad(Some((bit, is_shadow))) = state {
            let fix = Some(self.fix(index, bit));
            if is_shadow {
                // The records are complete without it.
                let finding = FileFinding::warning(place, "the copy of the segment before does not verify");
                verdict.findings.push(finding.with_fix(fix));
            } else {
                verdict.tally.damaged += 1;
                verdict.findings.push(FileFinding::damage(place, "it does not verify").with_fix(fix));
            }
            return false;
        }
        let is_next = usize::from(index) == last_good + 1;
        let what = if is_next {
            "the log ends in invalid bytes: an incomplete write, or damage"
        } else {
            "invalid bytes behind the end of the log"
        };
        verdict.findings.push(FileFinding::warning(place, what));
        is_next
    }
}

fn checksum(segment: &[u8], index: u16) -> u64 {
    xe(segment, PageNumber(index.into()), true)
}
