//! The catalogue: the table MSysObjects, whose rows describe every table, column and index, including itself.
//!
//! A table has one row for itself, one for each column and one for each index, all under the table's object
//! number. The rows are stored in three trees: MSysObjects by (table, type, id), its index *Name* by (table,
//! type, name), and its index *RootObjects*, of table rows only, by name. MSysObjectsShadow is a copy of
//! MSysObjects.

use thiserror::Error;

use super::{
    key::{KEY_BYTES_MAX, KeyError, Value, normalise},
    page_size::{ObjectId, PageNumber, PageSize},
    record::{RecordError, decode_record, encode_record},
    schema::{
        CodePage, ColumnDefinition, ColumnId, ColumnType, SHORT_VALUE_BYTES_MAX, SchemaError, TableSchema,
        is_name,
    },
};

/// Flags of the rows of system tables: created by the system, immutable.
const SYSTEM_TABLE_FLAGS: u32 = 0xC000_0000;
/// Flags of a user table's primary index: unique, nulls allowed.
const PRIMARY_INDEX_FLAGS: u32 = 0x1_002F;
/// Index flag: this is the primary index.
const INDEX_FLAG_PRIMARY: u32 = 0x20;
/// Fill density of appended pages in percent, as ESE records it; this engine ignores it.
const DENSITY_PERCENT: i32 = 80;

/// Columns of MSysObjects, by identifier.
mod column {
    use super::ColumnId;

    pub const TABLE: ColumnId = ColumnId(1);
    pub const TYPE: ColumnId = ColumnId(2);
    pub const ID: ColumnId = ColumnId(3);
    pub const KIND_OR_ROOT: ColumnId = ColumnId(4);
    pub const SPACE_USAGE: ColumnId = ColumnId(5);
    pub const FLAGS: ColumnId = ColumnId(6);
    pub const PAGES_OR_LOCALE: ColumnId = ColumnId(7);
    pub const ROOT_FLAG: ColumnId = ColumnId(8);
    pub const RECORD_OFFSET: ColumnId = ColumnId(9);
    pub const KEY_MOST: ColumnId = ColumnId(11);
    pub const NAME: ColumnId = ColumnId(128);
    pub const KEY_COLUMNS: ColumnId = ColumnId(132);
}

/// Type of a catalogue row. Ascending order puts a table before its columns, and columns before indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowType {
    Table = 1,
    Column = 2,
    Index = 3,
}

/// A table's entry in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogTable {
    /// Unique in the database, at most 64 ASCII characters.
    pub name: String,
    /// Object number of the table's pages.
    pub object_id: ObjectId,
    /// Root page of the table's tree.
    pub root: PageNumber,
    /// Pages of the first extent.
    pub initial_pages: u32,
    /// Created by the system, not by a user.
    pub is_system: bool,
    pub schema: TableSchema,
    /// All indexes, including the primary one.
    pub indexes: Vec<CatalogIndex>,
}

/// An index's entry in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogIndex {
    /// Unique in the table.
    pub name: String,
    /// Object number of the index's pages: the table's, if it is the primary index.
    pub object_id: ObjectId,
    /// Root page of the index's tree: the table's, if it is the primary index.
    pub root: PageNumber,
    /// Flags, as in ESE.
    pub flags: u32,
    /// Columns of its keys, most significant first.
    pub columns: Vec<ColumnId>,
}

/// Reasons why a table cannot be stored in the catalogue, or the catalogue cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogError {
    /// The name is empty, too long or not ASCII.
    #[error("\"{name}\" cannot be a name")]
    Name { name: String },
    /// An index column that the table lacks, or whose type cannot be part of a key.
    #[error("column {} of index {index} cannot be part of a key", id.0)]
    KeyColumn { index: String, id: ColumnId },
    /// The table has no primary index.
    #[error("table {table} has no primary index")]
    NoPrimaryIndex { table: String },
    /// The row does not decode as a record of MSysObjects.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The row's key columns do not form a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The columns do not form a table.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The row lacks a column, or a column has an impossible value.
    #[error("a catalogue row has no valid column {}", id.0)]
    Row { id: ColumnId },
    /// A column or index row without a preceding table row.
    #[error("a catalogue row belongs to no table: {}", table.0)]
    Orphan {
        /// Object number in the row.
        table: ObjectId,
    },
}

