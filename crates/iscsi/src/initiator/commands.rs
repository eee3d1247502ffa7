//! Command descriptor blocks an initiator sends, and the parsing of what comes back (SPC-4, SBC-3). No I/O.

use crate::scsi::commands::code;

/// A command descriptor block, padded with zeroes.
pub type Cdb = [u8; 16];

pub const TEST_UNIT_READY: Cdb = [0; 16];

/// INQUIRY of the standard data, or of page `page` of the vital product data.
pub fn inquiry(page: Option<u8>) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::INQUIRY;
    (cdb[1], cdb[2]) = (page.is_some().into(), page.unwrap_or(0));
    cdb[3..5].copy_from_slice(&(PARAMETER_BYTES as u16).to_be_bytes());
    cdb
}

/// Allocation length of parameter data: the older commands have one byte for it.
pub const PARAMETER_BYTES: usize = 252;

pub fn read_capacity_10() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::READ_CAPACITY_10;
    cdb
}

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
    // DBD: no block descriptors.
    (cdb[1], cdb[2], cdb[4]) = (0x08, CACHING_PAGE, PARAMETER_BYTES as u8);
    cdb
}

const CACHING_PAGE: u8 = 0x08;

/// SYNCHRONIZE CACHE(10) of the whole unit.
pub fn synchronize_cache() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code::SYNCHRONIZE_CACHE_10;
    cdb
}

pub fn read(block: u64, count: u32) -> Cdb {
    transfer(code::READ_16, 0, block, count)
}

/// WRITE(16), with FUA if `is_stable`.
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

/// UNMAP of one range, with its parameter list.
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

/// Sense key and additional sense code, from sense data in fixed or descriptor format (SPC-4, 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenseCode {
    pub key: u8,
    /// ASC and ASCQ.
    pub additional: (u8, u8),
}

impl SenseCode {
    /// Parses the data segment of a SCSI Response: two bytes of length, then sense data. `None` if there are
    /// none.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardInquiry {
    /// Peripheral qualifier: 0 if the logical unit is connected.
    pub qualifier: u8,
    /// Peripheral device type: 0 for a disk.
    pub device: u8,
    pub vendor: String,
    pub product: String,
    pub revision: String,
}

/// Parses standard INQUIRY data; `None` if there are no bytes.
pub fn standard(data: &[u8]) -> Option<StandardInquiry> {
    let field = |from: usize, to: usize| printable(data.get(from..to).unwrap_or_default());
    let first = data.first()?;
    Some(StandardInquiry {
        qualifier: first >> 5,
        device: first & 0x1f,
        vendor: field(8, 16),
        product: field(16, 32),
        revision: field(32, 36),
    })
}

/// The printable characters of an ASCII field, trimmed.
fn printable(bytes: &[u8]) -> String {
    let plain = |byte: &u8| if matches!(byte, 32..127) { char::from(*byte) } else { ' ' };
    bytes.iter().map(plain).collect::<String>().trim().to_owned()
}

/// The body of VPD page `page`; `None` if `data` is another page, or cut.
pub fn page(data: &[u8], page: u8) -> Option<&[u8]> {
    let length = usize::from(u16::from_be_bytes([*data.get(2)?, *data.get(3)?]));
    let body = &data[4..];
    (data[1] == page).then(|| &body[..length.min(body.len())])
}

/// The unit serial number (page 80h).
pub fn serial(body: &[u8]) -> String {
    printable(body)
}

/// MAXIMUM TRANSFER LENGTH and MAXIMUM UNMAP LBA COUNT, in blocks (page B0h); zero means not reported.
pub fn limits(body: &[u8]) -> (u32, u32) {
    let number = |at: usize| body.get(at..at + 4).map_or(0, be32);
    (number(4), number(16))
}

/// LBPU of page B2h: the unit supports UNMAP.
pub fn can_unmap(body: &[u8]) -> bool {
    body.get(1).is_some_and(|flags| flags & 0x80 != 0)
}

/// Number of blocks and bytes of a block, from READ CAPACITY(10) or (16).
pub fn capacity(data: &[u8]) -> Option<(u64, u32)> {
    let (last, bytes) = match data.len() {
        8 => (u64::from(be32(data)), be32(&data[4..])),
        12.. => (u64::from_be_bytes(data[..8].try_into().expect("eight bytes")), be32(&data[8..])),
        _ => return None,
    };
    Some((last.checked_add(1)?, bytes))
}

/// Write properties from MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSupport {
    /// WP: the unit is write-protected.
    pub is_read_only: bool,
    /// DPOFUA: the unit supports FUA.
    pub can_fua: bool,
    /// WCE: an acknowledged write may be lost without a flush.
    pub has_cache: bool,
}

impl WriteSupport {
    /// The cautious assumption for a unit without MODE SENSE.
    pub const UNKNOWN: Self = Self { is_read_only: false, can_fua: false, has_cache: true };
}

/// Parses MODE SENSE(6) data.
pub fn write_support(data: &[u8]) -> Option<WriteSupport> {
    let (flags, descriptors) = (*data.get(2)?, usize::from(*data.get(3)?));
    let page = data.get(4 + descriptors..).unwrap_or_default();
    let is_caching = page.first().is_some_and(|code| code & 0x3f == CACHING_PAGE);
    let has_cache = if is_caching { page.get(2).is_none_or(|flags| flags & 0x04 != 0) } else { true };
    Some(WriteSupport { is_read_only: flags & 0x80 != 0, can_fua: flags & 0x10 != 0, has_cache })
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::sense::{AdditionalSense, Sense, SenseKey};

    #[test]
    fn sense_data_are_parsed_in_both_formats_and_refused_if_truncated() {
        let sense = Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED);
        for bytes in [sense.fixed().to_vec(), sense.descriptors()] {
            let data = [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
            assert_eq!(SenseCode::of(&data), Some(SenseCode { key: 7, additional: (0x27, 7) }));
            for length in 0..data.len() {
                let _ = SenseCode::of(&data[..length]);
            }
        }
        assert_eq!(SenseCode::of(&[0, 4, 0x7f, 1, 2, 3]), None);
    }

    #[test]
    fn answers_are_parsed_and_truncated_ones_do_no_harm() {
        assert_eq!(capacity(&[0, 0, 0, 7, 0, 0, 2, 0]), Some((8, 512)));
        let mut long = vec![0; 32];
        (long[7], long[10]) = (9, 0x10);
        assert_eq!(capacity(&long), Some((10, 4096)));
        assert_eq!(capacity(&[0xff; 32]), None, "no unit has so many");
        let mode = [0x17, 0, 0x90, 0, 0x08, 0x12, 0x04];
        assert_eq!(
            write_support(&mode),
            Some(WriteSupport { is_read_only: true, can_fua: true, has_cache: true })
        );
        assert_eq!(write_support(&[3, 0, 0, 0]), Some(WriteSupport::UNKNOWN));
        let mut random = world::Random::new(1, "answers");
        for length in 0..300 {
            let mut data = vec![0; length];
            random.fill(&mut data);
            let _ = (standard(&data), page(&data, data.get(1).copied().unwrap_or(0)), capacity(&data));
            let _ = (limits(&data), can_unmap(&data), serial(&data), write_support(&data));
        }
    }
}
