//! Space management: ownership of pages.
//!
//! A tree with its own space has two trees beside it: *owned extents* (OE), the runs of pages that belong to
//! it and to the trees below it, and *available extents* (AE), those of them that are free. An extent is one
//! node: its key ends in the last page, big-endian, so that the extent containing a page is the first at or
//! after it; its data is the number of pages. The database itself is such a tree, with root page 1, and owns
//! the whole file.

use thiserror::Error;

use super::page_size::PageNumber;

/// Bytes of the space header in tag 0 of a tree's root, and of the split buffer in that of an OE or AE root.
pub const SPACE_HEADER_BYTES: usize = 16;
/// Distance from a tree's root to its OE root, in trees made by this engine; the AE root always follows the
/// OE root.
pub const OWNED_ROOT_DISTANCE: u32 = 1;
/// Distance from a tree's root to its AE root.
pub const AVAILABLE_ROOT_DISTANCE: u32 = 2;

/// Flag: the tree has OE and AE trees.
const FLAG_MULTIPLE_EXTENTS: u32 = 1;
/// Flag: keys of the tree may repeat.
const FLAG_NON_UNIQUE: u32 = 2;

/// The space header, in tag 0 of the root of every tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceHeader {
    /// Pages of the tree's first extent.
    pub primary_pages: u32,
    /// Root of the tree that this one was allocated from; `None` for the database.
    pub parent: Option<PageNumber>,
    /// True if keys may repeat.
    pub non_unique: bool,
    pub space: SpaceLayout,
}

/// Storage of a tree's free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLayout {
    /// In OE and AE trees. The AE root is the page after the OE root.
    Multiple {
        /// Root of the owned extents.
        owned_root: PageNumber,
    },
    /// In the header: bit k is set if page root + 1 + k is free.
    Single { free: u32 },
}

/// Reasons why bytes are not a space header, split buffer or extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpaceError {
    /// The length is not 16 bytes.
    #[error("a space header of {bytes} bytes")]
    HeaderLength { bytes: usize },
    /// Unknown flags, or a tree without an OE root.
    #[error("space flags 0x{flags:X} with root {owned_root}")]
    Header {
        flags: u32,
        /// The OE root or the free bits.
        owned_root: u32,
    },
    /// Key or data of an extent have the wrong length, or the extent ends before it starts.
    #[error("an impossible extent")]
    Extent,
}

impl SpaceHeader {
    /// Encodes the header for tag 0.
    pub fn encode(&self) -> [u8; SPACE_HEADER_BYTES] {
        let (space_flag, last) = match self.space {
            SpaceLayout::Multiple { owned_root } => (FLAG_MULTIPLE_EXTENTS, owned_root.0),
            SpaceLayout::Single { free } => (0, free),
        };
        let flags = space_flag | if self.non_unique { FLAG_NON_UNIQUE } else { 0 };
        encode_words([self.primary_pages, PageNumber::to_field(self.parent), flags, last])
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, SpaceError> {
        let [primary_pages, parent, flags, last] = decode_words(bytes)?;
        let space = match flags & FLAG_MULTIPLE_EXTENTS {
            0 => SpaceLayout::Single { free: last },
            _ if last == 0 => return Err(SpaceError::Header { flags, owned_root: last }),
            _ => SpaceLayout::Multiple { owned_root: PageNumber(last) },
        };
        if flags & !(FLAG_MULTIPLE_EXTENTS | FLAG_NON_UNIQUE) != 0 {
            return Err(SpaceError::Header { flags, owned_root: last });
        }
        let non_unique = flags & FLAG_NON_UNIQUE != 0;
        Ok(Self { primary_pages, parent: PageNumber::from_field(parent), non_unique, space })
    }
}

/// Pages reserved so that splitting an OE or AE tree never allocates from the trees being split: in tag 0 of
/// their roots. Two runs, each named by its last page; all zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitBuffer {
    pub runs: [BufferRun; 2],
}

/// A run of reserved pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferRun {
    pub pages: u32,
    /// Last page; 0 if none.
    pub last: PageNumber,
}

impl SplitBuffer {
    /// Encodes the buffer for tag 0.
    pub fn encode(&self) -> [u8; SPACE_HEADER_BYTES] {
        let [one, two] = self.runs;
        encode_words([one.pages, two.pages, one.last.0, two.last.0])
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, SpaceError> {
        let [pages_one, pages_two, last_one, last_two] = decode_words(bytes)?;
        Ok(Self {
            runs: [
                BufferRun { pages: pages_one, last: PageNumber(last_one) },
                BufferRun { pages: pages_two, last: PageNumber(last_two) },
            ],
        })
    }
}

/// A run of pages: one node of an OE or AE tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentNode {
    pub last: PageNumber,
    /// Number of pages, at least one.
    pub pages: u32,
}

