//! A simulated drive: a [`BlockDevice`] in memory with service times, a volatile cache, and faults.
//!
//! An operation waits until one of `queue_depth` places is free, is served for a random time, and takes
//! effect at one moment, its completion. So operations complete in any order.
//!
//! Invariants:
//!
//! 1. `visible` is what a read finds: every completed write in order of completion.
//! 2. `durable` with all of `unsynced` applied in order is `visible`, faults apart.
//! 3. `unsynced` holds completed writes in order of completion. A stable one in it waits only for older
//!    volatile ones and survives a power cut whole.
//! 4. An operation is in `under_way` from its start to its completion, whether or not its caller still
//!    waits: it keeps its own buffers.
//! 5. While a write is under way, a read of the same sectors may find any mixture of old and new.

use super::{
    executor::Executor,
    faults::{Access, Fault, FaultPlan},
    image::{BLOCK_BYTES, Image},
};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Random, Stability,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

/// How long an operation is served: `least` + exponential with mean `mean_above` + `per_mib` by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// What every operation takes.
    pub least: Duration,
    /// Mean of what comes on top at random.
    pub mean_above: Duration,
    /// For each MiB moved.
    pub per_mib: Duration,
}

impl ServiceTime {
    fn draw(self, length: u64, random: &mut Random) -> Duration {
        let above = -(1.0 - random.unit()).ln() * self.mean_above.as_nanos() as f64;
        let moved = self.per_mib.as_nanos() as u64 * length / (1 << 20);
        self.least + Duration::from_nanos(above as u64 + moved)
    }
}

/// Shape and manners of a drive. Passive data; the default is a small flash drive with a volatile cache.
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// Usable bytes, a multiple of 4096.
    pub size: ByteCount,
    /// Unit of addresses, and of what is written whole or not at all: 512 or 4096 bytes.
    pub sector: u32,
    /// Aligned unit in which a write survives a power cut whole or not at all: a multiple of `sector`, and
    /// equal to it unless the drive promises more.
    pub atomic_unit: ByteCount,
    /// Operations served at once.
    pub queue_depth: usize,
    /// Service time of reads.
    pub read: ServiceTime,
    /// Service time of writes and discards; stable ones pay for a flush on top.
    pub write: ServiceTime,
    /// Service time of flushes.
    pub flush: ServiceTime,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// Whether what is written and read goes into the trace, not only where.
    pub trace_contents: bool,
}

impl DriveOptions {
    /// A drive of `size` with the manners of a flash drive: 80 µs reads, 20 µs writes, 200 µs flushes.
    pub fn new(size: ByteCount) -> Self {
        let time = |least, mean_above| ServiceTime {
            least: Duration::from_micros(least),
            mean_above: Duration::from_micros(mean_above),
            per_mib: Duration::from_micros(500),
        };
        Self {
            size,
            sector: 512,
            atomic_unit: ByteCount(512),
            queue_depth: 32,
            read: time(60, 20),
            write: time(15, 5),
            flush: time(100, 100),
            faults: FaultPlan::none(),
            trace_contents: false,
        }
    }
}

/// What a drive has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveStatistics {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Faults met, by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Atomic units of writes that a power cut or the death of the host had at its mercy, and lost.
    pub units_lost: u64,
    /// Those that it kept.
    pub units_kept: u64,
}

/// A completed write that a power cut may still touch.
pub(super) struct Unsynced {
    pub sequence: u64,
    pub at: u64,
    pub from: Vec<Arc<Buffer>>,
    pub is_stable: bool,
}

/// A started operation.
pub(super) enum Operation {
    Read { at: u64, into: Vec<Buffer> },
    Write { at: u64, from: Vec<Arc<Buffer>>, stability: Stability },
    Flush { upto: u64 },
    Discard { at: u64, length: u64 },
}

struct Started {
    operation: Operation,
    answer: Rc<RefCell<Answer>>,
}

