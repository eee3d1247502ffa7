//! Jobs: long work in the background, with progress, rate, time left, and cancellation.
//!
//! A job is passive: the task that does the work counts it here, and checks for cancellation.
//!
//! Invariants: total and done never decrease during a job. If more work is found, or a part of it fails, the
//! total rises. Work that is no longer needed counts as done.

use super::Mover;
use crate::redundancy::scheme_of;
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use world::{Moment, World};

/// The rate is averaged over so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// Kinds of jobs; a pool has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Replacing lost copies.
    Rebuild,
    /// Reading every copy of everything.
    Scrub,
    /// Moving blocks of raid0 volumes out of the mirrored log.
    Destage,
    /// Freeing the space of deleted snapshots and volumes, and of discards. Checkpoints do it in parts; how
    /// much is left is not known, and it cannot be cancelled.
    Reclaim,
}

/// Progress of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobProgress {
    pub kind: JobKind,
    /// False: the other fields are those of the last one.
    pub is_running: bool,
    /// Bytes to process; 0 if that is not known.
    pub total_bytes: u64,
    /// Bytes processed, or no longer needed.
    pub done_bytes: u64,
    /// Recent rate; 0 if nothing is processed.
    pub bytes_per_second: f64,
    /// Time for the rest at the current rate; `None` if the rate is 0.
    pub time_left: Option<Duration>,
}

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

/// A job of one kind.
pub(crate) struct Job {
    world: World,
    kind: JobKind,
    progress: RefCell<Progress>,
    running: Cell<u32>,
    is_cancelled: Cell<bool>,
}

/// A job under way; it ends on drop.
pub(crate) struct RunningJob<'j>(&'j Job);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

impl Job {
    pub fn new(world: &World, kind: JobKind) -> Self {
        Self {
            world: world.clone(),
            kind,
            progress: RefCell::default(),
            running: Cell::new(0),
            is_cancelled: Cell::new(false),
        }
    }

    /// Begins a job, or joins one that is under way.
    pub fn begin(&self) -> RunningJob<'_> {
        if self.running.get() == 0 {
            self.is_cancelled.set(false);
        }
        self.running.set(self.running.get() + 1);
        RunningJob(self)
    }

    /// Asks the job that is under way, if any, to end early.
    pub fn cancel(&self) {
        self.is_cancelled.set(self.running.get() > 0);
    }

    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    /// Sets the total of a job of which nothing is done.
    pub fn set_total(&self, total_bytes: u64) {
        let rate_since = self.world.now();
        *self.progress.borrow_mut() = Progress { total_bytes, rate_since, ..Progress::default() };
    }

    /// Counts bytes of a job whose total is set.
    pub fn advance(&self, bytes: u64) {
        self.progress.borrow_mut().advance(bytes, self.world.now());
    }

    /// Counts bytes of a piece that is under way: they are done, unless it fails.
    pub fn piece_done(&self, bytes: u64) {
        self.progress.borrow_mut().piece_done(bytes, self.world.now());
    }

    /// A piece was completed or given up; `bytes` of it were under way.
    pub fn piece_ended(&self, bytes: u64) {
        self.progress.borrow_mut().piece_ended(bytes);
    }

    /// Updates total and done from the bytes that are lacking now, including those under way. True if a new
    /// job has begun by that.
    pub fn set_lacking(&self, lacking_bytes: u64) -> bool {
        self.progress.borrow_mut().look(lacking_bytes, self.world.now())
    }

    pub fn progress(&self) -> JobProgress {
        let now = self.world.now();
        let progress = self.progress.borrow();
        let left = progress.total_bytes - progress.done_bytes;
        let rate = progress.rate(now);
        let time_left = (left == 0 || rate > 0.0).then(|| match left {
            0 => Duration::ZERO,
            left => Duration::from_secs_f64((left as f64 / rate).min(1e9)),
        });
        JobProgress {
            kind: self.kind,
            is_running: self.running.get() > 0,
            total_bytes: progress.total_bytes,
            done_bytes: progress.done_bytes,
            bytes_per_second: rate,
            time_left,
        }
    }
}

