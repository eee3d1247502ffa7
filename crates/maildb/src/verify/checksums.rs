//! Checking every page of a database file against its own checksum, in file order.
//!
//! Pages past the last one the database owns are slack, and may be blank; so may those that are free. A blank
//! page that is in use is damaged, if the database was shut down cleanly (`BlankPages`).

use super::{
    blank::BlankPages,
    stamps::{StampsBeside, StampsVerdict},
    walking::WalkedPages,
};
use crate::{
    error::{Error, Result},
    format::{
        checksum::{PageCheck, check_page},
        header::{DatabaseHeader, DatabaseState, read_header},
        page_size::{PageNumber, PageSize},
    },
};
use std::{collections::VecDeque, rc::Rc};
use world::{Buffer, ByteCount, ByteOffset, Directory, File};

/// Read at a time.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Such reads under way at once, while a chunk read before is looked at.
const READS_AHEAD: usize = 2;

/// A page that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDamage {
    /// Which page.
    pub page: PageNumber,
    /// What is wrong with it.
    pub problem: String,
}

/// What a pass over a database found.
#[derive(Clone, Debug)]
pub struct DatabaseVerdict {
    /// Its page size.
    pub page_size: PageSize,
    /// The header used.
    pub header: DatabaseHeader,
    /// How many of the two header copies verify: 1 is a warning.
    pub header_copies_good: u8,
    /// Pages whose checksum is right.
    pub pages_good: u32,
    /// Blank pages that may be: free, or slack; any, if the database was not shut down cleanly, for its log
    /// may hold what belongs there.
    pub pages_empty: u32,
    /// What the stamps beside the database came to.
    pub stamps: StampsVerdict,
    /// Pages that are damaged.
    pub damaged: Vec<PageDamage>,
    /// Bytes read.
    pub bytes: ByteCount,
}

impl DatabaseVerdict {
    /// Whether a blank page that is in use was told as damage: only after a clean shutdown can it be known that
    /// every page in use has been written.
    pub fn blank_are_judged(&self) -> bool {
        self.header.state == DatabaseState::CleanShutdown
    }

    /// Whether nothing at all is damaged.
    pub fn is_clean(&self) -> bool {
        let are_stamps_usable = !matches!(self.stamps, StampsVerdict::Unusable(_));
        self.damaged.is_empty() && self.header_copies_good == 2 && are_stamps_usable
    }
}

