//! The state of a storage group, and the rules for running steps on it.
//!
//! [`Core`] is plain state with synchronous methods; [`SharedGroup`] combines it with the world, the log and
//! the notifications that tasks wait for. A step borrows the core, does all of its work or none, and releases
//! it before anything is awaited ([`SharedGroup::step`]).
//!
//! Invariants:
//!
//! 1. A database's `dbtime` is at or above the time of every page of it, cached or on disk.
//! 2. `transactions` lists exactly those that have a Begin record and no end record.
//! 3. Once `failure` is set nothing more is acknowledged.

use super::{
    DatabaseIndex, PageId, Pause, Step,
    cache::Cache,
    changes::{ChangeSet, CompletedChange},
    flush_journal::FlushJournal,
    freeze_gate::FreezeGate,
    locks::Locks,
    page_stamps::PageStamps,
    page_writes::PageWrites,
    pager::Pin,
    table::Table,
};
use crate::{
    config::{InstanceConfig, PageStampMode},
    error::{Error, Result},
    format::{
        header::{DatabaseHeader, LogPosition, Signature},
        page_size::{DbTime, ObjectId, PageSize},
    },
    log::{CheckpointFile, LogHandle, LogRecord, RestructureKind},
    statistics::Statistics,
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};
use tokio::sync::Notify;
use world::{File, Moment, World};

/// Upper bound of the pages that one step needs at once.
const PINS_MAX: usize = 256;

/// One database of the group.
pub struct OpenDatabase {
    pub name: String,
    pub file: Rc<dyn File>,
    /// The header as last written or about to be written.
    pub header: DatabaseHeader,
    /// dbtime in the header on stable storage.
    pub header_time_stable: DbTime,
    /// Time of the latest page change.
    pub dbtime: DbTime,
    /// Pages of the file that the database owns.
    pub pages: u32,
    /// Highest object number in use.
    pub object_last: ObjectId,
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Page stamps; `None` if they are off.
    pub stamps: Option<PageStamps>,
    /// Set while the file grows; notified at the end.
    pub growing: Option<Rc<Notify>>,
}

impl OpenDatabase {
    /// The time for the next page change.
    pub fn next_dbtime(&mut self) -> DbTime {
        self.dbtime.0 += 1;
        self.dbtime
    }
}

/// A page read in progress.
#[derive(Default)]
pub struct PendingRead {
    /// Notified when the read has ended.
    pub ended: Notify,
    /// The page was recreated meanwhile: the bytes being read are obsolete.
    pub superseded: Cell<bool>,
}

/// The state of a storage group.
pub struct Core {
    pub cache: Cache,
    /// In the order the group was opened with.
    pub databases: Vec<OpenDatabase>,
    /// Records changed by running transactions.
    pub locks: Locks,
    /// Start of the Begin record of every running transaction.
    pub transactions: BTreeMap<u32, LogPosition>,
    /// Highest transaction number in use.
    pub transaction_last: u32,
    /// Highest session number in use.
    pub session_last: u16,
    /// Number of structural changes of trees: while it stays the same, a path down a tree stays valid.
    pub restructures: u64,
    /// Page reads in progress.
    pub loading: BTreeMap<PageId, Rc<PendingRead>>,
    pub statistics: Statistics,
    /// The error that stopped the group, if any.
    pub failure: Option<Error>,
    /// Page size of every database.
    pub page_size: PageSize,
}

impl Core {
    /// Panics if the database does not exist: indexes come from this group.
    pub fn database(&mut self, index: DatabaseIndex) -> &mut OpenDatabase {
        &mut self.databases[usize::from(index.0)]
    }

    /// An empty change set over a database's pages.
    pub fn change_set(&mut self, database: DatabaseIndex, now: Moment) -> ChangeSet<'_> {
        ChangeSet::new(&mut self.cache, database, self.page_size, now)
    }

    /// Changes several pages: builds the change on copies, logs it as one record, installs it.
    pub fn restructure<T>(
        &mut self,
        log: &LogHandle,
        now: Moment,
        database: DatabaseIndex,
        kind: RestructureKind,
        build: impl FnOnce(&mut ChangeSet<'_>) -> Step<T>,
    ) -> Step<T> {
        let mut changes = ChangeSet::new(&mut self.cache, database, self.page_size, now);
        let value = build(&mut changes)?;
        if changes.is_empty() {
            return Ok(value);
        }
        let dbtime = self.databases[usize::from(database.0)].next_dbtime();
        let CompletedChange { changes, pages } = changes.finish(dbtime)?;
        self.restructures += 1;
        let dbid = database.log_id();
        let record = LogRecord::Restructure { kind, dbid, dbtime, procid: 0, transaction: 0, changes };
        let range = log.append(&record);
        for (page, buffer) in pages {
            let id = PageId { database, page };
            self.cache.put_changed(id, buffer, (range.start, range.end), now);
            if let Some(arrival) = self.loading.get(&id) {
                arrival.superseded.set(true);
            }
        }
        match kind {
            RestructureKind::Split => self.statistics.splits += 1,
            RestructureKind::Merge => self.statistics.merges += 1,
            RestructureKind::CreateTree | RestructureKind::Space => {}
        }
        Ok(value)
    }

    /// Fails if the group has stopped.
    pub fn check_running(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(Error::Stopped(error.to_string())),
        }
    }
}

