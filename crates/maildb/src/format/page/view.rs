//! Reading a page.

use super::{
    LARGE_TAG_MASK, NODE_FLAGS_SHIFT, NODE_LENGTH_MASK, NodeFlags, PREFIX_OVERHEAD_BYTES, PageFlags,
    SMALL_TAG_MASK, TAG_BYTES, TAG_COUNT_MASK, common_prefix_bytes, field, u16_at, u32_at, u64_at,
};
use crate::format::page_size::{DbTime, ObjectId, PageNumber, PageSize};

/// A read-only view of a page.
///
/// Header fields can be read from any bytes. Access to tags and nodes may panic on a page that fails
/// [`PageView::check_structure`]: call that once when the page comes from a disk.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) size: PageSize,
}

/// One node of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    pub flags: NodeFlags,
    /// Bytes of the page's prefix that the key starts with.
    pub prefix_len: usize,
    /// The key behind the prefix.
    pub suffix: &'a [u8],
    /// The node's data: a record, or on branch pages a page number.
    pub data: &'a [u8],
}

/// Position of a string; `start` counts from the end of the page header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub start: usize,
    pub length: usize,
}

impl Tag {
    pub fn end(self) -> usize {
        self.start + self.length
    }
}

impl<'a> PageView<'a> {
    /// Views `bytes` as a page. Panics if no page size has that length.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, size: PageSize::of(bytes) }
    }

    pub fn size(self) -> PageSize {
        self.size
    }

    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Time of the page's last change.
    pub fn dbtime(self) -> DbTime {
        DbTime(u64_at(self.bytes, field::DBTIME))
    }

    /// The page's own number; `None` on small pages, which do not store it.
    pub fn page_number(self) -> Option<PageNumber> {
        (!self.size.is_small()).then(|| PageNumber(u32_at(self.bytes, field::PAGE_NUMBER)))
    }

    /// The leaf before this one in key order; `None` on branch pages.
    pub fn previous(self) -> Option<PageNumber> {
        PageNumber::from_field(u32_at(self.bytes, field::PREVIOUS))
    }

    /// The leaf after this one in key order; `None` on branch pages.
    pub fn next(self) -> Option<PageNumber> {
        PageNumber::from_field(u32_at(self.bytes, field::NEXT))
    }

    /// The tree that the page belongs to.
    pub fn object_id(self) -> ObjectId {
        ObjectId(u32_at(self.bytes, field::OBJECT_ID))
    }

    pub fn flags(self) -> PageFlags {
        PageFlags(u32_at(self.bytes, field::FLAGS))
    }

    pub fn is_root(self) -> bool {
        self.flags().contains(PageFlags::ROOT)
    }

    /// True if nodes are records rather than child pointers.
    pub fn is_leaf(self) -> bool {
        self.flags().contains(PageFlags::LEAF)
    }

    /// Bytes in no header, string or tag, including those between strings. A new node fits exactly if
    /// [`PageView::bytes_needed`] is at most this.
    pub fn free_bytes(self) -> usize {
        usize::from(u16_at(self.bytes, field::FREE_BYTES))
    }

    pub fn node_count(self) -> usize {
        self.tag_count().saturating_sub(1)
    }

    /// Tag 0: the space header on a root, the shared key prefix elsewhere.
    pub fn external_header(self) -> &'a [u8] {
        self.string(0)
    }

    /// The prefix that keys of this page may share; empty on a root.
    pub fn prefix(self) -> &'a [u8] {
        if self.is_root() { &[] } else { self.external_header() }
    }

    /// Node `i`, from 0. Panics if it does not exist.
    pub fn node(self, i: usize) -> NodeView<'a> {
        assert!(i < self.node_count(), "node {i} of {}", self.node_count());
        self.node_in(self.string(i + 1), self.tag_flags(i + 1)).expect("checked structure")
    }

    /// Replaces `key` by the full key of node `i`.
    pub fn key_of(self, i: usize, key: &mut Vec<u8>) {
        let node = self.node(i);
        key.clear();
        key.extend_from_slice(&self.prefix()[..node.prefix_len]);
        key.extend_from_slice(node.suffix);
    }

    /// The child that node `i` of a branch page points to.
    pub fn child(self, i: usize) -> PageNumber {
        let data = self.node(i).data;
        PageNumber(u32::from_le_bytes(data.try_into().expect("branch data is one page number")))
    }

    /// Bytes that a new node would take, including its tag and after compression against the page's prefix.
    pub fn bytes_needed(self, key: &[u8], data: &[u8]) -> usize {
        TAG_BYTES + self.node_bytes(self.shared_prefix_bytes(key), key.len(), data.len())
    }

    /// Bytes of `key` that a node takes from the page's prefix: 0 if that would not save space.
    pub(super) fn shared_prefix_bytes(self, key: &[u8]) -> usize {
        match common_prefix_bytes(self.prefix(), key) {
            common if common > PREFIX_OVERHEAD_BYTES => common,
            _ => 0,
        }
    }

    /// Length of a node's string.
    pub(super) fn node_bytes(self, prefix_len: usize, key_len: usize, data_len: usize) -> usize {
        let prefix_field = if prefix_len > 0 { 2 } else { 0 };
        prefix_field + 2 + (key_len - prefix_len) + data_len
    }

    pub(super) fn tag_count(self) -> usize {
        usize::from(u16_at(self.bytes, field::TAG_COUNT) & TAG_COUNT_MASK)
    }

    /// First free byte after all strings, from the end of the page header.
    pub(super) fn used_end(self) -> usize {
        usize::from(u16_at(self.bytes, field::USED_END))
    }

    /// Bytes between the page header and the tags, for a given number of tags.
    pub(super) fn string_area_bytes(self, tags: usize) -> usize {
        self.bytes.len() - self.size.header_bytes() - tags * TAG_BYTES
    }

    /// Contiguous free bytes between strings and tags.
    pub(super) fn contiguous_free_bytes(self) -> usize {
        self.string_area_bytes(self.tag_count()) - self.used_end()
    }

    pub(super) fn tag_offset(self, tag: usize) -> usize {
        self.bytes.len() - TAG_BYTES * (tag + 1)
    }

    pub(super) fn tag(self, tag: usize) -> Tag {
        let at = self.tag_offset(tag);
        let mask = if self.size.is_small() { SMALL_TAG_MASK } else { LARGE_TAG_MASK };
        Tag {
            length: usize::from(u16_at(self.bytes, at) & mask),
            start: usize::from(u16_at(self.bytes, at + 2) & mask),
        }
    }

    /// The node flags that small pages store in the tag; zero on large pages.
    pub(super) fn tag_flags(self, tag: usize) -> u8 {
        let place = u16_at(self.bytes, self.tag_offset(tag) + 2);
        if self.size.is_small() { (place >> NODE_FLAGS_SHIFT) as u8 } else { 0 }
    }

    pub(super) fn string(self, tag: usize) -> &'a [u8] {
        let Tag { start, length } = self.tag(tag);
        let from = self.size.header_bytes() + start;
        &self.bytes[from..from + length]
    }

    /// Decodes a node's string; `None` if it is too short for its own lengths.
    pub(super) fn node_in(self, string: &'a [u8], tag_flags: u8) -> Option<NodeView<'a>> {
        let (first, mut rest) = string.split_first_chunk::<2>()?;
        let first = u16::from_le_bytes(*first);
        let flags = if self.size.is_small() { tag_flags } else { (first >> NODE_FLAGS_SHIFT) as u8 };
        let flags = NodeFlags(flags);
        let mut suffix_len = first & NODE_LENGTH_MASK;
        let mut prefix_len = 0;
        if flags.contains(NodeFlags::COMPRESSED) {
            let (second, after) = rest.split_first_chunk::<2>()?;
            prefix_len = usize::from(suffix_len);
            suffix_len = u16::from_le_bytes(*second) & NODE_LENGTH_MASK;
            rest = after;
        }
        let (suffix, data) = rest.split_at_checked(usize::from(suffix_len))?;
        Some(NodeView { flags, prefix_len, suffix, data })
    }
}
