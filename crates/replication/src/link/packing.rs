//! Blocks of frames as LZ4, while the line is the limit and not the processor.
//!
//! The header of a packed frame has the mark. Behind its body comes, instead of the blocks:
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | bytes of the packed blocks, fewer than the blocks have |
//! | 4 | 4 | CRC-32C of the 4 bytes before |
//! | 8 | | the blocks together, as one block of LZ4 |
//!
//! Rules:
//!
//! 1. A frame is the same, packed or not: windows and charges count what it is, and its body has the checksums of what
//!    was packed, by which damage is found.
//! 2. A connection packs what it sends. A frame that is sent again over another one may be packed there or not.
//! 3. No bytes cause a panic, or an allocation of more than a frame's blocks have.

use crate::frame::{EncodedFrame, FRAME_BLOCKS_MAX, FrameError, FrameFault, FrameHeader};
use array::format::BLOCK_BYTES;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::{sync::Arc, time::Duration};
use world::{Buffer, crc32c::crc32c};

/// The version of the protocol from which on blocks may be packed.
pub const PACKED_VERSION: u16 = 5;
/// Bytes before the packed ones.
pub(super) const PACKED_HEAD_BYTES: usize = 8;

/// Processor time of packing and unpacking a byte: 2.5 to 4.8 and 0.6 to 0.9 ms a MiB were measured, of text, base64 and
/// programs on a busy virtual machine.
const COST_NANOSECONDS: f64 = 3.5;
/// Frames with blocks after which one is packed to see whether it pays by now.
const TRY_INTERVAL: u32 = 64;
/// Weight of the newest figure in a smoothed one.
const NEWEST: f64 = 0.125;
/// Fewer bytes say nothing about the rate of the line.
const TIMED_BYTES_MIN: usize = 64 << 10;

/// Figures of one connection: of its line and of the data, and so whether it pays to pack.
pub(super) struct BlockPacker {
    peer_unpacks: bool,
    /// Time of the line for a byte, smoothed.
    line_nanoseconds: f64,
    /// Bytes that were sent since that changed, and their time.
    timed: (usize, Duration),
    /// Share of the bytes that packing leaves, smoothed.
    share_left: f64,
    /// Frames with blocks since the last one that was packed.
    unpacked: u32,
}

/// A frame as a connection sends it: its head, then bytes of one kind or the other.
pub(super) enum LineFrame<'f> {
    Plain(&'f EncodedFrame),
    Packed { head: Vec<u8>, packed: Vec<u8> },
}

impl BlockPacker {
    /// A packer for a connection whose session has that version.
    pub fn new(version: u16) -> Self {
        let timed = (0, Duration::ZERO);
        let peer_unpacks = version >= PACKED_VERSION;
        Self { peer_unpacks, line_nanoseconds: 0.0, timed, share_left: 0.5, unpacked: 0 }
    }

    /// Notes how long the line took for so many bytes.
    pub fn sent(&mut self, bytes: usize, took: Duration) {
        self.timed = (self.timed.0 + bytes, self.timed.1 + took);
        let (bytes, took) = self.timed;
        if bytes >= TIMED_BYTES_MIN {
            self.timed = (0, Duration::ZERO);
            let newest = took.as_nanos() as f64 / bytes as f64;
            self.line_nanoseconds += (newest - self.line_nanoseconds) * NEWEST;
        }
    }

    /// The frame as it is to be sent now.
    pub fn pack<'f>(&mut self, frame: &'f EncodedFrame) -> LineFrame<'f> {
        if !self.peer_unpacks || frame.blocks.is_empty() || !self.is_due() {
            return LineFrame::Plain(frame);
        }
        self.unpacked = 0;
        let plain: Vec<u8> = frame.blocks.iter().flat_map(|block| block.iter().copied()).collect();
        let mut packed = vec![0; PACKED_HEAD_BYTES + get_maximum_output_size(plain.len())];
        let count = compress_into(&plain, &mut packed[PACKED_HEAD_BYTES..])
            .expect("there is room for the worst case");
        let share = count as f64 / plain.len() as f64;
        self.share_left += (share.min(1.0) - self.share_left) * NEWEST;
        if count + PACKED_HEAD_BYTES >= plain.len() {
            return LineFrame::Plain(frame);
        }
        packed.truncate(PACKED_HEAD_BYTES + count);
        let length = (count as u32).to_le_bytes();
        packed[..4].copy_from_slice(&length);
        packed[4..PACKED_HEAD_BYTES].copy_from_slice(&crc32c(&[&length]).to_le_bytes());
        LineFrame::Packed { head: FrameHeader::marked_as_packed(&frame.head), packed }
    }

    /// True if it pays, or if it is time to see whether it does.
    fn is_due(&mut self) -> bool {
        let saved = self.line_nanoseconds * (1.0 - self.share_left);
        self.unpacked += 1;
        saved > COST_NANOSECONDS
            || (self.line_nanoseconds > COST_NANOSECONDS && self.unpacked >= TRY_INTERVAL)
    }
}

impl LineFrame<'_> {
    /// Bytes on the line.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(frame) => frame.bytes(),
            Self::Packed { head, packed } => head.len() + packed.len(),
        }
    }
}

/// Bytes that are packed, from what comes before them.
///
/// # Errors
///
/// It is damaged, or more than that many blocks can have.
pub(super) fn packed_bytes(head: [u8; PACKED_HEAD_BYTES], blocks: usize) -> Result<usize, FrameError> {
    let (length, checksum) = head.split_at(4);
    let fail = |at, fault| Err(FrameError { at, fault });
    if checksum != crc32c(&[length]).to_le_bytes() {
        return fail(4, FrameFault::Packed);
    }
    let bytes = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    if bytes + PACKED_HEAD_BYTES >= blocks * BLOCK_BYTES {
        return fail(0, FrameFault::TooLong);
    }
    Ok(bytes)
}

