//! Sessions and their transactions.
//!
//! A transaction begins with its first change and ends with `commit` or `rollback`. Its changes are made in
//! the pages at once and logged; each stores its inverse. Rollback runs the inverses in reverse order, logged
//! as compensating changes that recovery does not undo again.
//!
//! A durable commit returns when the log is stable up to the Commit record. A lazy one returns at once; the
//! log is written a little later, in order, so a prefix of the commits survives a crash. While the group is
//! frozen, both wait before they log their end.

use super::{
    Pause,
    core::SharedGroup,
    locks::RecordName,
    rows::{Author, RecordChange, TableTree, change_record, merge_near_key, record_bytes_max},
    table::Table,
    tree,
};
use crate::{
    error::{Error, Result},
    format::{key::Value, record::ColumnId},
    log::LogRecord,
};
use std::rc::Rc;
use world::JoinHandle;

/// Durability of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Returns when the transaction survives power loss.
    Stable,
    /// Returns at once; the transaction survives power loss a little later.
    Lazy,
}

/// A change made, and its inverse.
struct UndoEntry {
    name: RecordName,
    tree: TableTree,
    inverse: RecordChange,
    /// True if this change locked the record.
    locked: bool,
}

struct ActiveTransaction {
    transaction: u32,
    done: Vec<UndoEntry>,
}

/// A connection to a storage group. Runs one transaction at a time.
pub struct Session {
    shared: Rc<SharedGroup>,
    procid: u16,
    running: Option<ActiveTransaction>,
}

impl Session {
    pub(super) fn new(shared: Rc<SharedGroup>) -> Self {
        let procid = {
            let mut core = shared.core.borrow_mut();
            core.session_last = core.session_last.wrapping_add(1);
            core.session_last
        };
        Self { shared, procid, running: None }
    }

    /// Inserts a record; `DuplicateKey` if its key exists.
    pub async fn insert(&mut self, table: &Table, values: &[(ColumnId, Value)]) -> Result<()> {
        let (key, data) = table.encode(values)?;
        self.change(table, RecordChange::Insert { key, data }).await
    }

    /// Replaces the record with this key by `values`, whose key must be the same.
    pub async fn replace(
        &mut self,
        table: &Table,
        key: &[Value],
        values: &[(ColumnId, Value)],
    ) -> Result<()> {
        let wanted = table.key_of(key)?;
        let (key, data) = table.encode(values)?;
        if key != wanted {
            return Err(Error::Table("a replaced record keeps its primary key".to_owned()));
        }
        self.change(table, RecordChange::Replace { key, data }).await
    }

    /// Deletes the record with this key.
    pub async fn delete(&mut self, table: &Table, key: &[Value]) -> Result<()> {
        let key = table.key_of(key)?;
        self.change(table, RecordChange::Delete { key }).await
    }

    /// The record with this key: as changed by this transaction, else as last committed.
    pub async fn read(&self, table: &Table, key: &[Value]) -> Result<Option<Vec<(ColumnId, Value)>>> {
        let key = table.key_of(key)?;
        let tree = table.tree();
        let name = (tree.database, tree.root, key);
        let transaction = self.running.as_ref().map(|running| running.transaction);
        let decode = |data: &[u8]| table.decode(data).map_err(Pause::Failed);
        // The page at which the descent stopped for a missing page, and the version of the tree structure
        // then.
        let mut reached = None;
        self.shared
            .step(|core, _, now| {
                if let Some(committed) = core.locks.committed(&name, transaction) {
                    return committed.map(decode).transpose();
                }
                let shape = core.restructures;
                let from = reached.filter(|&(_, then)| then == shape).map_or(tree.root, |(page, _)| page);
                let found = tree::lookup(
                    &mut core.change_set(tree.database, now),
                    from,
                    tree.object,
                    &name.2,
                    decode,
                );
                if let Err(Pause::Missing(id)) = &found {
                    reached = Some((id.page, shape));
                }
                found
            })
            .await
    }

    /// Commits the transaction. Does nothing if there was no change.
    pub async fn commit(&mut self, durability: Durability) -> Result<()> {
        if self.running.is_none() {
            return Ok(());
        }
        self.shared.wait_for_commits_allowed().await;
        let running = self.running.take().expect("nobody else ends it");
        let _answering = self.shared.freeze.begin_commit();
        let end = end_transaction(&self.shared, self.procid, running, |transaction, procid| {
            LogRecord::Commit { transaction, procid }
        })?;
        {
            let statistics = &mut self.shared.core.borrow_mut().statistics;
            match durability {
                Durability::Stable => statistics.commits_durable += 1,
                Durability::Lazy => statistics.commits_lazy += 1,
            }
        }
        if durability == Durability::Stable {
            self.shared.log().make_stable(end).await?;
        }
        Ok(())
    }

    /// Rolls the transaction back.
    pub async fn rollback(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        // In a task of its own: it completes even if the caller stops waiting.
        start_rollback(&self.shared, self.procid, running).await
    }

    /// True if a transaction is running.
    pub fn in_transaction(&self) -> bool {
        self.running.is_some()
    }

