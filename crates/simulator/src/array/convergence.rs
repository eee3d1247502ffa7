//! Self-healing without disturbance: lost copies, wrong copies and unused space are fixed.

use super::{
    fixture::PoolFixture,
    independent_reader::CopyRule,
    model::Presence,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    pool::{Pool, VolumeInfo},
};
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use world::World;

/// Polls of background work before it counts as stuck.
const LOOKS_MAX: u32 = 20;
const BLOCK_BYTES: u64 = 4096;
/// Time between two polls.
const LOOK_EVERY: Duration = Duration::from_secs(30);

impl PoolFixture {
    /// Waits until every block has all its copies, as far as there are drives for them, and all copies are
    /// right.
    pub async fn heal(&self, world: &World, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        if !self.plan.growth.is_empty() {
            self.grow_all(pool).await?;
        }
        // Where the remaining drives have no space for all copies, some data has one only.
        // While room for a lost drive is still kept, those lost before had theirs.
        let may_lack = || self.plan.is_tight && has_no_room(pool) && pool.sparing().kept_drives == 0;
        let is_whole = || pool.degraded().segments == 0 || may_lack();
        if !wait_until(world, pool, is_whole).await? {
            return Err(PoolViolation::NotConverged(format!("{:?}", pool.degraded())).into());
        }
        if !wait_until(world, pool, || self.have_left(pool)).await? {
            return Err(PoolViolation::NotConverged(format!("{:?}", pool.leaving())).into());
        }
        let is_apart = || !self.plan.keeps_apart() || pool.segments_in_one_domain() == 0;
        if !wait_until(world, pool, is_apart).await? {
            return Err(PoolViolation::NotConverged(format!("{:?}", pool.domains())).into());
        }
        // No move into a set puts copies into fewer domains, so with domains some may stay across.
        let may_stay = self.plan.has_domains && self.plan.drive_changes;
        let is_in_sets = || !self.plan.has_sets || may_stay || pool.segments_across_sets() == 0;
        if !wait_until(world, pool, is_in_sets).await? {
            return Err(PoolViolation::NotConverged(format!("{:?}", pool.failure_sets())).into());
        }
        // A scrub pass that fixes something may leave a superblock place to the next generation.
        for is_last in [false, false, true] {
            let scrubbed =
                pool.scrub().await.map_err(|error| PoolRefusal::in_reserve("scrubbing", &error))?;
            if !scrubbed.lost.is_empty() || is_last && scrubbed.repaired > 0 {
                return Err(PoolViolation::NotConverged(format!("{scrubbed:?}")).into());
            }
            self.tally.borrow_mut().fixed += scrubbed.repaired;
            if scrubbed.repaired == 0 {
                break;
            }
        }
        match self.copies.get() {
            CopyRule::One => self.copies.set(CopyRule::AllButHeaders),
            // CopyRule whose headers found no space were dropped and rebuilt.
            CopyRule::AllButSomeHeaders => self.copies.set(CopyRule::All),
            CopyRule::All | CopyRule::AllButHeaders => {}
        }
        self.check_bounds(pool).await?;
        if self.plan.fills {
            self.finish_fillings(world, pool).await?;
        }
        self.tell("healed".to_owned());
        Ok(())
    }

    /// Waits until every clone that is being filled is independent, waits for a snapshot of its own, or has no
    /// room.
    async fn finish_fillings(&self, world: &World, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        let filling = || pool.volumes().into_iter().filter(|info| info.filling.is_some());
        let mut refused = BTreeSet::new();
        for info in filling() {
            match pool.fill_volume(&info.name).await {
                // A full pool begins none.
                Err(Error::Full) if self.plan.is_tight => _ = refused.insert(info.name),
                begun => begun.map_err(|error| PoolRefusal::of_pool("filling a volume", &error))?,
            }
        }
        let goes_on = |info: &VolumeInfo| {
            info.filling.as_ref().is_some_and(|filling| {
                let has_no_room =
                    filling.problem.is_some() && (self.plan.is_tight || self.model.borrow().is_bounded);
                filling.waits_for.is_none() && !has_no_room && !refused.contains(&info.name)
            })
        };
        if !wait_until(world, pool, || !filling().any(|info| goes_on(&info))).await? {
            let left: Vec<_> = filling().collect();
            return Err(PoolViolation::NotConverged(format!("{left:?}")).into());
        }
        Ok(())
    }

    /// No volume without snapshots exceeds the largest limit it ever had. Overwritten data counts until the
    /// next checkpoint, and a shrink writes its last block without a host's command.
    async fn check_bounds(&self, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        let made = pool.checkpoint().await;
        made.map_err(|error| PoolRefusal::in_reserve("making a checkpoint", &error))?;
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
            let used =
                used.map_err(|error| PoolRefusal::in_reserve("counting what a volume takes", &error))?;
            if used > limit + resizes * BLOCK_BYTES {
                let what = format!("{name} takes {used} bytes, and may take {limit}");
                return Err(PoolViolation::NotRefused(what).into());
            }
        }
        Ok(())
    }

    /// Deletes everything and checks that all space is free again.
    pub async fn empty(self, world: World) -> Result<(), PoolRunError> {
        let mut random = world.random("emptying");
        let pool = self.open(&world, &mut random, &[]).await?;
        self.check_catalogue(&pool)?;
        for group in pool.groups() {
            let deleted = pool.delete_group(group.group).await;
            deleted.map_err(|error| PoolRefusal::in_reserve("deleting a group", &error))?;
        }
        for volume in pool.volumes() {
            let deleted = pool.delete_volume(&volume.name, true).await;
            deleted.map_err(|error| PoolRefusal::in_reserve("deleting a volume", &error))?;
        }
        for volume in self.model.borrow_mut().volumes.values_mut() {
            volume.presence = Presence::Gone;
        }
        self.model.borrow_mut().groups.clear();
        let is_empty = || pool.space().used_bytes == 0;
        if !wait_until(&world, &pool, is_empty).await? {
            return Err(PoolViolation::NotConverged(format!("all is deleted, and {:?}", pool.space())).into());
        }
        self.tell("emptied".to_owned());
        Ok(())
    }
}

fn has_no_room(pool: &Pool) -> bool {
    let space = pool.space();
    space.free <= space.reserve / 2 + space.spare
}

async fn wait_until(world: &World, pool: &Pool, is_done: impl Fn() -> bool) -> Result<bool, PoolRunError> {
    for _ in 0..LOOKS_MAX {
        if is_done() {
            return Ok(true);
        }
        world.sleep(LOOK_EVERY).await;
        let made = pool.checkpoint().await;
        made.map_err(|error| PoolRefusal::in_reserve("making a checkpoint", &error))?;
    }
    Ok(is_done())
}
