//! A walk along a tree, from left to right: into what changes touch, and past everything else.
//!
//! Children that will be entered are read ahead, several at a time. What is entered is checked against its neighbours:
//! whoever walks sees keys ascend from leaf to leaf.

use super::{
    Trees,
    change::Change,
    changes::{Changes, Sight, Touch},
    reading::{Leaf, contradiction},
};
use crate::{
    error::Result,
    format::{
        Node, NodeKey, NodePointer, Tree,
        node::{Child, InnerNode},
    },
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use std::{collections::VecDeque, rc::Rc};
use world::LocalFuture;

/// Leaves of which reads are under way at most, and nodes above them.
const LEAVES_AHEAD: usize = 32;
const INNER_AHEAD: usize = 4;

/// What a walk comes by.
pub(super) enum Step {
    /// A part of the tree that nothing touches.
    Untouched(Part),
    /// A leaf that something touches.
    Leaf(Leaf),
}

/// A child, and the first key behind it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub child: Child,
    pub end: Option<NodeKey>,
}

/// The walk.
pub(super) struct Walker<'t> {
    trees: &'t Trees,
    tree: Tree,
    /// Inner nodes that were entered and not yet left, the root first.
    frames: Vec<Frame>,
    /// All nodes that were entered.
    entered: Vec<NodePointer>,
    uses_cache: bool,
}

struct Frame {
    node: Rc<[u8]>,
    end: Option<NodeKey>,
    /// The next child to be looked at.
    next: usize,
    sight: Sight,
    /// It is not known how to go on before all that is planned is done.
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
    pub fn new(trees: &'t Trees, tree: Tree) -> Self {
        Self { trees, tree, frames: Vec::new(), entered: Vec::new(), uses_cache: true }
    }

    /// One that reads everything from where it lies.
    pub fn past_cache(trees: &'t Trees, tree: Tree) -> Self {
        Self { uses_cache: false, ..Self::new(trees, tree) }
    }

    /// Enters a tree; gives its root, if that is a leaf.
    pub async fn enter_root(&mut self, root: NodePointer) -> Result<Option<Step>> {
        assert!(self.frames.is_empty() && self.entered.is_empty(), "a walk begins once");
        let bytes = self.read(root, None).await?;
        let sight = Sight::start();
        Ok(self.enter(root, bytes, None, sight)?.map(Step::Leaf))
    }

    /// Enters a part that nothing touches, which was come by just now; gives it, if it is a leaf.
    pub async fn enter_part(&mut self, part: Part, sight: Sight) -> Result<Option<Leaf>> {
        let bytes = self.read(part.child.pointer, Some(part.child.first)).await?;
        self.enter(part.child.pointer, bytes, part.end, sight)
    }

    /// The next step; none at the end. Below `reach`, intervals of changes already taken go on.
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

    /// Nodes that were entered since this was asked last, in the order of the walk.
    pub fn take_entered(&mut self) -> Vec<NodePointer> {
        std::mem::take(&mut self.entered)
    }

    fn enter(
        &mut self,
        pointer: NodePointer,
        bytes: Rc<[u8]>,
        end: Option<NodeKey>,
        sight: Sight,
    ) -> Result<Option<Leaf>> {
        let node = Node::again(&bytes);
        if end.is_some_and(|end| node.last_key() >= end) {
            return Err(contradiction(self.tree, pointer, "it goes on beyond the node behind it"));
        }
        self.entered.push(pointer);
        if !matches!(node, Node::Inner(_)) {
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
        let cached = if self.uses_cache { self.trees.cache.peek(&pointer) } else { None };
        match cached {
            Some(bytes) => Ok(bytes),
            None => self.trees.accept(self.tree, pointer, first, self.trees.store.read(pointer).await?),
        }
    }
}

impl Frame {
    /// Looks ahead, and begins to read what will be entered.
    fn plan<C: Change, I: Iterator<Item = C>>(
        &mut self,
        trees: &Trees,
        changes: &mut Changes<I>,
        uses_cache: bool,
    ) {
        if self.planned.is_empty() {
            self.is_blind = false;
        }
        let Node::Inner(inner) = Node::again(&self.node) else { unreachable!("frames are of inner nodes") };
        let ahead = if inner.child(0).pointer.level == 0 { LEAVES_AHEAD } else { INNER_AHEAD };
        while self.next < inner.len() && self.reads.len() < ahead && !self.is_blind {
            let part = part_of(&inner, self.next, self.end);
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

fn part_of(inner: &InnerNode, index: usize, end: Option<NodeKey>) -> Part {
    let is_last = index + 1 == inner.len();
    Part { child: inner.child(index), end: if is_last { end } else { Some(inner.child(index + 1).first) } }
}
