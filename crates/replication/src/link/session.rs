//! A session between two sites, and its channels. Invariants:
//!
//! 1. A session that has ended stays ended, and its channels with it.
//! 2. It has ended once no connection is left.
//! 3. Each change of the table of channels wakes those who wait for it: connections to send, owners to take or send.

use super::{
    ChannelError, ConnectionNumber, LineBytes, LinkError, LinkFault, LinkSettings,
    alive_watch::{AliveWatch, RoundTrips},
    channel_table::ChannelTable,
    connection::{ActiveConnection, LinkReader, LinkWriter, serve},
    receive_queue::ReceiptTime,
    refusal,
};
use crate::frame::{AttachFrame, Frame, FrameBody, FrameKind, HelloFrame, RefusalCode, RefusalFrame};
use array::format::SiteId;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{EventLog, EventReader, World};

/// A receipt that is not due at once goes out after this time, with what came meanwhile.
const RECEIPT_DELAY: Duration = Duration::from_millis(10);
/// Events kept for readers that are behind.
const EVENTS_MAX: usize = 256;

/// A change of a session's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    Connected {
        address: String,
        index: u16,
    },
    Lost {
        address: String,
        index: u16,
        reason: String,
    },
    /// The first attempt after a loss, or of all, that failed; the next ones are not reported.
    NotReached {
        address: String,
        index: u16,
        reason: String,
    },
    Ended(LinkError),
}

/// A connection as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    pub index: u16,
    pub address: String,
    pub round_trips: RoundTrips,
    /// Frames that were sent over it; *alive* does not count.
    pub sent: LineBytes,
}

/// Wakes the owner of a channel.
#[derive(Default)]
struct ChannelSignals {
    readable: Notify,
    writable: Notify,
    /// Held by the send that is next.
    turn: tokio::sync::Mutex<()>,
}

/// The state of a session, shared by its connections, channels and its owner.
pub(super) struct SessionCore {
    pub world: World,
    pub settings: LinkSettings,
    /// The hello of the other side.
    pub peer: HelloFrame,
    pub version: u16,
    pub table: RefCell<ChannelTable>,
    connections: RefCell<BTreeMap<ConnectionNumber, Rc<ActiveConnection>>>,
    connection_next: Cell<ConnectionNumber>,
    events: EventLog<LinkEvent>,
    /// With the refusal that the other side is sent.
    end: RefCell<Option<(LinkError, Option<RefusalFrame>)>>,
    signals: RefCell<BTreeMap<u32, Rc<ChannelSignals>>>,
    attached: Notify,
    owed: Notify,
    pub ended: Notify,
}

impl SessionCore {
    /// A session without connections; one is to be added at once.
    pub fn begin(
        world: &World,
        settings: &LinkSettings,
        (peer, version): (HelloFrame, u16),
        is_dialer: bool,
    ) -> Rc<Self> {
        let core = Rc::new(Self {
            world: world.clone(),
            settings: settings.clone(),
            peer,
            version,
            table: RefCell::new(ChannelTable::new(is_dialer, settings.channels_max)),
            connections: RefCell::default(),
            connection_next: Cell::new(1),
            events: EventLog::new(world, EVENTS_MAX),
            end: RefCell::new(None),
            signals: RefCell::default(),
            attached: Notify::new(),
            owed: Notify::new(),
            ended: Notify::new(),
        });
        world.spawn("link receipts", Rc::clone(&core).send_owed_receipts());
        core
    }

    /// Adds a connection and serves it until it is lost. One with the same index is given up.
    pub async fn serve(self: &Rc<Self>, index: u16, address: String, halves: (LinkReader, LinkWriter)) {
        let number = self.connection_next.get();
        self.connection_next.set(number + 1);
        let watch = RefCell::new(AliveWatch::new(&self.settings, self.world.now()));
        let (wake, replaced) = (Notify::new(), Notify::new());
        let sent = Cell::default();
        let connection = Rc::new(ActiveConnection { number, index, address, watch, sent, wake, replaced });
        let address = connection.address.clone();
        {
            let mut connections = self.connections.borrow_mut();
            connections.values().filter(|other| other.index == index).for_each(|other| {
                other.replaced.notify_one();
            });
            connections.insert(number, Rc::clone(&connection));
        }
        self.events.record(LinkEvent::Connected { address: address.clone(), index });
        let reason = serve(self, &connection, halves).await;
        self.connections.borrow_mut().remove(&number);
        if self.has_ended() {
            return;
        }
        self.table.borrow_mut().connection_lost(number);
        self.events.record(LinkEvent::Lost { address: address.clone(), index, reason: reason.clone() });
        if self.connections.borrow().is_empty() {
            self.end(LinkError::Lost { address, reason }, None);
        }
        self.wake_connections();
    }

