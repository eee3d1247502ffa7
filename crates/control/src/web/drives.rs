//! Drives of pools.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    health_rows::DriveRow,
    orders::{change_pool, pool_of},
    problem::ApiProblem,
    volumes::gone_before,
};
use crate::{folder_drives::DriveChangeOutcome, journal::tokens::CallerRole, site::handle::PoolHandle};
use array::format::{DomainName, DriveId};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serving::{
    pool::{
        domains,
        pool_change::{NewDriveSource, PoolChange, PoolDone},
    },
    remote::{RemoteSettings, is_uri},
    uuid::parse_uuid,
};
use std::path::PathBuf;
use utoipa::ToSchema;
use world::ByteCount;

/// A drive to add: a file in the pool's folder, or a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDriveBody {
    /// Size of the file, a multiple of 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 4096, multiple_of = 4096)]
    pub size_bytes: Option<u64>,
    /// Absolute path of a raw device on the server that holds nothing, or the URI of one on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Name of its failure domain; without it, a replacement has that of the drive it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Credentials for the server of a device on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<DeviceAccessBody>,
}

/// Credentials and options for a device on another machine. Secrets are in files on this server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceAccessBody {
    /// CHAP name of this server as an initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_secret_file: Option<String>,
    /// CHAP name that the target must authenticate with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_target_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_target_secret_file: Option<String>,
    /// Use iSCSI header and data digests if the target supports them.
    #[serde(default)]
    pub digests: bool,
}

impl DeviceAccessBody {
    fn settings(self) -> RemoteSettings {
        RemoteSettings {
            chap_name: self.chap_name,
            chap_secret_file: self.chap_secret_file.map(PathBuf::from),
            chap_target_name: self.chap_target_name,
            chap_target_secret_file: self.chap_target_secret_file.map(PathBuf::from),
            digests: self.digests,
        }
    }
}

/// A drive that has grown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DriveGrowth {
    pub drive: DriveRow,
    /// Bytes that the pool uses from now on, and did not before.
    pub gained_bytes: u64,
}

impl NewDriveBody {
    fn source(&self) -> Result<(NewDriveSource, Option<DomainName>), ApiProblem> {
        let domain = self.domain.as_deref().map(domain_name).transpose()?;
        let source = match (self.size_bytes, &self.device) {
            (Some(bytes), None) if bytes > 0 && bytes.is_multiple_of(4096) => {
                NewDriveSource::File(ByteCount(bytes))
            }
            (Some(bytes), None) => {
                let problem = format!("size_bytes is {bytes}");
                return Err(ApiProblem::bad_request(problem, "send a multiple of 4096"));
            }
            (None, Some(device)) => {
                let path = PathBuf::from(device);
                if !path.is_absolute() && !is_uri(&path) {
                    let problem = format!("{device:?} is neither an absolute path nor a URI of a device");
                    return Err(ApiProblem::bad_request(problem, "name the device by its whole path"));
                }
                let access = self.access.clone().unwrap_or_default();
                for file in [&access.chap_secret_file, &access.chap_target_secret_file].into_iter().flatten()
                {
                    if !PathBuf::from(file).is_absolute() {
                        let problem = format!("{file:?} is no absolute path");
                        return Err(ApiProblem::bad_request(problem, "name the file by its whole path"));
                    }
                }
                NewDriveSource::Device(path, access.settings())
            }
            _ => {
                let next = "send size_bytes for a file in the pool's folder, or device";
                return Err(ApiProblem::bad_request("a drive is a file or a device", next));
            }
        };
        Ok((source, domain))
    }
}

/// The name of a failure domain in a body.
pub(super) fn domain_name(text: &str) -> Result<DomainName, ApiProblem> {
    domains::parse_name(text).map_err(|problem| ApiProblem::bad_request(problem, "send another name"))
}

/// A drive that a path names, and its pool.
pub(super) struct MeantDrive {
    pub pool: PoolHandle,
    pub row: DriveRow,
    /// UUID.
    pub id: String,
}

