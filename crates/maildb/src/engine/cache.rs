//! The page cache: cached pages, their dirty state, and the replacement order.
//!
//! Invariants (checked by [`Cache::check`] in the tests, the cheap ones always):
//!
//! 1. A page is in at most one frame, and `index` names exactly the frames in use.
//! 2. A frame is in `evictable` iff it is clean, not being written and not pinned; in `dirty_by_use`
//!    iff it is dirty and not being written; in `dirty_by_age` iff it is dirty.
//! 3. A page being written is never evicted, and a change made meanwhile goes to a copy: what the
//!    device gets is immutable.
//! 4. `oldest_unstable` is at or before the first log record of every change that is not yet on
//!    stable storage: dirty, being written, or written but not yet flushed by the device.
//!
//! Replacement is LRU-K with K = 2: the victim is the page whose second-last use is oldest, so one scan
//! cannot empty the cache. Uses closer together than [`CORRELATED_USES`] count as one. The times of evicted
//! pages are remembered for a while (`remembered`); otherwise a page could never build up a history.

use super::{DatabaseIndex, PageId};
use crate::format::header::LogPosition;
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use world::{Buffer, Moment};

/// Uses of a page within this time count as one use (ESE: correlation interval 128,000 µs).
const CORRELATED_USES: Duration = Duration::from_micros(128_000);

/// Buffers of evicted pages kept for reuse.
const SPARE_MAX: usize = 64;

/// Stands for "no record" while a clean page is rewritten in a gap between dirty ones.
const UNCHANGED: LogPosition = LogPosition { generation: u32::MAX, segment: u16::MAX, offset: u16::MAX };

/// Range of log records that changed a page since it was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyRange {
    /// Start of the first such record: recovery must not start after it.
    pub first: LogPosition,
    /// End of the last: the page must not be written before the log is stable up to here.
    pub last: LogPosition,
}

/// Order of replacement: second-last use, last use, frame.
type UseOrder = (Moment, Moment, usize);

struct Frame {
    id: PageId,
    page: Arc<Buffer>,
    dirt: Option<DirtyRange>,
    /// First record of the changes that are being written.
    writing: Option<LogPosition>,
    pins: u32,
    last_use: Moment,
    second_last_use: Moment,
}

/// The page cache; see the invariants above.
pub struct Cache {
    frames: Vec<Option<Frame>>,
    vacant: Vec<usize>,
    index: FxHashMap<PageId, usize>,
    pages_max: usize,
    uses: u64,
    /// Frames reserved for reads in progress.
    reserved: usize,
    /// Buffers of evicted pages, for reuse.
    spare: Vec<Buffer>,
    evictable: BTreeSet<UseOrder>,
    dirty_by_use: BTreeSet<UseOrder>,
    dirty_by_age: BTreeSet<(LogPosition, PageId)>,
    being_written: BTreeSet<(LogPosition, PageId)>,
    /// Written, but not yet flushed by the device: oldest record by database.
    unflushed: BTreeMap<DatabaseIndex, LogPosition>,
    flushing: BTreeMap<DatabaseIndex, LogPosition>,
    /// Last uses of evicted pages, each with the number of its eviction.
    remembered: FxHashMap<PageId, (Moment, u64)>,
    remembered_order: VecDeque<(PageId, u64)>,
    evictions: u64,
}

impl Cache {
    /// An empty cache with a capacity of `pages_max` pages. A change of several pages may exceed it
    /// temporarily; later reads evict the excess.
    pub fn new(pages_max: usize) -> Self {
        assert!(pages_max >= 16, "a tree operation alone needs a handful of pages");
        Self {
            frames: Vec::new(),
            vacant: Vec::new(),
            index: FxHashMap::default(),
            pages_max,
            uses: 0,
            reserved: 0,
            spare: Vec::new(),
            evictable: BTreeSet::new(),
            dirty_by_use: BTreeSet::new(),
            dirty_by_age: BTreeSet::new(),
            being_written: BTreeSet::new(),
            unflushed: BTreeMap::new(),
            flushing: BTreeMap::new(),
            remembered: FxHashMap::default(),
            remembered_order: VecDeque::new(),
            evictions: 0,
        }
    }

    /// Number of cached pages.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Capacity in pages.
    pub fn pages_max(&self) -> usize {
        self.pages_max
    }

    /// Number of cache hits.
    pub fn uses(&self) -> u64 {
        self.uses
    }

    /// True if changes that created pages have filled the cache beyond its capacity.
    pub fn is_overfull(&self) -> bool {
        self.index.len() > self.pages_max
    }

