//! A simulated network: named hosts, streams with latency and rate, links that are cut in one direction or both,
//! connections that break.
//!
//! Invariants:
//!
//! 1. Bytes arrive in the order in which they were sent, each at its moment, or the connection breaks for
//!    both sides.
//! 2. A cut link delays (as TCP does, which retransmits); data in flight arrives once the link is restored.
//! 3. A direction holds [`WINDOW_BYTES`] at most: a sender waits for the receiver.

use super::executor::Executor;
use crate::{
    IoError, IoErrorKind, IoResult, LocalFuture, Moment, Random,
    network::{Address, ByteStream, IncomingConnection, Listener, Network, Stream, handover::DetachedStream},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    num::NonZeroU64,
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};

/// Bytes in flight in one direction of a connection, at most.
pub const WINDOW_BYTES: usize = 256 * 1024;

/// Parameters of a network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkOptions {
    /// Minimum one-way latency.
    pub latency: Duration,
    /// Maximum of the random addition to it.
    pub jitter: Duration,
    /// Probability that a send breaks the connection, in percent.
    pub reset_percent: f64,
}

impl NetworkOptions {
    /// A rack: 50 to 100 µs, and no connection breaks.
    pub fn rack() -> Self {
        Self { latency: Duration::from_micros(50), jitter: Duration::from_micros(50), reset_percent: 0.0 }
    }
}

/// Parameters of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// Minimum latency in this direction.
    pub latency: Duration,
    /// Rate that all connections in this direction share; `None` for no limit.
    pub bytes_per_second: Option<NonZeroU64>,
}

/// A simulated network. Clones share one state.
#[derive(Clone)]
pub struct SimNetwork(Rc<Inner>);

struct Inner {
    executor: Rc<Executor>,
    options: NetworkOptions,
    state: RefCell<State>,
}

struct State {
    random: Random,
    /// Listeners by address.
    listeners: BTreeMap<String, mpsc::UnboundedSender<IncomingConnection>>,
    /// Directions that are cut.
    cut: BTreeSet<Direction>,
    links: BTreeMap<Direction, Link>,
    /// Directions of all connections; closed ones are removed now and then.
    pipes: Vec<Weak<RefCell<Pipe>>>,
    port_next: u16,
}

/// Sender and receiver.
type Direction = (String, String);

struct Link {
    options: LinkOptions,
    /// End of the latest transmission.
    free_at: Moment,
}

