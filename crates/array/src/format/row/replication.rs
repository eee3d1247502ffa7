//! Rows of replication: the record of each DR group, which means nothing to the pool, in parts.
//!
//! A record has the first free number of the table. Its first part names the group. All rows of a change fit into one
//! record of the log, so a crash leaves the record of before, or the new one.

use super::{CatalogueTable, RowKey, THIS, VERSION, open};
use crate::format::{checksum::crc32c, decode_error::DecodeError, units::GroupId};
use std::{collections::BTreeMap, mem::offset_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of a record: its rows, and the removal of those before, take less than one record of the log.
pub const REPLICATION_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the record in its first part, and in each other one.
pub const REPLICATION_HEAD_BYTES_MAX: usize = 992;
pub const REPLICATION_PART_BYTES_MAX: usize = 1016;

/// The first part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationHeadRow {
    pub group: GroupId,
    /// Bytes of the whole record, from 1 to [`REPLICATION_BYTES_MAX`].
    pub length: u32,
    /// CRC-32C of the whole record.
    pub checksum: u32,
    /// The first 992 bytes, or all.
    pub bytes: Vec<u8>,
}

/// A further part of a record: 1 to 1016 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPartRow {
    pub bytes: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    version: le::U16,
    parts: le::U16,
    length: le::U32,
    group: [u8; 16],
    checksum: le::U32,
    zero: [u8; 4],
}

const _: () = assert!(size_of::<RawHead>() + REPLICATION_HEAD_BYTES_MAX == super::ROW_BYTES_MAX);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPart {
    version: le::U16,
    length: le::U16,
    zero: [u8; 4],
}

const _: () = assert!(size_of::<RawPart>() + REPLICATION_PART_BYTES_MAX == super::ROW_BYTES_MAX);

/// Rows of a record of so many bytes.
fn part_count(length: usize) -> usize {
    1 + length.saturating_sub(REPLICATION_HEAD_BYTES_MAX).div_ceil(REPLICATION_PART_BYTES_MAX)
}

impl ReplicationHeadRow {
    pub fn encode(&self) -> Vec<u8> {
        let length = self.length as usize;
        assert!((1..=REPLICATION_BYTES_MAX).contains(&length), "a record has 1 byte to 64 KiB");
        assert_eq!(
            self.bytes.len(),
            length.min(REPLICATION_HEAD_BYTES_MAX),
            "the first part is full, or all"
        );
        let raw = RawHead {
            version: VERSION.into(),
            parts: (part_count(length) as u16).into(),
            length: self.length.into(),
            group: self.group.0,
            checksum: self.checksum.into(),
            zero: [0; 4],
        };
        [raw.as_bytes(), &self.bytes].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawHead>(bytes)?;
        let length = raw.length.get();
        let is_length = (1..=REPLICATION_BYTES_MAX).contains(&(length as usize));
        THIS.value(is_length, offset_of!(RawHead, length), "length", length, "1 to 65536")?;
        let parts = raw.parts.get();
        let is_count = usize::from(parts) == part_count(length as usize);
        THIS.value(is_count, offset_of!(RawHead, parts), "number of parts", parts, "those of the length")?;
        let group_at = offset_of!(RawHead, group);
        THIS.agree(raw.group != [0; 16], group_at, "the UUID of the group is not zero")?;
        THIS.zero(&raw.zero, offset_of!(RawHead, zero))?;
        let is_full = rest.len() == (length as usize).min(REPLICATION_HEAD_BYTES_MAX);
        THIS.agree(is_full, size_of::<RawHead>(), "the first part is full, or the whole record")?;
        Ok(Self { group: GroupId(raw.group), length, checksum: raw.checksum.get(), bytes: rest.to_vec() })
    }

    /// The group that a first part names, although other fields may be damaged.
    pub fn group_of(bytes: &[u8]) -> Option<GroupId> {
        let (raw, _) = RawHead::ref_from_prefix(bytes).ok()?;
        Some(GroupId(raw.group)).filter(|group| *group != GroupId::NONE)
    }
}

impl ReplicationPartRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=REPLICATION_PART_BYTES_MAX).contains(&self.bytes.len()), "a part has 1 to 1016 bytes");
        let length = (self.bytes.len() as u16).into();
        let raw = RawPart { version: VERSION.into(), length, zero: [0; 4] };
        [raw.as_bytes(), &self.bytes].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawPart>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawPart, zero))?;
        let length = usize::from(raw.length.get());
        let is_part = (1..=REPLICATION_PART_BYTES_MAX).contains(&length) && length == rest.len();
        let rule = "1 to 1016, up to the end of the row";
        THIS.value(is_part, offset_of!(RawPart, length), "length", length as u64, rule)?;
        Ok(Self { bytes: rest.to_vec() })
    }
}

/// The record of a DR group. Its bytes mean nothing to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRecord {
    pub group: GroupId,
    /// 1 byte to [`REPLICATION_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

