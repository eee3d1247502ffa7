//! The result of a scrub, for people and programs.

use array::mover::ScrubResult;
use serde::{Deserialize, Serialize};

/// The result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubAnswer {
    pub blocks: u64,
    pub nodes: u64,
    pub superblocks: u64,
    /// Wrong copies that were written again.
    pub mended: u64,
    /// Places of which no copy is right.
    pub lost_places: u64,
    /// In words, at most 100 of them.
    pub lost: Vec<String>,
}

impl From<ScrubResult> for ScrubAnswer {
    fn from(ScrubResult { blocks, nodes, superblocks, repaired, lost_places, lost }: ScrubResult) -> Self {
        Self { blocks, nodes, superblocks, mended: repaired, lost_places, lost }
    }
}

impl ScrubAnswer {
    /// In lines; `pool` is its name in front of people.
    pub fn text(&self, pool: &str) -> Vec<String> {
        let Self { blocks, nodes, superblocks, mended, lost_places, lost } = self;
        let mut lines = vec![
            format!(
                "{pool}: {blocks} blocks, {nodes} nodes and {superblocks} superblocks checked, every copy of them"
            ),
            format!("  {mended} wrong copies were fixed, {lost_places} places are lost"),
        ];
        lines.extend(lost.iter().map(|place| format!("  lost: {place}")));
        lines
    }
}
