//! A 64-bit hash that detects what the format's checksums miss.
//!
//! ESE's segment checksum is linear: a sector of equal bytes that never reached the disk XORs to nothing, so
//! a torn segment can pass. The stamp is not linear and is seeded with the segment's position. It is stored
//! in bytes that are zero in ESE and that readers of the format ignore.

/// Odd, from the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hash of `parts`, each a multiple of 8 bytes, with `seed`. Never 0, which stands for "no stamp".
pub(super) fn stamp(seed: u64, parts: &[&[u8]]) -> u64 {
    let mut hash = mix(seed ^ 0x5350_494E_444C_4521);
    for part in parts {
        let (words, rest) = part.as_chunks::<8>();
        assert!(rest.is_empty(), "parts are multiples of a word");
        for &word in words {
            // Every step is a bijection of the hash: a change in one word always changes the result.
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
    }
    hash.max(1)
}

fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(MULTIPLIER);
    // Multiplication only carries upwards; this mixes the high half into the low one.
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flipped_bits_swapped_words_and_missing_bytes_change_the_stamp() {
        let whole = [0xAA_u8; 4096];
        let reference = stamp(7, &[&whole]);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(stamp(7, &[&flipped]), reference, "bit {bit}");
            flipped[(bit / 8 + 512) % 4096] ^= 1 << (bit % 8);
            assert_ne!(stamp(7, &[&flipped]), reference, "bit {bit} and the one a sector on");
        }
        let mut torn = whole;
        torn[1024..1536].fill(0);
        assert_ne!(stamp(7, &[&torn]), reference);
        assert_ne!(stamp(8, &[&whole]), reference);
    }
}
