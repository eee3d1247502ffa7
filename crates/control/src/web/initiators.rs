//! Initiators: hosts by their iSCSI names, their secrets and rights. Secrets come in and never out.

use super::{
    ApiState,
    caller::Caller,
    expected_tags::tagged,
    problem::ApiProblem,
    row_changes::{RowChangeResult, RowChangeWay, RowChanger, missing},
};
use crate::{
    journal::tokens::CallerRole,
    site::{
        handle::{PoolHandle, SiteView},
        row_change::{InitiatorPatch, SiteRow, SiteRowChange, find_initiator},
    },
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use iscsi::session::chap::Secret;
use plan::site::SiteInitiator;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::ToSchema;

/// Path of the requests that may have a secret.
pub(super) const PATH: &str = "/v1/initiators";

/// A host, and its rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InitiatorRow {
    /// iSCSI name.
    pub name: String,
    /// User name for CHAP; none if its name is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Targets, or units as TARGET/NUMBER, that it may read and write.
    pub uses: Vec<String>,
    /// The same that it may read.
    pub reads: Vec<String>,
    /// Its sessions now.
    pub sessions: usize,
}

/// A host to be known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInitiatorBody {
    /// iSCSI name.
    pub name: String,
    /// User name for CHAP; a secret goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret, 12 to 255 bytes; the server keeps it in a file of its own, and it never comes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only)]
    pub secret: Option<String>,
    /// A file of the server with the secret, instead of `secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    #[serde(default)]
    pub uses: Vec<String>,
    #[serde(default)]
    pub reads: Vec<String>,
}

/// A change of a host; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitiatorPatchBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only)]
    pub secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// Its name is believed from now on, without CHAP.
    #[serde(default)]
    pub without_chap: bool,
    /// All targets and units, instead of those of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<String>>,
}

impl InitiatorRow {
    /// An initiator of the served site.
    pub fn of(view: &SiteView, initiator: &SiteInitiator) -> Self {
        Self::rows(view, std::slice::from_ref(initiator)).remove(0)
    }

    /// All initiators of the served site.
    pub fn all(view: &SiteView) -> Vec<Self> {
        Self::rows(view, &view.site.initiators)
    }

    fn rows(view: &SiteView, initiators: &[SiteInitiator]) -> Vec<Self> {
        let mut sessions = HashMap::<String, usize>::new();
        for view in view.pools.values().filter_map(PoolHandle::view) {
            for initiator in view.sessions.iter().filter_map(|session| session.initiator.as_ref()) {
                *sessions.entry(initiator.to_ascii_lowercase()).or_default() += 1;
            }
        }
        let row = |SiteInitiator { name, user, uses, reads, .. }: &SiteInitiator| Self {
            name: name.clone(),
            user: Some(user.clone()).filter(|user| !user.is_empty()),
            uses: uses.clone(),
            reads: reads.clone(),
            sessions: sessions.get(&name.to_ascii_lowercase()).copied().unwrap_or_default(),
        };
        initiators.iter().map(row).collect()
    }
}

/// Refuses a secret that cannot be one, and two of them.
fn check_secret(secret: Option<&String>, file: Option<&String>) -> Result<(), ApiProblem> {
    match (secret, file) {
        (Some(_), Some(_)) => {
            Err(ApiProblem::bad_request("secret and secret_file are two secrets", "say one of both"))
        }
        (Some(secret), None) => match Secret::new(secret.as_bytes()) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(ApiProblem::bad_request(error.to_string(), "'spindle export --chap-make' makes one"))
            }
        },
        (None, _) => Ok(()),
    }
}

/// Lists the initiators, without their secrets.
#[utoipa::path(get, path = "/v1/initiators", tag = "services",
    responses((status = 200, description = "All initiators", body = Vec<InitiatorRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<InitiatorRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let view = api.site.look();
    Ok(Json(InitiatorRow::all(&view)))
}

/// Shows an initiator, without its secret.
#[utoipa::path(get, path = "/v1/initiators/{initiator}", tag = "services",
    params(("initiator" = String, Path, description = "iSCSI name")),
    responses((status = 200, description = "The initiator", body = InitiatorRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let view = api.site.look();
    let initiator = find_initiator(&view.site, &name).ok_or_else(|| missing("initiator", &name))?;
    Ok(tagged(StatusCode::OK, &SiteRow::Initiator(initiator).tag(), InitiatorRow::of(&view, initiator)))
}

/// Makes an initiator known, with its rights. The site file lacks it then; a start with the same file keeps it.
#[utoipa::path(post, path = "/v1/initiators", tag = "services", params(RowChangeWay), request_body = NewInitiatorBody,
    responses((status = 201, description = "It was created", body = RowChangeResult),
        (status = 200, description = "There is the same one already, or a dry run", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    changer: RowChanger,
    Json(body): Json<NewInitiatorBody>,
) -> Result<Response, ApiProblem> {
    let NewInitiatorBody { name, user, secret, secret_file, uses, reads } = body;
    check_secret(secret.as_ref(), secret_file.as_ref())?;
    let (user, secret_file) = (user.unwrap_or_default(), secret_file.unwrap_or_default());
    let initiator = SiteInitiator { name, user, secret_file, uses, reads };
    changer.change(CallerRole::Admin, SiteRowChange::CreateInitiator { initiator }, secret).await
}

/// Changes an initiator's secret or rights. Sessions that lose a right end, if that is forced; those that have logged in with
/// the secret of before go on.
#[utoipa::path(patch, path = "/v1/initiators/{initiator}", tag = "services", request_body = InitiatorPatchBody,
    params(("initiator" = String, Path, description = "iSCSI name"), RowChangeWay),
    responses((status = 200, description = "It is so", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn patch(
    changer: RowChanger,
    Path(initiator): Path<String>,
    Json(body): Json<InitiatorPatchBody>,
) -> Result<Response, ApiProblem> {
    let InitiatorPatchBody { user, secret, secret_file, without_chap, uses, reads } = body;
    check_secret(secret.as_ref(), secret_file.as_ref())?;
    if without_chap && (user.is_some() || secret.is_some() || secret_file.is_some()) {
        return Err(ApiProblem::bad_request("without_chap has no user and no secret", "say one of both"));
    }
    let patch = InitiatorPatch { user, secret_file, without_chap, uses, reads };
    changer.change(CallerRole::Admin, SiteRowChange::SetInitiator { initiator, patch }, secret).await
}

/// Forgets an initiator, with its rights.
#[utoipa::path(delete, path = "/v1/initiators/{initiator}", tag = "services",
    params(("initiator" = String, Path, description = "iSCSI name"), RowChangeWay),
    responses((status = 200, description = "It is gone", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    changer: RowChanger,
    Path(initiator): Path<String>,
) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::DeleteInitiator { initiator }, None).await
}
