//! A simulated drive: a [`BlockDevice`] in memory with service times, a volatile cache, and faults.
//!
//! An operation waits for one of `queue_depth` slots, is served for the time its service model draws, and
//! takes effect at one moment, its completion. So operations complete in any order.
//!
//! Invariants:
//!
//! 1. An operation is in `under_way` from its start to its completion, even if its caller no longer waits: it
//!    keeps its own buffers.
//! 2. At most `queue_depth` operations are served at once; the others wait in order of arrival.
//! 3. The state is borrowed for one step, never while a caller is woken.

use super::{
    drive_options::{DriveOptions, DriveStatistics},
    executor::Executor,
    faults::{FaultPlan, SimFault},
    filesystem::SimFilesystem,
    image::BLOCK_BYTES,
    medium::DriveState,
    service::ServiceModel,
};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};
use std::{
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

pub(super) enum Operation {
    Read { at: u64, into: Vec<Buffer> },
    Write { at: u64, from: Vec<Arc<Buffer>>, stability: Stability },
    Flush { upto: u64 },
    Discard { at: u64, length: u64 },
}

pub(super) struct PendingOperation {
    pub operation: Operation,
    reply: Rc<RefCell<Reply>>,
}

#[derive(Default)]
pub(super) struct Reply {
    value: Option<IoResult<Vec<Buffer>>>,
    waker: Option<Waker>,
}

/// A simulated drive, made by [`Simulation::add_drive`](super::Simulation::add_drive).
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
        let state = DriveState::new(options, seed, number);
        Self { shared: Rc::new(Shared { executor, number, state: RefCell::new(state) }) }
    }

    /// Replaces the fault plan from now on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.shared.state.borrow_mut().options.faults = faults;
    }

    /// Replaces the service model from now on.
    pub fn set_service_model(&self, model: impl ServiceModel + 'static) {
        self.shared.state.borrow_mut().service = Box::new(model);
    }

    /// Places the drive on `filesystem`, whose free space it then shares with others; `None` for unlimited
    /// space.
    pub fn put_on(&self, filesystem: Option<&SimFilesystem>) {
        self.shared.state.borrow_mut().filesystem = filesystem.cloned();
    }

    /// Breaks the connection to the drive for a while, as if it were on another machine: nothing is answered meanwhile,
    /// all of it afterwards. If volatile writes had been acknowledged, the next flush fails, and they may be lost.
    pub fn break_connection(&self, span: Duration) {
        let until = self.shared.executor.now() + span;
        self.shared.state.borrow_mut().break_connection(until);
    }

    pub fn statistics(&self) -> DriveStatistics {
        self.shared.state.borrow().statistics.clone()
    }

    /// Bytes in use: blocks of 4 KiB ever written.
    pub fn space_used(&self) -> ByteCount {
        ByteCount((self.shared.state.borrow().visible.blocks_written() * BLOCK_BYTES) as u64)
    }

    /// Reads the contents from outside the simulation: no time passes and no fault occurs.
    pub fn peek(&self, at: u64, into: &mut [u8]) {
        self.shared.state.borrow().visible.read(at, into);
    }

    /// Overwrites the contents from outside the simulation, durably.
    pub fn poke(&self, at: u64, from: &[u8]) {
        let mut state = self.shared.state.borrow_mut();
        state.visible.write(at, from);
        state.durable.write(at, from);
    }

    /// True while a stable write is in flight.
    pub fn has_stable_write_under_way(&self) -> bool {
        let state = self.shared.state.borrow();
        state
            .under_way
            .values()
            .any(|started| matches!(started.operation, Operation::Write { stability: Stability::Stable, .. }))
    }

    fn start(&self, operation: Operation) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let reply = Rc::new(RefCell::new(Reply::default()));
        if self.shared.executor.is_open() {
            let mut state = self.shared.state.borrow_mut();
            state.operation_last += 1;
            let number = state.operation_last;
            state.under_way.insert(number, PendingOperation { operation, reply: Rc::clone(&reply) });
            state.waiting.push_back(number);
            self.shared.serve_waiting(&mut state);
        }
        Box::pin(poll_fn(move |context| {
            let mut reply = reply.borrow_mut();
            match reply.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    reply.waker = Some(context.waker().clone());
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
            if fault == Some(SimFault::Stuck) {
                // Its slot stays occupied.
                state.count(SimFault::Stuck);
                continue;
            }
            let shared = Rc::clone(self);
            self.executor.schedule(span, move || shared.complete(number, fault));
        }
    }

    fn complete(self: &Rc<Self>, number: u64, fault: Option<SimFault>) {
        let (reply, value) = {
            let mut state = self.state.borrow_mut();
            let now = self.executor.now();
            if state.broken_until > now {
                let shared = Rc::clone(self);
                let span = state.broken_until.since(now);
                self.executor.schedule(span, move || shared.complete(number, fault));
                return;
            }
            // An operation of a crashed host is gone.
            let Some(started) = state.under_way.remove(&number) else { return };
            let value = self.take_effect(&mut state, number, started.operation, fault);
            state.in_service -= 1;
            self.serve_waiting(&mut state);
            (started.reply, value)
        };
        let waker = {
            let mut reply = reply.borrow_mut();
            reply.value = Some(value);
            reply.waker.take()
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
        fault: Option<SimFault>,
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
