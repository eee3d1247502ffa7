//! A part of a group with volumes in several pools, at its secondary: it keeps the last state in which the parts fit, while
//! the volumes get what the other parts may lack.
//!
//! What a promotion shows of a part is its joint state, or, without one, what the volumes have.
//!
//! Invariants:
//!
//! 1. What would be shown of all parts is one state of the group, whatever crashes.
//! 2. A joint state is there before it is recorded, and goes after its record.
//! 3. Parts let their joint states go one after the other. Once one has, the others count as if they had.

use super::{LossBound, PromotionError, SecondaryEnd, SecondaryGroup, going_back::GoingBackError};
use crate::{
    channel::FrameChannel,
    connect::UnfinishedPass,
    cut::GroupCut,
    exchange::refuse,
    frame::{FrameBody, JoinBeginFrame, JoinNotedFrame, JoinReadyFrame, JoinedFrame, RefusalCode},
    group_state::{GroupState, JointPoint, JointPointState, JointProgress, JointSlot},
    joint_group::JoinId,
    planted::{self, ReplicationBug},
};
use array::{
    error::Result,
    format::{EpochId, Fence, Stamp, WallNanoseconds},
};
use std::time::Duration;

impl SecondaryGroup {
    /// The parts come apart: from here on the volumes may get what does not fit.
    pub(super) async fn take_join_begin(
        &self,
        channel: &impl FrameChannel,
        JoinBeginFrame { join }: JoinBeginFrame,
    ) -> std::result::Result<(), SecondaryEnd> {
        match self.member.joint() {
            Some((joint, _)) if joint.is_complete() => {}
            Some(_) => {
                let text = "a pool with another part of the group is not open at the other site";
                return Err(refuse(channel, RefusalCode::Busy, text).await.into());
            }
            None => {
                let text = "the group has its volumes in one pool";
                return Err(refuse(channel, RefusalCode::Frame, text).await.into());
            }
        }
        self.settle_joint().await?;
        match self.member.state().joint.point {
            Some(point) => {
                self.member.change(|state| state.joint.point = Some(JointPoint { join, ..point })).await?;
            }
            None => self.keep_joint_state(join).await?,
        }
        let point = self.member.state().joint.point;
        let took_stamp = point.and_then(|point| point.state).is_some_and(|state| state.cut > self.has.get());
        channel.send(FrameBody::JoinReady(JoinReadyFrame { join, took_stamp })).await?;
        Ok(())
    }

    /// Keeps what the volumes have.
    async fn keep_joint_state(&self, join: JoinId) -> Result<()> {
        let (member, ids) = (&self.member, self.member.ids());
        let Some(lineage) = member.lineage() else {
            return member.change(|state| state.joint.point = Some(JointPoint { join, state: None })).await;
        };
        // An unfinished pass is shown as of its beginning.
        member.abandon_pass().await?;
        let (cut, has) = (member.joint_cut(JointSlot::First), self.has.get());
        member.change(|state| state.joint.cutting = Some(has)).await?;
        member.pool.delete_cut(&ids, cut).await?;
        // A command in doubt may come again, at the stamp of such a cut.
        match self.is_in_doubt.get() {
            true => member.pool.take_cut_above_replica(&ids, cut).await?,
            false => member.pool.take_cut_of_replica(&ids, cut).await?,
        }
        let complete_until = self.told_answers.get().complete_until().unwrap_or_default();
        let slot = JointSlot::First;
        let state = JointPointState { has, cut: member.last_stamp()?, complete_until, lineage, slot };
        let point = JointPoint { join, state: Some(state) };
        member.change(|group| (group.joint.cutting, group.joint.point) = (None, Some(point))).await
    }

    /// All parts stream, and hosts were answered nothing that is not here.
    pub(super) async fn take_joined(
        &self,
        channel: &impl FrameChannel,
        JoinedFrame { join }: JoinedFrame,
    ) -> std::result::Result<(), SecondaryEnd> {
        let progress = self.member.state().joint;
        let is_noted = progress.joined == join && progress.point.is_none();
        if !is_noted && progress.point.is_none_or(|point| point.join != join) {
            let text = "the parts join under an identity that is not known here";
            return Err(refuse(channel, RefusalCode::Frame, text).await.into());
        }
        if !is_noted {
            self.let_joint_state_go(join).await?;
        }
        channel.send(FrameBody::JoinNoted(JoinNotedFrame { join })).await?;
        Ok(())
    }

    async fn let_joint_state_go(&self, join: JoinId) -> Result<()> {
        let change = |state: &mut GroupState| {
            (state.joint.joined, state.joint.point, state.joint.next) = (join, None, None);
        };
        self.member.change(change).await?;
        if let Some((joint, part)) = self.member.joint() {
            joint.note_own_join(*part, join);
        }
        self.member.delete_joint_cuts().await
    }

