//! One line of a bench: what was measured on both sides, run by run, and what it should be.

use anyhow::Result;
use serde_json::{Value, json};

/// One run of one side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// The figure, in the row's unit.
    pub value: f64,
    /// The program's results, and its command line.
    pub raw: Value,
}

/// Goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// A share of the peer's figure.
    OfPeer(f64),
    /// A share of the peer's figure, the smaller the better.
    AtMostOfPeer(f64),
    /// A figure of its own.
    AtLeast(f64),
    /// A figure of its own, the smaller the better.
    AtMost(f64),
    /// Shown without a goal.
    None,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub what: String,
    /// Unit of both sides.
    pub unit: &'static str,
    /// Runs of Spindle.
    pub ours: Vec<Measurement>,
    /// The peer's, each beside ours of the same place; none if there is no peer.
    pub peer: Vec<Measurement>,
    pub goal: Goal,
    /// Conditions of the measurement.
    pub note: String,
}

impl Row {
    /// A row without runs.
    pub fn new(what: impl Into<String>, unit: &'static str, goal: Goal, note: impl Into<String>) -> Self {
        Self { what: what.into(), unit, ours: Vec::new(), peer: Vec::new(), goal, note: note.into() }
    }

    /// Median of our runs.
    pub fn ours_median(&self) -> Option<f64> {
        median(self.ours.iter().map(|run| run.value))
    }

    /// Median of the peer's runs.
    pub fn peer_median(&self) -> Option<f64> {
        median(self.peer.iter().map(|run| run.value))
    }

    /// Median of the ratios of neighbouring runs, ours to the peer's.
    pub fn ratio(&self) -> Option<f64> {
        median(self.ratios().into_iter())
    }

    /// An interval that holds the median of such ratios with at least 95 % probability, whatever their distribution: from one of
    /// the sorted ratios to another. None of fewer than [`INTERVAL_PAIRS_MIN`] pairs.
    pub fn ratio_interval(&self) -> Option<(f64, f64)> {
        let mut ratios = self.ratios();
        ratios.sort_by(f64::total_cmp);
        let outside = values_outside(ratios.len())?;
        Some((ratios[outside], ratios[ratios.len() - 1 - outside]))
    }

    fn ratios(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.peer);
        pairs.filter(|(_, peer)| peer.value > 0.0).map(|(ours, peer)| ours.value / peer.value).collect()
    }

    /// True if the goal is met; none without a goal. A goal without figures counts as missed.
    pub fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::OfPeer(share) => Some(self.ratio().is_some_and(|ratio| ratio >= share)),
            Goal::AtMostOfPeer(share) => Some(self.ratio().is_some_and(|ratio| ratio <= share)),
            Goal::AtLeast(least) => Some(self.ours_median().is_some_and(|ours| ours >= least)),
            Goal::AtMost(most) => Some(self.ours_median().is_some_and(|ours| ours <= most)),
            Goal::None => None,
        }
    }

    /// The goal in words.
    pub fn goal_words(&self) -> String {
        match self.goal {
            Goal::OfPeer(share) => format!("≥ {share:.2} of peer"),
            Goal::AtMostOfPeer(share) => format!("≤ {share:.2} of peer"),
            Goal::AtLeast(least) => format!("≥ {}", figure(least)),
            Goal::AtMost(most) => format!("≤ {}", figure(most)),
            Goal::None => String::new(),
        }
    }

    /// Everything, for the raw file.
    pub fn to_json(&self) -> Value {
        let values = |runs: &[Measurement]| runs.iter().map(|run| run.value).collect::<Vec<_>>();
        let raws = |runs: &[Measurement]| runs.iter().map(|run| run.raw.clone()).collect::<Vec<_>>();
        json!({
            "what": self.what, "unit": self.unit, "ours": values(&self.ours), "peer": values(&self.peer),
            "ours_median": self.ours_median(), "peer_median": self.peer_median(),
            "ratios": self.ratios(), "ratio": self.ratio(), "ratio_interval": self.ratio_interval(),
            "goal": self.goal_words(), "met": self.met(), "note": self.note,
            "ours_runs": raws(&self.ours), "peer_runs": raws(&self.peer),
        })
    }
}

/// Fewer pairs say nothing about the median with 95 % probability: all six are on one side of it in 3 % of cases.
const INTERVAL_PAIRS_MIN: usize = 6;

