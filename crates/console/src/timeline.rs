//! The snapshots of a volume on a line of time.

use crate::{pool_map::in_html, shown};
use control::web::rows::SnapshotRow;
use report::calendar::parse_time;
use std::{collections::BTreeMap, fmt::Write};

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 20.0;
/// Snapshots this near to one another are one mark.
const MARK_WIDTH: f64 = 5.0;
const AXIS_Y: f64 = 52.0;
const TICKS: usize = 6;

/// A picture of the snapshots from the oldest to now, for those who see it; empty without snapshots.
pub(crate) fn timeline(snapshots: &[SnapshotRow], now_unix_s: i64) -> String {
    let timed: Vec<(i64, &SnapshotRow)> =
        snapshots.iter().filter_map(|row| Some((parse_time(&row.taken_at)?, row))).collect();
    let Some(first) = timed.iter().map(|(at, _)| *at).min() else { return String::new() };
    let last = timed.iter().map(|(at, _)| *at).max().unwrap_or(first).max(now_unix_s).max(first + 1);
    let place = |at: i64| MARGIN + (at - first) as f64 / (last - first) as f64 * (WIDTH - 2.0 * MARGIN);
    let mut marks: BTreeMap<u64, Vec<&SnapshotRow>> = BTreeMap::new();
    for (at, row) in &timed {
        marks.entry((place(*at) / MARK_WIDTH) as u64).or_default().push(row);
    }
    let most = marks.values().map(Vec::len).max().unwrap_or(1) as f64;
    let mut out = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} 76\" role=\"img\" \
         aria-label=\"Line of time with {} snapshots; the table has them all\">\
         <line class=\"axis\" x1=\"{MARGIN}\" y1=\"{AXIS_Y}\" x2=\"{}\" y2=\"{AXIS_Y}\"/>",
        timed.len(),
        WIDTH - MARGIN
    );
    ticks(&mut out, (first, last));
    for rows in marks.values() {
        let x = parse_time(&rows[0].taken_at).map_or(MARGIN, place);
        let height = 12.0 + 26.0 * rows.len() as f64 / most;
        let (oldest, newest) = (rows[0], rows[rows.len() - 1]);
        let title = match rows.len() {
            1 => format!("{} at {}", oldest.name, shown::time(&oldest.taken_at)),
            many => format!(
                "{many} snapshots, {} to {}",
                shown::time(&oldest.taken_at),
                shown::time(&newest.taken_at)
            ),
        };
        let _ = write!(
            out,
            "<rect class=\"snapshot\" x=\"{:.1}\" y=\"{:.1}\" width=\"{MARK_WIDTH}\" height=\"{height:.1}\" rx=\"1\">\
             <title>{}</title></rect>",
            x - MARK_WIDTH / 2.0,
            AXIS_Y - height,
            in_html(&title)
        );
    }
    let now = place(now_unix_s.clamp(first, last));
    let _ = write!(
        out,
        "<line class=\"now\" x1=\"{now:.1}\" y1=\"6\" x2=\"{now:.1}\" y2=\"{AXIS_Y}\"/>\
         <text class=\"soft\" x=\"{:.1}\" y=\"12\" text-anchor=\"end\">now</text></svg>",
        now - 4.0
    );
    out
}

/// Days or times below the line.
fn ticks(out: &mut String, (first, last): (i64, i64)) {
    let span = last - first;
    for index in 0..=TICKS {
        let at = first + span * index as i64 / TICKS as i64;
        let x = MARGIN + (WIDTH - 2.0 * MARGIN) * index as f64 / TICKS as f64;
        let anchor = match index {
            0 => "start",
            TICKS => "end",
            _ => "middle",
        };
        let _ = write!(
            out,
            "<line class=\"tick\" x1=\"{x:.1}\" y1=\"{AXIS_Y}\" x2=\"{x:.1}\" y2=\"{}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            AXIS_Y + 5.0,
            AXIS_Y + 18.0,
            tick_words(at, span)
        );
    }
}

/// A time below a line of so many seconds: days say enough of a month, hours of a day.
pub(crate) fn tick_words(at: i64, span: i64) -> String {
    let text = shown::time(&report::calendar::utc_time(at));
    let words = match span {
        span if span > 20 * 86_400 => text.get(..10),
        span if span > 86_400 => text.get(5..16),
        span if span > 600 => text.get(11..16),
        _ => text.get(11..),
    };
    words.unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::calendar::utc_time;

    fn snapshot(name: &str, unix_s: i64) -> SnapshotRow {
        SnapshotRow {
            id: name.to_owned(),
            name: name.to_owned(),
            volume_id: String::new(),
            size_bytes: 1,
            taken_at: utc_time(unix_s),
            note: None,
            note_hex: None,
            is_pending: false,
            reclaimable_bytes: None,
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for unix_s in [0, 951_782_400, 951_868_800, 1_794_000_000, 1_796_083_199, 4_107_542_400] {
            assert_eq!(parse_time(&utc_time(unix_s)), Some(unix_s), "{}", utc_time(unix_s));
        }
        assert_eq!(parse_time("yesterday"), None);
    }

    #[test]
    fn thousands_of_snapshots_are_a_small_picture_and_none_is_no_picture() {
        assert_eq!(timeline(&[], 0), "");
        let start = 1_794_000_000;
        let many: Vec<SnapshotRow> =
            (0..5000).map(|hour| snapshot(&format!("s{hour}"), start + hour * 3600)).collect();
        let picture = timeline(&many, start + 5000 * 3600);
        assert!(picture.len() < 60_000, "{} bytes", picture.len());
        assert!(picture.contains("snapshots, 2026-"), "near ones are one mark");
    }

    #[test]
    fn a_name_is_escaped_and_one_snapshot_has_its_place() {
        let picture = timeline(&[snapshot("a<b", 1_794_000_000)], 1_794_000_000 + 3600);
        assert!(picture.contains("a&lt;b at 2026-") && !picture.contains("a<b"), "{picture}");
        assert_eq!(picture.matches("class=\"snapshot\"").count(), 1);
    }
}
