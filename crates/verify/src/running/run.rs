//! A whole run: small files first and in parallel, then databases one after the other, each with all workers.

use super::{
    database::{self, CheckTask},
    journal,
    outcome::{Completion, FileOutcome, VerifyOutcome},
    places::{Candidate, FileDiscovery},
    rate_limiter::RateLimiter,
    resume::{DatabaseProgress, ResumeError, ResumeState},
    sets, small,
    source::Source,
};
use crate::{FileKind, FindingSeverity, kind::START_BYTES};
use std::{collections::VecDeque, num::NonZeroUsize, path::PathBuf, rc::Rc, time::Duration};
use world::{
    IoResult, World,
    real::{
        Workers,
        host_files::{self, FileMetadata},
    },
};

/// Small files checked in parallel.
const SIDE_BY_SIDE: usize = 8;
/// Bytes of them in memory at once; a larger file is checked alone.
const BYTES_AT_ONCE: u64 = 32 << 20;
/// Interval between writes of the state while a database is checked.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The paths named, in their order.
    pub paths: Vec<PathBuf>,
    /// Walk trees, and records of logs.
    pub deep: bool,
    /// Number of worker threads.
    pub jobs: NonZeroUsize,
}

/// Checks all files of `found` until `limiter` stops it; resumes from `state` and updates it.
///
/// Fails before any page is read if a state cannot be used, or if it cannot be written.
pub async fn run(
    world: &World,
    settings: &Settings,
    found: FileDiscovery,
    limiter: &RateLimiter,
    mut state: Option<ResumeState>,
) -> Result<VerifyOutcome, ResumeError> {
    let workers = Rc::new(Workers::new(settings.jobs));
    let journals = journal::among(&found.candidates);
    let (databases, others): (Vec<Candidate>, Vec<Candidate>) = found
        .candidates
        .into_iter()
        .partition(|one| matches!(one.kind, FileKind::Database | FileKind::TemporaryDatabase));
    let places = settle(&databases, state.as_ref()).await?;
    let passes = if settings.deep { 2 } else { 1 };
    let to_do = |of: &[Candidate], times: u64| of.iter().map(|one| one.size.0 * times).sum::<u64>();
    limiter.expect(to_do(&others, 1) + to_do(&databases, passes));
    let mut outcome =
        VerifyOutcome { strangers: found.strangers, failures: found.failures, ..VerifyOutcome::default() };
    outcome.files = side_by_side(world, settings, &workers, limiter, others).await;
    for (candidate, place) in databases.iter().zip(places) {
        let judges = (&*workers, limiter, journals.as_slice());
        let file = one_database(world, settings, judges, candidate, (state.as_mut(), place)).await?;
        outcome.files.push(file);
    }
    outcome.files.sort_by(|one, other| one.path.cmp(&other.path));
    outcome.is_stopped = outcome.files.iter().any(|file| matches!(file.completion, Completion::Stopped(_)));
    let folders: Vec<PathBuf> = settings
        .paths
        .iter()
        .filter(|path| host_files::kind(path).is_ok_and(|kind| kind == host_files::PathKind::Folder))
        .cloned()
        .collect();
    outcome.sets = sets::judge(&outcome.files, &folders);
    if let Some(state) = &state {
        if outcome.is_stopped { state.write()? } else { state.remove()? }
    }
    Ok(outcome)
}

/// The stored progress of each database; fails before any read if one of them has changed.
async fn settle(
    databases: &[Candidate],
    state: Option<&ResumeState>,
) -> Result<Vec<Option<DatabaseProgress>>, ResumeError> {
    let mut places = Vec::new();
    for database in databases {
        let Some(state) = state else {
            places.push(None);
            continue;
        };
        let (about, start) = identity(database).await?;
        places.push(state.place(&database.path, &about, &start)?);
    }
    Ok(places)
}

/// The properties that identify a database: metadata and first bytes.
async fn identity(database: &Candidate) -> IoResult<(FileMetadata, Vec<u8>)> {
    let start = Source::open(&database.path)?.read_any(0, START_BYTES).await?;
    Ok((host_files::metadata(&database.path)?, start))
}

/// Checks files in parallel, each as a whole.
async fn side_by_side(
    world: &World,
    settings: &Settings,
    workers: &Rc<Workers>,
    limiter: &RateLimiter,
    candidates: Vec<Candidate>,
) -> Vec<FileOutcome> {
    let mut outcomes = Vec::new();
    let mut under_way: VecDeque<(u64, world::JoinHandle<FileOutcome>)> = VecDeque::new();
    for candidate in candidates {
        let size = candidate.size.0;
        while under_way.len() >= SIDE_BY_SIDE
            || (!under_way.is_empty()
                && under_way.iter().map(|(size, _)| size).sum::<u64>() + size > BYTES_AT_ONCE)
        {
            let (_, first) = under_way.pop_front().expect("it is not empty");
            outcomes.push(first.await);
        }
        let (deep, workers, limiter) = (settings.deep, Rc::clone(workers), limiter.clone());
        let check = world.spawn("file", async move { one_small(&candidate, deep, &workers, &limiter).await });
        under_way.push_back((size, check));
    }
    for (_, check) in under_way {
        outcomes.push(check.await);
    }
    outcomes
}

async fn one_small(
    candidate: &Candidate,
    deep: bool,
    workers: &Workers,
    limiter: &RateLimiter,
) -> FileOutcome {
    let mut outcome = FileOutcome::new(&candidate.path, candidate.size, candidate.kind);
    limiter.begin("check", &candidate.path.display().to_string());
    let checked = match Source::open(&candidate.path) {
        Ok(source) => {
            let path = Some(candidate.path.as_path());
            let task = CheckTask { source: &source, path, deep, journals: &[], workers, limiter };
            small::check(&task, &mut outcome).await
        }
        Err(error) => Err(error),
    };
    outcome.end_with(checked);
    limiter.found(outcome.findings.count(FindingSeverity::Damage));
    outcome
}

async fn one_database(
    world: &World,
    settings: &Settings,
    (workers, limiter, journals): (&Workers, &RateLimiter, &[PathBuf]),
    candidate: &Candidate,
    (state, place): (Option<&mut ResumeState>, Option<DatabaseProgress>),
) -> Result<FileOutcome, ResumeError> {
    let mut outcome = FileOutcome::new(&candidate.path, candidate.size, candidate.kind);
    limiter.begin("check", &candidate.path.display().to_string());
    let source = match Source::open(&candidate.path) {
        Ok(source) => source,
        Err(error) => {
            outcome.end_with(Err(error));
            return Ok(outcome);
        }
    };
    let path = Some(candidate.path.as_path());
    let task = CheckTask { source: &source, path, deep: settings.deep, journals, workers, limiter };
    let mut failed = None;
    let checked = match state {
        None => database::check(&task, &mut outcome, place, &mut |_| {}).await,
        Some(state) => {
            let (about, start) = identity(candidate).await?;
            let mut next_save = world.now() + SAVE_INTERVAL;
            let mut save = |place: &DatabaseProgress| {
                if world.now() >= next_save {
                    state.remember(&candidate.path, &about, &start, place);
                    failed = failed.take().or(state.write().err());
                    next_save = world.now() + SAVE_INTERVAL;
                }
            };
            let checked = database::check(&task, &mut outcome, place, &mut save).await;
            if let Ok(Some(place)) = &checked {
                state.remember(&candidate.path, &about, &start, place);
            }
            checked
        }
    };
    if let Some(error) = failed {
        return Err(error);
    }
    outcome.end_with(checked.map(drop));
    Ok(outcome)
}
