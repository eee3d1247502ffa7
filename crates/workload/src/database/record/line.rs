//! The form of a record's lines: JSON, numbered, with a checksum.
//!
//! ```text
//! {"sum":"1f2e3d4c","line":7,"at_s":12.034,"entry":{…}}
//!         ^ CRC-32C of all bytes from "line" to the last brace
//! ```
//!
//! A line is right if its sum is, if its number follows that of the line before (from 0), and if its
//! time is not before it. Whether the entry makes sense is the reader's business.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use world::crc32c::crc32c;

/// What the first line says the file is.
pub const FORMAT: &str = "spindle-run";
/// The version of the form that is written. It added entries to version 1, which is read as well.
pub const VERSION: u32 = 2;
/// The oldest version that is read.
pub const VERSION_MIN: u32 = 1;

const OPENING: &[u8] = b"{\"sum\":\"";
const SUM_DIGITS: usize = 8;
const AFTER_SUM: &[u8] = b"\",";

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineDamage {
    /// It does not begin as lines do.
    #[error("it is no line of a run record")]
    NotALine,
    /// Its checksum is not that of its bytes.
    #[error("its checksum is wrong")]
    WrongSum,
    /// It is right, and not the next one.
    #[error("it is number {found}, not {expected}")]
    OutOfOrder {
        /// The number it bears.
        found: u64,
        /// The number it should bear.
        expected: u64,
    },
    /// Its sum is right, its content unknown.
    #[error("{0}")]
    Unknown(String),
}

#[derive(Serialize)]
struct Written<'a, E> {
    line: u64,
    at_s: f64,
    entry: &'a E,
}

/// What a line holds beside its checksum.
#[derive(Debug, Deserialize)]
pub struct Line<E> {
    /// Its number, from 0.
    pub line: u64,
    /// When it was written, in seconds since the record began.
    pub at_s: f64,
    /// What it says.
    pub entry: E,
}

/// One line, with its line break.
pub fn encode<E: Serialize>(line: u64, at_s: f64, entry: &E) -> Vec<u8> {
    let body = serde_json::to_vec(&Written { line, at_s, entry }).expect("plain data has a JSON form");
    let body = &body[1..];
    let mut bytes = Vec::with_capacity(body.len() + 32);
    bytes.extend_from_slice(OPENING);
    bytes.extend_from_slice(format!("{:08x}", crc32c(&[body])).as_bytes());
    bytes.extend_from_slice(AFTER_SUM);
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    bytes
}

/// The bytes of a line that its sum is of, if it is right.
fn body(line: &[u8]) -> Result<&[u8], LineDamage> {
    let rest = line.strip_prefix(OPENING).ok_or(LineDamage::NotALine)?;
    let (sum, rest) = rest.split_at_checked(SUM_DIGITS).ok_or(LineDamage::NotALine)?;
    let body = rest.strip_prefix(AFTER_SUM).ok_or(LineDamage::NotALine)?;
    let is_hex = sum.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit));
    let sum = is_hex.then(|| str::from_utf8(sum).ok()).flatten().ok_or(LineDamage::NotALine)?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| LineDamage::NotALine)?;
    if sum == crc32c(&[body]) { Ok(body) } else { Err(LineDamage::WrongSum) }
}

/// True of a line whose sum is right, whatever it says.
pub fn is_whole(line: &[u8]) -> bool {
    body(line).is_ok()
}

/// What a line (without its break) says.
pub fn decode<E: DeserializeOwned>(line: &[u8]) -> Result<Line<E>, LineDamage> {
    let body = body(line)?;
    let mut json = Vec::with_capacity(body.len() + 1);
    json.push(b'{');
    json.extend_from_slice(body);
    serde_json::from_slice(&json).map_err(|error| LineDamage::Unknown(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_and_comes_back() {
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
