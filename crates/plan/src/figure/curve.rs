//! Numbers that depend on another: read at points, or step by step.

use super::{Confidence, is_speck, with_unit};
use crate::units::shown;
use serde::{Deserialize, Serialize};

/// Values of a curve up to this make sense, and places up to this squared: nothing that is computed with them is beyond
/// counting.
const MOST: f64 = 1e9;

/// A number by another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Its name in rule files and formulas.
    pub key: String,
    /// Meaning in one line.
    pub meaning: String,
    /// The quantity it depends on.
    pub by: String,
    /// Its unit as written behind the number.
    pub unit: String,
    /// Interpolation between two points.
    pub kind: CurveKind,
    /// Known points, ascending.
    pub points: Vec<Point>,
    pub source: String,
    pub confidence: Confidence,
}

/// Interpolation between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveKind {
    /// A line. Before the first and beyond the last it is in proportion to it.
    Line,
    /// Each value holds up to its point. Beyond the last it is in proportion, or what the value without a point says.
    Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Place on the axis; none is everywhere beyond the last point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    pub value: f64,
}

impl Curve {
    /// Checks that every place on the axis has a value.
    pub fn check(&self) -> Result<(), &'static str> {
        let Some((last, others)) = self.points.split_last() else { return Err("it has no points") };
        if others.iter().any(|point| point.at.is_none()) {
            return Err("only its last point may be without a place");
        }
        if self.kind == CurveKind::Line && last.at.is_none() {
            return Err("each point of a line has a place");
        }
        let places: Vec<f64> = self.points.iter().filter_map(|point| point.at).collect();
        let good = |value: f64| value.is_finite() && value >= 0.0;
        if !places.iter().all(|at| *at > 0.0 && good(*at)) || !self.points.iter().all(|p| good(p.value)) {
            return Err("its places are above 0, and its values not below");
        }
        let counts = |value: f64, most: f64| value <= most && !is_speck(value);
        if !places.iter().all(|at| counts(*at, MOST * MOST))
            || !self.points.iter().all(|point| counts(point.value, MOST))
        {
            return Err(
                "its values are up to 1,000,000,000, and nothing in it is less than a billionth and not 0",
            );
        }
        if self.source.trim().is_empty() {
            return Err("it has no source; say where its points are from");
        }
        if !places.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err("its places do not ascend");
        }
        Ok(())
    }

    /// The value at `place`.
    pub fn at(&self, place: f64) -> f64 {
        match self.kind {
            CurveKind::Line => self.on_the_line(place),
            CurveKind::Step => self.of_the_step(place),
        }
    }

    fn of_the_step(&self, place: f64) -> f64 {
        let holds = |point: &&Point| point.at.is_none_or(|at| place <= at);
        match self.points.iter().find(holds) {
            Some(point) => point.value,
            None => self.in_proportion_to(self.points[self.points.len() - 1], place),
        }
    }

    fn on_the_line(&self, place: f64) -> f64 {
        let x = |point: Point| point.at.expect("each point of a line has a place");
        let above = self.points.iter().position(|point| x(*point) >= place);
        match above {
            Some(0) => self.in_proportion_to(self.points[0], place),
            None => self.in_proportion_to(self.points[self.points.len() - 1], place),
            Some(index) => {
                let (low, high) = (self.points[index - 1], self.points[index]);
                if x(high) == place {
                    return high.value;
                }
                let share = (place - x(low)) / (x(high) - x(low));
                low.value + share * (high.value - low.value)
            }
        }
    }

    fn in_proportion_to(&self, point: Point, place: f64) -> f64 {
        let at = point.at.expect("a point without a place holds everywhere");
        if at == place { point.value } else { point.value * (place / at) }
    }

    /// Becomes `value` everywhere.
    pub fn flatten(&mut self, value: f64, source: &str, confidence: Confidence) {
        self.kind = CurveKind::Step;
        self.points = vec![Point { at: None, value }];
        self.source = source.to_owned();
        self.confidence = confidence;
    }

    /// Its points as people read them: `50: 0.05 IOPS, 100: 0.1 IOPS`.
    pub fn shown(&self) -> String {
        let before = if self.kind == CurveKind::Step { "to " } else { "" };
        let each = self.points.iter().map(|point| match point.at {
            Some(at) => format!("{before}{}: {}", shown(at), with_unit(point.value, &self.unit)),
            None if self.points.len() == 1 => with_unit(point.value, &self.unit),
            None => format!("beyond: {}", with_unit(point.value, &self.unit)),
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(kind: CurveKind, points: &[(f64, f64)]) -> Curve {
        let at = |at: f64| at.is_finite().then_some(at);
        Curve {
            key: "k".to_owned(),
            meaning: String::new(),
            by: "x".to_owned(),
            unit: "GB".to_owned(),
            kind,
            points: points.iter().map(|&(x, value)| Point { at: at(x), value }).collect(),
            source: "s".to_owned(),
            confidence: Confidence::Seed,
        }
    }

    #[test]
    fn a_line_is_read_between_its_points_and_in_proportion_beyond_them() {
        let line = curve(CurveKind::Line, &[(50.0, 0.05), (100.0, 0.2)]);
        assert_eq!(line.check(), Ok(()));
        assert_eq!([25.0, 50.0, 75.0, 100.0, 200.0].map(|at| line.at(at)), [0.025, 0.05, 0.125, 0.2, 0.4]);
        assert_eq!(line.at(0.0), 0.0);
    }

    #[test]
    fn a_step_holds_up_to_its_point() {
        let open = curve(CurveKind::Step, &[(75.0, 1.0), (150.0, 1.9), (f64::NAN, 3.8)]);
        assert_eq!(
            [1.0, 75.0, 75.1, 150.0, 151.0, 9e9].map(|at| open.at(at)),
            [1.0, 1.0, 1.9, 1.9, 3.8, 3.8]
        );
        assert_eq!(open.shown(), "to 75: 1 GB, to 150: 1.9 GB, beyond: 3.8 GB");
        let closed = curve(CurveKind::Step, &[(10.0, 2.0), (20.0, 4.0)]);
        assert_eq!(closed.at(40.0), 8.0);
    }

    #[test]
    fn a_curve_that_has_no_value_somewhere_is_refused() {
        let problem = |kind, points: &[(f64, f64)]| curve(kind, points).check().unwrap_err();
        assert_eq!(problem(CurveKind::Line, &[]), "it has no points");
        assert_eq!(problem(CurveKind::Line, &[(2.0, 1.0), (1.0, 1.0)]), "its places do not ascend");
        assert_eq!(problem(CurveKind::Line, &[(f64::NAN, 1.0)]), "each point of a line has a place");
        assert_eq!(
            problem(CurveKind::Step, &[(0.0, 1.0)]),
            "its places are above 0, and its values not below"
        );
        let beyond =
            "its values are up to 1,000,000,000, and nothing in it is less than a billionth and not 0";
        for points in [[(1e-300, 1.0)], [(1.0, 1e300)], [(1e300, 1.0)], [(1.0, 1e-300)]] {
            assert_eq!(problem(CurveKind::Line, &points), beyond);
        }
    }
}
