//! A copy in which single flipped bits are put right.
//!
//! Invariants:
//!
//! 1. The file that is copied is open for reading alone, and nothing that is there is written over: the copy gets its
//!    name when it is whole and stable, and only if nobody has that name.
//! 2. A bit is flipped only if its page (segment, page of a map) verifies afterwards; else the bytes stay as they were.

use super::{pace::Pace, places::Candidate, reading::CHUNK_BYTES, source::Source};
use crate::{
    BitFix, FileKind, Finding, Severity,
    database::{Owned, Pages, judge_headers},
    flush_map::{MAP_PAGE_BYTES, judge_map_pages},
    kind::START_BYTES,
    log::judge_log,
};
use maildb::PageNumber;
use std::{
    path::{Path, PathBuf},
    process,
    sync::Arc,
};
use thiserror::Error;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoError, Stability,
    real::{FileDevice, host_files},
};

/// Sizes of files that are made anew.
const SIZE_UNIT: u64 = 4096;

/// What was put right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// The bits, and what verifies since they are flipped.
    pub fixed: Vec<Finding>,
}

/// Why there is no copy.
#[derive(Debug, Error)]
pub enum MendError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] IoError),
    /// There is nothing in it that could be put right.
    #[error("{} is {what}: there are no checksums in it that could put a bit right", path.display())]
    Unmendable {
        /// Which file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It was asked to end; nothing is left.
    #[error("it was ended before the copy was whole; nothing is left of it")]
    Stopped,
}

/// Copies `candidate` to `out`, which is not there yet, with every single flipped bit put right.
pub async fn mend(candidate: &Candidate, out: &Path, pace: &Pace) -> Result<Mended, MendError> {
    let source = Source::open(&candidate.path)?;
    let unmendable = |what| MendError::Unmendable { path: candidate.path.clone(), what };
    let judge = match candidate.kind {
        FileKind::Database => {
            let start = source.read_any(0, START_BYTES).await?;
            let facts = judge_headers(&start, source.size()).facts;
            let facts = facts.ok_or_else(|| unmendable("a database without headers"))?;
            // What is slack and what is not makes no difference to a page that verifies with one bit flipped.
            let all = Owned::Unknown("all are looked at".to_owned());
            Judge::Pages(Pages::new(&facts, all, source.size()))
        }
        FileKind::Log if source.size().0 <= super::small::LOG_BYTES_MAX => Judge::Log,
        FileKind::FlushMap => Judge::Map,
        FileKind::TemporaryDatabase => return Err(unmendable("a temporary database")),
        FileKind::Checkpoint => return Err(unmendable("a checkpoint")),
        _ => return Err(unmendable("neither a database nor a log")),
    };
    let temporary = temporary_beside(out);
    let copied = copy(&source, &judge, &temporary, pace).await;
    let named = match copied {
        Ok(mended) => {
            host_files::name_new(&temporary, source.size().0, out).map(|()| mended).map_err(MendError::Io)
        }
        Err(error) => Err(error),
    };
    if named.is_err() {
        // The failure is the news; half a copy helps nobody.
        let _ = host_files::remove_file(&temporary);
    }
    named
}

/// What says whether a part of the file verifies.
enum Judge {
    Pages(Pages),
    Log,
    Map,
}

impl Judge {
    /// Bytes that are judged and written at once: parts of a log can be judged with all others only.
    fn chunk_bytes(&self, size: ByteCount) -> usize {
        match self {
            Self::Log => size.0.max(1) as usize,
            _ => CHUNK_BYTES,
        }
    }