/// Sorted values that may be left out at either end, so that the rest spans the median with at least 95 % probability: each value is
/// above it with probability one half, so the number above is binomial.
fn values_outside(count: usize) -> Option<usize> {
    if count < INTERVAL_PAIRS_MIN {
        return None;
    }
    let mut probability = 0.5_f64.powi(count as i32);
    let mut below = probability;
    let mut outside = 0;
    // `below`: that at most `outside` of the values lie below the median; as many cases lie at the other end.
    loop {
        probability *= (count - outside) as f64 / (outside + 1) as f64;
        if 2.0 * (below + probability) > 0.05 {
            return Some(outside);
        }
        below += probability;
        outside += 1;
    }
}

/// Runs both sides in turn, `rounds` times; who begins changes from round to round.
pub fn interleave(
    row: &mut Row,
    rounds: usize,
    mut ours: impl FnMut() -> Result<Measurement>,
    mut peer: impl FnMut() -> Result<Measurement>,
) -> Result<()> {
    for round in 0..rounds {
        if round % 2 == 0 {
            row.ours.push(ours()?);
            row.peer.push(peer()?);
        } else {
            row.peer.push(peer()?);
            row.ours.push(ours()?);
        }
    }
    Ok(())
}

/// A figure as people read it: three significant digits, or all before the point.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// The middle value, or the mean of the two; none of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64]) -> Vec<Measurement> {
        values.iter().map(|&value| Measurement { value, raw: Value::Null }).collect()
    }

    fn row(goal: Goal, ours: &[f64], peer: &[f64]) -> Row {
        Row { ours: runs(ours), peer: runs(peer), ..Row::new("reads", "/s", goal, "") }
    }

    #[test]
    fn a_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians() {
        // The machine was slow in the second round, for both sides.
        let row = row(Goal::OfPeer(0.9), &[95.0, 19.0, 96.0], &[100.0, 20.0, 1000.0]);
        assert_eq!(row.ratio(), Some(0.95));
        assert_eq!((row.ours_median(), row.peer_median()), (Some(95.0), Some(100.0)));
        assert_eq!(row.met(), Some(true));
    }

    #[test]
    fn a_goal_without_figures_is_missed() {
        assert_eq!(row(Goal::OfPeer(0.9), &[1.0], &[]).met(), Some(false));
        assert_eq!(row(Goal::OfPeer(0.9), &[1.0], &[0.0]).met(), Some(false));
        assert_eq!(row(Goal::AtMost(5.0), &[], &[]).met(), Some(false));
        assert_eq!(row(Goal::None, &[], &[]).met(), None);
    }

    #[test]
    fn goals_of_ones_own_are_held_to_our_median() {
        assert_eq!(row(Goal::AtLeast(2.5), &[2.0, 2.5, 9.0], &[]).met(), Some(true));
        assert_eq!(row(Goal::AtMost(2.5), &[2.0, 2.6, 9.0], &[]).met(), Some(false));
        assert_eq!(row(Goal::AtMostOfPeer(1.1), &[2.0, 2.1, 9.0], &[2.0; 3]).met(), Some(true));
        assert_eq!(row(Goal::AtMostOfPeer(1.1), &[2.0, 2.3, 9.0], &[2.0; 3]).met(), Some(false));
    }

    #[test]
    fn an_interval_leaves_out_as_many_ratios_at_either_end_as_chance_allows() {
        // Ranks of the sign test's 95 % interval, as tables print them: 1 to 6 of 6, 2 to 9 of 10, 14 to 27 of 40.
        assert_eq!([5, 6, 10, 40].map(values_outside), [None, Some(0), Some(1), Some(13)]);
        let ours: Vec<f64> = (1..=40).map(f64::from).collect();
        assert_eq!(row(Goal::None, &ours, &[1.0; 40]).ratio_interval(), Some((14.0, 27.0)));
        assert_eq!(row(Goal::None, &ours[..5], &[1.0; 5]).ratio_interval(), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
    }

    #[test]
    fn who_begins_changes_from_round_to_round() {
        let order = std::cell::RefCell::new(String::new());
        let run = |name: char| {
            order.borrow_mut().push(name);
            Ok(Measurement { value: 1.0, raw: Value::Null })
        };
        let mut row = row(Goal::None, &[], &[]);
        interleave(&mut row, 3, || run('o'), || run('p')).unwrap();
        assert_eq!(*order.borrow(), "oppoop");
        assert_eq!((row.ours.len(), row.peer.len()), (3, 3));
    }
}
