//! Pacing: when operations start.
//!
//! *Closed loop* is the papers' method: each of N sessions starts its next operation when the last has
//! finished. Slow storage then also slows the load, so its worst moments are sampled least (coordinated
//! omission).
//!
//! *Held rate* models users: operations arrive whether or not earlier ones have finished. Arrivals are a
//! seeded Poisson process; a bounded number of sessions serves them in order. Arrivals beyond that wait in a
//! queue, and latency counts from the *intended* start, so it includes the wait. Releases are as fine as the
//! world's timer, about a millisecond in the real one.
//!
//! The held rate is the papers' metric: database IOPS. The I/O cost of an operation depends on the cache and
//! on the engine's coalescing, so it is measured during the run, over about the last ten seconds, starting
//! before measurement; in the first seconds of a load only over their later half, since a cold cache makes
//! the first operations expensive. The arrival rate is the target divided by this cost, plus a small margin,
//! plus a correction for what arrivals have fallen short of so far.
//!
//! The correction counts only what *arrivals* did not ask for, never what the storage did not do: operations
//! that wait, are under way or were shed count as if they had been served. So if storage cannot keep up, the
//! queue grows; the arrival rate does not change.

use crate::significance;
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};
use tokio::sync::Notify;
use world::{Moment, Random, World};

/// Maximum queue, in seconds of arrivals. More arrivals are shed, to bound memory.
const BACKLOG_SECONDS_MAX: f64 = 60.0;
/// Maximum sleep of the arrival task; bounds the delay before a new rate or a stop takes effect.
const NAP_MAX: Duration = Duration::from_millis(50);
/// Margin above the target. Arrivals are random, and their cost is known only afterwards: at 100 IOPS the sum
/// over ten seconds has a standard deviation of 1.5 %. A tenth of that remains uncorrected at the end of a
/// run of two minutes. The margin keeps chance out of the verdict.
const AIM: f64 = 1.01;
/// Maximum number of observations for the cost of an operation; they come about once a second.
const RATIO_OBSERVATIONS: usize = 10;
/// Number of observations for a load that has just started.
const RATIO_OBSERVATIONS_MIN: usize = 2;
/// Number of last observations that decide whether the rate is reached.
const AT_RATE_OBSERVATIONS: usize = 5;
/// Time constant of the correction.
const CATCH_UP: Duration = Duration::from_secs(5);
/// Bounds of the arrival rate, as shares of the target: the correction must not become a load of its own.
const RATE_BOUNDS: (f64, f64) = (0.7, 1.3);
/// Bounds of a plausible cost: an operation touches a handful of pages, and one served from the cache still
/// writes its page later.
const RATIO_BOUNDS: (f64, f64) = (0.05, 20.0);
/// Minimum number of operations for an estimate of the cost.
const RATIO_OPERATIONS_MIN: u64 = 20;

/// Starts the operations of a group's sessions.
pub struct Pacer {
    world: World,
    state: RefCell<PacerState>,
    arrived: Notify,
}

struct PacerState {
    stopped: bool,
    /// True while no operation may start.
    paused: bool,
    /// Sessions that may work in a closed loop; the others are parked.
    working: u32,
    /// Sessions waiting for an operation.
    idle: u32,
    /// None in a closed loop.
    arrivals: Option<Arrivals>,
}

/// State of pacing, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacingState {
    /// Current arrival rate; None in a closed loop.
    pub operations_per_second: Option<f64>,
    /// Operations that have arrived and not started.
    pub backlog: u64,
    /// Maximum backlog.
    pub backlog_max: u64,
    /// Arrivals dropped because the queue was full.
    pub shed: u64,
}

impl Pacer {
    /// A closed loop.
    pub fn closed(world: &World) -> Rc<Self> {
        Self::new(world, None)
    }

    /// A held rate of `target_iops` database IOPS. The caller must run [`Pacer::run_arrivals`] as a task and
    /// call [`Pacer::observe`] at every sample.
    pub fn held(world: &World, target_iops: f64, random: Random) -> Rc<Self> {
        assert!(target_iops > 0.0, "a held rate is more than nothing");
        Self::new(world, Some(Arrivals::new(target_iops, random, world.now())))
    }

