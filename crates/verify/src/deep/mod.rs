//! Walks the trees of a database and finds faults that no checksum of a single page shows.
//!
//! 1. Every page reached verifies, is sound in itself, and stores its tree's number.
//! 2. Keys ascend within and across leaves, and lie between their parents' separators.
//! 3. Leaves are linked to their neighbours both ways, branches to none; all leaves have the same depth. The
//!    last separator of a branch equals its parent's, and is empty on the rightmost branch of a level.
//! 4. No page is used twice; every page of a tree lies in extents which that tree owns; every page the
//!    database owns is used, or free.
//!
//! Each fault is reported once: faults of a single page (a wrong checksum, an unreadable page) and of a
//! truncated file ([`OwnedPages::find`]) are reported by those checks and skipped here.
//!
//! It works on any database, ours or Exchange's, and needs one bit of memory per page. A database that was
//! not shut down cleanly may have a parent on disk before its child: there a fault in the trees is a warning,
//! because the log may repair it.

mod catalogue;
mod free;
mod space;
mod tree;

use crate::{
    database::{DatabaseFacts, OwnedPages, PageError, PageFault, PageSource, SourceError, owned_extents},
    finding::{FileFinding, FileLocation, FilePart, FindingSeverity},
};
pub(crate) use free::free_extents;

use catalogue::CatalogueTree;
use maildb::PageNumber;
use space::PageUseMap;
use std::{collections::BTreeSet, ops::ControlFlow};
use world::ByteOffset;

/// Findings kept; further ones are counted.
const FINDINGS_MAX: usize = 1000;
/// Pages between two progress calls.
const PROGRESS_PAGES: u64 = 256;

/// Progress of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkProgress {
    pub pages: u64,
    /// Pages the database owns; the free ones among them are never read.
    pub pages_in_all: u64,
}

/// A table of the catalogue, with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCount {
    pub name: String,
    /// Pages of its tree, its indexes and its long values, without those of space trees.
    pub pages: u64,
    pub rows: u64,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeVerdict {
    /// All faults, in the order found.
    pub findings: Vec<FileFinding>,
    /// Number of findings beyond those kept.
    pub findings_more: u64,
    /// The tables, in the order of the catalogue.
    pub tables: Vec<TableCount>,
    /// Trees walked: tables, indexes and long values.
    pub trees: u64,
    /// Pages in use, those of space trees included.
    pub pages_in_use: u64,
    pub pages_free: u64,
    /// Records of all trees.
    pub records: u64,
    pub levels_max: u32,
    /// Branch pages other than the rightmost of their level that end with an empty separator, as Spindle
    /// wrote them before 2026-11-24.
    pub separators_missing: u64,
    /// True if the walk was stopped before its end.
    pub is_stopped: bool,
}

/// Walks all trees of a database whose pages were checked one by one before. Faults are findings; it returns
/// an error only if the source was stopped before the walk could begin.
pub fn walk(
    source: &mut dyn PageSource,
    facts: &DatabaseFacts,
    on_progress: &mut dyn FnMut(WalkProgress) -> ControlFlow<()>,
) -> Result<TreeVerdict, SourceError> {
    let owned = owned_extents(source, facts)?;
    let pages_in_all = owned.pages().unwrap_or(0);
    let last = space::last_there(source, owned.last().unwrap_or(PageNumber(u32::MAX - 1)))?;
    let mut walk = Walk {
        source,
        facts,
        on_progress,
        verdict: TreeVerdict::default(),
        uses: PageUseMap::new(last),
        owned: &owned,
        faulty: BTreeSet::new(),
        walked: WalkProgress { pages: 0, pages_in_all },
    };
    walk.verdict.is_stopped = walk.run().is_err();
    Ok(walk.verdict)
}

struct Stopped;

