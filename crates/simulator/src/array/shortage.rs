//! What goes wrong with several drives at once, for a while: the filesystem they lie on is full, or all of them fail writes.
//!
//! Nothing that was acknowledged may be lost by it. While it lasts the pool may refuse to write, and to open; what it holds is
//! read all the same. Once it is over all is as before, also if the pool has run all the time.

use super::{
    ground::Ground,
    trouble::{Refusal, Trouble},
};
use std::time::Duration;
use world::{Random, World, sim::FaultPlan};

/// What drives have in common for a while.
#[derive(Clone, Debug, PartialEq)]
pub enum Shortage {
    /// Those of these drives that lie on one filesystem share so many blocks of 4 KiB that are free.
    FullFilesystem {
        /// Which.
        drives: Vec<usize>,
        /// Free for all of them.
        free_blocks: u64,
    },
    /// Every one of these finds no space for some of its writes, wherever they go.
    NoSpace {
        /// Which.
        drives: Vec<usize>,
        /// Of their writes.
        percent: f64,
    },
    /// All drives fail some of their writes.
    FailedWrites {
        /// Of their writes.
        percent: f64,
    },
}

/// When there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Spell {
    /// Of what.
    pub shortage: Shortage,
    /// From when on; from before the pool is opened if there is nothing to wait for.
    pub after: Duration,
    /// For so long.
    pub lasts: Duration,
}

impl Spell {
    /// One for a pool of so many drives. What rests in one copy goes with a drive that fails, and no drive fails then.
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

impl Ground {
    /// Lets a spell come and go, beside whatever the pool does meanwhile.
    pub(super) fn begin_spell(&self, world: &World, spell: Spell) {
        let (ground, own) = (self.clone(), world.clone());
        if spell.after == Duration::ZERO {
            self.fall_short(&spell.shortage);
        }
        world.spawn("shortage", async move {
            if spell.after > Duration::ZERO {
                own.sleep(spell.after).await;
                ground.fall_short(&spell.shortage);
            }
            own.sleep(spell.lasts).await;
            ground.end_shortage();
        });
    }

    fn fall_short(&self, shortage: &Shortage) {
        self.tell(format!("a shortage begins: {shortage:?}"));
        let set = |drives: &[usize], faults: FaultPlan| {
            drives.iter().for_each(|&drive| self.drives[drive].set_faults(faults.clone()));
        };
        match shortage {
            Shortage::FullFilesystem { drives, free_blocks } => {
                let filesystem = world::sim::Filesystem::new(*free_blocks);
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

    /// There is room again, and every drive takes what is written to it.
    pub(super) fn end_shortage(&self) {
        for drive in self.drives.iter() {
            drive.put_on(None);
            drive.set_faults(FaultPlan::none());
        }
    }

    /// Whether an incarnation may have ended with this for the shortage it had.
    pub(super) fn is_for(&self, spell: &Spell, trouble: &Trouble) -> bool {
        match (&spell.shortage, trouble) {
            (_, Trouble::Violation(_)) => false,
            (Shortage::FailedWrites { .. }, Trouble::Refused(_)) => true,
            (_, Trouble::Refused(refusal)) => refusal.is_for_space(),
        }
    }
}

impl Refusal {
    /// Whether it says that drives have no space.
    pub(super) fn is_for_space(&self) -> bool {
        self.what.contains("out of space")
    }
}
