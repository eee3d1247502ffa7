//! Structure check of a page. It accepts any bytes; all other operations rely on its success.

use std::cmp::Ordering;

use thiserror::Error;

use super::{NodeFlags, NodeView, PageFlags, PageView, TAG_BYTES, view::Tag};

/// Violations of a page's structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StructureError {
    /// No tag 0, or more tags than fit the page.
    #[error("{tags} tags")]
    TagCount { tags: usize },
    /// `ibMicFree` reaches into the tags.
    #[error("strings end at {used_end}, beyond the {area_bytes} bytes available")]
    UsedEndOutside {
        used_end: usize,
        /// Bytes between header and tags.
        area_bytes: usize,
    },
    /// A string ends beyond `ibMicFree`.
    #[error("tag {tag} ends beyond the used part of the page")]
    TagOutside { tag: usize },
    /// Two strings share bytes.
    #[error("tag {tag} overlaps another")]
    TagsOverlap { tag: usize },
    /// `cbFree` differs from the bytes that the tags leave free.
    #[error("the header counts {stored} free bytes, the tags leave {counted}")]
    FreeBytes {
        stored: usize,
        /// Free bytes counted from the tags.
        counted: usize,
    },
    /// A node is shorter than its own lengths say.
    #[error("node {node} is too short for its key")]
    NodeTooShort { node: usize },
    /// A key uses more of the prefix than exists; a root has none.
    #[error("node {node} uses more of the prefix than exists")]
    PrefixTooLong { node: usize },
    /// A branch node does not hold exactly one nonzero page number.
    #[error("node {node} of a branch page is not a page pointer")]
    NotAPointer { node: usize },
    /// A branch page has no nodes.
    #[error("a branch page without children")]
    NoChildren,
    /// A key is not above the one before, or is empty and not the last of a branch page.
    #[error("the key of node {node} is out of order")]
    KeyOrder { node: usize },
}

/// Tags that are sorted without an allocation; pages with more are rare.
const TAGS_ON_STACK: usize = 256;

impl<'a> PageView<'a> {
    /// Checks the page's invariants. Never panics, whatever the bytes.
    ///
    /// Every page read from a device passes here, so a usual page is checked without an allocation, and each
    /// node is decoded once.
    pub fn check_structure(self) -> Result<(), StructureError> {
        self.check_strings()?;
        self.check_nodes()
    }

    fn check_strings(self) -> Result<(), StructureError> {
        let tags = self.tag_count();
        if tags == 0 || self.size.header_bytes() + tags * TAG_BYTES > self.bytes.len() {
            return Err(StructureError::TagCount { tags });
        }
        let (used_end, area_bytes) = (self.used_end(), self.string_area_bytes(tags));
        if used_end > area_bytes {
            return Err(StructureError::UsedEndOutside { used_end, area_bytes });
        }
        if tags > TAGS_ON_STACK {
            self.check_places(used_end, area_bytes, &mut vec![StringPlace::default(); tags])
        } else {
            self.check_places(used_end, area_bytes, &mut [StringPlace::default(); TAGS_ON_STACK][..tags])
        }
    }

    /// Checks that no string ends beyond `used_end`, none overlap, and the free bytes are counted right.
    /// `places` is scratch memory for all tags.
    fn check_places(
        self,
        used_end: usize,
        area_bytes: usize,
        places: &mut [StringPlace],
    ) -> Result<(), StructureError> {
        let (mut count, mut used_bytes) = (0, 0);
        for tag in 0..places.len() {
            let Tag { start, length } = self.tag(tag);
            if start + length > used_end {
                return Err(StructureError::TagOutside { tag });
            }
            if length > 0 {
                // Both are at most 15 bits, as is the number of tags.
                places[count] = StringPlace { start: start as u16, length: length as u16, tag: tag as u16 };
                count += 1;
                used_bytes += length;
            }
        }
        let places = &mut places[..count];
        places.sort_unstable_by_key(|place| place.start);
        let end = |place: &StringPlace| usize::from(place.start) + usize::from(place.length);
        if let Some(pair) = places.windows(2).find(|pair| end(&pair[0]) > usize::from(pair[1].start)) {
            return Err(StructureError::TagsOverlap { tag: usize::from(pair[1].tag) });
        }
        let (stored, counted) = (self.free_bytes(), area_bytes - used_bytes);
        if stored != counted {
            return Err(StructureError::FreeBytes { stored, counted });
        }
        Ok(())
    }

    /// Checks every node, then the order of their keys.
    fn check_nodes(self) -> Result<(), StructureError> {
        let (count, prefix) = (self.node_count(), self.prefix());
        let (is_leaf, is_root) = (self.is_leaf(), self.is_root());
        let may_repeat = is_leaf && self.flags().contains(PageFlags::NON_UNIQUE);
        let mut disorder = None;
        let mut previous: Option<NodeView<'a>> = None;
        for node in 0..count {
            let current = self
                .node_in(self.string(node + 1), self.tag_flags(node + 1))
                .ok_or(StructureError::NodeTooShort { node })?;
            let is_compressed = current.flags.contains(NodeFlags::COMPRESSED);
            if current.prefix_len > prefix.len() || is_root && is_compressed {
                return Err(StructureError::PrefixTooLong { node });
            }
            if !is_leaf && (current.data.len() != 4 || current.data == [0; 4]) {
                return Err(StructureError::NotAPointer { node });
            }
            let has_key = current.prefix_len > 0 || !current.suffix.is_empty();
            let may_be_empty = is_leaf || node + 1 == count;
            let is_in_order = match &previous {
                _ if !is_leaf && !has_key => may_be_empty,
                None => true,
                Some(previous) => match compare_keys(prefix, previous, &current) {
                    Ordering::Less => true,
                    Ordering::Equal => may_repeat,
                    Ordering::Greater => false,
                },
            };
            if !is_in_order {
                disorder = disorder.or(Some(node));
            }
            previous = Some(current);
        }
        match disorder {
            _ if !is_leaf && count == 0 => Err(StructureError::NoChildren),
            Some(node) => Err(StructureError::KeyOrder { node }),
            None => Ok(()),
        }
    }
}