/// The blocks behind the body of a packed frame; `None` if bytes are missing. For tests and fuzzing: a connection reads
/// them from its line.
///
/// # Errors
///
/// Bytes that packing does not make.
pub fn unpack_blocks(bytes: &[u8], blocks: usize) -> Option<Result<Vec<Arc<Buffer>>, FrameError>> {
    let (head, rest) = bytes.split_first_chunk()?;
    let count = match packed_bytes(*head, blocks) {
        Ok(count) => count,
        Err(error) => return Some(Err(error)),
    };
    Some(unpack(rest.get(..count)?, blocks))
}

/// The blocks that were packed.
///
/// # Errors
///
/// The bytes are no LZ4, or have more or fewer blocks.
///
/// # Panics
///
/// If there are more blocks than a frame may have.
pub(super) fn unpack(packed: &[u8], blocks: usize) -> Result<Vec<Arc<Buffer>>, FrameError> {
    assert!(blocks <= FRAME_BLOCKS_MAX, "the header was checked");
    let mut plain = vec![0; blocks * BLOCK_BYTES];
    let count = decompress_into(packed, &mut plain);
    if count.ok() != Some(plain.len()) {
        return Err(FrameError { at: PACKED_HEAD_BYTES, fault: FrameFault::Packed });
    }
    Ok(plain.chunks_exact(BLOCK_BYTES).map(|block| Arc::new(Buffer::copy_of(block))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, FrameBody, HEADER_BYTES, PassBlock, PassBlocksFrame};
    use array::format::{BlockIndex, VolumeId};

    fn frame(fill: impl Fn(usize) -> u8) -> EncodedFrame {
        let block = |index: usize| {
            let data: Vec<u8> = (index * BLOCK_BYTES..).take(BLOCK_BYTES).map(&fill).collect();
            PassBlock { block: BlockIndex(index as u64), data: Arc::new(Buffer::copy_of(&data)) }
        };
        let blocks = (0..32).map(block).collect();
        let body = FrameBody::PassBlocks(PassBlocksFrame { volume: VolumeId([1; 16]), blocks });
        Frame { channel: 3, sequence: 7, body }.encode()
    }

    fn text(index: usize) -> u8 {
        (index / 7 % 23) as u8
    }

    /// Bytes without a pattern.
    fn noise(index: usize) -> u8 {
        let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27) as u8
    }

    fn slow_line(version: u16) -> BlockPacker {
        let mut packer = BlockPacker::new(version);
        (0..40).for_each(|_| packer.sent(1 << 20, Duration::from_millis(50)));
        packer
    }

    fn is_packed(packer: &mut BlockPacker, frame: &EncodedFrame) -> bool {
        matches!(packer.pack(frame), LineFrame::Packed { .. })
    }

    #[test]
    fn what_is_packed_is_unpacked_as_it_was() {
        let frame = frame(text);
        let LineFrame::Packed { head, packed } = slow_line(PACKED_VERSION).pack(&frame) else {
            panic!("it pays")
        };
        let header = FrameHeader::decode(head[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert!(header.is_packed && packed.len() < frame.bytes() / 2);
        let (before, bytes) = packed.split_at(PACKED_HEAD_BYTES);
        assert_eq!(packed_bytes(before.try_into().unwrap(), header.blocks), Ok(bytes.len()));
        let blocks = unpack(bytes, header.blocks).unwrap();
        let body = &head[HEADER_BYTES..];
        let decoded = Frame::decode(&header, body, blocks).unwrap();
        assert_eq!(decoded.encode().concat(), frame.concat());
    }

    #[test]
    fn only_a_slow_line_packs_and_only_for_a_peer_that_unpacks() {
        let frame = frame(text);
        assert!(!is_packed(&mut BlockPacker::new(PACKED_VERSION), &frame), "nothing is known of the line");
        assert!(!is_packed(&mut slow_line(PACKED_VERSION - 1), &frame));
        let mut fast = BlockPacker::new(PACKED_VERSION);
        (0..40).for_each(|_| fast.sent(1 << 20, Duration::from_millis(3)));
        assert!((0..200).all(|_| !is_packed(&mut fast, &frame)));
    }

    #[test]
    fn data_without_a_pattern_is_tried_now_and_then_and_packed_once_it_has_one() {
        let (noise, text) = (frame(noise), frame(text));
        let mut packer = slow_line(PACKED_VERSION);
        let tries = (0..2_000).filter(|_| {
            assert!(!is_packed(&mut packer, &noise), "it would be larger");
            packer.unpacked == 0
        });
        let tries = tries.count();
        assert!((30..80).contains(&tries), "{tries} tries");
        let packed = (0..1_000).filter(|_| is_packed(&mut packer, &text)).count();
        assert!(packed > 800, "{packed} packed");
    }

    #[test]
    fn damaged_lengths_and_bytes_are_refused() {
        let frame = frame(text);
        let LineFrame::Packed { packed, .. } = slow_line(PACKED_VERSION).pack(&frame) else {
            panic!("it pays")
        };
        let (before, bytes) = packed.split_at(PACKED_HEAD_BYTES);
        for bit in 0..8 * PACKED_HEAD_BYTES {
            let mut damaged: [u8; PACKED_HEAD_BYTES] = before.try_into().unwrap();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(packed_bytes(damaged, 32).is_err());
        }
        assert!(packed_bytes(before.try_into().unwrap(), 0).is_err(), "as many as no blocks have");
        for count in 0..bytes.len() {
            assert!(unpack(&bytes[..count], 32).is_err());
        }
        assert!(unpack(bytes, 31).is_err() && unpack(bytes, 33).is_err());
    }
}
