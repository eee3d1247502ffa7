//! NBD exports.

use super::{
    ApiState,
    caller::Caller,
    expected_tags::tagged,
    problem::ApiProblem,
    row_changes::{RowChangeResult, RowChangeWay, RowChanger, missing},
};
use crate::{
    journal::tokens::CallerRole,
    session_view::SessionProtocol,
    site::{
        handle::SiteView,
        row_change::{SiteRow, SiteRowChange},
    },
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use nbd::{NbdUri, UriTls};
use plan::site::{SiteExport, SiteIndex};
use protect::backup_schedule::set_and_sequence_of;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::ToSchema;
use world::Address;

/// An NBD export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportRow {
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    pub description: String,
    /// `POOL/VOLUME`, or a snapshot: `POOL/VOLUME@SNAPSHOT`.
    #[serde(default)]
    pub volume: String,
    #[serde(default)]
    pub read_only: bool,
    /// By the address on which the server listens; none if it serves no NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// It is there for clients now.
    #[serde(default)]
    pub is_served: bool,
    /// Clients now.
    #[serde(default)]
    pub clients: usize,
}

/// An export to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExportBody {
    pub name: String,
    /// `VOLUME`, `POOL/VOLUME`, either with `@SNAPSHOT`.
    pub volume: String,
    #[serde(default)]
    pub read_only: bool,
}

impl ExportRow {
    /// An export of the served site.
    pub fn of(view: &SiteView, export: &SiteExport) -> Self {
        Self::rows(view, std::slice::from_ref(export)).remove(0)
    }

    /// All exports of the served site.
    pub fn all(view: &SiteView) -> Vec<Self> {
        Self::rows(view, &view.site.exports)
    }

    fn rows(view: &SiteView, exports: &[SiteExport]) -> Vec<Self> {
        let index = SiteIndex::of(&view.site);
        let views: Vec<_> = view.pools.values().filter_map(|pool| Some((&pool.name, pool.view()?))).collect();
        let (mut descriptions, mut clients) = (HashMap::new(), HashMap::<_, usize>::new());
        for (pool, view) in &views {
            let described = view.exports.iter();
            descriptions
                .extend(described.map(|known| ((pool.as_str(), known.name.as_str()), &known.description)));
            for session in view.sessions.iter().filter(|one| one.protocol == SessionProtocol::Nbd) {
                *clients.entry((pool.as_str(), session.service.as_str())).or_default() += 1;
            }
        }
        let row = |SiteExport { name, volume, read_only }: &SiteExport| {
            let pool = index.served_volume(volume).map(|volume| volume.group.clone()).unwrap_or_default();
            let description = descriptions.get(&(pool.as_str(), name.as_str()));
            Self {
                name: name.clone(),
                description: description.map(|known| known.to_string()).unwrap_or_default(),
                volume: volume.clone(),
                read_only: *read_only,
                uri: view.nbd.as_ref().map(|(address, is_encrypted)| uri_of(address, *is_encrypted, name)),
                is_served: description.is_some(),
                clients: clients.get(&(pool.as_str(), name.as_str())).copied().unwrap_or_default(),
                pool,
            }
        };
        exports.iter().map(row).collect()
    }
}

/// The URI of an export of a server that listens there.
pub(super) fn uri_of(address: &Address, is_encrypted: bool, export: &str) -> String {
    let tls = is_encrypted.then(UriTls::default);
    NbdUri { address: address.clone(), others: Vec::new(), export: export.to_owned(), tls }.to_string()
}

/// Lists the NBD exports.
#[utoipa::path(get, path = "/v1/exports", tag = "services",
    responses((status = 200, description = "All NBD exports", body = Vec<ExportRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<ExportRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let view = api.site.look();
    let mut rows = ExportRow::all(&view);
    rows.retain(|row| caller.sees(&row.pool));
    Ok(Json(rows))
}

/// Shows an NBD export.
#[utoipa::path(get, path = "/v1/exports/{export}", tag = "services", params(("export" = String, Path, description = "Name")),
    responses((status = 200, description = "The export", body = ExportRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let view = api.site.look();
    let export = view.site.exports.iter().find(|export| export.name == name);
    let export = export.ok_or_else(|| missing("NBD export", &name))?;
    let row = ExportRow::of(&view, export);
    match caller.sees(&row.pool) {
        true => Ok(tagged(StatusCode::OK, &SiteRow::Export(export).tag(), row)),
        false => Err(missing("NBD export", &name)),
    }
}

/// The role for an export. Keepers and verifiers of backups export their snapshots for reading; all other exports open data to
/// others.
fn role_for(volume: &str, read_only: bool) -> CallerRole {
    let is_of_backup = volume.split_once('@').is_some_and(|(_, name)| set_and_sequence_of(name).is_some());
    if read_only && is_of_backup { CallerRole::Operate } else { CallerRole::Admin }
}

/// Creates an NBD export; of a backup's snapshot for reading alone, it takes the role operate. NBD knows no rights:
/// everyone who reaches the server's NBD address may use it. The site file lacks it then; a start with the same file keeps it.
#[utoipa::path(post, path = "/v1/exports", tag = "services", params(RowChangeWay), request_body = NewExportBody,
    responses((status = 201, description = "It was created", body = RowChangeResult),
        (status = 200, description = "There is the same one already, or a dry run", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    changer: RowChanger,
    Json(body): Json<NewExportBody>,
) -> Result<Response, ApiProblem> {
    let NewExportBody { name, volume, read_only } = body;
    let role = role_for(&volume, read_only);
    let export = SiteExport { name, volume, read_only };
    changer.change(role, SiteRowChange::CreateExport { export }, None).await
}

/// Deletes an NBD export. Its volume stays. Clients of other exports of the volume are disconnected with it, and may come back.
#[utoipa::path(delete, path = "/v1/exports/{export}", tag = "services",
    params(("export" = String, Path, description = "Name"), RowChangeWay),
    responses((status = 200, description = "It is gone", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(changer: RowChanger, Path(export): Path<String>) -> Result<Response, ApiProblem> {
    let site = changer.site();
    let known = site.exports.iter().find(|known| known.name == export);
    let role = known.map_or(CallerRole::Operate, |known| role_for(&known.volume, known.read_only));
    changer.change(role, SiteRowChange::DeleteExport { export }, None).await
}
