//! The io_uring driver: one ring per thread, all operations of that thread in one table.
//!
//! An operation starts when it is requested, not when its future is first polled. Operations gather in a
//! backlog. The backlog is submitted when it holds more than one [`BACKLOG_SHARE`]th of the operations in the
//! kernel (so at once, if the kernel has none), or at the driver task's next turn: few system calls at high
//! depths, and the drive is never idle while later operations are prepared. Completions are signalled through
//! an eventfd that the executor polls.
//!
//! Invariants:
//!
//! 1. Every occupied slot of the table is either in the backlog or in the kernel, once: `occupied == backlog
//!    + in_kernel`.
//! 2. `in_kernel <= DEPTH`, and the completion queue holds `DEPTH` entries or more, so it never overflows.
//! 3. The table owns file, buffers and scatter list of an operation until its last completion. No other code
//!    touches the bytes of a read meanwhile; those of a write are immutable.
//! 4. The ring is not dropped before the table is empty ([`Ring::drain`]).

use super::{
    edge::watch,
    oneshot::{self, Receiver, Sender},
};
use crate::{Buffer, Stability};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::io::unix::AsyncFd;

/// Operations in the kernel at most; more wait in the backlog.
const DEPTH: usize = 512;

/// The backlog is submitted when it exceeds the operations in the kernel divided by this. Smaller batches
/// cost processor time (a virtual drive leaves the machine at each); with a fixed batch of 8 a drive at depth
/// 8 ran dry while the next 8 were prepared, and reached half the rate.
const BACKLOG_SHARE: usize = 2;

/// The kernel's limit on scatter list entries (UIO_MAXIOV).
const SCATTER_MAX: usize = 1024;

/// RWF_DSYNC of linux/fs.h: this write is stable when it completes.
const RWF_DSYNC: i32 = 0x2;

/// Retries of one transfer before it fails.
const RETRIES_MAX: u32 = 1000;

/// Layout of the kernel's `struct iovec`.
#[repr(C)]
struct ScatterEntry {
    base: *mut u8,
    length: usize,
}

/// The memory of an operation, kept alive here and returned with its completion.
pub(super) enum Memory {
    Fill(Vec<Buffer>),
    Send(Vec<Arc<Buffer>>, Stability),
    Nothing,
}

/// The result of an operation, with its memory.
pub(super) type OpResult = (Memory, io::Result<()>);

struct Op {
    file: Arc<OwnedFd>,
    /// Offset in the file where the rest of the transfer begins, in bytes.
    offset: u64,
    memory: Memory,
    /// The rest of the transfer; `first` is the index of its first entry.
    scatter: Vec<ScatterEntry>,
    first: usize,
    retries: u32,
    sender: Sender<OpResult>,
}

struct Table {
    uring: IoUring,
    ops: Vec<Option<Op>>,
    vacant: Vec<usize>,
    backlog: VecDeque<usize>,
    in_kernel: usize,
    driver: Option<Waker>,
}

/// One thread's ring; see the module's invariants.
pub(super) struct Ring {
    table: RefCell<Table>,
    completions: Arc<OwnedFd>,
}

