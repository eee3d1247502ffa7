//! Where an export is: `nbd://HOST:PORT/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>).

use crate::PORT;
use std::{fmt, str::FromStr};
use thiserror::Error;
use world::Address;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Of the server.
    pub address: Address,
    /// Of the export; empty is the only one there is.
    pub export: String,
}

/// Why a text is no such URI.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no NBD URI: {problem}; say nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
pub struct UriError {
    text: String,
    problem: String,
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let refuse = |problem: &str| UriError { text: text.to_owned(), problem: problem.to_owned() };
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
            let socket =
                socket.filter(|socket| !socket.is_empty()).ok_or_else(|| refuse("it names no socket"))?;
            let socket = decode(socket).ok_or_else(|| refuse("its socket is badly escaped"))?;
            let export = path.strip_prefix('/').ok_or_else(|| refuse("three slashes begin it"))?;
            let export = decode(export).ok_or_else(|| refuse("its export is badly escaped"))?;
            return Ok(Self { address: Address::Unix(socket.into()), export });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(|| refuse("it does not begin with nbd://"))?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if export.contains('?') {
            return Err(refuse("it has a query"));
        }
        let address = Address::parse(host, PORT).map_err(|error| refuse(&error.to_string()))?;
        let export = decode(export).ok_or_else(|| refuse("its export is badly escaped"))?;
        Ok(Self { address, export })
    }
}

/// A text with `%20` and the like; none if they are no UTF-8, or cut.
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

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(&self.export);
        match &self.address {
            Address::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", encode(&path.to_string_lossy()))
            }
            Address::Tcp { .. } => write!(f, "nbd://{}/{export}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_read_and_print() {
        for (text, address, export) in [
            ("nbd://127.0.0.1:10810/mail", "127.0.0.1:10810", "mail"),
            ("nbd://mail", "mail:10809", ""),
            ("nbd://[::1]/a%20b/c", "[::1]:10809", "a b/c"),
            ("nbd+unix:///vol?socket=/run/n.sock", "unix:/run/n.sock", "vol"),
            ("nbd+unix:///?socket=/a%20b", "unix:/a b", ""),
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!((uri.address.to_string().as_str(), uri.export.as_str()), (address, export));
            assert_eq!(uri.to_string().parse(), Ok(uri), "what is printed reads back");
        }
    }

    #[test]
    fn what_is_no_uri_is_refused_in_a_line() {
        for text in
            ["", "http://x", "nbd://", "nbd://h:99999/x", "nbd://h/%4", "nbd://h/%ff", "nbd+unix:///x"]
                .into_iter()
                .chain(["nbd+unix://x?socket=/s", "nbd://h/x?tls=1"])
        {
            let error = text.parse::<Uri>().expect_err(text).to_string();
            assert!(error.contains("say nbd://HOST:PORT/EXPORT"), "{error}");
        }
    }
}
