//! Input and output of merges: changes of each tree, and the events they cause.

use super::BlockVersion;
use crate::format::{BlockIndex, BlockKey, BranchNumber, Move, NodeKey, RowKey, Stamp, pivot::pivot_of};

/// A change of the head tree. A merge takes them in ascending order of their first block.
///
/// Changes of one block: moves come first, whatever the order in which things happened, so a superseded
/// version is reported at its last location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadChange {
    /// Sets the version of a block.
    Set {
        branch: BranchNumber,
        block: BlockIndex,
        /// No removal of the same merge that covers the block may be younger.
        version: BlockVersion,
    },
    /// Removes versions of these blocks born before `by`. Intervals may overlap; the first removal after its
    /// birth supersedes a version.
    Remove {
        branch: BranchNumber,
        first: BlockIndex,
        /// At least one.
        count: u64,
        /// Stamp of the removal.
        by: Stamp,
    },
    /// Changes the location of a version, if the tree has it where the move begins.
    Relocate(Move),
}

/// An event of a merge of the head tree; events come in the order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEvent {
    /// A version was removed from the tree.
    Superseded {
        branch: BranchNumber,
        block: BlockIndex,
        /// The version at its last location.
        version: BlockVersion,
        /// End of its lifetime: the birth of its successor, or the stamp of the removal.
        by: Stamp,
    },
    Moved(Move),
    /// A move did not apply: the tree does not have the version at that location.
    Missed(Move),
}

/// A change of the history tree. A merge takes them in ascending order of branch, pivot, block; those of one
/// version apply in the order given. Each names the death of the version, which determines its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// Adds a version that the tree does not have.
    Insert {
        branch: BranchNumber,
        block: BlockIndex,
        version: BlockVersion,
        /// End of its lifetime: above its birth.
        death: Stamp,
    },
    /// Removes a version.
    Remove {
        key: BlockKey,
        /// End of its lifetime.
        death: Stamp,
    },
    /// Changes the location of a version, if the tree has it where the move begins.
    Relocate {
        moved: Move,
        /// End of its lifetime.
        death: Stamp,
    },
}

/// An event of a merge of the history tree; events come in the order of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// A version was removed from the tree.
    Removed {
        branch: BranchNumber,
        block: BlockIndex,
        /// The version at its last location.
        version: BlockVersion,
        /// End of its lifetime.
        death: Stamp,
    },
    /// A version to be removed was not in the tree.
    Absent(BlockKey),
    Moved(Move),
    /// A move did not apply: the tree does not have the version at that location.
    Missed(Move),
}

/// Row to insert or replace, or none to delete it. A merge takes them in ascending order; the last one for a
/// row wins.
pub type RowChange = (RowKey, Option<Vec<u8>>);

pub(super) trait Change {
    /// The first key the change affects.
    fn key(&self) -> NodeKey;

    /// For a change of an interval: the first key behind it.
    fn reach(&self) -> Option<NodeKey> {
        None
    }
}

impl Change for HeadChange {
    fn key(&self) -> NodeKey {
        match self {
            Self::Set { branch, block, .. } => NodeKey::of_block(*branch, *block),
            Self::Remove { branch, first, .. } => NodeKey::of_block(*branch, *first),
            Self::Relocate(moved) => NodeKey::of_block(moved.key.branch, moved.key.block),
        }
    }

    fn reach(&self) -> Option<NodeKey> {
        let &Self::Remove { branch, first, count, .. } = self else { return None };
        Some(NodeKey::of_block(branch, BlockIndex(first.0.saturating_add(count))))
    }
}

impl Change for HistoryChange {
    fn key(&self) -> NodeKey {
        let (key, death) = self.life();
        NodeKey::of_pivot(key.branch, pivot_of(key.stamp, death), key.block)
    }
}

impl HistoryChange {
    /// Key and death of the version.
    pub fn life(&self) -> (BlockKey, Stamp) {
        match *self {
            Self::Insert { branch, block, version, death } => (version.key(branch, block), death),
            Self::Remove { key, death } | Self::Relocate { moved: Move { key, .. }, death } => (key, death),
        }
    }

    /// Position in the tree: changes ascend by it.
    pub fn node_key(&self) -> NodeKey {
        self.key()
    }
}

impl Change for RowChange {
    fn key(&self) -> NodeKey {
        NodeKey::of_row(self.0)
    }
}
