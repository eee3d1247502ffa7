//! How many drives a pool may lose, for people and programs.

use array::pool::{LossLimit, LossTolerance};
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Drives that may be lost, and why no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// At the same time, now.
    pub at_once: usize,
    /// Why no more, for people.
    pub at_once_limit: String,
    /// One after another, with all copies made after each.
    pub in_turn: usize,
    /// Why no more, for people.
    pub in_turn_limit: String,
}

impl LossStatus {
    pub(super) fn of(
        LossTolerance { at_once, limit_at_once, in_turn, limit_in_turn }: LossTolerance,
    ) -> Self {
        let (at_once_limit, in_turn_limit) = (limit_text(limit_at_once), limit_text(limit_in_turn));
        Self { at_once, at_once_limit, in_turn, in_turn_limit }
    }

    /// In a line.
    pub fn text(&self) -> String {
        let Self { at_once, at_once_limit, in_turn, in_turn_limit } = self;
        let drives = |count: usize| match count {
            0 => "no drive".to_owned(),
            1 => "1 drive".to_owned(),
            count => format!("{count} drives"),
        };
        format!(
            "{} may be lost at once ({at_once_limit}); in turn {}, if all copies are made after each loss \
             ({in_turn_limit})",
            drives(*at_once),
            drives(*in_turn)
        )
    }
}

fn limit_text(limit: LossLimit) -> String {
    match limit {
        LossLimit::Copies(1) => "data has 1 copy".to_owned(),
        LossLimit::Copies(copies) => format!("mirrored data has {copies} copies"),
        LossLimit::Degraded(bytes) => format!("{} lack a copy", ByteCount(bytes)),
        LossLimit::Votes => "more would be a majority".to_owned(),
        LossLimit::Drives => "one more leaves too few for all copies".to_owned(),
        LossLimit::Room(bytes) => format!("one more leaves {} too little room", ByteCount(bytes)),
    }
}
