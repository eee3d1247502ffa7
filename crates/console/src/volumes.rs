//! Volumes: searched and listed by pages, and made.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::http::Method;
use control::web::{
    ApiProblem,
    client::NewVolumeBody,
    rows::{PoolRow, PoolState, VolumeEntry, VolumePage},
};

/// Rows of a page: small enough to be seen at once.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "volumes.html")]
struct VolumesPage<'a> {
    frame: &'a Frame,
    page: VolumePage,
    pools: Vec<PoolRow>,
    search: String,
    /// UUID of the pool whose volumes are listed.
    pool: String,
    /// The form as it was sent, if it was refused.
    sent: &'a Fields,
    is_first: bool,
}

impl VolumesPage<'_> {
    /// Path of the page that begins after a row.
    fn page_after(&self, after: &str) -> String {
        let search = escaped(&self.search);
        format!("/volumes?search={search}&pool={}&after={}", escaped(&self.pool), escaped(after))
    }

    fn open_pools(&self) -> impl Iterator<Item = (&str, &str)> {
        let open = self.pools.iter().filter(|pool| pool.state == PoolState::Open);
        open.filter_map(|pool| Some((pool.id.as_deref()?, pool.name.as_str())))
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    page(&visit, None, &Fields::default()).await
}

async fn page(visit: &Visit, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let frame = Frame::new(visit, "Volumes", "Volumes").await?.live(visit).await?.with_problem(problem);
    let asked = |name| visit.asked(name).unwrap_or_default().to_owned();
    let (search, pool, after) = (asked("search"), asked("pool"), asked("after"));
    let mut path = format!("/v1/volumes?limit={ROWS}");
    for (name, value) in [("search", &search), ("pool", &pool), ("after", &after)] {
        if !value.is_empty() {
            path += &format!("&{name}={}", escaped(value));
        }
    }
    let page: VolumePage = visit.get(&path).await?;
    let pools: Vec<PoolRow> = visit.get("/v1/pools").await?;
    let page = VolumesPage { frame: &frame, page, pools, search, pool, sent, is_first: after.is_empty() };
    shown(&page, &frame)
}

/// Makes a volume.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let body = NewVolumeBody {
            name: fields.text("name").to_owned(),
            size_bytes: fields.size_bytes("size")?,
            write_cache: fields.is_checked("write_cache"),
            raid0: fields.is_checked("raid0"),
            ..NewVolumeBody::default()
        };
        let path = format!("/v1/pools/{}/volumes", escaped(fields.text("pool")));
        visit.change::<VolumeEntry>((Method::POST, &path), &body, fields.change()).await
    };
    match made.await {
        Ok(volume) => Ok(see(&format!("/volumes/{}?done=created", volume.id))),
        Err(problem) => page(&visit, Some(problem), &fields).await,
    }
}