/// One catalogue row, encoded for each tree that stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogRow {
    /// Key in MSysObjects and its shadow, and the data in both indexes.
    pub key: Vec<u8>,
    /// Data in MSysObjects and its shadow.
    pub record: Vec<u8>,
    /// Key in the index Name.
    pub name_key: Vec<u8>,
    /// Key in the index RootObjects; table rows only.
    pub root_objects_key: Option<Vec<u8>>,
}

impl CatalogTable {
    /// A user's table with a primary index over `primary_key`. Does not create its tree.
    pub fn new(
        name: &str,
        object_id: ObjectId,
        root: PageNumber,
        initial_pages: u32,
        schema: TableSchema,
        primary_key: Vec<ColumnId>,
    ) -> Self {
        let index = CatalogIndex {
            name: "Primary".to_owned(),
            object_id,
            root,
            flags: PRIMARY_INDEX_FLAGS,
            columns: primary_key,
        };
        let indexes = vec![index];
        Self { name: name.to_owned(), object_id, root, initial_pages, is_system: false, schema, indexes }
    }

    /// Columns of the primary key, most significant first.
    pub fn primary_key(&self) -> &[ColumnId] {
        let primary = self.indexes.iter().find(|index| index.flags & INDEX_FLAG_PRIMARY != 0);
        &primary.expect("every table has a primary index").columns
    }

    /// The table's rows, in key order, for a catalogue with pages of `page_size`.
    pub fn rows(&self, page_size: PageSize) -> Result<Vec<CatalogRow>, CatalogError> {
        self.check()?;
        let mut rows = vec![self.table_row(page_size)?];
        for column in self.schema.columns() {
            rows.push(self.column_row(page_size, column)?);
        }
        let mut indexes: Vec<&CatalogIndex> = self.indexes.iter().collect();
        indexes.sort_by_key(|index| index.object_id);
        for index in indexes {
            rows.push(self.index_row(page_size, index)?);
        }
        Ok(rows)
    }

    fn check(&self) -> Result<(), CatalogError> {
        for name in std::iter::once(&self.name).chain(self.indexes.iter().map(|index| &index.name)) {
            if !is_name(name) {
                return Err(CatalogError::Name { name: name.clone() });
            }
        }
        for index in &self.indexes {
            for &id in &index.columns {
                let in_key = self.schema.column(id).is_some_and(|column| {
                    let unicode = column.kind.is_text() && column.code_page == CodePage::Unicode;
                    !column.kind.is_long() && !unicode
                });
                if !in_key {
                    return Err(CatalogError::KeyColumn { index: index.name.clone(), id });
                }
            }
        }
        if self.indexes.iter().any(|index| index.flags & INDEX_FLAG_PRIMARY != 0) {
            Ok(())
        } else {
            Err(CatalogError::NoPrimaryIndex { table: self.name.clone() })
        }
    }

    fn table_row(&self, page_size: PageSize) -> Result<CatalogRow, CatalogError> {
        let flags = if self.is_system { SYSTEM_TABLE_FLAGS } else { 0 };
        let rest = vec![
            (column::KIND_OR_ROOT, Value::I32(self.root.0 as i32)),
            (column::SPACE_USAGE, Value::I32(DENSITY_PERCENT)),
            (column::FLAGS, Value::I32(flags as i32)),
            (column::PAGES_OR_LOCALE, Value::I32(self.initial_pages as i32)),
            (column::ROOT_FLAG, Value::Bit(true)),
        ];
        self.row(page_size, RowType::Table, self.object_id.0, &self.name, rest)
    }

