//! Blank pages in use: pages that were written once and are all zero now.
//!
//! A blank page may be free, never needed, or lost; the space trees distinguish these. After a clean shutdown every
//! page in use has been written, so a blank page must be
//!
//! 1. free: in the available extents of the database or of a table; or
//! 2. behind the end of the database.
//!
//! Any other is damaged. After an unclean shutdown the log may hold the contents of a blank page, so nothing can be
//! said. The space trees are read only if there is a blank page.

use super::{database::PageDamage, pages::CachedPages};
use crate::{
    database::{DatabaseFacts, PageError},
    deep::free_extents,
};
use maildb::{PageNumber, Result, format::space::ExtentNode};

/// Blank pages, noted in ascending order. Neighbours form one run, so even a large unused file takes few.
#[derive(Default)]
pub struct BlankPages {
    runs: Vec<ExtentNode>,
}

impl BlankPages {
    /// Notes a page behind all those noted before.
    pub fn note(&mut self, page: PageNumber) {
        match self.runs.last_mut() {
            Some(run) if run.last.0 + 1 == page.0 => {
                *run = ExtentNode { last: page, pages: run.pages + 1 };
            }
            last => {
                assert!(last.is_none_or(|run| run.last < page), "pages are noted in ascending order");
                self.runs.push(ExtentNode { last: page, pages: 1 });
            }
        }
    }

    pub fn count(&self) -> u32 {
        self.runs.iter().map(|run| run.pages).sum()
    }

    /// Those in none of the `free` extents, which ascend and may overlap.
    fn outside(&self, free: &[ExtentNode]) -> Vec<PageNumber> {
        assert!(free.is_sorted_by_key(|extent| extent.first()), "extents ascend");
        let mut outside = Vec::new();
        let mut free = free.iter().copied().peekable();
        for run in &self.runs {
            let mut pages = run.first().0..=run.last.0;
            while let Some(page) = pages.clone().next() {
                match free.peek() {
                    Some(extent) if extent.last.0 < page => drop(free.next()),
                    Some(extent) if extent.first().0 <= page => {
                        pages.nth((extent.last.0 - page) as usize);
                    }
                    next => {
                        let end = next.map_or(run.last.0, |extent| run.last.0.min(extent.first().0 - 1));
                        outside.extend((&mut pages).take((end - page) as usize + 1).map(PageNumber));
                    }
                }
            }
        }
        outside
    }

    /// True if the page was noted.
    pub fn contains(&self, page: PageNumber) -> bool {
        let behind = self.runs.partition_point(|run| run.last < page);
        self.runs.get(behind).is_some_and(|run| run.contains(page))
    }

    /// The pages that are in use. If the space trees cannot be read, the only damage reported is the page that
    /// prevents it.
    pub async fn damaged(&self, pages: &mut CachedPages, facts: &DatabaseFacts) -> Result<Vec<PageDamage>> {
        const IN_USE: &str = "it is in use, and blank: what was written there is gone";
        if self.runs.is_empty() {
            return Ok(Vec::new());
        }
        match pages.judge(|source| free_extents(source, facts)).await? {
            Ok(free) => {
                let damage = |page| PageDamage { page, problem: IN_USE.to_owned() };
                Ok(self.outside(&free).into_iter().map(damage).collect())
            }
            Err(PageError::Page(page, _, problem)) => {
                let problem = if self.contains(page) { IN_USE.to_owned() } else { problem };
                let count = self.count();
                let problem =
                    format!("{problem}; so it cannot be told which of {count} blank pages are in use");
                Ok(vec![PageDamage { page, problem }])
            }
            Err(PageError::Stopped) => {
                unreachable!("only a missing page stops the judge, and it is read then")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u32, last: u32) -> ExtentNode {
        ExtentNode::starting_at(PageNumber(first), last - first + 1)
    }

    #[test]
    fn blank_pages_are_reported_only_outside_free_extents() {
        let check = |blank: &[u32], free: &[(u32, u32)], outside: &[u32]| {
            let mut pages = BlankPages::default();
            blank.iter().for_each(|&page| pages.note(PageNumber(page)));
            assert_eq!(pages.count() as usize, blank.len());
            assert!((0..50).all(|page| pages.contains(PageNumber(page)) == blank.contains(&page)));
            let free: Vec<_> = free.iter().map(|&(first, last)| extent(first, last)).collect();
            let found: Vec<u32> = pages.outside(&free).into_iter().map(|page| page.0).collect();
            assert_eq!(found, outside, "blank {blank:?}, free {free:?}");
        };
        check(&[], &[(1, 9)], &[]);
        check(&[1, 2, 3, 7], &[], &[1, 2, 3, 7]);
        check(&[1, 2, 3, 7], &[(1, 3), (7, u32::MAX)], &[]);
        check(&[1, 2, 3, 4, 5, 6], &[(2, 3), (5, 5)], &[1, 4, 6]);
        check(&[4, 6, 8, 10, 11], &[(1, 1), (3, 6), (9, 10), (12, 40)], &[8, 11]);
        check(&[4, 5, 6, 7, 8, 9], &[(2, 8), (3, 4)], &[9]);
        check(&[u32::MAX - 1, u32::MAX], &[(u32::MAX - 1, u32::MAX - 1)], &[u32::MAX]);
    }
}
