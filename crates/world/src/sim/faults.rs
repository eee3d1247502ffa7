//! What a drive does wrong, and how often.
//!
//! A plan says with which probability an operation meets each fault. Two kinds of plan matter:
//!
//! * *within* what storage promises: slow, stuck until the host gives up, out of space. With power cuts, kills
//!   and reordering, which every drive does, these must be survived without loss.
//! * *beyond* it: rot, unreadable sectors, lost, misdirected and stale operations, flushes that fail or lie.
//!   Then nobody can promise the data; what remains is to answer with an error and never with wrong data.

use crate::{ByteCount, Random};
use std::time::Duration;

/// One thing gone wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The operation takes much longer than usual.
    Slow,
    /// The operation never completes.
    Stuck,
    /// A write needs space that there is not: of what is drawn at random a part is written, else nothing.
    NoSpace,
    /// A bit of what is read has changed on the medium, for good.
    BitRot,
    /// A sector of what is read can no longer be read until it is written again.
    Unreadable,
    /// A read is answered with what lies elsewhere.
    MisdirectedRead,
    /// A read is answered with what was there before the last write.
    StaleRead,
    /// A write is acknowledged and never happens.
    LostWrite,
    /// A write is acknowledged and happens elsewhere.
    MisdirectedWrite,
    /// A write fails, having been done in part.
    FailedWrite,
    /// A flush fails, and part of what it should have made stable never will be.
    FailedFlush,
    /// A flush is acknowledged and makes nothing stable.
    LyingFlush,
}

/// Probabilities of faults, in percent of the operations that can meet them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Reads, writes and flushes that are slow.
    pub slow_percent: f64,
    /// How long a slow operation takes on top.
    pub slow_span: Duration,
    /// Reads, writes and flushes that never complete.
    pub stuck_percent: f64,
    /// Blocks of 4 KiB that may be in use, whatever the drive's size; none: all of them.
    pub space: Option<ByteCount>,
    /// Writes that find no space wherever they go, as on a filesystem that copies on write.
    pub no_space_percent: f64,
    /// Reads that find rot.
    pub bit_rot_percent: f64,
    /// Reads that find an unreadable sector.
    pub unreadable_percent: f64,
    /// Misdirected reads.
    pub misdirected_read_percent: f64,
    /// Stale reads.
    pub stale_read_percent: f64,
    /// Lost writes.
    pub lost_write_percent: f64,
    /// Misdirected writes.
    pub misdirected_write_percent: f64,
    /// Failing writes.
    pub failed_write_percent: f64,
    /// Failing flushes.
    pub failed_flush_percent: f64,
    /// Lying flushes.
    pub lying_flush_percent: f64,
}

/// What an operation is, as far as faults go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Flush,
}

impl FaultPlan {
    /// A drive without faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether a correct user of the drive must survive every fault of this plan without loss.
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

    /// The fault one operation meets, if any. Draws as often for one plan as for another.
    pub(super) fn draw(&self, access: Access, random: &mut Random) -> Option<Fault> {
        let own: &[(Fault, f64)] = match access {
            Access::Read => &[
                (Fault::BitRot, self.bit_rot_percent),
                (Fault::Unreadable, self.unreadable_percent),
                (Fault::MisdirectedRead, self.misdirected_read_percent),
                (Fault::StaleRead, self.stale_read_percent),
            ],
            Access::Write => &[
                (Fault::LostWrite, self.lost_write_percent),
                (Fault::MisdirectedWrite, self.misdirected_write_percent),
                (Fault::FailedWrite, self.failed_write_percent),
                (Fault::NoSpace, self.no_space_percent),
            ],
            Access::Flush => &[
                (Fault::FailedFlush, self.failed_flush_percent),
                (Fault::LyingFlush, self.lying_flush_percent),
            ],
        };
        let any = [(Fault::Stuck, self.stuck_percent), (Fault::Slow, self.slow_percent)];
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
    fn faults_come_as_often_as_planned_and_only_where_they_belong() {
        let plan = FaultPlan { lost_write_percent: 10.0, slow_percent: 20.0, ..FaultPlan::none() };
        let mut random = Random::new(1, "faults");
        let mut count =
            |access, fault| (0..10_000).filter(|_| plan.draw(access, &mut random) == Some(fault)).count();
        assert!((900..1100).contains(&count(Access::Write, Fault::LostWrite)));
        assert!((1850..2150).contains(&count(Access::Read, Fault::Slow)));
        assert_eq!(count(Access::Read, Fault::LostWrite), 0);
        assert_eq!(count(Access::Flush, Fault::Stuck), 0);
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
