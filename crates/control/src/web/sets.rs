//! Sets of the site file that are backed up, and orders of people about their backups.
//!
//! A set is seen by callers that may see all its pools. Sets themselves are changed by the site file alone.

use super::{
    ApiState,
    caller::Caller,
    changing::ChangeIdentity,
    problem::ApiProblem,
    set_rows::{SetBackupRow, SetRow},
};
use crate::{
    journal::tokens::CallerRole,
    sets::{ServedSet, SetKeeping, SetOrder, SetOrderAnswer, SetOrderRefusal, SetOrders},
};
use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use protect::set_keeper::{CopyResult, PersonOrder, VerificationResult};
use report::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A backup to make now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBackupBody {
    /// Name of a hold: the backup stays until it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupLockBody {
    /// From the cut on; only longer than before.
    #[schema(minimum = 1)]
    pub for_seconds: i64,
}

/// The result of a verification of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerificationBody {
    /// `chain`, `pages`, `deep` or `recover`.
    pub level: String,
    /// Version of the verifier.
    pub version: String,
    /// Nothing is damaged, and everything was looked at.
    pub is_good: bool,
    /// Lines about damage; the first ones are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// A copy of a backup elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupCopyBody {
    /// The vault, without secrets.
    pub to: String,
    /// Identity of the copy there.
    pub id: String,
    /// Bytes that it added there.
    pub bytes: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct BackupDeletionWay {
    /// Also if no other full backup of the set is left.
    #[serde(default)]
    last: bool,
}

fn sees(caller: &Caller, set: &ServedSet) -> bool {
    set.wanted.settings.pools().into_iter().all(|pool| caller.sees(pool))
}

fn set_of(api: &ApiState, caller: &Caller, name: &str) -> Result<ServedSet, ApiProblem> {
    let sets = api.site.sets();
    let known = sets.iter().find(|set| set.wanted.settings.name == name && sees(caller, set));
    known.cloned().ok_or_else(|| ApiProblem::not_found(format!("there is no set {name}")))
}

/// The way to the keeper of a set.
fn orders_of(api: &ApiState, caller: &Caller, name: &str) -> Result<SetOrders, ApiProblem> {
    match set_of(api, caller, name)?.keeping {
        SetKeeping::Server { orders, .. } => Ok(orders),
        SetKeeping::Agent => {
            let problem = format!("set {name} is kept by an agent on its mail host, not by this server");
            Err(ApiProblem::refused(&Refusal::new(problem, "give the order there: 'spindle protect'")))
        }
    }
}

impl From<SetOrderRefusal> for ApiProblem {
    fn from(refused: SetOrderRefusal) -> Self {
        match refused {
            SetOrderRefusal::Unknown(refusal) => Self::not_found(refusal.problem()),
            SetOrderRefusal::Refused(refusal) => Self::refused(&refusal),
            SetOrderRefusal::NotNow(refusal) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal),
        }
    }
}

/// The row of the backup that was ordered, or about which something was.
fn row_of(SetOrderAnswer { number, view }: &SetOrderAnswer) -> Result<SetBackupRow, ApiProblem> {
    let found = view.backups.iter().find(|backup| backup.number == *number);
    found
        .map(SetBackupRow::of)
        .ok_or_else(|| ApiProblem::not_found(format!("backup {number} is gone already")))
}

