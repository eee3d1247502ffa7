//! The log files of a directory, and the records in them.

use super::chunks::{CHUNK_BYTES, Chunks};
use crate::{
    finding::{FileFinding, FilePart, FindingSeverity},
    log::{LOG_BYTES_MAX, LogFacts, LogFileVerdict, LogTally, judge_log},
};
use maildb::{
    Result,
    format::header::LogPosition,
    log::{LogError, LogFiles, LogReader, last_with_records, segment::SEGMENT_BYTES},
};
use std::rc::Rc;
use world::{Buffer, ByteCount, ByteOffset, Directory, File, IoErrorKind, IoResult};

/// Byte that replaces what the medium cannot read. A segment of it fails every check.
const UNREADABLE_FILL: u8 = 0xFF;

/// Result of checking one log file.
#[derive(Clone, Debug)]
pub struct LogFileReport {
    pub name: String,
    /// Size of the file.
    pub bytes: ByteCount,
    pub verdict: LogFileVerdict,
    /// End of the file's records, if the header of the next generation stores it.
    pub recorded_end: Option<LogPosition>,
}

impl LogFileReport {
    /// Findings of damage, without those behind the recorded end. After a crash the engine continues in a new
    /// generation, so remains of the interrupted write stay there and are never read.
    pub fn damage(&self) -> impl Iterator<Item = &FileFinding> {
        let last = self.recorded_end.map_or(u16::MAX, last_with_records);
        self.verdict.findings.iter().filter(move |finding| {
            let is_behind_end = matches!(finding.place.part, FilePart::Segment(index) if index > last);
            finding.severity == FindingSeverity::Damage && !is_behind_end
        })
    }

    /// True if the header verifies and nothing before the end of the records is damaged.
    pub fn is_clean(&self) -> bool {
        self.verdict.facts.is_some() && self.damage().next().is_none()
    }
}

/// Result of checking a whole log.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// Every file, oldest generation first.
    pub files: Vec<LogFileReport>,
    /// Records readable from the oldest connected generation to the end.
    pub records: u64,
    /// The error that ended reading early, if any.
    pub broken: Option<LogError>,
}

impl LogReport {
    /// True if every file is clean and every record was read.
    pub fn is_clean(&self) -> bool {
        self.broken.is_none() && self.files.iter().all(LogFileReport::is_clean)
    }

    /// Size of all files.
    pub fn bytes(&self) -> ByteCount {
        self.files.iter().fold(ByteCount(0), |sum, file| sum + file.bytes)
    }

    /// The sum of one count over all files.
    pub fn total(&self, count: impl Fn(&LogTally) -> u64) -> u64 {
        self.files.iter().map(|file| count(&file.verdict.tally)).sum()
    }
}

/// Checks every segment of all log files of `base_name`, then reads the records. `on_progress` gets bytes done
/// and bytes in total. A file that is being prepared for the next generation is not part of the log.
///
/// # Errors
///
/// If the storage fails, or the files do not identify one current generation.
pub async fn verify_logs(
    directory: &Rc<dyn Directory>,
    base_name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<LogReport> {
    let files = LogFiles::scan(directory, base_name).await?;
    let mut report = LogReport { files: Vec::new(), records: 0, broken: None };
    let mut opened = Vec::new();
    let mut total = ByteCount(0);
    for name in files.file_names() {
        let file = directory.open(&name).await?;
        total += file.geometry().size;
        opened.push((name, file));
    }
    let mut done = ByteCount(0);
    for (name, file) in opened {
        let bytes = file.geometry().size;
        let verdict = judge_log(&read_whole(&file).await?, false);
        report.files.push(LogFileReport { name, bytes, verdict, recorded_end: None });
        done += bytes;
        on_progress(done, total);
    }
    note_recorded_ends(&mut report.files);
    if files.is_empty() {
        return Ok(report);
    }
    match count_records(files, &mut report.records).await {
        Ok(()) => {}
        Err(LogError::Io(error)) => return Err(error.into()),
        Err(broken) => report.broken = Some(broken),
    }
    Ok(report)
}

/// The bytes of a log file up to its last whole segment.
async fn read_whole(file: &Rc<dyn File>) -> IoResult<Vec<u8>> {
    let size = file.geometry().size.0.min(LOG_BYTES_MAX);
    let size = size - size % SEGMENT_BYTES as u64;
    let mut bytes = Vec::with_capacity(size as usize);
    let mut chunks = Chunks::new(Rc::clone(file), 0, size);
    loop {
        match chunks.next().await {
            Ok(Some((_, chunk))) => {
                bytes.extend_from_slice(&chunk);
                chunks.reuse(chunk);
            }
            Ok(None) => return Ok(bytes),
            Err(error) if error.kind() == IoErrorKind::Medium => {
                let end = size.min(bytes.len() as u64 + CHUNK_BYTES);
                read_segments(file, end, &mut bytes).await?;
                chunks = Chunks::new(Rc::clone(file), end, size);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Appends the bytes up to `end`, segment by segment: an unreadable sector costs only its own segment.
async fn read_segments(file: &Rc<dyn File>, end: u64, bytes: &mut Vec<u8>) -> IoResult<()> {
    while (bytes.len() as u64) < end {
        let at = ByteOffset(bytes.len() as u64);
        match file.read(at, vec![Buffer::zeroed(SEGMENT_BYTES)]).await {
            Ok(buffers) => bytes.extend_from_slice(&buffers[0]),
            Err(error) if error.kind() == IoErrorKind::Medium => {
                bytes.resize(bytes.len() + SEGMENT_BYTES, UNREADABLE_FILL);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes the end of each generation from the header of its successor.
fn note_recorded_ends(files: &mut [LogFileReport]) {
    let facts: Vec<LogFacts> = files.iter().filter_map(|file| file.verdict.facts.clone()).collect();
    for file in files {
        let Some(own) = &file.verdict.facts else { continue };
        let successor = facts.iter().find(|next| {
            own.generation.checked_add(1) == Some(next.generation)
                && next.signature == own.signature
                && next.previous_created == own.created
        });
        let end = successor.and_then(|next| next.previous_end);
        file.recorded_end = end.filter(|end| end.generation == own.generation);
    }
}

async fn count_records(files: LogFiles, records: &mut u64) -> std::result::Result<(), LogError> {
    let mut reader = LogReader::from_oldest(files)?;
    while reader.next().await?.is_some() {
        *records += 1;
    }
    Ok(())
}
