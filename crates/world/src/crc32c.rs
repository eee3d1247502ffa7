//! CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, as in iSCSI (RFC 3720) and ext4.

/// `TABLES[n][byte]` is the checksum of `byte` followed by n zero bytes: eight bytes are taken at a time.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut zeroes = 1;
    while zeroes < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[zeroes - 1][byte];
            tables[zeroes][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        zeroes += 1;
    }
    tables
};

/// A checksum that grows with what it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self(!0)
    }
}

impl Crc32c {
    /// Goes on over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        let mut crc = self.0;
        for eight in eights {
            let [a, b, c, d, e, f, g, h] = *eight;
            let first = crc ^ u32::from_le_bytes([a, b, c, d]);
            let table = |zeroes: usize, byte: u8| TABLES[zeroes][usize::from(byte)];
            crc = table(7, first as u8)
                ^ table(6, (first >> 8) as u8)
                ^ table(5, (first >> 16) as u8)
                ^ table(4, (first >> 24) as u8)
                ^ table(3, e)
                ^ table(2, f)
                ^ table(1, g)
                ^ table(0, h);
        }
        for &byte in rest {
            crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
        }
        self.0 = crc;
    }

    /// The checksum of all it was shown.
    pub fn value(self) -> u32 {
        !self.0
    }
}

/// The checksum of `parts`, one after the other.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::default();
    parts.iter().for_each(|part| crc.update(part));
    crc.value()
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
    fn it_does_not_matter_where_the_bytes_are_parted() {
        let bytes: Vec<u8> = (0..100_u8).collect();
        for at in 0..bytes.len() {
            assert_eq!(crc32c(&[&bytes[..at], &bytes[at..]]), crc32c(&[&bytes]), "{at}");
        }
    }
}
