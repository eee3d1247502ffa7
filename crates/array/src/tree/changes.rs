//! Sorted changes, seen some way ahead: which parts of a tree they touch is known before they are made.

use super::change::Change;
use crate::format::NodeKey;
use std::{collections::VecDeque, iter::Fuse};

/// Changes looked at before they are made, at most: it bounds the RAM, and how far ahead leaves can be read.
const AHEAD_MAX: usize = 1 << 14;

/// Changes in ascending order.
pub(super) struct Changes<I: Iterator> {
    source: Fuse<I>,
    ahead: VecDeque<I::Item>,
    /// How many were taken.
    taken: u64,
    last: NodeKey,
}

/// How far one look along a tree has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Changes it has seen, counted from the first of all.
    seen: u64,
    /// Below this key, intervals it has seen go on.
    reach: Option<NodeKey>,
}

/// Whether changes touch a part of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// None does.
    None,
    /// Some do.
    Some,
    /// Some do, and what is behind it cannot be said before they are made.
    Many,
    /// It cannot be said before earlier ones are made.
    Unknown,
}

impl Sight {
    /// From the first change on.
    pub fn start() -> Self {
        Self { seen: 0, reach: None }
    }

    /// Intervals already taken go on below `reach`.
    pub fn reach_to(&mut self, reach: Option<NodeKey>) {
        self.reach = self.reach.max(reach);
    }
}

impl<C: Change, I: Iterator<Item = C>> Changes<I> {
    pub fn new(source: impl IntoIterator<IntoIter = I>) -> Self {
        let source = source.into_iter().fuse();
        Self { source, ahead: VecDeque::new(), taken: 0, last: NodeKey::FIRST }
    }

    /// Key of the next change, if it is below `end`.
    #[inline]
    pub fn next_below(&mut self, end: Option<NodeKey>) -> Option<NodeKey> {
        let key = self.get(0)?.key();
        end.is_none_or(|end| key < end).then_some(key)
    }

    /// The next change, if it is of `key`.
    #[inline]
    pub fn take_of(&mut self, key: NodeKey) -> Option<C> {
        if self.get(0)?.key() != key {
            return None;
        }
        self.taken += 1;
        self.ahead.pop_front()
    }

    /// Whether all were taken.
    pub fn is_empty(&mut self) -> bool {
        self.get(0).is_none()
    }

    /// A look along a tree from the next change on; below `reach`, intervals already taken go on.
    pub fn sight(&self, reach: Option<NodeKey>) -> Sight {
        Sight { seen: self.taken, reach }
    }

    /// Moves on to the end of a part of a tree, which has keys from `first` on. It gets all changes that come before
    /// its end and belong to no part before.
    pub fn look(&mut self, sight: &mut Sight, first: NodeKey, end: Option<NodeKey>) -> Touch {
        let mut touch = match sight.reach {
            Some(reach) if reach > first => Touch::Some,
            _ => Touch::None,
        };
        loop {
            let index = sight.seen.saturating_sub(self.taken) as usize;
            if index >= AHEAD_MAX {
                return if touch == Touch::Some { Touch::Many } else { Touch::Unknown };
            }
            let Some(change) = self.get(index) else { return touch };
            if end.is_some_and(|end| change.key() >= end) {
                return touch;
            }
            touch = Touch::Some;
            sight.reach = sight.reach.max(change.reach());
            sight.seen = self.taken + index as u64 + 1;
        }
    }

    #[inline]
    fn get(&mut self, index: usize) -> Option<&C> {
        while self.ahead.len() <= index {
            let change = self.source.next()?;
            let key = change.key();
            assert!(self.last <= key, "changes ascend");
            self.last = key;
            self.ahead.push_back(change);
        }
        self.ahead.get(index)
    }
}

/// Keys that a walk is to come by. Not a change, but seen as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: NodeKey,
    /// The first key behind.
    pub to: NodeKey,
}

impl Span {
    /// All there are.
    pub const ALL: Self =
        Self { from: NodeKey::FIRST, to: NodeKey { major: u32::MAX, id: u64::MAX, minor: u64::MAX } };
}

impl Change for Span {
    fn key(&self) -> NodeKey {
        self.from
    }

    fn reach(&self) -> Option<NodeKey> {
        Some(self.to)
    }
}