    /// Free pages; those reserved for reads in progress are not free.
    pub fn free(&self) -> usize {
        self.pages_max.saturating_sub(self.index.len() + self.reserved)
    }

    /// Number of dirty pages.
    pub fn dirty(&self) -> usize {
        self.dirty_by_age.len()
    }

    /// Number of pages being written.
    pub fn being_written(&self) -> usize {
        self.being_written.len()
    }

    /// True if the page is cached; does not count as a use.
    pub fn contains(&self, id: PageId) -> bool {
        self.index.contains_key(&id)
    }

    /// The page's bytes; counts as a use.
    pub fn get(&mut self, id: PageId, now: Moment) -> Option<&[u8]> {
        let slot = *self.index.get(&id)?;
        self.uses += 1;
        self.note_use(slot, now);
        Some(&self.frame(slot).page)
    }

    /// The page's bytes; does not count as a use.
    pub fn peek(&self, id: PageId) -> Option<&[u8]> {
        self.index.get(&id).map(|&slot| &self.frame(slot).page[..])
    }

    /// Changes a cached page; `range` is the start and end of the log records of the change.
    pub fn change(&mut self, id: PageId, range: (LogPosition, LogPosition), change: impl FnOnce(&mut [u8])) {
        let slot = *self.index.get(&id).expect("a page is changed only while it is cached");
        change(&mut Arc::make_mut(&mut self.frame_mut(slot).page)[..]);
        self.mark_dirty(slot, range);
    }

    /// Stores new bytes of a page, cached or not; `range` is the start and end of the log records of the
    /// change.
    pub fn put_changed(&mut self, id: PageId, page: Buffer, range: (LogPosition, LogPosition), now: Moment) {
        let slot = match self.index.get(&id) {
            Some(&slot) => {
                self.frame_mut(slot).page = Arc::new(page);
                slot
            }
            None => self.take_in(id, Arc::new(page), now),
        };
        self.mark_dirty(slot, range);
    }

    /// Reserves a frame for a read; false if none is free.
    pub fn reserve(&mut self) -> bool {
        let free = self.free() > 0;
        self.reserved += usize::from(free);
        free
    }

    /// Reserves a frame beyond the capacity, for a step that pins pages already and so must not wait.
    pub fn reserve_beyond(&mut self) {
        self.reserved += 1;
    }

    /// Returns a reservation.
    pub fn unreserve(&mut self) {
        self.reserved = self.reserved.checked_sub(1).expect("only a reserved frame is returned");
    }

    /// A buffer for a page read, with arbitrary contents.
    pub fn take_memory(&mut self, page_bytes: usize) -> Buffer {
        match self.spare.pop() {
            Some(memory) if memory.len() == page_bytes => memory,
            _ => Buffer::zeroed(page_bytes),
        }
    }

    /// Inserts a page just read, using up a reservation, and pins it.
    pub fn put_read(&mut self, id: PageId, page: Buffer, now: Moment) {
        self.unreserve();
        if self.pin(id) {
            // Inserted by a change that needed no read (a newly allocated page): newer than the disk.
            return;
        }
        let slot = self.take_in(id, Arc::new(page), now);
        self.frame_mut(slot).pins = 1;
    }

    /// Pins a page: it is not evicted until it has been unpinned as often. False if it is not cached.
    pub fn pin(&mut self, id: PageId) -> bool {
        let Some(&slot) = self.index.get(&id) else { return false };
        self.declassify(slot);
        self.frame_mut(slot).pins += 1;
        self.classify(slot);
        true
    }

    /// Undoes one `pin`.
    pub fn unpin(&mut self, id: PageId) {
        let slot = *self.index.get(&id).expect("a pinned page stays in the cache");
        self.declassify(slot);
        let pins = &mut self.frame_mut(slot).pins;
        *pins = pins.checked_sub(1).expect("only a pinned page is unpinned");
        self.classify(slot);
    }

    /// Evicts the next clean page in the replacement order; false if there is none.
    pub fn evict(&mut self) -> bool {
        let Some(&order) = self.evictable.first() else { return false };
        self.evict_frame(order.2);
        true
    }

    /// Pages that are free or can be evicted at once.
    pub fn available(&self) -> usize {
        self.free() + self.evictable.len()
    }

    /// The next dirty page in the replacement order.
    pub fn next_to_write(&self) -> Option<PageId> {
        self.dirty_by_use.first().map(|order| self.frame(order.2).id)
    }

