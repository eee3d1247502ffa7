//! Meters of devices: operations, bytes, errors and latencies, by kind of operation.
//!
//! A [`MeteredDevice`] stands around any device and changes nothing of what passes. An operation costs two readings of
//! the clock, an allocation and a few writes to cells. Latency runs from the call to the completion as the awaiting task
//! sees it, so it includes time in which the thread did something else.
//!
//! Invariants:
//!
//! 1. An operation is counted once: when it completes, or when its future is dropped, with the time until then. It still
//!    runs to completion, unseen.
//! 2. Bytes are those of operations that did not fail.
//! 3. An operation that the device does not support at all is not counted: the caller does it in another way.

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoErrorKind, IoResult, LatencyCounts,
    LatencyHistogram, LocalFuture, Moment, SampledLatencies, Sparse, Stability, World,
};
use std::{
    cell::{Cell, OnceCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Kind of an operation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceOperation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
}

impl DeviceOperation {
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes];
}

/// Counts the operations of one device, or of several that are one in front of people.
pub struct DeviceMeter {
    world: World,
    /// In the order of [`DeviceOperation::ALL`].
    operations: [OperationCells; DeviceOperation::ALL.len()],
    in_flight: Cell<u64>,
    /// Grows with each operation that begins or ends.
    changes: Cell<u64>,
}

#[derive(Default)]
struct OperationCells {
    bytes: Cell<u64>,
    errors: Cell<u64>,
    /// Made with the first operation: few devices see all kinds.
    latencies: OnceCell<Box<LatencyHistogram>>,
}

/// The counts of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    operations: [OperationCounts; DeviceOperation::ALL.len()],
    /// Operations under way.
    pub in_flight: u64,
}

/// The counts of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Of operations that did not fail.
    pub bytes: u64,
    /// Operations that failed; their latencies are counted, too.
    pub errors: u64,
    latencies: Option<Arc<LatencyCounts>>,
}

impl OperationCounts {
    /// Operations that have ended.
    pub fn count(&self) -> u64 {
        self.latencies().map_or(0, LatencyCounts::count)
    }

    /// `None` if there was no such operation.
    pub fn latencies(&self) -> Option<&LatencyCounts> {
        self.latencies.as_deref()
    }
}

impl DeviceCounts {
    pub fn of(&self, operation: DeviceOperation) -> &OperationCounts {
        &self.operations[operation as usize]
    }
}

impl DeviceMeter {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            operations: Default::default(),
            in_flight: Cell::new(0),
            changes: Cell::new(0),
        })
    }

    /// A number that changes whenever the counts do.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub fn counts(&self) -> DeviceCounts {
        let counts = |cells: &OperationCells| OperationCounts {
            bytes: cells.bytes.get(),
            errors: cells.errors.get(),
            latencies: cells.latencies.get().map(|latencies| Arc::new(latencies.counts())),
        };
        DeviceCounts { operations: self.operations.each_ref().map(counts), in_flight: self.in_flight.get() }
    }

    /// Times an operation that is under way from now on.
    fn time<T>(
        self: &Rc<Self>,
        (operation, bytes): (DeviceOperation, u64),
        start: impl FnOnce() -> LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>>
    where
        T: 'static,
    {
        self.in_flight.set(self.in_flight.get() + 1);
        self.changes.set(self.changes.get() + 1);
        let timing =
            Timing { meter: Rc::clone(self), operation, bytes, begun: self.world.now(), is_open: true };
        Box::pin(TimedOperation { inner: start(), timing })
    }

    fn end(&self, operation: DeviceOperation, begun: Moment, outcome: Outcome) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.changes.set(self.changes.get() + 1);
        let cells = &self.operations[operation as usize];
        match outcome {
            Outcome::Unsupported => return,
            Outcome::Failed => cells.errors.set(cells.errors.get() + 1),
            Outcome::Done(bytes) => cells.bytes.set(cells.bytes.get() + bytes),
        }
        cells.latencies.get_or_init(Box::default).add(self.world.now().since(begun));
    }
}

enum Outcome {
    Done(u64),
    Failed,
    Unsupported,
}

/// An operation that is to be counted.
struct Timing {
    meter: Rc<DeviceMeter>,
    operation: DeviceOperation,
    bytes: u64,
    begun: Moment,
    /// Not counted yet.
    is_open: bool,
}

impl Timing {
    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_open, false) {
            self.meter.end(self.operation, self.begun, outcome);
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.end(Outcome::Done(self.bytes));
    }
}

/// Future of an operation.
struct TimedOperation<T> {
    inner: LocalFuture<IoResult<T>>,
    timing: Timing,
}

