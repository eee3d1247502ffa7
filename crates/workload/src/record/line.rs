//! Line format of a record: JSON, numbered, with a checksum.
//!
//! ```text
//! {"sum":"1f2e3d4c","line":7,"at_s":12.034,"entry":{…}}
//!         ^ CRC-32C of all bytes from "line" to the last brace
//! ```
//!
//! A line is intact if its checksum is right, its number follows that of the line before (from 0), and its time is not
//! before that of the line before. The reader checks the plausibility of the entry.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use world::{CheckedLineError, checked_line, checked_object};

/// Value of `format` in the first line.
pub const FORMAT: &str = "spindle-run";
/// The version that is written. It added entries to version 1, which can still be read.
pub const VERSION: u32 = 2;
/// The oldest version that can be read.
pub const VERSION_MIN: u32 = 1;

/// A damaged line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineDamage {
    /// It lacks the opening bytes of a line.
    #[error("it is no line of a run record")]
    NotALine,
    #[error("its checksum is wrong")]
    WrongSum,
    /// It is intact but out of sequence.
    #[error("it is number {found}, not {expected}")]
    OutOfOrder { found: u64, expected: u64 },
    /// Its checksum is right, its content unknown.
    #[error("{0}")]
    Unknown(String),
}

#[derive(Serialize)]
struct LineBody<'a, E> {
    line: u64,
    at_s: f64,
    entry: &'a E,
}

/// A decoded line.
#[derive(Debug, Deserialize)]
pub struct Line<E> {
    /// From 0.
    pub line: u64,
    /// Seconds from the start of the record.
    pub at_s: f64,
    pub entry: E,
}

/// Encodes one line, with its line break.
pub fn encode<E: Serialize>(line: u64, at_s: f64, entry: &E) -> Vec<u8> {
    checked_line(&serde_json::to_vec(&LineBody { line, at_s, entry }).expect("plain data has a JSON form"))
}

/// True if the checksum of a line is right, whatever its content.
pub fn is_whole(line: &[u8]) -> bool {
    world::is_whole_line(line)
}

/// Decodes a line without its line break.
pub fn decode<E: DeserializeOwned>(line: &[u8]) -> Result<Line<E>, LineDamage> {
    let json = checked_object(line).map_err(|error| match error {
        CheckedLineError::NoSum => LineDamage::NotALine,
        CheckedLineError::WrongSum => LineDamage::WrongSum,
    })?;
    serde_json::from_slice(&json).map_err(|error| LineDamage::Unknown(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_and_round_trips() {
        let bytes = encode(7, 12.034, &"measuring begins");
        let text = str::from_utf8(&bytes).unwrap();
        assert_eq!(
            text,
            "{\"sum\":\"ad53e816\",\"line\":7,\"at_s\":12.034,\"entry\":\"measuring begins\"}\n"
        );
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(json["line"], 7);
        let line: Line<String> = decode(bytes.trim_ascii_end()).unwrap();
        assert_eq!((line.line, line.at_s, line.entry.as_str()), (7, 12.034, "measuring begins"));
    }

    #[test]
    fn any_changed_byte_is_found() {
        let bytes = encode(7, 12.034, &"measuring begins");
        let line = bytes.trim_ascii_end();
        for index in 0..line.len() {
            for flip in [1, 0x20, 0x80] {
                let mut changed = line.to_vec();
                changed[index] ^= flip;
                assert!(decode::<String>(&changed).is_err(), "byte {index} changed by {flip:#x}");
            }
            assert!(decode::<String>(&line[..index]).is_err(), "cut at {index}");
        }
    }
}
