//! Leaves of the catalogue: rows as bytes. What is in them is the tables' affair.

use super::{
    Draft, GROUP_ENTRIES, HEAD_BYTES, NodeFull, NodeKey, NodePlace, Sealed, THIS, Tree,
    varint::{Reader, put},
};
use crate::format::{
    pointer::NodePointer,
    refusal::Refusal,
    row::{ROW_BYTES_MAX, RowKey, Table},
};

/// A leaf of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueLeaf<'a>(pub(super) Sealed<'a>);

impl<'a> CatalogueLeaf<'a> {
    /// All rows, in order.
    pub fn rows(self) -> impl Iterator<Item = (RowKey, &'a [u8])> {
        (0..self.0.group_count()).flat_map(move |group| self.group(group))
    }

    /// The rows from `key` on.
    pub fn seek(self, key: RowKey) -> impl Iterator<Item = (RowKey, &'a [u8])> {
        let groups = self.0.group_count();
        let (mut low, mut high) = (0, groups);
        while low < high {
            let middle = low.midpoint(high);
            let (first, _) = self.group(middle).next().expect("a group has an entry");
            if first <= key { low = middle + 1 } else { high = middle }
        }
        (low.saturating_sub(1)..groups)
            .flat_map(move |group| self.group(group))
            .skip_while(move |(row, _)| *row < key)
    }

    fn group(self, group: usize) -> impl Iterator<Item = (RowKey, &'a [u8])> {
        let mut reader = Reader::new(self.0.body(), self.0.group_start(group));
        (0..self.0.group_entries(group))
            .map(move |_| read_row(&mut reader).expect("the leaf was decoded before"))
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let mut reader = Reader::new(self.0.body(), HEAD_BYTES);
        let mut last = None;
        for index in 0..self.0.entry_count() {
            if index % GROUP_ENTRIES == 0 {
                self.0.check_group(index / GROUP_ENTRIES, reader.at())?;
            }
            let start = reader.at();
            let (key, _) = read_row(&mut reader)?;
            THIS.agree(last.is_none_or(|last| last < key), start, "rows do not ascend")?;
            last = Some(key);
        }
        self.0.check_end(reader.at())?;
        self.0.check_bases(0, 0, 0)
    }
}

fn read_row<'a>(reader: &mut Reader<'a>) -> Result<(RowKey, &'a [u8]), Refusal> {
    let start = reader.at();
    let table = Table::decode(THIS, reader.byte()?, start)?;
    let (id, sub) = (reader.number()?, reader.number()?);
    let start = reader.at();
    let length = reader.number()?;
    let is_length = (1..=ROW_BYTES_MAX as u64).contains(&length);
    THIS.value(is_length, start, "row length", length, "1 to 1024")?;
    Ok((RowKey { table, id, sub }, reader.take(length as usize)?))
}

/// Makes a leaf of the catalogue.
#[derive(Clone, Debug)]
pub struct CatalogueBuilder {
    draft: Draft,
    last: Option<NodeKey>,
}

impl CatalogueBuilder {
    /// An empty one.
    pub fn new(blocks: u8) -> Self {
        Self { draft: Draft::new(Tree::Catalogue, 0, blocks), last: None }
    }

    /// Adds a row behind all others.
    ///
    /// # Errors
    ///
    /// There is no room for it; the leaf is as it was.
    ///
    /// # Panics
    ///
    /// If it is not behind the others, or has no bytes or more than 1024.
    pub fn push(&mut self, row: RowKey, bytes: &[u8]) -> Result<(), NodeFull> {
        assert!((1..=ROW_BYTES_MAX).contains(&bytes.len()), "a row of {} bytes", bytes.len());
        let key = NodeKey::of_row(row);
        assert!(self.last.is_none_or(|last| last < key), "rows ascend");
        self.draft.add(|body| {
            body.push(row.table as u8);
            put(body, row.id);
            put(body, row.sub);
            put(body, bytes.len() as u64);
            body.extend_from_slice(bytes);
        })?;
        self.last = Some(key);
        Ok(())
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.draft.entry_count == 0
    }

    /// What was added, in order.
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let mut reader = Reader::new(&self.draft.body, HEAD_BYTES);
        (0..self.draft.entry_count).map(move |_| read_row(&mut reader).expect("what was encoded decodes"))
    }

    /// Bytes used so far, head included.
    pub fn used_bytes(&self) -> usize {
        self.draft.used_bytes()
    }

    /// The leaf's bytes, and what points to it there.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        self.draft.finish(place)
    }
}
