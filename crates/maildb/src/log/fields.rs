//! Decoding little-endian fields from the front of untrusted bytes.

use super::record::LogRecordError;

/// The undecoded rest of a record. Every read returns a field or [`LogRecordError::Truncated`].
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `length` bytes, borrowed, so that a wrong length allocates nothing.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], LogRecordError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(LogRecordError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], LogRecordError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(LogRecordError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, LogRecordError> {
        self.array::<1>().map(|&[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, LogRecordError> {
        self.array().map(|&bytes| u16::from_le_bytes(bytes))
    }

    pub(super) fn u32(&mut self) -> Result<u32, LogRecordError> {
        self.array().map(|&bytes| u32::from_le_bytes(bytes))
    }

    pub(super) fn u64(&mut self) -> Result<u64, LogRecordError> {
        self.array().map(|&bytes| u64::from_le_bytes(bytes))
    }
}

/// Encodes a length. Panics if it exceeds a u16.
pub(super) fn length_u16(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("keys, data and names are below 64 KiB").to_le_bytes()
}

/// Encodes a length. Panics if it exceeds a u32.
pub(super) fn length_u32(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("records are far below 4 GiB").to_le_bytes()
}
