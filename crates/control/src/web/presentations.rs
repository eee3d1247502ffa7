//! Presentations: points of volumes, or clones of them, served to one host for a bounded time.

use super::{ApiState, caller::Caller, changing::ChangeIdentity, orders::volume_of, problem::ApiProblem};
use crate::{
    journal::tokens::CallerRole,
    presenting::{
        EndReason, Presentation, PresentationStage,
        presentation::SECONDS_MAX,
        presenter::{
            NewPresentation, NewPresentedClone, PresentationEnd, PresentationFailure, Presenter, UNIT_MAX,
        },
    },
    site::handle::{PoolHandle, SiteView},
};
use array::format::SnapshotId;
use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use iscsi::target::access::AccessRight;
use plan::site::SiteInitiator;
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;
use utoipa::{IntoParams, ToSchema};
use world::Address;

/// Longest iSCSI name (RFC 7143, 4.2.7.2).
const NAME_BYTES_MAX: usize = 223;

/// A point to present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPresentationBody {
    /// UUID of the snapshot.
    pub snapshot: String,
    /// iSCSI name of the host, or the end behind the last colon of one that the site lists.
    pub initiator: String,
    /// Seconds until it ends.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub seconds: u64,
    /// Name of a target of the site, in the same pool; the host gets a target of its own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Logical unit number; the lowest free one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 16383)]
    pub number: Option<u64>,
    /// Present a writable clone, instead of the point itself, which is read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clone: bool,
    /// Name of the clone; one that says what it is if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_name: Option<String>,
    /// The clone stays when the presentation ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_clone: bool,
}

/// A point that is presented to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresentationRow {
    pub id: String,
    /// `POOL/VOLUME@POINT`, as it was called at the beginning.
    pub path: String,
    /// UUID of the volume.
    pub volume: String,
    /// UUID of the snapshot.
    pub snapshot: String,
    /// iSCSI name of the host.
    pub initiator: String,
    /// The host must authenticate by CHAP.
    pub has_chap: bool,
    /// Address at which the server serves iSCSI; none if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal: Option<String>,
    /// iSCSI name of the target.
    pub target: String,
    /// Logical unit number.
    pub number: u64,
    /// UUID of the unit, which its serial number and its NAA are of.
    pub identity: String,
    pub is_read_only: bool,
    /// Name of the clone, at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<String>,
    /// UUID of the clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_volume: Option<String>,
    /// The clone stays when the presentation ends.
    pub keeps_clone: bool,
    pub began: String,
    pub ends: String,
    /// Seconds until then, as the server's clock has it.
    pub seconds_left: u64,
    pub state: PresentationState,
    /// The host reaches it now.
    pub is_served: bool,
    /// The reason for which it is not served, although it is its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Sessions of the host now.
    pub sessions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PresentationState {
    Beginning,
    Presented,
    /// It is not served any more; what it made is being removed.
    Ending,
}

/// Presentations, by their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresentationList {
    pub presentations: Vec<PresentationRow>,
}

/// The end of a presentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresentationEndRow {
    pub id: String,
    /// `POOL/VOLUME@POINT`.
    pub path: String,
    /// Hosts whose sessions ended.
    pub logged_out: Vec<String>,
    /// The fate of the clone, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PresentationFilter {
    /// UUID of the volume.
    volume: Option<String>,
    /// Name of the pool.
    pool: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PresentationEnding {
    /// The clone stays.
    keep_clone: Option<bool>,
}

impl From<PresentationFailure> for ApiProblem {
    fn from(failure: PresentationFailure) -> Self {
        match failure {
            PresentationFailure::Refused(refusal) => refusal.into(),
            PresentationFailure::Journal(error) => error.into(),
            PresentationFailure::Order(refusal) => refusal.into(),
            PresentationFailure::Busy => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &failure.refusal())
            }
        }
    }
}

