//! NBD URIs: `nbd://HOST:PORT[,HOST:PORT…]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH[&socket=PATH…]`; with TLS `nbds://` and
//! `nbds+unix://`, which take `tls-certificates=FOLDER` and `tls-hostname=NAME`, the name in the server's
//! certificate if it is not the host's (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>).

use crate::PORT;
use std::{fmt, path::PathBuf, str::FromStr};
use thiserror::Error;
use world::Address;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    pub address: Address,
    /// More addresses, as that of another site, for when it does not serve the export.
    pub others: Vec<Address>,
    /// Export name; empty for a server's only export.
    pub export: String,
    /// Set for `nbds` and `nbds+unix`.
    pub tls: Option<UriTls>,
}

/// TLS parameters of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriTls {
    /// Folder of certificates.
    pub certificates: Option<PathBuf>,
    /// Name in the server's certificate, if it is not the host's.
    pub hostname: Option<String>,
}

impl NbdUri {
    /// Name the server's certificate must have: `tls-hostname`, or the host; `localhost` for a Unix socket.
    pub fn server_name(&self) -> &str {
        let said = self.tls.as_ref().and_then(|tls| tls.hostname.as_deref());
        said.unwrap_or(match &self.address {
            Address::Tcp { host, .. } => host,
            Address::Unix(_) => "localhost",
        })
    }
}

/// The parameters after the question mark.
#[derive(Default)]
struct Query {
    sockets: Vec<PathBuf>,
    tls: UriTls,
}

impl Query {
    fn read(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("{key} is empty or badly escaped"))?;
            match key {
                "socket" => query.sockets.push(value.into()),
                "tls-certificates" => query.tls.certificates = Some(value.into()),
                "tls-hostname" => query.tls.hostname = Some(value),
                _ => return Err(format!("unknown parameter {key}")),
            }
        }
        Ok(query)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not an NBD URI: {problem}; expected nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
)]
pub struct NbdUriError {
    text: String,
    problem: String,
}

impl FromStr for NbdUri {
    type Err = NbdUriError;

    fn from_str(text: &str) -> Result<Self, NbdUriError> {
        let refuse = |problem: &str| NbdUriError { text: text.to_owned(), problem: problem.to_owned() };
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let (is_tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbd+unix" => (false, true),
            "nbds" => (true, false),
            "nbds+unix" => (true, true),
            _ => return Err(refuse("it does not begin with nbd:// or nbds://")),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Query { sockets, tls } = Query::read(query).map_err(|problem| refuse(&problem))?;
        if !is_tls && tls != UriTls::default() {
            return Err(refuse("TLS parameters require nbds:// or nbds+unix://"));
        }
        let (host, export) = place.split_once('/').unwrap_or((place, ""));
        let has_sockets = !sockets.is_empty();
        let addresses: Vec<Address> = match is_unix {
            false if has_sockets => return Err(refuse("a socket path requires nbd+unix://")),
            true if has_sockets && host.is_empty() && place.starts_with('/') => {
                sockets.into_iter().map(Address::Unix).collect()
            }
            true if has_sockets => return Err(refuse("nbd+unix:/// takes three slashes")),
            true => return Err(refuse("it names no socket")),
            false => {
                let parsed = host.split(',').map(|host| Address::parse(host, PORT));
                parsed.collect::<Result<_, _>>().map_err(|error| refuse(&error.to_string()))?
            }
        };
        if is_tls && !is_unix && addresses.len() > 1 && tls.hostname.is_none() {
            return Err(refuse(
                "several hosts over TLS require tls-hostname, the name in the certificates of all",
            ));
        }
        let mut addresses = addresses.into_iter();
        let address = addresses.next().expect("a text has a first part");
        let export = decode(export).ok_or_else(|| refuse("its export is badly escaped"))?;
        Ok(Self { address, others: addresses.collect(), export, tls: is_tls.then_some(tls) })
    }
}

/// Decodes percent-encoding; `None` if it is malformed or not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let piece = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(piece).collect()
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(&self.export);
        let (scheme, tls) = match &self.tls {
            None => ("nbd", UriTls::default()),
            Some(tls) => ("nbds", tls.clone()),
        };
        let socket = match &self.address {
            Address::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}")?;
                Some(path.to_string_lossy())
            }
            Address::Tcp { .. } => {
                write!(f, "{scheme}://{}", self.address)?;
                self.others.iter().try_for_each(|other| write!(f, ",{other}"))?;
                write!(f, "/{export}")?;
                None
            }
        };
        let certificates = tls.certificates.as_ref().map(|folder| folder.to_string_lossy());
        let others = self.others.iter().map(|other| match other {
            Address::Unix(path) => ("socket", Some(path.to_string_lossy())),
            Address::Tcp { .. } => ("socket", None),
        });
        let more = [
            ("tls-certificates", certificates),
            ("tls-hostname", tls.hostname.as_ref().map(|name| name.into())),
        ];
        let mut mark = '?';
        for (key, value) in std::iter::once(("socket", socket)).chain(others).chain(more) {
            if let Some(value) = value {
                write!(f, "{mark}{key}={}", encode(&value))?;
                mark = '&';
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_parse_and_print() {
        for (text, address, export) in [
            ("nbd://127.0.0.1:10810/mail", "127.0.0.1:10810", "mail"),
            ("nbd://mail", "mail:10809", ""),
            ("nbd://[::1]/a%20b/c", "[::1]:10809", "a b/c"),
            ("nbd+unix:///vol?socket=/run/n.sock", "unix:/run/n.sock", "vol"),
            ("nbd+unix:///?socket=/a%20b", "unix:/a b", ""),
            ("nbds://mail/x?tls-certificates=/etc/pki&tls-hostname=a", "mail:10809", "x"),
            ("nbds+unix:///?socket=/s", "unix:/s", ""),
        ] {
            let uri: NbdUri = text.parse().unwrap();
            assert_eq!((uri.address.to_string().as_str(), uri.export.as_str()), (address, export));
            assert_eq!(uri.tls.is_some(), text.starts_with("nbds"));
            assert_eq!(uri.to_string().parse(), Ok(uri), "what is printed reads back");
        }
        for (text, other) in [
            ("nbd://a,b:1/x", "b:1"),
            ("nbds://a,[::1]/x?tls-hostname=mail", "[::1]:10809"),
            ("nbd+unix:///x?socket=/a&socket=/b", "unix:/b"),
        ] {
            let uri: NbdUri = text.parse().unwrap();
            assert_eq!(uri.others.iter().map(Address::to_string).collect::<Vec<_>>(), [other]);
            assert_eq!(uri.to_string().parse(), Ok(uri), "what is printed reads back");
        }
    }

    #[test]
    fn a_malformed_uri_is_refused() {
        for text in
            ["", "http://x", "nbd://", "nbd://h:99999/x", "nbd://h/%4", "nbd://h/%ff", "nbd+unix:///x"]
                .into_iter()
                .chain(["nbd://a,/x", "nbds://a,b/x"])
                .chain([
                    "nbd+unix://x?socket=/s",
                    "nbd://h/x?tls=1",
                    "nbd://h/?tls-certificates=/a",
                    "nbd://h/?socket=/s",
                ])
                .chain(["nbds://h/x?tls-psk-file=/a", "nbds://h/x?tls-certificates=", "nbds+unix:///x"])
        {
            let error = text.parse::<NbdUri>().expect_err(text).to_string();
            assert!(error.contains("expected nbd://HOST:PORT/EXPORT"), "{error}");
        }
    }
}