struct Walk<'a> {
    source: &'a mut dyn PageSource,
    facts: &'a DatabaseFacts,
    on_progress: &'a mut dyn FnMut(WalkProgress) -> ControlFlow<()>,
    verdict: TreeVerdict,
    uses: PageUseMap,
    owned: &'a OwnedPages,
    /// Faulty pages met so far.
    faulty: BTreeSet<PageNumber>,
    walked: WalkProgress,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Stopped> {
        self.note_database_space()?;
        let catalogue = self.read_catalogue()?;
        let mut trees = catalogue.as_slice();
        while let Some((table, rest)) = trees.split_first() {
            // The indexes and long values of a table follow it.
            let count = rest.iter().take_while(|tree| tree.table == table.table && !tree.is_table).count();
            let (its_own, behind) = rest.split_at(count);
            self.walk_table(table, its_own)?;
            trees = behind;
        }
        if let OwnedPages::Extents(extents) = self.owned {
            self.find_unused(extents);
        }
        self.note_missing_separators();
        Ok(())
    }

    /// Such a database loses nothing, but the engine's own checker would refuse it.
    fn note_missing_separators(&mut self) {
        let count = self.verdict.separators_missing;
        if count > 0 {
            let what = format!(
                "{count} branch pages end with an empty separator, as Spindle wrote them before 2026-11-24: all is \
                 there, but eseutil and other readers may object"
            );
            self.verdict.findings.push(FileFinding::note(FileLocation::FILE, what));
        }
    }

    fn walk_table(&mut self, table: &CatalogueTree, others: &[CatalogueTree]) -> Result<(), Stopped> {
        let mut count = TableCount { name: table.name.clone(), ..TableCount::default() };
        for tree in std::iter::once(table).chain(others) {
            let extents = self.note_tree_space(tree)?;
            let found = self.walk_tree(tree, extents.as_deref())?;
            count.pages += found.pages;
            if tree.is_table {
                count.rows = found.records;
            }
        }
        if table.is_table {
            self.verdict.tables.push(count);
        }
        Ok(())
    }

    /// Counts one more page.
    fn step(&mut self) -> Result<(), Stopped> {
        self.walked.pages += 1;
        if self.walked.pages.is_multiple_of(PROGRESS_PAGES) && (self.on_progress)(self.walked).is_break() {
            return Err(Stopped);
        }
        Ok(())
    }

    fn find(&mut self, severity: FindingSeverity, page: PageNumber, what: impl Into<String>) {
        if self.verdict.findings.len() >= FINDINGS_MAX {
            self.verdict.findings_more += 1;
            return;
        }
        let place =
            FileLocation::new(FilePart::Page(page), ByteOffset(page.file_offset(self.facts.page_size)));
        self.verdict.findings.push(FileFinding { severity, place, what: what.into(), fix: None });
    }

    /// Records a fault between pages, each of which may be as it was written.
    fn find_between(&mut self, page: PageNumber, what: impl Into<String>) {
        let severity = if self.facts.is_dirty() { FindingSeverity::Warning } else { FindingSeverity::Damage };
        self.find(severity, page, what);
    }

    /// Records a page that is faulty in itself. It may be reached more than once.
    fn find_page_error(&mut self, error: PageError) -> Result<(), Stopped> {
        let (page, fault, what) = match error {
            PageError::Stopped => return Err(Stopped),
            PageError::Page(page, fault, what) => (page, fault, what),
        };
        let is_found_elsewhere = match fault {
            PageFault::Checksum | PageFault::Unreadable => self.owned.contains(page),
            PageFault::Beyond => self.is_cut_off(page),
            // A page that was never written yet is blank; its log restores it.
            PageFault::Blank | PageFault::Structure => false,
        };
        if self.faulty.insert(page) && !is_found_elsewhere {
            self.find_between(page, what);
        }
        Ok(())
    }

    /// True for an owned page beyond the end of the file; that fault is reported once, for the file.
    fn is_cut_off(&self, page: PageNumber) -> bool {
        page > self.uses.last() && matches!(self.owned, OwnedPages::Extents(_)) && self.owned.contains(page)
    }
}
