//! Throttle of the mover: hosts have priority, and the mover still makes progress.
//!
//! Every host command is timed. Commands that overlap no work of the mover form the *baseline*: the latency
//! when only hosts use the drives. The latency of recent commands divided by their baseline is the
//! *slowdown*. Work of the mover is done in pieces, each under a permit.
//!
//! 1. While hosts are idle, [`PARALLELISM_MAX`] permits are given at once.
//! 2. While hosts work, permits become fewer as the slowdown rises; below one, the mover pauses between
//!    pieces.
//! 3. Work is never slowed below its floor, a share of the time, so it ends under any load.
//! 4. Work that hosts wait for is not slowed down.
//! 5. Above the administrator's ceiling only such work is permitted.

use super::recent_writes::RecentWrites;
use crate::error::{Error, Result};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::sync::Notify;
use world::{Moment, World};

/// Pieces under way at once, at full speed.
pub const PARALLELISM_MAX: usize = 8;
/// Blocks of a piece, at most: while hosts work, and while they are idle.
const PIECE_BLOCKS: u32 = 64;
const PIECE_BLOCKS_IDLE: u32 = 256;
/// Hosts count as idle after so long without a command.
const QUIET: Duration = Duration::from_secs(1);
/// Slowdown above which the mover slows down, and below which it speeds up.
const SLOWER_ABOVE: f64 = 1.5;
const FASTER_BELOW: f64 = 1.25;
/// Factors of one adjustment, and commands between two adjustments.
const SLOWER: f64 = 0.7;
const FASTER: f64 = 1.2;
const COMMANDS_BETWEEN: u32 = 16;
/// Weights of the last command in the slowdown, and in a baseline.
const QUICK: f64 = 1.0 / 32.0;
const SLOW: f64 = 1.0 / 128.0;
/// A baseline is the mean of so many commands before it becomes a slow moving average.
const BASELINE_COMMANDS: u32 = 16;
/// Upper bounds of the length classes, in bytes; longer commands form the last class.
const LENGTHS: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
/// A pause is cut short after so long to check if hosts have become idle.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(2);

/// Limits of the mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleSetting {
    /// Minimum share of the time, in percent, for deferrable work, whatever the slowdown.
    pub floor_percent: u8,
    /// The same for urgent work: copies of data that has one copy left.
    pub urgent_floor_percent: u8,
    /// Bytes read and written a second, at most, by all work that hosts do not wait for; 0 means unlimited.
    pub ceiling_bytes_per_second: u64,
}

impl Default for ThrottleSetting {
    /// 5 % and 25 % of the time; no ceiling.
    fn default() -> Self {
        Self { floor_percent: 5, urgent_floor_percent: 25, ceiling_bytes_per_second: 0 }
    }
}

/// Urgency of a piece of work, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Scrub, and cleaning ahead of need.
    CanWait,
    /// Data has one copy left.
    Urgent,
    /// Hosts wait for space.
    Awaited,
}

/// Kinds of host commands, which have baselines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostCommand {
    Read,
    Write,
}

/// Current state of the throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleFigures {
    /// Recent latency of host commands as a multiple of their baseline, measured while the mover works.
    pub slowdown: f64,
    /// Pieces that may be under way at once; below one, the share of the time that one piece is.
    pub parallelism: f64,
    /// True if hosts worked within the last second.
    pub hosts_work: bool,
    /// The latency that 99 % of hosts' writes of the last two seconds did not exceed; `None` without a write.
    pub write_p99: Option<Duration>,
}

pub(crate) struct Throttle {
    world: World,
    state: RefCell<State>,
    freed: Notify,
}

/// Latency of commands of one kind and length class.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    nanoseconds: f64,
    commands: u32,
}

/// Timing of the last piece of one urgency.
#[derive(Clone, Copy, Debug, Default)]
struct PieceTiming {
    took: Duration,
    ended: Moment,
}

