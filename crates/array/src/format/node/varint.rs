//! Numbers of one to ten bytes (LEB128), and differences as such numbers (zigzag).

use crate::format::decode_error::{DecodeError, DecodeFault, Structure};

const THIS: Structure = Structure::TreeNode;

/// Appends `value`: seven bits a byte, low ones first, the top bit set in all bytes but the last.
#[inline]
pub fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends the difference of `to` and `from`, modulo 2^64.
#[inline]
pub fn put_difference(into: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(into, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Reads a node's bytes from front to end.
#[derive(Clone, Copy)]
pub struct VarintReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> VarintReader<'a> {
    /// Reads from `bytes[at..]`; the slice must end where reading has to stop.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some(taken) = self.bytes.get(self.at..self.at + length) else { return Err(self.short()) };
        self.at += length;
        Ok(taken)
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let Some(&byte) = self.bytes.get(self.at) else { return Err(self.short()) };
        self.at += 1;
        Ok(byte)
    }

    #[cold]
    fn short(&self) -> DecodeError {
        THIS.refuse(self.at, DecodeFault::Contradiction("an entry goes beyond the body"))
    }

    /// Reads a number; only its shortest encoding is valid.
    #[inline]
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let is_shortest = (byte != 0 || shift == 0) && (shift < 63 || byte <= 1);
                THIS.agree(is_shortest, start, "a number is not written in the shortest way")?;
                return Ok(value);
            }
        }
        Err(THIS.refuse(start, DecodeFault::Contradiction("a number has more than 64 bits")))
    }

    /// Reads a difference and adds it to `from`, modulo 2^64.
    #[inline]
    pub fn difference(&mut self, from: u64) -> Result<u64, DecodeError> {
        let zigzag = self.number()?;
        let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(from.wrapping_add(difference))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<u64, DecodeError> {
        VarintReader::new(bytes, 0).number()
    }

    #[test]
    fn numbers_take_a_byte_for_seven_bits() {
        for (value, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!((bytes.len(), read(&bytes)), (length, Ok(value)));
        }
    }

    #[test]
    fn a_number_written_longer_than_need_be_is_refused() {
        for bytes in [&[0x80, 0][..], &[0xff, 0x80, 0], &[0xff; 10], &[0x80; 11]] {
            assert!(read(bytes).is_err(), "{bytes:x?}");
        }
        let beyond_64_bits = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert!(read(&beyond_64_bits).is_err());
        assert!(read(&[0x80]).is_err(), "cut short");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_difference_comes_back(from: u64, to: u64) {
            let mut bytes = Vec::new();
            put_difference(&mut bytes, from, to);
            prop_assert_eq!(VarintReader::new(&bytes, 0).difference(from), Ok(to));
        }
    }
}
