//! Temporary shortages of several drives: their filesystem is full, or all of them fail writes.
//!
//! Nothing acknowledged may be lost. Meanwhile the pool may refuse to write, and to open; reads of existing
//! data succeed. Afterwards everything works as before, without a restart of the pool.

use super::{
    fixture::PoolFixture,
    violation::{PoolRefusal, PoolRunError},
};
use std::time::Duration;
use world::{Random, World, sim::FaultPlan};

#[derive(Clone, Debug, PartialEq)]
pub enum Shortage {
    /// The drives on one filesystem share its free blocks of 4 KiB.
    FullFilesystem {
        drives: Vec<usize>,
        /// Free blocks for all of them.
        free_blocks: u64,
    },
    /// Each drive finds no space for some of its writes, at any address.
    NoSpace {
        drives: Vec<usize>,
        /// Share of their writes.
        percent: f64,
    },
    FailedWrites {
        /// Share of their writes.
        percent: f64,
    },
}

/// A shortage with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortageEpisode {
    pub shortage: Shortage,
    /// Start; zero starts it before the pool is opened.
    pub after: Duration,
    pub lasts: Duration,
}

impl ShortageEpisode {
    /// Draws a shortage for a pool of `drive_count` drives. Data in one copy is lost with a failed drive, so
    /// no drive fails then.
    pub fn draw(random: &mut Random, drive_count: usize, has_raid0: bool) -> Self {
        let mut drives: Vec<usize> = (0..drive_count).collect();
        if random.percent(60.0) {
            drives.retain(|_| random.percent(50.0));
        }
        let few = random.below(10);
        let percent = [2.0, 10.0, 50.0][random.below(3) as usize];
        let shortage = match random.below(10) {
            0..=5 => Shortage::FullFilesystem { drives, free_blocks: random.below(1 << few) },
            6..=9 if has_raid0 => Shortage::NoSpace { drives, percent },
            6..=7 => Shortage::NoSpace { drives, percent },
            _ => Shortage::FailedWrites { percent },
        };
        let after = Duration::from_micros(1 << random.below(20));
        Self {
            shortage,
            after: if random.percent(25.0) { Duration::ZERO } else { after },
            lasts: Duration::from_micros(1 << (10 + random.below(16))),
        }
    }
}

impl PoolFixture {
    /// Starts and ends a shortage concurrently with the pool's work.
    pub(super) fn begin_shortage(&self, world: &World, shortage: ShortageEpisode) {
        let (fixture, own) = (self.clone(), world.clone());
        if shortage.after == Duration::ZERO {
            self.fall_short(&shortage.shortage);
        }
        world.spawn("shortage", async move {
            if shortage.after > Duration::ZERO {
                own.sleep(shortage.after).await;
                fixture.fall_short(&shortage.shortage);
            }
            own.sleep(shortage.lasts).await;
            fixture.end_shortage();
        });
    }

    fn fall_short(&self, shortage: &Shortage) {
        self.tell(format!("a shortage begins: {shortage:?}"));
        let set = |drives: &[usize], faults: FaultPlan| {
            drives.iter().for_each(|&drive| self.drives[drive].set_faults(faults.clone()));
        };
        match shortage {
            Shortage::FullFilesystem { drives, free_blocks } => {
                let filesystem = world::sim::SimFilesystem::new(*free_blocks);
                drives.iter().for_each(|&drive| self.drives[drive].put_on(Some(&filesystem)));
            }
            Shortage::NoSpace { drives, percent } => {
                set(drives, FaultPlan { no_space_percent: *percent, ..FaultPlan::none() });
            }
            Shortage::FailedWrites { percent } => {
                let all: Vec<usize> = (0..self.plan.drives.len()).collect();
                set(&all, FaultPlan { failed_write_percent: *percent, ..FaultPlan::none() });
            }
        }
    }

    /// Ends the shortage: there is space again, and every drive accepts writes.
    pub(super) fn end_shortage(&self) {
        for drive in self.drives.iter() {
            drive.put_on(None);
            drive.set_faults(FaultPlan::none());
        }
    }

    /// True if the shortage explains why the incarnation ended.
    pub(super) fn is_for(&self, shortage: &ShortageEpisode, error: &PoolRunError) -> bool {
        match (&shortage.shortage, error) {
            (_, PoolRunError::PoolViolation(_)) => false,
            (Shortage::FailedWrites { .. }, PoolRunError::Refused(_)) => true,
            (_, PoolRunError::Refused(refusal)) => refusal.is_for_space(),
        }
    }
}

impl PoolRefusal {
    /// True if the error reports drives without space.
    pub(super) fn is_for_space(&self) -> bool {
        self.what.contains("out of space")
    }
}
