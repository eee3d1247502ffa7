//! Nodes under construction, of all kinds.

use crate::format::{
    NodeKey, NodePointer, RowKey, TreeKind, VersionRun,
    node::{CHILDREN_MAX, CatalogueBuilder, ChildPointer, InnerBuilder, MapBuilder, NodeFull, NodePlace},
};

/// Blocks of a node. Leaves of one block cost a random write least, and an inner node of one has 83 children.
pub(super) const NODE_BLOCKS: u8 = 1;

/// A node under construction: entries are added in ascending order.
pub(super) trait NodeDraft: Sized {
    type Entry<'e>: Copy;

    fn new(tree: TreeKind, level: u8) -> Self;

    /// Adds an entry behind all others; if it does not fit, the node is unchanged.
    fn push(&mut self, entry: Self::Entry<'_>) -> Result<(), NodeFull>;

    fn is_empty(&self) -> bool;

    /// Bytes used, header included.
    fn used_bytes(&self) -> usize;

    /// Key of the first entry.
    fn first_key(&self) -> NodeKey;

    /// Shows all entries, in order.
    fn each(&self, visit: impl FnMut(Self::Entry<'_>));

    /// The node's bytes, and the pointer to it.
    fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer);
}

/// A leaf of head or history.
pub(super) type RunDraft = MapBuilder;

impl NodeDraft for RunDraft {
    type Entry<'e> = VersionRun<'e>;

    fn new(tree: TreeKind, level: u8) -> Self {
        assert_eq!(level, 0, "runs are in leaves");
        MapBuilder::new(tree, NODE_BLOCKS)
    }

    fn push(&mut self, run: VersionRun<'_>) -> Result<(), NodeFull> {
        MapBuilder::push(self, &run)
    }

    fn is_empty(&self) -> bool {
        MapBuilder::is_empty(self)
    }

    fn used_bytes(&self) -> usize {
        MapBuilder::used_bytes(self)
    }

    fn first_key(&self) -> NodeKey {
        self.runs().next().expect("a node holds something").first_key()
    }

    fn each(&self, visit: impl FnMut(VersionRun<'_>)) {
        self.runs().for_each(visit);
    }

    fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        MapBuilder::finish(self, place)
    }
}

/// A leaf of the catalogue.
pub(super) type RowDraft = CatalogueBuilder;

impl NodeDraft for RowDraft {
    type Entry<'e> = (RowKey, &'e [u8]);

    fn new(tree: TreeKind, level: u8) -> Self {
        assert!(tree == TreeKind::Catalogue && level == 0, "rows are in leaves of the catalogue");
        CatalogueBuilder::new(NODE_BLOCKS)
    }

    fn push(&mut self, (key, row): (RowKey, &[u8])) -> Result<(), NodeFull> {
        CatalogueBuilder::push(self, key, row)
    }

    fn is_empty(&self) -> bool {
        CatalogueBuilder::is_empty(self)
    }

    fn used_bytes(&self) -> usize {
        CatalogueBuilder::used_bytes(self)
    }

    fn first_key(&self) -> NodeKey {
        NodeKey::of_row(self.rows().next().expect("a node holds something").0)
    }

    fn each(&self, visit: impl FnMut((RowKey, &[u8]))) {
        self.rows().for_each(visit);
    }

    fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        CatalogueBuilder::finish(self, place)
    }
}

/// An inner node.
pub(super) struct ChildDraft {
    tree: TreeKind,
    level: u8,
    children: Vec<ChildPointer>,
}

impl ChildDraft {
    /// The child, if there is exactly one.
    pub fn only(&self) -> Option<ChildPointer> {
        if let &[child] = &self.children[..] { Some(child) } else { None }
    }
}

impl NodeDraft for ChildDraft {
    type Entry<'e> = ChildPointer;

    fn new(tree: TreeKind, level: u8) -> Self {
        Self { tree, level, children: Vec::new() }
    }

    fn push(&mut self, child: ChildPointer) -> Result<(), NodeFull> {
        if self.children.len() == CHILDREN_MAX {
            return Err(NodeFull);
        }
        self.children.push(child);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    fn used_bytes(&self) -> usize {
        crate::format::BLOCK_BYTES * self.children.len() / CHILDREN_MAX
    }

    fn first_key(&self) -> NodeKey {
        self.children.first().expect("a node holds something").first
    }

    fn each(&self, visit: impl FnMut(ChildPointer)) {
        self.children.iter().copied().for_each(visit);
    }

    fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        let mut builder = InnerBuilder::new(self.tree, self.level, NODE_BLOCKS);
        for child in self.children {
            builder.push(child).expect("as many children as a node has room for");
        }
        builder.finish(place)
    }
}