    pub fn record(&self, event: LinkEvent) {
        self.events.record(event);
    }

    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// The refusal to send to the other side, once the session has ended.
    pub fn farewell(&self) -> Option<RefusalFrame> {
        self.end.borrow().as_ref()?.1.clone()
    }

    fn error(&self) -> Option<LinkError> {
        self.end.borrow().as_ref().map(|(error, _)| error.clone())
    }

    /// Ends the session, unless it has ended before.
    pub fn end(&self, error: LinkError, farewell: Option<RefusalFrame>) {
        if self.has_ended() {
            return;
        }
        *self.end.borrow_mut() = Some((error.clone(), farewell));
        self.events.record(LinkEvent::Ended(error));
        self.events.close();
        self.wake_connections();
        self.signals.borrow().values().for_each(|signals| {
            signals.readable.notify_one();
            signals.writable.notify_one();
        });
        self.attached.notify_one();
        self.owed.notify_one();
        self.ended.notify_waiters();
    }

    /// Ends a session whose first connection was lost in the handshake.
    pub fn end_without_connections(&self) {
        if self.connections.borrow().is_empty() {
            let (address, reason) =
                ("the first connection".to_owned(), "it broke in the handshake".to_owned());
            self.end(LinkError::Lost { address, reason }, None);
        }
    }

    fn fail(&self, fault: LinkFault) {
        let text = format!("the protocol was broken: {fault}");
        self.end(LinkError::Fault(fault), Some(refusal(RefusalCode::Frame, text)));
    }

    fn wake_connections(&self) {
        self.connections.borrow().values().for_each(|connection| connection.wake.notify_one());
    }

    /// Takes a frame in that arrived over any of the connections.
    pub fn receive(&self, frame: Frame, bytes: usize) {
        if self.has_ended() {
            return;
        }
        match frame.body {
            FrameBody::Refusal(refused) if frame.channel == 0 => self.end(LinkError::Refused(refused), None),
            _ if frame.channel == 0 => self.fail(LinkFault::Hello),
            _ => self.receive_of_channel(frame, bytes),
        }
    }

    fn receive_of_channel(&self, frame: Frame, bytes: usize) {
        let number = frame.channel;
        let received = self.table.borrow_mut().receive(frame, bytes);
        let effects = match received {
            Ok(effects) => effects,
            Err(fault) => return self.fail(fault),
        };
        match self.signals.borrow().get(&number) {
            Some(signals) => {
                effects.is_readable.then(|| signals.readable.notify_one());
                effects.is_writable.then(|| signals.writable.notify_one());
            }
            None => self.attached.notify_one(),
        }
        self.send_receipt(effects.sends);
    }

    fn send_receipt(&self, when: Option<ReceiptTime>) {
        match when {
            Some(ReceiptTime::Now) => self.wake_connections(),
            Some(ReceiptTime::Soon) => self.owed.notify_one(),
            None => {}
        }
    }

    async fn send_owed_receipts(self: Rc<Self>) {
        loop {
            self.owed.notified().await;
            if self.has_ended() {
                return;
            }
            self.world.sleep(RECEIPT_DELAY).await;
            if self.table.borrow_mut().send_owed() {
                self.wake_connections();
            }
        }
    }

    fn channel(self: &Rc<Self>, number: u32, attach: AttachFrame) -> LinkChannel {
        let signals = Rc::new(ChannelSignals::default());
        self.signals.borrow_mut().insert(number, Rc::clone(&signals));
        LinkChannel { core: Rc::clone(self), number, attach, signals }
    }
}

/// A session with another site. Dropping it ends it, and all of its channels.
pub struct LinkSession {
    pub(super) core: Rc<SessionCore>,
}

impl LinkSession {
    pub fn peer_site(&self) -> SiteId {
        self.core.peer.site
    }

    /// Name and version of the other side's program.
    pub fn peer_program(&self) -> &str {
        &self.core.peer.program
    }

    /// The version of the protocol that both sides use.
    pub fn version(&self) -> u16 {
        self.core.version
    }

