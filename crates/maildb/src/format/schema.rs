//! Columns and table schemas.
//!
//! A column's identifier determines how records store it: *fixed* columns (1 to 127) each at one offset,
//! *variable* ones (128 to 255) behind a list of end offsets, *tagged* ones (256 on) only where they have a
//! value.

use thiserror::Error;

/// First identifiers of fixed and variable columns.
pub(super) const FIRST_FIXED: u16 = 1;
pub(super) const FIRST_VARIABLE: u16 = 128;
pub(super) const FIRST_TAGGED: u16 = 256;
/// A record starts with a four-byte header; fixed columns follow.
pub(super) const RECORD_HEADER_BYTES: usize = 4;
/// Longest binary or text value outside a long-value column.
pub const SHORT_VALUE_BYTES_MAX: usize = 255;

/// Identifier of a column in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u16);

impl ColumnId {
    /// True if the column is stored at a fixed offset.
    pub const fn is_fixed(self) -> bool {
        FIRST_FIXED <= self.0 && self.0 < FIRST_VARIABLE
    }

    /// True if the column is stored behind the list of end offsets.
    pub const fn is_variable(self) -> bool {
        FIRST_VARIABLE <= self.0 && self.0 < FIRST_TAGGED
    }

    /// True if the column is stored only where it has a value.
    pub const fn is_tagged(self) -> bool {
        FIRST_TAGGED <= self.0
    }
}

/// Column types, numbered as in ESE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ColumnType {
    Bit = 1,
    U8 = 2,
    /// Signed, 2 bytes.
    I16 = 3,
    /// Signed, 4 bytes.
    I32 = 4,
    /// Signed, 8 bytes: the older of two such types, known to every reader.
    Currency = 5,
    F32 = 6,
    F64 = 7,
    DateTime = 8,
    /// At most 255 bytes.
    Binary = 9,
    /// At most 255 bytes of text.
    Text = 10,
    LongBinary = 11,
    LongText = 12,
    /// Unsigned, 4 bytes.
    U32 = 14,
    /// Signed, 8 bytes.
    I64 = 15,
    Guid = 16,
    /// Unsigned, 2 bytes.
    U16 = 17,
}

impl ColumnType {
    const ALL: [Self; 16] = [
        Self::Bit,
        Self::U8,
        Self::I16,
        Self::I32,
        Self::Currency,
        Self::F32,
        Self::F64,
        Self::DateTime,
        Self::Binary,
        Self::Text,
        Self::LongBinary,
        Self::LongText,
        Self::U32,
        Self::I64,
        Self::Guid,
        Self::U16,
    ];

    /// The type with ESE's number `code`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == code)
    }

    /// Bytes of a value, for types of fixed length.
    pub const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Bit | Self::U8 => Some(1),
            Self::I16 | Self::U16 => Some(2),
            Self::I32 | Self::U32 | Self::F32 => Some(4),
            Self::Currency | Self::I64 | Self::F64 | Self::DateTime => Some(8),
            Self::Guid => Some(16),
            Self::Binary | Self::Text | Self::LongBinary | Self::LongText => None,
        }
    }

    pub const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::LongText)
    }

    /// True for long-value types, which are always stored in tagged columns here.
    pub const fn is_long(self) -> bool {
        matches!(self, Self::LongBinary | Self::LongText)
    }
}

/// Text encoding: the two code pages of ESE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CodePage {
    /// Windows-1252; this engine writes its ASCII part only.
    #[default]
    Western,
    /// UTF-16, little-endian.
    Unicode,
}

impl CodePage {
    pub const fn number(self) -> i32 {
        match self {
            Self::Western => 1252,
            Self::Unicode => 1200,
        }
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub id: ColumnId,
    /// At most 64 ASCII characters.
    pub name: String,
    pub kind: ColumnType,
    /// Encoding of text columns; ignored for other types.
    pub code_page: CodePage,
}

/// Reasons why columns do not form a table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// Identifiers must ascend; fixed and variable ones must be contiguous.
    #[error("column {} ({name}) does not follow the one before", id.0)]
    Gap { id: ColumnId, name: String },
    /// The identifier's range does not fit the column's type.
    #[error("column {} ({name}) cannot be a {kind:?}", id.0)]
    Kind { id: ColumnId, name: String, kind: ColumnType },
    /// The name is empty, too long, not ASCII, or used by another column.
    #[error("\"{name}\" cannot be the name of a column here")]
    Name { name: String },
}

/// The columns of a table. Invariants: identifiers ascend; the fixed ones are 1, 2, 3 … and the variable
/// ones 128, 129 … without gaps; fixed columns have types of fixed length, variable ones are binary or
/// text, long values are tagged; names are distinct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    columns: Vec<ColumnDefinition>,
}

/// Longest name of a table, column or index, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

