//! Verifies one page against its own checksum, in either form.
//!
//! The page's flags tell the form: with the new checksum (flag 0x2000), XOR and an error-correcting code over
//! the whole page or over each quarter; without, an XOR of words and the page's number. The code locates one
//! flipped bit in the data or in the checksum; a correction is reported only if the page verifies with it.

use crate::fields::{is_blank, u32_at, u64_at};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{PageCheck, check_page, flipped_bit, old_xor, xe},
};

/// The checksum forms of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChecksumForm {
    /// XOR of words, and the page's number: Exchange 2003 and before.
    Xor,
    /// XOR and error-correcting code over the whole page: pages up to 8 KiB.
    Ecc,
    /// XOR and error-correcting code over each quarter of a page: 16 and 32 KiB.
    FourPart,
}

/// The result of checking a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    Good(ChecksumForm),
    Blank,
    /// The checksum matches another page number.
    WrongPlace {
        /// The page number stored in it.
        stored: PageNumber,
        /// The wrong bit, if the page is in its place after all: on pages up to 8 KiB the number is part of
        /// the checksum alone, so one flipped bit there looks like another number.
        or_bit: Option<usize>,
    },
    Bad {
        /// The block that fails; pages up to 8 KiB have one.
        block: usize,
        stored: u64,
        computed: u64,
        /// The bit whose flip makes the page verify: 8 × byte + bit.
        fix: Option<usize>,
    },
}

/// Offset of a page's flags.
const FLAGS_AT: usize = 36;
/// The flag of the new checksum.
pub(crate) const NEW_CHECKSUM: u32 = 0x2000;
/// The bit of a page with that flag.
const NEW_CHECKSUM_BIT: usize = 8 * FLAGS_AT + 13;

/// Checks a slice of one page as page number `page`.
pub fn check(bytes: &[u8], size: PageSize, page: PageNumber) -> PageStatus {
    let has_new_checksum = u32_at(bytes, FLAGS_AT) & NEW_CHECKSUM != 0;
    match (has_new_checksum, size.is_small()) {
        (true, _) => check_new(bytes, size, page),
        (false, true) => check_old(bytes, size, page),
        // Large pages always have the new checksum.
        (false, false) if is_blank(bytes) => PageStatus::Blank,
        (false, false) => without_flag(bytes, size, page),
    }
}

/// True for the trailer that a streaming backup appends behind the last page: it has the form of a header.
pub fn is_trailer(bytes: &[u8]) -> bool {
    let is_header = u32_at(bytes, 4) == 0 && u64_at(bytes, 8) == 0 && u32_at(bytes, 24) == 0;
    is_header && !is_blank(bytes) && u32_at(bytes, 0) == old_xor(bytes)
}

fn check_new(bytes: &[u8], size: PageSize, page: PageNumber) -> PageStatus {
    match check_page(bytes, size, page) {
        PageCheck::Good if size.is_small() => PageStatus::Good(ChecksumForm::Ecc),
        PageCheck::Good => PageStatus::Good(ChecksumForm::FourPart),
        PageCheck::Uninitialised => PageStatus::Blank,
        PageCheck::WrongPageNumber { stored } => {
            let difference = stored.0 ^ page.0;
            let is_one_bit = size.is_small() && difference.is_power_of_two();
            let or_bit = is_one_bit.then_some(difference.trailing_zeros() as usize);
            PageStatus::WrongPlace { stored, or_bit }
        }
        PageCheck::Bad { block, stored, computed, correctable_bit } => {
            let difference = stored ^ computed;
            // The first block holds the checksums of later blocks; its own code locates a bit in them.
            let in_checksum = block == 0 && difference.is_power_of_two();
            let bit = correctable_bit.or(in_checksum.then_some(difference.trailing_zeros() as usize));
            let fix = bit.filter(|&bit| verifies_with(bytes, size, page, bit));
            PageStatus::Bad { block, stored, computed, fix }
        }
    }
}

fn check_old(bytes: &[u8], size: PageSize, page: PageNumber) -> PageStatus {
    let (stored, computed) = (u32_at(bytes, 0), old_xor(bytes));
    let number = PageNumber(u32_at(bytes, 4));
    match (stored == computed, number == page) {
        (true, true) => PageStatus::Good(ChecksumForm::Xor),
        (true, false) => PageStatus::WrongPlace { stored: number, or_bit: None },
        (false, _) if is_blank(bytes) => PageStatus::Blank,
        (false, _) => match without_flag(bytes, size, page) {
            PageStatus::Bad { fix: Some(bit), stored, computed, .. } => {
                PageStatus::Bad { block: 0, stored, computed, fix: Some(bit) }
            }
            _ => PageStatus::Bad { block: 0, stored: stored.into(), computed: computed.into(), fix: None },
        },
    }
}

/// Checks a page that fails without the new-checksum flag: it may have lost that flag, and nothing else.
fn without_flag(bytes: &[u8], size: PageSize, page: PageNumber) -> PageStatus {
    let block = if size.is_small() { bytes } else { &bytes[..bytes.len() / 4] };
    let (stored, computed) = (u64_at(bytes, 0), xe(block, page, true));
    let fix = flipped_bit(stored, computed, block.len())
        .filter(|&bit| bit == NEW_CHECKSUM_BIT && verifies_with(bytes, size, page, bit));
    PageStatus::Bad { block: 0, stored, computed, fix }
}

/// True if the page verifies with the new checksum once that bit is flipped.
fn verifies_with(bytes: &[u8], size: PageSize, page: PageNumber, bit: usize) -> bool {
    let mut fixed = bytes.to_vec();
    fixed[bit / 8] ^= 1 << (bit % 8);
    u32_at(&fixed, FLAGS_AT) & NEW_CHECKSUM != 0 && check_page(&fixed, size, page) == PageCheck::Good
}
