//! Everything one storage group owns, and the way every step on it is run.
//!
//! [`Core`] is plain state with synchronous methods; [`Shared`] holds it together with the world, the
//! log and the places where tasks wait. A step borrows the core, does all of its work or none, and
//! lets go before anything is awaited ([`Shared::step`]).
//!
//! Invariants:
//!
//! 1. A database's `dbtime` is at or above the time of every page of it, cached or on disk.
//! 2. `transactions` lists exactly those that have a Begin record and no end record.
//! 3. Once `failure` is set nothing more is acknowledged.

use super::{
    DatabaseIndex, PageId, Pause, Step,
    cache::Cache,
    changes::{ChangeSet, Finished},
    flush_journal::FlushJournal,
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
    log::{CheckpointFile, Log, LogRecord, RestructureKind},
    statistics::Statistics,
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use tokio::sync::Notify;
use world::{File, Moment, World};

/// More pages than any one step needs at once.
const PINS_MAX: usize = 256;

/// One database of the group.
pub struct DatabaseState {
    /// File name.
    pub name: String,
    /// The open file.
    pub file: Rc<dyn File>,
    /// The header as last written or about to be.
    pub header: DatabaseHeader,
    /// The time in the header on stable storage.
    pub header_time_stable: DbTime,
    /// Time of the latest page change.
    pub dbtime: DbTime,
    /// Pages of the file that the database owns.
    pub pages: u32,
    /// The highest object number given out.
    pub object_last: ObjectId,
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// What every page must read as; none if that is not wanted.
    pub stamps: Option<PageStamps>,
    /// Set while the file grows; told when it has.
    pub growing: Option<Rc<Notify>>,
}

impl DatabaseState {
    /// Time for the next page change.
    pub fn next_dbtime(&mut self) -> DbTime {
        self.dbtime.0 += 1;
        self.dbtime
    }
}

/// A read of a page under way.
#[derive(Default)]
pub struct Arrival {
    /// Told when it has ended.
    pub ended: Notify,
    /// The page was made anew meanwhile: what is being read is old.
    pub superseded: Cell<bool>,
}

/// The state of a storage group.
pub struct Core {
    /// Pages in memory.
    pub cache: Cache,
    /// Databases, in the order the group was opened with.
    pub databases: Vec<DatabaseState>,
    /// Records being changed.
    pub locks: Locks,
    /// Start of the Begin record of every running transaction.
    pub transactions: BTreeMap<u32, LogPosition>,
    /// The highest transaction number given out.
    pub transaction_last: u32,
    /// The highest session number given out.
    pub session_last: u16,
    /// How often trees have changed their shape: while this stays, a way down a tree stays true.
    pub restructures: u64,
    /// Reads under way.
    pub loading: BTreeMap<PageId, Rc<Arrival>>,
    /// Counters.
    pub statistics: Statistics,
    /// What stopped the group, if anything did.
    pub failure: Option<Error>,
    /// Page size of every database.
    pub page_size: PageSize,
}

impl Core {
    /// A database by index. Panics if there is none: indexes come from this group.
    pub fn database(&mut self, index: DatabaseIndex) -> &mut DatabaseState {
        &mut self.databases[usize::from(index.0)]
    }

    /// An empty change set over a database's pages.
    pub fn change_set(&mut self, database: DatabaseIndex, now: Moment) -> ChangeSet<'_> {
        ChangeSet::new(&mut self.cache, database, self.page_size, now)
    }

    /// Makes a change of several pages: builds it on copies, logs it as one record, installs it.
    pub fn restructure<T>(
        &mut self,
        log: &Log,
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
        let Finished { changes, pages } = changes.finish(dbtime)?;
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

    /// Refuses to go on after a failure.
    pub fn check_running(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(Error::Stopped(error.to_string())),
        }
    }
}

/// A storage group as its tasks share it.
pub struct Shared {
    /// Clock, tasks, randomness.
    pub world: World,
    /// Settings.
    pub config: InstanceConfig,
    /// The state; borrowed for one step at a time, never across an await.
    pub core: RefCell<Core>,
    /// Told when a cache page may have become free.
    pub page_freed: Notify,
    /// Told when the cleaner should look.
    pub cleaner_wanted: Notify,
    /// Told when a page write has ended.
    pub write_ended: Notify,
    /// Tasks that wait for pages to be written: then their stamps do not wait for company.
    pub waiting_for_writes: Cell<usize>,
    /// Page writes under way.
    pub page_writes: PageWrites,
    /// Told when the group closes.
    pub closed: Notify,
    /// Set when the background tasks should end.
    pub closing: Cell<bool>,
    /// The checkpoint last written, and the log's generation then.
    pub checkpoint_written: Cell<Option<(LogPosition, u32)>>,
    /// Rollbacks under way in the background.
    pub rollbacks: Cell<usize>,
    /// Told when one of them has ended.
    pub rollback_ended: Notify,
    /// Held by whoever takes a checkpoint.
    pub checkpointing: tokio::sync::Mutex<()>,
    /// Protects page writes from being torn; none if that is not wanted or not needed.
    pub journal: Option<FlushJournal>,
    log: OnceCell<OpenLog>,
}

/// The log and what goes with it.
struct OpenLog {
    log: Log,
    checkpoint: CheckpointFile,
    signature: Signature,
}

impl Shared {
    /// A group whose log is not open yet.
    pub fn new(
        world: World,
        config: InstanceConfig,
        databases: Vec<DatabaseState>,
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
            checkpointing: tokio::sync::Mutex::new(()),
            journal,
            log: OnceCell::new(),
        })
    }

    /// The transaction log.
    pub fn log(&self) -> &Log {
        &self.open_log().log
    }

    /// Birth mark of the log.
    pub fn signature(&self) -> Signature {
        self.open_log().signature
    }

    /// The checkpoint file.
    pub fn checkpoint_file(&self) -> &CheckpointFile {
        &self.open_log().checkpoint
    }

    fn open_log(&self) -> &OpenLog {
        self.log.get().expect("the log is open before the first step")
    }

    /// Opens the group for writing.
    pub fn set_log(&self, log: Log, checkpoint: CheckpointFile, signature: Signature) {
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
    }

    /// Runs a synchronous step until it goes through, fetching what it finds missing.
    pub async fn step<T>(
        self: &Rc<Self>,
        mut step: impl FnMut(&mut Core, &Log, Moment) -> Step<T>,
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