    fn column_row(&self, page_size: PageSize, of: &ColumnDefinition) -> Result<CatalogRow, CatalogError> {
        let bytes_max = match of.kind.fixed_bytes() {
            Some(bytes) => bytes,
            None if of.kind.is_long() => 0,
            None => SHORT_VALUE_BYTES_MAX,
        };
        let code_page = if of.kind.is_text() { of.code_page.number() } else { 0 };
        let mut rest = vec![
            (column::KIND_OR_ROOT, Value::I32(of.kind as i32)),
            (column::SPACE_USAGE, Value::I32(bytes_max as i32)),
            (column::FLAGS, Value::I32(0)),
            (column::PAGES_OR_LOCALE, Value::I32(code_page)),
        ];
        if let Some((_, offset)) = self.schema.fixed_columns().find(|(column, _)| column.id == of.id) {
            rest.push((column::RECORD_OFFSET, Value::I16(offset as i16)));
        }
        self.row(page_size, RowType::Column, u32::from(of.id.0), &of.name, rest)
    }

    fn index_row(&self, page_size: PageSize, index: &CatalogIndex) -> Result<CatalogRow, CatalogError> {
        let key_columns =
            index.columns.iter().flat_map(|id| [[0, 0], id.0.to_le_bytes()]).flatten().collect();
        let rest = vec![
            (column::KIND_OR_ROOT, Value::I32(index.root.0 as i32)),
            (column::SPACE_USAGE, Value::I32(DENSITY_PERCENT)),
            (column::FLAGS, Value::I32(index.flags as i32)),
            (column::PAGES_OR_LOCALE, Value::I32(0)),
            (column::KEY_MOST, Value::U16(KEY_BYTES_MAX as u16)),
            (column::KEY_COLUMNS, Value::Binary(key_columns)),
        ];
        self.row(page_size, RowType::Index, index.object_id.0, &index.name, rest)
    }

    fn row(
        &self,
        page_size: PageSize,
        row_type: RowType,
        id: u32,
        name: &str,
        mut values: Vec<(ColumnId, Value)>,
    ) -> Result<CatalogRow, CatalogError> {
        let table = Value::I32(self.object_id.0 as i32);
        let kind = Value::I16(row_type as i16);
        let id = Value::I32(id as i32);
        let text = Value::Text(name.to_owned());
        let key = normalise([&table, &kind, &id])?;
        let name_key = normalise([&table, &kind, &text])?;
        let root_objects_key = if row_type == RowType::Table { Some(root_objects_key(name)?) } else { None };
        values.extend([(column::TABLE, table), (column::TYPE, kind), (column::ID, id), (column::NAME, text)]);
        let record = encode_record(&catalog_schema(), page_size, &values)?;
        Ok(CatalogRow { key, record, name_key, root_objects_key })
    }
}

/// Common prefix of the keys of a table's rows, in MSysObjects and in its index Name.
pub fn table_key_prefix(table: ObjectId) -> Vec<u8> {
    normalise([&Value::I32(table.0 as i32)]).expect("an integer makes a key")
}

/// The key of a table in RootObjects; its data is the table row's key in MSysObjects.
pub fn root_objects_key(table_name: &str) -> Result<Vec<u8>, KeyError> {
    normalise([&Value::Bit(true), &Value::Text(table_name.to_owned())])
}

/// Decodes the tables described by `records`, the data of all nodes of MSysObjects in key order. Rows of
/// unsupported types (long-value trees, callbacks) are skipped.
pub fn parse_tables<'r>(
    page_size: PageSize,
    records: impl IntoIterator<Item = &'r [u8]>,
) -> Result<Vec<CatalogTable>, CatalogError> {
    let schema = catalog_schema();
    let mut tables: Vec<CatalogTable> = Vec::new();
    let mut columns = Vec::new();
    for record in records {
        let row = DecodedRow(decode_record(&schema, page_size, record)?);
        let owner = ObjectId(row.u32(column::TABLE)?);
        let row_type = row.u32(column::TYPE)?;
        if row_type == RowType::Table as u32 {
            finish_table(&mut tables, &mut columns)?;
            tables.push(row.table()?);
            continue;
        }
        let table = tables.last_mut().filter(|table| table.object_id == owner);
        let table = table.ok_or(CatalogError::Orphan { table: owner })?;
        match row_type {
            _ if row_type == RowType::Column as u32 => columns.push(row.column()?),
            _ if row_type == RowType::Index as u32 => table.indexes.push(row.index()?),
            _ => {}
        }
    }
    finish_table(&mut tables, &mut columns)?;
    Ok(tables)
}

