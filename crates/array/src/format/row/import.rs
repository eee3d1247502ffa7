//! Rows of volumes that are being imported: the source of the blocks that they have no version of.

use super::{THIS, VERSION, open};
use crate::format::decode_error::DecodeError;
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of the description of a source.
pub const IMPORT_SOURCE_BYTES_MAX: usize = 960;

/// The source of a volume that is being imported. Its key is the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRow {
    /// Size of the source in bytes; the volume ends in the block in which the source ends.
    pub source_bytes: u64,
    /// Bytes of the program that began it, which the pool does not look at: 1 to 960.
    pub source: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawImport {
    version: le::U16,
    source_length: le::U16,
    zero: [u8; 4],
    source_bytes: le::U64,
}

const _: () = assert!(size_of::<RawImport>() == 16);

impl ImportRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_length(self.source.len()), "the description of a source has 1 to 960 bytes");
        let raw = RawImport {
            version: VERSION.into(),
            source_length: (self.source.len() as u16).into(),
            zero: [0; 4],
            source_bytes: self.source_bytes.into(),
        };
        [raw.as_bytes(), &self.source].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawImport>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawImport, zero))?;
        let length = raw.source_length.get();
        let fits = usize::from(length) == rest.len() && is_length(rest.len());
        let length_at = offset_of!(RawImport, source_length);
        THIS.value(fits, length_at, "source length", length, "1 to 960, up to the end of the row")?;
        Ok(Self { source_bytes: raw.source_bytes.get(), source: rest.to_vec() })
    }
}

fn is_length(length: usize) -> bool {
    (1..=IMPORT_SOURCE_BYTES_MAX).contains(&length)
}
