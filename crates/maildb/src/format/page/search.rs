//! Key search within a page.
//!
//! A lookup compares its key with some thirty nodes on the way down, nearly all of them in memory outside the
//! processor's caches. So each comparison touches the tag and the node once, and the comparison with the
//! page's prefix is done once, before the first.

use super::{NODE_FLAGS_SHIFT, NODE_LENGTH_MASK, NodeFlags, PageView, common_prefix_bytes, u16_at};
use crate::format::page_size::PageNumber;
use std::cmp::Ordering;

/// A key search on one page.
struct Search<'a> {
    page: PageView<'a>,
    prefix: &'a [u8],
    key: &'a [u8],
    /// Bytes of the prefix that the key begins with.
    agreeing: usize,
}

impl<'a> Search<'a> {
    fn new(page: PageView<'a>, key: &'a [u8]) -> Self {
        let prefix = page.prefix();
        Self { page, prefix, key, agreeing: common_prefix_bytes(prefix, key) }
    }

    /// Compares node `i`'s key with the search key.
    fn compare(&self, i: usize) -> Ordering {
        let string = self.page.string(i + 1);
        let first = u16_at(string, 0);
        let flags = if self.page.size().is_small() {
            self.page.tag_flags(i + 1)
        } else {
            (first >> NODE_FLAGS_SHIFT) as u8
        };
        let length = usize::from(first & NODE_LENGTH_MASK);
        if !NodeFlags(flags).contains(NodeFlags::COMPRESSED) {
            return compare_bytes(&string[2..2 + length], self.key);
        }
        if length > self.agreeing {
            // They differ within the part of the prefix that the node uses.
            return self.prefix[self.agreeing..length].cmp(&self.key[self.agreeing..]);
        }
        let suffix = usize::from(u16_at(string, 2) & NODE_LENGTH_MASK);
        compare_bytes(&string[4..4 + suffix], &self.key[length..])
    }

    /// The number of leading nodes, among the first `count`, that satisfy `before`.
    fn partition_point(&self, count: usize, before: impl Fn(Ordering) -> bool) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.compare(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Compares the first eight bytes as integers: most keys differ there.
fn compare_bytes(left: &[u8], right: &[u8]) -> Ordering {
    match (left.first_chunk::<8>(), right.first_chunk::<8>()) {
        (Some(first), Some(second)) if first != second => {
            u64::from_be_bytes(*first).cmp(&u64::from_be_bytes(*second))
        }
        _ => left.cmp(right),
    }
}

impl PageView<'_> {
    /// The node with exactly `key`, or as `Err` the position to insert it at. For leaf pages.
    pub fn find(self, key: &[u8]) -> Result<usize, usize> {
        let search = Search::new(self, key);
        let count = self.node_count();
        let place = search.partition_point(count, |order| order == Ordering::Less);
        if place < count && search.compare(place) == Ordering::Equal { Ok(place) } else { Err(place) }
    }

    /// The node of a branch page that leads to `key`, and its child: the first node with a separator above
    /// the key, else the last. The last separator is not read: the parent has compared it already.
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

    /// Short keys over few letters: many are equal, prefixes of each other, or differ in any byte.
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
