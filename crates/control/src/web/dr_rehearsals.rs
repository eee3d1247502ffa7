//! Rehearsals of a failover: clones of a secondary's volumes for a bounded time. The caller checks them; the server
//! starts no program.

use super::{
    ApiState,
    caller::Caller,
    changing::ChangeIdentity,
    dr_groups::group_of,
    dr_kept_states::kept_state,
    dr_parts::{check_whole, parts_of},
    dr_rows::DrGroupRow,
    exports::uri_of,
    group_orders::hold,
    orders::order,
    problem::ApiProblem,
};
use crate::{
    dr::{
        group_view::{DrGroupView, DrRole},
        rehearsal::{NewRehearsal, RehearsalRefusal, RehearsalView, RehearsedVolume},
    },
    journal::{
        rehearsals::{PastRehearsal, ProvenState, RehearsalOutcome},
        tokens::CallerRole,
    },
    site::handle::PoolHandle,
    view::{PoolView, VolumeView},
};
use array::format::VolumeId;
use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use replication::secondary::KeptState;
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;
use std::{collections::BTreeSet, time::Duration};
use utoipa::{IntoParams, ToSchema};
use world::{Address, real::host_files};

/// Bounds of the times of a rehearsal.
const IDLE_MAX: Duration = Duration::from_secs(3600);
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Interval of looking whether a change is shown, and looks at most: 3 s.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SHOWN_LOOKS: usize = 150;

/// A rehearsal to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRehearsalBody {
    /// Seconds without a client of any clone, after which all are deleted.
    #[serde(default = "default_idle")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub idle_s: u64,
    /// Seconds after which the clones are deleted although clients use them.
    #[serde(default = "default_at_most")]
    #[schema(minimum = 1, maximum = 604_800, default = 86_400)]
    pub at_most_s: u64,
    /// A kept state instead of the newest one: the name of a snapshot of all volumes of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

fn default_idle() -> u64 {
    60
}

fn default_at_most() -> u64 {
    24 * 3600
}

/// A rehearsal that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsalRow {
    /// UUID.
    pub rehearsal: String,
    /// UUID of the group.
    pub group: String,
    pub name: String,
    pub began: String,
    /// Seconds without a client of any clone, after which all are deleted.
    pub idle_s: u64,
    /// The clones are deleted then, although clients use them.
    pub ends_at: String,
    /// The group gets what it lacks at the moment: the clones are as of before.
    pub is_merging: bool,
    /// The kept state that the clones are as of: if this passes, it is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Everything that hosts were answered until then is in the clones; left out if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_until: Option<String>,
    /// One for each volume of the group.
    pub clones: Vec<RehearsalCloneRow>,
}

/// A clone of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsalCloneRow {
    /// Name of the pool.
    pub pool: String,
    /// Name of the volume of the group.
    pub volume: String,
    /// Name of the clone, in the same pool.
    pub clone: String,
    pub bytes: u64,
    /// The clone over NBD, as the server listens.
    pub uri: String,
}

/// The last rehearsal of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PastRehearsalRow {
    pub ended: String,
    pub outcome: RehearsalOutcome,
    /// From the cut to the answer.
    pub seconds: f64,
    /// The kept state that a rehearsal proved last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proven: Option<String>,
}

/// The end of a rehearsal.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RehearsalEnd {
    /// The answer, which is kept as that of the group's last rehearsal; left out if it was broken off.
    outcome: Option<RehearsalOutcome>,
    /// Seconds from the cut to the answer.
    seconds: Option<f64>,
}

/// Clones the volumes of a group that is secondary here, as a failover now would show them, and serves the clones over NBD. The
/// group follows on. The clones are deleted when the rehearsal is ended, and at the end of its times whatever happens.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/rehearsals", tag = "dr", request_body = NewRehearsalBody,
    params(("group" = String, Path, description = "UUID")),
    responses((status = 201, description = "The clones are served", body = RehearsalRow), (status = "default", response = ApiProblem)))]
