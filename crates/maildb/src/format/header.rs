//! The database header: one page-sized block, written twice at the start of the file.

use std::rc::Rc;
use thiserror::Error;
use world::{Buffer, ByteOffset, File, IoResult};

pub use super::log_position::{LogPosition, LogTime, Signature};
use super::{
    checksum::old_xor,
    page_size::{DbTime, ObjectId, PageSize},
};

/// Magic number of ESE databases.
const MAGIC: u32 = 0x89AB_CDEF;
/// Major version of the format, the same since Exchange 2000.
const VERSION: u32 = 0x620;
/// Format revision written by this engine: that of Exchange 2016's first release (620.20.0).
const UPDATE_MAJOR: u32 = 20;
/// First revision with the XOR and ECC page checksum; older databases are rejected.
const UPDATE_MAJOR_MIN: u32 = 11;
/// File type of a database, at `field::FILE_TYPE` in every ESE file.
const FILE_TYPE_DATABASE: u32 = 1;

mod field {
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 4;
    pub const VERSION: usize = 8;
    pub const DBTIME: usize = 16;
    pub const SIGNATURE: usize = 24;
    pub const STATE: usize = 52;
    pub const CONSISTENT: usize = 56;
    pub const CONSISTENT_TIME: usize = 64;
    pub const ATTACH_TIME: usize = 72;
    pub const ATTACH: usize = 80;
    pub const DETACH_TIME: usize = 88;
    pub const DETACH: usize = 96;
    pub const DATABASE_ID: usize = 104;
    pub const LOG_SIGNATURE: usize = 108;
    pub const OBJECT_ID_LAST: usize = 212;
    pub const UPDATE_MAJOR: usize = 232;
    pub const PAGE_BYTES: usize = 236;
    pub const GENERATION_MIN_REQUIRED: usize = 296;
    pub const GENERATION_MAX_REQUIRED: usize = 300;
    pub const SNAPSHOT_BACKUP: usize = 316;
    pub const CREATE_VERSION: usize = 340;
    pub const CREATE_UPDATE: usize = 344;
    pub const GENERATION_MAX_CREATED: usize = 348;
    pub const GENERATION_MAX_COMMITTED: usize = 416;
    pub const UPDATE_MINOR: usize = 644;
    pub const FILE_TYPE: usize = 667;
}

/// Consistency of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum DatabaseState {
    /// Created, never opened.
    #[default]
    JustCreated = 1,
    /// Open or not closed cleanly: recovery needs the log generations named in the header.
    DirtyShutdown = 2,
    /// Closed cleanly: consistent without the log.
    CleanShutdown = 3,
    /// A conversion is in progress.
    BeingConverted = 4,
    /// Detached by force.
    ForceDetached = 5,
    /// An incremental reseed is in progress.
    IncrementalReseed = 6,
    /// Dirty, and pages were patched in.
    DirtyAndPatched = 7,
    /// A revert to a snapshot is in progress.
    Reverting = 8,
}

impl DatabaseState {
    const ALL: [Self; 8] = [
        Self::JustCreated,
        Self::DirtyShutdown,
        Self::CleanShutdown,
        Self::BeingConverted,
        Self::ForceDetached,
        Self::IncrementalReseed,
        Self::DirtyAndPatched,
        Self::Reverting,
    ];

    /// The state with ESE's number `number`.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u32 == number)
    }
}

/// The fields of a database header. All other fields of ESE are written as zero, which means "none" or
/// "never" for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHeader {
    pub page_size: PageSize,
    /// Signature of the database.
    pub signature: Signature,
    /// Signature of the log the database is used with.
    pub log_signature: Signature,
    pub state: DatabaseState,
    /// The database's dbtime when the header was last written.
    pub dbtime: DbTime,
    /// Log position at which the database was last consistent.
    pub consistent: LogPosition,
    /// Time of `consistent`.
    pub consistent_time: LogTime,
    /// Log position of the last attach.
    pub attach: LogPosition,
    /// Time of `attach`.
    pub attach_time: LogTime,
    /// Log position of the last detach; zero while attached.
    pub detach: LogPosition,
    /// Time of `detach`.
    pub detach_time: LogTime,
    /// Number of the database within its storage group.
    pub database_id: u32,
    /// Highest object number in use.
    pub object_id_last: ObjectId,
    /// First log generation that recovery needs, 0 if none.
    pub generation_min_required: u32,
    /// Last log generation that recovery needs: pages on disk may hold changes logged there. 0 if none.
    pub generation_max_required: u32,
    /// Creation time of generation `generation_max_required`.
    pub generation_max_created: LogTime,
    /// Last log generation begun; losing those after the last required one does not harm the database. 0 if
    /// none.
    pub generation_max_committed: u32,
    /// The freeze under which this header was written: ESE's "current shadow copy backup". The copy of a
    /// database that was taken while its group was frozen has it; the database itself loses it at the next
    /// checkpoint.
    pub snapshot: Option<SnapshotMark>,
}

