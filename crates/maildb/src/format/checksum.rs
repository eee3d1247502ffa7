//! Checksums of headers and pages.
//!
//! There are two kinds. Headers (of databases, logs, the checkpoint) carry the *old* checksum: an XOR of
//! words. Pages carry the *new* one, here "XE": a 32-bit XOR seeded with the page number, and 32 bits of an
//! error-correcting code that locates a single flipped bit. A small page is one block; a large page is four,
//! each with its own XE, and the first block's covers the other three.
//!
//! Both are linear: some changes of four bits or more cancel. A page that passes has almost certainly not
//! decayed; it may still be a mixture of two similar pages.

use super::page_size::{PageNumber, PageSize};

/// Seed of the old checksum.
const OLD_SEED: u32 = 0x89AB_CDEF;
/// Offset of the checksums of blocks 1 to 3 of a large page.
const LATER_BLOCKS_OFFSET: usize = 40;
/// Offset of a large page's own number.
const PAGE_NUMBER_OFFSET: usize = 64;
/// The flag bit for the new checksum, 0x2000 of the flags at byte 36. It is never corrected: a page without
/// it has the old checksum.
const FORMAT_FLAG_BIT: usize = 9 * 32 + 13;
/// Checksums of a large page.
const LARGE_BLOCKS: usize = 4;

/// Result of checking a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCheck {
    /// All checksums are right, for the page number asked for.
    Good,
    /// All zero: never written.
    Uninitialised,
    /// The checksums match another page number: a misdirected write or read.
    WrongPageNumber {
        /// Page number stored in the page.
        stored: PageNumber,
    },
    /// The checksum of a block is wrong.
    Bad {
        /// Block index; always 0 on small pages.
        block: usize,
        /// The checksum stored in the page.
        stored: u64,
        /// The checksum computed from the block's bytes.
        computed: u64,
        /// The single bit (8 * byte + bit, bit 0 lowest) whose flip would make the block good.
        correctable_bit: Option<usize>,
    },
}

impl PageCheck {
    /// The result in words, for error messages.
    pub fn describe(self) -> String {
        match self {
            Self::Good => "nothing is wrong".to_owned(),
            Self::Uninitialised => "it was never written".to_owned(),
            Self::WrongPageNumber { stored } => {
                format!("it is page {stored}, written to or read from the wrong place")
            }
            Self::Bad { block, stored, computed, correctable_bit } => {
                let bit = correctable_bit
                    .map(|bit| format!("; bit {} of byte {} is flipped", bit % 8, bit / 8))
                    .unwrap_or_default();
                format!("checksum {stored:016x} of block {block} should be {computed:016x}{bit}")
            }
        }
    }
}

/// The old checksum: a seeded XOR of all 32-bit words except the first, which stores it. The length of
/// `bytes` must be a multiple of four.
pub fn old_xor(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty() && !words.is_empty(), "{} bytes are not words", bytes.len());
    words[1..].iter().fold(OLD_SEED, |xor, word| xor ^ u32::from_le_bytes(*word))
}

/// The new checksum of one block: the error-correcting code in the upper half, the XOR in the lower.
///
/// `bytes` is 1, 2, 4 or 8 KiB. The first eight bytes of a header block store the checksum and count as zero.
pub fn xe(bytes: &[u8], page_number: PageNumber, is_header_block: bool) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && bytes.len().is_power_of_two() && (1024..=8192).contains(&bytes.len()));
    let first = if is_header_block { 0 } else { u64::from_le_bytes(words[0]) };
    let (xor, mut row) = xor_and_odd_rows(words);
    // The first word is row 0 and adds nothing to the rows; only the XOR must skip it.
    let xor = xor ^ u64::from_le_bytes(words[0]) ^ first;

    row <<= 6;
    for (bit, mask) in COLUMN_MASKS.into_iter().enumerate() {
        row |= ((xor & mask).count_ones() % 2) << bit;
    }
    let odd_bits = xor.count_ones() % 2 == 1;
    let high = if odd_bits { row ^ (8 * bytes.len() as u32 - 1) } else { row };
    let ecc = high << 16 | row;
    let xor = (xor >> 32) as u32 ^ xor as u32 ^ page_number.0;
    u64::from(ecc) << 32 | u64::from(xor)
}

