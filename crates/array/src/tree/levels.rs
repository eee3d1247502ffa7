//! A tree under construction, from left to right: one row of nodes a level.
//!
//! Entries fill node after node. Before an untouched part of the old tree the rows below it end: the last two
//! nodes even out; if there is only one, and it is *thin*, less than a third full, that part is opened and
//! its entries follow ([`Levels::is_thin`]). So nodes that change alone split into halves, rows of nodes that
//! change together are filled completely, and nodes that lose their entries merge with their neighbours. A
//! thin node remains only at the right end of the tree, where later entries fill it.

use super::{
    draft::{ChildDraft, NODE_BLOCKS, NodeDraft},
    reading::contradiction,
    writer::Writer,
};
use crate::{
    error::Result,
    format::{
        BLOCK_BYTES, NodePointer, TreeKind,
        node::{ChildPointer, LEVELS_MAX},
    },
};

const THIN_BYTES: usize = NODE_BLOCKS as usize * BLOCK_BYTES / 3;
/// If the last node of a row has fewer bytes, the full one before it shares its entries.
const UNEVEN_BYTES: usize = NODE_BLOCKS as usize * BLOCK_BYTES * 3 / 4;

/// The nodes of one level that are not placed yet. Invariant: `open` is not empty while there is a `full`
/// one.
struct Row<D> {
    tree: TreeKind,
    level: u8,
    /// The last node that was filled.
    full: Option<D>,
    open: D,
}

/// The reason a row ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A part of the old tree follows.
    Part,
    /// The tree ends.
    Tree,
}

impl<D: NodeDraft> Row<D> {
    fn new(tree: TreeKind, level: u8) -> Self {
        Self { tree, level, full: None, open: D::new(tree, level) }
    }

    /// Adds an entry. Returns the node to place, if the row has one to spare.
    fn push(&mut self, entry: D::Entry<'_>) -> Option<D> {
        if self.open.push(entry).is_ok() {
            return None;
        }
        let mut next = D::new(self.tree, self.level);
        next.push(entry).expect("an empty node has room for an entry");
        let full = std::mem::replace(&mut self.open, next);
        self.full.replace(full)
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn is_thin(&self) -> bool {
        self.full.is_none() && !self.open.is_empty() && self.open.used_bytes() < THIN_BYTES
    }

    /// Takes the last nodes of the row, which is empty then.
    fn close(&mut self, end: End) -> Vec<D> {
        if self.is_empty() {
            return Vec::new();
        }
        let open = std::mem::replace(&mut self.open, D::new(self.tree, self.level));
        match self.full.take() {
            Some(full) if end == End::Part && open.used_bytes() < UNEVEN_BYTES => self.evened(&full, &open),
            full => full.into_iter().chain([open]).collect(),
        }
    }

    /// Distributes the entries of both evenly.
    fn evened(&self, full: &D, open: &D) -> Vec<D> {
        let half = (full.used_bytes() + open.used_bytes()) / 2;
        let mut nodes: Vec<D> = Vec::with_capacity(2);
        let mut share = |entry: D::Entry<'_>| {
            // Two nodes; a third if entries are so large that they do not split evenly.
            let is_half = nodes.len() == 1 && nodes[0].used_bytes() >= half;
            let fits = !is_half && nodes.last_mut().is_some_and(|node| node.push(entry).is_ok());
            if !fits {
                let mut node = D::new(self.tree, self.level);
                node.push(entry).expect("an empty node has room for an entry");
                nodes.push(node);
            }
        };
        full.each(&mut share);
        open.each(&mut share);
        nodes
    }
}

impl Row<ChildDraft> {
    /// The only child of the row, if it has just one.
    fn only(&self) -> Option<ChildPointer> {
        if self.full.is_none() { self.open.only() } else { None }
    }
}

/// A tree under construction.
pub(super) struct Levels<'t, D> {
    tree: TreeKind,
    leaves: Row<D>,
    /// From level 1 on.
    inner: Vec<Row<ChildDraft>>,
    pub writer: Writer<'t>,
}

impl<'t, D: NodeDraft> Levels<'t, D> {
    pub fn new(tree: TreeKind, writer: Writer<'t>) -> Self {
        Self { tree, leaves: Row::new(tree, 0), inner: Vec::new(), writer }
    }

    /// Adds an entry to the leaves, behind all others.
    #[inline]
    pub fn push(&mut self, entry: D::Entry<'_>) -> Result<()> {
        match self.leaves.push(entry) {
            Some(full) => self.place(0, full),
            None => Ok(()),
        }
    }

    /// True if a part of this level should be opened rather than kept: the node before it is thin.
    pub fn is_thin(&self, level: u8) -> bool {
        self.leaves.is_thin() || self.inner.iter().take(level.into()).any(Row::is_thin)
    }

    /// Adds a part of the old tree, behind all others.
    pub fn keep(&mut self, part: ChildPointer) -> Result<()> {
        for level in 0..=part.pointer.level {
            self.close(level, End::Part)?;
        }
        self.adopt(part)
    }

    /// Places all remaining nodes. Returns the root. The tree has as few levels as possible.
    pub fn finish(&mut self) -> Result<Option<NodePointer>> {
        for level in 0..LEVELS_MAX {
            let above = self.inner.get(usize::from(level)..).unwrap_or_default();
            if above.iter().all(Row::is_empty) {
                let only = match level.checked_sub(1) {
                    None if self.leaves.is_empty() => return Ok(None),
                    None => None,
                    Some(index) => self.inner.get(usize::from(index)).and_then(Row::only),
                };
                if let Some(root) = only {
                    return Ok(Some(root.pointer));
                }
            }
            self.close(level, End::Tree)?;
        }
        unreachable!("a tree has a root")
    }

    fn close(&mut self, level: u8, end: End) -> Result<()> {
        if level == 0 {
            for draft in self.leaves.close(end) {
                self.place(0, draft)?;
            }
        } else if let Some(row) = self.inner.get_mut(usize::from(level) - 1) {
            for draft in row.close(end) {
                self.place(level, draft)?;
            }
        }
        Ok(())
    }

    fn place<N: NodeDraft>(&mut self, level: u8, draft: N) -> Result<()> {
        let first = draft.first_key();
        let pointer = self.writer.write(level, draft)?;
        self.adopt(ChildPointer { first, pointer })
    }

    /// Adds a child to the level above its own.
    fn adopt(&mut self, child: ChildPointer) -> Result<()> {
        let level = child.pointer.level + 1;
        if level == LEVELS_MAX {
            // No real tree has so many levels; a forged one may.
            return Err(contradiction(
                self.tree,
                child.pointer,
                "a node above it would be one level too many",
            ));
        }
        while self.inner.len() < usize::from(level) {
            let next = self.inner.len() as u8 + 1;
            self.inner.push(Row::new(self.tree, next));
        }
        match self.inner[usize::from(level) - 1].push(child) {
            Some(full) => self.place(level, full),
            None => Ok(()),
        }
    }
}
