//! A session: one simulated user that waits for the pacer, picks a record, operates on it and commits.

use crate::{
    database::{
        load::{
            answer_gap::AnswerGap,
            key_space::{KeySpace, RecordClaim},
            mail_record::{ContentError, RecordVersion},
            mail_table::MailDatabase,
            operation::{FailureLog, Operation, OperationMeter, OperationTicket, RunFailure},
        },
        plan::profile::OperationMix,
    },
    pacing::Pacer,
    yield_now::yield_now,
};
use maildb::{Durability, Session};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{ByteCount, Moment, Random, World};

/// State shared by the sessions of a group.
pub struct SessionContext {
    pub world: World,
    pub stores: Vec<Store>,
    pub pacer: Rc<Pacer>,
    pub mix: OperationMix,
    /// Share of lazy commits, in percent.
    pub lazy_commit_percent: f64,
    /// Operations between two commits.
    pub operations_per_transaction: u32,
    pub meter: OperationMeter,
    pub failures: Rc<FailureLog>,
    /// The gap that a freeze leaves in the answers to commits.
    pub gap: AnswerGap,
}

/// The engine extends a full table of N bytes by N / this.
const GROWTH_DIVISOR: u64 = 8;

/// One database under load.
pub struct Store {
    pub mail: MailDatabase,
    /// Its expected content.
    pub keys: RefCell<KeySpace>,
    /// Maximum size.
    pub size_max: ByteCount,
    /// Minimum growth of the file.
    extension: ByteCount,
    was_full: Cell<bool>,
    full_was_told: Cell<bool>,
}

impl Store {
    /// A database with content `keys`, a maximum size and a minimum growth.
    pub fn new(mail: MailDatabase, keys: KeySpace, size_max: ByteCount, extension: ByteCount) -> Self {
        let (was_full, full_was_told) = Default::default();
        Self { mail, keys: RefCell::new(keys), size_max, extension, was_full, full_was_told }
    }

    /// True if the next extent would exceed the maximum size; stays true from then on. Free room in the last
    /// extent is ignored: the engine does not report it.
    pub fn is_full(&self) -> bool {
        let size = self.mail.database.size().0;
        let next_extent = (size / GROWTH_DIVISOR).max(self.extension.0);
        if size + next_extent > self.size_max.0 {
            self.was_full.set(true);
        }
        self.was_full.get()
    }

    /// True the first time the database is found full.
    pub fn became_full(&self) -> bool {
        self.is_full() && !self.full_was_told.replace(true)
    }
}

/// Runs session `number` of its group until the pacer stops it or the engine fails.
pub async fn run_session(load: Rc<SessionContext>, number: u32, mut session: Session, mut random: Random) {
    let mut transaction = Transaction::new(&load, &mut session);
    while let Some(intended) = load.pacer.next(number).await {
        yield_now().await;
        let outcome = transaction.step(intended, &mut random).await;
        if let Err(error) = outcome {
            load.failures.note_engine(&error);
            // The instance refuses all further work after a failed write.
            load.pacer.stop();
        }
    }
    if let Err(error) = transaction.finish().await {
        load.failures.note_engine(&error);
    }
}

/// The operations since the last commit.
struct Transaction<'l> {
    load: &'l SessionContext,
    session: &'l mut Session,
    /// Claimed records by database, each with its version if the transaction commits.
    claims: Vec<(usize, RecordClaim, Option<RecordVersion>)>,
    begun: Vec<OperationTicket>,
}

impl<'l> Transaction<'l> {
    fn new(load: &'l SessionContext, session: &'l mut Session) -> Self {
        Self { load, session, claims: Vec::new(), begun: Vec::new() }
    }

    /// Does one operation, and commits if it is the last of its transaction.
    async fn step(&mut self, intended: Moment, random: &mut Random) -> maildb::Result<()> {
        let at = random.below(self.load.stores.len() as u64) as usize;
        let wanted = Operation::draw(self.load.mix, !self.load.stores[at].is_full(), random);
        let (operation, claim) = self.claim(at, wanted, random);
        self.begun.push(self.load.meter.begin(operation, intended));
        let done = self.operate(at, operation, &claim).await;
        let after = done.as_ref().map_or(claim.version, |after| *after);
        self.claims.push((at, claim, after));
        match done {
            Ok(_) if self.begun.len() >= self.load.operations_per_transaction as usize => {
                self.commit(random.percent(self.load.lazy_commit_percent)).await
            }
            Ok(_) => Ok(()),
            Err(maildb::Error::WriteConflict) => {
                self.load.meter.count(|counts| counts.conflicts += 1);
                self.roll_back().await
            }
            Err(error) => {
                // Best effort: the first error is the one to report.
                let _ = self.roll_back().await;
                Err(error)
            }
        }
    }

