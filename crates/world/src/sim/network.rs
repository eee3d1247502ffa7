//! A simulated network: named hosts, streams with latency, links that are cut and restored, connections that
//! break.
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
    network::{Address, IncomingConnection, Listener, Network, Stream},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
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
    /// Cut links, the lesser name first.
    cut: BTreeSet<(String, String)>,
    /// Directions of all connections; closed ones are removed now and then.
    pipes: Vec<Weak<RefCell<Pipe>>>,
    port_next: u16,
}

/// One direction of a connection.
struct Pipe {
    link: (String, String),
    /// Data in flight or arrived: each chunk with its arrival time.
    pieces: VecDeque<(Moment, Vec<u8>)>,
    bytes: usize,
    is_finished: bool,
    is_broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

fn link(one: &str, other: &str) -> (String, String) {
    let (less, greater) = if one <= other { (one, other) } else { (other, one) };
    (less.to_owned(), greater.to_owned())
}

impl SimNetwork {
    pub(super) fn new(executor: Rc<Executor>, seed: u64, options: NetworkOptions) -> Self {
        let state = State {
            random: Random::new(seed, "network"),
            listeners: BTreeMap::new(),
            cut: BTreeSet::new(),
            pipes: Vec::new(),
            port_next: 49152,
        };
        Self(Rc::new(Inner { executor, options, state: RefCell::new(state) }))
    }

    /// The network stack of host `name`.
    pub fn host(&self, name: &str) -> Rc<dyn Network> {
        Rc::new(SimHost { inner: Rc::clone(&self.0), name: name.to_owned() })
    }

    /// Cuts the link between two hosts until [`SimNetwork::restore`].
    pub fn cut(&self, one: &str, other: &str) {
        self.0.state.borrow_mut().cut.insert(link(one, other));
    }

    /// Restores a cut link; delayed data arrives.
    pub fn restore(&self, one: &str, other: &str) {
        let link = link(one, other);
        self.0.state.borrow_mut().cut.remove(&link);
        self.for_pipes(&link, |_| ());
    }

    /// Breaks all connections between two hosts.
    pub fn reset(&self, one: &str, other: &str) {
        self.for_pipes(&link(one, other), |pipe| pipe.is_broken = true);
    }

    /// Applies `change` to the pipes of a link and wakes their waiters.
    fn for_pipes(&self, link: &(String, String), change: impl Fn(&mut Pipe)) {
        let pipes: Vec<_> = {
            let mut state = self.0.state.borrow_mut();
            state.pipes.retain(|pipe| pipe.strong_count() > 0);
            state.pipes.iter().filter_map(Weak::upgrade).collect()
        };
        for pipe in pipes {
            let mut pipe = pipe.borrow_mut();
            if &pipe.link == link {
                change(&mut pipe);
                pipe.wake();
            }
        }
    }
}

impl Inner {
    /// Arrival time of data sent now.
    fn arrival(&self) -> Moment {
        let jitter = self.state.borrow_mut().random.below(self.options.jitter.as_nanos() as u64 + 1);
        self.executor.now() + self.options.latency + Duration::from_nanos(jitter)
    }

    fn is_cut(&self, link: &(String, String)) -> bool {
        self.state.borrow().cut.contains(link)
    }

    /// Both ends of a new connection.
    fn connect(self: &Rc<Self>, link: &(String, String)) -> (SimStream, SimStream) {
        let pipe = || {
            Rc::new(RefCell::new(Pipe {
                link: link.clone(),
                pieces: VecDeque::new(),
                bytes: 0,
                is_finished: false,
                is_broken: false,
                reader: None,
                writer: None,
            }))
        };
        let (there, back) = (pipe(), pipe());
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
            let link = link(&name, &host);
            // One round trip; a cut link is retried, as the kernel does.
            loop {
                let round_trip = 2 * inner.options.latency.max(Duration::from_micros(1));
                sleep(&inner.executor, round_trip).await;
                if !inner.is_cut(&link) {
                    break;
                }
                sleep(&inner.executor, Duration::from_secs(1)).await;
            }
            let listener = inner.state.borrow().listeners.get(&to.to_string()).cloned();
            let (ours, theirs) = inner.connect(&link);
            let accepted = IncomingConnection { stream: Box::new(theirs), peer: name, local: to.clone() };
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
    let clock = super::executor::SimClock(Rc::clone(executor));
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
        let is_cut = self.inner.is_cut(&pipe.link);
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
        let arrival = self.inner.arrival();
        let mut pipe = self.writes.borrow_mut();
        if pipe.is_broken || pipe.is_finished {
            return Poll::Ready(Err(broken()));
        }
        let count = bytes.len().min(WINDOW_BYTES - pipe.bytes);
        if count == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
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
        self.writes.borrow_mut().is_finished = true;
        let arrival = self.inner.arrival();
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
