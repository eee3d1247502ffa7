//! Jobs: long work in the background, with progress, rate, time left, and cancellation.
//!
//! A job is passive: the task that does the work counts it here, and checks for cancellation.
//!
//! Invariants: total and done never decrease during a job. If more work is found, or a part of it fails, the
//! total rises. Work that is no longer needed counts as done.

use crate::{Moment, World};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

/// The rate is averaged over so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// Progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobProgress {
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

/// A job, or a series of jobs of one kind.
pub struct Job {
    world: World,
    progress: RefCell<Progress>,
    running: Cell<u32>,
    is_cancelled: Cell<bool>,
}

/// A job under way; it ends on drop.
pub struct RunningJob<'j>(&'j Job);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

impl Job {
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            progress: RefCell::default(),
            running: Cell::new(0),
            is_cancelled: Cell::new(false),
        }
    }

    /// A job that is under way until it is dropped; its total grows from 0.
    pub fn under_way(world: &World) -> Self {
        let job = Self::new(world);
        job.set_total(0);
        job.running.set(1);
        job
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

    /// Adds work that was found.
    pub fn add_total(&self, bytes: u64) {
        self.progress.borrow_mut().total_bytes += bytes;
    }

    /// Counts bytes as done; the total rises if they are more.
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
        assert_eq!((progress.total_bytes, progress.done_bytes), (40, 0), "the next one begins at 0");
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

    #[test]
    fn a_job_counts_and_can_be_cancelled_while_it_is_under_way() {
        let ((), _) = crate::sim::run(1, |world| async move {
            let job = Job::new(&world);
            job.cancel();
            assert!(!job.is_cancelled(), "none is under way");
            let job = Job::under_way(&world);
            job.add_total(400);
            world.sleep(Duration::from_secs(2)).await;
            job.advance(100);
            let progress = JobProgress {
                is_running: true,
                total_bytes: 400,
                done_bytes: 100,
                bytes_per_second: 50.0,
                time_left: Some(Duration::from_secs(6)),
            };
            assert_eq!(job.progress(), progress);
            job.advance(500);
            assert_eq!((job.progress().total_bytes, job.progress().done_bytes), (600, 600));
            job.cancel();
            assert!(job.is_cancelled());
        });
    }
}
