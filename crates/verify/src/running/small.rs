//! Files that are checked as a whole: logs, checkpoints, flush maps, and files of zeros.

use super::{
    database::CheckTask,
    outcome::{Completion, Coverage, FileOutcome},
    places::{is_named_log, named_kind},
    reading::{ChunkCheck, ChunkResult, ReadPlan, each_chunk},
};
use crate::{
    FileFinding, FileKind, FileLocation, FilePart,
    checkpoint::{CHECKPOINT_BYTES, judge_checkpoint},
    flush_map::{MAP_PAGE_BYTES, MapTally, judge_map_header, judge_map_pages},
    log::{LOG_BYTES_MAX, judge_log},
    set::FileContents,
};
use std::sync::Arc;
use world::{ByteCount, ByteOffset, IoResult};

/// Checks a file of any type but a database.
pub async fn check(task: &CheckTask<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    match outcome.kind {
        FileKind::Log => log(task, outcome).await,
        FileKind::Checkpoint => checkpoint(task, outcome).await,
        FileKind::FlushMap => flush_map(task, outcome).await,
        FileKind::Blank => blank(task, outcome).await,
        FileKind::RevertSnapshot => {
            outcome
                .findings
                .extend(outcome.skip_reason().map(|why| FileFinding::note(FileLocation::FILE, why)));
            Ok(())
        }
        FileKind::Unknown => {
            headless(outcome);
            Ok(())
        }
        FileKind::Spindle(_) => Ok(()),
        FileKind::Database | FileKind::TemporaryDatabase => {
            unreachable!("databases are checked by their pages")
        }
    }
}

/// Reports a file with one of the engine's names and no valid start.
fn headless(outcome: &mut FileOutcome) {
    let named = named_kind(&outcome.name).unwrap_or("a file of the engine");
    let what = format!("its name is that of {named}, but its headers are gone");
    outcome.findings.push(FileFinding::damage(FileLocation::FILE, what));
    outcome.facts = Some(FileContents::Headless);
}

async fn log(task: &CheckTask<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let size = outcome.size.0;
    if size > LOG_BYTES_MAX {
        let what = format!("it begins like a log, but no log has {}", outcome.size);
        outcome.findings.push(FileFinding::damage(FileLocation::FILE, what));
        outcome.facts = Some(FileContents::Headless);
        return Ok(());
    }
    task.limiter.wait().await;
    if task.limiter.is_stopped() {
        outcome.completion = Completion::Stopped(ByteCount(0));
        return Ok(());
    }
    task.limiter.slow(size);
    let bytes = task.source.read(ByteOffset(0), size as usize, None).await?;
    let records = task.level.reads_log_records();
    let verdict = task.workers.run(move || judge_log(&bytes, records)).await;
    task.limiter.done(size);
    outcome.facts = Some(verdict.facts.map_or(FileContents::Headless, FileContents::Log));
    outcome.coverage = Coverage::Log(verdict.tally);
    outcome.findings.extend(verdict.findings);
    Ok(())
}

async fn checkpoint(task: &CheckTask<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let bytes = task.source.read_any(0, CHECKPOINT_BYTES).await?;
    let verdict = judge_checkpoint(&bytes);
    task.limiter.done(outcome.size.0);
    outcome.facts = Some(verdict.facts.map_or(FileContents::Headless, FileContents::Checkpoint));
    outcome.coverage = Coverage::Header;
    outcome.findings.extend(verdict.findings);
    Ok(())
}

async fn flush_map(task: &CheckTask<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let start = task.source.read_any(0, MAP_PAGE_BYTES).await?;
    let verdict = judge_map_header(&start);
    outcome.facts = Some(verdict.facts.map_or(FileContents::Headless, FileContents::FlushMap));
    outcome.findings.extend(verdict.findings);
    let page = MAP_PAGE_BYTES as u64;
    let (first, end) = (page.min(outcome.size.0), outcome.size.0 - outcome.size.0 % page);
    task.limiter.done(first);
    let judge: ChunkCheck<MapTally> =
        Arc::new(move |at, chunk| judge_map_pages((at.0 / page - 1) as u32, chunk));
    let plan = ReadPlan {
        source: task.source,
        range: first..end.max(first),
        overlap: 0,
        unit: MAP_PAGE_BYTES,
        workers: task.workers,
        limiter: task.limiter,
    };
    let mut all = MapTally::default();
    let told_to = each_chunk(plan, judge, &mut |at, _, part| match part {
        ChunkResult::Judged(tally) => {
            all.good += tally.good;
            all.blank += tally.blank;
            all.damaged += tally.damaged;
            outcome.findings.extend(tally.findings);
        }
        ChunkResult::Unreadable(error) => {
            all.damaged += 1;
            let place = FileLocation::new(FilePart::MapPage((at.0 / page - 1) as u32), at);
            outcome.findings.push(FileFinding::damage(place, format!("it cannot be read: {error}")));
        }
    })
    .await?;
    if told_to < end {
        outcome.completion = Completion::Stopped(ByteCount(told_to));
    }
    outcome.coverage = Coverage::FlushMap(all);
    Ok(())
}

/// Checks that a file whose start is one fill byte has that fill to its end. A log prepared for use and not
/// yet used does; a database whose start was lost does not.
async fn blank(task: &CheckTask<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    if !is_named_log(&outcome.name) {
        headless(outcome);
        return Ok(());
    }
    let fill = task.source.read_any(0, 1).await?.first().copied().unwrap_or(0);
    let judge: ChunkCheck<Option<u64>> = Arc::new(move |at, chunk| {
        let found = chunk.iter().position(|&byte| byte != fill);
        found.map(|index| at.0 + index as u64)
    });
    let plan = ReadPlan {
        source: task.source,
        range: 0..outcome.size.0,
        overlap: 0,
        unit: 4096,
        workers: task.workers,
        limiter: task.limiter,
    };
    let (mut first, mut unreadable) = (None, None);
    let told_to = each_chunk(plan, judge, &mut |at, _, part| match part {
        ChunkResult::Judged(found) => first = first.or(found),
        ChunkResult::Unreadable(error) => unreadable = unreadable.take().or(Some((at, error))),
    })
    .await?;
    if let Some(at) = first {
        let place = FileLocation::new(FilePart::Bytes, ByteOffset(at));
        let what = "it begins like a prepared log and continues with other data: its header is gone";
        outcome.findings.push(FileFinding::damage(place, what));
        outcome.facts = Some(FileContents::Headless);
    } else {
        outcome.facts = Some(FileContents::PreparedLog);
    }
    if let Some((at, error)) = unreadable {
        let place = FileLocation::new(FilePart::Bytes, at);
        outcome.findings.push(FileFinding::damage(place, format!("it cannot be read: {error}")));
    }
    if told_to < outcome.size.0 {
        outcome.completion = Completion::Stopped(ByteCount(told_to));
    }
    outcome.coverage = Coverage::Blank;
    Ok(())
}
