//! Walks the records of a log from the first to the last byte.
//!
//! A record is a type and a body; the type and length fields in the body give the body's length. Other
//! contents are not checked. In segments a record that does not fit is split into fragments; in sectors it
//! simply continues. Every segment begins with a record or a fragment, so the walk resumes there after
//! invalid bytes.

use crate::{
    fields::{bytes_at, u16_at, u32_at},
    finding::{FileFinding, FileLocation, FilePart},
};
use maildb::log::{
    LogRecord,
    segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES},
};
use world::ByteOffset;

/// Record types that frame others.
const NOTHING: u8 = 0;
const FRAGMENT_BEGIN: u8 = 76;
const FRAGMENT: u8 = 77;
/// Record types with which recovery resumes an interrupted log; the record before them may be cut off.
const AFTER_RECOVERY: [u8; 3] = [17, 36, 51];

/// A length field in the body of a record.
enum Length {
    /// Two bytes at that offset.
    U16(usize),
    /// Two bytes at that offset, without the highest bit, which is a flag.
    U15(usize),
    /// Four bytes at that offset.
    U32(usize),
    /// A fixed length if a bit of the byte at that offset is set: (offset, bit mask, length).
    If(usize, u8, usize),
}

use Length::{If, U15, U16, U32};

/// The reason bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordProblem {
    UnknownType(u8),
    /// The record is longer than the bytes left.
    CutOff(u8),
}

/// The fixed length of a record type and the length fields of its variable parts.
fn shape(kind: u8) -> Option<(usize, &'static [Length])> {
    Some(match kind {
        1 => (568, &[]),
        2 | 18 => (18, &[]),
        3 => (9, &[]),
        4 | 17 | 23 => (1, &[]),
        5..=7 => (4, &[]),
        8 | 9 | 53 => (8, &[]),
        10 => (7, &[]),
        11..=13 => (11, &[]),
        14 => (43, &[U16(40), If(42, 4, 4)]),
        15 => (75, &[U16(72)]),
        16 => (7, &[U16(4)]),
        19 | 20 => (3, &[U16(1)]),
        21 | 79 => (4, &[]),
        22 | 61 => (5, &[U16(3)]),
        24 => (56, &[]),
        25 => (48, &[]),
        26 => (60, &[]),
        27 => (102, &[U16(96), U16(98), U16(100)]),
        28 => (88, &[U16(86)]),
        29 => (50, &[U16(44), U16(46), U16(48)]),
        30 => (48, &[U16(44), U16(46)]),
        31 => (52, &[U16(44), U16(46)]),
        32 | 35 => (44, &[]),
        33 | 34 => (50, &[U15(44)]),
        36 => (56, &[U16(44), U16(46), U16(54)]),
        37 => (54, &[U16(44), U16(46)]),
        38 | 48 => (46, &[U16(44)]),
        39 => (51, &[U16(44), U16(46)]),
        42 => (22, &[]),
        45 | 59 => (3, &[U16(1)]),
        46 => (5, &[U16(3)]),
        49 => (576, &[]),
        50 | 52 | 80 => (26, &[]),
        51 => (9, &[]),
        54 => (7, &[U32(3)]),
        57 => (3, &[]),
        58 => (68, &[]),
        60 => (35, &[U16(33)]),
        62 => (110, &[U16(96), U16(98), U16(100), U32(106)]),
        63 => (96, &[U16(86), U32(92)]),
        64 => (54, &[U16(52)]),
        65 => (96, &[U32(88), U32(92)]),
        66 => (46, &[]),
        67..=75 | 82..=91 => (5, &[U32(1)]),
        78 | 81 | 94 => (10, &[]),
        92 => (14, &[]),
        93 => (58, &[U16(44), U16(46)]),
        95 => (20, &[]),
        96 => (16, &[]),
        97 => (2, &[]),
        98 => (27, &[]),
        99 => (18, &[]),
        100 => (11, &[]),
        101 => (19, &[]),
        _ => return None,
    })
}

/// The length of the record at the start of `bytes`.
pub fn record_length(bytes: &[u8]) -> Result<usize, RecordProblem> {
    let [kind] = bytes_at(bytes, 0);
    let (fixed, lengths) = shape(kind).ok_or(RecordProblem::UnknownType(kind))?;
    if fixed > bytes.len() {
        return Err(RecordProblem::CutOff(kind));
    }
    let behind: usize = lengths
        .iter()
        .map(|length| match *length {
            U16(at) => u16_at(bytes, at).into(),
            U15(at) => usize::from(u16_at(bytes, at) & 0x7FFF),
            U32(at) => u32_at(bytes, at) as usize,
            If(at, bit, more) => {
                if bytes[at] & bit != 0 {
                    more
                } else {
                    0
                }
            }
        })
        .sum();
    let length = fixed + behind;
    if length > bytes.len() { Err(RecordProblem::CutOff(kind)) } else { Ok(length) }
}

pub struct RecordWalk {
    /// True for Spindle's logs, whose record bodies are its own.
    pub is_spindle: bool,
    /// True if the log's version may have record types unknown to this code.
    pub is_newer: bool,
}

/// A long record under reassembly.
enum Fragments {
    None,
    /// The bytes so far, and the total length.
    Some(Vec<u8>, usize),
    /// The first fragment was invalid.
    Lost,
}

