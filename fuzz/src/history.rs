//! Days of the performance over time.

use control::history::{decode_day, encode_day};
use world::crc32c::crc32c;

/// A day that is read is written again as the same. The first byte says whether the rest is given a right checksum: few inputs
/// would have one.
pub fn check_day(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 1 == 1 {
        bytes.extend_from_slice(&crc32c(&[&bytes]).to_le_bytes());
    }
    if let Ok(day) = decode_day(&bytes) {
        assert_eq!(decode_day(&encode_day(&day)), Ok(day));
    }
}
