//! The primary's side of a comparison.

use super::PrimaryGroup;
use crate::{
    channel::FrameChannel,
    frame::{
        DIGEST_BLOCKS_MAX, FrameBody, RangeDigest, SentRange, VERIFY_VERSION, VerifyCutFrame,
        VerifyDigestsFrame, VerifyEndFrame, VerifyRangeFrame, VerifyReadyFrame,
    },
    pass::PassPace,
    planted::{self, ReplicationBug},
    session::SessionState,
    verification::{ComparisonProgress, VerifyError, digests_of, verify_cut},
};
use array::{
    format::{BLOCK_BYTES, BlockCount, BlockIndex, Stamp, VolumeId},
    pool::VolumeKey,
};
use futures_util::future::join;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

/// Blocks that are asked for at one time: 64 MiB.
const WINDOW_BLOCKS: u64 = 64 * DIGEST_BLOCKS_MAX;

/// A comparison under way, between its task and the channel.
#[derive(Default)]
pub(super) struct VerifyDesk {
    number: Cell<u64>,
    is_under_way: Cell<bool>,
    outgoing: RefCell<VecDeque<FrameBody>>,
    ready: RefCell<Option<VerifyReadyFrame>>,
    digests: RefCell<Option<VerifyDigestsFrame>>,
    /// Version of the channel that runs.
    version: Cell<u16>,
}

impl VerifyDesk {
    pub fn begin_channel(&self, version: u16) {
        self.version.set(version);
    }

    /// Orders of the comparison are not answered any more.
    pub fn end_channel(&self) {
        self.version.set(0);
        self.outgoing.borrow_mut().clear();
    }
}

/// Ends a comparison, however it ends.
struct VerifyTurn<'g>(&'g PrimaryGroup);

impl Drop for VerifyTurn<'_> {
    fn drop(&mut self) {
        let desk = &self.0.verify_desk;
        desk.is_under_way.set(false);
        self.0.stream_points.forget(|frame| matches!(frame, FrameBody::VerifyCut(_)));
        let end = VerifyEndFrame { number: desk.number.get() };
        if desk.version.get() >= VERIFY_VERSION {
            desk.outgoing.borrow_mut().push_back(FrameBody::VerifyEnd(end));
        }
        self.0.changed.notify_waiters();
    }
}

impl PrimaryGroup {
    /// Compares the group with the secondary's, as of one cut, while it streams. Changes nothing.
    ///
    /// # Errors
    ///
    /// See [`VerifyError`]. What was found until then is in `progress`.
    pub async fn verify(&self, progress: &ComparisonProgress) -> Result<(), VerifyError> {
        let desk = &self.verify_desk;
        if desk.is_under_way.get() {
            return Err(VerifyError::UnderWay);
        }
        if self.session.borrow().state() != SessionState::Streaming {
            return Err(VerifyError::NotStreaming);
        }
        if desk.version.get() < VERIFY_VERSION {
            return Err(VerifyError::OldPeer);
        }
        desk.is_under_way.set(true);
        desk.number.update(|number| number + 1);
        desk.ready.take();
        let turn = VerifyTurn(self);
        let compared = self.compare(progress).await;
        drop(turn);
        self.member.pool.delete_cut(&self.member.ids(), verify_cut(&self.member)).await?;
        compared
    }

