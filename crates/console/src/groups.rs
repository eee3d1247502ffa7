//! Groups of volumes, whose snapshots are one: listed by pages, and made of chosen volumes.

use crate::{
    fields::Fields,
    group::volumes,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::http::Method;
use control::web::{
    ApiProblem,
    client::NewGroupBody,
    group_rows::{GroupEntry, GroupPage},
    rows::{PoolRow, VolumeEntry, VolumePage},
};

pub(crate) const GROUPS_PATH: &str = "/v1/groups";
/// Groups of a page, and volumes that a form lists: of more, names are typed.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "groups.html")]
struct GroupsPage<'a> {
    frame: &'a Frame,
    page: GroupPage,
    /// Volumes without a group, to be chosen from; `None` if there are too many volumes to list.
    volumes: Option<Vec<VolumeEntry>>,
    sent: &'a Fields,
    is_first: bool,
}

impl GroupsPage<'_> {
    fn is_chosen(&self, volume: &VolumeEntry) -> bool {
        self.sent.all("volume").any(|id| id == volume.id)
    }
}

/// Names of the pools of a group.
fn pools(group: &GroupEntry) -> String {
    let names: Vec<&str> = group.parts.iter().map(|part| part.pool.as_str()).collect();
    match group.other_pools.len() {
        0 => names.join(", "),
        others => format!("{} and {} that cannot be seen", names.join(", "), show::counted(others, "pool")),
    }
}

/// Number of the snapshots: each pool has all.
fn snapshots(group: &GroupEntry) -> usize {
    group.parts.iter().map(|part| part.snapshots.len()).max().unwrap_or_default()
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    page(&visit, None, &Fields::default()).await
}

async fn page(visit: &Visit, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let frame = Frame::new(visit, "Groups of volumes", "Volumes").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    let after = visit.asked("after").unwrap_or_default();
    let mut path = format!("{GROUPS_PATH}?limit={ROWS}");
    if !after.is_empty() {
        path += &format!("&after={}", escaped(after));
    }
    let page: GroupPage = visit.get(&path).await?;
    let all: VolumePage = visit.get(&format!("/v1/volumes?limit={ROWS}")).await?;
    let is_free = |volume: &VolumeEntry| volume.group.is_none() && volume.shows_replica_of.is_none();
    let volumes = all.next.is_none().then(|| all.volumes.into_iter().filter(is_free).collect());
    shown(&GroupsPage { frame: &frame, page, volumes, sent, is_first: after.is_empty() }, &frame)
}

/// Makes a group of the volumes that were chosen or named.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let mut volumes: Vec<String> = fields.all("volume").map(str::to_owned).collect();
        volumes.extend(named_volumes(&visit, fields.text("names")).await?);
        let body = NewGroupBody { name: fields.text("name").to_owned(), volumes };
        visit.change::<GroupEntry>((Method::POST, GROUPS_PATH), &body, fields.change()).await
    };
    match made.await {
        Ok(group) => Ok(see(&format!("/groups/{}?done=created", group.id))),
        Err(problem) => page(&visit, Some(problem), &fields).await,
    }
}

/// UUIDs of volumes that are named `POOL/VOLUME`, one a line.
pub(crate) async fn named_volumes(visit: &Visit, names: &str) -> Result<Vec<String>, ApiProblem> {
    let names: Vec<&str> = names.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let pools: Vec<PoolRow> = visit.get("/v1/pools").await?;
    let mut volumes = Vec::new();
    for name in names {
        let missing = || {
            let problem = format!("there is no volume {name:?}");
            ApiProblem::bad_request(problem, "name each as POOL/VOLUME, one a line")
        };
        let (pool, volume) = name.split_once('/').ok_or_else(missing)?;
        let pool = pools.iter().find(|row| row.name == pool).and_then(|row| row.id.as_deref());
        let pool = pool.ok_or_else(missing)?;
        let path = format!("/v1/volumes?pool={}&name={}", escaped(pool), escaped(volume));
        let found: VolumePage = visit.get(&path).await?;
        volumes.push(found.volumes.into_iter().next().ok_or_else(missing)?.id);
    }
    Ok(volumes)
}
