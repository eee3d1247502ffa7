//! The channels of a session: what is sent next, and where a frame that arrives belongs. Invariants:
//!
//! 1. Channels have the numbers from 1 on, without a gap; one that has ended never comes back.
//! 2. Small frames about a channel (receipts, words, confirmations, refusals) go before all ordered frames.
//! 3. Among channels that have ordered frames to send, the one that has sent the least is next: it has waited for no
//!    more than one frame of each of the others.
//! 4. Of the small frames the newest of each kind is kept until the channel ends, and sent again when a connection was
//!    lost: the lost one may have carried it.

use super::{
    ConnectionNumber, LinkFault,
    canary::{self, LinkCanary},
    charge,
    receive_queue::{ReceiptTime, ReceiveQueue},
    refusal,
    send_queue::SendQueue,
};
use crate::frame::{
    AttachFrame, EncodedFrame, Frame, FrameBody, FrameKind, HEADER_BYTES, RefusalCode, RefusalFrame,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

/// A small frame that is sent as soon as a connection is free.
struct SmallFrame {
    body: FrameBody,
    is_due: bool,
}

/// The state of a channel that has not ended at both sides.
struct Channel {
    send: SendQueue,
    receive: ReceiveQueue,
    /// None until it has arrived.
    attach: Option<AttachFrame>,
    is_receipt_due: bool,
    /// In the order in which they were first sent; one of each kind.
    small: Vec<SmallFrame>,
    /// It is among those with small frames to send.
    is_queued: bool,
    /// The charge of all that it has sent, or would have if it had always had something.
    virtual_time: u64,
    /// The other side has ended it.
    refused: Option<RefusalFrame>,
    /// This side has ended it: it stays until the other side has answered.
    is_closing: bool,
}

/// Consequences of a frame that arrived, beside those for its channel's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiveEffects {
    /// The owner of the channel may have something to take, or the channel has ended.
    pub is_readable: bool,
    /// The window of the channel has grown.
    pub is_writable: bool,
    /// There is something to send now, or soon.
    pub sends: Option<ReceiptTime>,
}

pub(super) struct ChannelTable {
    channels: BTreeMap<u32, Channel>,
    channels_max: u32,
    /// This side attaches.
    is_dialer: bool,
    number_next: u32,
    /// Channels that were attached by the other side, and that the owner has not taken.
    attached: VecDeque<(u32, AttachFrame)>,
    /// Channels with small frames to send, in turn.
    small_due: VecDeque<u32>,
    /// Channels with ordered frames to send, by virtual time.
    ready: BTreeSet<(u64, u32)>,
    /// Virtual time of the last ordered frame.
    virtual_time: u64,
    /// Channels to which a receipt is owed, but not yet due.
    owed: BTreeSet<u32>,
    /// Channels that the other side has ended, and that are to be answered with *ended*.
    refusals_to_answer: BTreeSet<u32>,
}

impl ChannelTable {
    pub fn new(is_dialer: bool, channels_max: u32) -> Self {
        Self {
            channels: BTreeMap::new(),
            channels_max,
            is_dialer,
            number_next: 1,
            attached: VecDeque::new(),
            small_due: VecDeque::new(),
            ready: BTreeSet::new(),
            virtual_time: 0,
            owed: BTreeSet::new(),
            refusals_to_answer: BTreeSet::new(),
        }
    }

    /// Begins a channel. `None` if there are as many as are allowed.
    pub fn attach(&mut self, attach: AttachFrame) -> Option<u32> {
        assert!(self.is_dialer, "the side that connects attaches");
        if self.channels.len() >= self.channels_max as usize {
            return None;
        }
        let number = self.add();
        self.of(number).attach = Some(attach);
        let encoded = self.encode(number, FrameBody::Attach(attach));
        assert!(self.push(number, encoded), "a new channel has room");
        Some(number)
    }

    /// The next channel that the other side attached.
    pub fn take_attached(&mut self) -> Option<(u32, AttachFrame)> {
        self.attached.pop_front()
    }

    fn add(&mut self) -> u32 {
        let number = self.number_next;
        self.number_next += 1;
        let channel = Channel {
            send: SendQueue::new(number),
            receive: ReceiveQueue::new(),
            attach: None,
            is_receipt_due: false,
            small: Vec::new(),
            is_queued: false,
            virtual_time: 0,
            refused: None,
            is_closing: false,
        };
        self.channels.insert(number, channel);
        number
    }

    fn of(&mut self, number: u32) -> &mut Channel {
        self.channels.get_mut(&number).expect("the channel has not ended")
    }

    /// The refusal with which the other side ended the channel.
    pub fn refused(&self, number: u32) -> Option<&RefusalFrame> {
        self.channels.get(&number)?.refused.as_ref()
    }

    /// Encodes an ordered frame as the channel's next. To be pushed before another one is encoded.
    pub fn encode(&mut self, number: u32, body: FrameBody) -> EncodedFrame {
        self.of(number).send.encode(body)
    }

