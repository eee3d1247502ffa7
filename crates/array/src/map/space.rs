//! Space in use, by segment: what the versions of some part of the map take.

use crate::format::{Location, SegmentNumber};
use std::collections::BTreeMap;

/// Grains by segment: a sum, or a change of one. Invariants: no segment is listed with none; `total` is their
/// sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveGrains {
    segments: BTreeMap<SegmentNumber, i64>,
    total: i64,
}

impl LiveGrains {
    /// None anywhere.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts what lies at `location`, if that is in a segment.
    #[inline]
    pub fn add(&mut self, location: Location) {
        self.change(location, 1);
    }

    /// Counts it no more.
    #[inline]
    pub fn subtract(&mut self, location: Location) {
        self.change(location, -1);
    }

    /// Adds another count to this one.
    pub fn add_all(&mut self, other: &Self) {
        for (&segment, &grains) in &other.segments {
            self.change_by(segment, grains);
        }
    }

    /// Grains of one segment.
    pub fn of(&self, segment: SegmentNumber) -> i64 {
        self.segments.get(&segment).copied().unwrap_or(0)
    }

    /// All segments with their grains.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentNumber, i64)> {
        self.segments.iter().map(|(&segment, &grains)| (segment, grains))
    }

    /// Grains of all segments together.
    pub fn total(&self) -> i64 {
        debug_assert_eq!(self.total, self.segments.values().sum(), "grains of all segments");
        self.total
    }

    #[inline]
    fn change(&mut self, location: Location, sign: i64) {
        if let Location::Direct { segment, stored, .. } = location {
            self.change_by(segment, sign * i64::from(stored.grains()));
        }
    }

    fn change_by(&mut self, segment: SegmentNumber, grains: i64) {
        self.total += grains;
        let sum = self.segments.entry(segment).or_insert(0);
        *sum += grains;
        if *sum == 0 {
            self.segments.remove(&segment);
        }
    }
}
