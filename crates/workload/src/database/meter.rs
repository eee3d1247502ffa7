//! Meters under the database: every device operation counted and timed where it leaves the engine.
//!
//! [`MeteredDirectory`] and [`MeteredFile`] stand between the engine and its storage, as the
//! operating system's disk counters did for the papers. Each belongs to one [`Meter`]: one volume
//! in one role (databases or logs). A meter keeps the whole measured time with a histogram, and the
//! running sample, which the sampler takes away at every tick.
//!
//! The engine's background scan reads the same files as its transactions do, and is not to be
//! counted with them. [`Meter::scanning`] wraps the *future* of a scan: while that future is being
//! polled, reads that start are the scan's. Tasks of one thread never run inside each other's
//! polls, so nothing else can be mistaken for it.
//!
//! An operation that is under way when measuring ends is not lost: [`Meter::close`] ends the measured
//! time, and what was begun before it is counted when it completes, or by [`Meter::settle`] with the
//! time it has taken so far. A drive that freezes near the end would otherwise pass.
//!
//! Whatever takes longer than a mail server would stand is an event of its own, seen also while it is under
//! way ([`Meter::look`]), from creation to verification; spells of slow reads and writes within the
//! measured time are counted as spikes.
//!
//! Latency is from the call to the completion as the awaiting task sees it. It holds the time the
//! thread was busy with something else, so it errs towards too long, never towards too short.

mod backlog;
mod metered;
mod sampled;
mod slow;
mod spikes;
mod tally;

pub use backlog::Backlog;
pub use metered::{MeteredDirectory, MeteredFile};
pub use sampled::{SampleHistogram, SampleLatencies};
pub use slow::{SlowNews, SlowOperation, SlowTally, Slowness};
pub use spikes::{Spell, SpikeLog, Spikes};
pub use tally::{IoTallies, IoTally, Kind, Latencies, Role, nanoseconds, record};

use super::limits::WatchLimits;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
};
use world::{IoError, IoErrorKind, IoResult, LocalFuture, Moment, World};

/// Counts one volume in one role. One thread's.
pub struct Meter {
    volume: String,
    role: Role,
    world: World,
    limits: WatchLimits,
    scanning: Cell<bool>,
    state: RefCell<MeterState>,
}

#[derive(Default)]
struct MeterState {
    /// When the measured time began; none before.
    measured_from: Option<Moment>,
    spikes: Spikes,
    /// Slow operations that have ended are kept in it; those under way are counted only.
    slow: SlowTally,
    slow_news: SlowNews,
    whole: IoTallies,
    sample: IoTallies,
    /// Reads and writes of the sample.
    sample_latencies: (SampleHistogram, SampleHistogram),
    latencies: Latencies,
    overdue: IoTallies,
    first_error: Option<String>,
    no_space: Option<IoError>,
    /// Operations begun and not completed, by a number that only grows.
    outstanding: BTreeMap<u64, Outstanding>,
    begun: u64,
    /// Whether the judged part is over: what begins now is in samples only.
    judged_over: bool,
    /// Whether the measured time is over: what begins now is not counted.
    closed: bool,
}

/// What an operation is and what it is for.
#[derive(Clone)]
struct Target {
    kind: Kind,
    file: Rc<str>,
    offset: u64,
    bytes: u64,
}

/// An operation under way.
struct Outstanding {
    target: Target,
    started: Moment,
    /// Whether it belongs to the time under load.
    counts: bool,
    /// Whether it belongs to the part of that which is judged.
    judged: bool,
    /// As what it has been counted.
    slowness: Option<Slowness>,
}

/// Everything a meter has seen since it was last restarted.
#[derive(Clone, Debug)]
pub struct MeterReading {
    /// Volume, as the caller named it.
    pub volume: String,
    /// What its files hold.
    pub role: Role,
    /// Operations.
    pub tallies: IoTallies,
    /// Latencies of reads and writes.
    pub latencies: Latencies,
    /// Of the operations, those that ended after the judged part did.
    pub overdue: IoTallies,
    /// The first failed operation, in words.
    pub first_error: Option<String>,
    /// Spells of slow reads and writes.
    pub spikes: Spikes,
}

