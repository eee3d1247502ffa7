//! Record encoding: the column values of a row as bytes.
//!
//! ```text
//! u8 last fixed | u8 last variable | u16 end of fixed | fixed columns | null bits
//! | u16 end of each variable column (top bit: null) | variable data | tagged: {u16 id, u16 place} … | tagged data
//! ```
//!
//! Columns beyond the last one with a value are omitted. The offset of a tagged value counts from the start
//! of the tagged array; a flag byte precedes the value, on small pages only if it is not zero.

use std::iter::Peekable;

use thiserror::Error;

pub use super::schema::{CodePage, ColumnDefinition, ColumnId, ColumnType, SchemaError, TableSchema};
use super::{
    column_value::{append_value, decode_value},
    key::Value,
    page_size::PageSize,
    schema::{FIRST_FIXED, FIRST_TAGGED, FIRST_VARIABLE, RECORD_HEADER_BYTES},
};

/// "No variable column" in the header.
const NO_VARIABLE: u8 = FIRST_VARIABLE as u8 - 1;
/// Flag in the end offset of a variable column: the column is null.
const VARIABLE_NULL: u16 = 0x8000;
/// Mask for the offsets of tagged values on small pages, without their flags.
const SMALL_PLACE_MASK: u16 = 0x1FFF;
const SMALL_PLACE_NULL: u16 = 0x2000;
/// A flag byte precedes the value.
const SMALL_PLACE_EXTENDED: u16 = 0x4000;
const LARGE_PLACE_MASK: u16 = 0x7FFF;
/// Bytes of the null bits of all possible fixed columns.
const FIXED_NULL_BYTES_MAX: usize = (FIRST_VARIABLE - FIRST_FIXED) as usize / 8 + 1;
/// Bytes of each entry of the tagged array.
const TAGGED_ENTRY_BYTES: usize = 4;
/// Flag byte: the column has a long-value type.
const TAGGED_LONG_VALUE: u8 = 0x01;
/// Flag byte: the column is null.
const TAGGED_NULL: u8 = 0x20;

/// Reasons why values cannot be encoded as a record, or bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The table has no such column.
    #[error("the table has no column {}", id.0)]
    UnknownColumn { id: ColumnId },
    /// A column was given twice.
    #[error("column {} has two values", id.0)]
    TwoValues { id: ColumnId },
    /// The value does not have the column's type.
    #[error("the value does not have the type of column {}", id.0)]
    WrongType { id: ColumnId },
    /// More than 255 bytes in a column without a long-value type, or a record larger than any page.
    #[error("{bytes} bytes are too long for column {}", id.0)]
    TooLong { id: ColumnId, bytes: usize },
    /// Text that the column's code page cannot represent, or bytes that are not text in it.
    #[error("column {} can store ASCII only, or its bytes are not text", id.0)]
    Text { id: ColumnId },
    /// Bytes that do not decode as a record of that table.
    #[error("the record's {part} is impossible")]
    Malformed { part: RecordPart },
    /// A separated, compressed, encrypted or multi-valued column: valid in ESE, unsupported here.
    #[error("column {} is stored in an unsupported form (0x{flags:02X})", id.0)]
    Unsupported {
        id: ColumnId,
        /// The value's flag byte.
        flags: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart {
    Header,
    /// The fixed columns and their null bits.
    Fixed,
    Variable,
    Tagged,
}

impl std::fmt::Display for RecordPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Fixed => "fixed part",
            Self::Variable => "variable part",
            Self::Tagged => "tagged part",
        })
    }
}

/// Encodes `values`, in any order; columns without a value are null.
pub fn encode_record(
    schema: &TableSchema,
    page_size: PageSize,
    values: &[(ColumnId, Value)],
) -> Result<Vec<u8>, RecordError> {
    let mut record = Vec::new();
    encode_record_into(schema, page_size, values, &mut record)?;
    Ok(record)
}

/// Like [`encode_record`], into `record`, whose contents are replaced; after an error they are unspecified.
pub fn encode_record_into(
    schema: &TableSchema,
    page_size: PageSize,
    values: &[(ColumnId, Value)],
    record: &mut Vec<u8>,
) -> Result<(), RecordError> {
    if values.is_sorted_by(|(before, _), (after, _)| before < after) {
        return encode_sorted(schema, page_size, values.iter(), record);
    }
    let mut sorted: Vec<&(ColumnId, Value)> = values.iter().collect();
    sorted.sort_by_key(|(id, _)| *id);
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(RecordError::TwoValues { id: pair[0].0 }),
        None => encode_sorted(schema, page_size, sorted.iter().copied(), record),
    }
}

