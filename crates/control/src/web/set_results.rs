//! Results of work on the backups of sets, which others carry out and the catalogue has: verifications, restores, drills. And
//! the catalogue itself, for reports.

use super::{
    ApiState,
    caller::Caller,
    problem::ApiProblem,
    set_rows::SetBackupRow,
    sets::{follow, orders_of, row_of},
};
use crate::{journal::tokens::CallerRole, sets::RebuiltCatalogue};
use axum::{
    Json,
    extract::{Path, Query, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use protect::catalogue::SetId;
use protect::set_keeper::{
    CopyResult, DrillResult, PersonOrder, RestoreResult, VerificationResult, VerificationVerdict,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The result of a verification of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerificationBody {
    /// `chain`, `pages`, `deep` or `recover`.
    pub level: String,
    /// Version of the verifier.
    pub version: String,
    pub result: VerificationResultName,
    /// Lines about damage, or about what was not looked at; the first ones are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// The points that were looked at, each as the UUID of the volume, `/`, and that of the snapshot. The server of a site that
    /// follows the set takes no result without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<String>,
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerificationResultName {
    /// Nothing is damaged, and everything was looked at.
    Proven,
    Damaged,
    /// Not everything was looked at: the catalogue does not have it, and the backup is due again later.
    Unfinished,
}

impl From<VerificationResultName> for VerificationVerdict {
    fn from(name: VerificationResultName) -> Self {
        match name {
            VerificationResultName::Proven => Self::Proven,
            VerificationResultName::Damaged => Self::Damaged,
            VerificationResultName::Unfinished => Self::Unfinished,
        }
    }
}

/// A restore that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreBody {
    /// The set, a database, a mailbox.
    pub what: String,
    /// `in place`, or the name beside the live one.
    pub to: String,
    pub is_good: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A copy of a backup elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupCopyBody {
    /// The vault, without secrets.
    pub to: String,
    /// Identity of the copy there.
    #[serde(default)]
    pub id: String,
    /// Bytes that it added there.
    #[serde(default)]
    pub bytes: u64,
    /// Numbers of all backups of the set that have a copy there now, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Vec<u64>>,
    /// The reason why it ended early: the backup has no copy there, and is due again later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A drill: a backup was restored beside the live volumes, proven and dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillBody {
    pub is_good: bool,
    /// From the order to the proof.
    pub rto_seconds: u64,
    /// Work that would have been lost: the age of the backup when the drill began.
    pub rpo_seconds: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// Notes the result of a verification, which others make of its snapshots. The last one counts.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/verifications", tag = "sets", request_body = VerificationBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn verify(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(VerificationBody { level, version, result, findings, points }): Json<VerificationBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let result = VerificationResult { level, version, verdict: result.into(), findings, points };
    let order = PersonOrder::NoteVerification(result);
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// Notes a restore that was carried out from a backup.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/restores", tag = "sets", request_body = RestoreBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn note_restore(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(RestoreBody { what, to, is_good, problems }): Json<RestoreBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let order = PersonOrder::NoteRestore(RestoreResult { what, to, is_good, problems });
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// Notes a drill.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/drills", tag = "sets", request_body = DrillBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn note_drill(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(DrillBody { is_good, rto_seconds, rpo_seconds, findings }): Json<DrillBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let result = DrillResult { is_good, rto_s: rto_seconds, rpo_s: rpo_seconds, findings };
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), PersonOrder::NoteDrill(result)).await?)?))
}

/// Notes a copy that others made of a backup's snapshots, or that it ended early. The newest copied backup stays: the next
/// copy is made from it.
#[utoipa::path(post, path = "/v1/sets/{set}/backups/{number}/copies", tag = "sets", request_body = BackupCopyBody,
    params(("set" = String, Path, description = "Name"), ("number" = u64, Path, description = "Number of the backup")),
    responses((status = 200, description = "It is noted", body = SetBackupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn note_copy(
    State(api): State<ApiState>,
    caller: Caller,
    Path((set, number)): Path<(String, u64)>,
    Json(BackupCopyBody { to, id, bytes, copies, problem }): Json<BackupCopyBody>,
) -> Result<Json<SetBackupRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let order = match problem {
        None => PersonOrder::NoteCopy(CopyResult { to, id, bytes, copies }),
        Some(why) => PersonOrder::NoteFailedCopy { why },
    };
    Ok(Json(row_of(&follow(&api, &caller, (&set, number), order).await?)?))
}

/// The part of a catalogue that is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct CataloguePart {
    /// Bytes of the file before them.
    #[serde(default)]
    offset: u64,
    /// Times that the file was compacted, as its first line says: if it was once more since, these bytes are of another file, which is 409.
    compactions: Option<u64>,
}

/// Reads lines of a set's catalogue, from a number of bytes on; no line is its end. One answer after the other they are the
/// file, whose format is described in docs/formats.
#[utoipa::path(get, path = "/v1/sets/{set}/catalogue", tag = "sets",
    params(("set" = String, Path, description = "Name"), CataloguePart),
    responses((status = 200, description = "Lines of JSON", body = String, content_type = "application/x-ndjson"),
        (status = "default", response = ApiProblem)))]
pub(super) async fn catalogue(
    State(api): State<ApiState>,
    caller: Caller,
    Path(set): Path<String>,
    Query(CataloguePart { offset, compactions }): Query<CataloguePart>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let bytes = orders_of(&api, &caller, &set)?.read_catalogue(offset, compactions).await?;
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], bytes).into_response())
}

/// The catalogue to make again.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct RebuildWay {
    /// Identity of the lost one, as the set's problem names it; the only one if left out.
    catalogue: Option<String>,
}

/// A catalogue that was made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuiltRow {
    /// Its identity, in the notes of the points.
    pub catalogue: String,
    /// Names of the backups in it.
    pub backups: Vec<String>,
    /// Names of those that lack points. They are left as they are.
    pub incomplete: Vec<String>,
    /// Place of the one before, on the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

/// Makes a set's catalogue again, from the notes of its points in the pools. Holds, proofs and history are lost, and locks begin
/// again. The present catalogue is kept as a copy, and its backups become another catalogue's.
#[utoipa::path(post, path = "/v1/sets/{set}/rebuild", tag = "sets",
    params(("set" = String, Path, description = "Name"), RebuildWay),
    responses((status = 200, description = "It was made again", body = RebuiltRow), (status = "default", response = ApiProblem)))]
pub(super) async fn rebuild(
    State(api): State<ApiState>,
    caller: Caller,
    Path(set): Path<String>,
    Query(RebuildWay { catalogue }): Query<RebuildWay>,
) -> Result<Json<RebuiltRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let orders = orders_of(&api, &caller, &set)?;
    let id = catalogue.map(SetId::try_from).transpose();
    let id =
        id.map_err(|problem| ApiProblem::refused(&Refusal::new(problem, "say 16 hexadecimal digits")))?;
    let RebuiltCatalogue { id, backups, incomplete, copy } = orders.rebuild(id).await?;
    Ok(Json(RebuiltRow { catalogue: id.to_string(), backups, incomplete, copy }))
}
