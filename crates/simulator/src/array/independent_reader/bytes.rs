//! Integers, seals and checksums.

use super::ReadResult;

pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("so many bytes")
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Checks the common header of sealed structures: magic, version 1, and the seal over all of `bytes`.
pub fn check_sealed(bytes: &[u8], magic: &[u8; 8]) -> ReadResult<()> {
    let name = String::from_utf8_lossy(magic);
    if bytes[..8] != magic[..] {
        return Err(format!("no {name}"));
    }
    if u16_at(bytes, 8) != 1 {
        return Err(format!("{name} of version {}", u16_at(bytes, 8)));
    }
    let seal = world::crc32c::crc32c(&[&bytes[..12], &[0; 4], &bytes[16..]]);
    if seal == u32_at(bytes, 12) { Ok(()) } else { Err(format!("the seal of {name} does not fit")) }
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

pub fn block_checksum(pool: &[u8; 16], (branch, block, stamp): (u32, u64, u64), stored: &[u8]) -> u32 {
    let seed = mix(mix(u64_at(pool, 0)) ^ u64_at(pool, 8));
    let place = mix(mix(mix(seed ^ u64::from(branch)) ^ block) ^ stamp);
    world::crc32c::crc32c(&[stored]) ^ (place >> 32) as u32
}

/// A cursor over variable-length integers.
pub struct Numbers<'a> {
    bytes: &'a [u8],
    /// Offset of the next one.
    pub at: usize,
}

impl<'a> Numbers<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> ReadResult<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at + count).ok_or("an entry goes beyond its node")?;
        self.at += count;
        Ok(taken)
    }

    pub fn byte(&mut self) -> ReadResult<u8> {
        Ok(self.take(1)?[0])
    }

    /// A variable-length integer: seven bits per byte, least significant first.
    pub fn number(&mut self) -> ReadResult<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number that does not end".to_owned())
    }

    /// A signed difference to `before`.
    pub fn beside(&mut self, before: u64) -> ReadResult<u64> {
        let written = self.number()?;
        let distance = (written >> 1) ^ (written & 1).wrapping_neg();
        Ok(before.wrapping_add(distance))
    }
}