#[derive(Debug)]
struct State {
    setting: ThrottleSetting,
    /// By kind and length class.
    baselines: [[Baseline; LENGTHS.len() + 1]; 2],
    slowdown: f64,
    /// Commands since the last adjustment.
    seen: u32,
    parallelism: f64,
    commands_under_way: u32,
    last_command: Option<Moment>,
    permits_out: usize,
    /// Incremented with each permit: a command during which it changed has met the mover.
    permits_given: u64,
    /// Value of `permits_given` at the last adjustment.
    permits_judged: u64,
    last: [PieceTiming; 2],
    /// The ceiling forbids pieces before this moment.
    below_ceiling_from: Moment,
    writes: RecentWrites,
    is_closed: bool,
}

/// A host command under way; it ends on drop.
pub(crate) struct TimedCommand {
    throttle: Rc<Throttle>,
    command: HostCommand,
    bytes: usize,
    begun: Moment,
    permits_given: u64,
    met_mover: bool,
}

/// A piece of work under way; it ends on drop.
pub(crate) struct Permit {
    throttle: Rc<Throttle>,
    urgency: Urgency,
    begun: Moment,
    /// Maximum size of the piece, in blocks.
    pub blocks_max: u32,
}

/// Answer to a request for a permit.
enum Decision {
    Now,
    /// After another piece has ended.
    WhenFreed,
    /// At this moment.
    NotBefore(Moment),
}

impl Throttle {
    pub fn new(world: &World, setting: ThrottleSetting) -> Rc<Self> {
        let state = RefCell::new(State::new(setting));
        Rc::new(Self { world: world.clone(), state, freed: Notify::new() })
    }

    /// Starts the clock of a host command.
    pub fn begin(self: &Rc<Self>, command: HostCommand, bytes: usize) -> TimedCommand {
        let mut state = self.state.borrow_mut();
        state.commands_under_way += 1;
        let (met_mover, permits_given) = (state.permits_out > 0, state.permits_given);
        let begun = self.world.now();
        TimedCommand { throttle: Rc::clone(self), command, bytes, begun, permits_given, met_mover }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// The throttle was closed.
    pub async fn permit(self: &Rc<Self>, urgency: Urgency) -> Result<Permit> {
        loop {
            let now = self.world.now();
            let decision = {
                let mut state = self.state.borrow_mut();
                if state.is_closed {
                    return Err(Error::Stopped("it was closed".to_owned()));
                }
                let decision = state.ask(urgency, now);
                if let Decision::Now = decision {
                    state.give(now);
                    let is_idle = !state.do_hosts_work(now);
                    let blocks_max = if is_idle { PIECE_BLOCKS_IDLE } else { PIECE_BLOCKS };
                    return Ok(Permit { throttle: Rc::clone(self), urgency, begun: now, blocks_max });
                }
                decision
            };
            match decision {
                Decision::NotBefore(moment) => self.world.sleep_until(moment.min(now + LOOK_AGAIN)).await,
                _ => self.freed.notified().await,
            }
        }
    }

    /// Replaces floors and ceiling.
    pub fn set(&self, setting: ThrottleSetting) {
        let mut state = self.state.borrow_mut();
        state.setting = setting;
        state.below_ceiling_from = Moment::default();
    }

    /// Refuses permits from now on.
    pub fn close(&self) {
        self.state.borrow_mut().is_closed = true;
        self.freed.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.state.borrow().is_closed
    }

    /// The moment from which hosts count as idle, if no command comes before.
    pub fn idle_from(&self) -> Moment {
        let state = self.state.borrow();
        let now = self.world.now();
        match state.last_command {
            _ if state.commands_under_way > 0 => now + QUIET,
            Some(last) => now.max(last + QUIET),
            None => now,
        }
    }

    pub fn figures(&self) -> ThrottleFigures {
        let (state, now) = (self.state.borrow(), self.world.now());
        let hosts_work = state.do_hosts_work(now);
        let parallelism = if hosts_work { state.parallelism } else { PARALLELISM_MAX as f64 };
        let write_p99 = state.writes.p99(now);
        ThrottleFigures { slowdown: state.slowdown, parallelism, hosts_work, write_p99 }
    }
}

impl State {
    fn new(setting: ThrottleSetting) -> Self {
        Self {
            setting,
            baselines: Default::default(),
            slowdown: 1.0,
            seen: 0,
            parallelism: 1.0,
            commands_under_way: 0,
            last_command: None,
            permits_out: 0,
            permits_given: 0,
            permits_judged: 0,
            last: Default::default(),
            below_ceiling_from: Moment::default(),
            writes: RecentWrites::default(),
            is_closed: false,
        }
    }

