//! Lines of JSON with a checksum, for files that are only appended to.
//!
//! ```text
//! {"sum":"1f2e3d4c","line":7,…}
//!         ^ CRC-32C of all bytes from the comma's successor to the last brace
//! ```
//!
//! The checksum is always the first field, in exactly this form, so that a reader can judge a line before it decodes
//! it. The rest of the object, and the order of lines, are up to the file's format.

use crate::crc32c::crc32c;
use thiserror::Error;

const OPENING: &[u8] = b"{\"sum\":\"";
const SUM_DIGITS: usize = 8;
const AFTER_SUM: &[u8] = b"\",";

/// A line whose checksum says nothing for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CheckedLineError {
    /// It lacks the opening bytes of a line.
    #[error("it does not begin with a checksum")]
    NoSum,
    #[error("its checksum is wrong")]
    WrongSum,
}

/// A line, with its line break. `object` is the JSON form of an object that has a field at least.
///
/// # Panics
///
/// If `object` does not begin with a brace, or has a line break.
pub fn checked_line(object: &[u8]) -> Vec<u8> {
    let body = object.strip_prefix(b"{").expect("the JSON form of an object");
    assert!(!body.contains(&b'\n'), "an object on one line");
    let mut bytes = Vec::with_capacity(body.len() + 32);
    bytes.extend_from_slice(OPENING);
    bytes.extend_from_slice(format!("{:08x}", crc32c(&[body])).as_bytes());
    bytes.extend_from_slice(AFTER_SUM);
    bytes.extend_from_slice(body);
    bytes.push(b'\n');
    bytes
}

/// The object of a line without its line break, less the checksum.
///
/// # Errors
///
/// The line has no checksum, or a wrong one.
pub fn checked_object(line: &[u8]) -> Result<Vec<u8>, CheckedLineError> {
    let body = checked_body(line)?;
    let mut object = Vec::with_capacity(body.len() + 1);
    object.push(b'{');
    object.extend_from_slice(body);
    Ok(object)
}

/// True if the checksum of a line is right, whatever its content.
pub fn is_whole_line(line: &[u8]) -> bool {
    checked_body(line).is_ok()
}

fn checked_body(line: &[u8]) -> Result<&[u8], CheckedLineError> {
    let no_sum = CheckedLineError::NoSum;
    let rest = line.strip_prefix(OPENING).ok_or(no_sum)?;
    let (sum, rest) = rest.split_at_checked(SUM_DIGITS).ok_or(no_sum)?;
    let body = rest.strip_prefix(AFTER_SUM).ok_or(no_sum)?;
    let is_hex = sum.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit));
    let sum = is_hex.then(|| str::from_utf8(sum).ok()).flatten().ok_or(no_sum)?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| no_sum)?;
    if sum == crc32c(&[body]) { Ok(body) } else { Err(CheckedLineError::WrongSum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = b"{\"line\":7,\"at_s\":12.034,\"entry\":\"measuring begins\"}";

    #[test]
    fn a_line_is_its_object_with_a_checksum_in_front() {
        let line = checked_line(OBJECT);
        let text = str::from_utf8(&line).unwrap();
        assert_eq!(
            text,
            "{\"sum\":\"ad53e816\",\"line\":7,\"at_s\":12.034,\"entry\":\"measuring begins\"}\n"
        );
        assert_eq!(checked_object(line.trim_ascii_end()).unwrap(), OBJECT);
    }

    #[test]
    fn any_changed_or_missing_byte_is_found() {
        let bytes = checked_line(OBJECT);
        let line = bytes.trim_ascii_end();
        for index in 0..line.len() {
            for flip in [1, 0x20, 0x80] {
                let mut changed = line.to_vec();
                changed[index] ^= flip;
                assert!(!is_whole_line(&changed), "byte {index} changed by {flip:#x}");
            }
            assert!(!is_whole_line(&line[..index]), "cut at {index}");
        }
    }
}