/// Mark of a freeze in a database header (ESE's BKINFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMark {
    /// End of the log when the group was frozen.
    pub position: LogPosition,
    pub time: LogTime,
    /// First log generation that the copy needs.
    pub generation_min: u32,
    /// Last log generation that the copy needs.
    pub generation_max: u32,
}

impl SnapshotMark {
    const BYTES: usize = 24;
    /// Bit of the last byte of the time: the copy is one of the volume, not a stream of pages.
    const BY_VOLUME: u8 = 1;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.position.encode());
        bytes[8..16].copy_from_slice(&self.time.encode());
        bytes[15] |= Self::BY_VOLUME;
        bytes[16..20].copy_from_slice(&self.generation_min.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.generation_max.to_le_bytes());
        bytes
    }

    /// `None` if no position is set: ESE takes that for no backup.
    fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let position = LogPosition::decode(chunk(bytes, 0));
        let mut time: [u8; 8] = *chunk(bytes, 8);
        time[7] &= !Self::BY_VOLUME;
        (position != LogPosition::default()).then(|| Self {
            position,
            time: LogTime::decode(&time),
            generation_min: u32_at(bytes, 16),
            generation_max: u32_at(bytes, 20),
        })
    }
}

/// Reasons why bytes do not decode as a database header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The magic number is wrong: not an ESE database, or the header is destroyed.
    #[error("this is not an ESE database")]
    NotADatabase,
    /// The page size does not exist, or does not match the bytes read.
    #[error("the header's page size of {bytes} bytes is impossible")]
    PageSize { bytes: u32 },
    /// The checksum is wrong.
    #[error("the header's checksum is 0x{stored:08X}, computed 0x{computed:08X}")]
    Checksum { stored: u32, computed: u32 },
    /// An unsupported version of the format.
    #[error("format version 0x{version:X}.{update} is not supported")]
    Version { version: u32, update: u32 },
    /// The file is of another ESE file type.
    #[error("this is an ESE file of type {file_type}, not a database")]
    FileType { file_type: u32 },
    /// The state number does not exist.
    #[error("database state {state} does not exist")]
    State { state: u32 },
    /// The file ends before its first header does.
    #[error("the file is too short to be a database")]
    TooShort,
}

/// Both copies of a database header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCopies {
    /// The copy at the start of the file.
    pub first: Result<DatabaseHeader, HeaderError>,
    /// The copy one page further on.
    pub shadow: Result<DatabaseHeader, HeaderError>,
}

impl HeaderCopies {
    /// The header to use: the first copy, which is written first and so is never older, else the second. If
    /// both are bad, the first copy's error.
    pub fn best(&self) -> Result<&DatabaseHeader, HeaderError> {
        self.first
            .as_ref()
            .or(self.shadow.as_ref())
            .map_err(|_| self.first.clone().expect_err("both are bad"))
    }

    /// Number of copies that verify, 0 to 2.
    pub fn good_count(&self) -> u8 {
        u8::from(self.first.is_ok()) + u8::from(self.shadow.is_ok())
    }

    /// Decodes both copies from the first bytes of a file; twice the largest page is enough. The page size
    /// comes from the first copy; if that is bad, the second is tried at every page size.
    pub fn decode(file_start: &[u8]) -> Self {
        let first = DatabaseHeader::decode(file_start);
        let shadow_at = |size: PageSize| {
            let bytes = file_start.get(size.bytes()..).unwrap_or_default();
            DatabaseHeader::decode(bytes).and_then(|header| {
                if header.page_size == size {
                    Ok(header)
                } else {
                    Err(HeaderError::PageSize { bytes: header.page_size.bytes() as u32 })
                }
            })
        };
        let shadow = match &first {
            Ok(header) => shadow_at(header.page_size),
            Err(_) => {
                let found = PageSize::ALL.into_iter().find_map(|size| shadow_at(size).ok());
                found.ok_or(HeaderError::NotADatabase)
            }
        };
        Self { first, shadow }
    }
}

/// Reads both copies of the header of a database file.
pub async fn read_header(file: &Rc<dyn File>) -> IoResult<HeaderCopies> {
    let size = file.geometry().size.0;
    let start_bytes = (2 * PageSize::BYTES_MAX as u64).min(size - size % 4096);
    if start_bytes == 0 {
        return Ok(HeaderCopies { first: Err(HeaderError::TooShort), shadow: Err(HeaderError::TooShort) });
    }
    let start = file.read(ByteOffset(0), vec![Buffer::zeroed(start_bytes as usize)]).await?;
    Ok(HeaderCopies::decode(&start[0]))
}

