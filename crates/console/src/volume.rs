//! A volume: figures, uses, space, snapshots on a line of time and in a table; and the forms that change it.

use crate::{
    fields::SIZE_UNITS,
    page::{Frame, PageResult, shown},
    presentation, shown as show,
    snapshot::snapshots_of,
    timeline::timeline,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::extract::Path;
use control::web::{
    ApiProblem, VolumeSpaceRow,
    client::{PresentationRow, VolumeUses},
    rows::{PoolRow, SnapshotRow, VolumeEntry},
};

/// Rows of the table.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "volume.html")]
struct VolumePage<'a> {
    frame: &'a Frame,
    volume: VolumeEntry,
    uses: Result<VolumeUses, ApiProblem>,
    space: Option<Result<VolumeSpaceRow, ApiProblem>>,
    presentations: Result<Vec<PresentationRow>, ApiProblem>,
    /// Newest first.
    snapshots: Result<Vec<SnapshotRow>, ApiProblem>,
    timeline: String,
    /// Other pools of the server that are open: UUID and name.
    pools: Vec<(String, String)>,
    /// Index of the first row of the table.
    from: usize,
}

impl VolumePage<'_> {
    /// `POOL/VOLUME`.
    fn full_name(&self) -> String {
        format!("{}/{}", self.volume.pool, self.volume.name)
    }

    fn rows<'a>(&self, all: &'a [SnapshotRow]) -> &'a [SnapshotRow] {
        let from = self.from.min(all.len());
        &all[from..all.len().min(from + ROWS)]
    }

    /// Index of the next page of the table, if there is one.
    fn next_from(&self, all: &[SnapshotRow]) -> Option<usize> {
        Some(self.from + ROWS).filter(|next| *next < all.len())
    }

    fn earlier_from(&self) -> Option<usize> {
        (self.from > 0).then(|| self.from.saturating_sub(ROWS))
    }

    /// The size in the unit that shows it best: number and unit.
    fn size(&self) -> (String, &'static str) {
        let bytes = self.volume.size_bytes;
        let fit = SIZE_UNITS.iter().rev().find(|(_, unit)| bytes >= *unit).unwrap_or(&SIZE_UNITS[0]);
        let number = bytes as f64 / fit.1 as f64;
        (format!("{number}"), fit.0)
    }
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None).await
}

pub(crate) async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>) -> PageResult {
    let path = format!("/v1/volumes/{}", escaped(id));
    let volume: VolumeEntry = visit.get(&path).await?;
    let frame = Frame::new(visit, format!("Volume {}/{}", volume.pool, volume.name), "Volumes").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    // These ask the pool, which may not answer: the volume is shown all the same.
    let uses = visit.get(&format!("{path}/uses")).await;
    let snapshots = snapshots_of(visit, id).await;
    let presentations = presentation::of_volume(visit, id).await;
    let space = match visit.asked("space") {
        Some(_) => Some(visit.get(&format!("{path}/space")).await),
        None => None,
    };
    let timeline = snapshots.as_ref().map_or_else(|_| String::new(), |rows| timeline(rows, visit.unix_s()));
    let snapshots = snapshots.map(|mut rows| {
        rows.reverse();
        rows
    });
    let pools: Vec<PoolRow> = visit.get("/v1/pools").await?;
    let pools = pools.into_iter().filter_map(|pool| Some((pool.id?, pool.name)));
    let pools = pools.filter(|(id, _)| *id != volume.pool_id).collect();
    let from = visit.asked("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    shown(
        &VolumePage { frame: &frame, volume, uses, space, presentations, snapshots, timeline, pools, from },
        &frame,
    )
}
