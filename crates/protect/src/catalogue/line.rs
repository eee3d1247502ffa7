//! Line format of a catalogue.
//!
//! ```text
//! {"sum":"1f2e3d4c","line":7,"at_s":1795860000,"age_s":12034,"entry":{…}}
//! ```
//!
//! A line is intact if its checksum is right, its number follows that of the line before (from 0), and its age is not
//! less than that of the line before. Its civil time may be: clocks are set.

use super::entry::CatalogueEntry;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use world::{CheckedLineError, checked_line, checked_object};

/// Value of `format` in the first line.
pub const CATALOGUE_FORMAT: &str = "spindle-backups";
/// The version of a catalogue of which nothing was summed up.
pub const CATALOGUE_VERSION: u64 = 1;
/// The version of one that was compacted, and the newest that can be read.
pub const COMPACTED_VERSION: u64 = 2;
/// Longest line, in bytes. Lists and texts of an entry are bounded, so that none comes near.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// First bytes of a line. Within texts its quotes are escaped, so it is nowhere else.
const OPENING: &[u8] = b"{\"sum\":\"";

/// A damaged line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogueDamage {
    #[error("it is no line of a catalogue")]
    NotALine,
    #[error("its checksum is wrong")]
    WrongSum,
    /// It is intact but out of sequence.
    #[error("it is number {found}, not {expected}")]
    OutOfOrder { found: u64, expected: u64 },
    #[error("its age, {found} s, is less than {before} s of the line before")]
    Younger { found: u64, before: u64 },
    #[error("the file ends within the part that was summed up")]
    EndsEarly,
    /// Its checksum is right, and its content is unknown or contradicts the lines before.
    #[error("{0}")]
    Contradiction(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogueLine {
    /// From 0.
    pub line: u64,
    /// Civil time, UTC, in seconds since 1970, by the runner's clock.
    pub at_s: i64,
    /// Age of the catalogue by clocks that never jump.
    pub age_s: u64,
    pub entry: CatalogueEntry,
}

impl CatalogueLine {
    /// The bytes of the line, with its line break.
    ///
    /// # Panics
    ///
    /// If the line is longer than [`LINE_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let bytes = checked_line(&serde_json::to_vec(self).expect("plain data has a JSON form"));
        assert!(bytes.len() <= LINE_BYTES_MAX, "lists and texts of an entry are bounded");
        bytes
    }

    /// Decodes a line without its line break.
    ///
    /// # Errors
    ///
    /// The line is damaged, or is of an entry that this version does not have.
    pub fn decode(line: &[u8]) -> Result<Self, CatalogueDamage> {
        serde_json::from_slice(&object(line)?)
            .map_err(|error| CatalogueDamage::Contradiction(error.to_string()))
    }
}

/// The same line with another number, with its line break. Fields that this version does not know stay.
///
/// # Errors
///
/// The line is damaged.
pub(super) fn renumbered(line: &[u8], number: u64) -> Result<Vec<u8>, CatalogueDamage> {
    const NUMBER: &[u8] = b"{\"line\":";
    let object = object(line)?;
    let rest = object.strip_prefix(NUMBER).ok_or(CatalogueDamage::NotALine)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut changed = Vec::with_capacity(object.len() + 8);
    changed.extend_from_slice(NUMBER);
    changed.extend_from_slice(number.to_string().as_bytes());
    changed.extend_from_slice(&rest[digits..]);
    Ok(checked_line(&changed))
}

/// True if there is an intact line in these bytes, even if the line break before it is damaged.
pub(super) fn has_intact_line(bytes: &[u8]) -> bool {
    let starts = bytes.windows(OPENING.len()).enumerate().filter(|(_, window)| *window == OPENING);
    starts.into_iter().any(|(start, _)| world::is_whole_line(&bytes[start..]))
}

/// The object of a line, if its checksum is right.
pub(super) fn object(line: &[u8]) -> Result<Vec<u8>, CatalogueDamage> {
    checked_object(line).map_err(|error| match error {
        CheckedLineError::NoSum => CatalogueDamage::NotALine,
        CheckedLineError::WrongSum => CatalogueDamage::WrongSum,
    })
}
