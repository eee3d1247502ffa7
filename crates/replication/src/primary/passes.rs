//! Passes of a primary: until the peer is so close that the stream can begin.

use super::{PrimaryEnd, PrimaryGroup, connection::WantedBlocks};
use crate::{
    channel::FrameChannel,
    connect::{Introduction, Transfer, TransferWay},
    cut::GroupCut,
    pass::{PassGoal, SentPass, before, send, take_cut},
    session::{PassReport, SessionDemand},
};
use array::format::{SnapshotId, Stamp};

impl PrimaryGroup {
    pub(super) fn is_pass_due(&self) -> bool {
        self.session.borrow().demands(self.world.now()).contains(&SessionDemand::RunPass)
    }

    pub(super) fn has_sent_pass(&self) -> bool {
        self.passes.get() > 0
    }

    /// Sends what the peer lacks above `since`, and waits until it has it.
    pub(super) async fn run_pass(
        &self,
        channel: &impl FrameChannel,
        (since, transfer, wanted): (Stamp, Option<&Transfer>, &WantedBlocks),
        theirs: &Introduction,
    ) -> Result<(), PrimaryEnd> {
        while wanted.are_awaited() {
            self.changed.notified().await;
        }
        while self.peer_snapshots.borrow().len() < self.member.volumes.len() {
            self.changed.notified().await;
        }
        let _passing = self.passing.lock().await;
        self.member.pool.delete_other_cuts(&self.member.ids(), self.member.shown_cut()).await?;
        let begun = self.world.now();
        // Records behind the cut are streamed from here on.
        self.renew_pin();
        self.passes.set(self.passes.get() + 1);
        let cut = self.new_cut();
        let goal = PassGoal {
            cut,
            number: self.passes.get(),
            since: before(since),
            until: self.take_cut(cut, theirs).await?,
            way: transfer.map_or(TransferWay::BornSince, |transfer| match transfer.way {
                TransferWay::Log => TransferWay::BornSince,
                way => way,
            }),
            beside: wanted.ranges.take(),
            brought: wanted.brought.take(),
            is_merge: true,
            receiver_has: Some(self.peer_snapshots.borrow().clone()),
        };
        if goal.since == Stamp(0) {
            self.member.meter.set_first_copy_lacking(true);
        }
        let sent = send((&self.world, &self.member), channel, &goal).await;
        let done = match sent {
            Ok(sent) => self.wait_for_pass(sent).await,
            Err(end) => Err(end.into()),
        };
        self.member.pool.delete_cut(&self.member.ids(), goal.cut).await?;
        let sent = done?;
        self.member.meter.set_first_copy_lacking(false);
        self.member.meter.end_pass();
        let now = self.world.now();
        let remaining_bytes = self.session.borrow().exposure(now).bytes;
        let report = PassReport { sent_bytes: sent.bytes, took: now.since(begun), remaining_bytes };
        self.is_in_doubt.set(false);
        self.parted_for_pass.set(false);
        self.session.borrow_mut().note_pass_end(&GroupCut::new(vec![sent.until]), report, now);
        self.release();
        Ok(())
    }

    /// Takes a cut for a receiver. Everything up to its stamp is here.
    pub(super) async fn take_cut(&self, cut: SnapshotId, theirs: &Introduction) -> Result<Stamp, PrimaryEnd> {
        let until = take_cut(&self.member, cut, theirs).await?;
        self.taken.borrow_mut().note_cut(until);
        self.session.borrow_mut().note_cut(0, until);
        Ok(until)
    }

    /// Waits until the peer has a pass.
    async fn wait_for_pass(&self, sent: SentPass) -> Result<SentPass, PrimaryEnd> {
        while self.session.borrow().confirmed().stamps()[0] < sent.until {
            self.changed.notified().await;
        }
        Ok(sent)
    }

    pub(super) fn new_cut(&self) -> SnapshotId {
        let mut id = [0; 16];
        let name = format!("cut {} of {}, {:?}", self.passes.get(), self.member.group, self.world.now());
        self.world.random(&name).fill(&mut id);
        SnapshotId(id)
    }
}
