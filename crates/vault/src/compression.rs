//! Zstandard with bounds: what is read may have been made by anyone.

use std::{cell::RefCell, io::Read};
use zstd::bulk::{Compressor, Decompressor};

/// Level for chunks. Zstandard's own default; restic's "auto" is a little faster and weaker.
const LEVEL: i32 = 3;

thread_local! {
    // Contexts are large: one for each thread.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub fn compress(bytes: &[u8]) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = kept.get_or_insert_with(|| Compressor::new(LEVEL).expect("a level of Zstandard"));
        compressor.compress(bytes).expect("its output fits the bound that Zstandard gives")
    })
}

/// Decompresses to exactly `length` bytes; `None` if it is something else.
pub fn decompress(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = kept.get_or_insert_with(|| Decompressor::new().expect("memory for Zstandard"));
        decompressor.decompress(bytes, length).ok().filter(|plain| plain.len() == length)
    })
}

/// Decompresses to at most `length_max` bytes; `None` if there are more, or it is something else.
pub fn decompress_at_most(bytes: &[u8], length_max: u64) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).ok()?;
    decoder.take(length_max + 1).read_to_end(&mut plain).ok()?;
    (plain.len() as u64 <= length_max).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded() {
        let packed = compress(&[7; 1000]);
        assert!(packed.len() < 100);
        assert_eq!(decompress(&packed, 1000), Some(vec![7; 1000]));
        assert_eq!((decompress(&packed, 999), decompress(&packed, 1001)), (None, None));
        assert_eq!(decompress_at_most(&packed, 1000), Some(vec![7; 1000]));
        assert_eq!((decompress_at_most(&packed, 999), decompress_at_most(b"no frame", 999)), (None, None));
    }
}
