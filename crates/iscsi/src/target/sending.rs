//! What is sent, in its order, with the numbers it carries.
//!
//! Invariants:
//!
//! 1. Answers that carry a status are numbered without gaps, in the order in which they are sent.
//! 2. What waits to be sent is bounded: [`Sending::until_room`].
//! 3. The highest command number that may come never falls, and no more commands are under way than it allows.

use crate::wire::{
    frame::Digests,
    parcel::{Parcel, write_parcels},
    pdu::{ANSWER_NUMBERS_AT, AnswerNumbers, Header},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    sync::Arc,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Notify,
};
use world::{Buffer, pieces::Payload};
use zerocopy::IntoBytes;

/// Commands under way at once at most.
pub const WINDOW: u32 = 128;
/// Bytes that wait to be sent before no more commands are taken.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Parcels that go out in one call at most.
const PARCELS_AT_ONCE: usize = 64;

/// See the module's documentation.
pub struct Sending {
    digests: Cell<Digests>,
    status_next: Cell<u32>,
    expected_command: Cell<u32>,
    under_way: Cell<u32>,
    parcels: RefCell<VecDeque<Parcel>>,
    is_closed: Cell<bool>,
    changed: Notify,
    queued_bytes: Cell<usize>,
    drained: Notify,
}

/// Which number of status an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusNumber {
    /// The next: it is an answer.
    Counts,
    /// The next, which the answer behind it has, too: it is none.
    Shows,
    /// None.
    Absent,
}

impl Sending {
    /// What begins with that number of status, and expects that command.
    pub fn new(status_next: u32, expected_command: u32) -> Self {
        Self {
            digests: Cell::default(),
            status_next: Cell::new(status_next),
            expected_command: Cell::new(expected_command),
            under_way: Cell::new(0),
            parcels: RefCell::default(),
            is_closed: Cell::new(false),
            changed: Notify::new(),
            queued_bytes: Cell::new(0),
            drained: Notify::new(),
        }
    }

    /// From now on with those digests.
    pub fn set_digests(&self, digests: Digests) {
        self.digests.set(digests);
    }

    /// The command that is to come next.
    pub fn expected_command(&self) -> u32 {
        self.expected_command.get()
    }

    /// It has come, and is under way until [`Sending::command_done`].
    pub fn command_came(&self) {
        self.expected_command.set(self.expected_command.get().wrapping_add(1));
        self.under_way.set(self.under_way.get() + 1);
    }

    /// One that came is done.
    pub fn command_done(&self) {
        self.under_way.set(self.under_way.get().checked_sub(1).expect("it came"));
    }

    /// Whether a command of that number may come now.
    pub fn may_come(&self, command: u32) -> bool {
        let ahead = command.wrapping_sub(self.expected_command.get());
        ahead < WINDOW.saturating_sub(self.under_way.get())
    }

    /// Sends a header with a few data.
    pub fn send<H: Header>(&self, header: &H, number: StatusNumber, data: &[u8]) {
        let payload = match data {
            [] => Payload::new(),
            data => vec![(Arc::new(Buffer::copy_of(data)), 0..data.len())],
        };
        self.send_payload(header, number, payload);
    }

    /// Sends a header with data.
    pub fn send_payload<H: Header>(&self, header: &H, number: StatusNumber, payload: Payload) {
        let status = match number {
            StatusNumber::Counts => self.status_next.replace(self.status_next.get().wrapping_add(1)),
            StatusNumber::Shows => self.status_next.get(),
            StatusNumber::Absent => 0,
        };
        let expected = self.expected_command.get();
        let room = WINDOW.saturating_sub(self.under_way.get());
        let numbers = AnswerNumbers {
            status: status.into(),
            expected_command: expected.into(),
            command_max: expected.wrapping_add(room).wrapping_sub(1).into(),
        };
        let mut bytes = header.to_bytes();
        bytes[ANSWER_NUMBERS_AT..][..size_of::<AnswerNumbers>()].copy_from_slice(numbers.as_bytes());
        let parcel = Parcel::new(bytes, payload, self.digests.get());
        self.queued_bytes.set(self.queued_bytes.get() + parcel.bytes());
        self.parcels.borrow_mut().push_back(parcel);
        self.changed.notify_one();
    }

    /// No more will be sent.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
    }

    /// Waits until not too much waits to be sent.
    pub async fn until_room(&self) {
        while self.queued_bytes.get() > QUEUED_BYTES_MAX {
            self.drained.notified().await;
        }
    }

    /// Writes what was sent so far.
    pub async fn write_now(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            let parcels: Vec<Parcel> = {
                let mut waiting = self.parcels.borrow_mut();
                let count = waiting.len().min(PARCELS_AT_ONCE);
                waiting.drain(..count).collect()
            };
            if parcels.is_empty() {
                return Ok(());
            }
            write_parcels(writer, &parcels).await?;
            let bytes: usize = parcels.iter().map(Parcel::bytes).sum();
            self.queued_bytes.set(self.queued_bytes.get() - bytes);
            self.drained.notify_one();
        }
    }

    /// Writes what is sent, until it is closed.
    pub async fn write_all(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            if self.parcels.borrow().is_empty() {
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
