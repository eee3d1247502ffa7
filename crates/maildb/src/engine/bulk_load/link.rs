//! Links finished pages into a tree at its right end.
//!
//! A page of height 0 is a leaf, one of height 1 is the parent of leaves, and so on. A page of height `h`
//! becomes the last child of the rightmost page of height `h + 1`; if that is full, a new page takes it, and
//! is itself linked one level higher in the same way. The root page stays the root: when full it first moves
//! its nodes to a new page below it. A page that is no longer the rightmost of its height gets a last
//! separator; so every rightmost page keeps room for one ([`tree::SEPARATOR_BYTES_MAX`]).

use super::super::{
    Step,
    changes::{ChangeSet, impossible},
    space,
    tree::{self, SEPARATOR_BYTES_MAX},
};
use crate::format::{page::PageFlags, page_size::PageNumber, space::ExtentNode};

/// A finished page, with all pages below it, to be linked into a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtree {
    pub page: PageNumber,
    /// Lower bound: above every key of the tree so far, at most the smallest key below the page.
    pub low: Vec<u8>,
    /// Number of levels below the page.
    pub height: usize,
}

/// Finished pages that are linked in one step.
#[derive(Clone, Debug)]
pub struct BulkBatch {
    /// Pages by which the file has grown for the batch.
    pub grown: ExtentNode,
    /// Number of pages in use, from the first on; at least one is unused.
    pub used: u32,
    /// The leaf with the smallest keys. Its link to the leaf before is already set.
    pub first_leaf: PageNumber,
    /// The subtrees to link, in key order.
    pub children: Vec<Subtree>,
    /// Number of records.
    pub rows: u64,
}

/// Most pages that linking a batch allocates: one for the owned extents, and for each level a new page and
/// one below the root. The entries of a batch together take at most two pages.
pub const PAGES_TO_LINK: u32 = 12;

/// Log bytes of an entry beside its separator, rounded up.
const ENTRY_OVERHEAD_BYTES: usize = 16;

/// Upper bound of an entry's size in the log record.
pub fn entry_bytes(low: &[u8]) -> usize {
    low.len() + ENTRY_OVERHEAD_BYTES
}

/// Makes a batch part of the tree at `root`: its space, its leaves' links, its subtrees' entries.
pub fn link(changes: &mut ChangeSet<'_>, root: PageNumber, batch: &BulkBatch) -> Step<()> {
    space::add_file_growth_to_tree(changes, root, batch.grown, batch.used)?;
    let mut edge = RightEdge::find(changes, root, batch.first_leaf)?;
    for child in &batch.children {
        edge.append(changes, child.height + 1, child.page, &child.low)?;
    }
    Ok(())
}

