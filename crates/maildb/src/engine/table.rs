//! Tables: a schema, a primary key and the tree that holds the records.

use super::rows::Tree;
use crate::{
    error::{Error, Result},
    format::{
        key::{Value, normalise},
        page_size::PageSize,
        record::{ColumnDefinition, ColumnId, TableSchema, decode_record, encode_record},
    },
};
use std::rc::Rc;

/// A table to be made.
#[derive(Clone, Debug)]
pub struct TableDefinition {
    /// Its name, unique in the database.
    pub name: String,
    /// Its columns.
    pub columns: Vec<ColumnDefinition>,
    /// Columns whose values, in this order, are a record's key.
    pub primary_key: Vec<ColumnId>,
}

struct Inner {
    name: String,
    tree: Tree,
    schema: TableSchema,
    primary_key: Vec<ColumnId>,
    page_size: PageSize,
}

/// An open table. Cheap to clone.
#[derive(Clone)]
pub struct Table(Rc<Inner>);

impl Table {
    pub(super) fn new(
        name: String,
        tree: Tree,
        schema: TableSchema,
        primary_key: Vec<ColumnId>,
        page_size: PageSize,
    ) -> Self {
        assert!(!primary_key.is_empty(), "every table has a primary key");
        Self(Rc::new(Inner { name, tree, schema, primary_key, page_size }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its columns.
    pub fn schema(&self) -> &TableSchema {
        &self.0.schema
    }

    /// Columns of the primary key, in order.
    pub fn primary_key(&self) -> &[ColumnId] {
        &self.0.primary_key
    }

    pub(super) fn tree(&self) -> Tree {
        self.0.tree
    }

    /// The key bytes of primary key values, or of the first few of them.
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

    /// Key and record of a row.
    pub(super) fn encode(&self, values: &[(ColumnId, Value)]) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut key = Vec::with_capacity(self.0.primary_key.len());
        for id in &self.0.primary_key {
            let value = values.iter().find(|(column, _)| column == id).map(|(_, value)| value);
            key.push(value.ok_or_else(|| {
                Error::Table(format!("column {} of the primary key of {} has no value", id.0, self.0.name))
            })?);
        }
        Ok((normalise(key)?, encode_record(&self.0.schema, self.0.page_size, values)?))
    }

    /// The values of a record.
    pub(super) fn decode(&self, record: &[u8]) -> Result<Vec<(ColumnId, Value)>> {
        Ok(decode_record(&self.0.schema, self.0.page_size, record)?)
    }
}
