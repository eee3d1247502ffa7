//! A client's connection that is made again when it breaks.
//!
//! [`Reconnecting`] has what clients of all protocols need: the first connection, reconnection with backoff, deadlines,
//! and the end. [`Protocol`] is the rest: login or handshake, the queue of requests, and their encoding.
//!
//! Invariants:
//!
//! 1. There is at most one session at a time. Its tasks have ended before the next one is established.
//! 2. A session is open only after [`Protocol::open`] has succeeded over it.
//! 3. When the handle is dropped, outstanding requests fail, the peer gets a goodbye, and no task remains.

use super::{Stream, receiver::Receiver};
use crate::{IoError, IoErrorKind, IoResult, Moment, World, with_deadline};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    rc::Rc,
    time::Duration,
};
use tokio::{
    io::{ReadHalf, WriteHalf, split},
    sync::{Notify, oneshot},
};

/// Shortest and longest delay before a connection attempt that follows a failed one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The receiving half of a session.
pub type Reader = Receiver<ReadHalf<Stream>>;
/// The sending half of a session.
pub type Writer = WriteHalf<Stream>;

/// An attempt to connect that failed.
pub struct ConnectFailure {
    /// Reported to the caller.
    pub error: IoError,
    /// The peer accepted the connection and closed it before the session was established, as a server does that is
    /// starting or stopping. The first connection is then tried again.
    pub is_retryable: bool,
}

impl From<ConnectFailure> for IoError {
    fn from(failure: ConnectFailure) -> Self {
        failure.error
    }
}

/// A client protocol over a [`Reconnecting`] connection.
pub trait Protocol: 'static {
    /// Parameters negotiated for a session.
    type Terms: 'static;
    /// The peer in messages: "the target", "the server".
    const PEER: &'static str;
    /// Interval of [`Protocol::check`].
    const CHECK_INTERVAL: Duration;
    /// Delay before the first attempt to replace an open session.
    const FIRST_DELAY: Duration;

    /// The URI, for messages.
    fn name(&self) -> String;

    /// Time limit of one attempt to connect.
    fn connect_max(&self) -> Duration;

    /// Time limit of a request, for messages; [`Protocol::check`] enforces it.
    fn answer_max(&self) -> Duration;

    /// Connects and logs in.
    fn connect(&self) -> impl Future<Output = Result<(Stream, Self::Terms), ConnectFailure>>;

    /// A session was established: requests are sent over it from now on.
    fn begin(&self, terms: &Self::Terms);

    /// Verifies the peer over an established session, before the session counts as open.
    fn open(&self) -> impl Future<Output = IoResult<()>>;

    /// The session is open.
    fn opened(&self) {}

    /// Notified when there is something to send.
    fn wake(&self) -> &Notify;

    /// Sends a batch of what is queued; false if nothing may be sent now.
    fn send(&self, writer: &mut Writer, terms: &Self::Terms) -> impl Future<Output = io::Result<bool>>;

    /// Receives and handles one message. An error ends the session.
    fn receive(&self, reader: &mut Reader, terms: &Self::Terms) -> impl Future<Output = Result<(), String>>;

    /// Ends the session properly; no request is outstanding.
    fn say_goodbye(&self, writer: &mut Writer, terms: &Self::Terms) -> impl Future<Output = io::Result<()>>;

    /// The session was lost.
    fn lost(&self) {}

    /// Fails requests that have expired, with `reason`. Returns true if the session must be dropped.
    fn check(&self, now: Moment, reason: &str) -> bool;

    /// Fails all outstanding requests: the handle was dropped.
    fn close(&self);
}

/// Handle of a connection that is made again when it breaks. Dropping it ends the connection.
pub struct Reconnecting<P: Protocol>(Rc<Connection<P>>);

