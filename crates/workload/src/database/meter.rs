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
//! Writes that prepare the next log file (`E00tmp.log`: half a mebibyte of zeros at a time, which no
//! transaction waits for) are a kind of their own, until the file is renamed into its place.
//!
//! Latency is from the call to the completion as the awaiting task sees it. It holds the time the
//! thread was busy with something else, so it errs towards too long, never towards too short.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Moment, Resizable, Stability, World,
};

/// How the name of a log file ends that is being prepared (maildb's `log::names`).
const PREPARED_SUFFIX: &str = "tmp.log";

/// What the files behind a meter hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Databases.
    Database,
    /// Transaction logs and their checkpoint file.
    Log,
}

/// Operations of one kind, over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTally {
    /// Completed operations.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Sum of their latencies, in nanoseconds.
    pub total_ns: u64,
    /// The longest of them, in nanoseconds.
    pub max_ns: u64,
}

impl IoTally {
    /// Adds one operation.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        let took_ns = nanoseconds(took);
        self.count += 1;
        self.bytes += bytes;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.max_ns = self.max_ns.max(took_ns);
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Average latency in milliseconds; none if nothing was done.
    pub fn average_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64 / 1e6)
    }

    /// Average size in bytes; none if nothing was done.
    pub fn average_bytes(&self) -> Option<f64> {
        (self.count > 0).then(|| self.bytes as f64 / self.count as f64)
    }
}

/// One tally for each kind of operation a meter tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTallies {
    /// Reads, those of a background scan excepted.
    pub read: IoTally,
    /// Writes.
    pub write: IoTally,
    /// Reads of a background scan.
    pub scan: IoTally,
    /// Flushes; they move no bytes.
    pub flush: IoTally,
    /// Writes that prepare the next log file; nobody waits for them.
    #[serde(default)]
    pub prepare: IoTally,
    /// Of the reads and writes, those that measuring ended before: counted, though not achieved in
    /// the measured time.
    #[serde(default)]
    pub late: u64,
    /// Operations that failed, of any kind.
    pub errors: u64,
}

impl IoTallies {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.scan.merge(&other.scan);
        self.flush.merge(&other.flush);
        self.prepare.merge(&other.prepare);
        self.late += other.late;
        self.errors += other.errors;
    }

    fn of(&mut self, kind: Kind) -> &mut IoTally {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Scan => &mut self.scan,
            Kind::Flush => &mut self.flush,
            Kind::Prepare => &mut self.prepare,
        }
    }

    /// Reads and writes that transactions caused and that completed within the measured time.
    pub fn transactional(&self) -> u64 {
        (self.read.count + self.write.count).saturating_sub(self.late)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Scan,
    Flush,
    Prepare,
}

/// Latencies of reads and writes over the measured time, in nanoseconds, to within 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Reads, those of a background scan excepted.
    pub read: Histogram<u64>,
    /// Writes.
    pub write: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are within the histogram's range");
        Self { read: empty(), write: empty() }
    }
}

/// Longest latency a histogram tells from longer ones: beyond an hour nobody asks how long.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A span as histograms hold it.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts one latency.
pub fn record(histogram: &mut Histogram<u64>, took_ns: u64) {
    histogram.record(took_ns.min(LATENCY_NS_MAX)).expect("the histogram resizes itself to an hour");
}

impl Latencies {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.read.add(&other.read).expect("an auto-resizing histogram takes any value");
        self.write.add(&other.write).expect("an auto-resizing histogram takes any value");
    }
}

/// Counts one volume in one role. One thread's.
pub struct Meter {
    volume: String,
    role: Role,
    world: World,
    scanning: Cell<bool>,
    state: RefCell<MeterState>,
}

#[derive(Default)]
struct MeterState {
    whole: IoTallies,
    sample: IoTallies,
    latencies: Latencies,
    first_error: Option<String>,
    no_space: Option<IoError>,
    /// Operations begun and not completed, by a number that only grows.
    outstanding: BTreeMap<u64, Outstanding>,
    begun: u64,
    /// Whether the measured time is over: what begins now is not counted.
    closed: bool,
}

/// An operation under way.
#[derive(Clone, Copy)]
struct Outstanding {
    kind: Kind,
    bytes: u64,
    started: Moment,
    counts: bool,
}

/// Operations under way at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many.
    pub count: u64,
    /// When the oldest of them began.
    pub oldest: Option<Moment>,
}

impl Backlog {
    /// This backlog and `other` as one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let oldest = [self.oldest, other.oldest].into_iter().flatten().min();
        Self { count: self.count + other.count, oldest }
    }

    /// How long the oldest has taken until `now`; nothing if there is none.
    pub fn age(&self, now: Moment) -> Duration {
        self.oldest.map(|oldest| now.since(oldest)).unwrap_or_default()
    }
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
    /// The first failed operation, in words.
    pub first_error: Option<String>,
}

