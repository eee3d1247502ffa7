//! Meters: count and time every device operation below the engine.
//!
//! [`MeteredDirectory`] and [`MeteredFile`] stand between the engine and its storage, where the papers had
//! the operating system's disk counters. Each belongs to one [`Meter`]: one volume in one role (databases or
//! logs). A meter keeps a histogram of the judged time, and the running sample, which the sampler takes at
//! every tick.
//!
//! The engine's background scan reads the same files as its transactions, but must not be counted with them.
//! [`Meter::scanning`] wraps the *future* of a scan: reads that start while that future is polled are the
//! scan's. Tasks of one thread never run inside each other's polls, so no other read can be mistaken for one.
//!
//! Operations under way when measurement ends are not lost: [`Meter::close`] ends the measured time, and
//! operations that started before are counted when they complete, or by [`Meter::settle`] with their age.
//! Otherwise a drive that freezes near the end would pass.
//!
//! Operations slower than a mail server tolerates are reported one by one, even while under way
//! ([`Meter::look`]), from creation to verification; bursts of slow reads and writes within the judged time
//! are counted as spikes.
//!
//! Latency runs from the call to the completion as the awaiting task sees it. It includes time the thread was
//! busy with something else, so it may be too long, never too short.

mod backlog;
mod histogram;
mod metered;
mod slow;
mod spikes;
mod tally;

pub use backlog::Backlog;
pub use histogram::{SampleHistogram, SampleLatencies};
pub use metered::{MeteredDirectory, MeteredFile};
pub use slow::{SlowChanges, SlowOperation, SlowTally, Slowness};
pub use spikes::{Burst, SpikeLog, Spikes};
pub use tally::{IoKind, IoTallies, IoTally, Latencies, VolumeRole, nanoseconds, record};

use crate::verdict::limits::WatchLimits;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
};
use world::{IoError, IoErrorKind, IoResult, LocalFuture, Moment, World};

/// Counts the I/O of one volume in one role, from one thread.
pub struct Meter {
    volume: String,
    role: VolumeRole,
    world: World,
    limits: WatchLimits,
    scanning: Cell<bool>,
    state: RefCell<MeterState>,
}

#[derive(Default)]
struct MeterState {
    /// Start of the measured time.
    measured_from: Option<Moment>,
    spikes: Spikes,
    /// Keeps slow operations that have ended; those under way are only counted.
    slow: SlowTally,
    slow_news: SlowChanges,
    whole: IoTallies,
    sample: IoTallies,
    /// Reads and writes of the sample.
    sample_latencies: (SampleHistogram, SampleHistogram),
    latencies: Latencies,
    overdue: IoTallies,
    first_error: Option<String>,
    no_space: Option<IoError>,
    /// Operations under way, by number.
    outstanding: BTreeMap<u64, OutstandingIo>,
    begun: u64,
    /// True after the judged part: operations that start now count in samples only.
    judged_over: bool,
    /// True after the measured time: operations that start now are not counted.
    closed: bool,
}

/// Kind and place of an operation.
#[derive(Clone)]
struct IoTarget {
    kind: IoKind,
    file: Rc<str>,
    offset: u64,
    bytes: u64,
}

struct OutstandingIo {
    target: IoTarget,
    started: Moment,
    /// True if it belongs to the time under load.
    counts: bool,
    /// True if it belongs to the judged part.
    judged: bool,
    /// The class it has been counted in.
    slowness: Option<Slowness>,
}

/// Counts since the last restart.
#[derive(Clone, Debug)]
pub struct MeterReading {
    /// As the caller named it.
    pub volume: String,
    pub role: VolumeRole,
    pub tallies: IoTallies,
    pub latencies: Latencies,
    /// The operations among `tallies` that ended after the judged part.
    pub overdue: IoTallies,
    /// Message of the first failed operation.
    pub first_error: Option<String>,
    pub spikes: Spikes,
}

impl Meter {
    /// A new meter for `volume` in `role`; `limits` define slow I/O.
    pub fn new(world: &World, volume: impl Into<String>, role: VolumeRole, limits: &WatchLimits) -> Rc<Self> {
        Rc::new(Self {
            volume: volume.into(),
            role,
            world: world.clone(),
            limits: limits.clone(),
            scanning: Cell::new(false),
            state: RefCell::default(),
        })
    }

