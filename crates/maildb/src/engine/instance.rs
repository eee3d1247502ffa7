//! A storage group from opening to closing.

use super::{
    DatabaseIndex,
    core::{DatabaseState, Shared},
    database::{DBTIME_OF_MAKING, Database, make_database, write_header},
    flush_journal,
    recovery::{OpenedLog, RecoverySummary, open_log, recover},
    transaction::Session,
};
use crate::{
    config::{DATABASES_MAX, DatabaseLocation, InstanceConfig},
    error::{Error, Result},
    format::{
        bootstrap::LAST_SYSTEM_OBJECT,
        header::{DatabaseHeader, DatabaseState as ShutdownState, HeaderError, LogTime, Signature},
        page_size::PageSize,
    },
    log::LogRecord,
    statistics::Statistics,
    verify::checksums::read_header,
};
use std::{collections::BTreeMap, rc::Rc};
use world::{ByteCount, Directory, File, IoErrorKind, JoinHandle, World};

/// No log record describes more than this many whole pages.
const PAGES_PER_RECORD_MAX: u64 = 8;
const LOG_FILE_MIN: ByteCount = ByteCount::kib(64);
const LOG_FILE_MAX: ByteCount = ByteCount::mib(64);
/// The cache must hold every page one step may need, and then some.
const CACHE_PAGES_MIN: u64 = 64;

/// An open storage group: one transaction log shared by one to ten databases.
pub struct Instance {
    shared: Rc<Shared>,
    recovery: RecoverySummary,
    tasks: Vec<JoinHandle<()>>,
}

