//! Verifies a database file from its first byte to its last: headers, owned pages, each page, and with `deep`
//! its trees.

use super::{
    file_place::FilePlace,
    journal::{self, Journal},
    outcome::{Completion, Coverage, DatabaseCheck, FileOutcome},
    paging::with_pages,
    rate_limiter::RateLimiter,
    reading::{ChunkCheck, ChunkResult, ReadPlan, each_chunk},
    resume::DatabaseProgress,
    source::Source,
    stamps,
    verify_level::VerifyLevel,
};
use crate::{
    FileFinding, FileKind, FileLocation, FilePart,
    database::{
        DatabaseFacts, OwnedPages, PageChecker, PageTally, SourceError, judge_headers, owned_extents,
    },
    deep::walk,
    finding::FindingSeverity,
    kind::START_BYTES,
    set::FileContents,
};
use maildb::{PageNumber, verify::stamps::StampsBeside};
use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use world::{ByteCount, ByteOffset, IoResult, real::Workers};

/// The inputs of one file's check.
pub struct CheckTask<'a> {
    pub source: &'a Source,
    /// Place of the file; `None` for data outside files.
    pub place: Option<&'a FilePlace>,
    pub level: VerifyLevel,
    /// The flush journals found.
    pub journals: &'a [FilePlace],
    pub workers: &'a Workers,
    pub limiter: &'a RateLimiter,
}

impl<'a> CheckTask<'a> {
    /// For data outside files.
    pub fn alone(source: &'a Source, workers: &'a Workers, limiter: &'a RateLimiter) -> Self {
        Self { source, place: None, level: VerifyLevel::Pages, journals: &[], workers, limiter }
    }
}

/// Checks a database. Continues at `from`, the progress of an earlier run; calls `save` now and then with the
/// progress; returns the page progress if it reached the pages.
pub async fn check(
    task: &CheckTask<'_>,
    outcome: &mut FileOutcome,
    from: Option<DatabaseProgress>,
    save: &mut dyn FnMut(&DatabaseProgress),
) -> IoResult<Option<DatabaseProgress>> {
    let size = task.source.size();
    let start = task.source.read_any(0, START_BYTES).await?;
    // The part that is read if no page is.
    let skipped = if task.level == VerifyLevel::Chain { size.0.min(START_BYTES as u64) } else { size.0 };
    let headers = judge_headers(&start, size);
    let Some(facts) = headers.facts else {
        outcome.findings.extend(headers.findings);
        outcome.facts = Some(FileContents::Headless);
        outcome.coverage = Coverage::Header;
        task.limiter.done(skipped);
        return Ok(None);
    };
    outcome.facts = Some(FileContents::Database(facts.clone()));
    if facts.is_temporary {
        outcome.kind = FileKind::TemporaryDatabase;
        outcome.findings.extend(outcome.skip_reason().map(|why| FileFinding::note(FileLocation::FILE, why)));
        task.limiter.done(skipped);
        return Ok(None);
    }
    outcome.findings.extend(headers.findings);
    let page_bytes = facts.page_size.bytes();
    let owned = owned(task, &facts).await;
    outcome.findings.extend(owned.find(&facts, size));
    if task.level == VerifyLevel::Chain {
        outcome.coverage = Coverage::Header;
        task.limiter.done(skipped);
        return Ok(None);
    }
    let (stamps, verdict) = match task.place {
        Some(place) => stamps::beside(place, &start, size).await,
        None => (None, maildb::verify::StampsVerdict::NotKept),
    };
    if let maildb::verify::StampsVerdict::Unusable(problem) = &verdict {
        let what = format!("its page stamps cannot be used: {problem}");
        outcome.findings.push(FileFinding::damage(FileLocation::FILE, what));
    }
    let journal = match task.place {
        Some(place) if facts.is_dirty() => journal::beside(place, &start, size, task.journals).await,
        _ => Journal::default(),
    };
    let first = 2 * page_bytes as u64;
    let mut place = from.unwrap_or_else(|| DatabaseProgress::at(first));
    outcome.findings.extend(place.findings.iter().cloned());
    outcome.findings.push_uncounted(place.tally().damaged.saturating_sub(place.findings.len() as u64));
    let check = DatabaseCheck {
        pages: place.tally(),
        unreadable: place.unreadable,
        owned: owned.clone(),
        stamps: verdict,
        walked: None,
    };
    task.limiter.done(place.to.min(size.0));
    let pages = PageChecker::new(&facts, owned, size);
    let judges = (pages, stamps.map(Arc::new), journal.clone());
    let check = check_pages(task, outcome, check, judges, &mut place, save).await;
    outcome.findings.extend(of_journal(&journal, &check.pages));
    let is_done = outcome.completion == Completion::Whole;
    outcome.coverage = Coverage::Database(Box::new(check));
    // A recovery on trial walks the trees as it leaves them.
    let is_walked = match task.level {
        VerifyLevel::Chain | VerifyLevel::Pages => false,
        VerifyLevel::Deep => true,
        VerifyLevel::Recover => !facts.is_dirty(),
    };
    if is_walked && is_done {
        task.limiter.expect(size.0);
        deep(task, outcome, facts).await;
    }
    Ok(Some(place))
}

