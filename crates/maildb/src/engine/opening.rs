//! Opens the database files of a group: finds, checks, creates and attaches them.
//!
//! All checks that may refuse come before the first write, so that a group that does not open leaves its
//! databases unchanged.

use super::{
    DatabaseIndex,
    core::OpenDatabase,
    database::{DBTIME_OF_MAKING, make_database, write_header},
    page_stamps::{self, LoggedStamps, PageStamps, StampContext},
};
use crate::{
    config::{DATABASES_MAX, DatabaseLocation, PageStampMode},
    error::{Error, Result},
    format::{
        bootstrap::LAST_SYSTEM_OBJECT,
        header::{
            DatabaseHeader, DatabaseState as ShutdownState, HeaderError, LogPosition, LogTime, Signature,
            read_header,
        },
        page_size::PageSize,
    },
    log::{CheckpointFile, LogCheckpoint},
};
use std::{collections::BTreeMap, rc::Rc};
use world::{ByteCount, File, IoErrorKind, World};

/// For a checkpoint that requires no page stamps.
const NO_STAMPS: [u64; DATABASES_MAX] = [0; DATABASES_MAX];

/// Prepares all databases of a group for redo, and creates missing ones. Also returns the number of databases
/// whose page stamps start from scratch.
pub async fn attach(
    world: &World,
    opened: Vec<DatabaseFile>,
    stamps: &StampSettings,
    log_signature: Signature,
    page_size: PageSize,
) -> Result<(Vec<OpenDatabase>, u32)> {
    for (index, database) in opened.iter().enumerate() {
        database.check_belongs(index, log_signature)?;
    }
    let mut known = Vec::with_capacity(opened.len());
    for (index, database) in opened.iter().enumerate() {
        known.push(match &database.header {
            Some(_) => stamps.open(world, database, index).await?,
            None => None,
        });
    }
    let mut states = Vec::with_capacity(opened.len());
    let mut begun = 0;
    for ((index, mut database), known) in opened.into_iter().enumerate().zip(known) {
        let is_new = database.header.is_none();
        database.attach_to(world, index, log_signature, stamps.log_end, page_size).await?;
        let kept = if is_new { stamps.open(world, &database, index).await? } else { known };
        let mut state = database.into_state();
        if let Some((stamps, is_begun)) = kept {
            begun += u32::from(is_begun);
            if let Some(flush) = stamps.flush() {
                state.dbtime = state.dbtime.max(flush.dbtime);
            }
            state.stamps = Some(stamps);
        }
        states.push(state);
    }
    Ok((states, begun))
}

/// Settings for opening the page stamps of a group.
pub struct StampSettings {
    pub mode: PageStampMode,
    pub checkpoint: Option<LogCheckpoint>,
    pub logged: LoggedStamps,
    pub log_end: LogPosition,
    pub log_found_until: Option<LogPosition>,
}

impl StampSettings {
    /// If stamps are no longer durable: makes the checkpoint require none.
    pub async fn release_requirement(&self, file: &CheckpointFile) -> Result<()> {
        match self.checkpoint {
            Some(checkpoint) if self.mode != PageStampMode::Durable && checkpoint.stamps != NO_STAMPS => {
                Ok(file.write(&LogCheckpoint { stamps: NO_STAMPS, ..checkpoint }).await?)
            }
            _ => Ok(()),
        }
    }

