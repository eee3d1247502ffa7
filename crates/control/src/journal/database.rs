//! The journal's database: opening it, transactions, and the file below it.
//!
//! redb refuses everything after its first I/O error. So the database is closed then, and opened again by the next call:
//! a disk that was full for a moment needs no restart.
//!
//! Reads see the last commit and wait for none: a commit takes as long as its syncs, which a slow disk makes seconds. Changes take
//! turns. Opening waits for all, so that the file has one database.

use super::{
    APPLIES, FORMAT, FORMAT_KEY, JournalError, POOLS, SETTINGS, SITES,
    audit::AUDIT,
    dr_clients::DR_CLIENTS,
    dr_makings::DR_MAKINGS,
    dr_services::DR_SERVICES,
    dr_sets::DR_SETS,
    events::{CONDITIONS, EVENTS, NOTIFIERS},
    jobs::JOBS,
    moves::MOVES,
    pairings::PAIRINGS,
    presentations::PRESENTATIONS,
    recovery::RECOVERY,
    rehearsals::REHEARSALS,
    replies::{REPLIES, REPLY_ORDER},
    tokens::TOKENS,
};
use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, StorageBackend, TableHandle, WriteTransaction,
};
use serde::de::DeserializeOwned;
use std::{
    io,
    sync::{Arc, OnceLock, RwLock},
};
use world::{IoError, IoErrorKind, StateFile};

/// Bytes of pages in memory; redb's default is 1 GiB.
const CACHE_BYTES: usize = 4 << 20;
/// redb writes this much of a new file before it writes the name of its format, and nothing else.
const HEADER_BYTES: usize = 320;
const MAGIC_BYTES: usize = 9;
const UNBROKEN: &str = "nothing panics with the lock held";
/// A new file is smaller (72 KiB of redb 4.6).
const NEW_BYTES_MAX: u64 = 4 << 20;

/// redb's error of any operation. Boxed, for it is large.
pub(super) type TransactionResult<T> = Result<T, TransactionFailure>;

/// The reason for which a transaction ended without its change.
pub(super) struct TransactionFailure(Box<redb::Error>);

impl<E: Into<redb::Error>> From<E> for TransactionFailure {
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}

/// A database that can be opened again.
#[derive(Debug)]
pub(super) struct JournalDatabase {
    file: Arc<dyn StateFile>,
    /// The first sync that failed.
    sync_error: Arc<OnceLock<IoError>>,
    /// `None` after an error. Locked for writing only to open and to close it.
    open: RwLock<Option<Database>>,
}

impl JournalDatabase {
    pub fn open(file: Arc<dyn StateFile>) -> Result<Self, JournalError> {
        let database = Self { file, sync_error: Arc::default(), open: RwLock::new(None) };
        database.with_database(|_| Ok(()))?;
        Ok(database)
    }

    pub fn read<R>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> TransactionResult<R>,
    ) -> Result<R, JournalError> {
        self.with_database(|database| read(&database.begin_read()?))
    }

    /// Makes a change durable, or changes nothing.
    pub fn change<R>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> TransactionResult<R>,
    ) -> Result<R, JournalError> {
        self.with_database(|database| commit(database, change))
    }

    /// A record that was read, parsed; `what` names it in the error.
    pub fn parsed<T: DeserializeOwned>(&self, record: &str, what: &str) -> Result<T, JournalError> {
        serde_json::from_str(record).map_err(|error| self.damaged(format!("{what}: {error}")))
    }

    pub fn damaged(&self, problem: impl Into<String>) -> JournalError {
        JournalError::Damaged { name: self.file.name().to_owned(), problem: problem.into() }
    }

    /// Runs `work` on the open database; opens it first if an earlier call has failed.
    fn with_database<R>(
        &self,
        work: impl FnOnce(&Database) -> TransactionResult<R>,
    ) -> Result<R, JournalError> {
        let guard = loop {
            if let Some(error) = self.sync_error.get() {
                let name = self.file.name().to_owned();
                return Err(JournalError::Unsynced { name, error: error.clone() });
            }
            let guard = self.open.read().expect(UNBROKEN);
            if guard.is_some() {
                break guard;
            }
            drop(guard);
            let mut closed = self.open.write().expect(UNBROKEN);
            if closed.is_none() {
                *closed = Some(self.open_again()?);
            }
        };
        let failure = match work(guard.as_ref().expect("it is open")) {
            Ok(result) => return Ok(result),
            Err(failure) => failure,
        };
        drop(guard);
        // Another call may have opened it again by now: then it is opened once more.
        *self.open.write().expect(UNBROKEN) = None;
        Err(self.error_of(failure))
    }

    fn open_again(&self) -> Result<Database, JournalError> {
        self.empty_if_unfinished().map_err(JournalError::Io)?;
        let backend =
            JournalBackend { file: Arc::clone(&self.file), sync_error: Arc::clone(&self.sync_error) };
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        let database = builder.create_with_backend(backend).map_err(|error| self.error_of(error.into()))?;
        let format = begin_tables(&database).map_err(|failure| self.error_of(failure))?;
        match format {
            Some(FORMAT) => {
                add_tables(&database).map_err(|failure| self.error_of(failure))?;
                Ok(database)
            }
            Some(found) => Err(JournalError::Format { name: self.file.name().to_owned(), found }),
            None => Err(self.damaged("its format has no number")),
        }
    }

    /// Empties a file whose making was interrupted, which redb would refuse: there was no transaction yet.
    fn empty_if_unfinished(&self) -> Result<(), IoError> {
        let size = self.file.size()?;
        if size == 0 || size > NEW_BYTES_MAX {
            return Ok(());
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_at(0, &mut bytes)?;
        let is_zero = |range: &[u8]| range.iter().all(|&byte| byte == 0);
        let header_end = HEADER_BYTES.min(bytes.len());
        if is_zero(&bytes[..MAGIC_BYTES.min(header_end)]) && is_zero(&bytes[header_end..]) {
            self.file.set_size(0)?;
            self.file.sync()?;
        }
        Ok(())
    }

    fn error_of(&self, TransactionFailure(error): TransactionFailure) -> JournalError {
        match *error {
            redb::Error::Io(error) => match error.downcast::<IoError>() {
                Ok(error) if self.sync_error.get().is_some() => {
                    JournalError::Unsynced { name: self.file.name().to_owned(), error }
                }
                Ok(error) if error.kind() == IoErrorKind::OutOfRange => self.damaged("it ends too early"),
                Ok(error) => JournalError::Io(error),
                // redb reports a file that is none of its own like this.
                Err(error) => self.damaged(error.to_string()),
            },
            error => self.damaged(error.to_string()),
        }
    }
}