/// The finding about the flush journal after all pages were checked.
fn of_journal(journal: &Journal, pages: &PageTally) -> Option<FileFinding> {
    let what = match (&journal.path, &journal.unusable) {
        (Some(path), _) if pages.torn > 0 => format!(
            "{} of its pages do not verify, and are no damage: its recovery restores them from {}",
            pages.torn,
            path.display()
        ),
        (_, Some(why)) if pages.damaged > 0 => {
            format!("the flush journal is unusable, so the pages that recovery restores are unknown: {why}")
        }
        _ => return None,
    };
    Some(FileFinding::note(FileLocation::FILE, what))
}

/// Minimum length of the file, by the last page it owns; `None` if unknown.
pub async fn length_owned(task: &CheckTask<'_>) -> IoResult<Option<u64>> {
    let start = task.source.read_any(0, START_BYTES).await?;
    let Some(facts) = judge_headers(&start, task.source.size()).facts else { return Ok(None) };
    Ok(match owned(task, &facts).await {
        OwnedPages::Extents(extents) => {
            extents.last().map(|extent| (u64::from(extent.last.0) + 2) * facts.page_size.bytes() as u64)
        }
        OwnedPages::Unknown(_) => None,
    })
}

async fn owned(task: &CheckTask<'_>, facts: &DatabaseFacts) -> OwnedPages {
    let of = facts.clone();
    let found = with_pages(task.source, facts.page_size, task.workers, task.limiter, move |source| {
        owned_extents(source, &of)
    });
    found.await.unwrap_or_else(|error| OwnedPages::Unknown(reason(error)))
}

fn reason(error: SourceError) -> String {
    match error {
        SourceError::Beyond => "the file ends before its space trees".to_owned(),
        SourceError::Unreadable(why) => why,
        SourceError::Stopped => "the run was stopped".to_owned(),
    }
}

