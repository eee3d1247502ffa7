//! A storage group from opening to closing.

use super::{
    DatabaseIndex,
    core::{OpenDatabase, SharedGroup},
    database::{Database, write_header},
    flush_journal,
    opening::{StampSettings, attach, log_time, new_signature, open_file, refuse_lost, refuse_orphans},
    recovery::{RecoveredLog, RecoverySummary, open_log, recover},
    table::BulkLoadState,
    transaction::Session,
};
use crate::{
    config::{DATABASES_MAX, DatabaseLocation, InstanceConfig},
    error::{Error, Result},
    format::{header::DatabaseState as ShutdownState, page_size::PageSize},
    log::LogRecord,
    statistics::Statistics,
};
use std::rc::Rc;
use world::{BoxedFuture, ByteCount, Directory, JoinHandle, World};

/// Upper bound of the whole pages described by one log record.
const PAGES_PER_RECORD_MAX: u64 = 8;
const LOG_FILE_MIN: ByteCount = ByteCount::kib(64);
const LOG_FILE_MAX: ByteCount = ByteCount::mib(64);
/// Smallest cache: a few times the pages that one step may need.
const CACHE_PAGES_MIN: u64 = 64;

/// An open storage group: one transaction log shared by one to ten databases.
pub struct Instance {
    shared: Rc<SharedGroup>,
    recovery: RecoverySummary,
    tasks: Vec<JoinHandle<()>>,
}

impl Instance {
    /// Opens a group: creates missing databases, recovers those that were not shut down cleanly.
    ///
    /// The position of a database in `databases` must never change; new ones may be added at the end.
    pub fn open(
        world: &World,
        log_directory: Rc<dyn Directory>,
        databases: Vec<DatabaseLocation>,
        config: InstanceConfig,
    ) -> BoxedFuture<'_, Result<Self>> {
        Box::pin(Self::open_all(world, log_directory, databases, config))
    }

    async fn open_all(
        world: &World,
        log_directory: Rc<dyn Directory>,
        databases: Vec<DatabaseLocation>,
        config: InstanceConfig,
    ) -> Result<Self> {
        check_config(&config, databases.len())?;
        let mut opened = Vec::with_capacity(databases.len());
        for location in &databases {
            opened.push(open_file(location, config.page_size).await?);
        }
        let group_signature = new_signature(world, "log");
        let RecoveredLog { log, checkpoint, signature, databases_known, newest, replay, stamps: logged } =
            open_log(world, &log_directory, &config, group_signature).await?;
        if replay.is_none() {
            refuse_orphans(&opened)?;
        }
        refuse_lost(&opened, databases_known)?;
        let range = replay.as_ref().map(|replay| replay.range);
        let wanted = StampSettings {
            mode: config.page_stamps,
            checkpoint: newest,
            logged,
            log_end: log.end(),
            log_found_until: range.map(|range| range.until),
        };
        wanted.release_requirement(&checkpoint).await?;
        let (states, stamps_begun) = attach(world, opened, &wanted, signature, config.page_size).await?;
        drop(wanted);
        let (journal, restored) =
            flush_journal::open(&log_directory, &config, signature, range, &states).await?;
        let shared = SharedGroup::new(world.clone(), config, states, journal);
        shared.set_log(log, checkpoint, signature);
        let mut tasks = vec![world.spawn("cleaner", Rc::clone(&shared).run_cleaner())];
        let recovery = match replay {
            Some(replay) => recover(&shared, &log_directory, replay, restored).await?,
            None => RecoverySummary { clean: true, ..RecoverySummary::default() },
        };
        let recovery = RecoverySummary { stamps_begun, ..recovery };
        for index in 0..databases.len() {
            shared.load_size(DatabaseIndex(index as u8)).await?;
            shared.load_catalog(DatabaseIndex(index as u8)).await?;
        }
        shared.log().append(&LogRecord::Init { time: log_time(world) });
        shared.log().make_stable(shared.log().end()).await?;
        shared.advance_checkpoint().await?;
        tasks.push(world.spawn("checkpoint", Rc::clone(&shared).run_checkpoints()));
        tasks.push(world.spawn("lazy log writes", Rc::clone(&shared).run_lazy_writes()));
        Ok(Self { shared, recovery, tasks })
    }

    pub(super) fn shared(&self) -> &Rc<SharedGroup> {
        &self.shared
    }

    /// Summary of the recovery that opened the group.
    pub fn recovery(&self) -> RecoverySummary {
        self.recovery
    }

    /// The databases, in the order they were opened with.
    pub fn databases(&self) -> Vec<Database> {
        let count = self.shared.core.borrow().databases.len();
        (0..count).map(|index| Database::new(Rc::clone(&self.shared), DatabaseIndex(index as u8))).collect()
    }

    pub fn session(&self) -> Session {
        Session::new(Rc::clone(&self.shared))
    }

    pub fn statistics(&self) -> Statistics {
        let log = self.shared.log().statistics();
        let core = self.shared.core.borrow();
        Statistics {
            log_bytes: log.record_bytes.0,
            log_bytes_written: log.bytes.0,
            log_writes: log.writes,
            log_record_stalls: log.record_stalls,
            log_generations: log.rolls,
            page_requests: core.cache.uses(),
            cache_pages: core.cache.len() as u64,
            cache_pages_max: core.cache.pages_max() as u64,
            dirty_pages: core.cache.dirty() as u64,
            database_pages: core.databases.iter().map(|database| u64::from(database.pages)).sum(),
            ..core.statistics
        }
    }

    /// Writes the log out and advances the checkpoint as far as possible.
    pub async fn checkpoint(&self) -> Result<()> {
        self.shared.log().make_stable(self.shared.log().end()).await?;
        self.shared.advance_checkpoint().await.map(drop)
    }

    /// Removes the log generations below `generation`, except those that recovery needs; returns the oldest one
    /// that stays. The caller has what is removed in a backup, or does without.
    pub async fn release_logs(&self, generation: u32) -> Result<u32> {
        self.shared.release_logs(generation).await
    }

    /// Shuts down cleanly: writes every page, so that no database needs its log. Sessions must have ended
    /// their transactions.
    pub async fn close(mut self) -> Result<()> {
        while self.shared.rollbacks.get() > 0 {
            self.shared.rollback_ended.notified().await;
        }
        self.wait_for_loads().await?;
        let running = self.shared.core.borrow().transactions.len();
        if running > 0 {
            return Err(Error::Configuration(format!("{running} transactions are still running")));
        }
        let closed = self.write_out().await;
        self.stop_tasks().await;
        closed?;
        self.shared.log().close().await?;
        Ok(())
    }

    /// Waits until finished bulk loads are cleaned up; an error if one is still in progress.
    async fn wait_for_loads(&self) -> Result<()> {
        loop {
            let growing = {
                let core = self.shared.core.borrow();
                let loading = |database: &OpenDatabase, state: BulkLoadState| {
                    database.tables.values().any(|table| table.loading().get() == state)
                };
                if core.databases.iter().any(|database| loading(database, BulkLoadState::Active)) {
                    return Err(Error::Configuration("a bulk load is still running".to_owned()));
                }
                let ending =
                    core.databases.iter().find(|database| loading(database, BulkLoadState::CleaningUp));
                ending.and_then(|database| database.growing.clone())
            };
            match growing {
                Some(growing) => growing.notified().await,
                None => return Ok(()),
            }
        }
    }

    async fn write_out(&self) -> Result<()> {
        let shared = &self.shared;
        shared.log().make_stable(shared.log().end()).await?;
        shared.write_everything().await?;
        shared.log().append(&LogRecord::Term { time: log_time(&shared.world) });
        shared.log().make_stable(shared.log().end()).await?;
        let position = shared.advance_checkpoint().await?;
        assert_eq!(position, shared.log().stable(), "nothing is left to replay after a clean shutdown");
        shared.leave_stamps(position).await?;
        let count = shared.core.borrow().databases.len();
        for index in (0..count).map(|index| DatabaseIndex(index as u8)) {
            let (file, header) = {
                let mut core = shared.core.borrow_mut();
                let mut header = core.running_header(index, position, position);
                header.state = ShutdownState::CleanShutdown;
                header.consistent = position;
                header.consistent_time = log_time(&shared.world);
                header.detach = position;
                header.detach_time = header.consistent_time;
                header.generation_min_required = 0;
                header.generation_max_required = 0;
                (Rc::clone(&core.database(index).file), header)
            };
            write_header(&file, &header).await?;
        }
        Ok(())
    }

    fn tell_tasks_to_end(&self) {
        self.shared.closing.set(true);
        self.shared.cleaner_wanted.notify_one();
        self.shared.closed.notify_waiters();
    }

    async fn stop_tasks(&mut self) {
        self.tell_tasks_to_end();
        for task in self.tasks.drain(..) {
            task.await;
        }
    }
}

