//! A snapshot of a volume: its clone, a rollback to it, its deletion.

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
    client::RollbackBody,
    rows::{RollbackRow, SnapshotPage as ApiSnapshotPage, SnapshotRow, VolumeEntry},
};

/// Most rows of a page of the API.
const PAGE_ROWS: usize = 5000;

#[derive(Template)]
#[template(path = "snapshot.html")]
struct SnapshotPage<'a> {
    frame: &'a Frame,
    volume: VolumeEntry,
    snapshot: SnapshotRow,
}

impl SnapshotPage<'_> {
    fn volume_name(&self) -> String {
        format!("{}/{}", self.volume.pool, self.volume.name)
    }
}

pub(crate) async fn show(visit: Visit, Path((id, snapshot)): Path<(String, String)>) -> PageResult {
    page(&visit, (&id, &snapshot), None).await
}

pub(crate) async fn page(
    visit: &Visit,
    (id, snapshot): (&str, &str),
    problem: Option<ApiProblem>,
) -> PageResult {
    let (volume, snapshot) = found(visit, (id, snapshot)).await?;
    let title = format!("Snapshot {} of {}/{}", snapshot.name, volume.pool, volume.name);
    let frame = Frame::new(visit, title, "Volumes").await?.with_problem(problem);
    shown(&SnapshotPage { frame: &frame, volume, snapshot }, &frame)
}

async fn found(
    visit: &Visit,
    (id, snapshot): (&str, &str),
) -> Result<(VolumeEntry, SnapshotRow), ApiProblem> {
    let path = format!("/v1/volumes/{}", escaped(id));
    let volume: VolumeEntry = visit.get(&path).await?;
    let rows = snapshots_of(visit, id).await?;
    let row = rows.into_iter().find(|row| row.id == snapshot);
    let missing = || ApiProblem::not_found(format!("{}/{} has no such snapshot", volume.pool, volume.name));
    let row = row.ok_or_else(missing)?;
    Ok((volume, row))
}

/// All snapshots of a volume, oldest first.
pub(crate) async fn snapshots_of(visit: &Visit, id: &str) -> Result<Vec<SnapshotRow>, ApiProblem> {
    let path = format!("/v1/volumes/{}/snapshots?limit={PAGE_ROWS}", escaped(id));
    let mut page: ApiSnapshotPage = visit.get(&path).await?;
    let mut rows = page.snapshots;
    while let Some(next) = page.next {
        page = visit.get(&format!("{path}&after={}", escaped(&next))).await?;
        rows.append(&mut page.snapshots);
    }
    Ok(rows)
}

/// Rolls the volume, whose name was typed, back to the snapshot.
pub(crate) async fn roll_back(
    visit: Visit,
    Path((id, snapshot)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let (volume, row) = found(&visit, (&id, &snapshot)).await?;
        fields.check_typed("volume", &format!("{}/{}", volume.pool, volume.name))?;
        let force = fields.is_checked("force");
        let body = RollbackBody { snapshot: Some(row.name), force, ..RollbackBody::default() };
        let path = format!("/v1/volumes/{}/rollback", escaped(&id));
        visit.change::<RollbackRow>((Method::POST, &path), &body, fields.change()).await
    };
    match end.await {
        Ok(_) => Ok(see(&format!("/volumes/{}?done=rolled-back", escaped(&id)))),
        Err(problem) => page(&visit, (&id, &snapshot), Some(problem)).await,
    }
}

/// Deletes the snapshot whose name was typed.
pub(crate) async fn delete(
    visit: Visit,
    Path((id, snapshot)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let (_, row) = found(&visit, (&id, &snapshot)).await?;
        fields.check_typed("snapshot", &row.name)?;
        let path = format!("/v1/volumes/{}/snapshots/{}", escaped(&id), escaped(&snapshot));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match end.await {
        Ok(()) => Ok(see(&format!("/volumes/{}?done=snapshot-deleted", escaped(&id)))),
        Err(problem) => page(&visit, (&id, &snapshot), Some(problem)).await,
    }
}