impl<T> Future for TimedOperation<T> {
    type Output = IoResult<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.inner.as_mut().poll(context));
        let bytes = self.timing.bytes;
        self.timing.end(match &done {
            Ok(_) => Outcome::Done(bytes),
            Err(error) if error.kind() == IoErrorKind::Unsupported => Outcome::Unsupported,
            Err(_) => Outcome::Failed,
        });
        Poll::Ready(done)
    }
}

/// A device with a meter around it.
pub struct MeteredDevice {
    device: Rc<dyn BlockDevice>,
    meter: Rc<DeviceMeter>,
    replies: Option<Rc<SampledLatencies>>,
}

impl MeteredDevice {
    pub fn new(device: Rc<dyn BlockDevice>, meter: &Rc<DeviceMeter>) -> Rc<Self> {
        Rc::new(Self { device, meter: Rc::clone(meter), replies: None })
    }

    /// As [`MeteredDevice::new`], of a device with clients.
    pub fn with_replies(
        device: Rc<dyn BlockDevice>,
        meter: &Rc<DeviceMeter>,
        replies: &Rc<SampledLatencies>,
    ) -> Rc<Self> {
        Rc::new(Self { device, meter: Rc::clone(meter), replies: Some(Rc::clone(replies)) })
    }
}

impl BlockDevice for MeteredDevice {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn may_be_away(&self) -> bool {
        self.device.may_be_away()
    }

