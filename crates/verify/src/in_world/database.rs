//! The headers and all pages of a database, and the page stamps beside it.

use super::{blank::BlankPages, chunks::Chunks, pages::CachedPages};
use crate::{
    database::{DatabaseFacts, OwnedPages, PageChecker, judge_headers},
    fields::is_blank,
    finding::{FileFinding, FilePart},
    kind::START_BYTES,
    running::stamps::hold_against,
};
use maildb::{
    Error, PageNumber, PageSize, Result,
    format::header::{DatabaseHeader, DatabaseState, HeaderCopies},
    verify::{StampsVerdict, stamps::StampsBeside},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{Buffer, ByteCount, ByteOffset, Directory, File};

/// A damaged page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDamage {
    pub page: PageNumber,
    /// The damage, in words that follow the page's number.
    pub problem: String,
}

impl PageDamage {
    /// The damage in a finding; `None` if it is not of a page. Bits are counted within the page.
    fn of(finding: FileFinding) -> Option<Self> {
        let FilePart::Page(page) = finding.place.part else { return None };
        let problem = match finding.fix {
            Some(fix) => {
                let byte = fix.byte.0 - finding.place.offset.0;
                format!("{}; bit {} of byte {byte} is flipped", finding.what, fix.bit)
            }
            None => finding.what,
        };
        Some(Self { page, problem })
    }
}

/// Result of checking a database.
#[derive(Clone, Debug)]
pub struct DatabaseReport {
    pub page_size: PageSize,
    /// The header used.
    pub header: DatabaseHeader,
    /// Number of header copies that verify: 1 is a warning.
    pub header_copies_good: u8,
    /// Pages whose checksum is right.
    pub pages_good: u32,
    /// Blank pages that may be blank: free, or behind the database's end; after an unclean shutdown any, because
    /// the log may hold their contents.
    pub pages_empty: u32,
    /// Result of the comparison with page stamps.
    pub stamps: StampsVerdict,
    /// Damaged pages, ascending.
    pub damaged: Vec<PageDamage>,
    /// Bytes read.
    pub bytes: ByteCount,
}

impl DatabaseReport {
    /// True if blank pages in use were reported as damage: only after a clean shutdown every page in use has been
    /// written.
    pub fn blank_are_judged(&self) -> bool {
        self.header.state == DatabaseState::CleanShutdown
    }

    /// True if nothing at all is damaged.
    pub fn is_clean(&self) -> bool {
        let are_stamps_usable = !matches!(self.stamps, StampsVerdict::Unusable(_));
        self.damaged.is_empty() && self.header_copies_good == 2 && are_stamps_usable
    }
}

/// The headers of a database that has at least one good copy.
pub struct Headers {
    pub header: DatabaseHeader,
    pub good_count: u8,
    pub facts: DatabaseFacts,
}

/// Reads both headers; an error if neither verifies.
pub async fn read_headers(file: &Rc<dyn File>, name: &str) -> Result<Headers> {
    let damaged = |problem: String| Error::DatabaseDamaged { database: name.to_owned(), problem };
    let size = file.geometry().size;
    let length = (START_BYTES as u64).min(size.0 - size.0 % 4096) as usize;
    if length == 0 {
        return Err(damaged("the file is too short to be a database".to_owned()));
    }
    let start = file.read(ByteOffset(0), vec![Buffer::zeroed(length)]).await?;
    let copies = HeaderCopies::decode(&start[0]);
    let header = copies.best().map_err(|error| damaged(error.to_string()))?.clone();
    let facts = judge_headers(&start[0], size).facts;
    let facts = facts.ok_or_else(|| damaged("its header cannot be used".to_owned()))?;
    Ok(Headers { header, good_count: copies.good_count(), facts })
}

