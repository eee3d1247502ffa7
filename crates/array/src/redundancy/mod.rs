//! Redundancy: the copies each kind of segment has, and the schemes by which a segment survives lost drives.
//!
//! 1. A scheme decides how many slots a segment gets, how its data is laid out over them, what is written and
//!    read where, what a rebuild has to replace and from which slots, and when data is lost.
//! 2. Schemes do no I/O: they make plans, which [`crate::drive`] and its callers carry out.
//! 3. [`Raid0`] and [`Raid1`] are the schemes so far. A scheme is chosen by class when a segment is
//!    allocated, and by shape from then on.

mod copies;
pub(crate) mod failure_sets;
pub(crate) mod placement;
mod plan;
mod raid0;
mod raid1;

pub use copies::Copies;
pub use failure_sets::FailureSets;
pub use placement::{DriveMedium, FailureDomain, FailureDomains, Placement};
pub use plan::{Reconstruction, SegmentLayout, SlotSource, SlotWrite};
pub use raid0::Raid0;
pub use raid1::Raid1;

use crate::format::{MemberIndex, RedundancyClass, SegmentBlock, SegmentShape};

/// A way to lay a segment out over drives. Callers that have a segment use the methods of [`SegmentLayout`],
/// which also say what each plan contains.
pub trait RedundancyScheme {
    /// True if the scheme keeps more than the data. A segment may lack it for now, as a mirror of one slot
    /// does.
    fn is_redundant(&self) -> bool;

    /// Slots of a new segment whose kind has `copies` copies.
    fn slots(&self, copies: usize) -> usize;

    /// Shape of a segment with `slots` slots.
    fn shape(&self, slot_blocks: u16, slots: usize) -> SegmentShape;

    fn plan_write(&self, segment: SegmentLayout<'_>, first: SegmentBlock, count: u32) -> Vec<SlotWrite>;

    fn plan_read(&self, segment: SegmentLayout<'_>, block: SegmentBlock) -> Vec<SlotSource> {
        plan::copies_of(segment, block)
    }

    fn plan_reconstruction(
        &self,
        segment: SegmentLayout<'_>,
        slot_index: usize,
        is_present: &dyn Fn(MemberIndex) -> bool,
    ) -> Option<Reconstruction>;

    /// Slots that a rebuild has to make for a segment with `present` of its `slots` slots, whose kind should
    /// have `copies`.
    fn missing(&self, present: usize, slots: usize, copies: usize) -> usize;

    /// True if data is lost of a segment that has `present` of its `slots` slots.
    fn is_lost(&self, present: usize, slots: usize) -> bool;
}

/// The scheme of volumes of a class. Classes that are not implemented are mirrored.
pub fn scheme_of_class(class: RedundancyClass) -> &'static dyn RedundancyScheme {
    match class {
        RedundancyClass::Raid0 => &Raid0,
        _ => &Raid1,
    }
}

/// The scheme of an existing segment.
pub fn scheme_of(shape: SegmentShape) -> &'static dyn RedundancyScheme {
    if shape.is_mirror() { &Raid1 } else { &Raid0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_segment_names_its_scheme() {
        for copies in 1..=3 {
            assert_eq!(scheme_of(Raid1.shape(256, copies)).slots(copies), copies);
        }
        assert_eq!(scheme_of(Raid0.shape(256, 1)).slots(2), 1);
    }
}