    /// Lets the joint state go if another part has done so under the same join, or shows the mark that another part shows.
    pub(super) async fn settle_joint(&self) -> Result<()> {
        let Some((joint, _)) = self.member.joint() else { return Ok(()) };
        let JointProgress { point, next, .. } = self.member.state().joint;
        match point {
            Some(JointPoint { join, .. })
                if joint.has_joined(join) && !planted::is(ReplicationBug::JoinNotSettled) =>
            {
                self.let_joint_state_go(join).await
            }
            Some(_) => match next.filter(|next| joint.has_marked(next.mark)) {
                Some(next) if !planted::is(ReplicationBug::MarkNotSettled) => self.show_mark(next).await,
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The joint state that a promotion would show, as the other parts stand; `None` if that is what the volumes have.
    pub(super) fn shown_point(&self) -> Option<JointPoint> {
        let JointProgress { point, next, .. } = self.member.state().joint;
        let point = point?;
        let Some((joint, _)) = self.member.joint() else { return Some(point) };
        if joint.has_joined(point.join) {
            return None;
        }
        match next.filter(|next| joint.has_marked(next.mark)) {
            Some(next) => Some(JointPoint { state: Some(next.state), ..point }),
            None => Some(point),
        }
    }

    /// Bound of what a promotion may lose while the parts are apart: everything since their joint state.
    pub(super) fn joint_loss_bound(&self, WallNanoseconds(now): WallNanoseconds) -> Option<LossBound> {
        let state = self.shown_point()?.state?;
        let since = state.complete_until;
        let age = Duration::from_nanos(now.saturating_sub(since.0));
        (since.0 > 0).then_some(LossBound { since, age, was_in_sync: false })
    }

    /// Promotes a part as [`SecondaryGroup::promote`] does a group. While the parts are apart it shows its joint state: what
    /// is newer stays as a fork. All parts of the group are to be promoted, one after the other; repeated, it ends the same.
    ///
    /// # Errors
    ///
    /// A pool with a part is not open here, or a first copy is not complete; those of [`SecondaryGroup::promote`].
    pub async fn promote_part(
        &self,
        epoch: EpochId,
        fence: Fence,
    ) -> std::result::Result<GroupState, GoingBackError> {
        let is_complete = self.member.joint().is_none_or(|(joint, _)| joint.is_complete());
        if !is_complete {
            return Err(PromotionError::PartMissing.into());
        }
        self.settle_joint().await?;
        let point = self.member.state().joint.point;
        let point = point.filter(|_| !planted::is(ReplicationBug::JointStateIgnored));
        let known = self.member.fence();
        if fence <= known {
            return Err(PromotionError::Fence { ours: known, given: fence }.into());
        }
        match point {
            Some(point) => self.go_back_to_joint_state(&point.state.ok_or(GoingBackError::Empty)?).await?,
            None => {
                self.await_begun().await;
                let _no_clones = self.applying.lock().await;
                self.member.abandon_pass().await?;
            }
        }
        // Hosts may write to other parts alone: this one would get again from the old primary what they did not see.
        let promoted = self.begin_beside(epoch, fence).await?;
        // They hold what hosts overwrite from now on. The promotion is recorded, whatever becomes of them.
        let _ = self.member.delete_joint_cuts().await;
        Ok(promoted)
    }

    async fn go_back_to_joint_state(&self, joint: &JointPointState) -> Result<()> {
        self.await_begun().await;
        let _no_clones = self.applying.lock().await;
        let (member, ids) = (&self.member, self.member.ids());
        member.end_going_back().await?;
        member.abandon_pass().await?;
        if !member.pool.cut_shows_present(&ids, member.joint_cut(joint.slot)) {
            self.keep_newest(joint.has).await?;
            member.pool.delete_cut(&ids, member.shown_cut()).await?;
            let since = GroupCut::new(vec![joint.has]);
            let until = GroupCut::new(vec![joint.has.max(self.has.get())]);
            let going_back = UnfinishedPass { since, until };
            let lineage = joint.lineage.clone();
            let change = member.change(|group| {
                (group.unfinished, group.lineage, group.forked_at) = (Some(going_back), Some(lineage), None);
            });
            change.await?;
            member.abandon_pass().await?;
        }
        let lineage = joint.lineage.written(&GroupCut::new(vec![joint.has]));
        member.change(|group| group.lineage = Some(lineage)).await?;
        self.is_back_at(joint.has);
        Ok(())
    }

    /// The stamp up to which a promotion would show this part.
    pub fn shown(&self) -> Stamp {
        self.shown_point().map_or(self.has.get(), |point| point.state.map_or(Stamp(0), |state| state.has))
    }
}
