//! Frames of a channel that have arrived. Invariants:
//!
//! 1. Ordered frames are delivered in the order of their sequences, each once.
//! 2. Frames that wait (for one before them, or for the owner) are charged at most [`WINDOW_BYTES`].
//! 3. Of each unordered kind one frame waits at most, the one that says most: over several connections an older one may
//!    come later.

use super::{
    FRAME_CHARGE_MIN, LinkFault, WINDOW_BYTES,
    canary::{self, LinkCanary},
};
use crate::frame::{FrameBody, ReceiptFrame};
use std::collections::{BTreeMap, VecDeque};

/// A receipt is due at once after so many bytes.
const RECEIPT_BYTES: u64 = WINDOW_BYTES / 4;

/// The moment for a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiptTime {
    Now,
    Soon,
}

pub(super) struct ReceiveQueue {
    /// All frames below have arrived.
    sequence_next: u64,
    /// Charge of all frames that have arrived.
    charged: u64,
    /// Charge of those that the owner took.
    consumed: u64,
    /// Frames that wait for one before them, with their charge.
    early: BTreeMap<u64, (u64, FrameBody)>,
    ready: VecDeque<(u64, FrameBody)>,
    unordered: Vec<FrameBody>,
    /// Frames and bytes of the last receipt: what had arrived, and what was consumed.
    receipt: (u64, u64),
}

impl ReceiveQueue {
    pub fn new() -> Self {
        Self {
            sequence_next: 1,
            charged: 0,
            consumed: 0,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            unordered: Vec::new(),
            receipt: (0, 0),
        }
    }

    /// Takes an ordered frame in.
    pub fn receive(&mut self, sequence: u64, charge: u64, body: FrameBody) -> Result<ReceiptTime, LinkFault> {
        let is_known = sequence < self.sequence_next || self.early.contains_key(&sequence);
        if is_known && !canary::is(LinkCanary::DeliveredTwice) {
            return Ok(ReceiptTime::Soon);
        }
        let is_within = self.charged + charge <= self.consumed + WINDOW_BYTES
            && sequence.saturating_sub(self.sequence_next) <= WINDOW_BYTES / FRAME_CHARGE_MIN;
        if !is_within {
            return Err(LinkFault::Window);
        }
        self.charged += charge;
        if is_known || (canary::is(LinkCanary::OutOfOrder) && sequence > self.sequence_next) {
            self.ready.push_back((charge, body));
            return Ok(ReceiptTime::Soon);
        }
        self.early.insert(sequence, (charge, body));
        while let Some(next) = self.early.remove(&self.sequence_next) {
            self.ready.push_back(next);
            self.sequence_next += 1;
        }
        Ok(self.receipt_time())
    }

    /// Takes an unordered frame in: it replaces one of its kind that waits, unless that is newer.
    pub fn receive_unordered(&mut self, body: FrameBody) {
        if self.unordered.iter().any(|waiting| is_newer(waiting, &body)) {
            return;
        }
        self.unordered.retain(|waiting| waiting.kind() != body.kind());
        self.unordered.push(body);
    }

    /// The next frame for the owner. Unordered frames come first: they are news about the channel.
    pub fn take(&mut self) -> Option<(FrameBody, ReceiptTime)> {
        if !self.unordered.is_empty() {
            return Some((self.unordered.remove(0), ReceiptTime::Soon));
        }
        let body = self.take_ordered()?;
        Some((body, self.receipt_time()))
    }

    pub fn take_ordered(&mut self) -> Option<FrameBody> {
        let (charge, body) = self.ready.pop_front()?;
        self.consumed += charge;
        Some(body)
    }

    pub fn has_frames(&self) -> bool {
        !self.ready.is_empty() || !self.unordered.is_empty()
    }

    /// The receipt to be sent now.
    pub fn receipt(&mut self) -> ReceiptFrame {
        self.receipt = (self.charged, self.consumed);
        ReceiptFrame { received: self.sequence_next - 1, window_end: self.consumed + WINDOW_BYTES }
    }

    /// Bytes charged for frames that wait.
    pub fn kept_bytes(&self) -> u64 {
        self.charged - self.consumed
    }

    fn receipt_time(&self) -> ReceiptTime {
        let (charged, consumed) = self.receipt;
        let is_due = self.charged - charged >= RECEIPT_BYTES || self.consumed - consumed >= RECEIPT_BYTES;
        if is_due { ReceiptTime::Now } else { ReceiptTime::Soon }
    }
}

/// True if a frame was sent after another one of its kind. The last confirmation before a pause is not repeated, so it must
/// not give way to one that was overtaken.
fn is_newer(waiting: &FrameBody, other: &FrameBody) -> bool {
    match (waiting, other) {
        (FrameBody::Confirmation(waiting), FrameBody::Confirmation(other)) => {
            let (first, second) = (&waiting.confirmed, &other.confirmed);
            let has_all = first.parts() == second.parts() && second.is_within(first);
            has_all && (first != second || waiting.heard > other.heard)
        }
        (FrameBody::Word(waiting), FrameBody::Word(other)) => waiting.number > other.number,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cut::GroupCut, frame::ConfirmationFrame};
    use array::format::Stamp;

    fn confirmation(stamp: u64) -> FrameBody {
        let confirmed = GroupCut::new(vec![Stamp(stamp)]);
        FrameBody::Confirmation(ConfirmationFrame { confirmed, shown: 0, window_end: 0, heard: 0 })
    }

    #[test]
    fn a_confirmation_that_was_overtaken_does_not_replace_the_one_that_waits() {
        let mut queue = ReceiveQueue::new();
        for stamp in [3, 7, 5] {
            queue.receive_unordered(confirmation(stamp));
        }
        let taken = queue.take().map(|(body, _)| body);
        let Some(FrameBody::Confirmation(taken)) = taken else {
            panic!("a confirmation waits, not {taken:?}")
        };
        assert_eq!((taken.confirmed.stamps(), queue.has_frames()), (&[Stamp(7)][..], false));
    }
}
