//! Extents: the newest versions a branch has in memory. Blocks that one command wrote in a row are one entry.
//!
//! Invariants:
//!
//! 1. Extents do not overlap, and none is empty.
//! 2. Blocks of an extent have one birth, and lie one after the other as whole plain blocks, or are zeroes. Anything
//!    else is an extent of one block.
//! 3. A block in a segment has a checksum, which is in the list its table keeps for all branches; no other has one.

use super::Version;
use crate::format::{BLOCK_GRAINS, BlockChecksum, BlockIndex, Location, SegmentGrain, Stamp, Stored};
use std::{collections::BTreeMap, ops::Range};

#[derive(Clone, Copy, Debug)]
struct Extent {
    birth: Stamp,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// Where the first block lies, the index of its checksum if it has one, and how many blocks there are.
    Stored {
        location: Location,
        checksum_at: u32,
        count: u32,
    },
    Zero {
        count: u64,
    },
}

const _: () = assert!(size_of::<Extent>() == 32, "memory of an entry is counted on");

/// Checksums of all extents of a table. What was overwritten stays in it until the table goes.
pub(super) type Checksums = Vec<BlockChecksum>;

/// A part of an extent.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The first block.
    pub first: BlockIndex,
    /// Blocks, at least one.
    pub count: u64,
    /// When they were written.
    pub birth: Stamp,
    /// Where the first one lies.
    location: Location,
    /// Of each block, if such a location has one.
    checksums: &'a [BlockChecksum],
}

impl<'a> Piece<'a> {
    /// The first block behind it.
    pub fn end(&self) -> BlockIndex {
        BlockIndex(self.first.0 + self.count)
    }

    /// Whether it reads as zero.
    pub fn is_zero(&self) -> bool {
        self.location == Location::Zero
    }

    /// Its blocks.
    pub fn versions(self) -> impl Iterator<Item = (BlockIndex, Version)> + use<'a> {
        (0..self.count).map(move |index| {
            let checksum = self.checksums.get(index as usize).copied();
            let version = Version { birth: self.birth, location: along(self.location, index), checksum };
            (BlockIndex(self.first.0 + index), version)
        })
    }
}

/// Extents of one branch, by their first blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The version of a block.
    #[inline]
    pub fn version(&self, block: u64, checksums: &Checksums) -> Option<Version> {
        let (&first, extent) = self.0.range(..=block).next_back()?;
        (block < first + extent.count()).then(|| extent.version(block - first, checksums))
    }

    /// What there is of `range`, in order.
    pub fn pieces<'a>(
        &'a self,
        range: Range<u64>,
        checksums: &'a Checksums,
    ) -> impl Iterator<Item = Piece<'a>> {
        let before = self.0.range(..range.start).next_back();
        let within = self.0.range(range.clone());
        before.into_iter().chain(within).filter_map(move |(&first, extent)| {
            let (start, end) = (first.max(range.start), (first + extent.count()).min(range.end));
            (start < end).then(|| extent.from(start - first).piece(start, end - start, checksums))
        })
    }

    /// Gives a block its newest version; the one it had.
    #[inline]
    pub fn replace(&mut self, block: u64, version: Version, checksums: &mut Checksums) -> Option<Version> {
        let Some((&first, extent)) = self.0.range_mut(..=block).next_back() else {
            self.0.insert(block, Extent::new(version, checksums));
            return None;
        };
        let end = first + extent.count();
        if block < end {
            let old = extent.version(block - first, checksums);
            if end - first == 1 {
                *extent = Extent::new(version, checksums);
            } else {
                self.remove(block..block + 1);
                self.append(block, version, checksums);
            }
            return Some(old);
        }
        if block > end || !extent.grow(&version, checksums) {
            self.0.insert(block, Extent::new(version, checksums));
        }
        None
    }

    /// Adds zeroes where there is nothing.
    pub fn put_zeroes(&mut self, range: Range<u64>, birth: Stamp) {
        let before = self.0.range(..range.end).next_back();
        let is_free = before.is_none_or(|(&first, extent)| first + extent.count() <= range.start);
        assert!(is_free && !range.is_empty(), "extents do not overlap, and none is empty");
        let count = range.end - range.start;
        self.0.insert(range.start, Extent { birth, content: Content::Zero { count } });
    }

    /// Takes out what lies in one extent.
    pub fn remove(&mut self, range: Range<u64>) {
        let (&first, &extent) = self.0.range(..=range.start).next_back().expect("it is there");
        let end = first + extent.count();
        assert!(range.start < range.end && range.end <= end, "part of one extent");
        if first < range.start {
            self.0.insert(first, extent.first(range.start - first));
        } else {
            self.0.remove(&first);
        }
        if range.end < end {
            self.0.insert(range.end, extent.from(range.end - first));
        }
    }

    /// Adds a block where there is nothing, to the extent before if it fits.
    fn append(&mut self, block: u64, version: Version, checksums: &mut Checksums) {
        if let Some((&first, extent)) = self.0.range_mut(..block).next_back() {
            let end = first + extent.count();
            assert!(end <= block, "extents do not overlap");
            if end == block && extent.grow(&version, checksums) {
                return;
            }
        }
        self.0.insert(block, Extent::new(version, checksums));
    }
}

