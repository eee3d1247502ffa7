//! Rows of the site that serves the pool: a document that belongs to whoever serves it, in parts, and a head that names the
//! parts that count.
//!
//! A document is replaced by new parts under another number, then a new head, then the removal of the old parts. So after a
//! crash at any moment, the head names one whole document.

use super::{CatalogueTable, RowKey, THIS, VERSION, open};
use crate::format::{
    checksum::crc32c,
    decode_error::DecodeError,
    units::{SiteId, WallNanoseconds},
};
use std::{collections::BTreeMap, mem::offset_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Bytes of the document in each part but the last.
pub const SITE_PART_BYTES_MAX: usize = 1016;
/// Most bytes of a document.
pub const SITE_BYTES_MAX: usize = 4 << 20;
/// The highest number of a change, so that there is always a next one.
pub const SITE_GENERATION_MAX: u64 = 1 << 62;

/// The document of the site that serves a pool. Its bytes mean nothing to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteDocument {
    pub site: SiteId,
    /// Counted up by the site with each change, from 1 to [`SITE_GENERATION_MAX`].
    pub generation: u64,
    pub written_at: WallNanoseconds,
    /// 1 byte to [`SITE_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

/// The row that says which parts count, and what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHeadRow {
    pub site: SiteId,
    /// From 1.
    pub generation: u64,
    /// Number of the set of parts, from 1.
    pub set: u64,
    pub written_at: WallNanoseconds,
    /// Bytes of the document.
    pub length: u32,
    /// CRC-32C of the document.
    pub checksum: u32,
}

/// A part of a document: 1 to 1016 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePartRow {
    pub bytes: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSiteHead {
    version: le::U16,
    zero: [u8; 6],
    site: [u8; 16],
    generation: le::U64,
    set: le::U64,
    written_at: le::U64,
    length: le::U32,
    checksum: le::U32,
}

const _: () = assert!(size_of::<RawSiteHead>() == 56);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSitePart {
    version: le::U16,
    length: le::U16,
    zero: [u8; 4],
}

const _: () = assert!(size_of::<RawSitePart>() + SITE_PART_BYTES_MAX == super::ROW_BYTES_MAX);

impl SiteHeadRow {
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawSiteHead {
            version: VERSION.into(),
            zero: [0; 6],
            site: self.site.0,
            generation: self.generation.into(),
            set: self.set.into(),
            written_at: self.written_at.0.into(),
            length: self.length.into(),
            checksum: self.checksum.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawSiteHead>(bytes)?;
        super::nothing_behind::<RawSiteHead>(rest)?;
        THIS.zero(&raw.zero, offset_of!(RawSiteHead, zero))?;
        let site_at = offset_of!(RawSiteHead, site);
        THIS.agree(raw.site != [0; 16], site_at, "the UUID of the site is not zero")?;
        let (generation, set) = (raw.generation.get(), raw.set.get());
        let generation_at = offset_of!(RawSiteHead, generation);
        let is_generation = (1..=SITE_GENERATION_MAX).contains(&generation);
        THIS.value(is_generation, generation_at, "generation", generation, "1 to 2^62")?;
        THIS.value(set > 0, offset_of!(RawSiteHead, set), "set", set, "from 1")?;
        let length = raw.length.get();
        let is_length = (1..=SITE_BYTES_MAX).contains(&(length as usize));
        THIS.value(is_length, offset_of!(RawSiteHead, length), "length", length, "1 to 4194304")?;
        Ok(Self {
            site: SiteId(raw.site),
            generation,
            set,
            written_at: WallNanoseconds(raw.written_at.get()),
            length,
            checksum: raw.checksum.get(),
        })
    }
}

impl SitePartRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=SITE_PART_BYTES_MAX).contains(&self.bytes.len()), "a part has 1 to 1016 bytes");
        let length = (self.bytes.len() as u16).into();
        let raw = RawSitePart { version: VERSION.into(), length, zero: [0; 4] };
        [raw.as_bytes(), &self.bytes].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawSitePart>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawSitePart, zero))?;
        let length = usize::from(raw.length.get());
        let is_part = (1..=SITE_PART_BYTES_MAX).contains(&length) && length == rest.len();
        let rule = "1 to 1016, up to the end of the row";
        THIS.value(is_part, offset_of!(RawSitePart, length), "length", length as u64, rule)?;
        Ok(Self { bytes: rest.to_vec() })
    }
}

impl SiteDocument {
    /// The rows of the document as the set number `set`, the head last.
    ///
    /// # Panics
    ///
    /// The document is empty or too large, or a number is 0.
    pub fn rows(&self, set: u64) -> Vec<(RowKey, Vec<u8>)> {
        assert!((1..=SITE_BYTES_MAX).contains(&self.bytes.len()), "a document has 1 byte to 4 MiB");
        assert!(set > 0 && self.generation > 0, "both are counted from 1");
        let part = |(index, bytes): (u64, &[u8])| {
            (RowKey::of_site_part(set, index), SitePartRow { bytes: bytes.to_vec() }.encode())
        };
        let head = SiteHeadRow {
            site: self.site,
            generation: self.generation,
            set,
            written_at: self.written_at,
            length: self.bytes.len() as u32,
            checksum: crc32c(&self.bytes),
        };
        let parts = (0..).zip(self.bytes.chunks(SITE_PART_BYTES_MAX)).map(part);
        parts.chain([(RowKey::SITE_HEAD, head.encode())]).collect()
    }

    /// The document of all rows of the table; `None` without a head.
    ///
    /// # Errors
    ///
    /// A row that counts is damaged or missing, or they do not belong together.
    pub fn of_rows<'r>(
        rows: impl IntoIterator<Item = (RowKey, &'r [u8])>,
    ) -> Result<Option<Self>, DecodeError> {
        let rows: BTreeMap<RowKey, &[u8]> = rows.into_iter().collect();
        let Some(head) = rows.get(&RowKey::SITE_HEAD) else { return Ok(None) };
        let head = SiteHeadRow::decode(head)?;
        let length = head.length as usize;
        let mut bytes = Vec::new();
        for index in 0..length.div_ceil(SITE_PART_BYTES_MAX) as u64 {
            let row = rows.get(&RowKey::of_site_part(head.set, index));
            THIS.agree(row.is_some(), 0, "the document of the site has all parts that its head counts")?;
            let part = SitePartRow::decode(row.expect("looked at above"))?;
            let left = length - bytes.len();
            let is_whole = part.bytes.len() == left.min(SITE_PART_BYTES_MAX);
            THIS.agree(is_whole, 0, "a part of the site's document is as long as its head says")?;
            bytes.extend(part.bytes);
        }
        let checksum_at = offset_of!(RawSiteHead, checksum);
        THIS.agree(
            crc32c(&bytes) == head.checksum,
            checksum_at,
            "the document of the site has its checksum",
        )?;
        let SiteHeadRow { site, generation, written_at, .. } = head;
        Ok(Some(Self { site, generation, written_at, bytes }))
    }

    /// True for the key of a row that may hold a part.
    pub fn is_part(key: RowKey) -> bool {
        key.table == CatalogueTable::Site && key.id > 0
    }
}
