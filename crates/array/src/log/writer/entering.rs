//! Moves the log from one segment to the next.

use super::{LogWriter, Need};
use crate::{
    drive::{WriteFailures, all_written},
    error::{Error, Result},
    format::{LogStart, MirroredSegment, SegmentBlock, SegmentKind, SlotHeader, segment::SUCCESSORS_MAX},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::rc::Rc;
use world::Stability;

impl LogWriter {
    /// Enters the next segment that has enough copies; its header and all records before it are stable then.
    /// If no successor that the last header named has enough copies (drives went or came), the log continues
    /// in a segment no header names, and the sink publishes that in a superblock. Waits while too few drives
    /// have space.
    pub(super) async fn enter_next(&self) -> Result<()> {
        loop {
            while !self.drives.has_space_enough() {
                Rc::clone(&self.sink).wait_for_space().await?;
            }
            let next = match self.take_successor() {
                Some(next) => next,
                None => match self.find_another().await {
                    Err(Error::Full) if !self.drives.out_of_space().is_empty() => {
                        Rc::clone(&self.sink).wait_for_space().await?;
                        continue;
                    }
                    found => found?,
                },
            };
            // Includes one that was found while the header of another could not be written: no header leads
            // to it.
            let is_new_beginning = !self.named.borrow().contains(&next);
            *self.entering.borrow_mut() = Some(next.clone());
            let successors = self.successors_of_next();
            // Earlier records need a flush anyhow: it covers the header, too.
            let stability = if self.is_unstable.get() { Stability::Volatile } else { Stability::Stable };
            if let Err(failures) = self.write_header(&next, &successors, stability).await {
                sometimes::reached(Sometimes::HeaderRefused);
                self.give_up(failures).await?;
                continue;
            }
            if !canary::is(Canary::SegmentEnteredOverUnstableRecords) {
                self.make_stable(&next.slots).await?;
            }
            if !self.has_enough_copies(&next) {
                continue;
            }
            assert!(next.segment_use > self.entered_use.get(), "uses ascend along the log");
            self.entered_use.set(next.segment_use);
            self.sink.entered(next.number);
            let shape = self.drives.mirror_shape(next.slots.len());
            if is_new_beginning {
                sometimes::reached(Sometimes::LogRestarted);
                let previous = self.tail.borrow().previous();
                let start = LogStart { previous, segment: next.clone(), block: SegmentBlock(0) };
                Rc::clone(&self.sink).publish_start(start).await?;
            }
            self.tail.borrow_mut().enter(next, shape);
            *self.named.borrow_mut() = successors;
            *self.entering.borrow_mut() = None;
            return Ok(());
        }
    }

    fn take_successor(&self) -> Option<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        // A successor that lacks a copy would still lack it when its turn comes.
        successors.retain(|segment| self.has_enough_copies(segment));
        successors.pop_front()
    }

    /// Makes a new segment the only successor. False if none can be spared.
    pub(super) fn replace_successors(&self) -> bool {
        let Some(next) = self.sink.allocate(Need::Later) else { return false };
        *self.successors.borrow_mut() = [next].into();
        true
    }

    /// Allocates a segment that no header names.
    async fn find_another(&self) -> Result<MirroredSegment> {
        self.successors.borrow_mut().clear();
        if let Some(segment) = self.sink.allocate(Need::Now) {
            return Ok(segment);
        }
        sometimes::reached(Sometimes::LogMadeRoom);
        Rc::clone(&self.sink).make_room().await?;
        self.sink.allocate(Need::Now).ok_or_else(|| self.nowhere_to_go())
    }

    fn nowhere_to_go(&self) -> Error {
        let (present, needed) = (self.drives.count(), self.drives.copies_wanted(SegmentKind::Log));
        if present == 0 { Error::TooFewDrives { present, needed } } else { Error::Full }
    }

    /// The successors left, filled up with new segments while there is room.
    pub(super) fn successors_of_next(&self) -> Vec<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        while successors.len() < SUCCESSORS_MAX {
            let Some(segment) = self.sink.allocate(Need::Later) else { break };
            successors.push_back(segment);
        }
        successors.iter().cloned().collect()
    }

    async fn write_header(
        &self,
        segment: &MirroredSegment,
        successors: &[MirroredSegment],
        stability: Stability,
    ) -> std::result::Result<(), WriteFailures> {
        let (pool, incarnation, first_position) = {
            let tail = self.tail.borrow();
            (tail.pool, tail.incarnation, tail.position_next())
        };
        let header = SlotHeader {
            pool,
            number: segment.number,
            segment_use: segment.segment_use,
            incarnation,
            kind: SegmentKind::Log,
            shape: self.drives.mirror_shape(segment.slots.len()),
            slots: segment.slots.clone(),
            slot_index: 0,
            first_position,
            successors: successors.to_vec(),
        };
        all_written(self.drives.write_headers(&header, stability)).await
    }
}
