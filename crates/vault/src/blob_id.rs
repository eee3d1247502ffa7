//! Names of blobs and files: SHA-256 sums, which serve as their checksums, too.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a blob's plain bytes, or of a file as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "&str", into = "String")]
pub struct BlobId(pub [u8; 32]);

impl BlobId {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut id = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(id))
    }

    /// The first eight digits, as restic shows them.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(str::from_utf8(&text).expect("hexadecimal digits"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.to_string()
    }
}

impl TryFrom<&str> for BlobId {
    type Error = String;

    fn try_from(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("{text:?} is no SHA-256"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_known_sum_and_is_read_back() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let id = BlobId::of(b"abc");
        assert_eq!(
            (id.to_string(), BlobId::parse(text), id.short()),
            (text.to_owned(), Some(id), "ba7816bf".to_owned())
        );
        for other in ["", &text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace('b', "g")] {
            assert_eq!(BlobId::parse(other), None, "{other}");
        }
    }
}