/// Assigns the collected columns to the last table, and checks it.
fn finish_table(
    tables: &mut [CatalogTable],
    columns: &mut Vec<ColumnDefinition>,
) -> Result<(), CatalogError> {
    let Some(table) = tables.last_mut() else { return Ok(()) };
    table.schema = TableSchema::new(std::mem::take(columns))?;
    table.check()
}

/// A decoded row of MSysObjects.
struct DecodedRow(Vec<(ColumnId, Value)>);

impl DecodedRow {
    fn value(&self, id: ColumnId) -> Result<&Value, CatalogError> {
        let found = self.0.iter().find(|(column, _)| *column == id);
        found.map(|(_, value)| value).ok_or(CatalogError::Row { id })
    }

    fn u32(&self, id: ColumnId) -> Result<u32, CatalogError> {
        match self.value(id)? {
            Value::I32(n) => Ok(*n as u32),
            Value::I16(n) => u32::try_from(*n).map_err(|_| CatalogError::Row { id }),
            _ => Err(CatalogError::Row { id }),
        }
    }

    fn name(&self) -> Result<String, CatalogError> {
        match self.value(column::NAME)? {
            Value::Text(name) => Ok(name.clone()),
            _ => Err(CatalogError::Row { id: column::NAME }),
        }
    }

    fn table(&self) -> Result<CatalogTable, CatalogError> {
        Ok(CatalogTable {
            name: self.name()?,
            object_id: ObjectId(self.u32(column::TABLE)?),
            root: PageNumber(self.u32(column::KIND_OR_ROOT)?),
            initial_pages: self.u32(column::PAGES_OR_LOCALE)?,
            is_system: self.u32(column::FLAGS)? & SYSTEM_TABLE_FLAGS != 0,
            schema: TableSchema::new(vec![])?,
            indexes: vec![],
        })
    }

    fn column(&self) -> Result<ColumnDefinition, CatalogError> {
        let id = u16::try_from(self.u32(column::ID)?).map_err(|_| CatalogError::Row { id: column::ID })?;
        let kind = ColumnType::from_code(self.u32(column::KIND_OR_ROOT)?);
        let kind = kind.ok_or(CatalogError::Row { id: column::KIND_OR_ROOT })?;
        let unicode = self.u32(column::PAGES_OR_LOCALE)? == CodePage::Unicode.number() as u32;
        let code_page = if unicode { CodePage::Unicode } else { CodePage::Western };
        Ok(ColumnDefinition { id: ColumnId(id), name: self.name()?, kind, code_page })
    }

    fn index(&self) -> Result<CatalogIndex, CatalogError> {
        let Value::Binary(segments) = self.value(column::KEY_COLUMNS)? else {
            return Err(CatalogError::Row { id: column::KEY_COLUMNS });
        };
        let columns = segments.as_chunks::<4>().0.iter();
        Ok(CatalogIndex {
            name: self.name()?,
            object_id: ObjectId(self.u32(column::ID)?),
            root: PageNumber(self.u32(column::KIND_OR_ROOT)?),
            flags: self.u32(column::FLAGS)?,
            columns: columns.map(|[.., low, high]| ColumnId(u16::from_le_bytes([*low, *high]))).collect(),
        })
    }
}

