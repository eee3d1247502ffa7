//! The stamps of a database in memory.
//!
//! Invariants:
//!
//! 1. `current` holds for each page the stamp of the last write that has ended: a read must match it.
//! 2. A page in `unstable` has been written since its file was last flushed; its `stable` stamp is the image
//!    that a power cut may bring back. All other pages are stable: their image is `current`.
//! 3. `unwritten` names every page whose stable stamp is not yet in the sidecar.
//! 4. A page in `candidates` has not been read since the last crash. It may be any of them, or the stable one.

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

/// Pages by which the table grows.
const GROWTH_PAGES: usize = 1 << 16;

/// Stamps of a recently written page, oldest first.
struct UnstableStamps {
    stable: Stamp,
    /// Of the last write that had ended when the current flush began.
    flushing: Option<Stamp>,
    /// Of the last write that has ended since.
    written: Option<Stamp>,
}

/// The stamps of a database; see the invariants above.
pub struct StampTable {
    key: StampKey,
    /// Page 1 first.
    current: Vec<Stamp>,
    unstable: BTreeMap<PageNumber, UnstableStamps>,
    unwritten: BTreeSet<PageNumber>,
    candidates: BTreeMap<PageNumber, Vec<Stamp>>,
}

impl StampTable {
    /// A table without stamps.
    pub fn new(key: StampKey) -> Self {
        Self {
            key,
            current: Vec::new(),
            unstable: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            candidates: BTreeMap::new(),
        }
    }

    /// The stamp of an image.
    pub fn stamp(&self, page: PageNumber, bytes: &[u8]) -> Stamp {
        Stamp { dbtime: PageView::new(bytes).dbtime(), hash: self.key.hash(page, bytes) }
    }

    /// Number of pages in the table.
    pub fn pages(&self) -> u32 {
        self.current.len() as u32
    }

    /// Number of pages with a known stamp.
    pub fn pages_known(&self) -> u32 {
        self.current.iter().filter(|stamp| stamp.is_known()).count() as u32
    }

    /// The stamp of the last write of a page.
    pub fn current(&self, page: PageNumber) -> Stamp {
        let index = (page.0 as usize).checked_sub(1);
        index.and_then(|index| self.current.get(index)).copied().unwrap_or(Stamp::UNKNOWN)
    }

    /// The stamp of the image on stable storage.
    pub fn stable(&self, page: PageNumber) -> Stamp {
        self.unstable.get(&page).map_or_else(|| self.current(page), |unstable| unstable.stable)
    }

    fn set(&mut self, page: PageNumber, stamp: Stamp) {
        let index = page.0.checked_sub(1).expect("page 0 is the header") as usize;
        if index >= self.current.len() {
            // Not doubled: after the cache, this may be the largest structure in memory.
            if index >= self.current.capacity() {
                self.current.reserve_exact(index + GROWTH_PAGES - self.current.len());
            }
            self.current.resize(index + 1, Stamp::UNKNOWN);
        }
        self.current[index] = stamp;
    }

    /// Adds a stamp read from the sidecar.
    pub fn load(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(self.unstable.is_empty(), "loading comes first");
        self.set(page, stamp);
    }

    /// Adds a stamp from the log, of a write that may or may not have reached the disk before the crash.
    pub fn add_candidate(&mut self, stamp: &PageStamp) {
        if stamp.page.0 > 0 {
            let candidate = Stamp { dbtime: stamp.dbtime, hash: stamp.hash };
            self.candidates.entry(stamp.page).or_default().push(candidate);
        }
    }

    /// A page with candidates, if any.
    pub fn uncertain(&self) -> Option<PageNumber> {
        self.candidates.keys().next().copied()
    }

    /// Drops a page's candidates: it will be written before the log that they are from is released.
    pub fn forget_candidates(&mut self, page: PageNumber) {
        self.candidates.remove(&page);
    }

    /// Drops the stamps of all pages behind `last`: they are not part of the database.
    pub fn forget_behind(&mut self, last: PageNumber) {
        let from = PageNumber(last.0 + 1);
        self.candidates.split_off(&from);
        self.unstable.split_off(&from);
        for page in (from.0..=self.pages())
            .map(PageNumber)
            .filter(|&page| self.current(page).is_known())
            .collect::<Vec<_>>()
        {
            self.set(page, Stamp::UNKNOWN);
            self.unwritten.insert(page);
        }
    }

    /// Records the stamp of an image that is stable in its place.
    pub fn set_stable(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(!self.unstable.contains_key(&page), "page {page} is being written");
        self.candidates.remove(&page);
        self.set(page, stamp);
        self.unwritten.insert(page);
    }

