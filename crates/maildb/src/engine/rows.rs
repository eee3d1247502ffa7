//! Changes of single records, the most common kind of page change.
//!
//! A record that fits its leaf is changed in place with one log record and without copying the page.
//! Otherwise pages are split first, each split as a complete change of its own.

use super::{
    DatabaseIndex, PageId, Step,
    changes::{apply, impossible},
    core::Core,
    space, tree,
};
use crate::{
    error::Error,
    format::key::KEY_BYTES_MAX,
    format::page::{PageMut, PageView, TAG_BYTES},
    format::page_size::{ObjectId, PageNumber, PageSize},
    log::{COMPENSATES, LogHandle, LogRecord, NodeOperation, PageOperation, RestructureKind},
};
use world::Moment;

/// A table's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableTree {
    pub database: DatabaseIndex,
    pub root: PageNumber,
    /// Object number stored in its pages.
    pub object: ObjectId,
}

/// Origin of a record change.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    pub transaction: u32,
    /// Session number.
    pub procid: u16,
    /// True if this undoes an earlier change of the same transaction.
    pub compensates: bool,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    Insert { key: Vec<u8>, data: Vec<u8> },
    Replace { key: Vec<u8>, data: Vec<u8> },
    Delete { key: Vec<u8> },
}

impl RecordChange {
    /// Key of the record.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Insert { key, .. } | Self::Replace { key, .. } | Self::Delete { key } => key,
        }
    }

    /// The change that reverts this one, given the record before.
    pub fn inverse(&self, before: Option<Vec<u8>>) -> Self {
        let key = self.key().to_vec();
        match (self, before) {
            (Self::Insert { .. }, None) => Self::Delete { key },
            (Self::Replace { .. }, Some(data)) => Self::Replace { key, data },
            (Self::Delete { .. }, Some(data)) => Self::Insert { key, data },
            _ => unreachable!("an insert found nothing, the others found a record"),
        }
    }
}

/// Result of a record change.
#[derive(Debug)]
pub struct RecordChangeResult {
    /// The record's data before; `None` for an insert.
    pub before: Option<Vec<u8>>,
    /// True if the leaf is sparse now, so that a merge is worth trying.
    pub sparse: bool,
}

/// Largest key plus data of a record: two always fit a page, so a split always makes room.
pub fn record_bytes_max(page_size: PageSize) -> usize {
    // Tag 0 with a space header or a key prefix, then two nodes with tag, prefix and suffix lengths each.
    let overhead = KEY_BYTES_MAX + TAG_BYTES + 2 * (TAG_BYTES + 4);
    (page_size.bytes() - page_size.header_bytes() - overhead) / 2
}

/// Changes one record of a tree and logs it.
pub fn change_record(
    core: &mut Core,
    log: &LogHandle,
    now: Moment,
    tree: TableTree,
    change: &RecordChange,
    author: Author,
) -> Step<RecordChangeResult> {
    loop {
        let mut pages = core.change_set(tree.database, now);
        let path = tree::descend(&mut pages, tree.root, change.key())?;
        let view = pages.view(path.leaf)?;
        let found = view.find(change.key());
        let before = found.ok().map(|slot| view.node(slot).data.to_vec());
        let (slot, fits) = match (change, found) {
            (RecordChange::Insert { .. }, Ok(_)) => return Err(Error::DuplicateKey.into()),
            (RecordChange::Replace { .. } | RecordChange::Delete { .. }, Err(_)) => {
                return Err(Error::NotFound.into());
            }
            (RecordChange::Insert { key, data }, Err(slot)) => {
                (slot, view.free_bytes() >= view.bytes_needed(key, data))
            }
            (RecordChange::Replace { data, .. }, Ok(slot)) => {
                (slot, view.free_bytes() + view.node(slot).data.len() >= data.len())
            }
            (RecordChange::Delete { .. }, Ok(slot)) => (slot, true),
        };
        if fits {
            let leaf = PageId { database: tree.database, page: path.leaf };
            if view.dbtime() > core.databases[usize::from(tree.database.0)].dbtime {
                return Err(impossible(tree.database, path.leaf, "its time of change is in the future"));
            }
            let sparse = change_node(core, log, tree, leaf, slot, change, before.clone(), author);
            return Ok(RecordChangeResult { before, sparse: sparse && !path.branches.is_empty() });
        }
        core.restructure(log, now, tree.database, RestructureKind::Split, |changes| {
            let page = space::allocate(changes, tree.root)?;
            tree::split(changes, tree.root, &path, slot, page)
        })?;
    }
}

