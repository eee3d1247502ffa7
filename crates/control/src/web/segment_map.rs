//! The map of a pool's segments: a cell for each, or for several where there are many.

use super::{
    ApiState,
    caller::Caller,
    health_rows::DriveRow,
    orders::{goes_on, pool_of, read_order},
    problem::ApiProblem,
    space::AGE_USUAL,
};
use crate::{
    journal::tokens::CallerRole,
    order::{ANSWER_WITHIN, OrderRefusal},
};
use array::{
    format::{DriveId, SegmentKind},
    pool::{Pool, SegmentFacts, SegmentStanding},
};
use axum::{
    Json,
    extract::{Path, Query, State},
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};
use world::{World, with_deadline};

/// Cells of a map if the caller says no number.
const CELLS_USUAL: u32 = 1024;
const CELLS_MAX: u32 = 4096;
/// Segments that are looked at before the pool's other work has its turn: about a millisecond.
const STEP: u32 = 4096;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SegmentMapWish {
    /// Most cells of the map; 1024 if left out.
    #[param(minimum = 1, maximum = 4096)]
    cells: Option<u32>,
    /// Give an earlier answer again if it is younger than this; 60 if left out, 0 looks again.
    #[param(minimum = 0)]
    max_age_seconds: Option<u32>,
}

/// Contents of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentContents {
    /// The newest writes of hosts, in their order.
    Log,
    /// Older data.
    Data,
    /// The map of volumes.
    Map,
}

/// Segments whose numbers follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentCell {
    /// Number of the first one.
    pub first: u32,
    /// Segments with all of their copies, those that are open included.
    pub whole: u32,
    /// Segments that lack a copy.
    pub degraded: u32,
    /// Segments that cannot be read.
    pub lost: u32,
    /// Segments that are being written.
    pub open: u32,
    /// Data that is referenced, as of the last checkpoint.
    pub live_bytes: u64,
    /// All of their data, once.
    pub bytes: u64,
    /// Contents of the segment, if the cell is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<SegmentContents>,
    /// Of a cell of one segment: its drives, as indexes in the list of drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<usize>,
}

/// Segments that have a slot on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentDrive {
    /// UUID.
    pub drive: String,
    /// As the list of drives has it; its UUID, if that is not known.
    pub name: String,
    pub whole: u64,
    pub degraded: u64,
    pub lost: u64,
}

/// The segments of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentMap {
    /// The end of the look at them; segments change meanwhile.
    pub as_of: String,
    pub segments: u64,
    /// Segments for which there is room.
    pub free: u64,
    /// Numbers that a cell stands for.
    pub numbers_per_cell: u32,
    /// By number. Cells without a segment are left out.
    pub cells: Vec<SegmentCell>,
    /// By UUID.
    pub drives: Vec<SegmentDrive>,
}

/// A map that is given again for a time.
pub(super) struct KeptMap {
    cells: u32,
    ended_unix_s: i64,
    map: SegmentMap,
}

impl SegmentCell {
    fn add(&mut self, segment: &SegmentFacts) {
        match segment.standing {
            SegmentStanding::Whole => self.whole += 1,
            SegmentStanding::Degraded => self.degraded += 1,
            SegmentStanding::Lost => self.lost += 1,
        }
        self.open += u32::from(segment.is_open);
        self.live_bytes += segment.live.0;
        self.bytes += segment.size.0;
    }

    pub fn segments(&self) -> u32 {
        self.whole + self.degraded + self.lost
    }
}

/// A map that is being made.
#[derive(Default)]
struct MapInMaking {
    numbers_per_cell: u32,
    cells: Vec<SegmentCell>,
    segments: u64,
    drives: BTreeMap<String, SegmentDrive>,
    /// UUIDs of each segment's drives, of maps of single segments.
    drives_of_cells: Vec<Vec<String>>,
}

impl MapInMaking {
    fn add(&mut self, segment: &SegmentFacts) {
        let first = segment.number.0 / self.numbers_per_cell * self.numbers_per_cell;
        if self.cells.last().is_none_or(|cell| cell.first != first) {
            self.cells.push(SegmentCell { first, ..SegmentCell::default() });
        }
        let cell = self.cells.last_mut().expect("it was pushed");
        cell.add(segment);
        self.segments += 1;
        let ids: Vec<String> = segment.drives.iter().map(DriveId::to_string).collect();
        for id in &ids {
            let drive = self.drives.entry(id.clone()).or_default();
            match segment.standing {
                SegmentStanding::Whole => drive.whole += 1,
                SegmentStanding::Degraded => drive.degraded += 1,
                SegmentStanding::Lost => drive.lost += 1,
            }
        }
        if self.numbers_per_cell == 1 {
            cell.contents = Some(match segment.kind {
                SegmentKind::Log => SegmentContents::Log,
                SegmentKind::Data => SegmentContents::Data,
                SegmentKind::Nodes => SegmentContents::Map,
            });
            self.drives_of_cells.push(ids);
        }
    }

    fn end(self, free: u64, names: &HashMap<String, String>, unix_s: i64) -> SegmentMap {
        let Self { numbers_per_cell, mut cells, segments, drives, drives_of_cells } = self;
        let index: HashMap<&String, usize> =
            drives.keys().enumerate().map(|(index, id)| (id, index)).collect();
        for (cell, ids) in cells.iter_mut().zip(&drives_of_cells) {
            cell.drives = ids.iter().map(|id| index[id]).collect();
        }
        let named = |(id, drive): (&String, &SegmentDrive)| SegmentDrive {
            drive: id.clone(),
            name: names.get(id).unwrap_or(id).clone(),
            ..drive.clone()
        };
        let drives = drives.iter().map(named).collect();
        SegmentMap { as_of: utc_time(unix_s), segments, free, numbers_per_cell, cells, drives }
    }
}