/// A storage group, shared by its tasks.
pub struct SharedGroup {
    pub world: World,
    pub config: InstanceConfig,
    /// The state; borrowed for one step at a time, never across an await.
    pub core: RefCell<Core>,
    /// Notified when a cache page may have become free.
    pub page_freed: Notify,
    /// Notified when the cleaner has work.
    pub cleaner_wanted: Notify,
    /// Notified when a page write has ended.
    pub write_ended: Notify,
    /// Number of tasks that wait for page writes. If any, stamps are logged without delay.
    pub waiting_for_writes: Cell<usize>,
    /// Page writes in progress.
    pub page_writes: PageWrites,
    /// Notified when the group closes.
    pub closed: Notify,
    /// Set when the background tasks must end.
    pub closing: Cell<bool>,
    /// The last checkpoint written, and the log's generation at that time.
    pub checkpoint_written: Cell<Option<(LogPosition, u32)>>,
    /// Number of rollbacks running in the background.
    pub rollbacks: Cell<usize>,
    /// Notified when one of them has ended.
    pub rollback_ended: Notify,
    /// Held while taking a checkpoint.
    pub checkpointing: Arc<tokio::sync::Mutex<()>>,
    /// Gate of commits and writes.
    pub freeze: FreezeGate,
    /// Flush journal; `None` if it is off or not needed.
    pub journal: Option<FlushJournal>,
    log: OnceCell<OpenLog>,
}

/// The open log, its signature and its checkpoint file.
struct OpenLog {
    log: LogHandle,
    checkpoint: CheckpointFile,
    signature: Signature,
}

impl SharedGroup {
    /// A group whose log is not open yet.
    pub fn new(
        world: World,
        config: InstanceConfig,
        databases: Vec<OpenDatabase>,
        journal: Option<FlushJournal>,
    ) -> Rc<Self> {
        let page_size = config.page_size;
        let pages_max = (config.cache.0 / page_size.bytes() as u64) as usize;
        let core = Core {
            cache: Cache::new(pages_max),
            databases,
            locks: Locks::default(),
            transactions: BTreeMap::new(),
            transaction_last: 0,
            session_last: 0,
            restructures: 0,
            loading: BTreeMap::new(),
            statistics: Statistics::default(),
            failure: None,
            page_size,
        };
        let page_writes =
            PageWrites::new(config.writes_outstanding_max, config.page_stamps == PageStampMode::Durable);
        Rc::new(Self {
            world,
            config,
            core: RefCell::new(core),
            page_freed: Notify::new(),
            cleaner_wanted: Notify::new(),
            write_ended: Notify::new(),
            waiting_for_writes: Cell::new(0),
            page_writes,
            closed: Notify::new(),
            closing: Cell::new(false),
            checkpoint_written: Cell::new(None),
            rollbacks: Cell::new(0),
            rollback_ended: Notify::new(),
            checkpointing: Arc::default(),
            freeze: FreezeGate::default(),
            journal,
            log: OnceCell::new(),
        })
    }

    pub fn log(&self) -> &LogHandle {
        &self.open_log().log
    }

    /// Signature of the log.
    pub fn signature(&self) -> Signature {
        self.open_log().signature
    }

    pub fn checkpoint_file(&self) -> &CheckpointFile {
        &self.open_log().checkpoint
    }

    fn open_log(&self) -> &OpenLog {
        self.log.get().expect("the log is open before the first step")
    }

    /// Sets the log: the group can be changed from now on.
    pub fn set_log(&self, log: LogHandle, checkpoint: CheckpointFile, signature: Signature) {
        let before = self.log.set(OpenLog { log, checkpoint, signature });
        assert!(before.is_ok(), "a group has one log");
    }

    /// Stops the group: nothing is acknowledged from now on.
    pub fn fail(&self, error: &Error) {
        self.core.borrow_mut().failure.get_or_insert_with(|| error.clone());
        self.page_freed.notify_waiters();
        self.write_ended.notify_waiters();
        self.rollback_ended.notify_waiters();
        self.cleaner_wanted.notify_one();
        self.freeze.wake();
    }

    /// Runs a synchronous step until it completes, reading the pages it misses in between.
    pub async fn step<T>(
        self: &Rc<Self>,
        mut step: impl FnMut(&mut Core, &LogHandle, Moment) -> Step<T>,
    ) -> Result<T> {
        let mut pins: Vec<Pin> = Vec::new();
        loop {
            let outcome = {
                let mut core = self.core.borrow_mut();
                core.check_running()?;
                step(&mut core, self.log(), self.world.now())
            };
            match outcome {
                Ok(value) => return Ok(value),
                Err(Pause::Missing(id)) => {
                    assert!(pins.len() < PINS_MAX, "a step needs a bounded number of pages");
                    let pin =
                        if pins.is_empty() { self.fetch(id).await? } else { self.fetch_beyond(id).await? };
                    pins.push(pin);
                }
                // Boxed: growing is itself a step.
                Err(Pause::Grow { database, pages }) => Box::pin(self.grow(database, pages)).await?,
                Err(Pause::Failed(error)) => return Err(error),
            }
        }
    }
}