#[derive(Default)]
struct Answer {
    value: Option<IoResult<Vec<Buffer>>>,
    waker: Option<Waker>,
}

pub(super) struct DriveState {
    pub options: DriveOptions,
    pub visible: Image,
    pub durable: Image,
    /// What was there before the last write, kept only for stale reads.
    previous: Image,
    pub unsynced: VecDeque<Unsynced>,
    completed_writes: u64,
    under_way: BTreeMap<u64, Started>,
    waiting: VecDeque<u64>,
    in_service: usize,
    operation_last: u64,
    unreadable: BTreeSet<u64>,
    times: Random,
    faults: Random,
    pub losses: Random,
    pub statistics: DriveStatistics,
}

/// See the module's documentation. Made by [`Simulation::add_drive`](super::Simulation::add_drive).
pub struct SimDrive {
    pub(super) shared: Rc<Shared>,
}

pub(super) struct Shared {
    pub executor: Rc<Executor>,
    number: u64,
    pub state: RefCell<DriveState>,
}

impl SimDrive {
    pub(super) fn new(executor: Rc<Executor>, seed: u64, number: u64, options: DriveOptions) -> Self {
        assert!(matches!(options.sector, 512 | 4096), "sectors are of 512 or 4096 bytes");
        assert!(options.size.0 > 0 && options.size.0.is_multiple_of(BLOCK_BYTES as u64));
        assert!(options.atomic_unit.0.is_multiple_of(u64::from(options.sector)) && options.atomic_unit.0 > 0);
        assert!(options.queue_depth > 0, "a drive serves at least one operation at a time");
        let stream = |what: &str| Random::new(seed, &format!("{what} of drive {number}"));
        let state = DriveState {
            options,
            visible: Image::new(),
            durable: Image::new(),
            previous: Image::new(),
            unsynced: VecDeque::new(),
            completed_writes: 0,
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            in_service: 0,
            operation_last: 0,
            unreadable: BTreeSet::new(),
            times: stream("service times"),
            faults: stream("faults"),
            losses: stream("losses"),
            statistics: DriveStatistics::default(),
        };
        Self { shared: Rc::new(Shared { executor, number, state: RefCell::new(state) }) }
    }

