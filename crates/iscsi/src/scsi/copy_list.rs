//! The parameter list of EXTENDED COPY with list identifiers of one byte (SPC-4, 6.4): which units, and what from where to
//! where.
//!
//! Units are named by one of the names they have in VPD page 83; segments go from blocks to blocks.

use super::sense::{AdditionalSense, Sense};

/// Units that a list names at most.
pub const TARGETS_MAX: usize = 16;
/// Segments of a list at most.
pub const SEGMENTS_MAX: usize = 16;
/// Bytes of all descriptors of a list at most.
pub const DESCRIPTORS_BYTES_MAX: usize = TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
/// Identification of a unit.
pub const TARGET_CODE: u8 = 0xe4;
/// From blocks to blocks.
pub const SEGMENT_CODE: u8 = 0x02;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;

/// A name of a unit, as in VPD page 83.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    /// Binary, or text.
    pub code_set: u8,
    /// Which kind of name.
    pub kind: u8,
    /// The name.
    pub bytes: Vec<u8>,
}

/// A unit that a list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// Its name.
    pub designator: Designator,
    /// Bytes of its blocks, as the initiator believes; 0 if it says nothing.
    pub block_bytes: u32,
}

/// Blocks to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which of the targets they come from.
    pub from: usize,
    /// Which of the targets they go to.
    pub to: usize,
    /// Blocks; of the one they come from, unless [`Segment::counts_destination`].
    pub blocks: u16,
    /// They are counted in blocks of the one they go to.
    pub counts_destination: bool,
    /// The first block there.
    pub from_block: u64,
    /// The first block here.
    pub to_block: u64,
}

/// A parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyList {
    /// What the initiator calls it.
    pub identifier: u8,
    /// What becomes of it can be asked for later.
    pub is_kept: bool,
    /// Units.
    pub targets: Vec<CopyTarget>,
    /// What is copied, in this order.
    pub segments: Vec<Segment>,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl CopyList {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// It is cut, too long, or has what is not supported.
    pub fn read(list: &[u8]) -> Result<Self, Sense> {
        let cut = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let head = list.get(..HEADER_BYTES).ok_or(cut)?;
        let (targets, segments, inline) =
            (be(&head[2..4]) as usize, be(&head[8..12]) as usize, be(&head[12..16]) as usize);
        let descriptors = targets.saturating_add(segments);
        if descriptors > DESCRIPTORS_BYTES_MAX || HEADER_BYTES + descriptors > list.len() || inline > 0 {
            return Err(cut);
        }
        let (targets, segments) = list[HEADER_BYTES..][..descriptors].split_at(targets);
        if !targets.len().is_multiple_of(TARGET_BYTES) {
            return Err(cut);
        }
        if targets.len() / TARGET_BYTES > TARGETS_MAX {
            return Err(Sense::illegal(AdditionalSense::TOO_MANY_TARGETS));
        }
        let targets = targets.chunks(TARGET_BYTES).map(target).collect::<Result<_, _>>()?;
        Ok(Self {
            identifier: head[0],
            is_kept: head[1] >> 3 & 3 != 3,
            targets,
            segments: read_segments(segments)?,
        })
    }
}

fn target(bytes: &[u8]) -> Result<CopyTarget, Sense> {
    let (code_set, kind, length) = (bytes[4] & 0x0f, bytes[5] & 0x3f, usize::from(bytes[7]));
    // Another kind of peripheral has no blocks.
    let is_disk = bytes[1] & 0x1f == 0;
    if bytes[0] != TARGET_CODE || !is_disk {
        return Err(Sense::illegal(AdditionalSense::UNSUPPORTED_TARGET));
    }
    let name = bytes[8..28].get(..length);
    let name = name.ok_or(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST))?;
    let designator = Designator { code_set, kind, bytes: name.to_vec() };
    Ok(CopyTarget { designator, block_bytes: be(&bytes[29..32]) as u32 })
}

