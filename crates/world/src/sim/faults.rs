//! Faults of a simulated drive and their probabilities.
//!
//! A plan gives the probability of each fault for an operation. Two kinds of plan matter:
//!
//! * *within* what storage promises: slow, stuck until the host gives up, out of space. With power cuts,
//!   kills and reordering, which every drive shows, these must be survived without loss.
//! * *beyond* it: bit rot, unreadable sectors, lost, misdirected and stale operations, flushes that fail or
//!   lie. No software can promise the data then; it must return an error and never wrong data.

use crate::{ByteCount, Random};
use std::time::Duration;

/// A kind of injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimFault {
    /// The operation takes much longer than usual.
    Slow,
    /// The operation never completes.
    Stuck,
    /// A write fails for lack of space: of a random failure a part is written, else nothing.
    NoSpace,
    /// A bit of the data read has flipped on the medium, for good.
    BitRot,
    /// A sector of the range becomes unreadable until it is written again.
    Unreadable,
    /// A read returns data from another address.
    MisdirectedRead,
    /// A read returns the contents before the last write.
    StaleRead,
    /// A write is acknowledged and never done.
    LostWrite,
    /// A write is acknowledged and done at another address.
    MisdirectedWrite,
    /// A write fails after it was done in part.
    FailedWrite,
    /// A flush fails, and part of the data it should have made stable never becomes stable.
    FailedFlush,
    /// A flush is acknowledged and makes nothing stable.
    LyingFlush,
}

/// Probabilities of faults, in percent of the operations they apply to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    pub slow_percent: f64,
    /// Additional time of a slow operation.
    pub slow_span: Duration,
    /// Reads, writes and flushes that never complete.
    pub stuck_percent: f64,
    /// Space for blocks of 4 KiB in use, whatever the drive's size; `None` for the whole size.
    pub space: Option<ByteCount>,
    /// Writes that find no space at any address, as on a copy-on-write filesystem.
    pub no_space_percent: f64,
    pub bit_rot_percent: f64,
    pub unreadable_percent: f64,
    pub misdirected_read_percent: f64,
    pub stale_read_percent: f64,
    pub lost_write_percent: f64,
    pub misdirected_write_percent: f64,
    pub failed_write_percent: f64,
    pub failed_flush_percent: f64,
    pub lying_flush_percent: f64,
}

/// The operation type, as far as faults go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Flush,
}

impl FaultPlan {
    pub fn none() -> Self {
        Self::default()
    }

    /// True if a correct user of the drive must survive every fault of this plan without loss.
    pub fn is_within_promises(&self) -> bool {
        let beyond = [
            self.bit_rot_percent,
            self.unreadable_percent,
            self.misdirected_read_percent,
            self.stale_read_percent,
            self.lost_write_percent,
            self.misdirected_write_percent,
            self.failed_write_percent,
            self.failed_flush_percent,
            self.lying_flush_percent,
        ];
        beyond.iter().all(|&percent| percent == 0.0)
    }

    /// The part of the plan that a correct user must survive.
    pub fn within_promises(&self) -> Self {
        let Self { slow_percent, slow_span, stuck_percent, space, no_space_percent, .. } = *self;
        Self { slow_percent, slow_span, stuck_percent, space, no_space_percent, ..Self::none() }
    }

    /// Draws the fault of one operation. Every plan takes the same number of draws.
    pub(super) fn draw(&self, access: Access, random: &mut Random) -> Option<SimFault> {
        let own: &[(SimFault, f64)] = match access {
            Access::Read => &[
                (SimFault::BitRot, self.bit_rot_percent),
                (SimFault::Unreadable, self.unreadable_percent),
                (SimFault::MisdirectedRead, self.misdirected_read_percent),
                (SimFault::StaleRead, self.stale_read_percent),
            ],
            Access::Write => &[
                (SimFault::LostWrite, self.lost_write_percent),
                (SimFault::MisdirectedWrite, self.misdirected_write_percent),
                (SimFault::FailedWrite, self.failed_write_percent),
                (SimFault::NoSpace, self.no_space_percent),
            ],
            Access::Flush => &[
                (SimFault::FailedFlush, self.failed_flush_percent),
                (SimFault::LyingFlush, self.lying_flush_percent),
            ],
        };
        let any = [(SimFault::Stuck, self.stuck_percent), (SimFault::Slow, self.slow_percent)];
        let mut left = random.unit() * 100.0;
        own.iter().chain(&any).find_map(|&(fault, percent)| {
            left -= percent;
            (left < 0.0).then_some(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_occur_with_their_probability_and_only_in_their_operations() {
        let plan = FaultPlan { lost_write_percent: 10.0, slow_percent: 20.0, ..FaultPlan::none() };
        let mut random = Random::new(1, "faults");
        let mut count =
            |access, fault| (0..10_000).filter(|_| plan.draw(access, &mut random) == Some(fault)).count();
        assert!((900..1100).contains(&count(Access::Write, SimFault::LostWrite)));
        assert!((1850..2150).contains(&count(Access::Read, SimFault::Slow)));
        assert_eq!(count(Access::Read, SimFault::LostWrite), 0);
        assert_eq!(count(Access::Flush, SimFault::Stuck), 0);
    }

    #[test]
    fn slow_and_full_is_within_promises_and_a_lie_is_not() {
        let slow = FaultPlan {
            slow_percent: 5.0,
            stuck_percent: 1.0,
            space: Some(ByteCount::mib(1)),
            ..FaultPlan::none()
        };
        assert!(slow.is_within_promises());
        let lying = FaultPlan { lying_flush_percent: 0.1, ..slow.clone() };
        assert!(!lying.is_within_promises());
        assert_eq!(lying.within_promises(), slow);
    }
}
