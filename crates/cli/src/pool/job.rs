//! `spindle job`: the jobs of pools that a server has open.

use super::{
    job_arguments::{JobArguments, JobVerb},
    job_text::job_text,
    online_pool::OnlinePool,
    online_wait::{OnlineWait, WorkState, progress_of},
    pool_place::{PoolPlace, at_server},
    scrub,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    server::place::{ServerAddress, ServerPlace},
};
use control::{
    job_request::JobAnswer,
    web::{
        client::{Method, in_uri},
        health_rows::{DriveRow, JobName, JobRow},
        rows::PoolRow,
    },
};
use report::Refusal;
use serde::Serialize;
use std::path::Path;
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

/// A job of a pool, for programs.
#[derive(Serialize)]
struct ListedJob {
    /// Name of the pool.
    pool: String,
    #[serde(flatten)]
    job: JobRow,
}

/// A job that a path names.
struct NamedJob {
    pool: OnlinePool,
    kind: JobName,
}

/// Runs the verb to its end.
pub fn job(arguments: &JobArguments) -> Result<ExitStatus, Refusal> {
    let JobArguments { verb, place, json } = arguments;
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(*json, false);
        match verb {
            JobVerb::List { pool } => list(&world, (place, pool.as_deref()), &console).await,
            JobVerb::Show { job } => show(&named(&world, job, place).await?, &console).await,
            JobVerb::Wait { job } => wait(&world, &named(&world, job, place).await?, &console).await,
            JobVerb::Cancel { job } => cancel(&named(&world, job, place).await?, &console).await,
        }
    })
}

/// The job that `POOL/JOB` names.
async fn named(world: &World, path: &Path, place: &ServerPlace) -> Result<NamedJob, Refusal> {
    let kinds = [
        JobName::Rebuild,
        JobName::Empty,
        JobName::Level,
        JobName::Scrub,
        JobName::Destage,
        JobName::Reclaim,
        JobName::Fill,
        JobName::Copy,
        JobName::Refresh,
        JobName::Move,
        JobName::Import,
    ];
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let kind = path.file_name().and_then(|name| kinds.into_iter().find(|kind| name == kind.name()));
    let pool = path.parent().filter(|pool| !pool.as_os_str().is_empty());
    let (Some(kind), Some(pool)) = (kind, pool) else {
        let problem = format!("{} names no job of a pool", path.display());
        return Err(Refusal::new(problem, format!("say POOL/JOB, where JOB is {}", names.join(", "))));
    };
    if place.state.is_some() {
        let server = place.connection(world)?;
        // In commands to be copied: the verbs of pools know no state folder.
        let server_address =
            ServerAddress { server: Some(server.address().to_string()), ..ServerAddress::default() };
        let pool = at_server(server, pool, "/JOB").await?;
        return Ok(NamedJob { pool: pool.named_by(&server_address), kind });
    }
    match PoolPlace::of_pool(world, pool, &place.address).await? {
        PoolPlace::Served(pool) => Ok(NamedJob { pool: *pool, kind }),
        PoolPlace::Folder => Err(Refusal::new(
            format!("no server has a pool {} open, so it has no jobs", pool.display()),
            "see 'spindle pool show' for what waits in it, or start 'spindle serve'",
        )),
    }
}

async fn list(
    world: &World,
    (place, wanted): (&ServerPlace, Option<&str>),
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let filter = wanted.map_or(String::new(), |name| format!("?name={}", in_uri(name)));
    let pools: Vec<PoolRow> = server.get(&format!("/v1/pools{filter}")).await?;
    if let (true, Some(name)) = (pools.is_empty(), wanted) {
        return Err(Refusal::new(format!("the server at {} has no pool {name}", server.address()), ""));
    }
    let mut listed = Vec::new();
    for pool in &pools {
        let Some(id) = &pool.id else { continue };
        let jobs: Vec<JobRow> = server.get(&format!("/v1/pools/{id}/jobs")).await?;
        listed.extend(jobs.into_iter().map(|job| ListedJob { pool: pool.name.clone(), job }));
    }
    if console.is_for_programs() {
        console.json_of(&listed)?;
    }
    let shown = listed.iter().filter(|listed| listed.job.is_open() || listed.job.request.is_some());
    let lines: Vec<String> =
        shown.map(|ListedJob { pool, job }| format!("{pool}/{}", job_text(job))).collect();
    lines.iter().for_each(|line| console.say(line));
    if lines.is_empty() {
        console.say("no job is under way");
    }
    for pool in pools.iter().filter(|pool| pool.reason.is_some()) {
        let reason = pool.reason.as_deref().unwrap_or_default();
        console.warn(&format!(
            "pool {} is stopped: {reason}; its jobs go on when it is served again",
            pool.name
        ));
    }
    console.finish(ExitStatus::Pass)
}