    fn do_hosts_work(&self, now: Moment) -> bool {
        self.commands_under_way > 0 || self.last_command.is_some_and(|last| now.since(last) < QUIET)
    }

    fn floor(&self, urgency: Urgency) -> f64 {
        let percent = match urgency {
            Urgency::CanWait => self.setting.floor_percent,
            _ => self.setting.urgent_floor_percent,
        };
        f64::from(percent.clamp(1, 100)) / 100.0
    }

    fn ask(&self, urgency: Urgency, now: Moment) -> Decision {
        if urgency == Urgency::Awaited {
            return Decision::Now;
        }
        if now < self.below_ceiling_from {
            return Decision::NotBefore(self.below_ceiling_from);
        }
        let parallelism = if self.do_hosts_work(now) {
            self.parallelism.max(self.floor(urgency))
        } else {
            PARALLELISM_MAX as f64
        };
        if self.permits_out >= (parallelism as usize).max(1) {
            return Decision::WhenFreed;
        }
        let last = self.last[urgency as usize];
        let rest = if parallelism < 1.0 {
            last.took.mul_f64(1.0 / parallelism - 1.0).min(REST_MAX)
        } else {
            Duration::ZERO
        };
        let rested = last.ended + rest;
        if now < rested { Decision::NotBefore(rested) } else { Decision::Now }
    }

    fn give(&mut self, now: Moment) {
        let has_rested = self.last.iter().all(|piece| now.since(piece.ended) > QUIET);
        if self.permits_out == 0 && has_rested {
            self.parallelism = self.parallelism.min(1.0);
        }
        self.permits_out += 1;
        self.permits_given += 1;
    }

    fn moves(&mut self, bytes: u64, now: Moment) {
        let ceiling = self.setting.ceiling_bytes_per_second;
        if ceiling > 0 {
            let takes = Duration::from_secs_f64(bytes as f64 / ceiling as f64);
            self.below_ceiling_from = self.below_ceiling_from.max(now) + takes;
        }
    }

    fn piece_done(&mut self, urgency: Urgency, begun: Moment, now: Moment) {
        assert!(self.permits_out > 0, "a permit that comes back was given");
        self.permits_out -= 1;
        if urgency < Urgency::Awaited {
            self.last[urgency as usize] = PieceTiming { took: now.since(begun), ended: now };
        }
    }

    fn command_done(&mut self, done: &TimedCommand, now: Moment) {
        assert!(self.commands_under_way > 0, "a command that ends has begun");
        self.commands_under_way -= 1;
        self.last_command = Some(now);
        let met_mover = done.met_mover || self.permits_given != done.permits_given;
        let length = LENGTHS.iter().position(|&most| done.bytes <= most).unwrap_or(LENGTHS.len());
        if done.command == HostCommand::Write {
            self.writes.add(now, now.since(done.begun));
        }
        let took = now.since(done.begun).as_nanos() as f64;
        let baseline = &mut self.baselines[done.command as usize][length];
        baseline.learn(took, met_mover);
        if baseline.commands >= BASELINE_COMMANDS {
            let times = took / baseline.nanoseconds.max(1.0);
            self.judge(times, now);
        }
    }

    /// Takes in a command whose latency was `times` its baseline.
    fn judge(&mut self, times: f64, now: Moment) {
        self.last_command = Some(now);
        self.slowdown += (times - self.slowdown) * QUICK;
        self.seen += 1;
        // A slowdown during which the mover was idle is not its fault.
        if self.seen >= COMMANDS_BETWEEN && self.permits_given != self.permits_judged {
            (self.seen, self.permits_judged) = (0, self.permits_given);
            self.adjust();
        }
    }

