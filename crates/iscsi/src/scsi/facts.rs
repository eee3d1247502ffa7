//! What a logical unit is, as far as it does not change while it is served.

use super::identity::Identity;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// For people: at most 16 printable characters of ASCII.
    pub product: String,
    /// Of the program: at most 4 characters.
    pub revision: String,
    /// What it is known by: no other unit anywhere has it.
    pub identity: Identity,
    /// Bytes of a logical block: 512 or 4096.
    pub block_bytes: u32,
    /// Bytes that are written best at once, a power of two times those of a logical block: 4096 for 512e.
    pub physical_bytes: u32,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// What is unmapped takes no space, and reads as zeroes.
    pub is_thin: bool,
    /// Its medium can be taken out and put in again (START STOP UNIT).
    pub is_removable: bool,
    /// Which port of the target this is, from 1 on.
    pub port: u16,
}

/// Who makes it: at most 8 characters (T10 vendor identification).
pub const VENDOR: &str = "SPINDLE";
/// Bytes of one transfer at most.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Blocks that COMPARE AND WRITE takes at most.
pub const COMPARE_BLOCKS_MAX: u8 = 255;
/// Blocks and ranges of one UNMAP at most.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// See [`UNMAP_BLOCKS_MAX`].
pub const UNMAP_RANGES_MAX: u32 = 256;
/// Blocks of one WRITE SAME at most: what the ten-byte command can say, in whole granules.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 0xfff8;

impl Facts {
    /// Which power of two of logical blocks make a physical one.
    pub fn physical_exponent(&self) -> u8 {
        (self.physical_bytes / self.block_bytes).ilog2() as u8
    }

    /// Blocks of one transfer at most.
    pub fn transfer_blocks_max(&self) -> u32 {
        TRANSFER_BYTES_MAX / self.block_bytes
    }

    /// Whether they fit where they are shown.
    pub fn check(&self) {
        let is_text =
            |text: &str, most: usize| text.len() <= most && text.bytes().all(|byte| matches!(byte, 32..127));
        assert!(is_text(&self.product, 16) && is_text(&self.revision, 4), "{self:?}");
        assert!(matches!(self.block_bytes, 512 | 4096), "{self:?}");
        let blocks = self.physical_bytes / self.block_bytes;
        assert!(blocks.is_power_of_two() && self.physical_bytes.is_multiple_of(self.block_bytes), "{self:?}");
    }
}

/// A text in a field of fixed length: left-aligned, filled with spaces.
pub fn padded<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut field = [b' '; LENGTH];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}
