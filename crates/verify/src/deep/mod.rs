//! The trees of a database, walked: what no checksum of a single page can show.
//!
//! 1. Every page that is reached verifies, is sound in itself, and carries its tree's number.
//! 2. Keys ascend within and across leaves, and lie between their parents' separators.
//! 3. Leaves are linked to their neighbours both ways, and branches to none; all leaves are equally deep. The last
//!    separator of a branch is the one its parent has for it, and empty on the rightmost branch of a level.
//! 4. No page is used twice; every page of a tree lies in the extents that tree owns; every page the database owns
//!    is used, or free.
//!
//! Each fault is found once: what a look at each page by itself finds (a checksum that is wrong, a page that cannot be
//! read) and what [`Owned::find`] says of a file that was cut off is left to those, and only passed by here.
//!
//! It works on any database, ours or Exchange's, and remembers a bit a page. A database that was not shut down
//! cleanly may have a parent on disk before its child: there what is wrong with the trees is a warning, for the
//! log may put it right.

mod catalogue;
mod free;
mod space;
mod tree;

use crate::{
    database::{DatabaseFacts, Owned, PageFault, PageSource, SourceError, Trouble, owned_extents},
    finding::{Finding, Part, Place, Severity},
};
pub(crate) use free::free_extents;

use catalogue::Tree;
use maildb::PageNumber;
use space::Uses;
use std::{collections::BTreeSet, ops::ControlFlow};
use world::ByteOffset;

/// Findings that are kept; the others are counted.
const FINDINGS_MAX: usize = 1000;
/// Pages between two calls of whoever wants to know how far it is.
const PROGRESS_PAGES: u64 = 256;

/// How far a walk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Pages looked at.
    pub pages: u64,
    /// Pages that the database owns, some of which are free and never looked at.
    pub pages_in_all: u64,
}

/// A table as the catalogue has it, and what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCount {
    /// Its name.
    pub name: String,
    /// Pages of its tree, its indexes and its long values, without those of space trees.
    pub pages: u64,
    /// Records in it.
    pub rows: u64,
}

/// What the walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeepVerdict {
    /// Everything wrong, in the order found.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub findings_more: u64,
    /// The tables, in the order of the catalogue.
    pub tables: Vec<TableCount>,
    /// Trees walked: of tables, indexes and long values.
    pub trees: u64,
    /// Pages in use, those of space trees among them.
    pub pages_in_use: u64,
    /// Pages free.
    pub pages_free: u64,
    /// Records of all trees.
    pub records: u64,
    /// Levels of the deepest tree.
    pub levels_max: u32,
    /// Branch pages other than the rightmost of their level that end with an empty separator, as Spindle wrote them
    /// before 2026-11-24.
    pub separators_missing: u64,
    /// Whether the walk was stopped before its end.
    pub is_stopped: bool,
}

/// Walks all trees of a database, each page of which was judged by itself before. What is wrong is a finding; an error there is only if the source is stopped before
/// anything could be begun.
pub fn walk(
    source: &mut dyn PageSource,
    facts: &DatabaseFacts,
    on_progress: &mut dyn FnMut(Walked) -> ControlFlow<()>,
) -> Result<DeepVerdict, SourceError> {
    let owned = owned_extents(source, facts)?;
    let pages_in_all = owned.pages().unwrap_or(0);
    let last = space::last_there(source, owned.last().unwrap_or(PageNumber(u32::MAX - 1)))?;
    let mut walk = Walk {
        source,
        facts,
        on_progress,
        verdict: DeepVerdict::default(),
        uses: Uses::new(last),
        owned: &owned,
        faulty: BTreeSet::new(),
        walked: Walked { pages: 0, pages_in_all },
    };
    walk.verdict.is_stopped = walk.run().is_err();
    Ok(walk.verdict)
}

/// The walk is to end.
struct Stopped;

struct Walk<'a> {
    source: &'a mut dyn PageSource,
    facts: &'a DatabaseFacts,
    on_progress: &'a mut dyn FnMut(Walked) -> ControlFlow<()>,
    verdict: DeepVerdict,
    uses: Uses,
    owned: &'a Owned,
    /// Pages that are no good in themselves, as far as they were met.
    faulty: BTreeSet<PageNumber>,
    walked: Walked,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Stopped> {
        self.note_database_space()?;
        let catalogue = self.read_catalogue()?;
        let mut trees = catalogue.as_slice();
        while let Some((table, rest)) = trees.split_first() {
            // The indexes and long values of a table come behind it.
            let count = rest.iter().take_while(|tree| tree.table == table.table && !tree.is_table).count();
            let (its_own, behind) = rest.split_at(count);
            self.walk_table(table, its_own)?;
            trees = behind;
        }
        if let Owned::Extents(extents) = self.owned {
            self.find_unused(extents);
        }
        self.note_missing_separators();
        Ok(())
    }

    /// Nothing is missing in such a database; but the engine's own checker would refuse it.
    fn note_missing_separators(&mut self) {
        let count = self.verdict.separators_missing;
        if count > 0 {
            let what = format!(
                "{count} branch pages end with an empty separator, as Spindle wrote them before 2026-11-24: all is \
                 there, but eseutil and other readers may object"
            );
            self.verdict.findings.push(Finding::note(Place::FILE, what));
        }
    }

    fn walk_table(&mut self, table: &Tree, others: &[Tree]) -> Result<(), Stopped> {
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

    /// One more page was looked at.
    fn step(&mut self) -> Result<(), Stopped> {
        self.walked.pages += 1;
        if self.walked.pages.is_multiple_of(PROGRESS_PAGES) && (self.on_progress)(self.walked).is_break() {
            return Err(Stopped);
        }
        Ok(())
    }

    fn find(&mut self, severity: Severity, page: PageNumber, what: impl Into<String>) {
        if self.verdict.findings.len() >= FINDINGS_MAX {
            self.verdict.findings_more += 1;
            return;
        }
        let place = Place::new(Part::Page(page), ByteOffset(page.file_offset(self.facts.page_size)));
        self.verdict.findings.push(Finding { severity, place, what: what.into(), fix: None });
    }

    /// Something is wrong between pages, each of which may be as it was written.
    fn find_between(&mut self, page: PageNumber, what: impl Into<String>) {
        let severity = if self.facts.is_dirty() { Severity::Warning } else { Severity::Damage };
        self.find(severity, page, what);
    }

    /// A page that is no good in itself. It may be reached more than once.
    fn find_trouble(&mut self, trouble: Trouble) -> Result<(), Stopped> {
        let (page, fault, what) = match trouble {
            Trouble::Stopped => return Err(Stopped),
            Trouble::Page(page, fault, what) => (page, fault, what),
        };
        let is_found_elsewhere = match fault {
            PageFault::Checksum | PageFault::Unreadable => self.owned.contains(page),
            PageFault::Beyond => self.is_cut_off(page),
            // A page that was never written yet is blank, and its log brings it.
            PageFault::Blank | PageFault::Structure => false,
        };
        if self.faulty.insert(page) && !is_found_elsewhere {
            self.find_between(page, what);
        }
        Ok(())
    }

    /// Whether a page is the database's and the file ends before it, which is found once, of the file.
    fn is_cut_off(&self, page: PageNumber) -> bool {
        page > self.uses.last() && matches!(self.owned, Owned::Extents(_)) && self.owned.contains(page)
    }
}