/// Looks at all segments, in steps between which the pool does its other work.
async fn look(world: &World, pool: &Pool, (cells, names): (u32, &HashMap<String, String>)) -> SegmentMap {
    // The pool may get more meanwhile: those are left to the next look.
    let end = pool.segment_number_end();
    let numbers_per_cell = end.div_ceil(cells).max(1);
    let mut map = MapInMaking { numbers_per_cell, ..MapInMaking::default() };
    for from in (0..end).step_by(STEP as usize) {
        for segment in pool.segments_listed(from..from.saturating_add(STEP).min(end)) {
            map.add(&segment);
        }
        world.yield_now().await;
    }
    map.end(pool.space().free, names, world.wall().seconds)
}

/// Shows the segments of a pool: how many copies each has, and on which drives. It looks at all of them, in steps; one that takes
/// longer than 30 s goes on: ask again.
#[utoipa::path(get, path = "/v1/pools/{pool}/segments", tag = "pools", params(("pool" = String, Path, description = "UUID"), SegmentMapWish),
    responses((status = 200, description = "The map", body = SegmentMap), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
    Query(SegmentMapWish { cells, max_age_seconds }): Query<SegmentMapWish>,
) -> Result<Json<SegmentMap>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let pool = pool_of(&api, &caller, &pool)?;
    let cells = cells.unwrap_or(CELLS_USUAL);
    if !(1..=CELLS_MAX).contains(&cells) {
        let problem = format!("cells is {cells}");
        return Err(ApiProblem::bad_request(problem, &format!("send 1 to {CELLS_MAX}")));
    }
    let age_max = max_age_seconds.map_or(AGE_USUAL.as_secs() as i64, i64::from);
    let looking = async {
        // One look at a time.
        let place = Arc::clone(&api.segment_places).acquire_owned().await.expect("it is never closed");
        if let Some(known) = api.segment_maps.lock().expect("nothing panics with the lock held").get(&pool.id)
            && known.cells == cells
            && api.world.unix_s() - known.ended_unix_s < age_max
        {
            return Ok(known.map.clone());
        }
        let rows = DriveRow::all(&pool.last_view());
        let names = rows.into_iter().filter_map(|row| Some((row.id?, row.name))).collect();
        let (maps, id) = (Arc::clone(&api.segment_maps), pool.id);
        let looked = read_order(&api, &pool, "list segments", move |served| {
            Box::pin(async move {
                let (tell, looked) = oneshot::channel();
                let (on, world) = (Rc::clone(&served.pool), served.world.clone());
                // Other orders go on beside it; who asks again finds the result.
                served.world.spawn("list segments", async move {
                    let _place = place;
                    let map = look(&world, &on, (cells, &names)).await;
                    let kept = KeptMap { cells, ended_unix_s: world.wall().seconds, map: map.clone() };
                    maps.lock().expect("nothing panics with the lock held").insert(id, kept);
                    // The caller may be gone.
                    let _ = tell.send(map);
                });
                Ok(looked)
            })
        });
        looked.await?.await.map_err(|_| OrderRefusal::Stopped.into())
    };
    let looked = with_deadline(api.world.sleep(ANSWER_WITHIN), looking).await;
    looked.unwrap_or_else(|| Err(goes_on(&pool))).map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::SegmentNumber;
    use world::ByteCount;

    fn segment(number: u32, standing: SegmentStanding) -> SegmentFacts {
        SegmentFacts {
            number: SegmentNumber(number),
            kind: SegmentKind::Data,
            is_open: number == 0,
            standing,
            drives: vec![DriveId([number as u8 % 3; 16]), DriveId([9; 16])],
            live: ByteCount(10),
            size: ByteCount(100),
        }
    }

    fn map(numbers_per_cell: u32) -> SegmentMap {
        let mut map = MapInMaking { numbers_per_cell, ..MapInMaking::default() };
        for number in [0, 1, 2, 7, 8] {
            let standing = match number {
                7 => SegmentStanding::Degraded,
                8 => SegmentStanding::Lost,
                _ => SegmentStanding::Whole,
            };
            map.add(&segment(number, standing));
        }
        let name = HashMap::from([(DriveId([9; 16]).to_string(), "the ninth".to_owned())]);
        map.end(5, &name, 0)
    }

    #[test]
    fn a_cell_of_one_segment_has_its_drives() {
        let map = map(1);
        assert_eq!(map.cells.iter().map(|cell| cell.first).collect::<Vec<_>>(), [0, 1, 2, 7, 8]);
        assert_eq!(map.drives.len(), 4);
        assert_eq!((map.drives[3].name.as_str(), map.drives[3].whole), ("the ninth", 3));
        assert_eq!((map.drives[3].degraded, map.drives[3].lost), (1, 1));
        let cell = &map.cells[3];
        assert_eq!((cell.drives.as_slice(), cell.contents), (&[1, 3][..], Some(SegmentContents::Data)));
        assert_eq!((cell.whole, cell.degraded, cell.open), (0, 1, 0));
        assert_eq!(map.cells[0].open, 1);
    }

    #[test]
    fn a_cell_of_several_counts_them() {
        let map = map(3);
        assert_eq!(map.cells.iter().map(|cell| cell.first).collect::<Vec<_>>(), [0, 6]);
        assert_eq!((map.segments, map.cells[0].segments(), map.cells[1].segments()), (5, 3, 2));
        assert_eq!((map.cells[1].degraded, map.cells[1].lost, map.cells[1].bytes), (1, 1, 200));
        assert!(map.cells.iter().all(|cell| cell.drives.is_empty() && cell.contents.is_none()));
    }
}
