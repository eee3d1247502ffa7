//! Removes the last record of a log, as if recovery stopped one record too early.

use super::violation::GroupRunError;
use maildb::format::header::{LogPosition, LogTime};
use maildb::log::{
    LogFiles, LogReader, LogRecord,
    file_header::LogFileHeader,
    segment::{LogSegmentState, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, inspect_segment, seal_segment},
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, Directory, File, Stability};

/// Removes the last record of the log in `directory`. Does nothing to a log that ends with a clean shutdown,
/// has no record in its newest file, or is unreadable.
pub async fn drop_last_record(directory: &Rc<dyn Directory>, base_name: &str) -> Result<(), GroupRunError> {
    let files = LogFiles::scan(directory, base_name).await?;
    let Some(newest) = files.newest() else { return Ok(()) };
    let Ok(mut reader) = LogReader::from_oldest(files) else { return Ok(()) };
    let mut last = None;
    while let Ok(Some(entry)) = reader.next().await {
        last = Some(entry);
    }
    let Some(last) = last.filter(|last| last.start.generation == newest) else { return Ok(()) };
    if matches!(last.record, LogRecord::Term { .. }) {
        return Ok(());
    }
    for entry in directory.list().await?.into_iter().filter(|entry| entry.name.ends_with(".log")) {
        let file = directory.open(&entry.name).await?;
        let start = file.read(ByteOffset(0), vec![Buffer::zeroed(SEGMENT_BYTES)]).await?;
        if let Some(header) = LogFileHeader::decode(&start[0]).filter(|header| header.generation == newest) {
            return end_log_at(&file, header.segments, last.start).await;
        }
    }
    Ok(())
}

/// Truncates the log in `file`, which has this many segments, at `end`.
async fn end_log_at(file: &Rc<dyn File>, segments: u16, end: LogPosition) -> Result<(), GroupRunError> {
    let at = ByteOffset(u64::from(end.segment) * SEGMENT_BYTES as u64);
    let length = usize::from(segments - end.segment) * SEGMENT_BYTES;
    let mut rest = file.read(at, vec![Buffer::zeroed(length)]).await?.swap_remove(0);
    let (segment, behind) = rest.split_at_mut(SEGMENT_BYTES);
    if !matches!(inspect_segment(segment, end.generation, end.segment), LogSegmentState::Good { .. }) {
        // The segment is torn, and its shadow counts.
        segment.copy_from_slice(&behind[..SEGMENT_BYTES]);
    }
    behind.fill(0);
    let offset = usize::from(end.offset);
    segment[offset..].fill(0);
    if offset > SEGMENT_HEADER_BYTES {
        let time = LogTime::decode(segment[16..24].first_chunk().expect("eight bytes"));
        seal_segment(segment, end.generation, end.segment, time, end.segment);
    } else {
        segment.fill(0)
    }
    file.write(at, vec![Arc::new(rest)], Stability::Stable).await?;
    Ok(())
}
