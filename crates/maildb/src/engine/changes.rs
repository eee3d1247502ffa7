//! Atomic changes of several pages.
//!
//! The change is made on copies. Reads see the copies first, then the cache; a page in neither ends the step
//! with [`Pause::Missing`], and the copies are discarded. At the end, [`ChangeSet::install`] appends one log
//! record that describes the whole change and puts the copies into the cache, without an await between: no
//! other task and no crash can see a part.
//!
//! Every edit is a [`PageOperation`] run by [`apply`], which recovery uses too: redo repeats exactly the
//! original change.

use super::{DatabaseIndex, PageId, Pause, Step, cache::Cache};
use crate::{
    error::Error,
    format::{
        page::{NodeFlags, PageFlags, PageFull, PageMut, PageView, restore_image},
        page_size::{DbTime, ObjectId, PageNumber, PageSize},
    },
    log::{PageChange, PageOperation},
};
use std::collections::BTreeMap;
use world::{Buffer, Moment};

/// Copies of pages, with the operations that changed them.
pub struct ChangeSet<'cache> {
    cache: &'cache mut Cache,
    database: DatabaseIndex,
    page_size: PageSize,
    now: Moment,
    copies: BTreeMap<PageNumber, PageCopy>,
}

struct PageCopy {
    page: Buffer,
    /// Time of the page's last change before this one; zero for a new page.
    before: DbTime,
    operations: Vec<PageOperation>,
}

/// A completed change: its description for the log, and the new pages.
pub struct CompletedChange {
    pub changes: Vec<PageChange>,
    /// The changed pages.
    pub pages: Vec<(PageNumber, Buffer)>,
}

impl<'cache> ChangeSet<'cache> {
    /// A change set without changes.
    pub fn new(cache: &'cache mut Cache, database: DatabaseIndex, page_size: PageSize, now: Moment) -> Self {
        Self { cache, database, page_size, now, copies: BTreeMap::new() }
    }

    pub fn database(&self) -> DatabaseIndex {
        self.database
    }

    /// A page with the changes so far.
    pub fn view(&mut self, page: PageNumber) -> Step<PageView<'_>> {
        if let Some(copy) = self.copies.get(&page) {
            return Ok(PageView::new(&copy.page));
        }
        let id = PageId { database: self.database, page };
        self.cache.get(id, self.now).map(PageView::new).ok_or(Pause::Missing(id))
    }

    /// Creates a page, whatever it held before.
    pub fn format(&mut self, page: PageNumber, object: ObjectId, flags: PageFlags) {
        let mut buffer = Buffer::zeroed(self.page_size.bytes());
        PageMut::format(&mut buffer, page, object, flags);
        self.copies.insert(page, PageCopy { page: buffer, before: DbTime(0), operations: Vec::new() });
    }

    /// Ends the creation of a page: all edits since [`ChangeSet::format`] are logged as one image.
    fn as_image(copy: &mut PageCopy) {
        if copy.before == DbTime(0) {
            let image = PageView::new(&copy.page).used_image();
            copy.operations = vec![PageOperation::Image(image)];
        }
    }

    /// Inserts a node before `slot`.
    pub fn insert_node(
        &mut self,
        page: PageNumber,
        slot: usize,
        key: &[u8],
        data: &[u8],
    ) -> Step<Result<(), PageFull>> {
        self.edit(
            page,
            PageOperation::InsertNode {
                slot: slot_field(slot),
                node_flags: 0,
                key: key.to_vec(),
                data: data.to_vec(),
            },
        )
    }

    /// Replaces the data of a node.
    pub fn replace_data(&mut self, page: PageNumber, slot: usize, data: &[u8]) -> Step<Result<(), PageFull>> {
        self.edit(page, PageOperation::ReplaceData { slot: slot_field(slot), data: data.to_vec() })
    }

    /// Removes `count` nodes from `slot` on.
    pub fn remove_nodes(&mut self, page: PageNumber, slot: usize, count: usize) -> Step<()> {
        self.edit(page, PageOperation::RemoveNodes { slot: slot_field(slot), count: slot_field(count) })
            .map(|fits| fits.expect("less always fits"))
    }

    /// Replaces tag 0: the space header of a root, the key prefix of any other page.
    pub fn set_external_header(&mut self, page: PageNumber, bytes: &[u8]) -> Step<Result<(), PageFull>> {
        self.edit(page, PageOperation::SetExternalHeader(bytes.to_vec()))
    }

    /// Links a leaf to its neighbours.
    pub fn set_siblings(
        &mut self,
        page: PageNumber,
        previous: Option<PageNumber>,
        next: Option<PageNumber>,
    ) -> Step<()> {
        let operation = PageOperation::SetSiblings {
            previous: PageNumber::to_field(previous),
            next: PageNumber::to_field(next),
        };
        self.edit(page, operation).map(|fits| fits.expect("links take no room"))
    }

    /// Replaces the page's flags.
    pub fn set_flags(&mut self, page: PageNumber, flags: PageFlags) -> Step<()> {
        self.edit(page, PageOperation::SetFlags(flags.0)).map(|fits| fits.expect("flags take no room"))
    }

    fn edit(&mut self, page: PageNumber, operation: PageOperation) -> Step<Result<(), PageFull>> {
        if !self.copies.contains_key(&page) {
            let id = PageId { database: self.database, page };
            let bytes = self.cache.get(id, self.now).ok_or(Pause::Missing(id))?;
            let copy = PageCopy {
                before: PageView::new(bytes).dbtime(),
                page: Buffer::copy_of(bytes),
                operations: Vec::new(),
            };
            if copy.before == DbTime(0) {
                return Err(impossible(self.database, page, "a page of a tree carries no time of change"));
            }
            self.copies.insert(page, copy);
        }
        let copy = self.copies.get_mut(&page).expect("just put there");
        if let Err(full) = apply(&mut copy.page, &operation) {
            return Ok(Err(full));
        }
        copy.operations.push(operation);
        Ok(Ok(()))
    }

    /// True if no page has been edited or created.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The change as log record and pages, each stamped with `dbtime`. Pages that were only read are not
    /// included.
    pub fn finish(self, dbtime: DbTime) -> Step<CompletedChange> {
        let mut changes = Vec::new();
        let mut pages = Vec::new();
        for (page, mut copy) in self.copies {
            Self::as_image(&mut copy);
            if copy.operations.is_empty() {
                continue;
            }
            if copy.before >= dbtime {
                return Err(impossible(self.database, page, "its time of change is in the future"));
            }
            PageMut::new(&mut copy.page).set_dbtime(dbtime);
            changes.push(PageChange { page, dbtime_before: copy.before, operations: copy.operations });
            pages.push((page, copy.page));
        }
        assert!(!changes.is_empty(), "an empty change is not logged");
        Ok(CompletedChange { changes, pages })
    }
}

