//! A cursor over the leaves of a span of keys that may have recent versions. A subtree is skipped if the
//! pointer to it says that no version below it is young enough.

use super::{
    Trees,
    changes::Span,
    lookup::map_leaf,
    reading::{Leaf, contradiction},
};
use crate::{
    error::Result,
    format::{NodeKey, NodePointer, SegmentBlock, SegmentNumber, Stamp, TreeKind, TreeNode},
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use world::LocalFuture;

/// Leaves that a cursor reads at a time.
const LEAVES_AHEAD: usize = 16;

/// Nodes that the cursors of one walk have visited: each is read once.
#[derive(Default)]
pub(super) struct VisitedNodes(BTreeMap<(SegmentNumber, SegmentBlock), Rc<[u8]>>);

impl VisitedNodes {
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn get(&self, pointer: &NodePointer) -> Option<Rc<[u8]>> {
        self.0.get(&(pointer.segment, pointer.block)).cloned()
    }

    fn add(&mut self, pointer: &NodePointer, bytes: &Rc<[u8]>) {
        self.0.insert((pointer.segment, pointer.block), Rc::clone(bytes));
    }
}

/// A cursor over leaves, in order.
pub(super) struct RecentLeaves<'t> {
    trees: &'t Trees,
    tree: TreeKind,
    span: Span,
    /// Leaves without a version born later are skipped.
    after: Stamp,
    /// The root; none once it was entered.
    root: Option<NodePointer>,
    /// Inner nodes on the path to the current position, the root first.
    frames: Vec<Frame>,
}

struct Frame {
    node: Rc<[u8]>,
    end: Option<NodeKey>,
    /// Index of the next child to examine.
    next: usize,
    /// Children that will be entered, and their bytes unless they are being read.
    planned: VecDeque<(NodeStep, Option<Rc<[u8]>>)>,
    reads: FuturesOrdered<LocalFuture<Result<Rc<[u8]>>>>,
}

/// A node to enter, with its first key and the first one behind it.
#[derive(Clone, Copy)]
struct NodeStep {
    pointer: NodePointer,
    first: Option<NodeKey>,
    end: Option<NodeKey>,
}

impl<'t> RecentLeaves<'t> {
    pub fn new(
        trees: &'t Trees,
        (tree, root): (TreeKind, Option<NodePointer>),
        span: Span,
        after: Stamp,
    ) -> Self {
        let root = root.filter(|root| root.stamp_max > after && span.from < span.to);
        Self { trees, tree, span, after, root, frames: Vec::new() }
    }

    /// The next leaf that overlaps the span and may have a version that is young enough.
    pub async fn next(&mut self, visited: &mut VisitedNodes) -> Result<Option<Leaf>> {
        if let Some(pointer) = self.root.take() {
            let root = NodeStep { pointer, first: None, end: None };
            let bytes = self.read(root, visited).await?;
            if let Some(leaf) = self.enter(root, bytes, visited)? {
                return Ok(Some(leaf));
            }
        }
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(None) };
            frame.plan(self.trees, &self.span, self.after, visited);
            let Some((step, bytes)) = frame.planned.pop_front() else {
                self.frames.pop();
                continue;
            };
            let bytes = match bytes {
                Some(bytes) => bytes,
                None if step.pointer.level > 0 => self.read(step, visited).await?,
                None => {
                    let read = frame.reads.next().await.expect("a read is under way for each planned leaf");
                    self.trees.accept(self.tree, step.pointer, step.first, read?)?
                }
            };
            if let Some(leaf) = self.enter(step, bytes, visited)? {
                return Ok(Some(leaf));
            }
        }
    }

    /// Reads an inner node, or a root, through the cache: another walk will need it, too.
    async fn read(&self, step: NodeStep, visited: &VisitedNodes) -> Result<Rc<[u8]>> {
        let NodeStep { pointer, first, .. } = step;
        if let Some(bytes) = visited.get(&pointer).or_else(|| self.trees.cache.get(&pointer)) {
            return Ok(bytes);
        }
        let bytes = self.trees.accept(self.tree, pointer, first, self.trees.store.read(pointer).await?)?;
        self.trees.cache.insert(pointer, Rc::clone(&bytes));
        Ok(bytes)
    }

    fn enter(&mut self, step: NodeStep, bytes: Rc<[u8]>, visited: &mut VisitedNodes) -> Result<Option<Leaf>> {
        let node = TreeNode::again(&bytes);
        if step.end.is_some_and(|end| node.last_key() >= end) {
            let what = "it goes on beyond the node behind it";
            return Err(contradiction(self.tree, step.pointer, what));
        }
        visited.add(&step.pointer, &bytes);
        if !matches!(node, TreeNode::Inner(_)) {
            map_leaf(&bytes);
            return Ok(Some(Leaf { bytes, end: step.end }));
        }
        let (planned, reads) = (VecDeque::new(), FuturesOrdered::new());
        self.frames.push(Frame { node: bytes, end: step.end, next: 0, planned, reads });
        Ok(None)
    }
}

impl Frame {
    /// Finds children to enter, and begins to read those that are leaves.
    fn plan(&mut self, trees: &Trees, span: &Span, after: Stamp, visited: &VisitedNodes) {
        let TreeNode::Inner(inner) = TreeNode::again(&self.node) else {
            unreachable!("frames are of inner nodes")
        };
        if self.next == 0 {
            self.next = inner.index_for(span.from);
        }
        while self.next < inner.len() && self.planned.len() < LEAVES_AHEAD {
            let (child, end) = (inner.child(self.next), inner.end_of(self.next, self.end));
            if child.first >= span.to {
                self.next = inner.len();
                break;
            }
            self.next += 1;
            let pointer = child.pointer;
            if pointer.stamp_max <= after || end.is_some_and(|end| end <= span.from) {
                continue;
            }
            let known = visited.get(&pointer).or_else(|| trees.cache.peek(&pointer));
            if known.is_none() && pointer.level == 0 {
                self.reads.push_back(trees.store.read(pointer));
            }
            self.planned.push_back((NodeStep { pointer, first: Some(child.first), end }, known));
        }
    }
}