struct Connection<P> {
    world: World,
    protocol: P,
    is_closed: Cell<bool>,
    is_established: Cell<bool>,
    is_open: Cell<bool>,
    /// Notified when the session is found unusable.
    broken: Notify,
    /// The last reason for having no open session.
    failure: RefCell<String>,
    breaks: Cell<u64>,
    /// Waits for the first session to open.
    first: Cell<Option<oneshot::Sender<IoResult<()>>>>,
}

impl<P: Protocol> Connection<P> {
    fn error(&self, kind: IoErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.protocol.name()))
    }

    fn no_answer(&self) -> String {
        format!("{} does not answer", P::PEER)
    }

    /// One attempt within the time limit.
    async fn connect(&self) -> Result<(Stream, P::Terms), ConnectFailure> {
        let limit = self.protocol.connect_max();
        let connected = with_deadline(self.world.sleep(limit), self.protocol.connect()).await;
        connected.unwrap_or_else(|| {
            let why = format!("no answer within {} s", limit.as_secs());
            Err(ConnectFailure { error: self.error(IoErrorKind::Disconnected, &why), is_retryable: false })
        })
    }

    /// The first session. A peer that closes the connection is tried again until the time limit has passed.
    async fn connect_first(&self) -> IoResult<(Stream, P::Terms)> {
        let limit = self.protocol.connect_max();
        let deadline = self.world.now() + limit;
        let mut delay = BACKOFF.0;
        loop {
            match self.connect().await {
                Err(failure) if failure.is_retryable && self.world.now() + delay < deadline => {}
                Err(ConnectFailure { error, is_retryable: true }) => {
                    let why = format!("tried for {} s: {error}", limit.as_secs());
                    return Err(self.error(error.kind(), &why));
                }
                connected => return Ok(connected?),
            }
            self.world.sleep(delay).await;
            delay = (delay * 2).min(BACKOFF.1);
        }
    }

    /// The next session after a lost one; `None` once the handle is dropped.
    async fn reconnect(&self, delay: &mut Duration) -> Option<(Stream, P::Terms)> {
        loop {
            if !delay.is_zero() {
                self.world.sleep(*delay).await;
            }
            *delay = (*delay * 2).clamp(BACKOFF.0, BACKOFF.1);
            if self.is_closed.get() {
                return None;
            }
            match self.connect().await {
                Ok(session) => return Some(session),
                Err(failure) => _ = self.failure.replace(failure.error.to_string()),
            }
        }
    }
}

impl<P: Protocol> Reconnecting<P> {
    /// Establishes the first session and waits until it is open.
    ///
    /// # Errors
    ///
    /// The peer does not answer within the time limit, or [`Protocol::connect`] or [`Protocol::open`] fails.
    pub async fn connect(world: &World, protocol: P) -> IoResult<Self> {
        let connection = Rc::new(Connection {
            world: world.clone(),
            protocol,
            is_closed: Cell::new(false),
            is_established: Cell::new(false),
            is_open: Cell::new(false),
            broken: Notify::new(),
            failure: RefCell::default(),
            breaks: Cell::new(0),
            first: Cell::new(None),
        });
        let session = connection.connect_first().await?;
        let (first, opened) = oneshot::channel();
        connection.first.set(Some(first));
        world.spawn("connection", keep_connected(Rc::clone(&connection), session));
        world.spawn("deadlines", check_deadlines(Rc::clone(&connection)));
        let own = Self(connection);
        opened.await.expect("the outcome of the first session is always sent")?;
        Ok(own)
    }

    pub fn protocol(&self) -> &P {
        &self.0.protocol
    }

    /// Number of times an established session has been lost.
    pub fn breaks(&self) -> u64 {
        self.0.breaks.get()
    }
}

impl<P: Protocol> Drop for Reconnecting<P> {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
        self.0.protocol.close();
        // The sender says goodbye, and the receiver stops waiting.
        self.0.protocol.wake().notify_one();
        self.0.broken.notify_one();
    }
}

