//! Connections that move from one thread to another.
//!
//! A stream belongs to one thread, whose ring or epoll instance waits for it. [`ByteStream::detach`]
//! takes it off that thread between two reads, and [`DetachedStream::adopt`] gives it to the thread that calls it. A
//! [`MovableStream`] does both in its place, for a stream inside another one: TLS keeps its state while the connection below it
//! moves.
//!
//! Invariants:
//!
//! 1. Bytes that had arrived before the move are read after it, in order and once.
//! 2. A stream that is polled belongs to the thread that polls it; anything else is a panic.

use super::{ByteStream, Stream};
use fragile::Fragile;
use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on its way to another thread. Dropping it closes it.
pub struct DetachedStream {
    connection: Box<dyn Adopt>,
    /// Bytes that were received and not read.
    received: Vec<u8>,
}

/// A connection without a thread.
pub(crate) trait Adopt: Send {
    fn adopt(self: Box<Self>) -> io::Result<Stream>;
}

impl DetachedStream {
    pub(crate) fn new(connection: impl Adopt + 'static, received: Vec<u8>) -> Self {
        Self { connection: Box::new(connection), received }
    }

    /// A stream whose world has one thread only.
    pub(crate) fn within_thread(stream: Stream) -> Self {
        Self::new(Fragile::new(stream), Vec::new())
    }

    /// The stream, on this thread from now on.
    ///
    /// # Errors
    ///
    /// The kernel refused to set it up, or this thread is in no world.
    pub fn adopt(self) -> io::Result<Stream> {
        let Self { connection, received } = self;
        let stream = connection.adopt()?;
        Ok(if received.is_empty() { stream } else { Box::new(ReceivedStream { received, at: 0, stream }) })
    }
}

impl fmt::Debug for DetachedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedStream")
    }
}

impl Adopt for Fragile<Stream> {
    fn adopt(self: Box<Self>) -> io::Result<Stream> {
        (*self).try_into_inner().map_err(|_| io::Error::other("a simulated stream has left its thread"))
    }
}

/// A stream behind bytes that another thread has received from it.
struct ReceivedStream {
    received: Vec<u8>,
    /// Bytes of `received` that were read.
    at: usize,
    stream: Stream,
}

impl ByteStream for ReceivedStream {
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        let mut detached = self.stream.detach()?;
        detached.received.splice(..0, self.received[self.at..].iter().copied());
        Ok(detached)
    }
}

impl AsyncRead for ReceivedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let rest = &this.received[this.at..];
        if rest.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, into);
        }
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        this.at += count;
        Poll::Ready(Ok(()))
    }
}

/// A stream that can be sent to another thread while it is detached.
pub struct MovableStream(Position);

enum Position {
    Attached(Fragile<Stream>),
    Detached(DetachedStream),
    /// A move has failed.
    Lost,
}

impl MovableStream {
    pub fn new(stream: Stream) -> Self {
        Self(Position::Attached(Fragile::new(stream)))
    }

    /// Takes it off this thread; nothing reads or writes it until it is adopted.
    ///
    /// # Errors
    ///
    /// As [`ByteStream::detach`]; the stream is closed.
    pub fn detach(&mut self) -> io::Result<()> {
        let stream = match std::mem::replace(&mut self.0, Position::Lost) {
            Position::Attached(stream) => stream.into_inner(),
            Position::Detached(_) | Position::Lost => panic!("a stream is detached from the thread it is on"),
        };
        self.0 = Position::Detached(stream.detach()?);
        Ok(())
    }

    /// Makes it a stream of this thread.
    ///
    /// # Errors
    ///
    /// As [`DetachedStream::adopt`]; the stream is closed.
    pub fn adopt(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Position::Lost) {
            Position::Detached(stream) => *self = Self::new(stream.adopt()?),
            Position::Attached(_) | Position::Lost => panic!("a stream is adopted after it was detached"),
        }
        Ok(())
    }

    /// The stream, for good on this thread.
    pub fn into_stream(self) -> Stream {
        match self.0 {
            Position::Attached(stream) => stream.into_inner(),
            Position::Detached(_) | Position::Lost => panic!("a stream is used on the thread it is on"),
        }
    }
}

/// A stream around another one, which takes what is written as it is.
trait Around {
    fn inner(&mut self) -> Pin<&mut Stream>;
}

impl Around for ReceivedStream {
    fn inner(&mut self) -> Pin<&mut Stream> {
        Pin::new(&mut self.stream)
    }
}

impl Around for MovableStream {
    fn inner(&mut self) -> Pin<&mut Stream> {
        match &mut self.0 {
            Position::Attached(stream) => Pin::new(stream.get_mut()),
            Position::Detached(_) | Position::Lost => panic!("a stream is used on the thread it is on"),
        }
    }
}

macro_rules! write_to_inner {
    ($($outer:ty),*) => {$(
        impl AsyncWrite for $outer {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().inner().poll_write(context, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().inner().poll_write_vectored(context, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().inner().poll_flush(context)
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().inner().poll_shutdown(context)
            }
        }
    )*};
}

write_to_inner!(ReceivedStream, MovableStream);

impl AsyncRead for MovableStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().inner().poll_read(context, into)
    }
}