    async fn change(&mut self, table: &Table, change: RecordChange) -> Result<()> {
        check_size(&self.shared, &change)?;
        table.check_changeable()?;
        self.shared.log().room().await?;
        self.shared.wait_for_cache().await?;
        let tree = table.tree();
        let name: RecordName = (tree.database, tree.root, change.key().to_vec());
        let author = Author { transaction: self.transaction()?, procid: self.procid, compensates: false };
        let mut locked = false;
        let changed = self
            .shared
            .step(|core, log, now| {
                table.check_changeable()?;
                let held =
                    core.locks.may_change(&name, author.transaction).map_err(|_| Error::WriteConflict)?;
                let changed = change_record(core, log, now, tree, &change, author)?;
                if !held {
                    locked = true;
                    core.locks.take(name.clone(), author.transaction, changed.before.clone());
                }
                Ok(changed)
            })
            .await?;
        let inverse = change.inverse(changed.before);
        let running = self.running.as_mut().expect("begun above");
        running.done.push(UndoEntry { name, tree, inverse, locked });
        if changed.sparse {
            merge_near(&self.shared, tree, change.key()).await?;
        }
        Ok(())
    }

    /// The running transaction; begins one if there is none.
    fn transaction(&mut self) -> Result<u32> {
        if let Some(running) = &self.running {
            return Ok(running.transaction);
        }
        let mut core = self.shared.core.borrow_mut();
        core.check_running()?;
        core.transaction_last = core.transaction_last.checked_add(1).ok_or_else(|| {
            Error::Configuration(
                "2^32 transactions since the group was opened; close and reopen it".to_owned(),
            )
        })?;
        let transaction = core.transaction_last;
        let begin = self.shared.log().append(&LogRecord::Begin { transaction, procid: self.procid });
        core.transactions.insert(transaction, begin.start);
        drop(core);
        self.running = Some(ActiveTransaction { transaction, done: Vec::new() });
        Ok(transaction)
    }
}

impl Drop for Session {
    /// Dropping a session rolls its transaction back.
    fn drop(&mut self) {
        if let Some(running) = self.running.take()
            && self.shared.core.borrow().failure.is_none()
        {
            drop(start_rollback(&self.shared, self.procid, running));
        }
    }
}

/// Starts a rollback; the handle completes with it. A failure stops the group: the transaction could be
/// neither committed nor rolled back, and would lock its records forever.
fn start_rollback(
    shared: &Rc<SharedGroup>,
    procid: u16,
    running: ActiveTransaction,
) -> JoinHandle<Result<()>> {
    shared.rollbacks.set(shared.rollbacks.get() + 1);
    let task = Rc::clone(shared);
    shared.world.spawn("rollback", async move {
        let result = roll_back(Rc::clone(&task), procid, running).await;
        if let Err(error) = &result {
            task.fail(error);
        }
        task.rollbacks.set(task.rollbacks.get() - 1);
        task.rollback_ended.notify_waiters();
        result
    })
}

/// Applies an inverse change, and merges the page if it is sparse then.
pub(super) async fn undo_change(
    shared: &Rc<SharedGroup>,
    tree: TableTree,
    inverse: &RecordChange,
    author: Author,
) -> Result<()> {
    let changed = shared.step(|core, log, now| change_record(core, log, now, tree, inverse, author)).await?;
    if changed.sparse {
        merge_near(shared, tree, inverse.key()).await?;
    }
    Ok(())
}

/// Merges pages that the deletion of `key` left sparse. Not part of any transaction: it moves records without
/// changing them.
async fn merge_near(shared: &Rc<SharedGroup>, tree: TableTree, key: &[u8]) -> Result<()> {
    while shared.step(|core, log, now| merge_near_key(core, log, now, tree, key)).await? {}
    Ok(())
}

async fn roll_back(shared: Rc<SharedGroup>, procid: u16, running: ActiveTransaction) -> Result<()> {
    let author = Author { transaction: running.transaction, procid, compensates: true };
    for done in running.done.iter().rev() {
        undo_change(&shared, done.tree, &done.inverse, author).await?;
    }
    end_transaction(&shared, procid, running, |transaction, procid| LogRecord::Rollback {
        transaction,
        procid,
    })?;
    shared.core.borrow_mut().statistics.rollbacks += 1;
    Ok(())
}

/// Logs the end of a transaction and unlocks its records.
fn end_transaction(
    shared: &SharedGroup,
    procid: u16,
    running: ActiveTransaction,
    record: impl FnOnce(u32, u16) -> LogRecord,
) -> Result<crate::format::header::LogPosition> {
    let mut core = shared.core.borrow_mut();
    core.check_running()?;
    shared.log().check_running()?;
    let range = shared.log().append(&record(running.transaction, procid));
    for done in running.done.iter().filter(|done| done.locked) {
        core.locks.release(&done.name, running.transaction);
    }
    let listed = core.transactions.remove(&running.transaction);
    assert!(listed.is_some(), "a running transaction is listed");
    Ok(range.end)
}

fn check_size(shared: &SharedGroup, change: &RecordChange) -> Result<()> {
    let (RecordChange::Insert { key, data } | RecordChange::Replace { key, data }) = change else {
        return Ok(());
    };
    let bytes = key.len() + data.len();
    let bytes_max = record_bytes_max(shared.config.page_size);
    if bytes > bytes_max {
        return Err(Error::RecordTooLarge { bytes, bytes_max });
    }
    Ok(())
}