fn read_segments(mut rest: &[u8]) -> Result<Vec<Segment>, Sense> {
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let length = rest.get(2..4).map(|length| 4 + be(length) as usize);
        let cut = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        if segments.len() == SEGMENTS_MAX {
            return Err(Sense::illegal(AdditionalSense::TOO_MANY_SEGMENTS));
        }
        if rest[0] != SEGMENT_CODE {
            return Err(Sense::illegal(AdditionalSense::UNSUPPORTED_SEGMENT));
        }
        let bytes = rest.get(..SEGMENT_BYTES).filter(|_| length == Some(SEGMENT_BYTES)).ok_or(cut)?;
        rest = &rest[SEGMENT_BYTES..];
        segments.push(Segment {
            from: be(&bytes[4..6]) as usize,
            to: be(&bytes[6..8]) as usize,
            blocks: be(&bytes[10..12]) as u16,
            counts_destination: bytes[1] & 0x02 != 0,
            from_block: be(&bytes[12..20]),
            to_block: be(&bytes[20..28]),
        });
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(targets: usize, segments: usize) -> Vec<u8> {
        let mut list = vec![7, 0];
        list.extend(((targets * TARGET_BYTES) as u16).to_be_bytes());
        list.extend([0; 4]);
        list.extend(((segments * SEGMENT_BYTES) as u32).to_be_bytes());
        list.extend([0; 4]);
        for _ in 0..targets {
            let mut target = vec![TARGET_CODE, 0, 0, 0, 1, 3, 0, 8];
            target.extend([0x31; 8]);
            target.resize(29, 0);
            target.extend([0, 2, 0]);
            list.extend(target);
        }
        for _ in 0..segments {
            let mut segment = vec![SEGMENT_CODE, 2, 0, 24, 0, 0, 0, 1, 0, 0, 0, 9];
            segment.extend(5_u64.to_be_bytes());
            segment.extend(6_u64.to_be_bytes());
            list.extend(segment);
        }
        list
    }

    fn refused(list: &[u8]) -> AdditionalSense {
        CopyList::read(list).expect_err("it is not right").additional
    }

    #[test]
    fn a_list_says_who_and_what() {
        let read = CopyList::read(&list(2, 1)).unwrap();
        assert_eq!((read.identifier, read.is_kept, read.targets.len()), (7, true, 2));
        let designator = Designator { code_set: 1, kind: 3, bytes: vec![0x31; 8] };
        assert_eq!(read.targets[0], CopyTarget { designator, block_bytes: 512 });
        let segment =
            Segment { from: 0, to: 1, blocks: 9, counts_destination: true, from_block: 5, to_block: 6 };
        assert_eq!(read.segments, [segment]);
        assert!(CopyList::read(&list(TARGETS_MAX, SEGMENTS_MAX)).is_ok());
    }

    #[test]
    fn what_is_cut_or_too_much_or_unknown_is_refused() {
        let whole = list(1, 1);
        for length in 0..whole.len() {
            assert_eq!(refused(&whole[..length]), AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, "{length}");
        }
        assert_eq!(refused(&list(TARGETS_MAX + 1, 1)), AdditionalSense::TOO_MANY_TARGETS);
        assert_eq!(refused(&list(1, SEGMENTS_MAX + 1)), AdditionalSense::TOO_MANY_SEGMENTS);
        let long = list(TARGETS_MAX + 1, SEGMENTS_MAX + 1);
        assert_eq!(refused(&long), AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for (place, additional) in [
            (16, AdditionalSense::UNSUPPORTED_TARGET),
            (16 + 7, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST),
            (16 + TARGET_BYTES, AdditionalSense::UNSUPPORTED_SEGMENT),
            (16 + TARGET_BYTES + 3, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR),
        ] {
            let mut spoiled = whole.clone();
            spoiled[place] = 0xe0;
            assert_eq!(refused(&spoiled), additional, "{place}");
        }
    }
}