impl PresentationRow {
    fn of(api: &ApiState, site: &SiteView, one: &Presentation) -> Self {
        let view = site.pool_of(one.pool_id()).and_then(PoolHandle::view);
        let target = one.target_name();
        let has_unit =
            |known: &iscsi::target::ListedTarget| known.name == target && known.units.contains(&one.number);
        let shown = view.as_ref();
        let right = shown.and_then(|view| view.access.right(&one.initiator, &target, one.number));
        let is_served = right.is_some()
            && one.is_open_at(api.world.unix_s())
            && shown.is_some_and(|view| view.targets.iter().any(has_unit));
        let problem = shown.and_then(|view| view.presentation_problems.get(&one.id));
        let problem = problem.map(|problem| problem.text.clone());
        let closed = shown.is_none().then(|| "its pool is not open".to_owned());
        Self {
            id: one.id_text(),
            path: one.path.clone(),
            volume: one.volume_id().to_string(),
            snapshot: one.snapshot_id().to_string(),
            initiator: one.initiator.clone(),
            has_chap: shown.is_some_and(|view| view.access.credentials_of(&one.initiator).is_some()),
            portal: site.iscsi.as_ref().map(Address::to_string),
            number: one.number,
            identity: one.identity(),
            is_read_only: one.right() == AccessRight::Read,
            clone: one.clone.as_ref().map(|clone| clone.name.clone()),
            clone_volume: one.clone_id().map(|clone| clone.to_string()),
            keeps_clone: one.clone.as_ref().is_some_and(|clone| clone.is_kept),
            began: utc_time(one.began_unix_s),
            ends: utc_time(one.ends_unix_s),
            seconds_left: one.ends_unix_s.saturating_sub(api.world.unix_s()).max(0).unsigned_abs(),
            state: match one.stage {
                PresentationStage::Beginning => PresentationState::Beginning,
                PresentationStage::Presented => PresentationState::Presented,
                PresentationStage::Ending(_) => PresentationState::Ending,
            },
            is_served,
            problem: problem.or(closed).filter(|_| !is_served),
            sessions: shown.map_or(0, |view| one.hosts_among(&view.sessions).len()),
            target,
        }
    }
}

/// Presents a point of a volume to one host, for a bounded time.
#[utoipa::path(post, path = "/v1/volumes/{volume}/presentations", tag = "presentations", request_body = NewPresentationBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 201, description = "It is served to the host", body = PresentationRow), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<NewPresentationBody>,
) -> Result<(StatusCode, Json<PresentationRow>), ApiProblem> {
    // It decides who reaches data.
    caller.need(CallerRole::Admin)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let site = api.site.look();
    if site.iscsi.is_none() {
        let refusal = Refusal::new("the server serves no iSCSI", "set iscsi under [serve] in the site file");
        return Err(ApiProblem::refused(&refusal));
    }
    let snapshot = parse_uuid(&body.snapshot).map_err(|_| {
        ApiProblem::bad_request(format!("{:?} is no UUID", body.snapshot), "send that of a snapshot")
    })?;
    if !(1..=SECONDS_MAX).contains(&body.seconds) {
        let problem = format!("{} s are not a time of 1 s to 366 days", body.seconds);
        return Err(ApiProblem::bad_request(problem, "send another number of seconds"));
    }
    if body.number.is_some_and(|number| number > UNIT_MAX) {
        return Err(ApiProblem::bad_request(format!("numbers of units are 0 to {UNIT_MAX}"), ""));
    }
    if !body.clone && (body.clone_name.is_some() || body.keep_clone) {
        return Err(ApiProblem::bad_request(
            "the point itself is presented, and no clone is made",
            "say ⟨clone⟩",
        ));
    }
    let began_unix_s = api.world.unix_s();
    let clone = body.clone.then_some(NewPresentedClone { name: body.clone_name, is_kept: body.keep_clone });
    let new = NewPresentation {
        id: identity.uuid,
        volume: meant.id(),
        snapshot: SnapshotId(snapshot),
        initiator: initiator_meant(&site.site.initiators, &body.initiator)?,
        target: body.target,
        number: body.number,
        clone,
        began_unix_s,
        ends_unix_s: began_unix_s.saturating_add_unsigned(body.seconds),
    };
    let presented = presenter(&api).begin(&meant.pool, new).await?;
    Ok((StatusCode::CREATED, Json(PresentationRow::of(&api, &api.site.look(), &presented))))
}

/// Lists presentations, by their ends.
#[utoipa::path(get, path = "/v1/presentations", tag = "presentations", params(PresentationFilter),
    responses((status = 200, description = "All that the caller may see", body = PresentationList),
    (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<PresentationFilter>,
) -> Result<Json<PresentationList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let mut all = api.site.presentations.all();
    all.sort_by_key(|one| (one.ends_unix_s, one.id));
    let rows = all.iter().filter(|one| {
        let pool = pool_name(&site, one);
        caller.sees(pool)
            && filter.pool.as_ref().is_none_or(|wanted| pool == wanted)
            && filter.volume.as_ref().is_none_or(|wanted| {
                let clone = one.clone_id().is_some_and(|clone| clone.to_string() == *wanted);
                one.volume_id().to_string() == *wanted || clone
            })
    });
    Ok(Json(PresentationList {
        presentations: rows.map(|one| PresentationRow::of(&api, &site, one)).collect(),
    }))
}

/// Shows a presentation.
#[utoipa::path(get, path = "/v1/presentations/{presentation}", tag = "presentations",
    params(("presentation" = String, Path, description = "UUID")),
    responses((status = 200, description = "The presentation", body = PresentationRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(presentation): Path<String>,
) -> Result<Json<PresentationRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let found = find(&api, &caller, &presentation)?;
    Ok(Json(PresentationRow::of(&api, &api.site.look(), &found)))
}

