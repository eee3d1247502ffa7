//! Properties of a logical unit that stay constant while it is served.

use super::identity::UnitIdentity;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitProperties {
    /// PRODUCT IDENTIFICATION: at most 16 printable ASCII characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL: at most 4 characters.
    pub revision: String,
    pub identity: UnitIdentity,
    /// Bytes of a logical block: 512 or 4096.
    pub block_bytes: u32,
    /// Bytes of a physical block, a power of two times `block_bytes`: 4096 for 512e.
    pub physical_bytes: u32,
    pub is_read_only: bool,
    /// Thinly provisioned: unmapped blocks take no space and read as zeroes.
    pub is_thin: bool,
    /// RMB: START STOP UNIT can eject and load the medium.
    pub is_removable: bool,
    /// Relative target port identifier, from 1.
    pub port: u16,
}

/// T10 VENDOR IDENTIFICATION: at most 8 characters.
pub const VENDOR: &str = "SPINDLE";
/// MAXIMUM TRANSFER LENGTH in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// MAXIMUM COMPARE AND WRITE LENGTH in blocks.
pub const COMPARE_BLOCKS_MAX: u8 = 255;
/// MAXIMUM UNMAP LBA COUNT.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
pub const UNMAP_RANGES_MAX: u32 = 256;
/// MAXIMUM WRITE SAME LENGTH: the limit of the ten-byte command, in whole physical blocks.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 0xfff8;

impl UnitProperties {
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub fn physical_exponent(&self) -> u8 {
        (self.physical_bytes / self.block_bytes).ilog2() as u8
    }

    pub fn transfer_blocks_max(&self) -> u32 {
        TRANSFER_BYTES_MAX / self.block_bytes
    }

    /// Panics if a property does not fit its field.
    pub fn check(&self) {
        let is_text =
            |text: &str, most: usize| text.len() <= most && text.bytes().all(|byte| matches!(byte, 32..127));
        assert!(is_text(&self.product, 16) && is_text(&self.revision, 4), "{self:?}");
        assert!(matches!(self.block_bytes, 512 | 4096), "{self:?}");
        let blocks = self.physical_bytes / self.block_bytes;
        assert!(blocks.is_power_of_two() && self.physical_bytes.is_multiple_of(self.block_bytes), "{self:?}");
    }
}

/// A left-aligned ASCII field, padded with spaces.
pub fn padded<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut field = [b' '; LENGTH];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}
