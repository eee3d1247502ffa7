//! Searches a device or an image without a mountable filesystem for headers, pages and logs, by their
//! signatures.
//!
//! A page stores its number, so it implies where its file would begin if the file were contiguous. Pages that
//! agree on that are one *placement*, with any blank pages between them. A header with a placement behind it
//! is checked like a file; other placements are pieces of fragmented or deleted files.

use super::{
    database::{self, CheckTask},
    file_place::FilePlace,
    outcome::{FileOutcome, Findings, VerifyOutcome},
    rate_limiter::RateLimiter,
    reading::{ChunkCheck, ChunkResult, ReadPlan, each_chunk},
    small,
    source::Source,
};
use crate::{
    FileFinding, FileKind, FileLocation, FindingSeverity,
    signatures::{Hit, StructureKind, look},
};
use maildb::PageSize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{ByteCount, ByteOffset, IoResult, real::Workers};

/// Placements listed one by one; further ones are counted.
const PLACEMENTS_MAX: usize = 100_000;
/// Whole files checked; further headers are counted.
const FILES_MAX: usize = 100_000;

/// Pages of one size that imply the same start of their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub page_size: PageSize,
    /// Offset of the first page found.
    pub at: ByteOffset,
    /// Implied start of the file; negative for fragments.
    pub base: i128,
    /// Lowest and highest page number found.
    pub pages: (u32, u32),
    pub count: u64,
}

/// The results of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOutcome {
    /// Files with a header, checked as far as they are contiguous. Their paths are the device's, with `@` and
    /// the offset.
    pub found: VerifyOutcome,
    /// Pages without a header before them.
    pub placements: Vec<Placement>,
    /// Placements and headers beyond those listed.
    pub more: u64,
    /// Log segments without a header before them.
    pub lone_segments: u64,
    /// Bytes searched.
    pub looked: u64,
}

impl ScanOutcome {
    pub fn add(&mut self, other: Self) {
        self.found.files.extend(other.found.files);
        self.found.failures.extend(other.found.failures);
        self.found.is_stopped |= other.found.is_stopped;
        self.placements.extend(other.placements);
        self.more += other.more;
        self.lone_segments += other.lone_segments;
        self.looked += other.looked;
    }
}

/// Finds and checks the files on `source`, called `path` in results.
pub async fn scan(
    path: &Path,
    source: &Source,
    workers: &Workers,
    limiter: &RateLimiter,
) -> IoResult<ScanOutcome> {
    limiter.expect(source.size().0);
    limiter.begin("scan", &path.display().to_string());
    let mut gathered = StructureIndex::default();
    let size = source.size().0;
    let judge: ChunkCheck<Vec<Hit>> = Arc::new(|at, bytes| look(at, bytes, super::reading::CHUNK_BYTES));
    let plan =
        ReadPlan { source, range: 0..size, overlap: PageSize::BYTES_MAX, unit: 4096, workers, limiter };
    let mut unreadable = 0_u64;
    let looked = each_chunk(plan, judge, &mut |_, _, part| match part {
        ChunkResult::Judged(hits) => hits.into_iter().for_each(|hit| gathered.add(hit)),
        ChunkResult::Unreadable(_) => unreadable += 1,
    })
    .await?;
    let mut scanned = ScanOutcome { looked, ..ScanOutcome::default() };
    scanned.found.is_stopped = looked < size;
    if unreadable > 0 {
        let what = format!("{}: {unreadable} parts of 4 KiB cannot be read", path.display());
        scanned.found.failures.push(what);
    }
    for header in std::mem::take(&mut gathered.headers) {
        if limiter.is_stopped() {
            scanned.found.is_stopped = true;
            break;
        }
        let file = checked(path, source, &header, &mut gathered, (workers, limiter)).await;
        scanned.found.files.push(file);
    }
    scanned.lone_segments = gathered.segments.values().sum();
    scanned.placements = gathered.placements.into_values().collect();
    scanned.placements.sort_by_key(|placement| placement.at);
    scanned.more = gathered.more;
    Ok(scanned)
}

/// The structures found so far.
#[derive(Default)]
struct StructureIndex {
    headers: Vec<Hit>,
    /// By implied start of the file and page size.
    placements: BTreeMap<(i128, usize), Placement>,
    /// Log segments, by implied start of their file.
    segments: BTreeMap<i128, u64>,
    more: u64,
}