/// True if the tree at `root` is a single leaf with records. Such a leaf moves when the tree grows, so no
/// other leaf may be linked to it.
pub fn is_lone_leaf(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<bool> {
    let view = changes.view(root)?;
    Ok(view.is_leaf() && view.node_count() > 0)
}

/// The rightmost page of every height from 1 on; the root is the last.
struct RightEdge {
    root: PageNumber,
    pages: Vec<Edge>,
}

/// A rightmost page, and if it is known to be full.
#[derive(Clone, Copy)]
enum Edge {
    Open(PageNumber),
    Full,
}

impl RightEdge {
    /// Finds the right edge, and links the last leaf to `next_leaf`.
    fn find(changes: &mut ChangeSet<'_>, root: PageNumber, next_leaf: PageNumber) -> Step<Self> {
        let path = tree::rightmost_path(changes, root)?;
        let leaf = changes.view(path.leaf)?;
        if path.leaf != root {
            let previous = leaf.previous();
            changes.set_siblings(path.leaf, previous, Some(next_leaf))?;
        } else if leaf.node_count() > 0 {
            return Err(impossible(changes.database(), root, "a lone leaf has no neighbour"));
        }
        let pages = path.branches.iter().rev().map(|&(page, _)| Edge::Open(page)).collect();
        Ok(Self { root, pages })
    }

    /// Makes `child` the last child of the rightmost page of `height`.
    fn append(
        &mut self,
        changes: &mut ChangeSet<'_>,
        height: usize,
        child: PageNumber,
        low: &[u8],
    ) -> Step<()> {
        if self.pages.is_empty() {
            return self.begin(changes, height, child);
        }
        while self.pages.len() < height {
            self.raise(changes)?;
        }
        let has_room = match self.pages[height - 1] {
            Edge::Full => false,
            Edge::Open(page) => {
                let view = changes.view(page)?;
                view.free_bytes() >= view.bytes_needed(low, &[0; 4]) + SEPARATOR_BYTES_MAX
            }
        };
        match self.pages[height - 1] {
            Edge::Open(page) if has_room => {
                self.close_below(changes, height, low)?;
                append_entry(changes, page, child, low)?;
            }
            _ => {
                if self.pages.len() == height {
                    self.raise(changes)?;
                }
                let page = self.make_page(changes, height, child, low)?;
                self.append(changes, height + 1, page, low)?;
                self.pages[height - 1] = Edge::Open(page);
            }
        }
        Ok(())
    }

    /// Gives the rightmost pages below `height` the last separator `low`, the lower bound of the next page of
    /// their height. Pages built by a batch have one already, except for the last of the batch before, which
    /// was left open.
    fn close_below(&mut self, changes: &mut ChangeSet<'_>, height: usize, low: &[u8]) -> Step<()> {
        for edge in &mut self.pages[..height - 1] {
            if let Edge::Open(page) = *edge {
                tree::set_last_separator(changes, page, low)?;
                *edge = Edge::Full;
            }
        }
        Ok(())
    }

    /// Makes an empty root the parent of its first child.
    fn begin(&mut self, changes: &mut ChangeSet<'_>, height: usize, child: PageNumber) -> Step<()> {
        let flags = changes.view(self.root)?.flags();
        let kind = kind_of(height);
        changes.set_flags(self.root, flags.without(PageFlags::LEAF | PageFlags::PARENT_OF_LEAF) | kind)?;
        changes.insert_node(self.root, 0, &[], &child.0.to_le_bytes())?.expect("an empty root has room");
        self.pages = vec![Edge::Full; height - 1];
        self.pages.push(Edge::Open(self.root));
        Ok(())
    }

    /// Adds a level to the tree.
    fn raise(&mut self, changes: &mut ChangeSet<'_>) -> Step<()> {
        let page = space::allocate(changes, self.root)?;
        tree::raise_root(changes, self.root, page)?;
        if let Some(highest @ Edge::Open(_)) = self.pages.last_mut() {
            *highest = Edge::Open(page);
        }
        self.pages.push(Edge::Open(self.root));
        Ok(())
    }

    /// A new page of `height` with one child.
    fn make_page(
        &self,
        changes: &mut ChangeSet<'_>,
        height: usize,
        child: PageNumber,
        low: &[u8],
    ) -> Step<PageNumber> {
        let page = space::allocate(changes, self.root)?;
        let view = changes.view(self.root)?;
        let (object, flags) = (view.object_id(), view.flags());
        let without = PageFlags::ROOT | PageFlags::LEAF | PageFlags::PARENT_OF_LEAF;
        changes.format(page, object, flags.without(without) | kind_of(height));
        // Later separators probably share a prefix with this one.
        changes.set_external_header(page, low)?.expect("an empty page has room");
        changes.insert_node(page, 0, &[], &child.0.to_le_bytes())?.expect("an empty page has room");
        Ok(page)
    }
}

fn kind_of(height: usize) -> PageFlags {
    if height == 1 { PageFlags::PARENT_OF_LEAF } else { PageFlags::default() }
}

/// Appends a child to a page with room for it; `low` becomes the separator of the child before.
fn append_entry(changes: &mut ChangeSet<'_>, page: PageNumber, child: PageNumber, low: &[u8]) -> Step<()> {
    let view = changes.view(page)?;
    let last = view.node_count() - 1;
    let before = view.child(last);
    changes.insert_node(page, last, low, &before.0.to_le_bytes())?.expect("room was checked");
    changes.replace_data(page, last + 1, &child.0.to_le_bytes())?.expect("the same length fits");
    Ok(())
}
