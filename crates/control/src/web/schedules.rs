//! Schedules of snapshots.

use super::{
    ApiState,
    caller::Caller,
    expected_tags::tagged,
    orders::order,
    problem::ApiProblem,
    row_changes::{RowChangeResult, RowChangeWay, RowChanger, missing},
};
use crate::{
    journal::tokens::CallerRole,
    schedules::{ScheduleView, ScheduledVolume},
    site::row_change::{SchedulePatch, SiteRow, SiteRowChange},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use plan::site::Snapshots;
use protect::{ScheduleMark, UnixSecond};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A schedule of snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRow {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_hours: Option<f64>,
    /// Time of day, HH:MM in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Snapshots that are kept of each volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Pools all of whose volumes it has.
    pub pools: Vec<String>,
    /// Further volumes, `POOL/VOLUME`.
    pub volumes: Vec<String>,
    /// Its progress in each pool; none if it takes no snapshots here.
    pub progress: Vec<ScheduleProgressRow>,
}

/// A schedule in one pool, a minute old at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleProgressRow {
    pub pool: String,
    /// The reason for which snapshots are not taken or not pruned now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub volumes: Vec<ScheduledVolumeRow>,
}

/// A volume in a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduledVolumeRow {
    pub volume: String,
    /// Time of the schedule's newest snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Time of the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// The schedule's snapshots of it.
    pub kept: usize,
    /// Times since the oldest of them at which none was taken.
    pub missed: u64,
}

/// A schedule to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewScheduleBody {
    pub name: String,
    /// From a minute (0.0167) to 31 days (744).
    pub every_hours: f64,
    /// Time of day, HH:MM in UTC, if whole days lie between snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    pub keep: u32,
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default)]
    pub volumes: Vec<String>,
}

/// A change of a schedule; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulePatchBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_hours: Option<f64>,
    /// Empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Fewer than before prunes the oldest, which takes the role admin, as a shorter time does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
}