    /// What is wrong with the chunk at `at`, and could be put right.
    fn flaws(&self, at: u64, chunk: &[u8]) -> Vec<Finding> {
        let findings = match self {
            Self::Log => judge_log(chunk, false).findings,
            Self::Pages(pages) => {
                let page_bytes = pages.page_size().bytes() as u64;
                // Headers have no code that finds a bit.
                let skipped = (2 * page_bytes).saturating_sub(at).min(chunk.len() as u64);
                let first = PageNumber(((at + skipped) / page_bytes - 1) as u32);
                pages.judge_chunk(first, &chunk[skipped as usize..]).findings
            }
            Self::Map => {
                let page_bytes = MAP_PAGE_BYTES as u64;
                let skipped = page_bytes.saturating_sub(at).min(chunk.len() as u64);
                let first = ((at + skipped) / page_bytes - 1) as u32;
                judge_map_pages(first, &chunk[skipped as usize..]).findings
            }
        };
        findings
            .into_iter()
            .filter(|finding| finding.severity != Severity::Note && finding.fix.is_some())
            .collect()
    }

    /// Puts right what can be in the chunk at `at`; gives what was.
    fn put_right(&self, at: u64, chunk: &mut [u8]) -> Vec<Finding> {
        let mut fixed = Vec::new();
        for flaw in self.flaws(at, chunk) {
            let Some(BitFix { byte, bit }) = flaw.fix else { continue };
            let index = byte.0.checked_sub(at).and_then(|index| usize::try_from(index).ok());
            let Some(index) = index.filter(|&index| index < chunk.len()) else { continue };
            chunk[index] ^= 1 << bit;
            let is_right = self.is_right(at, chunk, &flaw);
            match is_right {
                true => fixed.push(flaw),
                false => chunk[index] ^= 1 << bit,
            }
        }
        fixed
    }

    /// Whether what `flaw` is about verifies.
    fn is_right(&self, at: u64, chunk: &[u8], flaw: &Finding) -> bool {
        let place = flaw.place.offset.0;
        let part = |bytes: usize| {
            let from = usize::try_from(place.checked_sub(at)?).ok()?;
            chunk.get(from..from.checked_add(bytes)?)
        };
        match self {
            Self::Pages(pages) => part(pages.page_size().bytes()).is_some_and(|page| {
                let number = place / page.len() as u64 - 1;
                pages.judge_chunk(PageNumber(number as u32), page).damaged == 0
            }),
            Self::Map => part(MAP_PAGE_BYTES).is_some_and(|page| {
                let number = place / page.len() as u64 - 1;
                judge_map_pages(number as u32, page).damaged == 0
            }),
            Self::Log => self.flaws(at, chunk).iter().all(|left| left.place != flaw.place),
        }
    }
}

async fn copy(source: &Source, judge: &Judge, to: &Path, pace: &Pace) -> Result<Mended, MendError> {
    let size = source.size();
    let device = FileDevice::create(to, ByteCount(size.0.next_multiple_of(SIZE_UNIT))).await?;
    pace.expect(size.0);
    let mut mended = Mended::default();
    let chunk_bytes = judge.chunk_bytes(size) as u64;
    let mut at = 0;
    while at < size.0 {
        pace.wait().await;
        if pace.is_stopped() {
            return Err(MendError::Stopped);
        }
        let length = chunk_bytes.min(size.0 - at) as usize;
        pace.slow(length as u64);
        let mut chunk = source.read(ByteOffset(at), length, None).await?;
        mended.fixed.extend(judge.put_right(at, &mut chunk));
        device.write(ByteOffset(at), vec![Arc::new(in_units(chunk))], Stability::Volatile).await?;
        pace.done(length as u64);
        at += length as u64;
    }
    device.flush().await?;
    Ok(mended)
}

/// The same bytes, with zeros behind them up to what can be written.
fn in_units(chunk: Buffer) -> Buffer {
    let length = chunk.len().next_multiple_of(SIZE_UNIT as usize);
    if length == chunk.len() {
        return chunk;
    }
    let mut longer = Buffer::zeroed(length);
    longer[..chunk.len()].copy_from_slice(&chunk);
    longer
}

fn temporary_beside(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!(".{name}.{}.tmp", process::id()))
}