    /// True if an image could be the current contents of a page, as far as is known.
    pub fn could_be(&self, page: PageNumber, bytes: &[u8]) -> bool {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        let candidates = self.candidates.get(&page).map_or(&[][..], Vec::as_slice);
        !current.is_known() || current == found || candidates.contains(&found)
    }

    /// Checks a page read from the device, whose checksum is right.
    ///
    /// The stamp of an unknown page is taken from the image read.
    pub fn judge(&mut self, page: PageNumber, bytes: &[u8]) -> Result<(), StampFinding> {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        if let Some(candidates) = self.candidates.get(&page) {
            if !current.is_known() || current == found || candidates.contains(&found) {
                self.set_stable(page, found);
                return Ok(());
            }
            let newest = candidates.iter().map(|stamp| stamp.dbtime).fold(current.dbtime, DbTime::max);
            return Err(finding(found.dbtime, current.dbtime, newest));
        }
        if !current.is_known() {
            self.set_stable(page, found);
            return Ok(());
        }
        self.compare(page, bytes)
    }

    /// Compares an image with the page's last write, if that is known.
    pub fn compare(&self, page: PageNumber, bytes: &[u8]) -> Result<(), StampFinding> {
        let (found, current) = (self.stamp(page, bytes), self.current(page));
        if !current.is_known() || found == current {
            Ok(())
        } else {
            Err(finding(found.dbtime, current.dbtime, current.dbtime))
        }
    }

    /// A write in place has ended.
    pub fn end_write(&mut self, page: PageNumber, stamp: Stamp) {
        assert!(stamp.is_known(), "a page that is written has a time");
        self.candidates.remove(&page);
        let stable = self.current(page);
        let entry = UnstableStamps { stable, flushing: None, written: None };
        self.unstable.entry(page).or_insert(entry).written = Some(stamp);
        self.set(page, stamp);
    }

    /// The database is about to be flushed: all ended writes will be stable.
    pub fn begin_flush(&mut self) {
        for unstable in self.unstable.values_mut() {
            unstable.flushing = unstable.written.take().or(unstable.flushing);
        }
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self) {
        let Self { unstable, unwritten, .. } = self;
        unstable.retain(|&page, unstable| {
            if let Some(stable) = unstable.flushing.take() {
                unstable.stable = stable;
                unwritten.insert(page);
            }
            unstable.written.is_some()
        });
    }

    /// Clears the list of stamps to write; for stamps without a sidecar.
    pub fn forget_unwritten(&mut self) {
        self.unwritten.clear();
    }

    /// Takes the stable stamps that are not in the sidecar; they count as written from now on.
    pub fn take_unwritten(&mut self) -> Vec<PageStamp> {
        let pages = std::mem::take(&mut self.unwritten);
        let stamp = |page| {
            let Stamp { dbtime, hash } = self.stable(page);
            PageStamp { page, dbtime, hash }
        };
        pages.into_iter().map(stamp).collect()
    }
}

/// The violation of a page of time `found`, if valid times are from `least` to `most`.
fn finding(found: DbTime, least: DbTime, most: DbTime) -> StampFinding {
    if found < least {
        return StampFinding::LostWrite { found, expected: least };
    }
    if found > most { StampFinding::Newer { found, expected: most } } else { StampFinding::Mixed { found } }
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
    fn a_read_must_match_the_last_write_that_ended() {
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
    fn a_flush_makes_only_writes_that_ended_before_it_stable() {
        let mut table = table();
        let stable = |table: &StampTable| table.stable(PAGE).dbtime.0;
        written(&mut table, 5);
        table.begin_flush();
        written(&mut table, 7);
        assert_eq!((stable(&table), table.unwritten.len()), (0, 0));
        table.end_flush();
        assert_eq!((stable(&table), table.current(PAGE).dbtime.0), (5, 7));
        assert_eq!(table.take_unwritten().len(), 1);
        // An abandoned flush makes nothing stable; the next one covers both writes.
        table.begin_flush();
        table.begin_flush();
        table.end_flush();
        assert_eq!((stable(&table), table.take_unwritten()[0].dbtime.0, table.unwritten.len()), (7, 7, 0));
    }

    #[test]
    fn after_a_crash_any_image_in_flight_is_accepted_and_then_only_the_one_read() {
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
    fn an_unknown_page_is_known_after_its_first_read() {
        let mut table = table();
        assert_eq!((table.judge(PAGE, &image(5, 1)), table.pages_known()), (Ok(()), 1));
        assert!(table.judge(PAGE, &image(5, 2)).is_err());
    }
}