pub(super) async fn begin(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(group): Path<String>,
    Json(NewRehearsalBody { idle_s, at_most_s, at }): Json<NewRehearsalBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let (idle, at_most) = (Duration::from_secs(idle_s), Duration::from_secs(at_most_s));
    if !(1..=IDLE_MAX.as_secs()).contains(&idle_s) || !(1..=TIME_MAX.as_secs()).contains(&at_most_s) {
        return Err(ApiProblem::bad_request(
            "a rehearsal is for 1 s to 7 days, and 1 s to 1 h without a client",
            "choose other times",
        ));
    }
    let refused = |problem: String, next: String| ApiProblem::refused(&Refusal::new(problem, next));
    let parts = parts_of(&api, &caller, (pool, view.clone()));
    check_whole(&parts)?;
    if parts.iter().all(|(_, part)| part.role == DrRole::Primary) {
        let problem = format!("{} is primary here: a failover is rehearsed at its secondary", view.name);
        let next = format!("say 'spindle failover {} --rehearse' at the other site", view.name);
        return Err(refused(problem, next));
    }
    if parts.iter().any(|(_, part)| part.role == DrRole::Primary) {
        let problem = format!("{}: some of its parts are primary here, and some are not", view.name);
        let next = format!("'spindle failover {}' gathers them", view.name);
        return Err(refused(problem, next));
    }
    let nbd = nbd_address(&api)?;
    check_names(&api, &view, identity.uuid)?;
    let at = match at {
        Some(meant) => Some(kept_state(&api, &parts, &meant).await?),
        None => None,
    };
    let begun = begin_parts(&api, &parts, (identity.uuid, at.as_deref()), (idle, at_most)).await?;
    // Clients are routed by the views.
    for ((pool, _), part) in parts.iter().zip(&begun) {
        let is_served = |view: &PoolView| {
            let has = |name: &String| view.exports.iter().any(|export| export.name == *name);
            part.clones.iter().all(|clone| has(&clone.export))
        };
        shown(&api, pool, is_served).await;
    }
    let begun: Vec<(PoolHandle, RehearsalView)> =
        parts.into_iter().map(|(pool, _)| pool).zip(begun).collect();
    let row = RehearsalRow::of((group, view.name), &begun, &nbd);
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

/// Lists the rehearsal of a group that is under way here, with its clones; an empty list if there is none.
#[utoipa::path(get, path = "/v1/dr/groups/{group}/rehearsals", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "The rehearsal that is under way", body = Vec<RehearsalRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<Vec<RehearsalRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let name = view.name.clone();
    let under_way = under_way(&parts_of(&api, &caller, (pool, view)));
    let ids: BTreeSet<[u8; 16]> = under_way.iter().map(|(_, one)| one.rehearsal).collect();
    let mut rows = Vec::new();
    for id in ids {
        let nbd = nbd_address(&api)?;
        let parts: Vec<_> = under_way.iter().filter(|(_, one)| one.rehearsal == id).cloned().collect();
        rows.push(RehearsalRow::of((group.clone(), name.clone()), &parts, &nbd));
    }
    Ok(Json(rows))
}

/// The parts of a group that are being rehearsed, as their pools have shown them last.
fn under_way(parts: &[(PoolHandle, DrGroupView)]) -> Vec<(PoolHandle, RehearsalView)> {
    let of_part = |(pool, part): &(PoolHandle, DrGroupView)| {
        let last = pool.last_view();
        let one = last.rehearsals.iter().find(|one| one.group == part.group).cloned();
        one.map(|one| (pool.clone(), one))
    };
    parts.iter().filter_map(of_part).collect()
}

/// The address at which clones are served, and whether over TLS.
fn nbd_address(api: &ApiState) -> Result<(Address, bool), ApiProblem> {
    let Some((mut address, is_encrypted)) = api.site.look().nbd.clone() else {
        let problem = "the clones of a rehearsal are served over NBD, and this server serves none".to_owned();
        let next = "add ⟨nbd⟩ to [serve] in its site file".to_owned();
        return Err(ApiProblem::refused(&Refusal::new(problem, next)));
    };
    if let Address::Unix(socket) = &mut address {
        // Its clients are in other folders than this server.
        *socket = host_files::canonical(socket).unwrap_or_else(|_| socket.clone());
    }
    Ok((address, is_encrypted))
}