    /// Takes the frame in that was encoded last. False if the window has no room for it now.
    pub fn push(&mut self, number: u32, encoded: EncodedFrame) -> bool {
        let now = self.virtual_time;
        let channel = self.of(number);
        if !channel.send.has_room(encoded.bytes()) {
            return false;
        }
        let was_ready = channel.send.unsent_charge().is_some();
        channel.send.push(encoded);
        if !was_ready {
            channel.virtual_time = channel.virtual_time.max(now);
            let virtual_time = channel.virtual_time;
            self.ready.insert((virtual_time, number));
        }
        true
    }

    /// True if the channel's window takes that many encoded bytes.
    pub fn has_room(&self, number: u32, bytes: usize) -> bool {
        self.channels.get(&number).is_none_or(|channel| channel.send.has_room(bytes))
    }

    /// Sends a frame of an unordered kind; one of the same kind that waits is replaced.
    pub fn send_small(&mut self, number: u32, body: FrameBody) {
        let small = &mut self.of(number).small;
        small.retain(|waiting| waiting.body.kind() != body.kind());
        small.push(SmallFrame { body, is_due: true });
        self.queue_small(number);
    }

    fn queue_small(&mut self, number: u32) {
        let channel = self.of(number);
        if !std::mem::replace(&mut channel.is_queued, true) {
            self.small_due.push_back(number);
        }
    }

