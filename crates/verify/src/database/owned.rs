//! The pages a database owns, from the tree of owned extents at page 2.
//!
//! Behind the last owned page a file may hold anything: the rest of its allocation, or extra bytes of a raw
//! copy. If the tree is unreadable, all pages count as owned, so that damage cannot hide damage.

use super::{
    DatabaseFacts, PageSource, SourceError,
    source::{PageError, PageFault, good_page},
};
use crate::{
    fields::u32_at,
    finding::{FileFinding, FileLocation, FilePart},
};
use maildb::{
    PageNumber,
    format::{
        page::{NodeFlags, PageFlags, PageView},
        space::ExtentNode,
    },
};
use world::{ByteCount, ByteOffset};

/// The root of the owned extents of every database.
const OWNED_ROOT: PageNumber = PageNumber(2);
/// Limits on levels and pages, above those of any tree of extents.
const LEVELS_MAX: u32 = 8;
const PAGES_MAX: u32 = 1 << 13;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedPages {
    /// These pages, in ascending extents with neighbours merged. All others are slack.
    Extents(Vec<ExtentNode>),
    /// The owned pages are unknown, for this reason: every page counts as owned.
    Unknown(String),
}

impl OwnedPages {
    /// True if the page is owned or ownership is unknown.
    pub fn contains(&self, page: PageNumber) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::Extents(extents) => {
                let at = extents.partition_point(|extent| extent.last < page);
                extents.get(at).is_some_and(|extent| extent.contains(page))
            }
        }
    }

    /// The last owned page, if known.
    pub fn last(&self) -> Option<PageNumber> {
        match self {
            Self::Unknown(_) => None,
            Self::Extents(extents) => extents.last().map(|extent| extent.last),
        }
    }

    /// The defect of a file of that length with regard to owned pages.
    pub fn find(&self, facts: &DatabaseFacts, file_length: ByteCount) -> Option<FileFinding> {
        let last = match self {
            Self::Unknown(why) => {
                let what = format!("the pages the database owns are unknown ({why}): all count as owned");
                return Some(FileFinding::warning(FileLocation::FILE, what));
            }
            Self::Extents(_) => self.last()?,
        };
        let end = last.file_offset(facts.page_size) + facts.page_size.bytes() as u64;
        let what =
            format!("it ends before page {last}, the last one the database owns: {end} bytes are needed");
        let place = FileLocation::new(FilePart::Bytes, ByteOffset(file_length.0));
        (file_length.0 < end).then(|| FileFinding::damage(place, what))
    }

    /// The number of owned pages, if known.
    pub fn pages(&self) -> Option<u64> {
        match self {
            Self::Unknown(_) => None,
            Self::Extents(extents) => Some(extents.iter().map(|extent| u64::from(extent.pages)).sum()),
        }
    }
}

/// Reads the owned extents of the database. Fails only if the source was stopped.
pub fn owned_extents(source: &mut dyn PageSource, facts: &DatabaseFacts) -> Result<OwnedPages, SourceError> {
    let mut extents = Vec::new();
    match read_extents(source, facts, OWNED_ROOT, &mut |_, extent| extents.push(extent)) {
        Ok(_) if extents.is_empty() => {
            Ok(OwnedPages::Unknown("its tree of owned extents is empty".to_owned()))
        }
        Ok(_) => Ok(OwnedPages::Extents(merged(extents))),
        Err(PageError::Stopped) => Err(SourceError::Stopped),
        Err(PageError::Page(page, _, what)) => {
            Ok(OwnedPages::Unknown(format!("page {page} of its owned extents: {what}")))
        }
    }
}

/// The pool of an extent: 0 in all but the newest databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pool(pub u8);

/// Extents that lie behind the end of the file on purpose.
pub(crate) const SHELVED: Pool = Pool(2);