impl RehearsalRow {
    /// The row of a group's parts that are rehearsed together, of which there is one at least.
    fn of(
        (group, name): (String, String),
        parts: &[(PoolHandle, RehearsalView)],
        (address, is_encrypted): &(Address, bool),
    ) -> Self {
        let (_, first) = parts.first().expect("a rehearsal has a part at least");
        let views: Vec<RehearsalView> = parts.iter().map(|(_, view)| view.clone()).collect();
        let clone = |pool: &PoolHandle, one: &RehearsedVolume| RehearsalCloneRow {
            pool: pool.name.clone(),
            volume: one.name.clone(),
            clone: one.clone_name.clone(),
            bytes: one.bytes,
            uri: uri_of(address, *is_encrypted, &one.export),
        };
        let complete_until: Option<Vec<i64>> =
            views.iter().map(|view| view.complete_until.map(|time| time.seconds)).collect();
        Self {
            rehearsal: VolumeId(first.rehearsal).to_string(),
            group,
            name,
            began: utc_time(first.began.seconds),
            idle_s: first.idle.as_secs(),
            ends_at: utc_time(first.began.seconds.saturating_add_unsigned(first.at_most.as_secs())),
            is_merging: views.iter().any(|view| view.is_merging),
            state: state_of(&views).map(|state| state.name.clone()),
            complete_until: complete_until.into_iter().flatten().min().map(utc_time),
            clones: parts
                .iter()
                .flat_map(|(pool, view)| view.clones.iter().map(|one| clone(pool, one)))
                .collect(),
        }
    }
}

/// Begins a rehearsal in all pools of a group, or in none.
async fn begin_parts(
    api: &ApiState,
    parts: &[(PoolHandle, DrGroupView)],
    (rehearsal, at): ([u8; 16], Option<&[KeptState]>),
    (idle, at_most): (Duration, Duration),
) -> Result<Vec<RehearsalView>, ApiProblem> {
    let pools: Vec<PoolHandle> = parts.iter().map(|(pool, _)| pool.clone()).collect();
    // Orders of two rehearsals in the same pools would wait for each other.
    let _places = if pools.len() > 1 { Some(hold(api, &pools).await?) } else { None };
    let begin = |(index, (pool, part)): (usize, &(PoolHandle, DrGroupView))| {
        let at = at.map(|states| states[index].clone());
        let complete_until = part.complete_until.map(|(time, _)| time);
        let new = NewRehearsal { group: part.group, rehearsal, idle, at_most, at, complete_until };
        let pool = pool.clone();
        async move {
            let begun = order(&pool, "rehearse", move |served| {
                Box::pin(async move { Ok(served.rehearsals.begin(&served, new).await) })
            });
            begun.await
        }
    };
    let all = join_all(parts.iter().enumerate().map(begin)).await;
    let (mut begun, mut refusals) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(Ok(view)) => begun.push(view),
            Ok(Err(RehearsalRefusal { refusal, is_effect })) => {
                refusals.push((is_effect, ApiProblem::from(refusal)));
            }
            Err(problem) => refusals.push((false, problem)),
        }
    }
    let cause = refusals.iter().position(|(is_effect, _)| !is_effect).unwrap_or_default();
    let Some((_, problem)) = refusals.into_iter().nth(cause) else { return Ok(begun) };
    // A pool that does not answer deletes them once nobody has used them for their idle time.
    let _ = end_parts(parts, rehearsal).await;
    Err(problem)
}

/// Ends a rehearsal in the pools that have it. True if one had.
async fn end_parts(parts: &[(PoolHandle, DrGroupView)], rehearsal: [u8; 16]) -> Result<bool, ApiProblem> {
    let end = |(pool, part): &(PoolHandle, DrGroupView)| {
        let (pool, group) = (pool.clone(), part.group);
        async move {
            let ended = order(&pool, "end rehearsal", move |served| {
                Box::pin(async move {
                    let is_meant = |one: &RehearsalView| one.group == group && one.rehearsal == rehearsal;
                    match served.rehearsals.views().iter().any(is_meant) {
                        true => Ok(served.rehearsals.end(&served, group).await),
                        false => Ok(false),
                    }
                })
            });
            ended.await
        }
    };
    let ended = join_all(parts.iter().map(end)).await;
    let ended = ended.into_iter().collect::<Result<Vec<bool>, ApiProblem>>()?;
    Ok(ended.contains(&true))
}

/// The kept state that the clones of all parts are as of.
fn state_of(begun: &[RehearsalView]) -> Option<&KeptState> {
    let state = begun.first()?.state.as_ref()?;
    let is_same =
        |part: &RehearsalView| part.state.as_ref().is_some_and(|other| other.snapshot == state.snapshot);
    begun.iter().all(is_same).then_some(state)
}

