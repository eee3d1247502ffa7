//! io_uring: one ring per thread, all operations of that thread in one table.
//!
//! Operations gather in a backlog. The executor submits it when the drives would soon have nothing to do, and
//! with every wait: at low depths one system call submits, waits and completes. A large transfer is submitted
//! at once, because its caller may compute for long before it awaits it.
//!
//! An operation is a transfer of a drive, which always ends, or a wait (for readiness of a descriptor, for
//! bytes of a socket), which may last for ever. A wait that nobody awaits is cancelled.
//!
//! Invariants:
//!
//! 1. Every occupied slot of the table is either in the backlog or in the kernel, once: `occupied == backlog
//!    + transfers + waits`.
//! 2. `transfers <= DEPTH`, so their completions fit the completion queue; the kernel keeps what does not fit.
//! 3. The table owns descriptor and memory of an operation until its last completion. No other code touches
//!    the bytes of a read meanwhile; those of a write are immutable.
//! 4. The ring is not dropped before the table is empty ([`Ring::drain`]).
//! 5. A cancellation is submitted only while its wait is in the table; its slot is not used again before
//!    the wait has completed.

mod op;
mod table;

pub(super) use op::{Memory, OpResult, ReceiveResult};

use super::oneshot::Receiver;
use io_uring::{IoUring, Probe, opcode};
use op::{Delivery, Op};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use table::{DEPTH, EARLY_MIN, Table};

/// A transfer of this size or more is submitted at once.
const LARGE_BYTES: usize = 64 << 10;

/// The operations a ring needs.
const OPERATIONS: [u8; 8] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::PollAdd::CODE,
    opcode::Recv::CODE,
    opcode::AsyncCancel::CODE,
];

/// One thread's ring; see the module's invariants.
pub(super) struct Ring {
    table: RefCell<Table>,
    serves_connections: Cell<bool>,
}

impl Ring {
    /// Fails where the kernel or a container's policy forbids io_uring, and before Linux 5.11.
    pub fn new() -> io::Result<Self> {
        let size = u32::try_from(DEPTH).expect("a small constant");
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(size * 2)
            .build(size)
            // Kernels before 6.1 do not know these.
            .or_else(|_| IoUring::builder().setup_cqsize(size * 2).build(size))?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let features = uring.params();
        let is_complete = OPERATIONS.iter().all(|&code| probe.is_supported(code))
            && features.is_feature_ext_arg()
            && features.is_feature_nodrop();
        if !is_complete {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSYS.raw_os_error()));
        }
        // A policy may refuse this call alone, and the executor could not go on without it.
        uring.submit()?;
        assert!(features.cq_entries() as usize >= DEPTH, "completions of all transfers must fit");
        Ok(Self { table: RefCell::new(Table::new(uring)), serves_connections: Cell::new(false) })
    }

    /// Starts a transfer at `offset` of `file`; `Nothing` is fdatasync.
    pub fn start(&self, file: &Arc<OwnedFd>, offset: u64, memory: Memory) -> Receiver<OpResult> {
        let (op, completion) = Op::transfer(file, offset, memory);
        let is_large = op.transfer_bytes() >= LARGE_BYTES;
        let mut table = self.table.borrow_mut();
        table.add(op);
        if is_large {
            // The executor meets the same failure and handles it.
            let _ = table.submit();
        }
        completion
    }

    /// Waits for `events` of poll(2), an error, or the other side's end.
    pub fn readiness(self: &Rc<Self>, file: &Arc<OwnedFd>, events: u32) -> Wait<io::Result<()>> {
        let (op, completion) = Op::readiness(file, events);
        self.wait_for(op, completion)
    }

    /// Receives bytes of a socket into `memory` as soon as there are any.
    pub fn receive(self: &Rc<Self>, socket: &Arc<OwnedFd>, memory: Box<[u8]>) -> Wait<ReceiveResult> {
        self.serves_connections.set(true);
        let (op, completion) = Op::receive(socket, memory);
        self.wait_for(op, completion)
    }

    fn wait_for<T>(self: &Rc<Self>, op: Op, completion: Receiver<T>) -> Wait<T> {
        let slot = self.table.borrow_mut().add(op);
        Wait { ring: Rc::clone(self), slot, completion }
    }

    /// True once bytes of a connection were waited for.
    pub fn serves_connections(&self) -> bool {
        self.serves_connections.get()
    }

    /// True if an exchange would submit or complete anything.
    pub fn has_exchange(&self) -> bool {
        self.table.borrow_mut().has_exchange()
    }

    /// Transfers under way, submitted or not.
    pub fn transfers(&self) -> usize {
        self.table.borrow().transfers()
    }

    /// Submits the backlog if the drives would soon have nothing to do.
    ///
    /// # Errors
    ///
    /// The ring is broken.
    pub fn submit_due(&self) -> io::Result<()> {
        let least = if self.serves_connections() { EARLY_MIN } else { 1 };
        let mut table = self.table.borrow_mut();
        if table.is_backlog_due(least) { table.submit() } else { Ok(()) }
    }

    /// Submits operations and completes them. Blocks for a completion for `patience` at most; `None` is no
    /// limit.
    ///
    /// # Errors
    ///
    /// The ring is broken.
    pub fn exchange(&self, patience: Option<Duration>) -> io::Result<()> {
        self.exchange_and(patience, || ())
    }

    /// Like [`Ring::exchange`]; calls `woken` when the system call has ended, before anything is delivered.
    ///
    /// # Errors
    ///
    /// The ring is broken.
    pub fn exchange_and(&self, patience: Option<Duration>, woken: impl FnOnce()) -> io::Result<()> {
        let (deliveries, outcome) = self.table.borrow_mut().exchange(patience);
        woken();
        deliveries.into_iter().for_each(Delivery::send);
        outcome
    }

    /// Cancels all waits, runs every transfer to its completion and blocks the thread meanwhile.
    pub fn drain(&self) {
        self.table.borrow_mut().cancel_waits();
        while !self.table.borrow().is_empty() {
            if let Err(error) = self.exchange(None) {
                // Abort: freeing memory that the kernel may still write to would be worse.
                eprintln!("io_uring failed while operations were in flight: {error}");
                std::process::abort();
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

/// A wait under way; dropping it cancels it.
pub(super) struct Wait<T> {
    ring: Rc<Ring>,
    slot: usize,
    completion: Receiver<T>,
}

impl<T> Future for Wait<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.completion).poll(context)
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        if self.completion.is_open() {
            self.ring.table.borrow_mut().cancel(self.slot);
        }
    }
}
