//! Byte streams between hosts: addresses, listeners and connections.
//!
//! A [`Stream`] has TCP's guarantees: bytes arrive in the order in which they were sent, or not at all. It is
//! tokio's pair of traits, so code written against those (TLS, buffering) works in both worlds.

pub mod address_ring;
pub mod handover;
pub mod receiver;
pub mod reconnecting;

use crate::{IoError, IoErrorKind, IoResult, LocalFuture, World};
use handover::DetachedStream;
use std::{
    fmt,
    io::{self, IoSlice},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// An address a listener binds to and a client connects to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// Host and port; port 0 lets the listener pick a free one.
    Tcp {
        /// A name or an IP address: `127.0.0.1`, `::1`, `mail.example.org`.
        host: String,
        port: u16,
    },
    /// A socket in the filesystem.
    Unix(PathBuf),
}

impl Address {
    /// Parses `HOST:PORT`, `[HOST]:PORT`, `HOST` or `unix:PATH`.
    ///
    /// # Errors
    ///
    /// One line that names the mistake and the accepted forms.
    pub fn parse(text: &str, default_port: u16) -> IoResult<Self> {
        let refuse = |why: &str| {
            let story = format!("{text:?} is no address: {why}; say HOST:PORT or unix:PATH");
            Err(IoError::new(IoErrorKind::WrongType, story))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { refuse("it has no path") } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, rest)) if rest.starts_with(':') => (host, Some(&rest[1..])),
                _ => return refuse("a bracket is not closed"),
            },
            // Several colons without brackets: an IPv6 address without a port.
            None if text.matches(':').count() > 1 => (text, None),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return refuse("it names no host");
        }
        match port.map_or(Ok(default_port), u16::from_str) {
            Ok(port) => Ok(Self::Tcp { host: host.to_owned(), port }),
            Err(_) => refuse("a port is a number from 0 to 65535"),
        }
    }

    /// True of the wildcard addresses (`0.0.0.0`, `::`): a listener accepts on every address of the host, but
    /// a client cannot connect to them.
    pub fn is_any(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp { host, .. } => {
                host.parse::<std::net::IpAddr>().is_ok_and(|number| number.is_unspecified())
            }
        }
    }

    /// True if only this machine can reach it: loopback and Unix sockets.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                let number = host.parse::<std::net::IpAddr>();
                host == "localhost" || number.is_ok_and(|number| number.is_loopback())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {
    /// Takes the stream off this thread, with the bytes that have arrived and were not read, so that another thread can adopt
    /// it. No read may be under way.
    ///
    /// # Errors
    ///
    /// The stream cannot leave its thread, or a read is under way; it is closed.
    fn detach(self: Box<Self>) -> io::Result<DetachedStream> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this stream stays on its thread"))
    }
}

/// A connection. Dropping it closes it.
pub type Stream = Box<dyn ByteStream>;

/// A connection that a listener accepted.
pub struct IncomingConnection {
    pub stream: Stream,
    /// The client's address, for messages: `127.0.0.1:40112`.
    pub peer: String,
    /// The local address of the connection. With a wildcard listener ([`Address::is_any`]) it is the address
    /// the client used.
    pub local: Address,
    /// User of the process at the other end of a Unix socket.
    pub user: Option<u32>,
}

/// A listening socket. Dropping it stops listening; accepted connections continue.
pub trait Listener {
    /// The bound address, with the port the host picked if port 0 was requested.
    fn address(&self) -> Address;

    /// Accepts the next connection. An error concerns that connection only: call again.
    fn accept(&self) -> LocalFuture<IoResult<IncomingConnection>>;
}

/// A host's network stack.
pub trait Network {
    fn listen(&self, at: &Address) -> LocalFuture<IoResult<Box<dyn Listener>>>;

    /// Connects to the listener at `to`. The caller limits the time.
    fn connect(&self, to: &Address) -> LocalFuture<IoResult<Stream>>;
}

/// Accepts connections until one succeeds, and passes the errors of the others to `tell`.
pub async fn accept_next(
    world: &World,
    listener: &dyn Listener,
    tell: impl Fn(IoError),
) -> IncomingConnection {
    /// Delay after an error; usually the process is out of descriptors, and that passes.
    const RETRY_DELAY: Duration = Duration::from_millis(100);
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tell(error);
                world.sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Sends all of `pieces` in order with as few calls as possible.
///
/// # Errors
///
/// The connection broke.
pub async fn write_slices(
    writer: &mut (impl AsyncWrite + Unpin),
    mut slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    while !slices.is_empty() {
        let count = writer.write_vectored(slices).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, count);
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_read_and_print() {
        for (text, address, printed) in [
            ("127.0.0.1:3260", tcp("127.0.0.1", 3260), "127.0.0.1:3260"),
            ("mail", tcp("mail", 10809), "mail:10809"),
            ("[::1]:0", tcp("::1", 0), "[::1]:0"),
            ("[::1]", tcp("::1", 10809), "[::1]:10809"),
            ("fe80::1", tcp("fe80::1", 10809), "[fe80::1]:10809"),
            ("unix:/run/s.sock", Address::Unix("/run/s.sock".into()), "unix:/run/s.sock"),
        ] {
            let read = Address::parse(text, 10809).unwrap();
            assert_eq!((&read, read.to_string().as_str()), (&address, printed));
            assert_eq!(Address::parse(printed, 1).unwrap(), address, "what is printed reads back");
        }
    }

    #[test]
    fn a_malformed_address_is_refused_in_one_line() {
        for text in ["", ":80", "host:", "host:70000", "[::1", "[::1]x", "unix:"] {
            let refused = Address::parse(text, 1).expect_err(text);
            assert!(refused.to_string().contains("say HOST:PORT or unix:PATH"), "{refused}");
        }
    }

    #[test]
    fn loopback_is_local_and_nothing_else() {
        for (text, is_local) in [("localhost", true), ("127.0.0.9", true), ("::1", true), ("unix:/s", true)]
            .into_iter()
            .chain([("0.0.0.0", false), ("::", false), ("10.0.0.1", false), ("mail", false)])
        {
            assert_eq!(Address::parse(text, 1).unwrap().is_local(), is_local, "{text}");
        }
    }

    #[test]
    fn a_wildcard_address_is_recognised() {
        for (text, is_any) in [("0.0.0.0", true), ("[::]:80", true), ("127.0.0.1", false), ("mail", false)] {
            assert_eq!(Address::parse(text, 1).unwrap().is_any(), is_any, "{text}");
        }
    }
}
