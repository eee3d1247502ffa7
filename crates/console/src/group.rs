//! A group of volumes and its snapshots: one is taken of all volumes, cloned, rolled back to and deleted for all.

use crate::{
    fields::Fields,
    groups::GROUPS_PATH,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{GroupRollbackBody, NewGroupClonesBody, NewGroupSnapshotBody},
    group_rows::{GroupEntry, GroupSnapshotRow, MadeByGroup, TakenGroupSnapshot, UnsettledVerb},
};
use report::calendar::parse_time;
use std::collections::BTreeMap;

/// Snapshots that a page lists.
const SNAPSHOTS_SHOWN: usize = 300;

#[derive(Template)]
#[template(path = "group.html")]
struct GroupPage<'a> {
    frame: &'a Frame,
    group: GroupEntry,
    /// The newest first.
    snapshots: Vec<GroupSnapshotRow>,
    /// Older ones, which the page leaves out.
    left_out: usize,
    sent: &'a Fields,
}

#[derive(Template)]
#[template(path = "group_snapshot.html")]
struct GroupSnapshotPage<'a> {
    frame: &'a Frame,
    group: GroupEntry,
    snapshot: GroupSnapshotRow,
    /// Time since it was taken.
    age: String,
    sent: &'a Fields,
}

/// A clone or a rollback in several pools that did not end.
fn unsettled(verb: &UnsettledVerb) -> &'static str {
    match verb {
        UnsettledVerb::Clone => "a clone",
        UnsettledVerb::Rollback => "a rollback",
    }
}

/// The names of all volumes, with their pools.
pub(crate) fn volumes(group: &GroupEntry) -> String {
    let names = group
        .parts
        .iter()
        .flat_map(|part| part.volumes.iter().map(move |volume| format!("{}/{}", part.pool, volume.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// The snapshots of all parts, the newest first.
fn snapshots_of(group: &GroupEntry) -> Vec<GroupSnapshotRow> {
    let all = group.parts.iter().flat_map(|part| &part.snapshots);
    let by_id: BTreeMap<&str, &GroupSnapshotRow> = all.map(|row| (row.id.as_str(), row)).collect();
    let mut rows: Vec<GroupSnapshotRow> = by_id.into_values().cloned().collect();
    rows.sort_by(|one, other| (&other.taken_at, &other.name).cmp(&(&one.taken_at, &one.name)));
    rows
}

fn group_path(id: &str) -> String {
    format!("{GROUPS_PATH}/{}", escaped(id))
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None, &Fields::default()).await
}

async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let group: GroupEntry = visit.get(&group_path(id)).await?;
    let frame = Frame::new(visit, format!("Group {}", group.name), "Volumes").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    let mut snapshots = snapshots_of(&group);
    let left_out = snapshots.len().saturating_sub(SNAPSHOTS_SHOWN);
    snapshots.truncate(SNAPSHOTS_SHOWN);
    shown(&GroupPage { frame: &frame, group, snapshots, left_out, sent }, &frame)
}

/// Takes a snapshot of all volumes at one moment.
pub(crate) async fn take_snapshot(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let text = |name| fields.text(name).to_owned();
    let body = NewGroupSnapshotBody { name: text("name"), note: text("note") };
    let path = format!("{}/snapshots", group_path(&id));
    match visit.change::<TakenGroupSnapshot>((Method::POST, &path), &body, fields.change()).await {
        Ok(_) => Ok(see(&format!("/groups/{}?done=snapshot", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

/// Deletes the group whose name was typed. Its volumes stay.
pub(crate) async fn delete(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        let group: GroupEntry = visit.get(&group_path(&id)).await?;
        fields.check_typed("group", &group.name)?;
        visit.change::<()>((Method::DELETE, &group_path(&id)), &(), fields.change()).await
    };
    match end.await {
        Ok(()) => Ok(see("/groups?done=deleted")),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

pub(crate) async fn show_snapshot(visit: Visit, Path((id, snapshot)): Path<(String, String)>) -> PageResult {
    snapshot_page(&visit, (&id, &snapshot), None, &Fields::default()).await
}

async fn snapshot_page(
    visit: &Visit,
    (id, snapshot): (&str, &str),
    problem: Option<ApiProblem>,
    sent: &Fields,
) -> PageResult {
    let (group, snapshot) = found(visit, (id, snapshot)).await?;
    let title = format!("Snapshot {} of group {}", snapshot.name, group.name);
    let frame = Frame::new(visit, title, "Volumes").await?.with_problem(problem);
    let taken = parse_time(&snapshot.taken_at).unwrap_or_else(|| visit.unix_s());
    let age = show::seconds(&(visit.unix_s().saturating_sub(taken).max(0) as u64));
    shown(&GroupSnapshotPage { frame: &frame, group, snapshot, age, sent }, &frame)
}

async fn found(
    visit: &Visit,
    (id, snapshot): (&str, &str),
) -> Result<(GroupEntry, GroupSnapshotRow), ApiProblem> {
    let group: GroupEntry = visit.get(&group_path(id)).await?;
    let row = snapshots_of(&group).into_iter().find(|row| row.id == snapshot);
    let missing = || ApiProblem::not_found(format!("group {} has no such snapshot", group.name));
    let row = row.ok_or_else(missing)?;
    Ok((group, row))
}

/// A change of a snapshot of a group, as a form of its page asks for it.
pub(crate) async fn change_snapshot(
    visit: Visit,
    Path((id, snapshot, what)): Path<(String, String, String)>,
    fields: Fields,
) -> PageResult {
    match changed(&visit, (&id, &snapshot, &what), &fields).await {
        Ok(done) => Ok(see(&format!("/groups/{}?done={done}", escaped(&id)))),
        Err(problem) => snapshot_page(&visit, (&id, &snapshot), Some(problem), &fields).await,
    }
}

/// Makes the change. Returns its name in the query of the page that follows.
async fn changed(
    visit: &Visit,
    (id, snapshot, what): (&str, &str, &str),
    fields: &Fields,
) -> Result<&'static str, ApiProblem> {
    let (group, row) = found(visit, (id, snapshot)).await?;
    let path = group_path(id);
    match what {
        "clones" => {
            let body = NewGroupClonesBody {
                snapshot: row.name,
                suffix: fields.text("suffix").to_owned(),
                independent: fields.is_checked("independent"),
            };
            let path = format!("{path}/clones");
            visit.change::<MadeByGroup>((Method::POST, &path), &body, fields.change()).await?;
            Ok("group-cloned")
        }
        "rollback" => {
            fields.check_typed("group", &group.name)?;
            let body = GroupRollbackBody { snapshot: row.name, force: fields.is_checked("force") };
            let path = format!("{path}/rollback");
            visit.change::<MadeByGroup>((Method::POST, &path), &body, fields.change()).await?;
            Ok("group-rolled-back")
        }
        "delete" => {
            fields.check_typed("snapshot", &row.name)?;
            let path = format!("{path}/snapshots/{}", escaped(snapshot));
            let change = FormChange { tag: None, ..fields.change() };
            visit.change::<()>((Method::DELETE, &path), &(), change).await?;
            Ok("snapshot-deleted")
        }
        _ => Err(ApiProblem::not_found(format!("no form of a group's snapshot is called {what}"))),
    }
}