/// For each i, the bits of a 64-bit word whose position has bit i set.
const COLUMN_MASKS: [u64; 6] = [
    0xAAAA_AAAA_AAAA_AAAA,
    0xCCCC_CCCC_CCCC_CCCC,
    0xF0F0_F0F0_F0F0_F0F0,
    0xFF00_FF00_FF00_FF00,
    0xFFFF_0000_FFFF_0000,
    0xFFFF_FFFF_0000_0000,
];

/// The XOR of all words, and the XOR of the indices of those with an odd number of bits.
///
/// The second is a parity per bit of the index: bit b is the parity of all words whose index has bit b. So
/// words of 64 groups are XORed lane by lane, which the compiler vectorises, and parities are computed only
/// of the sums: of the 64 lanes for the low six bits, of the groups for the high ones.
fn xor_and_odd_rows(words: &[[u8; 8]]) -> (u64, u32) {
    let (groups, rest) = words.as_chunks::<LANES>();
    assert!(rest.is_empty());
    let mut lanes = [0; LANES];
    let mut high = 0;
    for (index, group) in groups.iter().enumerate() {
        let mut all = [0; 4];
        for (lane, word) in group.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            lanes[lane] ^= word;
            all[lane % 4] ^= word;
        }
        let all = all.into_iter().fold(0, |xor, word| xor ^ word);
        high ^= if all.count_ones() % 2 == 1 { index as u32 } else { 0 };
    }
    let (mut xor, mut low) = (0, 0);
    for (lane, word) in lanes.into_iter().enumerate() {
        xor ^= word;
        low ^= if word.count_ones() % 2 == 1 { lane as u32 } else { 0 };
    }
    (xor, (high * LANES as u32) | low)
}

/// Words summed in parallel.
const LANES: usize = 32;

/// Bytes of one checksummed block.
const fn block_bytes(size: PageSize) -> usize {
    if size.is_small() { size.bytes() } else { size.bytes() / LARGE_BLOCKS }
}

/// Offset of a block's checksum in the page.
const fn checksum_offset(block: usize) -> usize {
    if block == 0 { 0 } else { LATER_BLOCKS_OFFSET + 8 * (block - 1) }
}