/// Verifies every page, and compares it with its stamp if there are stamps.
async fn check_pages(
    task: &CheckTask<'_>,
    outcome: &mut FileOutcome,
    mut check: DatabaseCheck,
    (pages, stamps, journal): (PageChecker, Option<Arc<StampsBeside>>, Journal),
    place: &mut DatabaseProgress,
    save: &mut dyn FnMut(&DatabaseProgress),
) -> DatabaseCheck {
    let page_bytes = pages.page_size().bytes();
    let size = task.source.size().0;
    let end = size - size % page_bytes as u64;
    let number = move |at: ByteOffset| PageNumber((at.0 / page_bytes as u64 - 1) as u32);
    let slack = check.owned.clone();
    let judge: ChunkCheck<PageTally> = Arc::new(move |at, chunk| {
        let mut tally = pages.judge_chunk(number(at), chunk);
        if let Some(stamps) = &stamps {
            stamps::hold_against(stamps, number(at), page_bytes, chunk, &mut tally);
        }
        journal.take_torn(&mut tally);
        tally
    });
    let plan = ReadPlan {
        source: task.source,
        range: place.to..end,
        overlap: 0,
        unit: page_bytes,
        workers: task.workers,
        limiter: task.limiter,
    };
    let told_to = each_chunk(plan, judge, &mut |at, length, part| {
        match part {
            ChunkResult::Judged(mut tally) => {
                let findings = std::mem::take(&mut tally.findings);
                task.limiter.found(tally.damaged);
                check.pages.add(tally);
                place.note(findings.iter());
                outcome.findings.extend(findings);
            }
            ChunkResult::Unreadable(error) if slack.contains(number(at)) => {
                let place_in_file = FileLocation::new(FilePart::Page(number(at)), at);
                let finding = FileFinding::damage(place_in_file, format!("it cannot be read: {error}"));
                check.unreadable += 1;
                check.pages.damaged += 1;
                task.limiter.found(1);
                place.note([&finding].into_iter());
                outcome.findings.push(finding);
            }
            ChunkResult::Unreadable(_) => check.pages.slack += 1,
        }
        place.to = at.0 + length as u64;
        place.keep(&check.pages, check.unreadable);
        save(place);
    })
    .await;
    match told_to {
        Ok(to) if to < end => outcome.completion = Completion::Stopped(ByteCount(to)),
        Ok(_) => task.limiter.done(size - end),
        Err(error) => {
            outcome.completion = Completion::Failed(error.to_string());
        }
    }
    check
}

async fn deep(task: &CheckTask<'_>, outcome: &mut FileOutcome, facts: DatabaseFacts) {
    task.limiter.begin("walk", &outcome.path.display().to_string());
    let size = task.source.size().0;
    let page_bytes = facts.page_size.bytes() as u64;
    let pages_walked = Arc::new(AtomicU64::new(0));
    let (limiter, counter) = (task.limiter.clone(), Arc::clone(&pages_walked));
    let page_size = facts.page_size;
    let mut done = 0;
    let walking = with_pages(task.source, page_size, task.workers, task.limiter, move |source| {
        walk(source, &facts, &mut |walked| {
            counter.store(walked.pages, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
    });
    let mut walking = std::pin::pin!(walking);
    // Each page request carries the progress of the walk.
    let verdict = std::future::poll_fn(|context| {
        let now = (pages_walked.load(Ordering::Relaxed) * page_bytes).min(size);
        limiter.done(now.saturating_sub(done));
        done = done.max(now);
        walking.as_mut().poll(context)
    })
    .await;
    task.limiter.done(size - done);
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(SourceError::Stopped) => {
            outcome.completion = Completion::Stopped(task.source.size());
            return;
        }
        Err(error) => {
            let what = format!("its trees cannot be walked: {}", reason(error));
            outcome.findings.push(FileFinding::damage(FileLocation::FILE, what));
            return;
        }
    };
    if verdict.is_stopped {
        outcome.completion = Completion::Stopped(task.source.size());
    }
    // The walk also detects a page that is not its last written version: it does not fit its neighbours.
    let is_damage = |finding: &&FileFinding| finding.severity == FindingSeverity::Damage;
    let known: BTreeSet<FilePart> =
        outcome.findings.kept().iter().filter(is_damage).map(|finding| finding.place.part).collect();
    let is_known = |part: FilePart| matches!(part, FilePart::Page(_)) && known.contains(&part);
    let is_new = |finding: &&FileFinding| !is_known(finding.place.part);
    let new: Vec<FileFinding> = verdict.findings.iter().filter(is_new).cloned().collect();
    let damage = new.iter().filter(|finding| finding.severity == FindingSeverity::Damage).count();
    task.limiter.found(damage as u64 + verdict.findings_more);
    outcome.findings.extend(new);
    outcome.findings.push_uncounted(verdict.findings_more);
    if let Coverage::Database(check) = &mut outcome.coverage {
        check.walked = Some(verdict);
    }
}
