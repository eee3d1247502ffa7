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
//! Latency is from the call to the completion as the awaiting task sees it. It holds the time the
//! thread was busy with something else, so it errs towards too long, never towards too short.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoResult,
    LocalFuture, Resizable, Stability, World,
};

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
    fn add(&mut self, bytes: u64, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
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
        self.errors += other.errors;
    }

    fn of(&mut self, kind: Kind) -> &mut IoTally {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Scan => &mut self.scan,
            Kind::Flush => &mut self.flush,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Scan,
    Flush,
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

    /// Forgets everything but errors: the measured time begins now.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        let first_error = state.first_error.take();
        let errors = state.whole.errors;
        *state = MeterState { first_error, ..MeterState::default() };
        state.whole.errors = errors;
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

    fn count<T>(&self, kind: Kind, bytes: u64, took: Duration, outcome: &IoResult<T>) {
        let mut state = self.state.borrow_mut();
        if let Err(error) = outcome {
            state.whole.errors += 1;
            state.sample.errors += 1;
            state.first_error.get_or_insert_with(|| error.to_string());
            return;
        }
        state.whole.of(kind).add(bytes, took);
        state.sample.of(kind).add(bytes, took);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        match kind {
            Kind::Read => record(&mut state.latencies.read, took_ns),
            Kind::Write => record(&mut state.latencies.write, took_ns),
            Kind::Scan | Kind::Flush => {}
        }
    }

    /// Times `operation`, which has already been started.
    fn time<T: 'static>(
        self: &Rc<Self>,
        kind: Kind,
        bytes: u64,
        operation: LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>> {
        let meter = Rc::clone(self);
        let started = self.world.now();
        Box::pin(async move {
            let outcome = operation.await;
            meter.count(kind, bytes, meter.world.now().since(started), &outcome);
            outcome
        })
    }
}

/// A file whose operations are counted.
pub struct MeteredFile {
    file: Rc<dyn File>,
    meter: Rc<Meter>,
}

impl MeteredFile {
    /// `file`, counted by `meter`.
    pub fn new(file: Rc<dyn File>, meter: &Rc<Meter>) -> Rc<Self> {
        Rc::new(Self { file, meter: Rc::clone(meter) })
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
        self.meter.time(Kind::Write, bytes, self.file.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.meter.time(Kind::Flush, 0, self.file.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.file.discard(at, length)
    }
}

impl Resizable for MeteredFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.file.resize(size)
    }
}

/// A directory whose files are counted.
pub struct MeteredDirectory {
    directory: Rc<dyn Directory>,
    meter: Rc<Meter>,
}

impl MeteredDirectory {
    /// `directory`, its files counted by `meter`.
    pub fn new(directory: Rc<dyn Directory>, meter: &Rc<Meter>) -> Rc<Self> {
        Rc::new(Self { directory, meter: Rc::clone(meter) })
    }

    fn metered(&self, opening: LocalFuture<IoResult<Rc<dyn File>>>) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let meter = Rc::clone(&self.meter);
        Box::pin(async move {
            let file: Rc<dyn File> = MeteredFile::new(opening.await?, &meter);
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
        self.metered(self.directory.open(name))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.metered(self.directory.create(name, size))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        self.directory.rename(from, to)
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.directory.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.directory.sync()
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.directory.free()
    }
}
