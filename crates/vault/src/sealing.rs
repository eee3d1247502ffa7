//! Encryption as restic does it: AES-256 in counter mode, and Poly1305-AES over the result.
//!
//! ```text
//! nonce (16) | ciphertext | MAC (16)
//! ```
//!
//! Source: restic's design document, "Keys, Encryption and MAC".

use aes::{
    Aes128, Aes256,
    cipher::{BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use poly1305::Poly1305;
use serde::{Deserialize, Serialize};
use std::fmt;
use world::World;

pub const NONCE_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
/// Bytes that sealing adds.
pub const SEAL_BYTES: usize = NONCE_BYTES + MAC_BYTES;

/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];

/// Keys of encryption and of the MAC.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey {
    encryption: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
}

/// The JSON form of a key, as the sealed part of a key file has it.
#[derive(Serialize, Deserialize)]
struct KeyJson {
    mac: MacJson,
    encrypt: String,
}

#[derive(Serialize, Deserialize)]
struct MacJson {
    k: String,
    r: String,
}

pub fn new_nonce(world: &World) -> Nonce {
    let mut nonce = Nonce::default();
    world.fill_secret(&mut nonce);
    nonce
}

impl SealingKey {
    /// A new key.
    pub fn draw(world: &World) -> Self {
        let mut bytes = [0; 64];
        world.fill_secret(&mut bytes);
        Self::of(&bytes)
    }

    /// The key in 64 bytes that scrypt made of a password.
    pub fn of(bytes: &[u8; 64]) -> Self {
        let mut key = Self { encryption: [0; 32], mac_k: [0; 16], mac_r: [0; 16] };
        key.encryption.copy_from_slice(&bytes[..32]);
        key.mac_k.copy_from_slice(&bytes[32..48]);
        key.mac_r.copy_from_slice(&bytes[48..]);
        // Bits that Poly1305 clears: restic stores the key without them.
        for index in [3, 7, 11, 15] {
            key.mac_r[index] &= 0x0f;
        }
        for index in [4, 8, 12] {
            key.mac_r[index] &= 0xfc;
        }
        key
    }

    pub fn to_json(&self) -> String {
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        let mac = MacJson { k: text(&self.mac_k), r: text(&self.mac_r) };
        serde_json::to_string(&KeyJson { mac, encrypt: text(&self.encryption) }).expect("plain fields")
    }

    /// `None`: it is no key.
    pub fn from_json(text: &[u8]) -> Option<Self> {
        let KeyJson { mac, encrypt } = serde_json::from_slice(text).ok()?;
        let bytes = |text: &str| STANDARD.decode(text).ok();
        Some(Self {
            encryption: bytes(&encrypt)?.try_into().ok()?,
            mac_k: bytes(&mac.k)?.try_into().ok()?,
            mac_r: bytes(&mac.r)?.try_into().ok()?,
        })
    }

    fn mac(&self, nonce: &Nonce, ciphertext: &[u8]) -> [u8; MAC_BYTES] {
        let mut pad = aes::Block::from(*nonce);
        Aes128::new(&self.mac_k.into()).encrypt_block(&mut pad);
        let mut key = [0; 32];
        key[..16].copy_from_slice(&self.mac_r);
        key[16..].copy_from_slice(&pad);
        Poly1305::new(&key.into()).compute_unpadded(ciphertext).into()
    }

    fn apply(&self, nonce: &Nonce, bytes: &mut [u8]) {
        ctr::Ctr128BE::<Aes256>::new(&self.encryption.into(), nonce.into()).apply_keystream(bytes);
    }

    /// Seals `plain`; the nonce must never have been used with this key.
    pub fn seal(&self, nonce: &Nonce, plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(plain.len() + SEAL_BYTES);
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(plain);
        self.apply(nonce, &mut sealed[NONCE_BYTES..]);
        let mac = self.mac(nonce, &sealed[NONCE_BYTES..]);
        sealed.extend_from_slice(&mac);
        sealed
    }

    /// The plain bytes; `None` if they were sealed by another key, or changed since.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let (ciphertext, mac) = rest.split_last_chunk::<MAC_BYTES>()?;
        let differing =
            self.mac(nonce, ciphertext).iter().zip(mac).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        if differing != 0 {
            return None;
        }
        let mut plain = ciphertext.to_vec();
        self.apply(nonce, &mut plain);
        Some(plain)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealingKey {
        SealingKey::of(&std::array::from_fn(|index| index as u8))
    }

    #[test]
    fn a_sealed_text_opens_by_its_key_alone_and_no_bit_of_it_may_change() {
        for length in [0, 1, 15, 16, 17, 100] {
            let plain: Vec<u8> = (0..length).collect();
            let sealed = key().seal(&[7; 16], &plain);
            assert_eq!(sealed.len(), plain.len() + SEAL_BYTES);
            assert_eq!(key().open(&sealed), Some(plain));
            for bit in 0..sealed.len() * 8 {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(key().open(&changed), None, "{length}: bit {bit}");
            }
            assert_eq!(SealingKey::of(&[9; 64]).open(&sealed), None);
            assert_eq!(key().open(&sealed[..sealed.len() - 1]), None);
        }
        assert_eq!(key().open(&[0; 31]), None);
    }

    #[test]
    fn the_mac_is_poly1305_aes() {
        // "The Poly1305-AES message-authentication code" (Bernstein 2005), appendix B, second example.
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let mut bytes = [0; 64];
        bytes[32..48].copy_from_slice(&hex("75deaa25c09f208e1dc4ce6b5cad3fbf"));
        bytes[48..].copy_from_slice(&hex("a0f3080000f46400d0c7e9076c834403"));
        let nonce: Nonce = hex("61ee09218d29b0aaed7e154a2c5509cc").try_into().unwrap();
        assert_eq!(SealingKey::of(&bytes).mac(&nonce, b"").to_vec(), hex("dd3fab2251f11ac759f0887129cc2ee7"));
    }

    #[test]
    fn a_key_is_read_back_and_is_not_shown() {
        assert_eq!(SealingKey::from_json(key().to_json().as_bytes()), Some(key()));
        for wrong in ["", "{}", r#"{"mac":{"k":"AA==","r":"AA=="},"encrypt":"AA=="}"#] {
            assert_eq!(SealingKey::from_json(wrong.as_bytes()), None);
        }
        assert_eq!(format!("{:?}", key()), "SealingKey(secret)");
    }
}
