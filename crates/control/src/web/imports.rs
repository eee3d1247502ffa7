//! Imports of devices elsewhere: jobs of the pool that gets the volume.

use super::{
    ApiState, caller::Caller, changing::ChangeIdentity, health_rows::JobRow, orders::pool_of,
    problem::ApiProblem, transfers,
};
use crate::{
    job_request::{ImportOrder, RequestedJob, TransferRequest},
    journal::tokens::CallerRole,
};
use array::format::VolumeId;
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serving::remote::RemoteSettings;
use std::path::PathBuf;
use utoipa::ToSchema;

/// A device that becomes a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    /// Name of the volume.
    pub name: String,
    /// URI of a unit (iscsi://) or an export (nbd://), or the path of a file or a device of the server's machine.
    pub from: String,
    /// The server's name at an iSCSI target that wants CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_name: Option<String>,
    /// File of the server's machine with the CHAP secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_secret_file: Option<String>,
    /// Name by which the target must authenticate (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_target_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_target_secret_file: Option<String>,
    /// CRC-32C over headers and data of iSCSI, if the target can.
    #[serde(default)]
    pub digests: bool,
    /// End it although blocks cannot be read, which are zeroes then, or changed in the source, which stay as copied.
    #[serde(default)]
    pub skip_bad: bool,
    /// Read the source once: what was copied is read back in the pool, and not compared with the source. What somebody wrote there
    /// meanwhile, or what it read wrong once, is not noticed then.
    #[serde(default)]
    pub read_once: bool,
}

/// Makes a volume of a device elsewhere: it can be used at once, and reads there what is not copied yet. Or goes on with that,
/// if the volume of that name is being imported from there.
#[utoipa::path(post, path = "/v1/pools/{pool}/imports", tag = "volumes", request_body = ImportBody,
    params(("pool" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is the job import of the pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn import(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
    Json(body): Json<ImportBody>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    // It has the server read a path or an address of the caller's choice.
    caller.need(CallerRole::Admin)?;
    let pool = pool_of(&api, &caller, &pool)?;
    let access = RemoteSettings {
        chap_name: body.chap_name,
        chap_secret_file: body.chap_secret_file.map(PathBuf::from),
        chap_target_name: body.chap_target_name,
        chap_target_secret_file: body.chap_target_secret_file.map(PathBuf::from),
        digests: body.digests,
    };
    let request = TransferRequest {
        volume: VolumeId(identity.uuid).to_string(),
        from: body.from,
        name: body.name,
        import: Some(ImportOrder { access, keeps_findings: body.skip_bad, reads_once: body.read_once }),
        ..TransferRequest::default()
    };
    transfers::begin((&api, &pool), (RequestedJob::Import, request), identity).await
}
