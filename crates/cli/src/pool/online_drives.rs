//! The drives, settings and jobs of a pool that a server has open.

use super::{
    online_pool::OnlinePool,
    online_wait::{OnlineWait, WorkState},
};
use crate::{command_line::quoted, console::Console};
use array::{
    format::{DriveId, SparingLevel},
    mover::EmptyingProblem,
};
use control::{
    job_request::JobAnswer,
    web::{
        DeviceAccessBody, DomainBody, DriveGrowth, NewDriveBody, PoolPatch, SparingChoice,
        client::Method,
        health_rows::{DriveRow, DriveState, JobName, JobRow},
        rows::PoolRow,
    },
};
use report::Refusal;
use runs::observer::ProgressStatus;
use serde::{Serialize, de::DeserializeOwned};
use serving::{
    pool::{
        add_drive::{AddDriveAnswer, CopiesAnswer},
        departure::{DriveNames, NamedDrive, drive_named_in, problem_text},
        levelling::{LevelAnswer, advice_if},
        pool_change::{NewDriveSource, PoolSettingChange},
        scrub::ScrubAnswer,
        status::PoolStatus,
    },
    remote::is_uri,
    uuid::parse_uuid,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::{ByteCount, World, real::host_files};

/// A lack of room that lasts longer ends the wait for a drive that leaves: cleaning may make room.
const ROOM_COMES_WITHIN: Duration = Duration::from_secs(60);
/// A drive that has left is out of the pool's record a moment later.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);

/// The pool, and who waits for it.
#[derive(Clone, Copy)]
pub struct OnlineVerb<'a> {
    pub world: &'a World,
    pub pool: &'a OnlinePool,
    pub console: &'a Console,
}

impl OnlinePool {
    /// A job of the pool as a word of a command.
    pub fn job_word(&self, job: JobName) -> String {
        quoted(&self.place().join(job.name()).display().to_string())
    }

    /// The pool as it is now, with all volumes.
    ///
    /// # Errors
    ///
    /// The server does not answer, or the pool has stopped.
    pub async fn status(&self) -> Result<PoolStatus, Refusal> {
        let mut status: serde_json::Value = self.server().get(&self.path("/status")).await?;
        self.change_texts(&mut status);
        serde_json::from_value(status).map_err(|error| {
            Refusal::new(
                format!("the server's answer cannot be read: {error}"),
                "use the same version of Spindle for both",
            )
        })
    }