/// Encodes values in ascending column order, at most one for each column.
fn encode_sorted<'v>(
    schema: &TableSchema,
    page_size: PageSize,
    values: impl Iterator<Item = &'v (ColumnId, Value)> + Clone,
    record: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let (mut last_fixed, mut last_variable, mut tagged, mut last) =
        (0, u16::from(NO_VARIABLE), 0, ColumnId(0));
    for (id, _) in values.clone().filter(|(_, value)| !matches!(value, Value::Null)) {
        last = *id;
        match id {
            id if id.is_fixed() => last_fixed = id.0,
            id if id.is_variable() => last_variable = id.0,
            _ => tagged += 1,
        }
    }
    record.clear();
    record.extend_from_slice(&[last_fixed as u8, last_variable as u8, 0, 0]);
    let mut values = values.peekable();
    append_fixed(schema, &mut values, last_fixed, record)?;
    let fixed_end = (record.len() as u16).to_le_bytes();
    record[2..RECORD_HEADER_BYTES].copy_from_slice(&fixed_end);
    append_variable(schema, &mut values, last_variable, record)?;
    append_tagged(schema, page_size, values, tagged, record)?;

    let place_max = if page_size.is_small() { SMALL_PLACE_MASK } else { LARGE_PLACE_MASK };
    if record.len() > usize::from(place_max) {
        Err(RecordError::TooLong { id: last, bytes: record.len() })
    } else {
        Ok(())
    }
}

/// Consumes the fixed-column values and appends the columns up to `last`, the last one with a value.
fn append_fixed<'v>(
    schema: &TableSchema,
    values: &mut Peekable<impl Iterator<Item = &'v (ColumnId, Value)>>,
    last: u16,
    record: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let mut nulls = [0; FIXED_NULL_BYTES_MAX];
    for (column, offset) in schema.fixed_columns().take(usize::from(last)) {
        assert_eq!(offset, record.len());
        let value = values.next_if(|(id, _)| *id == column.id).map_or(&Value::Null, |(_, value)| value);
        if !append_value(column, value, record)? {
            let bit = usize::from(column.id.0 - FIRST_FIXED);
            nulls[bit / 8] |= 1 << (bit % 8);
            record.resize(offset + fixed_bytes(column), 0);
        }
    }
    record.extend_from_slice(&nulls[..null_bytes(last)]);
    pass_over_nulls(schema, values, ColumnId::is_fixed)
}

/// Consumes the variable-column values and appends the columns up to `last`, the last one with a value.
fn append_variable<'v>(
    schema: &TableSchema,
    values: &mut Peekable<impl Iterator<Item = &'v (ColumnId, Value)>>,
    last: u16,
    record: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let ends_at = record.len();
    let data_at = ends_at + 2 * usize::from(last - u16::from(NO_VARIABLE));
    record.resize(data_at, 0);
    for (place, id) in (FIRST_VARIABLE..=last).enumerate() {
        let has_value = match values.next_if(|(with, _)| with.0 == id) {
            Some((id, value)) => append_value(column_of(schema, *id)?, value, record)?,
            None => false,
        };
        let end = record.len() - data_at;
        assert!(end < usize::from(VARIABLE_NULL), "128 columns of 255 bytes are less");
        let end = end as u16 | if has_value { 0 } else { VARIABLE_NULL };
        record[ends_at + 2 * place..][..2].copy_from_slice(&end.to_le_bytes());
    }
    pass_over_nulls(schema, values, ColumnId::is_variable)
}

/// Consumes the remaining values, of which `count` are not null, and appends them.
fn append_tagged<'v>(
    schema: &TableSchema,
    page_size: PageSize,
    values: impl Iterator<Item = &'v (ColumnId, Value)>,
    count: usize,
    record: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let array_at = record.len();
    record.resize(array_at + count * TAGGED_ENTRY_BYTES, 0);
    let mut entry = array_at;
    for (id, value) in values {
        let column = column_of(schema, *id)?;
        if matches!(value, Value::Null) {
            continue;
        }
        let place = (record.len() - array_at) as u16;
        let flags = if column.kind.is_long() { TAGGED_LONG_VALUE } else { 0 };
        let extended = page_size.is_small() && flags != 0;
        let [id0, id1] = column.id.0.to_le_bytes();
        let [place0, place1] = (place | if extended { SMALL_PLACE_EXTENDED } else { 0 }).to_le_bytes();
        record[entry..entry + TAGGED_ENTRY_BYTES].copy_from_slice(&[id0, id1, place0, place1]);
        entry += TAGGED_ENTRY_BYTES;
        if extended || !page_size.is_small() {
            record.push(flags);
        }
        append_value(column, value, record)?;
    }
    Ok(())
}