/// Checks the headers and every page of `file`; `on_progress` is told bytes done and bytes in all.
pub async fn verify_database(
    file: Rc<dyn File>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseVerdict> {
    let (header, header_copies_good) = header_of(&file, name).await?;
    verify_pages(file, (header, header_copies_good), None, on_progress).await
}

/// Checks the database `name` as [`verify_database`] does, and its pages against the stamps beside it.
pub async fn verify_database_beside(
    directory: &Rc<dyn Directory>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseVerdict> {
    let file = directory.open(name).await?;
    let (header, header_copies_good) = header_of(&file, name).await?;
    let pages_max = (file.geometry().size.0 / header.page_size.bytes() as u64).saturating_sub(2);
    let pages_max = u32::try_from(pages_max).unwrap_or(u32::MAX);
    let (beside, stamps) = StampsBeside::read(directory, name, &header, pages_max).await?;
    let verdict = verify_pages(file, (header, header_copies_good), beside.as_ref(), on_progress).await?;
    Ok(DatabaseVerdict { stamps, ..verdict })
}

async fn verify_pages(
    file: Rc<dyn File>,
    (header, header_copies_good): (DatabaseHeader, u8),
    stamps: Option<&StampsBeside>,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseVerdict> {
    let page_size = header.page_size;
    let page_bytes = page_size.bytes() as u64;
    let size = file.geometry().size;
    let mut verdict = DatabaseVerdict {
        page_size,
        header,
        header_copies_good,
        pages_good: 0,
        pages_empty: 0,
        stamps: StampsVerdict::NotKept,
        damaged: Vec::new(),
        bytes: ByteCount(2 * page_bytes),
    };
    let end = size.0 - size.0 % page_bytes;
    let mut blank = BlankPages::default();
    let mut chunks = Chunks::new(Rc::clone(&file), 2 * page_bytes, end);
    while let Some((at, chunk)) = chunks.next().await? {
        check_chunk(&chunk, stamps, PageNumber((at / page_bytes - 1) as u32), &mut verdict, &mut blank);
        verdict.bytes = ByteCount(at + chunk.len() as u64);
        on_progress(verdict.bytes, size);
        chunks.give_back(chunk);
    }
    verdict.pages_empty = blank.count();
    if verdict.blank_are_judged() {
        for damage in blank.damaged(&mut WalkedPages::new(file, page_size)).await? {
            verdict.pages_empty -= u32::from(blank.contains(damage.page));
            verdict.damaged.push(damage);
        }
        verdict.damaged.sort_by_key(|damage| damage.page);
        verdict.damaged.dedup_by(|consequence, damage| {
            let is_one = consequence.page == damage.page;
            if is_one {
                damage.problem += &format!("; {}", consequence.problem);
            }
            is_one
        });
    }
    Ok(verdict)
}

type ChunkRead = world::LocalFuture<world::IoResult<Vec<Buffer>>>;

/// The chunks of a file in their order, read ahead. Their buffers go round: memory fresh from the kernel has to
/// be cleared first, which takes longer than the check.
struct Chunks {
    file: Rc<dyn File>,
    /// Where the next read begins, and where the last ends.
    at: u64,
    end: u64,
    under_way: VecDeque<(u64, ChunkRead)>,
    spare: Vec<Buffer>,
}

impl Chunks {
    fn new(file: Rc<dyn File>, at: u64, end: u64) -> Self {
        let mut chunks = Self { file, at, end, under_way: VecDeque::new(), spare: Vec::new() };
        for _ in 0..READS_AHEAD {
            chunks.read_next();
        }
        chunks
    }

    fn read_next(&mut self) {
        let length = CHUNK_BYTES.min(self.end.saturating_sub(self.at)) as usize;
        if length == 0 {
            return;
        }
        let buffer = self.spare.pop().filter(|spare| spare.len() == length);
        let buffer = buffer.unwrap_or_else(|| Buffer::zeroed(length));
        self.under_way.push_back((self.at, self.file.read(ByteOffset(self.at), vec![buffer])));
        self.at += length as u64;
    }

    /// The next chunk and where it lies; none at the end.
    async fn next(&mut self) -> Result<Option<(u64, Buffer)>> {
        let Some((at, read)) = self.under_way.pop_front() else { return Ok(None) };
        let mut buffers = read.await?;
        self.read_next();
        Ok(Some((at, buffers.pop().expect("a read returns its buffer"))))
    }

    fn give_back(&mut self, chunk: Buffer) {
        self.spare.push(chunk);
    }
}

/// Checks the pages of `bytes`, of which the first is `first`.
fn check_chunk(
    bytes: &[u8],
    stamps: Option<&StampsBeside>,
    first: PageNumber,
    verdict: &mut DatabaseVerdict,
    blank: &mut BlankPages,
) {
    let page_size = verdict.page_size;
    for (index, page) in bytes.chunks_exact(page_size.bytes()).enumerate() {
        let number = PageNumber(first.0 + index as u32);
        let check = check_page(page, page_size, number);
        if matches!(check, PageCheck::Good | PageCheck::Uninitialised)
            && let Some(problem) = stamps.and_then(|stamps| stamps.problem(number, page))
        {
            verdict.damaged.push(PageDamage { page: number, problem });
            continue;
        }
        match check {
            PageCheck::Good => verdict.pages_good += 1,
            PageCheck::Uninitialised => blank.note(number),
            other => verdict.damaged.push(PageDamage { page: number, problem: other.describe() }),
        }
    }
}

async fn header_of(file: &Rc<dyn File>, name: &str) -> Result<(DatabaseHeader, u8)> {
    let copies = read_header(file).await?;
    match copies.best() {
        Ok(header) => Ok((header.clone(), copies.good_count())),
        Err(error) => Err(Error::DatabaseDamaged { database: name.to_owned(), problem: error.to_string() }),
    }
}