impl Ring {
    /// Fails where the kernel or a container's policy forbids io_uring.
    pub fn new() -> io::Result<Self> {
        let size = u32::try_from(DEPTH).expect("a small constant");
        let uring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .setup_cqsize(size * 2)
            .build(size)
            // Kernels before 6.0 know neither flag.
            .or_else(|_| IoUring::builder().setup_cqsize(size * 2).build(size))?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        for needed in [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ] {
            if !probe.is_supported(needed) {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSYS.raw_os_error()));
            }
        }
        let completions = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(completions.as_raw_fd())?;
        assert!(uring.params().cq_entries() as usize >= DEPTH, "completions of a full ring must fit");
        Ok(Self {
            table: RefCell::new(Table {
                uring,
                ops: Vec::new(),
                vacant: Vec::new(),
                backlog: VecDeque::new(),
                in_kernel: 0,
                driver: None,
            }),
            completions: Arc::new(completions),
        })
    }

    /// Starts an operation at `offset` of `file`; `Nothing` is fdatasync.
    pub fn start(&self, file: &Arc<OwnedFd>, offset: u64, mut memory: Memory) -> Receiver<OpResult> {
        let scatter = scatter_list(&mut memory);
        let (sender, completion) = oneshot::channel();
        let op = Op { file: Arc::clone(file), offset, memory, scatter, first: 0, retries: 0, sender };
        let mut table = self.table.borrow_mut();
        let slot = match table.vacant.pop() {
            Some(slot) => slot,
            None => {
                table.ops.push(None);
                table.ops.len() - 1
            }
        };
        assert!(table.ops[slot].replace(op).is_none(), "a vacant slot was occupied");
        table.backlog.push_back(slot);
        let worth_it = table.backlog.len() * BACKLOG_SHARE > table.in_kernel;
        // The driver meets the same failure again and handles it.
        let submitted = worth_it && table.submit(0).is_ok();
        let driver = if submitted && table.backlog.is_empty() { None } else { table.driver.take() };
        drop(table);
        if let Some(driver) = driver {
            driver.wake();
        }
        completion
    }

    /// Submits operations and completes them until its task is dropped.
    pub async fn drive(self: Rc<Self>) -> io::Result<()> {
        let completions = watch(&self.completions)?;
        std::future::poll_fn(|context| self.poll_completions(&completions, context)).await
    }

    fn poll_completions(
        &self,
        completions: &AsyncFd<Arc<OwnedFd>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Poll::Ready(guard) = completions.poll_read_ready(context) {
            match guard {
                Ok(mut guard) => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.table.borrow_mut().driver = Some(context.waker().clone());
        loop {
            let (completed, outcome) = self.table.borrow_mut().exchange(0);
            complete_all(completed);
            if let Err(error) = outcome {
                return Poll::Ready(Err(error));
            }
            // The rest of a short transfer is in the backlog again and need not wait.
            let table = self.table.borrow();
            if table.backlog.is_empty() || table.in_kernel == DEPTH {
                return Poll::Pending;
            }
        }
    }

    /// Runs every started operation to its completion and blocks the thread meanwhile.
    pub fn drain(&self) {
        loop {
            let completed = {
                let mut table = self.table.borrow_mut();
                if table.in_kernel == 0 && table.backlog.is_empty() {
                    assert!(table.ops.iter().all(Option::is_none), "an operation was lost");
                    return;
                }
                let (completed, outcome) = table.exchange(1);
                if let Err(error) = outcome {
                    // Abort: freeing memory that the kernel may still write to would be worse.
                    eprintln!("io_uring failed while operations were in flight: {error}");
                    std::process::abort();
                }
                completed
            };
            complete_all(completed);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

fn complete_all(completed: Vec<(Op, io::Result<()>)>) {
    for (op, result) in completed {
        op.sender.send((op.memory, result));
    }
}

type Completions = Vec<(Op, io::Result<()>)>;

impl Table {
    /// One exchange with the kernel: submits the backlog and reaps completions. Blocks for `want` completions
    /// if operations are in flight.
    fn exchange(&mut self, want: usize) -> (Completions, io::Result<()>) {
        let outcome = self.submit(want);
        (self.reap(), outcome)
    }

    fn submit(&mut self, want: usize) -> io::Result<()> {
        self.fill_submission_queue();
        let want = want.min(self.in_kernel);
        if self.uring.submission().is_empty() && want == 0 {
            return Ok(());
        }
        match self.uring.submit_and_wait(want) {
            Ok(_) => {}
            // Interrupted, or short of kernel memory: the entries stay in the queue.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        // No completion may come to trigger the next submission of the entries that stayed.
        if !self.uring.submission().is_empty()
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
        Ok(())
    }

    fn fill_submission_queue(&mut self) {
        let Self { uring, ops, backlog, in_kernel, .. } = self;
        let mut queue = uring.submission();
        while *in_kernel < DEPTH && !queue.is_full() {
            let Some(slot) = backlog.pop_front() else { break };
            let op = ops[slot].as_ref().expect("the backlog names occupied slots");
            let entry = op.entry().user_data(slot as u64);
            // SAFETY: everything the entry points to (scatter list and the memory behind it, the
            // descriptor) is owned by the operation, which stays in the table, its heap memory
            // unmoved, until the completion with this slot number has been reaped.
            #[allow(unsafe_code)]
            let pushed = unsafe { queue.push(&entry) };
            pushed.expect("the queue was just seen to have room");
            *in_kernel += 1;
        }
    }

    fn reap(&mut self) -> Completions {
        let Self { uring, ops, vacant, backlog, in_kernel, .. } = self;
        let mut completed = Vec::new();
        for completion in uring.completion() {
            let slot = usize::try_from(completion.user_data()).expect("we gave a slot number");
            assert!(*in_kernel > 0, "a completion without an operation");
            *in_kernel -= 1;
            let op = ops[slot].as_mut().expect("completions name occupied slots");
            match op.advance(completion.result()) {
                // The rest goes first, so that younger operations do not overtake the transfer.
                Progress::More => backlog.push_front(slot),
                Progress::Done(result) => {
                    let op = ops[slot].take().expect("just advanced");
                    vacant.push(slot);
                    completed.push((op, result));
                }
            }
        }
        assert_eq!(
            ops.len() - vacant.len(),
            backlog.len() + *in_kernel,
            "each operation is in one place, once"
        );
        completed
    }
}

fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::INTR, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

enum Progress {
    More,
    Done(io::Result<()>),
}

impl Op {
    /// The submission entry for the rest of this operation.
    fn entry(&self) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        let rest = &self.scatter[self.first..];
        let count = u32::try_from(rest.len().min(SCATTER_MAX)).expect("a small constant");
        // A single buffer, the usual case, spares the kernel the import of a list.
        let single = rest.first().filter(|_| rest.len() == 1);
        let single = single.and_then(|entry| Some((entry.base, u32::try_from(entry.length).ok()?)));
        match (&self.memory, single) {
            (Memory::Fill(_), Some((base, length))) => {
                opcode::Read::new(file, base, length).offset(self.offset).build()
            }
            (Memory::Fill(_), None) => {
                opcode::Readv::new(file, rest.as_ptr().cast(), count).offset(self.offset).build()
            }
            (Memory::Send(_, stability), Some((base, length))) => opcode::Write::new(file, base, length)
                .offset(self.offset)
                .rw_flags(write_flags(*stability))
                .build(),
            (Memory::Send(_, stability), None) => opcode::Writev::new(file, rest.as_ptr().cast(), count)
                .offset(self.offset)
                .rw_flags(write_flags(*stability))
                .build(),
            (Memory::Nothing, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }

    /// Applies a completion's result.
    fn advance(&mut self, result: i32) -> Progress {
        let Ok(count) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            self.retries += 1;
            if is_passing(&error) && self.retries <= RETRIES_MAX {
                return Progress::More;
            }
            return Progress::Done(Err(error));
        };
        match self.memory {
            Memory::Nothing => return Progress::Done(Ok(())),
            Memory::Fill(_) if count == 0 => {
                return Progress::Done(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Memory::Send(..) if count == 0 => return Progress::Done(Err(io::ErrorKind::WriteZero.into())),
            Memory::Fill(_) | Memory::Send(..) => {}
        }
        self.offset += count as u64;
        let mut count = count;
        while count > 0 {
            let entry = &mut self.scatter[self.first];
            let taken = count.min(entry.length);
            entry.base = entry.base.wrapping_add(taken);
            entry.length -= taken;
            count -= taken;
            if entry.length == 0 {
                self.first += 1;
            }
        }
        if self.first == self.scatter.len() { Progress::Done(Ok(())) } else { Progress::More }
    }
}

fn write_flags(stability: Stability) -> i32 {
    match stability {
        Stability::Volatile => 0,
        Stability::Stable => RWF_DSYNC,
    }
}

fn scatter_list(memory: &mut Memory) -> Vec<ScatterEntry> {
    match memory {
        Memory::Fill(buffers) => buffers
            .iter_mut()
            .map(|buffer| ScatterEntry { length: buffer.len(), base: buffer.as_mut_ptr() })
            .collect(),
        // The kernel only reads from these; reads and writes share the entry's type.
        Memory::Send(buffers, _) => buffers
            .iter()
            .map(|buffer| ScatterEntry { length: buffer.len(), base: buffer.as_ptr().cast_mut() })
            .collect(),
        Memory::Nothing => Vec::new(),
    }
}