/// Consumes values of one kind behind the last that is not null.
fn pass_over_nulls<'v>(
    schema: &TableSchema,
    values: &mut Peekable<impl Iterator<Item = &'v (ColumnId, Value)>>,
    is_kind: fn(ColumnId) -> bool,
) -> Result<(), RecordError> {
    while let Some((id, _)) = values.next_if(|(id, _)| is_kind(*id)) {
        column_of(schema, *id)?;
    }
    Ok(())
}

fn column_of(schema: &TableSchema, id: ColumnId) -> Result<&ColumnDefinition, RecordError> {
    schema.column(id).ok_or(RecordError::UnknownColumn { id })
}

/// The columns of a record that have a value, in ascending order. Accepts any bytes.
pub fn decode_record(
    schema: &TableSchema,
    page_size: PageSize,
    record: &[u8],
) -> Result<Vec<(ColumnId, Value)>, RecordError> {
    let malformed = |part| RecordError::Malformed { part };
    let (header, _) =
        record.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or(malformed(RecordPart::Header))?;
    let [last_fixed, last_variable, end0, end1] = *header;
    let fixed_end = usize::from(u16::from_le_bytes([end0, end1]));
    if last_variable < NO_VARIABLE || fixed_end > record.len() {
        return Err(malformed(RecordPart::Header));
    }
    let (fixed, rest) = record.split_at(fixed_end);
    let ends_bytes = 2 * usize::from(last_variable - NO_VARIABLE);
    let (ends, rest) = rest.split_at_checked(ends_bytes).ok_or(malformed(RecordPart::Variable))?;
    let ends = ends.as_chunks::<2>().0;
    let variable_bytes = ends.last().map_or(0, |end| usize::from(u16::from_le_bytes(*end) & !VARIABLE_NULL));
    let (variable, tagged) = rest.split_at_checked(variable_bytes).ok_or(malformed(RecordPart::Variable))?;

    let mut values = Vec::with_capacity(schema.columns().len());
    decode_fixed(schema, u16::from(last_fixed), fixed, &mut values)?;
    decode_variable(schema, ends, variable, &mut values)?;
    decode_tagged(schema, page_size, tagged, &mut values)?;
    Ok(values)
}

fn decode_fixed(
    schema: &TableSchema,
    last: u16,
    fixed: &[u8],
    values: &mut Vec<(ColumnId, Value)>,
) -> Result<(), RecordError> {
    let columns = || schema.fixed_columns().take(usize::from(last));
    let (mut count, mut data_end) = (0, RECORD_HEADER_BYTES);
    for (column, offset) in columns() {
        count += 1;
        data_end = offset + fixed_bytes(column);
    }
    if count < usize::from(last) {
        return Err(RecordError::UnknownColumn { id: ColumnId(last) });
    }
    if fixed.len() != data_end + null_bytes(last) {
        return Err(RecordError::Malformed { part: RecordPart::Fixed });
    }
    let (data, nulls) = fixed.split_at(data_end);
    for (column, offset) in columns() {
        let bit = usize::from(column.id.0 - FIRST_FIXED);
        if nulls[bit / 8] >> (bit % 8) & 1 == 0 {
            let bytes = &data[offset..offset + fixed_bytes(column)];
            values.push((column.id, decode_value(column, bytes)?));
        }
    }
    Ok(())
}

fn decode_variable(
    schema: &TableSchema,
    ends: &[[u8; 2]],
    data: &[u8],
    values: &mut Vec<(ColumnId, Value)>,
) -> Result<(), RecordError> {
    let mut start = 0;
    for (id, end) in (FIRST_VARIABLE..).map(ColumnId).zip(ends) {
        let end = u16::from_le_bytes(*end);
        let column = schema.column(id).ok_or(RecordError::UnknownColumn { id })?;
        let place = start..usize::from(end & !VARIABLE_NULL);
        let bytes = data.get(place.clone()).ok_or(RecordError::Malformed { part: RecordPart::Variable })?;
        if end & VARIABLE_NULL == 0 {
            values.push((id, decode_value(column, bytes)?));
        }
        start = place.end;
    }
    Ok(())
}

