//! What comes right by itself once nothing disturbs: copies that were lost, copies that are wrong, space nobody needs.

use super::{
    ground::Ground,
    model::Presence,
    trouble::{Refusal, Trouble, Violation},
};
use array::pool::Pool;
use std::{rc::Rc, time::Duration};
use world::World;

/// Looks at what a pool does by itself, before it counts as not done.
const LOOKS_MAX: u32 = 20;
/// Time between two of them.
const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Ground {
    /// Every block has two copies again, if there are drives for them; and all copies are right.
    pub async fn heal(&self, world: &World, pool: &Rc<Pool>) -> Result<(), Trouble> {
        // Of two drives the other one is all there is.
        if self.drives.len() > 2 {
            let is_whole = || pool.degraded().segments == 0;
            if !wait_until(world, pool, is_whole).await? {
                return Err(Violation::NotConverged(format!("{:?}", pool.degraded())).into());
            }
        }
        for is_first in [true, false] {
            let scrubbed = pool.scrub().await.map_err(|error| Refusal::in_reserve("scrubbing", &error))?;
            if !scrubbed.lost.is_empty() || !is_first && scrubbed.mended > 0 {
                return Err(Violation::NotConverged(format!("{scrubbed:?}")).into());
            }
            self.tally.borrow_mut().mended += scrubbed.mended;
        }
        self.tell("healed".to_owned());
        Ok(())
    }

    /// Deletes everything: all the space it took comes back.
    pub async fn empty(self, world: World) -> Result<(), Trouble> {
        let mut random = world.random("emptying");
        let pool = self.open(&world, &mut random, None).await?;
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
