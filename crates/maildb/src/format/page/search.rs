//! Finding a key on a page.
//!
//! A lookup compares its key with some thirty nodes on its way down, nearly all of them in memory that no cache
//! of the processor holds; so a comparison touches the tag and the node once each, and what is the same for all
//! nodes of the page (its prefix, and how far the key agrees with it) is worked out before the first.

use super::{NODE_FLAGS_SHIFT, NODE_LENGTH_MASK, NodeFlags, PageView, common_prefix_bytes, u16_at};
use crate::format::page_size::PageNumber;
use std::cmp::Ordering;

/// A key, and the page it is looked for on.
struct Search<'a> {
    page: PageView<'a>,
    prefix: &'a [u8],
    key: &'a [u8],
    /// How many bytes of the prefix the key begins with.
    agreeing: usize,
}

impl<'a> Search<'a> {
    fn new(page: PageView<'a>, key: &'a [u8]) -> Self {
        let prefix = page.prefix();
        Self { page, prefix, key, agreeing: common_prefix_bytes(prefix, key) }
    }

    /// How node `i`'s key compares with the key looked for.
    fn compare(&self, i: usize) -> Ordering {
        let string = self.page.string(i + 1);
        let first = u16_at(string, 0);
        let flags = match self.page.size().is_small() {
            true => self.page.tag_flags(i + 1),
            false => (first >> NODE_FLAGS_SHIFT) as u8,
        };
        let length = usize::from(first & NODE_LENGTH_MASK);
        if !NodeFlags(flags).contains(NodeFlags::COMPRESSED) {
            return compare_bytes(&string[2..2 + length], self.key);
        }
        if length > self.agreeing {
            // They differ within what the node takes from the prefix.
            return self.prefix[self.agreeing..length].cmp(&self.key[self.agreeing..]);
        }
        let suffix = usize::from(u16_at(string, 2) & NODE_LENGTH_MASK);
        compare_bytes(&string[4..4 + suffix], &self.key[length..])
    }

    /// How many of the first `count` nodes come before the first that is not `before`.
    fn partition_point(&self, count: usize, before: impl Fn(Ordering) -> bool) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.compare(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Keys mostly differ in their first eight bytes, which one comparison of integers decides.
fn compare_bytes(left: &[u8], right: &[u8]) -> Ordering {
    match (left.first_chunk::<8>(), right.first_chunk::<8>()) {
        (Some(first), Some(second)) if first != second => {
            u64::from_be_bytes(*first).cmp(&u64::from_be_bytes(*second))
        }
        _ => left.cmp(right),
    }
}

impl PageView<'_> {
    /// The first node with exactly `key`, or the place where a node with that key belongs. For leaf pages.
    pub fn find(self, key: &[u8]) -> Result<usize, usize> {
        let search = Search::new(self, key);
        let count = self.node_count();
        let place = search.partition_point(count, |order| order == Ordering::Less);
        match place < count && search.compare(place) == Ordering::Equal {
            true => Ok(place),
            false => Err(place),
        }
    }

    /// Which node of a branch page leads to `key`, and to which page: the first with a separator above the key,
    /// else the last. The last key is not read: the parent has compared it already.
    pub fn child_for(self, key: &[u8]) -> (usize, PageNumber) {
        assert!(!self.is_leaf(), "a leaf has no children");
        let last = self.node_count().checked_sub(1).expect("a branch page has children");
        let place = Search::new(self, key).partition_point(last, |order| order != Ordering::Greater);
        (place, self.child(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page::{PageFlags, PageMut};
    use crate::format::page_size::{ObjectId, PageSize};
    use world::Random;

    /// Short keys of few letters, so that many are equal, prefixes of each other, or differ in any byte.
    fn random_key(random: &mut Random) -> Vec<u8> {
        (0..random.below(14))
            .map(|place| if place < 6 { random.below(2) as u8 } else { random.below(256) as u8 })
            .collect()
    }

    #[test]
    fn a_search_agrees_with_comparing_whole_keys() {
        let mut random = Random::new(5, "search");
        for round in 0..400 {
            let size = if round % 2 == 0 { PageSize::Kib4 } else { PageSize::Kib32 };
            let mut keys: Vec<Vec<u8>> = (0..1 + random.below(40)).map(|_| random_key(&mut random)).collect();
            keys.sort();
            keys.dedup();
            let mut bytes = vec![0; size.bytes()];
            let mut page = PageMut::format(&mut bytes, PageNumber(7), ObjectId(3), PageFlags::LEAF);
            let prefix = random_key(&mut random);
            page.set_external_header(&prefix).expect("an empty page has room");
            for (slot, key) in keys.iter().enumerate() {
                page.insert_node(slot, NodeFlags::NONE, key, b"data").expect("short keys fit");
            }
            let view = PageView::new(&bytes);
            for _ in 0..60 {
                let wanted = random_key(&mut random);
                assert_eq!(view.find(&wanted), keys.binary_search(&wanted), "{wanted:?} among {keys:?}");
            }
        }
    }
}
