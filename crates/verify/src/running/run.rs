//! A whole run: small files first and in parallel, then databases one after the other, each with all workers.

use super::{
    database::{self, CheckTask},
    divided_device::DividedDevice,
    file_place::FilePlace,
    journal,
    outcome::{Completion, FileOutcome, VerifyOutcome},
    places::{Candidate, FileDiscovery},
    rate_limiter::RateLimiter,
    recovery::{self, TrialContext},
    resume::{DatabaseProgress, ResumeError, ResumeState},
    sets, small,
    verify_level::VerifyLevel,
};
use crate::{FileKind, FindingSeverity, kind::START_BYTES};
use std::{collections::VecDeque, num::NonZeroUsize, rc::Rc, time::Duration};
use world::{
    ByteCount, IoResult, World,
    real::{Workers, host_files::FileMetadata},
};

/// Small files checked in parallel.
const SIDE_BY_SIDE: usize = 8;
/// Bytes of them in memory at once; a larger file is checked alone.
const BYTES_AT_ONCE: u64 = 32 << 20;
/// Interval between writes of the state while a database is checked.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub level: VerifyLevel,
    /// Number of worker threads.
    pub jobs: NonZeroUsize,
    /// Bound of the memory for changes of a recovery on trial.
    pub scratch: ByteCount,
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
    let all = found.candidates.clone();
    let (databases, others): (Vec<Candidate>, Vec<Candidate>) = found
        .candidates
        .into_iter()
        .partition(|one| matches!(one.kind, FileKind::Database | FileKind::TemporaryDatabase));
    let places = settle(&databases, state.as_ref()).await?;
    let to_read = |of: &[Candidate], most: u64| of.iter().map(|one| one.size.0.min(most)).sum::<u64>();
    let of_databases = if settings.level == VerifyLevel::Chain { START_BYTES as u64 } else { u64::MAX };
    limiter.expect(to_read(&others, u64::MAX) + to_read(&databases, of_databases));
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
    outcome.sets = sets::judge(&outcome.files, &found.searched);
    if settings.level == VerifyLevel::Recover && !outcome.is_stopped {
        let context = TrialContext { world, workers: &workers, limiter, memory: settings.scratch };
        outcome.recoveries = recovery::try_all(&context, &all, &outcome.files, &outcome.sets).await;
        outcome.is_stopped |= limiter.is_stopped();
    }
    outcome.failures.extend(changes_below(&found.devices).await);
    outcome.warnings = found.devices.iter().filter_map(|device| device.table_warning()).collect();
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
        places.push(state.place(database.path(), &about, &start)?);
    }
    Ok(places)
}

/// The properties that identify a database: metadata and first bytes.
async fn identity(database: &Candidate) -> IoResult<(FileMetadata, Vec<u8>)> {
    let start = database.place.open().await?.read_any(0, START_BYTES).await?;
    Ok((database.place.metadata()?, start))
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
        let (level, workers, limiter) = (settings.level, Rc::clone(workers), limiter.clone());
        let check =
            world.spawn("file", async move { one_small(&candidate, level, &workers, &limiter).await });
        under_way.push_back((size, check));
    }
    for (_, check) in under_way {
        outcomes.push(check.await);
    }
    outcomes
}

async fn one_small(
    candidate: &Candidate,
    level: VerifyLevel,
    workers: &Workers,
    limiter: &RateLimiter,
) -> FileOutcome {
    let mut outcome = FileOutcome::new(&candidate.place, candidate.size, candidate.kind);
    limiter.begin("check", &candidate.path().display().to_string());
    let checked = match candidate.place.open().await {
        Ok(source) => {
            let place = Some(&candidate.place);
            let task = CheckTask { source: &source, place, level, journals: &[], workers, limiter };
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
    (workers, limiter, journals): (&Workers, &RateLimiter, &[FilePlace]),
    candidate: &Candidate,
    (state, place): (Option<&mut ResumeState>, Option<DatabaseProgress>),
) -> Result<FileOutcome, ResumeError> {
    let mut outcome = FileOutcome::new(&candidate.place, candidate.size, candidate.kind);
    limiter.begin("check", &candidate.path().display().to_string());
    let source = match candidate.place.open().await {
        Ok(source) => source,
        Err(error) => {
            outcome.end_with(Err(error));
            return Ok(outcome);
        }
    };
    let (place_of_file, level) = (Some(&candidate.place), settings.level);
    let task = CheckTask { source: &source, place: place_of_file, level, journals, workers, limiter };
    let mut failed = None;
    let checked = match state {
        None => database::check(&task, &mut outcome, place, &mut |_| {}).await,
        Some(state) => {
            let (about, start) = identity(candidate).await?;
            let mut next_save = world.now() + SAVE_INTERVAL;
            let mut save = |place: &DatabaseProgress| {
                if world.now() >= next_save {
                    state.remember(candidate.path(), &about, &start, place);
                    failed = failed.take().or(state.write().err());
                    next_save = world.now() + SAVE_INTERVAL;
                }
            };
            let checked = database::check(&task, &mut outcome, place, &mut save).await;
            if let Ok(Some(place)) = &checked {
                state.remember(candidate.path(), &about, &start, place);
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

/// A line for each device that somebody wrote to meanwhile: what was found there may be of two states.
async fn changes_below(devices: &[Rc<DividedDevice>]) -> Vec<String> {
    let mut lines = Vec::new();
    for device in devices {
        let name = device.name().display();
        match device.has_changed().await {
            Ok(false) => {}
            Ok(true) => lines.push(format!(
                "{name} is in use: it changed while it was checked, and what was found may be of two states; \
                 verify a snapshot of it"
            )),
            Err(error) => lines.push(format!("{name}: whether it changed meanwhile cannot be told: {error}")),
        }
    }
    lines
}
