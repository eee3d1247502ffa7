//! What every page of a database must read as: the stamps, in memory.
//!
//! Invariants:
//!
//! 1. `current` holds for each page the stamp of the last write of it that has ended: what a read must find.
//! 2. A page in `unsettled` has been written since its file was last known to be stable; its `settled` stamp
//!    is what a power cut may bring back. All others are settled: `current` is all they can be.
//! 3. `unwritten` names every page whose settled stamp is not yet in the sidecar.
//! 4. A page in `candidates` has not been read since the last crash. It may be any of them, or the settled one.

use super::{Stamp, hash::StampKey};
use crate::{
    error::StampFinding,
    format::{
        page::PageView,
        page_size::{DbTime, PageNumber},
    },
    log::PageStamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// Pages the table grows by.
const GROWTH_PAGES: usize = 1 << 16;

/// Stamps of a page that was written lately, oldest first.
struct Unsettled {
    settled: Stamp,
    /// Of the last write that had ended when the flush under way began.
    flushing: Option<Stamp>,
    /// Of the last write that has ended since.
    written: Option<Stamp>,
}

/// See the module's documentation.
pub struct StampTable {
    key: StampKey,
    /// Page 1 first.
    current: Vec<Stamp>,
    unsettled: BTreeMap<PageNumber, Unsettled>,
    unwritten: BTreeSet<PageNumber>,
    candidates: BTreeMap<PageNumber, Vec<Stamp>>,
}

impl StampTable {
    /// A table in which nothing is known.
    pub fn new(key: StampKey) -> Self {
        Self {
            key,
            current: Vec::new(),
            unsettled: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            candidates: BTreeMap::new(),
        }
    }

    /// The stamp of an image.
    pub fn stamp(&self, page: PageNumber, bytes: &[u8]) -> Stamp {
        Stamp { dbtime: PageView::new(bytes).dbtime(), hash: self.key.hash(page, bytes) }
    }

    /// Pages with a place in the table.
    pub fn pages(&self) -> u32 {
        self.current.len() as u32
    }

    /// Pages of which something is known.
    pub fn pages_known(&self) -> u32 {
        self.current.iter().filter(|stamp| stamp.is_known()).count() as u32
    }

    /// What the last write made of a page.
    pub fn current(&self, page: PageNumber) -> Stamp {
        let index = (page.0 as usize).checked_sub(1);
        index.and_then(|index| self.current.get(index)).copied().unwrap_or(Stamp::UNKNOWN)
    }

    /// What is on stable storage of a page, whatever happens.
    pub fn settled(&self, page: PageNumber) -> Stamp {
        self.unsettled.get(&page).map_or_else(|| self.current(page), |unsettled| unsettled.settled)
    }

    fn set(&mut self, page: PageNumber, stamp: Stamp) {
        let index = page.0.checked_sub(1).expect("page 0 is the header") as usize;
        if index >= self.current.len() {
            // Not twice as many at a time: this may be the largest thing in memory after the cache.
            if index >= self.current.capacity() {
                self.current.reserve_exact(index + GROWTH_PAGES - self.current.len());
            }
            self.current.resize(index + 1, Stamp::UNKNOWN);
        }
        self.current[index] = stamp;
    }

    /// Takes in what the sidecar says.
    pub fn load(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(self.unsettled.is_empty(), "loading comes first");
        self.set(page, stamp);
    }

    /// Takes in what the log says of a write that may or may not have happened before the crash.
    pub fn add_candidate(&mut self, stamp: &PageStamp) {
        if stamp.page.0 > 0 {
            let candidate = Stamp { dbtime: stamp.dbtime, hash: stamp.hash };
            self.candidates.entry(stamp.page).or_default().push(candidate);
        }
    }

    /// Pages that have candidates still.
    pub fn uncertain(&self) -> Option<PageNumber> {
        self.candidates.keys().next().copied()
    }

    /// The page will be written before the log that its candidates are from is given up.
    pub fn forget_candidates(&mut self, page: PageNumber) {
        self.candidates.remove(&page);
    }

    /// Forgets all pages behind `last`: they are no part of the database, whatever is in their place.
    pub fn forget_behind(&mut self, last: PageNumber) {
        let from = PageNumber(last.0 + 1);
        self.candidates.split_off(&from);
        self.unsettled.split_off(&from);
        for page in (from.0..=self.pages())
            .map(PageNumber)
            .filter(|&page| self.current(page).is_known())
            .collect::<Vec<_>>()
        {
            self.set(page, Stamp::UNKNOWN);
            self.unwritten.insert(page);
        }
    }

    /// Notes the stamp of an image that is stable in its place.
    pub fn settle(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(!self.unsettled.contains_key(&page), "page {page} is being written");
        self.candidates.remove(&page);
        self.set(page, stamp);
        self.unwritten.insert(page);
    }

    /// Whether an image could be what is in place of a page, as far as is known.
    pub fn could_be(&self, page: PageNumber, bytes: &[u8]) -> bool {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        let candidates = self.candidates.get(&page).map_or(&[][..], Vec::as_slice);
        !current.is_known() || current == found || candidates.contains(&found)
    }

    /// Judges what was read from the place of a page. Its checksum is right.
    ///
    /// A page of which nothing was known is known by what it reads as from now on.
    pub fn judge(&mut self, page: PageNumber, bytes: &[u8]) -> Result<(), StampFinding> {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        if let Some(candidates) = self.candidates.get(&page) {
            if !current.is_known() || current == found || candidates.contains(&found) {
                self.settle(page, found);
                return Ok(());
            }
            let newest = candidates.iter().map(|stamp| stamp.dbtime).fold(current.dbtime, DbTime::max);
            return Err(finding(found.dbtime, current.dbtime, newest));
        }
        if !current.is_known() {
            self.settle(page, found);
            return Ok(());
        }
        self.compare(page, bytes)
    }

    /// Whether an image is what the last write made of a page, if that is known.
    pub fn compare(&self, page: PageNumber, bytes: &[u8]) -> Result<(), StampFinding> {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        match !current.is_known() || found == current {
            true => Ok(()),
            false => Err(finding(found.dbtime, current.dbtime, current.dbtime)),
        }
    }

    /// A write in place has ended.
    pub fn end_write(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(stamp.is_known(), "a page that is written has a time");
        self.candidates.remove(&page);
        let settled = self.current(page);
        let entry = Unsettled { settled, flushing: None, written: None };
        self.unsettled.entry(page).or_insert(entry).written = Some(stamp);
        self.set(page, stamp);
    }

    /// The database is about to be flushed: what has been written until now will be stable.
    pub fn begin_flush(&mut self) {
        for unsettled in self.unsettled.values_mut() {
            unsettled.flushing = unsettled.written.take().or(unsettled.flushing);
        }
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self) {
        let Self { unsettled, unwritten, .. } = self;
        unsettled.retain(|&page, unsettled| {
            if let Some(stable) = unsettled.flushing.take() {
                unsettled.settled = stable;
                unwritten.insert(page);
            }
            unsettled.written.is_some()
        });
    }

    /// There is no sidecar that they could be in.
    pub fn forget_unwritten(&mut self) {
        self.unwritten.clear();
    }

    /// Settled stamps that are not in the sidecar; from now on they count as written there.
    pub fn take_unwritten(&mut self) -> Vec<PageStamp> {
        let pages = std::mem::take(&mut self.unwritten);
        let stamp = |page| {
            let Stamp { dbtime, hash } = self.settled(page);
            PageStamp { page, dbtime, hash }
        };
        pages.into_iter().map(stamp).collect()
    }
}

/// What is wrong with a page of time `found` where `least` is the oldest possible and `most` the newest.
fn finding(found: DbTime, least: DbTime, most: DbTime) -> StampFinding {
    if found < least {
        return StampFinding::LostWrite { found, expected: least };
    }
    match found > most {
        true => StampFinding::Newer { found, expected: most },
        false => StampFinding::Mixed { found },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageNumber = PageNumber(3);

    fn image(dbtime: u64, fill: u8) -> Vec<u8> {
        let mut page = vec![fill; 4096];
        page[8..16].copy_from_slice(&dbtime.to_le_bytes());
        page
    }

    fn written(table: &mut StampTable, dbtime: u64) {
        let stamp = table.stamp(PAGE, &image(dbtime, 1));
        table.end_write(PAGE, stamp);
    }

    fn table() -> StampTable {
        StampTable::new(StampKey::new([1, 2]))
    }

    #[test]
    fn a_read_must_find_the_last_write_that_ended_and_is_told_what_it_found() {
        let mut table = table();
        written(&mut table, 5);
        written(&mut table, 7);
        assert_eq!(table.judge(PAGE, &image(7, 1)), Ok(()));
        let time = DbTime;
        let check = |table: &mut StampTable, image: &[u8], expected| {
            assert_eq!(table.judge(PAGE, image), Err(expected));
        };
        check(&mut table, &image(5, 1), StampFinding::LostWrite { found: time(5), expected: time(7) });
        check(&mut table, &image(7, 2), StampFinding::Mixed { found: time(7) });
        check(&mut table, &image(8, 1), StampFinding::Newer { found: time(8), expected: time(7) });
    }

    #[test]
    fn only_what_had_ended_when_the_flush_began_is_settled_by_it() {
        let mut table = table();
        let settled = |table: &StampTable| table.settled(PAGE).dbtime.0;
        written(&mut table, 5);
        table.begin_flush();
        written(&mut table, 7);
        assert_eq!((settled(&table), table.unwritten.len()), (0, 0));
        table.end_flush();
        assert_eq!((settled(&table), table.current(PAGE).dbtime.0), (5, 7));
        assert_eq!(table.take_unwritten().len(), 1);
        // A flush that was given up settles nothing; the next one does for both.
        table.begin_flush();
        table.begin_flush();
        table.end_flush();
        assert_eq!((settled(&table), table.take_unwritten()[0].dbtime.0, table.unwritten.len()), (7, 7, 0));
    }

    #[test]
    fn after_a_crash_every_image_on_its_way_will_do_and_the_one_found_is_the_only_one_from_then_on() {
        for found in [5, 7, 9] {
            let mut table = table();
            let stamp = |table: &StampTable, dbtime| table.stamp(PAGE, &image(dbtime, 1));
            table.load(PAGE, stamp(&table, 5));
            for dbtime in [7, 9] {
                let Stamp { dbtime, hash } = stamp(&table, dbtime);
                table.add_candidate(&PageStamp { page: PAGE, dbtime, hash });
            }
            assert_eq!(table.judge(PAGE, &image(8, 1)), Err(StampFinding::Mixed { found: DbTime(8) }));
            assert!(table.judge(PAGE, &image(4, 1)).is_err() && table.judge(PAGE, &image(10, 1)).is_err());
            assert!(table.could_be(PAGE, &image(found, 1)) && !table.could_be(PAGE, &image(found, 2)));
            assert_eq!(table.judge(PAGE, &image(found, 1)), Ok(()));
            for later in [5, 7, 9] {
                assert_eq!(table.judge(PAGE, &image(later, 1)).is_ok(), later == found);
            }
            assert_eq!(table.take_unwritten()[0].dbtime.0, found);
        }
    }

    #[test]
    fn a_page_of_which_nothing_is_known_is_known_once_it_was_read() {
        let mut table = table();
        assert_eq!((table.judge(PAGE, &image(5, 1)), table.pages_known()), (Ok(()), 1));
        assert!(table.judge(PAGE, &image(5, 2)).is_err());
    }
}