impl ScheduleRow {
    /// A schedule of the served site.
    pub fn of(schedule: &Snapshots, views: &[ScheduleView], sees: impl Fn(&str) -> bool) -> Self {
        let own = views.iter().filter(|view| view.schedule == schedule.name && sees(&view.pool));
        let time = |at: Option<UnixSecond>| at.map(|UnixSecond(second)| utc_time(second));
        let volume = |volume: &ScheduledVolume| ScheduledVolumeRow {
            volume: volume.volume.clone(),
            last_at: time(volume.last),
            next_at: time(volume.next),
            kept: volume.kept,
            missed: volume.missed,
        };
        let progress = own.map(|view| ScheduleProgressRow {
            pool: view.pool.clone(),
            problem: view.problem.clone(),
            volumes: view.volumes.iter().map(volume).collect(),
        });
        Self {
            name: schedule.name.clone(),
            every_hours: schedule.every_hours,
            at: Some(schedule.at.clone()).filter(|at| !at.is_empty()),
            keep: schedule.keep,
            pools: schedule.groups.iter().filter(|pool| sees(pool)).cloned().collect(),
            volumes: schedule
                .volumes
                .iter()
                .filter(|volume| volume.split_once('/').is_none_or(|(pool, _)| sees(pool)))
                .cloned()
                .collect(),
            progress: progress.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.volumes.is_empty()
    }
}

/// True if a schedule keeps as many snapshots, and for as long: else some go before their time.
fn keeps_as_much(known: &Snapshots, keep: Option<u32>, every_hours: Option<f64>) -> bool {
    let is_longer = |hours: f64| known.every_hours.is_some_and(|before| hours >= before);
    keep.is_none_or(|keep| known.keep.is_some_and(|before| keep >= before))
        && every_hours.is_none_or(is_longer)
}

/// True if a pool has snapshots of a schedule of this name, or does not answer.
async fn has_snapshots(changer: &RowChanger, schedule: &str) -> bool {
    let view = changer.api().site.look();
    for pool in view.pools.values() {
        let schedule = schedule.to_owned();
        let found = order(pool, "look for snapshots of a schedule", move |served| {
            Box::pin(async move {
                let mark = ScheduleMark { schedule: &schedule };
                for volume in served.pool.volumes().into_iter().filter(|volume| volume.snapshots > 0) {
                    let snapshots = served.pool.snapshots(volume.volume).unwrap_or_default();
                    if snapshots.iter().any(|snapshot| mark.is_on(&snapshot.note)) {
                        return Ok(true);
                    }
                    served.world.yield_now().await;
                }
                Ok(false)
            })
        });
        if found.await.unwrap_or(true) {
            return true;
        }
    }
    false
}

/// Lists the schedules of snapshots, with their progress.
#[utoipa::path(get, path = "/v1/schedules", tag = "services",
    responses((status = 200, description = "All schedules", body = Vec<ScheduleRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<ScheduleRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let (view, progress) = (api.site.look(), api.site.schedules());
    let rows = view.site.snapshots.iter().filter(|schedule| !schedule.is_set());
    let rows = rows.map(|schedule| ScheduleRow::of(schedule, &progress, |pool| caller.sees(pool)));
    Ok(Json(rows.filter(|row| !row.is_empty() || caller.need_all_pools().is_ok()).collect()))
}

/// Shows a schedule, with its progress.
#[utoipa::path(get, path = "/v1/schedules/{schedule}", tag = "services", params(("schedule" = String, Path, description = "Name")),
    responses((status = 200, description = "The schedule", body = ScheduleRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let (view, progress) = (api.site.look(), api.site.schedules());
    let schedule = view.site.snapshots.iter().find(|schedule| schedule.name == name && !schedule.is_set());
    let schedule = schedule.ok_or_else(|| missing("schedule", &name))?;
    let row = ScheduleRow::of(schedule, &progress, |pool| caller.sees(pool));
    match !row.is_empty() || caller.need_all_pools().is_ok() {
        true => Ok(tagged(StatusCode::OK, &SiteRow::Schedule(schedule).tag(), row)),
        false => Err(missing("schedule", &name)),
    }
}

/// Creates a schedule: its first snapshots are taken at once. The site file lacks it then; a start with the same file keeps it.
#[utoipa::path(post, path = "/v1/schedules", tag = "services", params(RowChangeWay), request_body = NewScheduleBody,
    responses((status = 201, description = "It was created", body = RowChangeResult),
        (status = 200, description = "There is the same one already, or a dry run", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    changer: RowChanger,
    Json(body): Json<NewScheduleBody>,
) -> Result<Response, ApiProblem> {
    let NewScheduleBody { name, every_hours, at, keep, pools, volumes } = body;
    if pools.is_empty() && volumes.is_empty() {
        return Err(ApiProblem::bad_request("the schedule has no volumes", "say pools, or volumes"));
    }
    let schedule = Snapshots {
        name,
        groups: pools,
        volumes,
        every_hours: Some(every_hours),
        at: at.unwrap_or_default(),
        keep: Some(keep),
        ..Snapshots::default()
    };
    // A name that had another schedule: what that one left would be pruned.
    let is_there = changer.site().snapshots.iter().any(|known| known.name == schedule.name);
    let may_all = changer.caller().need(CallerRole::Admin).is_ok();
    let role = match !is_there && !may_all && has_snapshots(&changer, &schedule.name).await {
        true => CallerRole::Admin,
        false => CallerRole::Operate,
    };
    changer.change(role, SiteRowChange::CreateSchedule { schedule }, None).await
}

/// Changes a schedule. Its snapshots stay as far as it keeps them, also of volumes that it has no more.
#[utoipa::path(patch, path = "/v1/schedules/{schedule}", tag = "services", request_body = SchedulePatchBody,
    params(("schedule" = String, Path, description = "Name"), RowChangeWay),
    responses((status = 200, description = "It is so", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn patch(
    changer: RowChanger,
    Path(schedule): Path<String>,
    Json(body): Json<SchedulePatchBody>,
) -> Result<Response, ApiProblem> {
    let SchedulePatchBody { every_hours, at, keep, pools, volumes } = body;
    let site = changer.site();
    let known = site.snapshots.iter().find(|known| known.name == schedule);
    let is_safe = known.is_some_and(|known| keeps_as_much(known, keep, every_hours));
    let role = if is_safe { CallerRole::Operate } else { CallerRole::Admin };
    let patch = SchedulePatch { groups: pools, volumes, every_hours, at, keep };
    changer.change(role, SiteRowChange::SetSchedule { schedule, patch }, None).await
}

/// Deletes a schedule. Its snapshots stay until someone deletes them.
#[utoipa::path(delete, path = "/v1/schedules/{schedule}", tag = "services",
    params(("schedule" = String, Path, description = "Name"), RowChangeWay),
    responses((status = 200, description = "It is gone", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    changer: RowChanger,
    Path(schedule): Path<String>,
) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::DeleteSchedule { schedule }, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_snapshots_or_a_shorter_time_between_them_is_less() {
        let known = Snapshots { every_hours: Some(24.0), keep: Some(30), ..Snapshots::default() };
        for (keep, every_hours, is_safe) in [
            (None, None, true),
            (Some(30), Some(24.0), true),
            (Some(31), Some(48.0), true),
            (Some(29), None, false),
            (None, Some(0.0167), false),
            (Some(31), Some(23.0), false),
            (None, Some(f64::NAN), false),
        ] {
            assert_eq!(keeps_as_much(&known, keep, every_hours), is_safe, "{keep:?} {every_hours:?}");
        }
    }
}