    /// From now on these faults are met.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.shared.state.borrow_mut().options.faults = faults;
    }

    /// What it has done so far.
    pub fn statistics(&self) -> DriveStatistics {
        self.shared.state.borrow().statistics.clone()
    }

    /// Bytes in use: blocks of 4 KiB ever written.
    pub fn space_used(&self) -> ByteCount {
        ByteCount((self.shared.state.borrow().visible.blocks_written() * BLOCK_BYTES) as u64)
    }

    fn start(&self, operation: Operation) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let answer = Rc::new(RefCell::new(Answer::default()));
        if self.shared.executor.is_open() {
            let mut state = self.shared.state.borrow_mut();
            state.operation_last += 1;
            let number = state.operation_last;
            state.under_way.insert(number, Started { operation, answer: Rc::clone(&answer) });
            state.waiting.push_back(number);
            self.shared.serve_waiting(&mut state);
        }
        Box::pin(poll_fn(move |context| {
            let mut answer = answer.borrow_mut();
            match answer.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    answer.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    /// Rules 1 and 2 of [`BlockDevice`].
    fn check(&self, doing: &str, at: u64, lengths: impl Iterator<Item = u64>) -> IoResult<u64> {
        let (size, sector) = {
            let state = self.shared.state.borrow();
            (state.options.size.0, u64::from(state.options.sector))
        };
        let (mut length, mut aligned) = (0, at.is_multiple_of(sector));
        for part in lengths {
            length += part;
            aligned &= part.is_multiple_of(sector);
        }
        let fail = |kind| {
            let number = self.shared.number;
            Err(IoError::new(kind, format!("{doing} {length} bytes at {at} of simulated drive {number}")))
        };
        match at.checked_add(length) {
            _ if !aligned => fail(IoErrorKind::Unaligned),
            Some(end) if end <= size => Ok(length),
            _ => fail(IoErrorKind::OutOfRange),
        }
    }
}

impl Shared {
    fn serve_waiting(self: &Rc<Self>, state: &mut DriveState) {
        while state.in_service < state.options.queue_depth
            && let Some(number) = state.waiting.pop_front()
        {
            state.in_service += 1;
            let (fault, span) = state.draw_service(number);
            if fault == Some(Fault::Stuck) {
                // Its place stays taken.
                state.count(Fault::Stuck);
                continue;
            }
            let shared = Rc::clone(self);
            self.executor.schedule(span, move || shared.complete(number, fault));
        }
    }

    fn complete(self: &Rc<Self>, number: u64, fault: Option<Fault>) {
        let (answer, value) = {
            let mut state = self.state.borrow_mut();
            let started = state.under_way.remove(&number).expect("an operation completes once");
            let value = self.take_effect(&mut state, number, started.operation, fault);
            state.in_service -= 1;
            self.serve_waiting(&mut state);
            (started.answer, value)
        };
        let waker = {
            let mut answer = answer.borrow_mut();
            answer.value = Some(value);
            answer.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take_effect(
        &self,
        state: &mut DriveState,
        number: u64,
        operation: Operation,
        fault: Option<Fault>,
    ) -> IoResult<Vec<Buffer>> {
        let (tag, place) = match &operation {
            Operation::Read { at, .. } => (1, *at),
            Operation::Write { at, stability: Stability::Volatile, .. } => (2, *at),
            Operation::Write { at, stability: Stability::Stable, .. } => (3, *at),
            Operation::Flush { upto } => (4, *upto),
            Operation::Discard { at, .. } => (5, *at),
        };
        for word in [self.number, number, tag, place] {
            self.executor.note(word);
        }
        let result = match operation {
            Operation::Read { at, into } => state.read(at, into, fault),
            Operation::Write { at, from, stability } => {
                self.note_contents(state, from.iter().map(|buffer| &buffer[..]));
                state.write(at, from, stability, fault).map(|()| Vec::new())
            }
            Operation::Flush { upto } => state.flush(upto, fault).map(|()| Vec::new()),
            Operation::Discard { at, length } => {
                state.discard(at, length);
                Ok(Vec::new())
            }
        };
        if let Ok(buffers) = &result {
            self.note_contents(state, buffers.iter().map(|buffer| &buffer[..]));
        }
        self.executor.note(u64::from(result.is_ok()));
        result.map_err(|kind| {
            let context = format!("operation {number} of simulated drive {}: {fault:?}", self.number);
            IoError::new(kind, context)
        })
    }

    fn note_contents<'a>(&self, state: &DriveState, parts: impl Iterator<Item = &'a [u8]>) {
        if state.options.trace_contents {
            parts.for_each(|part| self.executor.note_bytes(part));
        }
    }
}

fn length_of(buffers: &[Arc<Buffer>]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

impl DriveState {
    fn count(&mut self, fault: Fault) {
        *self.statistics.faults.entry(fault).or_default() += 1;
    }

    /// Which fault an operation will meet, and how long it is served.
    fn draw_service(&mut self, number: u64) -> (Option<Fault>, Duration) {
        let operation = &self.under_way[&number].operation;
        let DriveOptions { read, write, flush, faults, .. } = &self.options;
        let (access, length, time, flushes) = match operation {
            Operation::Read { into, .. } => {
                (Access::Read, into.iter().map(|buffer| buffer.len() as u64).sum(), *read, false)
            }
            Operation::Write { from, stability, .. } => {
                (Access::Write, length_of(from), *write, *stability == Stability::Stable)
            }
            Operation::Flush { .. } => (Access::Flush, 0, *flush, false),
            Operation::Discard { .. } => (Access::Write, 0, *write, false),
        };
        let fault = faults.draw(access, &mut self.faults);
        let mut span = time.draw(length, &mut self.times);
        if flushes {
            span += flush.draw(0, &mut self.times);
        }
        if fault == Some(Fault::Slow) {
            span += faults.slow_span;
        }
        (fault, span)
    }

    fn read(
        &mut self,
        at: u64,
        mut into: Vec<Buffer>,
        fault: Option<Fault>,
    ) -> Result<Vec<Buffer>, IoErrorKind> {
        self.statistics.reads += 1;
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        let sector = u64::from(self.options.sector);
        let mut source = at;
        if let Some(fault) = fault {
            self.count(fault);
            match fault {
                Fault::BitRot => {
                    let byte_at = at + self.faults.below(length);
                    let mut byte = [0];
                    self.visible.read(byte_at, &mut byte);
                    byte[0] ^= 1 << self.faults.below(8);
                    self.visible.write(byte_at, &byte);
                    self.durable.write(byte_at, &byte);
                }
                Fault::Unreadable => {
                    self.unreadable.insert(at / sector + self.faults.below(length / sector));
                }
                Fault::MisdirectedRead => source = self.elsewhere(length),
                _ => {}
            }
        }
        let sectors = source / sector..(source + length) / sector;
        if self.unreadable.range(sectors).next().is_some() {
            return Err(IoErrorKind::Medium);
        }
        for buffer in &mut into {
            match fault {
                Some(Fault::StaleRead) => self.previous.read(source, buffer),
                _ => self.visible.read(source, buffer),
            }
            self.mix_with_writes_under_way(source, buffer);
            source += buffer.len() as u64;
        }
        Ok(into)
    }

    /// Invariant 5.
    fn mix_with_writes_under_way(&mut self, at: u64, into: &mut [u8]) {
        let sector = self.options.sector as usize;
        let end = at + into.len() as u64;
        for started in self.under_way.values() {
            let Operation::Write { at: from_at, from, .. } = &started.operation else { continue };
            let mut from_at = *from_at;
            if from_at >= end || from_at + length_of(from) <= at {
                continue;
            }
            for bytes in from.iter().flat_map(|buffer| buffer.chunks_exact(sector)) {
                if (at..end).contains(&from_at) && self.losses.percent(50.0) {
                    let within = (from_at - at) as usize;
                    into[within..within + sector].copy_from_slice(bytes);
                }
                from_at += sector as u64;
            }
        }
    }

    /// Some place that was written, with `length` bytes behind it, and by chance the right one.
    fn elsewhere(&mut self, length: u64) -> u64 {
        let faults = &mut self.faults;
        let block = self.visible.written_block(|count| faults.below(count as u64) as usize).unwrap_or(0);
        (block * BLOCK_BYTES as u64).min(self.options.size.0 - length)
    }

    fn write(
        &mut self,
        at: u64,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
        fault: Option<Fault>,
    ) -> Result<(), IoErrorKind> {
        self.statistics.writes += 1;
        let length = length_of(&from);
        if let Some(space) = self.options.faults.space {
            let missing = self.visible.blocks_missing(at, length);
            let blocks = self.visible.blocks_written() + missing;
            if missing > 0 && (blocks * BLOCK_BYTES) as u64 > space.0 {
                self.count(Fault::NoSpace);
                return Err(IoErrorKind::NoSpace);
            }
        }
        if let Some(fault) = fault {
            self.count(fault);
        }
        match fault {
            Some(Fault::LostWrite) => {}
            Some(Fault::MisdirectedWrite) => {
                let elsewhere = self.elsewhere(length);
                self.accept(elsewhere, from, stability == Stability::Stable);
            }
            Some(Fault::FailedWrite) => {
                self.accept_in_part(at, &from, 50.0);
                return Err(IoErrorKind::Medium);
            }
            _ => self.accept(at, from, stability == Stability::Stable),
        }
        Ok(())
    }

    /// Takes a write into the cache, and on to the medium as far as that can be told already.
    pub fn accept(&mut self, at: u64, from: Vec<Arc<Buffer>>, is_stable: bool) {
        let sector = u64::from(self.options.sector);
        let keeps_previous = self.options.faults.stale_read_percent > 0.0;
        let mut place = at;
        for buffer in &from {
            if keeps_previous {
                let mut before = vec![0; buffer.len()];
                self.visible.read(place, &mut before);
                self.previous.write(place, &before);
            }
            self.visible.write(place, buffer);
            place += buffer.len() as u64;
        }
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|unreadable| !(at / sector..place / sector).contains(unreadable));
        }
        self.completed_writes += 1;
        self.unsynced.push_back(Unsynced { sequence: self.completed_writes, at, from, is_stable });
        self.retire_stable();
    }

    /// Invariant 3: a stable write behind no volatile one is on the medium.
    fn retire_stable(&mut self) {
        while let Some(oldest) = self.unsynced.pop_front_if(|oldest| oldest.is_stable) {
            self.make_durable(&oldest);
        }
    }

    fn make_durable(&mut self, write: &Unsynced) {
        let mut at = write.at;
        for buffer in &write.from {
            self.durable.write(at, buffer);
            at += buffer.len() as u64;
        }
    }

    fn flush(&mut self, upto: u64, fault: Option<Fault>) -> Result<(), IoErrorKind> {
        self.statistics.flushes += 1;
        if let Some(fault) = fault {
            self.count(fault);
        }
        match fault {
            Some(Fault::LyingFlush) => return Ok(()),
            Some(Fault::FailedFlush) => {
                let losses = &mut self.losses;
                self.unsynced
                    .retain(|write| write.is_stable || write.sequence > upto || losses.percent(50.0));
                return Err(IoErrorKind::Medium);
            }
            _ => {}
        }
        while let Some(oldest) = self.unsynced.pop_front_if(|oldest| oldest.sequence <= upto) {
            self.make_durable(&oldest);
        }
        self.retire_stable();
        Ok(())
    }

    /// What was discarded reads as anything: here as a pattern no one writes.
    fn discard(&mut self, at: u64, length: u64) {
        if length > 0 {
            let mut pattern = Buffer::zeroed(length as usize);
            self.losses.fill(&mut pattern);
            self.accept(at, vec![Arc::new(pattern)], false);
        }
    }

    /// Takes every started operation away from its caller, oldest first.
    pub fn take_under_way(&mut self) -> Vec<Operation> {
        self.waiting.clear();
        self.in_service = 0;
        std::mem::take(&mut self.under_way).into_values().map(|started| started.operation).collect()
    }
}

impl BlockDevice for SimDrive {
    fn geometry(&self) -> Geometry {
        let state = self.shared.state.borrow();
        Geometry { size: state.options.size, sector: state.options.sector }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        match self.check("reading", at.0, into.iter().map(|buffer| buffer.len() as u64)) {
            Ok(0) => Box::pin(async { Ok(into) }),
            Ok(_) => self.start(Operation::Read { at: at.0, into }),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let started = match self.check("writing", at.0, from.iter().map(|buffer| buffer.len() as u64)) {
            Ok(_) => self.start(Operation::Write { at: at.0, from, stability }),
            Err(error) => return Box::pin(async { Err(error) }),
        };
        Box::pin(async move { started.await.map(drop) })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let upto = self.shared.state.borrow().completed_writes;
        let started = self.start(Operation::Flush { upto });
        Box::pin(async move { started.await.map(drop) })
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let started = match self.check("discarding", at.0, [length.0].into_iter()) {
            Ok(_) => self.start(Operation::Discard { at: at.0, length: length.0 }),
            Err(error) => return Box::pin(async { Err(error) }),
        };
        Box::pin(async move { started.await.map(drop) })
    }
}
