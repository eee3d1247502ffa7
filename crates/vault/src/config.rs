//! The vault's own file: version, identity, and the polynomial by which restic cuts files.
//!
//! Spindle cuts chunks of fixed size. The polynomial is for people who let restic back up other files into the same vault;
//! restic refuses one that is reducible.

use crate::{VaultError, VaultResult};
use serde::{Deserialize, Serialize};
use world::World;

/// Version of the format.
pub const VERSION: u64 = 2;
/// Degree of restic's polynomials.
const DEGREE: u32 = 53;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultConfig {
    pub version: u64,
    /// 64 hexadecimal digits.
    pub id: String,
    pub chunker_polynomial: String,
}

impl VaultConfig {
    pub fn draw(world: &World) -> Self {
        let mut bytes = [0; 32];
        world.fill_secret(&mut bytes);
        let id = crate::blob_id::BlobId(bytes).to_string();
        let polynomial = loop {
            let mut bytes = [0; 8];
            world.fill_secret(&mut bytes);
            // Of that degree, and not divisible by x.
            let candidate = (u64::from_le_bytes(bytes) % (1 << DEGREE)) | (1 << DEGREE) | 1;
            if is_irreducible(candidate) {
                break candidate;
            }
        };
        Self { version: VERSION, id, chunker_polynomial: format!("{polynomial:x}") }
    }

    /// # Errors
    ///
    /// It is of another version, or no such file.
    pub fn decode(bytes: &[u8]) -> VaultResult<Self> {
        let config: Self = serde_json::from_slice(bytes)
            .map_err(|error| VaultError::damaged("config", error.to_string()))?;
        match config.version {
            VERSION => Ok(config),
            other => Err(VaultError::OtherVersion(other)),
        }
    }
}

/// The degree of a polynomial over GF(2) whose coefficients are the bits of `bits`.
fn degree(bits: u128) -> u32 {
    127 - bits.leading_zeros()
}

fn remainder(mut dividend: u128, divisor: u128) -> u128 {
    while dividend != 0 && degree(dividend) >= degree(divisor) {
        dividend ^= divisor << (degree(dividend) - degree(divisor));
    }
    dividend
}

fn square(factor: u128, modulus: u128) -> u128 {
    let product = (0..64).filter(|bit| factor >> bit & 1 == 1).fold(0, |sum, bit| sum ^ factor << bit);
    remainder(product, modulus)
}

fn common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, remainder(a, b));
    }
    a
}

/// Ben-Or's test: x^(2^i) - x holds the product of all irreducible polynomials whose degrees divide i.
fn is_irreducible(polynomial: u64) -> bool {
    let (modulus, x) = (u128::from(polynomial), 0b10);
    let mut power = x;
    (1..=DEGREE / 2).all(|_| {
        power = square(power, modulus);
        common_divisor(modulus, power ^ x) == 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restics_polynomials_are_irreducible_and_products_are_not() {
        // From restic's chunker and its documents.
        for known in [0x003D_A335_8B4D_C173, 0x0025_B468_838D_CB75] {
            assert!(is_irreducible(known), "{known:x}");
        }
        // (x^26 + x + 1)(x^27 + x + 1), and x + 1 times another.
        let product =
            |a: u128, b: u128| (0..64).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ a << bit);
        for (a, b) in [((1 << 26) | 3, (1 << 27) | 3), (3, (1 << 52) | 0xdead)] {
            assert!(!is_irreducible(product(a, b) as u64));
        }
    }

    #[test]
    fn a_config_is_of_this_version() {
        let (config, _) = world::sim::run(7, |world| async move { VaultConfig::draw(&world) });
        let text = serde_json::to_vec(&config).unwrap();
        assert_eq!(VaultConfig::decode(&text).unwrap(), config);
        let newer = String::from_utf8(text).unwrap().replace("\"version\":2", "\"version\":3");
        assert!(matches!(VaultConfig::decode(newer.as_bytes()), Err(VaultError::OtherVersion(3))));
        assert!(matches!(VaultConfig::decode(b"{}"), Err(VaultError::Damaged { .. })));
    }
}