impl Meter {
    /// A meter for `volume` in `role`, with nothing counted, that watches by `limits`.
    pub fn new(world: &World, volume: impl Into<String>, role: Role, limits: &WatchLimits) -> Rc<Self> {
        Rc::new(Self {
            volume: volume.into(),
            role,
            world: world.clone(),
            limits: limits.clone(),
            scanning: Cell::new(false),
            state: RefCell::default(),
        })
    }

    /// Volume, as the caller named it.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// What its files hold.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Forgets everything but errors, what was slow and what is under way: the measured time begins now, and
    /// is judged from now on.
    pub fn restart(&self) {
        self.state.borrow_mut().measured_from = Some(self.world.now());
        self.restart_judged();
    }

    /// Forgets the same, though measuring goes on: the judged part begins now.
    pub fn restart_judged(&self) {
        let mut state = self.state.borrow_mut();
        state.spikes = Spikes::default();
        state.whole = IoTallies { errors: state.whole.errors, ..IoTallies::default() };
        state.sample = IoTallies::default();
        state.sample_latencies = Default::default();
        state.latencies = Latencies::default();
        state.overdue = IoTallies::default();
        (state.judged_over, state.closed) = (false, false);
        for operation in state.outstanding.values_mut() {
            (operation.counts, operation.judged) = (true, true);
        }
    }

    /// Ends the judged part: what begins from now on is in samples only.
    pub fn end_judged(&self) {
        self.state.borrow_mut().judged_over = true;
    }

    /// Ends the measured time: what begins from now on is not counted.
    pub fn close(&self) {
        self.state.borrow_mut().closed = true;
    }

    /// Operations under way that count.
    pub fn unsettled(&self) -> Backlog {
        self.backlog(|operation| operation.counts)
    }

    /// Operations under way, counted or not.
    pub fn outstanding(&self) -> Backlog {
        self.backlog(|_| true)
    }

    fn backlog(&self, of: impl Fn(&Outstanding) -> bool) -> Backlog {
        let state = self.state.borrow();
        let wanted = state.outstanding.values().filter(|operation| of(operation));
        wanted.fold(Backlog::default(), |sum, operation| {
            sum.and(Backlog { count: 1, oldest: Some(operation.started) })
        })
    }

    /// Counts every operation still under way with the time it has taken until now, which is less than
    /// it will take in the end. Its completion is not counted again.
    pub fn settle(&self) {
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        assert!(state.closed, "only what measuring has ended before is settled");
        let numbers: Vec<u64> = state.outstanding.keys().copied().collect();
        for number in numbers {
            let operation = state.outstanding.get_mut(&number).expect("its number was just listed");
            if std::mem::take(&mut operation.counts) {
                let (target, started, judged) =
                    (operation.target.clone(), operation.started, operation.judged);
                state.count(&target, started, judged, now);
            }
        }
    }

    /// That an operation found no space, if one did.
    pub fn no_space(&self) -> Option<IoError> {
        self.state.borrow().no_space.clone()
    }

    fn begin(&self, target: Target) -> u64 {
        let started = self.world.now();
        let mut state = self.state.borrow_mut();
        let (number, counts, judged) = (state.begun, !state.closed, !state.closed && !state.judged_over);
        state.begun += 1;
        let operation = Outstanding { target, started, counts, judged, slowness: None };
        let earlier = state.outstanding.insert(number, operation);
        assert!(earlier.is_none(), "numbers only grow");
        number
    }

    fn note_space<T>(&self, outcome: &IoResult<T>) {
        if let Err(error) = outcome
            && error.kind() == IoErrorKind::NoSpace
        {
            self.state.borrow_mut().no_space.get_or_insert_with(|| error.clone());
        }
    }

