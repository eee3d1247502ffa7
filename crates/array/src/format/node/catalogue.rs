//! Leaves of the catalogue: rows as bytes, whose content the tables define.

use super::{
    Draft, GROUP_ENTRIES, HEAD_BYTES, NodeFull, NodeKey, NodePlace, Sealed, THIS, TreeKind,
    varint::{VarintReader, put},
};
use crate::format::{
    decode_error::DecodeError,
    pointer::NodePointer,
    row::{CatalogueTable, ROW_BYTES_MAX, RowKey},
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
        let mut reader = VarintReader::new(self.0.body(), self.0.group_start(group));
        (0..self.0.group_entries(group))
            .map(move |_| read_row(&mut reader).expect("the leaf was decoded before"))
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        let mut reader = VarintReader::new(self.0.body(), HEAD_BYTES);
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

fn read_row<'a>(reader: &mut VarintReader<'a>) -> Result<(RowKey, &'a [u8]), DecodeError> {
    let start = reader.at();
    let table = CatalogueTable::decode(THIS, reader.byte()?, start)?;
    let (id, sub) = (reader.number()?, reader.number()?);
    let start = reader.at();
    let length = reader.number()?;
    let is_length = (1..=ROW_BYTES_MAX as u64).contains(&length);
    THIS.value(is_length, start, "row length", length, "1 to 1024")?;
    Ok((RowKey { table, id, sub }, reader.take(length as usize)?))
}

/// Builds a leaf of the catalogue.
#[derive(Clone, Debug)]
pub struct CatalogueBuilder {
    draft: Draft,
    last: Option<NodeKey>,
}

impl CatalogueBuilder {
    pub fn new(blocks: u8) -> Self {
        Self { draft: Draft::new(TreeKind::Catalogue, 0, blocks), last: None }
    }

    /// Adds a row behind all others.
    ///
    /// # Errors
    ///
    /// It does not fit; the leaf is unchanged.
    ///
    /// # Panics
    ///
    /// If the row is out of order, or has no bytes or more than 1024.
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

    pub fn is_empty(&self) -> bool {
        self.draft.entry_count == 0
    }

    /// Rows added so far, in order.
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let mut reader = VarintReader::new(&self.draft.body, HEAD_BYTES);
        (0..self.draft.entry_count).map(move |_| read_row(&mut reader).expect("what was encoded decodes"))
    }

    /// Bytes used so far, header included.
    pub fn used_bytes(&self) -> usize {
        self.draft.used_bytes()
    }

    /// The leaf's bytes, and the pointer to them.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        self.draft.finish(place)
    }
}
