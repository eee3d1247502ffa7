//! Checks log files without replaying them: every byte is read.
//!
//! Segments are classified as good, shadow, empty, stale (left from an earlier use of the file) or bad; a bad
//! segment with a valid shadow is repairable. This works for files of any ESE log of version 8.
//! [`verify_logs`] also checks that the files of a directory form one chain and that every record in it can
//! be read.

use super::{
    LogError, LogFiles, LogReader,
    file_header::LogFileHeader,
    generation::SegmentBytes,
    segment::{LogSegmentState, SEGMENT_BYTES, inspect_segment},
};
use std::rc::Rc;
use world::{Buffer, ByteCount, ByteOffset, Directory, File, IoErrorKind};

/// Verdict on one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentVerdict {
    Good,
    /// Copy of the partial segment before it.
    Shadow,
    /// Never written.
    Empty,
    /// Left from an earlier use of the file.
    Stale,
    /// Bad, but its shadow is good: a torn write, which recovery repairs.
    Repairable,
    /// Bad, and no records follow: a torn write at the end of the log.
    BadTail,
    /// Bad, and records follow.
    Bad,
}

/// Verdict on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileReport {
    /// The header; `None` if it does not verify, in which case nothing else was checked.
    pub header: Option<LogFileHeader>,
    /// Verdicts by segment, from segment 1.
    pub segments: Vec<SegmentVerdict>,
    /// Size of the file.
    pub bytes: ByteCount,
}

impl LogFileReport {
    /// Number of segments with `verdict`.
    pub fn count(&self, verdict: SegmentVerdict) -> usize {
        self.segments.iter().filter(|&&other| other == verdict).count()
    }

    /// True if the header verifies and no segment with records behind it is bad.
    pub fn is_clean(&self) -> bool {
        self.header.is_some() && self.count(SegmentVerdict::Bad) == 0
    }
}

/// Verdict on a whole log.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// Every file, oldest generation first.
    pub files: Vec<(String, LogFileReport)>,
    /// Records readable from the oldest connected generation to the end.
    pub records: u64,
    /// The error that ended reading early, if any.
    pub broken: Option<LogError>,
}

impl LogReport {
    /// True if every file is clean and every record was read.
    pub fn is_clean(&self) -> bool {
        self.broken.is_none() && self.files.iter().all(|(_, verdict)| verdict.is_clean())
    }

    pub fn bytes(&self) -> ByteCount {
        self.files.iter().fold(ByteCount(0), |sum, (_, verdict)| sum + verdict.bytes)
    }

    /// Number of segments with `verdict` in all files.
    pub fn count(&self, verdict: SegmentVerdict) -> usize {
        self.files.iter().map(|(_, file)| file.count(verdict)).sum()
    }
}

/// Checks one log file. Errors come from the storage only.
pub async fn verify_log_file(file: &Rc<dyn File>) -> Result<LogFileReport, LogError> {
    let bytes = file.geometry().size;
    let unreadable = LogFileReport { header: None, segments: Vec::new(), bytes };
    if bytes.0 < SEGMENT_BYTES as u64 {
        return Ok(unreadable);
    }
    let first = match file.read(ByteOffset(0), vec![Buffer::zeroed(SEGMENT_BYTES)]).await {
        Ok(buffers) => buffers,
        Err(error) if error.kind() == IoErrorKind::Medium => return Ok(unreadable),
        Err(error) => return Err(error.into()),
    };
    let header = LogFileHeader::decode(&first[0]).filter(|header| {
        header.segments >= 3 && u64::from(header.segments) * SEGMENT_BYTES as u64 <= bytes.0
    });
    let Some(header) = header else { return Ok(unreadable) };
    let content = SegmentBytes::read(file, header.segments).await?;
    let states: Vec<LogSegmentState> = (1..header.segments)
        .map(|index| inspect_segment(content.get(index), header.generation, index))
        .collect();
    Ok(LogFileReport { header: Some(header), segments: judge(&states), bytes })
}

/// Verdicts of segments; each depends on the segments behind it.
fn judge(states: &[LogSegmentState]) -> Vec<SegmentVerdict> {
    let last_good = states.iter().rposition(|state| matches!(state, LogSegmentState::Good { .. }));
    let mut verdicts = Vec::with_capacity(states.len());
    for (place, state) in states.iter().enumerate() {
        let records_follow = last_good.is_some_and(|last| place < last);
        verdicts.push(match state {
            LogSegmentState::Good { .. } => SegmentVerdict::Good,
            // A segment between others with records must be good.
            _ if records_follow => SegmentVerdict::Bad,
            LogSegmentState::Shadow { .. } => SegmentVerdict::Shadow,
            LogSegmentState::Empty => SegmentVerdict::Empty,
            LogSegmentState::Stale => SegmentVerdict::Stale,
            LogSegmentState::Bad if matches!(states.get(place + 1), Some(LogSegmentState::Shadow { .. })) => {
                SegmentVerdict::Repairable
            }
            LogSegmentState::Bad => SegmentVerdict::BadTail,
        });
    }
    verdicts
}

/// Checks all files of a log and reads its records. `on_progress` gets bytes done and bytes in total.
pub async fn verify_logs(
    directory: &Rc<dyn Directory>,
    base_name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<LogReport, LogError> {
    let files = LogFiles::scan(directory, base_name).await?;
    let mut verdict = LogReport { files: Vec::new(), records: 0, broken: None };
    let mut opened = Vec::new();
    let mut total = ByteCount(0);
    for name in files.file_names() {
        let file = directory.open(&name).await?;
        total += file.geometry().size;
        opened.push((name, file));
    }
    let mut done = ByteCount(0);
    for (name, file) in opened {
        let judged = verify_log_file(&file).await?;
        done += judged.bytes;
        verdict.files.push((name, judged));
        on_progress(done, total);
    }
    if files.is_empty() {
        return Ok(verdict);
    }
    match count_records(files, &mut verdict.records).await {
        Ok(()) => {}
        Err(error @ LogError::Io(_)) => return Err(error),
        Err(broken) => verdict.broken = Some(broken),
    }
    Ok(verdict)
}

async fn count_records(files: LogFiles, records: &mut u64) -> Result<(), LogError> {
    let mut reader = LogReader::from_oldest(files)?;
    while reader.next().await?.is_some() {
        *records += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{LogSegmentState as State, SegmentVerdict as Verdict, *};

    #[test]
    fn the_segments_behind_a_bad_segment_decide_its_verdict() {
        let good = State::Good { write_first: None };
        let shadow = State::Shadow { write_first: None };
        let check = |states: &[State], expected: &[Verdict]| assert_eq!(judge(states), expected);
        check(&[good, shadow, State::Empty], &[Verdict::Good, Verdict::Shadow, Verdict::Empty]);
        check(&[good, State::Bad, shadow], &[Verdict::Good, Verdict::Repairable, Verdict::Shadow]);
        check(&[good, State::Bad, State::Stale], &[Verdict::Good, Verdict::BadTail, Verdict::Stale]);
        check(&[State::Bad, good, State::Empty], &[Verdict::Bad, Verdict::Good, Verdict::Empty]);
        check(&[State::Empty, good], &[Verdict::Bad, Verdict::Good]);
    }
}
