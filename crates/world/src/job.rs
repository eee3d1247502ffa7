//! Jobs: long work in the background, with progress, rate, time left, and cancellation.
//!
//! A job is passive: the task that does the work counts it here, and checks for cancellation. A job belongs
//! to one thread. Work that is spread over threads is counted there, and one of them keeps the job up to date
//! ([`Job::reach`]); a [`Cancellation`] reaches all of them.
//!
//! Invariants: total and done never decrease during a job. If more work is found, or a part of it fails, the
//! total rises. Work that is no longer needed counts as done.

use crate::{Moment, World};
use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The rate is averaged over so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// The unit in which a job counts its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkUnit {
    #[default]
    Bytes,
    /// Work that takes a given time, so its rate is that of the clock.
    Nanoseconds,
    /// Millionths of a whole whose size is only estimated.
    Millionths,
}

/// Progress of a job; work is counted in `unit`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobProgress {
    /// False: the other fields are those of the last one.
    pub is_running: bool,
    pub unit: WorkUnit,
    /// Work to do; 0 if that is not known.
    pub total: u64,
    /// Work done, or no longer needed.
    pub done: u64,
    /// Recent rate; 0 if nothing is done.
    pub per_second: f64,
    /// Time for the rest at the current rate; `None` if the rate is 0, or the total is not known.
    pub time_left: Option<Duration>,
}

impl JobProgress {
    fn new(is_running: bool, unit: WorkUnit, total: u64, done: u64, per_second: f64) -> Self {
        let time_left = match total - done {
            _ if total == 0 => None,
            0 => Some(Duration::ZERO),
            left if unit == WorkUnit::Nanoseconds => Some(Duration::from_nanos(left)),
            left => (per_second > 0.0).then(|| Duration::from_secs_f64((left as f64 / per_second).min(1e9))),
        };
        Self { is_running, unit, total, done, per_second, time_left }
    }

    /// Progress of work that takes as long as planned, whose plan may change.
    pub fn of_schedule(done: Duration, left: Duration) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2);
        Self::new(true, WorkUnit::Nanoseconds, nanos(done) + nanos(left), nanos(done), CLOCK_RATE)
    }

    /// Share of the work that is done, 0 to 1; 0 if the total is not known.
    pub fn fraction(&self) -> f64 {
        self.done as f64 / self.total.max(1) as f64
    }

    /// Bytes done and in total, if the work is counted in bytes.
    pub fn bytes(&self) -> Option<(u64, u64)> {
        (self.unit == WorkUnit::Bytes && self.total > 0).then_some((self.done, self.total))
    }
}

/// Nanoseconds of a second.
const CLOCK_RATE: f64 = 1e9;

/// A request to end work early, which may come from another thread. Clones are one request.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A job, or a series of jobs of one kind.
pub struct Job {
    world: World,
    counters: RefCell<Counters>,
    running: Cell<u32>,
    cancellation: Cancellation,
}

/// A job under way; it ends on drop.
pub struct RunningJob<'j>(&'j Job);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

