//! One page against its own checksum, in whichever form it has.
//!
//! The flags of a page say which: with the new checksum (flag 0x2000), XOR and error-correcting code, over all of
//! it or over each quarter; without, an XOR of words and the page's number. The code locates one flipped bit, of
//! the data or of the checksum itself; a correction is told only if the page verifies with it.

use crate::fields::{is_blank, u32_at, u64_at};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{PageCheck, check_page, flipped_bit, old_xor, xe},
};

/// The forms of checksum that pages can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// An XOR of words, and the page's number: Exchange 2003 and before.
    Xor,
    /// XOR and error-correcting code over the whole page: pages up to 8 KiB.
    Ecc,
    /// The same over each quarter of a page: 16 and 32 KiB.
    FourPart,
}

/// How a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It verifies.
    Good(Form),
    /// All zero.
    Blank,
    /// It verifies as another page.
    WrongPlace {
        /// The page it says it is.
        stored: PageNumber,
        /// The bit of the page that would be flipped if it is in its place after all: on pages up to 8 KiB the
        /// number is in the checksum alone, and one flipped bit there looks like another number.
        or_bit: Option<usize>,
    },
    /// It does not verify.
    Bad {
        /// Which part of it; pages up to 8 KiB have one.
        block: usize,
        /// The checksum that is there.
        stored: u64,
        /// The checksum of what is there.
        computed: u64,
        /// The bit of the page that, flipped, makes it verify: 8 × byte + bit.
        fix: Option<usize>,
    },
}

/// Where the flags of a page lie.
const FLAGS_AT: usize = 36;
/// The flag of the new checksum.
pub(crate) const NEW_CHECKSUM: u32 = 0x2000;
/// The bit of a page with that flag.
const NEW_CHECKSUM_BIT: usize = 8 * FLAGS_AT + 13;

/// Checks a page, a slice of that size, as page `page`.
pub fn check(bytes: &[u8], size: PageSize, page: PageNumber) -> Check {
    let has_new_checksum = u32_at(bytes, FLAGS_AT) & NEW_CHECKSUM != 0;
    match (has_new_checksum, size.is_small()) {
        (true, _) => check_new(bytes, size, page),
        (false, true) => check_old(bytes, size, page),
        // Large pages never had another checksum.
        (false, false) if is_blank(bytes) => Check::Blank,
        (false, false) => without_flag(bytes, size, page),
    }
}

/// Whether the page is the trailer that a streaming backup puts behind the last: a header in form.
pub fn is_trailer(bytes: &[u8]) -> bool {
    let is_header = u32_at(bytes, 4) == 0 && u64_at(bytes, 8) == 0 && u32_at(bytes, 24) == 0;
    is_header && !is_blank(bytes) && u32_at(bytes, 0) == old_xor(bytes)
}

fn check_new(bytes: &[u8], size: PageSize, page: PageNumber) -> Check {
    match check_page(bytes, size, page) {
        PageCheck::Good if size.is_small() => Check::Good(Form::Ecc),
        PageCheck::Good => Check::Good(Form::FourPart),
        PageCheck::Uninitialised => Check::Blank,
        PageCheck::WrongPageNumber { stored } => {
            let difference = stored.0 ^ page.0;
            let is_one_bit = size.is_small() && difference.is_power_of_two();
            let or_bit = is_one_bit.then_some(difference.trailing_zeros() as usize);
            Check::WrongPlace { stored, or_bit }
        }
        PageCheck::Bad { block, stored, computed, correctable_bit } => {
            let difference = stored ^ computed;
            // The checksums of later blocks lie in the first, whose own code locates a bit of theirs.
            let in_checksum = block == 0 && difference.is_power_of_two();
            let bit = correctable_bit.or(in_checksum.then_some(difference.trailing_zeros() as usize));
            let fix = bit.filter(|&bit| verifies_with(bytes, size, page, bit));
            Check::Bad { block, stored, computed, fix }
        }
    }
}

fn check_old(bytes: &[u8], size: PageSize, page: PageNumber) -> Check {
    let (stored, computed) = (u32_at(bytes, 0), old_xor(bytes));
    let number = PageNumber(u32_at(bytes, 4));
    match (stored == computed, number == page) {
        (true, true) => Check::Good(Form::Xor),
        (true, false) => Check::WrongPlace { stored: number, or_bit: None },
        (false, _) if is_blank(bytes) => Check::Blank,
        (false, _) => match without_flag(bytes, size, page) {
            Check::Bad { fix: Some(bit), stored, computed, .. } => {
                Check::Bad { block: 0, stored, computed, fix: Some(bit) }
            }
            _ => Check::Bad { block: 0, stored: stored.into(), computed: computed.into(), fix: None },
        },
    }
}

/// A page that does not verify without the flag of the new checksum: whether it has lost that, and only that.
fn without_flag(bytes: &[u8], size: PageSize, page: PageNumber) -> Check {
    let block = if size.is_small() { bytes } else { &bytes[..bytes.len() / 4] };
    let (stored, computed) = (u64_at(bytes, 0), xe(block, page, true));
    let fix = flipped_bit(stored, computed, block.len())
        .filter(|&bit| bit == NEW_CHECKSUM_BIT && verifies_with(bytes, size, page, bit));
    Check::Bad { block: 0, stored, computed, fix }
}

/// Whether the page verifies, with the new checksum, once that bit is flipped.
fn verifies_with(bytes: &[u8], size: PageSize, page: PageNumber, bit: usize) -> bool {
    let mut mended = bytes.to_vec();
    mended[bit / 8] ^= 1 << (bit % 8);
    u32_at(&mended, FLAGS_AT) & NEW_CHECKSUM != 0 && check_page(&mended, size, page) == PageCheck::Good
}
