//! What is asked of a unit, and read from its answers (SPC-4, SBC-3). Only bytes.

use crate::scsi::commands::code;

/// A command descriptor block, filled up with zeroes.
pub type Cdb = [u8; 16];

/// TEST UNIT READY.
pub const TEST_UNIT_READY: Cdb = [0; 16];

/// INQUIRY: standard data, or a page of vital product data.
pub fn inquiry(page: Option<u8>) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::INQUIRY;
    (cdb[1], cdb[2]) = (page.is_some().into(), page.unwrap_or(0));
    cdb[3..5].copy_from_slice(&(PARAMETER_BYTES as u16).to_be_bytes());
    cdb
}

/// Bytes of parameters that are asked for at most. One byte tells lengths in the older commands.
pub const PARAMETER_BYTES: usize = 252;

/// READ CAPACITY(10).
pub fn read_capacity_10() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::READ_CAPACITY_10;
    cdb
}

/// READ CAPACITY(16).
pub fn read_capacity_16() -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code::SERVICE_ACTION_IN_16, code::READ_CAPACITY_16 as u8);
    cdb[10..14].copy_from_slice(&32_u32.to_be_bytes());
    cdb
}

/// MODE SENSE(6) of the caching page.
pub fn mode_sense() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::MODE_SENSE_6;
    // Block descriptors are of no use.
    (cdb[1], cdb[2], cdb[4]) = (0x08, CACHING_PAGE, PARAMETER_BYTES as u8);
    cdb
}

const CACHING_PAGE: u8 = 0x08;

/// SYNCHRONIZE CACHE(10) of all blocks.
pub fn synchronize_cache() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::SYNCHRONIZE_CACHE_10;
    cdb
}

/// READ(16).
pub fn read(block: u64, count: u32) -> Cdb {
    transfer(code::READ_16, 0, block, count)
}

/// WRITE(16), stable when answered or not.
pub fn write(block: u64, count: u32, is_stable: bool) -> Cdb {
    transfer(code::WRITE_16, if is_stable { FUA } else { 0 }, block, count)
}

const FUA: u8 = 0x08;

fn transfer(code: u8, flags: u8, block: u64, count: u32) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    cdb[2..10].copy_from_slice(&block.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

/// UNMAP with its list of one range.
pub fn unmap(block: u64, count: u32) -> (Cdb, [u8; 24]) {
    let mut list = [0; 24];
    list[0..2].copy_from_slice(&22_u16.to_be_bytes());
    list[2..4].copy_from_slice(&16_u16.to_be_bytes());
    list[8..16].copy_from_slice(&block.to_be_bytes());
    list[16..20].copy_from_slice(&count.to_be_bytes());
    let mut cdb = [0; 16];
    cdb[0] = code::UNMAP;
    cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
    (cdb, list)
}

/// What a unit says is wrong, in either format (SPC-4, 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Sense key.
    pub key: u8,
    /// Additional sense code and its qualifier.
    pub additional: (u8, u8),
}

impl Trouble {
    /// From the data of a response: sense data behind their length. None if there are none.
    pub fn of(data: &[u8]) -> Option<Self> {
        let sense = data.get(2..)?;
        let byte = |at: usize| sense.get(at).copied();
        match byte(0)? & 0x7f {
            0x70 | 0x71 => {
                let additional = (byte(12).unwrap_or(0), byte(13).unwrap_or(0));
                Some(Self { key: byte(2)? & 0x0f, additional })
            }
            0x72 | 0x73 => Some(Self { key: byte(1)? & 0x0f, additional: (byte(2)?, byte(3)?) }),
            _ => None,
        }
    }
}

/// Standard inquiry data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standard {
    /// Peripheral qualifier: 0 if there is a unit.
    pub qualifier: u8,
    /// Peripheral device type: 0 for a disk.
    pub device: u8,
    /// Who makes it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Which edition.
    pub revision: String,
}

/// Reads standard inquiry data; none if they are too short to be any.
pub fn standard(data: &[u8]) -> Option<Standard> {
    let field = |from: usize, to: usize| words(data.get(from..to).unwrap_or_default());
    let first = data.first()?;
    Some(Standard {
        qualifier: first >> 5,
        device: first & 0x1f,
        vendor: field(8, 16),
        product: field(16, 32),
        revision: field(32, 36),
    })
}

