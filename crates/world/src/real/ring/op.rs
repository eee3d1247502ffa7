//! Operations of the ring: transfers of files, and waits for other descriptors.

use crate::{
    Buffer, Stability,
    real::oneshot::{Receiver, Sender, channel},
};
use io_uring::{opcode, squeue, types};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

/// The kernel's limit on scatter list entries (UIO_MAXIOV).
const SCATTER_MAX: usize = 1024;

/// RWF_DSYNC of linux/fs.h: this write is stable when it completes.
const RWF_DSYNC: i32 = 0x2;

/// Retries of one operation before it fails.
const RETRIES_MAX: u32 = 1000;

/// The memory of a transfer, kept alive here and returned with its completion.
pub(in crate::real) enum Memory {
    Fill(Vec<Buffer>),
    Send(Vec<Arc<Buffer>>, Stability),
    /// No transfer: fdatasync.
    Nothing,
}

/// The result of a transfer, with its memory.
pub(in crate::real) type OpResult = (Memory, io::Result<()>);

/// The result of a receive: the memory, and how many bytes at its beginning were received, 0 at the end of the
/// stream.
pub(in crate::real) type ReceiveResult = (Box<[u8]>, io::Result<usize>);

/// An operation, from its request to its completion.
pub(super) struct Op {
    file: Arc<OwnedFd>,
    work: Work,
    retries: u32,
}

enum Work {
    Transfer(Transfer, Sender<OpResult>),
    /// Waits for events of poll(2).
    Readiness(u32, Sender<io::Result<()>>),
    Receive(Box<[u8]>, Sender<ReceiveResult>),
}

struct Transfer {
    /// Offset in the file where the rest of the transfer begins, in bytes.
    offset: u64,
    memory: Memory,
    /// The rest of the transfer; `first` is the index of its first entry.
    scatter: Vec<ScatterEntry>,
    first: usize,
}

/// Layout of the kernel's `struct iovec`.
#[repr(C)]
struct ScatterEntry {
    base: *mut u8,
    length: usize,
}

/// State of an operation after a completion.
pub(super) enum Progress {
    /// It has to be submitted again.
    More,
    /// Bytes of the last completion, or the error.
    Done(io::Result<usize>),
}

/// A result on its way to the task that waits for it.
pub(super) enum Delivery {
    Transfer(Sender<OpResult>, OpResult),
    Readiness(Sender<io::Result<()>>, io::Result<()>),
    Receive(Sender<ReceiveResult>, ReceiveResult),
}

impl Delivery {
    pub fn send(self) {
        match self {
            Self::Transfer(sender, result) => sender.send(result),
            Self::Readiness(sender, result) => sender.send(result),
            Self::Receive(sender, result) => sender.send(result),
        }
    }
}

impl Op {
    pub fn transfer(file: &Arc<OwnedFd>, offset: u64, mut memory: Memory) -> (Self, Receiver<OpResult>) {
        let scatter = scatter_list(&mut memory);
        let transfer = Transfer { offset, memory, scatter, first: 0 };
        let (sender, receiver) = channel();
        (Self::new(file, Work::Transfer(transfer, sender)), receiver)
    }

    pub fn readiness(file: &Arc<OwnedFd>, events: u32) -> (Self, Receiver<io::Result<()>>) {
        let (sender, receiver) = channel();
        (Self::new(file, Work::Readiness(events, sender)), receiver)
    }

    pub fn receive(socket: &Arc<OwnedFd>, memory: Box<[u8]>) -> (Self, Receiver<ReceiveResult>) {
        let (sender, receiver) = channel();
        (Self::new(socket, Work::Receive(memory, sender)), receiver)
    }

    fn new(file: &Arc<OwnedFd>, work: Work) -> Self {
        Self { file: Arc::clone(file), work, retries: 0 }
    }

    /// True for a transfer, which ends within the time of a drive.
    pub fn is_transfer(&self) -> bool {
        matches!(self.work, Work::Transfer(..))
    }

