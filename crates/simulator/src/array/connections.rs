//! Drives on other machines: their connections break, one or all at once, and their servers may lose what was not
//! flushed. As long as each comes back within the pool's patience, no drive is lost.

use super::{
    fixture::PoolFixture,
    violation::{PoolRunError, PoolViolation},
};
use array::pool::Pool;
use std::{rc::Rc, time::Duration};
use world::{BlockDevice, Random, World, kept_writes::KeptWrites};

/// A third of the pool's patience: an operation may meet two breaks in a row.
const BREAK_MAX: Duration = Duration::from_secs(10);

/// Of the breaks, those of all drives at once.
const ALL_AT_ONCE_PERCENT: f64 = 30.0;

impl PoolFixture {
    /// The device as a pool gets it: from another machine, if the plan says so.
    pub(super) fn reached(&self, world: &World, device: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        if self.plan.remote { Rc::new(KeptWrites::new(world, device)) } else { device }
    }

    /// Breaks connections until the incarnation ends.
    pub(super) async fn break_connections(self, world: World, mut random: Random) {
        loop {
            world.sleep(Duration::from_micros(1 << random.below(22))).await;
            let span = Duration::from_micros(1 << random.below(24)).min(BREAK_MAX);
            let all_at_once = random.percent(ALL_AT_ONCE_PERCENT);
            let one = random.below(self.drives.len() as u64) as usize;
            for (_, drive) in self.drives.iter().enumerate().filter(|(index, _)| all_at_once || *index == one)
            {
                drive.break_connection(span);
            }
            let which = if all_at_once { "all drives".to_owned() } else { format!("drive {one}") };
            self.tell(format!("the connection of {which} breaks for {span:?}"));
            self.tally.borrow_mut().connections_broken += 1;
            world.sleep(span).await;
        }
    }

    /// Checks that a pool has lost none of `before` drives.
    pub(super) fn check_none_lost(&self, pool: &Pool, before: usize) -> Result<(), PoolRunError> {
        let now = pool.drives_present();
        if now >= before {
            return Ok(());
        }
        let what = format!("a broken connection cost a drive: {now} of {before} are left");
        Err(PoolViolation::Catalogue(what).into())
    }
}
