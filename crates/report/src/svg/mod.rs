//! Charts as inline SVG.
//!
//! Pictures name no colours. Lines have a class (`s0` to `s7`), and the page's style sheet colours them for
//! light, dark and paper.

mod curve;
mod distribution;
mod line_chart;

use crate::markup::escaped;
use crate::markup::put;

pub(crate) use curve::curve;
pub(crate) use distribution::{distribution, occupied};
pub(crate) use line_chart::{is_within_reach, line_chart};

/// Number of line colours; further lines repeat them, dashed.
pub(crate) const SERIES_COLOURS: usize = 8;

/// CSS classes of series number `index`.
pub(crate) fn series_class(index: usize) -> String {
    let colour = index % SERIES_COLOURS;
    if index < SERIES_COLOURS { format!("s{colour}") } else { format!("s{colour} dashed") }
}

/// Width of a picture in its own units; one is a pixel on a page of usual width.
pub(crate) const WIDTH: f64 = 760.0;

/// Approximate width of a label's character.
const CHARACTER_WIDTH: f64 = 6.4;

/// Height of a line of labels.
const TEXT_HEIGHT: f64 = 12.0;

/// Area of the data within a picture.
#[derive(Clone, Copy, Debug)]
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Plot {
    /// Converts positions on the axes, 0 to 1 from the left and from below.
    fn at(self, x: f64, y: f64) -> (f64, f64) {
        (self.left + x * self.width, self.top + (1.0 - y) * self.height)
    }

    fn right(self) -> f64 {
        self.left + self.width
    }

    fn bottom(self) -> f64 {
        self.top + self.height
    }
}

/// Opens a picture; title and description are for screen readers.
fn open(out: &mut String, id: &str, height: f64, title: &str, description: &str) {
    put!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\n",
        escaped(title),
        escaped(description),
    );
}

/// A horizontal grid line and its label.
fn grid_row(out: &mut String, plot: Plot, place: f64, label: &str) {
    let (_, y) = plot.at(0.0, place);
    let class = if place == 0.0 { "base" } else { "grid" };
    put!(
        out,
        "<path class=\"{class}\" d=\"M{} {y:.1}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" \
         text-anchor=\"end\">{}</text>\n",
        plot.left,
        plot.right(),
        plot.left - 7.0,
        y + 3.5,
        escaped(label),
    );
}

/// A vertical line with its name at height `name_y`: to its right, or to its left from position `left_from`
/// on, where there is too little room.
fn marked_place(out: &mut String, plot: Plot, (place, name): (f64, &str), name_y: f64, left_from: f64) {
    let (x, _) = plot.at(place, 0.0);
    let (anchor, gap) = if place > left_from { ("end", -5.0) } else { ("start", 5.0) };
    put!(
        out,
        "<path class=\"event\" d=\"M{x:.1} {}V{}\"/><text class=\"event-name\" x=\"{:.1}\" y=\"{}\" \
         text-anchor=\"{anchor}\">{}</text>\n",
        plot.top,
        plot.bottom(),
        x + gap,
        name_y,
        escaped(name),
    );
}

/// A tick and its label, kept within the picture.
fn tick_below(out: &mut String, plot: Plot, place: f64, label: &str) {
    let (x, y) = plot.at(place, 0.0);
    let half_width = label.chars().count() as f64 * CHARACTER_WIDTH / 2.0;
    let (anchor, text_x) = if x + half_width > WIDTH { ("end", WIDTH) } else { ("middle", x) };
    put!(
        out,
        "<path class=\"base\" d=\"M{x:.1} {y}v4\"/><text class=\"tick\" x=\"{text_x:.1}\" y=\"{}\" \
         text-anchor=\"{anchor}\">{}</text>\n",
        y + 17.0,
        escaped(label),
    );
}

/// Lines at limits, each with its value in the margin; the legend names their origin. Overlapping values are
/// moved apart.
fn limit_rows(out: &mut String, plot: Plot, mut limits: Vec<(f64, String)>) {
    limits.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut free_from_y = plot.top;
    for (place, value) in limits {
        let (_, y) = plot.at(1.0, place);
        let text_y = (y + 3.5).max(free_from_y);
        free_from_y = text_y + TEXT_HEIGHT;
        put!(
            out,
            "<path class=\"limit\" d=\"M{} {y:.1}H{}\"/><text class=\"limit-value\" x=\"{}\" y=\"{text_y:.1}\">{}\
             </text>\n",
            plot.left,
            plot.right(),
            plot.right() + 6.0,
            escaped(&value),
        );
    }
}

/// The name of the vertical axis, above it, and of the horizontal one, below its ticks.
fn axis_names(out: &mut String, plot: Plot, vertical: &str, horizontal: &str) {
    put!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\">{}</text>\
         <text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        plot.left,
        plot.top - 11.0,
        escaped(vertical),
        plot.right(),
        plot.bottom() + 33.0,
        escaped(horizontal),
    );
}

/// Text of an empty chart.
fn nothing_to_draw(out: &mut String, plot: Plot) {
    let (x, y) = plot.at(0.5, 0.5);
    put!(out, "<text class=\"empty\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">No samples</text>\n");
}
