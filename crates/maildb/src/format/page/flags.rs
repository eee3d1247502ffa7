//! Flags of pages and nodes.

use std::ops::BitOr;

/// Flags of a page: its role in the tree and its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFlags(pub u32);

impl PageFlags {
    /// The root of a tree: tag 0 is a space header, and no key is compressed.
    pub const ROOT: Self = Self(0x1);
    /// Nodes are records.
    pub const LEAF: Self = Self(0x2);
    /// Nodes point at leaves.
    pub const PARENT_OF_LEAF: Self = Self(0x4);
    /// The page is free.
    pub const EMPTY: Self = Self(0x8);
    /// Part of an owned-extents or available-extents tree.
    pub const SPACE_TREE: Self = Self(0x20);
    /// Part of a secondary index.
    pub const INDEX: Self = Self(0x40);
    /// Part of a tree of separated long values.
    pub const LONG_VALUE: Self = Self(0x80);
    /// Keys may repeat.
    pub const NON_UNIQUE: Self = Self(0x400);
    /// Records have the format of Exchange 2000 and later: set on every page.
    pub const NEW_RECORD_FORMAT: Self = Self(0x800);
    /// The checksum is XOR and ECC rather than XOR and page number: set on every page.
    pub const NEW_CHECKSUM: Self = Self(0x2000);

    /// True if all of `others` are set.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These flags without `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for PageFlags {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Flags of a node: three bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFlags(pub u8);

impl NodeFlags {
    /// An ordinary node.
    pub const NONE: Self = Self(0);
    /// Readers may still need an older version of the node.
    pub const VERSIONED: Self = Self(0x1);
    /// The node is deleted and will be removed later.
    pub const DELETED: Self = Self(0x2);
    /// The key starts with part of the page's prefix. Set by the page's own operations only.
    pub const COMPRESSED: Self = Self(0x4);
    /// All defined flags.
    pub(super) const MASK: u8 = 0x7;

    /// True if all of `others` are set.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These flags without `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for NodeFlags {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}
