//! A DR group: how it is, and the forms that move it, take it over, suspend it, rehearse its failover and
//! drop its forks.

use crate::{
    dr_mode::{ModeFields, mode_of},
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    rehearsal,
    replication::{behind, could_serve, mode, role},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::{
    dr::group_view::DrRole,
    web::{
        ApiProblem,
        client::{
            DrForkList, DrForkRow, DrGroupPatch, DrGroupRow, DrMergePlan, DrMergeStart, DrSuspensionReason,
            FailoverBody, PastRehearsalRow, RehearsalRow,
        },
    },
};

#[derive(Template)]
#[template(path = "dr_group.html")]
struct DrGroupPage<'a> {
    frame: &'a Frame,
    group: DrGroupRow,
    forks: Vec<DrForkRow>,
    /// Under way here: one at most.
    rehearsals: Vec<RehearsalRow>,
    mode: ModeFields<'a>,
    /// Forms keep what was typed.
    sent: &'a Fields,
}

impl DrGroupPage<'_> {
    /// Hosts are moved in order: both sites are there, or one says why not.
    fn may_switch_over(&self) -> bool {
        self.group.connected_since.is_some()
    }

    /// The other site is not reached, and hosts are not served here.
    fn may_take_over(&self) -> bool {
        self.group.connected_since.is_none() && !self.group.serves
    }

    /// A witness keeps a primary from serving hosts while the other site is not reached.
    fn may_go_on_alone(&self) -> bool {
        self.may_take_over() && self.group.role == DrRole::Primary && self.group.witness.is_some()
    }

    /// Both sites may have writes that the other lacks. A secondary that once was primary follows meanwhile, and only its primary
    /// knows that it awaits a choice.
    fn may_give_way(&self) -> bool {
        let is_secondary = self.group.role == DrRole::Secondary;
        self.group.state == "awaiting choice" || (is_secondary && self.group.state != "first copy")
    }

    /// The first copy of a secondary is whole.
    fn may_rehearse(&self) -> bool {
        let has_copy = self.group.role == DrRole::Secondary && self.group.is_complete;
        has_copy && self.rehearsals.is_empty()
    }

    /// The last rehearsal here, of a group that has become primary since: its page has no part for rehearsals.
    fn past_rehearsal_of_primary(&self) -> Option<&PastRehearsalRow> {
        self.group.last_rehearsal.as_ref().filter(|_| self.group.role == DrRole::Primary)
    }

    fn may_suspend(&self) -> bool {
        self.group.role == DrRole::Primary && self.group.suspended.is_none()
    }

    fn may_resume(&self) -> bool {
        self.group.role == DrRole::Primary && self.group.suspended.is_some()
    }
}

fn is_primary(group: &DrGroupRow) -> bool {
    group.role == DrRole::Primary
}

fn suspension(reason: &DrSuspensionReason) -> &'static str {
    match reason {
        DrSuspensionReason::Person => "by a person",
        DrSuspensionReason::TargetFull => "as the other site is full",
        DrSuspensionReason::Fault => "by a fault",
    }
}

/// The rule for passes in words.
fn merge_plan(plan: &DrMergePlan) -> String {
    let start = match &plan.start {
        DrMergeStart::AtOnce => "at once".to_owned(),
        DrMergeStart::Staggered { groups } => format!("{} at a time", show::counted(groups, "group")),
        DrMergeStart::Window { from, until } => format!("from {from} until {until} each day"),
    };
    let rate = plan.bytes_per_second.map(|rate| format!(", at most {}/s", show::bytes(&rate)));
    start + &rate.unwrap_or_default()
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None, &Fields::default()).await
}

