//! Sorted changes with lookahead: a merge knows which parts of a tree they touch before it applies them.

use super::change::Change;
use crate::format::NodeKey;
use std::{collections::VecDeque, iter::Fuse};

/// Most changes held for lookahead. Bounds the RAM, and how far ahead leaves can be read.
const AHEAD_MAX: usize = 1 << 14;

/// Changes in ascending order.
pub(super) struct Changes<I: Iterator> {
    source: Fuse<I>,
    ahead: VecDeque<I::Item>,
    /// Changes taken so far.
    taken: u64,
    last: NodeKey,
}

/// Position of one scan along a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookAhead {
    /// Changes scanned, counted from the first of all.
    seen: u64,
    /// End of the intervals scanned so far.
    reach: Option<NodeKey>,
}

/// Effect of the changes on a part of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// No change touches it.
    None,
    /// At least one touches it.
    Some,
    /// So many touch it that the parts behind cannot be judged before these are applied.
    Many,
    /// Unknown before earlier changes are applied.
    Unknown,
}

impl LookAhead {
    /// Begins at the first change.
    pub fn start() -> Self {
        Self { seen: 0, reach: None }
    }

    /// Extends the reach by that of intervals already taken.
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

    /// Takes the next change, if it is at `key`.
    #[inline]
    pub fn take_of(&mut self, key: NodeKey) -> Option<C> {
        if self.get(0)?.key() != key {
            return None;
        }
        self.taken += 1;
        self.ahead.pop_front()
    }

    /// True if all changes were taken.
    pub fn is_empty(&mut self) -> bool {
        self.get(0).is_none()
    }

    /// A scan from the next change on; intervals already taken end at `reach`.
    pub fn sight(&self, reach: Option<NodeKey>) -> LookAhead {
        LookAhead { seen: self.taken, reach }
    }

    /// Advances to the end of a part of a tree, whose keys begin at `first`. The part gets all changes before
    /// its end that belong to no earlier part.
    pub fn look(&mut self, sight: &mut LookAhead, first: NodeKey, end: Option<NodeKey>) -> Touch {
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

/// A range of keys that a walk has to visit, in the role of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: NodeKey,
    /// The first key behind.
    pub to: NodeKey,
}

impl Span {
    /// All keys.
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