pub(super) fn drive_of(
    api: &ApiState,
    caller: &Caller,
    (pool, drive): (&str, &str),
) -> Result<MeantDrive, ApiProblem> {
    let pool = pool_of(api, caller, pool)?;
    let id = parse_uuid(drive).ok().map(|id| DriveId(id).to_string());
    let row = id.as_deref().and_then(|id| row_of(&pool, id));
    match (row, id) {
        (Some(row), Some(id)) => Ok(MeantDrive { pool, row, id }),
        _ => Err(ApiProblem::not_found(format!("pool {} has no drive {drive}", pool.name))),
    }
}

fn row_of(pool: &PoolHandle, id: &str) -> Option<DriveRow> {
    DriveRow::all(&pool.last_view()).into_iter().find(|row| row.id.as_deref() == Some(id))
}

impl MeantDrive {
    /// Its row now, or the last one.
    fn row(self) -> DriveRow {
        row_of(&self.pool, &self.id).unwrap_or(self.row)
    }
}

/// Lists the drives of a pool, those that are missing included.
#[utoipa::path(get, path = "/v1/pools/{pool}/drives", tag = "drives", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "All drives", body = Vec<DriveRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<Vec<DriveRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(DriveRow::all(&pool_of(&api, &caller, &pool)?.last_view())))
}

/// Shows a drive.
#[utoipa::path(get, path = "/v1/pools/{pool}/drives/{drive}", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 200, description = "The drive", body = DriveRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path((pool, drive)): Path<(String, String)>,
) -> Result<Json<DriveRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(drive_of(&api, &caller, (&pool, &drive))?.row))
}

/// Adds a drive. Copies that are missing are made on it from then on.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives", tag = "drives", request_body = NewDriveBody,
    params(("pool" = String, Path, description = "UUID")),
    responses((status = 201, description = "It was added", body = DriveRow), (status = "default", response = ApiProblem)))]
pub(super) async fn add(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
    Json(body): Json<NewDriveBody>,
) -> Result<Response, ApiProblem> {
    // Data are copied to a device, wherever that is.
    caller.need(if body.device.is_some() { CallerRole::Admin } else { CallerRole::Operate })?;
    let pool = pool_of(&api, &caller, &pool)?;
    let (source, domain) = body.source()?;
    join(&api, &pool, "add drive", (PoolChange::AddDrive { source, domain }, identity)).await
}

/// Has a drive join, unless an earlier request with the same key has.
async fn join(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    (change, identity): (PoolChange, ChangeIdentity),
) -> Result<Response, ApiProblem> {
    let id = DriveId(identity.uuid).to_string();
    let mut whole_bytes = None;
    if !(identity.may_be_done && row_of(pool, &id).is_some_and(|row| row.size_bytes.is_some())) {
        let done = change_pool(api, pool, name, (change, identity)).await?;
        if let DriveChangeOutcome::Done(PoolDone::Joined { size, .. }) = done {
            whole_bytes = Some(size.0);
        }
    }
    let row = row_of(pool, &id);
    let row = row.ok_or_else(|| ApiProblem::not_found("the drive was added, and is gone already"))?;
    Ok((StatusCode::CREATED, Json(DriveRow { whole_bytes, ..row })).into_response())
}

/// Lets a drive leave: it is emptied, and is no drive of the pool afterwards.
#[utoipa::path(delete, path = "/v1/pools/{pool}/drives/{drive}", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 202, description = "It leaves, or has left"), (status = "default", response = ApiProblem)))]
pub(super) async fn retire(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    Path((pool, drive)): Path<(String, String)>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = match drive_of(&api, &caller, (&pool, &drive)) {
        Ok(meant) => meant,
        // It may have left since an earlier request with this key.
        Err(problem) => {
            return gone_before(&api, (identity, &first_seen), problem).map(|_| StatusCode::ACCEPTED);
        }
    };
    let change = PoolChange::Retire { drive: meant.id.clone() };
    change_pool(&api, &meant.pool, "retire drive", (change, identity)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Keeps a drive that was to leave.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/keep", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 200, description = "It stays", body = DriveRow), (status = "default", response = ApiProblem)))]
pub(super) async fn keep(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((pool, drive)): Path<(String, String)>,
) -> Result<Json<DriveRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = drive_of(&api, &caller, (&pool, &drive))?;
    let change = PoolChange::Keep { drive: meant.id.clone() };
    change_pool(&api, &meant.pool, "keep drive", (change, identity)).await?;
    Ok(Json(meant.row()))
}

/// Removes a drive that is lost. Copies that are missing are made first, which may take long.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/forget", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 204, description = "It is no drive of the pool any more"),
    (status = 202, description = "Copies are made, then it is removed"), (status = "default", response = ApiProblem)))]