impl DatabaseHeader {
    /// A header for a new database that has not been attached to a log.
    pub fn new(page_size: PageSize, signature: Signature, object_id_last: ObjectId) -> Self {
        Self {
            page_size,
            signature,
            log_signature: Signature::default(),
            state: DatabaseState::JustCreated,
            dbtime: DbTime(0),
            consistent: LogPosition::default(),
            consistent_time: LogTime::default(),
            attach: LogPosition::default(),
            attach_time: LogTime::default(),
            detach: LogPosition::default(),
            detach_time: LogTime::default(),
            database_id: 0,
            object_id_last,
            generation_min_required: 0,
            generation_max_required: 0,
            generation_max_created: LogTime::default(),
            generation_max_committed: 0,
            snapshot: None,
        }
    }

    /// Encodes the header as one page, checksum included.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; self.page_size.bytes()];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(field::MAGIC, &MAGIC.to_le_bytes());
        put(field::VERSION, &VERSION.to_le_bytes());
        put(field::DBTIME, &self.dbtime.0.to_le_bytes());
        put(field::SIGNATURE, &self.signature.encode());
        put(field::STATE, &(self.state as u32).to_le_bytes());
        put(field::CONSISTENT, &self.consistent.encode());
        put(field::CONSISTENT_TIME, &self.consistent_time.encode());
        put(field::ATTACH_TIME, &self.attach_time.encode());
        put(field::ATTACH, &self.attach.encode());
        put(field::DETACH_TIME, &self.detach_time.encode());
        put(field::DETACH, &self.detach.encode());
        put(field::DATABASE_ID, &self.database_id.to_le_bytes());
        put(field::LOG_SIGNATURE, &self.log_signature.encode());
        put(field::OBJECT_ID_LAST, &self.object_id_last.0.to_le_bytes());
        put(field::UPDATE_MAJOR, &UPDATE_MAJOR.to_le_bytes());
        put(field::PAGE_BYTES, &(self.page_size.bytes() as u32).to_le_bytes());
        put(field::GENERATION_MIN_REQUIRED, &self.generation_min_required.to_le_bytes());
        put(field::GENERATION_MAX_REQUIRED, &self.generation_max_required.to_le_bytes());
        if let Some(snapshot) = &self.snapshot {
            put(field::SNAPSHOT_BACKUP, &snapshot.encode());
        }
        put(field::CREATE_VERSION, &VERSION.to_le_bytes());
        put(field::CREATE_UPDATE, &UPDATE_MAJOR.to_le_bytes());
        put(field::GENERATION_MAX_CREATED, &self.generation_max_created.encode());
        put(field::GENERATION_MAX_COMMITTED, &self.generation_max_committed.to_le_bytes());
        put(field::UPDATE_MINOR, &0_u32.to_le_bytes());
        put(field::FILE_TYPE, &FILE_TYPE_DATABASE.to_le_bytes());
        let checksum = old_xor(&block);
        block[field::CHECKSUM..][..4].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Decodes one copy. `bytes` may be longer than a page.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < PageSize::Kib2.bytes() || u32_at(bytes, field::MAGIC) != MAGIC {
            return Err(HeaderError::NotADatabase);
        }
        // Databases older than this field have 4 KiB pages and store zero.
        let page_bytes = match u32_at(bytes, field::PAGE_BYTES) {
            0 => PageSize::Kib4.bytes() as u32,
            bytes => bytes,
        };
        let page_size = PageSize::from_bytes(page_bytes).filter(|size| size.bytes() <= bytes.len());
        let page_size = page_size.ok_or(HeaderError::PageSize { bytes: page_bytes })?;
        let block = &bytes[..page_size.bytes()];
        let (stored, computed) = (u32_at(block, field::CHECKSUM), old_xor(block));
        if stored != computed {
            return Err(HeaderError::Checksum { stored, computed });
        }
        let (version, update) = (u32_at(block, field::VERSION), u32_at(block, field::UPDATE_MAJOR));
        if version != VERSION || update < UPDATE_MAJOR_MIN {
            return Err(HeaderError::Version { version, update });
        }
        let file_type = u32_at(block, field::FILE_TYPE);
        if file_type != FILE_TYPE_DATABASE {
            return Err(HeaderError::FileType { file_type });
        }
        let state = u32_at(block, field::STATE);
        let state = DatabaseState::from_number(state).ok_or(HeaderError::State { state })?;
        Ok(Self::from_block(block, page_size, state))
    }

    fn from_block(block: &[u8], page_size: PageSize, state: DatabaseState) -> Self {
        let position = |at: usize| LogPosition::decode(chunk(block, at));
        let time = |at: usize| LogTime::decode(chunk(block, at));
        Self {
            page_size,
            signature: Signature::decode(chunk(block, field::SIGNATURE)),
            log_signature: Signature::decode(chunk(block, field::LOG_SIGNATURE)),
            state,
            dbtime: DbTime(u64::from_le_bytes(*chunk(block, field::DBTIME))),
            consistent: position(field::CONSISTENT),
            consistent_time: time(field::CONSISTENT_TIME),
            attach: position(field::ATTACH),
            attach_time: time(field::ATTACH_TIME),
            detach: position(field::DETACH),
            detach_time: time(field::DETACH_TIME),
            database_id: u32_at(block, field::DATABASE_ID),
            object_id_last: ObjectId(u32_at(block, field::OBJECT_ID_LAST)),
            generation_min_required: u32_at(block, field::GENERATION_MIN_REQUIRED),
            generation_max_required: u32_at(block, field::GENERATION_MAX_REQUIRED),
            generation_max_created: time(field::GENERATION_MAX_CREATED),
            generation_max_committed: u32_at(block, field::GENERATION_MAX_COMMITTED),
            snapshot: SnapshotMark::decode(chunk(block, field::SNAPSHOT_BACKUP)),
        }
    }
}