    /// The dirty page with the oldest change, and the start of that change's record.
    pub fn oldest_dirty(&self) -> Option<(LogPosition, PageId)> {
        self.dirty_by_age.first().copied()
    }

    /// Changes of the page that are not being written, if any.
    pub fn dirt(&self, id: PageId) -> Option<DirtyRange> {
        self.index.get(&id).and_then(|&slot| self.frame(slot).dirt)
    }

    /// True if the page is cached and not being written.
    pub fn can_be_written(&self, id: PageId) -> bool {
        self.index.get(&id).is_some_and(|&slot| self.frame(slot).writing.is_none())
    }

    /// Starts writing a page: `seal` sets its checksums, and the returned bytes stay unchanged whatever
    /// happens to the page meanwhile. A clean page is rewritten as it is.
    pub fn begin_write(&mut self, id: PageId, seal: impl FnOnce(&mut [u8])) -> Arc<Buffer> {
        let slot = *self.index.get(&id).expect("only a cached page is written");
        self.declassify(slot);
        let frame = self.frame_mut(slot);
        assert!(
            frame.writing.is_none(),
            "a page is written once at a time, or an older copy could land last"
        );
        if let Some(dirt) = frame.dirt.take() {
            seal(&mut Arc::make_mut(&mut frame.page)[..]);
            frame.writing = Some(dirt.first);
            let page = Arc::clone(&frame.page);
            let removed = self.dirty_by_age.remove(&(dirt.first, id));
            assert!(removed, "every dirty page is in the order of age");
            self.being_written.insert((dirt.first, id));
            self.classify(slot);
            return page;
        }
        // A clean page in a gap: it must not be evicted or changed in place, so it counts as being written
        // too.
        frame.writing = Some(UNCHANGED);
        let page = Arc::clone(&frame.page);
        self.being_written.insert((UNCHANGED, id));
        self.classify(slot);
        page
    }

    /// The device has accepted the bytes; they are stable after its next flush.
    pub fn end_write(&mut self, id: PageId) {
        let slot = *self.index.get(&id).expect("a page being written stays in the cache");
        self.declassify(slot);
        let first = self.frame_mut(slot).writing.take().expect("a write ends once");
        let removed = self.being_written.remove(&(first, id));
        assert!(removed, "every page being written is listed");
        if first != UNCHANGED {
            let oldest = self.unflushed.entry(id.database).or_insert(first);
            *oldest = first.min(*oldest);
        }
        self.classify(slot);
    }

    /// The database's device is about to be flushed: everything written so far will be stable.
    pub fn begin_flush(&mut self, database: DatabaseIndex) {
        if let Some(first) = self.unflushed.remove(&database) {
            // This flush also covers those of an abandoned one.
            let oldest = self.flushing.entry(database).or_insert(first);
            *oldest = first.min(*oldest);
        }
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self, database: DatabaseIndex) {
        self.flushing.remove(&database);
    }

    /// Start of the oldest log record whose change is not yet stable.
    pub fn oldest_unstable(&self) -> Option<LogPosition> {
        let writing = self.being_written.first().map(|&(first, _)| first).filter(|&first| first != UNCHANGED);
        [self.dirty_by_age.first().map(|&(first, _)| first), writing]
            .into_iter()
            .flatten()
            .chain(self.unflushed.values().copied())
            .chain(self.flushing.values().copied())
            .min()
    }

    /// Databases with writes that wait for a flush.
    pub fn databases_to_flush(&self) -> Vec<DatabaseIndex> {
        self.unflushed.keys().copied().collect()
    }

    fn frame(&self, slot: usize) -> &Frame {
        self.frames[slot].as_ref().expect("the index names frames in use")
    }

    fn frame_mut(&mut self, slot: usize) -> &mut Frame {
        self.frames[slot].as_mut().expect("the index names frames in use")
    }

