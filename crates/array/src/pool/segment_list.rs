//! Segments as people see them. They are listed in steps, so that a pool of a million segments answers its hosts meanwhile.

use super::Pool;
use crate::{
    format::{
        BLOCK_BYTES, DriveId, GRAIN_BYTES, SegmentKind, SegmentNumber,
        row::{SegmentRow, SegmentState},
    },
    redundancy::SegmentLayout,
};
use std::ops::Range;
use world::ByteCount;

/// Copies of a segment on drives that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentStanding {
    Whole,
    /// Fewer than configured.
    Degraded,
    /// Too few to read it.
    Lost,
}

/// A segment, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    pub number: SegmentNumber,
    pub kind: SegmentKind,
    /// It is being written.
    pub is_open: bool,
    pub standing: SegmentStanding,
    /// Drives of its slots, whether they are in use or not.
    pub drives: Vec<DriveId>,
    /// Its data that is referenced, as of the last checkpoint.
    pub live: ByteCount,
    /// All of its data, once.
    pub size: ByteCount,
}

impl Pool {
    /// A number above those of all segments. Numbers of segments that were freed are used again.
    pub fn segment_number_end(&self) -> u32 {
        self.shared.state.borrow().segments.number_end()
    }

    /// The segments with these numbers. Reads a row for each: list many in steps.
    pub fn segments_listed(&self, numbers: Range<u32>) -> Vec<SegmentFacts> {
        let state = self.shared.state.borrow();
        let numbers = numbers.map(SegmentNumber);
        let rows = numbers.filter_map(|number| Some((number, state.segments.row(number)?)));
        rows.map(|(number, row)| self.segment_facts(number, row)).collect()
    }

    fn segment_facts(&self, number: SegmentNumber, row: &SegmentRow) -> SegmentFacts {
        let drives = &self.shared.drives;
        let there = drives.copies_there(&row.slots);
        let layout = SegmentLayout::of(row);
        let is_short =
            layout.scheme().is_redundant() && layout.missing(there, drives.copies().of_kind(row.kind)) > 0;
        let standing = match is_short {
            _ if layout.is_lost(there) => SegmentStanding::Lost,
            true => SegmentStanding::Degraded,
            false => SegmentStanding::Whole,
        };
        SegmentFacts {
            number,
            kind: row.kind,
            is_open: row.state == SegmentState::Open,
            standing,
            drives: row.slots.iter().filter_map(|slot| self.shared.drive_of(slot.member)).collect(),
            live: ByteCount(u64::from(row.live_grains) * GRAIN_BYTES as u64),
            size: ByteCount(u64::from(row.shape.data_blocks()) * BLOCK_BYTES as u64),
        }
    }
}
