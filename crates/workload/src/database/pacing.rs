//! When operations begin.
//!
//! *Closed loop* is how the papers' tests worked: each of N sessions begins its next operation when
//! the last has ended. Slow storage then slows the question too, so its worst moments are asked
//! about least (coordinated omission).
//!
//! *Held rate* is how users behave: operations arrive whether or not the last has ended. Arrivals
//! form a Poisson process (seeded); a bounded number of sessions serves them in order; what they
//! cannot take yet waits in a queue, and latency counts from the *intended* start, so the wait is
//! in it. Releases are as fine as the world's timer, about a millisecond in the real one.
//!
//! The rate that is held is the one the papers count: database reads and writes a second. How many
//! of those one operation costs depends on the cache and on what the engine coalesces, so it is
//! measured as the run goes and the arrival rate is set to `target / (I/O per operation)`, and a
//! little more. The
//! controller looks only at that ratio, never at whether the target was reached: storage that
//! cannot keep up makes the queue grow, not the arrivals slow down or speed up.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};
use tokio::sync::Notify;
use world::{Moment, Random, World};

/// Arrivals that may wait, in seconds of arrivals; more are counted as shed, to bound memory.
const BACKLOG_SECONDS_MAX: f64 = 60.0;
/// Longest nap of the arrival task: how soon a new rate or a stop takes effect.
const NAP_MAX: Duration = Duration::from_millis(50);
/// Arrivals are random, so a rate held exactly comes out above or below by chance: by 1 % (one
/// standard deviation) at 100 I/O a second over two minutes. Aiming this much above the target keeps
/// chance out of the verdict.
const AIM: f64 = 1.03;
/// Weight of a new measurement of I/O per operation against the old estimate.
const RATIO_GAIN: f64 = 0.3;
/// Bounds of a believable ratio: an operation touches a handful of pages at most, and one served
/// from the cache still writes its page some time.
const RATIO_BOUNDS: (f64, f64) = (0.05, 20.0);
/// Operations a measurement of the ratio rests on at least.
const RATIO_OPERATIONS_MIN: u64 = 20;

/// Decides when operations begin. Shared by the sessions of a group.
pub struct Pacer {
    world: World,
    state: RefCell<PacerState>,
    arrived: Notify,
}

struct PacerState {
    stopped: bool,
    /// None in a closed loop.
    arrivals: Option<Arrivals>,
}

/// What pacing has to tell a report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacingState {
    /// Arrivals a second now; none in a closed loop.
    pub operations_per_second: Option<f64>,
    /// Operations that have arrived and not begun.
    pub backlog: u64,
    /// The most that ever waited.
    pub backlog_max: u64,
    /// Arrivals given up because too many waited.
    pub shed: u64,
}

impl Pacer {
    /// Sessions begin when they are ready.
    pub fn closed(world: &World) -> Rc<Self> {
        Self::new(world, None)
    }

    /// Arrivals such that `target_iops` database reads and writes a second result. The caller must
    /// drive [`Pacer::run_arrivals`] as a task and call [`Pacer::observe`] at every sample.
    pub fn held(world: &World, target_iops: f64, random: Random) -> Rc<Self> {
        assert!(target_iops > 0.0, "a held rate is more than nothing");
        Self::new(world, Some(Arrivals::new(target_iops, random, world.now())))
    }

    fn new(world: &World, arrivals: Option<Arrivals>) -> Rc<Self> {
        let state = PacerState { stopped: false, arrivals };
        Rc::new(Self { world: world.clone(), state: RefCell::new(state), arrived: Notify::new() })
    }