/// Ends a presentation: its hosts are logged out, and its clone is removed with what was written to it, unless it is to stay.
#[utoipa::path(delete, path = "/v1/presentations/{presentation}", tag = "presentations",
    params(("presentation" = String, Path, description = "UUID"), PresentationEnding),
    responses((status = 200, description = "It is over", body = PresentationEndRow), (status = "default", response = ApiProblem)))]
pub(super) async fn end(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(presentation): Path<String>,
    Query(PresentationEnding { keep_clone }): Query<PresentationEnding>,
) -> Result<Json<PresentationEndRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let found = match find(&api, &caller, &presentation) {
        Ok(found) => found,
        // The request was repeated.
        Err(_) if identity.may_be_done => {
            return Ok(Json(PresentationEndRow { id: presentation, ..PresentationEndRow::default() }));
        }
        Err(problem) => return Err(problem),
    };
    let reason = (EndReason::Withdrawn, api.world.unix_s());
    let ended = presenter(&api).end(found.id, reason, keep_clone.unwrap_or_default()).await?;
    let PresentationEnd { hosts, clone, .. } = ended.unwrap_or_default();
    let clone = Some(clone).filter(|clone| !clone.is_empty());
    Ok(Json(PresentationEndRow { id: found.id_text(), path: found.path.clone(), logged_out: hosts, clone }))
}

fn presenter(api: &ApiState) -> Presenter {
    let (site, board, notices) = (api.site.clone(), api.site.presentations.clone(), api.notices.clone());
    Presenter { site, board, notices }
}

fn find(api: &ApiState, caller: &Caller, id: &str) -> Result<Presentation, ApiProblem> {
    let found = parse_uuid(id).ok().and_then(|id| api.site.presentations.get(id));
    let site = api.site.look();
    let found = found.filter(|one| caller.sees(pool_name(&site, one)));
    let missing = || ApiProblem::not_found(format!("there is no presentation {id}: it may have ended"));
    found.map(|one| (*one).clone()).ok_or_else(missing)
}

/// Name of the pool: a group may have another name by now.
fn pool_name<'s>(site: &'s SiteView, one: &'s Presentation) -> &'s str {
    site.pool_of(one.pool_id()).map_or_else(|| one.pool_name_then(), |pool| &pool.name)
}

/// The iSCSI name, in lower case, that is meant by the name of a listed initiator, the end of one, or any iSCSI name.
fn initiator_meant(listed: &[SiteInitiator], meant: &str) -> Result<String, ApiProblem> {
    let meant = meant.to_ascii_lowercase();
    let names: Vec<String> = listed.iter().map(|row| row.name.to_ascii_lowercase()).collect();
    if names.contains(&meant) {
        return Ok(meant);
    }
    let is_end = |name: &&String| name.rsplit(':').next() == Some(&meant);
    let ends: Vec<&String> = names.iter().filter(is_end).collect();
    match ends[..] {
        [name] => return Ok(name.clone()),
        [] => {}
        _ => {
            let problem = format!("{meant} may be each of {} initiators", ends.len());
            return Err(ApiProblem::bad_request(problem, "name it by its whole iSCSI name"));
        }
    }
    let is_name = ["iqn.", "eui.", "naa."].iter().any(|kind| meant.starts_with(kind))
        && meant.len() <= NAME_BYTES_MAX
        && meant.chars().all(|c| c.is_alphanumeric() || "-.:".contains(c));
    if is_name {
        return Ok(meant);
    }
    let problem = format!("the site has no initiator {meant}, and it is no iSCSI name");
    Err(ApiProblem::bad_request(problem, "'spindle initiator list' shows those of the site; or say iqn.…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiator_is_named_by_its_name_or_by_its_end_if_that_means_one() {
        let row = |name: &str| SiteInitiator { name: name.to_owned(), ..SiteInitiator::default() };
        let listed = [row("iqn.2026-11.org.example:Backup1"), row("iqn.x:mail"), row("iqn.y:mail")];
        let meant = |name: &str| initiator_meant(&listed, name).map_err(|problem| problem.detail);
        assert_eq!(meant("backup1").unwrap(), "iqn.2026-11.org.example:backup1");
        assert_eq!(meant("IQN.x:MAIL").unwrap(), "iqn.x:mail");
        assert_eq!(meant("mail").unwrap_err(), "mail may be each of 2 initiators");
        assert_eq!(meant("iqn.z:other").unwrap(), "iqn.z:other");
        for name in ["other", "iqn.z:a b", "iqn.z:a/b"] {
            assert!(meant(name).is_err(), "{name}");
        }
    }
}
