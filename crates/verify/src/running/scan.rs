//! What lies on a device or in an image that no filesystem can be mounted from: headers, pages, logs, by their signatures.
//!
//! A page tells its number, so it tells where its file would begin if it lay in one piece: pages that agree on that are
//! one *placement*, whatever blank pages are between them. What has a header and a placement behind it is checked like a file
//! of its own; other placements are pieces of files that lay scattered, or were deleted.

use super::{
    database::{self, Task},
    outcome::{FileOutcome, Findings, Outcome},
    pace::Pace,
    reading::{Judge, Part, Plan, each_chunk},
    small,
    source::Source,
};
use crate::{
    FileKind, Finding, Place, Severity,
    signatures::{Hit, What, look},
};
use maildb::PageSize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{ByteCount, ByteOffset, IoResult, real::Workers};

/// Placements that are told one by one; of the others only the number is.
const PLACEMENTS_MAX: usize = 100_000;
/// Whole files that are checked: headers beyond are counted.
const FILES_MAX: usize = 100_000;

/// Pages of one size that agree on where their file would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Length of each.
    pub page_size: PageSize,
    /// Where the first that was found lies.
    pub at: ByteOffset,
    /// Where the file would begin; before the device, for what lay in pieces.
    pub base: i128,
    /// The lowest number found, and the highest.
    pub pages: (u32, u32),
    /// Pages found.
    pub count: u64,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Files with a header, checked as far as they lie behind it. Their paths are those of the device, with `@` and the byte.
    pub found: Outcome,
    /// Pages that lie behind no header.
    pub placements: Vec<Placement>,
    /// Placements and headers beyond those.
    pub more: u64,
    /// Segments of logs that lie behind no header of theirs.
    pub lone_segments: u64,
    /// Bytes looked through.
    pub looked: u64,
}

impl Scanned {
    /// Adds what was found elsewhere.
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

/// Finds and checks what lies on `source`, which is called `path`.
pub async fn scan(path: &Path, source: &Source, workers: &Workers, pace: &Pace) -> IoResult<Scanned> {
    pace.expect(source.size().0);
    pace.begin("scan", &path.display().to_string());
    let mut gathered = Gathered::default();
    let size = source.size().0;
    let judge: Judge<Vec<Hit>> = Arc::new(|at, bytes| look(at, bytes, super::reading::CHUNK_BYTES));
    let plan = Plan { source, range: 0..size, overlap: PageSize::BYTES_MAX, unit: 4096, workers, pace };
    let mut unreadable = 0_u64;
    let looked = each_chunk(plan, judge, &mut |_, _, part| match part {
        Part::Judged(hits) => hits.into_iter().for_each(|hit| gathered.add(hit)),
        Part::Unreadable(_) => unreadable += 1,
    })
    .await?;
    let mut scanned = Scanned { looked, ..Scanned::default() };
    scanned.found.is_stopped = looked < size;
    if unreadable > 0 {
        let what = format!("{}: {unreadable} parts of 4 KiB cannot be read", path.display());
        scanned.found.failures.push(what);
    }
    for header in std::mem::take(&mut gathered.headers) {
        if pace.is_stopped() {
            scanned.found.is_stopped = true;
            break;
        }
        let file = checked(path, source, &header, &mut gathered, (workers, pace)).await;
        scanned.found.files.push(file);
    }
    scanned.lone_segments = gathered.segments.values().sum();
    scanned.placements = gathered.placements.into_values().collect();
    scanned.placements.sort_by_key(|placement| placement.at);
    scanned.more = gathered.more;
    Ok(scanned)
}

/// What hits add up to.
#[derive(Default)]
struct Gathered {
    headers: Vec<Hit>,
    /// By where their files would begin, and page size.
    placements: BTreeMap<(i128, usize), Placement>,
    /// Segments of logs, by where their file would begin.
    segments: BTreeMap<i128, u64>,
    more: u64,
}

impl Gathered {
    fn add(&mut self, hit: Hit) {
        match hit.what {
            What::Page { page_size, number } => self.page(hit.at, page_size, number),
            What::Segment { index } => {
                let base = i128::from(hit.at.0) - i128::from(index) * 4096;
                match self.segments.len() < PLACEMENTS_MAX || self.segments.contains_key(&base) {
                    true => *self.segments.entry(base).or_default() += 1,
                    false => self.more += 1,
                }
            }
            _ if self.is_shadow(&hit) => {}
            _ if self.headers.len() < FILES_MAX => self.headers.push(hit),
            _ => self.more += 1,
        }
    }

    /// Whether it is the second copy of the header found before it.
    fn is_shadow(&self, hit: &Hit) -> bool {
        let Some(last) = self.headers.last() else { return false };
        let distance = match (last.what, hit.what) {
            (What::Database { page_size: one }, What::Database { page_size: other }) if one == other => {
                one.bytes() as u64
            }
            (What::Checkpoint, What::Checkpoint) => 4096,
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

/// Checks what lies behind a header as if it were a file.
async fn checked(
    path: &Path,
    source: &Source,
    header: &Hit,
    gathered: &mut Gathered,
    (workers, pace): (&Workers, &Pace),
) -> FileOutcome {
    let at = header.at;
    let (kind, length) = match header.what {
        What::Database { page_size } => {
            let key = (i128::from(at.0), page_size.bytes());
            let last = gathered.placements.remove(&key).map_or(0, |placement| placement.pages.1);
            let found = (u64::from(last) + 2) * page_size.bytes() as u64;
            let all = source.part(at, source.size());
            let task = Task { source: &all, path: None, deep: false, journals: &[], workers, pace };
            // Blank pages at its end were not found, and are its own.
            let owned = database::length_owned(&task).await.ok().flatten();
            (FileKind::Database, owned.unwrap_or(found).max(found))
        }
        What::Log { bytes } => {
            gathered.segments.remove(&i128::from(at.0));
            (FileKind::Log, bytes)
        }
        What::Checkpoint => (FileKind::Checkpoint, 8192),
        What::FlushMap => (FileKind::FlushMap, 8192),
        What::Page { .. } | What::Segment { .. } => unreachable!("only headers are checked"),
    };
    let part = source.part(at, ByteCount(length));
    let mut outcome = FileOutcome::new(&named(path, at), part.size(), kind);
    pace.begin("check", &outcome.path.display().to_string());
    pace.expect(part.size().0);
    let task = Task { source: &part, path: None, deep: false, journals: &[], workers, pace };
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

/// A page that is not behind its header at all is not damaged: the file lay in pieces. One flipped bit is damage wherever
/// it is.
fn in_pieces(outcome: &FileOutcome) -> Findings {
    let mut findings = Findings::default();
    let mut elsewhere = outcome.findings.more();
    for finding in outcome.findings.kept() {
        match finding.severity == Severity::Damage && finding.fix.is_none() {
            true => elsewhere += 1,
            false => findings.push(finding.clone()),
        }
    }
    if elsewhere > 0 {
        let what = format!(
            "{elsewhere} of its pages are not behind its header: they are damaged, or the file lay in pieces, which are \
             among the other pages found"
        );
        findings.push(Finding::warning(Place::FILE, what));
    }
    findings
}