    /// Waits for the next operation of the calling session; gives the moment it was meant to begin.
    /// None once stopped.
    pub async fn next(&self) -> Option<Moment> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                if state.stopped {
                    return None;
                }
                match &mut state.arrivals {
                    None => return Some(self.world.now()),
                    Some(arrivals) => {
                        if let Some(intended) = arrivals.queue.pop_front() {
                            return Some(intended);
                        }
                    }
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Ends the run: every session gets None from now on; what waited is forgotten.
    pub fn stop(&self) {
        self.state.borrow_mut().stopped = true;
        self.arrived.notify_waiters();
    }

    /// Whether the run was ended.
    pub fn is_stopped(&self) -> bool {
        self.state.borrow().stopped
    }

    /// Lets operations arrive until stopped. Returns at once in a closed loop.
    pub async fn run_arrivals(&self) {
        loop {
            let (released, wake_at) = {
                let mut state = self.state.borrow_mut();
                if state.stopped {
                    return;
                }
                let Some(arrivals) = &mut state.arrivals else { return };
                let now = self.world.now();
                let released = arrivals.release(now);
                (released, arrivals.next.min(now + NAP_MAX))
            };
            for _ in 0..released {
                self.arrived.notify_one();
            }
            self.world.sleep_until(wake_at).await;
        }
    }

    /// Takes in what `operations` operations cost in database reads and writes.
    pub fn observe(&self, io: u64, operations: u64) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.observe(io, operations);
        }
    }

    /// Forgets the queue and its history: the measured time begins now.
    pub fn restart(&self) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.backlog_max = arrivals.queue.len() as u64;
            arrivals.shed = 0;
        }
    }

    /// How pacing stands.
    pub fn state(&self) -> PacingState {
        match &self.state.borrow().arrivals {
            None => PacingState::default(),
            Some(arrivals) => PacingState {
                operations_per_second: Some(arrivals.rate()),
                backlog: arrivals.queue.len() as u64,
                backlog_max: arrivals.backlog_max,
                shed: arrivals.shed,
            },
        }
    }
}

/// A Poisson process whose rate follows the measured cost of an operation.
struct Arrivals {
    target_iops: f64,
    io_per_operation: f64,
    random: Random,
    next: Moment,
    queue: VecDeque<Moment>,
    backlog_max: u64,
    shed: u64,
}

impl Arrivals {
    fn new(target_iops: f64, random: Random, now: Moment) -> Self {
        Self {
            target_iops,
            io_per_operation: 1.0,
            random,
            next: now,
            queue: VecDeque::new(),
            backlog_max: 0,
            shed: 0,
        }
    }

    fn rate(&self) -> f64 {
        AIM * self.target_iops / self.io_per_operation
    }

    /// Queues every arrival that is due; gives their number.
    fn release(&mut self, now: Moment) -> usize {
        let backlog_max = (self.rate() * BACKLOG_SECONDS_MAX).max(1.0) as usize;
        let mut released = 0;
        while self.next <= now {
            if self.queue.len() < backlog_max {
                self.queue.push_back(self.next);
                released += 1;
            } else {
                self.shed += 1;
            }
            // Inverse of the exponential distribution; 1 - u is never 0.
            let gap_s = -(1.0 - self.random.unit()).ln() / self.rate();
            self.next = self.next + Duration::from_secs_f64(gap_s);
        }
        self.backlog_max = self.backlog_max.max(self.queue.len() as u64);
        released
    }

    fn observe(&mut self, io: u64, operations: u64) {
        if operations < RATIO_OPERATIONS_MIN {
            return;
        }
        let measured = io as f64 / operations as f64;
        let blended = self.io_per_operation + RATIO_GAIN * (measured - self.io_per_operation);
        self.io_per_operation = blended.clamp(RATIO_BOUNDS.0, RATIO_BOUNDS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn arrivals(target_iops: f64) -> Arrivals {
        Arrivals::new(target_iops, Random::new(1, "arrivals"), Moment(0))
    }

    #[test]
    fn arrivals_keep_their_rate_however_seldom_they_are_released() {
        for steps in [1, 10, 1000] {
            let mut arrivals = arrivals(1000.0);
            for step in 1..=steps {
                arrivals.release(Moment(0) + SECOND * 10 * step / steps);
            }
            let count = arrivals.queue.len();
            assert!((9_900..=10_700).contains(&count), "{count} in 10 s, in {steps} steps");
            assert!(arrivals.queue.iter().is_sorted(), "each has the moment it was meant for");
        }
    }

    #[test]
    fn the_rate_settles_where_measured_cost_times_rate_is_the_target() {
        let mut arrivals = arrivals(500.0);
        for _ in 0..40 {
            // The storage of this test needs 2.5 reads and writes for every operation.
            arrivals.observe(2500, 1000);
        }
        assert!((arrivals.rate() - 200.0 * AIM).abs() < 1.0, "{}", arrivals.rate());
        arrivals.observe(10_000, 3);
        assert!((arrivals.rate() - 200.0 * AIM).abs() < 1.0, "three operations prove nothing");
    }

    #[test]
    fn what_cannot_be_served_waits_and_beyond_a_minute_is_shed() {
        let mut arrivals = arrivals(100.0);
        arrivals.release(Moment(0) + SECOND * 90);
        assert_eq!(arrivals.queue.len(), 6180, "a minute of arrivals");
        assert_eq!(arrivals.backlog_max, 6180);
        assert!((2_800..=3_400).contains(&arrivals.shed), "{}", arrivals.shed);
    }
}
