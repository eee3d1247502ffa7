//! TCP and Unix sockets of this host.

use crate::{
    IoError, IoResult, LocalFuture,
    network::{Address, IncomingConnection, Listener, Network, Stream},
};
use std::{
    io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    rc::Rc,
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The real network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Network for Sockets {
    fn listen(&self, at: &Address) -> LocalFuture<IoResult<Box<dyn Listener>>> {
        let at = at.clone();
        Box::pin(async move {
            let failed = |error| IoError::from_os(error, format!("listening at {at}"));
            let listener: Box<dyn Listener> = match &at {
                Address::Tcp { host, port } => {
                    let listener = TcpListener::bind((host.as_str(), *port)).await.map_err(failed)?;
                    let port = listener.local_addr().map_err(failed)?.port();
                    Box::new(Tcp { listener: listener.into(), at: Address::Tcp { host: host.clone(), port } })
                }
                Address::Unix(path) => {
                    let listener = match UnixListener::bind(path) {
                        Err(error)
                            if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path).await =>
                        {
                            std::fs::remove_file(path).and_then(|()| UnixListener::bind(path))
                        }
                        bound => bound,
                    };
                    let listener = listener.map_err(failed)?;
                    Box::new(Unix { listener: listener.into(), path: path.clone() })
                }
            };
            Ok(listener)
        })
    }

    fn connect(&self, to: &Address) -> LocalFuture<IoResult<Stream>> {
        let to = to.clone();
        Box::pin(async move {
            let connected: io::Result<Stream> = match &to {
                Address::Tcp { host, port } => {
                    connect_tcp(host, *port).await.map(|stream| Box::new(stream) as _)
                }
                Address::Unix(path) => UnixStream::connect(path).await.map(|stream| Box::new(stream) as _),
            };
            connected.map_err(|error| IoError::from_os(error, format!("connecting to {to}")))
        })
    }
}

/// True for a stale socket file: its listener was killed.
async fn is_left_behind(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let connected = UnixStream::connect(path).await;
    is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
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
            Ok(IncomingConnection { stream: Box::new(stream), peer: peer.to_string(), local })
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
            let (stream, _) =
                accepted.map_err(|error| IoError::from_os(error, format!("accepting at {at}")))?;
            Ok(IncomingConnection { stream: Box::new(stream), peer: at.to_string(), local: at })
        })
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        // The stale name would make the next listener fail.
        let _ = std::fs::remove_file(&self.path);
    }
}
