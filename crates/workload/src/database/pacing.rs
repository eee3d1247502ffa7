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
//! measured as the run goes, over the last ten seconds or so, and already before measuring begins; of a load
//! that has just begun over the later half of it, as a cold cache makes the first operations dear. The
//! arrival rate is the target divided by it, a little more, and what the estimate has left out so far.
//!
//! What was left out is what *arrivals* did not ask for, never what storage did not do: operations
//! that wait, are under way or were given up count as if they had been served. So storage that cannot
//! keep up makes the queue grow, not the arrivals slow down or speed up.

use super::chance;
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};
use tokio::sync::Notify;
use world::{Moment, Random, World};

/// Arrivals that may wait, in seconds of arrivals; more are counted as shed, to bound memory.
const BACKLOG_SECONDS_MAX: f64 = 60.0;
/// Longest nap of the arrival task: how soon a new rate or a stop takes effect.
const NAP_MAX: Duration = Duration::from_millis(50);
/// Arrivals are random, and what they cost is known afterwards: at 100 I/O a second the sum over ten
/// seconds is off by 1.5 % (one standard deviation). The part of it that can no longer be caught up with
/// when a run of two minutes ends is a tenth of that. Aiming this much above the target keeps chance out
/// of the verdict.
const AIM: f64 = 1.01;
/// Observations the cost of an operation is measured over, at most; they come about once a second.
const RATIO_OBSERVATIONS: usize = 10;
/// The same at least, when a load has just begun.
const RATIO_OBSERVATIONS_MIN: usize = 2;
/// The rate is looked at over so many of the last.
const AT_RATE_OBSERVATIONS: usize = 5;
/// Time in which what was left out is caught up with.
const CATCH_UP: Duration = Duration::from_secs(5);
/// Bounds of the arrival rate, as shares of the target: catching up must not become a load of its own.
const RATE_BOUNDS: (f64, f64) = (0.7, 1.3);
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
    /// Whether no operation may begin for now.
    paused: bool,
    /// Sessions that may work in a closed loop; the others are parked.
    working: u32,
    /// Sessions that wait for an operation.
    idle: u32,
    /// None in a closed loop.
    arrivals: Option<Arrivals>,
}

/// What pacing has to tell a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
        let state = PacerState { stopped: false, paused: false, working: u32::MAX, idle: 0, arrivals };
        Rc::new(Self { world: world.clone(), state: RefCell::new(state), arrived: Notify::new() })
    }

    /// Has the first `count` sessions work in a closed loop, from now on.
    pub fn let_work(&self, count: u32) {
        let mut state = self.state.borrow_mut();
        assert!(state.arrivals.is_none(), "a held rate needs every session");
        (state.paused, state.working) = (false, count);
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Has operations arrive such that `target_iops` result, from now on; nothing of what was before is
    /// made up for. `recent` is the I/O of late and the operations it was for: where the loop was closed,
    /// pacing begins with that. The caller must drive [`Pacer::run_arrivals`] as a task.
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

    /// Has no operation begin nor arrive until [`Pacer::let_work`] or [`Pacer::hold`]. What waits to begin
    /// goes on waiting.
    pub fn pause(&self) {
        self.state.borrow_mut().paused = true;
    }

    /// Waits for the next operation of the calling session, which has `number`; gives the moment it was
    /// meant to begin. None once stopped.
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

    /// Whether operations wait though no session is idle: more sessions would begin them sooner.
    pub fn lacks_sessions(&self) -> bool {
        let state = self.state.borrow();
        state.idle == 0 && state.arrivals.as_ref().is_some_and(|arrivals| !arrivals.queue.is_empty())
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

    /// Takes in that `operations` operations were completed since the last call, which cost `io`
    /// database reads and writes, and that `under_way` are begun and not ended.
    pub fn observe(&self, io: u64, operations: u64, under_way: u64) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.observe(self.world.now(), io, operations, under_way);
        }
    }

    /// Whether what is asked for has been done of late, or the storage is what kept it from being done: a load
    /// of which pacing does not know yet what it costs is neither. A closed loop is always there.
    pub fn is_at_rate(&self) -> bool {
        self.state.borrow().arrivals.as_ref().is_none_or(Arrivals::is_at_rate)
    }

    /// The intended starts of operations that have arrived and not begun.
    pub fn waiting(&self) -> Vec<Moment> {
        let state = self.state.borrow();
        state.arrivals.iter().flat_map(|arrivals| &arrivals.queue).copied().collect()
    }

    /// Forgets the queue and its history: the measured time begins now.
    pub fn restart(&self) {
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.restart(self.world.now());
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

/// What was done between two observations.
struct Observed {
    /// Database reads and writes.
    io: u64,
    operations: u64,
    /// Time it took; 0 where that is not known.
    span_s: f64,
}

/// A Poisson process whose rate follows the measured cost of an operation.
struct Arrivals {
    target_iops: f64,
    /// The last observations.
    observed: VecDeque<Observed>,
    observed_at: Moment,
    /// All of them since the load began.
    observations: usize,
    /// Database I/O a second that is asked for now.
    wanted_iops: f64,
    began: Moment,
    /// Database I/O since then.
    done_io: u64,
    /// What was under way and waiting then: its I/O was not asked for since.
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

    /// Another target, and none of the past but what an operation costs.
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

    /// Database reads and writes of one operation; 1 until there is something to go by.
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
        let is_done = io >= wanted * chance::least_share(chance::arrivals_of(wanted, io, operations));
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
