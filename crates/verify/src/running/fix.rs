//! Writes a copy of a file with single flipped bits corrected.
//!
//! Invariants:
//!
//! 1. The original is open for reading only, and nothing is overwritten: the copy gets its name when it is
//!    complete and stable, and only if that name is free.
//! 2. A bit is flipped only if its page (segment, map page) verifies afterwards; otherwise the bytes stay as
//!    they were.

use super::{places::Candidate, rate_limiter::RateLimiter, reading::CHUNK_BYTES, source::Source};
use crate::{
    BitFix, FileFinding, FileKind, FindingSeverity,
    database::{OwnedPages, PageChecker, judge_headers},
    flush_map::{MAP_PAGE_BYTES, judge_map_pages},
    kind::START_BYTES,
    log::{LOG_BYTES_MAX, judge_log},
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

/// Sizes of new files are multiples of this.
const SIZE_UNIT: u64 = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedCopy {
    /// Corrected bits, as findings of the original.
    pub fixed: Vec<FileFinding>,
}

/// The reason no copy was made.
#[derive(Debug, Error)]
pub enum FixError {
    #[error("{0}")]
    Io(#[from] IoError),
    /// The file has no checksums that locate a bit.
    #[error("{} is {what}, which has no checksums that locate a wrong bit", path.display())]
    Unfixable {
        path: PathBuf,
        /// The file's type in words.
        what: &'static str,
    },
    /// Stopped on request; no file is left.
    #[error("stopped before the copy was complete; the copy was removed")]
    Stopped,
}

/// Copies `candidate` to the new file `out` with every single flipped bit corrected.
pub async fn write_fixed_copy(
    candidate: &Candidate,
    out: &Path,
    limiter: &RateLimiter,
) -> Result<FixedCopy, FixError> {
    let source = candidate.place.open().await?;
    let unfixable = |what| FixError::Unfixable { path: candidate.path().to_owned(), what };
    let verifier = match candidate.kind {
        FileKind::Database => {
            let start = source.read_any(0, START_BYTES).await?;
            let facts = judge_headers(&start, source.size()).facts;
            let facts = facts.ok_or_else(|| unfixable("a database without headers"))?;
            // Slack pages need no distinction: a page that verifies with one bit flipped is corrected in any
            // case.
            let all = OwnedPages::Unknown("all are looked at".to_owned());
            Verifier::Pages(PageChecker::new(&facts, all, source.size()))
        }
        FileKind::Log if source.size().0 <= LOG_BYTES_MAX => Verifier::Log,
        FileKind::FlushMap => Verifier::Map,
        FileKind::TemporaryDatabase => return Err(unfixable("a temporary database")),
        FileKind::Checkpoint => return Err(unfixable("a checkpoint")),
        _ => return Err(unfixable("neither a database nor a log")),
    };
    let temporary = temporary_beside(out);
    let copied = copy(&source, &verifier, &temporary, limiter).await;
    let named = match copied {
        Ok(copy) => {
            host_files::name_new(&temporary, source.size().0, out).map(|()| copy).map_err(FixError::Io)
        }
        Err(error) => Err(error),
    };
    if named.is_err() {
        // Report the error; remove the incomplete copy.
        let _ = host_files::remove_file(&temporary);
    }
    named
}

/// Verifies parts of the file.
enum Verifier {
    Pages(PageChecker),
    Log,
    Map,
}

impl Verifier {
    /// Bytes verified and written at once; a log can only be verified as a whole.
    fn chunk_bytes(&self, size: ByteCount) -> usize {
        match self {
            Self::Log => size.0.max(1) as usize,
            _ => CHUNK_BYTES,
        }
    }

    /// The correctable defects of the chunk at `at`.
    fn flaws(&self, at: u64, chunk: &[u8]) -> Vec<FileFinding> {
        let findings = match self {
            Self::Log => judge_log(chunk, false).findings,
            Self::Pages(pages) => {
                let page_bytes = pages.page_size().bytes() as u64;
                // Headers have no error-correcting code.
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
            .filter(|finding| finding.severity != FindingSeverity::Note && finding.fix.is_some())
            .collect()
    }

    /// Corrects the chunk at `at`; returns the corrected defects.
    fn put_right(&self, at: u64, chunk: &mut [u8]) -> Vec<FileFinding> {
        let mut fixed = Vec::new();
        for flaw in self.flaws(at, chunk) {
            let Some(BitFix { byte, bit }) = flaw.fix else { continue };
            let index = byte.0.checked_sub(at).and_then(|index| usize::try_from(index).ok());
            let Some(index) = index.filter(|&index| index < chunk.len()) else { continue };
            chunk[index] ^= 1 << bit;
            let is_right = self.is_right(at, chunk, &flaw);
            if is_right { fixed.push(flaw) } else { chunk[index] ^= 1 << bit }
        }
        fixed
    }

    /// True if the part that `flaw` concerns verifies.
    fn is_right(&self, at: u64, chunk: &[u8], flaw: &FileFinding) -> bool {
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

async fn copy(
    source: &Source,
    verifier: &Verifier,
    to: &Path,
    limiter: &RateLimiter,
) -> Result<FixedCopy, FixError> {
    let size = source.size();
    let device = FileDevice::create(to, ByteCount(size.0.next_multiple_of(SIZE_UNIT))).await?;
    limiter.expect(size.0);
    let mut result = FixedCopy::default();
    let chunk_bytes = verifier.chunk_bytes(size) as u64;
    let mut at = 0;
    while at < size.0 {
        limiter.wait().await;
        if limiter.is_stopped() {
            return Err(FixError::Stopped);
        }
        let length = chunk_bytes.min(size.0 - at) as usize;
        limiter.slow(length as u64);
        let mut chunk = source.read(ByteOffset(at), length, None).await?;
        result.fixed.extend(verifier.put_right(at, &mut chunk));
        device.write(ByteOffset(at), vec![Arc::new(in_units(chunk))], Stability::Volatile).await?;
        limiter.done(length as u64);
        at += length as u64;
    }
    device.flush().await?;
    Ok(result)
}

/// The same bytes, padded with zeros to whole writable units.
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
