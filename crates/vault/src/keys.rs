//! Key files: the vault's key, sealed by a password.
//!
//! Several passwords may open one vault; each has a file. The cost of trying a password is that of scrypt.

use crate::{
    VaultError, VaultResult,
    sealing::{SealingKey, new_nonce},
    time_text,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use world::World;

/// log₂ of scrypt's N of new keys: 32 MiB and about 0.1 s (restic calibrates to 0.5 s, and 32 MiB as well).
const LOG_N: u8 = 15;
const R: u32 = 8;
/// Bounds of key files that are tried: somebody else may have put them there.
const LOG_N_MAX: u8 = 20;
const R_MAX: u32 = 64;
const P_MAX: u32 = 16;
const SALT_BYTES: usize = 64;

/// The process that makes something in a vault, as restic's files say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    pub host: String,
    pub user: String,
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyFile {
    hostname: String,
    username: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    created: String,
    data: String,
    salt: String,
}

impl KeyFile {
    /// Seals `key` by a password.
    pub fn seal(world: &World, maker: &Maker, password: &[u8], key: &SealingKey) -> Self {
        let mut salt = [0; SALT_BYTES];
        world.fill_secret(&mut salt);
        let by_password = derive(password, &salt, (LOG_N, R, 1)).expect("the usual cost is valid");
        Self {
            hostname: maker.host.clone(),
            username: maker.user.clone(),
            kdf: "scrypt".to_owned(),
            n: 1 << LOG_N,
            r: R,
            p: 1,
            created: time_text::to_text(world.wall()),
            data: STANDARD.encode(by_password.seal(&new_nonce(world), key.to_json().as_bytes())),
            salt: STANDARD.encode(salt),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields")
    }

    /// # Errors
    ///
    /// It is no key file.
    pub fn decode(bytes: &[u8]) -> VaultResult<Self> {
        serde_json::from_slice(bytes).map_err(|error| VaultError::damaged("a key file", error.to_string()))
    }

    /// The vault's key; `None`: not by this password.
    ///
    /// # Errors
    ///
    /// The file is none that restic or Spindle would make: opening it could take hours, or all memory.
    pub fn unlock(&self, password: &[u8]) -> VaultResult<Option<SealingKey>> {
        let damaged = |why: &str| VaultError::damaged("a key file", why);
        let log_n = u8::try_from(self.n.checked_ilog2().unwrap_or_default()).unwrap_or(u8::MAX);
        let is_usual = self.kdf == "scrypt" && self.n.is_power_of_two() && (1..=LOG_N_MAX).contains(&log_n);
        if !is_usual || !(1..=R_MAX).contains(&self.r) || !(1..=P_MAX).contains(&self.p) {
            return Err(damaged("its cost is not one that restic chooses"));
        }
        let salt = STANDARD.decode(&self.salt).map_err(|_| damaged("its salt is no base64"))?;
        let data = STANDARD.decode(&self.data).map_err(|_| damaged("its key is no base64"))?;
        let by_password =
            derive(password, &salt, (log_n, self.r, self.p)).ok_or_else(|| damaged("its cost is invalid"))?;
        Ok(by_password.open(&data).and_then(|json| SealingKey::from_json(&json)))
    }
}

fn derive(password: &[u8], salt: &[u8], (log_n, r, p): (u8, u32, u32)) -> Option<SealingKey> {
    let mut bytes = [0; 64];
    let cost = scrypt::Params::new(log_n, r, p).ok()?;
    scrypt::scrypt(password, salt, &cost, &mut bytes).ok()?;
    Some(SealingKey::of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_by_its_password_alone_and_costs_are_bounded() {
        let ((), _) = world::sim::run(1, |world| async move {
            let maker = Maker { host: "h".into(), user: "u".into(), pid: 1, uid: 0, gid: 0 };
            let key = SealingKey::draw(&world);
            let file = KeyFile::decode(&KeyFile::seal(&world, &maker, b"secret", &key).encode()).unwrap();
            assert_eq!(file.unlock(b"secret").unwrap(), Some(key));
            assert_eq!(file.unlock(b"Secret").unwrap(), None);
            for (n, r, p) in
                [(0, 8, 1), (3, 8, 1), (1 << 40, 8, 1), (1024, 0, 1), (1024, 1 << 20, 1), (1024, 8, 1 << 20)]
            {
                let costly = KeyFile { n, r, p, ..file.clone() };
                assert!(costly.unlock(b"secret").is_err(), "{n} {r} {p}");
            }
            let other = KeyFile { kdf: "argon2".into(), ..file };
            assert!(other.unlock(b"secret").is_err());
        });
    }
}
