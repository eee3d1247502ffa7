//! From one segment of the log to the next.

use super::{Lane, Need, log_shape};
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

impl Lane {
    /// Goes on in the next segment that has enough copies, its header and all before it being stable. If none of those
    /// that the last header named has any more (drives went, or came), the log begins anew: then the owner says so in
    /// a superblock. While too few drives have space it waits.
    pub(super) async fn enter_next(&self) -> Result<()> {
        loop {
            while !self.drives.has_space_enough() {
                Rc::clone(&self.owner).wait_for_space().await?;
            }
            let next = match self.take_successor() {
                Some(next) => next,
                None => match self.find_another().await {
                    Err(Error::Full) if !self.drives.out_of_space().is_empty() => {
                        Rc::clone(&self.owner).wait_for_space().await?;
                        continue;
                    }
                    found => found?,
                },
            };
            // Also one that was found while the header of another could not be written: no header leads to it.
            let is_new_beginning = !self.named.borrow().contains(&next);
            *self.entering.borrow_mut() = Some(next.clone());
            let successors = self.successors_of_next();
            // What lies before needs a flush anyhow: then it is for the header, too.
            let stability = if self.is_unstable.get() { Stability::Volatile } else { Stability::Stable };
            if let Err(failures) = self.write_header(&next, &successors, stability).await {
                sometimes::reached(Sometimes::HeaderRefused);
                self.give_up(failures).await?;
                continue;
            }
            if !canary::is(Canary::SegmentEnteredOverUnstableRecords) {
                self.settle(&next.slots).await?;
            }
            if !self.has_enough_copies(&next) {
                continue;
            }
            assert!(next.segment_use > self.entered_use.get(), "uses ascend along the log");
            self.entered_use.set(next.segment_use);
            let shape = log_shape(self.drives.geometry().slot_blocks(), next.slots.len());
            if is_new_beginning {
                sometimes::reached(Sometimes::BegunAnew);
                let previous = self.tail.borrow().previous();
                let start = LogStart { previous, segment: next.clone(), block: SegmentBlock(0) };
                Rc::clone(&self.owner).begin_anew(start).await?;
            }
            self.tail.borrow_mut().enter(next, shape);
            *self.named.borrow_mut() = successors;
            *self.entering.borrow_mut() = None;
            return Ok(());
        }
    }

    fn take_successor(&self) -> Option<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        // One that lacks a copy would lack it for as long as it waits for its turn.
        successors.retain(|segment| self.has_enough_copies(segment));
        successors.pop_front()
    }

    /// A segment that no header names.
    async fn find_another(&self) -> Result<MirroredSegment> {
        self.successors.borrow_mut().clear();
        if let Some(segment) = self.owner.allocate(Need::Now) {
            return Ok(segment);
        }
        sometimes::reached(Sometimes::LogMadeRoom);
        Rc::clone(&self.owner).make_room().await?;
        self.owner.allocate(Need::Now).ok_or_else(|| self.nowhere_to_go())
    }

    fn nowhere_to_go(&self) -> Error {
        let (present, needed) = (self.drives.count(), self.drives.copies_wanted());
        if present == 0 { Error::TooFewDrives { present, needed } } else { Error::Full }
    }

    /// The segments left to go on in, filled up with new ones where there is room for them.
    pub(super) fn successors_of_next(&self) -> Vec<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        while successors.len() < SUCCESSORS_MAX {
            let Some(segment) = self.owner.allocate(Need::Later) else { break };
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
            shape: log_shape(self.drives.geometry().slot_blocks(), segment.slots.len()),
            slots: segment.slots.clone(),
            slot_index: 0,
            first_position,
            successors: successors.to_vec(),
        };
        all_written(self.drives.write_headers(&header, stability)).await
    }
}
