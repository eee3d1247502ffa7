//! Ownership and use of pages.
//!
//! Extents are owned in two levels: tables own theirs out of the database's, indexes and long values out of
//! their table's. A page has one use, whichever table owns it.

use super::{CatalogueTree, Stopped, Walk};
use crate::database::{PageError, PageSource, SHELVED, SourceError, good_page, merged, read_extents};
use crate::fields::u32_at;
use maildb::{
    PageNumber,
    format::space::{ExtentNode, SPACE_HEADER_BYTES, SplitBuffer},
};

/// Fixed page numbers of every database.
pub(super) const DATABASE_ROOT: PageNumber = PageNumber(1);
pub(super) const OWNED_ROOT: PageNumber = PageNumber(2);
/// Flag of a space header: the tree has trees of extents.
pub(super) const MULTIPLE_EXTENTS: u32 = 1;
/// Pages covered by the bitmap in the space header.
pub(super) const BITMAP_PAGES: u32 = 32;
/// Unused pages that are listed one by one.
const UNUSED_TOLD_MAX: u64 = 10;

/// One bit per page: set if the page is used or free.
pub struct PageUseMap {
    bits: Vec<u64>,
    last: PageNumber,
}

impl PageUseMap {
    /// A map of the pages up to `last`, all unused.
    pub fn new(last: PageNumber) -> Self {
        Self { bits: vec![0; last.0 as usize / 64 + 1], last }
    }

    /// An empty map of the same size.
    pub fn none_of_them(&self) -> Self {
        Self::new(self.last)
    }

    /// Marks a page; false if it was marked before, or does not exist.
    pub fn set(&mut self, page: PageNumber) -> bool {
        let bit = 1 << (page.0 % 64);
        let is_new = page <= self.last && self.bits[page.0 as usize / 64] & bit == 0;
        if is_new {
            self.bits[page.0 as usize / 64] |= bit;
        }
        is_new
    }

    pub fn last(&self) -> PageNumber {
        self.last
    }

    fn is_set(&self, page: PageNumber) -> bool {
        page <= self.last && self.bits[page.0 as usize / 64] & 1 << (page.0 % 64) != 0
    }
}

/// The last page up to `last` that the file contains.
pub fn last_there(source: &mut dyn PageSource, last: PageNumber) -> Result<PageNumber, SourceError> {
    let mut is_there = |page: u32| match source.page(PageNumber(page)) {
        Err(SourceError::Beyond) => Ok(false),
        Err(SourceError::Stopped) => Err(SourceError::Stopped),
        Ok(_) | Err(SourceError::Unreadable(_)) => Ok(true),
    };
    if is_there(last.0)? {
        return Ok(last);
    }
    let (mut there, mut beyond) = (0, last.0);
    while beyond - there > 1 {
        let middle = there + (beyond - there) / 2;
        if is_there(middle)? { there = middle } else { beyond = middle }
    }
    Ok(PageNumber(there))
}

/// The space header in tag 0 of a root: the whole tag, or, in newer databases, the first of several fields.
/// The lowest bit of a byte before them marks its presence.
pub(super) fn header_of(tag: &[u8]) -> Option<&[u8]> {
    match tag.split_first() {
        _ if tag.len() == SPACE_HEADER_BYTES => Some(tag),
        Some((fields, rest)) if fields & 1 != 0 => rest.get(..SPACE_HEADER_BYTES),
        _ => None,
    }
}

