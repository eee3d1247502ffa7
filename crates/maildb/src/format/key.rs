//! Column values and normalised keys: byte strings that sort like the values they are made of.
//!
//! A key column is encoded as one prefix byte (null sorts first, then the empty string, then the rest),
//! followed by the value in a form where comparing bytes compares values. Text compares case-insensitively,
//! as in ESE for single-byte code pages. Unicode text cannot be part of a key: that would need the sort
//! tables of one exact Windows version.

use thiserror::Error;

/// Longest key of an index; ESE's default for every page size.
pub const KEY_BYTES_MAX: usize = 255;

/// Prefix byte of a null column.
const PREFIX_NULL: u8 = 0x00;
/// Prefix byte of an empty string.
const PREFIX_EMPTY: u8 = 0x40;
/// Prefix byte of any other value.
const PREFIX_DATA: u8 = 0x7F;
/// Variable binary is cut into chunks of this length, each followed by its number of significant bytes …
const CHUNK_BYTES: usize = 8;
/// … or by this byte if more chunks follow.
const CHUNK_CONTINUES: u8 = 9;

/// The value of one column in one record.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bit(bool),
    U8(u8),
    /// Signed, 2 bytes.
    I16(i16),
    /// Signed, 4 bytes.
    I32(i32),
    /// Signed, 8 bytes: both of ESE's types for it.
    I64(i64),
    /// Unsigned, 2 bytes.
    U16(u16),
    /// Unsigned, 4 bytes.
    U32(u32),
    F32(f32),
    F64(f64),
    /// Days since 1899-12-30, as OLE has it.
    DateTime(f64),
    /// A GUID in its mixed-endian layout.
    Guid([u8; 16]),
    /// At most 255 bytes.
    Binary(Vec<u8>),
    /// At most 255 bytes of text.
    Text(String),
    /// Bytes of any length that fits the record.
    LongBinary(Vec<u8>),
    /// Text of any length that fits the record.
    LongText(String),
}

/// Reasons why values do not form a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Text in keys is ASCII without NUL.
    #[error("text in a key is ASCII without NUL only")]
    NotAscii,
    /// Long values cannot be in a key.
    #[error("a long value cannot be part of a key")]
    LongValue,
    /// The key exceeds the limit. ESE would truncate it, and two records could then have the same key.
    #[error("a key of {key_bytes} bytes is longer than {KEY_BYTES_MAX}")]
    TooLong {
        /// Length of the key without the limit.
        key_bytes: usize,
    },
}

/// The key of `values`, most significant first.
pub fn normalise<'v>(values: impl IntoIterator<Item = &'v Value>) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::new();
    for value in values {
        append_normalised(value, &mut key)?;
    }
    check_length(&key)?;
    Ok(key)
}

/// Fails if the key exceeds [`KEY_BYTES_MAX`].
pub fn check_length(key: &[u8]) -> Result<(), KeyError> {
    if key.len() > KEY_BYTES_MAX { Err(KeyError::TooLong { key_bytes: key.len() }) } else { Ok(()) }
}

/// Appends one value to a key.
pub fn append_normalised(value: &Value, key: &mut Vec<u8>) -> Result<(), KeyError> {
    let start = match value {
        Value::Null => PREFIX_NULL,
        Value::Binary(bytes) if bytes.is_empty() => PREFIX_EMPTY,
        Value::Text(text) if text.is_empty() => PREFIX_EMPTY,
        _ => PREFIX_DATA,
    };
    key.push(start);
    if start == PREFIX_DATA {
        append_data(value, key)?;
    }
    Ok(())
}

fn append_data(value: &Value, key: &mut Vec<u8>) -> Result<(), KeyError> {
    match value {
        Value::Null => {}
        Value::Bit(bit) => key.push(if *bit { 0xFF } else { 0x00 }),
        Value::U8(n) => key.push(*n),
        Value::U16(n) => key.extend_from_slice(&n.to_be_bytes()),
        Value::U32(n) => key.extend_from_slice(&n.to_be_bytes()),
        Value::I16(n) => key.extend_from_slice(&(n ^ i16::MIN).to_be_bytes()),
        Value::I32(n) => key.extend_from_slice(&(n ^ i32::MIN).to_be_bytes()),
        Value::I64(n) => key.extend_from_slice(&(n ^ i64::MIN).to_be_bytes()),
        Value::F32(n) => {
            let bits = n.to_bits();
            // Negative numbers: all bits are inverted, so that larger magnitudes sort first.
            let ordered = if n.is_sign_negative() { !bits } else { bits ^ (1 << 31) };
            key.extend_from_slice(&ordered.to_be_bytes());
        }
        Value::F64(n) | Value::DateTime(n) => {
            let bits = n.to_bits();
            let ordered = if n.is_sign_negative() { !bits } else { bits ^ (1 << 63) };
            key.extend_from_slice(&ordered.to_be_bytes());
        }
        Value::Guid([time @ .., c0, c1, n0, n1, n2, n3, n4, n5]) => {
            // Sort order of a GUID: node, clock sequence, then the three time fields from high to low.
            let [l0, l1, l2, l3, m0, m1, h0, h1] = *time;
            key.extend_from_slice(&[*n0, *n1, *n2, *n3, *n4, *n5, *c0, *c1]);
            key.extend_from_slice(&[h0, h1, m0, m1, l0, l1, l2, l3]);
        }
        Value::Text(text) if text.is_ascii() && !text.contains('\0') => {
            key.extend(text.bytes().map(|byte| byte.to_ascii_uppercase()));
            key.push(0);
        }
        Value::Text(_) => return Err(KeyError::NotAscii),
        Value::Binary(bytes) => append_chunked(bytes, key),
        Value::LongBinary(_) | Value::LongText(_) => return Err(KeyError::LongValue),
    }
    Ok(())
}

