//! Sockets without io_uring: tokio's, which wait in epoll.

use super::{
    moving::{MovingSocket, SocketKind},
    replacing_stale,
};
use crate::{
    IoError, IoResult, LocalFuture,
    network::{Address, ByteStream, IncomingConnection, Listener, Stream, handover::DetachedStream},
};
use std::{io, os::fd::OwnedFd, path::PathBuf, rc::Rc};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Binds a listener.
pub(super) async fn listen_at(at: &Address) -> io::Result<Box<dyn Listener>> {
    Ok(match at {
        Address::Tcp { host, port } => {
            let listener = TcpListener::bind((host.as_str(), *port)).await?;
            let port = listener.local_addr()?.port();
            Box::new(Tcp { listener: listener.into(), at: Address::Tcp { host: host.clone(), port } })
        }
        Address::Unix(path) => {
            let listener = replacing_stale(path, || UnixListener::bind(path))?;
            Box::new(Unix { listener: listener.into(), path: path.clone() })
        }
    })
}

/// Connects to a listener.
pub(super) async fn connect_to(to: &Address) -> io::Result<Stream> {
    Ok(match to {
        Address::Tcp { host, port } => Box::new(connect_tcp(host, *port).await?),
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests and replies are small and latency matters.
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Tcp {
    listener: Rc<TcpListener>,
    at: Address,
}

impl Listener for Tcp {
    fn address(&self) -> Address {
        self.at.clone()
    }

    fn accept(&self) -> LocalFuture<IoResult<IncomingConnection>> {
        let (listener, at) = (Rc::clone(&self.listener), self.at.clone());
        Box::pin(async move {
            let failed = |error| IoError::from_os(error, format!("accepting at {at}"));
            let (stream, peer) = listener.accept().await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let local = stream.local_addr().map_err(failed)?;
            let local = Address::Tcp { host: local.ip().to_string(), port: local.port() };
            Ok(IncomingConnection { stream: Box::new(stream), peer: peer.to_string(), local, user: None })
        })
    }
}

struct Unix {
    listener: Rc<UnixListener>,
    path: PathBuf,
}

impl Listener for Unix {
    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    fn accept(&self) -> LocalFuture<IoResult<IncomingConnection>> {
        let (listener, at) = (Rc::clone(&self.listener), self.address());
        Box::pin(async move {
            let accepted = listener.accept().await;
            let failed = |error| IoError::from_os(error, format!("accepting at {at}"));
            let (stream, _) = accepted.map_err(failed)?;
            let user = Some(stream.peer_cred().map_err(failed)?.uid());
            Ok(IncomingConnection { stream: Box::new(stream), peer: at.to_string(), local: at, user })
        })
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        // The stale name would make the next listener fail.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ByteStream for TcpStream {
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        let socket = OwnedFd::from(self.into_std()?);
        Ok(DetachedStream::new(MovingSocket { socket, kind: SocketKind::Tcp }, Vec::new()))
    }
}

impl ByteStream for UnixStream {
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        let socket = OwnedFd::from(self.into_std()?);
        Ok(DetachedStream::new(MovingSocket { socket, kind: SocketKind::Unix }, Vec::new()))
    }
}

/// A socket that comes from another thread.
pub(super) fn adopted(moving: MovingSocket) -> io::Result<Stream> {
    let MovingSocket { socket, kind } = moving;
    Ok(match kind {
        SocketKind::Tcp => {
            let stream = std::net::TcpStream::from(socket);
            stream.set_nonblocking(true)?;
            Box::new(TcpStream::from_std(stream)?)
        }
        SocketKind::Unix => {
            let stream = std::os::unix::net::UnixStream::from(socket);
            stream.set_nonblocking(true)?;
            Box::new(UnixStream::from_std(stream)?)
        }
    })
}