fn decode_tagged(
    schema: &TableSchema,
    page_size: PageSize,
    tagged: &[u8],
    values: &mut Vec<(ColumnId, Value)>,
) -> Result<(), RecordError> {
    let malformed = RecordError::Malformed { part: RecordPart::Tagged };
    let mask = if page_size.is_small() { SMALL_PLACE_MASK } else { LARGE_PLACE_MASK };
    let entry = |i: usize| {
        let [id0, id1, place0, place1] = *tagged.as_chunks::<TAGGED_ENTRY_BYTES>().0.get(i)?;
        Some((ColumnId(u16::from_le_bytes([id0, id1])), u16::from_le_bytes([place0, place1])))
    };
    let array_bytes = match entry(0) {
        Some((_, place)) => usize::from(place & mask),
        None if tagged.is_empty() => 0,
        None => return Err(malformed),
    };
    if array_bytes % TAGGED_ENTRY_BYTES != 0 || array_bytes > tagged.len() {
        return Err(malformed);
    }
    let count = array_bytes / TAGGED_ENTRY_BYTES;
    if count == 0 && !tagged.is_empty() {
        return Err(malformed);
    }
    let mut previous = ColumnId(FIRST_TAGGED - 1);
    for i in 0..count {
        let (id, place) = entry(i).expect("inside the array");
        if id <= previous {
            return Err(malformed);
        }
        previous = id;
        let end =
            if i + 1 < count { usize::from(entry(i + 1).expect("inside").1 & mask) } else { tagged.len() };
        let bytes = tagged.get(usize::from(place & mask)..end).ok_or(malformed)?;
        let extended = !page_size.is_small() || place & SMALL_PLACE_EXTENDED != 0;
        let (flags, bytes) = match bytes.split_first() {
            Some((flags, bytes)) if extended => (*flags, bytes),
            None if extended => return Err(malformed),
            _ => (0, bytes),
        };
        let column = schema.column(id).ok_or(RecordError::UnknownColumn { id })?;
        if flags & !(TAGGED_LONG_VALUE | TAGGED_NULL) != 0 {
            return Err(RecordError::Unsupported { id, flags });
        }
        if flags & TAGGED_NULL == 0 && !(page_size.is_small() && place & SMALL_PLACE_NULL != 0) {
            values.push((id, decode_value(column, bytes)?));
        }
    }
    Ok(())
}

fn fixed_bytes(column: &ColumnDefinition) -> usize {
    column.kind.fixed_bytes().expect("fixed columns have types of fixed length")
}