impl NamedJob {
    async fn row(&self) -> Result<JobRow, Refusal> {
        self.pool.server().get(&self.pool.path(&format!("/jobs/{}", self.kind.name()))).await
    }

    fn path(&self) -> String {
        format!("{}/{}", self.pool.place().display(), self.kind.name())
    }
}

async fn show(job: &NamedJob, console: &Console) -> Result<ExitStatus, Refusal> {
    let row = job.row().await?;
    if console.is_for_programs() {
        console.json_of(&row)?;
    }
    console.say(&format!("{}/{}", job.pool.place().display(), job_text(&row)));
    console.finish(ExitStatus::Pass)
}

async fn wait(world: &World, job: &NamedJob, console: &Console) -> Result<ExitStatus, Refusal> {
    let (pool, kind) = (&job.pool, job.kind);
    let work = format!("the job {}", kind.name());
    let wait = OnlineWait { world, pool, console, job: kind, work, cancel: None, again: None };
    if kind == JobName::Empty {
        return wait_until_all_left(&wait, console).await;
    }
    let row = job.row().await?;
    let ended = match &row.request {
        // One that runs without a request tells nothing of an earlier one.
        Some(request) if request.outcome.is_none() || !row.is_open() => {
            Some(wait.until_job_ends(&request.id).await?)
        }
        _ => None,
    };
    match ended.and_then(|ended| ended.answer) {
        Some(JobAnswer::Scrub(answer)) => scrub::tell(console, pool.place(), &answer),
        Some(JobAnswer::Level(answer)) => {
            if console.is_for_programs() {
                console.json_of(&answer)?;
            }
            console.say(&format!("{}: {}", job.path(), answer.text()));
            console.finish(ExitStatus::Pass)
        }
        Some(JobAnswer::Transfer(answer)) => {
            if console.is_for_programs() {
                console.json_of(&answer)?;
            }
            let (size, copied) = (ByteCount(answer.size_bytes), ByteCount(answer.copied_bytes));
            console.say(&format!("{}: done, a volume of {size}; {copied} copied", job.path()));
            console.finish(ExitStatus::Pass)
        }
        _ => wait_until_idle(&wait, job, console).await,
    }
}

/// Waits until no drive leaves any more.
async fn wait_until_all_left(wait: &OnlineWait<'_>, console: &Console) -> Result<ExitStatus, Refusal> {
    let place = wait.pool.place().display();
    let ended = wait.until(async || {
        wait.check_pool_runs().await?;
        let drives: Vec<DriveRow> = wait.get("/drives").await?;
        let row: JobRow = wait.get("/jobs/empty").await?;
        let leaving: Vec<&DriveRow> = drives.iter().filter(|drive| drive.leaving.is_some()).collect();
        match leaving.iter().find_map(|drive| Some((*drive, drive.reason.as_ref()?))) {
            Some((drive, reason)) => Err(Refusal::new(
                wait.pool.as_given(&format!("{place}: {} is not empty yet: {reason}", drive.name)),
                "it goes on in the server; 'spindle pool retire' of the drive waits for it, --keep cancels it",
            )),
            None if leaving.is_empty() => Ok(WorkState::Ended(drives.len())),
            None => Ok(WorkState::GoesOn(Some(progress_of(&row)))),
        }
    });
    let left = ended.await?;
    if console.is_for_programs() {
        console.json_of(&wait.get::<JobRow>("/jobs/empty").await?)?;
    }
    console.say(&format!(
        "{place}: no drive leaves; {left} drives are listed: see 'spindle pool show' before one is taken out"
    ));
    console.finish(ExitStatus::Pass)
}