impl Instance {
    /// Opens a group: makes what does not exist yet, recovers what was not shut down cleanly.
    ///
    /// A database keeps its place in `databases` for life; new ones may be added at the end.
    pub async fn open(
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
        let OpenedLog { log, checkpoint, signature, databases_known, replay } =
            open_log(world, &log_directory, &config, group_signature).await?;
        if replay.is_none() {
            refuse_orphans(&opened)?;
        }
        refuse_lost(&opened, databases_known)?;
        for (index, database) in opened.iter_mut().enumerate() {
            let attach = log.end();
            database.attach_to(world, index, signature, attach, config.page_size).await?;
        }
        let states: Vec<_> = opened.into_iter().map(Opened::into_state).collect();
        let range = replay.as_ref().map(|replay| replay.range);
        let (journal, restored) =
            flush_journal::open(&log_directory, &config, signature, range, &states).await?;
        let shared = Shared::new(world.clone(), config, states, journal);
        shared.set_log(log, checkpoint, signature);
        let mut tasks = vec![world.spawn("cleaner", Rc::clone(&shared).run_cleaner())];
        let recovery = match replay {
            Some(replay) => recover(&shared, &log_directory, replay, restored).await?,
            None => RecoverySummary { clean: true, ..RecoverySummary::default() },
        };
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

    /// What opening found and did.
    pub fn recovery(&self) -> RecoverySummary {
        self.recovery
    }

    /// The databases, in the order they were opened with.
    pub fn databases(&self) -> Vec<Database> {
        let count = self.shared.core.borrow().databases.len();
        (0..count).map(|index| Database::new(Rc::clone(&self.shared), DatabaseIndex(index as u8))).collect()
    }

    /// A new session.
    pub fn session(&self) -> Session {
        Session::new(Rc::clone(&self.shared))
    }

    /// Counters, as of now.
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

    /// Writes the log out and moves the checkpoint as far as it can go.
    pub async fn checkpoint(&self) -> Result<()> {
        self.shared.log().make_stable(self.shared.log().end()).await?;
        self.shared.advance_checkpoint().await.map(drop)
    }

    /// Shuts down cleanly: every page written, every database whole without its log. Sessions must have
    /// ended their transactions.
    pub async fn close(mut self) -> Result<()> {
        while self.shared.rollbacks.get() > 0 {
            self.shared.rollback_ended.notified().await;
        }
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

    async fn write_out(&self) -> Result<()> {
        let shared = &self.shared;
        shared.log().make_stable(shared.log().end()).await?;
        shared.write_everything().await?;
        shared.log().append(&LogRecord::Term { time: log_time(&shared.world) });
        shared.log().make_stable(shared.log().end()).await?;
        let position = shared.advance_checkpoint().await?;
        assert_eq!(position, shared.log().stable(), "nothing is left to replay after a clean shutdown");
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

/// A database file on its way into a group.
struct Opened {
    location: DatabaseLocation,
    /// None if there is no file yet.
    file: Option<Rc<dyn File>>,
    /// None if there is no file, or its making was cut short.
    header: Option<DatabaseHeader>,
}

impl Opened {
    fn name(&self) -> &str {
        &self.location.file_name
    }

    /// The file, made now if there is none.
    async fn file(&mut self, page_size: PageSize) -> Result<Rc<dyn File>> {
        if let Some(file) = &self.file {
            return Ok(Rc::clone(file));
        }
        let size = ByteCount(2 * page_size.bytes() as u64);
        let file = self.location.directory.create(self.name(), size).await?;
        self.location.directory.sync().await?;
        self.file = Some(Rc::clone(&file));
        Ok(file)
    }

    /// Makes the database if there is none yet, and marks it as in use by this log.
    async fn attach_to(
        &mut self,
        world: &World,
        index: usize,
        log_signature: Signature,
        end: crate::format::header::LogPosition,
        page_size: PageSize,
    ) -> Result<()> {
        let database_id = index as u32 + 1;
        let file = self.file(page_size).await?;
        let mut header = match self.header.take() {
            Some(header) if header.log_signature != log_signature => {
                return Err(Error::DatabaseDamaged {
                    database: self.name().to_owned(),
                    problem: "it belongs to another storage group's log".to_owned(),
                });
            }
            Some(header) => header,
            None => {
                let signature = new_signature(world, self.name());
                let mut header = DatabaseHeader::new(page_size, signature, LAST_SYSTEM_OBJECT);
                header.log_signature = log_signature;
                // Records before this point speak of another database of that number, or of none.
                header.attach = end;
                header.attach_time = log_time(world);
                header.database_id = database_id;
                make_database(&file, &header).await?;
                header
            }
        };
        if header.database_id != database_id {
            return Err(Error::Configuration(format!(
                "{} is database {} of its storage group, but was named as number {database_id}",
                self.name(),
                header.database_id
            )));
        }
        if header.state != ShutdownState::DirtyShutdown {
            header.state = ShutdownState::DirtyShutdown;
            write_header(&file, &header).await?;
        }
        self.header = Some(header);
        Ok(())
    }

    fn into_state(self) -> DatabaseState {
        let header = self.header.expect("attached before");
        DatabaseState {
            name: self.location.file_name,
            file: self.file.expect("made before"),
            dbtime: header.dbtime.max(DBTIME_OF_MAKING),
            pages: 0,
            object_last: header.object_id_last,
            tables: BTreeMap::new(),
            growing: None,
            header_time_stable: header.dbtime,
            header,
        }
    }
}

async fn open_file(location: &DatabaseLocation, page_size: PageSize) -> Result<Opened> {
    let name = &location.file_name;
    let nothing = Opened { location: location.clone(), file: None, header: None };
    let file = match location.directory.open(name).await {
        Ok(file) => file,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(nothing),
        Err(error) => return Err(error.into()),
    };
    // What a process that died had written may still be in the drive's cache. From here on it counts as
    // stable: redo takes a page it finds new enough for written, and the checkpoint passes it.
    file.flush().await?;
    location.directory.sync().await?;
    let file_only = Opened { file: Some(Rc::clone(&file)), ..nothing };
    if never_finished(&file, page_size).await? {
        return Ok(file_only);
    }
    let (header, _) = read_header(&file, name).await?;
    if header.page_size != page_size {
        return Err(Error::Configuration(format!(
            "{name} has pages of {} bytes, not {}",
            header.page_size.bytes(),
            page_size.bytes()
        )));
    }
    Ok(Opened { header: Some(header), ..file_only })
}

/// Whether the making of a database was cut short: the second copy of its header, written last, is all
/// zero, and so is the first or part of it.
async fn never_finished(file: &Rc<dyn File>, page_size: PageSize) -> Result<bool> {
    let bytes = 2 * page_size.bytes();
    if file.geometry().size.0 < bytes as u64 {
        return Ok(file.geometry().size.0 == 0);
    }
    let buffers = file.read(world::ByteOffset(0), vec![world::Buffer::zeroed(bytes)]).await?;
    let (first, shadow) = buffers[0].split_at(page_size.bytes());
    Ok(is_zero(shadow) && (is_zero(first) || is_part_of_header(first)))
}

/// Whether a block is a header of which a power cut kept one of the two sectors that are not zero. Anything
/// else may be somebody's file, and is not ours to write over.
fn is_part_of_header(block: &[u8]) -> bool {
    const SECTOR_BYTES: usize = 512;
    let (begin, rest) = block.split_at(SECTOR_BYTES);
    let (middle, end) = rest.split_at(SECTOR_BYTES);
    match DatabaseHeader::decode(block) {
        Err(HeaderError::Checksum { .. }) => is_zero(middle) && is_zero(end),
        Err(HeaderError::NotADatabase) => {
            let whole = DatabaseHeader::new(PageSize::of(block), Signature::default(), LAST_SYSTEM_OBJECT);
            is_zero(begin) && rest == &whole.encode()[SECTOR_BYTES..]
        }
        _ => false,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// A database the group had must not be made anew in silence: its volume may only not be mounted.
fn refuse_lost(opened: &[Opened], databases_known: usize) -> Result<()> {
    if opened.len() < databases_known {
        let problem =
            format!("the storage group has {databases_known} databases; name them all, in their order");
        return Err(Error::Configuration(problem));
    }
    match opened.iter().take(databases_known).find(|database| database.header.is_none()) {
        None => Ok(()),
        Some(lost) => Err(Error::DatabaseDamaged {
            database: lost.name().to_owned(),
            problem: "it is missing though its storage group has used it; is its volume mounted?".to_owned(),
        }),
    }
}

/// A database that was in use must not be opened without its log.
fn refuse_orphans(opened: &[Opened]) -> Result<()> {
    for database in opened {
        if database.header.is_some() {
            return Err(Error::DatabaseDamaged {
                database: database.name().to_owned(),
                problem: "its storage group has no log here; restore the log files it was used with"
                    .to_owned(),
            });
        }
    }
    Ok(())
}

fn check_config(config: &InstanceConfig, databases: usize) -> Result<()> {
    let refuse = |problem: String| Err(Error::Configuration(problem));
    if !(1..=DATABASES_MAX).contains(&databases) {
        return refuse(format!("a storage group has 1 to {DATABASES_MAX} databases, not {databases}"));
    }
    if !matches!(config.page_size, PageSize::Kib4 | PageSize::Kib8 | PageSize::Kib32) {
        return refuse(format!("pages of {} bytes can be read but not worked on", config.page_size.bytes()));
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
            "log files of {} cannot be; they are whole 4 KiB segments, {log_file_min} to {LOG_FILE_MAX}",
            config.log_file
        ));
    }
    Ok(())
}

fn new_signature(world: &World, name: &str) -> Signature {
    let random = world.random(&format!("signature of {name} at {}", world.wall().seconds)).next_u64() as u32;
    Signature { random, created: log_time(world), computer: [0; 16] }
}

fn log_time(world: &World) -> LogTime {
    let wall = world.wall();
    LogTime::from_unix_ms(wall.seconds.max(0) as u64 * 1000 + u64::from(wall.nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_torn_in_its_first_write_is_known_and_nothing_else_is() {
        for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
            let signature = Signature { random: 9, created: LogTime::from_unix_ms(5), computer: [0; 16] };
            let whole = DatabaseHeader::new(page_size, signature, LAST_SYSTEM_OBJECT).encode();
            assert!(!is_part_of_header(&whole));
            for lost in 0..2 {
                let mut torn = whole.clone();
                torn[lost * 512..(lost + 1) * 512].fill(0);
                assert!(is_part_of_header(&torn), "without sector {lost}");
                torn[page_size.bytes() - 1] = 1;
                assert!(!is_part_of_header(&torn), "somebody else's, without sector {lost}");
            }
            assert!(!is_part_of_header(&vec![7; page_size.bytes()]));
        }
    }
}
