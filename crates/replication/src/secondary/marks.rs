//! Marks at a secondary: states of a part that fit to those of the other parts, one after the other, while the volumes have more.
//!
//! Invariants:
//!
//! 1. A mark is there before it is recorded, and the one before goes after its record.
//! 2. A part shows a mark once all parts keep it. Once one shows it, the others count as if they did.
//! 3. While a cut of the group is under way, no part shows another state than before.

use super::{SecondaryEnd, SecondaryGroup};
use crate::{
    channel::FrameChannel,
    frame::{FrameBody, MarkFrame, MarkKeptFrame, MarkNotedFrame, MarkReadyFrame},
    group_state::{GroupState, JointMark, JointPointState, JointSlot},
    joint_group::JoinId,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::WallNanoseconds,
};
use std::time::Duration;
use tokio::sync::MutexGuard;

/// Pause before the next look whether a cut of the group is over.
const CUT_PAUSE: Duration = Duration::from_millis(5);

impl SecondaryGroup {
    /// Everything up to a mark is here, and nothing else: keeps it.
    pub(super) async fn take_mark(
        &self,
        channel: &impl FrameChannel,
        MarkFrame { join, at }: MarkFrame,
    ) -> std::result::Result<(), SecondaryEnd> {
        self.settle_joint().await?;
        let is_whole = !self.is_in_doubt.get() && !self.is_within_command.get() && !self.member.is_in_pass();
        let is_kept = is_whole && self.keep_mark(join, at).await?;
        if is_kept && planted::is(ReplicationBug::MarkShownApart) {
            self.take_mark_kept(channel, MarkKeptFrame { join }).await?;
        }
        Ok(channel.send(FrameBody::MarkReady(MarkReadyFrame { join, is_refused: !is_kept })).await?)
    }

    /// False if it cannot be kept.
    async fn keep_mark(&self, mark: JoinId, at: WallNanoseconds) -> Result<bool> {
        let (member, ids, has) = (&self.member, self.member.ids(), self.has.get());
        let progress = member.state().joint;
        let (Some(point), Some(lineage)) = (progress.point, member.lineage()) else { return Ok(false) };
        // The one before is not kept by all, and never will be.
        let known = point.state.map(|state| state.slot);
        let shows_present = |slot: &JointSlot| member.pool.cut_shows_present(&ids, member.joint_cut(*slot));
        let slot = match known.filter(shows_present) {
            Some(slot) => slot,
            None => {
                let slot = known.map_or(JointSlot::First, JointSlot::other);
                if progress.next.is_some() {
                    member.change(|state| state.joint.next = None).await?;
                }
                member.pool.delete_cut(&ids, member.joint_cut(slot)).await?;
                match member.pool.take_cut_of_following_replica(&ids, member.joint_cut(slot)).await {
                    Ok(()) => slot,
                    Err(Error::StampTaken { .. }) => {
                        member.pool.delete_cut(&ids, member.joint_cut(slot)).await?;
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let state = JointPointState { has, cut: member.last_stamp()?, complete_until: at, lineage, slot };
        member.change(|group| group.joint.next = Some(JointMark { mark, state })).await?;
        Ok(true)
    }

    /// All parts keep a mark: it is the joint state from now on.
    pub(super) async fn take_mark_kept(
        &self,
        channel: &impl FrameChannel,
        MarkKeptFrame { join }: MarkKeptFrame,
    ) -> std::result::Result<(), SecondaryEnd> {
        // Otherwise it shows it already, or the parts have joined since.
        if let Some(next) = self.member.state().joint.next.filter(|next| next.mark == join) {
            self.show_mark(next).await?;
        }
        Ok(channel.send(FrameBody::MarkNoted(MarkNotedFrame { join })).await?)
    }

    pub(super) async fn show_mark(&self, JointMark { mark, state }: JointMark) -> Result<()> {
        let slot = state.slot;
        let show = |group: &mut GroupState| {
            if let Some(point) = &mut group.joint.point {
                point.state = Some(state);
            }
            (group.joint.next, group.joint.marked) = (None, mark);
        };
        self.member.change(show).await?;
        if let Some((joint, part)) = self.member.joint() {
            joint.note_own_mark(*part, mark);
        }
        self.member.pool.delete_cut(&self.member.ids(), self.member.joint_cut(slot.other())).await
    }

    /// Waits until no cut of the group is under way, of which another part may have taken its share; this part takes part in
    /// none before the guard is dropped.
    pub(super) async fn between_cuts(&self) -> MutexGuard<'_, ()> {
        loop {
            let applying = self.applying.lock().await;
            let is_under_way = self.member.joint().is_some_and(|(joint, _)| joint.is_cut_under_way());
            if !is_under_way {
                return applying;
            }
            drop(applying);
            self.world.sleep(CUT_PAUSE).await;
        }
    }
}
