//! The catalogue: the list of trees. Only the columns that identify trees are read.

use super::{Stopped, Walk};
use crate::fields::{u16_at, u32_at};
use maildb::{
    PageNumber,
    format::{bootstrap::CATALOG_ROOT, page::NodeFlags, page_size::ObjectId},
};

/// Row types.
const TABLE: u16 = 1;
const INDEX: u16 = 3;
const LONG_VALUES: u16 = 4;
/// Offsets of the first fixed columns of a row, and their minimum number: table, type, number, root.
const TABLE_AT: usize = 4;
const TYPE_AT: usize = 8;
const NUMBER_AT: usize = 10;
const ROOT_AT: usize = 14;
const FIXED_COLUMNS_MIN: u8 = 4;
/// The first column of variable length: the name.
const NAME_COLUMN: u8 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueTree {
    pub table: ObjectId,
    /// The object number its pages store.
    pub object: ObjectId,
    pub root: PageNumber,
    pub name: String,
    /// True for the table itself; false for an index or long values.
    pub is_table: bool,
}

impl Walk<'_> {
    /// All trees of the catalogue, each table before its indexes and long values. The catalogue lists itself,
    /// so its own tree is among them. Unreadable catalogue pages are found here, because the rows that list
    /// the tree may be lost.
    pub(super) fn read_catalogue(&mut self) -> Result<Vec<CatalogueTree>, Stopped> {
        let mut trees: Vec<CatalogueTree> = Vec::new();
        let mut bad = Vec::new();
        let mut take = |page: PageNumber, flags: NodeFlags, record: &[u8]| {
            if flags.contains(NodeFlags::DELETED) {
                return;
            }
            match tree_of(record) {
                Some(None) => {}
                // A table is its own primary index.
                Some(Some(tree)) if !tree.is_table && is_table_root(&trees, &tree) => {}
                Some(Some(tree)) => trees.push(tree),
                None => bad.push(page),
            }
        };
        let is_read = self.each_record(CATALOG_ROOT, &mut take)?;
        for page in bad {
            self.find_between(page, "a row of the catalogue is invalid");
        }
        if is_read && !trees.iter().any(|tree| tree.is_table && tree.root == CATALOG_ROOT) {
            self.find_between(
                CATALOG_ROOT,
                "the catalogue does not list itself: it belongs to another database",
            );
        }
        Ok(trees)
    }
}

fn is_table_root(trees: &[CatalogueTree], tree: &CatalogueTree) -> bool {
    let table = trees.iter().rev().find(|other| other.is_table);
    table.is_some_and(|table| table.table == tree.table && table.root == tree.root)
}

/// The tree a row describes: `Some(None)` if it describes no tree, `None` if the row is invalid.
pub(super) fn tree_of(record: &[u8]) -> Option<Option<CatalogueTree>> {
    let [columns_fixed, last_variable] = *record.first_chunk::<2>()?;
    if columns_fixed < FIXED_COLUMNS_MIN || record.len() < ROOT_AT + 4 {
        return None;
    }
    let table = ObjectId(u32_at(record, TABLE_AT));
    let number = ObjectId(u32_at(record, NUMBER_AT));
    let root = PageNumber(u32_at(record, ROOT_AT));
    let row_type = u16_at(record, TYPE_AT);
    if !matches!(row_type, TABLE | INDEX | LONG_VALUES) {
        return Some(None);
    }
    let is_table = row_type == TABLE;
    let object = if is_table { table } else { number };
    let name = name_of(record, last_variable)?;
    // An index inherited from a template table has no tree of its own.
    Some((root.0 > 0).then_some(CatalogueTree { table, object, root, name, is_table }))
}

fn name_of(record: &[u8], last_variable: u8) -> Option<String> {
    if last_variable < NAME_COLUMN {
        return Some(String::new());
    }
    let ends_at = usize::from(u16_at(record, 2));
    let from = ends_at + 2 * usize::from(last_variable - NAME_COLUMN + 1);
    let length = usize::from(u16_at(record, ends_at) & 0x7FFF);
    let name = record.get(from..from + length)?;
    Some(name.iter().map(|&byte| char::from(byte)).collect())
}
