//! What a merge is asked to change, and what it found where it did.

use crate::{
    format::{BlockIndex, BlockKey, BranchNumber, Move, NodeKey, RowKey, Stamp, pivot::pivot_of},
    map::Version,
};

/// A change of the head tree. A merge takes them in ascending order of their first block.
///
/// Of one block there may be several. Those that move it come first, whatever happened in between: a version that is
/// displaced is told with the place it has by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadChange {
    /// The block has this version now.
    Set {
        /// Of which branch.
        branch: BranchNumber,
        /// Which block.
        block: BlockIndex,
        /// What it has. No removal of the same merge that covers it is younger.
        version: Version,
    },
    /// No version of these blocks that was born before `by` is in the tree any more. Intervals may overlap; what is
    /// displaced is so by the first one after its birth.
    Remove {
        /// Of which branch.
        branch: BranchNumber,
        /// The first block.
        first: BlockIndex,
        /// How many, at least one.
        count: u64,
        /// When.
        by: Stamp,
    },
    /// The version lies elsewhere, if it is in the tree and lies where the move says.
    Relocate(Move),
}

/// What a merge of the head tree comes upon, in the order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEvent {
    /// A version is in the tree no more.
    Displaced {
        /// Of which branch.
        branch: BranchNumber,
        /// Of which block.
        block: BlockIndex,
        /// What was there, in the place it has now.
        version: Version,
        /// When its life ended: the birth of what took its place, or the time of the removal.
        by: Stamp,
    },
    /// A move took place.
    Moved(Move),
    /// A move did not: the tree has no such version, or has it elsewhere.
    Missed(Move),
}

/// A change of the history tree. A merge takes them in ascending order of branch, pivot, block; those of one version
/// in the order given. Each says when the life of the version ended, for that decides where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// A version that is not there is there.
    Insert {
        /// Of which branch.
        branch: BranchNumber,
        /// Of which block.
        block: BlockIndex,
        /// The version.
        version: Version,
        /// When its life ended: above its birth.
        death: Stamp,
    },
    /// The version is there no more.
    Remove {
        /// Which.
        key: BlockKey,
        /// When its life ended.
        death: Stamp,
    },
    /// The version lies elsewhere, if it is in the tree and lies where the move says.
    Relocate {
        /// From where to where.
        moved: Move,
        /// When its life ended.
        death: Stamp,
    },
}

/// What a merge of the history tree comes upon, in the order of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// A version is in the tree no more.
    Removed {
        /// Of which branch.
        branch: BranchNumber,
        /// Of which block.
        block: BlockIndex,
        /// What was there, in the place it has now.
        version: Version,
        /// When its life had ended.
        death: Stamp,
    },
    /// A version that was to be removed is not there.
    Absent(BlockKey),
    /// A move took place.
    Moved(Move),
    /// A move did not: the tree has no such version, or has it elsewhere.
    Missed(Move),
}

/// A row put, or with none removed. A merge takes them in ascending order; of one row the last counts.
pub type RowChange = (RowKey, Option<Vec<u8>>);

/// What every change has.
pub(super) trait Change {
    /// The first key it concerns.
    fn key(&self) -> NodeKey;

    /// Of one that concerns an interval: the first key behind it.
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
    /// Of which version, and when its life ended.
    pub fn life(&self) -> (BlockKey, Stamp) {
        match *self {
            Self::Insert { branch, block, version, death } => (version.key(branch, block), death),
            Self::Remove { key, death } | Self::Relocate { moved: Move { key, .. }, death } => (key, death),
        }
    }

    /// Where in the tree: changes ascend by it.
    pub fn node_key(&self) -> NodeKey {
        self.key()
    }
}

impl Change for RowChange {
    fn key(&self) -> NodeKey {
        NodeKey::of_row(self.0)
    }
}