    /// Ends a channel from this side. What was not sent is dropped.
    pub fn close(&mut self, number: u32, reason: RefusalFrame) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if channel.refused.is_some() {
            // It was answered when it came.
            self.remove(number);
            return;
        }
        channel.is_closing = true;
        channel.receive = ReceiveQueue::new();
        channel.small.clear();
        self.stop_sending(number);
        self.send_small(number, FrameBody::Refusal(reason));
    }

    fn stop_sending(&mut self, number: u32) {
        let channel = self.of(number);
        channel.is_receipt_due = false;
        channel.send = SendQueue::new(number);
        let virtual_time = channel.virtual_time;
        self.ready.remove(&(virtual_time, number));
        self.owed.remove(&number);
    }

    fn remove(&mut self, number: u32) {
        self.stop_sending(number);
        self.channels.remove(&number);
        self.small_due.retain(|queued| *queued != number);
        self.attached.retain(|(attached, _)| *attached != number);
    }

    /// The next frame for `connection` to send.
    pub fn next(&mut self, connection: ConnectionNumber) -> Option<Rc<EncodedFrame>> {
        if let Some(small) = self.next_small() {
            return Some(Rc::new(small));
        }
        let next = if canary::is(LinkCanary::FirstChannelFirst) {
            self.ready.iter().min_by_key(|(_, number)| *number).copied()
        } else {
            self.ready.first().copied()
        };
        let (virtual_time, number) = next?;
        self.ready.remove(&(virtual_time, number));
        self.virtual_time = self.virtual_time.max(virtual_time);
        let channel = self.of(number);
        let frame = channel.send.take(connection).expect("a channel that is ready has a frame");
        channel.virtual_time += charge(frame.bytes());
        if channel.send.unsent_charge().is_some() {
            let virtual_time = channel.virtual_time;
            self.ready.insert((virtual_time, number));
        }
        Some(frame)
    }

    fn next_small(&mut self) -> Option<EncodedFrame> {
        if let Some(number) = self.refusals_to_answer.pop_first() {
            let body = FrameBody::Refusal(refusal(RefusalCode::Ended, "the channel has ended"));
            return Some(Frame { channel: number, sequence: 0, body }.encode());
        }
        loop {
            let number = self.small_due.pop_front()?;
            let channel = self.of(number);
            let due = channel.small.iter_mut().find(|small| small.is_due);
            let body = if std::mem::take(&mut channel.is_receipt_due) {
                Some(FrameBody::Receipt(channel.receive.receipt()))
            } else {
                due.map(|small| {
                    small.is_due = false;
                    small.body.clone()
                })
            };
            let Some(body) = body else {
                channel.is_queued = false;
                continue;
            };
            self.owed.remove(&number);
            self.small_due.push_back(number);
            return Some(Frame { channel: number, sequence: 0, body }.encode());
        }
    }

    /// Receipts that are owed are due from now on. True if there is one.
    pub fn send_owed(&mut self) -> bool {
        let owed = std::mem::take(&mut self.owed);
        for number in &owed {
            self.of(*number).is_receipt_due = true;
            self.queue_small(*number);
        }
        !owed.is_empty()
    }

    fn owe(&mut self, number: u32, when: ReceiptTime) {
        match when {
            ReceiptTime::Soon => {
                self.owed.insert(number);
            }
            ReceiptTime::Now => {
                self.of(number).is_receipt_due = true;
                self.queue_small(number);
            }
        }
    }

    /// Frames that `connection` had taken are sent again, and all small ones.
    pub fn connection_lost(&mut self, connection: ConnectionNumber) {
        let numbers: Vec<u32> = self.channels.keys().copied().collect();
        for number in numbers {
            let now = self.virtual_time;
            let channel = self.of(number);
            let was_ready = channel.send.unsent_charge().is_some();
            channel.send.connection_lost(connection);
            let is_ready = channel.send.unsent_charge().is_some();
            channel.small.iter_mut().for_each(|small| small.is_due = true);
            channel.is_receipt_due = !channel.is_closing && channel.refused.is_none();
            if is_ready && !was_ready {
                channel.virtual_time = channel.virtual_time.max(now);
                let virtual_time = channel.virtual_time;
                self.ready.insert((virtual_time, number));
            }
            self.queue_small(number);
        }
    }

    /// The next frame for the owner of a channel.
    pub fn take(&mut self, number: u32) -> Option<(FrameBody, ReceiptTime)> {
        let channel = self.channels.get_mut(&number)?;
        let (body, when) = channel.receive.take()?;
        if channel.refused.is_none() {
            self.owe(number, when);
        }
        Some((body, when))
    }

    /// Takes a frame of a channel in, which arrived in `bytes`.
    pub fn receive(&mut self, frame: Frame, bytes: usize) -> Result<ReceiveEffects, LinkFault> {
        let number = frame.channel;
        assert!(number != 0 && bytes >= HEADER_BYTES, "it is a frame of a channel");
        self.add_up_to(number)?;
        if let FrameBody::Refusal(refused) = frame.body {
            return self.receive_refusal(number, refused);
        }
        // A frame of a channel that has ended here was on its way.
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(ReceiveEffects::default()) };
        if channel.is_closing || channel.refused.is_some() {
            return Ok(ReceiveEffects::default());
        }
        let is_ordered = frame.body.kind().is_ordered();
        match frame.body {
            FrameBody::Receipt(receipt) => {
                let is_writable = channel.send.receipt(&receipt)?;
                self.update_ready(number);
                Ok(ReceiveEffects { is_writable, ..ReceiveEffects::default() })
            }
            body if is_ordered => {
                // The side that connects begins each channel, the other one only uses it.
                let begins = frame.sequence == 1 && !self.is_dialer;
                if begins != matches!(body, FrameBody::Attach(_)) {
                    return Err(LinkFault::Attach);
                }
                let when = channel.receive.receive(frame.sequence, charge(bytes), body)?;
                if channel.attach.is_none()
                    && let Some(FrameBody::Attach(attach)) = channel.receive.take_ordered()
                {
                    channel.attach = Some(attach);
                    self.attached.push_back((number, attach));
                }
                let is_readable = self.of(number).receive.has_frames();
                self.owe(number, when);
                Ok(ReceiveEffects { is_readable, sends: Some(when), ..ReceiveEffects::default() })
            }
            body => {
                assert!(matches!(body.kind(), FrameKind::Word | FrameKind::Confirmation), "these are left");
                channel.receive.receive_unordered(body);
                Ok(ReceiveEffects { is_readable: true, ..ReceiveEffects::default() })
            }
        }
    }

    /// The other side uses channels up to this number.
    fn add_up_to(&mut self, number: u32) -> Result<(), LinkFault> {
        if number >= self.number_next && self.is_dialer {
            return Err(LinkFault::UnknownChannel);
        }
        // A frame may overtake those of channels with lower numbers.
        while number >= self.number_next {
            if self.channels.len() >= self.channels_max as usize {
                return Err(LinkFault::Channels);
            }
            self.add();
        }
        Ok(())
    }

    /// A refusal is answered with *ended*, which is not answered: so both sides know that it arrived.
    fn receive_refusal(&mut self, number: u32, refused: RefusalFrame) -> Result<ReceiveEffects, LinkFault> {
        let is_answer = refused.code == RefusalCode::Ended;
        let is_closing = self.channels.get(&number).is_some_and(|channel| channel.is_closing);
        if is_closing {
            self.remove(number);
        }
        if is_answer {
            return Ok(ReceiveEffects::default());
        }
        self.refusals_to_answer.insert(number);
        if self.refusals_to_answer.len() > self.channels_max as usize {
            return Err(LinkFault::Channels);
        }
        if let Some(channel) = self.channels.get_mut(&number)
            && channel.refused.is_none()
        {
            channel.refused = Some(refused);
            channel.small.clear();
            let is_unattached = channel.attach.is_none();
            self.stop_sending(number);
            if is_unattached {
                // No owner will ever know of it.
                self.remove(number);
            }
        }
        Ok(ReceiveEffects { is_readable: true, is_writable: true, sends: Some(ReceiptTime::Now) })
    }

    /// A channel whose unsent frames are gone is not ready.
    fn update_ready(&mut self, number: u32) {
        let channel = self.of(number);
        let (virtual_time, is_ready) = (channel.virtual_time, channel.send.unsent_charge().is_some());
        if !is_ready {
            self.ready.remove(&(virtual_time, number));
        }
    }

    /// Bytes charged for frames that are kept: those sent, then those received.
    pub fn kept_bytes(&self) -> (u64, u64) {
        let sum = |bytes: &dyn Fn(&Channel) -> u64| self.channels.values().map(bytes).sum();
        (sum(&|channel| channel.send.kept_bytes()), sum(&|channel| channel.receive.kept_bytes()))
    }
}
