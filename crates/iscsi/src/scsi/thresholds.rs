//! Provisioning thresholds (SBC-3, 4.7.3.8): a unit attention warns initiators when the pool's free space
//! runs low.
//!
//! Invariants:
//!
//! 1. A threshold fires once when usage reaches it from below, and again only after usage was below it.
//! 2. A disabled threshold, or any while LBPERE is off, does not fire, and does not fire later for a crossing
//!    it missed.

use std::{cell::Cell, rc::Rc};
use world::ByteCount;

/// Thresholds of a unit.
pub const THRESHOLDS: usize = 3;
/// Bytes of a threshold set, the unit of thresholds and of the provisioning log page.
pub const SET_BYTES: u64 = 1 << 20;
/// Bytes of the mode page before its descriptors, and of one descriptor.
const HEAD_BYTES: usize = 16;
const DESCRIPTOR_BYTES: usize = 8;
/// First byte of a threshold descriptor.
const ENABLED: u8 = 0x80;

/// Used space of the pool a unit allocates from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Bytes used by all its volumes.
    pub used: ByteCount,
    /// Usable bytes of the pool.
    pub total: ByteCount,
}

impl SpaceUsage {
    /// Used threshold sets, rounded: a threshold lies in the middle of its set.
    pub fn sets_used(&self) -> u32 {
        sets(self.used.0 + SET_BYTES / 2)
    }

    /// Available threshold sets.
    pub fn sets_available(&self) -> u32 {
        sets(self.total.0).saturating_sub(self.sets_used())
    }
}

fn sets(bytes: u64) -> u32 {
    u32::try_from(bytes / SET_BYTES).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub is_enabled: bool,
    /// Fires when this many threshold sets are used.
    pub sets: u32,
}

/// Threshold settings of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// LBPERE: thresholds fire at all.
    pub is_reporting: bool,
    /// SITUA: only the nexus whose command detects the crossing gets the unit attention.
    pub tells_one: bool,
    pub each: [Threshold; THRESHOLDS],
}

impl Thresholds {
    /// Enabled thresholds at `percents` of `total`.
    pub fn at(percents: [u8; THRESHOLDS], total: ByteCount) -> Self {
        let threshold = |percent| {
            let bytes = total.0 / 100 * u64::from(percent);
            Threshold { is_enabled: true, sets: sets(bytes + SET_BYTES / 2).max(1) }
        };
        Self { is_reporting: true, tells_one: false, each: percents.map(threshold) }
    }

    /// The logical block provisioning mode page (SBC-3, 6.5.9).
    pub fn page(&self) -> Vec<u8> {
        // Threshold type: used resources, rising.
        const INCREASING: u8 = 0x01;
        const USED: u8 = 0x02;
        let mut page = vec![0x5c, 0x02, 0, 0, u8::from(self.tells_one)];
        page.resize(HEAD_BYTES, 0);
        for threshold in self.each {
            let enabled = if threshold.is_enabled { ENABLED } else { 0 };
            page.extend([enabled | INCREASING, USED, 0, 0]);
            page.extend(threshold.sets.to_be_bytes());
        }
        page[3] = page.len() as u8 - 4;
        page
    }

    /// The changeable values of the mode page.
    pub fn changeable_page(&self) -> Vec<u8> {
        let mut page = self.page();
        page[4..].fill(0);
        page[4] = 1;
        for descriptor in page[HEAD_BYTES..].chunks_mut(DESCRIPTOR_BYTES) {
            descriptor[0] = ENABLED;
            descriptor[4..].fill(0xff);
        }
        page
    }

    /// The settings in a mode page, whose layout was checked.
    pub fn with_page(&self, page: &[u8]) -> Self {
        assert_eq!(page.len(), self.page().len(), "its form was checked");
        let mut changed = Self { tells_one: page[4] & 1 == 1, ..*self };
        for (threshold, descriptor) in
            changed.each.iter_mut().zip(page[HEAD_BYTES..].chunks(DESCRIPTOR_BYTES))
        {
            let sets = descriptor[4..].try_into().expect("four bytes");
            *threshold =
                Threshold { is_enabled: descriptor[0] & ENABLED != 0, sets: u32::from_be_bytes(sets) };
        }
        changed
    }
}