fn chunk<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("inside the block")
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*chunk(block, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position() -> impl Strategy<Value = LogPosition> {
        any::<(u32, u16, u16)>().prop_map(|(generation, segment, offset)| LogPosition {
            generation,
            segment,
            offset,
        })
    }

    fn time() -> impl Strategy<Value = LogTime> {
        (0..5_869_584_000_000_u64).prop_map(LogTime::from_unix_ms)
    }

    fn signature() -> impl Strategy<Value = Signature> {
        (any::<u32>(), time(), any::<[u8; 16]>()).prop_map(|(random, created, computer)| Signature {
            random,
            created,
            computer,
        })
    }

    fn snapshot() -> impl Strategy<Value = Option<SnapshotMark>> {
        let mark = (position(), time(), any::<[u32; 2]>());
        let mark = mark.prop_map(|(position, time, [generation_min, generation_max])| {
            let is_set = position != LogPosition::default();
            is_set.then_some(SnapshotMark { position, time, generation_min, generation_max })
        });
        prop_oneof![Just(None), mark]
    }

    fn header() -> impl Strategy<Value = DatabaseHeader> {
        let marks = (signature(), signature(), any::<u64>(), any::<[u32; 5]>(), time(), snapshot());
        let places = ((position(), time()), (position(), time()), (position(), time()));
        let kinds =
            (prop::sample::select(PageSize::ALL.to_vec()), prop::sample::select(DatabaseState::ALL.to_vec()));
        (marks, places, kinds).prop_map(|(marks, places, (page_size, state))| {
            let (signature, log_signature, dbtime, [id, last, min, max, committed], created, snapshot) =
                marks;
            let ((consistent, consistent_time), (attach, attach_time), (detach, detach_time)) = places;
            DatabaseHeader {
                page_size,
                signature,
                log_signature,
                state,
                dbtime: DbTime(dbtime),
                consistent,
                consistent_time,
                attach,
                attach_time,
                detach,
                detach_time,
                database_id: id,
                object_id_last: ObjectId(last),
                generation_min_required: min,
                generation_max_required: max,
                generation_max_created: created,
                generation_max_committed: committed,
                snapshot,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn either_copy_alone_gives_the_header_back(header in header(), at: prop::sample::Index, flip in 1..=u8::MAX) {
            let block = header.encode();
            let mut file = [block.clone(), block.clone()].concat();
            prop_assert_eq!(HeaderCopies::decode(&file), HeaderCopies { first: Ok(header.clone()), shadow: Ok(header.clone()) });
            let at = at.index(file.len());
            file[at] ^= flip;
            let copies = HeaderCopies::decode(&file);
            prop_assert_eq!(copies.first.is_err(), at < block.len());
            prop_assert_eq!(copies.shadow.is_err(), at >= block.len());
            prop_assert_eq!(copies.best(), Ok(&header));
        }

        #[test]
        fn any_bytes_are_safe_to_decode(mut bytes in prop::collection::vec(any::<u8>(), 0..5000), page_bytes: u32) {
            if bytes.len() > 300 {
                bytes[4..8].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[236..240].copy_from_slice(&page_bytes.to_le_bytes());
            }
            prop_assert!(HeaderCopies::decode(&bytes).best().is_err());
        }
    }
}