/// Waits until the pool's view shows a change, for a bounded time.
async fn shown(api: &ApiState, pool: &PoolHandle, is_shown: impl Fn(&PoolView) -> bool) {
    for _ in 0..SHOWN_LOOKS {
        if is_shown(&pool.last_view()) {
            return;
        }
        api.world.sleep(LOOK_EVERY).await;
    }
}

/// Refuses a rehearsal whose exports would have names of others.
fn check_names(api: &ApiState, group: &DrGroupView, rehearsal: [u8; 16]) -> Result<(), ApiProblem> {
    let begin = format!("{}-rehearsal-", group.name);
    let site = api.site.look();
    let is_ours = |view: &RehearsalView| view.group == group.group && view.rehearsal == rehearsal;
    if site.pools.values().any(|pool| pool.last_view().rehearsals.iter().any(is_ours)) {
        return Ok(());
    }
    let of_site = site.site.exports.iter().map(|export| export.name.clone());
    let taken = of_site.into_iter().find(|name| name.starts_with(&begin));
    match taken {
        None => Ok(()),
        Some(name) => {
            let problem = format!("export {name:?} has a name that a rehearsal of {} needs", group.name);
            Err(ApiProblem::refused(&Refusal::new(problem, "give it another name")))
        }
    }
}

/// Ends a rehearsal: the clones are deleted. Its answer is kept with the group.
#[utoipa::path(delete, path = "/v1/dr/groups/{group}/rehearsals/{rehearsal}", tag = "dr",
    params(("group" = String, Path, description = "UUID"), ("rehearsal" = String, Path, description = "UUID"), RehearsalEnd),
    responses((status = 204, description = "The clones are gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn end(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((group, rehearsal)): Path<(String, String)>,
    Query(RehearsalEnd { outcome, seconds }): Query<RehearsalEnd>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let missing = || ApiProblem::not_found(format!("there is no rehearsal {rehearsal}: it may have ended"));
    let id = parse_uuid(&rehearsal).map_err(|_| missing())?;
    let parts = parts_of(&api, &caller, group_of(&api, &caller, &group)?);
    let under_way: Vec<RehearsalView> = under_way(&parts).into_iter().map(|(_, view)| view).collect();
    let was_under_way = end_parts(&parts, id).await?;
    let clones: Vec<VolumeId> =
        under_way.iter().flat_map(|one| &one.clones).map(|clone| clone.clone).collect();
    for (pool, part) in &parts {
        let is_over = |view: &PoolView| {
            let is_clone = |volume: &VolumeView| clones.contains(&volume.volume);
            !view.rehearsals.iter().any(|one| one.group == part.group) && !view.volumes.iter().any(is_clone)
        };
        shown(&api, pool, is_over).await;
    }
    if !was_under_way && !identity.may_be_done {
        return Err(missing());
    }
    if let Some(outcome) = outcome {
        let seconds = seconds.unwrap_or_default().max(0.0);
        // The clones of a part without the others show no state.
        let state = if under_way.len() == parts.len() { state_of(&under_way) } else { None };
        for (_, part) in &parts {
            let past =
                PastRehearsal { ended_unix_s: api.world.unix_s(), outcome, seconds, proven: Vec::new() };
            let of_state = |state: &KeptState| ProvenState {
                snapshot: state.snapshot.to_string(),
                name: state.name.clone(),
            };
            let group = part.group.to_string();
            let past = past.after(api.journal.rehearsals()?.remove(&group), state.map(of_state));
            api.journal.put_rehearsal(&group, &past)?;
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Adds the last rehearsals to rows of groups. A journal that cannot be read has said so elsewhere.
pub(super) fn add_to_rows(api: &ApiState, rows: &mut [DrGroupRow]) {
    let all = if rows.is_empty() { Default::default() } else { api.journal.rehearsals().unwrap_or_default() };
    for row in rows {
        row.last_rehearsal = all.get(&row.group).map(|past| PastRehearsalRow {
            ended: utc_time(past.ended_unix_s),
            outcome: past.outcome,
            seconds: past.seconds,
            last_proven: past.proven.last().map(|state| state.name.clone()),
        });
        if let (None, Some(could)) = (&row.last_rehearsal, &mut row.could_serve) {
            could.remarks = vec!["a failover was never rehearsed here".to_owned()];
        }
    }
}
