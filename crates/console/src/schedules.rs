//! Schedules of snapshots and their progress.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    targets::delete_row,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{NewScheduleBody, RowChangeResult, ScheduleRow, ScheduledVolumeRow},
};

/// Volumes of a table.
const VOLUMES_MAX: usize = 100;

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage<'a> {
    frame: &'a Frame,
    schedules: Vec<ScheduleRow>,
    sent: &'a Fields,
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage<'a> {
    frame: &'a Frame,
    schedule: ScheduleRow,
}

impl SchedulePage<'_> {
    /// Volumes of all pools, as far as the table goes.
    fn volumes(&self) -> impl Iterator<Item = (&str, &ScheduledVolumeRow)> {
        let pools = self.schedule.progress.iter();
        pools
            .flat_map(|pool| pool.volumes.iter().map(|volume| (pool.pool.as_str(), volume)))
            .take(VOLUMES_MAX)
    }

    fn volumes_in_all(&self) -> usize {
        self.schedule.progress.iter().map(|pool| pool.volumes.len()).sum()
    }
}

/// Period and time of day, in words.
fn rhythm(schedule: &ScheduleRow) -> String {
    let every = match schedule.every_hours {
        None => return "–".to_owned(),
        Some(hours) => show::float_seconds(&(hours * 3600.0)),
    };
    match &schedule.at {
        Some(at) => format!("every {every}, at {at}"),
        None => format!("every {every}"),
    }
}

/// Times at which no snapshot was taken, over all volumes.
fn missed(schedule: &ScheduleRow) -> u64 {
    schedule.progress.iter().flat_map(|pool| &pool.volumes).map(|volume| volume.missed).sum()
}

fn kept(schedule: &ScheduleRow) -> usize {
    schedule.progress.iter().flat_map(|pool| &pool.volumes).map(|volume| volume.kept).sum()
}

fn next(schedule: &ScheduleRow) -> Option<&str> {
    let volumes = schedule.progress.iter().flat_map(|pool| &pool.volumes);
    volumes.filter_map(|volume| volume.next_at.as_deref()).min()
}

fn problems(schedule: &ScheduleRow) -> Vec<String> {
    let pools = schedule.progress.iter();
    pools
        .filter_map(|pool| pool.problem.as_ref().map(|problem| format!("{}: {problem}", pool.pool)))
        .collect()
}

/// Pools and volumes that it has.
fn scope(schedule: &ScheduleRow) -> String {
    let pools = schedule.pools.iter().map(|pool| format!("all of {pool}"));
    let all: Vec<String> = pools.chain(schedule.volumes.iter().cloned()).collect();
    match all.len() {
        0 => "–".to_owned(),
        1..=6 => all.join(", "),
        many => format!("{}, and {} more", all[..6].join(", "), many - 6),
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    page(&visit, None, &Fields::default()).await
}

async fn page(visit: &Visit, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let frame = Frame::new(visit, "Schedules", "Schedules").await?.live(visit).await?.with_problem(problem);
    let schedules = visit.get("/v1/schedules").await?;
    shown(&SchedulesPage { frame: &frame, schedules, sent }, &frame)
}

pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let names = |name| fields.text(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let body = NewScheduleBody {
            name: fields.text("name").to_owned(),
            every_hours: fields.number("every_hours")?,
            at: Some(fields.text("at").to_owned()).filter(|at| !at.is_empty()),
            keep: fields.number("keep")?,
            pools: names("pools"),
            volumes: names("volumes"),
        };
        visit.change::<RowChangeResult>((Method::POST, "/v1/schedules"), &body, fields.change()).await
    };
    match made.await {
        Ok(_) => Ok(see("/schedules?done=schedule")),
        Err(problem) => page(&visit, Some(problem), &fields).await,
    }
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    schedule_page(&visit, &name, None).await
}

async fn schedule_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let schedule: ScheduleRow = visit.get(&format!("/v1/schedules/{}", escaped(name))).await?;
    let frame = Frame::new(visit, format!("Schedule {}", schedule.name), "Schedules").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    shown(&SchedulePage { frame: &frame, schedule }, &frame)
}

/// Deletes the schedule whose name was typed. Its snapshots stay.
pub(crate) async fn delete(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("schedule", &name)?;
        delete_row(&visit, &format!("/v1/schedules/{}", escaped(&name)), &fields).await
    };
    match end.await {
        Ok(_) => Ok(see("/schedules?done=deleted")),
        Err(problem) => schedule_page(&visit, &name, Some(problem)).await,
    }
}
