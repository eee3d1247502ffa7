//! CHAP: each end proves that it knows a secret without sending it (RFC 7143, 12.1.3; RFC 1994). Both ends of
//! a login use this module; it does no I/O.
//!
//! Invariants:
//!
//! 1. A [`Secret`] is never printed, and only [`Secret::exposed`] gives it to one who stores it.
//! 2. Every login draws a new [`Challenge`].

use crate::wire::text::Pair;
use md5::{Digest, Md5};
use std::fmt;
use thiserror::Error;
use world::World;

/// CHAP_A of MD5, the algorithm every implementation must support. It authenticates; it does not encrypt.
pub const MD5: &str = "5";
/// Shortest secret (RFC 7143, 9.2.1: 96 bits).
pub const SECRET_BYTES_MIN: usize = 12;
/// Longest secret accepted.
pub const SECRET_BYTES_MAX: usize = 255;
/// Length of the challenges we send.
const CHALLENGE_BYTES: usize = 16;
/// Longest challenge (RFC 7143, 12.1.3).
const CHALLENGE_BYTES_MAX: usize = 1024;

/// A CHAP secret. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A secret of a length that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a CHAP secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, and this one has {bytes}")]
pub struct BadSecret {
    /// Length of the secret.
    pub bytes: usize,
}

impl Secret {
    ///
    /// # Errors
    ///
    /// The length is not within [`SECRET_BYTES_MIN`] and [`SECRET_BYTES_MAX`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadSecret> {
        let bytes = bytes.into();
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(BadSecret { bytes: bytes.len() })
        }
    }

    /// Its bytes, for one who keeps it as a secret.
    pub fn exposed(&self) -> &[u8] {
        &self.0
    }
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    pub secret: Secret,
}

/// A challenge (CHAP_I and CHAP_C) for the other end to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    id: u8,
    bytes: Vec<u8>,
}

impl Challenge {
    /// Draws a random challenge.
    pub fn draw(world: &World) -> Self {
        let mut bytes = [0; 1 + CHALLENGE_BYTES];
        world.fill_secret(&mut bytes);
        Self { id: bytes[0], bytes: bytes[1..].to_vec() }
    }

    /// Parses CHAP_I and CHAP_C; `None` if one is missing or malformed.
    pub fn of(pairs: &[Pair]) -> Option<Self> {
        let id = value(pairs, "CHAP_I").and_then(super::negotiation::number)?;
        let bytes = value(pairs, "CHAP_C").and_then(bytes_of)?;
        let is_right = (1..=CHALLENGE_BYTES_MAX).contains(&bytes.len());
        Some(Self { id: u8::try_from(id).ok()?, bytes }).filter(|_| is_right)
    }

    /// True if both carry the same bytes under any identifier. An initiator that reflects our challenge would
    /// obtain our answer to it.
    pub fn has_same_bytes(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }

    /// CHAP_I and CHAP_C as text keys.
    pub fn pairs(&self) -> [Pair; 2] {
        [("CHAP_I".to_owned(), self.id.to_string()), ("CHAP_C".to_owned(), hex(&self.bytes))]
    }

    /// CHAP_N and CHAP_R that answer this challenge.
    pub fn answer(&self, Credentials { name, secret }: &Credentials) -> [Pair; 2] {
        [("CHAP_N".to_owned(), name.clone()), ("CHAP_R".to_owned(), hex(&self.response(secret)))]
    }

    /// True if `pairs` hold the answer of these credentials.
    pub fn is_answered_by(&self, Credentials { name, secret }: &Credentials, pairs: &[Pair]) -> bool {
        let response = value(pairs, "CHAP_R").and_then(bytes_of).unwrap_or_default();
        let expected = self.response(secret);
        // Constant time: all bytes are compared.
        let differs = expected.iter().zip(&response).fold(0, |all, (one, other)| all | (one ^ other));
        value(pairs, "CHAP_N") == Some(name) && response.len() == expected.len() && differs == 0
    }

    fn response(&self, secret: &Secret) -> [u8; 16] {
        let digest = Md5::new().chain_update([self.id]).chain_update(&secret.0).chain_update(&self.bytes);
        digest.finalize().into()
    }
}

fn value<'p>(pairs: &'p [Pair], key: &str) -> Option<&'p str> {
    pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Parses a large-binary-value (RFC 7143, 6.1): `0x` and hexadecimal digits, or `0b` and Base64.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    match text.get(..2)? {
        "0x" | "0X" => {
            let digits = &text.as_bytes()[2..];
            let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
            let pair = |pair: &[u8]| Some(value(pair[0])? << 4 | value(pair[1])?);
            digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect())?
        }
        "0b" | "0B" => base64(&text.as_bytes()[2..]),
        _ => None,
    }
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::sim::{SimLimits, Simulation};

    fn who(name: &str, secret: &str) -> Credentials {
        Credentials { name: name.to_owned(), secret: Secret::new(secret).unwrap() }
    }

    #[test]
    fn a_response_is_the_md5_of_rfc_1994() {
        // RFC 1994: MD5 over identifier, secret and challenge. The value was computed with md5sum.
        let challenge = Challenge { id: 0x2a, bytes: vec![1, 2, 3, 4] };
        let pairs = challenge.answer(&who("mail", "twelve bytes"));
        assert_eq!(pairs[0].1, "mail");
        assert_eq!(pairs[1].1, "0x38c2c881e4dbfe276159c295b393ece1");
    }

    #[test]
    fn only_the_right_secret_answers_a_challenge() {
        let drawn = Simulation::new(1).run(SimLimits::generous(), |world| async move {
            [Challenge::draw(&world), Challenge::draw(&world)]
        });
        let [challenge, other] = drawn.completed();
        assert_ne!(challenge, other, "no two are the same");
        assert_eq!(Challenge::of(&challenge.pairs()).as_ref(), Some(&challenge));
        let known = who("mail", "a secret of many bytes");
        let answer = challenge.answer(&known);
        assert!(challenge.is_answered_by(&known, &answer));
        assert!(!other.is_answered_by(&known, &answer), "an answer is good for one challenge");
        assert!(!challenge.is_answered_by(&who("other", "a secret of many bytes"), &answer));
        assert!(!challenge.is_answered_by(&who("mail", "another of many bytes"), &answer));
        assert!(!challenge.is_answered_by(&known, &answer[..1]));
        let cut = [answer[0].clone(), ("CHAP_R".to_owned(), answer[1].1[..32].to_owned())];
        assert!(!challenge.is_answered_by(&known, &cut));
    }

    #[test]
    fn binary_values_are_parsed_in_hexadecimal_and_base64() {
        for (text, bytes) in [
            ("0x", Some(vec![])),
            ("0x00Ff1a", Some(vec![0, 0xff, 0x1a])),
            ("0bAP8a", Some(vec![0, 0xff, 0x1a])),
            ("0bAP8=", Some(vec![0, 0xff])),
            ("0BAA==", Some(vec![0])),
            ("0x1", None),
            ("0x1g", None),
            ("0bAP8", None),
            ("0bA-8a", None),
            ("1234", None),
            ("", None),
            ("0\u{e4}", None),
        ] {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_debug_output_hides_secrets() {
        assert_eq!(Secret::new("eleven byte"), Err(BadSecret { bytes: 11 }));
        assert!(Secret::new("x".repeat(256)).is_err());
        let shown = format!("{:?}", who("mail", "twelve bytes"));
        assert!(shown.contains("mail") && !shown.contains("twelve"), "{shown}");
    }
}
