//! Page stamps in log records: stamps of pages about to be written.
//!
//! ```text
//! u8 dbid   u16 stamps { u32 page   u64 dbtime   u64 keyed hash of the image }
//! ```

use super::{fields::Fields, record::LogRecordError};
use crate::format::page_size::{DbTime, PageNumber};

/// Identity of one image of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStamp {
    pub page: PageNumber,
    pub dbtime: DbTime,
    /// Keyed hash of its number and all its bytes.
    pub hash: u64,
}

pub(super) fn encode_stamps(dbid: u8, stamps: &[PageStamp], into: &mut Vec<u8>) {
    into.push(dbid);
    let count = u16::try_from(stamps.len()).expect("one write holds few pages");
    into.extend_from_slice(&count.to_le_bytes());
    for stamp in stamps {
        into.extend_from_slice(&stamp.page.0.to_le_bytes());
        into.extend_from_slice(&stamp.dbtime.0.to_le_bytes());
        into.extend_from_slice(&stamp.hash.to_le_bytes());
    }
}

pub(super) fn decode_stamps(fields: &mut Fields<'_>) -> Result<(u8, Vec<PageStamp>), LogRecordError> {
    let dbid = fields.u8()?;
    // The vector grows with the decoded data, never by a count that may be wrong.
    let mut stamps = Vec::new();
    for _ in 0..fields.u16()? {
        let page = PageNumber(fields.u32()?);
        let dbtime = DbTime(fields.u64()?);
        stamps.push(PageStamp { page, dbtime, hash: fields.u64()? });
    }
    Ok((dbid, stamps))
}