/// Reads a tree of extents in key order and passes each to `take`; returns the pages of the tree itself.
pub(crate) fn read_extents(
    source: &mut dyn PageSource,
    facts: &DatabaseFacts,
    root: PageNumber,
    take: &mut dyn FnMut(Pool, ExtentNode),
) -> Result<Vec<PageNumber>, PageError> {
    let mut own = Vec::new();
    // A stack; children are pushed in reverse order, so they are visited in key order.
    let mut ahead = vec![(root, 1)];
    while let Some((page, level)) = ahead.pop() {
        let wrong = |what: &str| PageError::Page(page, PageFault::Structure, what.to_owned());
        if level > LEVELS_MAX || own.len() as u32 >= PAGES_MAX {
            return Err(wrong("the tree has no end"));
        }
        own.push(page);
        let view = good_page(source, facts, page)?;
        if !view.flags().contains(PageFlags::SPACE_TREE) {
            return Err(wrong("it is not part of a space tree"));
        }
        if !view.is_leaf() {
            let children = (0..view.node_count()).rev().map(|node| (view.child(node), level + 1));
            ahead.extend(children);
            continue;
        }
        let mut key = Vec::new();
        for node in 0..view.node_count() {
            let extent = extent_of(view, node, &mut key).ok_or_else(|| wrong("an impossible extent"))?;
            if let Some((pool, extent)) = extent {
                take(pool, extent);
            }
        }
    }
    Ok(own)
}

/// The extent in a node: `None` if it is impossible, `Some(None)` if the node is empty.
fn extent_of(view: PageView<'_>, node: usize, key: &mut Vec<u8>) -> Option<Option<(Pool, ExtentNode)>> {
    let found = view.node(node);
    if found.flags.contains(NodeFlags::DELETED) {
        return Some(None);
    }
    view.key_of(node, key);
    let (pool, last) = match key.split_first() {
        Some((first, rest)) if rest.len() == 4 && first & 0x80 != 0 => (Pool(first & 0x7F), rest),
        _ => (Pool(0), key.as_slice()),
    };
    let last = u32::from_be_bytes(last.try_into().ok()?);
    let pages = u32_at(found.data, 0);
    match (found.data.len(), pages) {
        (4, 0) => Some(None),
        (4, _) if pages <= last => Some(Some((pool, ExtentNode { last: PageNumber(last), pages }))),
        _ => None,
    }
}

/// Merges overlapping and adjacent extents, in ascending order.
pub(crate) fn merged(mut extents: Vec<ExtentNode>) -> Vec<ExtentNode> {
    extents.sort_unstable_by_key(|extent| extent.first());
    let mut merged: Vec<ExtentNode> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if extent.first().0 <= last.last.0.saturating_add(1) => {
                let end = last.last.max(extent.last);
                *last = ExtentNode { last: end, pages: end.0 - last.first().0 + 1 };
            }
            _ => merged.push(extent),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_or_overlap_become_one() {
        let extent = |first, last| ExtentNode::starting_at(PageNumber(first), last - first + 1);
        let check = |extents: &[(u32, u32)], expected: &[(u32, u32)]| {
            let found = merged(extents.iter().map(|&(first, last)| extent(first, last)).collect());
            let found: Vec<_> = found.iter().map(|extent| (extent.first().0, extent.last.0)).collect();
            assert_eq!(found, expected);
        };
        check(&[], &[]);
        check(&[(4, 9), (1, 3), (11, 12)], &[(1, 9), (11, 12)]);
        check(&[(1, 9), (2, 3), (9, 20), (u32::MAX, u32::MAX)], &[(1, 20), (u32::MAX, u32::MAX)]);
        let owned = OwnedPages::Extents(merged(vec![extent(3, 5), extent(9, 9)]));
        let inside: Vec<u32> = (0..12).filter(|&page| owned.contains(PageNumber(page))).collect();
        assert_eq!((inside.as_slice(), owned.pages()), (&[3, 4, 5, 9][..], Some(4)));
    }
}