    /// Claims a record for `wanted`; if there is none to replace, delete or read, claims a new one to insert.
    fn claim(&self, at: usize, wanted: Operation, random: &mut Random) -> (Operation, RecordClaim) {
        let store = &self.load.stores[at];
        let mut keys = store.keys.borrow_mut();
        if wanted != Operation::Insert
            && let Some(claim) = keys.claim_existing(random)
        {
            return (wanted, claim);
        }
        let hole = if store.is_full() { keys.claim_hole(random) } else { None };
        (Operation::Insert, hole.unwrap_or_else(|| keys.claim_new(random)))
    }

    /// Returns the record's version if the transaction commits. Wrong content is recorded, and the session
    /// continues: the number of wrong records is worth knowing.
    async fn operate(
        &mut self,
        at: usize,
        operation: Operation,
        claim: &RecordClaim,
    ) -> maildb::Result<Option<RecordVersion>> {
        let (mail, key) = (&self.load.stores[at].mail, claim.key);
        let (outcome, after) = match (operation, claim.version) {
            (Operation::Insert, None) => (mail.insert(self.session, key).await, Some(RecordVersion::FIRST)),
            (Operation::Replace, Some(version)) => {
                let next = version.next();
                (mail.replace(self.session, key, next).await, Some(next))
            }
            (Operation::Delete, Some(_)) => (mail.delete(self.session, key).await, None),
            (Operation::Read, Some(version)) => {
                match mail.read(self.session, key, version).await? {
                    Ok(_) => self.load.meter.count(|counts| counts.records_checked += 1),
                    Err(wrong) => self.wrong_content(at, &wrong),
                }
                (Ok(()), Some(version))
            }
            (operation, version) => panic!("{operation:?} of a record in {version:?} was claimed"),
        };
        match outcome {
            Ok(()) => Ok(after),
            Err(maildb::Error::NotFound) => {
                self.wrong_content(at, &ContentError::Gone(key));
                Ok(None)
            }
            Err(maildb::Error::DuplicateKey) => {
                self.wrong_content(at, &ContentError::Unexpected(key));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn wrong_content(&self, at: usize, error: &ContentError) {
        let database = self.load.stores[at].mail.database.name();
        self.load.failures.note(RunFailure::from_content(&database, error));
    }

    async fn commit(&mut self, lazily: bool) -> maildb::Result<()> {
        // A read-only transaction changes nothing and needs no commit.
        let changed = self.begun.iter().any(|begun| begun.operation() != Operation::Read);
        if changed {
            let durability = if lazily { Durability::Lazy } else { Durability::Stable };
            if let Err(error) = self.session.commit(durability).await {
                self.settle(false);
                return Err(error);
            }
            self.load.gap.note(self.load.world.now());
            self.load.meter.count(|counts| match durability {
                Durability::Lazy => counts.commits_lazy += 1,
                Durability::Stable => counts.commits_durable += 1,
            });
        }
        let now = self.load.world.now();
        for begun in self.begun.drain(..) {
            self.load.meter.end(begun, now);
        }
        self.settle(true);
        Ok(())
    }

    async fn roll_back(&mut self) -> maildb::Result<()> {
        let outcome = self.session.rollback().await;
        self.settle(false);
        outcome
    }

    /// Releases the claims, with their versions after or before the transaction.
    fn settle(&mut self, committed: bool) {
        for begun in self.begun.drain(..) {
            self.load.meter.give_up(&begun);
        }
        for (at, claim, after) in self.claims.drain(..) {
            let version = if committed { after } else { claim.version };
            self.load.stores[at].keys.borrow_mut().settle(claim, version);
        }
    }

    /// Commits the operations that are open at the end of the run.
    async fn finish(&mut self) -> maildb::Result<()> {
        if self.begun.is_empty() { Ok(()) } else { self.commit(false).await }
    }
}
