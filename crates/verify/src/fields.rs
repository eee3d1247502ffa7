//! Numbers at places in bytes. What lies outside the bytes reads as zero: a judge looks at lengths first, and
//! what it forgets must not end the program.

use maildb::format::header::{LogPosition, LogTime, Signature};

/// The `N` bytes at `at`.
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

/// A place in the log.
pub fn position_at(bytes: &[u8], at: usize) -> LogPosition {
    LogPosition::decode(&bytes_at(bytes, at))
}

/// A time as headers record it.
pub fn time_at(bytes: &[u8], at: usize) -> LogTime {
    LogTime::decode(&bytes_at(bytes, at))
}

/// The birth mark of a database or a log.
pub fn signature_at(bytes: &[u8], at: usize) -> Signature {
    Signature::decode(&bytes_at(bytes, at))
}

/// What version 7 of the engine fills a log with that it prepares for its use.
pub const PREPARED_FILL: u8 = 0xDA;

/// Whether a log is all that its preparation left: zeros, or the fill of version 7.
pub fn is_prepared(bytes: &[u8]) -> bool {
    is_blank(bytes) || bytes.iter().all(|&byte| byte == PREPARED_FILL)
}

/// Whether all bytes are zero.
pub fn is_blank(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    let is_zero = |word: &[u8; 64]| word.iter().fold(0, |or, byte| or | byte) == 0;
    words.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}
