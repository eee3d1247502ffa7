//! The file table of an extent directory on the device.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "SPNDLDIR"
//!      8      4  version, 1
//!     12      4  CRC-32C of the image's `length` bytes without these four
//!     16      8  sequence number: the higher of two valid copies is the state
//!     24      8  size of the device when it was formatted, in bytes
//!     32      4  length of this image, in bytes
//!     36      4  number of files, at most 512
//!     40     24  zero
//!     64         the files, by name:
//!                   64  name: UTF-8, plain, filled up with zeroes
//!                    8  size, in bytes, a multiple of 512
//!                    4  number of extents, at most 64
//!                    4  zero
//!                   16  per extent: start and length in bytes, multiples of 64 KiB, start >= 2 MiB
//! ```
//!
//! All numbers are little-endian. An image is valid if, besides the above,
//!
//! 1. magic, version, length and checksum are right and the files fill the length exactly;
//! 2. names are plain, in ascending order and different;
//! 3. a file's extents hold its size, rounded up to 64 KiB, and no more;
//! 4. extents lie on the device and no two of any files overlap.

use crate::crc32c::crc32c;
use crate::plain_name::{NAME_BYTES_MAX, check_plain_name};
use std::collections::BTreeMap;

/// Unit of allocation, in bytes.
pub(super) const UNIT: u64 = 64 << 10;
/// Bytes reserved for one copy of the table.
pub(super) const COPY_SPACE: u64 = 1 << 20;
/// Start of file data, in bytes: behind the two copies.
pub(super) const DATA_START: u64 = 2 * COPY_SPACE;
pub const FILES_MAX: usize = 512;
/// Extents of one file, at most.
pub const EXTENTS_MAX: usize = 64;

const MAGIC: &[u8; 8] = b"SPNDLDIR";
const VERSION: u32 = 1;
/// Sizes are multiples of the smallest sector size.
const SIZE_UNIT: u64 = 512;
const HEADER: usize = 64;
const FILE: usize = NAME_BYTES_MAX + 16;
const EXTENT: usize = 16;

const _: () = assert!((HEADER + FILES_MAX * (FILE + EXTENTS_MAX * EXTENT)) as u64 <= COPY_SPACE);

/// A run of bytes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub start: u64,
    pub length: u64,
}

impl Extent {
    pub fn end(self) -> u64 {
        self.start + self.length
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub size: u64,
    pub extents: Vec<Extent>,
}

/// The contents of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub sequence: u64,
    pub device_size: u64,
    pub files: BTreeMap<String, TableFile>,
}

/// The reason an image is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFault {
    Magic,
    Version,
    Length,
    Checksum,
    Name,
    Size,
    Extents,
}

impl Table {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.files.len() <= FILES_MAX, "files were counted before they were added");
        let mut image = vec![0; HEADER];
        for (name, file) in &self.files {
            assert!(file.extents.len() <= EXTENTS_MAX, "extents were counted before they were added");
            let start = image.len();
            image.extend_from_slice(name.as_bytes());
            image.resize(start + NAME_BYTES_MAX, 0);
            image.extend_from_slice(&file.size.to_le_bytes());
            image.extend_from_slice(&(file.extents.len() as u32).to_le_bytes());
            image.extend_from_slice(&[0; 4]);
            for extent in &file.extents {
                image.extend_from_slice(&extent.start.to_le_bytes());
                image.extend_from_slice(&extent.length.to_le_bytes());
            }
        }
        let length = image.len() as u32;
        image[..8].copy_from_slice(MAGIC);
        image[8..12].copy_from_slice(&VERSION.to_le_bytes());
        image[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        image[24..32].copy_from_slice(&self.device_size.to_le_bytes());
        image[32..36].copy_from_slice(&length.to_le_bytes());
        image[36..40].copy_from_slice(&(self.files.len() as u32).to_le_bytes());
        let checksum = crc32c(&[&image[..12], &image[16..]]);
        image[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            Self::decode(&image).as_ref(),
            Ok(self),
            "a table is never written that does not read back"
        );
        image
    }

    /// Length of the image that begins with `header`, from a plausible header only.
    pub fn image_length(header: &[u8]) -> Result<usize, TableFault> {
        let mut fields = Fields(header);
        if fields.take::<8>(TableFault::Magic)? != *MAGIC {
            return Err(TableFault::Magic);
        }
        if fields.u32(TableFault::Version)? != VERSION {
            return Err(TableFault::Version);
        }
        fields.take::<20>(TableFault::Length)?;
        let length = fields.u32(TableFault::Length)?;
        if (HEADER as u64..=COPY_SPACE).contains(&u64::from(length)) {
            Ok(length as usize)
        } else {
            Err(TableFault::Length)
        }
    }

    /// Decodes an image; bytes behind it are ignored. Accepts any input and validates everything.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableFault> {
        let length = Self::image_length(bytes)?;
        let image = bytes.get(..length).ok_or(TableFault::Length)?;
        let mut fields = Fields(&image[12..]);
        if fields.u32(TableFault::Length)? != crc32c(&[&image[..12], &image[16..]]) {
            return Err(TableFault::Checksum);
        }
        let sequence = fields.u64(TableFault::Length)?;
        let device_size = fields.u64(TableFault::Length)?;
        fields.u32(TableFault::Length)?;
        let count = fields.u32(TableFault::Length)?;
        if fields.take::<24>(TableFault::Length)? != [0; 24] || count as usize > FILES_MAX {
            return Err(TableFault::Length);
        }
        let mut files: BTreeMap<String, TableFile> = BTreeMap::new();
        for _ in 0..count {
            let (name, file) = decode_file(&mut fields)?;
            if files.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(TableFault::Name);
            }
            files.insert(name, file);
        }
        if !fields.0.is_empty() {
            return Err(TableFault::Length);
        }
        let table = Self { sequence, device_size, files };
        table.check_extents()?;
        Ok(table)
    }

    fn check_extents(&self) -> Result<(), TableFault> {
        let mut all: Vec<Extent> = self.files.values().flat_map(|file| file.extents.clone()).collect();
        all.sort();
        let mut free_from = DATA_START;
        for extent in all {
            let aligned = extent.start % UNIT == 0 && extent.length % UNIT == 0 && extent.length > 0;
            let end = extent.start.checked_add(extent.length).ok_or(TableFault::Extents)?;
            if !aligned || extent.start < free_from || end > self.device_size {
                return Err(TableFault::Extents);
            }
            free_from = end;
        }
        Ok(())
    }
}

