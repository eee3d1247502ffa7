//! iSCSI targets and their units.

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
        file_merge::implicitly_open,
        handle::SiteView,
        row_change::{NewUnit, SiteRow, SiteRowChange, UnitPatch, find_target},
    },
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use plan::site::{SiteTarget, SiteUnit};
use serde::{Deserialize, Serialize};
use serving::export::name_of;
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// Most units of a target: as many as there are numbers.
const UNITS_MAX: usize = 16_384;

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetRow {
    /// iSCSI name.
    pub name: String,
    /// Name of the pool in which its units lie; empty without units.
    pub pool: String,
    /// Logical unit numbers that are served.
    pub units: Vec<u64>,
    /// Its name in the site file.
    #[serde(default)]
    pub site_name: String,
    /// All initiators may use it.
    #[serde(default)]
    pub open: bool,
    /// Its units, by number.
    #[serde(default)]
    pub luns: Vec<UnitRow>,
    /// Initiators with rights on it.
    #[serde(default)]
    pub initiators: Vec<TargetUser>,
    /// Sessions now.
    #[serde(default)]
    pub sessions: usize,
}

/// A logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnitRow {
    pub number: u64,
    /// `POOL/VOLUME`, or a snapshot: `POOL/VOLUME@SNAPSHOT`.
    pub volume: String,
    pub read_only: bool,
    /// Several initiators may use it at the same time.
    pub shared: bool,
    pub write_cache: UnitCache,
    /// It is there for initiators now.
    pub is_served: bool,
}

/// An initiator that may use a target or units of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetUser {
    /// iSCSI name.
    pub name: String,
    /// The target, or units of it as NAME/NUMBER, that it may read and write.
    pub uses: Vec<String>,
    /// The same that it may read.
    pub reads: Vec<String>,
}

/// The write cache of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnitCache {
    /// As its volume has it.
    #[default]
    Volume,
    On,
    Off,
}

/// A unit to add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUnitBody {
    /// The lowest free one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 16383)]
    pub number: Option<u64>,
    /// `VOLUME`, `POOL/VOLUME`, either with `@SNAPSHOT`.
    pub volume: String,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub shared: bool,
    #[serde(default)]
    pub write_cache: UnitCache,
}

/// A target to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTargetBody {
    /// Letters, digits, `-`, `.` and `:`; the end of its iSCSI name.
    pub name: String,
    /// All initiators may use it. Without it and without initiators, all on the server's own machine may.
    #[serde(default)]
    pub open: bool,
    /// All of one pool.
    #[serde(default)]
    pub units: Vec<NewUnitBody>,
    /// iSCSI names of initiators of the site that may use it.
    #[serde(default)]
    pub initiators: Vec<String>,
}

/// A change of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetPatchBody {
    pub open: bool,
}

/// A change of a unit; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitPatchBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<UnitCache>,
}

impl UnitCache {
    fn of(write_cache: Option<bool>) -> Self {
        match write_cache {
            None => Self::Volume,
            Some(true) => Self::On,
            Some(false) => Self::Off,
        }
    }

    fn setting(self) -> Option<bool> {
        match self {
            Self::Volume => None,
            Self::On => Some(true),
            Self::Off => Some(false),
        }
    }
}

impl TargetRow {
    /// All targets of the served site.
    pub fn all(view: &SiteView) -> Vec<Self> {
        let unrestricted = implicitly_open(&view.site);
        view.site.targets.iter().map(|target| Self::with(view, target, &unrestricted)).collect()
    }

    /// A target of the served site.
    pub fn of(view: &SiteView, target: &SiteTarget) -> Self {
        Self::with(view, target, &implicitly_open(&view.site))
    }

    /// The same, where the targets that nobody has rights on are known.
    fn with(view: &SiteView, target: &SiteTarget, unrestricted: &BTreeSet<String>) -> Self {
        let site = &view.site;
        let name = name_of(&target.name);
        let pool = target.units.first().and_then(|unit| site.served_volume(&unit.volume));
        let pool = pool.map(|volume| volume.group.clone()).unwrap_or_default();
        let views = view.pools.values().filter_map(crate::site::handle::PoolHandle::view);
        let (mut units, mut sessions) = (Vec::new(), 0);
        for view in views {
            units.extend(
                view.targets.iter().filter(|known| known.name == name).flat_map(|known| known.units.clone()),
            );
            sessions += view.sessions.iter().filter(|session| session.service == name).count();
        }
        let own = format!("{}/", target.name);
        let is_own = |meant: &&String| **meant == target.name || meant.starts_with(&own);
        let user = |initiator: &plan::site::SiteInitiator| {
            let [uses, reads] = [&initiator.uses, &initiator.reads]
                .map(|meant| meant.iter().filter(is_own).cloned().collect::<Vec<_>>());
            let has_rights = !uses.is_empty() || !reads.is_empty();
            has_rights.then(|| TargetUser { name: initiator.name.clone(), uses, reads })
        };
        let unit = |unit: &SiteUnit| UnitRow {
            number: unit.number,
            volume: unit.volume.clone(),
            read_only: unit.read_only,
            shared: unit.shared,
            write_cache: UnitCache::of(unit.write_cache),
            is_served: units.contains(&unit.number),
        };
        Self {
            luns: target.units.iter().map(unit).collect(),
            initiators: site.initiators.iter().filter_map(user).collect(),
            site_name: target.name.clone(),
            open: target.open || unrestricted.contains(&target.name),
            name,
            pool,
            units,
            sessions,
        }
    }
}