/// A string's place, with its tag.
#[derive(Clone, Copy, Default)]
struct StringPlace {
    start: u16,
    length: u16,
    tag: u16,
}

/// Compares the keys of two nodes whose prefix lengths were checked.
fn compare_keys(prefix: &[u8], left: &NodeView<'_>, right: &NodeView<'_>) -> Ordering {
    match left.prefix_len.cmp(&right.prefix_len) {
        Ordering::Equal => left.suffix.cmp(right.suffix),
        Ordering::Less => {
            compare_with_joined(left.suffix, &prefix[left.prefix_len..right.prefix_len], right.suffix)
        }
        Ordering::Greater => {
            compare_with_joined(right.suffix, &prefix[right.prefix_len..left.prefix_len], left.suffix)
                .reverse()
        }
    }
}

/// Compares `key` with the concatenation of `start` and `rest`.
fn compare_with_joined(key: &[u8], start: &[u8], rest: &[u8]) -> Ordering {
    match key.split_at_checked(start.len()) {
        Some((key_start, key_rest)) => key_start.cmp(start).then_with(|| key_rest.cmp(rest)),
        // A key that `start` begins with is shorter, hence less.
        None => key.cmp(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{
        page::{PageMut, field},
        page_size::{ObjectId, PageNumber},
    };

    /// The violation found on a page of nodes a, b, c after `damage`.
    fn problem(flags: PageFlags, damage: impl FnOnce(&mut [u8])) -> Result<(), StructureError> {
        let mut bytes = vec![0; 4096];
        let mut page = PageMut::format(&mut bytes, PageNumber(1), ObjectId(1), flags);
        for (i, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            page.insert_node(i, NodeFlags::NONE, key, &7_u32.to_le_bytes()).unwrap();
        }
        if !flags.contains(PageFlags::LEAF) {
            page.insert_node(3, NodeFlags::NONE, b"", &7_u32.to_le_bytes()).unwrap();
        }
        assert_eq!(page.view().check_structure(), Ok(()));
        damage(&mut bytes);
        PageView::new(&bytes).check_structure()
    }

    /// Overwrites a tag with a length and an offset.
    fn put_tag(bytes: &mut [u8], tag: usize, length: u16, start: u16) {
        let at = bytes.len() - TAG_BYTES * (tag + 1);
        bytes[at..at + 2].copy_from_slice(&length.to_le_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&start.to_le_bytes());
    }

    #[test]
    fn each_broken_invariant_is_named() {
        use StructureError::*;
        let leaf = |damage: fn(&mut [u8])| problem(PageFlags::LEAF, damage).unwrap_err();
        let branch = |damage: fn(&mut [u8])| problem(PageFlags::PARENT_OF_LEAF, damage).unwrap_err();
        // Each node takes seven bytes: two of length, one of key, four of data.
        assert_eq!(leaf(|b| b.fill(0)), TagCount { tags: 0 });
        assert_eq!(leaf(|b| b[field::TAG_COUNT + 1] = 0x0F), TagCount { tags: 0xF04 });
        assert!(matches!(leaf(|b| b[field::USED_END + 1] = 0xFF), UsedEndOutside { .. }));
        assert_eq!(leaf(|b| put_tag(b, 3, 7, 15)), TagOutside { tag: 3 });
        assert!(matches!(leaf(|b| put_tag(b, 3, 7, 13)), TagsOverlap { .. }));
        assert!(matches!(leaf(|b| put_tag(b, 3, 6, 14)), FreeBytes { .. }));
        assert!(matches!(leaf(|b| b[field::FREE_BYTES] ^= 1), FreeBytes { .. }));
        assert_eq!(leaf(|b| b[40] = 6), NodeTooShort { node: 0 });
        assert_eq!(leaf(|b| b[40 + 7] = 0), KeyOrder { node: 1 });
        assert_eq!(leaf(|b| b[40 + 14 + 2] = b'b'), KeyOrder { node: 2 });
        // One byte of an empty prefix, and no suffix.
        let compress = |b: &mut [u8]| {
            put_tag(b, 1, 7, 4 << 13);
            b[42..44].fill(0);
        };
        assert_eq!(leaf(compress), PrefixTooLong { node: 0 });
        assert_eq!(branch(|b| b[40] = 2), NotAPointer { node: 0 });
        assert_eq!(branch(|b| b[40 + 3] = 0), NotAPointer { node: 0 });
        assert_eq!(branch(|b| b[field::FLAGS] |= 2), KeyOrder { node: 3 });
        let last_removed = problem(PageFlags::PARENT_OF_LEAF, |b| PageMut::new(b).remove_nodes(3, 1));
        assert_eq!(last_removed, Ok(()), "the last key may be the parent's separator");
        let emptied = problem(PageFlags::PARENT_OF_LEAF, |b| PageMut::new(b).remove_nodes(0, 4));
        assert_eq!(emptied, Err(NoChildren));
    }

    #[test]
    fn keys_may_repeat_only_where_the_tree_says_so() {
        let repeat = |b: &mut [u8]| b[40 + 7 + 2] = b'a';
        assert_eq!(problem(PageFlags::LEAF, repeat), Err(StructureError::KeyOrder { node: 1 }));
        assert_eq!(problem(PageFlags::LEAF | PageFlags::NON_UNIQUE, repeat), Ok(()));
    }
}
