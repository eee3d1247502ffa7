//! Suspension of DR groups, and the rule for their merges.

use super::{
    ApiState,
    caller::Caller,
    dr_groups::{change, group_of, shown_when},
    dr_parts::parts_of,
    dr_rows::DrGroupRow,
    problem::ApiProblem,
};
use crate::{dr::group_view::DrGroupView, journal::tokens::CallerRole};
use axum::{
    Json,
    extract::{Path, State},
};
use replication::{
    merge_gate::MergeStandstill,
    merge_plan::{DayWindow, MergePlan, MergeStart},
    session::SuspensionReason,
};
use report::{Refusal, calendar::utc_time, duration::show_duration};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use world::ByteCount;

/// When the passes of a group begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DrMergeStart {
    /// Whatever else merges.
    AtOnce,
    /// So many groups with the same site at one time, the others in the order of their names.
    Staggered {
        #[schema(minimum = 1, maximum = 64)]
        groups: u8,
    },
    /// One group after the other, and within this time of each day alone. HH:MM in UTC.
    Window { from: String, until: String },
}

/// The rule for the passes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrMergePlan {
    #[serde(default = "default_start")]
    pub start: DrMergeStart,
    /// Bytes of blocks a second that a pass sends, at most; left out for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub bytes_per_second: Option<u64>,
}

fn default_start() -> DrMergeStart {
    DrMergeStart::Staggered { groups: 1 }
}

/// Reason of a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrSuspensionReason {
    Person,
    /// The pool at the other site has no room: it is looked at again and again.
    TargetFull,
    Fault,
}

/// A suspension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrSuspensionRow {
    pub reason: DrSuspensionReason,
    pub since: String,
}

impl DrMergePlan {
    pub(super) fn of(plan: MergePlan) -> Self {
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let start = match plan.start {
            MergeStart::AtOnce => DrMergeStart::AtOnce,
            MergeStart::Staggered(groups) => DrMergeStart::Staggered { groups },
            MergeStart::Window(window) => {
                let (from, until) = window.minutes();
                DrMergeStart::Window { from: time(from), until: time(until) }
            }
        };
        Self { start, bytes_per_second: plan.rate_max }
    }

    /// The plan, if it makes sense.
    ///
    /// # Errors
    ///
    /// A number is out of its bounds, or a time is none of a day.
    fn checked(&self) -> Result<MergePlan, Refusal> {
        let start = match &self.start {
            DrMergeStart::AtOnce => MergeStart::AtOnce,
            DrMergeStart::Staggered { groups } => MergeStart::Staggered(*groups),
            DrMergeStart::Window { from, until } => {
                let window = minute_of(from).zip(minute_of(until));
                let window = window.and_then(|(from, until)| DayWindow::new(from, until));
                let problem = || format!("{from}-{until} is no time of each day");
                let next = "say HH:MM-HH:MM in UTC, such as 22:00-05:00";
                MergeStart::Window(window.ok_or_else(|| Refusal::new(problem(), next))?)
            }
        };
        let plan = MergePlan { start, rate_max: self.bytes_per_second };
        match plan.contradiction() {
            Some(what) => {
                Err(Refusal::new(format!("{what} is out of its bounds"), "1 to 64 groups, 1 B/s or more"))
            }
            None => Ok(plan),
        }
    }
}

/// Minute of the day of HH:MM.
fn minute_of(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_plain)
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

impl DrSuspensionRow {
    pub(super) fn of(group: &DrGroupView) -> Option<Self> {
        let (reason, since) = group.report.suspended?;
        let reason = match reason {
            SuspensionReason::Person => DrSuspensionReason::Person,
            SuspensionReason::TargetFull => DrSuspensionReason::TargetFull,
            SuspensionReason::Fault => DrSuspensionReason::Fault,
        };
        Some(Self { reason, since: utc_time(since.seconds) })
    }
}

/// The reason for which a merge stands still, in words.
pub(crate) fn standstill_words(standstill: &MergeStandstill) -> String {
    match standstill {
        MergeStandstill::Turn(groups) => format!("waits for its turn, behind {}", groups.join(", ")),
        MergeStandstill::Window(left) => {
            format!("waits for its window, which opens in {}", show_duration(*left))
        }
    }
}

/// The cost of a suspension, and the next step.
pub(super) fn suspended_summary(group: &DrGroupView, peer: &str) -> Option<String> {
    let (reason, since) = group.report.suspended?;
    let (name, since) = (&group.name, utc_time(since.seconds));
    let lacks = match group.unconfirmed_bytes {
        // Writes before a restart are not counted.
        0 => format!("what hosts wrote since {since}"),
        bytes => ByteCount(bytes).to_string(),
    };
    let cost = format!("hosts are served, and a disaster now would lose what {peer} lacks: {lacks}");
    Some(match reason {
        SuspensionReason::TargetFull => format!(
            "suspended since {since}, as the pool at {peer} is full: {cost}; make room there, and it goes on before long"
        ),
        _ => format!("suspended since {since}: {cost}; 'spindle dr resume {name}' goes on"),
    })
}

/// Suspends a group that is primary here: the other site gets nothing until it is resumed, also over a restart. Hosts are served.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/suspend", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It is suspended", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn suspend(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    for (pool, part) in parts_of(&api, &caller, group_of(&api, &caller, &group)?) {
        let id = part.group;
        change(&pool, "suspend DR group", move |dr| Box::pin(async move { dr.suspend(id).await })).await?;
    }
    shown_when(&api, &caller, &group, |row| row.suspended.is_some()).await.map(Json)
}

/// Resumes a group that is primary here, or gives it another rule for its merges.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/resume", tag = "dr", request_body = DrMergePlan,
    params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It goes on", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn resume(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
    Json(plan): Json<DrMergePlan>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let checked = plan.checked()?;
    for (pool, part) in parts_of(&api, &caller, group_of(&api, &caller, &group)?) {
        let id = part.group;
        change(&pool, "resume DR group", move |dr| Box::pin(async move { dr.resume(id, checked).await }))
            .await?;
    }
    let is_shown = |row: &DrGroupRow| row.suspended.is_none() && row.merge_plan == plan;
    shown_when(&api, &caller, &group, is_shown).await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_as_they_are_shown_and_others_are_refused() {
        let window =
            |from: &str, until: &str| DrMergeStart::Window { from: from.to_owned(), until: until.to_owned() };
        let plan = |start, bytes_per_second| DrMergePlan { start, bytes_per_second };
        for valid in [
            plan(DrMergeStart::AtOnce, None),
            plan(DrMergeStart::Staggered { groups: 64 }, Some(1)),
            plan(window("22:00", "05:00"), Some(20_000_000)),
        ] {
            assert_eq!(DrMergePlan::of(valid.checked().unwrap()), valid);
        }
        for wrong in [
            plan(DrMergeStart::Staggered { groups: 0 }, None),
            plan(DrMergeStart::Staggered { groups: 65 }, None),
            plan(DrMergeStart::AtOnce, Some(0)),
            plan(window("22:00", "22:00"), None),
            plan(window("24:00", "05:00"), None),
            plan(window("2:000", "05:00"), None),
            plan(window("+2:00", "05:00"), None),
            plan(window("", "05:00"), None),
        ] {
            assert!(wrong.checked().is_err(), "{wrong:?}");
        }
    }
}