    /// All texts in an answer with the pool as it was given.
    fn change_texts(&self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = self.as_given(text),
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| self.change_texts(value)),
            serde_json::Value::Object(fields) => {
                fields.values_mut().for_each(|value| self.change_texts(value));
            }
            _ => {}
        }
    }

    /// The drives, from the view that the server has.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn drives(&self) -> Result<Vec<DriveRow>, Refusal> {
        self.server().get(&self.path("/drives")).await
    }

    /// The pool's row, from the view that the server has.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn row(&self) -> Result<PoolRow, Refusal> {
        self.server().get(&self.path("")).await
    }

    /// The row, and the line about levelling that a verb adds after a change of drives; `None` if the server does not say: the
    /// change is done all the same.
    pub async fn row_and_advice(&self) -> (Option<PoolRow>, Option<String>) {
        let row = self.row().await.ok();
        let health = row.as_ref().and_then(|row| row.health.as_ref());
        let is_uneven = health
            .is_some_and(|health| health.levelling.is_uneven || health.failure_sets.across_segments > 0);
        let advice = advice_if(is_uneven, &self.word_and_server());
        (row, advice)
    }

    /// The drive that a person means.
    ///
    /// # Errors
    ///
    /// The pool has no such drive, or several.
    pub async fn drive(&self, given: &str) -> Result<NamedDrive, Refusal> {
        let rows = self.drives().await?;
        let is_here = self.is_here();
        let names: Vec<DriveNames<'_>> = rows
            .iter()
            .filter_map(|row| {
                let paths = [&row.recorded_path, &row.path].map(PathBuf::from).into();
                let id = DriveId(parse_uuid(row.id.as_deref()?).ok()?);
                let (serial, name) = (row.serial.as_deref(), self.as_given(&row.name));
                Some(DriveNames { id, paths, serial, name })
            })
            .collect();
        drive_named_in(&names, (self.folder(), self.place()), (given, is_here))
    }

    /// Has the server make a change of the pool.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        end: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Refusal> {
        let reply = self.server().change_to_its_end(method, &self.path(end), body).await?;
        reply.parsed().map_err(|refusal| self.refusal_as_given(&refusal))
    }

    /// As [`Self::change`], of an answer that says nothing.
    pub(super) async fn command(&self, method: Method, end: &str) -> Result<u16, Refusal> {
        let reply = self.server().change_to_its_end(method, &self.path(end), None::<&()>).await?;
        let done = reply.checked().map_err(|refusal| self.refusal_as_given(&refusal))?;
        Ok(done.status)
    }

    /// A refusal of the server with the pool as it was given.
    pub fn refusal_as_given(&self, refusal: &Refusal) -> Refusal {
        Refusal::new(self.as_given(refusal.problem()), self.as_given(refusal.remedy()))
    }

    /// Changes settings, in the order of the same change of a stopped pool.
    ///
    /// # Errors
    ///
    /// As of a stopped pool.
    pub async fn set(&self, change: &PoolSettingChange) -> Result<(), Refusal> {
        let mut patches = Vec::new();
        if let Some(level) = change.sparing {
            let sparing = match level {
                SparingLevel::None => SparingChoice::None,
                SparingLevel::Single => SparingChoice::Single,
                SparingLevel::Double => SparingChoice::Double,
            };
            patches.push(PoolPatch { sparing: Some(sparing), ..PoolPatch::default() });
        }
        let mut domains = PoolPatch::default();
        for domain in &change.domains {
            let drives = self.ids(&domain.drives).await?;
            domains.domains.push(DomainBody { name: domain.name.to_string(), drives });
        }
        domains.without_domain = self.ids(&change.without_domain).await?;
        if domains != PoolPatch::default() {
            patches.push(domains);
        }
        if change.failure_sets.is_some() {
            patches.push(PoolPatch { failure_sets: change.failure_sets, ..PoolPatch::default() });
        }
        for patch in patches {
            self.patch_pool(&patch).await?;
        }
        Ok(())
    }

    /// Upgrades the pool to the server's newest format level.
    ///
    /// # Errors
    ///
    /// As of a stopped pool.
    pub async fn upgrade(&self, newest: u8) -> Result<(), Refusal> {
        self.patch_pool(&PoolPatch { format_level: Some(newest), ..PoolPatch::default() }).await
    }

    async fn patch_pool(&self, patch: &PoolPatch) -> Result<(), Refusal> {
        let reply = self.server().change_to_its_end(Method::PATCH, &self.path(""), Some(patch)).await?;
        reply.checked().map(drop).map_err(|refusal| self.refusal_as_given(&refusal))
    }

    async fn ids(&self, drives: &[String]) -> Result<Vec<String>, Refusal> {
        let mut ids = Vec::new();
        for drive in drives {
            ids.push(self.drive(drive).await?.drive.to_string());
        }
        Ok(ids)
    }

    /// Uses all of a drive that has become larger. Returns the drive, and the bytes gained.
    ///
    /// # Errors
    ///
    /// As of a stopped pool.
    pub async fn grow(&self, given: &str) -> Result<(NamedDrive, u64), Refusal> {
        let named = self.drive(given).await?;
        let end = format!("/drives/{}/grow", named.drive);
        let grown: DriveGrowth = self.change(Method::POST, &end, None::<&()>).await?;
        Ok((named, grown.gained_bytes))
    }

    /// Keeps a drive that was to leave.
    ///
    /// # Errors
    ///
    /// As of a stopped pool.
    pub async fn keep(&self, given: &str) -> Result<NamedDrive, Refusal> {
        let named = self.drive(given).await?;
        self.command(Method::POST, &format!("/drives/{}/keep", named.drive)).await?;
        Ok(named)
    }
}

/// A new drive as a body: paths are whole, for the server has another folder.
fn drive_body(
    pool: &OnlinePool,
    source: &NewDriveSource,
    domain: Option<String>,
) -> Result<NewDriveBody, Refusal> {
    let whole = |path: &Path| {
        if !pool.is_here() && path.is_relative() {
            let problem = format!("{} is relative, and the server may be on another machine", path.display());
            return Err(Refusal::new(problem, "name it by its whole path there"));
        }
        let here = host_files::canonical(Path::new("."));
        here.map(|here| here.join(path).display().to_string())
            .map_err(|error| Refusal::new(error.to_string(), ""))
    };
    Ok(match source {
        NewDriveSource::File(size) => {
            NewDriveBody { size_bytes: Some(size.0), domain, ..NewDriveBody::default() }
        }
        NewDriveSource::Device(path, access) => {
            let device = if is_uri(path) { path.display().to_string() } else { whole(path)? };
            let file = |path: &Option<PathBuf>| path.as_deref().map(whole).transpose();
            let access = DeviceAccessBody {
                chap_name: access.chap_name.clone(),
                chap_secret_file: file(&access.chap_secret_file)?,
                chap_target_name: access.chap_target_name.clone(),
                chap_target_secret_file: file(&access.chap_target_secret_file)?,
                digests: access.digests,
            };
            let access = (access != DeviceAccessBody::default()).then_some(access);
            NewDriveBody { device: Some(device), domain, access, ..NewDriveBody::default() }
        }
    })
}

