//! The keyed hash that identifies one image of one page.
//!
//! The format's page checksums are linear: halves of two versions of a page, swapped sectors, or runs of
//! equal bytes may cancel out. This hash multiplies words of the image with each other (64 by 64 to 128 bits,
//! both halves folded together), under a key drawn for each database, and starts with the page number.
//! Accidental damage goes unnoticed once in 2^64; so does an attacker who does not know the key. It is not a
//! signature: with the key, one can forge any image.
//!
//! It runs in four lanes, because every page that is read or written is hashed on the group's only thread: 14
//! GB/s, 2.4 µs for 32 KiB, on one core of a shared virtual machine (`hash_speed` below).

use crate::format::page_size::PageNumber;

const LANES: usize = 4;
const LANE_BYTES: usize = 16;
const ROW_BYTES: usize = LANES * LANE_BYTES;
/// Odd, from the fractional part of the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stored key of 16 random bytes, and the lane keys derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampKey {
    words: [u64; 2],
    lanes: [u64; LANES],
}

impl StampKey {
    /// The key from its stored words.
    pub fn new(words: [u64; 2]) -> Self {
        let lane = |lane: usize| scramble(words[lane % 2] ^ scramble(words[(lane + 1) % 2] ^ lane as u64));
        Self { words, lanes: std::array::from_fn(lane) }
    }

    /// The words to store.
    pub fn words(&self) -> [u64; 2] {
        self.words
    }

    /// Hash of all bytes of a page, a multiple of 64, as page `page`.
    pub fn hash(&self, page: PageNumber, bytes: &[u8]) -> u64 {
        let (rows, rest) = bytes.as_chunks::<ROW_BYTES>();
        assert!(rest.is_empty(), "{} bytes are not whole rows", bytes.len());
        let start = scramble(self.words[0] ^ u64::from(page.0).wrapping_mul(STEP));
        let mut lanes: [u64; LANES] = std::array::from_fn(|lane| scramble(start ^ lane as u64));
        for row in rows {
            let (pairs, _) = row.as_chunks::<LANE_BYTES>();
            for ((lane, key), pair) in lanes.iter_mut().zip(self.lanes).zip(pairs) {
                let (words, _) = pair.as_chunks::<8>();
                let [first, second] = [words[0], words[1]].map(u64::from_le_bytes);
                // The second word is added again, so that a product of zero does not lose it.
                *lane = fold(first ^ key, second ^ *lane).wrapping_add(second.rotate_left(23));
            }
        }
        let end = start ^ self.words[1];
        lanes.into_iter().fold(end, |hash, lane| scramble(hash ^ lane))
    }
}

/// XOR of both halves of the 128-bit product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A bijection that spreads every bit (the finaliser of splitmix64).
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(STEP);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const KEY: [u64; 2] = [7, 8];

    fn of(bytes: &[u8]) -> u64 {
        StampKey::new(KEY).hash(PageNumber(5), bytes)
    }

    #[test]
    fn the_hash_equals_that_of_existing_files() {
        let bytes: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(format!("{:016x}", of(&bytes)), "03ac4dbc68e5abff");
    }

    #[test]
    fn flipped_bits_swapped_parts_and_other_page_numbers_change_the_hash() {
        let whole: Vec<u8> = (0..4096_u32).map(|at| (at / 16 % 5) as u8).collect();
        let mut seen = HashSet::from([of(&whole)]);
        let mut is_new = |bytes: &[u8]| seen.insert(of(bytes));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_new(&flipped), "bit {bit}");
            // Two bits that cancel in sums and in XORs of words, of lanes and of rows.
            for distance in [8, 16, 64, 2048] {
                let mut both = flipped.clone();
                both[(bit / 8 + distance) % 4096] ^= 1 << (bit % 8);
                assert!(bit / 8 + distance >= 4096 || is_new(&both), "bit {bit} and the one {distance} on");
            }
        }
        let differs = |bytes: &[u8]| of(bytes) != of(&whole);
        for unit in [8, 16, 64, 512, 2048] {
            for start in (0..4096 - unit * 2 + 1).step_by(unit) {
                let mut swapped = whole.clone();
                swapped[start..start + unit * 2].rotate_left(unit);
                assert!(swapped == whole || differs(&swapped), "{unit} bytes at {start} swapped");
            }
        }
        assert_ne!(StampKey::new(KEY).hash(PageNumber(6), &whole), of(&whole));
        assert_ne!(StampKey::new([7, 9]).hash(PageNumber(5), &whole), of(&whole));
        assert_ne!(StampKey::new([6, 8]).hash(PageNumber(5), &whole), of(&whole));
    }

    #[test]
    fn zeros_and_keys_in_the_data_do_not_cancel_other_words() {
        let mut bytes = vec![0; 4096];
        let mut seen = HashSet::from([of(&bytes)]);
        // A first word that cancels the key makes the product zero; earlier words must still count.
        bytes[64..72].copy_from_slice(&StampKey::new(KEY).lanes[0].to_le_bytes());
        for value in 0..200_u64 {
            bytes[72..80].copy_from_slice(&value.to_le_bytes());
            assert!(seen.insert(of(&bytes)), "second word {value}");
        }
    }

    #[test]
    #[ignore = "a measurement"]
    #[allow(clippy::disallowed_methods, clippy::disallowed_types)]
    fn hash_speed() {
        let page: Vec<u8> = (0..32_768_u32).map(|at| (at * 7 / 3) as u8).collect();
        let begin = std::time::Instant::now();
        let turns = 100_000;
        let mut sum = 0;
        for turn in 0..turns {
            sum ^= StampKey::new(KEY).hash(PageNumber(turn), std::hint::black_box(&page));
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("note: {:.1} GB/s ({sum:x})", f64::from(turns) * 32_768.0 / seconds / 1e9);
    }
}
