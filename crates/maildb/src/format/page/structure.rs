//! Structure check of a page. It accepts any bytes; all other operations rely on its success.

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

impl PageView<'_> {
    /// Checks the page's invariants. Never panics, whatever the bytes.
    pub fn check_structure(self) -> Result<(), StructureError> {
        self.check_strings()?;
        for node in 0..self.node_count() {
            self.check_node(node)?;
        }
        self.check_keys()
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
        let mut places: Vec<(Tag, usize)> = (0..tags).map(|tag| (self.tag(tag), tag)).collect();
        if let Some(&(_, tag)) = places.iter().find(|(place, _)| place.end() > used_end) {
            return Err(StructureError::TagOutside { tag });
        }
        places.retain(|(place, _)| place.length > 0);
        places.sort_unstable_by_key(|(place, _)| place.start);
        if let Some(pair) = places.windows(2).find(|pair| pair[0].0.end() > pair[1].0.start) {
            return Err(StructureError::TagsOverlap { tag: pair[1].1 });
        }
        let used_bytes: usize = places.iter().map(|(place, _)| place.length).sum();
        let (stored, counted) = (self.free_bytes(), area_bytes - used_bytes);
        if stored != counted {
            return Err(StructureError::FreeBytes { stored, counted });
        }
        Ok(())
    }

    fn check_node(self, node: usize) -> Result<(), StructureError> {
        let NodeView { flags, prefix_len, data, .. } = self
            .node_in(self.string(node + 1), self.tag_flags(node + 1))
            .ok_or(StructureError::NodeTooShort { node })?;
        if prefix_len > self.prefix().len() || (self.is_root() && flags.contains(NodeFlags::COMPRESSED)) {
            return Err(StructureError::PrefixTooLong { node });
        }
        if !self.is_leaf() && (data.len() != 4 || data == [0; 4]) {
            return Err(StructureError::NotAPointer { node });
        }
        Ok(())
    }

    fn check_keys(self) -> Result<(), StructureError> {
        let count = self.node_count();
        if !self.is_leaf() && count == 0 {
            return Err(StructureError::NoChildren);
        }
        let may_repeat = self.is_leaf() && self.flags().contains(PageFlags::NON_UNIQUE);
        let (mut previous, mut key) = (Vec::new(), Vec::new());
        for node in 0..count {
            self.key_of(node, &mut key);
            if !self.is_leaf() && node + 1 == count && key.is_empty() {
                break;
            }
            let ascends = if node == 0 { self.is_leaf() || !key.is_empty() } else { previous < key };
            if !(ascends || may_repeat && previous == key) {
                return Err(StructureError::KeyOrder { node });
            }
            std::mem::swap(&mut previous, &mut key);
        }
        Ok(())
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