    /// Opens the stamps of a database; true if they start from scratch. `None` if stamps are off.
    async fn open(
        &self,
        world: &World,
        database: &DatabaseFile,
        index: usize,
    ) -> Result<Option<(PageStamps, bool)>> {
        let (directory, name) = (&database.location.directory, database.name());
        if self.mode == PageStampMode::Off {
            page_stamps::give_up(directory, name).await?;
            return Ok(None);
        }
        let header = database.header.as_ref().expect("known or made by now");
        let file = database.file.as_ref().expect("it has a header");
        let opening = StampContext {
            directory,
            database: name,
            index: DatabaseIndex(index as u8),
            header,
            pages_max: pages_of(&**file, header.page_size),
            required_flush: self.checkpoint.map_or(0, |checkpoint| checkpoint.stamps[index]),
            log_end: self.log_end,
            log_found_until: self.log_found_until,
        };
        match self.mode {
            PageStampMode::WhileOpen => opening.open_in_memory(world).await.map(Some),
            PageStampMode::Durable | PageStampMode::Off => opening.open(world, &self.logged).await.map(Some),
        }
    }
}

/// A database file being opened.
pub struct DatabaseFile {
    location: DatabaseLocation,
    /// `None` if the file does not exist.
    file: Option<Rc<dyn File>>,
    /// `None` if the file does not exist, or its creation was interrupted.
    header: Option<DatabaseHeader>,
}

impl DatabaseFile {
    fn name(&self) -> &str {
        &self.location.file_name
    }

    /// The file, created if it does not exist.
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

    /// Refuses a database of another group, or of another position in this one.
    fn check_belongs(&self, index: usize, log_signature: Signature) -> Result<()> {
        let Some(header) = &self.header else { return Ok(()) };
        if header.log_signature != log_signature {
            return Err(Error::DatabaseDamaged {
                database: self.name().to_owned(),
                problem: "it belongs to another storage group's log".to_owned(),
            });
        }
        let number = index as u32 + 1;
        if header.database_id != number {
            return Err(Error::Configuration(format!(
                "{} is database {} of its storage group, but was listed as number {number}",
                self.name(),
                header.database_id
            )));
        }
        Ok(())
    }

    /// Creates the database if it does not exist, and marks it as in use by this log.
    async fn attach_to(
        &mut self,
        world: &World,
        index: usize,
        log_signature: Signature,
        end: LogPosition,
        page_size: PageSize,
    ) -> Result<()> {
        let database_id = index as u32 + 1;
        let file = self.file(page_size).await?;
        let mut header = match self.header.take() {
            Some(header) => header,
            None => {
                let signature = new_signature(world, self.name());
                let mut header = DatabaseHeader::new(page_size, signature, LAST_SYSTEM_OBJECT);
                header.log_signature = log_signature;
                // Earlier records refer to another database of that number, or to none.
                header.attach = end;
                header.attach_time = log_time(world);
                header.database_id = database_id;
                make_database(&file, &header).await?;
                header
            }
        };
        if header.state != ShutdownState::DirtyShutdown {
            header.state = ShutdownState::DirtyShutdown;
            write_header(&file, &header).await?;
        }
        self.header = Some(header);
        Ok(())
    }

    fn into_state(self) -> OpenDatabase {
        let header = self.header.expect("attached before");
        OpenDatabase {
            name: self.location.file_name,
            file: self.file.expect("made before"),
            dbtime: header.dbtime.max(DBTIME_OF_MAKING),
            pages: 0,
            object_last: header.object_id_last,
            tables: BTreeMap::new(),
            stamps: None,
            growing: None,
            header_time_stable: header.dbtime,
            header,
        }
    }
}

pub async fn open_file(location: &DatabaseLocation, page_size: PageSize) -> Result<DatabaseFile> {
    let name = &location.file_name;
    let nothing = DatabaseFile { location: location.clone(), file: None, header: None };
    let file = match location.directory.open(name).await {
        Ok(file) => file,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(nothing),
        Err(error) => return Err(error.into()),
    };
    // Writes of a process that died may still be in the drive's cache. From here on they count as stable:
    // redo skips a page that is new enough, and the checkpoint passes it.
    file.flush().await?;
    location.directory.sync().await?;
    let file_only = DatabaseFile { file: Some(Rc::clone(&file)), ..nothing };
    if creation_was_interrupted(&file, page_size).await? {
        return Ok(file_only);
    }
    let header = match read_header(&file).await?.best() {
        Ok(header) => header.clone(),
        Err(error) => {
            return Err(Error::DatabaseDamaged { database: name.to_owned(), problem: error.to_string() });
        }
    };
    if header.page_size != page_size {
        return Err(Error::Configuration(format!(
            "{name} has pages of {} bytes, not {}",
            header.page_size.bytes(),
            page_size.bytes()
        )));
    }
    Ok(DatabaseFile { header: Some(header), ..file_only })
}

