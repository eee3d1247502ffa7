//! Hashes and secrets as text.

use std::fmt::Write;

/// Two digits a byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take all");
        text
    })
}

/// The bytes of such a text; `None` if it is none.
pub(crate) fn of_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}
