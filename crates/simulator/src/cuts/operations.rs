//! Clones and rollbacks of the group, while no host is connected; and the check that both pools have them, or none.

use super::{
    CutFate, CutRunError, KnownOperation,
    administrator::{GROUP, VOLUME},
    incarnation::CutFixture,
};
use array::{
    error::Error,
    format::{
        SnapshotId, VolumeId,
        row::{GroupOperation, IdSeed},
    },
    pool::{CutMember, GroupMemberChange, NewGroupClone, Pool, UnsettledCut, UnsettledState, settle_cuts},
    volume::VolumeDevice,
};
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use world::{BlockDevice, Random, World, with_deadline};

impl CutFixture {
    /// Clones the group, and rolls it back, to snapshots that both pools have, as often as the plan says.
    pub(super) async fn operate(&self, world: &World, pools: &[Rc<Pool>; 2]) -> Result<(), CutRunError> {
        let mut random = world.random("operations");
        for _ in 0..random.below(self.plan.operations + 1) {
            self.operate_once(world, pools, &mut random).await?;
        }
        Ok(())
    }

    async fn operate_once(
        &self,
        world: &World,
        pools: &[Rc<Pool>; 2],
        random: &mut Random,
    ) -> Result<(), CutRunError> {
        let [one, other] = pools.each_ref().map(|pool| group_snapshots(pool));
        let both: Vec<SnapshotId> = one.intersection(&other).copied().collect();
        if both.is_empty() {
            return Ok(());
        }
        let snapshot = both[random.below(both.len() as u64) as usize];
        let seed = self.ledger.next_seed();
        let operation = if random.percent(60.0) {
            GroupOperation::RollBack
        } else {
            let suffix = format!("-{}", seed.0[15]);
            GroupOperation::Clone { suffix, is_independent: random.percent(20.0) }
        };
        // What a write cache has may be lost with the power, whatever happens to the group.
        for pool in pools {
            let flushed = live(pool, VOLUME)?.flush().await;
            flushed.map_err(|error| CutRunError::Refused(Error::Stopped(error.to_string())))?;
        }
        let (mut before, mut goal) = (Vec::new(), Vec::new());
        for index in 0..self.chains.len() {
            before.push(self.numbers(pools, index, |pool| live(pool, VOLUME)).await?);
            goal.push(
                self.numbers(pools, index, |pool| Ok(Box::new(pool.snapshot_device(VOLUME, snapshot)?)))
                    .await?,
            );
        }
        let known = KnownOperation { operation: operation.clone(), seed, fate: CutFate::Open, before, goal };
        *self.ledger.operation.borrow_mut() = Some(known);

        let mut parts = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools").into_iter();
        let leaves = random.percent(self.plan.leaving_percent).then(|| random.below(2) as usize);
        let callers = [0, 1].map(|index| {
            let (pool, part) = (Rc::clone(&pools[index]), parts.next().expect("two parts"));
            let patience = (leaves == Some(index)).then(|| Duration::from_micros(1 << random.below(14)));
            let (caller_world, operation) = (world.clone(), operation.clone());
            world.spawn("part of an operation", async move {
                let done = take_part(&pool, snapshot, (operation, seed), part);
                match patience {
                    None => Some(done.await),
                    Some(patience) => with_deadline(caller_world.sleep(patience), Box::pin(done)).await,
                }
            })
        });
        let mut answers = Vec::new();
        for caller in callers {
            answers.push(caller.await);
        }
        let fate = match &answers[..] {
            all if all.iter().any(|answer| matches!(answer, Some(Ok(_)))) => CutFate::Acknowledged,
            all if all.iter().all(|answer| matches!(answer, Some(Err(Error::OperationFailed(_))))) => {
                CutFate::Refused
            }
            _ => CutFate::Open,
        };
        self.ledger.tell(format!("{operation:?} to {snapshot}: {fate:?}"));
        self.ledger.operation.borrow_mut().as_mut().expect("begun above").fate = fate;
        // A pool that has stopped is looked at by the next incarnation.
        for (pool, answer) in pools.iter().zip(answers) {
            if let (Some(Err(error)), Some(_)) = (answer, pool.failure()) {
                return Err(error.into());
            }
        }
        // What a caller that left has put into the log's queue is not settled before it is there.
        let is_under_way = |cut: &UnsettledCut| cut.state == UnsettledState::UnderWay;
        while pools
            .iter()
            .any(|pool| pool.unsettled_cuts().iter().any(is_under_way) && pool.failure().is_none())
        {
            world.sleep(Duration::from_micros(100)).await;
        }
        settle_cuts(pools).await?;
        self.check_operation(pools).await
    }

