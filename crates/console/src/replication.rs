//! DR groups at this site, and the other sites: mode, role, data that is not confirmed, ability to serve hosts here now.

use crate::{
    page::{Frame, PageResult, shown},
    shown as show,
    visit::Visit,
};
use askama::Template;
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        ApiProblem,
        client::{DrGroupList, DrGroupRow, DrSites},
    },
};

#[derive(Template)]
#[template(path = "replication.html")]
struct ReplicationPage<'a> {
    frame: &'a Frame,
    list: DrGroupList,
    /// A problem if this server listens for no other site, or the caller may not see all pools.
    sites: Result<DrSites, ApiProblem>,
}

pub(crate) fn role(role: &DrRole) -> &'static str {
    match role {
        DrRole::Primary => "primary",
        DrRole::Secondary => "secondary",
    }
}

/// The mode with its bounds.
pub(crate) fn mode(mode: &DrMode) -> String {
    match mode {
        DrMode::Sync { hold_ms, failsafe } => {
            let after = if *failsafe { "refuses writes" } else { "goes on alone" };
            format!("sync: waits {} for a lost site, then {after}", show::milliseconds(hold_ms))
        }
        DrMode::Async { behind_ms, behind_bytes, push_back } => {
            let bound = if *push_back { ", then hosts are slowed" } else { "" };
            format!(
                "async: at most {} or {} behind{bound}",
                show::milliseconds(behind_ms),
                show::bytes(behind_bytes)
            )
        }
        DrMode::Periodic { every_ms, keep } => {
            format!("periodic: every {}, keeps {keep} states", show::milliseconds(every_ms))
        }
    }
}

/// Data that the other site has not confirmed.
pub(crate) fn behind(group: &DrGroupRow) -> String {
    match group.unconfirmed_bytes {
        0 => "nothing".to_owned(),
        bytes => format!("{}, {}", show::bytes(&bytes), show::float_seconds(&group.unconfirmed_seconds)),
    }
}

/// Ability to serve hosts here: class of a mark, and words.
pub(crate) fn could_serve(group: &DrGroupRow) -> (&'static str, &'static str) {
    match (&group.could_serve, &group.role) {
        _ if group.serves => ("good", "serves now"),
        (Some(could), _) if could.could_serve => ("good", "could serve now"),
        (Some(_), _) => ("error", "could not serve now"),
        (None, DrRole::Primary) => ("warning", "does not serve"),
        (None, DrRole::Secondary) => ("", "not known yet"),
    }
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Replication", "Replication").await?.live(&visit).await?;
    let list = visit.get("/v1/dr/groups").await?;
    let sites = visit.get("/v1/dr/sites").await;
    shown(&ReplicationPage { frame: &frame, list, sites }, &frame)
}