/// Lists the sets of the site file, with their backups.
#[utoipa::path(get, path = "/v1/sets", tag = "sets",
    responses((status = 200, description = "All sets", body = Vec<SetRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<SetRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let sets = api.site.sets();
    Ok(Json(sets.iter().filter(|set| sees(&caller, set)).map(SetRow::of).collect()))
}

/// Shows a set, with its backups.
#[utoipa::path(get, path = "/v1/sets/{set}", tag = "sets", params(("set" = String, Path, description = "Name")),
    responses((status = 200, description = "The set", body = SetRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SetRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(SetRow::of(&set_of(&api, &caller, &name)?)))
}

/// Makes a backup now. Repeated after the server was killed meanwhile, it may make a second one.
#[utoipa::path(post, path = "/v1/sets/{set}/backups", tag = "sets", request_body = NewBackupBody,
    params(("set" = String, Path, description = "Name")),
    responses((status = 201, description = "It was made", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn back_up(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(NewBackupBody { hold }): Json<NewBackupBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let orders = orders_of(&api, &caller, &name)?;
    let answer = orders.give(SetOrder::BackUp { holds: hold.into_iter().collect() }, &caller.name).await?;
    Ok((StatusCode::CREATED, Json(row_of(&answer)?)).into_response())
}

async fn follow(
    api: &ApiState,
    caller: &Caller,
    (set, number): (&str, u64),
    order: PersonOrder,
) -> Result<SetOrderAnswer, ApiProblem> {
    let orders = orders_of(api, caller, set)?;
    Ok(orders.give(SetOrder::Follow { number, order }, &caller.name).await?)
}

/// Holds a backup: it stays until the hold is released. One that is there already is enough.
#[utoipa::path(put, path = "/v1/sets/{set}/backups/{number}/holds/{hold}", tag = "sets",
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup"),
        ("hold" = String, Path, description = "Name of the hold")),
    responses((status = 200, description = "It is held", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn hold(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number, hold)): Path<(String, u64, String)>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), PersonOrder::Hold { hold }).await?)?))
}

/// Releases a hold. If nothing else wants the backup, it goes after the next one was made.
#[utoipa::path(delete, path = "/v1/sets/{set}/backups/{number}/holds/{hold}", tag = "sets",
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup"),
        ("hold" = String, Path, description = "Name of the hold")),
    responses((status = 200, description = "It is released", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn release(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((set, number, hold)): Path<(String, u64, String)>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let released = follow(&api, &caller, (&set, number), PersonOrder::Release { hold: hold.clone() }).await;
    let refused = match released {
        Ok(answer) => return Ok(Json(row_of(&answer)?)),
        Err(refused) => refused,
    };
    // The first request with this key may have released it.
    let row = SetRow::of(&set_of(&api, &caller, &set)?);
    let without = row.backups.into_iter().find(|row| row.number == number && !row.holds.contains(&hold));
    match without.filter(|_| identity.may_be_done) {
        Some(row) => Ok(Json(row)),
        None => Err(refused),
    }
}

/// Locks a backup: until then nobody can delete it. Only longer than before is possible.
#[utoipa::path(put, path = "/v1/sets/{set}/backups/{number}/lock", tag = "sets", request_body = BackupLockBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is locked", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn lock(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(BackupLockBody { for_seconds }): Json<BackupLockBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let order = PersonOrder::Lock { for_s: for_seconds };
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// Notes the result of a verification, which others make of its snapshots. The last one counts.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/verifications", tag = "sets", request_body = VerificationBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn verify(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(VerificationBody { level, version, is_good, findings }): Json<VerificationBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let result = VerificationResult { level, version, is_good, findings };
    let order = PersonOrder::NoteVerification(result);
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// Notes a copy that others made of a backup's snapshots. The newest copy in a place stays: the next one is made from it.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/copies", tag = "sets", request_body = BackupCopyBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn note_copy(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(BackupCopyBody { to, id, bytes }): Json<BackupCopyBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let order = PersonOrder::NoteCopy(CopyResult { to, id, bytes });
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// Deletes a backup that nothing holds, locks, uses or needs.
#[utoipa::path(delete, path = "/v1/sets/{set}/backups/{number}", tag = "sets",
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup"),
        BackupDeletionWay),
    responses((status = 204, description = "It is gone, or goes as soon as its snapshots can be deleted"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((set, number)): Path<(String, u64)>,
    Query(BackupDeletionWay { last }): Query<BackupDeletionWay>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let orders = orders_of(&api, &caller, &set)?;
    let order = SetOrder::Follow { number, order: PersonOrder::Delete { may_be_last: last } };
    match orders.give(order, &caller.name).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        // The first request with this key may have deleted it.
        Err(SetOrderRefusal::Unknown(_)) if identity.may_be_done => Ok(StatusCode::NO_CONTENT),
        Err(refused) => Err(refused.into()),
    }
}
