//! Tables: typed columns, with rows that fit them.
//!
//! Invariant: every row, and the total if there is one, has exactly one cell per column. [`Table::push`]
//! asserts it; parsing JSON rejects a ragged row.

use std::{error, fmt};

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::unit::Unit;

/// Rows of typed cells under titled columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedTable")]
pub struct Table {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    total: Option<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// One to three words.
    pub title: String,
    /// Unit of its numbers, shown once in the heading; [`Unit::One`] for none.
    pub unit: Unit,
    /// Alignment of its cells.
    pub align: Align,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A row of a stored table with the wrong number of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaggedRow {
    pub cell_count: usize,
    pub column_count: usize,
}

impl Column {
    /// A left-aligned column.
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), unit: Unit::One, align: Align::Left }
    }

    /// A right-aligned column of quantities, in `unit` unless a cell says otherwise.
    pub fn number(title: impl Into<String>, unit: impl Into<Unit>) -> Self {
        Self { title: title.into(), unit: unit.into(), align: Align::Right }
    }
}

impl Table {
    /// An empty table. The caption may be empty if the section's title suffices.
    pub fn new(caption: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            total: None,
        }
    }

    /// Appends a row.
    ///
    /// # Panics
    /// If the row does not have one cell per column.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let row = self.fitting(row);
        self.rows.push(row);
    }

    /// Appends a row; see [`Table::push`].
    #[must_use]
    pub fn row(mut self, row: impl IntoIterator<Item = Cell>) -> Self {
        self.push(row);
        self
    }

    /// Sets the last row, a sum or average.
    ///
    /// # Panics
    /// As [`Table::push`].
    #[must_use]
    pub fn total(mut self, row: impl IntoIterator<Item = Cell>) -> Self {
        self.total = Some(self.fitting(row));
        self
    }

    fn fitting(&self, row: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
        let row: Vec<Cell> = row.into_iter().collect();
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row of table {:?} does not fit its columns",
            self.caption
        );
        row
    }

    /// May be empty.
    pub fn caption(&self) -> &str {
        &self.caption
    }

    /// Left to right.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Top to bottom, without the total.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    pub fn total_row(&self) -> Option<&[Cell]> {
        self.total.as_deref()
    }
}

#[derive(Deserialize)]
struct UncheckedTable {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    total: Option<Vec<Cell>>,
}

impl TryFrom<UncheckedTable> for Table {
    type Error = RaggedRow;

    fn try_from(stored: UncheckedTable) -> Result<Self, RaggedRow> {
        let column_count = stored.columns.len();
        let ragged = stored.rows.iter().chain(&stored.total).find(|row| row.len() != column_count);
        if let Some(row) = ragged {
            return Err(RaggedRow { cell_count: row.len(), column_count });
        }
        Ok(Self { caption: stored.caption, columns: stored.columns, rows: stored.rows, total: stored.total })
    }
}

impl fmt::Display for RaggedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row of {} cells in a table of {} columns", self.cell_count, self.column_count)
    }
}

impl error::Error for RaggedRow {}
