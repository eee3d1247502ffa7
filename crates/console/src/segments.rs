//! The map of a pool's segments: a picture of cells, and tables of the same for those who do not see it.

use crate::{
    page::{Frame, PageResult, shown},
    pool_map::in_html,
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::extract::Path;
use control::web::{
    ApiProblem,
    client::{SegmentCell, SegmentContents, SegmentMap},
    rows::PoolRow,
};
use std::fmt::Write;

/// Cells of the picture; with their titles they are 150 KB.
const CELLS: usize = 1024;
const ACROSS: usize = 64;
/// Distance of cells, and their size.
const STEP: usize = 14;
const SIDE: usize = 11;
/// Rows of the table of segments that are not whole.
const ROWS: usize = 200;

#[derive(Template)]
#[template(path = "segments.html")]
struct SegmentsPage<'a> {
    frame: &'a Frame,
    pool: PoolRow,
    pool_id: String,
    /// `None` until somebody asks for it: it looks at every segment of the pool.
    map: Option<Result<SegmentMap, ApiProblem>>,
}

/// The state of a cell: the worst of its segments.
fn state(cell: &SegmentCell) -> &'static str {
    match cell {
        cell if cell.lost > 0 => "lost",
        cell if cell.degraded > 0 => "degraded",
        cell if cell.open > 0 => "open",
        _ => "whole",
    }
}

fn contents(contents: SegmentContents) -> &'static str {
    match contents {
        SegmentContents::Log => "log",
        SegmentContents::Data => "data",
        SegmentContents::Map => "map",
    }
}

/// A cell in words.
fn words(map: &SegmentMap, cell: &SegmentCell) -> String {
    let live = show::percent(&cell.live_bytes, &cell.bytes);
    let mut text = match cell.contents {
        Some(of) => format!("Segment {}: {}, {}, {live} live", cell.first, contents(of), state(cell)),
        None => {
            let last = u64::from(cell.first) + u64::from(map.numbers_per_cell) - 1;
            let mut text = format!("Segments {} to {last}: {} whole", cell.first, cell.whole);
            for (count, word) in
                [(cell.degraded, "degraded"), (cell.lost, "lost"), (cell.open, "open for writing")]
            {
                if count > 0 {
                    let _ = write!(text, ", {count} {word}");
                }
            }
            let _ = write!(text, ", {live} live");
            text
        }
    };
    if !cell.drives.is_empty() {
        let numbers: Vec<String> = cell.drives.iter().map(|index| (index + 1).to_string()).collect();
        let _ = write!(text, ", on {}", numbers.join(" and "));
    }
    text
}

/// Names of a cell's drives.
fn drives(map: &SegmentMap, cell: &SegmentCell) -> String {
    let names: Vec<&str> = cell
        .drives
        .iter()
        .filter_map(|&index| map.drives.get(index))
        .map(|drive| drive.name.as_str())
        .collect();
    names.join(", ")
}

/// Cells that are not whole.
fn broken(map: &SegmentMap) -> Vec<&SegmentCell> {
    map.cells.iter().filter(|cell| cell.degraded + cell.lost > 0).collect()
}

fn rows_max() -> usize {
    ROWS
}

/// Segments by standing: whole, degraded, lost, open.
fn sums(map: &SegmentMap) -> [u64; 4] {
    map.cells.iter().fold([0; 4], |[whole, degraded, lost, open], cell| {
        [
            whole + u64::from(cell.whole),
            degraded + u64::from(cell.degraded),
            lost + u64::from(cell.lost),
            open + u64::from(cell.open),
        ]
    })
}

/// The picture: a cell for each of the map, then as many as there is room for.
fn picture(map: &SegmentMap) -> String {
    let free = (map.free.div_ceil(map.numbers_per_cell.into())).min(CELLS as u64) as usize;
    let shown_free = free.min((2 * CELLS).saturating_sub(map.cells.len()));
    let rows = (map.cells.len() + shown_free).div_ceil(ACROSS).max(1);
    let mut out = format!(
        "<svg class=\"segments\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Map of {} segments; the tables below have the same\">",
        ACROSS * STEP,
        rows * STEP,
        map.segments
    );
    for (index, cell) in map.cells.iter().enumerate() {
        rect(&mut out, index, state(cell), Some(&words(map, cell)));
    }
    for index in 0..shown_free {
        rect(&mut out, map.cells.len() + index, "free", None);
    }
    out.push_str("</svg>");
    out
}

