//! Sockets on their way from one thread to another: descriptors without a ring or an epoll instance.

use super::{ring, tokio};
use crate::{
    network::{Stream, handover::Adopt},
    real::Engine,
};
use std::{io, os::fd::OwnedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketKind {
    Tcp,
    Unix,
}

/// A socket that no thread waits for.
pub(super) struct MovingSocket {
    pub socket: OwnedFd,
    pub kind: SocketKind,
}

impl Adopt for MovingSocket {
    fn adopt(self: Box<Self>) -> io::Result<Stream> {
        match Engine::current().ring() {
            Some(ring) => ring::adopted(&ring, *self),
            None => tokio::adopted(*self),
        }
    }
}