/// Length of the null bits of fixed columns 1 to `last`.
fn null_bytes(last: u16) -> usize {
    usize::from(last).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn schema() -> TableSchema {
        let western = CodePage::Western;
        let kinds = [
            ("Bit", ColumnType::Bit, western),
            ("U8", ColumnType::U8, western),
            ("I16", ColumnType::I16, western),
            ("I32", ColumnType::I32, western),
            ("Currency", ColumnType::Currency, western),
            ("F32", ColumnType::F32, western),
            ("F64", ColumnType::F64, western),
            ("DateTime", ColumnType::DateTime, western),
            ("U32", ColumnType::U32, western),
            ("I64", ColumnType::I64, western),
            ("Guid", ColumnType::Guid, western),
            ("U16", ColumnType::U16, western),
            ("Binary", ColumnType::Binary, western),
            ("Text", ColumnType::Text, western),
            ("UnicodeText", ColumnType::Text, CodePage::Unicode),
            ("LongBinary", ColumnType::LongBinary, western),
            ("LongText", ColumnType::LongText, CodePage::Unicode),
        ];
        TableSchema::from_kinds(kinds).unwrap()
    }

    fn value_for(column: &ColumnDefinition) -> BoxedStrategy<Value> {
        let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
        match (column.kind, column.code_page) {
            (ColumnType::Bit, _) => any::<bool>().prop_map(Value::Bit).boxed(),
            (ColumnType::U8, _) => any::<u8>().prop_map(Value::U8).boxed(),
            (ColumnType::I16, _) => any::<i16>().prop_map(Value::I16).boxed(),
            (ColumnType::U16, _) => any::<u16>().prop_map(Value::U16).boxed(),
            (ColumnType::I32, _) => any::<i32>().prop_map(Value::I32).boxed(),
            (ColumnType::U32, _) => any::<u32>().prop_map(Value::U32).boxed(),
            (ColumnType::I64 | ColumnType::Currency, _) => any::<i64>().prop_map(Value::I64).boxed(),
            (ColumnType::F32, _) => prop::num::f32::NORMAL.prop_map(Value::F32).boxed(),
            (ColumnType::F64, _) => prop::num::f64::NORMAL.prop_map(Value::F64).boxed(),
            (ColumnType::DateTime, _) => prop::num::f64::NORMAL.prop_map(Value::DateTime).boxed(),
            (ColumnType::Guid, _) => any::<[u8; 16]>().prop_map(Value::Guid).boxed(),
            (ColumnType::Binary, _) => bytes(256).prop_map(Value::Binary).boxed(),
            (ColumnType::LongBinary, _) => bytes(500).prop_map(Value::LongBinary).boxed(),
            (ColumnType::Text, CodePage::Western) => "[ -~]{0,255}".prop_map(Value::Text).boxed(),
            (ColumnType::Text, CodePage::Unicode) => "\\PC{0,60}".prop_map(Value::Text).boxed(),
            (ColumnType::LongText, _) => "\\PC{0,200}".prop_map(Value::LongText).boxed(),
        }
    }

    fn values() -> impl Strategy<Value = Vec<(ColumnId, Value)>> {
        let columns: Vec<_> = schema()
            .columns()
            .iter()
            .map(|column| {
                let id = column.id;
                prop::option::of(value_for(column)).prop_map(move |value| Some((id, value?)))
            })
            .collect();
        columns.prop_map(|columns| columns.into_iter().flatten().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn records_give_back_their_values(values in values()) {
            for page_size in [PageSize::Kib4, PageSize::Kib32] {
                let shuffled: Vec<_> = values.iter().rev().cloned().collect();
                let record = encode_record(&schema(), page_size, &shuffled).unwrap();
                prop_assert_eq!(&decode_record(&schema(), page_size, &record).unwrap(), &values);
            }
        }

        #[test]
        fn damaged_records_never_panic(
            values in values(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            for page_size in [PageSize::Kib4, PageSize::Kib32] {
                let mut record = encode_record(&schema(), page_size, &values).unwrap();
                for (place, byte) in &damage {
                    let at = place.index(record.len());
                    record[at] = *byte;
                }
                decode_record(&schema(), page_size, &record).ok();
                record.truncate(damage.len() * 5);
                decode_record(&schema(), page_size, &record).ok();
            }
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let kinds = [
            ("A", ColumnType::I16),
            ("B", ColumnType::Bit),
            ("T", ColumnType::Text),
            ("L", ColumnType::LongBinary),
        ];
        let schema = TableSchema::from_kinds(kinds.map(|(n, k)| (n, k, CodePage::Western))).unwrap();
        let values = [
            (ColumnId(2), Value::Bit(true)),
            (ColumnId(128), Value::Text("hi".into())),
            (ColumnId(256), Value::LongBinary(vec![9])),
        ];
        let start = [2, 128, 8, 0, 0, 0, 0xFF, 0b01, 2, 0, b'h', b'i', 0, 1];
        let small = encode_record(&schema, PageSize::Kib8, &values).unwrap();
        assert_eq!(small, [&start[..], &[4, 0x40, 1, 9]].concat());
        let large = encode_record(&schema, PageSize::Kib16, &values).unwrap();
        assert_eq!(large, [&start[..], &[4, 0, 1, 9]].concat());
        assert_eq!(encode_record(&schema, PageSize::Kib8, &[]).unwrap(), [0, 127, 4, 0]);
    }

    #[test]
    fn values_that_do_not_suit_are_refused() {
        let refused =
            |id, value| encode_record(&schema(), PageSize::Kib4, &[(ColumnId(id), value)]).unwrap_err();
        assert_eq!(refused(99, Value::Null), RecordError::UnknownColumn { id: ColumnId(99) });
        assert_eq!(refused(1, Value::I32(1)), RecordError::WrongType { id: ColumnId(1) });
        let long = Value::Binary(vec![0; 256]);
        assert_eq!(refused(128, long), RecordError::TooLong { id: ColumnId(128), bytes: 256 });
        assert_eq!(refused(129, Value::Text("ü".into())), RecordError::Text { id: ColumnId(129) });
        let huge = Value::LongBinary(vec![0; 70_000]);
        assert!(matches!(refused(256, huge), RecordError::TooLong { bytes: 70_009.., .. }));
    }
}
