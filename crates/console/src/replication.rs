//! DR groups at this site, and the other sites: mode, role, data that is not confirmed, ability to serve hosts here now.

use crate::{
    dr_mode::{ModeFields, mode_of},
    fields::Fields,
    groups::named_volumes,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::http::Method;
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        ApiProblem,
        client::{DrGroupList, DrGroupRow, DrSites, NewDrGroupBody},
    },
};
use std::collections::BTreeMap;

#[derive(Template)]
#[template(path = "replication.html")]
struct ReplicationPage<'a> {
    frame: &'a Frame,
    list: DrGroupList,
    /// A problem if this server listens for no other site, or the caller may not see all pools.
    sites: Result<DrSites, ApiProblem>,
    mode: ModeFields<'a>,
    /// Forms keep what was typed.
    sent: &'a Fields,
}

impl ReplicationPage<'_> {
    /// There is a site to make groups with.
    fn may_create(&self) -> bool {
        let is_paired = self.sites.as_ref().is_ok_and(|sites| !sites.peers.is_empty());
        self.frame.may_administer() && is_paired
    }
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
    page(&visit, None, &Fields::default()).await
}

async fn page(visit: &Visit, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let frame = Frame::new(visit, "Replication", "Replication").await?.live(visit).await?;
    let frame = frame.with_problem(problem);
    let list = visit.get("/v1/dr/groups").await?;
    let sites = visit.get("/v1/dr/sites").await;
    let mode = ModeFields::new(sent, None);
    shown(&ReplicationPage { frame: &frame, list, sites, mode, sent }, &frame)
}

/// Makes a DR group of the volumes that were named. It returns once the other site has its replicas.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let text = |name: &str| fields.text(name).to_owned();
        let (pool, pools) = pools_there(fields.text("pools"))?;
        let body = NewDrGroupBody {
            name: text("name"),
            volumes: named_volumes(&visit, fields.text("names")).await?,
            peer: text("peer"),
            pool,
            pools,
            mode: mode_of(&fields)?,
            witness: fields.words("witness"),
        };
        visit.change::<DrGroupRow>((Method::POST, "/v1/dr/groups"), &body, fields.change()).await
    };
    match made.await {
        Ok(group) => Ok(see(&format!("/replication/{}?done=created", escaped(&group.group)))),
        Err(problem) => page(&visit, Some(problem), &fields).await,
    }
}

/// The pool there, or pairs HERE=THERE.
fn pools_there(text: &str) -> Result<(Option<String>, BTreeMap<String, String>), ApiProblem> {
    if !text.contains('=') {
        return Ok((Some(text.to_owned()).filter(|text| !text.is_empty()), BTreeMap::new()));
    }
    let pair = |word: &str| match word.split_once('=') {
        Some((here, there)) => Ok((here.to_owned(), there.to_owned())),
        None => Err(ApiProblem::bad_request(format!("{word:?} is no pair of pools"), "say HERE=THERE")),
    };
    Ok((None, text.split_whitespace().map(pair).collect::<Result<_, _>>()?))
}