    /// As the caller named it.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    pub fn role(&self) -> VolumeRole {
        self.role
    }

    /// Starts the measured and judged time: resets everything except errors, slow operations and those under
    /// way.
    pub fn restart(&self) {
        self.state.borrow_mut().measured_from = Some(self.world.now());
        self.restart_judged();
    }

    /// Starts the judged part within the measured time, with the same resets.
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

    /// Ends the judged part: operations that start from now on count in samples only.
    pub fn end_judged(&self) {
        self.state.borrow_mut().judged_over = true;
    }

    /// Ends the measured time: operations that start from now on are not counted.
    pub fn close(&self) {
        self.state.borrow_mut().closed = true;
    }

    /// Operations under way that belong to the measured time.
    pub fn unsettled(&self) -> Backlog {
        self.backlog(|operation| operation.counts)
    }

    /// All operations under way.
    pub fn outstanding(&self) -> Backlog {
        self.backlog(|_| true)
    }

    fn backlog(&self, of: impl Fn(&OutstandingIo) -> bool) -> Backlog {
        let state = self.state.borrow();
        let wanted = state.outstanding.values().filter(|operation| of(operation));
        wanted.fold(Backlog::default(), |sum, operation| {
            sum.and(Backlog { count: 1, oldest: Some(operation.started) })
        })
    }

    /// Counts every operation still under way with its age, which is less than its latency will be. Its
    /// completion is not counted again.
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

    /// The error of the first operation that found no space.
    pub fn no_space(&self) -> Option<IoError> {
        self.state.borrow().no_space.clone()
    }

    fn begin(&self, target: IoTarget) -> u64 {
        let started = self.world.now();
        let mut state = self.state.borrow_mut();
        let (number, counts, judged) = (state.begun, !state.closed, !state.closed && !state.judged_over);
        state.begun += 1;
        let operation = OutstandingIo { target, started, counts, judged, slowness: None };
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

    /// Wraps an operation that moves no data, to notice lack of space.
    fn watch<T: 'static>(self: &Rc<Self>, operation: LocalFuture<IoResult<T>>) -> LocalFuture<IoResult<T>> {
        let meter = Rc::clone(self);
        Box::pin(async move {
            let outcome = operation.await;
            meter.note_space(&outcome);
            outcome
        })
    }

    /// Takes the counts since the last call. Also updates the spike thresholds from the latencies so far.
    pub fn take_sample(&self) -> IoTallies {
        let mut state = self.state.borrow_mut();
        let MeterState { spikes, latencies, .. } = &mut *state;
        spikes.read.set_threshold(&latencies.read, &self.limits.spike);
        spikes.write.set_threshold(&latencies.write, &self.limits.spike);
        std::mem::take(&mut state.sample)
    }

    /// Takes the latencies since the last call and adds them to `latencies`.
    pub fn take_sample_latencies(&self, latencies: &mut SampleLatencies) {
        let (read, write) = std::mem::take(&mut self.state.borrow_mut().sample_latencies);
        match self.role {
            VolumeRole::Database => {
                latencies.database_read.merge(&read);
                latencies.database_write.merge(&write);
            }
            VolumeRole::Log => latencies.log_write.merge(&write),
        }
    }

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

    /// Finds operations under way that have become slow, and takes the changes since the last call.
    pub fn look(&self) -> SlowChanges {
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        let MeterState { outstanding, slow, slow_news, measured_from, .. } = &mut *state;
        let mut news = std::mem::take(slow_news);
        // Sorted by start: the first that is not slow ends the search.
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

    /// All slow operations, including those under way.
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
        operation: &OutstandingIo,
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

    /// Counts an operation that is no longer under way, if it was slow.
    fn note_slow(&self, state: &mut MeterState, operation: &OutstandingIo, answered: bool) {
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

    /// Bursts of slow operations since the last restart.
    pub fn spikes(&self) -> Spikes {
        self.state.borrow().spikes.clone()
    }

    /// Operations since the last restart.
    pub fn tallies(&self) -> IoTallies {
        self.state.borrow().whole
    }

    /// Runs `scan`; reads that it starts count as the background scan's.
    pub async fn scanning<T>(&self, scan: impl Future<Output = T>) -> T {
        let mut scan = pin!(scan);
        poll_fn(|context| {
            assert!(!self.scanning.replace(true), "scans do not nest within a poll");
            let poll = scan.as_mut().poll(context);
            assert!(self.scanning.replace(false), "only this poll clears the flag");
            poll
        })
        .await
    }

    fn kind_of_read(&self) -> IoKind {
        if self.scanning.get() { IoKind::Scan } else { IoKind::Read }
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

    /// Times `operation`, which has just started.
    fn time<T: 'static>(
        self: &Rc<Self>,
        target: IoTarget,
        operation: LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>> {
        let under_way = OutstandingGuard { number: self.begin(target), meter: Rc::clone(self) };
        Box::pin(async move {
            let outcome = operation.await;
            under_way.meter.complete(under_way.number, &outcome);
            outcome
        })
    }
}

impl MeterState {
    fn count(&mut self, target: &IoTarget, started: Moment, judged: bool, now: Moment) {
        let &IoTarget { kind, bytes, .. } = target;
        let took = now.since(started);
        let is_transactional = matches!(kind, IoKind::Read | IoKind::Write);
        let add = |tallies: &mut IoTallies, is_late: bool| {
            tallies.of(kind).add(bytes, took);
            tallies.late += u64::from(is_late && is_transactional);
        };
        add(&mut self.sample, self.closed);
        let took_ns = nanoseconds(took);
        match kind {
            IoKind::Read => self.sample_latencies.0.add(took_ns),
            IoKind::Write => self.sample_latencies.1.add(took_ns),
            IoKind::Scan | IoKind::Flush | IoKind::Prepare => {}
        }
        if !judged {
            return;
        }
        add(&mut self.whole, self.closed || self.judged_over);
        if self.judged_over {
            add(&mut self.overdue, true);
        }
        // An operation that started before the measured time keeps its full latency.
        let to_ns = nanoseconds(self.measured_from.map(|from| now.since(from)).unwrap_or_default());
        let from_ns = to_ns.saturating_sub(took_ns);
        match kind {
            IoKind::Read => {
                record(&mut self.latencies.read, took_ns);
                self.spikes.read.see(from_ns, to_ns);
            }
            IoKind::Write => {
                record(&mut self.latencies.write, took_ns);
                self.spikes.write.see(from_ns, to_ns);
            }
            IoKind::Scan | IoKind::Flush | IoKind::Prepare => {}
        }
    }
}

/// Removes an operation whose future is dropped before it completes; if it was slow, it stays unanswered.
struct OutstandingGuard {
    meter: Rc<Meter>,
    number: u64,
}

impl Drop for OutstandingGuard {
    fn drop(&mut self) {
        let mut state = self.meter.state.borrow_mut();
        if let Some(operation) = state.outstanding.remove(&self.number) {
            self.meter.note_slow(&mut state, &operation, false);
        }
    }
}
