//! Builds leaves from records in key order, and branch pages above them, in private memory.
//!
//! Pages are numbered in the order in which they are finished, so that a batch is one run of the file:
//! leaves, and after the last leaf of each parent the parent. The one unfinished page is the last.
//!
//! Invariants:
//!
//! 1. Keys ascend over all pushes.
//! 2. A page of a run is either finished (never changed again) or the leaf under construction, the last one.
//! 3. A parent is finished with its last leaf, or dropped: then its leaves are entered in the tree one by one.

use super::{
    super::tree::{SEPARATOR_BYTES_MAX, shortest_separator},
    link::{BulkBatch, PAGES_TO_LINK, Subtree, entry_bytes},
};
use crate::format::{
    checksum::seal_page,
    page::{NodeFlags, PageFlags, PageMut, PageView},
    page_size::{DbTime, ObjectId, PageNumber, PageSize},
    space::ExtentNode,
};
use world::Buffer;

/// Settings for building the pages of a tree.
#[derive(Clone, Copy, Debug)]
pub struct BuildSettings {
    pub page_size: PageSize,
    /// Object number stored in its pages.
    pub object: ObjectId,
    /// Flags of all pages besides leaf and parent of leaf.
    pub flags: PageFlags,
    /// Fill of a page in percent of its size without the header.
    pub fill_percent: usize,
    /// Pages written together.
    pub run_pages: u32,
    /// A batch with this many pages ends at the next full parent.
    pub batch_pages: u32,
}

impl BuildSettings {
    /// Bytes that stay free on every page.
    fn bytes_kept_free(&self) -> usize {
        let capacity = self.page_size.bytes() - self.page_size.header_bytes();
        capacity * (100 - self.fill_percent) / 100
    }
}

/// A run of consecutive pages to be written together.
pub struct PageRun {
    pub first: PageNumber,
    /// Number of pages.
    pub pages: u32,
    /// Their bytes, with capacity for more.
    pub buffer: Buffer,
}

/// Result of pushing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The record was added to a page.
    Taken,
    /// The record was not added: the batch is complete, and [`Builder::end_batch`] must be called first.
    BatchIsComplete,
}

/// A leaf under construction.
struct Leaf {
    number: PageNumber,
    low: Vec<u8>,
    nodes: usize,
}

/// A parent of leaves under construction; it gets its number when it is finished.
struct Parent {
    page: Vec<u8>,
    low: Vec<u8>,
    leaves: usize,
    entries_bytes: usize,
}

/// Builds the pages of successive batches; see the invariants above.
pub struct Builder {
    settings: BuildSettings,
    dbtime: DbTime,
    /// The first page of the batch, and the next page to be numbered.
    first: PageNumber,
    next: PageNumber,
    run: Option<PageRun>,
    finished: Vec<PageRun>,
    /// Buffers for reuse.
    spare: Vec<Buffer>,
    leaf: Option<Leaf>,
    parent: Option<Parent>,
    first_leaf: Option<PageNumber>,
    last_leaf: Option<PageNumber>,
    last_key: Vec<u8>,
    children: Vec<Subtree>,
    entries_bytes: usize,
    is_complete: bool,
    rows: u64,
}

impl Builder {
    /// Continues behind `last_leaf` of a tree whose keys are all at most `last_key`; `None` if the tree is
    /// empty.
    pub fn new(
        settings: BuildSettings,
        first: PageNumber,
        last_leaf: Option<PageNumber>,
        last_key: Vec<u8>,
    ) -> Self {
        assert!(
            (1..=100).contains(&settings.fill_percent) && settings.run_pages > 0 && settings.batch_pages > 0
        );
        Self {
            settings,
            dbtime: DbTime(0),
            first,
            next: first,
            run: None,
            finished: Vec::new(),
            spare: Vec::new(),
            leaf: None,
            parent: None,
            first_leaf: None,
            last_leaf,
            last_key,
            children: Vec::new(),
            entries_bytes: 0,
            is_complete: false,
            rows: 0,
        }
    }

    /// True if the batch has no record yet: call [`Builder::begin_batch`] with the time of its pages first.
    pub fn needs_time(&self) -> bool {
        self.first_leaf.is_none()
    }

    /// Begins a batch whose pages all carry the time `dbtime`.
    pub fn begin_batch(&mut self, dbtime: DbTime) {
        assert!(self.needs_time() && dbtime > self.dbtime, "every batch has a time of its own");
        self.dbtime = dbtime;
    }

    /// True if `key` is above all keys pushed so far.
    pub fn is_next(&self, key: &[u8]) -> bool {
        self.last_key.as_slice() < key
    }