/// What is printable of a field, without blanks around it.
fn words(bytes: &[u8]) -> String {
    let plain = |byte: &u8| if matches!(byte, 32..127) { char::from(*byte) } else { ' ' };
    bytes.iter().map(plain).collect::<String>().trim().to_owned()
}

/// What a page of vital product data has behind its header; none if it is another one.
pub fn page(data: &[u8], page: u8) -> Option<&[u8]> {
    let length = usize::from(u16::from_be_bytes([*data.get(2)?, *data.get(3)?]));
    let body = &data[4..];
    (data[1] == page).then(|| &body[..length.min(body.len())])
}

/// A serial number (page 80).
pub fn serial(body: &[u8]) -> String {
    words(body)
}

/// Blocks of one transfer, of one UNMAP, at most (page B0); zero where nothing is said.
pub fn limits(body: &[u8]) -> (u32, u32) {
    let number = |at: usize| body.get(at..at + 4).map_or(0, be32);
    (number(4), number(16))
}

/// Whether UNMAP is known (page B2).
pub fn can_unmap(body: &[u8]) -> bool {
    body.get(1).is_some_and(|flags| flags & 0x80 != 0)
}

/// Blocks, and bytes of one (READ CAPACITY of either length).
pub fn capacity(data: &[u8]) -> Option<(u64, u32)> {
    let (last, bytes) = match data.len() {
        8 => (u64::from(be32(data)), be32(&data[4..])),
        12.. => (u64::from_be_bytes(data[..8].try_into().expect("eight bytes")), be32(&data[8..])),
        _ => return None,
    };
    Some((last.checked_add(1)?, bytes))
}

/// How a unit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// Not at all.
    pub is_read_only: bool,
    /// FUA means something.
    pub can_fua: bool,
    /// What is answered may be lost without a flush.
    pub has_cache: bool,
}

impl Writing {
    /// What must be taken for so where nothing is said.
    pub const UNKNOWN: Self = Self { is_read_only: false, can_fua: false, has_cache: true };
}

/// Reads MODE SENSE(6).
pub fn writing(data: &[u8]) -> Option<Writing> {
    let (flags, descriptors) = (*data.get(2)?, usize::from(*data.get(3)?));
    let page = data.get(4 + descriptors..).unwrap_or_default();
    let is_caching = page.first().is_some_and(|code| code & 0x3f == CACHING_PAGE);
    let has_cache = if is_caching { page.get(2).is_none_or(|flags| flags & 0x04 != 0) } else { true };
    Some(Writing { is_read_only: flags & 0x80 != 0, can_fua: flags & 0x10 != 0, has_cache })
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::sense::{AdditionalSense, Sense, SenseKey};

    #[test]
    fn sense_data_are_read_in_both_formats_and_cut_ones_are_none() {
        let sense = Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED);
        for bytes in [sense.fixed().to_vec(), sense.descriptors()] {
            let data = [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
            assert_eq!(Trouble::of(&data), Some(Trouble { key: 7, additional: (0x27, 7) }));
            for length in 0..data.len() {
                let _ = Trouble::of(&data[..length]);
            }
        }
        assert_eq!(Trouble::of(&[0, 4, 0x7f, 1, 2, 3]), None);
    }

    #[test]
    fn answers_are_read_and_cut_ones_do_no_harm() {
        assert_eq!(capacity(&[0, 0, 0, 7, 0, 0, 2, 0]), Some((8, 512)));
        let mut long = vec![0; 32];
        (long[7], long[10]) = (9, 0x10);
        assert_eq!(capacity(&long), Some((10, 4096)));
        assert_eq!(capacity(&[0xff; 32]), None, "no unit has so many");
        let mode = [0x17, 0, 0x90, 0, 0x08, 0x12, 0x04];
        assert_eq!(writing(&mode), Some(Writing { is_read_only: true, can_fua: true, has_cache: true }));
        assert_eq!(writing(&[3, 0, 0, 0]), Some(Writing::UNKNOWN));
        let mut random = world::Random::new(1, "answers");
        for length in 0..300 {
            let mut data = vec![0; length];
            random.fill(&mut data);
            let _ = (standard(&data), page(&data, data.get(1).copied().unwrap_or(0)), capacity(&data));
            let _ = (limits(&data), can_unmap(&data), serial(&data), writing(&data));
        }
    }
}
