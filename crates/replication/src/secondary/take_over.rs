//! A planned change of the primary, at the side that gets its right.

use super::{PromotionError, SecondaryEnd, SecondaryGroup};
use crate::{
    channel::FrameChannel,
    connect::SiteRole,
    cut::GroupCut,
    exchange::{Agreement, refuse},
    frame::{FrameBody, HandOverFrame, RefusalCode, TakenOverFrame},
    planted::{self, ReplicationBug},
};
use array::format::{EpochId, Fence};

impl SecondaryGroup {
    /// Takes over what the primary hands over: this side is primary once that is stable.
    pub(super) async fn take_over(
        &self,
        channel: &impl FrameChannel,
        frame: HandOverFrame,
        agreement: &Agreement,
    ) -> SecondaryEnd {
        if let Err(text) = self.check_hand_over(&frame, agreement) {
            return refuse(channel, RefusalCode::Frame, text).await.into();
        }
        self.take_given_right().await;
        // Hosts are answered here only what the other side confirmed, unless it stays away for longer than the hold: so
        // it goes on in sync.
        let state = match self.become_primary(self.new_epoch(frame.fence), frame.fence, (false, false)).await
        {
            Ok(state) => state,
            Err(PromotionError::Pool(error)) => return error.into(),
            Err(error) => return refuse(channel, RefusalCode::Frame, error.to_string()).await.into(),
        };
        let epoch = state.lineage.as_ref().expect("a primary has a lineage").current().clone();
        let taken = TakenOverFrame { fence: frame.fence, epoch };
        // If it does not arrive, the other side learns of it with the next connection.
        let _ = channel.send(FrameBody::TakenOver(taken)).await;
        SecondaryEnd::TakenOver(Box::new(state))
    }

    fn check_hand_over(&self, frame: &HandOverFrame, agreement: &Agreement) -> Result<(), String> {
        let has = GroupCut::new(vec![self.has.get()]);
        if agreement.theirs.role != SiteRole::Primary {
            return Err("a side that is not primary hands the group over".to_owned());
        }
        if self.member.state().joint.point.is_some() {
            return Err("a part of the group is handed over, and the parts are not together here".to_owned());
        }
        let is_whole = !self.is_in_doubt.get() && !self.member.is_in_pass();
        if planted::is(ReplicationBug::TakenOverWithLess) {
            return Ok(());
        }
        if frame.cut != has || !is_whole {
            return Err(format!("the group is handed over at {:?}, and {has:?} is here", frame.cut));
        }
        Ok(())
    }

    fn new_epoch(&self, fence: Fence) -> EpochId {
        let mut epoch = [0; 16];
        let name = format!("epoch of {} at fence {fence}, {:?}", self.member.group, self.world.now());
        self.world.random(&name).fill(&mut epoch);
        EpochId(epoch)
    }
}