/// Checks the headers and every page of `file`; `on_progress` gets bytes done and bytes in total.
pub async fn verify_database(
    file: Rc<dyn File>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseReport> {
    let headers = read_headers(&file, name).await?;
    verify_pages(file, headers, None, on_progress).await
}

/// Like [`verify_database`], and compares pages with the stamps beside the database `name`.
pub async fn verify_database_with_stamps(
    directory: &Rc<dyn Directory>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseReport> {
    let file = directory.open(name).await?;
    let headers = read_headers(&file, name).await?;
    let pages_max = (file.geometry().size.0 / headers.facts.page_size.bytes() as u64).saturating_sub(2);
    let pages_max = u32::try_from(pages_max).unwrap_or(u32::MAX);
    let (beside, stamps) = StampsBeside::read(directory, name, &headers.header, pages_max).await?;
    let report = verify_pages(file, headers, beside.as_ref(), on_progress).await?;
    Ok(DatabaseReport { stamps, ..report })
}

async fn verify_pages(
    file: Rc<dyn File>,
    Headers { header, good_count, facts }: Headers,
    stamps: Option<&StampsBeside>,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseReport> {
    let page_bytes = facts.page_size.bytes() as u64;
    let size = file.geometry().size;
    // A page behind the end of the database is blank, or it is damage: the file is the engine's own.
    let owned = OwnedPages::Unknown("all pages are judged".to_owned());
    let pages = PageChecker::new(&facts, owned, size);
    let mut report = DatabaseReport {
        page_size: facts.page_size,
        header,
        header_copies_good: good_count,
        pages_good: 0,
        pages_empty: 0,
        stamps: StampsVerdict::NotKept,
        damaged: Vec::new(),
        bytes: ByteCount(2 * page_bytes),
    };
    let mut blank = BlankPages::default();
    let mut chunks = Chunks::new(Rc::clone(&file), 2 * page_bytes, size.0 - size.0 % page_bytes);
    while let Some((at, chunk)) = chunks.next().await? {
        judge_chunk(
            &pages,
            stamps,
            PageNumber((at / page_bytes - 1) as u32),
            &chunk,
            &mut report,
            &mut blank,
        );
        report.bytes = ByteCount(at + chunk.len() as u64);
        on_progress(report.bytes, size);
        chunks.reuse(chunk);
    }
    report.pages_empty = blank.count();
    if report.blank_are_judged() {
        let mut pages = CachedPages::new(file, facts.page_size);
        for damage in blank.damaged(&mut pages, &facts).await? {
            report.pages_empty -= u32::from(blank.contains(damage.page));
            report.damaged.push(damage);
        }
    }
    merge_by_page(&mut report.damaged);
    Ok(report)
}

/// Judges the pages of `chunk`, of which the first is `first`.
fn judge_chunk(
    pages: &PageChecker,
    stamps: Option<&StampsBeside>,
    first: PageNumber,
    chunk: &[u8],
    report: &mut DatabaseReport,
    blank: &mut BlankPages,
) {
    let page_bytes = report.page_size.bytes();
    let mut tally = pages.judge_chunk(first, chunk);
    if let Some(stamps) = stamps {
        hold_against(stamps, first, page_bytes, chunk, &mut tally);
    }
    report.pages_good += tally.good.iter().sum::<u64>() as u32;
    let damaged: Vec<PageDamage> = tally.findings.into_iter().filter_map(PageDamage::of).collect();
    if tally.blank > 0 {
        let damaged: BTreeSet<PageNumber> = damaged.iter().map(|damage| damage.page).collect();
        for (number, bytes) in (first.0..).map(PageNumber).zip(chunk.chunks_exact(page_bytes)) {
            if is_blank(bytes) && !damaged.contains(&number) {
                blank.note(number);
            }
        }
    }
    report.damaged.extend(damaged);
}

/// Sorts damage by page, and joins what was found of one page: the cause first.
fn merge_by_page(damaged: &mut Vec<PageDamage>) {
    damaged.sort_by_key(|damage| damage.page);
    damaged.dedup_by(|consequence, damage| {
        let is_one = consequence.page == damage.page;
        if is_one {
            damage.problem += &format!("; {}", consequence.problem);
        }
        is_one
    });
}
