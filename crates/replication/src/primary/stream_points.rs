//! Frames that lie between two records of the stream: everything up to a stamp is sent before, and nothing above.
//!
//! Invariants:
//!
//! 1. While the stream is held nothing is sent: the stamp of a frame that is about to be added may be below what waits.
//! 2. A frame goes once what was sent reaches its stamp, or with the channel.

use super::PrimaryGroup;
use crate::{
    channel::{ChannelEnd, FrameChannel},
    frame::FrameBody,
};
use array::format::Stamp;
use std::cell::{Cell, RefCell};

/// Frames that wait for their places in the stream.
#[derive(Default)]
pub(super) struct StreamPoints {
    holds: Cell<usize>,
    /// By ascending stamps.
    due: RefCell<Vec<(Stamp, FrameBody)>>,
}

/// Holds the stream until it is dropped.
#[must_use]
pub(super) struct StreamHold<'g>(&'g PrimaryGroup);

impl Drop for StreamHold<'_> {
    fn drop(&mut self) {
        self.0.stream_points.holds.update(|holds| holds - 1);
        self.0.changed.notify_waiters();
    }
}

impl StreamPoints {
    /// Sends a frame behind everything up to a stamp.
    pub fn add(&self, at: Stamp, frame: FrameBody) {
        let mut due = self.due.borrow_mut();
        let place = due.partition_point(|(known, _)| *known <= at);
        due.insert(place, (at, frame));
    }

    /// Forgets frames that have not been sent.
    pub fn forget(&self, is_forgotten: impl Fn(&FrameBody) -> bool) {
        self.due.borrow_mut().retain(|(_, frame)| !is_forgotten(frame));
    }

    /// The next frame, if the next record of the stream is above it, or none waits.
    fn take(&self, next: Option<Stamp>) -> Option<FrameBody> {
        let mut due = self.due.borrow_mut();
        let is_reached = due.first().is_some_and(|(at, _)| next.is_none_or(|next| next > *at));
        is_reached.then(|| due.remove(0).1)
    }
}

impl PrimaryGroup {
    /// Nothing more of the stream is sent while the answer lives.
    pub(super) fn hold_stream(&self) -> StreamHold<'_> {
        self.stream_points.holds.update(|holds| holds + 1);
        StreamHold(self)
    }

    /// Sends the frames that lie before the next record of the stream.
    pub(super) async fn reach_points(
        &self,
        channel: &impl FrameChannel,
        next: Option<Stamp>,
    ) -> Result<(), ChannelEnd> {
        while self.stream_points.holds.get() > 0 && next.is_some() {
            let changed = self.changed.notified();
            if self.stream_points.holds.get() > 0 {
                changed.await;
            }
        }
        while let Some(frame) = self.stream_points.take(next) {
            channel.send(frame).await?;
        }
        Ok(())
    }

    /// True if the stream has to send a frame between two records, or to wait for one.
    pub(super) fn wants_points(&self) -> bool {
        self.has_points() || self.stream_points.holds.get() > 0
    }

    /// True if a frame waits for its place in the stream.
    pub(super) fn has_points(&self) -> bool {
        !self.stream_points.due.borrow().is_empty()
    }
}
