//! The fault atlas: what may go wrong with drives, and what a pool owes its callers all the same.
//!
//! * *Envelope*: power cuts and kills, and one drive, the same in all of a run, that is ill in any way, hangs, is absent, comes
//!   back stale or with another size, or is swapped for a blank one; that one may die in its turn. Of each block a good
//!   copy stays: nothing may be lost, nothing refused.
//! * *Beyond, and told*: several drives rot, misread or refuse writes. The pool may answer with errors. What it
//!   does say must be right.
//! * *Beyond, and untold*: several drives lose what they said was stable, or show what was there before. Nobody can
//!   know of that. What is read must still have been written, to that very place. So it is after an opening that read
//!   wrongly: a superblock that no drive gives back counts as never written, and the pool is that of the one before.

use std::time::Duration;
use world::{Random, sim::FaultPlan};

/// What drives may do to a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grade {
    /// Within the promise of two copies.
    #[default]
    Envelope,
    /// Beyond it.
    Beyond,
}

/// What is wrong with the one drive that may be ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ill {
    /// Every write fails from some moment on.
    Dies,
    /// Some writes fail.
    FailsWrites,
    /// Some flushes fail, and what they should have made stable is lost.
    FailsFlushes,
    /// Flushes are answered and do nothing.
    LiesAboutFlushes,
    /// Bits change.
    Rots,
    /// Sectors can no longer be read.
    Unreadable,
    /// Reads give what lies elsewhere.
    MisdirectsReads,
    /// Reads give what was there before.
    ReadsStale,
    /// Writes are answered and not done.
    LosesWrites,
    /// Writes are answered and done elsewhere.
    MisdirectsWrites,
    /// It is slow.
    Slow,
    /// It does not answer, or not always.
    Stuck,
    /// It is not there when the pool is opened.
    Absent,
    /// It comes back with fewer bytes than it had.
    Smaller,
    /// It comes back with more.
    Larger,
    /// It is gone for good, and there is a blank one in its place.
    Swapped,
}

impl Ill {
    /// All of them.
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

    /// One of them; those that change the pool's membership more often.
    pub fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0..=1 => Self::Dies,
            2 => Self::Absent,
            3 => Self::Swapped,
            _ => Self::ALL[random.below(Self::ALL.len() as u64) as usize],
        }
    }

    /// Whether what the drive has written, and says nothing about, may be wrong then.
    pub fn does_damage(self) -> bool {
        match self {
            Self::Rots | Self::LosesWrites | Self::MisdirectsWrites | Self::LiesAboutFlushes => true,
            // Who reads wrongly has the wrong thing written again where it was right.
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

    /// What the drive does then.
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

/// Faults of all drives, beyond what two copies promise; and whether they may take away what was stable.
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
