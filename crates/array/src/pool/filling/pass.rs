//! A pass over a branch: window after window is copied; then the branch leaves its parent.

use super::{FillTarget, Filler, Obstacle};
use crate::{
    engine::{PARALLELISM_MAX, Urgency},
    error::Result,
    format::{BLOCK_BYTES, BlockIndex, RowKey, row::BranchRow},
    log::LogItem,
    simulation::sometimes::{self, Sometimes, UnderWay},
    volume::{BlockLocks, FilledPart, PartToFill},
};
use futures_util::{StreamExt, stream};
use std::{ops::Range, rc::Rc};
use world::Moment;

/// Blocks of one window: the head is filled below a window before the next one begins.
const WINDOW_BLOCKS: u64 = 8_192;
/// Blocks that are copied one after the other.
const PART_BLOCKS: u64 = 256;

impl Filler {
    /// Fills a branch until `until`. True if it may leave its parent: all that the head reads is its own, and
    /// no point needs the parent.
    pub(super) async fn fill(&self, target: FillTarget, until: Moment) -> Result<bool> {
        let under_way = UnderWay::begin(Sometimes::CutWhileFilling);
        let is_filled = self.fill_windows(target, until).await;
        under_way.end();
        Ok(is_filled? && !self.waits_for_a_point(target).await?)
    }

    /// Fills window after window. True if the head is filled.
    async fn fill_windows(&self, target: FillTarget, until: Moment) -> Result<bool> {
        let FillTarget { branch, from: BlockIndex(mut from), end: BlockIndex(last), .. } = target;
        while from < last {
            if self.shared.world.now() >= until {
                return Ok(false);
            }
            let mut end = (from + WINDOW_BLOCKS).min(last);
            match self.host.reads_through(branch, None, (BlockIndex(from), end - from)).await? {
                None => {
                    let next = self.host.next_inherited(branch, BlockIndex(end)).await?;
                    end = next.map_or(last, |next| next.0.min(last));
                }
                Some(first) if self.fill_window(target, first.0..end).await? => {}
                Some(_) => return Ok(false),
            }
            if self.cancellations.get() != target.cancellations {
                // Some copies may not count, also if it was begun again.
                return Ok(false);
            }
            self.obstacles.borrow_mut().remove(&branch);
            self.shared.state.borrow_mut().catalogue.note_filled(branch, BlockIndex(end));
            self.shared.note_unsaved_rows();
            self.count_work();
            from = end;
        }
        Ok(true)
    }

    /// Copies what the head reads through the parent in a window, parts at the same time. False if the branch
    /// has another head now, or is not being filled any more.
    async fn fill_window(&self, target: FillTarget, window: Range<u64>) -> Result<bool> {
        let starts = window.clone().step_by(PART_BLOCKS as usize);
        let parts = starts.map(|start| start..(start + PART_BLOCKS).min(window.end));
        let locks = self.handles.locks_of(target.owner);
        let fill = |part| self.fill_part(target, part, &locks);
        let mut filled = stream::iter(parts).map(fill).buffer_unordered(PARALLELISM_MAX);
        let mut is_own = true;
        while let Some(part) = filled.next().await {
            is_own &= part?;
        }
        Ok(is_own)
    }

    /// As [`Self::fill_window`], in pieces of the size that hosts do not notice.
    async fn fill_part(&self, target: FillTarget, part: Range<u64>, locks: &Rc<BlockLocks>) -> Result<bool> {
        let FillTarget { branch, fork, owner, payer, .. } = target;
        let mut start = part.start;
        while start < part.end {
            let range = (BlockIndex(start), part.end - start);
            let Some(first) = self.host.reads_through(branch, None, range).await? else { return Ok(true) };
            let permit = self.throttle.permit(Urgency::CanWait).await?;
            let count = u64::from(permit.blocks_max).min(part.end - first.0);
            let piece = PartToFill { branch, fork, owner, payer, first, count };
            let blocks = self.host.read_inherited(piece).await?;
            permit.moves(2 * blocks.len() * BLOCK_BYTES);
            // Copying may wait for room, which others need permits to make.
            drop(permit);
            // A task of its own, as a host's command: it may make a checkpoint, which must not be given up.
            let (host, locks) = (Rc::clone(&self.host), Rc::clone(locks));
            let copy = async move { host.copy(piece, blocks, &locks).await };
            let FilledPart::Own(copied) = self.shared.world.spawn("fill", copy).await? else {
                return Ok(false);
            };
            sometimes::reached_if(copied > 0, Sometimes::PartFilled);
            start = first.0 + count;
        }
        Ok(true)
    }

    /// True if a point of a branch whose head is filled reads through the parent. If the oldest does not, none
    /// does, and none will.
    async fn waits_for_a_point(&self, target: FillTarget) -> Result<bool> {
        let branch = target.branch;
        let oldest = self.shared.state.borrow().catalogue.points().of(branch).first().copied();
        let Some(point) = oldest else { return Ok(false) };
        let mut from = BlockIndex(0);
        while let Some(first) = self.host.next_inherited(branch, from).await? {
            if first >= target.end {
                break;
            }
            let count = WINDOW_BLOCKS.min(target.end.0 - first.0);
            if self.host.reads_through(branch, Some(point), (first, count)).await?.is_some() {
                sometimes::reached(Sometimes::FillWaitsForAPoint);
                self.obstacles.borrow_mut().insert(branch, Obstacle::Point(point));
                return Ok(true);
            }
            from = BlockIndex(first.0 + count);
        }
        Ok(false)
    }

    /// Ends the filling of a branch, unless a difference needs its parent: it has none from then on. The
    /// catalogue must be locked for changes.
    pub(super) async fn leave_parent(&self, target: FillTarget) -> Result<()> {
        let branch = target.branch;
        if self.holds.holds_parent_of(branch) {
            sometimes::reached(Sometimes::FillWaitsForADifference);
            self.obstacles.borrow_mut().insert(branch, Obstacle::Difference);
            return Ok(());
        }
        let bytes = {
            let state = self.shared.state.borrow();
            let row = state.catalogue.branch(branch);
            let is_it = state.catalogue.branches().is_filling(branch)
                && self.cancellations.get() == target.cancellations;
            let Some(row) = row.filter(|_| is_it) else { return Ok(()) };
            BranchRow { parent: None, depth: 0, filled_below: None, ..row.clone() }.encode()
        };
        self.log.append(vec![LogItem::Put { row: RowKey::of_branch(branch), bytes }]).await?;
        sometimes::reached(Sometimes::BranchFilled);
        Ok(())
    }
}