impl Meter {
    /// A meter for `volume` in `role`, with nothing counted.
    pub fn new(world: &World, volume: impl Into<String>, role: Role) -> Rc<Self> {
        Rc::new(Self {
            volume: volume.into(),
            role,
            world: world.clone(),
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

    /// Forgets everything but errors and what is under way: the measured time begins now.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        state.whole = IoTallies { errors: state.whole.errors, ..IoTallies::default() };
        state.sample = IoTallies::default();
        state.latencies = Latencies::default();
        state.closed = false;
        for operation in state.outstanding.values_mut() {
            operation.counts = true;
        }
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
            let operation = std::mem::replace(operation, Outstanding { counts: false, ..*operation });
            if operation.counts {
                state.count(operation, now);
            }
        }
    }

    /// That an operation found no space, if one did.
    pub fn no_space(&self) -> Option<IoError> {
        self.state.borrow().no_space.clone()
    }

    fn begin(&self, kind: Kind, bytes: u64) -> u64 {
        let started = self.world.now();
        let mut state = self.state.borrow_mut();
        let (number, counts) = (state.begun, !state.closed);
        state.begun += 1;
        let earlier = state.outstanding.insert(number, Outstanding { kind, bytes, started, counts });
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

    /// Takes away what was counted since the last call.
    pub fn take_sample(&self) -> IoTallies {
        std::mem::take(&mut self.state.borrow_mut().sample)
    }

    /// Everything since the last restart.
    pub fn reading(&self) -> MeterReading {
        let state = self.state.borrow();
        MeterReading {
            volume: self.volume.clone(),
            role: self.role,
            tallies: state.whole,
            latencies: state.latencies.clone(),
            first_error: state.first_error.clone(),
        }
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
        match outcome {
            Ok(_) if operation.counts => state.count(operation, now),
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
        kind: Kind,
        bytes: u64,
        operation: LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>> {
        let under_way = UnderWay { number: self.begin(kind, bytes), meter: Rc::clone(self) };
        Box::pin(async move {
            let outcome = operation.await;
            under_way.meter.complete(under_way.number, &outcome);
            outcome
        })
    }
}

impl MeterState {
    fn count(&mut self, operation: Outstanding, now: Moment) {
        let Outstanding { kind, bytes, started, .. } = operation;
        let took = now.since(started);
        for tallies in [&mut self.whole, &mut self.sample] {
            tallies.of(kind).add(bytes, took);
            if self.closed && matches!(kind, Kind::Read | Kind::Write) {
                tallies.late += 1;
            }
        }
        let took_ns = nanoseconds(took);
        match kind {
            Kind::Read => record(&mut self.latencies.read, took_ns),
            Kind::Write => record(&mut self.latencies.write, took_ns),
            Kind::Scan | Kind::Flush | Kind::Prepare => {}
        }
    }
}

/// Takes an operation whose future is dropped before it completes off the meter's list.
struct UnderWay {
    meter: Rc<Meter>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.meter.state.borrow_mut().outstanding.remove(&self.number);
    }
}

/// A file whose operations are counted.
pub struct MeteredFile {
    file: Rc<dyn File>,
    meter: Rc<Meter>,
    /// Whether it is a log file that nobody waits for yet.
    prepared: Rc<Cell<bool>>,
}

impl MeteredFile {
    /// `file`, counted by `meter`.
    pub fn new(file: Rc<dyn File>, meter: &Rc<Meter>) -> Rc<Self> {
        Rc::new(Self { file, meter: Rc::clone(meter), prepared: Rc::default() })
    }
}

impl BlockDevice for MeteredFile {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let bytes = into.iter().map(|buffer| buffer.len() as u64).sum();
        self.meter.time(self.meter.kind_of_read(), bytes, self.file.read(at, into))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let bytes = from.iter().map(|buffer| buffer.len() as u64).sum();
        // The stable write to such a file is its header, which the log waits for.
        let waited_for = !self.prepared.get() || stability == Stability::Stable;
        let kind = if waited_for { Kind::Write } else { Kind::Prepare };
        self.meter.time(kind, bytes, self.file.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.meter.time(Kind::Flush, 0, self.file.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.file.discard(at, length))
    }
}

impl Resizable for MeteredFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.file.resize(size))
    }
}

/// A directory whose files are counted.
pub struct MeteredDirectory {
    directory: Rc<dyn Directory>,
    meter: Rc<Meter>,
    /// The mark of each file that is being prepared, by name.
    prepared: Rc<RefCell<BTreeMap<String, Rc<Cell<bool>>>>>,
}

impl MeteredDirectory {
    /// `directory`, its files counted by `meter`.
    pub fn new(directory: Rc<dyn Directory>, meter: &Rc<Meter>) -> Rc<Self> {
        Rc::new(Self { directory, meter: Rc::clone(meter), prepared: Rc::default() })
    }

    fn metered(
        &self,
        name: &str,
        opening: LocalFuture<IoResult<Rc<dyn File>>>,
    ) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let meter = Rc::clone(&self.meter);
        let prepared = if name.ends_with(PREPARED_SUFFIX) {
            let fresh = || Rc::new(Cell::new(true));
            Rc::clone(self.prepared.borrow_mut().entry(name.to_owned()).or_insert_with(fresh))
        } else {
            Rc::default()
        };
        Box::pin(async move {
            let outcome = opening.await;
            meter.note_space(&outcome);
            let file: Rc<dyn File> = Rc::new(MeteredFile { file: outcome?, meter, prepared });
            Ok(file)
        })
    }
}

impl Directory for MeteredDirectory {
    fn describe(&self) -> String {
        self.directory.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.directory.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.metered(name, self.directory.open(name))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.metered(name, self.directory.create(name, size))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let renaming = self.meter.watch(self.directory.rename(from, to));
        let (marks, from) = (Rc::clone(&self.prepared), from.to_owned());
        Box::pin(async move {
            renaming.await?;
            if let Some(mark) = marks.borrow_mut().remove(&from) {
                mark.set(false);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.directory.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.directory.sync())
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.directory.free()
    }
}