impl RecordWalk {
    /// The length of the record at the start of `bytes`.
    fn length(&self, bytes: &[u8]) -> Result<usize, String> {
        if self.is_spindle {
            return LogRecord::decode(bytes).map(|(_, length)| length).map_err(|error| error.to_string());
        }
        record_length(bytes).map_err(|problem| match problem {
            RecordProblem::UnknownType(kind) => format!("unknown record type {kind}"),
            RecordProblem::CutOff(kind) => format!("a record of type {kind} is longer than its space"),
        })
    }

    /// Walks the segments of a log, starting with segment 1. Returns the number of records.
    pub fn segments(&self, segments: &[&[u8]], findings: &mut Vec<FileFinding>) -> u64 {
        let mut records = 0;
        let mut fragments = Fragments::None;
        for (index, segment) in (1_u16..).zip(segments) {
            let mut at = SEGMENT_HEADER_BYTES;
            while at < segment.len() {
                match self.item(segment, at, &mut fragments, &mut records) {
                    Ok(end) => at = end,
                    Err(what) => {
                        let offset = ByteOffset((usize::from(index) * SEGMENT_BYTES + at) as u64);
                        let place = FileLocation::new(FilePart::Segment(index), offset);
                        findings.push(if self.is_newer {
                            FileFinding::note(place, what)
                        } else {
                            FileFinding::damage(place, what)
                        });
                        fragments = Fragments::Lost;
                        break;
                    }
                }
            }
        }
        if let Fragments::Some(part, total) = fragments {
            let segment = segments.len() as u16;
            let place = FileLocation::new(
                FilePart::Segment(segment),
                ByteOffset(u64::from(segment) * SEGMENT_BYTES as u64),
            );
            let what = format!(
                "the last record ends after {} of {total} bytes: the rest was never written",
                part.len()
            );
            findings.push(FileFinding::warning(place, what));
        }
        records
    }

    /// Consumes one item at `at` of a segment and returns the offset of the next.
    fn item(
        &self,
        segment: &[u8],
        at: usize,
        fragments: &mut Fragments,
        records: &mut u64,
    ) -> Result<usize, String> {
        let bytes = &segment[at..];
        let kind = bytes[0];
        if kind == NOTHING {
            let zeroes = bytes.iter().take_while(|&&byte| byte == NOTHING).count();
            let is_end = zeroes == bytes.len();
            return if is_end { Ok(segment.len()) } else { Err("unexpected bytes follow".to_owned()) };
        }
        let part = |header: usize, size: u16| {
            let part = bytes.get(header..header + usize::from(size));
            part.ok_or_else(|| "a fragment is longer than its segment".to_owned())
        };
        match (kind, &mut *fragments) {
            (FRAGMENT_BEGIN, Fragments::None | Fragments::Lost) => {
                let (total, part) = (u32_at(bytes, 1) as usize, part(7, u16_at(bytes, 5))?);
                if part.len() >= total {
                    return Err("the first part of a record contains all of it".to_owned());
                }
                *fragments = Fragments::Some(part.to_vec(), total);
                Ok(at + 7 + part.len())
            }
            (FRAGMENT, Fragments::Lost) => Ok(at + 3 + part(3, u16_at(bytes, 1))?.len()),
            (FRAGMENT, Fragments::Some(whole, total)) => {
                let part = part(3, u16_at(bytes, 1))?;
                whole.extend_from_slice(part);
                let (length, total) = (whole.len(), *total);
                if length > total {
                    return Err("the parts of a record are longer than the record".to_owned());
                }
                if length == total {
                    let found = self.length(whole)?;
                    *fragments = Fragments::None;
                    *records += 1;
                    if found != total {
                        return Err(format!("a record of {total} bytes in parts has {found}"));
                    }
                }
                Ok(at + 3 + part.len())
            }
            (FRAGMENT, Fragments::None) => Err("a part of a record without its beginning".to_owned()),
            (_, Fragments::Some(..)) if at != SEGMENT_HEADER_BYTES || !AFTER_RECOVERY.contains(&kind) => {
                Err("a record begins before the one in parts has ended".to_owned())
            }
            _ => {
                *fragments = Fragments::None;
                let length = self.length(bytes)?;
                *records += 1;
                Ok(at + length)
            }
        }
    }

    /// Walks contiguous records from `at` to the end of `bytes`. Returns their number.
    pub fn stream(&self, bytes: &[u8], mut at: usize, findings: &mut Vec<FileFinding>) -> u64 {
        let mut records = 0;
        while at < bytes.len() {
            if bytes[at] == NOTHING {
                at += 1;
                continue;
            }
            let place = FileLocation::new(FilePart::Sector((at / 512) as u32), ByteOffset(at as u64));
            match record_length(&bytes[at..]) {
                Ok(length) => {
                    at += length;
                    records += 1;
                }
                Err(RecordProblem::CutOff(kind)) => {
                    let what =
                        format!("the last record, of type {kind}, is cut off: the rest was never written");
                    findings.push(FileFinding::warning(place, what));
                    break;
                }
                Err(RecordProblem::UnknownType(kind)) => {
                    findings.push(FileFinding::damage(place, format!("unknown record type {kind}")));
                    break;
                }
            }
        }
        records
    }
}