fn rect(out: &mut String, index: usize, class: &str, title: Option<&str>) {
    let (x, y) = (index % ACROSS * STEP + 1, index / ACROSS * STEP + 1);
    let begin =
        format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{SIDE}\" rx=\"1\"");
    let _ = match title {
        Some(title) => write!(out, "{begin}><title>{}</title></rect>", in_html(title)),
        None => write!(out, "{begin}/>"),
    };
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    let pool: PoolRow = visit.get(&format!("/v1/pools/{}", escaped(&id))).await?;
    let frame = Frame::new(&visit, format!("Segments of pool {}", pool.name), "Pools").await?;
    let map = match visit.asked("look") {
        Some(_) => {
            let path = format!("/v1/pools/{}/segments?cells={CELLS}", escaped(&id));
            Some(visit.get(&path).await)
        }
        None => None,
    };
    shown(&SegmentsPage { frame: &frame, pool, pool_id: id, map }, &frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::web::client::SegmentDrive;

    fn map(numbers_per_cell: u32) -> SegmentMap {
        let cell = |first, (whole, degraded, lost, open)| SegmentCell {
            first,
            whole,
            degraded,
            lost,
            open,
            live_bytes: 25,
            bytes: 100,
            contents: (numbers_per_cell == 1).then_some(SegmentContents::Log),
            drives: if numbers_per_cell == 1 { vec![0, 1] } else { Vec::new() },
        };
        let drive = |name: &str| SegmentDrive { name: name.to_owned(), ..SegmentDrive::default() };
        SegmentMap {
            as_of: "2026-11-30T00:00:00Z".to_owned(),
            segments: 4,
            free: 7,
            numbers_per_cell,
            cells: vec![
                cell(0, (1, 0, 0, 1)),
                cell(numbers_per_cell, (1, 0, 0, 0)),
                cell(2 * numbers_per_cell, (0, 1, 0, 0)),
                cell(3 * numbers_per_cell, (0, 0, 1, 0)),
            ],
            drives: vec![drive("a<b"), drive("c")],
        }
    }

    #[test]
    fn each_segment_and_each_free_place_is_a_cell_with_its_state() {
        let map = map(1);
        let picture = picture(&map);
        let count = |class: &str| picture.matches(&format!("<rect class=\"{class}\"")).count();
        assert_eq!(["open", "whole", "degraded", "lost", "free"].map(count), [1, 1, 1, 1, 7]);
        assert!(picture.contains("<title>Segment 2: log, degraded, 25.0 % live, on 1 and 2</title>"));
        assert!(!picture.contains("style="), "the policy forbids it");
        assert_eq!((sums(&map), broken(&map).len()), ([2, 1, 1, 1], 2));
        assert_eq!(drives(&map, &map.cells[0]), "a<b, c");
    }

    #[test]
    fn a_cell_of_several_segments_says_how_many_there_are() {
        let map = map(10);
        let picture = picture(&map);
        assert!(picture.contains("<title>Segments 20 to 29: 0 whole, 1 degraded, 25.0 % live</title>"));
        assert_eq!(picture.matches("class=\"free\"").count(), 1, "room for 7 is less than a cell");
    }

    #[test]
    fn a_map_of_any_size_fits_a_page() {
        let one = map(1).cells[2].clone();
        let cells = (0..CELLS as u32).map(|first| SegmentCell { first: first * 4000, ..one.clone() });
        let map = SegmentMap { cells: cells.collect(), free: u64::MAX, ..map(1) };
        assert!(picture(&map).len() < 250_000, "{} bytes", picture(&map).len());
    }
}
