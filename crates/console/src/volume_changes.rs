//! Changes of a volume by the forms of its page.

use crate::{
    fields::Fields,
    page::{PageResult, see},
    visit::{FormChange, Visit, escaped},
    volume::page,
};
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{MoveBody, NewCloneBody, NewSnapshotBody, VolumePatch},
    health_rows::JobRow,
    rows::{SnapshotRow, VolumeEntry},
};

/// Shows the page of the volume: with what was done, or with the problem.
async fn answer(visit: &Visit, id: &str, end: Result<&str, ApiProblem>) -> PageResult {
    match end {
        Ok(done) => Ok(see(&format!("/volumes/{}?done={done}", escaped(id)))),
        Err(problem) => page(visit, id, Some(problem)).await,
    }
}

pub(crate) async fn take_snapshot(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let body = NewSnapshotBody { name: fields.text("name").to_owned(), note: fields.text("note").to_owned() };
    let path = format!("/v1/volumes/{}/snapshots", escaped(&id));
    let taken = visit.change::<SnapshotRow>((Method::POST, &path), &body, fields.change()).await;
    answer(&visit, &id, taken.map(|_| "snapshot")).await
}

/// Another name, another size, or settings: one of these, as the API has it.
pub(crate) async fn change(
    visit: Visit,
    Path((id, what)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let (patch, done) = patch_of(&visit, &id, (&what, &fields)).await?;
        let path = format!("/v1/volumes/{}", escaped(&id));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<VolumeEntry>((Method::PATCH, &path), &patch, change).await?;
        Ok(done)
    };
    let end = end.await;
    answer(&visit, &id, end).await
}

async fn patch_of(
    visit: &Visit,
    id: &str,
    (what, fields): (&str, &Fields),
) -> Result<(VolumePatch, &'static str), ApiProblem> {
    match what {
        "name" => {
            let patch = VolumePatch { name: Some(fields.text("name").to_owned()), ..VolumePatch::default() };
            Ok((patch, "renamed"))
        }
        "size" => {
            let size_bytes = Some(fields.size_bytes("size")?);
            let may_shrink = fields.is_checked("may_shrink");
            if may_shrink {
                check_typed(visit, id, fields).await?;
            }
            Ok((VolumePatch { size_bytes, may_shrink, ..VolumePatch::default() }, "resized"))
        }
        "settings" => {
            let patch = VolumePatch {
                write_cache: Some(fields.is_checked("write_cache")),
                iops_max: Some(fields.number("iops_max")?),
                kib_per_second_max: Some(fields.number("kib_per_second_max")?),
                ..VolumePatch::default()
            };
            Ok((patch, "set"))
        }
        _ => Err(ApiProblem::not_found(format!("no form changes the {what} of a volume"))),
    }
}

pub(crate) async fn clone(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let snapshot = Some(fields.text("snapshot").to_owned()).filter(|name| !name.is_empty());
    let independent = fields.is_checked("independent");
    let body = NewCloneBody { name: fields.text("name").to_owned(), snapshot, independent };
    let path = format!("/v1/volumes/{}/clones", escaped(&id));
    match visit.change::<VolumeEntry>((Method::POST, &path), &body, fields.change()).await {
        Ok(clone) => Ok(see(&format!("/volumes/{}?done=cloned", clone.id))),
        Err(problem) => page(&visit, &id, Some(problem)).await,
    }
}

/// Moves the volume whose name was typed to another pool.
pub(crate) async fn relocate(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        check_typed(&visit, &id, &fields).await?;
        let body = MoveBody { pool: fields.text("pool").to_owned(), name: None };
        let path = format!("/v1/volumes/{}/move", escaped(&id));
        visit.change::<JobRow>((Method::POST, &path), &body, fields.change()).await
    };
    match end.await {
        Ok(_) => Ok(see("/jobs?done=moving")),
        Err(problem) => page(&visit, &id, Some(problem)).await,
    }
}

/// Deletes the volume whose name was typed.
pub(crate) async fn delete(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        check_typed(&visit, &id, &fields).await?;
        let path = format!("/v1/volumes/{}", escaped(&id));
        visit.change::<()>((Method::DELETE, &path), &(), fields.change()).await
    };
    match end.await {
        Ok(()) => Ok(see("/volumes?done=deleted")),
        Err(problem) => page(&visit, &id, Some(problem)).await,
    }
}

/// Refuses a form in which the name of the volume, `POOL/VOLUME`, was not typed.
async fn check_typed(visit: &Visit, id: &str, fields: &Fields) -> Result<(), ApiProblem> {
    let volume: VolumeEntry = visit.get(&format!("/v1/volumes/{}", escaped(id))).await?;
    fields.check_typed("volume", &format!("{}/{}", volume.pool, volume.name))
}