/// A refusal of a new drive with its device as it was typed.
fn with_typed_device(refusal: &Refusal, (source, body): (&NewDriveSource, &NewDriveBody)) -> Refusal {
    match (source, &body.device) {
        (NewDriveSource::Device(path, _), Some(sent)) => {
            let typed = path.display().to_string();
            Refusal::new(refusal.problem().replace(sent, &typed), refusal.remedy().replace(sent, &typed))
        }
        _ => refusal.clone(),
    }
}

impl OnlineVerb<'_> {
    fn wait(&self, job: JobName, work: &str) -> OnlineWait<'_> {
        let Self { world, pool, console } = *self;
        let cancel = matches!(job, JobName::Scrub | JobName::Level)
            .then(|| format!("'spindle job cancel {}{}' ends it", pool.job_word(job), pool.repeated()));
        OnlineWait { world, pool, console, job, work: work.to_owned(), cancel, again: None }
    }

    /// Checks everything, and waits for the end.
    ///
    /// # Errors
    ///
    /// It was cancelled or has failed; the wait has ended early.
    pub async fn scrub(&self) -> Result<ScrubAnswer, Refusal> {
        match self.run("/scrub", self.wait(JobName::Scrub, "the scrub")).await? {
            Some(JobAnswer::Scrub(answer)) => Ok(answer),
            _ => Err(self.unknown_end("the scrub")),
        }
    }

    /// Levels the drives, and waits for the end.
    ///
    /// # Errors
    ///
    /// As of [`Self::scrub`].
    pub async fn level(&self) -> Result<LevelAnswer, Refusal> {
        match self.run("/levelling", self.wait(JobName::Level, "the levelling")).await? {
            Some(JobAnswer::Level(answer)) => Ok(answer),
            _ => Err(self.unknown_end("the levelling")),
        }
    }

    async fn run(&self, end: &str, wait: OnlineWait<'_>) -> Result<Option<JobAnswer>, Refusal> {
        let row: JobRow = self.pool.change(Method::PUT, end, None::<&()>).await?;
        let request = row.request.ok_or_else(|| self.unknown_end(&wait.work))?;
        Ok(wait.until_job_ends(&request.id).await?.answer)
    }

    fn unknown_end(&self, work: &str) -> Refusal {
        let problem = format!("{}: {work} is over, and its end is not known", self.pool.place().display());
        Refusal::new(problem, "use the same version of Spindle here and in the server")
    }

    /// Adds a drive, and waits for the copies.
    ///
    /// # Errors
    ///
    /// As of a stopped pool; the wait has ended early.
    pub async fn add_drive(
        &self,
        source: &NewDriveSource,
        domain: Option<String>,
    ) -> Result<AddDriveAnswer, Refusal> {
        let body = drive_body(self.pool, source, domain)?;
        let row: Result<DriveRow, _> = self.pool.change(Method::POST, "/drives", Some(&body)).await;
        self.await_copies(row.map_err(|refusal| with_typed_device(&refusal, (source, &body)))?).await
    }

    /// Takes back a drive that fell behind, and waits for the copies.
    ///
    /// # Errors
    ///
    /// As of [`Self::add_drive`].
    pub async fn readmit(&self, given: &str) -> Result<AddDriveAnswer, Refusal> {
        let named = self.pool.drive(given).await?;
        let end = format!("/drives/{}/readmit", named.drive);
        let row: DriveRow = self.pool.change(Method::POST, &end, None::<&()>).await?;
        self.await_copies(row).await
    }

    async fn await_copies(&self, row: DriveRow) -> Result<AddDriveAnswer, Refusal> {
        let path = PathBuf::from(self.pool.as_given(&row.path));
        let size_bytes = row.whole_bytes.or(row.size_bytes).unwrap_or_default();
        let copies = self.copies("the copying to the drive that was added").await?;
        Ok(AddDriveAnswer { path, size_bytes, copies })
    }

    /// Waits for the copies that the last change has begun to make.
    async fn copies(&self, work: &str) -> Result<CopiesAnswer, Refusal> {
        let job: JobRow = self.pool.server().get(&self.pool.path("/jobs/rebuild")).await?;
        let request = job.request.ok_or_else(|| self.unknown_end(work))?;
        match self.wait(JobName::Rebuild, work).until_job_ends(&request.id).await?.answer {
            Some(JobAnswer::Copies(copies)) => Ok(copies),
            _ => Err(self.unknown_end(work)),
        }
    }

    /// Lets a drive leave, and waits until it has.
    ///
    /// # Errors
    ///
    /// As of a stopped pool; the wait has ended early.
    pub async fn retire(&self, given: &str) -> Result<NamedDrive, Refusal> {
        let named = self.pool.drive(given).await?;
        self.pool.command(Method::DELETE, &format!("/drives/{}", named.drive)).await?;
        self.wait_until_left(&named, given).await?;
        Ok(named)
    }

    /// Adds a drive, lets another one leave, and waits until it has. Returns it, and the path of the new one.
    ///
    /// # Errors
    ///
    /// As of a stopped pool; the wait has ended early.
    pub async fn replace(
        &self,
        old: &str,
        (source, domain): (&NewDriveSource, Option<String>),
    ) -> Result<(NamedDrive, PathBuf), Refusal> {
        let named = self.pool.drive(old).await?;
        let (end, body) =
            (format!("/drives/{}/replacement", named.drive), drive_body(self.pool, source, domain)?);
        let row: Result<DriveRow, _> = self.pool.change(Method::POST, &end, Some(&body)).await;
        let row = row.map_err(|refusal| with_typed_device(&refusal, (source, &body)))?;
        self.wait_until_left(&named, old).await?;
        Ok((named, PathBuf::from(self.pool.as_given(&row.path))))
    }

    /// Removes a drive that is lost, once copies are made.
    ///
    /// # Errors
    ///
    /// As of a stopped pool; the wait has ended early.
    pub async fn forget(&self, given: &str) -> Result<NamedDrive, Refusal> {
        const COPIES_FIRST: u16 = 202;
        let named = self.pool.drive(given).await?;
        let status = self.pool.command(Method::POST, &format!("/drives/{}/forget", named.drive)).await?;
        if status == COPIES_FIRST {
            self.copies(&format!("the copying of what lay on {}", named.name)).await?;
        }
        Ok(named)
    }

    /// Waits while a drive leaves.
    async fn wait_until_left(&self, named: &NamedDrive, given: &str) -> Result<(), Refusal> {
        let (id, at) = (named.drive.to_string(), self.pool.place().display());
        let command = format!("spindle pool retire {} {}", self.pool.word(), quoted(given));
        let server = self.pool.repeated();
        let keep = format!("'{command} --keep{server}' cancels it");
        let work = format!("the emptying of {}", named.name);
        let again = Some(format!("{command}{server}"));
        let wait = OnlineWait { cancel: Some(keep), again, ..self.wait(JobName::Empty, &work) };
        let (mut least_bytes, mut since, mut lost_since) = (u64::MAX, self.world.now(), None);
        wait.until(async || {
            wait.check_pool_runs().await?;
            let rows: Vec<DriveRow> = wait.get("/drives").await?;
            let Some(row) = rows.into_iter().find(|row| row.id.as_ref() == Some(&id)) else {
                return Ok(WorkState::Ended(()));
            };
            if row.has_left {
                return Ok(WorkState::Ended(()));
            }
            let now = self.world.now();
            let leaving = match (row.state, &row.leaving) {
                (DriveState::Leaving, Some(leaving)) => leaving,
                (DriveState::InUse, _) => {
                    let problem = format!("{at}: {} is kept: somebody else cancelled its leaving", named.name);
                    return Err(Refusal::new(problem, format!("'{command}{server}' lets it leave")));
                }
                _ if now.since(*lost_since.get_or_insert(now)) < RECORDED_WITHIN => {
                    return Ok(WorkState::GoesOn(None));
                }
                _ => {
                    let problem = format!("{at}: {} was lost before it was empty", named.name);
                    let remedy =
                        "its copies are made on the other drives while there is room; see 'spindle pool show'";
                    return Err(Refusal::new(problem, remedy));
                }
            };
            if leaving.left_bytes < least_bytes {
                (least_bytes, since) = (leaving.left_bytes, now);
            }
            let is_passing = row.reason.as_ref() == Some(&problem_text(&EmptyingProblem::NoRoom))
                && now.since(since) < ROOM_COMES_WITHIN;
            if let Some(problem) = row.reason.filter(|_| !is_passing) {
                let remedy = format!(
                    "it goes on in the server; '{command}{server}' waits for it, --keep cancels it"
                );
                return Err(Refusal::new(format!("{at}: {} is not empty yet: {problem}", named.name), remedy));
            }
            let job: JobRow = wait.get("/jobs/empty").await?;
            Ok(WorkState::GoesOn(Some(ProgressStatus {
                phase: "retire".to_owned(),
                fraction: if job.total == 0 { 0.0 } else { job.done as f64 / job.total as f64 },
                figures: vec![
                    format!("{} left", ByteCount(leaving.left_bytes)),
                    format!("{}/s", ByteCount(job.per_second)),
                ],
                left: job.time_left_s.map(Duration::from_secs),
            })))
        })
        .await
    }
}
