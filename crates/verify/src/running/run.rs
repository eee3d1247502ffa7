//! A whole run: all files, small ones first and side by side, databases one after the other, each with all that judges.

use super::{
    database::{self, Task},
    journal,
    outcome::{Ended, FileOutcome, Outcome},
    pace::Pace,
    places::{Candidate, Found},
    resume::{Place, ResumeError, State},
    sets, small,
    source::Source,
};
use crate::{FileKind, Severity, kind::START_BYTES};
use std::{collections::VecDeque, num::NonZeroUsize, path::PathBuf, rc::Rc, time::Duration};
use world::{
    IoResult, World,
    real::{
        Workers,
        host_files::{self, About},
    },
};

/// Small files looked at side by side.
const SIDE_BY_SIDE: usize = 8;
/// Of them, bytes in memory at once; a longer one is looked at alone.
const BYTES_AT_ONCE: u64 = 32 << 20;
/// How often the state is written while a database is checked.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// What a run is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What was named, in its order.
    pub paths: Vec<PathBuf>,
    /// Walk trees, and records of logs.
    pub deep: bool,
    /// Threads that judge.
    pub jobs: NonZeroUsize,
}

/// Checks all that was found, until `pace` says to stop; goes on where `state` says, and writes it.
///
/// Fails if a state cannot be used or written, and then has looked at no page.
pub async fn run(
    world: &World,
    settings: &Settings,
    found: Found,
    pace: &Pace,
    mut state: Option<State>,
) -> Result<Outcome, ResumeError> {
    let workers = Rc::new(Workers::new(settings.jobs));
    let journals = journal::among(&found.candidates);
    let (databases, others): (Vec<Candidate>, Vec<Candidate>) = found
        .candidates
        .into_iter()
        .partition(|one| matches!(one.kind, FileKind::Database | FileKind::TemporaryDatabase));
    let places = settle(&databases, state.as_ref()).await?;
    let passes = if settings.deep { 2 } else { 1 };
    let to_do = |of: &[Candidate], times: u64| of.iter().map(|one| one.size.0 * times).sum::<u64>();
    pace.expect(to_do(&others, 1) + to_do(&databases, passes));
    let mut outcome = Outcome { strangers: found.strangers, failures: found.failures, ..Outcome::default() };
    outcome.files = side_by_side(world, settings, &workers, pace, others).await;
    for (candidate, place) in databases.iter().zip(places) {
        let judges = (&*workers, pace, journals.as_slice());
        let file = one_database(world, settings, judges, candidate, (state.as_mut(), place)).await?;
        outcome.files.push(file);
    }
    outcome.files.sort_by(|one, other| one.path.cmp(&other.path));
    outcome.is_stopped = outcome.files.iter().any(|file| matches!(file.ended, Ended::Stopped(_)));
    let folders: Vec<PathBuf> = settings
        .paths
        .iter()
        .filter(|path| host_files::kind(path).is_ok_and(|kind| kind == host_files::PathKind::Folder))
        .cloned()
        .collect();
    outcome.sets = sets::judge(&outcome.files, &folders);
    if let Some(state) = &state {
        match outcome.is_stopped {
            true => state.write()?,
            false => state.remove()?,
        }
    }
    Ok(outcome)
}

/// Where each database is gone on with; refused before anything is read if one is another now.
async fn settle(databases: &[Candidate], state: Option<&State>) -> Result<Vec<Option<Place>>, ResumeError> {
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

/// By what a database is known again.
async fn identity(database: &Candidate) -> IoResult<(About, Vec<u8>)> {
    let start = Source::open(&database.path)?.read_any(0, START_BYTES).await?;
    Ok((host_files::about(&database.path)?, start))
}

/// Checks files that are judged whole, several at once.
async fn side_by_side(
    world: &World,
    settings: &Settings,
    workers: &Rc<Workers>,
    pace: &Pace,
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
        let (deep, workers, pace) = (settings.deep, Rc::clone(workers), pace.clone());
        let check = world.spawn("file", async move { one_small(&candidate, deep, &workers, &pace).await });
        under_way.push_back((size, check));
    }
    for (_, check) in under_way {
        outcomes.push(check.await);
    }
    outcomes
}

async fn one_small(candidate: &Candidate, deep: bool, workers: &Workers, pace: &Pace) -> FileOutcome {
    let mut outcome = FileOutcome::new(&candidate.path, candidate.size, candidate.kind);
    pace.begin("check", &candidate.path.display().to_string());
    let checked = match Source::open(&candidate.path) {
        Ok(source) => {
            let path = Some(candidate.path.as_path());
            let task = Task { source: &source, path, deep, journals: &[], workers, pace };
            small::check(&task, &mut outcome).await
        }
        Err(error) => Err(error),
    };
    outcome.end_with(checked);
    pace.found(outcome.findings.count(Severity::Damage));
    outcome
}

async fn one_database(
    world: &World,
    settings: &Settings,
    (workers, pace, journals): (&Workers, &Pace, &[PathBuf]),
    candidate: &Candidate,
    (state, place): (Option<&mut State>, Option<Place>),
) -> Result<FileOutcome, ResumeError> {
    let mut outcome = FileOutcome::new(&candidate.path, candidate.size, candidate.kind);
    pace.begin("check", &candidate.path.display().to_string());
    let source = match Source::open(&candidate.path) {
        Ok(source) => source,
        Err(error) => {
            outcome.end_with(Err(error));
            return Ok(outcome);
        }
    };
    let path = Some(candidate.path.as_path());
    let task = Task { source: &source, path, deep: settings.deep, journals, workers, pace };
    let mut failed = None;
    let checked = match state {
        None => database::check(&task, &mut outcome, place, &mut |_| {}).await,
        Some(state) => {
            let (about, start) = identity(candidate).await?;
            let mut next_save = world.now() + SAVE_INTERVAL;
            let mut save = |place: &Place| {
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