impl From<NewUnitBody> for NewUnit {
    fn from(NewUnitBody { number, volume, read_only, shared, write_cache }: NewUnitBody) -> Self {
        Self { number, volume, read_only, shared, write_cache: write_cache.setting() }
    }
}

/// Lists the iSCSI targets.
#[utoipa::path(get, path = "/v1/targets", tag = "services",
    responses((status = 200, description = "All targets", body = Vec<TargetRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<TargetRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let rows = TargetRow::all(&api.site.look()).into_iter();
    Ok(Json(rows.filter(|row| caller.sees(&row.pool)).collect()))
}

/// Shows a target.
#[utoipa::path(get, path = "/v1/targets/{target}", tag = "services",
    params(("target" = String, Path, description = "Name in the site, or iSCSI name")),
    responses((status = 200, description = "The target", body = TargetRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let view = api.site.look();
    let target = find_target(&view.site, &name).ok_or_else(|| missing("target", &name))?;
    let row = TargetRow::of(&view, target);
    match caller.sees(&row.pool) {
        true => Ok(tagged(StatusCode::OK, &SiteRow::Target(target).tag(), row)),
        false => Err(missing("target", &name)),
    }
}

/// Creates a target, with its units and the initiators that may use it. The site file lacks it then; a start with the same
/// file keeps it.
#[utoipa::path(post, path = "/v1/targets", tag = "services", params(RowChangeWay), request_body = NewTargetBody,
    responses((status = 201, description = "It was created", body = RowChangeResult),
        (status = 200, description = "There is the same one already, or a dry run", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    changer: RowChanger,
    Json(body): Json<NewTargetBody>,
) -> Result<Response, ApiProblem> {
    let NewTargetBody { name, open, units, initiators } = body;
    changer.caller().need(CallerRole::Admin)?;
    if units.len() > UNITS_MAX {
        let problem = format!("a target has at most {UNITS_MAX} units, not {}", units.len());
        return Err(ApiProblem::bad_request(problem, "make several targets"));
    }
    let mut target = SiteTarget { name, open, units: Vec::new() };
    let said: BTreeSet<u64> = units.iter().filter_map(|unit| unit.number).collect();
    let mut free = (0..).filter(|number| !said.contains(number));
    for unit in units {
        let NewUnit { number, volume, read_only, shared, write_cache } = unit.into();
        let number = number.unwrap_or_else(|| free.next().expect("numbers do not end"));
        target.units.push(SiteUnit { number, volume, read_only, shared, write_cache });
    }
    target.units.sort_by_key(|unit| unit.number);
    changer.change(CallerRole::Admin, SiteRowChange::CreateTarget { target, initiators }, None).await
}

/// Opens a target to all initiators, or not.
#[utoipa::path(patch, path = "/v1/targets/{target}", tag = "services", request_body = TargetPatchBody,
    params(("target" = String, Path, description = "Name in the site, or iSCSI name"), RowChangeWay),
    responses((status = 200, description = "It is so", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn patch(
    changer: RowChanger,
    Path(target): Path<String>,
    Json(TargetPatchBody { open }): Json<TargetPatchBody>,
) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::SetTarget { target, open }, None).await
}

/// Deletes a target, with the rights on it. Its volumes stay.
#[utoipa::path(delete, path = "/v1/targets/{target}", tag = "services",
    params(("target" = String, Path, description = "Name in the site, or iSCSI name"), RowChangeWay),
    responses((status = 200, description = "It is gone", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(changer: RowChanger, Path(target): Path<String>) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::DeleteTarget { target }, None).await
}

/// Adds a unit to a target, under its sessions: initiators that may use it learn of it.
#[utoipa::path(post, path = "/v1/targets/{target}/units", tag = "services", request_body = NewUnitBody,
    params(("target" = String, Path, description = "Name in the site, or iSCSI name"), RowChangeWay),
    responses((status = 201, description = "It was added", body = RowChangeResult),
        (status = 200, description = "There is the same one already, or a dry run", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn add_unit(
    changer: RowChanger,
    Path(target): Path<String>,
    Json(body): Json<NewUnitBody>,
) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::AddUnit { target, unit: body.into() }, None).await
}

/// Changes a unit. Sessions that use it end, if that is forced.
#[utoipa::path(patch, path = "/v1/targets/{target}/units/{number}", tag = "services", request_body = UnitPatchBody,
    params(("target" = String, Path, description = "Name in the site, or iSCSI name"), ("number" = u64, Path, description = "Logical unit number"), RowChangeWay),
    responses((status = 200, description = "It is so", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn set_unit(
    changer: RowChanger,
    Path((target, number)): Path<(String, u64)>,
    Json(body): Json<UnitPatchBody>,
) -> Result<Response, ApiProblem> {
    let UnitPatchBody { volume, read_only, shared, write_cache } = body;
    let patch = UnitPatch { volume, read_only, shared, write_cache: write_cache.map(UnitCache::setting) };
    changer.change(CallerRole::Admin, SiteRowChange::SetUnit { target, number, patch }, None).await
}

/// Removes a unit from a target, with the rights on it alone. Its volume stays.
#[utoipa::path(delete, path = "/v1/targets/{target}/units/{number}", tag = "services",
    params(("target" = String, Path, description = "Name in the site, or iSCSI name"), ("number" = u64, Path, description = "Logical unit number"), RowChangeWay),
    responses((status = 200, description = "It is gone", body = RowChangeResult), (status = "default", response = ApiProblem)))]
pub(super) async fn remove_unit(
    changer: RowChanger,
    Path((target, number)): Path<(String, u64)>,
) -> Result<Response, ApiProblem> {
    changer.change(CallerRole::Admin, SiteRowChange::RemoveUnit { target, number }, None).await
}
