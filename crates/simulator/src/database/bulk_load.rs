//! Bulk loads, alternating with ordinary changes of loaded rows.
//!
//! A batch counts as one commit of the history, begun in the step that makes its rows visible. The commit of
//! a batch that never got so far was never begun, so none of its rows may be found.

use super::{
    history::{Change, History},
    incarnation::GroupTally,
    late_log::LateLog,
    mail::{LOADED_MAILBOX_MIN, Mail, RowKey},
    plan::GroupRunPlan,
    violation::{GroupRunError, is_no_space},
};
use maildb::{BulkLoadSettings, BulkLoader, Database, Durability, Session, Table};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Random, World};

/// Rows of a load, at most.
const ROWS_MAX: u64 = 160;

/// A task that does bulk loads.
pub struct BulkLoadWorker {
    /// The databases with the loaded tables.
    pub databases: Vec<(Database, Table)>,
    pub history: Rc<RefCell<History>>,
    pub tally: Rc<RefCell<GroupTally>>,
    pub plan: Rc<GroupRunPlan>,
    /// Delayed log writes.
    pub late_log: Rc<LateLog>,
    pub random: Random,
}

/// Records batches in the model as they become visible.
struct BatchRecorder {
    pushed: Rc<RefCell<VecDeque<Change>>>,
    /// Ticket of the last batch.
    ticket: Rc<Cell<usize>>,
}

impl BulkLoadWorker {
    /// Does all loads of this incarnation.
    pub async fn work(mut self, world: World, mut session: Session) -> Result<(), GroupRunError> {
        for _ in 0..self.plan.loads {
            world.sleep(self.plan.pause.mul_f64(4.0 * self.random.unit())).await;
            let database = self.random.below(self.databases.len() as u64) as usize;
            match self.load(&world, database).await {
                Ok(()) => {}
                Err(GroupRunError::Refused(error)) if is_no_space(&error) => {}
                Err(error) => return Err(error),
            }
            match self.change(&world, &mut session, database).await {
                Ok(()) => {}
                Err(GroupRunError::Refused(error)) if is_no_space(&error) => session.rollback().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn load(&mut self, world: &World, database: usize) -> Result<(), GroupRunError> {
        let (handle, table) = self.databases[database].clone();
        let page_bytes = self.plan.config.page_size.bytes() as u64;
        let settings = BulkLoadSettings {
            size_expected: ByteCount(self.random.below(4) * handle.size().0 / 2),
            fill_percent: [1, 5, 30, 100][self.random.below(4) as usize],
            batch: ByteCount(page_bytes << self.random.below(6)),
        };
        let mut loader = self.begin(world, &handle, &table, settings).await?;
        let told = self.tell(&mut loader);
        let rows = 1 + self.random.below(ROWS_MAX);
        let mut key = self.next_key(database);
        for _ in 0..rows {
            key.message += 1 + self.random.below(3) as i64;
            let row = Mail::random(&mut self.random, self.plan.body_bytes_max);
            told.pushed.borrow_mut().push_back((key, Some(Rc::clone(&row))));
            loader.push(&row.values(key)).await?;
            if self.random.percent(2.0) {
                world.sleep(self.plan.pause).await;
            }
            if self.random.percent(2.0) {
                loader.commit(Durability::Stable).await?;
                self.late_log.flush().await?;
                self.history.borrow_mut().acknowledge(told.ticket.get());
            }
        }
        let is_given_up = self.random.percent(15.0);
        self.tally.borrow_mut().loads[usize::from(is_given_up)] += 1;
        if is_given_up {
            return Ok(());
        }
        let is_durable = self.random.percent(50.0);
        loader.finish(if is_durable { Durability::Stable } else { Durability::Lazy }).await?;
        if is_durable {
            self.late_log.flush().await?;
            self.history.borrow_mut().acknowledge(told.ticket.get());
        }
        Ok(())
    }

    /// Starts a load once the remains of the previous one are cleared.
    async fn begin(
        &self,
        world: &World,
        database: &Database,
        table: &Table,
        settings: BulkLoadSettings,
    ) -> Result<BulkLoader, GroupRunError> {
        loop {
            match database.bulk_load(table, settings.clone()).await {
                Err(maildb::Error::Table(_)) => world.sleep(Duration::from_millis(1)).await,
                other => return Ok(other?),
            }
        }
    }

    fn tell(&self, loader: &mut BulkLoader) -> BatchRecorder {
        let told = BatchRecorder { pushed: Rc::default(), ticket: Rc::default() };
        let (pushed, ticket) = (Rc::clone(&told.pushed), Rc::clone(&told.ticket));
        let history = Rc::clone(&self.history);
        loader.on_link(move |rows| {
            let batch = pushed.borrow_mut().drain(..rows as usize).collect();
            ticket.set(history.borrow_mut().begin_commit(batch));
        });
        told
    }

    /// First key of the next load: a new mailbox behind all existing ones.
    fn next_key(&self, database: usize) -> RowKey {
        let behind = RowKey { database: database + 1, mailbox: i32::MIN, message: i64::MIN };
        let history = self.history.borrow();
        let last = history.latest().range(..behind).next_back().filter(|(key, _)| key.database == database);
        let mailbox = last.map_or(LOADED_MAILBOX_MIN, |(key, _)| (key.mailbox + 1).max(LOADED_MAILBOX_MIN));
        RowKey { database, mailbox, message: 0 }
    }

    /// Replaces and deletes a few loaded rows in one transaction.
    async fn change(
        &mut self,
        world: &World,
        session: &mut Session,
        database: usize,
    ) -> Result<(), GroupRunError> {
        let first = RowKey { database, mailbox: LOADED_MAILBOX_MIN, message: i64::MIN };
        let behind = RowKey { database: database + 1, mailbox: i32::MIN, message: i64::MIN };
        let keys: Vec<RowKey> =
            self.history.borrow().latest().range(first..behind).map(|(&key, _)| key).collect();
        let share = [2.0, 20.0, 95.0][self.random.below(3) as usize];
        let chosen: Vec<RowKey> = keys.into_iter().filter(|_| self.random.percent(share)).take(40).collect();
        let table = self.databases[database].1.clone();
        let mut changes = Vec::new();
        for key in chosen {
            let row =
                self.random.percent(40.0).then(|| Mail::random(&mut self.random, self.plan.body_bytes_max));
            loop {
                let outcome = match &row {
                    Some(row) => session.replace(&table, &key.values(), &row.values(key)).await,
                    None => session.delete(&table, &key.values()).await,
                };
                match outcome {
                    // The remains of an abandoned load are still being cleared.
                    Err(maildb::Error::Table(_)) => world.sleep(Duration::from_millis(1)).await,
                    other => break other?,
                }
            }
            changes.push((key, row));
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.history.borrow_mut().begin_commit(changes);
        Ok(session.commit(Durability::Lazy).await?)
    }
}
