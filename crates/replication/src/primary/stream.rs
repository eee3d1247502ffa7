//! The stream: records in the order of the log, from memory while the peer keeps up, from the log otherwise.

use super::{PrimaryEnd, PrimaryGroup};
use crate::{
    channel::FrameChannel,
    frame::{FRAME_BLOCKS_MAX, FrameBody, RecordFrame, SentChange},
    outbox::WaitingRecord,
    planted::{self, ReplicationBug},
    record_log::RecordLog,
    sent_changes::{StreamOrder, bytes_of, is_of_rows},
    session::SessionState,
};
use array::{
    error::Error,
    format::{Position, Stamp, WallNanoseconds},
};
use std::{mem, rc::Rc};

/// Changes of one frame at most; the body has a few dozen bytes for each.
const FRAME_CHANGES_MAX: usize = 4096;
/// Changes of rows of one frame at most: a snapshot has up to 3 KiB.
const FRAME_ROWS_MAX: usize = 64;

/// Changes that go into the next frame. Invariant: they fit into one.
#[derive(Default)]
struct FrameDraft {
    changes: Vec<(Stamp, SentChange)>,
    blocks: usize,
    rows: usize,
    goes_on: bool,
}

impl FrameDraft {
    fn has_room(&self) -> bool {
        self.changes.len() < FRAME_CHANGES_MAX && self.blocks < FRAME_BLOCKS_MAX && self.rows < FRAME_ROWS_MAX
    }

    fn push(&mut self, stamp: Stamp, change: SentChange) {
        assert!(self.has_room(), "a frame that is full is sent");
        self.blocks += usize::from(matches!(change, SentChange::Write { .. }));
        self.rows += usize::from(is_of_rows(&change));
        self.changes.push((stamp, change));
    }
}

/// The sending side of a stream.
struct StreamSender<'s, C> {
    group: &'s PrimaryGroup,
    channel: &'s C,
    order: StreamOrder,
    draft: FrameDraft,
}

impl<C: FrameChannel> StreamSender<'_, C> {
    /// Adds what has not been sent of a record, and sends full frames.
    async fn add(&mut self, record: WaitingRecord) -> Result<(), PrimaryEnd> {
        if self.group.wants_points() {
            // The changes that were added lie before the record.
            self.flush().await?;
            let next = record.changes.first().map(|(stamp, _)| *stamp);
            self.group.reach_points(self.channel, next).await?;
        }
        for (stamp, change) in record.changes {
            if !self.order.admit(stamp, &change) {
                continue;
            }
            if self.group.is_left_to_pass(&change) {
                self.group.session.borrow_mut().note_log_lost(self.group.world.now());
                // Everything that was added before is whole: this is another command.
                self.draft.goes_on = false;
                return Ok(());
            }
            self.group.note_sent_rows(&change);
            if !self.draft.has_room() {
                self.draft.goes_on = self.draft.changes.last().is_some_and(|(last, _)| *last == stamp);
                self.flush().await?;
            }
            self.draft.push(stamp, change);
        }
        self.draft.goes_on = record.goes_on;
        Ok(())
    }

    /// Sends what was added.
    async fn flush(&mut self) -> Result<(), PrimaryEnd> {
        let FrameDraft { changes, goes_on, .. } = mem::take(&mut self.draft);
        if changes.is_empty() {
            return Ok(());
        }
        let group = self.group;
        group.sent.set(changes[changes.len() - 1].0);
        let bytes = changes.iter().map(|(_, change)| bytes_of(change)).sum();
        let record = RecordFrame {
            part: 0,
            fence: group.member.fence(),
            epoch: group.member.epoch().expect("a primary has a lineage"),
            told: group.session.borrow().told().stamps()[0],
            accepted_at: WallNanoseconds::of(group.world.wall()),
            goes_on,
            changes,
        };
        self.channel.send(FrameBody::Record(record)).await?;
        group.member.meter.note_sent(bytes);
        Ok(())
    }
}

impl PrimaryGroup {
    fn is_streaming(&self) -> bool {
        self.session.borrow().state() == SessionState::Streaming
    }

    /// Streams everything above a complete stamp, until the session wants something else.
    pub(super) async fn stream(&self, channel: &impl FrameChannel, since: Stamp) -> Result<(), PrimaryEnd> {
        let order = StreamOrder::above(since);
        let mut sender = StreamSender { group: self, channel, order, draft: FrameDraft::default() };
        // Marks of before a pass lie below what that brought.
        self.stream_points.forget(|frame| matches!(frame, FrameBody::Mark(_)));
        while self.is_streaming() {
            self.outbox.borrow_mut().open();
            match self.send_log(&mut sender).await {
                Err(PrimaryEnd::Failed(Error::LogPinLost)) => {
                    self.session.borrow_mut().note_log_lost(self.world.now());
                    break;
                }
                done => done?,
            }
            self.send_outbox(&mut sender).await?;
        }
        self.outbox.borrow_mut().close();
        Ok(())
    }

    /// Sends what is in the log and was offered before the outbox was opened.
    async fn send_log<C: FrameChannel>(&self, sender: &mut StreamSender<'_, C>) -> Result<(), PrimaryEnd> {
        let in_flight = self.taken.borrow().offered();
        let pin = Rc::clone(&self.tail().pin.borrow());
        let mut log = RecordLog::new(&self.member.volumes, pin.position().ok_or(Error::LogPinLost)?);
        while self.is_streaming() && !planted::is(ReplicationBug::LogNotRead) {
            let taken = self.taken.borrow().taken();
            let is_waiting =
                |position: Position| self.outbox.borrow().first().is_some_and(|first| first <= position);
            match log.next(&pin, &self.taken).await? {
                Some(record) if is_waiting(record.position) => break,
                Some(record) => sender.add(record).await?,
                None if taken >= in_flight => break,
                None => {
                    sender.flush().await?;
                    let changed = self.changed.notified();
                    if self.taken.borrow().taken() == taken {
                        changed.await;
                    }
                }
            }
        }
        sender.flush().await
    }

    /// Sends what waits in memory, as long as it has room there.
    async fn send_outbox<C: FrameChannel>(&self, sender: &mut StreamSender<'_, C>) -> Result<(), PrimaryEnd> {
        while self.is_streaming() && self.outbox.borrow().is_open() {
            let next = self.outbox.borrow_mut().pop();
            match next {
                Some(record) => sender.add(record).await?,
                None => {
                    sender.flush().await?;
                    self.reach_points(sender.channel, None).await?;
                    if self.stand_down_if_quiet() {
                        break;
                    }
                    let changed = self.changed.notified();
                    // It may have come while the frame was being sent.
                    if self.outbox.borrow().first().is_none() && !self.has_points() {
                        changed.await;
                    }
                }
            }
        }
        sender.flush().await
    }
}
