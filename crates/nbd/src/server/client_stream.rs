//! The connection of a client in the handshake, in the clear or encrypted, which may move to another thread.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tls::{EncryptedStream, ServerTls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use world::{Stream, World, network::handover::MovableStream};

pub(super) enum ClientStream {
    Plain(MovableStream),
    /// TLS keeps its keys and its buffers while the connection below it moves.
    Encrypted(Box<TlsStream<MovableStream>>),
}

impl ClientStream {
    pub fn new(stream: Stream) -> Self {
        Self::Plain(MovableStream::new(stream))
    }

    /// Performs the handshake of TLS.
    ///
    /// # Panics
    ///
    /// If it is encrypted.
    pub async fn encrypt(self, world: &World, tls: &ServerTls) -> io::Result<Self> {
        let Self::Plain(stream) = self else { panic!("a connection is encrypted once") };
        Ok(Self::Encrypted(Box::new(tls.accept(world, stream).await?)))
    }

    fn connection(&mut self) -> &mut MovableStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(stream) => stream.get_mut().0,
        }
    }

    /// Takes it off this thread.
    ///
    /// # Errors
    ///
    /// It cannot leave; it is closed.
    pub fn detach(&mut self) -> io::Result<()> {
        self.connection().detach()
    }

    /// Makes it a connection of this thread.
    ///
    /// # Errors
    ///
    /// The kernel refused; it is closed.
    pub fn adopt(&mut self) -> io::Result<()> {
        self.connection().adopt()
    }

    /// The connection for the transmission phase, on this thread.
    pub fn into_stream(self) -> Stream {
        match self {
            Self::Plain(stream) => stream.into_stream(),
            Self::Encrypted(stream) => Box::new(EncryptedStream(*stream)),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
