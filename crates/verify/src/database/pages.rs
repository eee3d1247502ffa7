//! The pages of a database, each by its own checksum.
//!
//! A page that is all zero was never written: it is counted, and is no damage by itself. A page the database does
//! not own is slack: what a copy or a filesystem left behind the end, never damage. The last page of a file may be
//! the trailer of a streaming backup.

use super::{
    DatabaseFacts, Owned,
    check::{Check, check, is_trailer},
};
use crate::finding::{BitFix, Finding, Part, Place};
use maildb::{PageNumber, PageSize};
use world::{ByteCount, ByteOffset};

/// What came of some pages. Tallies of parts add up to that of the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages that verify, by the form of their checksum, in the order of [`super::Form`].
    pub good: [u64; 3],
    /// Pages all zero.
    pub blank: u64,
    /// Pages that do not verify and that the database does not own.
    pub slack: u64,
    /// Trailers of streaming backups, which verify: at most one a file.
    pub trailers: u64,
    /// Pages of a temporary database, which have no checksum.
    pub unchecked: u64,
    /// Pages of a database that was in use that do not verify, and that its recovery restores.
    pub torn: u64,
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
        self.trailers += other.trailers;
        self.unchecked += other.unchecked;
        self.torn += other.torn;
        self.damaged += other.damaged;
        self.correctable += other.correctable;
        self.findings.extend(other.findings);
    }

    /// Pages of every kind.
    pub fn pages(&self) -> u64 {
        let others = [self.blank, self.slack, self.trailers, self.unchecked, self.torn, self.damaged];
        self.good.iter().chain(&others).sum()
    }
}

/// The judge of a database's pages.
#[derive(Clone, Debug)]
pub struct Pages {
    page_size: PageSize,
    owned: Owned,
    is_temporary: bool,
    /// The last whole page of the file, which may be a trailer.
    last: PageNumber,
}

impl Pages {
    /// The judge for a file of that length.
    pub fn new(facts: &DatabaseFacts, owned: Owned, file_length: ByteCount) -> Self {
        let pages = (file_length.0 / facts.page_size.bytes() as u64).saturating_sub(2);
        let last = PageNumber(u32::try_from(pages).unwrap_or(u32::MAX));
        Self { page_size: facts.page_size, owned, is_temporary: facts.is_temporary, last }
    }

    /// Length of a page.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The last page the file has room for behind its headers, which is how many there are.
    pub fn last(&self) -> PageNumber {
        self.last
    }

    /// Judges the pages of `chunk`, of which the first is `first`. What is no whole page is not looked at.
    pub fn judge_chunk(&self, first: PageNumber, chunk: &[u8]) -> Tally {
        let mut tally = Tally::default();
        for (index, bytes) in chunk.chunks_exact(self.page_size.bytes()).enumerate() {
            let Some(number) = u32::try_from(index).ok().and_then(|index| first.0.checked_add(index)) else {
                break;
            };
            self.judge(PageNumber(number), bytes, &mut tally);
        }
        tally
    }

    fn judge(&self, page: PageNumber, bytes: &[u8], tally: &mut Tally) {
        if self.is_temporary {
            tally.unchecked += 1;
            return;
        }
        match check(bytes, self.page_size, page) {
            Check::Good(form) => tally.good[form as usize] += 1,
            Check::Blank => tally.blank += 1,
            _ if page == self.last && is_trailer(bytes) => tally.trailers += 1,
            _ if !self.owned.contains(page) => tally.slack += 1,
            wrong => {
                let finding = self.describe(page, wrong);
                tally.damaged += 1;
                tally.correctable += u64::from(finding.fix.is_some());
                tally.findings.push(finding);
            }
        }
    }

    fn describe(&self, page: PageNumber, wrong: Check) -> Finding {
        let at = ByteOffset(page.file_offset(self.page_size));
        let bit_fix = |bit: usize| BitFix { byte: at + ByteCount(bit as u64 / 8), bit: (bit % 8) as u8 };
        let (what, bit) = describe(wrong, self.last);
        Finding::damage(Place::new(Part::Page(page), at), what).with_fix(bit.map(bit_fix))
    }
}

/// What is wrong with a page of a file that ends with page `last`, in words, and the bit of it that is flipped.
pub(crate) fn describe(wrong: Check, last: PageNumber) -> (String, Option<usize>) {
    match wrong {
        Check::Good(_) => ("nothing is wrong".to_owned(), None),
        Check::Blank => ("it is all zero: never written, or lost".to_owned(), None),
        // No such page: then it is the checksum that is wrong, by this one bit.
        Check::WrongPlace { stored, or_bit: Some(bit) } if stored > last || stored.0 == 0 => {
            ("its checksum has one flipped bit".to_owned(), Some(bit))
        }
        Check::WrongPlace { stored, or_bit } => {
            let or = or_bit.map(|bit| format!("; or bit {} of byte {} of it is flipped", bit % 8, bit / 8));
            let what = format!("it is page {stored}, written to or read from the wrong place");
            (what + &or.unwrap_or_default(), None)
        }
        Check::Bad { block, stored, computed, fix } => {
            let whose = if block == 0 { String::new() } else { format!(" of part {block}") };
            (format!("checksum {stored:x}{whose} should be {computed:x}"), fix)
        }
    }
}