fn decode_file(fields: &mut Fields<'_>) -> Result<(String, TableFile), TableFault> {
    let padded = fields.take::<NAME_BYTES_MAX>(TableFault::Length)?;
    let length = padded.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES_MAX);
    let (name, padding) = padded.split_at(length);
    let name = str::from_utf8(name).map_err(|_| TableFault::Name)?;
    if check_plain_name(name).is_err() || padding.iter().any(|&byte| byte != 0) {
        return Err(TableFault::Name);
    }
    let size = fields.u64(TableFault::Length)?;
    let count = fields.u32(TableFault::Length)?;
    if fields.u32(TableFault::Length)? != 0 || count as usize > EXTENTS_MAX {
        return Err(TableFault::Extents);
    }
    let mut extents = Vec::new();
    let mut held = 0_u64;
    for _ in 0..count {
        let extent =
            Extent { start: fields.u64(TableFault::Length)?, length: fields.u64(TableFault::Length)? };
        held = held.checked_add(extent.length).ok_or(TableFault::Extents)?;
        extents.push(extent);
    }
    if size % SIZE_UNIT != 0 || size.checked_next_multiple_of(UNIT) != Some(held) {
        return Err(TableFault::Size);
    }
    Ok((name.to_owned(), TableFile { size, extents }))
}

/// A cursor over undecoded bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self, fault: TableFault) -> Result<[u8; N], TableFault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(fault)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self, fault: TableFault) -> Result<u32, TableFault> {
        self.take(fault).map(u32::from_le_bytes)
    }

    fn u64(&mut self, fault: TableFault) -> Result<u64, TableFault> {
        self.take(fault).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn sample() -> Table {
        let unit = |index: u64, count: u64| Extent { start: DATA_START + index * UNIT, length: count * UNIT };
        let file = |size, extents: &[Extent]| TableFile { size, extents: extents.to_vec() };
        let files = [
            ("E00.log".to_owned(), file(UNIT, &[unit(7, 1)])),
            ("empty".to_owned(), file(0, &[])),
            ("mail.edb".to_owned(), file(3 * UNIT - 512, &[unit(4, 2), unit(0, 1)])),
        ];
        Table { sequence: 9, device_size: DATA_START + 8 * UNIT, files: files.into() }
    }

    #[test]
    fn a_table_decodes_to_what_was_encoded_whatever_follows_it() {
        let mut image = sample().encode();
        image.extend_from_slice(&[0x5a; 5000]);
        assert_eq!(Table::decode(&image), Ok(sample()));
    }

    #[test]
    fn any_change_to_an_image_is_detected_and_none_panics() {
        let image = sample().encode();
        let mut random = Random::new(3, "mutations");
        for _ in 0..20_000 {
            let mut bytes = image.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 + random.below(255) as u8;
            }
            if bytes != image {
                assert!(Table::decode(&bytes).is_err());
            }
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            assert!(Table::decode(&bytes).is_err());
        }
    }

    #[test]
    fn an_image_with_a_valid_checksum_is_still_validated() {
        // The mutations again with a valid checksum: an image that decodes must keep the rules of the format.
        let image = sample().encode();
        let mut random = Random::new(4, "signed mutations");
        let mut accepted = 0;
        for _ in 0..50_000 {
            let mut bytes = image.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = match random.below(3) {
                    0 => 0,
                    1 => 0xff,
                    _ => random.next_u64() as u8,
                };
            }
            let checksum = crc32c(&[&bytes[..12], &bytes[16..]]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
            if let Ok(table) = Table::decode(&bytes) {
                accepted += 1;
                // Encoding asserts that it decodes to the same again.
                assert_eq!(table.encode(), bytes);
            }
        }
        assert!(accepted > 0, "not one mutation reached the checks behind the checksum");
    }

    #[test]
    fn overlapping_and_outlying_extents_are_refused() {
        let refused = |spoil: fn(&mut Table)| {
            let mut table = sample();
            spoil(&mut table);
            table.check_extents().unwrap_err()
        };
        for fault in [
            refused(|table| table.files.get_mut("E00.log").unwrap().extents[0].start = DATA_START),
            refused(|table| table.files.get_mut("E00.log").unwrap().extents[0].start = DATA_START - UNIT),
            refused(|table| table.files.get_mut("E00.log").unwrap().extents[0].start += UNIT),
            refused(|table| table.files.get_mut("E00.log").unwrap().extents[0].start += 512),
        ] {
            assert_eq!(fault, TableFault::Extents);
        }
    }
}