/// The columns of MSysObjects.
pub fn catalog_schema() -> TableSchema {
    use ColumnType::{Binary, Bit, I16, I32, LongBinary, Text, U16};
    let columns = [
        (1, "ObjidTable", I32),
        (2, "Type", I16),
        (3, "Id", I32),
        (4, "ColtypOrPgnoFDP", I32),
        (5, "SpaceUsage", I32),
        (6, "Flags", I32),
        (7, "PagesOrLocale", I32),
        (8, "RootFlag", Bit),
        (9, "RecordOffset", I16),
        (10, "LCMapFlags", I32),
        (11, "KeyMost", U16),
        (12, "LVChunkMax", I32),
        (128, "Name", Text),
        (129, "Stats", Binary),
        (130, "TemplateTable", Text),
        (131, "DefaultValue", Binary),
        (132, "KeyFldIDs", Binary),
        (133, "VarSegMac", Binary),
        (134, "ConditionalColumns", Binary),
        (135, "TupleLimits", Binary),
        (136, "Version", Binary),
        (137, "SortID", Binary),
        (256, "CallbackData", LongBinary),
        (257, "CallbackDependencies", LongBinary),
        (258, "SeparateLV", LongBinary),
        (259, "SpaceHints", LongBinary),
        (260, "SpaceDeferredLVHints", LongBinary),
        (261, "LocaleName", LongBinary),
    ];
    let columns = columns.map(|(id, name, kind)| ColumnDefinition {
        id: ColumnId(id),
        name: name.to_owned(),
        kind,
        code_page: CodePage::Western,
    });
    TableSchema::new(columns.to_vec()).expect("a valid schema")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> CatalogTable {
        let western = CodePage::Western;
        let kinds = [
            ("Id", ColumnType::I32, western),
            ("Subject", ColumnType::Text, CodePage::Unicode),
            ("Sender", ColumnType::Text, western),
            ("Body", ColumnType::LongBinary, western),
        ];
        let schema = TableSchema::from_kinds(kinds).unwrap();
        CatalogTable::new("Mailbox", ObjectId(6), PageNumber(44), 16, schema, vec![ColumnId(1)])
    }

    fn tables() -> Vec<CatalogTable> {
        let other = CatalogTable { name: "Other".into(), object_id: ObjectId(7), ..mailbox() };
        vec![mailbox(), other]
    }

    #[test]
    fn tables_survive_the_catalogue() {
        for page_size in [PageSize::Kib4, PageSize::Kib32] {
            let rows: Vec<CatalogRow> =
                tables().iter().flat_map(|table| table.rows(page_size).unwrap()).collect();
            assert!(rows.is_sorted_by(|a, b| a.key < b.key));
            let parsed = parse_tables(page_size, rows.iter().map(|row| row.record.as_slice())).unwrap();
            assert_eq!(parsed, tables());
            assert_eq!(parsed[0].primary_key(), [ColumnId(1)]);
        }
    }

    #[test]
    fn rows_are_found_by_table_and_tables_by_name() {
        let rows = mailbox().rows(PageSize::Kib4).unwrap();
        let prefix = table_key_prefix(ObjectId(6));
        assert!(rows.iter().all(|row| row.key.starts_with(&prefix) && row.name_key.starts_with(&prefix)));
        let roots: Vec<_> = rows.iter().filter_map(|row| row.root_objects_key.clone()).collect();
        assert_eq!(roots, [root_objects_key("mailbox").unwrap()]);
        assert_eq!(roots[0], b"\x7F\xFF\x7FMAILBOX\0");
    }

    #[test]
    fn tables_without_a_sound_key_are_refused() {
        let with_key = |columns: Vec<u16>| {
            let mut table = mailbox();
            table.indexes[0].columns = columns.into_iter().map(ColumnId).collect();
            table.rows(PageSize::Kib4)
        };
        assert!(matches!(with_key(vec![9]), Err(CatalogError::KeyColumn { .. })));
        assert!(matches!(with_key(vec![256]), Err(CatalogError::KeyColumn { .. })));
        assert!(matches!(with_key(vec![128]), Err(CatalogError::KeyColumn { .. })));
        assert!(with_key(vec![129, 1]).is_ok());
        let unnamed = CatalogTable { name: String::new(), ..mailbox() };
        assert!(matches!(unnamed.rows(PageSize::Kib4), Err(CatalogError::Name { .. })));
    }

    #[test]
    fn rows_without_their_table_are_refused() {
        let rows = mailbox().rows(PageSize::Kib4).unwrap();
        let records = rows[1..].iter().map(|row| row.record.as_slice());
        let orphan = Err(CatalogError::Orphan { table: ObjectId(6) });
        assert_eq!(parse_tables(PageSize::Kib4, records), orphan);
    }
}
