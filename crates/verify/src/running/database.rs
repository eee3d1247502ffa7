//! A database file, from its first byte to its last: headers, who owns its pages, each page, and with `deep` its trees.

use super::{
    journal::{self, Journal},
    outcome::{Checked, DatabaseCheck, Ended, FileOutcome},
    pace::Pace,
    paging::with_pages,
    reading::{Judge, Part, Plan, each_chunk},
    resume::Place as ResumePlace,
    source::Source,
    stamps,
};
use crate::{
    FileKind, Finding, Part as FilePart, Place,
    database::{DatabaseFacts, Owned, Pages, SourceError, Tally, judge_headers, owned_extents},
    deep::walk,
    finding::Severity,
    kind::START_BYTES,
    set::Facts,
};
use maildb::{PageNumber, verify::stamps::StampsBeside};
use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use world::{ByteCount, ByteOffset, IoResult, real::Workers};

/// What a check of one file is given.
pub struct Task<'a> {
    /// Its bytes.
    pub source: &'a Source,
    /// Where it lies; none for what lies in no filesystem.
    pub path: Option<&'a Path>,
    /// Whether trees are walked, and records.
    pub deep: bool,
    /// Flush journals that were found.
    pub journals: &'a [PathBuf],
    /// Who judges.
    pub workers: &'a Workers,
    /// How fast.
    pub pace: &'a Pace,
}

/// Checks a database; goes on from `from`, if that is of an earlier run, tells `save` now and then how far it is, and gives
/// how far it got with its pages, if it came to them.
pub async fn check(
    task: &Task<'_>,
    outcome: &mut FileOutcome,
    from: Option<ResumePlace>,
    save: &mut dyn FnMut(&ResumePlace),
) -> IoResult<Option<ResumePlace>> {
    let size = task.source.size();
    let start = task.source.read_any(0, START_BYTES).await?;
    let headers = judge_headers(&start, size);
    let Some(facts) = headers.facts else {
        outcome.findings.extend(headers.findings);
        outcome.facts = Some(Facts::Headless);
        outcome.checked = Checked::Header;
        task.pace.done(size.0);
        return Ok(None);
    };
    outcome.facts = Some(Facts::Database(facts.clone()));
    if facts.is_temporary {
        outcome.kind = FileKind::TemporaryDatabase;
        outcome.findings.extend(outcome.passed_over().map(|why| Finding::note(Place::FILE, why)));
        task.pace.done(size.0);
        return Ok(None);
    }
    outcome.findings.extend(headers.findings);
    let page_bytes = facts.page_size.bytes();
    let owned = owned(task, &facts).await;
    outcome.findings.extend(owned.find(&facts, size));
    let (stamps, verdict) = match task.path {
        Some(path) => stamps::beside(path, &start, size).await,
        None => (None, maildb::verify::StampsVerdict::NotKept),
    };
    if let maildb::verify::StampsVerdict::Unusable(problem) = &verdict {
        let what = format!("its page stamps cannot be used: {problem}");
        outcome.findings.push(Finding::damage(Place::FILE, what));
    }
    let journal = match task.path {
        Some(path) if facts.is_dirty() => journal::beside(path, &start, size, task.journals).await,
        _ => Journal::default(),
    };
    let first = 2 * page_bytes as u64;
    let mut place = from.unwrap_or_else(|| ResumePlace::at(first));
    outcome.findings.extend(place.findings.iter().cloned());
    outcome.findings.push_uncounted(place.tally().damaged.saturating_sub(place.findings.len() as u64));
    let check = DatabaseCheck {
        pages: place.tally(),
        unreadable: place.unreadable,
        owned: owned.clone(),
        stamps: verdict,
        walked: None,
    };
    task.pace.done(place.to.min(size.0));
    let pages = Pages::new(&facts, owned, size);
    let judges = (pages, stamps.map(Arc::new), journal.clone());
    let check = check_pages(task, outcome, check, judges, &mut place, save).await;
    outcome.findings.extend(of_journal(&journal, &check.pages));
    let is_done = outcome.ended == Ended::Whole;
    outcome.checked = Checked::Database(Box::new(check));
    if task.deep && is_done {
        deep(task, outcome, facts).await;
    }
    Ok(Some(place))
}

/// What is to be said of the flush journal, once all pages were judged.
fn of_journal(journal: &Journal, pages: &Tally) -> Option<Finding> {
    let what = match (&journal.path, &journal.unusable) {
        (Some(path), _) if pages.torn > 0 => format!(
            "{} of its pages do not verify, and are no damage: its recovery restores them from {}",
            pages.torn,
            path.display()
        ),
        (_, Some(why)) if pages.damaged > 0 => {
            format!("it cannot be told which of its pages recovery restores from the flush journal: {why}")
        }
        _ => return None,
    };
    Some(Finding::note(Place::FILE, what))
}

/// How long the file is at least, by the last page that it owns; none if it does not tell.
pub async fn length_owned(task: &Task<'_>) -> IoResult<Option<u64>> {
    let start = task.source.read_any(0, START_BYTES).await?;
    let Some(facts) = judge_headers(&start, task.source.size()).facts else { return Ok(None) };
    Ok(match owned(task, &facts).await {
        Owned::Extents(extents) => {
            extents.last().map(|extent| (u64::from(extent.last.0) + 2) * facts.page_size.bytes() as u64)
        }
        Owned::Unknown(_) => None,
    })
}

