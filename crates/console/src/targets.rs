//! Targets with their units, initiators, exports: what hosts may use.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{
        ExportRow, InitiatorRow, NewExportBody, NewTargetBody, NewUnitBody, RowChangeResult, TargetRow,
        UnitCache,
    },
};

#[derive(Template)]
#[template(path = "targets.html")]
struct TargetsPage<'a> {
    frame: &'a Frame,
    targets: Vec<TargetRow>,
    initiators: Vec<InitiatorRow>,
    exports: Vec<ExportRow>,
    sent: &'a Fields,
}

#[derive(Template)]
#[template(path = "target.html")]
struct TargetPage<'a> {
    frame: &'a Frame,
    target: TargetRow,
}

#[derive(Template)]
#[template(path = "export.html")]
struct ExportPage<'a> {
    frame: &'a Frame,
    export: ExportRow,
}

/// A list in words.
pub(crate) fn list_of(rights: &[String]) -> String {
    if rights.is_empty() { "–".to_owned() } else { rights.join(", ") }
}

fn cache(cache: &UnitCache) -> &'static str {
    match cache {
        UnitCache::Volume => "as its volume",
        UnitCache::On => "on",
        UnitCache::Off => "off",
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    list_page(&visit, None, &Fields::default()).await
}

pub(crate) async fn list_page(visit: &Visit, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let frame = Frame::new(visit, "Targets", "Targets").await?.live(visit).await?.with_problem(problem);
    let targets = visit.get("/v1/targets").await?;
    // An initiator may have rights in any pool.
    let initiators = match frame.sees_all_pools() {
        true => visit.get("/v1/initiators").await?,
        false => Vec::new(),
    };
    let exports = visit.get("/v1/exports").await?;
    shown(&TargetsPage { frame: &frame, targets, initiators, exports, sent }, &frame)
}

/// Makes a target with one unit.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let names = |name| fields.text(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let units = names("volume").into_iter().map(new_unit).collect();
    let body = NewTargetBody {
        name: fields.text("name").to_owned(),
        open: fields.is_checked("open"),
        units,
        initiators: names("initiators"),
    };
    match visit.change::<RowChangeResult>((Method::POST, "/v1/targets"), &body, fields.change()).await {
        Ok(_) => Ok(see("/targets?done=target")),
        Err(problem) => list_page(&visit, Some(problem), &fields).await,
    }
}

fn new_unit(volume: String) -> NewUnitBody {
    NewUnitBody { volume, ..NewUnitBody::default() }
}

pub(crate) async fn create_export(visit: Visit, fields: Fields) -> PageResult {
    let body = NewExportBody {
        name: fields.text("export_name").to_owned(),
        volume: fields.text("export_volume").to_owned(),
        read_only: fields.is_checked("export_read_only"),
    };
    match visit.change::<RowChangeResult>((Method::POST, "/v1/exports"), &body, fields.change()).await {
        Ok(_) => Ok(see("/targets?done=export")),
        Err(problem) => list_page(&visit, Some(problem), &fields).await,
    }
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    target_page(&visit, &name, None).await
}

async fn target_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let target: TargetRow = visit.get(&format!("/v1/targets/{}", escaped(name))).await?;
    let frame = Frame::new(visit, format!("Target {}", target.site_name), "Targets").await?;
    let frame = frame.with_problem(problem);
    shown(&TargetPage { frame: &frame, target }, &frame)
}

pub(crate) async fn add_unit(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let body = NewUnitBody {
        volume: fields.text("volume").to_owned(),
        read_only: fields.is_checked("read_only"),
        shared: fields.is_checked("shared"),
        ..NewUnitBody::default()
    };
    let path = format!("/v1/targets/{}/units", escaped(&name));
    match visit.change::<RowChangeResult>((Method::POST, &path), &body, fields.change()).await {
        Ok(_) => Ok(see(&format!("/targets/{}?done=created", escaped(&name)))),
        Err(problem) => target_page(&visit, &name, Some(problem)).await,
    }
}

/// Deletes the target whose name was typed.
pub(crate) async fn delete(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        let target: TargetRow = visit.get(&format!("/v1/targets/{}", escaped(&name))).await?;
        fields.check_typed("target", &target.site_name)?;
        delete_row(&visit, &format!("/v1/targets/{}", escaped(&name)), &fields).await
    };
    match end.await {
        Ok(_) => Ok(see("/targets?done=deleted")),
        Err(problem) => target_page(&visit, &name, Some(problem)).await,
    }
}

pub(crate) async fn show_export(visit: Visit, Path(name): Path<String>) -> PageResult {
    export_page(&visit, &name, None).await
}

async fn export_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let export: ExportRow = visit.get(&format!("/v1/exports/{}", escaped(name))).await?;
    let frame = Frame::new(visit, format!("Export {}", export.name), "Targets").await?.with_problem(problem);
    shown(&ExportPage { frame: &frame, export }, &frame)
}

/// Deletes the export whose name was typed.
pub(crate) async fn delete_export(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("export", &name)?;
        delete_row(&visit, &format!("/v1/exports/{}", escaped(&name)), &fields).await
    };
    match end.await {
        Ok(_) => Ok(see("/targets?done=deleted")),
        Err(problem) => export_page(&visit, &name, Some(problem)).await,
    }
}

/// Deletes a row of the site; with the field `force` although hosts use it.
pub(crate) async fn delete_row(
    visit: &Visit,
    path: &str,
    fields: &Fields,
) -> Result<RowChangeResult, ApiProblem> {
    let force = if fields.is_checked("force") { "?force=true" } else { "" };
    let change = FormChange { tag: None, ..fields.change() };
    visit.change((Method::DELETE, &format!("{path}{force}")), &(), change).await
}