/// Logs and applies a change that is known to fit its leaf.
#[allow(clippy::too_many_arguments)]
fn change_node(
    core: &mut Core,
    log: &LogHandle,
    tree: TableTree,
    leaf: PageId,
    slot: usize,
    change: &RecordChange,
    before: Option<Vec<u8>>,
    author: Author,
) -> bool {
    let dbtime = core.database(leaf.database).next_dbtime();
    let dbtime_before = PageView::new(core.cache.peek(leaf).expect("just read")).dbtime();
    assert!(dbtime_before < dbtime, "the time of change only grows");
    let operation = NodeOperation {
        procid: author.procid,
        dbid: leaf.database.log_id(),
        page: leaf.page,
        dbtime,
        dbtime_before,
        transaction: author.transaction,
        level: 0,
        slot: u16::try_from(slot).expect("a page holds fewer than 2^16 nodes"),
        flags: if author.compensates { COMPENSATES } else { 0 },
        rceid: 0,
        tree_root: tree.root,
        object: tree.object,
    };
    let record = record_of(operation, change, before);
    let range = log.append(&record);
    let page_operation = page_operation_of(&record).expect("a row change is a page operation");
    let mut sparse = false;
    core.cache.change(leaf, (range.start, range.end), |page| {
        apply(page, &page_operation).expect("room was checked");
        PageMut::new(page).set_dbtime(dbtime);
        sparse = matches!(change, RecordChange::Delete { .. }) && tree::is_sparse(&PageView::new(page));
    });
    sparse
}

fn record_of(operation: NodeOperation, change: &RecordChange, before: Option<Vec<u8>>) -> LogRecord {
    match change.clone() {
        RecordChange::Insert { key, data } => LogRecord::Insert { operation, key, data },
        RecordChange::Replace { key, data } => {
            let old_data = before.expect("a record to replace was found");
            LogRecord::Replace { operation, key, old_data, new_data: data }
        }
        RecordChange::Delete { key } => {
            let old_data = before.expect("a record to delete was found");
            LogRecord::Delete { operation, key, old_data }
        }
    }
}

/// The page operation of a record that changes one row; `None` for other records. Recovery uses it too.
pub fn page_operation_of(record: &LogRecord) -> Option<PageOperation> {
    match record {
        LogRecord::Insert { operation, key, data } => Some(PageOperation::InsertNode {
            slot: operation.slot,
            node_flags: 0,
            key: key.clone(),
            data: data.clone(),
        }),
        LogRecord::Replace { operation, new_data, .. } => {
            Some(PageOperation::ReplaceData { slot: operation.slot, data: new_data.clone() })
        }
        LogRecord::Delete { operation, .. } => {
            Some(PageOperation::RemoveNodes { slot: operation.slot, count: 1 })
        }
        _ => None,
    }
}

/// Merges one sparse page near `key`; false when there is nothing left to merge.
pub fn merge_near_key(
    core: &mut Core,
    log: &LogHandle,
    now: Moment,
    tree: TableTree,
    key: &[u8],
) -> Step<bool> {
    core.restructure(log, now, tree.database, RestructureKind::Merge, |changes| {
        tree::merge_once(changes, tree.root, key)
    })
}
