//! Page sizes, and the numbers of pages, trees and page changes.

/// Bytes of a small page's header.
const SMALL_HEADER_BYTES: usize = 40;
/// Pages above 8 KiB also store three more checksums and their own number.
const LARGE_HEADER_BYTES: usize = 80;

/// Page sizes. A database has one, fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// 2 KiB: read and verified only.
    Kib2,
    /// 4 KiB: Exchange 2000 and 2003.
    Kib4,
    /// 8 KiB: Exchange 2007.
    Kib8,
    /// 16 KiB.
    Kib16,
    /// 32 KiB: Exchange 2010 and later.
    Kib32,
}

impl PageSize {
    pub const ALL: [Self; 5] = [Self::Kib2, Self::Kib4, Self::Kib8, Self::Kib16, Self::Kib32];
    /// Bytes of the largest page.
    pub const BYTES_MAX: usize = 32 * 1024;

    pub const fn bytes(self) -> usize {
        match self {
            Self::Kib2 => 2 * 1024,
            Self::Kib4 => 4 * 1024,
            Self::Kib8 => 8 * 1024,
            Self::Kib16 => 16 * 1024,
            Self::Kib32 => 32 * 1024,
        }
    }

    /// The page size of `bytes` bytes.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            2048 => Some(Self::Kib2),
            4096 => Some(Self::Kib4),
            8192 => Some(Self::Kib8),
            16384 => Some(Self::Kib16),
            32768 => Some(Self::Kib32),
            _ => None,
        }
    }

    /// The size of a page held in `bytes`. Panics if no page size has that length.
    pub fn of(bytes: &[u8]) -> Self {
        u32::try_from(bytes.len())
            .ok()
            .and_then(Self::from_bytes)
            .unwrap_or_else(|| panic!("{} bytes are not a page", bytes.len()))
    }

    /// True for pages with the short header, one checksum, and node flags in the tags.
    pub const fn is_small(self) -> bool {
        matches!(self, Self::Kib2 | Self::Kib4 | Self::Kib8)
    }

    /// Length of the page header.
    pub const fn header_bytes(self) -> usize {
        if self.is_small() { SMALL_HEADER_BYTES } else { LARGE_HEADER_BYTES }
    }
}

/// A page number. Page 1 follows the two header pages; 0 means "none" on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u32);

impl PageNumber {
    /// Byte offset of the page in its file; two header pages come before page 1.
    pub const fn file_offset(self, page_size: PageSize) -> u64 {
        (self.0 as u64 + 1) * page_size.bytes() as u64
    }

    /// Decodes a field in which 0 means "none".
    pub const fn from_field(field: u32) -> Option<Self> {
        if field == 0 { None } else { Some(Self(field)) }
    }

    /// Encodes an optional page number: 0 for "none".
    pub fn to_field(number: Option<Self>) -> u32 {
        number.map_or(0, |n| n.0)
    }
}

impl std::fmt::Display for PageNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The object number of a tree, stored in each of its pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// A database's count of page changes. A page stores the value of its last change, so that recovery can tell
/// if a logged change is already in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbTime(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_header_pages_come_before_page_one() {
        assert_eq!(PageNumber(1).file_offset(PageSize::Kib4), 8192);
        assert_eq!(PageNumber(u32::MAX).file_offset(PageSize::Kib32), 1 << 47);
    }

    #[test]
    fn every_size_is_found_again_by_its_bytes() {
        for size in PageSize::ALL {
            assert_eq!(PageSize::from_bytes(size.bytes() as u32), Some(size));
            assert_eq!(PageSize::of(&vec![0; size.bytes()]), size);
        }
        assert_eq!(PageSize::from_bytes(0), None);
        assert_eq!(PageSize::from_bytes(12 * 1024), None);
    }
}
