//! Cleaning of node segments: each checkpoint moves the live nodes out of some mostly dead segments.
//!
//! Checkpoints append nodes, which die one by one; a few long-lived nodes would each keep a whole segment
//! occupied. Node segments may be half dead overall, plus a small allowance. Beyond that, those with the
//! least live data are emptied first.

use super::{Checkpoints, Shared};
use crate::{
    error::Result,
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, CheckpointNumber, Roots, SegmentKind, SegmentNumber, TreeKind,
        row::SegmentState,
    },
    simulation::sometimes::{self, Sometimes},
};
use std::collections::BTreeSet;

/// The allowance, in segments, beyond twice what the live nodes need.
const SPARE_SEGMENTS: u64 = 4;
/// Segments that must be free: for the moved nodes and their ancestors.
const FREE_MIN: u64 = 3;
/// Segments emptied by one checkpoint, at most.
const VICTIMS_MAX: usize = 16;

/// Space of the trees' nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Segments that contain nodes.
    pub segments: u64,
    /// Bytes of live nodes.
    pub live_bytes: u64,
}

impl Shared {
    /// Space of the trees' nodes. Reads the rows of all segments.
    pub fn node_room(&self) -> NodeRoom {
        let state = self.state.borrow();
        let mut room = NodeRoom::default();
        for (_, row) in state.segments.iter().filter(|(_, row)| row.kind == SegmentKind::Nodes) {
            room.segments += 1;
            room.live_bytes += u64::from(row.live_grains) / BLOCK_GRAINS as u64 * BLOCK_BYTES as u64;
        }
        room
    }
}

impl Checkpoints {
    /// Moves nodes out of mostly dead segments. Returns the new roots.
    pub(crate) async fn clean_nodes(&self, checkpoint: CheckpointNumber, roots: Roots) -> Result<Roots> {
        let victims = self.node_victims();
        if victims.is_empty() {
            return Ok(roots);
        }
        sometimes::reached(Sometimes::NodesRelocated);
        let head = self.trees.relocate(checkpoint, TreeKind::Head, roots.head, &victims).await?;
        let history = self.trees.relocate(checkpoint, TreeKind::History, roots.history, &victims).await?;
        let catalogue =
            self.trees.relocate(checkpoint, TreeKind::Catalogue, roots.catalogue, &victims).await?;
        Ok(Roots { head, history, catalogue })
    }

    /// Segments whose live nodes fit into one.
    fn node_victims(&self) -> BTreeSet<SegmentNumber> {
        let drives = &self.shared.drives;
        let shape = drives.mirror_shape(drives.copies().nodes);
        let segment_bytes = u64::from(shape.data_blocks()) * BLOCK_BYTES as u64;
        let room = self.shared.node_room();
        let space = self.shared.space();
        let needed = room.live_bytes.div_ceil(segment_bytes);
        // If space is short, the allowance is dropped: only what the nodes need, and the two open segments.
        let is_short = space.is_held_up();
        let most = if is_short { needed + 2 } else { 2 * needed + SPARE_SEGMENTS };
        // Moving writes new nodes before it frees any.
        if room.segments <= most || space.free < FREE_MIN {
            return BTreeSet::new();
        }
        let state = self.shared.state.borrow();
        let mut candidates: Vec<(u32, SegmentNumber)> = state
            .segments
            .iter()
            .filter(|(_, row)| {
                row.kind == SegmentKind::Nodes && row.state == SegmentState::Sealed && row.live_grains > 0
            })
            .map(|(number, row)| (row.live_grains, number))
            .collect();
        candidates.sort_unstable();
        let mut grains = 0;
        let fit = candidates.into_iter().take_while(|(live, _)| {
            grains += live;
            grains <= shape.data_blocks() * BLOCK_GRAINS as u32
        });
        fit.map(|(_, number)| number).take(VICTIMS_MAX).collect()
    }
}