impl Walk<'_> {
    /// Marks a page as used; false, and a finding, if it was used before.
    pub(super) fn use_page(&mut self, page: PageNumber, purpose: &str) -> bool {
        if self.uses.set(page) {
            return true;
        }
        if self.is_cut_off(page) {
            return false;
        }
        let what = if self.uses.is_set(page) {
            format!("it is used twice, the second time as {purpose}")
        } else {
            format!("it is {purpose}, and lies beyond the end of the database")
        };
        self.find_between(page, what);
        false
    }

    fn free(&mut self, extent: ExtentNode, whose: PageNumber) {
        for page in extent.first().0..=extent.last.0.min(self.uses.last.0) {
            self.verdict.pages_free += u64::from(self.use_page(PageNumber(page), "free"));
        }
        if extent.last > self.uses.last && !self.is_cut_off(extent.last) {
            self.find_between(
                whose,
                format!("free pages up to {} lie beyond the end of the database", extent.last),
            );
        }
    }

    /// Accounts the space of the database itself: its root, its extents, its free pages.
    pub(super) fn note_database_space(&mut self) -> Result<(), Stopped> {
        if self.use_page(DATABASE_ROOT, "the root of the database") {
            self.verdict.pages_in_use += 1;
        }
        self.step()?;
        match good_page(self.source, self.facts, DATABASE_ROOT) {
            Ok(view) if view.is_root() && header_of(view.external_header()).is_some() => {}
            Ok(_) => self.find_between(DATABASE_ROOT, "the root of the database has no sound space header"),
            Err(error) => self.find_page_error(error)?,
        }
        self.note_extents(DATABASE_ROOT, OWNED_ROOT).map(|_| ())
    }

    /// Accounts the space of a tree; returns the extents it owns, if known.
    pub(super) fn note_tree_space(
        &mut self,
        tree: &CatalogueTree,
    ) -> Result<Option<Vec<ExtentNode>>, Stopped> {
        let header = match good_page(self.source, self.facts, tree.root) {
            Ok(view) => {
                let header = Some(view)
                    .filter(|view| view.is_root())
                    .and_then(|view| header_of(view.external_header()));
                header.map(|header| [0, 8, 12].map(|at| u32_at(header, at)))
            }
            // The walk of the tree reports it.
            Err(PageError::Page(..)) => return Ok(None),
            Err(PageError::Stopped) => return Err(Stopped),
        };
        match header {
            Some([_, flags, owned_root]) if flags & MULTIPLE_EXTENTS != 0 && owned_root > 0 => {
                self.note_extents(tree.root, PageNumber(owned_root))
            }
            Some([primary, flags, bitmap]) if flags & MULTIPLE_EXTENTS == 0 => {
                Ok(Some(vec![self.note_single(tree.root, primary, bitmap)]))
            }
            _ => {
                self.find_between(tree.root, "the root of a tree has no sound space header");
                Ok(None)
            }
        }
    }

    /// The single extent of a small tree; a bitmap in its header marks the free pages.
    fn note_single(&mut self, root: PageNumber, primary: u32, bitmap: u32) -> ExtentNode {
        let pages = primary.clamp(1, (u32::MAX - root.0).max(1));
        if pages != primary || pages > BITMAP_PAGES + 1 {
            self.find_between(root, format!("a single extent of {primary} pages is impossible"));
        }
        for bit in (0..BITMAP_PAGES).filter(|bit| bitmap >> bit & 1 == 1) {
            // Bits for pages behind the extent mean nothing.
            if bit + 1 < pages {
                self.free(ExtentNode::starting_at(PageNumber(root.0 + 1 + bit), 1), root);
            }
        }
        ExtentNode::starting_at(root, pages.min(BITMAP_PAGES + 1))
    }

    /// Accounts both trees of extents of the tree at `root`.
    fn note_extents(
        &mut self,
        root: PageNumber,
        owned_root: PageNumber,
    ) -> Result<Option<Vec<ExtentNode>>, Stopped> {
        let Some(available_root) = owned_root.0.checked_add(1).map(PageNumber) else { return Ok(None) };
        let (mut owned, mut available) = (Vec::new(), Vec::new());
        let mut is_whole = true;
        for (space_root, extents) in [(owned_root, &mut owned), (available_root, &mut available)] {
            let found = read_extents(self.source, self.facts, space_root, &mut |pool, extent| {
                if pool != SHELVED {
                    extents.push(extent);
                }
            });
            match found {
                Ok(pages) => {
                    for page in pages {
                        self.step()?;
                        self.verdict.pages_in_use += u64::from(self.use_page(page, "a page of a space tree"));
                    }
                    self.free_split_buffer(space_root)?;
                }
                Err(error) => {
                    is_whole = false;
                    self.find_page_error(error)?;
                }
            }
        }
        if let Some(pair) = owned.windows(2).find(|pair| pair[0].last >= pair[1].first()) {
            let what = format!("extents of the tree at page {root} overlap at page {}", pair[1].first());
            self.find_between(owned_root, what);
        }
        for extent in available {
            self.free(extent, available_root);
        }
        Ok(is_whole.then(|| merged(owned)))
    }

    /// Frees the pages that a tree of extents has reserved for its own splits.
    fn free_split_buffer(&mut self, space_root: PageNumber) -> Result<(), Stopped> {
        let buffer = match good_page(self.source, self.facts, space_root) {
            Ok(view) => SplitBuffer::decode(view.external_header()).ok(),
            Err(PageError::Stopped) => return Err(Stopped),
            Err(PageError::Page(..)) => None,
        };
        for run in buffer.iter().flat_map(|buffer| buffer.runs) {
            if run.pages > 0 && run.pages <= run.last.0 {
                self.free(ExtentNode { last: run.last, pages: run.pages }, space_root);
            }
        }
        Ok(())
    }

    /// Finds owned pages that are neither used nor free. They waste space and lose no mail.
    pub(super) fn find_unused(&mut self, owned: &[ExtentNode]) {
        let (mut count, mut first) = (0_u64, Vec::new());
        for extent in owned {
            for page in extent.first().0..=extent.last.0.min(self.uses.last.0) {
                if !self.uses.is_set(PageNumber(page)) {
                    count += 1;
                    if count <= UNUSED_TOLD_MAX {
                        first.push(page.to_string());
                    }
                }
            }
        }
        if count > 0 {
            let severity = crate::finding::FindingSeverity::Warning;
            let what = format!("{count} pages are neither used nor free: {}", first.join(", "));
            let more = if count > UNUSED_TOLD_MAX { " …" } else { "" };
            self.find(severity, OWNED_ROOT, what + more);
        }
    }
}