    /// Bytes still to transfer.
    pub fn transfer_bytes(&self) -> usize {
        match &self.work {
            Work::Transfer(transfer, _) => transfer.rest().iter().map(|entry| entry.length).sum(),
            Work::Readiness(..) | Work::Receive(..) => 0,
        }
    }

    /// The submission entry for the rest of this operation.
    pub fn entry(&mut self) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        match &mut self.work {
            Work::Transfer(transfer, _) => transfer.entry(file),
            Work::Readiness(events, _) => opcode::PollAdd::new(file, *events).build(),
            Work::Receive(memory, _) => {
                let length = u32::try_from(memory.len()).expect("a small buffer");
                opcode::Recv::new(file, memory.as_mut_ptr(), length).build()
            }
        }
    }

    /// Applies a completion's result.
    pub fn advance(&mut self, result: i32) -> Progress {
        let Ok(count) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            self.retries += 1;
            if is_passing(&error) && self.retries <= RETRIES_MAX {
                return Progress::More;
            }
            return Progress::Done(Err(error));
        };
        match &mut self.work {
            Work::Transfer(transfer, _) => transfer.advance(count),
            Work::Readiness(..) | Work::Receive(..) => Progress::Done(Ok(count)),
        }
    }

    /// Ends the operation with its result.
    pub fn finish(self, result: io::Result<usize>) -> Delivery {
        match self.work {
            Work::Transfer(transfer, sender) => {
                Delivery::Transfer(sender, (transfer.memory, result.map(|_| ())))
            }
            Work::Readiness(_, sender) => Delivery::Readiness(sender, result.map(|_| ())),
            Work::Receive(memory, sender) => Delivery::Receive(sender, (memory, result)),
        }
    }
}

impl Transfer {
    fn rest(&self) -> &[ScatterEntry] {
        &self.scatter[self.first..]
    }

    fn entry(&self, file: types::Fd) -> squeue::Entry {
        let rest = self.rest();
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

    /// Takes `count` more bytes as transferred.
    fn advance(&mut self, count: usize) -> Progress {
        match self.memory {
            Memory::Nothing => return Progress::Done(Ok(0)),
            Memory::Fill(_) if count == 0 => {
                return Progress::Done(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Memory::Send(..) if count == 0 => return Progress::Done(Err(io::ErrorKind::WriteZero.into())),
            Memory::Fill(_) | Memory::Send(..) => {}
        }
        self.offset += count as u64;
        let mut left = count;
        while left > 0 {
            let entry = &mut self.scatter[self.first];
            let taken = left.min(entry.length);
            entry.base = entry.base.wrapping_add(taken);
            entry.length -= taken;
            left -= taken;
            if entry.length == 0 {
                self.first += 1;
            }
        }
        if self.first == self.scatter.len() { Progress::Done(Ok(count)) } else { Progress::More }
    }
}

/// True for errors after which the same call may succeed: interrupted, or short of kernel memory.
pub(super) fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::INTR, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

fn write_flags(stability: Stability) -> i32 {
    match stability {
        Stability::Volatile => 0,
        Stability::Stable => RWF_DSYNC,
    }
}

fn scatter_list(memory: &mut Memory) -> Vec<ScatterEntry> {
    match memory {
        Memory::Fill(buffers) => joined(
            buffers.iter_mut().map(|buffer| ScatterEntry { length: buffer.len(), base: buffer.as_mut_ptr() }),
        ),
        // The kernel only reads from these; reads and writes share the entry's type.
        Memory::Send(buffers, _) => joined(
            buffers
                .iter()
                .map(|buffer| ScatterEntry { length: buffer.len(), base: buffer.as_ptr().cast_mut() }),
        ),
        Memory::Nothing => Vec::new(),
    }
}

/// Joins entries whose memory is adjacent: blocks of one command often are parts of one buffer.
fn joined(entries: impl ExactSizeIterator<Item = ScatterEntry>) -> Vec<ScatterEntry> {
    let mut list: Vec<ScatterEntry> = Vec::with_capacity(entries.len());
    for entry in entries {
        match list.last_mut() {
            Some(last) if last.base.wrapping_add(last.length) == entry.base => last.length += entry.length,
            _ => list.push(entry),
        }
    }
    list
}
