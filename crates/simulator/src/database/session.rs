//! The work: sessions that change, read and scan mailboxes of their own.
//!
//! Sessions share tables, pages and the log, but no mailbox. So each knows the exact state of its rows at any
//! moment, and every read is checked at once.

use super::{
    history::{Change, History},
    late_log::LateLog,
    mail::{self, Mail, RowKey},
    plan::GroupRunPlan,
    violation::{GroupRunError, GroupViolation, is_no_space},
};
use maildb::{Database, Durability, Session, Table, Value};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use world::{Random, World};

const MAILBOXES_PER_SESSION: u64 = 3;
/// Longest pause before a held transaction ends: several checkpoints.
const HELD_MAX: Duration = Duration::from_secs(5);

/// A session task.
pub struct Worker {
    /// Number of the session: determines its mailboxes and its random stream.
    pub number: usize,
    /// The databases with their tables.
    pub databases: Vec<(Database, Table)>,
    pub history: Rc<RefCell<History>>,
    pub plan: Rc<GroupRunPlan>,
    /// Delayed log writes.
    pub late_log: Rc<LateLog>,
    pub random: Random,
}

/// Changes of the running transaction.
type Pending = BTreeMap<RowKey, Option<Rc<Mail>>>;

impl Worker {
    /// Runs all transactions of this incarnation.
    pub async fn work(mut self, world: World, mut session: Session) -> Result<(), GroupRunError> {
        for _ in 0..self.plan.transactions {
            let pause = self.plan.pause.mul_f64(-(1.0 - self.random.unit()).ln());
            world.sleep(pause).await;
            if self.random.percent(10.0) {
                self.scan_mailbox().await?;
            }
            match self.transaction(&world, &mut session).await {
                Ok(()) => {}
                Err(GroupRunError::Refused(error)) if is_no_space(&error) => session.rollback().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn transaction(&mut self, world: &World, session: &mut Session) -> Result<(), GroupRunError> {
        let mut pending = Pending::new();
        for _ in 0..=self.random.below(5) {
            if self.random.percent(20.0) {
                let key = self.any_key();
                self.read(session, key, &pending).await?;
            } else {
                self.change(session, &mut pending).await?;
            }
        }
        if self.plan.held_percent > 0.0 && self.random.percent(self.plan.held_percent) {
            world.sleep(HELD_MAX.mul_f64(self.random.unit())).await;
        }
        if self.random.percent(10.0) {
            session.rollback().await?;
            return Ok(());
        }
        let durable = self.random.percent(35.0);
        let changes: Vec<Change> = pending.into_iter().collect();
        if changes.is_empty() {
            session.commit(Durability::Lazy).await?;
            return Ok(());
        }
        // No await between the two: the order of the history is the order of the log.
        let ticket = self.history.borrow_mut().begin_commit(changes);
        if durable {
            session.commit(Durability::Stable).await?;
            self.late_log.flush().await?;
            self.history.borrow_mut().acknowledge(ticket);
        } else {
            session.commit(Durability::Lazy).await?
        }
        Ok(())
    }

    fn any_mailbox(&mut self) -> i32 {
        (self.number as u64 * MAILBOXES_PER_SESSION + self.random.below(MAILBOXES_PER_SESSION)) as i32
    }

    fn any_key(&mut self) -> RowKey {
        let database = self.random.below(self.databases.len() as u64) as usize;
        let mailbox = self.any_mailbox();
        RowKey { database, mailbox, message: self.random.below(self.plan.messages) as i64 }
    }

    /// A row of this session at or behind a random key, if there is one.
    fn existing_key(&mut self, pending: &Pending) -> Option<RowKey> {
        let from = self.any_key();
        let history = self.history.borrow();
        let (&key, _) = history.latest().range(from..).next()?;
        let is_own = (key.database, key.mailbox) == (from.database, from.mailbox);
        (is_own && !matches!(pending.get(&key), Some(None))).then_some(key)
    }

    fn expected(&self, key: RowKey, pending: &Pending) -> Option<Rc<Mail>> {
        match pending.get(&key) {
            Some(changed) => changed.clone(),
            None => self.history.borrow().latest().get(&key).cloned(),
        }
    }

    async fn change(&mut self, session: &mut Session, pending: &mut Pending) -> Result<(), GroupRunError> {
        let existing = self.existing_key(pending);
        let deletes = self.random.percent(35.0);
        let table_of = |key: RowKey| self.databases[key.database].1.clone();
        if let Some(key) = existing
            && deletes
        {
            session.delete(&table_of(key), &key.values()).await?;
            pending.insert(key, None);
            return Ok(());
        }
        let key = match existing {
            Some(key) if self.random.percent(40.0) => key,
            _ => self.any_key(),
        };
        let row = Mail::random(&mut self.random, self.plan.body_bytes_max);
        let table = self.databases[key.database].1.clone();
        match self.expected(key, pending) {
            Some(_) => session.replace(&table, &key.values(), &row.values(key)).await?,
            None => session.insert(&table, &row.values(key)).await?,
        }
        pending.insert(key, Some(row));
        Ok(())
    }

    async fn read(&self, session: &Session, key: RowKey, pending: &Pending) -> Result<(), GroupRunError> {
        let table = &self.databases[key.database].1;
        let found = match session.read(table, &key.values()).await? {
            Some(row) => Some(Mail::from_values(key.database, row)?),
            None => None,
        };
        let expected = self.expected(key, pending).map(|row| (key, row));
        if found != expected {
            return Err(wrong(key, expected.map(|row| row.1), found.map(|row| row.1)));
        }
        Ok(())
    }

    /// Scans one mailbox, between transactions.
    async fn scan_mailbox(&mut self) -> Result<(), GroupRunError> {
        let RowKey { database, mailbox, .. } = self.any_key();
        let from = [Value::I32(mailbox)];
        let (handle, table) = &self.databases[database];
        let found = mail::scan((database, handle, table), &from, |key| key.mailbox == mailbox).await?;
        let first = RowKey { database, mailbox, message: i64::MIN };
        let history = self.history.borrow();
        let expected = history.latest().range(first..RowKey { mailbox: mailbox + 1, ..first });
        let expected: mail::Rows = expected.map(|(key, row)| (*key, Rc::clone(row))).collect();
        let differs = |key: &&RowKey| expected.get(key) != found.get(key);
        match expected.keys().chain(found.keys()).find(differs) {
            Some(&key) => Err(wrong(key, expected.get(&key).cloned(), found.get(&key).cloned())),
            None => Ok(()),
        }
    }
}

fn wrong(key: RowKey, expected: Option<Rc<Mail>>, found: Option<Rc<Mail>>) -> GroupRunError {
    let describe = |row: Option<Rc<Mail>>| match row {
        Some(row) => format!("{:?} with {} bytes", row.subject, row.body.len()),
        None => "nothing".to_owned(),
    };
    GroupViolation::WrongRow { key, expected: describe(expected), found: describe(found) }.into()
}
