//! Sockets that wait in the thread's ring.
//!
//! A waiting reader lets the ring receive the first of them into a small buffer: for a short message,
//! waiting and receiving are one operation, submitted and completed with all others of the thread. What does
//! not fit is received straight into the caller's memory by a call of its own, as are bytes that are there
//! already. Sending is a call of its own, too: the peer works while this thread goes on.

use super::{
    moving::{MovingSocket, SocketKind},
    replacing_stale,
};
use crate::{
    Address, IoError, IoResult, LocalFuture,
    network::{ByteStream, IncomingConnection, Listener, Stream, handover::DetachedStream},
    real::{
        Engine,
        plain::retry,
        ring::{ReceiveResult, Ring, Wait},
    },
};
use rustix::{
    event::{PollFlags, epoll},
    io::{Errno, ioctl_fionbio},
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
        SocketType, acceptfrom_with, addr::SocketAddrArg, connect, getsockname, listen, recv, sendmsg,
        shutdown, socket_with, sockopt,
    },
};
use std::{
    future::Future,
    io::{self, IoSlice},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::{fd::OwnedFd, unix::net::UnixListener},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that the ring receives for a waiting reader: a command with 4 KiB of data.
const FIRST_BYTES: usize = 8 << 10;

/// Connections that may wait to be accepted, as tokio's listeners have it.
const BACKLOG: i32 = 1024;

const READABLE: u32 = PollFlags::IN.bits() as u32;
const WRITABLE: u32 = PollFlags::OUT.bits() as u32;

/// A connection.
struct Socket {
    ring: Rc<Ring>,
    /// Without O_NONBLOCK, so that the ring waits; calls of its own say MSG_DONTWAIT.
    socket: Arc<OwnedFd>,
    kind: SocketKind,
    receive: Receive,
    /// True if the last receive took all there was.
    is_drained: bool,
    writable: Option<Wait<io::Result<()>>>,
}

/// The buffer of a waiting reader.
enum Receive {
    /// Received bytes from `start` to `end` are not yet read.
    Here {
        memory: Box<[u8]>,
        start: usize,
        end: usize,
    },
    UnderWay(Wait<ReceiveResult>),
}

impl Socket {
    fn new(ring: &Rc<Ring>, socket: Arc<OwnedFd>, kind: SocketKind) -> Self {
        let memory = vec![0; FIRST_BYTES].into_boxed_slice();
        Self {
            ring: Rc::clone(ring),
            socket,
            kind,
            receive: Receive::Here { memory, start: 0, end: 0 },
            is_drained: true,
            writable: None,
        }
    }

    /// Receives what is there; false if nothing is.
    fn receive_now(&mut self, into: &mut ReadBuf<'_>) -> io::Result<bool> {
        let room = into.initialize_unfilled();
        let wanted = room.len();
        match retry(|| recv(&*self.socket, &mut *room, RecvFlags::DONTWAIT)) {
            Ok((count, _)) => {
                self.is_drained = count < wanted;
                into.advance(count);
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.is_drained = true;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a wait: its bytes are here. `Ok(false)` at the end of the stream.
    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Receive::UnderWay(wait) = &mut self.receive else { return Poll::Ready(Ok(true)) };
        let (memory, received) = ready!(Pin::new(wait).poll(context));
        let end = received.as_ref().copied().unwrap_or(0);
        self.is_drained = end < memory.len();
        self.receive = Receive::Here { memory, start: 0, end };
        Poll::Ready(received.map(|count| count > 0))
    }

    /// Sends what the kernel takes now, or waits until it takes more.
    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(wait) = &mut self.writable {
                let ended = ready!(Pin::new(wait).poll(context));
                self.writable = None;
                ended?;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match retry(|| sendmsg(&*self.socket, slices, &mut SendAncillaryBuffer::default(), flags)) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::AGAIN) => self.writable = Some(self.ring.readiness(&self.socket, WRITABLE)),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if into.remaining() == 0 || !ready!(this.poll_arrival(context))? {
                return Poll::Ready(Ok(()));
            }
            let Receive::Here { memory, start, end } = &mut this.receive else { unreachable!("it arrived") };
            if start < end {
                let count = into.remaining().min(*end - *start);
                into.put_slice(&memory[*start..*start + count]);
                *start += count;
                return Poll::Ready(Ok(()));
            }
            if !this.is_drained && this.receive_now(into)? {
                return Poll::Ready(Ok(()));
            }
            let Receive::Here { memory, .. } = &mut this.receive else { unreachable!("it is here") };
            let memory = std::mem::take(memory);
            this.receive = Receive::UnderWay(this.ring.receive(&this.socket, memory));
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(from)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        /// The kernel's limit (UIO_MAXIOV).
        const SLICES_MAX: usize = 1024;
        self.poll_send(context, &from[..from.len().min(SLICES_MAX)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(&*self.socket, Shutdown::Write) {
            // The peer has closed the connection already.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl ByteStream for Socket {
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        let Receive::Here { memory, start, end } = self.receive else {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "a read of the stream is under way"));
        };
        // An operation of the ring that was cancelled may hold the socket still.
        let socket = Arc::try_unwrap(self.socket).or_else(|shared| shared.try_clone())?;
        let received = memory[start..end].to_vec();
        Ok(DetachedStream::new(MovingSocket { socket, kind: self.kind }, received))
    }
}

/// A socket that comes from another thread.
pub(super) fn adopted(ring: &Rc<Ring>, moving: MovingSocket) -> io::Result<Stream> {
    let MovingSocket { socket, kind } = moving;
    ioctl_fionbio(&socket, false)?;
    let mut adopted = Socket::new(ring, Arc::new(socket), kind);
    // Bytes may have arrived that nobody has asked for.
    adopted.is_drained = false;
    Ok(Box::new(adopted))
}

/// Binds a listener.
pub(super) async fn listen_at(ring: Rc<Ring>, at: &Address) -> io::Result<Box<dyn Listener>> {
    let (socket, at) = match at {
        Address::Tcp { host, port } => {
            let asked = (host.clone(), *port);
            // A name has to be resolved, which may take long.
            let bind = move || TcpListener::bind((asked.0.as_str(), asked.1));
            let listener = Engine::current().blocking(bind).await?;
            let port = listener.local_addr()?.port();
            (OwnedFd::from(listener), Address::Tcp { host: host.clone(), port })
        }
        Address::Unix(path) => {
            let listener = replacing_stale(path, || UnixListener::bind(path))?;
            (OwnedFd::from(listener), at.clone())
        }
    };
    ioctl_fionbio(&socket, true)?;
    listen(&socket, BACKLOG)?;
    let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&arrivals, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(Box::new(Acceptor { ring, socket: Arc::new(socket), arrivals: Arc::new(arrivals), at }))
}

/// Connects to a listener.
pub(super) async fn connect_to(ring: Rc<Ring>, to: &Address) -> io::Result<Stream> {
    match to {
        Address::Tcp { host, port } => {
            let asked = (host.clone(), *port);
            let resolve = move || (asked.0.as_str(), asked.1).to_socket_addrs().map(Vec::from_iter);
            let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
            for address in Engine::current().blocking(resolve).await? {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                outcome = connected(&ring, family, &address).await;
                if outcome.is_ok() {
                    break;
                }
            }
            let socket = outcome?;
            // Requests and replies are small and latency matters.
            sockopt::set_tcp_nodelay(&socket, true)?;
            Ok(Box::new(Socket::new(&ring, socket, SocketKind::Tcp)))
        }
        Address::Unix(path) => {
            let address = SocketAddrUnix::new(path)?;
            let socket = connected(&ring, AddressFamily::UNIX, &address).await?;
            Ok(Box::new(Socket::new(&ring, socket, SocketKind::Unix)))
        }
    }
}

async fn connected(
    ring: &Rc<Ring>,
    family: AddressFamily,
    address: &impl SocketAddrArg,
) -> io::Result<Arc<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = Arc::new(socket_with(family, SocketType::STREAM, flags, None)?);
    match connect(&*socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            ring.readiness(&socket, WRITABLE).await?;
            sockopt::socket_error(&*socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    ioctl_fionbio(&*socket, false)?;
    Ok(socket)
}

/// A listener; its socket has O_NONBLOCK.
///
/// The ring waits for `arrivals`, an epoll instance that watches the socket, never for the socket itself: when
/// a process is killed the kernel gives up what its rings hold later than its descriptors, and the next
/// program would find the address in use.
struct Acceptor {
    ring: Rc<Ring>,
    socket: Arc<OwnedFd>,
    arrivals: Arc<OwnedFd>,
    at: Address,
}

impl Listener for Acceptor {
    fn address(&self) -> Address {
        self.at.clone()
    }

    fn accept(&self) -> LocalFuture<IoResult<IncomingConnection>> {
        let (ring, at) = (Rc::clone(&self.ring), self.at.clone());
        let (listening, arrivals) = (Arc::clone(&self.socket), Arc::clone(&self.arrivals));
        Box::pin(async move {
            let accepted = accepted(&ring, (&listening, &arrivals), &at).await;
            accepted.map_err(|error| IoError::from_os(error, format!("accepting at {at}")))
        })
    }
}

async fn accepted(
    ring: &Rc<Ring>,
    (listening, arrivals): (&OwnedFd, &Arc<OwnedFd>),
    at: &Address,
) -> io::Result<IncomingConnection> {
    let (socket, peer) = loop {
        match retry(|| acceptfrom_with(listening, SocketFlags::CLOEXEC)) {
            Err(Errno::AGAIN) => ring.readiness(arrivals, READABLE).await?,
            accepted => break accepted?,
        }
    };
    let (peer, local, user) = match at {
        Address::Tcp { .. } => {
            sockopt::set_tcp_nodelay(&socket, true)?;
            let peer = peer.map(SocketAddr::try_from).transpose()?;
            let local = SocketAddr::try_from(getsockname(&socket)?)?;
            let local = Address::Tcp { host: local.ip().to_string(), port: local.port() };
            (peer.map_or_else(String::new, |peer| peer.to_string()), local, None)
        }
        Address::Unix(_) => {
            let user = sockopt::socket_peercred(&socket)?.uid.as_raw();
            (at.to_string(), at.clone(), Some(user))
        }
    };
    let kind = match at {
        Address::Tcp { .. } => SocketKind::Tcp,
        Address::Unix(_) => SocketKind::Unix,
    };
    let stream = Box::new(Socket::new(ring, Arc::new(socket), kind));
    Ok(IncomingConnection { stream, peer, local, user })
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.at {
            // The stale name would make the next listener fail.
            let _ = std::fs::remove_file(path);
        }
    }
}
