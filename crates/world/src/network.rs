//! Streams of bytes between hosts: who listens where, and who connects.
//!
//! A [`Stream`] is what TCP gives: bytes come in the order in which they were sent, or not at all. It is tokio's pair
//! of traits, so that whatever is written against those (TLS, buffering) works in both worlds.

pub mod receiver;
pub mod reconnecting;

use crate::{IoError, IoErrorKind, IoResult, LocalFuture, World};
use std::{
    fmt,
    io::{self, IoSlice},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Where someone listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A name or number of a host, and a port; port 0 is any that is free.
    Tcp {
        /// `127.0.0.1`, `::1`, `mail.example.org`.
        host: String,
        /// Of that host.
        port: u16,
    },
    /// A socket in the filesystem.
    Unix(PathBuf),
}

impl Address {
    /// An address from `HOST:PORT`, `[HOST]:PORT`, `HOST` or `unix:PATH`.
    ///
    /// # Errors
    ///
    /// What it should have been, in a line.
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
            // Several colons without brackets: a number of IPv6, and nothing else.
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

    /// Whether it means every address of this host (`0.0.0.0`, `::`): nobody else can connect to it by that name.
    pub fn is_any(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp { host, .. } => {
                host.parse::<std::net::IpAddr>().is_ok_and(|number| number.is_unspecified())
            }
        }
    }

    /// Whether only this machine reaches it.
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

/// What bytes go through, both ways at once.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A connection. Dropping it closes it.
pub type Stream = Box<dyn ByteStream>;

/// A connection that came in.
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// Who connected, for people: `127.0.0.1:40112`.
    pub peer: String,
    /// Where they connected to: of a listener at every address of this host ([`Address::is_any`]), the one they used.
    pub local: Address,
}

/// Someone who listens. Dropping it ends that; connections that were accepted go on.
pub trait Listener {
    /// Where: with the port that was free, if any was asked for.
    fn address(&self) -> Address;

    /// The next connection. An error concerns that one alone: ask again.
    fn accept(&self) -> LocalFuture<IoResult<Accepted>>;
}

/// A host's way to others.
pub trait Network {
    /// Listens at `at`.
    fn listen(&self, at: &Address) -> LocalFuture<IoResult<Box<dyn Listener>>>;

    /// Connects to whoever listens at `to`. How long that may take is the caller's to limit.
    fn connect(&self, to: &Address) -> LocalFuture<IoResult<Stream>>;
}

/// The next connection that can be accepted; `tell` hears of those that cannot.
pub async fn accept_next(world: &World, listener: &dyn Listener, tell: impl Fn(IoError)) -> Accepted {
    /// Out of descriptors, as a rule: that passes.
    const REST: Duration = Duration::from_millis(100);
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tell(error);
                world.sleep(REST).await;
            }
        }
    }
}

/// Sends pieces one behind the other, in as few calls as it takes.
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
    fn what_is_no_address_is_refused_in_a_line() {
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
    fn every_address_of_a_host_is_no_address_to_connect_to() {
        for (text, is_any) in [("0.0.0.0", true), ("[::]:80", true), ("127.0.0.1", false), ("mail", false)] {
            assert_eq!(Address::parse(text, 1).unwrap().is_any(), is_any, "{text}");
        }
    }
}
