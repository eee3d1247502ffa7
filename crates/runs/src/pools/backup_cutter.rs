//! Cuts over both pools of a group, for backups: a snapshot of every volume, at one moment.

use array::{
    error::Error,
    format::SnapshotId,
    pool::{CutMember, NewSnapshot, Pool},
};
use protect::backup::{BackupCutter, StepError, StepResult};
use std::rc::Rc;
use world::{LocalFuture, Moment, World};

use super::make::uuid;

/// A pool is not cut any more when so much of it is used, in percent: cuts keep space.
const FULL_PERCENT: u64 = 90;

/// The volumes of one pool that are part of a cut.
#[derive(Clone)]
pub struct CutPool {
    pub pool: Rc<Pool>,
    pub volumes: Vec<String>,
}

pub struct GroupCutter {
    pub world: World,
    pub pools: [CutPool; 2],
}

impl CutPool {
    fn is_full(&self) -> bool {
        let space = self.pool.space();
        space.used_bytes * 100 >= space.usable_bytes * FULL_PERCENT
    }

    async fn take_part(&self, name: &str, snapshot: SnapshotId, part: CutMember) -> StepResult {
        let volumes: Vec<&str> = self.volumes.iter().map(String::as_str).collect();
        let new = NewSnapshot { name, snapshot, note: b"" };
        self.pool.take_part_in_cut(&volumes, &new, part).await.map(drop).map_err(in_words)
    }

    async fn remove(&self, name: &str) -> StepResult {
        for volume in &self.volumes {
            let is_there = self.pool.snapshots(&**volume).map_err(in_words)?;
            if is_there.iter().any(|snapshot| snapshot.name == name) {
                self.pool.delete_snapshot(&**volume, name).await.map_err(in_words)?;
            }
        }
        Ok(())
    }
}

impl BackupCutter for GroupCutter {
    /// A cut over pools holds the answers of all of them itself.
    fn hold(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn cut(&self, name: &str, deadline: Moment) -> LocalFuture<StepResult> {
        let (world, pools, name) = (self.world.clone(), self.pools.clone(), name.to_owned());
        Box::pin(async move {
            if world.now() >= deadline {
                return Err(StepError("the order came after its deadline".to_owned()));
            }
            if pools.iter().any(CutPool::is_full) {
                return Err(StepError(format!("a pool is more than {FULL_PERCENT} % full")));
            }
            let ids = [pools[0].pool.id(), pools[1].pool.id()];
            let parts = CutMember::of_pools(&ids).map_err(in_words)?;
            let snapshot = SnapshotId(uuid(&mut world.random(&format!("snapshot {name}"))));
            let taking: Vec<_> = pools
                .into_iter()
                .zip(parts)
                .map(|(pool, part)| {
                    let name = name.clone();
                    world
                        .spawn("part of a backup", async move { pool.take_part(&name, snapshot, part).await })
                })
                .collect();
            let mut taken = Ok(());
            for part in taking {
                taken = taken.and(part.await);
            }
            taken
        })
    }

    fn release(&self) -> LocalFuture<StepResult> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove(&self, name: &str) -> LocalFuture<StepResult> {
        let (pools, name) = (self.pools.clone(), name.to_owned());
        Box::pin(async move {
            for pool in pools {
                pool.remove(&name).await?;
            }
            Ok(())
        })
    }
}

fn in_words(error: Error) -> StepError {
    StepError(error.to_string())
}
