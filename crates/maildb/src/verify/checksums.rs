//! Checking every page of a database file against its own checksum, in file order.
//!
//! Pages past the last one the database owns are slack, whatever is in them; pages that were never
//! written are all zero. Both are counted and neither is damage.

use crate::{
    error::{Error, Result},
    format::{
        checksum::{PageCheck, check_page},
        header::{DatabaseHeader, HeaderCopies},
        page_size::{PageNumber, PageSize},
    },
};
use std::rc::Rc;
use world::{Buffer, ByteCount, ByteOffset, File};

/// Read at a time; two such reads are under way at once.
const CHUNK_BYTES: u64 = 1024 * 1024;

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
    /// Pages never written.
    pub pages_empty: u32,
    /// Pages that are damaged.
    pub damaged: Vec<PageDamage>,
    /// Bytes read.
    pub bytes: ByteCount,
}

impl DatabaseVerdict {
    /// Whether nothing at all is damaged.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.header_copies_good == 2
    }
}

/// Checks the headers and every page of `file`; `on_progress` is told bytes done and bytes in all.
pub async fn verify_database(
    file: Rc<dyn File>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<DatabaseVerdict> {
    let (header, header_copies_good) = read_header(&file, name).await?;
    let page_size = header.page_size;
    let page_bytes = page_size.bytes() as u64;
    let size = file.geometry().size;
    let mut verdict = DatabaseVerdict {
        page_size,
        header,
        header_copies_good,
        pages_good: 0,
        pages_empty: 0,
        damaged: Vec::new(),
        bytes: ByteCount(2 * page_bytes),
    };
    let end = size.0 - size.0 % page_bytes;
    let mut at = 2 * page_bytes;
    let mut ahead = read_chunk(&file, at, end);
    while at < end {
        let length = CHUNK_BYTES.min(end - at);
        let current = ahead;
        ahead = read_chunk(&file, at + length, end);
        let chunk = current.expect("there is more to read").await?;
        check_chunk(&chunk[0], page_size, PageNumber((at / page_bytes - 1) as u32), &mut verdict);
        at += length;
        verdict.bytes = ByteCount(at);
        on_progress(verdict.bytes, size);
    }
    Ok(verdict)
}

type ChunkRead = world::LocalFuture<world::IoResult<Vec<Buffer>>>;

fn read_chunk(file: &Rc<dyn File>, at: u64, end: u64) -> Option<ChunkRead> {
    let length = CHUNK_BYTES.min(end.saturating_sub(at));
    (length > 0).then(|| file.read(ByteOffset(at), vec![Buffer::zeroed(length as usize)]))
}

/// Checks the pages of `bytes`, of which the first is `first`.
fn check_chunk(bytes: &[u8], page_size: PageSize, first: PageNumber, verdict: &mut DatabaseVerdict) {
    for (index, page) in bytes.chunks_exact(page_size.bytes()).enumerate() {
        let number = PageNumber(first.0 + index as u32);
        match check_page(page, page_size, number) {
            PageCheck::Good => verdict.pages_good += 1,
            PageCheck::Uninitialised => verdict.pages_empty += 1,
            other => verdict.damaged.push(PageDamage { page: number, problem: describe(other) }),
        }
    }
}

/// What is wrong with a page, in words.
pub fn describe(check: PageCheck) -> String {
    match check {
        PageCheck::Good => "nothing is wrong".to_owned(),
        PageCheck::Uninitialised => "it was never written".to_owned(),
        PageCheck::WrongPageNumber { stored } => {
            format!("it is page {stored}, written to or read from the wrong place")
        }
        PageCheck::Bad { block, stored, computed, correctable_bit } => {
            let bit = correctable_bit
                .map(|bit| format!("; bit {} of byte {} is flipped", bit % 8, bit / 8))
                .unwrap_or_default();
            format!("checksum {stored:016x} of block {block} should be {computed:016x}{bit}")
        }
    }
}

/// Reads whichever header copy verifies, and says how many do.
pub async fn read_header(file: &Rc<dyn File>, name: &str) -> Result<(DatabaseHeader, u8)> {
    let damaged = |problem: String| Error::DatabaseDamaged { database: name.to_owned(), problem };
    let size = file.geometry().size.0;
    let start_bytes = (2 * PageSize::BYTES_MAX as u64).min(size - size % 4096);
    if start_bytes == 0 {
        return Err(damaged("the file is too short to be a database".to_owned()));
    }
    let start = file.read(ByteOffset(0), vec![Buffer::zeroed(start_bytes as usize)]).await?;
    let copies = HeaderCopies::decode(&start[0]);
    let good = u8::from(copies.first.is_ok()) + u8::from(copies.shadow.is_ok());
    match copies.best() {
        Ok(header) => Ok((header.clone(), good)),
        Err(error) => Err(damaged(error.to_string())),
    }
}