/// True if the creation of a database was interrupted: the second copy of its header, written last, is all
/// zero, and so is the first or part of it.
async fn creation_was_interrupted(file: &Rc<dyn File>, page_size: PageSize) -> Result<bool> {
    let bytes = 2 * page_size.bytes();
    if file.geometry().size.0 < bytes as u64 {
        return Ok(file.geometry().size.0 == 0);
    }
    let buffers = file.read(world::ByteOffset(0), vec![world::Buffer::zeroed(bytes)]).await?;
    let (first, shadow) = buffers[0].split_at(page_size.bytes());
    Ok(is_zero(shadow) && (is_zero(first) || is_part_of_header(first)))
}

/// True if a block is a header that lost one of its two non-zero sectors in a power cut. Any other file may
/// belong to someone else and must not be overwritten.
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

/// Pages that a file has room for behind the two header pages.
fn pages_of(file: &dyn File, page_size: PageSize) -> u32 {
    let pages = (file.geometry().size.0 / page_size.bytes() as u64).saturating_sub(2);
    u32::try_from(pages).unwrap_or(u32::MAX)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Refuses to create a database that the group had before: its volume is probably not mounted.
pub fn refuse_lost(opened: &[DatabaseFile], databases_known: usize) -> Result<()> {
    if opened.len() < databases_known {
        let problem = format!(
            "the storage group has {databases_known} databases; list all of them, in their original order"
        );
        return Err(Error::Configuration(problem));
    }
    match opened.iter().take(databases_known).find(|database| database.header.is_none()) {
        None => Ok(()),
        Some(lost) => Err(Error::DatabaseDamaged {
            database: lost.name().to_owned(),
            problem: "it is missing, although its storage group has used it; is its volume mounted?"
                .to_owned(),
        }),
    }
}

/// Refuses to open a database that was in use without its log.
pub fn refuse_orphans(opened: &[DatabaseFile]) -> Result<()> {
    for database in opened {
        if database.header.is_some() {
            return Err(Error::DatabaseDamaged {
                database: database.name().to_owned(),
                problem: "the log of its storage group is missing; restore the log files it was used with"
                    .to_owned(),
            });
        }
    }
    Ok(())
}

pub fn new_signature(world: &World, name: &str) -> Signature {
    let random = world.random(&format!("signature of {name} at {}", world.wall().seconds)).next_u64() as u32;
    Signature { random, created: log_time(world), computer: [0; 16] }
}

pub fn log_time(world: &World) -> LogTime {
    let wall = world.wall();
    LogTime::from_unix_ms(wall.seconds.max(0) as u64 * 1000 + u64::from(wall.nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_header_torn_in_its_first_write_counts_as_unfinished() {
        for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
            let signature = Signature { random: 9, created: LogTime::from_unix_ms(5), computer: [0; 16] };
            let whole = DatabaseHeader::new(page_size, signature, LAST_SYSTEM_OBJECT).encode();
            assert!(!is_part_of_header(&whole));
            for lost in 0..2 {
                let mut torn = whole.clone();
                torn[lost * 512..(lost + 1) * 512].fill(0);
                assert!(is_part_of_header(&torn), "without sector {lost}");
                torn[page_size.bytes() - 1] = 1;
                assert!(!is_part_of_header(&torn), "another file, without sector {lost}");
            }
            assert!(!is_part_of_header(&vec![7; page_size.bytes()]));
        }
    }
}