impl Drop for Instance {
    /// Without a clean shutdown the background tasks end too, as in a crash.
    fn drop(&mut self) {
        self.tell_tasks_to_end();
    }
}

fn check_config(config: &InstanceConfig, databases: usize) -> Result<()> {
    let refuse = |problem: String| Err(Error::Configuration(problem));
    if !(1..=DATABASES_MAX).contains(&databases) {
        return refuse(format!("a storage group has 1 to {DATABASES_MAX} databases, not {databases}"));
    }
    if !matches!(config.page_size, PageSize::Kib4 | PageSize::Kib8 | PageSize::Kib32) {
        return refuse(format!("pages of {} bytes are supported for reading only", config.page_size.bytes()));
    }
    let page_bytes = config.page_size.bytes() as u64;
    let cache_min = CACHE_PAGES_MIN * page_bytes;
    if config.cache.0 < cache_min {
        return refuse(format!(
            "a cache of {} is too small; it must be at least {}",
            config.cache,
            ByteCount(cache_min)
        ));
    }
    if config.writes_outstanding_max == 0 {
        return refuse("at least one page write must be allowed at a time".to_owned());
    }
    let log_file_min = ByteCount((PAGES_PER_RECORD_MAX * page_bytes).max(LOG_FILE_MIN.0));
    let log_file_fits =
        (log_file_min..=LOG_FILE_MAX).contains(&config.log_file) && config.log_file.0.is_multiple_of(4096);
    if !log_file_fits {
        return refuse(format!(
            "a log file of {} is impossible; it must be a multiple of 4 KiB from {log_file_min} to {LOG_FILE_MAX}",
            config.log_file
        ));
    }
    Ok(())
}