impl ReplicationRecord {
    /// The rows of the record as number `number` of the table, the first part first.
    ///
    /// # Panics
    ///
    /// The record is empty or too large, the group has no UUID, or the number is 0.
    pub fn rows(&self, number: u64) -> Vec<(RowKey, Vec<u8>)> {
        assert!((1..=REPLICATION_BYTES_MAX).contains(&self.bytes.len()), "a record has 1 byte to 64 KiB");
        assert!(
            number > 0 && self.group != GroupId::NONE,
            "records are numbered from 1, and name their group"
        );
        let (first, rest) = self.bytes.split_at(self.bytes.len().min(REPLICATION_HEAD_BYTES_MAX));
        let head = ReplicationHeadRow {
            group: self.group,
            length: self.bytes.len() as u32,
            checksum: crc32c(&self.bytes),
            bytes: first.to_vec(),
        };
        let part = |(index, bytes): (u64, &[u8])| {
            (RowKey::of_replication(number, index), ReplicationPartRow { bytes: bytes.to_vec() }.encode())
        };
        let parts = (1..).zip(rest.chunks(REPLICATION_PART_BYTES_MAX)).map(part);
        [(RowKey::of_replication(number, 0), head.encode())].into_iter().chain(parts).collect()
    }

    /// The record of the rows of one number. Rows behind its last part mean nothing.
    ///
    /// # Errors
    ///
    /// A part is damaged or missing, or they do not belong together.
    pub fn of_rows<'r>(rows: impl IntoIterator<Item = (RowKey, &'r [u8])>) -> Result<Self, DecodeError> {
        let rows: BTreeMap<u64, &[u8]> = rows.into_iter().map(|(key, bytes)| (key.sub, bytes)).collect();
        let part_at = |index: u64| {
            let row = rows.get(&index);
            THIS.agree(row.is_some(), 0, "the record of a group has all parts that its first one counts")?;
            Ok(*row.expect("looked at above"))
        };
        let ReplicationHeadRow { group, length, checksum, mut bytes } =
            ReplicationHeadRow::decode(part_at(0)?)?;
        let length = length as usize;
        for index in 1..part_count(length) as u64 {
            let part = ReplicationPartRow::decode(part_at(index)?)?;
            let is_full = part.bytes.len() == (length - bytes.len()).min(REPLICATION_PART_BYTES_MAX);
            THIS.agree(is_full, 0, "a part of a group's record is as long as the first one says")?;
            bytes.extend(part.bytes);
        }
        let checksum_at = offset_of!(RawHead, checksum);
        THIS.agree(crc32c(&bytes) == checksum, checksum_at, "the record of a group has its checksum")?;
        Ok(Self { group, bytes })
    }
}

impl RowKey {
    /// Key of a part of a DR group's record; records are numbered from 1, parts from 0.
    pub fn of_replication(number: u64, part: u64) -> Self {
        Self { table: CatalogueTable::Replication, id: number, sub: part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::ENTRIES_MAX;

    fn record(length: usize) -> ReplicationRecord {
        let bytes = (0..length).map(|index| (index as u8).wrapping_mul(31)).collect();
        ReplicationRecord { group: GroupId([7; 16]), bytes }
    }

    fn read(rows: &[(RowKey, Vec<u8>)]) -> Result<ReplicationRecord, DecodeError> {
        ReplicationRecord::of_rows(rows.iter().map(|(key, bytes)| (*key, bytes.as_slice())))
    }

    #[test]
    fn a_record_of_any_length_comes_back_from_its_rows() {
        for length in [1, 991, 992, 993, 2008, 2009, REPLICATION_BYTES_MAX] {
            let rows = record(length).rows(3);
            assert_eq!(rows.len(), part_count(length));
            assert_eq!(read(&rows).expect("it is whole"), record(length), "{length}");
        }
    }

    #[test]
    fn the_rows_of_the_largest_record_fit_into_one_record_of_the_log() {
        assert!(part_count(REPLICATION_BYTES_MAX) <= ENTRIES_MAX);
    }

    #[test]
    fn rows_of_a_longer_record_of_before_mean_nothing() {
        let mut rows = record(3000).rows(3);
        rows.extend(record(9000).rows(3).split_off(rows.len()));
        assert_eq!(read(&rows).expect("it is whole"), record(3000));
    }

    #[test]
    fn a_changed_bit_or_a_missing_row_is_refused_or_seen_in_the_group_alone() {
        let whole = record(2500).rows(3);
        for row in 0..whole.len() {
            let mut rows = whole.clone();
            rows.remove(row);
            read(&rows).expect_err("a part is missing");
            for at in 0..whole[row].1.len() {
                let mut rows = whole.clone();
                rows[row].1[at] ^= 1 << (at % 8);
                // The group's UUID is in no checksum but the node's.
                match read(&rows) {
                    Ok(read) => {
                        assert!(row == 0 && (8..24).contains(&at) && read.bytes == record(2500).bytes)
                    }
                    Err(refusal) => assert!(!refusal.to_string().contains('\n')),
                }
                rows[row].1.truncate(at);
                read(&rows).expect_err("it is cut short");
            }
        }
    }
}
