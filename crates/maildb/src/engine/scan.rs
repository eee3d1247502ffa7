//! Reading a table in key order, with read-ahead of the next leaves.

use super::{PageId, core::SharedGroup, rows::TableTree, table::Table, tree};
use crate::{
    error::Result,
    format::{key::Value, page_size::PageNumber, record::ColumnId},
};
use std::{collections::BTreeMap, rc::Rc};

/// One record: its columns that have a value.
pub type TableRow = Vec<(ColumnId, Value)>;

/// A position in a table that moves towards larger keys.
pub struct Cursor {
    shared: Rc<SharedGroup>,
    table: Table,
    /// Next position: the first record whose key is at or above this.
    from: Vec<u8>,
    /// Leaves below this branch slot have been read ahead already.
    ahead: Option<(PageNumber, usize)>,
    at_end: bool,
}

/// Key and data of the records of one leaf.
struct Leaf {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Upper bound of the leaf's keys, exclusive; `None` for the last leaf.
    upper: Option<Vec<u8>>,
    parent: Option<(PageNumber, usize)>,
}

impl Cursor {
    pub(super) fn new(shared: Rc<SharedGroup>, table: Table, from: Vec<u8>) -> Self {
        Self { shared, table, from, ahead: None, at_end: false }
    }

    /// The next records: those of one leaf from the cursor on. Empty at the end of the table. A record locked
    /// by a running transaction is returned as last committed.
    pub async fn next_rows(&mut self) -> Result<Vec<TableRow>> {
        while !self.at_end {
            let leaf = self.read_leaf().await?;
            // Before anything is awaited: the leaf must be combined with the locks of the same moment.
            let rows = self.committed_rows(&leaf)?;
            self.read_ahead(leaf.parent).await?;
            match leaf.upper {
                Some(upper) => self.from = upper,
                None => self.at_end = true,
            }
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn read_leaf(&self) -> Result<Leaf> {
        let TableTree { database, root, .. } = self.table.tree();
        self.shared
            .step(|core, _, now| {
                let mut pages = core.change_set(database, now);
                let path = tree::descend(&mut pages, root, &self.from)?;
                let upper = tree::upper_bound(&mut pages, &path)?;
                let view = pages.view(path.leaf)?;
                let first = view.find(&self.from).unwrap_or_else(|slot| slot);
                let records = (first..view.node_count())
                    .map(|slot| {
                        let mut key = Vec::new();
                        view.key_of(slot, &mut key);
                        (key, view.node(slot).data.to_vec())
                    })
                    .collect();
                Ok(Leaf { records, upper, parent: path.branches.last().copied() })
            })
            .await
    }

    /// Reads the next leaves below the same parent in the background, half a window at a time.
    async fn read_ahead(&mut self, parent: Option<(PageNumber, usize)>) -> Result<()> {
        let Some((parent, slot)) = parent else { return Ok(()) };
        let window = self.shared.config.preread_pages as usize;
        let asked = match self.ahead {
            Some((page, until)) if page == parent => until,
            _ => slot + 1,
        };
        if asked > slot + window / 2 {
            return Ok(());
        }
        let TableTree { database, root, .. } = self.table.tree();
        let from = &self.from;
        let children = self
            .shared
            .step(|core, _, now| {
                let mut pages = core.change_set(database, now);
                let path = tree::descend(&mut pages, root, from)?;
                let Some(&(parent, slot)) = path.branches.last() else { return Ok(Vec::new()) };
                let view = pages.view(parent)?;
                let until = (slot + 1 + window).min(view.node_count());
                Ok((slot + 1..until).map(|slot| PageId { database, page: view.child(slot) }).collect())
            })
            .await?;
        self.shared.preread(&children);
        self.ahead = Some((parent, slot + 1 + children.len()));
        Ok(())
    }

    /// The leaf's records as last committed: records deleted by a running transaction are included, inserted
    /// ones are not.
    fn committed_rows(&self, leaf: &Leaf) -> Result<Vec<TableRow>> {
        let TableTree { database, root, .. } = self.table.tree();
        let core = self.shared.core.borrow();
        let mut records: BTreeMap<&[u8], &[u8]> =
            leaf.records.iter().map(|(key, data)| (key.as_slice(), data.as_slice())).collect();
        for (key, committed) in
            core.locks.committed_between((database, root), &self.from, leaf.upper.as_deref())
        {
            match committed {
                Some(data) => records.insert(key, data),
                None => records.remove(key),
            };
        }
        records.values().map(|data| self.table.decode(data)).collect()
    }
}