    fn adjust(&mut self) {
        if self.slowdown > SLOWER_ABOVE {
            self.parallelism = (self.parallelism * SLOWER).max(0.01);
        } else if self.slowdown < FASTER_BELOW {
            self.parallelism = (self.parallelism * FASTER).min(PARALLELISM_MAX as f64);
        }
    }
}

impl Baseline {
    /// A command that met the mover can lower a baseline, never raise it.
    fn learn(&mut self, took: f64, met_mover: bool) {
        let is_known = self.commands >= BASELINE_COMMANDS;
        if met_mover && is_known && took > self.nanoseconds {
            return;
        }
        self.commands = self.commands.saturating_add(1);
        let weight = if is_known { SLOW } else { 1.0 / f64::from(self.commands) };
        self.nanoseconds += (took - self.nanoseconds) * weight;
    }
}

impl Permit {
    /// Counts bytes read and written against the ceiling.
    pub fn moves(&self, bytes: usize) {
        let now = self.throttle.world.now();
        self.throttle.state.borrow_mut().moves(bytes as u64, now);
    }
}

impl Drop for TimedCommand {
    fn drop(&mut self) {
        let now = self.throttle.world.now();
        self.throttle.state.borrow_mut().command_done(self, now);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.throttle.world.now();
        self.throttle.state.borrow_mut().piece_done(self.urgency, self.begun, now);
        self.throttle.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_MS: u64 = 1_000_000;

    /// Commands of 8 KiB, one after another.
    fn commands(state: &mut State, now: &mut u64, count: usize, milliseconds: u64, met_mover: bool) {
        for _ in 0..count {
            let baseline = &mut state.baselines[0][0];
            let took = (milliseconds * ONE_MS) as f64;
            baseline.learn(took, met_mover);
            let times = took / baseline.nanoseconds;
            *now += milliseconds * ONE_MS;
            state.permits_given += u64::from(met_mover);
            state.judge(times, Moment(*now));
        }
    }

    #[test]
    fn the_mover_slows_down_to_its_floor_and_recovers() {
        let mut state = State::new(ThrottleSetting::default());
        let mut now = 0;
        commands(&mut state, &mut now, 100, 1, false);
        assert!(matches!(state.ask(Urgency::CanWait, Moment(now)), Decision::Now));
        commands(&mut state, &mut now, 400, 4, true);
        assert!(state.parallelism < 0.05, "four times as slow: {}", state.parallelism);
        // A piece of 10 ms: the floors are 5 % and 25 % of the time.
        for (urgency, rest) in [(Urgency::CanWait, 190), (Urgency::Urgent, 30)] {
            state.give(Moment(now));
            state.piece_done(urgency, Moment(now - 10 * ONE_MS), Moment(now));
            let Decision::NotBefore(moment) = state.ask(urgency, Moment(now)) else { panic!("it pauses") };
            assert_eq!((moment.0 - now).div_ceil(ONE_MS), rest, "{urgency:?}");
        }
        assert!(
            matches!(state.ask(Urgency::Awaited, Moment(now)), Decision::Now),
            "work that hosts wait for continues"
        );
        commands(&mut state, &mut now, 1000, 1, true);
        assert!(state.parallelism > 7.0, "hosts notice nothing: {}", state.parallelism);
    }

    #[test]
    fn commands_that_met_the_mover_do_not_raise_the_baseline() {
        let mut baseline = Baseline::default();
        (0..50).for_each(|_| baseline.learn(100.0, false));
        (0..5000).for_each(|_| baseline.learn(900.0, true));
        assert_eq!(baseline.nanoseconds as u64, 100);
        (0..5000).for_each(|_| baseline.learn(50.0, true));
        assert!(baseline.nanoseconds < 51.0, "it takes no longer without the mover");
        (0..5000).for_each(|_| baseline.learn(200.0, false));
        assert!(baseline.nanoseconds > 199.0, "hosts work harder now");
    }

    #[test]
    fn the_ceiling_limits_all_deferrable_work() {
        let setting = ThrottleSetting { ceiling_bytes_per_second: 1 << 20, ..ThrottleSetting::default() };
        let mut state = State::new(setting);
        state.give(Moment(0));
        state.moves(1 << 18, Moment(0));
        state.piece_done(Urgency::CanWait, Moment(0), Moment(1));
        let Decision::NotBefore(moment) = state.ask(Urgency::Urgent, Moment(1)) else { panic!("it waits") };
        assert_eq!(moment, Moment(250 * ONE_MS));
        assert!(matches!(state.ask(Urgency::Urgent, moment), Decision::Now));
    }
}