/// Uses `session` until it breaks, then the next one, until the handle is dropped.
async fn keep_connected<P: Protocol>(connection: Rc<Connection<P>>, mut session: (Stream, P::Terms)) {
    let mut delay = P::FIRST_DELAY;
    loop {
        if let Err(why) = use_session(&connection, session).await {
            connection.failure.replace(why);
        }
        connection.is_established.set(false);
        if let Some(first) = connection.first.take() {
            let why = connection.failure.borrow().clone();
            let _ = first.send(Err(connection.error(IoErrorKind::Disconnected, &why)));
            return;
        }
        if connection.is_closed.get() {
            return;
        }
        connection.breaks.set(connection.breaks.get() + 1);
        if connection.is_open.replace(false) {
            delay = P::FIRST_DELAY;
        }
        connection.protocol.lost();
        session = match connection.reconnect(&mut delay).await {
            Some(next) => next,
            None => return,
        };
    }
}

/// Sends and receives until the session breaks or the handle is dropped.
async fn use_session<P: Protocol>(
    connection: &Rc<Connection<P>>,
    (stream, terms): (Stream, P::Terms),
) -> Result<(), String> {
    let (reader, writer) = split(stream);
    let terms = Rc::new(terms);
    connection.protocol.begin(&terms);
    connection.is_established.set(true);
    let is_over = Rc::new(Cell::new(false));
    let sending = send(Rc::clone(connection), writer, Rc::clone(&terms), Rc::clone(&is_over));
    let sending = connection.world.spawn("requests", sending);
    connection.world.spawn("open session", open(Rc::clone(connection)));
    let receiving = async {
        let mut reader = Receiver::new(reader);
        loop {
            connection.protocol.receive(&mut reader, &terms).await?;
        }
    };
    let received: Option<Result<(), String>> = with_deadline(connection.broken.notified(), receiving).await;
    is_over.set(true);
    connection.protocol.wake().notify_one();
    let sent = sending.await.map_err(|error| error.to_string());
    received.unwrap_or(Ok(())).and(sent)
}

async fn send<P: Protocol>(
    connection: Rc<Connection<P>>,
    mut writer: Writer,
    terms: Rc<P::Terms>,
    is_over: Rc<Cell<bool>>,
) -> io::Result<()> {
    let protocol = &connection.protocol;
    loop {
        if connection.is_closed.get() {
            return protocol.say_goodbye(&mut writer, &terms).await;
        }
        if is_over.get() {
            return Ok(());
        }
        if !protocol.send(&mut writer, &terms).await? {
            protocol.wake().notified().await;
        }
    }
}

/// Verifies the peer over a new session and opens it.
async fn open<P: Protocol>(connection: Rc<Connection<P>>) {
    let session = connection.breaks.get();
    let opened = connection.protocol.open().await;
    if connection.breaks.get() != session || connection.is_closed.get() {
        return;
    }
    match opened {
        Ok(()) => {
            connection.is_open.set(true);
            connection.protocol.opened();
            connection.protocol.wake().notify_one();
            if let Some(first) = connection.first.take() {
                let _ = first.send(Ok(()));
            }
        }
        Err(error) => {
            connection.failure.replace(error.to_string());
            if let Some(first) = connection.first.take() {
                let _ = first.send(Err(error));
            }
            connection.broken.notify_one();
        }
    }
}

/// Fails expired requests and drops the session with them.
async fn check_deadlines<P: Protocol>(connection: Rc<Connection<P>>) {
    loop {
        connection.world.sleep(P::CHECK_INTERVAL).await;
        if connection.is_closed.get() {
            return;
        }
        let trouble = if connection.is_open.get() {
            connection.no_answer()
        } else {
            connection.failure.borrow().clone()
        };
        let seconds = connection.protocol.answer_max().as_secs();
        let reason = format!("no answer within {seconds} s: {trouble}");
        let must_drop = connection.protocol.check(connection.world.now(), &reason);
        if must_drop && connection.is_established.get() {
            connection.failure.replace(connection.no_answer());
            connection.broken.notify_one();
        }
    }
}