    fn new(world: &World, arrivals: Option<Arrivals>) -> Rc<Self> {
        let state = PacerState { stopped: false, paused: false, working: u32::MAX, idle: 0, arrivals };
        Rc::new(Self { world: world.clone(), state: RefCell::new(state), arrived: Notify::new() })
    }

    /// Switches to a closed loop of the first `count` sessions.
    pub fn let_work(&self, count: u32) {
        let mut state = self.state.borrow_mut();
        assert!(state.arrivals.is_none(), "a held rate needs every session");
        (state.paused, state.working) = (false, count);
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Switches to a held rate of `target_iops`, without any correction for the past. `recent` is recent
    /// database I/O and the operations it served: the initial estimate of the cost if the loop was closed.
    /// The caller must run [`Pacer::run_arrivals`] as a task.
    pub fn hold(&self, target_iops: f64, recent: (u64, u64), random: Random) {
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        state.paused = false;
        match &mut state.arrivals {
            Some(arrivals) => arrivals.aim_at(target_iops, now),
            None => {
                let mut arrivals = Arrivals::new(target_iops, random, now);
                let (io, operations) = recent;
                arrivals.observed.push_back(Observed { io, operations, span_s: 0.0 });
                state.arrivals = Some(arrivals);
            }
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Stops starts and arrivals until [`Pacer::let_work`] or [`Pacer::hold`]. Queued operations stay queued.
    pub fn pause(&self) {
        self.state.borrow_mut().paused = true;
    }

    /// Waits for the next operation of session `number`; returns its intended start, or None once stopped.
    pub async fn next(&self, number: u32) -> Option<Moment> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                if state.stopped {
                    return None;
                }
                let (paused, may_work) = (state.paused, number < state.working);
                match &mut state.arrivals {
                    _ if paused => {}
                    None if may_work => return Some(self.world.now()),
                    None => {}
                    Some(arrivals) => {
                        if let Some(intended) = arrivals.queue.pop_front() {
                            return Some(intended);
                        }
                    }
                }
            }
            self.state.borrow_mut().idle += 1;
            self.arrived.notified().await;
            self.state.borrow_mut().idle -= 1;
        }
    }

    /// True if operations wait while no session is idle: more sessions would start them sooner.
    pub fn lacks_sessions(&self) -> bool {
        let state = self.state.borrow();
        state.idle == 0 && state.arrivals.as_ref().is_some_and(|arrivals| !arrivals.queue.is_empty())
    }

    /// Stops all sessions and drops the queue.
    pub fn stop(&self) {
        self.state.borrow_mut().stopped = true;
        self.arrived.notify_waiters();
    }

    pub fn is_stopped(&self) -> bool {
        self.state.borrow().stopped
    }

    /// Runs the arrivals until stopped. Returns at once in a closed loop.
    pub async fn run_arrivals(&self) {
        loop {
            let (released, wake_at) = {
                let mut state = self.state.borrow_mut();
                if state.stopped {
                    return;
                }
                let paused = state.paused;
                let Some(arrivals) = &mut state.arrivals else { return };
                let now = self.world.now();
                let released = if paused { 0 } else { arrivals.release(now) };
                let wake_at = if paused { now + NAP_MAX } else { arrivals.next.min(now + NAP_MAX) };
                (released, wake_at)
            };
            for _ in 0..released {
                self.arrived.notify_one();
            }
            self.world.sleep_until(wake_at).await;
        }
    }

    /// Reports that `operations` operations finished since the last call, which cost `io` database reads and
    /// writes, and that `under_way` are unfinished.
    pub fn observe(&self, io: u64, operations: u64, under_way: u64) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.observe(self.world.now(), io, operations, under_way);
        }
    }

    /// True if recent throughput reached the target or the storage prevented it. False while the cost of an
    /// operation is unknown. Always true in a closed loop.
    pub fn is_at_rate(&self) -> bool {
        self.state.borrow().arrivals.as_ref().is_none_or(Arrivals::is_at_rate)
    }

    /// The intended starts of queued operations.
    pub fn waiting(&self) -> Vec<Moment> {
        let state = self.state.borrow();
        state.arrivals.iter().flat_map(|arrivals| &arrivals.queue).copied().collect()
    }

    /// Resets the history: measurement begins now.
    pub fn restart(&self) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.restart(self.world.now());
        }
    }

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