/// True if the nodes that an operation refers to exist on the page. For operations read from a log.
pub fn is_possible(page: &[u8], operation: &PageOperation) -> bool {
    let count = PageView::new(page).node_count();
    match operation {
        PageOperation::Image(_) => false,
        PageOperation::InsertNode { slot, .. } => usize::from(*slot) <= count,
        PageOperation::ReplaceData { slot, .. } => usize::from(*slot) < count,
        PageOperation::RemoveNodes { slot, count: removed } => {
            usize::from(*slot) + usize::from(*removed) <= count
        }
        PageOperation::SetExternalHeader(_)
        | PageOperation::SetSiblings { .. }
        | PageOperation::SetFlags(_) => true,
    }
}

/// Applies one operation to a page; a page without room is left unchanged.
pub fn apply(page: &mut [u8], operation: &PageOperation) -> Result<(), PageFull> {
    if let PageOperation::Image(image) = operation {
        restore_image(page, image).expect("an image is checked before it is applied");
        return Ok(());
    }
    let mut page = PageMut::new(page);
    match operation {
        PageOperation::Image(_) => unreachable!("handled above"),
        PageOperation::InsertNode { slot, node_flags, key, data } => {
            page.insert_node(usize::from(*slot), NodeFlags(*node_flags), key, data)
        }
        PageOperation::ReplaceData { slot, data } => page.replace_data(usize::from(*slot), data),
        PageOperation::RemoveNodes { slot, count } => {
            page.remove_nodes(usize::from(*slot), usize::from(*count));
            Ok(())
        }
        PageOperation::SetExternalHeader(bytes) => page.set_external_header(bytes),
        PageOperation::SetSiblings { previous, next } => {
            page.set_siblings(PageNumber::from_field(*previous), PageNumber::from_field(*next));
            Ok(())
        }
        PageOperation::SetFlags(bits) => {
            page.set_flags(PageFlags(*bits));
            Ok(())
        }
    }
}

fn slot_field(slot: usize) -> u16 {
    u16::try_from(slot).expect("a page holds fewer than 2^16 nodes")
}

/// Error: a page contradicts itself or its neighbours, though its checksum is right.
pub fn impossible(database: DatabaseIndex, page: PageNumber, problem: impl Into<String>) -> Pause {
    Pause::Failed(Error::PageDamaged {
        database: format!("database {}", database.0),
        page,
        problem: problem.into(),
    })
}
