//! What comes right by itself once nothing disturbs: copies that were lost, copies that are wrong, space nobody needs.

use super::{
    foreign::Copies,
    ground::Ground,
    model::Presence,
    trouble::{Refusal, Trouble, Violation},
};
use array::pool::Pool;
use std::{rc::Rc, time::Duration};
use world::World;

/// Looks at what a pool does by itself, before it counts as not done.
const LOOKS_MAX: u32 = 20;
/// Bytes of a block of the pool.
const BLOCK_BYTES: u64 = 4096;
/// Time between two of them.
const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Ground {
    /// Every block has two copies again, if there are drives for them; and all copies are right.
    pub async fn heal(&self, world: &World, pool: &Rc<Pool>) -> Result<(), Trouble> {
        // Where the drives that are left have no room for all copies, one is all there is of some data.
        let is_whole = || pool.degraded().segments == 0 || self.plan.is_tight && has_no_room(pool);
        if !wait_until(world, pool, is_whole).await? {
            return Err(Violation::NotConverged(format!("{:?}", pool.degraded())).into());
        }
        // A pass that mends something may leave a place that only the next generation of superblocks comes to.
        for is_last in [false, false, true] {
            let scrubbed = pool.scrub().await.map_err(|error| Refusal::in_reserve("scrubbing", &error))?;
            if !scrubbed.lost.is_empty() || is_last && scrubbed.repaired > 0 {
                return Err(Violation::NotConverged(format!("{scrubbed:?}")).into());
            }
            self.tally.borrow_mut().mended += scrubbed.repaired;
            if scrubbed.repaired == 0 {
                break;
            }
        }
        match self.copies.get() {
            Copies::One => self.copies.set(Copies::AllButHeaders),
            // Copies whose headers found no space were given up, and made good.
            Copies::AllButSomeHeaders => self.copies.set(Copies::All),
            Copies::All | Copies::AllButHeaders => {}
        }
        self.check_bounds(pool).await?;
        self.tell("healed".to_owned());
        Ok(())
    }

    /// No volume without snapshots takes more than the most it was ever allowed; what was overwritten counts until the next
    /// checkpoint, and the end of one that became smaller is written without being asked for.
    async fn check_bounds(&self, pool: &Rc<Pool>) -> Result<(), Trouble> {
        let made = pool.checkpoint().await;
        made.map_err(|error| Refusal::in_reserve("making a checkpoint", &error))?;
        let limited: Vec<_> = {
            let model = self.model.borrow();
            let there = model.usable().into_iter().map(|key| &model.volumes[&key]);
            there
                .filter(|volume| !volume.was_cut)
                .filter_map(|volume| Some((volume.name.clone(), volume.limit_most?, volume.resizes)))
                .collect()
        };
        for (name, limit, resizes) in limited {
            let used = pool.used_by(&name).await;
            let used = used.map_err(|error| Refusal::in_reserve("counting what a volume takes", &error))?;
            if used > limit + resizes * BLOCK_BYTES {
                let what = format!("{name} takes {used} bytes, and may take {limit}");
                return Err(Violation::NotRefused(what).into());
            }
        }
        Ok(())
    }

    /// Deletes everything: all the space it took comes back.
    pub async fn empty(self, world: World) -> Result<(), Trouble> {
        let mut random = world.random("emptying");
        let pool = self.open(&world, &mut random, &[]).await?;
        self.check_catalogue(&pool)?;
        for volume in pool.volumes() {
            let deleted = pool.delete_volume(&volume.name, true).await;
            deleted.map_err(|error| Refusal::in_reserve("deleting a volume", &error))?;
        }
        for volume in self.model.borrow_mut().volumes.values_mut() {
            volume.presence = Presence::Gone;
        }
        let is_empty = || pool.space().used_bytes == 0;
        if !wait_until(&world, &pool, is_empty).await? {
            return Err(Violation::NotConverged(format!("all is deleted, and {:?}", pool.space())).into());
        }
        self.tell("emptied".to_owned());
        Ok(())
    }
}

fn has_no_room(pool: &Pool) -> bool {
    let space = pool.space();
    space.free <= space.reserve / 2
}

async fn wait_until(world: &World, pool: &Pool, is_done: impl Fn() -> bool) -> Result<bool, Trouble> {
    for _ in 0..LOOKS_MAX {
        if is_done() {
            return Ok(true);
        }
        world.sleep(LOOK_EVERY).await;
        let made = pool.checkpoint().await;
        made.map_err(|error| Refusal::in_reserve("making a checkpoint", &error))?;
    }
    Ok(is_done())
}