    fn take_in(&mut self, id: PageId, page: Arc<Buffer>, now: Moment) -> usize {
        let second_last_use = self.remembered.remove(&id).map_or(Moment::default(), |(last_use, _)| last_use);
        let frame = Frame { id, page, dirt: None, writing: None, pins: 0, last_use: now, second_last_use };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.frames[slot] = Some(frame);
                slot
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        };
        let before = self.index.insert(id, slot);
        assert!(before.is_none(), "a page is in one frame only");
        slot
    }

    fn evict_frame(&mut self, slot: usize) {
        self.declassify(slot);
        let frame = self.frames[slot].take().expect("a victim is a frame in use");
        assert!(
            frame.dirt.is_none() && frame.writing.is_none() && frame.pins == 0,
            "a victim is idle and clean"
        );
        self.index.remove(&frame.id);
        self.vacant.push(slot);
        if self.spare.len() < SPARE_MAX
            && let Some(memory) = Arc::into_inner(frame.page)
        {
            self.spare.push(memory);
        }
        self.evictions += 1;
        self.remembered.insert(frame.id, (frame.last_use, self.evictions));
        self.remembered_order.push_back((frame.id, self.evictions));
        while self.remembered_order.len() > self.pages_max {
            let (id, eviction) = self.remembered_order.pop_front().expect("the list is not empty");
            // A page that was cached again meanwhile is remembered by its later eviction.
            if self.remembered.get(&id).is_some_and(|&(_, latest)| latest == eviction) {
                self.remembered.remove(&id);
            }
        }
    }

    fn note_use(&mut self, slot: usize, now: Moment) {
        if now.since(self.frame(slot).last_use) < CORRELATED_USES {
            return;
        }
        self.declassify(slot);
        let frame = self.frame_mut(slot);
        frame.second_last_use = frame.last_use;
        frame.last_use = now;
        self.classify(slot);
    }

    fn mark_dirty(&mut self, slot: usize, (start, end): (LogPosition, LogPosition)) {
        assert!(start < end, "a change is described by at least one record");
        if let Some(dirt) = &mut self.frame_mut(slot).dirt {
            assert!(dirt.last <= start, "changes of a page are logged in their order");
            dirt.last = end;
            return;
        }
        self.declassify(slot);
        let frame = self.frame_mut(slot);
        frame.dirt = Some(DirtyRange { first: start, last: end });
        let id = frame.id;
        self.dirty_by_age.insert((start, id));
        self.classify(slot);
    }

    fn use_order(&self, slot: usize) -> UseOrder {
        let frame = self.frame(slot);
        (frame.second_last_use, frame.last_use, slot)
    }

    /// Removes a frame from the replacement orders, before its state changes.
    fn declassify(&mut self, slot: usize) {
        let order = self.use_order(slot);
        if !self.evictable.remove(&order) {
            self.dirty_by_use.remove(&order);
        }
    }

    /// Inserts a frame into the orders that match its state (invariant 2).
    fn classify(&mut self, slot: usize) {
        let order = self.use_order(slot);
        let frame = self.frame(slot);
        match (frame.writing, frame.dirt, frame.pins) {
            (Some(_), _, _) => {}
            (None, Some(_), _) => {
                self.dirty_by_use.insert(order);
            }
            (None, None, 0) => {
                self.evictable.insert(order);
            }
            (None, None, _) => {}
        }
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.index.len(), self.frames.iter().flatten().count());
        for (&id, &slot) in &self.index {
            let frame = self.frame(slot);
            assert_eq!(frame.id, id);
            let order = self.use_order(slot);
            let idle = frame.writing.is_none();
            assert_eq!(self.evictable.contains(&order), idle && frame.dirt.is_none() && frame.pins == 0);
            assert_eq!(self.dirty_by_use.contains(&order), idle && frame.dirt.is_some());
            assert_eq!(
                frame.dirt.is_some_and(|d| self.dirty_by_age.contains(&(d.first, id))),
                frame.dirt.is_some()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::page_size::PageNumber;
    use world::Random;

    const PAGE_BYTES: usize = 4096;

    fn id(page: u32) -> PageId {
        PageId { database: DatabaseIndex(0), page: PageNumber(page) }
    }

    fn at(record: u32) -> LogPosition {
        LogPosition { generation: 1, segment: 1, offset: record as u16 }
    }

    /// Far enough apart to count as two uses.
    fn moment(step: u64) -> Moment {
        Moment(step * 1_000_000_000)
    }

    fn read(cache: &mut Cache, page: u32, step: u64) {
        assert!(cache.reserve() || (cache.evict() && cache.reserve()), "a page can be evicted");
        cache.put_read(id(page), Buffer::zeroed(PAGE_BYTES), moment(step));
        cache.unpin(id(page));
    }

    #[test]
    fn pages_used_twice_outlive_a_scan() {
        let mut cache = Cache::new(20);
        for page in 1..=10 {
            read(&mut cache, page, 1);
            cache.get(id(page), moment(2));
        }
        for page in 100..200 {
            read(&mut cache, page, 3 + u64::from(page));
        }
        cache.check();
        assert!((1..=10).all(|page| cache.contains(id(page))), "a page used twice is still cached");
    }

    #[test]
    fn uses_close_together_count_as_one() {
        let mut cache = Cache::new(16);
        for page in 1..=16 {
            read(&mut cache, page, 1);
        }
        // Page 1 again at once, page 2 a second later.
        cache.get(id(1), moment(1) + Duration::from_millis(5));
        cache.get(id(2), moment(2));
        read(&mut cache, 17, 3);
        assert!(!cache.contains(id(1)) && cache.contains(id(2)));
    }

    #[test]
    fn the_uses_of_an_evicted_page_are_remembered() {
        let mut cache = Cache::new(16);
        for page in 1..=17 {
            read(&mut cache, page, u64::from(page));
        }
        assert!(!cache.contains(id(1)), "the first in was the first out");
        read(&mut cache, 1, 20);
        for page in 18..=31 {
            read(&mut cache, page, u64::from(page) + 5);
        }
        assert!(cache.contains(id(1)), "its earlier use counted");
    }

    #[test]
    fn a_change_during_a_write_leaves_the_written_bytes_alone_and_the_page_dirty() {
        let mut cache = Cache::new(16);
        read(&mut cache, 1, 1);
        cache.change(id(1), (at(10), at(20)), |page| page[0] = 1);
        let written = cache.begin_write(id(1), |page| page[1] = 9);
        assert_eq!(cache.oldest_unstable(), Some(at(10)));
        cache.change(id(1), (at(30), at(40)), |page| page[0] = 2);
        assert_eq!((written[0], written[1]), (1, 9));
        cache.end_write(id(1));
        assert_eq!(cache.oldest_unstable(), Some(at(10)), "written, but not yet stable");
        cache.begin_flush(DatabaseIndex(0));
        assert_eq!(cache.oldest_unstable(), Some(at(10)));
        cache.end_flush(DatabaseIndex(0));
        assert_eq!(cache.oldest_unstable(), Some(at(30)), "the later change is in memory only");
        assert!(!cache.evict(), "a dirty page is not evicted");
        cache.check();
    }

    #[test]
    fn the_oldest_write_awaiting_a_flush_bounds_the_checkpoint() {
        for order in [[1, 2], [2, 1]] {
            let mut cache = Cache::new(16);
            for page in [1, 2] {
                read(&mut cache, page, 1);
                cache.change(id(page), (at(10 * page), at(10 * page + 5)), |_| {});
            }
            for page in order {
                cache.begin_write(id(page), |_| {});
            }
            order.into_iter().for_each(|page| cache.end_write(id(page)));
            assert_eq!(cache.oldest_unstable(), Some(at(10)), "both end before one flush: {order:?}");
            // That flush fails or is abandoned; the next covers its writes and those since.
            cache.begin_flush(DatabaseIndex(0));
            cache.change(id(2), (at(30), at(35)), |_| {});
            cache.begin_write(id(2), |_| {});
            cache.end_write(id(2));
            cache.begin_flush(DatabaseIndex(0));
            assert_eq!(cache.oldest_unstable(), Some(at(10)), "{order:?}");
            cache.end_flush(DatabaseIndex(0));
            assert_eq!(cache.oldest_unstable(), None);
        }
    }

    #[test]
    fn invariants_hold_under_random_use() {
        let mut cache = Cache::new(32);
        let mut random = Random::new(11, "cache");
        let (mut pinned, mut writing) = (Vec::new(), Vec::new());
        for step in 1..20_000 {
            let page = id(1 + random.below(60) as u32);
            match random.below(8) {
                0..=2 => {
                    if cache.get(page, moment(step)).is_none()
                        && (cache.reserve() || cache.evict() && cache.reserve())
                    {
                        cache.put_read(page, Buffer::zeroed(16), moment(step));
                        pinned.push(page);
                    }
                }
                3 if cache.contains(page) => cache.change(page, (at_step(step), at_step(step + 1)), |_| {}),
                4 if cache.pin(page) => pinned.push(page),
                5 => pinned.pop().into_iter().for_each(|page| cache.unpin(page)),
                6 if cache.can_be_written(page) => {
                    cache.begin_write(page, |_| {});
                    writing.push(page);
                }
                _ => writing.pop().into_iter().for_each(|page| cache.end_write(page)),
            }
            if step % 100 == 0 {
                cache.check();
            }
        }
    }

    fn at_step(step: u64) -> LogPosition {
        LogPosition { generation: step as u32, segment: 1, offset: 0 }
    }
}
