//! A walk along a tree, from left to right, that enters the parts changes touch and skips all others.
//!
//! Children that will be entered are read ahead, several at a time. Each node is checked against its
//! neighbours, so keys ascend from leaf to leaf.

use super::{
    Trees,
    change::Change,
    changes::{Changes, LookAhead, Touch},
    reading::{Leaf, contradiction},
};
use crate::{
    error::Result,
    format::{NodeKey, NodePointer, TreeKind, TreeNode, node::ChildPointer},
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use std::{collections::VecDeque, rc::Rc};
use world::LocalFuture;

/// Most leaves, and most inner nodes, being read at a time.
const LEAVES_AHEAD: usize = 32;
const INNER_AHEAD: usize = 4;

/// A step of a walk.
pub(super) enum Step {
    /// A part of the tree that no change touches.
    Untouched(Part),
    /// A leaf that a change touches.
    Leaf(Leaf),
}

/// A child, and the first key behind it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub child: ChildPointer,
    pub end: Option<NodeKey>,
}

pub(super) struct Walker<'t> {
    trees: &'t Trees,
    tree: TreeKind,
    /// Inner nodes on the path to the current position, the root first.
    frames: Vec<Frame>,
    /// All nodes that were entered.
    entered: Vec<NodePointer>,
    uses_cache: bool,
}

struct Frame {
    node: Rc<[u8]>,
    end: Option<NodeKey>,
    /// Index of the next child to examine.
    next: usize,
    sight: LookAhead,
    /// The next child can be judged only after all planned steps are done.
    is_blind: bool,
    planned: VecDeque<(Part, Plan)>,
    reads: FuturesOrdered<LocalFuture<Result<Rc<[u8]>>>>,
}

enum Plan {
    Pass,
    /// To be entered; the bytes were cached.
    Enter(Rc<[u8]>),
    /// To be entered; its bytes are the next of the reads.
    Await,
}

impl<'t> Walker<'t> {
    pub fn new(trees: &'t Trees, tree: TreeKind) -> Self {
        Self { trees, tree, frames: Vec::new(), entered: Vec::new(), uses_cache: true }
    }

    /// A walk that reads every node from the store.
    pub fn past_cache(trees: &'t Trees, tree: TreeKind) -> Self {
        Self { uses_cache: false, ..Self::new(trees, tree) }
    }

    /// Enters a tree. Returns its root, if that is a leaf.
    pub async fn enter_root(&mut self, root: NodePointer) -> Result<Option<Step>> {
        assert!(self.frames.is_empty() && self.entered.is_empty(), "a walk begins once");
        let bytes = self.read(root, None).await?;
        let sight = LookAhead::start();
        Ok(self.enter(root, bytes, None, sight)?.map(Step::Leaf))
    }

    /// Enters the untouched part of the last step. Returns it, if it is a leaf.
    pub async fn enter_part(&mut self, part: Part, sight: LookAhead) -> Result<Option<Leaf>> {
        let bytes = self.read(part.child.pointer, Some(part.child.first)).await?;
        self.enter(part.child.pointer, bytes, part.end, sight)
    }

    /// The next step; none at the end. Intervals of changes already taken end at `reach`.
    pub async fn next<C: Change, I: Iterator<Item = C>>(
        &mut self,
        changes: &mut Changes<I>,
        reach: Option<NodeKey>,
    ) -> Result<Option<Step>> {
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(None) };
            frame.sight.reach_to(reach);
            frame.plan(self.trees, changes, self.uses_cache);
            let Some((part, plan)) = frame.planned.pop_front() else {
                self.frames.pop();
                continue;
            };
            let pointer = part.child.pointer;
            let bytes = match plan {
                Plan::Pass => return Ok(Some(Step::Untouched(part))),
                Plan::Enter(bytes) => bytes,
                Plan::Await => {
                    let read =
                        frame.reads.next().await.expect("a read is under way for each that is awaited");
                    self.trees.accept(self.tree, pointer, Some(part.child.first), read?)?
                }
            };
            let sight = changes.sight(reach);
            if let Some(leaf) = self.enter(pointer, bytes, part.end, sight)? {
                return Ok(Some(Step::Leaf(leaf)));
            }
        }
    }

    /// Nodes entered since the last call, in the order of the walk.
    pub fn take_entered(&mut self) -> Vec<NodePointer> {
        std::mem::take(&mut self.entered)
    }

    fn enter(
        &mut self,
        pointer: NodePointer,
        bytes: Rc<[u8]>,
        end: Option<NodeKey>,
        sight: LookAhead,
    ) -> Result<Option<Leaf>> {
        let node = TreeNode::again(&bytes);
        if end.is_some_and(|end| node.last_key() >= end) {
            return Err(contradiction(self.tree, pointer, "it goes on beyond the node behind it"));
        }
        self.entered.push(pointer);
        if !matches!(node, TreeNode::Inner(_)) {
            return Ok(Some(Leaf { bytes, end }));
        }
        self.frames.push(Frame {
            node: bytes,
            end,
            next: 0,
            sight,
            is_blind: false,
            planned: VecDeque::new(),
            reads: FuturesOrdered::new(),
        });
        Ok(None)
    }

    async fn read(&self, pointer: NodePointer, first: Option<NodeKey>) -> Result<Rc<[u8]>> {
        if self.uses_cache {
            return self.trees.read_aside(self.tree, pointer, first).await;
        }
        self.trees.accept(self.tree, pointer, first, self.trees.store.read(pointer).await?)
    }
}

impl Frame {
    /// Looks ahead, and begins to read the nodes that will be entered.
    fn plan<C: Change, I: Iterator<Item = C>>(
        &mut self,
        trees: &Trees,
        changes: &mut Changes<I>,
        uses_cache: bool,
    ) {
        if self.planned.is_empty() {
            self.is_blind = false;
        }
        let TreeNode::Inner(inner) = TreeNode::again(&self.node) else {
            unreachable!("frames are of inner nodes")
        };
        let ahead = if inner.child(0).pointer.level == 0 { LEAVES_AHEAD } else { INNER_AHEAD };
        while self.next < inner.len() && self.reads.len() < ahead && !self.is_blind {
            let part = Part { child: inner.child(self.next), end: inner.end_of(self.next, self.end) };
            let touch = changes.look(&mut self.sight, part.child.first, part.end);
            self.is_blind = matches!(touch, Touch::Many | Touch::Unknown);
            assert!(touch != Touch::Unknown || !self.planned.is_empty(), "all earlier changes were made");
            let plan = match touch {
                Touch::Unknown => return,
                Touch::None => Plan::Pass,
                Touch::Some | Touch::Many => {
                    let pointer = part.child.pointer;
                    let cached = if uses_cache { trees.cache.peek(&pointer) } else { None };
                    cached.map_or_else(
                        || {
                            self.reads.push_back(trees.store.read(pointer));
                            Plan::Await
                        },
                        Plan::Enter,
                    )
                }
            };
            self.planned.push_back((part, plan));
            self.next += 1;
        }
    }
}
