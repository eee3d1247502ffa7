//! Encoding of one column value.

use super::{
    key::Value,
    record::RecordError,
    schema::{CodePage, ColumnDefinition, ColumnType, SHORT_VALUE_BYTES_MAX},
};

/// Encoding of true; readers accept any byte but zero.
const BIT_TRUE: u8 = 0xFF;

/// Appends the bytes of `value`; returns false and appends nothing if it is null. After an error `record` may
/// hold part of the value.
pub(super) fn append_value(
    column: &ColumnDefinition,
    value: &Value,
    into: &mut Vec<u8>,
) -> Result<bool, RecordError> {
    let id = column.id;
    let start = into.len();
    match (column.kind, value) {
        (_, Value::Null) => return Ok(false),
        (ColumnType::Bit, Value::Bit(bit)) => into.push(if *bit { BIT_TRUE } else { 0 }),
        (ColumnType::U8, Value::U8(n)) => into.push(*n),
        (ColumnType::I16, Value::I16(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::U16, Value::U16(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::I32, Value::I32(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::U32, Value::U32(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::I64 | ColumnType::Currency, Value::I64(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::F32, Value::F32(n)) => into.extend_from_slice(&n.to_le_bytes()),
        (ColumnType::F64, Value::F64(n)) | (ColumnType::DateTime, Value::DateTime(n)) => {
            into.extend_from_slice(&n.to_le_bytes())
        }
        (ColumnType::Guid, Value::Guid(guid)) => into.extend_from_slice(guid),
        (ColumnType::Binary, Value::Binary(bytes)) | (ColumnType::LongBinary, Value::LongBinary(bytes)) => {
            into.extend_from_slice(bytes)
        }
        (ColumnType::Text, Value::Text(text)) | (ColumnType::LongText, Value::LongText(text)) => {
            append_text(column, text, into)?
        }
        _ => return Err(RecordError::WrongType { id }),
    }
    let bytes = into.len() - start;
    let is_short = column.kind.fixed_bytes().is_none() && !column.kind.is_long();
    if is_short && bytes > SHORT_VALUE_BYTES_MAX { Err(RecordError::TooLong { id, bytes }) } else { Ok(true) }
}

/// Decodes the bytes of one column.
pub(super) fn decode_value(column: &ColumnDefinition, bytes: &[u8]) -> Result<Value, RecordError> {
    let value = match column.kind {
        ColumnType::Bit => bytes.try_into().map(|[byte]: [u8; 1]| Value::Bit(byte != 0)),
        ColumnType::U8 => bytes.try_into().map(|[byte]: [u8; 1]| Value::U8(byte)),
        ColumnType::I16 => bytes.try_into().map(|b| Value::I16(i16::from_le_bytes(b))),
        ColumnType::U16 => bytes.try_into().map(|b| Value::U16(u16::from_le_bytes(b))),
        ColumnType::I32 => bytes.try_into().map(|b| Value::I32(i32::from_le_bytes(b))),
        ColumnType::U32 => bytes.try_into().map(|b| Value::U32(u32::from_le_bytes(b))),
        ColumnType::I64 | ColumnType::Currency => bytes.try_into().map(|b| Value::I64(i64::from_le_bytes(b))),
        ColumnType::F32 => bytes.try_into().map(|b| Value::F32(f32::from_le_bytes(b))),
        ColumnType::F64 => bytes.try_into().map(|b| Value::F64(f64::from_le_bytes(b))),
        ColumnType::DateTime => bytes.try_into().map(|b| Value::DateTime(f64::from_le_bytes(b))),
        ColumnType::Guid => bytes.try_into().map(Value::Guid),
        ColumnType::Binary => Ok(Value::Binary(bytes.to_vec())),
        ColumnType::LongBinary => Ok(Value::LongBinary(bytes.to_vec())),
        ColumnType::Text => Ok(Value::Text(decode_text(column, bytes)?)),
        ColumnType::LongText => Ok(Value::LongText(decode_text(column, bytes)?)),
    };
    value.map_err(|_| RecordError::WrongType { id: column.id })
}

fn append_text(column: &ColumnDefinition, text: &str, into: &mut Vec<u8>) -> Result<(), RecordError> {
    match column.code_page {
        CodePage::Western if text.is_ascii() => into.extend_from_slice(text.as_bytes()),
        CodePage::Western => return Err(RecordError::Text { id: column.id }),
        CodePage::Unicode => into.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
    }
    Ok(())
}

fn decode_text(column: &ColumnDefinition, bytes: &[u8]) -> Result<String, RecordError> {
    let text = match column.code_page {
        CodePage::Western => {
            bytes.is_ascii().then(|| String::from_utf8(bytes.to_vec()).expect("ASCII is UTF-8"))
        }
        CodePage::Unicode => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
    };
    text.ok_or(RecordError::Text { id: column.id })
}
