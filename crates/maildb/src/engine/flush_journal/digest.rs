//! The hash that distinguishes a whole slot from a torn one.
//!
//! The format's page checksums are linear, and a mixture of two versions of a page may pass them. This hash
//! is not linear, and is seeded with the write number and the slot number. It runs in four lanes because a
//! slot is up to half a MiB and is hashed on the group's only thread.
//!
//! Every step is a bijection of its lane, so a change within one word of the input always changes the result;
//! anything larger goes unnoticed once in 2^64.

/// Odd, from the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const LANES: usize = 4;
const LANE_BYTES: usize = 8;

/// Hash of the concatenation of `parts`, each a multiple of 32 bytes.
pub fn digest<'a>(seed: u64, parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| mix(seed ^ mix(lane as u64 + 1)));
    for part in parts {
        let (rows, rest) = part.as_chunks::<{ LANES * LANE_BYTES }>();
        assert!(rest.is_empty(), "{} bytes are not whole rows", part.len());
        for row in rows {
            let (words, _) = row.as_chunks::<LANE_BYTES>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = mix(*lane ^ u64::from_le_bytes(*word));
            }
        }
    }
    lanes.into_iter().fold(mix(seed), |hash, lane| mix(hash ^ lane))
}

fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(MULTIPLIER);
    // Multiplication only carries upwards; this mixes the high half into the low one.
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        digest(7, [bytes])
    }

    #[test]
    fn flipped_bits_swapped_words_and_old_sectors_change_the_digest() {
        let whole: Vec<u8> = (0..2048_u32).map(|at| (at / 8 % 5) as u8).collect();
        let reference = of(&whole);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&flipped), reference, "bit {bit}");
            // The same bit one row further: it cancels in a sum of lanes.
            flipped[(bit / 8 + 32) % 2048] ^= 1 << (bit % 8);
            assert_ne!(of(&flipped), reference, "bit {bit} and the one a row on");
        }
        for word in 0..whole.len() / 8 - 1 {
            let mut swapped = whole.clone();
            swapped[word * 8..(word + 2) * 8].rotate_left(8);
            assert_eq!(of(&swapped) == reference, swapped == whole, "word {word}");
        }
        let mut torn = whole.clone();
        torn[512..1024].fill(0);
        assert_ne!(of(&torn), reference);
    }

    #[test]
    fn the_digest_depends_on_the_seed_but_not_on_the_division_into_parts() {
        let bytes = [3_u8; 256];
        assert_ne!(digest(7, [&bytes[..]]), digest(8, [&bytes[..]]));
        assert_eq!(digest(7, [&bytes[..64], &bytes[64..]]), of(&bytes));
    }
}