/// Waits until a job is not under way, and says what is left of its work. Missing copies are a failure.
async fn wait_until_idle(
    wait: &OnlineWait<'_>,
    job: &NamedJob,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let path = job.path();
    let ended = wait.until(async || {
        wait.check_pool_runs().await?;
        let row: JobRow = wait.get(&format!("/jobs/{}", job.kind.name())).await?;
        match &row.problem {
            Some(problem) if row.is_open() || row.done < row.total => {
                let problem = format!("{path} does not go on at present: {problem}");
                Err(Refusal::new(wait.pool.as_given(&problem), "see 'spindle pool show'"))
            }
            _ if row.is_open() => Ok(WorkState::GoesOn(Some(progress_of(&row)))),
            _ => Ok(WorkState::Ended(row)),
        }
    });
    let row = ended.await?;
    if console.is_for_programs() {
        console.json_of(&row)?;
    }
    // What is so now, whatever a job of earlier has said.
    let degraded = match job.kind {
        JobName::Rebuild => job.pool.row().await?.health.map_or(0, |health| health.degraded_segments),
        _ => 0,
    };
    if degraded > 0 {
        console.say(&format!(
            "{path}: nothing is under way, and {degraded} segments lack a copy; see 'spindle pool show'"
        ));
        return console.finish(ExitStatus::Fail);
    }
    console.say(&match job.kind {
        JobName::Rebuild => format!("{path}: nothing is under way, and no segment lacks a copy"),
        _ => format!("{path}: nothing is under way"),
    });
    console.finish(ExitStatus::Pass)
}

async fn cancel(job: &NamedJob, console: &Console) -> Result<ExitStatus, Refusal> {
    let (path, place, server) = (job.path(), job.pool.word(), job.pool.repeated());
    let (end, again) = match job.kind {
        JobName::Scrub => ("/scrub", "scrub"),
        JobName::Level => ("/levelling", "level"),
        JobName::Empty => {
            let drives: Vec<DriveRow> = job.pool.server().get(&job.pool.path("/drives")).await?;
            let leaving = drives.iter().filter(|drive| drive.leaving.is_some());
            let keep =
                |drive: &DriveRow| format!("'spindle pool retire {place} {} --keep{server}'", drive.name);
            let keep: Vec<String> = leaving.map(keep).collect();
            return Err(match keep.is_empty() {
                true => Refusal::new(format!("{path}: no drive leaves"), ""),
                false => {
                    let problem = format!("{path} ends when no drive leaves any more");
                    Refusal::new(problem, format!("keep the drives: {}", keep.join(", ")))
                }
            });
        }
        JobName::Fill => {
            let problem = format!("{path} is of all clones that are being filled");
            let next = format!("'spindle volume fill {place}/VOLUME --cancel{server}' gives up one of them");
            return Err(Refusal::new(problem, next));
        }
        JobName::Copy | JobName::Refresh | JobName::Move | JobName::Import => {
            if !job.row().await?.is_open() {
                return Err(Refusal::new(format!("{path} is not under way"), ""));
            }
            job.pool.command(Method::DELETE, &format!("/jobs/{}", job.kind.name())).await?;
            if console.is_for_programs() {
                console.json_of(&job.row().await?)?;
            }
            let left = match job.kind {
                JobName::Import => {
                    "the volume can be used on, and needs its source; the same import goes on from there"
                }
                _ => "what is copied stays in an incomplete copy, and the same command goes on from there",
            };
            console.say(&format!("{path}: cancelled; {left}"));
            return console.finish(ExitStatus::Pass);
        }
        JobName::Rebuild | JobName::Destage | JobName::Reclaim => {
            let problem = format!("{path} is not cancelled: it keeps data safe, or frees its space");
            return Err(Refusal::new(problem, "it ends by itself, and hosts go first"));
        }
    };
    if !job.row().await?.is_open() {
        return Err(Refusal::new(format!("{path} is not under way"), ""));
    }
    job.pool.command(Method::DELETE, end).await?;
    if console.is_for_programs() {
        console.json_of(&job.row().await?)?;
    }
    console.say(&format!(
        "{path}: cancelled; what it has done counts, and 'spindle pool {again} {place}{server}' begins it again"
    ));
    console.finish(ExitStatus::Pass)
}
