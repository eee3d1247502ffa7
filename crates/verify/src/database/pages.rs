//! The pages of a database, each verified by its own checksum.
//!
//! A page of zeros was never written: it is counted and is no damage. A page that the database does not own
//! is slack, left behind the end by a copy or a filesystem, and never damage. The last page of a file may be
//! the trailer of a streaming backup.

use super::{
    DatabaseFacts, OwnedPages,
    check::{PageStatus, check, is_trailer},
};
use crate::finding::{BitFix, FileFinding, FileLocation, FilePart};
use maildb::{PageNumber, PageSize};
use world::{ByteCount, ByteOffset};

/// Counts of checked pages. Tallies of parts add up to the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTally {
    /// Pages that verify, by checksum form in the order of [`super::ChecksumForm`].
    pub good: [u64; 3],
    /// Pages of zeros.
    pub blank: u64,
    /// Pages that fail and that the database does not own.
    pub slack: u64,
    /// Trailers of streaming backups that verify: at most one per file.
    pub trailers: u64,
    /// Pages of a temporary database, which have no checksum.
    pub unchecked: u64,
    /// Damaged pages of a database in use that its recovery restores.
    pub torn: u64,
    pub damaged: u64,
    /// Damaged pages with a single flipped bit.
    pub correctable: u64,
    pub findings: Vec<FileFinding>,
}

impl PageTally {
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

    /// The number of pages of all kinds.
    pub fn pages(&self) -> u64 {
        let others = [self.blank, self.slack, self.trailers, self.unchecked, self.torn, self.damaged];
        self.good.iter().chain(&others).sum()
    }
}

/// The page checker of one database.
#[derive(Clone, Debug)]
pub struct PageChecker {
    page_size: PageSize,
    owned: OwnedPages,
    is_temporary: bool,
    /// The last whole page of the file, which may be a trailer.
    last: PageNumber,
}

impl PageChecker {
    pub fn new(facts: &DatabaseFacts, owned: OwnedPages, file_length: ByteCount) -> Self {
        let pages = (file_length.0 / facts.page_size.bytes() as u64).saturating_sub(2);
        let last = PageNumber(u32::try_from(pages).unwrap_or(u32::MAX));
        Self { page_size: facts.page_size, owned, is_temporary: facts.is_temporary, last }
    }

    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Number of the last page in the file, equal to the number of pages behind its headers.
    pub fn last(&self) -> PageNumber {
        self.last
    }

    /// Checks the pages of `chunk`, which starts with page `first`. A partial page at the end is ignored.
    pub fn judge_chunk(&self, first: PageNumber, chunk: &[u8]) -> PageTally {
        let mut tally = PageTally::default();
        for (index, bytes) in chunk.chunks_exact(self.page_size.bytes()).enumerate() {
            let Some(number) = u32::try_from(index).ok().and_then(|index| first.0.checked_add(index)) else {
                break;
            };
            self.judge(PageNumber(number), bytes, &mut tally);
        }
        tally
    }

    fn judge(&self, page: PageNumber, bytes: &[u8], tally: &mut PageTally) {
        if self.is_temporary {
            tally.unchecked += 1;
            return;
        }
        match check(bytes, self.page_size, page) {
            PageStatus::Good(form) => tally.good[form as usize] += 1,
            PageStatus::Blank => tally.blank += 1,
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

    fn describe(&self, page: PageNumber, wrong: PageStatus) -> FileFinding {
        let at = ByteOffset(page.file_offset(self.page_size));
        let bit_fix = |bit: usize| BitFix { byte: at + ByteCount(bit as u64 / 8), bit: (bit % 8) as u8 };
        let (what, bit) = describe(wrong, self.last);
        FileFinding::damage(FileLocation::new(FilePart::Page(page), at), what).with_fix(bit.map(bit_fix))
    }
}

/// Describes a failed page of a file that ends with page `last`, with the wrong bit.
pub(crate) fn describe(wrong: PageStatus, last: PageNumber) -> (String, Option<usize>) {
    match wrong {
        PageStatus::Good(_) => ("nothing is wrong".to_owned(), None),
        PageStatus::Blank => ("it is all zero: never written, or lost".to_owned(), None),
        // No such page exists, so the checksum itself is wrong, in this bit.
        PageStatus::WrongPlace { stored, or_bit: Some(bit) } if stored > last || stored.0 == 0 => {
            ("its checksum has one flipped bit".to_owned(), Some(bit))
        }
        PageStatus::WrongPlace { stored, or_bit } => {
            let or = or_bit.map(|bit| format!("; or bit {} of byte {} of it is flipped", bit % 8, bit / 8));
            let what = format!("it is page {stored}, written to or read from the wrong place");
            (what + &or.unwrap_or_default(), None)
        }
        PageStatus::Bad { block, stored, computed, fix } => {
            let whose = if block == 0 { String::new() } else { format!(" of part {block}") };
            (format!("checksum {stored:x}{whose} should be {computed:x}"), fix)
        }
    }
}