impl Extent {
    #[inline]
    fn new(version: Version, checksums: &mut Checksums) -> Self {
        let Version { birth, location, checksum } = version;
        let is_direct = matches!(location, Location::Direct { .. });
        assert_eq!(checksum.is_some(), is_direct, "what lies in a segment has a checksum, and nothing else");
        if location == Location::Zero {
            return Self { birth, content: Content::Zero { count: 1 } };
        }
        let checksum_at = u32::try_from(checksums.len()).expect("a table is bounded");
        checksums.extend(checksum);
        Self { birth, content: Content::Stored { location, checksum_at, count: 1 } }
    }

    #[inline]
    fn count(&self) -> u64 {
        match self.content {
            Content::Stored { count, .. } => count.into(),
            Content::Zero { count } => count,
        }
    }

    /// Takes in the block behind, if it belongs there, and no other checksum came in between.
    #[inline]
    fn grow(&mut self, version: &Version, checksums: &mut Checksums) -> bool {
        if self.birth != version.birth {
            return false;
        }
        match (&mut self.content, version.location) {
            (Content::Zero { count }, Location::Zero) => *count += 1,
            (Content::Stored { location, checksum_at, count }, Location::Direct { stored, .. }) => {
                let is_plain = stored == Stored::PLAIN && matches!(location, Location::Direct { .. });
                let is_last = *checksum_at as usize + *count as usize == checksums.len();
                if !is_plain || !is_last || along(*location, (*count).into()) != version.location {
                    return false;
                }
                *count += 1;
                checksums.push(version.checksum.expect("what lies in a segment has a checksum"));
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn version(&self, index: u64, checksums: &Checksums) -> Version {
        match self.content {
            Content::Zero { .. } => Version::zero(self.birth),
            Content::Stored { location, checksum_at, .. } => {
                let is_direct = matches!(location, Location::Direct { .. });
                let checksum = is_direct.then(|| checksums[checksum_at as usize + index as usize]);
                Version { birth: self.birth, location: along(location, index), checksum }
            }
        }
    }

    /// All but its first blocks.
    fn from(self, skipped: u64) -> Self {
        let content = match self.content {
            Content::Zero { count } => Content::Zero { count: count - skipped },
            Content::Stored { location, checksum_at, count } => Content::Stored {
                location: along(location, skipped),
                checksum_at: checksum_at + skipped as u32,
                count: count - skipped as u32,
            },
        };
        Self { birth: self.birth, content }
    }

    /// Its first blocks alone.
    fn first(self, kept: u64) -> Self {
        let content = match self.content {
            Content::Zero { .. } => Content::Zero { count: kept },
            Content::Stored { location, checksum_at, .. } => {
                Content::Stored { location, checksum_at, count: kept as u32 }
            }
        };
        Self { birth: self.birth, content }
    }

    fn piece(self, first: u64, count: u64, checksums: &Checksums) -> Piece<'_> {
        let (location, checksums) = match self.content {
            Content::Zero { .. } => (Location::Zero, &[][..]),
            Content::Stored { location: location @ Location::Direct { .. }, checksum_at, .. } => {
                (location, &checksums[checksum_at as usize..checksum_at as usize + count as usize])
            }
            Content::Stored { location, .. } => (location, &[][..]),
        };
        Piece { first: BlockIndex(first), count, birth: self.birth, location, checksums }
    }
}

/// Where the block lies that is `index` blocks behind one at `location`.
#[inline]
fn along(location: Location, index: u64) -> Location {
    match location {
        Location::Direct { segment, at, stored } => {
            let at = u64::from(at.0) + index * BLOCK_GRAINS as u64;
            Location::Direct { segment, at: SegmentGrain(at as u32), stored }
        }
        other => other,
    }
}
