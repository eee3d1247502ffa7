//! The catalogue: which trees there are. Read with as little of its rows as tells that.

use super::{Stopped, Walk};
use crate::fields::{u16_at, u32_at};
use maildb::{
    PageNumber,
    format::{bootstrap::CATALOG_ROOT, page::NodeFlags, page_size::ObjectId},
};

/// What rows describe.
const TABLE: u16 = 1;
const INDEX: u16 = 3;
const LONG_VALUES: u16 = 4;
/// The first fixed columns of a row, and how many there must be: table, type, number, root.
const TABLE_AT: usize = 4;
const TYPE_AT: usize = 8;
const NUMBER_AT: usize = 10;
const ROOT_AT: usize = 14;
const FIXED_COLUMNS_MIN: u8 = 4;
/// The first of the columns of variable length: the name.
const NAME_COLUMN: u8 = 128;

/// A tree of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The table it belongs to.
    pub table: ObjectId,
    /// The number its pages carry.
    pub object: ObjectId,
    /// Its root.
    pub root: PageNumber,
    /// Its name.
    pub name: String,
    /// Whether it is the table itself, rather than an index or its long values.
    pub is_table: bool,
}

impl Walk<'_> {
    /// All trees of the catalogue, each table before its indexes and long values. It names itself, so that its own
    /// tree is among them; what keeps its pages from being read is found here, for the rows that name it may be lost.
    pub(super) fn read_catalogue(&mut self) -> Result<Vec<Tree>, Stopped> {
        let mut trees: Vec<Tree> = Vec::new();
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
            self.find_between(page, "a row of the catalogue makes no sense");
        }
        if is_read && !trees.iter().any(|tree| tree.is_table && tree.root == CATALOG_ROOT) {
            self.find_between(
                CATALOG_ROOT,
                "the catalogue does not name itself: it is not that of this database",
            );
        }
        Ok(trees)
    }
}

fn is_table_root(trees: &[Tree], tree: &Tree) -> bool {
    let table = trees.iter().rev().find(|other| other.is_table);
    table.is_some_and(|table| table.table == tree.table && table.root == tree.root)
}

/// The tree a row describes: none inside if it describes none, none at all if it makes no sense.
pub(super) fn tree_of(record: &[u8]) -> Option<Option<Tree>> {
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
    // An index that a table has from its template has no tree of its own.
    Some((root.0 > 0).then_some(Tree { table, object, root, name, is_table }))
}

/// The name in a row.
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
