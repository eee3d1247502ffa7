//! The table of a ring: every operation that is not completed, and the queues shared with the kernel.

use super::op::{Delivery, Op, Progress, is_passing};
use io_uring::{IoUring, opcode, types};
use std::{collections::VecDeque, io, time::Duration};

/// Transfers in the kernel at most; more wait in the backlog.
pub(super) const DEPTH: usize = 512;

/// The backlog is submitted early when its transfers exceed those in the kernel divided by this. Smaller batches
/// cost processor time (a virtual drive leaves the machine at each); with a fixed batch of 8 a drive at depth
/// 8 ran dry while the next 8 were prepared, and reached half the rate.
const BACKLOG_SHARE: usize = 2;

/// Transfers that a thread with connections submits early at least, unless the drives have nothing to do: Linux
/// collects the requests of three and more entries, and rings a drive's doorbell for each of fewer. Without
/// connections page reads at depth 8 lose a tenth by it.
pub(super) const EARLY_MIN: usize = 3;

/// `user_data` of a cancellation, whose completion says nothing that matters.
const CANCELLATION: u64 = u64::MAX;

/// See the invariants of [`super::Ring`].
pub(super) struct Table {
    uring: IoUring,
    ops: Vec<Option<Op>>,
    vacant: Vec<usize>,
    /// Slots to submit.
    backlog: VecDeque<usize>,
    /// Transfers in the backlog.
    backlog_transfers: usize,
    /// Slots of waits to cancel.
    cancellations: VecDeque<usize>,
    /// Transfers in the kernel.
    transfers: usize,
    /// Waits in the kernel.
    waits: usize,
}

impl Table {
    pub fn new(uring: IoUring) -> Self {
        Self {
            uring,
            ops: Vec::new(),
            vacant: Vec::new(),
            backlog: VecDeque::new(),
            backlog_transfers: 0,
            cancellations: VecDeque::new(),
            transfers: 0,
            waits: 0,
        }
    }

