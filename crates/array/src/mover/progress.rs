//! Progress of a rebuild: work in total, done, rate, time left.
//!
//! Invariants: total and done never decrease during a rebuild. If more copies are lost, or a copy fails, the
//! total rises. A segment that becomes free needs no copy and counts as done.

use super::Mover;
use std::time::Duration;
use world::Moment;

/// The rate is averaged over so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// Progress of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RebuildProgress {
    /// Bytes of copies to make, since segments began to lack copies.
    pub total_bytes: u64,
    /// Bytes copied, or no longer needed.
    pub done_bytes: u64,
    /// Recent rate; 0 if nothing is copied.
    pub bytes_per_second: f64,
    /// Time for the rest at the current rate; `None` if the rate is 0.
    pub time_left: Option<Duration>,
    /// Bytes of segments with one copy left of two or more: another drive failure would lose them.
    pub single_copy_bytes: u64,
    /// Blocks that could be read from no copy. The new copy lacks them as well.
    pub unreadable_blocks: u64,
}

/// Counters of a rebuild.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    total_bytes: u64,
    done_bytes: u64,
    /// Bytes of copies that are not complete.
    under_way_bytes: u64,
    unreadable_blocks: u64,
    rate_since: Moment,
    rate_bytes: u64,
    rate: f64,
}

impl Progress {
    /// Counts bytes that were just copied.
    pub fn piece_done(&mut self, bytes: u64, now: Moment) {
        self.under_way_bytes += bytes;
        let span = now.since(self.rate_since);
        if span > RATE_OVER {
            self.rate = if span < 2 * RATE_OVER { self.rate_bytes as f64 / span.as_secs_f64() } else { 0.0 };
            (self.rate_since, self.rate_bytes) = (now, 0);
        }
        self.rate_bytes += bytes;
    }

    /// A copy was completed or given up; `bytes` of it were under way.
    pub fn copy_ended(&mut self, bytes: u64) {
        self.under_way_bytes = self.under_way_bytes.checked_sub(bytes).expect("it was counted");
    }

    pub fn block_unreadable(&mut self) {
        self.unreadable_blocks += 1;
    }

    /// Updates total and done from the bytes that are lacking now, including those under way.
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

impl Mover {
    /// Progress of the current rebuild, or of the last one.
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
    fn total_and_done_never_decrease() {
        let mut progress = Progress::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut figures = Vec::new();
        progress.look(100, at(100));
        figures.push((progress.total_bytes, progress.done_bytes));
        progress.piece_done(30, at(101));
        progress.look(100, at(101));
        figures.push((progress.total_bytes, progress.done_bytes));
        // The copy fails, and another drive is lost.
        progress.copy_ended(30);
        progress.look(150, at(102));
        figures.push((progress.total_bytes, progress.done_bytes));
        // Segments become free.
        progress.look(0, at(103));
        figures.push((progress.total_bytes, progress.done_bytes));
        assert_eq!(figures, [(100, 0), (100, 30), (180, 30), (180, 180)]);
        progress.look(40, at(200));
        assert_eq!((progress.total_bytes, progress.done_bytes), (40, 0), "the next one begins anew");
    }

    #[test]
    fn the_rate_covers_the_last_seconds() {
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