    /// `operation`, which moves no data, looked at for want of space.
    fn watch<T: 'static>(self: &Rc<Self>, operation: LocalFuture<IoResult<T>>) -> LocalFuture<IoResult<T>> {
        let meter = Rc::clone(self);
        Box::pin(async move {
            let outcome = operation.await;
            meter.note_space(&outcome);
            outcome
        })
    }

    /// Takes away what was counted since the last call. What is a spike from now on follows from what
    /// was counted until now.
    pub fn take_sample(&self) -> IoTallies {
        let mut state = self.state.borrow_mut();
        let MeterState { spikes, latencies, .. } = &mut *state;
        spikes.read.set_threshold(&latencies.read, &self.limits.spike);
        spikes.write.set_threshold(&latencies.write, &self.limits.spike);
        std::mem::take(&mut state.sample)
    }

    /// Takes away the latencies that were counted since the last call, and adds them to `latencies`.
    pub fn take_sample_latencies(&self, latencies: &mut SampleLatencies) {
        let (read, write) = std::mem::take(&mut self.state.borrow_mut().sample_latencies);
        match self.role {
            Role::Database => {
                latencies.database_read.merge(&read);
                latencies.database_write.merge(&write);
            }
            Role::Log => latencies.log_write.merge(&write),
        }
    }

    /// Everything since the last restart.
    pub fn reading(&self) -> MeterReading {
        let state = self.state.borrow();
        MeterReading {
            volume: self.volume.clone(),
            role: self.role,
            tallies: state.whole,
            latencies: state.latencies.clone(),
            overdue: state.overdue,
            first_error: state.first_error.clone(),
            spikes: state.spikes.clone(),
        }
    }

    /// Looks for operations under way that have become slow, and takes away what has become known since
    /// the last look.
    pub fn look(&self) -> SlowNews {
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        let MeterState { outstanding, slow, slow_news, measured_from, .. } = &mut *state;
        let mut news = std::mem::take(slow_news);
        // They are listed as they began: the first that is not slow ends the search.
        for operation in outstanding.values_mut() {
            let Some(slowness) = Slowness::of(now.since(operation.started), &self.limits.slow) else { break };
            if operation.slowness < Some(slowness) {
                slow.become_slow(operation.slowness, slowness);
                news.slow += u64::from(operation.slowness.is_none());
                news.hung += u64::from(slowness == Slowness::Hung);
                operation.slowness = Some(slowness);
            }
            if news.oldest.is_none() {
                news.oldest = Some(self.particulars(operation, slowness, *measured_from, false));
            }
        }
        news
    }

    /// All slow operations so far, with those still under way.
    pub fn slow(&self) -> SlowTally {
        let state = self.state.borrow();
        let mut tally = state.slow.clone();
        for operation in state.outstanding.values() {
            if let Some(slowness) = operation.slowness {
                tally.keep(self.particulars(operation, slowness, state.measured_from, false));
            }
        }
        tally
    }

    fn particulars(
        &self,
        operation: &Outstanding,
        slowness: Slowness,
        measured_from: Option<Moment>,
        answered: bool,
    ) -> SlowOperation {
        let took = self.world.now().since(operation.started);
        let in_time = measured_from.filter(|&from| operation.started >= from);
        SlowOperation {
            slowness,
            kind: operation.target.kind,
            volume: self.volume.clone(),
            role: self.role,
            file: operation.target.file.to_string(),
            offset: operation.target.offset,
            bytes: operation.target.bytes,
            began_unix_s: self.world.wall().seconds - took.as_secs() as i64,
            at_s: in_time.map(|from| operation.started.since(from).as_secs_f64()),
            took_s: took.as_secs_f64(),
            answered,
        }
    }

    /// Counts an operation that is no longer under way if it was slow.
    fn note_slow(&self, state: &mut MeterState, operation: &Outstanding, answered: bool) {
        let took = self.world.now().since(operation.started);
        let Some(slowness) = Slowness::of(took, &self.limits.slow) else { return };
        if operation.slowness < Some(slowness) {
            state.slow.become_slow(operation.slowness, slowness);
            state.slow_news.slow += u64::from(operation.slowness.is_none());
            state.slow_news.hung += u64::from(slowness == Slowness::Hung);
        }
        let particulars = self.particulars(operation, slowness, state.measured_from, answered);
        if answered {
            state.slow_news.answer(particulars.clone());
        }
        state.slow.keep(particulars);
    }

    /// Spells of slow operations since the last restart.
    pub fn spikes(&self) -> Spikes {
        self.state.borrow().spikes.clone()
    }

    /// Operations since the last restart.
    pub fn tallies(&self) -> IoTallies {
        self.state.borrow().whole
    }

    /// Runs `scan`; reads it starts are counted as the background scan's.
    pub async fn scanning<T>(&self, scan: impl Future<Output = T>) -> T {
        let mut scan = pin!(scan);
        poll_fn(|context| {
            assert!(!self.scanning.replace(true), "scans do not nest within a poll");
            let poll = scan.as_mut().poll(context);
            assert!(self.scanning.replace(false), "nobody else clears the mark");
            poll
        })
        .await
    }

    fn kind_of_read(&self) -> Kind {
        if self.scanning.get() { Kind::Scan } else { Kind::Read }
    }

    fn complete<T>(&self, number: u64, outcome: &IoResult<T>) {
        self.note_space(outcome);
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        let operation = state.outstanding.remove(&number).expect("an operation completes once");
        self.note_slow(&mut state, &operation, true);
        match outcome {
            Ok(_) if operation.counts => {
                state.count(&operation.target, operation.started, operation.judged, now);
            }
            Ok(_) => {}
            Err(error) => {
                state.whole.errors += 1;
                state.sample.errors += 1;
                state.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Times `operation`, which has just been started.
    fn time<T: 'static>(
        self: &Rc<Self>,
        target: Target,
        operation: LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>> {
        let under_way = UnderWay { number: self.begin(target), meter: Rc::clone(self) };
        Box::pin(async move {
            let outcome = operation.await;
            under_way.meter.complete(under_way.number, &outcome);
            outcome
        })
    }
}

impl MeterState {
    fn count(&mut self, target: &Target, started: Moment, judged: bool, now: Moment) {
        let &Target { kind, bytes, .. } = target;
        let took = now.since(started);
        let is_transactional = matches!(kind, Kind::Read | Kind::Write);
        let add = |tallies: &mut IoTallies, is_late: bool| {
            tallies.of(kind).add(bytes, took);
            tallies.late += u64::from(is_late && is_transactional);
        };
        add(&mut self.sample, self.closed);
        let took_ns = nanoseconds(took);
        match kind {
            Kind::Read => self.sample_latencies.0.add(took_ns),
            Kind::Write => self.sample_latencies.1.add(took_ns),
            Kind::Scan | Kind::Flush | Kind::Prepare => {}
        }
        if !judged {
            return;
        }
        add(&mut self.whole, self.closed || self.judged_over);
        if self.judged_over {
            add(&mut self.overdue, true);
        }
        // What began before the measured time takes all the same as long as it takes.
        let to_ns = nanoseconds(self.measured_from.map(|from| now.since(from)).unwrap_or_default());
        let from_ns = to_ns.saturating_sub(took_ns);
        match kind {
            Kind::Read => {
                record(&mut self.latencies.read, took_ns);
                self.spikes.read.see(from_ns, to_ns);
            }
            Kind::Write => {
                record(&mut self.latencies.write, took_ns);
                self.spikes.write.see(from_ns, to_ns);
            }
            Kind::Scan | Kind::Flush | Kind::Prepare => {}
        }
    }
}

/// Takes an operation whose future is dropped before it completes off the meter's list; if it was slow,
/// it stays unanswered.
struct UnderWay {
    meter: Rc<Meter>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.meter.state.borrow_mut();
        if let Some(operation) = state.outstanding.remove(&self.number) {
            self.meter.note_slow(&mut state, &operation, false);
        }
    }
}