async fn owned(task: &Task<'_>, facts: &DatabaseFacts) -> Owned {
    let of = facts.clone();
    let found = with_pages(task.source, facts.page_size, task.workers, task.pace, move |source| {
        owned_extents(source, &of)
    });
    found.await.unwrap_or_else(|error| Owned::Unknown(reason(error)))
}

fn reason(error: SourceError) -> String {
    match error {
        SourceError::Beyond => "the file ends before its space trees".to_owned(),
        SourceError::Unreadable(why) => why,
        SourceError::Stopped => "it was to stop".to_owned(),
    }
}

/// Judges every page, and holds it against its stamp if there are some.
async fn check_pages(
    task: &Task<'_>,
    outcome: &mut FileOutcome,
    mut check: DatabaseCheck,
    (pages, stamps, journal): (Pages, Option<Arc<StampsBeside>>, Journal),
    place: &mut ResumePlace,
    save: &mut dyn FnMut(&ResumePlace),
) -> DatabaseCheck {
    let page_bytes = pages.page_size().bytes();
    let size = task.source.size().0;
    let end = size - size % page_bytes as u64;
    let number = move |at: ByteOffset| PageNumber((at.0 / page_bytes as u64 - 1) as u32);
    let slack = check.owned.clone();
    let judge: Judge<Tally> = Arc::new(move |at, chunk| {
        let mut tally = pages.judge_chunk(number(at), chunk);
        if let Some(stamps) = &stamps {
            stamps::hold_against(stamps, number(at), page_bytes, chunk, &mut tally);
        }
        journal.take_torn(&mut tally);
        tally
    });
    let plan = Plan {
        source: task.source,
        range: place.to..end,
        overlap: 0,
        unit: page_bytes,
        workers: task.workers,
        pace: task.pace,
    };
    let told_to = each_chunk(plan, judge, &mut |at, length, part| {
        match part {
            Part::Judged(mut tally) => {
                let findings = std::mem::take(&mut tally.findings);
                task.pace.found(tally.damaged);
                check.pages.add(tally);
                place.note(findings.iter());
                outcome.findings.extend(findings);
            }
            Part::Unreadable(error) if slack.contains(number(at)) => {
                let place_in_file = Place::new(FilePart::Page(number(at)), at);
                let finding = Finding::damage(place_in_file, format!("it cannot be read: {error}"));
                check.unreadable += 1;
                check.pages.damaged += 1;
                task.pace.found(1);
                place.note([&finding].into_iter());
                outcome.findings.push(finding);
            }
            Part::Unreadable(_) => check.pages.slack += 1,
        }
        place.to = at.0 + length as u64;
        place.keep(&check.pages, check.unreadable);
        save(place);
    })
    .await;
    match told_to {
        Ok(to) if to < end => outcome.ended = Ended::Stopped(ByteCount(to)),
        Ok(_) => task.pace.done(size - end),
        Err(error) => {
            outcome.ended = Ended::Failed(error.to_string());
        }
    }
    check
}

/// Walks the trees.
async fn deep(task: &Task<'_>, outcome: &mut FileOutcome, facts: DatabaseFacts) {
    task.pace.begin("walk", &outcome.path.display().to_string());
    let size = task.source.size().0;
    let page_bytes = facts.page_size.bytes() as u64;
    let pages_walked = Arc::new(AtomicU64::new(0));
    let (pace, counter) = (task.pace.clone(), Arc::clone(&pages_walked));
    let page_size = facts.page_size;
    let mut done = 0;
    let walking = with_pages(task.source, page_size, task.workers, task.pace, move |source| {
        walk(source, &facts, &mut |walked| {
            counter.store(walked.pages, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
    });
    let mut walking = std::pin::pin!(walking);
    // Each time a page is asked for, there is news of the walk.
    let verdict = std::future::poll_fn(|context| {
        let now = (pages_walked.load(Ordering::Relaxed) * page_bytes).min(size);
        pace.done(now.saturating_sub(done));
        done = done.max(now);
        walking.as_mut().poll(context)
    })
    .await;
    task.pace.done(size - done);
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(SourceError::Stopped) => {
            outcome.ended = Ended::Stopped(task.source.size());
            return;
        }
        Err(error) => {
            let what = format!("its trees cannot be walked: {}", reason(error));
            outcome.findings.push(Finding::damage(Place::FILE, what));
            return;
        }
    };
    if verdict.is_stopped {
        outcome.ended = Ended::Stopped(task.source.size());
    }
    // A page that is not what was written there last is met again by the walk: it does not fit its neighbours.
    let is_damage = |finding: &&Finding| finding.severity == Severity::Damage;
    let known: BTreeSet<FilePart> =
        outcome.findings.kept().iter().filter(is_damage).map(|finding| finding.place.part).collect();
    let is_known = |part: FilePart| matches!(part, FilePart::Page(_)) && known.contains(&part);
    let is_new = |finding: &&Finding| !is_known(finding.place.part);
    let new: Vec<Finding> = verdict.findings.iter().filter(is_new).cloned().collect();
    let damage = new.iter().filter(|finding| finding.severity == Severity::Damage).count();
    task.pace.found(damage as u64 + verdict.findings_more);
    outcome.findings.extend(new);
    outcome.findings.push_uncounted(verdict.findings_more);
    if let Checked::Database(check) = &mut outcome.checked {
        check.walked = Some(verdict);
    }
}
