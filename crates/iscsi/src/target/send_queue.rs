//! The queue of outgoing PDUs and their sequence numbers.
//!
//! Invariants:
//!
//! 1. StatSN advances by one with each status, in the order of sending.
//! 2. The queue is bounded by [`SendQueue::until_room`].
//! 3. MaxCmdSN never falls, and no more commands are outstanding than it allows.

use crate::wire::{
    encoded_pdu::{EncodedPdu, write_pdus},
    header::{PduHeader, SEQUENCE_NUMBERS_OFFSET, SequenceNumbers},
    pdu::Digests,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    rc::Rc,
    sync::Arc,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Notify,
};
use world::{Buffer, Moment, SampledLatencies, payload::Payload};
use zerocopy::IntoBytes;

/// Most commands outstanding on a connection.
pub const WINDOW: u32 = 128;
/// Queued bytes beyond which no more commands are accepted.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// PDUs written in one system call at most.
const PDUS_AT_ONCE: usize = 64;

pub struct SendQueue {
    digests: Cell<Digests>,
    stat_sn: Cell<u32>,
    exp_cmd_sn: Cell<u32>,
    under_way: Cell<u32>,
    /// With the time of the unit's answer, if that is timed.
    pdus: RefCell<VecDeque<(EncodedPdu, Option<Moment>)>>,
    /// Times responses.
    timer: RefCell<Option<Rc<SampledLatencies>>>,
    is_closed: Cell<bool>,
    changed: Notify,
    queued_bytes: Cell<usize>,
    drained: Notify,
}

/// Use of StatSN by an outgoing PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatSn {
    /// Carries the next StatSN and advances it: a response.
    Advance,
    /// Carries the next StatSN without advancing it: R2T, unsolicited NOP-In.
    Peek,
    /// The PDU has no StatSN: Data-In without status.
    None,
}

impl SendQueue {
    pub fn new(stat_sn: u32, exp_cmd_sn: u32) -> Self {
        Self {
            digests: Cell::default(),
            stat_sn: Cell::new(stat_sn),
            exp_cmd_sn: Cell::new(exp_cmd_sn),
            under_way: Cell::new(0),
            pdus: RefCell::default(),
            timer: RefCell::default(),
            is_closed: Cell::new(false),
            changed: Notify::new(),
            queued_bytes: Cell::new(0),
            drained: Notify::new(),
        }
    }

    /// Sets the digests of PDUs queued from now on.
    pub fn set_digests(&self, digests: Digests) {
        self.digests.set(digests);
    }

    /// Times responses from now on.
    pub fn set_timer(&self, timer: Option<Rc<SampledLatencies>>) {
        self.timer.replace(timer);
    }

    pub fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn.get()
    }

    /// Counts a command as outstanding until [`SendQueue::command_done`], and advances ExpCmdSN.
    pub fn command_came(&self) {
        self.exp_cmd_sn.set(self.exp_cmd_sn.get().wrapping_add(1));
        self.under_way.set(self.under_way.get() + 1);
    }

    pub fn command_done(&self) {
        self.under_way.set(self.under_way.get().checked_sub(1).expect("it came"));
    }

    /// True if a command with this CmdSN is within the window.
    pub fn is_in_window(&self, command: u32) -> bool {
        let ahead = command.wrapping_sub(self.exp_cmd_sn.get());
        ahead < WINDOW.saturating_sub(self.under_way.get())
    }

    /// Queues a PDU with a short data segment, which is copied.
    pub fn send<H: PduHeader>(&self, header: &H, number: StatSn, data: &[u8]) {
        let payload = match data {
            [] => Payload::new(),
            data => vec![(Arc::new(Buffer::copy_of(data)), 0..data.len())],
        };
        self.send_payload(header, number, payload);
    }

    /// Queues a PDU whose data segment stays in its buffers.
    pub fn send_payload<H: PduHeader>(&self, header: &H, number: StatSn, payload: Payload) {
        let status = match number {
            StatSn::Advance => self.stat_sn.replace(self.stat_sn.get().wrapping_add(1)),
            StatSn::Peek => self.stat_sn.get(),
            StatSn::None => 0,
        };
        let expected = self.exp_cmd_sn.get();
        let room = WINDOW.saturating_sub(self.under_way.get());
        let numbers = SequenceNumbers {
            stat_sn: status.into(),
            exp_cmd_sn: expected.into(),
            max_cmd_sn: expected.wrapping_add(room).wrapping_sub(1).into(),
        };
        let mut bytes = header.to_bytes();
        bytes[SEQUENCE_NUMBERS_OFFSET..][..size_of::<SequenceNumbers>()].copy_from_slice(numbers.as_bytes());
        let pdu = EncodedPdu::new(bytes, payload, self.digests.get());
        self.queued_bytes.set(self.queued_bytes.get() + pdu.bytes());
        let timed = match number {
            StatSn::Advance => self.timer.borrow().as_ref().and_then(|timer| timer.begin()),
            StatSn::Peek | StatSn::None => None,
        };
        self.pdus.borrow_mut().push_back((pdu, timed));
        self.changed.notify_one();
    }

    /// Ends [`SendQueue::write_all`] once the queue is empty.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
    }

    /// Waits until the queue is below its limit.
    pub async fn until_room(&self) {
        while self.queued_bytes.get() > QUEUED_BYTES_MAX {
            self.drained.notified().await;
        }
    }

    /// Writes all that is queued.
    pub async fn write_now(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            let (pdus, timed): (Vec<EncodedPdu>, Vec<Option<Moment>>) = {
                let mut waiting = self.pdus.borrow_mut();
                let count = waiting.len().min(PDUS_AT_ONCE);
                waiting.drain(..count).unzip()
            };
            if pdus.is_empty() {
                return Ok(());
            }
            write_pdus(writer, &pdus).await?;
            if let Some(timer) = &*self.timer.borrow() {
                timed.into_iter().flatten().for_each(|timed| timer.end(timed));
            }
            let bytes: usize = pdus.iter().map(EncodedPdu::bytes).sum();
            self.queued_bytes.set(self.queued_bytes.get() - bytes);
            self.drained.notify_one();
        }
    }

    /// Writes until the queue is closed and empty, then shuts the stream down.
    pub async fn write_all(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            if self.pdus.borrow().is_empty() {
                if self.is_closed.get() {
                    return writer.shutdown().await;
                }
                self.changed.notified().await;
                continue;
            }
            self.write_now(writer).await?;
        }
    }
}
