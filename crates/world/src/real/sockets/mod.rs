//! TCP and Unix sockets of this host.

mod moving;
mod ring;
mod tokio;

use super::Engine;
use crate::{
    IoError, IoResult, LocalFuture,
    network::{Address, Listener, Network, Stream},
};
use std::{
    io,
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::Path,
};

/// The real network: sockets wait in the thread's ring, or in epoll where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Network for Sockets {
    fn listen(&self, at: &Address) -> LocalFuture<IoResult<Box<dyn Listener>>> {
        let at = at.clone();
        Box::pin(async move {
            let bound = match Engine::current().ring() {
                Some(ring) => ring::listen_at(ring, &at).await,
                None => tokio::listen_at(&at).await,
            };
            bound.map_err(|error| IoError::from_os(error, format!("listening at {at}")))
        })
    }

    fn connect(&self, to: &Address) -> LocalFuture<IoResult<Stream>> {
        let to = to.clone();
        Box::pin(async move {
            let connected = match Engine::current().ring() {
                Some(ring) => ring::connect_to(ring, &to).await,
                None => tokio::connect_to(&to).await,
            };
            connected.map_err(|error| IoError::from_os(error, format!("connecting to {to}")))
        })
    }
}

/// Binds a listener to a path, in place of the socket that a killed one has left there.
fn replacing_stale<L>(path: &Path, bind: impl Fn() -> io::Result<L>) -> io::Result<L> {
    match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            std::fs::remove_file(path).and_then(|()| bind())
        }
        bound => bound,
    }
}

/// True for the socket of a listener that was killed.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let connected = UnixStream::connect(path);
    is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