    /// Adds an operation to the backlog and returns its slot.
    pub fn add(&mut self, op: Op) -> usize {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.ops.push(None);
            self.ops.len() - 1
        });
        self.backlog_transfers += usize::from(op.is_transfer());
        assert!(self.ops[slot].replace(op).is_none(), "a vacant slot was occupied");
        self.backlog.push_back(slot);
        slot
    }

    /// Ends the wait in `slot`, which nobody awaits any more.
    pub fn cancel(&mut self, slot: usize) {
        let op = self.ops[slot].as_ref().expect("only a wait under way is cancelled");
        assert!(!op.is_transfer(), "a transfer ends by itself");
        if let Some(position) = self.backlog.iter().position(|&other| other == slot) {
            self.backlog.remove(position);
            self.ops[slot] = None;
            self.vacant.push(slot);
        } else {
            self.cancellations.push_back(slot);
        }
    }

    /// Cancels all waits.
    pub fn cancel_waits(&mut self) {
        let is_wait = |slot: &usize| self.ops[*slot].as_ref().is_some_and(|op| !op.is_transfer());
        let waits: Vec<usize> = (0..self.ops.len()).filter(is_wait).collect();
        waits.into_iter().for_each(|slot| self.cancel(slot));
    }

    pub fn is_empty(&self) -> bool {
        self.ops.len() == self.vacant.len()
    }

    /// Transfers in the kernel and in the backlog.
    pub fn transfers(&self) -> usize {
        self.transfers + self.backlog_transfers
    }

    /// True if the drives would soon have nothing to do without the backlog, and it has `least` transfers or they
    /// have none.
    pub fn is_backlog_due(&self, least: usize) -> bool {
        let least = if self.transfers == 0 { 1 } else { least };
        self.backlog_transfers >= least && self.backlog_transfers * BACKLOG_SHARE > self.transfers
    }

    /// True if an exchange with the kernel would submit or complete anything.
    pub fn has_exchange(&mut self) -> bool {
        !self.backlog.is_empty() || !self.cancellations.is_empty() || self.has_completions()
    }

    fn has_completions(&mut self) -> bool {
        self.is_call_wanted() || !self.uring.completion().is_empty()
    }

    /// True if the kernel needs a system call to hand over completions.
    fn is_call_wanted(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// One exchange with the kernel: submits the backlog and takes completions. If nothing is to be taken it
    /// blocks for a completion, for `patience` at most; `None` is no limit.
    pub fn exchange(&mut self, patience: Option<Duration>) -> (Vec<Delivery>, io::Result<()>) {
        let outcome = self.enter(patience);
        (self.reap(), outcome)
    }

    fn enter(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.fill_submission_queue();
        // Entries that did not fit are submitted by the next exchange.
        let is_cut_short = !self.cancellations.is_empty() || self.backlog_may_go();
        let blocks = patience != Some(Duration::ZERO) && !is_cut_short && self.uring.completion().is_empty();
        if !blocks && self.uring.submission().is_empty() && !self.is_call_wanted() {
            return Ok(());
        }
        let submitted = match patience {
            Some(patience) if blocks => {
                let patience = types::Timespec::from(patience);
                let limit = types::SubmitArgs::new().timespec(&patience);
                self.uring.submitter().submit_with_args(1, &limit)
            }
            _ => self.uring.submit_and_wait(usize::from(blocks)),
        };
        match submitted {
            Ok(_) => Ok(()),
            // The entries stay in the queue.
            Err(error) if is_passing(&error) || is_timeout(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Submits the backlog.
    ///
    /// # Errors
    ///
    /// The ring is broken.
    pub fn submit(&mut self) -> io::Result<()> {
        self.fill_submission_queue();
        match self.uring.submit() {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn backlog_may_go(&self) -> bool {
        let Some(&slot) = self.backlog.front() else { return false };
        let op = self.ops[slot].as_ref().expect("the backlog names occupied slots");
        !op.is_transfer() || self.transfers < DEPTH
    }

    fn fill_submission_queue(&mut self) {
        while self.backlog_may_go() && !self.uring.submission().is_full() {
            let slot = self.backlog.pop_front().expect("looked at");
            let op = self.ops[slot].as_mut().expect("the backlog names occupied slots");
            if op.is_transfer() {
                self.backlog_transfers -= 1;
                self.transfers += 1;
            } else {
                self.waits += 1;
            }
            let entry = op.entry().user_data(slot as u64);
            // SAFETY: everything the entry points to (scatter list and the memory behind it, the
            // descriptor) is owned by the operation, which stays in the table, its heap memory
            // unmoved, until the completion with this slot number has been reaped.
            #[allow(unsafe_code)]
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.expect("the queue was just seen to have room");
        }
        while !self.uring.submission().is_full() {
            let Some(slot) = self.cancellations.pop_front() else { break };
            let entry = opcode::AsyncCancel::new(slot as u64).build().user_data(CANCELLATION);
            // SAFETY: the entry points to nothing.
            #[allow(unsafe_code)]
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.expect("the queue was just seen to have room");
        }
    }

    fn reap(&mut self) -> Vec<Delivery> {
        let Self { uring, ops, vacant, backlog, backlog_transfers, cancellations, transfers, waits } = self;
        let mut deliveries = Vec::new();
        for completion in uring.completion() {
            if completion.user_data() == CANCELLATION {
                continue;
            }
            let slot = usize::try_from(completion.user_data()).expect("we gave a slot number");
            let op = ops[slot].as_mut().expect("completions name occupied slots");
            let count = if op.is_transfer() { &mut *transfers } else { &mut *waits };
            *count = count.checked_sub(1).expect("a completion has an operation");
            match op.advance(completion.result()) {
                // The rest goes first, so that younger operations do not overtake the transfer.
                Progress::More => {
                    *backlog_transfers += usize::from(op.is_transfer());
                    backlog.push_front(slot);
                }
                Progress::Done(result) => {
                    let op = ops[slot].take().expect("just advanced");
                    vacant.push(slot);
                    // Its cancellation would meet the next operation in this slot.
                    cancellations.retain(|&other| other != slot);
                    deliveries.push(op.finish(result));
                }
            }
        }
        assert_eq!(
            ops.len() - vacant.len(),
            backlog.len() + *transfers + *waits,
            "each operation is in one place, once"
        );
        assert!(*backlog_transfers <= backlog.len(), "transfers are counted once");
        deliveries
    }
}

fn is_timeout(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::TIME.raw_os_error())
}
