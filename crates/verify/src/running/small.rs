//! Files that are judged whole: logs, checkpoints, flush maps, and what is all zero.

use super::{
    database::Task,
    outcome::{Checked, Ended, FileOutcome},
    places::{is_named_log, named_kind},
    reading::{Judge, Part, Plan, each_chunk},
};
use crate::{
    FileKind, Finding, Part as FilePart, Place,
    checkpoint::{CHECKPOINT_BYTES, judge_checkpoint},
    flush_map::{MAP_PAGE_BYTES, MapTally, judge_map_header, judge_map_pages},
    log::judge_log,
    set::Facts,
};
use std::sync::Arc;
use world::{ByteCount, ByteOffset, IoResult};

/// No log file is longer.
pub const LOG_BYTES_MAX: u64 = 256 << 20;

/// Checks a file of any kind but a database.
pub async fn check(task: &Task<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    match outcome.kind {
        FileKind::Log => log(task, outcome).await,
        FileKind::Checkpoint => checkpoint(task, outcome).await,
        FileKind::FlushMap => flush_map(task, outcome).await,
        FileKind::Blank => blank(task, outcome).await,
        FileKind::RevertSnapshot => {
            outcome.findings.extend(outcome.passed_over().map(|why| Finding::note(Place::FILE, why)));
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

/// A file that is named as one of ours and does not begin like one.
fn headless(outcome: &mut FileOutcome) {
    let named = named_kind(&outcome.path).unwrap_or("a file of the engine");
    let what = format!("it is named as {named} is, and nothing in it is one: its headers are gone");
    outcome.findings.push(Finding::damage(Place::FILE, what));
    outcome.facts = Some(Facts::Headless);
}

async fn log(task: &Task<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let size = outcome.size.0;
    if size > LOG_BYTES_MAX {
        let what = format!("it begins as a log and has {}: no log is so long", outcome.size);
        outcome.findings.push(Finding::damage(Place::FILE, what));
        outcome.facts = Some(Facts::Headless);
        return Ok(());
    }
    task.pace.wait().await;
    if task.pace.is_stopped() {
        outcome.ended = Ended::Stopped(ByteCount(0));
        return Ok(());
    }
    task.pace.slow(size);
    let bytes = task.source.read(ByteOffset(0), size as usize, None).await?;
    let records = task.deep;
    let verdict = task.workers.run(move || judge_log(&bytes, records)).await;
    task.pace.done(size);
    outcome.facts = Some(verdict.facts.map_or(Facts::Headless, Facts::Log));
    outcome.checked = Checked::Log(verdict.tally);
    outcome.findings.extend(verdict.findings);
    Ok(())
}

async fn checkpoint(task: &Task<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let bytes = task.source.read_any(0, CHECKPOINT_BYTES).await?;
    let verdict = judge_checkpoint(&bytes);
    task.pace.done(outcome.size.0);
    outcome.facts = Some(verdict.facts.map_or(Facts::Headless, Facts::Checkpoint));
    outcome.checked = Checked::Header;
    outcome.findings.extend(verdict.findings);
    Ok(())
}

async fn flush_map(task: &Task<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    let start = task.source.read_any(0, MAP_PAGE_BYTES).await?;
    let verdict = judge_map_header(&start);
    outcome.facts = Some(verdict.facts.map_or(Facts::Headless, Facts::FlushMap));
    outcome.findings.extend(verdict.findings);
    let page = MAP_PAGE_BYTES as u64;
    let (first, end) = (page.min(outcome.size.0), outcome.size.0 - outcome.size.0 % page);
    task.pace.done(first);
    let judge: Judge<MapTally> = Arc::new(move |at, chunk| judge_map_pages((at.0 / page - 1) as u32, chunk));
    let plan = Plan {
        source: task.source,
        range: first..end.max(first),
        overlap: 0,
        unit: MAP_PAGE_BYTES,
        workers: task.workers,
        pace: task.pace,
    };
    let mut all = MapTally::default();
    let told_to = each_chunk(plan, judge, &mut |at, _, part| match part {
        Part::Judged(tally) => {
            all.good += tally.good;
            all.blank += tally.blank;
            all.damaged += tally.damaged;
            outcome.findings.extend(tally.findings);
        }
        Part::Unreadable(error) => {
            all.damaged += 1;
            let place = Place::new(FilePart::MapPage((at.0 / page - 1) as u32), at);
            outcome.findings.push(Finding::damage(place, format!("it cannot be read: {error}")));
        }
    })
    .await?;
    if told_to < end {
        outcome.ended = Ended::Stopped(ByteCount(told_to));
    }
    outcome.checked = Checked::FlushMap(all);
    Ok(())
}

/// All of one fill as far as its beginning goes. A log that was prepared and not used yet is so to its end; a database whose
/// beginning was lost is not.
async fn blank(task: &Task<'_>, outcome: &mut FileOutcome) -> IoResult<()> {
    if !is_named_log(&outcome.path) {
        headless(outcome);
        return Ok(());
    }
    let fill = task.source.read_any(0, 1).await?.first().copied().unwrap_or(0);
    let judge: Judge<Option<u64>> = Arc::new(move |at, chunk| {
        let found = chunk.iter().position(|&byte| byte != fill);
        found.map(|index| at.0 + index as u64)
    });
    let plan = Plan {
        source: task.source,
        range: 0..outcome.size.0,
        overlap: 0,
        unit: 4096,
        workers: task.workers,
        pace: task.pace,
    };
    let (mut first, mut unreadable) = (None, None);
    let told_to = each_chunk(plan, judge, &mut |at, _, part| match part {
        Part::Judged(found) => first = first.or(found),
        Part::Unreadable(error) => unreadable = unreadable.take().or(Some((at, error))),
    })
    .await?;
    if let Some(at) = first {
        let place = Place::new(FilePart::Bytes, ByteOffset(at));
        let what = "it begins as a prepared log does and goes on with something else: its header is gone";
        outcome.findings.push(Finding::damage(place, what));
        outcome.facts = Some(Facts::Headless);
    } else {
        outcome.facts = Some(Facts::PreparedLog);
    }
    if let Some((at, error)) = unreadable {
        let place = Place::new(FilePart::Bytes, at);
        outcome.findings.push(Finding::damage(place, format!("it cannot be read: {error}")));
    }
    if told_to < outcome.size.0 {
        outcome.ended = Ended::Stopped(ByteCount(told_to));
    }
    outcome.checked = Checked::Blank;
    Ok(())
}