    /// Checks the operation of before, if there was one: both pools have it, or none. What it made is deleted.
    pub(super) async fn check_operation(&self, pools: &[Rc<Pool>; 2]) -> Result<(), CutRunError> {
        let Some(known) = self.ledger.operation.borrow().clone() else { return Ok(()) };
        let made = [0, 1].map(|index: usize| {
            let id = known.seed.volume_of(VolumeId([index as u8 + 1; 16]));
            let mut volumes = pools[index].volumes().into_iter();
            volumes.find(|volume| volume.volume == id).map(|volume| volume.name)
        });
        let has = made.each_ref().map(Option::is_some);
        let is_right = match known.fate {
            CutFate::Acknowledged => has == [true; 2],
            CutFate::Refused => has == [false; 2],
            CutFate::Open | CutFate::Deleted => has[0] == has[1],
            CutFate::GivenUp => true,
        };
        if !is_right {
            let what = format!("{:?}, {:?}, has happened: {has:?} in the pools", known.operation, known.fate);
            return Err(CutRunError::Broken(what));
        }
        for (index, pool) in pools.iter().enumerate() {
            self.check_contents((index, pool), &known, made[index].as_deref()).await?;
        }
        *self.ledger.operation.borrow_mut() = None;
        {
            let mut tally = self.ledger.tally.borrow_mut();
            tally.operations += u64::from(has == [true; 2]);
            tally.operations_refused += u64::from(has == [false; 2]);
        }
        for (pool, made) in pools.iter().zip(made) {
            if let Some(name) = made {
                pool.delete_volume(&*name, true).await?;
            }
        }
        Ok(())
    }

    /// Checks a pool's volume, and the one that the operation made of it.
    async fn check_contents(
        &self,
        (index, pool): (usize, &Rc<Pool>),
        known: &KnownOperation,
        made: Option<&str>,
    ) -> Result<(), CutRunError> {
        let is_rolled_back = made.is_some() && known.operation == GroupOperation::RollBack;
        for (number, chain) in self.chains.iter().enumerate() {
            let (before, goal) = (known.before[number][index], known.goal[number][index]);
            let (expected, of_made) = if is_rolled_back { (goal, before) } else { (before, goal) };
            let mut found = vec![(chain.read(&*live(pool, VOLUME)?).await?, expected)];
            if let Some(made) = made {
                found.push((chain.read(&*live(pool, made)?).await?, of_made));
            }
            if let Some((found, expected)) = found.into_iter().find(|(found, expected)| found != expected) {
                let what = format!("pool {index} has {found} where {expected} was, with {known:?}");
                return Err(CutRunError::Broken(what));
            }
        }
        Ok(())
    }

    /// The numbers of a chain in both pools.
    async fn numbers(
        &self,
        pools: &[Rc<Pool>; 2],
        chain: usize,
        device: impl Fn(&Rc<Pool>) -> Result<Box<dyn BlockDevice>, Error>,
    ) -> Result<[u64; 2], CutRunError> {
        let mut numbers = [0; 2];
        for (pool, number) in pools.iter().zip(&mut numbers) {
            *number = self.chains[chain].read(&*device(pool)?).await?;
        }
        Ok(numbers)
    }
}

/// Snapshots of the group that can be used.
fn group_snapshots(pool: &Pool) -> BTreeSet<SnapshotId> {
    let snapshots = pool.groups().into_iter().flat_map(|group| group.snapshots);
    snapshots.filter(|snapshot| snapshot.cut.is_none()).map(|snapshot| snapshot.snapshot).collect()
}

fn live(pool: &Rc<Pool>, volume: &str) -> Result<Box<dyn BlockDevice>, Error> {
    Ok(Box::new(VolumeDevice(pool.volume(volume)?)))
}

async fn take_part(
    pool: &Pool,
    snapshot: SnapshotId,
    (operation, seed): (GroupOperation, IdSeed),
    part: CutMember,
) -> Result<Vec<GroupMemberChange>, Error> {
    match operation {
        GroupOperation::RollBack => {
            pool.take_part_in_group_rollback(GROUP, snapshot, (seed, false), part).await
        }
        GroupOperation::Clone { suffix, is_independent } => {
            let new = NewGroupClone { suffix, seed, is_independent };
            pool.take_part_in_group_clone(GROUP, snapshot, &new, part).await
        }
    }
}