/// Counters of a job.
#[derive(Debug, Default)]
struct Progress {
    total_bytes: u64,
    done_bytes: u64,
    /// Bytes of pieces that are not complete.
    under_way_bytes: u64,
    rate_since: Moment,
    rate_bytes: u64,
    rate: f64,
}

impl Progress {
    fn measure(&mut self, bytes: u64, now: Moment) {
        let span = now.since(self.rate_since);
        if span > RATE_OVER {
            self.rate = if span < 2 * RATE_OVER { self.rate_bytes as f64 / span.as_secs_f64() } else { 0.0 };
            (self.rate_since, self.rate_bytes) = (now, 0);
        }
        self.rate_bytes += bytes;
    }

    fn advance(&mut self, bytes: u64, now: Moment) {
        self.measure(bytes, now);
        self.done_bytes += bytes;
        self.total_bytes = self.total_bytes.max(self.done_bytes);
    }

    fn piece_done(&mut self, bytes: u64, now: Moment) {
        self.measure(bytes, now);
        self.under_way_bytes += bytes;
    }

    fn piece_ended(&mut self, bytes: u64) {
        self.under_way_bytes = self.under_way_bytes.checked_sub(bytes).expect("it was counted");
    }

    fn look(&mut self, lacking_bytes: u64, now: Moment) -> bool {
        let left = lacking_bytes.saturating_sub(self.under_way_bytes);
        let begins = self.done_bytes == self.total_bytes && left > 0;
        if begins {
            *self = Self { under_way_bytes: self.under_way_bytes, rate_since: now, ..Self::default() };
        }
        self.total_bytes = self.total_bytes.max(self.done_bytes + left);
        self.done_bytes = self.total_bytes - left;
        begins
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
    /// Progress of all jobs.
    pub fn jobs(&self) -> Vec<JobProgress> {
        self.count_lacking();
        let reclaim = JobProgress {
            kind: JobKind::Reclaim,
            is_running: self.shared.state.borrow().has_leftovers(),
            total_bytes: 0,
            done_bytes: 0,
            bytes_per_second: 0.0,
            time_left: None,
        };
        let jobs = [&self.rebuild_job, &self.scrub_job, &self.destage_job].map(Job::progress);
        jobs.into_iter().chain([reclaim]).collect()
    }

    /// Ends a job early; work that is complete counts. A rebuild begins again when a drive comes or goes, or
    /// on request; a scrub continues when the next one is due.
    pub fn cancel(&self, kind: JobKind) {
        match kind {
            JobKind::Rebuild => {
                self.rebuild_job.cancel();
                self.rebuild_held.set(Some(self.shared.drives.changes()));
            }
            JobKind::Scrub => self.scrub_job.cancel(),
            JobKind::Destage => self.destage_job.cancel(),
            JobKind::Reclaim => {}
        }
    }

    /// Progress of the current rebuild, or of the last one.
    pub fn rebuild_progress(&self) -> RebuildProgress {
        let single_copy_bytes = self.count_lacking();
        let JobProgress { total_bytes, done_bytes, bytes_per_second, time_left, .. } =
            self.rebuild_job.progress();
        let unreadable_blocks = self.unreadable_blocks.get();
        RebuildProgress {
            total_bytes,
            done_bytes,
            bytes_per_second,
            time_left,
            single_copy_bytes,
            unreadable_blocks,
        }
    }

    /// Counts what a rebuild has to do. Returns the bytes of segments with one copy left of two or more.
    fn count_lacking(&self) -> u64 {
        let drives = &self.shared.drives;
        let slot_bytes = u64::from(drives.geometry().slot_bytes);
        let (mut lacking, mut single) = (0, 0);
        for (_, row) in self.shared.state.borrow().segments.iter().filter(|(_, row)| row.shape.is_mirror()) {
            let there = drives.copies_there(&row.slots);
            let missing = scheme_of(row.shape).missing(there, drives.copies_wanted(row.kind));
            lacking += missing as u64 * slot_bytes;
            single += u64::from(there == 1 && drives.copies().of_kind(row.kind) > 1) * slot_bytes;
        }
        if self.rebuild_job.set_lacking(lacking) {
            self.unreadable_blocks.set(0);
        }
        single
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
        progress.piece_ended(30);
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