/// Detects crossings of thresholds.
pub struct ThresholdMonitor {
    fill: Rc<dyn Fn() -> SpaceUsage>,
    /// Thresholds that usage is below of.
    armed: Cell<[bool; THRESHOLDS]>,
}

impl ThresholdMonitor {
    /// `fill` returns the current usage.
    pub fn new(fill: Rc<dyn Fn() -> SpaceUsage>) -> Self {
        Self { fill, armed: Cell::new([true; THRESHOLDS]) }
    }

    pub fn fill(&self) -> SpaceUsage {
        (self.fill)()
    }

    /// Thresholds were changed: each fires if usage is, or gets, at or above it.
    pub fn rearm(&self) {
        self.armed.set([true; THRESHOLDS]);
    }

    /// True if usage has reached an enabled threshold since the last call.
    pub fn is_reached(&self, thresholds: &Thresholds) -> bool {
        let used = self.fill().sets_used();
        let mut armed = self.armed.get();
        let mut is_reached = false;
        for (armed, threshold) in armed.iter_mut().zip(thresholds.each) {
            let is_beyond = used >= threshold.sets;
            is_reached |= is_beyond && *armed && threshold.is_enabled;
            *armed = !is_beyond;
        }
        self.armed.set(armed);
        is_reached && thresholds.is_reporting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_threshold_fires_once_for_each_crossing() {
        let used = Rc::new(Cell::new(0));
        let seen = Rc::clone(&used);
        let fill = move || SpaceUsage { used: ByteCount(seen.get() * MIB), total: ByteCount(1000 * MIB) };
        let watch = ThresholdMonitor::new(Rc::new(fill));
        let thresholds = Thresholds::at([80, 90, 95], ByteCount(1000 * MIB));
        let mut told = Vec::new();
        for at in [0, 799, 800, 850, 800, 900, 910, 799, 800, 949, 950, 1000, 100, 1000] {
            used.set(at);
            if watch.is_reached(&thresholds) {
                told.push(at);
            }
            assert!(!watch.is_reached(&thresholds), "nothing has changed");
        }
        assert_eq!(told, [800, 900, 800, 949, 950, 1000], "949 is beyond 90 %, and 799 was below");
    }

    #[test]
    fn a_disabled_threshold_does_not_fire_later() {
        let used = Rc::new(Cell::new(0));
        let seen = Rc::clone(&used);
        let watch = ThresholdMonitor::new(Rc::new(move || SpaceUsage {
            used: ByteCount(seen.get()),
            total: ByteCount(1000 * MIB),
        }));
        let on = Thresholds::at([80, 90, 95], ByteCount(1000 * MIB));
        let mut without_first = on;
        without_first.each[0].is_enabled = false;
        let silent = Thresholds { is_reporting: false, ..on };
        used.set(820 * MIB);
        assert!(!watch.is_reached(&without_first) && !watch.is_reached(&on));
        used.set(920 * MIB);
        assert!(!watch.is_reached(&silent) && !watch.is_reached(&on));
        used.set(960 * MIB);
        assert!(watch.is_reached(&on));
        watch.rearm();
        assert!(watch.is_reached(&on));
    }

    #[test]
    fn mode_pages_hold_the_thresholds() {
        let thresholds = Thresholds::at([80, 90, 95], ByteCount(10 << 30));
        let page = thresholds.page();
        assert_eq!((page.len(), &page[..4]), (40, &[0x5c, 0x02, 0, 36][..]));
        assert_eq!(page[16..24], [0x81, 0x02, 0, 0, 0, 0, 0x20, 0x00], "8192 MiB are used");
        assert_eq!(thresholds.with_page(&page), thresholds);
        let mut other = page.clone();
        (other[4], other[16], other[39]) = (1, 0x01, 7);
        let set = thresholds.with_page(&other);
        assert!(set.tells_one && !set.each[0].is_enabled && set.each[1].is_enabled);
        assert_eq!(set.page(), other);
        let changed: Vec<usize> = (0..40).filter(|&at| other[at] != page[at]).collect();
        let may = thresholds.changeable_page();
        assert!(changed.iter().all(|&at| may[at] != 0), "{changed:?}");
        let tiny = Thresholds::at([80, 90, 95], ByteCount(1000));
        assert!(tiny.each.iter().all(|threshold| threshold.sets == 1), "nothing is never beyond");
    }
}
