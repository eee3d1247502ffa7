//! Tables: a schema, a primary key and the tree that holds the records.

use super::rows::TableTree;
use crate::{
    error::{Error, Result},
    format::{
        key::{Value, append_normalised, check_length, normalise},
        page_size::PageSize,
        record::{ColumnDefinition, ColumnId, TableSchema, decode_record, encode_record_into},
    },
};
use std::{cell::Cell, rc::Rc};

/// Definition of a new table.
#[derive(Clone, Debug)]
pub struct TableDefinition {
    /// Unique in the database.
    pub name: String,
    pub columns: Vec<ColumnDefinition>,
    /// Key columns, most significant first.
    pub primary_key: Vec<ColumnId>,
}

struct TableInner {
    name: String,
    tree: TableTree,
    schema: TableSchema,
    primary_key: Vec<ColumnId>,
    page_size: PageSize,
    loading: Cell<BulkLoadState>,
}

/// Bulk load state of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BulkLoadState {
    None,
    /// A loader exists.
    Active,
    /// The loader is gone; its remains are being cleaned up.
    CleaningUp,
}

/// An open table. Cheap to clone.
#[derive(Clone)]
pub struct Table(Rc<TableInner>);

impl Table {
    pub(super) fn new(
        name: String,
        tree: TableTree,
        schema: TableSchema,
        primary_key: Vec<ColumnId>,
        page_size: PageSize,
    ) -> Self {
        assert!(!primary_key.is_empty(), "every table has a primary key");
        Self(Rc::new(TableInner {
            name,
            tree,
            schema,
            primary_key,
            page_size,
            loading: Cell::new(BulkLoadState::None),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn schema(&self) -> &TableSchema {
        &self.0.schema
    }

    /// Columns of the primary key, in order.
    pub fn primary_key(&self) -> &[ColumnId] {
        &self.0.primary_key
    }

    /// True if `other` is a handle of the same table of the same open database.
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn tree(&self) -> TableTree {
        self.0.tree
    }

    /// Bulk load state, shared by all handles of the table.
    pub(super) fn loading(&self) -> &Cell<BulkLoadState> {
        &self.0.loading
    }

    /// Refuses changes while the table is being bulk loaded.
    pub(super) fn check_changeable(&self) -> Result<()> {
        match self.0.loading.get() {
            BulkLoadState::None => Ok(()),
            _ => Err(Error::Table(format!(
                "{} is being bulk loaded; no record of it can be changed",
                self.name()
            ))),
        }
    }

    /// Encodes primary key values, or the first few of them.
    pub(super) fn key_of(&self, key: &[Value]) -> Result<Vec<u8>> {
        if key.len() > self.0.primary_key.len() {
            return Err(Error::Table(format!(
                "the primary key of {} has {} columns, not {}",
                self.0.name,
                self.0.primary_key.len(),
                key.len()
            )));
        }
        Ok(normalise(key)?)
    }

    /// Encodes the key and the record of a row.
    pub(super) fn encode(&self, values: &[(ColumnId, Value)]) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut key, mut record) = Default::default();
        self.encode_into(values, &mut key, &mut record)?;
        Ok((key, record))
    }

    /// Like [`Table::encode`], into existing buffers.
    pub(super) fn encode_into(
        &self,
        values: &[(ColumnId, Value)],
        key: &mut Vec<u8>,
        record: &mut Vec<u8>,
    ) -> Result<()> {
        key.clear();
        for id in &self.0.primary_key {
            let Some((_, value)) = values.iter().find(|(column, _)| column == id) else {
                let (id, table) = (id.0, &self.0.name);
                return Err(Error::Table(format!("column {id} of the primary key of {table} has no value")));
            };
            append_normalised(value, key)?;
        }
        check_length(key)?;
        Ok(encode_record_into(&self.0.schema, self.0.page_size, values, record)?)
    }

    /// Decodes a record.
    pub(super) fn decode(&self, record: &[u8]) -> Result<Vec<(ColumnId, Value)>> {
        Ok(decode_record(&self.0.schema, self.0.page_size, record)?)
    }
}
