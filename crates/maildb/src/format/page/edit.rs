//! Editing a page. Every operation leaves a sound page; one that does not fit changes nothing.

use thiserror::Error;

use super::{
    KEY_BYTES_MAX, NODE_FLAGS_SHIFT, NODE_LENGTH_MASK, NodeFlags, PageFlags, PageView, TAG_BYTES,
    TAG_COUNT_MASK, field, u16_at, view::Tag,
};
use crate::format::page_size::{DbTime, ObjectId, PageNumber, PageSize};

/// The page has too little free space; it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{needed_bytes} bytes do not fit in the {free_bytes} free bytes of the page")]
pub struct PageFull {
    /// Bytes needed, tag included.
    pub needed_bytes: usize,
    pub free_bytes: usize,
}

/// A page open for editing.
#[derive(Debug)]
pub struct PageMut<'a> {
    pub(super) bytes: &'a mut [u8],
    size: PageSize,
}

impl<'a> PageMut<'a> {
    /// Wraps a page whose structure was checked before. Panics if no page size has that length.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        let size = PageSize::of(bytes);
        Self { bytes, size }
    }

    /// Formats `bytes` as an empty page without siblings, with an empty tag 0 and with `flags` besides those
    /// that every page has.
    pub fn format(bytes: &'a mut [u8], number: PageNumber, object_id: ObjectId, flags: PageFlags) -> Self {
        let mut page = Self::new(bytes);
        page.bytes.fill(0);
        page.put_u32(field::OBJECT_ID, object_id.0);
        page.set_number(number);
        page.set_flags(flags);
        page.put_u16(field::TAG_COUNT, 1);
        let free = page.view().string_area_bytes(1);
        page.set_free_bytes(free);
        page
    }

    pub fn view(&self) -> PageView<'_> {
        PageView { bytes: self.bytes, size: self.size }
    }

    /// Sets the page number; small pages do not store it.
    pub fn set_number(&mut self, number: PageNumber) {
        if !self.size.is_small() {
            self.put_u32(field::PAGE_NUMBER, number.0);
        }
    }

    /// Sets the time of change.
    pub fn set_dbtime(&mut self, dbtime: DbTime) {
        self.bytes[field::DBTIME..field::DBTIME + 8].copy_from_slice(&dbtime.0.to_le_bytes());
    }

    /// Sets the neighbours of a leaf in key order.
    pub fn set_siblings(&mut self, previous: Option<PageNumber>, next: Option<PageNumber>) {
        self.put_u32(field::PREVIOUS, PageNumber::to_field(previous));
        self.put_u32(field::NEXT, PageNumber::to_field(next));
    }

    /// Sets the page's flags, besides those that every page has. A page with compressed keys cannot become a
    /// root.
    pub fn set_flags(&mut self, flags: PageFlags) {
        assert!(!flags.contains(PageFlags::ROOT) || !self.has_compressed_keys(), "compressed keys on a root");
        let flags = flags | PageFlags::NEW_RECORD_FORMAT | PageFlags::NEW_CHECKSUM;
        self.put_u32(field::FLAGS, flags.0);
    }

    /// Sets the tree that the page belongs to.
    pub fn set_object_id(&mut self, object_id: ObjectId) {
        self.put_u32(field::OBJECT_ID, object_id.0);
    }

    /// Replaces tag 0. Panics if the page has keys compressed against it.
    pub fn set_external_header(&mut self, header: &[u8]) -> Result<(), PageFull> {
        assert!(
            header == self.view().external_header() || !self.has_compressed_keys(),
            "keys are compressed against the old prefix"
        );
        self.resize_string(0, 0, header)
    }

    /// Inserts a node before node `i`, its key compressed if that saves space. The caller keeps the keys
    /// ascending.
    pub fn insert_node(
        &mut self,
        i: usize,
        flags: NodeFlags,
        key: &[u8],
        data: &[u8],
    ) -> Result<(), PageFull> {
        let view = self.view();
        let tags = view.tag_count();
        assert!(i < tags, "node {i} of a page with {}", tags - 1);
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        let prefix_len = view.shared_prefix_bytes(key);
        let length = view.node_bytes(prefix_len, key.len(), data.len());
        let (needed_bytes, free_bytes) = (TAG_BYTES + length, view.free_bytes());
        if needed_bytes > free_bytes || tags >= usize::from(TAG_COUNT_MASK) {
            return Err(PageFull { needed_bytes, free_bytes });
        }
        if needed_bytes > view.contiguous_free_bytes() {
            self.compact();
        }
        self.open_tag(i + 1);
        let start = self.view().used_end();
        let flags = flags.without(NodeFlags::COMPRESSED)
            | if prefix_len > 0 { NodeFlags::COMPRESSED } else { NodeFlags::NONE };
        self.write_node(start, flags, prefix_len, &key[prefix_len..], data);
        self.set_tag(i + 1, Tag { start, length }, flags);
        self.set_used_end(start + length);
        self.set_free_bytes(free_bytes - needed_bytes);
        Ok(())
    }

    /// Replaces the data of node `i`, in place if it fits there.
    pub fn replace_data(&mut self, i: usize, data: &[u8]) -> Result<(), PageFull> {
        let kept = self.view().string(i + 1).len() - self.view().node(i).data.len();
        self.resize_string(i + 1, kept, data)
    }

    /// Sets node `i`'s flags, except for the one that marks a compressed key.
    pub fn set_node_flags(&mut self, i: usize, flags: NodeFlags) {
        let old = self.view().node(i).flags;
        let compressed = NodeFlags(old.0 & NodeFlags::COMPRESSED.0);
        let flags = flags.without(NodeFlags::COMPRESSED) | compressed;
        let tag = self.view().tag(i + 1);
        self.set_tag(i + 1, tag, flags);
        if !self.size.is_small() {
            let at = self.size.header_bytes() + tag.start;
            let length = u16_at(self.bytes, at) & NODE_LENGTH_MASK;
            self.put_u16(at, length | u16::from(flags.0) << NODE_FLAGS_SHIFT);
        }
    }

    /// Removes `count` nodes, starting with node `first`.
    pub fn remove_nodes(&mut self, first: usize, count: usize) {
        let view = self.view();
        let tags = view.tag_count();
        assert!(first + count < tags, "nodes {first}+{count} of {}", tags - 1);
        let going = || (first + 1..first + 1 + count).map(|tag| view.tag(tag));
        let strings: usize = going().map(|tag| tag.length).sum();
        let last_goes = going().any(|tag| tag.end() == view.used_end());
        let free = view.free_bytes() + strings + count * TAG_BYTES;
        // Tags grow downwards: those of the later nodes are at lower offsets and move up.
        let (from, to) = (view.tag_offset(tags - 1), view.tag_offset(first + count));
        self.bytes.copy_within(from..to, from + count * TAG_BYTES);
        self.set_tag_count(tags - count);
        self.set_free_bytes(free);
        if last_goes {
            self.lower_used_end();
        }
    }

    /// Replaces all nodes by `nodes`, in that order, and tag 0 by `external_header`: the prefix that keys are
    /// compressed against, unless the page is a root. The other header fields stay. On `PageFull` the page
    /// holds the nodes before the one that did not fit.
    pub fn rebuild<'n>(
        &mut self,
        nodes: impl Iterator<Item = (NodeFlags, &'n [u8], &'n [u8])>,
        external_header: &[u8],
    ) -> Result<(), PageFull> {
        self.remove_nodes(0, self.view().node_count());
        self.set_external_header(external_header)?;
        for (i, (flags, key, data)) in nodes.enumerate() {
            self.insert_node(i, flags, key, data)?;
        }
        Ok(())
    }

    /// Replaces a string by its first `kept` bytes and `tail`.
    fn resize_string(&mut self, tag: usize, kept: usize, tail: &[u8]) -> Result<(), PageFull> {
        let header = self.size.header_bytes();
        let flags = NodeFlags(self.view().tag_flags(tag));
        let old = self.view().tag(tag);
        let free = self.view().free_bytes();
        let length = kept + tail.len();
        if length > old.length + free {
            return Err(PageFull { needed_bytes: length - old.length, free_bytes: free });
        }
        let mut start = old.start;
        if length > old.length {
            let room = self.view().contiguous_free_bytes();
            let is_last = old.end() == self.view().used_end();
            if is_last && length - old.length <= room {
                // Grows in place.
            } else if length <= room {
                start = self.view().used_end();
                self.bytes.copy_within(header + old.start..header + old.start + kept, header + start);
            } else {
                let head = self.bytes[header + old.start..header + old.start + kept].to_vec();
                self.set_tag(tag, Tag { start: 0, length: 0 }, flags);
                self.compact();
                start = self.view().used_end();
                self.bytes[header + start..header + start + kept].copy_from_slice(&head);
            }
        }
        if length == 0 {
            start = 0;
        }
        self.bytes[header + start + kept..header + start + length].copy_from_slice(tail);
        self.set_tag(tag, Tag { start, length }, flags);
        self.set_free_bytes(free + old.length - length);
        let used_end = self.view().used_end();
        if start + length >= used_end {
            self.set_used_end(start + length);
        } else if old.end() == used_end {
            self.lower_used_end();
        }
        Ok(())
    }

    /// Moves all strings together in tag order, so that the free bytes are contiguous.
    fn compact(&mut self) {
        let header = self.size.header_bytes();
        let view = self.view();
        let tags = view.tag_count();
        let mut strings = Vec::with_capacity(view.string_area_bytes(tags));
        let mut starts = Vec::with_capacity(tags);
        for tag in 0..tags {
            starts.push(strings.len());
            strings.extend_from_slice(view.string(tag));
        }
        for (tag, start) in starts.into_iter().enumerate() {
            let length = self.view().tag(tag).length;
            let flags = NodeFlags(self.view().tag_flags(tag));
            self.set_tag(tag, Tag { start, length }, flags);
        }
        self.bytes[header..header + strings.len()].copy_from_slice(&strings);
        self.set_used_end(strings.len());
    }

    /// Lowers `ibMicFree` to the end of the last string, after a string was removed or shortened.
    fn lower_used_end(&mut self) {
        let view = self.view();
        let ends = (0..view.tag_count()).map(|tag| view.tag(tag)).filter(|tag| tag.length > 0);
        let end = ends.map(Tag::end).max().unwrap_or(0);
        self.set_used_end(end);
    }

    /// Inserts a slot for a tag at `tag`; later tags move down.
    fn open_tag(&mut self, tag: usize) {
        let view = self.view();
        let tags = view.tag_count();
        let (from, to) = (view.tag_offset(tags) + TAG_BYTES, view.tag_offset(tag) + TAG_BYTES);
        self.bytes.copy_within(from..to, from - TAG_BYTES);
        self.set_tag_count(tags + 1);
    }

    fn write_node(&mut self, start: usize, flags: NodeFlags, prefix_len: usize, suffix: &[u8], data: &[u8]) {
        let mut at = self.size.header_bytes() + start;
        let first = if prefix_len > 0 { prefix_len } else { suffix.len() } as u16;
        let high = if self.size.is_small() { 0 } else { u16::from(flags.0) << NODE_FLAGS_SHIFT };
        self.put_u16(at, first | high);
        at += 2;
        if prefix_len > 0 {
            self.put_u16(at, suffix.len() as u16);
            at += 2;
        }
        self.bytes[at..at + suffix.len()].copy_from_slice(suffix);
        at += suffix.len();
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// Writes a tag; small pages store the node's flags in it.
    pub(super) fn set_tag(&mut self, tag: usize, place: Tag, flags: NodeFlags) {
        assert!(flags.0 <= NodeFlags::MASK);
        let at = self.view().tag_offset(tag);
        let high = if self.size.is_small() { u16::from(flags.0) << NODE_FLAGS_SHIFT } else { 0 };
        self.put_u16(at, place.length as u16);
        self.put_u16(at + 2, place.start as u16 | high);
    }

    fn has_compressed_keys(&self) -> bool {
        let view = self.view();
        (0..view.node_count()).any(|i| view.node(i).flags.contains(NodeFlags::COMPRESSED))
    }

    fn set_tag_count(&mut self, tags: usize) {
        let reserved = u16_at(self.bytes, field::TAG_COUNT) & !TAG_COUNT_MASK;
        self.put_u16(field::TAG_COUNT, tags as u16 | reserved);
    }

    fn set_free_bytes(&mut self, free: usize) {
        self.put_u16(field::FREE_BYTES, free as u16);
    }

    fn set_used_end(&mut self, end: usize) {
        self.put_u16(field::USED_END, end as u16);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}
