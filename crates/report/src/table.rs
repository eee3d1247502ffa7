//! A table: typed columns, and rows that always fit them.
//!
//! Invariant: every row, and the total if there is one, has exactly one cell per column.
//! [`Table::push`] asserts it for documents built here; reading JSON refuses a ragged row.

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

/// The heading of one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What the column holds, in a word or three.
    pub title: String,
    /// The unit of its numbers, shown once in the heading; [`Unit::One`] for none.
    pub unit: Unit,
    /// On which side its cells line up.
    pub align: Align,
}

/// On which side the cells of a column line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A row of a stored table whose count of cells is not the table's count of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaggedRow {
    /// Cells found in the row.
    pub cell_count: usize,
    /// Columns the table has.
    pub column_count: usize,
}

impl Column {
    /// A column of words.
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), unit: Unit::One, align: Align::Left }
    }

    /// A column of quantities, in `unit` unless a cell says otherwise.
    pub fn number(title: impl Into<String>, unit: impl Into<Unit>) -> Self {
        Self { title: title.into(), unit: unit.into(), align: Align::Right }
    }
}

impl Table {
    /// An empty table. The caption may be empty where the section's title says enough.
    pub fn new(caption: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            total: None,
        }
    }

    /// Adds a row below the others.
    ///
    /// # Panics
    /// If the row has not one cell per column: the room that builds the table is wrong.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let row = self.fitting(row);
        self.rows.push(row);
    }

    /// The same table with one more row; see [`Table::push`].
    #[must_use]
    pub fn row(mut self, row: impl IntoIterator<Item = Cell>) -> Self {
        self.push(row);
        self
    }

    /// The same table with a last row set apart from the others: their sum or average.
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

    /// What the table shows; may be empty.
    pub fn caption(&self) -> &str {
        &self.caption
    }

    /// The headings, left to right.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows, top to bottom, without the total.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// The row of totals.
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
