//! Recovery keys: 256 random bits that a person keeps on paper or in a file of their own.
//!
//! As text, a key is 14 groups of four characters: Crockford's base 32 (no I, L, O, U) of the 32 bytes and three bytes of
//! checksum. Case, spaces and dashes do not matter, and O, I and L are read as 0, 1 and 1.

use crate::hexadecimal::hexadecimal;
use report::Refusal;
use ring::digest::{SHA256, digest};
use std::fmt;
use world::World;

const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 3;
const CHARACTERS: usize = (KEY_BYTES + CHECKSUM_BYTES) * 8 / 5;
const GROUP_CHARACTERS: usize = 4;
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A recovery key. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryKey([u8; KEY_BYTES]);

impl RecoveryKey {
    pub fn generate(world: &World) -> Self {
        let mut bytes = [0; KEY_BYTES];
        world.fill_secret(&mut bytes);
        Self(bytes)
    }

    pub(crate) fn of_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// 16 hexadecimal digits that tell keys apart, and nothing of the key.
    pub fn id(&self) -> String {
        let hash = digest(&SHA256, &[b"spindle recovery key\0", &self.0[..]].concat());
        hexadecimal(&hash.as_ref()[..8])
    }

    /// The key as it is shown once.
    pub fn to_text(&self) -> String {
        let bytes = [&self.0[..], &checksum(&self.0)].concat();
        let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let character = |at: usize| (5 * at..5 * at + 5).fold(0, |value, at| value << 1 | bit(at));
        let characters: Vec<u8> = (0..CHARACTERS).map(|at| ALPHABET[usize::from(character(at))]).collect();
        let groups = characters.chunks(GROUP_CHARACTERS).map(|group| String::from_utf8_lossy(group));
        groups.collect::<Vec<_>>().join("-")
    }

    /// The key that a person typed.
    ///
    /// # Errors
    ///
    /// It is none, or a character is wrong. The refusal does not repeat it.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = |problem: String| {
            Refusal::new(
                format!("this is no recovery key: {problem}"),
                "compare it with the one that was shown",
            )
        };
        let mut bytes = [0u8; KEY_BYTES + CHECKSUM_BYTES];
        let mut count = 0;
        for character in text.chars().filter(|character| !character.is_whitespace() && *character != '-') {
            let upper = match character.to_ascii_uppercase() {
                'O' => '0',
                'I' | 'L' => '1',
                upper => upper,
            };
            let value = ALPHABET.iter().position(|&known| char::from(known) == upper);
            let value = value.ok_or_else(|| refused(format!("it has no {character:?} in it")))?;
            if count < CHARACTERS {
                for bit in 0..5 {
                    let at = 5 * count + bit;
                    bytes[at / 8] |= u8::from(value >> (4 - bit) & 1 == 1) << (7 - at % 8);
                }
            }
            count += 1;
        }
        if count != CHARACTERS {
            return Err(refused(format!("it has {CHARACTERS} characters, and {count} were given")));
        }
        let (key, sum) = bytes.split_at(KEY_BYTES);
        let key: [u8; KEY_BYTES] = key.try_into().expect("it was split there");
        match sum == checksum(&key) {
            true => Ok(Self(key)),
            false => Err(refused("a character is wrong, or two changed places".to_owned())),
        }
    }
}

fn checksum(key: &[u8; KEY_BYTES]) -> [u8; CHECKSUM_BYTES] {
    let hash = digest(&SHA256, &[b"spindle recovery key checksum\0", &key[..]].concat());
    hash.as_ref()[..CHECKSUM_BYTES].try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecoveryKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> RecoveryKey {
        RecoveryKey(std::array::from_fn(|index| (index as u8).wrapping_mul(37) ^ 0x5a))
    }

    #[test]
    fn a_key_is_read_as_it_was_shown_however_it_is_typed() {
        let text = key().to_text();
        assert_eq!(text.len(), 14 * 5 - 1, "{text}");
        assert!(text.split('-').all(|group| group.len() == 4), "{text}");
        let typed = [text.clone(), text.to_lowercase().replace('-', " "), format!(" {text}\n")];
        for typed in typed {
            assert_eq!(RecoveryKey::parse(&typed).unwrap(), key(), "{typed}");
        }
        let alike = text.replace('0', "o").replace('1', "l");
        assert_eq!(RecoveryKey::parse(&alike).unwrap(), key(), "{alike}");
        assert!(!format!("{:?}", key()).contains(&text[..4]), "it is not shown by accident");
    }

    #[test]
    fn each_wrong_character_is_noticed() {
        let text = key().to_text();
        for at in (0..text.len()).filter(|at| at % 5 != 4) {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'7' { b'8' } else { b'7' };
            let refused = RecoveryKey::parse(std::str::from_utf8(&wrong).unwrap()).unwrap_err().to_string();
            assert!(refused.contains("a character is wrong"), "{refused}");
        }
        for (wrong, problem) in [
            (&text[..64], "it has 56 characters, and 52 were given"),
            (&format!("{text}-7777"), "and 60 were given"),
            ("", "and 0 were given"),
            ("hello, world", "no ',' in it"),
        ] {
            let refused = RecoveryKey::parse(wrong).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