impl Job {
    /// A job that counts bytes.
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            counters: RefCell::default(),
            running: Cell::new(0),
            cancellation: Cancellation::default(),
        }
    }

    /// A job that counts bytes and is under way until it is dropped; its total grows from 0.
    pub fn under_way(world: &World) -> Self {
        Self::under_way_in(WorkUnit::Bytes, world)
    }

    /// Like [`under_way`](Self::under_way), in `unit`.
    pub fn under_way_in(unit: WorkUnit, world: &World) -> Self {
        let job = Self::new(world);
        job.counters.replace(Counters::new(unit, world.now()));
        job.running.set(1);
        job
    }

    /// Makes `cancellation` that of a job which is under way until it is dropped.
    #[must_use]
    pub fn cancelled_by(self, cancellation: &Cancellation) -> Self {
        Self { cancellation: cancellation.clone(), ..self }
    }

    /// Begins a job, or joins one that is under way.
    pub fn begin(&self) -> RunningJob<'_> {
        if self.running.get() == 0 {
            self.cancellation.0.store(false, Ordering::Relaxed);
        }
        self.running.set(self.running.get() + 1);
        RunningJob(self)
    }

    /// Asks the job that is under way, if any, to end early.
    pub fn cancel(&self) {
        self.cancellation.0.store(self.running.get() > 0, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Sets the total of a job of which nothing is done.
    pub fn set_total(&self, total: u64) {
        let mut counters = self.counters.borrow_mut();
        *counters = Counters { total, ..Counters::new(counters.unit, self.world.now()) };
    }

    /// Adds work that was found.
    pub fn add_total(&self, work: u64) {
        self.counters.borrow_mut().total += work;
    }

    /// Counts work as done; the total rises if that is more.
    pub fn advance(&self, work: u64) {
        self.counters.borrow_mut().advance(work, self.world.now());
    }

    /// Counts work up to `done` of `total` as done. Neither decreases by that.
    pub fn reach(&self, done: u64, total: u64) {
        let mut counters = self.counters.borrow_mut();
        counters.total = counters.total.max(total);
        let more = done.saturating_sub(counters.done);
        if more > 0 {
            counters.advance(more, self.world.now());
        }
    }

    /// Counts work of a piece that is under way: it is done, unless the piece fails.
    pub fn piece_done(&self, work: u64) {
        self.counters.borrow_mut().piece_done(work, self.world.now());
    }

    /// A piece was completed or given up; `work` of it was under way.
    pub fn piece_ended(&self, work: u64) {
        self.counters.borrow_mut().piece_ended(work);
    }

    /// Updates total and done from the work that is lacking now, including that under way. True if a new job
    /// has begun by that.
    pub fn set_lacking(&self, lacking: u64) -> bool {
        self.counters.borrow_mut().set_lacking(lacking, self.world.now())
    }

    pub fn progress(&self) -> JobProgress {
        let counters = self.counters.borrow();
        let rate = counters.rate(self.world.now());
        JobProgress::new(self.running.get() > 0, counters.unit, counters.total, counters.done, rate)
    }
}

/// Counters of a job, all in its unit.
#[derive(Debug, Default)]
struct Counters {
    unit: WorkUnit,
    total: u64,
    done: u64,
    /// Work on pieces that are not complete.
    under_way: u64,
    rate_since: Moment,
    /// Work done since then.
    rate_work: u64,
    rate: f64,
}

impl Counters {
    fn new(unit: WorkUnit, now: Moment) -> Self {
        Self { unit, rate_since: now, ..Self::default() }
    }

    fn measure(&mut self, work: u64, now: Moment) {
        let span = now.since(self.rate_since);
        if span >= 2 * RATE_OVER {
            // After a pause, which says nothing about the rate.
            (self.rate, self.rate_since, self.rate_work) = (0.0, now, work);
            return;
        }
        self.rate_work += work;
        if span > RATE_OVER {
            self.rate = self.rate_work as f64 / span.as_secs_f64();
            (self.rate_since, self.rate_work) = (now, 0);
        }
    }

    fn advance(&mut self, work: u64, now: Moment) {
        self.measure(work, now);
        self.done += work;
        self.total = self.total.max(self.done);
    }

    fn piece_done(&mut self, work: u64, now: Moment) {
        self.measure(work, now);
        self.under_way += work;
    }

    fn piece_ended(&mut self, work: u64) {
        self.under_way = self.under_way.checked_sub(work).expect("it was counted");
    }

    fn set_lacking(&mut self, lacking: u64, now: Moment) -> bool {
        let left = lacking.saturating_sub(self.under_way);
        let begins = self.done == self.total && left > 0;
        if begins {
            *self = Self { under_way: self.under_way, ..Self::new(self.unit, now) };
        }
        self.total = self.total.max(self.done + left);
        self.done = self.total - left;
        begins
    }

    fn rate(&self, now: Moment) -> f64 {
        if self.unit == WorkUnit::Nanoseconds {
            return CLOCK_RATE;
        }
        let span = now.since(self.rate_since);
        match self.rate {
            _ if span > 2 * RATE_OVER => 0.0,
            0.0 if span > Duration::ZERO => self.rate_work as f64 / span.as_secs_f64(),
            rate => rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_done_never_decrease() {
        let mut counters = Counters::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut figures = Vec::new();
        counters.set_lacking(100, at(100));
        figures.push((counters.total, counters.done));
        counters.piece_done(30, at(101));
        counters.set_lacking(100, at(101));
        figures.push((counters.total, counters.done));
        // The copy fails, and another drive is lost.
        counters.piece_ended(30);
        counters.set_lacking(150, at(102));
        figures.push((counters.total, counters.done));
        // Segments become free.
        counters.set_lacking(0, at(103));
        figures.push((counters.total, counters.done));
        assert_eq!(figures, [(100, 0), (100, 30), (180, 30), (180, 180)]);
        counters.set_lacking(40, at(200));
        assert_eq!((counters.total, counters.done), (40, 0), "the next one begins at 0");
    }

    #[test]
    fn the_rate_covers_the_last_seconds() {
        let mut counters = Counters::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        counters.set_lacking(10_000, at(10));
        for second in 11..=20 {
            counters.piece_done(100, at(second));
        }
        let rate = counters.rate(at(20));
        assert!((80.0..=120.0).contains(&rate), "{rate}");
        assert_eq!(counters.rate(at(60)), 0.0, "nothing is copied any more");
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
                unit: WorkUnit::Bytes,
                total: 400,
                done: 100,
                per_second: 50.0,
                time_left: Some(Duration::from_secs(6)),
            };
            assert_eq!(job.progress(), progress);
            job.advance(500);
            assert_eq!(job.progress().bytes(), Some((600, 600)));
            job.cancel();
            assert!(job.is_cancelled());
        });
    }

    #[test]
    fn work_counted_elsewhere_is_reached_and_never_lost() {
        let ((), _) = crate::sim::run(1, |world| async move {
            let stop = Cancellation::default();
            let job = Job::under_way_in(WorkUnit::Millionths, &world).cancelled_by(&stop);
            assert_eq!(
                (job.progress().fraction(), job.progress().time_left),
                (0.0, None),
                "no total is known"
            );
            for second in 1..=12 {
                world.sleep(Duration::from_secs(1)).await;
                job.reach(second * 10, 1000);
            }
            job.reach(50, 500);
            let progress = job.progress();
            assert_eq!((progress.total, progress.done, progress.bytes()), (1000, 120, None));
            assert_eq!((progress.per_second, progress.time_left), (10.0, Some(Duration::from_secs(88))));
            stop.cancel();
            assert!(job.is_cancelled());
        });
    }

    #[test]
    fn time_passes_at_the_rate_of_the_clock() {
        let ((), _) = crate::sim::run(1, |world| async move {
            let seconds = Duration::from_secs;
            let job = Job::under_way_in(WorkUnit::Nanoseconds, &world);
            job.reach(0, 10_000_000_000);
            assert_eq!(job.progress().time_left, Some(seconds(10)));
            world.sleep(seconds(4)).await;
            job.reach(4_000_000_000, 10_000_000_000);
            assert_eq!(job.progress(), JobProgress::of_schedule(seconds(4), seconds(6)));
        });
    }
}
