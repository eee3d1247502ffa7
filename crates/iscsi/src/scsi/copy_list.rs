//! The parameter list of EXTENDED COPY(LID1) (SPC-4, 6.4).
//!
//! Identification descriptors (type E4h) name a unit by a designator of its VPD page 83h; segment descriptors
//! (type 02h) copy from block device to block device.

use super::sense::{AdditionalSense, Sense};

/// Most target descriptors of a list.
pub const TARGETS_MAX: usize = 16;
/// Most segment descriptors of a list.
pub const SEGMENTS_MAX: usize = 16;
/// Most bytes of all descriptors of a list.
pub const DESCRIPTORS_BYTES_MAX: usize = TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
/// Descriptor type of an identification descriptor.
pub const TARGET_CODE: u8 = 0xe4;
/// Descriptor type of a block to block segment descriptor.
pub const SEGMENT_CODE: u8 = 0x02;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;

/// A designation descriptor of VPD page 83h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designator {
    /// 1: binary; 2: ASCII; 3: UTF-8.
    pub code_set: u8,
    /// DESIGNATOR TYPE.
    pub kind: u8,
    /// DESIGNATOR.
    pub bytes: Vec<u8>,
}

/// A target descriptor: names a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    pub designator: Designator,
    /// Block size the initiator assumes; 0 if it does not say.
    pub block_bytes: u32,
}

/// A segment descriptor: copies a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// Index of the source in the target descriptors.
    pub from: usize,
    /// Index of the destination in the target descriptors.
    pub to: usize,
    /// Number of blocks; of the source's size unless [`CopySegment::counts_destination`].
    pub blocks: u16,
    /// DC: `blocks` counts blocks of the destination's size.
    pub counts_destination: bool,
    pub from_block: u64,
    pub to_block: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyList {
    /// LIST IDENTIFIER.
    pub identifier: u8,
    /// The result can be asked for with RECEIVE COPY RESULTS.
    pub is_kept: bool,
    pub targets: Vec<CopyTarget>,
    /// Executed in this order.
    pub segments: Vec<CopySegment>,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl CopyList {
    ///
    /// # Errors
    ///
    /// The list is truncated, too long, or contains an unsupported descriptor.
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
    // Only block devices (peripheral device type 0) are supported.
    let is_disk = bytes[1] & 0x1f == 0;
    if bytes[0] != TARGET_CODE || !is_disk {
        return Err(Sense::illegal(AdditionalSense::UNSUPPORTED_TARGET));
    }
    let name = bytes[8..28].get(..length);
    let name = name.ok_or(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST))?;
    let designator = Designator { code_set, kind, bytes: name.to_vec() };
    Ok(CopyTarget { designator, block_bytes: be(&bytes[29..32]) as u32 })
}

fn read_segments(mut rest: &[u8]) -> Result<Vec<CopySegment>, Sense> {
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
        segments.push(CopySegment {
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
    fn a_copy_list_is_parsed() {
        let read = CopyList::read(&list(2, 1)).unwrap();
        assert_eq!((read.identifier, read.is_kept, read.targets.len()), (7, true, 2));
        let designator = Designator { code_set: 1, kind: 3, bytes: vec![0x31; 8] };
        assert_eq!(read.targets[0], CopyTarget { designator, block_bytes: 512 });
        let segment =
            CopySegment { from: 0, to: 1, blocks: 9, counts_destination: true, from_block: 5, to_block: 6 };
        assert_eq!(read.segments, [segment]);
        assert!(CopyList::read(&list(TARGETS_MAX, SEGMENTS_MAX)).is_ok());
    }

    #[test]
    fn truncated_oversized_and_unknown_descriptors_are_refused() {
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