impl TableSchema {
    /// Checks `columns` against the invariants of a schema.
    pub fn new(columns: Vec<ColumnDefinition>) -> Result<Self, SchemaError> {
        let mut previous = ColumnId(0);
        for (place, column) in columns.iter().enumerate() {
            let (id, name) = (column.id, column.name.clone());
            let follows = match id {
                _ if id.is_fixed() || id.0 == 0 => id.0 == previous.0 + 1,
                _ if id.is_variable() => id.0 == previous.0.max(FIRST_VARIABLE - 1) + 1,
                _ => id > previous,
            };
            if !follows {
                return Err(SchemaError::Gap { id, name });
            }
            let suits = match column.kind.fixed_bytes() {
                Some(_) => id.is_fixed() || id.is_tagged(),
                None if column.kind.is_long() => id.is_tagged(),
                None => id.is_variable(),
            };
            if !suits {
                return Err(SchemaError::Kind { id, name, kind: column.kind });
            }
            let taken = columns[..place].iter().any(|other| other.name.eq_ignore_ascii_case(&name));
            if taken || !is_name(&name) {
                return Err(SchemaError::Name { name });
            }
            previous = id;
        }
        Ok(Self { columns })
    }

    /// A schema whose identifiers are assigned by type, in the order given: types of fixed length become
    /// fixed columns, binary and text variable ones, long values tagged ones.
    pub fn from_kinds<'n>(
        kinds: impl IntoIterator<Item = (&'n str, ColumnType, CodePage)>,
    ) -> Result<Self, SchemaError> {
        let (mut fixed, mut variable, mut tagged) = (FIRST_FIXED, FIRST_VARIABLE, FIRST_TAGGED);
        let mut columns = Vec::new();
        for (name, kind, code_page) in kinds {
            let next = match kind.fixed_bytes() {
                Some(_) => &mut fixed,
                None if kind.is_long() => &mut tagged,
                None => &mut variable,
            };
            let id = ColumnId(*next);
            *next += 1;
            columns.push(ColumnDefinition { id, name: name.to_owned(), kind, code_page });
        }
        columns.sort_by_key(|column| column.id);
        Self::new(columns)
    }

    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// The column with identifier `id`.
    pub fn column(&self, id: ColumnId) -> Option<&ColumnDefinition> {
        let place = self.columns.binary_search_by_key(&id, |column| column.id).ok()?;
        Some(&self.columns[place])
    }

    /// The column named `name`, ignoring case.
    pub fn column_named(&self, name: &str) -> Option<&ColumnDefinition> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// Fixed columns in order, each with its offset in the record.
    pub fn fixed_columns(&self) -> impl Iterator<Item = (&ColumnDefinition, usize)> {
        let mut next = RECORD_HEADER_BYTES;
        self.columns.iter().take_while(|column| column.id.is_fixed()).map(move |column| {
            let offset = next;
            next += column.kind.fixed_bytes().expect("fixed columns have types of fixed length");
            (column, offset)
        })
    }
}

/// True if `name` is valid for a table, column or index.
pub fn is_name(name: &str) -> bool {
    let ascii = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_go_by_type() {
        let kinds = [
            ("Body", ColumnType::LongBinary),
            ("Id", ColumnType::I32),
            ("Subject", ColumnType::Text),
            ("Size", ColumnType::Currency),
        ];
        let schema = TableSchema::from_kinds(kinds.map(|(n, k)| (n, k, CodePage::Western))).unwrap();
        let ids: Vec<_> = schema.columns().iter().map(|c| (c.name.as_str(), c.id.0)).collect();
        assert_eq!(ids, [("Id", 1), ("Size", 2), ("Subject", 128), ("Body", 256)]);
        let offsets: Vec<_> = schema.fixed_columns().map(|(_, offset)| offset).collect();
        assert_eq!(offsets, [4, 8]);
    }

    #[test]
    fn columns_that_make_no_record_are_refused() {
        let column = |id, name: &str, kind| ColumnDefinition {
            id: ColumnId(id),
            name: name.into(),
            kind,
            code_page: CodePage::Western,
        };
        let refused = |columns: &[ColumnDefinition]| TableSchema::new(columns.to_vec()).unwrap_err();
        assert!(matches!(refused(&[column(2, "a", ColumnType::I32)]), SchemaError::Gap { .. }));
        assert!(matches!(refused(&[column(0, "a", ColumnType::I32)]), SchemaError::Gap { .. }));
        assert!(matches!(refused(&[column(129, "a", ColumnType::Text)]), SchemaError::Gap { .. }));
        assert!(matches!(refused(&[column(1, "a", ColumnType::Text)]), SchemaError::Kind { .. }));
        assert!(matches!(refused(&[column(128, "a", ColumnType::LongText)]), SchemaError::Kind { .. }));
        let twice = [column(1, "a", ColumnType::I32), column(2, "A", ColumnType::I32)];
        assert!(matches!(refused(&twice), SchemaError::Name { .. }));
    }
}