impl StructureIndex {
    fn add(&mut self, hit: Hit) {
        match hit.what {
            StructureKind::Page { page_size, number } => self.page(hit.at, page_size, number),
            StructureKind::Segment { index } => {
                let base = i128::from(hit.at.0) - i128::from(index) * 4096;
                if self.segments.len() < PLACEMENTS_MAX || self.segments.contains_key(&base) {
                    *self.segments.entry(base).or_default() += 1
                } else {
                    self.more += 1
                }
            }
            _ if self.is_shadow(&hit) => {}
            _ if self.headers.len() < FILES_MAX => self.headers.push(hit),
            _ => self.more += 1,
        }
    }

    /// True for the second copy of the header found before it.
    fn is_shadow(&self, hit: &Hit) -> bool {
        let Some(last) = self.headers.last() else { return false };
        let distance = match (last.what, hit.what) {
            (StructureKind::Database { page_size: one }, StructureKind::Database { page_size: other })
                if one == other =>
            {
                one.bytes() as u64
            }
            (StructureKind::Checkpoint, StructureKind::Checkpoint) => 4096,
            _ => return false,
        };
        last.at.0 + distance == hit.at.0
    }

    fn page(&mut self, at: ByteOffset, page_size: PageSize, number: u32) {
        let base = i128::from(at.0) - (i128::from(number) + 1) * page_size.bytes() as i128;
        let key = (base, page_size.bytes());
        if !self.placements.contains_key(&key) && self.placements.len() == PLACEMENTS_MAX {
            self.more += 1;
            return;
        }
        let new = Placement { page_size, at, base, pages: (number, number), count: 0 };
        let placement = self.placements.entry(key).or_insert(new);
        placement.pages.0 = placement.pages.0.min(number);
        placement.pages.1 = placement.pages.1.max(number);
        placement.count += 1;
    }
}

/// Checks the data behind a header like a file.
async fn checked(
    path: &Path,
    source: &Source,
    header: &Hit,
    gathered: &mut StructureIndex,
    (workers, limiter): (&Workers, &RateLimiter),
) -> FileOutcome {
    let at = header.at;
    let (kind, length) = match header.what {
        StructureKind::Database { page_size } => {
            let key = (i128::from(at.0), page_size.bytes());
            let last = gathered.placements.remove(&key).map_or(0, |placement| placement.pages.1);
            let found = (u64::from(last) + 2) * page_size.bytes() as u64;
            let all = source.part(at, source.size());
            let task = CheckTask::alone(&all, workers, limiter);
            // Blank pages at its end were not found, and belong to it.
            let owned = database::length_owned(&task).await.ok().flatten();
            (FileKind::Database, owned.unwrap_or(found).max(found))
        }
        StructureKind::Log { bytes } => {
            gathered.segments.remove(&i128::from(at.0));
            (FileKind::Log, bytes)
        }
        StructureKind::Checkpoint => (FileKind::Checkpoint, 8192),
        StructureKind::FlushMap => (FileKind::FlushMap, 8192),
        StructureKind::Page { .. } | StructureKind::Segment { .. } => {
            unreachable!("only headers are checked")
        }
    };
    let part = source.part(at, ByteCount(length));
    let mut outcome = FileOutcome::new(&FilePlace::in_filesystem(&named(path, at)), part.size(), kind);
    limiter.begin("check", &outcome.path.display().to_string());
    limiter.expect(part.size().0);
    let task = CheckTask::alone(&part, workers, limiter);
    let checked = match kind {
        FileKind::Database => database::check(&task, &mut outcome, None, &mut |_| {}).await.map(|_| ()),
        _ => small::check(&task, &mut outcome).await,
    };
    outcome.end_with(checked);
    if kind == FileKind::Database {
        outcome.findings = in_pieces(&outcome);
    }
    outcome
}

fn named(path: &Path, at: ByteOffset) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("@{}", at.0));
    PathBuf::from(name)
}

/// Drops findings of a fragmented file: a page that is not at its place behind the header is not damaged. A
/// single flipped bit is damage anywhere.
fn in_pieces(outcome: &FileOutcome) -> Findings {
    let mut findings = Findings::default();
    let mut elsewhere = outcome.findings.more();
    for finding in outcome.findings.kept() {
        if finding.severity == FindingSeverity::Damage && finding.fix.is_none() {
            elsewhere += 1
        } else {
            findings.push(finding.clone())
        }
    }
    if elsewhere > 0 {
        let what = format!(
            "{elsewhere} of its pages are not behind its header: they are damaged, or the file lay in pieces, which are \
             among the other pages found"
        );
        findings.push(FileFinding::warning(FileLocation::FILE, what));
    }
    findings
}