/// The number of the format. A database without tables is new, and gets ours.
fn begin_tables(database: &Database) -> TransactionResult<Option<u64>> {
    let reading = database.begin_read()?;
    let mut tables = reading.list_tables()?;
    if let Some(table) = tables.next() {
        let has_settings =
            table.name() == SETTINGS.name() || tables.any(|table| table.name() == SETTINGS.name());
        return match has_settings {
            true => Ok(reading.open_table(SETTINGS)?.get(FORMAT_KEY)?.map(|number| number.value())),
            false => Ok(None),
        };
    }
    commit(database, |transaction| {
        transaction.open_table(SETTINGS)?.insert(FORMAT_KEY, FORMAT)?;
        transaction.open_table(SITES)?;
        transaction.open_table(APPLIES)?;
        transaction.open_table(POOLS)?;
        open_later_tables(transaction)
    })?;
    Ok(Some(FORMAT))
}

/// Makes the tables that a journal of the first version lacks. That version does not look at them.
fn add_tables(database: &Database) -> TransactionResult<()> {
    let reading = database.begin_read()?;
    let later = [
        TOKENS.name(),
        AUDIT.name(),
        REPLIES.name(),
        REPLY_ORDER.name(),
        EVENTS.name(),
        CONDITIONS.name(),
        NOTIFIERS.name(),
        JOBS.name(),
        PAIRINGS.name(),
        RECOVERY.name(),
        REHEARSALS.name(),
        DR_SERVICES.name(),
        DR_CLIENTS.name(),
        DR_SETS.name(),
        DR_MAKINGS.name(),
        PRESENTATIONS.name(),
        MOVES.name(),
    ];
    let there = reading.list_tables()?.filter(|table| later.contains(&table.name())).count();
    drop(reading);
    if there == later.len() {
        return Ok(());
    }
    commit(database, open_later_tables)
}

fn open_later_tables(transaction: &WriteTransaction) -> TransactionResult<()> {
    transaction.open_table(TOKENS)?;
    transaction.open_table(AUDIT)?;
    transaction.open_table(REPLIES)?;
    transaction.open_table(REPLY_ORDER)?;
    transaction.open_table(EVENTS)?;
    transaction.open_table(CONDITIONS)?;
    transaction.open_table(NOTIFIERS)?;
    transaction.open_table(JOBS)?;
    transaction.open_table(PAIRINGS)?;
    transaction.open_table(RECOVERY)?;
    transaction.open_table(REHEARSALS)?;
    transaction.open_table(DR_SERVICES)?;
    transaction.open_table(DR_CLIENTS)?;
    transaction.open_table(DR_SETS)?;
    transaction.open_table(DR_MAKINGS)?;
    transaction.open_table(PRESENTATIONS)?;
    transaction.open_table(MOVES)?;
    Ok(())
}

fn commit<R>(
    database: &Database,
    change: impl FnOnce(&WriteTransaction) -> TransactionResult<R>,
) -> TransactionResult<R> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    let result = change(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// A state file as redb sees it. Locking is the file's own affair: redb is answered that it cannot lock.
#[derive(Debug)]
struct JournalBackend {
    file: Arc<dyn StateFile>,
    sync_error: Arc<OnceLock<IoError>>,
}

impl StorageBackend for JournalBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.size().map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_size(len).map_err(io::Error::other)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync().map_err(|error| {
            // Only the first counts: all after it are refused.
            let _ = self.sync_error.set(error.clone());
            io::Error::other(error)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data).map_err(io::Error::other)
    }
}