impl ExtentNode {
    /// The extent of `pages` pages that starts at `first`.
    pub fn starting_at(first: PageNumber, pages: u32) -> Self {
        assert!(pages > 0 && first.0 > 0);
        Self { last: PageNumber(first.0 + (pages - 1)), pages }
    }

    pub fn first(self) -> PageNumber {
        PageNumber(self.last.0 - (self.pages - 1))
    }

    pub fn contains(self, page: PageNumber) -> bool {
        self.first() <= page && page <= self.last
    }

    pub fn key(self) -> [u8; 4] {
        Self::key_for(self.last)
    }

    /// The key of an extent that ends at `last`. A search from it finds the extent that contains the page.
    pub fn key_for(last: PageNumber) -> [u8; 4] {
        last.0.to_be_bytes()
    }

    pub fn data(self) -> [u8; 4] {
        self.pages.to_le_bytes()
    }

    /// Decodes a node's key and data.
    pub fn decode(key: &[u8], data: &[u8]) -> Result<Self, SpaceError> {
        let last = key.try_into().map(u32::from_be_bytes).map_err(|_| SpaceError::Extent)?;
        let pages = data.try_into().map(u32::from_le_bytes).map_err(|_| SpaceError::Extent)?;
        if pages == 0 || pages > last {
            return Err(SpaceError::Extent);
        }
        Ok(Self { last: PageNumber(last), pages })
    }
}

fn encode_words(words: [u32; 4]) -> [u8; SPACE_HEADER_BYTES] {
    let mut bytes = [0; SPACE_HEADER_BYTES];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

fn decode_words(bytes: &[u8]) -> Result<[u32; 4], SpaceError> {
    let bytes: &[u8; SPACE_HEADER_BYTES] =
        bytes.try_into().map_err(|_| SpaceError::HeaderLength { bytes: bytes.len() })?;
    Ok(std::array::from_fn(|i| u32::from_le_bytes(*bytes[4 * i..].first_chunk().expect("16 bytes"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_headers_survive_a_round_trip() {
        let multiple = SpaceHeader {
            primary_pages: 20,
            parent: Some(PageNumber(1)),
            non_unique: false,
            space: SpaceLayout::Multiple { owned_root: PageNumber(5) },
        };
        assert_eq!(multiple.encode(), *b"\x14\0\0\0\x01\0\0\0\x01\0\0\0\x05\0\0\0");
        let single = SpaceHeader {
            parent: None,
            non_unique: true,
            space: SpaceLayout::Single { free: 6 },
            ..multiple
        };
        for header in [multiple, single] {
            assert_eq!(SpaceHeader::decode(&header.encode()), Ok(header));
        }
        assert_eq!(SpaceHeader::decode(&[0; 15]), Err(SpaceError::HeaderLength { bytes: 15 }));
        let rootless = SpaceHeader { space: SpaceLayout::Multiple { owned_root: PageNumber(0) }, ..multiple };
        assert!(SpaceHeader::decode(&rootless.encode()).is_err());
    }

    #[test]
    fn split_buffers_keep_counts_before_pages() {
        let run = |pages, last| BufferRun { pages, last: PageNumber(last) };
        let buffer = SplitBuffer { runs: [run(3, 40), run(4, 50)] };
        assert_eq!(buffer.encode(), *b"\x03\0\0\0\x04\0\0\0\x28\0\0\0\x32\0\0\0");
        assert_eq!(SplitBuffer::decode(&buffer.encode()), Ok(buffer));
        assert_eq!(SplitBuffer::decode(&[0; 16]), Ok(SplitBuffer::default()));
    }

    #[test]
    fn extents_are_found_by_their_last_page() {
        let extent = ExtentNode::starting_at(PageNumber(250), 10);
        assert_eq!(extent.last, PageNumber(259));
        assert_eq!(ExtentNode::decode(&extent.key(), &extent.data()), Ok(extent));
        assert!(extent.contains(PageNumber(250)) && extent.contains(PageNumber(259)));
        assert!(!extent.contains(PageNumber(249)) && !extent.contains(PageNumber(260)));
        assert!(ExtentNode::key_for(PageNumber(255)) < ExtentNode::key_for(PageNumber(256)));
        assert_eq!(ExtentNode::decode(&[0, 0, 0, 5], &[6, 0, 0, 0]), Err(SpaceError::Extent));
        assert_eq!(ExtentNode::decode(&[0, 0, 0, 5], &[0; 4]), Err(SpaceError::Extent));
    }
}
