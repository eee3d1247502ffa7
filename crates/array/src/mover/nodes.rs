//! Cleaning of node segments: those that are mostly dead are emptied by checkpoints, a little in each.
//!
//! Nodes are written behind each other as checkpoints come, and die one by one. A few that are never changed would keep a
//! whole segment each. So segments of nodes may be half dead, all in all, and a few more; what is beyond that is
//! emptied, those with the least alive first.

use crate::{
    error::Result,
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, CheckpointNumber, Roots, SegmentKind, SegmentNumber, Tree,
        row::SegmentState,
    },
    log::log_shape,
    pool::Pool,
    simulation::sometimes::{self, Sometimes},
};
use std::collections::BTreeSet;

/// Segments beside those that are needed, and as many again.
const SPARE_SEGMENTS: u64 = 4;
/// Segments that must be free: for the nodes that are moved, and for those above them.
const FREE_MIN: u64 = 3;
/// Segments that one checkpoint empties at most.
const VICTIMS_MAX: usize = 16;

/// The room that nodes of the trees take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Segments nodes lie in.
    pub segments: u64,
    /// Bytes of nodes that are needed.
    pub live_bytes: u64,
}

impl Pool {
    /// The room that the trees take.
    pub fn node_room(&self) -> NodeRoom {
        let state = self.shared.state.borrow();
        let mut room = NodeRoom::default();
        for (_, row) in state.segments.iter().filter(|(_, row)| row.kind == SegmentKind::Nodes) {
            room.segments += 1;
            room.live_bytes += u64::from(row.live_grains) / BLOCK_GRAINS as u64 * BLOCK_BYTES as u64;
        }
        room
    }

    /// The trees at `roots`, with segments emptied that are mostly dead.
    pub(crate) async fn clean_nodes(&self, checkpoint: CheckpointNumber, roots: Roots) -> Result<Roots> {
        let victims = self.node_victims();
        if victims.is_empty() {
            return Ok(roots);
        }
        sometimes::reached(Sometimes::NodesRelocated);
        let head = self.trees.relocate(checkpoint, Tree::Head, roots.head, &victims).await?;
        let history = self.trees.relocate(checkpoint, Tree::History, roots.history, &victims).await?;
        let catalogue = self.trees.relocate(checkpoint, Tree::Catalogue, roots.catalogue, &victims).await?;
        Ok(Roots { head, history, catalogue })
    }

    /// Segments whose nodes together fit into one.
    fn node_victims(&self) -> BTreeSet<SegmentNumber> {
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        let segment_bytes = u64::from(shape.data_blocks()) * BLOCK_BYTES as u64;
        let room = self.node_room();
        let space = self.space();
        let needed = room.live_bytes.div_ceil(segment_bytes);
        // Where room is short no more than what they need, and the two that are written.
        let is_short = space.is_held_up();
        let most = if is_short { needed + 2 } else { 2 * needed + SPARE_SEGMENTS };
        // What it writes is needed before anything comes free.
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