pub(super) async fn forget(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    Path((pool, drive)): Path<(String, String)>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = match drive_of(&api, &caller, (&pool, &drive)) {
        Ok(meant) => meant,
        // An earlier request with this key may have removed it.
        Err(problem) => return gone_before(&api, (identity, &first_seen), problem),
    };
    let change = PoolChange::Forget { drive: meant.id.clone() };
    Ok(match change_pool(&api, &meant.pool, "forget drive", (change, identity)).await? {
        DriveChangeOutcome::ForgottenLater(_) => StatusCode::ACCEPTED,
        DriveChangeOutcome::Done(_) => StatusCode::NO_CONTENT,
    })
}

/// Takes back a drive that fell behind, as a new drive: what it has is compared, and copied again where it differs.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/readmit", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 201, description = "The drive, which has another UUID", body = DriveRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn readmit(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((pool, drive)): Path<(String, String)>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, drive) = joined_or_meant(&api, &caller, (&pool, &drive), identity)?;
    join(&api, &pool, "readmit drive", (PoolChange::Readmit { drive }, identity)).await
}

/// The drive that a path names; it may be gone if an earlier request with the same key has done its work.
fn joined_or_meant(
    api: &ApiState,
    caller: &Caller,
    (pool, drive): (&str, &str),
    identity: ChangeIdentity,
) -> Result<(PoolHandle, String), ApiProblem> {
    let of_pool = pool_of(api, caller, pool)?;
    let joined = DriveId(identity.uuid).to_string();
    if identity.may_be_done && row_of(&of_pool, &joined).is_some_and(|row| row.size_bytes.is_some()) {
        return Ok((of_pool, joined));
    }
    drive_of(api, caller, (pool, drive)).map(|meant| (meant.pool, meant.id))
}

/// Uses all of a drive that has become larger.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/grow", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 200, description = "The drive, and what was gained", body = DriveGrowth),
    (status = "default", response = ApiProblem)))]
pub(super) async fn grow(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((pool, drive)): Path<(String, String)>,
) -> Result<Json<DriveGrowth>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = drive_of(&api, &caller, (&pool, &drive))?;
    // An earlier request with this key may have done it.
    if identity.may_be_done && meant.row.size_bytes.is_some() && meant.row.unused_bytes == 0 {
        return Ok(Json(DriveGrowth { drive: meant.row, gained_bytes: 0 }));
    }
    let change = PoolChange::Grow { drive: meant.id.clone() };
    let done = change_pool(&api, &meant.pool, "grow drive", (change, identity)).await?;
    let DriveChangeOutcome::Done(PoolDone::Grown { gained_bytes, .. }) = done else {
        unreachable!("growth was asked for")
    };
    Ok(Json(DriveGrowth { drive: meant.row(), gained_bytes }))
}

/// Adds a drive, and lets another one leave.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/replacement", tag = "drives", request_body = NewDriveBody,
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 201, description = "The new drive", body = DriveRow), (status = "default", response = ApiProblem)))]
pub(super) async fn replace(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path((pool, drive)): Path<(String, String)>,
    Json(body): Json<NewDriveBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (source, domain) = body.source()?;
    let (pool, old) = joined_or_meant(&api, &caller, (&pool, &drive), identity)?;
    join(&api, &pool, "replace drive", (PoolChange::Replace { old, source, domain }, identity)).await
}