pub(crate) async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let group = group_of(visit, id).await?;
    let frame = Frame::new(visit, format!("DR group {}", group.name), "Replication").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    let list: DrForkList = visit.get("/v1/dr/forks").await?;
    let forks = list.forks.into_iter().filter(|fork| fork.group == group.group).collect();
    let rehearsals = match &group.rehearsing_since {
        None => Vec::new(),
        Some(_) => rehearsal::under_way(visit, id).await?,
    };
    let mode = ModeFields::new(sent, Some(&group.mode));
    shown(&DrGroupPage { frame: &frame, group, forks, rehearsals, mode, sent }, &frame)
}

async fn group_of(visit: &Visit, id: &str) -> Result<DrGroupRow, ApiProblem> {
    visit.get(&format!("/v1/dr/groups/{}", escaped(id))).await
}

/// A change of the group, as a form of its page asks for it.
pub(crate) async fn change(
    visit: Visit,
    Path((id, what)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    match changed(&visit, (&id, &what), &fields).await {
        Ok("removed") => Ok(see("/replication?done=removed")),
        Ok(done) => Ok(see(&format!("/replication/{}?done={done}", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

/// Makes the change. Returns its name in the query of the page that follows.
async fn changed(
    visit: &Visit,
    (id, what): (&str, &str),
    fields: &Fields,
) -> Result<&'static str, ApiProblem> {
    let group = group_of(visit, id).await?;
    let whole = format!("/v1/dr/groups/{}", escaped(id));
    match what {
        "mode" => {
            let patch = DrGroupPatch { mode: mode_of(fields)? };
            visit.change::<DrGroupRow>((Method::PATCH, &whole), &patch, fields.change()).await?;
            return Ok("mode");
        }
        "remove" => {
            fields.check_typed("group", &group.name)?;
            let change = FormChange { tag: None, ..fields.change() };
            visit.change::<()>((Method::DELETE, &whole), &(), change).await?;
            return Ok("removed");
        }
        _ => {}
    }
    let (end, body, done) = match what {
        "switch-over" => ("failover", json_of(&FailoverBody::default()), "switched-over"),
        "take-over" => ("failover", json_of(&takeover(fields)?), "taken-over"),
        "alone" => ("alone", serde_json::Value::Null, "alone"),
        "give-way" => ("give-way", serde_json::Value::Null, "gave-way"),
        "suspend" => ("suspend", serde_json::Value::Null, "suspended"),
        "resume" => ("resume", json_of(&group.merge_plan), "resumed"),
        _ => return Err(ApiProblem::not_found(format!("no form of a DR group is called {what}"))),
    };
    if !["suspend", "resume"].contains(&what) {
        fields.check_typed("group", &group.name)?;
    }
    let path = format!("{whole}/{end}");
    visit.change::<serde_json::Value>((Method::POST, &path), &body, fields.change()).await?;
    Ok(done)
}

fn json_of(body: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(body).expect("bodies can be written as JSON")
}

/// An unplanned failover, with the loss that the person accepts: none, unless the form says so.
fn takeover(fields: &Fields) -> Result<FailoverBody, ApiProblem> {
    let accept_loss_s = match fields.text("accept_loss") {
        "" => None,
        _ => Some(fields.number::<u32>("accept_loss")?.into()),
    };
    Ok(FailoverBody {
        unplanned: true,
        accept_loss_s,
        accept_any_loss: fields.is_checked("accept_any_loss"),
        peer_is_off: fields.is_checked("peer_is_off"),
        at: Some(fields.text("at").to_owned()).filter(|at| !at.is_empty()),
    })
}

/// Drops the fork whose name was typed.
pub(crate) async fn drop_fork(
    visit: Visit,
    Path((id, fork)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let list: DrForkList = visit.get("/v1/dr/forks").await?;
        let row = list.forks.into_iter().find(|row| row.id == fork);
        let row = row.ok_or_else(|| ApiProblem::not_found("there is no such fork"))?;
        fields.check_typed("fork", &row.name)?;
        let path = format!("/v1/dr/forks/{}", escaped(&fork));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match end.await {
        Ok(()) => Ok(see(&format!("/replication/{}?done=fork-dropped", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}