/// One direction of a connection.
struct Pipe {
    direction: Direction,
    /// Data in flight or arrived: each chunk with its arrival time.
    pieces: VecDeque<(Moment, Vec<u8>)>,
    bytes: usize,
    is_finished: bool,
    is_broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn is_between(&self, one: &str, other: &str) -> bool {
        let (from, to) = &self.direction;
        (from == one && to == other) || (from == other && to == one)
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

fn direction(from: &str, to: &str) -> Direction {
    (from.to_owned(), to.to_owned())
}

impl SimNetwork {
    pub(super) fn new(executor: Rc<Executor>, seed: u64, options: NetworkOptions) -> Self {
        let state = State {
            random: Random::new(seed, "network"),
            listeners: BTreeMap::new(),
            cut: BTreeSet::new(),
            links: BTreeMap::new(),
            pipes: Vec::new(),
            port_next: 49152,
        };
        Self(Rc::new(Inner { executor, options, state: RefCell::new(state) }))
    }

    /// The network stack of host `name`.
    pub fn host(&self, name: &str) -> Rc<dyn Network> {
        Rc::new(SimHost { inner: Rc::clone(&self.0), name: name.to_owned() })
    }

    /// True if both are clones of one network.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Sets latency and rate of data from one host to another.
    pub fn set_link(&self, from: &str, to: &str, options: LinkOptions) {
        let link = Link { options, free_at: Moment(0) };
        self.0.state.borrow_mut().links.insert(direction(from, to), link);
    }

    /// Cuts the link between two hosts until [`SimNetwork::restore`].
    pub fn cut(&self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Cuts one direction of a link until [`SimNetwork::restore`]; data in the other direction arrives.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.0.state.borrow_mut().cut.insert(direction(from, to));
    }

    /// Restores both directions of a link; delayed data arrives.
    pub fn restore(&self, one: &str, other: &str) {
        {
            let mut state = self.0.state.borrow_mut();
            state.cut.remove(&direction(one, other));
            state.cut.remove(&direction(other, one));
        }
        self.for_pipes(|pipe| pipe.is_between(one, other), |_| ());
    }

    /// Breaks all connections between two hosts.
    pub fn reset(&self, one: &str, other: &str) {
        self.for_pipes(|pipe| pipe.is_between(one, other), |pipe| pipe.is_broken = true);
    }

    /// Breaks all connections of a host.
    pub(super) fn reset_host(&self, name: &str) {
        let is_of_host = |pipe: &Pipe| pipe.direction.0 == name || pipe.direction.1 == name;
        self.for_pipes(is_of_host, |pipe| pipe.is_broken = true);
    }

    /// Applies `change` to the selected pipes and wakes their waiters.
    fn for_pipes(&self, is_selected: impl Fn(&Pipe) -> bool, change: impl Fn(&mut Pipe)) {
        let pipes: Vec<_> = {
            let mut state = self.0.state.borrow_mut();
            state.pipes.retain(|pipe| pipe.strong_count() > 0);
            state.pipes.iter().filter_map(Weak::upgrade).collect()
        };
        for pipe in pipes {
            let mut pipe = pipe.borrow_mut();
            if is_selected(&pipe) {
                change(&mut pipe);
                pipe.wake();
            }
        }
    }
}

impl Inner {
    fn draw_jitter(&self) -> Duration {
        let jitter = self.state.borrow_mut().random.below(self.options.jitter.as_nanos() as u64 + 1);
        Duration::from_nanos(jitter)
    }

    fn latency(&self, direction: &Direction) -> Duration {
        let state = self.state.borrow();
        state.links.get(direction).map_or(self.options.latency, |link| link.options.latency)
    }

    /// Arrival time of `bytes` sent now, which occupy the link for the time of their transmission.
    fn arrival(&self, direction: &Direction, bytes: usize, jitter: Duration) -> Moment {
        let now = self.executor.now();
        let mut sent = now;
        if let Some(link) = self.state.borrow_mut().links.get_mut(direction)
            && let Some(rate) = link.options.bytes_per_second
        {
            let nanos = bytes as u64 * 1_000_000_000 / rate;
            sent = link.free_at.max(now) + Duration::from_nanos(nanos);
            link.free_at = sent;
        }
        sent + self.latency(direction) + jitter
    }

    fn is_cut(&self, direction: &Direction) -> bool {
        self.state.borrow().cut.contains(direction)
    }

    /// Both ends of a new connection: that of `from`, then that of `to`.
    fn connect(self: &Rc<Self>, from: &str, to: &str) -> (SimStream, SimStream) {
        let pipe = |direction| {
            Rc::new(RefCell::new(Pipe {
                direction,
                pieces: VecDeque::new(),
                bytes: 0,
                is_finished: false,
                is_broken: false,
                reader: None,
                writer: None,
            }))
        };
        let (there, back) = (pipe(direction(from, to)), pipe(direction(to, from)));
        self.state.borrow_mut().pipes.extend([Rc::downgrade(&there), Rc::downgrade(&back)]);
        let end = |reads: &Rc<RefCell<Pipe>>, writes: &Rc<RefCell<Pipe>>| SimStream {
            inner: Rc::clone(self),
            reads: Rc::clone(reads),
            writes: Rc::clone(writes),
        };
        (end(&back, &there), end(&there, &back))
    }
}

struct SimHost {
    inner: Rc<Inner>,
    name: String,
}

impl Network for SimHost {
    fn listen(&self, at: &Address) -> LocalFuture<IoResult<Box<dyn Listener>>> {
        let listening = self.listen_now(at);
        Box::pin(async move { listening })
    }

    fn connect(&self, to: &Address) -> LocalFuture<IoResult<Stream>> {
        let (inner, name, to) = (Rc::clone(&self.inner), self.name.clone(), to.clone());
        Box::pin(async move {
            let host = match &to {
                Address::Tcp { host, .. } => host.clone(),
                Address::Unix(_) => name.clone(),
            };
            let directions = [direction(&name, &host), direction(&host, &name)];
            // One round trip; a cut link is retried, as the kernel does.
            loop {
                let latency = |way| inner.latency(way).max(Duration::from_micros(1));
                sleep(&inner.executor, directions.iter().map(latency).sum()).await;
                if !directions.iter().any(|way| inner.is_cut(way)) {
                    break;
                }
                sleep(&inner.executor, Duration::from_secs(1)).await;
            }
            let listener = inner.state.borrow().listeners.get(&to.to_string()).cloned();
            let (ours, theirs) = inner.connect(&name, &host);
            let user = matches!(to, Address::Unix(_)).then_some(0);
            let stream = Box::new(theirs);
            let accepted = IncomingConnection { stream, peer: name, local: to.clone(), user };
            match listener.map(|listener| listener.send(accepted)) {
                Some(Ok(())) => Ok(Box::new(ours) as Stream),
                _ => {
                    let story = format!("connecting to {to}: connection refused");
                    Err(IoError::new(IoErrorKind::Disconnected, story))
                }
            }
        })
    }
}

impl SimHost {
    fn listen_now(&self, at: &Address) -> IoResult<Box<dyn Listener>> {
        let mut state = self.inner.state.borrow_mut();
        let at = match at {
            Address::Tcp { port: 0, .. } => {
                state.port_next += 1;
                Address::Tcp { host: self.name.clone(), port: state.port_next }
            }
            Address::Tcp { port, .. } => Address::Tcp { host: self.name.clone(), port: *port },
            Address::Unix(path) => Address::Unix(path.clone()),
        };
        let is_taken = state.listeners.get(&at.to_string()).is_some_and(|listener| !listener.is_closed());
        if is_taken {
            return Err(IoError::new(IoErrorKind::Busy, format!("listening at {at}: address in use")));
        }
        let (send, receive) = mpsc::unbounded_channel();
        state.listeners.insert(at.to_string(), send);
        Ok(Box::new(SimListener { at, arrivals: Rc::new(tokio::sync::Mutex::new(receive)) }))
    }
}

fn sleep(executor: &Rc<Executor>, span: Duration) -> LocalFuture<()> {
    use crate::Clock;
    let clock = super::executor::SimClock::of_main(executor);
    clock.sleep_until(clock.now() + span)
}

struct SimListener {
    at: Address,
    arrivals: Rc<tokio::sync::Mutex<mpsc::UnboundedReceiver<IncomingConnection>>>,
}

impl Listener for SimListener {
    fn address(&self) -> Address {
        self.at.clone()
    }

    fn accept(&self) -> LocalFuture<IoResult<IncomingConnection>> {
        let (arrivals, at) = (Rc::clone(&self.arrivals), self.at.clone());
        Box::pin(async move {
            let next = arrivals.lock().await.recv().await;
            next.ok_or_else(|| {
                IoError::new(IoErrorKind::Disconnected, format!("accepting at {at}: it ended"))
            })
        })
    }
}

/// One end of a connection.
struct SimStream {
    inner: Rc<Inner>,
    reads: Rc<RefCell<Pipe>>,
    writes: Rc<RefCell<Pipe>>,
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.reads.borrow_mut();
        if pipe.is_broken {
            return Poll::Ready(Err(broken()));
        }
        let is_cut = self.inner.is_cut(&pipe.direction);
        let now = self.inner.executor.now();
        let mut has_read = false;
        while !is_cut && into.remaining() > 0 {
            let Some((_, piece)) = pipe.pieces.front_mut().filter(|(arrival, _)| *arrival <= now) else {
                break;
            };
            let count = piece.len().min(into.remaining());
            into.put_slice(&piece[..count]);
            piece.drain(..count);
            let is_empty = piece.is_empty();
            if is_empty {
                pipe.pieces.pop_front();
            }
            pipe.bytes -= count;
            has_read = true;
        }
        if has_read || into.remaining() == 0 {
            pipe.writer.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        if pipe.is_finished && pipe.pieces.is_empty() && !is_cut {
            return Poll::Ready(Ok(()));
        }
        pipe.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let resets = {
            let mut state = self.inner.state.borrow_mut();
            state.random.percent(self.inner.options.reset_percent)
        };
        if resets {
            self.break_off();
        }
        let jitter = self.inner.draw_jitter();
        let mut pipe = self.writes.borrow_mut();
        if pipe.is_broken || pipe.is_finished {
            return Poll::Ready(Err(broken()));
        }
        let count = bytes.len().min(WINDOW_BYTES - pipe.bytes);
        if count == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let arrival = self.inner.arrival(&pipe.direction, count, jitter);
        let arrival = pipe.pieces.back().map_or(arrival, |(last, _)| arrival.max(*last));
        pipe.pieces.push_back((arrival, bytes[..count].to_vec()));
        pipe.bytes += count;
        drop(pipe);
        self.wake_reader_at(arrival);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(if self.writes.borrow().is_broken { Err(broken()) } else { Ok(()) })
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl ByteStream for SimStream {
    /// All simulated threads are one.
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        Ok(DetachedStream::within_thread(self))
    }
}

impl SimStream {
    fn break_off(&self) {
        for pipe in [&self.reads, &self.writes] {
            let mut pipe = pipe.borrow_mut();
            pipe.is_broken = true;
            pipe.wake();
        }
    }

    /// The peer reads end-of-file behind the sent data.
    fn finish(&self) {
        let jitter = self.inner.draw_jitter();
        let arrival = {
            let mut pipe = self.writes.borrow_mut();
            pipe.is_finished = true;
            self.inner.arrival(&pipe.direction, 0, jitter)
        };
        self.wake_reader_at(arrival);
    }

    fn wake_reader_at(&self, arrival: Moment) {
        let pipe = Rc::downgrade(&self.writes);
        let after = Duration::from_nanos(arrival.0 - self.inner.executor.now().0);
        self.inner.executor.schedule(after, move || {
            let reader = pipe.upgrade().and_then(|pipe| pipe.borrow_mut().reader.take());
            reader.into_iter().for_each(Waker::wake);
        });
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.finish();
        // No one will read what arrives: the sender gets an error.
        let mut pipe = self.reads.borrow_mut();
        pipe.is_finished = true;
        pipe.pieces.clear();
        pipe.bytes = 0;
        pipe.wake();
    }
}
