//! Little-endian fields of byte slices. A field beyond the end reads as zero: callers check lengths first,
//! and a missing check must not panic.

use maildb::format::header::{LogPosition, LogTime, Signature};

pub fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// A little-endian number of 2 bytes.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

/// A little-endian number of 4 bytes.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

/// A little-endian number of 8 bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// A log position.
pub fn position_at(bytes: &[u8], at: usize) -> LogPosition {
    LogPosition::decode(&bytes_at(bytes, at))
}

/// A time stamp as headers store it.
pub fn time_at(bytes: &[u8], at: usize) -> LogTime {
    LogTime::decode(&bytes_at(bytes, at))
}

/// The signature of a database or a log.
pub fn signature_at(bytes: &[u8], at: usize) -> Signature {
    Signature::decode(&bytes_at(bytes, at))
}

/// Fill byte of a log that version 7 of the engine has prepared for use.
pub const PREPARED_FILL: u8 = 0xDA;

/// True if a log holds only the fill of its preparation: zeros, or the fill byte of version 7.
pub fn is_prepared(bytes: &[u8]) -> bool {
    is_blank(bytes) || bytes.iter().all(|&byte| byte == PREPARED_FILL)
}

pub fn is_blank(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    let is_zero = |word: &[u8; 64]| word.iter().fold(0, |or, byte| or | byte) == 0;
    words.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}
