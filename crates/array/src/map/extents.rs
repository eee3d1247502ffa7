//! Extents: the newest versions a branch has in memory. Adjacent blocks of one command share an entry.
//!
//! Invariants:
//!
//! 1. Extents do not overlap, and none is empty.
//! 2. Blocks of an extent have one birth, and are adjacent uncompressed blocks of one segment, or zeroes. Any
//!    other version is an extent of one block.
//! 3. A block in a segment has a checksum, kept in one list for all branches of the table; no other block has
//!    one.

use crate::format::{BLOCK_GRAINS, BlockChecksum, BlockIndex, BlockLocation, SegmentGrain, Stamp, Stored};
use crate::tree::BlockVersion;
use std::{collections::BTreeMap, ops::Range};

#[derive(Clone, Copy, Debug)]
struct Extent {
    birth: Stamp,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// Location of the first block, index of its checksum if it has one, and the number of blocks.
    Stored {
        location: BlockLocation,
        checksum_at: u32,
        count: u32,
    },
    Zero {
        count: u64,
    },
}

const _: () = assert!(size_of::<Extent>() == 32, "memory of an entry is counted on");

/// Checksums of all extents of a table. Those of overwritten blocks stay until the table is dropped.
pub(super) type Checksums = Vec<BlockChecksum>;

/// A part of an extent.
#[derive(Clone, Copy, Debug)]
pub struct ExtentPart<'a> {
    pub first: BlockIndex,
    /// At least one.
    pub count: u64,
    /// Stamp of the write.
    pub birth: Stamp,
    /// Location of the first block.
    location: BlockLocation,
    /// One a block, or empty if the location carries none.
    checksums: &'a [BlockChecksum],
}

impl<'a> ExtentPart<'a> {
    /// The first block behind it.
    pub fn end(&self) -> BlockIndex {
        BlockIndex(self.first.0 + self.count)
    }

    pub fn is_zero(&self) -> bool {
        self.location == BlockLocation::Zero
    }

    /// Its blocks with their versions.
    pub fn versions(self) -> impl Iterator<Item = (BlockIndex, BlockVersion)> + use<'a> {
        (0..self.count).map(move |index| {
            let checksum = self.checksums.get(index as usize).copied();
            let version = BlockVersion { birth: self.birth, location: along(self.location, index), checksum };
            (BlockIndex(self.first.0 + index), version)
        })
    }
}

/// Extents of one branch, by first block.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    /// Number of extents.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub fn version(&self, block: u64, checksums: &Checksums) -> Option<BlockVersion> {
        let (&first, extent) = self.0.range(..=block).next_back()?;
        (block < first + extent.count()).then(|| extent.version(block - first, checksums))
    }

    /// Parts of extents within `range`, in order.
    pub fn pieces<'a>(
        &'a self,
        range: Range<u64>,
        checksums: &'a Checksums,
    ) -> impl Iterator<Item = ExtentPart<'a>> {
        let before = self.0.range(..range.start).next_back();
        let within = self.0.range(range.clone());
        before.into_iter().chain(within).filter_map(move |(&first, extent)| {
            let (start, end) = (first.max(range.start), (first + extent.count()).min(range.end));
            (start < end).then(|| extent.from(start - first).piece(start, end - start, checksums))
        })
    }

    /// Sets the newest version of a block. Returns the version it replaces.
    #[inline]
    pub fn replace(
        &mut self,
        block: u64,
        version: BlockVersion,
        checksums: &mut Checksums,
    ) -> Option<BlockVersion> {
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

    /// Adds zeroes. No extent may overlap `range`.
    pub fn put_zeroes(&mut self, range: Range<u64>, birth: Stamp) {
        let before = self.0.range(..range.end).next_back();
        let is_free = before.is_none_or(|(&first, extent)| first + extent.count() <= range.start);
        assert!(is_free && !range.is_empty(), "extents do not overlap, and none is empty");
        let count = range.end - range.start;
        self.0.insert(range.start, Extent { birth, content: Content::Zero { count } });
    }

    /// Removes `range`, which must lie in one extent.
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

    /// Adds a block that no extent covers, by growing the extent before it if possible.
    fn append(&mut self, block: u64, version: BlockVersion, checksums: &mut Checksums) {
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
    fn new(version: BlockVersion, checksums: &mut Checksums) -> Self {
        let BlockVersion { birth, location, checksum } = version;
        let is_direct = matches!(location, BlockLocation::Direct { .. });
        assert_eq!(checksum.is_some(), is_direct, "what lies in a segment has a checksum, and nothing else");
        if location == BlockLocation::Zero {
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

    /// Adds the next block if it continues the extent, and its checksum comes next in the list. Returns false
    /// otherwise.
    #[inline]
    fn grow(&mut self, version: &BlockVersion, checksums: &mut Checksums) -> bool {
        if self.birth != version.birth {
            return false;
        }
        match (&mut self.content, version.location) {
            (Content::Zero { count }, BlockLocation::Zero) => *count += 1,
            (Content::Stored { location, checksum_at, count }, BlockLocation::Direct { stored, .. }) => {
                let is_plain = stored == Stored::PLAIN && matches!(location, BlockLocation::Direct { .. });
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
    fn version(&self, index: u64, checksums: &Checksums) -> BlockVersion {
        match self.content {
            Content::Zero { .. } => BlockVersion::zero(self.birth),
            Content::Stored { location, checksum_at, .. } => {
                let is_direct = matches!(location, BlockLocation::Direct { .. });
                let checksum = is_direct.then(|| checksums[checksum_at as usize + index as usize]);
                BlockVersion { birth: self.birth, location: along(location, index), checksum }
            }
        }
    }

    /// The extent without its first `skipped` blocks.
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

    /// The first `kept` blocks of the extent.
    fn first(self, kept: u64) -> Self {
        let content = match self.content {
            Content::Zero { .. } => Content::Zero { count: kept },
            Content::Stored { location, checksum_at, .. } => {
                Content::Stored { location, checksum_at, count: kept as u32 }
            }
        };
        Self { birth: self.birth, content }
    }

    fn piece(self, first: u64, count: u64, checksums: &Checksums) -> ExtentPart<'_> {
        let (location, checksums) = match self.content {
            Content::Zero { .. } => (BlockLocation::Zero, &[][..]),
            Content::Stored { location: location @ BlockLocation::Direct { .. }, checksum_at, .. } => {
                (location, &checksums[checksum_at as usize..checksum_at as usize + count as usize])
            }
            Content::Stored { location, .. } => (location, &[][..]),
        };
        ExtentPart { first: BlockIndex(first), count, birth: self.birth, location, checksums }
    }
}

/// Location of the block `index` blocks behind the one at `location`.
#[inline]
fn along(location: BlockLocation, index: u64) -> BlockLocation {
    match location {
        BlockLocation::Direct { segment, at, stored } => {
            let at = u64::from(at.0) + index * BLOCK_GRAINS as u64;
            BlockLocation::Direct { segment, at: SegmentGrain(at as u32), stored }
        }
        other => other,
    }
}
