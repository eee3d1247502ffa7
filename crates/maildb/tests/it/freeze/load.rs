//! Sessions that commit at random, and their transactions.

use crate::model::{self, Rows};
use maildb::{Durability, Instance, Result, Session, Table};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{JoinHandle, Random, World};

pub const SESSIONS: usize = 3;
const BODY_BYTES_MAX: u64 = 1500;
/// Rows of a session, by message number; another row counts its transactions.
const MESSAGES: u64 = 300;
const COUNTER: i64 = -1;

/// Rows that a transaction changes; `None` deletes.
type Changes = BTreeMap<(i32, i64), Option<(String, Vec<u8>)>>;

/// The work of one session so far.
#[derive(Default)]
struct Progress {
    /// The changes of each of its transactions whose commit was called.
    begun: RefCell<Vec<Changes>>,
    /// Transactions whose commit was answered.
    answered: Cell<usize>,
    /// Transactions that must survive a crash.
    required: Cell<usize>,
}

impl Progress {
    /// Its rows after some number of transactions.
    fn rows_after(&self, count: usize) -> Rows {
        let mut rows = Rows::new();
        for (key, row) in self.begun.borrow()[..count].iter().flatten() {
            match row {
                Some(row) => rows.insert(*key, row.clone()),
                None => rows.remove(key),
            };
        }
        rows
    }
}

/// Sessions at work, each on a mailbox of its own.
#[derive(Default)]
pub struct Load {
    sessions: [Progress; SESSIONS],
    stops: Cell<bool>,
    /// Sessions that an error ended.
    pub failed: Cell<usize>,
}

impl Load {
    /// Starts all sessions.
    pub fn start(self: &Rc<Self>, world: &World, instance: &Instance, table: &Table) -> Vec<JoinHandle<()>> {
        let start = |number: usize| {
            let (load, world, table) = (Rc::clone(self), world.clone(), table.clone());
            let (session, random) = (instance.session(), world.random(&format!("session {number}")));
            world.clone().spawn("session", async move {
                if load.work(&world, session, &table, number, random).await.is_err() {
                    load.failed.set(load.failed.get() + 1);
                }
            })
        };
        (0..SESSIONS).map(start).collect()
    }

    pub fn stop(&self) {
        self.stops.set(true);
    }

    async fn work(
        &self,
        world: &World,
        mut session: Session,
        table: &Table,
        number: usize,
        mut random: Random,
    ) -> Result<()> {
        let progress = &self.sessions[number];
        let mut keys = BTreeSet::new();
        while !self.stops.get() {
            let (mut changes, mut after) = (Changes::new(), keys.clone());
            let count = progress.begun.borrow().len() + 1;
            let counter = (format!("{count}"), vec![number as u8]);
            put(&mut session, table, &mut after, (number as i32, COUNTER), &counter).await?;
            changes.insert((number as i32, COUNTER), Some(counter));
            for _ in 0..=random.below(3) {
                let key = (number as i32, random.below(MESSAGES) as i64);
                if after.contains(&key) && random.percent(25.0) {
                    session.delete(table, &model::key_values(key)).await?;
                    after.remove(&key);
                    changes.insert(key, None);
                } else {
                    let row = model::random_row(&mut random, BODY_BYTES_MAX);
                    put(&mut session, table, &mut after, key, &row).await?;
                    changes.insert(key, Some(row));
                }
            }
            if random.percent(10.0) {
                session.rollback().await?;
                continue;
            }
            keys = after;
            progress.begun.borrow_mut().push(changes);
            let lazy = random.percent(60.0);
            session.commit(if lazy { Durability::Lazy } else { Durability::Stable }).await?;
            progress.answered.set(count);
            if !lazy {
                progress.required.set(count);
            }
            if random.percent(20.0) {
                world.sleep(Duration::from_micros(random.below(1000))).await;
            }
        }
        Ok(())
    }

    /// By session: transactions answered so far.
    pub fn answered(&self) -> [usize; SESSIONS] {
        self.sessions.each_ref().map(|progress| progress.answered.get())
    }

    /// Everything answered so far must survive a crash.
    pub fn require_answered(&self) {
        self.sessions.iter().for_each(|progress| progress.required.set(progress.answered.get()));
    }

    /// Fails unless `found` is the state after exactly these numbers of transactions.
    pub fn expect_exactly(&self, found: &Rows, counts: [usize; SESSIONS]) {
        for (number, count) in counts.into_iter().enumerate() {
            let is = self.expect_some_state(number, found);
            assert_eq!(is, count, "session {number}: as many were answered when the group was frozen");
        }
    }

    /// Fails unless `found` has, of each session, all that must survive, and nothing that was never begun.
    pub fn expect_survival(&self, found: &Rows) {
        for (number, progress) in self.sessions.iter().enumerate() {
            let is = self.expect_some_state(number, found);
            let range = progress.required.get()..=progress.begun.borrow().len();
            assert!(range.contains(&is), "session {number}: {is} of {range:?} transactions survived");
        }
    }

    /// The number of a session's transactions whose rows are those found.
    fn expect_some_state(&self, number: usize, found: &Rows) -> usize {
        let mailbox = number as i32;
        let rows = found.range((mailbox, i64::MIN)..=(mailbox, i64::MAX));
        let rows: Rows = rows.map(|(key, row)| (*key, row.clone())).collect();
        let counter = rows.get(&(mailbox, COUNTER));
        let count = counter.map_or(0, |(count, _)| count.parse().expect("a number"));
        assert!(rows == self.sessions[number].rows_after(count), "session {number}: not the rows of {count}");
        count
    }
}

/// Inserts or replaces a row.
async fn put(
    session: &mut Session,
    table: &Table,
    keys: &mut BTreeSet<(i32, i64)>,
    key: (i32, i64),
    row: &(String, Vec<u8>),
) -> Result<()> {
    let values = model::row_values(key, row);
    if keys.insert(key) {
        session.insert(table, &values).await
    } else {
        session.replace(table, &model::key_values(key), &values).await
    }
}
