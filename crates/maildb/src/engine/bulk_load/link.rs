//! Hanging finished pages into a tree, at its right end.
//!
//! A page of height 0 is a leaf, one of height 1 is the parent of leaves, and so on. A page of height `h` goes,
//! as the last child, to the rightmost page of height `h + 1`; where that has no room a new one is made, which
//! goes to the rightmost page one higher in the same way. The root stays where it is: a full one hands what it
//! has to a new page below it first. A page that stops being the rightmost of its height gets a last separator;
//! so every rightmost page keeps room for one ([`tree::SEPARATOR_BYTES_MAX`]).

use super::super::{
    Step,
    changes::{ChangeSet, impossible},
    space,
    tree::{self, SEPARATOR_BYTES_MAX},
};
use crate::format::{page::PageFlags, page_size::PageNumber, space::ExtentNode};

/// A finished page that is to become part of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Which.
    pub page: PageNumber,
    /// Its separator: above every key of the tree so far, not above any key below the page.
    pub low: Vec<u8>,
    /// Levels below it.
    pub height: usize,
}

/// Finished pages that become part of a tree in one step.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The pages the file has grown by for them.
    pub grown: ExtentNode,
    /// How many of those, from the first on, are in use; one at least is not.
    pub used: u32,
    /// The leaf with the smallest keys. It names the leaf before it already.
    pub first_leaf: PageNumber,
    /// What goes into the tree, in key order.
    pub children: Vec<Child>,
    /// Records in it.
    pub rows: u64,
}

/// Pages that linking a batch may take, be the tree as it may: one for the owned extents, and for each level a
/// new page and one below the root. The entries of a batch together take no more than two pages.
pub const PAGES_TO_LINK: u32 = 12;

/// Log bytes of an entry beside its separator, or more.
const ENTRY_OVERHEAD_BYTES: usize = 16;

/// What the entry of a page takes in a log record, or more.
pub fn entry_bytes(low: &[u8]) -> usize {
    low.len() + ENTRY_OVERHEAD_BYTES
}

/// Makes a batch part of the tree at `root`: its space, its leaves' links, its children's entries.
pub fn link(changes: &mut ChangeSet<'_>, root: PageNumber, batch: &Batch) -> Step<()> {
    space::add_file_growth_to_tree(changes, root, batch.grown, batch.used)?;
    let mut edge = RightEdge::find(changes, root, batch.first_leaf)?;
    for child in &batch.children {
        edge.append(changes, child.height + 1, child.page, &child.low)?;
    }
    Ok(())
}

/// Whether the tree at `root` is a lone leaf with records. Such a leaf moves when the tree grows, so it cannot
/// be named as anybody's neighbour.
pub fn is_lone_leaf(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<bool> {
    let view = changes.view(root)?;
    Ok(view.is_leaf() && view.node_count() > 0)
}

/// The rightmost page of every height from 1 on; the root is the last.
struct RightEdge {
    root: PageNumber,
    pages: Vec<Edge>,
}

/// A rightmost page that may take another child, or is known to be full.
#[derive(Clone, Copy)]
enum Edge {
    Open(PageNumber),
    Full,
}

impl RightEdge {
    /// Finds the right edge, and links the last leaf to the one that comes next.
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

    /// Ends the rightmost pages below `height` at `low`, where the next page of their height begins. A page that a
    /// batch brought has its last separator, but for the last one of the batch before, which was found open.
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

    /// Makes the tree one level higher.
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
        // The separators to come begin much as this one does.
        changes.set_external_header(page, low)?.expect("an empty page has room");
        changes.insert_node(page, 0, &[], &child.0.to_le_bytes())?.expect("an empty page has room");
        Ok(page)
    }
}

fn kind_of(height: usize) -> PageFlags {
    if height == 1 { PageFlags::PARENT_OF_LEAF } else { PageFlags::default() }
}

/// Adds a child behind the last of a page with room for it: the one before ends at `low` from now on.
fn append_entry(changes: &mut ChangeSet<'_>, page: PageNumber, child: PageNumber, low: &[u8]) -> Step<()> {
    let view = changes.view(page)?;
    let last = view.node_count() - 1;
    let before = view.child(last);
    changes.insert_node(page, last, low, &before.0.to_le_bytes())?.expect("room was checked");
    changes.replace_data(page, last + 1, &child.0.to_le_bytes())?.expect("the same length fits");
    Ok(())
}