/// Stores the checksums of `page` for page number `number`. Panics if a large page carries another number.
pub fn seal_page(page: &mut [u8], page_size: PageSize, number: PageNumber) {
    assert_eq!(page.len(), page_size.bytes());
    assert!(page_size.is_small() || stored_number(page) == number, "sealing page {number} as another");
    let block_bytes = block_bytes(page_size);
    // The first block covers the checksums of the others, so it comes last.
    for block in (0..page.len() / block_bytes).rev() {
        let checksum = xe(&page[block * block_bytes..][..block_bytes], number, block == 0);
        page[checksum_offset(block)..][..8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Checks a page that was sealed as page `number`.
pub fn check_page(page: &[u8], page_size: PageSize, number: PageNumber) -> PageCheck {
    assert_eq!(page.len(), page_size.bytes());
    let block_bytes = block_bytes(page_size);
    let mut bad = None;
    // All blocks of a page sealed under one other number leave the same difference in their XOR.
    let mut number_error = None;
    let mut only_the_number = true;
    for block in 0..page.len() / block_bytes {
        let stored = u64_at(page, checksum_offset(block));
        let computed = xe(&page[block * block_bytes..][..block_bytes], number, block == 0);
        let difference = stored ^ computed;
        only_the_number &= difference >> 32 == 0 && *number_error.get_or_insert(difference) == difference;
        if difference != 0 && bad.is_none() {
            let correctable_bit = flipped_bit(stored, computed, block_bytes)
                .map(|bit| block * block_bytes * 8 + bit)
                .filter(|&bit| bit != FORMAT_FLAG_BIT);
            bad = Some(PageCheck::Bad { block, stored, computed, correctable_bit });
        }
    }
    let Some(bad) = bad else {
        // A page sealed under a wrong number has good checksums, but carries another number inside.
        return if page_size.is_small() || stored_number(page) == number {
            PageCheck::Good
        } else {
            PageCheck::WrongPageNumber { stored: stored_number(page) }
        };
    };
    if page.iter().all(|&byte| byte == 0) {
        return PageCheck::Uninitialised;
    }
    let stored = PageNumber(number.0 ^ number_error.unwrap_or(0) as u32);
    if only_the_number && (page_size.is_small() || stored_number(page) == stored) {
        return PageCheck::WrongPageNumber { stored };
    }
    bad
}

/// The bit of a block of `block_bytes` that was flipped; `None` unless it was exactly one.
pub fn flipped_bit(stored: u64, computed: u64, block_bytes: usize) -> Option<usize> {
    let difference = stored ^ computed;
    let (xor, ecc) = (difference as u32, (difference >> 32) as u32);
    let positions = 8 * block_bytes as u32 - 1;
    let bit = (ecc & 0xFFFF) as usize;
    let one_bit = (ecc >> 16 ^ ecc) & positions == positions && xor.count_ones() == 1;
    (one_bit && bit < 8 * block_bytes).then_some(bit)
}

fn stored_number(page: &[u8]) -> PageNumber {
    let bytes = page[PAGE_NUMBER_OFFSET..].first_chunk().expect("a large page");
    PageNumber(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the page"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Linear congruential bytes, as used for the published test vectors.
    fn vector_bytes(len: usize) -> Vec<u8> {
        let mut x = 1_u32;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    const VECTOR_PAGE: PageNumber = PageNumber(1234);

    /// A page of test-vector bytes with the flags and, if large, the number that it needs.
    fn vector_page(size: PageSize) -> Vec<u8> {
        let mut page = vector_bytes(size.bytes());
        page[36..40].copy_from_slice(&0x2802_u32.to_le_bytes());
        if !size.is_small() {
            page[64..68].copy_from_slice(&VECTOR_PAGE.0.to_le_bytes());
        }
        page
    }

    #[test]
    fn blocks_have_the_published_checksums() {
        let published = [
            (2048, 0x10c8_e5f4, 0x05d3_3a2c_17a5_72c5, 0x05f4_3a0b_2de2_72f5),
            (4096, 0x0809_45a2, 0x5499_5499_0f64_d293, 0x54be_54be_3523_d2a3),
            (8192, 0x0401_9c04, 0x2c04_2c04_036c_0b35, 0x2c23_2c23_392b_0b05),
        ];
        for (len, old, header, plain) in published {
            let bytes = vector_bytes(len);
            assert_eq!(old_xor(&bytes), old, "old, {len}");
            assert_eq!(xe(&bytes, VECTOR_PAGE, true), header, "header block, {len}");
            assert_eq!(xe(&bytes, VECTOR_PAGE, false), plain, "plain block, {len}");
        }
    }

    #[test]
    fn sealed_pages_have_the_published_checksums() {
        let published: [(PageSize, &[u64]); 4] = [
            (PageSize::Kib4, &[0x549b_549b_b984_04e6]),
            (PageSize::Kib8, &[0x2c06_2c06_b58c_dd40]),
            (
                PageSize::Kib16,
                &[0x2a19_55e6_170a_ce10, 0x789d_789d_0c08_dd74, 0x281b_57e4_09a0_d0e5, 0x631d_1ce2_531b_4976],
            ),
            (
                PageSize::Kib32,
                &[0xd28d_2d72_6a2f_4684, 0xcb06_cb06_5abb_9d41, 0x898c_898c_6d43_e3fa, 0x3498_3498_55ef_2ee7],
            ),
        ];
        for (size, checksums) in published {
            let mut page = vector_page(size);
            seal_page(&mut page, size, VECTOR_PAGE);
            for (block, &checksum) in checksums.iter().enumerate() {
                assert_eq!(u64_at(&page, checksum_offset(block)), checksum, "{size:?} block {block}");
            }
            assert_eq!(check_page(&page, size, VECTOR_PAGE), PageCheck::Good);
        }
    }

    /// The checksum bit by bit, straight from its definition.
    fn xe_by_definition(bytes: &[u8], number: u32, is_header_block: bool) -> u64 {
        let mut bytes = bytes.to_vec();
        if is_header_block {
            bytes[..8].fill(0);
        }
        let ones = (0..8 * bytes.len()).filter(|i| bytes[i / 8] >> (i % 8) & 1 == 1);
        let (low, count) = ones.fold((0, 0), |(low, count), i| (low ^ i as u32, count + 1));
        let high = if count % 2 == 0 { low } else { low ^ (8 * bytes.len() as u32 - 1) };
        let words = bytes.as_chunks::<4>().0.iter();
        let xor = words.fold(number, |xor, word| xor ^ u32::from_le_bytes(*word));
        u64::from(high << 16 | low) << 32 | u64::from(xor)
    }

    fn sealed_page() -> impl Strategy<Value = (PageSize, PageNumber, Vec<u8>)> {
        (prop::sample::select(PageSize::ALL.to_vec()), 1..u32::MAX, any::<u64>()).prop_map(
            |(size, number, seed)| {
                let mut page = vector_bytes(size.bytes());
                page.iter_mut().zip(seed.to_le_bytes().into_iter().cycle()).for_each(|(byte, s)| *byte ^= s);
                page[36..40].copy_from_slice(&0x2802_u32.to_le_bytes());
                page[64..68].copy_from_slice(&number.to_le_bytes());
                seal_page(&mut page, size, PageNumber(number));
                (size, PageNumber(number), page)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_form_follows_the_definition(
            number: u32, is_header_block: bool, log in 10..=13_u32,
            bytes in prop::collection::vec(any::<u8>(), 8192),
        ) {
            let bytes = &bytes[..1 << log];
            prop_assert_eq!(
                xe(bytes, PageNumber(number), is_header_block),
                xe_by_definition(bytes, number, is_header_block)
            );
        }

        #[test]
        fn any_flipped_bit_of_data_is_found_and_located((size, number, page) in sealed_page(), place: prop::sample::Index) {
            let mut damaged = page.clone();
            let bit = place.index(8 * page.len());
            damaged[bit / 8] ^= 1 << (bit % 8);
            let check = check_page(&damaged, size, number);
            let in_checksum = bit < 64 || (!size.is_small() && (8 * 40..8 * 64).contains(&bit));
            let found_bit = match check {
                PageCheck::Bad { correctable_bit, .. } => correctable_bit,
                // A flipped bit in the XOR half of a small page's checksum looks like another page number.
                PageCheck::WrongPageNumber { .. } if bit < 32 && size.is_small() => None,
                other => panic!("{other:?}"),
            };
            if !in_checksum && bit != FORMAT_FLAG_BIT {
                prop_assert_eq!(found_bit, Some(bit));
            }
        }

        #[test]
        fn a_misdirected_page_is_detected((size, number, page) in sealed_page(), other in 1..u32::MAX) {
            prop_assume!(other != number.0);
            prop_assert_eq!(
                check_page(&page, size, PageNumber(other)),
                PageCheck::WrongPageNumber { stored: number }
            );
        }
    }

    #[test]
    fn a_page_of_zeros_was_never_written() {
        for size in PageSize::ALL {
            let mut page = vec![0; size.bytes()];
            assert_eq!(check_page(&page, size, PageNumber(77)), PageCheck::Uninitialised);
            page[size.bytes() - 1] = 1;
            assert!(matches!(check_page(&page, size, PageNumber(77)), PageCheck::Bad { .. }));
        }
    }

    /// Run with `cargo test --release -p maildb -- --ignored --nocapture checksum_speed`.
    #[test]
    #[ignore = "a measurement"]
    #[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a measurement of real time")]
    fn checksum_speed() {
        for size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
            let mut page = vector_page(size);
            let rounds = (1 << 31) / size.bytes();
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                seal_page(std::hint::black_box(&mut page), size, VECTOR_PAGE);
            }
            let seconds = start.elapsed().as_secs_f64();
            println!("{size:?}: {:.1} GB/s", (rounds * size.bytes()) as f64 / seconds / 1e9);
        }
    }
}