/// Throughput between two observations.
struct Observed {
    /// Database reads and writes.
    io: u64,
    operations: u64,
    /// Elapsed time; 0 if unknown.
    span_s: f64,
}

/// A Poisson process whose rate follows the measured cost of an operation.
struct Arrivals {
    target_iops: f64,
    /// The most recent ones.
    observed: VecDeque<Observed>,
    observed_at: Moment,
    /// Number of observations since the load began.
    observations: usize,
    /// Requested database IOPS, with margin and correction.
    wanted_iops: f64,
    began: Moment,
    /// Database I/O since `began`.
    done_io: u64,
    /// Operations queued or under way at `began`, which were requested earlier.
    inherited: u64,
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
            observed: VecDeque::new(),
            observed_at: now,
            observations: 0,
            wanted_iops: AIM * target_iops,
            began: now,
            done_io: 0,
            inherited: 0,
            random,
            next: now,
            queue: VecDeque::new(),
            backlog_max: 0,
            shed: 0,
        }
    }

    /// Changes the target and discards the past, except the cost of an operation.
    fn aim_at(&mut self, target_iops: f64, now: Moment) {
        self.target_iops = target_iops;
        self.wanted_iops = AIM * target_iops;
        self.next = now;
        self.queue.clear();
        self.restart(now);
    }

    fn restart(&mut self, now: Moment) {
        (self.began, self.observed_at) = (now, now);
        self.done_io = 0;
        self.inherited = self.queue.len() as u64;
        self.backlog_max = self.queue.len() as u64;
        self.shed = 0;
    }

    /// Database I/O per operation; 1 until enough is known.
    fn io_per_operation(&self) -> f64 {
        let window = (self.observations / 2).clamp(RATIO_OBSERVATIONS_MIN, RATIO_OBSERVATIONS);
        let (mut io, mut operations) = (0, 0);
        for (index, one) in self.observed.iter().rev().enumerate() {
            if index >= window && operations >= RATIO_OPERATIONS_MIN {
                break;
            }
            (io, operations) = (io + one.io, operations + one.operations);
        }
        if operations < RATIO_OPERATIONS_MIN {
            return 1.0;
        }
        (io as f64 / operations as f64).clamp(RATIO_BOUNDS.0, RATIO_BOUNDS.1)
    }

    fn rate(&self) -> f64 {
        self.wanted_iops / self.io_per_operation()
    }

    /// Queues every due arrival; returns their number.
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

    fn is_at_rate(&self) -> bool {
        if self.observed.len() < AT_RATE_OBSERVATIONS {
            return false;
        }
        let (mut io, mut operations, mut span_s) = (0.0, 0.0, 0.0);
        for one in self.observed.iter().rev().take(AT_RATE_OBSERVATIONS) {
            io += one.io as f64;
            operations += one.operations as f64;
            span_s += one.span_s;
        }
        let wanted = self.target_iops * span_s;
        let is_done =
            io >= wanted * significance::least_share(significance::arrivals_of(wanted, io, operations));
        is_done || self.queue.len() as f64 > self.rate()
    }

    fn observe(&mut self, now: Moment, io: u64, operations: u64, under_way: u64) {
        let span_s = now.since(self.observed_at).as_secs_f64();
        self.observed_at = now;
        self.observations += 1;
        self.observed.push_back(Observed { io, operations, span_s });
        if self.observed.len() > RATIO_OBSERVATIONS {
            self.observed.pop_front();
        }
        self.done_io += io;
        let unserved = (self.queue.len() as u64 + under_way + self.shed).saturating_sub(self.inherited);
        let asked_for = self.done_io as f64 + unserved as f64 * self.io_per_operation();
        let wanted = AIM * self.target_iops * now.since(self.began).as_secs_f64();
        let catch_up = (wanted - asked_for) / CATCH_UP.as_secs_f64();
        let bounds = (RATE_BOUNDS.0 * self.target_iops, RATE_BOUNDS.1 * self.target_iops);
        self.wanted_iops = (AIM * self.target_iops + catch_up).clamp(bounds.0, bounds.1);
    }
}

#[cfg(test)]
mod tests;
