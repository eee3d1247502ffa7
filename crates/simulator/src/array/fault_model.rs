//! The fault model: the faults of drives, and the guarantees of a pool under them.
//!
//! * *Envelope*: power cuts and kills, and one drive, the same throughout a run, that is faulty in any way,
//!   hangs, is absent, returns stale or with another size, or is replaced by a blank one; the replacement may
//!   fail in turn. A good copy of each block remains: nothing may be lost, nothing refused.
//! * *Beyond, detectable*: several drives rot, misread or refuse writes. The pool may return errors. Data it
//!   does return must be right.
//! * *Beyond, undetectable*: several drives lose writes they reported as stable, or return older contents.
//!   The pool cannot know. Data it returns must still have been written, to that very address. The same holds
//!   after an opening that misread: a superblock that no drive returns counts as never written, and the pool
//!   continues from the one before.

use std::time::Duration;
use world::{Random, sim::FaultPlan};

/// The severity of drive faults in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolFaultGrade {
    /// Faults that two copies tolerate.
    #[default]
    Envelope,
    /// Faults beyond that.
    Beyond,
}

/// The fault of the one drive that may be faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriveFault {
    /// Every write fails from some moment on.
    Dies,
    /// Some writes fail.
    FailsWrites,
    /// Some flushes fail, and what they should have made stable is lost.
    FailsFlushes,
    /// Flushes are acknowledged and do nothing.
    LiesAboutFlushes,
    /// Bits change.
    Rots,
    /// Sectors can no longer be read.
    Unreadable,
    /// Reads return data from another address.
    MisdirectsReads,
    /// Reads return older contents.
    ReadsStale,
    /// Writes are acknowledged and not done.
    LosesWrites,
    /// Writes are acknowledged and done at another address.
    MisdirectsWrites,
    Slow,
    /// Some or all operations never complete.
    Stuck,
    /// It is absent when the pool is opened.
    Absent,
    /// It returns with fewer bytes.
    Smaller,
    /// It returns with more bytes.
    Larger,
    /// It is gone for good, and a blank drive takes its place.
    Swapped,
}

impl DriveFault {
    pub const ALL: [Self; 16] = [
        Self::Dies,
        Self::FailsWrites,
        Self::FailsFlushes,
        Self::LiesAboutFlushes,
        Self::Rots,
        Self::Unreadable,
        Self::MisdirectsReads,
        Self::ReadsStale,
        Self::LosesWrites,
        Self::MisdirectsWrites,
        Self::Slow,
        Self::Stuck,
        Self::Absent,
        Self::Smaller,
        Self::Larger,
        Self::Swapped,
    ];

    /// Draws a fault; those that change the pool's membership come more often.
    pub fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0..=1 => Self::Dies,
            2 => Self::Absent,
            3 => Self::Swapped,
            _ => Self::ALL[random.below(Self::ALL.len() as u64) as usize],
        }
    }

    /// True if data the drive has written may be wrong without an error.
    pub fn does_damage(self) -> bool {
        match self {
            Self::Rots | Self::LosesWrites | Self::MisdirectsWrites | Self::LiesAboutFlushes => true,
            // A misread may be written back in place of right data.
            Self::MisdirectsReads | Self::ReadsStale => true,
            Self::Dies
            | Self::FailsWrites
            | Self::FailsFlushes
            | Self::Unreadable
            | Self::Slow
            | Self::Stuck
            | Self::Absent
            | Self::Smaller
            | Self::Larger
            | Self::Swapped => false,
        }
    }

    /// The fault plan of the drive.
    pub fn faults(self, random: &mut Random) -> FaultPlan {
        let none = FaultPlan::none();
        let percent = random.unit() * [1.0, 5.0, 40.0][random.below(3) as usize];
        match self {
            Self::Dies => FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..none },
            Self::FailsWrites => FaultPlan { failed_write_percent: percent, ..none },
            Self::FailsFlushes => FaultPlan { failed_flush_percent: percent, ..none },
            Self::LiesAboutFlushes => FaultPlan { lying_flush_percent: percent, ..none },
            Self::Rots => FaultPlan { bit_rot_percent: percent, ..none },
            Self::Unreadable => FaultPlan { unreadable_percent: percent, ..none },
            Self::MisdirectsReads => FaultPlan { misdirected_read_percent: percent, ..none },
            Self::ReadsStale => FaultPlan { stale_read_percent: percent, ..none },
            Self::LosesWrites => FaultPlan { lost_write_percent: percent, ..none },
            Self::MisdirectsWrites => FaultPlan { misdirected_write_percent: percent, ..none },
            Self::Slow => {
                let slow_span = Duration::from_millis(1 << random.below(12));
                FaultPlan { slow_percent: percent, slow_span, ..none }
            }
            Self::Stuck => {
                let stuck_percent = if random.percent(50.0) { 100.0 } else { percent };
                FaultPlan { stuck_percent, ..none }
            }
            Self::Absent | Self::Smaller | Self::Larger | Self::Swapped => none,
        }
    }
}

/// Faults of all drives beyond the tolerance of two copies, and whether they may remove stable data.
pub fn draw_faults_beyond(random: &mut Random) -> (FaultPlan, bool) {
    let mut draw = |most: f64| if random.percent(40.0) { random.unit() * most } else { 0.0 };
    let mut faults = FaultPlan {
        bit_rot_percent: draw(2.0),
        unreadable_percent: draw(2.0),
        misdirected_read_percent: draw(2.0),
        failed_write_percent: draw(1.0),
        ..FaultPlan::none()
    };
    let is_untold = random.percent(50.0);
    if is_untold {
        match random.below(5) {
            0 => faults.lost_write_percent = 5.0 * random.unit(),
            1 => faults.misdirected_write_percent = 3.0 * random.unit(),
            2 => faults.stale_read_percent = 5.0 * random.unit(),
            3 => faults.lying_flush_percent = 100.0 * random.unit(),
            _ => faults.failed_flush_percent = 20.0 * random.unit(),
        }
    }
    (faults, is_untold)
}