    fn replies(&self) -> Option<Rc<SampledLatencies>> {
        self.replies.clone()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let bytes = into.iter().map(|buffer| buffer.len() as u64).sum();
        self.meter.time((DeviceOperation::Read, bytes), || self.device.read(at, into))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let bytes = from.iter().map(|buffer| buffer.len() as u64).sum();
        self.meter.time((DeviceOperation::Write, bytes), || self.device.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.meter.time((DeviceOperation::Flush, 0), || self.device.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.meter.time((DeviceOperation::Discard, length.0), || self.device.discard(at, length))
    }
}

/// The holes of a metered device: zeroes that are written are counted, listings are not.
pub struct MeteredSparse {
    sparse: Rc<dyn Sparse>,
    meter: Rc<DeviceMeter>,
}

impl MeteredSparse {
    pub fn new(sparse: Rc<dyn Sparse>, meter: &Rc<DeviceMeter>) -> Rc<Self> {
        Rc::new(Self { sparse, meter: Rc::clone(meter) })
    }
}

impl Sparse for MeteredSparse {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let start = || self.sparse.write_zeroes(at, length, keeps_space, stability);
        self.meter.time((DeviceOperation::WriteZeroes, length.0), start)
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        self.sparse.extents(at, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        IoError,
        sim::{DriveOptions, FaultPlan, ServiceTime, SimDrive, SimLimits, Simulation},
    };
    use std::time::Duration;

    /// Runs a test on a drive with a meter around it.
    fn with_drive<F: Future<Output = ()> + 'static>(
        change: impl FnOnce(&mut DriveOptions),
        test: impl FnOnce(World, Rc<SimDrive>, Rc<dyn BlockDevice>, Rc<DeviceMeter>) -> F,
    ) {
        let mut simulation = Simulation::new(5);
        let mut options = DriveOptions::new(ByteCount(1 << 20));
        change(&mut options);
        let drive = simulation.add_drive(options);
        let run = simulation.run(SimLimits::generous(), |world| {
            let meter = DeviceMeter::new(&world);
            let device = MeteredDevice::new(Rc::clone(&drive) as Rc<dyn BlockDevice>, &meter);
            test(world, Rc::clone(&drive), device, meter)
        });
        run.completed();
    }

    fn buffers(bytes: usize) -> Vec<Arc<Buffer>> {
        vec![Arc::new(Buffer::zeroed(bytes))]
    }

    #[test]
    fn counts_and_bytes_are_those_of_the_drive() {
        with_drive(
            |_| (),
            |_, drive, device, meter| async move {
                for number in 0..10 {
                    device
                        .write(ByteOffset(number * 4096), buffers(4096), Stability::Volatile)
                        .await
                        .unwrap();
                }
                device.flush().await.unwrap();
                for _ in 0..3 {
                    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(512), Buffer::zeroed(1024)]);
                    read.await.unwrap();
                }
                device.discard(ByteOffset(0), ByteCount(8192)).await.unwrap();
                let counts = meter.counts();
                let of = |operation| (counts.of(operation).count(), counts.of(operation).bytes);
                assert_eq!(of(DeviceOperation::Read), (3, 3 * 1536));
                assert_eq!(of(DeviceOperation::Write), (10, 40_960));
                assert_eq!(of(DeviceOperation::Flush), (1, 0));
                assert_eq!(of(DeviceOperation::Discard), (1, 8192));
                assert_eq!(of(DeviceOperation::WriteZeroes), (0, 0));
                let statistics = drive.statistics();
                assert_eq!((statistics.reads, statistics.flushes), (3, 1));
                assert_eq!((device.geometry(), counts.in_flight), (drive.geometry(), 0));
            },
        );
    }

    #[test]
    fn a_drive_that_is_slowed_by_20_ms_shows_it() {
        let slow = |options: &mut DriveOptions| {
            let slowed =
                |time: ServiceTime| ServiceTime { least: time.least + Duration::from_millis(20), ..time };
            (options.read, options.write) = (slowed(options.read), slowed(options.write));
        };
        with_drive(slow, |_, _, device, meter| async move {
            for _ in 0..50 {
                device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
                device.write(ByteOffset(0), buffers(4096), Stability::Volatile).await.unwrap();
            }
            let counts = meter.counts();
            for operation in [DeviceOperation::Read, DeviceOperation::Write] {
                let latencies = counts.of(operation).latencies().unwrap();
                let mean_ms = latencies.total().as_secs_f64() * 1e3 / latencies.count() as f64;
                assert!((20.0..21.0).contains(&mean_ms), "{operation:?}: {mean_ms} ms");
                let p99 = latencies.quantile(0.99).unwrap();
                assert!((20..=26).contains(&p99.as_millis()), "{operation:?}: {p99:?}");
            }
        });
    }

    #[test]
    fn failures_are_counted_without_their_bytes() {
        let failing = |options: &mut DriveOptions| {
            options.faults = FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() };
        };
        with_drive(failing, |_, _, device, meter| async move {
            device.write(ByteOffset(0), buffers(4096), Stability::Volatile).await.unwrap_err();
            device.write(ByteOffset(1), buffers(4096), Stability::Volatile).await.unwrap_err();
            let counts = meter.counts();
            let writes = counts.of(DeviceOperation::Write);
            assert_eq!((writes.count(), writes.bytes, writes.errors, counts.in_flight), (2, 0, 2, 0));
        });
    }

    #[test]
    fn an_operation_that_nobody_waits_for_any_more_is_counted_with_its_time_until_then() {
        with_drive(
            |_| (),
            |world, _, device, meter| async move {
                let reading = device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]);
                assert_eq!(meter.counts().in_flight, 1);
                let before = meter.changes();
                world.sleep(Duration::from_micros(7)).await;
                drop(reading);
                let counts = meter.counts();
                let reads = counts.of(DeviceOperation::Read);
                assert_eq!((reads.count(), reads.bytes, counts.in_flight), (1, 4096, 0));
                assert_eq!(reads.latencies().unwrap().total(), Duration::from_micros(7));
                assert_ne!(meter.changes(), before);
            },
        );
    }

    /// Supports no zeroes that keep their space.
    struct Holes;

    impl Sparse for Holes {
        fn write_zeroes(
            &self,
            _at: ByteOffset,
            _length: ByteCount,
            keeps_space: bool,
            _stability: Stability,
        ) -> LocalFuture<IoResult<()>> {
            let unsupported = || Err(IoError::new(IoErrorKind::Unsupported, "as wanted"));
            Box::pin(async move { if keeps_space { unsupported() } else { Ok(()) } })
        }

        fn extents(&self, _at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
            Box::pin(async move { Ok(vec![Extent { length, is_hole: true, is_zero: true }]) })
        }
    }

    #[test]
    fn zeroes_are_counted_unless_the_caller_has_to_write_them() {
        with_drive(
            |_| (),
            |_, _, _, meter| async move {
                let sparse = MeteredSparse::new(Rc::new(Holes), &meter);
                let zeroes = |keeps_space| {
                    sparse.write_zeroes(ByteOffset(0), ByteCount(4096), keeps_space, Stability::Volatile)
                };
                zeroes(false).await.unwrap();
                zeroes(true).await.unwrap_err();
                assert_eq!(sparse.extents(ByteOffset(0), ByteCount(9)).await.unwrap().len(), 1);
                let counts = meter.counts();
                let zeroed = counts.of(DeviceOperation::WriteZeroes);
                assert_eq!((zeroed.count(), zeroed.bytes, zeroed.errors, counts.in_flight), (1, 4096, 0, 0));
            },
        );
    }
}
