//! How far a rebuild is, as people want to know it: what there is to do, what is done, how fast, how much longer.
//!
//! Invariants: what is to be done and what is done never fall while a rebuild goes on. If more copies are lost, or a copy
//! fails, there is more to be done; what comes free needs no copy, and counts as done.

use crate::pool::Pool;
use std::time::Duration;
use world::Moment;

/// The rate is that of so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RebuildProgress {
    /// Bytes of copies to be made, since segments began to lack some.
    pub total_bytes: u64,
    /// Of those, what is done: copied, or needed no more.
    pub done_bytes: u64,
    /// Bytes copied in a second, lately; 0: nothing is.
    pub bytes_per_second: f64,
    /// How long the rest takes at that rate; none: not known.
    pub time_left: Option<Duration>,
    /// Bytes of segments that have one copy left of two or more: what the next loss takes.
    pub single_copy_bytes: u64,
    /// Blocks that no copy could be read of: theirs is no copy, either.
    pub unreadable_blocks: u64,
}

/// What is counted for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    total_bytes: u64,
    done_bytes: u64,
    /// Of copies that are under way.
    under_way_bytes: u64,
    unreadable_blocks: u64,
    rate_since: Moment,
    rate_bytes: u64,
    rate: f64,
}

impl Progress {
    /// So much was copied just now.
    pub fn piece_done(&mut self, bytes: u64, now: Moment) {
        self.under_way_bytes += bytes;
        let span = now.since(self.rate_since);
        if span > RATE_OVER {
            self.rate = if span < 2 * RATE_OVER { self.rate_bytes as f64 / span.as_secs_f64() } else { 0.0 };
            (self.rate_since, self.rate_bytes) = (now, 0);
        }
        self.rate_bytes += bytes;
    }

    /// A copy is whole, or given up: so much of it was under way.
    pub fn piece_settled(&mut self, bytes: u64) {
        self.under_way_bytes = self.under_way_bytes.checked_sub(bytes).expect("it was counted");
    }

    pub fn block_unreadable(&mut self) {
        self.unreadable_blocks += 1;
    }

    /// So much has to be copied, what is under way included.
    fn look(&mut self, lacking_bytes: u64, now: Moment) {
        let left = lacking_bytes.saturating_sub(self.under_way_bytes);
        if self.done_bytes == self.total_bytes && left > 0 {
            *self = Self { under_way_bytes: self.under_way_bytes, rate_since: now, ..Self::default() };
        }
        self.total_bytes = self.total_bytes.max(self.done_bytes + left);
        self.done_bytes = self.total_bytes - left;
    }

    fn rate(&self, now: Moment) -> f64 {
        let span = now.since(self.rate_since);
        match self.rate {
            _ if span > 2 * RATE_OVER => 0.0,
            0.0 if span > Duration::ZERO => self.rate_bytes as f64 / span.as_secs_f64(),
            rate => rate,
        }
    }
}

impl Pool {
    /// How far the rebuild is that goes on, or that was the last.
    pub fn rebuild_progress(&self) -> RebuildProgress {
        let drives = &self.shared.drives;
        let (wanted, of_pool) = (drives.copies_wanted(), usize::from(drives.geometry().log_copies));
        let slot_bytes = u64::from(drives.geometry().slot_bytes);
        let (mut lacking, mut single) = (0, 0);
        for (_, row) in self.shared.state.borrow().segments.iter().filter(|(_, row)| row.shape.is_mirror()) {
            let there = drives.copies_there(&row.slots);
            lacking += wanted.saturating_sub(there) as u64 * slot_bytes;
            single += u64::from(there == 1 && of_pool > 1) * slot_bytes;
        }
        let now = self.shared.world.now();
        let mut progress = self.progress.borrow_mut();
        progress.look(lacking, now);
        let left = progress.total_bytes - progress.done_bytes;
        let rate = progress.rate(now);
        let time_left = (left == 0 || rate > 0.0).then(|| match left {
            0 => Duration::ZERO,
            left => Duration::from_secs_f64((left as f64 / rate).min(1e9)),
        });
        RebuildProgress {
            total_bytes: progress.total_bytes,
            done_bytes: progress.done_bytes,
            bytes_per_second: rate,
            time_left,
            single_copy_bytes: single,
            unreadable_blocks: progress.unreadable_blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_and_what_is_to_be_done_never_fall() {
        let mut progress = Progress::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut figures = Vec::new();
        progress.look(100, at(100));
        figures.push((progress.total_bytes, progress.done_bytes));
        progress.piece_done(30, at(101));
        progress.look(100, at(101));
        figures.push((progress.total_bytes, progress.done_bytes));
        // The copy fails, and another drive goes.
        progress.piece_settled(30);
        progress.look(150, at(102));
        figures.push((progress.total_bytes, progress.done_bytes));
        // Segments come free.
        progress.look(0, at(103));
        figures.push((progress.total_bytes, progress.done_bytes));
        assert_eq!(figures, [(100, 0), (100, 30), (180, 30), (180, 180)]);
        progress.look(40, at(200));
        assert_eq!((progress.total_bytes, progress.done_bytes), (40, 0), "the next one begins anew");
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut progress = Progress::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        progress.look(10_000, at(10));
        for second in 11..=20 {
            progress.piece_done(100, at(second));
        }
        let rate = progress.rate(at(20));
        assert!((80.0..=120.0).contains(&rate), "{rate}");
        assert_eq!(progress.rate(at(60)), 0.0, "nothing is copied any more");
    }
}