    /// The connections that are up, by their index.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let connections = self.core.connections.borrow();
        let mut all: Vec<_> = connections
            .values()
            .map(|connection| ConnectionStatus {
                index: connection.index,
                address: connection.address.clone(),
                round_trips: connection.round_trips(),
                sent: connection.sent.get(),
            })
            .collect();
        all.sort_by_key(|connection| connection.index);
        all
    }

    /// Losses and returns of connections, from the session's beginning, and its end.
    pub fn events(&self) -> EventReader<LinkEvent> {
        self.core.events.follow()
    }

    /// Bytes of frames that are kept: those sent and not known to have arrived, and those received and not taken.
    pub fn kept_bytes(&self) -> (u64, u64) {
        self.core.table.borrow().kept_bytes()
    }

    /// Begins a channel for a group, or a part of it; of the side that connected.
    ///
    /// # Errors
    ///
    /// The session has ended, or has as many channels as it may.
    ///
    /// # Panics
    ///
    /// On the side that accepted the session.
    pub fn attach(&self, attach: AttachFrame) -> Result<LinkChannel, LinkError> {
        if let Some(error) = self.core.error() {
            return Err(error);
        }
        let number = self.core.table.borrow_mut().attach(attach);
        let number = number.ok_or(LinkError::Fault(LinkFault::Channels))?;
        self.core.wake_connections();
        Ok(self.core.channel(number, attach))
    }

    /// Waits for the next channel that the other side attaches. One caller at a time.
    ///
    /// # Errors
    ///
    /// The session has ended.
    pub async fn next_channel(&self) -> Result<LinkChannel, LinkError> {
        loop {
            if let Some(error) = self.core.error() {
                return Err(error);
            }
            let attached = self.core.table.borrow_mut().take_attached();
            if let Some((number, attach)) = attached {
                return Ok(self.core.channel(number, attach));
            }
            self.core.attached.notified().await;
        }
    }

    /// Waits for the end of the session, and returns the reason.
    pub async fn ended(&self) -> LinkError {
        loop {
            let ended = self.core.ended.notified();
            if let Some(error) = self.core.error() {
                return error;
            }
            ended.await;
        }
    }

    /// Ends the session; the other side gets the reason. What was not sent is dropped.
    pub fn close(&self, reason: RefusalFrame) {
        self.core.end(LinkError::Closed, Some(reason));
    }
}

impl Drop for LinkSession {
    fn drop(&mut self) {
        self.close(refusal(RefusalCode::Closing, "the other site closed the session"));
    }
}

/// A channel of a session. Dropping it ends it.
pub struct LinkChannel {
    core: Rc<SessionCore>,
    number: u32,
    attach: AttachFrame,
    signals: Rc<ChannelSignals>,
}

impl LinkChannel {
    /// The group, and the part, that this channel is for.
    pub fn attached(&self) -> AttachFrame {
        self.attach
    }

    fn check(&self) -> Result<(), ChannelError> {
        if let Some(refused) = self.core.table.borrow().refused(self.number) {
            return Err(ChannelError::Refused(refused.clone()));
        }
        self.core.error().map_or(Ok(()), |error| Err(ChannelError::Session(error)))
    }

    /// Sends a frame. One of an ordered kind waits for the channel's window, and for sends that began before; it
    /// arrives unless the channel or the session ends. Of *word* and *confirmation* the newest one arrives, and it
    /// may arrive twice, or before an older one. If the future is dropped before it completes, nothing is sent.
    ///
    /// # Errors
    ///
    /// The channel or the session has ended.
    ///
    /// # Panics
    ///
    /// On kinds that are the link's own: *hello*, *refusal*, *alive*, *attach*, *receipt*.
    pub async fn send(&self, body: FrameBody) -> Result<(), ChannelError> {
        let kind = body.kind();
        assert!(kind != FrameKind::Attach, "a channel is attached once");
        if !kind.is_ordered() {
            assert!(matches!(kind, FrameKind::Word | FrameKind::Confirmation), "the link sends the others");
            self.check()?;
            self.core.table.borrow_mut().send_small(self.number, body);
            self.core.wake_connections();
            return Ok(());
        }
        let _turn = self.signals.turn.lock().await;
        self.check()?;
        let encoded = self.core.table.borrow_mut().encode(self.number, body);
        while !self.core.table.borrow().has_room(self.number, encoded.bytes()) {
            self.signals.writable.notified().await;
            self.check()?;
        }
        let is_taken = self.core.table.borrow_mut().push(self.number, encoded);
        assert!(is_taken, "there was room");
        self.core.wake_connections();
        Ok(())
    }

    /// Waits for the next frame. One caller at a time.
    ///
    /// # Errors
    ///
    /// The channel or the session has ended, and everything that arrived before was taken.
    pub async fn receive(&self) -> Result<FrameBody, ChannelError> {
        loop {
            let taken = self.core.table.borrow_mut().take(self.number);
            if let Some((body, when)) = taken {
                self.core.send_receipt(Some(when));
                return Ok(body);
            }
            self.check()?;
            self.signals.readable.notified().await;
        }
    }

    /// Ends the channel; the other side gets the reason. What has not arrived yet is dropped.
    pub fn refuse(self, reason: RefusalFrame) {
        self.end(reason);
    }

    fn end(&self, reason: RefusalFrame) {
        if self.core.signals.borrow_mut().remove(&self.number).is_some() {
            self.core.table.borrow_mut().close(self.number, reason);
            self.core.wake_connections();
        }
    }
}

impl Drop for LinkChannel {
    fn drop(&mut self) {
        self.end(refusal(RefusalCode::Closing, "the other site closed the channel"));
    }
}
