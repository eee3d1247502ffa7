//! The pages of a database, each by its own checksum.

use super::{DatabaseFacts, Owned};
use crate::finding::{BitFix, Finding, Part, Place};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{PageCheck, check_page},
};
use world::{ByteCount, ByteOffset};

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

/// What came of some pages. Tallies of parts add up to that of the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages that verify, by the form of their checksum, in the order of [`Form`].
    pub good: [u64; 3],
    /// Pages all zero.
    pub blank: u64,
    /// Pages the database does not own, whatever is in them, that do not verify.
    pub slack: u64,
    /// Pages that are damaged.
    pub damaged: u64,
    /// Of those, how many have one flipped bit and nothing else.
    pub correctable: u64,
    /// What is wrong with each.
    pub findings: Vec<Finding>,
}

impl Tally {
    /// Adds the tally of other pages.
    pub fn add(&mut self, other: Self) {
        for (sum, more) in self.good.iter_mut().zip(other.good) {
            *sum += more;
        }
        self.blank += other.blank;
        self.slack += other.slack;
        self.damaged += other.damaged;
        self.correctable += other.correctable;
        self.findings.extend(other.findings);
    }

    /// Pages of every kind.
    pub fn pages(&self) -> u64 {
        self.good.iter().sum::<u64>() + self.blank + self.slack + self.damaged
    }
}

/// The judge of a database's pages.
#[derive(Clone, Debug)]
pub struct Pages {
    page_size: PageSize,
    owned: Owned,
    /// The last whole page of the file, which may be a trailer.
    last: PageNumber,
}

impl Pages {
    /// The judge for a file of that length.
    pub fn new(facts: &DatabaseFacts, owned: Owned, file_length: ByteCount) -> Self {
        let pages = (file_length.0 / facts.page_size.bytes() as u64).saturating_sub(2);
        let last = PageNumber(u32::try_from(pages).unwrap_or(u32::MAX));
        Self { page_size: facts.page_size, owned, last }
    }

    /// Length of a page.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// How many pages the file has room for behind its headers: the number of the last.
    pub fn last(&self) -> PageNumber {
        self.last
    }

    /// Judges the pages of `chunk`, of which the first is `first`. The chunk is whole pages.
    pub fn judge_chunk(&self, first: PageNumber, chunk: &[u8]) -> Tally {
        let mut tally = Tally::default();
        for (index, bytes) in chunk.chunks_exact(self.page_size.bytes()).enumerate() {
            let page = PageNumber(first.0.saturating_add(index as u32));
            self.judge(page, bytes, &mut tally);
        }
        tally
    }

    fn judge(&self, page: PageNumber, bytes: &[u8], tally: &mut Tally) {
        let form = if self.page_size.is_small() { Form::Ecc } else { Form::FourPart };
        let place = Place::new(Part::Page(page), ByteOffset(page.file_offset(self.page_size)));
        match check_page(bytes, self.page_size, page) {
            PageCheck::Good => tally.good[form as usize] += 1,
            PageCheck::Uninitialised => tally.blank += 1,
            _ if !self.owned.contains(page) => tally.slack += 1,
            PageCheck::WrongPageNumber { stored } => {
                tally.damaged += 1;
                let what = format!("it is page {stored}, written to or read from the wrong place");
                tally.findings.push(Finding::damage(place, what));
            }
            PageCheck::Bad { block, stored, computed, correctable_bit } => {
                tally.damaged += 1;
                let fix = correctable_bit.map(|bit| BitFix {
                    byte: place.offset + ByteCount(bit as u64 / 8),
                    bit: (bit % 8) as u8,
                });
                let what = format!("checksum {stored:016x} of block {block} should be {computed:016x}");
                tally.findings.push(Finding::damage(place, what).with_fix(fix));
            }
        }
    }
}