/// Encodes binary in zero-padded chunks of eight bytes, each followed by its length, or by 9 if more follow.
fn append_chunked(bytes: &[u8], key: &mut Vec<u8>) {
    let chunks = bytes.chunks(CHUNK_BYTES);
    let last = chunks.len() - 1;
    for (i, chunk) in chunks.enumerate() {
        key.extend_from_slice(chunk);
        key.resize(key.len() + CHUNK_BYTES - chunk.len(), 0);
        key.push(if i == last { chunk.len() as u8 } else { CHUNK_CONTINUES });
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn key(value: Value) -> Vec<u8> {
        normalise([&value]).unwrap()
    }

    #[test]
    fn keys_have_the_published_form() {
        assert_eq!(key(Value::I32(2)), [0x7F, 0x80, 0, 0, 2]);
        assert_eq!(key(Value::I16(-1)), [0x7F, 0x7F, 0xFF]);
        assert_eq!(key(Value::Bit(true)), [0x7F, 0xFF]);
        assert_eq!(key(Value::Text("Inbox".into())), b"\x7FINBOX\0");
        assert_eq!(key(Value::Text(String::new())), [0x40]);
        assert_eq!(key(Value::Null), [0]);
        assert_eq!(key(Value::Binary(b"12345678".into())), b"\x7F12345678\x08");
        assert_eq!(key(Value::Binary(b"123456789".into())), b"\x7F12345678\x099\0\0\0\0\0\0\0\x01");
    }

    #[test]
    fn values_without_an_order_are_refused() {
        assert_eq!(normalise([&Value::Text("Füße".into())]), Err(KeyError::NotAscii));
        assert_eq!(normalise([&Value::LongText("a".into())]), Err(KeyError::LongValue));
        let long = Value::Text("a".repeat(200));
        assert_eq!(normalise([&long, &long]), Err(KeyError::TooLong { key_bytes: 404 }));
    }

    /// Two values of one type.
    fn pair() -> impl Strategy<Value = (Value, Value)> {
        fn two<T: std::fmt::Debug + Clone>(
            of: impl Strategy<Value = T> + Clone,
            make: fn(T) -> Value,
        ) -> impl Strategy<Value = (Value, Value)> {
            (of.clone(), of).prop_map(move |(a, b)| (make(a), make(b)))
        }
        prop_oneof![
            two(any::<bool>(), Value::Bit),
            two(any::<u8>(), Value::U8),
            two(any::<i16>(), Value::I16),
            two(any::<u16>(), Value::U16),
            two(any::<i32>(), Value::I32),
            two(any::<u32>(), Value::U32),
            two(any::<i64>(), Value::I64),
            two(prop::num::f32::NORMAL | prop::num::f32::ZERO, Value::F32),
            two(prop::num::f64::NORMAL | prop::num::f64::ZERO, Value::F64),
            two("[a-cA-C~!]{0,6}", Value::Text),
            two(prop::collection::vec(0..3_u8, 0..20), Value::Binary),
        ]
    }

    fn compare(a: &Value, b: &Value) -> Ordering {
        match (a, b) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Less,
            (_, Value::Null) => Ordering::Greater,
            (Value::Bit(a), Value::Bit(b)) => a.cmp(b),
            (Value::U8(a), Value::U8(b)) => a.cmp(b),
            (Value::I16(a), Value::I16(b)) => a.cmp(b),
            (Value::U16(a), Value::U16(b)) => a.cmp(b),
            (Value::I32(a), Value::I32(b)) => a.cmp(b),
            (Value::U32(a), Value::U32(b)) => a.cmp(b),
            (Value::I64(a), Value::I64(b)) => a.cmp(b),
            (Value::F32(a), Value::F32(b)) => a.total_cmp(b),
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.to_ascii_uppercase().cmp(&b.to_ascii_uppercase()),
            (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
            _ => unreachable!("pairs are of one type"),
        }
    }

    fn maybe_null() -> impl Strategy<Value = (Value, Value)> {
        (pair(), prop::option::weighted(0.2, any::<bool>())).prop_map(|((a, b), null)| match null {
            Some(true) => (Value::Null, b),
            Some(false) => (a, Value::Null),
            None => (a, b),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn keys_order_as_their_values(columns in prop::collection::vec(maybe_null(), 1..4)) {
            let (a, b): (Vec<_>, Vec<_>) = columns.iter().cloned().unzip();
            let expected = columns.iter().map(|(a, b)| compare(a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
            prop_assert_eq!(normalise(&a).unwrap().cmp(&normalise(&b).unwrap()), expected);
        }
    }
}
