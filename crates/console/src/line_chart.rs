//! A chart of two lines over time: reads and writes.

use crate::timeline::tick_words;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 150.0;
/// Left of the lines, for the scale.
const LEFT: f64 = 70.0;
const TOP: f64 = 14.0;
const AXIS_Y: f64 = 122.0;
const TICKS: usize = 6;
/// Most points of a line: a few pixels each.
const POINTS_MAX: usize = 500;

/// Values at equal times; `None` where nothing is known.
pub(crate) type Line = Vec<Option<f64>>;

/// The picture of two lines from one time to another, for those who see it. `words` says a value with its unit.
pub(crate) fn line_chart(
    title: &str,
    lines: [(&str, &Line); 2],
    (first, last): (i64, i64),
    words: impl Fn(f64) -> String,
) -> String {
    let lines = lines.map(|(class, line)| (class, thinned(line)));
    let highest = lines.iter().flat_map(|(_, line)| line.iter().flatten()).copied().fold(0.0, f64::max);
    let top = if highest > 0.0 { round_up(highest) } else { 1.0 };
    let mut out = format!(
        "<svg class=\"lines\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} over time; the table has its figures\">"
    );
    for (share, y) in [(0.0, AXIS_Y), (0.5, (AXIS_Y + TOP) / 2.0), (1.0, TOP)] {
        let _ = write!(
            out,
            "<line class=\"tick\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{WIDTH}\" y2=\"{y}\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            words(top * share)
        );
    }
    for index in 0..=TICKS {
        let x = LEFT + (WIDTH - LEFT) * index as f64 / TICKS as f64;
        let anchor = match index {
            0 => "start",
            TICKS => "end",
            _ => "middle",
        };
        let at = first + (last - first) * index as i64 / TICKS as i64;
        let _ = write!(
            out,
            "<text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            AXIS_Y + 18.0,
            tick_words(at, last - first)
        );
    }
    for (class, line) in &lines {
        let step = (WIDTH - LEFT) / line.len().max(1) as f64;
        let place = |(index, value): (usize, f64)| {
            (LEFT + (index as f64 + 0.5) * step, AXIS_Y - value / top * (AXIS_Y - TOP))
        };
        for run in runs(line) {
            let points: Vec<String> =
                run.into_iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            // A single point is a line of no length, which its round ends show.
            let points = if points.len() == 1 { [&points[..], &points[..]].concat() } else { points };
            let _ = write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        }
    }
    out.push_str("</svg>");
    out
}

/// At most [`POINTS_MAX`] points: the highest of neighbours, which must not be missed.
fn thinned(line: &Line) -> Line {
    let width = line.len().div_ceil(POINTS_MAX).max(1);
    line.chunks(width).map(|chunk| chunk.iter().flatten().copied().reduce(f64::max)).collect()
}

/// Points without a gap between them, with their places.
fn runs(line: &Line) -> Vec<Vec<(usize, f64)>> {
    let mut runs: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut before = None;
    for (index, value) in line.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?))) {
        if before.is_none_or(|before| before + 1 != index) {
            runs.push(Vec::new());
        }
        runs.last_mut().expect("one was begun").push((index, value));
        before = Some(index);
    }
    runs
}

/// The next of 1, 2, 5, 10, …
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| *step * power >= value).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_breaks_a_line_and_thousands_of_points_are_a_small_picture() {
        let mut line: Line = (0..3600).map(|index| Some(f64::from(index % 100))).collect();
        line[1000..2000].fill(None);
        let none: Line = vec![None; 3600];
        let picture = line_chart("Operations", [("reads", &line), ("writes", &none)], (0, 3600), |value| {
            value.to_string()
        });
        assert_eq!(picture.matches("<polyline class=\"reads\"").count(), 2);
        assert_eq!(picture.matches("<polyline class=\"writes\"").count(), 0);
        assert!(picture.len() < 12_000, "{} bytes", picture.len());
        assert!(picture.contains(">100</text>"), "the scale ends above the highest value");
    }

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!(
            [0.03, 1.0, 1.1, 4.9, 5.1, 99.0, 450.0].map(round_up),
            [0.05, 1.0, 2.0, 5.0, 10.0, 100.0, 500.0]
        );
    }

    #[test]
    fn the_highest_of_neighbours_stays() {
        let mut line: Line = vec![Some(1.0); 2000];
        line[777] = Some(9.0);
        let thin = thinned(&line);
        assert!(thin.len() <= POINTS_MAX && thin.contains(&Some(9.0)));
    }
}
