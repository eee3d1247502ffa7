//! Secrets sealed with a recovery key: ChaCha20-Poly1305 (RFC 8439) under a key derived from it, with a random nonce. The
//! associated data name the site, the pool and the secret, so that none can take the place of another.

use super::key::RecoveryKey;
use crate::hexadecimal::{hexadecimal, of_hexadecimal};
use array::format::{PoolId, SiteId};
use report::Refusal;
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use serde::{Deserialize, Serialize};
use world::World;

const PURPOSE: &[u8] = b"spindle secrets of a site 1";
/// Most bytes of a secret: certificates are the largest.
pub const SECRET_BYTES_MAX: usize = 256 << 10;

/// A secret as a pool keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedSecret {
    /// The owner of the secret: `initiator iqn.…`, `targets` or `certificate FILE`.
    pub label: String,
    /// Nonce and ciphertext, hexadecimal.
    pub sealed: String,
}

/// The place of a secret: it opens nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretPlace<'p> {
    pub site: SiteId,
    pub pool: PoolId,
    pub label: &'p str,
}

impl SecretPlace<'_> {
    fn associated_data(&self) -> Vec<u8> {
        [&self.site.0[..], &self.pool.0[..], self.label.as_bytes()].concat()
    }
}

impl SealedSecret {
    pub fn seal(world: &World, key: &RecoveryKey, place: SecretPlace<'_>, secret: &[u8]) -> Self {
        let mut nonce = [0; NONCE_LEN];
        world.fill_secret(&mut nonce);
        let mut bytes = secret.to_vec();
        derived(key)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place.associated_data()),
                &mut bytes,
            )
            .expect("secrets are shorter than 256 GiB");
        let sealed = format!("{}{}", hexadecimal(&nonce), hexadecimal(&bytes));
        Self { label: place.label.to_owned(), sealed }
    }

    /// The secret.
    ///
    /// # Errors
    ///
    /// The key is another one, the secret is damaged, or it was sealed for another place.
    pub fn open(&self, key: &RecoveryKey, site: SiteId, pool: PoolId) -> Result<Vec<u8>, Refusal> {
        let refused = || {
            Refusal::new(
                format!(
                    "the secret of {} does not open: it is damaged, or was sealed for another pool or with another key",
                    self.label
                ),
                "give the recovery key that was shown last",
            )
        };
        let bytes = of_hexadecimal(&self.sealed).filter(|bytes| bytes.len() >= NONCE_LEN);
        let mut bytes = bytes.ok_or_else(refused)?;
        let mut sealed = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| refused())?;
        let place = SecretPlace { site, pool, label: &self.label };
        let opened = derived(key)
            .open_in_place(nonce, Aad::from(place.associated_data()), &mut sealed)
            .map_err(|_| refused())?;
        Ok(opened.to_vec())
    }
}

fn derived(key: &RecoveryKey) -> LessSafeKey {
    let extracted = Salt::new(HKDF_SHA256, &[]).extract(key.bytes());
    let expanded = extracted.expand(&[PURPOSE], &CHACHA20_POLY1305).expect("one key is short enough");
    LessSafeKey::new(UnboundKey::from(expanded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::real::{self, RealOptions};

    const SITE: SiteId = SiteId([1; 16]);
    const POOL: PoolId = PoolId([2; 16]);

    #[test]
    fn a_secret_opens_with_its_key_in_its_place_alone() {
        real::run(0, RealOptions::default(), async |world: World| {
            let (key, other) = (RecoveryKey::generate(&world), RecoveryKey::generate(&world));
            let place = SecretPlace { site: SITE, pool: POOL, label: "initiator iqn.x:a" };
            let sealed = SealedSecret::seal(&world, &key, place, b"correct horse");
            assert_eq!(sealed.open(&key, SITE, POOL).unwrap(), b"correct horse");
            assert_ne!(sealed, SealedSecret::seal(&world, &key, place, b"correct horse"), "a nonce each");
            assert!(sealed.open(&other, SITE, POOL).is_err(), "another key");
            assert!(sealed.open(&key, SITE, PoolId([3; 16])).is_err(), "copied from another pool");
            assert!(sealed.open(&key, SiteId([3; 16]), POOL).is_err(), "of another site");
            let moved = SealedSecret { label: "initiator iqn.x:b".to_owned(), ..sealed.clone() };
            let refused = moved.open(&key, SITE, POOL).unwrap_err().to_string();
            assert!(refused.starts_with("the secret of initiator iqn.x:b does not open"), "{refused}");
            for at in 0..sealed.sealed.len() {
                let mut text = sealed.sealed.clone().into_bytes();
                text[at] = if text[at] == b'0' { b'1' } else { b'0' };
                let damaged = String::from_utf8(text).unwrap();
                assert!(SealedSecret { sealed: damaged, ..sealed.clone() }.open(&key, SITE, POOL).is_err());
                let cut = sealed.sealed[..at].to_owned();
                assert!(SealedSecret { sealed: cut, ..sealed.clone() }.open(&key, SITE, POOL).is_err());
            }
        });
    }
}
