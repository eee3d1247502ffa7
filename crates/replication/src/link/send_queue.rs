//! Ordered frames of a channel on their way out. Invariants:
//!
//! 1. A frame is unsent, in flight on one connection, or known to have arrived.
//! 2. The frames kept are those above the last sequence known to have arrived, without a gap.
//! 3. Their charge, and so the memory, is at most [`WINDOW_BYTES`]: nothing is taken in beyond the window's end.

use super::{
    ConnectionNumber, LinkFault, WINDOW_BYTES,
    canary::{self, LinkCanary},
    charge,
};
use crate::frame::{EncodedFrame, Frame, FrameBody, ReceiptFrame};
use std::{collections::BTreeMap, rc::Rc};

pub(super) struct SendQueue {
    channel: u32,
    sequence_next: u64,
    /// The last sequence known to have arrived.
    arrived: u64,
    /// Charge of all frames taken in since the channel was attached.
    charged: u64,
    /// Charge of those known to have arrived.
    arrived_charged: u64,
    window_end: u64,
    unsent: BTreeMap<u64, Rc<EncodedFrame>>,
    in_flight: BTreeMap<u64, (ConnectionNumber, Rc<EncodedFrame>)>,
}

impl SendQueue {
    pub fn new(channel: u32) -> Self {
        Self {
            channel,
            sequence_next: 1,
            arrived: 0,
            charged: 0,
            arrived_charged: 0,
            window_end: WINDOW_BYTES,
            unsent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
        }
    }

    /// Encodes a frame of an ordered kind for the sequence that comes next.
    pub fn encode(&self, body: FrameBody) -> EncodedFrame {
        Frame { channel: self.channel, sequence: self.sequence_next, body }.encode()
    }

    /// True if the window takes another `bytes`, as encoded.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.charged + charge(bytes) <= self.window_end || canary::is(LinkCanary::WindowIgnored)
    }

    /// Takes in the frame of the next sequence; there is room for it.
    pub fn push(&mut self, encoded: EncodedFrame) {
        assert!(self.has_room(encoded.bytes()), "a sender waits for the window");
        self.charged += charge(encoded.bytes());
        self.unsent.insert(self.sequence_next, Rc::new(encoded));
        self.sequence_next += 1;
    }

    /// Charge of the first unsent frame.
    pub fn unsent_charge(&self) -> Option<u64> {
        self.unsent.first_key_value().map(|(_, frame)| charge(frame.bytes()))
    }

    /// The first unsent frame, which is in flight on `connection` from now on.
    pub fn take(&mut self, connection: ConnectionNumber) -> Option<Rc<EncodedFrame>> {
        let (sequence, frame) = self.unsent.pop_first()?;
        self.in_flight.insert(sequence, (connection, Rc::clone(&frame)));
        Some(frame)
    }

    /// The other side's progress. True if the window has grown.
    pub fn receipt(&mut self, receipt: &ReceiptFrame) -> Result<bool, LinkFault> {
        if receipt.received >= self.sequence_next {
            return Err(LinkFault::Receipt);
        }
        let is_arrived = |sequence: u64| sequence <= receipt.received;
        while let Some(first) = self.in_flight.first_entry().filter(|entry| is_arrived(*entry.key())) {
            self.arrived_charged += charge(first.remove().1.bytes());
        }
        // Sent again after a loss, although the first one had arrived.
        while let Some(first) = self.unsent.first_entry().filter(|entry| is_arrived(*entry.key())) {
            self.arrived_charged += charge(first.remove().bytes());
        }
        self.arrived = self.arrived.max(receipt.received);
        if receipt.window_end > self.arrived_charged + WINDOW_BYTES {
            return Err(LinkFault::Receipt);
        }
        let has_grown = receipt.window_end > self.window_end;
        self.window_end = self.window_end.max(receipt.window_end);
        self.check();
        Ok(has_grown)
    }

    /// Sends again what `connection` had taken and is not known to have arrived.
    pub fn connection_lost(&mut self, connection: ConnectionNumber) {
        let lost = self.in_flight.extract_if(.., |_, (taken_by, _)| *taken_by == connection);
        let lost: Vec<_> = lost.map(|(sequence, (_, frame))| (sequence, frame)).collect();
        if !canary::is(LinkCanary::NotSentAgain) {
            self.unsent.extend(lost);
            self.check();
        }
    }

    /// Bytes charged for frames that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.charged - self.arrived_charged
    }

    fn check(&self) {
        let kept = (self.unsent.len() + self.in_flight.len()) as u64;
        let is_whole = kept == self.sequence_next - 1 - self.arrived;
        assert!(is_whole || canary::is(LinkCanary::NotSentAgain), "no frame is forgotten");
    }
}