    /// The last page of the file if the batch ended now.
    pub fn last_page(&self) -> PageNumber {
        if self.needs_time() {
            PageNumber(self.first.0 - 1)
        } else {
            // Its parent is still to come.
            PageNumber(self.next.0 + PAGES_TO_LINK)
        }
    }

    /// Adds a record that is [next](Builder::is_next) and fits a page.
    pub fn push(&mut self, key: &[u8], data: &[u8]) -> PushResult {
        assert!(self.is_next(key), "keys ascend");
        if self.is_complete {
            return PushResult::BatchIsComplete;
        }
        if !self.insert(key, data) {
            if self.leaf.is_some() {
                self.end_leaf(Some(key));
            }
            if self.is_complete {
                return PushResult::BatchIsComplete;
            }
            self.begin_leaf(key);
            assert!(self.insert(key, data), "a record that was measured fits an empty page");
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.rows += 1;
        PushResult::Taken
    }

    /// Inserts a record into the leaf under construction; false if there is none or it has no room.
    fn insert(&mut self, key: &[u8], data: &[u8]) -> bool {
        let kept_free = self.settings.bytes_kept_free();
        let Some(leaf) = &mut self.leaf else { return false };
        let nodes = leaf.nodes;
        let page = page_of(&mut self.run, self.settings.page_size, leaf.number);
        if nodes > 0 && kept_free > 0 {
            let view = PageView::new(page);
            if view.free_bytes() < kept_free + view.bytes_needed(key, data) {
                return false;
            }
        }
        let is_in = PageMut::new(page).insert_node(nodes, NodeFlags::NONE, key, data).is_ok();
        leaf.nodes += usize::from(is_in);
        is_in
    }

    fn begin_leaf(&mut self, key: &[u8]) {
        let low = shortest_separator(&self.last_key, key);
        let number = self.take_number();
        let page = page_of(&mut self.run, self.settings.page_size, number);
        let mut page =
            PageMut::format(page, number, self.settings.object, self.settings.flags | PageFlags::LEAF);
        page.set_dbtime(self.dbtime);
        // Later keys probably share a prefix with this one.
        page.set_external_header(key).expect("an empty page has room for a key");
        self.first_leaf.get_or_insert(number);
        self.leaf = Some(Leaf { number, low, nodes: 0 });
    }

    /// Finishes the leaf under construction; `next` is the following key, if any.
    fn end_leaf(&mut self, next: Option<&[u8]>) {
        let leaf = self.leaf.take().expect("there is a leaf to finish");
        let separator = next.map(|next| shortest_separator(&self.last_key, next));
        let pages = self.next.0 - self.first.0 + 1;
        // One log record makes the batch visible, so its entries must fit a page.
        let is_large =
            pages >= self.settings.batch_pages || self.entries_bytes >= self.settings.page_size.bytes() / 2;
        let parent_is_full = self.enter_in_parent(&leaf, separator.as_deref(), is_large);
        self.is_complete = next.is_none() || parent_is_full && is_large;
        let next_leaf =
            if self.is_complete { None } else { Some(PageNumber(self.next.0 + u32::from(parent_is_full))) };
        let page = page_of(&mut self.run, self.settings.page_size, leaf.number);
        PageMut::new(page).set_siblings(self.last_leaf, next_leaf);
        seal_page(page, self.settings.page_size, leaf.number);
        self.last_leaf = Some(leaf.number);
        if parent_is_full {
            self.end_parent();
        }
    }

    /// Adds a finished leaf to its parent; returns true if the parent is now complete. `separator` is the
    /// leaf's upper bound, if known. The parent also stores the separator of its last leaf, unless
    /// `ends_batch`: then it is the rightmost page of its level until the next batch is linked.
    fn enter_in_parent(&mut self, leaf: &Leaf, separator: Option<&[u8]>, ends_batch: bool) -> bool {
        let kept_free = self.settings.bytes_kept_free();
        let settings = self.settings;
        let parent = self.parent.get_or_insert_with(|| {
            let mut page = vec![0; settings.page_size.bytes()];
            let flags = settings.flags | PageFlags::PARENT_OF_LEAF;
            // It gets its number later.
            let mut edit = PageMut::format(&mut page, PageNumber(0), settings.object, flags);
            edit.set_external_header(separator.unwrap_or_default()).expect("an empty page has room");
            Parent { page, low: leaf.low.clone(), leaves: 0, entries_bytes: 0 }
        });
        let child = leaf.number.0.to_le_bytes();
        let view = PageView::new(&parent.page);
        let needed_for_last = view.bytes_needed(&[], &child) + SEPARATOR_BYTES_MAX;
        // At least two children, so that the tree narrows upwards.
        let kept_free = if parent.leaves < 2 { 0 } else { kept_free };
        let is_last = separator.is_none_or(|separator| {
            view.free_bytes() < kept_free + needed_for_last + view.bytes_needed(separator, &child)
        });
        let key = separator.filter(|_| !(is_last && ends_batch)).unwrap_or_default();
        PageMut::new(&mut parent.page)
            .insert_node(parent.leaves, NodeFlags::NONE, key, &child)
            .expect("room for a last child and its separator is always kept");
        parent.leaves += 1;
        parent.entries_bytes += entry_bytes(&leaf.low);
        separator.is_some() && is_last
    }

    /// Finishes a parent: assigns its number and its place.
    fn end_parent(&mut self) {
        let Parent { page: finished, low, .. } = self.parent.take().expect("it was entered in");
        let number = self.take_number();
        let page = page_of(&mut self.run, self.settings.page_size, number);
        page.copy_from_slice(&finished);
        let mut edit = PageMut::new(page);
        edit.set_dbtime(self.dbtime);
        edit.set_number(number);
        seal_page(page, self.settings.page_size, number);
        self.entries_bytes += entry_bytes(&low);
        self.children.push(Subtree { page: number, low, height: 1 });
    }

    /// True if the parent is worth a page: at least half full, or its leaves have long separators.
    fn is_worth_a_page(&self, parent: &Parent) -> bool {
        let page_bytes = self.settings.page_size.bytes();
        let capacity = page_bytes - self.settings.page_size.header_bytes();
        let used = capacity - PageView::new(&parent.page).free_bytes();
        used * 2 >= capacity * self.settings.fill_percent / 100 || parent.entries_bytes > page_bytes / 2
    }

    /// Drops a parent that is not worth a page: its leaves are linked one by one.
    fn dissolve_parent(&mut self) {
        let parent = self.parent.take().expect("it was judged");
        let view = PageView::new(&parent.page);
        let mut low = parent.low;
        for leaf in 0..parent.leaves {
            let mut upper = Vec::new();
            view.key_of(leaf, &mut upper);
            let page = view.child(leaf);
            self.children.push(Subtree { page, low: std::mem::replace(&mut low, upper), height: 0 });
        }
    }

    /// Ends the batch and reserves the pages that linking needs; `None` if it has no records.
    pub fn end_batch(&mut self) -> Option<BulkBatch> {
        if self.leaf.is_some() {
            self.end_leaf(None);
        }
        match &self.parent {
            Some(parent) if self.is_worth_a_page(parent) => self.end_parent(),
            Some(_) => self.dissolve_parent(),
            None => {}
        }
        self.is_complete = false;
        self.entries_bytes = 0;
        self.finished.extend(self.run.take());
        let first_leaf = self.first_leaf.take()?;
        let children = std::mem::take(&mut self.children);
        let used = self.next.0 - self.first.0;
        let pages = used + PAGES_TO_LINK;
        let grown = ExtentNode::starting_at(self.first, pages);
        self.first = PageNumber(grown.last.0 + 1);
        self.next = self.first;
        Some(BulkBatch { grown, used, first_leaf, children, rows: std::mem::take(&mut self.rows) })
    }

    /// Runs whose pages are all finished.
    pub fn take_finished(&mut self) -> Vec<PageRun> {
        std::mem::take(&mut self.finished)
    }

    /// True if a run is finished.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Returns a buffer for reuse.
    pub fn reuse(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }

    fn take_number(&mut self) -> PageNumber {
        let number = self.next;
        self.next.0 += 1;
        if self.run.as_ref().is_some_and(|run| run.pages == self.settings.run_pages) {
            self.finished.extend(self.run.take());
        }
        let spare = &mut self.spare;
        let bytes = self.settings.run_pages as usize * self.settings.page_size.bytes();
        let run = self.run.get_or_insert_with(|| {
            let buffer = spare.pop().unwrap_or_else(|| Buffer::zeroed(bytes));
            PageRun { first: number, pages: 0, buffer }
        });
        assert_eq!(run.first.0 + run.pages, number.0, "the pages of a run are consecutive");
        run.pages += 1;
        number
    }
}

fn page_of(run: &mut Option<PageRun>, page_size: PageSize, number: PageNumber) -> &mut [u8] {
    let run = run.as_mut().expect("a numbered page is in a run");
    let index = (number.0 - run.first.0) as usize;
    &mut run.buffer[index * page_size.bytes()..][..page_size.bytes()]
}
