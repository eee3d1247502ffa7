//! CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, as in iSCSI (RFC 3720) and ext4.

use crc_fast::{CrcAlgorithm, Digest};

/// An incremental CRC-32C.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Adds `bytes` to the checksum.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes added.
    pub fn value(self) -> u32 {
        self.0.finalize() as u32
    }
}

/// The checksum of the concatenation of `parts`.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    match parts {
        // One part is the usual case and has a faster path.
        [bytes] => crc_fast::crc32_iscsi(bytes),
        _ => {
            let mut crc = Crc32c::default();
            parts.iter().for_each(|part| crc.update(part));
            crc.value()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_values_come_out() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn splitting_the_bytes_does_not_change_the_checksum() {
        let bytes: Vec<u8> = (0..100_u8).collect();
        for at in 0..bytes.len() {
            assert_eq!(crc32c(&[&bytes[..at], &bytes[at..]]), crc32c(&[&bytes]), "{at}");
        }
    }
}