    /// Deletes the cut of a comparison that was dropped within.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn forget_verify_cut(&self) -> Result<(), array::error::Error> {
        self.member.pool.delete_cut(&self.member.ids(), verify_cut(&self.member)).await
    }

    async fn compare(&self, progress: &ComparisonProgress) -> Result<(), VerifyError> {
        let (ids, cut, desk) = (self.member.ids(), verify_cut(&self.member), &self.verify_desk);
        self.member.pool.delete_cut(&ids, cut).await?;
        let sizes = ids.iter().map(|&volume| self.member.pool.volume(VolumeKey::Id(volume)));
        let sizes = sizes.map(|volume| Ok(volume?.size_bytes() / BLOCK_BYTES as u64));
        let sizes = sizes.collect::<Result<Vec<u64>, array::error::Error>>()?;
        progress.total_bytes.set(sizes.iter().sum::<u64>() * BLOCK_BYTES as u64);
        // Nothing is sent until the stamp of the cut is known, as it may be above that.
        let held = (!planted::is(ReplicationBug::VerifiedTooLate)).then(|| self.hold_stream());
        let taken = self.member.pool.take_cut(&ids, cut).await?;
        let at = if planted::is(ReplicationBug::VerifiedTooEarly) { Stamp(0) } else { taken };
        self.stream_points.add(at, FrameBody::VerifyCut(VerifyCutFrame { number: desk.number.get() }));
        drop(held);
        self.changed.notify_waiters();
        let ready = self.reply(&desk.ready).await?;
        if !ready.refused.is_empty() {
            return Err(VerifyError::Peer(ready.refused));
        }
        let mut pace = PassPace::new(&self.world, &self.member.pool);
        for (&volume, &blocks) in ids.iter().zip(&sizes) {
            let mut first = 0;
            while first < blocks {
                let count = WINDOW_BLOCKS.min(blocks - first);
                self.compare_window((volume, first, count), &mut pace, progress).await?;
                progress.compared_bytes.update(|bytes| bytes + count * BLOCK_BYTES as u64);
                first += count;
            }
        }
        Ok(())
    }

    async fn compare_window(
        &self,
        (volume, first, count): (VolumeId, u64, u64),
        pace: &mut PassPace,
        progress: &ComparisonProgress,
    ) -> Result<(), VerifyError> {
        let pieces = self.both_digests((volume, first, count), DIGEST_BLOCKS_MAX, pace).await?;
        for (at, _) in pieces.iter().enumerate().filter(|(_, (ours, theirs))| ours != theirs) {
            let first = first + at as u64 * DIGEST_BLOCKS_MAX;
            let count = DIGEST_BLOCKS_MAX.min(count - at as u64 * DIGEST_BLOCKS_MAX);
            let blocks = self.both_digests((volume, first, count), 1, pace).await?;
            for (block, _) in (first..).zip(&blocks).filter(|(_, (ours, theirs))| ours != theirs) {
                progress.note_different(volume, block);
            }
        }
        Ok(())
    }

    /// Digests of a range at both sides.
    async fn both_digests(
        &self,
        (volume, first, count): (VolumeId, u64, u64),
        grain: u64,
        pace: &mut PassPace,
    ) -> Result<Vec<(RangeDigest, RangeDigest)>, VerifyError> {
        let desk = &self.verify_desk;
        let within = SentRange { first: BlockIndex(first), count: BlockCount(count) };
        let wanted = VerifyRangeFrame { number: desk.number.get(), volume, within, grain };
        desk.digests.take();
        desk.outgoing.borrow_mut().push_back(FrameBody::VerifyRange(wanted));
        self.changed.notify_waiters();
        let own = digests_of((&self.world, &self.member), &wanted, pace);
        let (ours, theirs) = join(own, self.reply(&desk.digests)).await;
        let (ours, theirs) = (ours?.expect("it is within the volume"), theirs?);
        if !theirs.failed.is_empty() {
            return Err(VerifyError::Peer(theirs.failed));
        }
        match ours.len() == theirs.digests.len() {
            true => Ok(ours.into_iter().zip(theirs.digests).collect()),
            false => Err(VerifyError::Peer("it answered with another number of digests".to_owned())),
        }
    }

    /// Waits for an answer of this comparison.
    async fn reply<T>(&self, place: &RefCell<Option<T>>) -> Result<T, VerifyError> {
        loop {
            let changed = self.changed.notified();
            if let Some(reply) = place.take() {
                return Ok(reply);
            }
            if self.session.borrow().state() != SessionState::Streaming || self.verify_desk.version.get() == 0
            {
                return Err(VerifyError::StreamEnded);
            }
            changed.await;
        }
    }

    /// Takes a frame of a comparison.
    pub(super) fn take_verify_reply(&self, frame: FrameBody) {
        let desk = &self.verify_desk;
        let number = desk.number.get();
        match frame {
            FrameBody::VerifyReady(ready) if ready.number == number => drop(desk.ready.replace(Some(ready))),
            FrameBody::VerifyDigests(digests) if digests.number == number => {
                drop(desk.digests.replace(Some(digests)));
            }
            // Of one that was given up.
            _ => {}
        }
        self.changed.notify_waiters();
    }

    /// Sends what a comparison asks for, beside the stream.
    pub(super) async fn send_verify_orders(&self, channel: &impl FrameChannel) -> std::convert::Infallible {
        loop {
            let changed = self.changed.notified();
            let next = self.verify_desk.outgoing.borrow_mut().pop_front();
            match next {
                Some(frame) => {
                    if channel.send(frame).await.is_err() {
                        // The receiver notices the end of the channel.
                        return std::future::pending().await;
                    }
                }
                None => changed.await,
            }
        }
    }
}
