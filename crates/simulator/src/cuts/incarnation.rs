//! An incarnation: both pools are opened, their cuts settled and checked; then hosts and administrator work.

use super::{
    Chain, CutFate, CutRunError, CutRunPlan, Ledger,
    administrator::{CutAdministrator, GROUP, VOLUME},
};
use array::{
    error::Error,
    format::{
        GroupId, SnapshotId, VolumeId,
        row::{GroupOperation, WriteCache},
    },
    pool::{
        NewGroup, NewVolume, OpenSetting, Pool, UnsettledCut, UnsettledId, UnsettledState, VolumeSetting,
        open, settle_cuts,
    },
    volume::VolumeDevice,
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::{BlockDevice, Random, World};

/// Parts of an incarnation besides settling and checking.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutScenario {
    /// Hosts and administrator work.
    pub works: bool,
    /// A pool that is opened alone first.
    pub alone: Option<usize>,
    /// Both pools are closed in the end.
    pub closes: bool,
}

/// The state that outlives incarnations.
#[derive(Clone)]
pub struct CutFixture {
    pub devices: [Vec<Rc<dyn BlockDevice>>; 2],
    pub plan: Rc<CutRunPlan>,
    pub chains: Rc<Vec<Chain>>,
    pub ledger: Rc<Ledger>,
}

impl CutFixture {
    /// Lives through an incarnation.
    ///
    /// # Errors
    ///
    /// A broken guarantee; or drives have failed.
    pub async fn live(self, world: World, scenario: CutScenario) -> Result<(), CutRunError> {
        if let Some(index) = scenario.alone {
            self.open_alone(&world, index).await?;
        }
        let pools = [self.open(&world, 0).await?, self.open(&world, 1).await?];
        for pool in &pools {
            pool.unsettled_cuts().iter().try_for_each(|cut| check_offered(pool, cut))?;
        }
        settle_cuts(&pools).await?;
        self.check(&pools).await?;
        self.check_operation(&pools).await?;
        if scenario.works {
            self.group(&pools).await?;
            self.operate(&world, &pools).await?;
            self.work(&world, &pools).await?;
            self.operate(&world, &pools).await?;
        }
        if scenario.closes {
            for pool in &pools {
                pool.close().await?;
            }
        }
        Ok(())
    }

    async fn open(&self, world: &World, index: usize) -> Result<Rc<Pool>, CutRunError> {
        let setting = OpenSetting { table_entries: 40, cache_bytes: 64 << 10, ..OpenSetting::default() };
        let pool = open(world, &self.devices[index], setting).await?;
        if pool.volumes().is_empty() {
            let write_cache = if self.plan.write_cache { WriteCache::On } else { WriteCache::Off };
            let volume = NewVolume {
                name: VOLUME.to_owned(),
                volume: VolumeId([index as u8 + 1; 16]),
                size_bytes: 1 << 20,
                setting: VolumeSetting { write_cache, ..VolumeSetting::default() },
            };
            pool.create_volume(&volume).await?;
        }
        Ok(pool)
    }

    /// Makes the group, or the part of it that a crash has prevented.
    async fn group(&self, pools: &[Rc<Pool>; 2]) -> Result<(), CutRunError> {
        for pool in pools.iter().filter(|pool| pool.groups().is_empty()) {
            let pools = pools.iter().map(|pool| pool.id()).collect();
            let new = NewGroup { name: GROUP.to_owned(), group: GroupId([3; 16]), pools };
            pool.create_group(&new, &[VOLUME]).await?;
        }
        Ok(())
    }

    /// One pool without the other: nothing pending is offered, or settled; some are given up.
    async fn open_alone(&self, world: &World, index: usize) -> Result<(), CutRunError> {
        let pool = self.open(world, index).await?;
        settle_cuts(&[Rc::clone(&pool)]).await?;
        let mut random = world.random("alone");
        for cut in pool.unsettled_cuts() {
            check_offered(&pool, &cut)?;
            if random.percent(50.0) {
                self.ledger.tell(format!("{} is given up in pool {index}, {:?}", cut.name, cut.state));
                match cut.id {
                    _ if cut.state != UnsettledState::Pending => {}
                    UnsettledId::Snapshot(snapshot) => self.ledger.set_fate(snapshot, CutFate::GivenUp),
                    UnsettledId::Operation(_) => self.ledger.give_up_operation(),
                }
                pool.give_up_cut(cut.id).await?;
                self.ledger.tally.borrow_mut().given_up += 1;
            }
        }
        Ok(pool.close().await?)
    }

    /// Checks all cuts: each is in both pools, with what its hosts had written, or in none.
    async fn check(&self, pools: &[Rc<Pool>; 2]) -> Result<(), CutRunError> {
        let broken = |what: String| Err(CutRunError::Broken(what));
        let found = pools.each_ref().map(|pool| -> BTreeMap<SnapshotId, bool> {
            let snapshots = pool.snapshots(VOLUME).expect("it is there").into_iter();
            snapshots.map(|snapshot| (snapshot.snapshot, snapshot.cut.is_some())).collect()
        });
        if let Some(cut) = pools.iter().flat_map(|pool| pool.unsettled_cuts()).next() {
            return broken(format!("{} is not settled although both pools were seen", cut.id));
        }
        for (snapshot, cut) in self.ledger.all() {
            let (name, fate) = (&cut.name, cut.fate);
            let there = found.each_ref().map(|found| found.get(&snapshot).copied());
            if there.contains(&Some(true)) {
                return broken(format!("{name} is not settled although both pools were seen"));
            }
            let parts = there.iter().flatten().count();
            let is_right = match fate {
                CutFate::Acknowledged => parts == 2,
                CutFate::Refused => parts == 0,
                CutFate::Open => parts != 1,
                CutFate::GivenUp | CutFate::Deleted => true,
            };
            if !is_right {
                return broken(format!("{name}, {fate:?}, is in {parts} of two pools"));
            }
            if parts < 2 {
                continue;
            }
            for (chain, bounds) in self.chains.iter().zip(&cut.bounds) {
                let mut numbers = [0; 2];
                for (pool, number) in pools.iter().zip(&mut numbers) {
                    *number = chain.read(&pool.snapshot_device(VOLUME, snapshot)?).await?;
                }
                chain
                    .check(numbers, *bounds)
                    .map_err(|error| CutRunError::Broken(format!("{name}: {error}")))?;
            }
            self.ledger.tally.borrow_mut().checked += 1;
        }
        Ok(())
    }

    async fn work(&self, world: &World, pools: &[Rc<Pool>; 2]) -> Result<(), CutRunError> {
        let mut devices = Vec::new();
        for pool in pools {
            devices.push(VolumeDevice(pool.volume(VOLUME)?));
        }
        let devices: [VolumeDevice; 2] = devices.try_into().unwrap_or_else(|_| unreachable!("two pools"));
        for chain in self.chains.iter() {
            if chain.go_on(&devices).await.is_err() {
                return Ok(());
            }
        }
        let hosts: Vec<_> = (0..self.chains.len())
            .map(|index| {
                let (fixture, devices, random) =
                    (self.clone(), devices.clone(), world.random(&format!("host {index}")));
                world.spawn("host", fixture.host((world.clone(), devices), index, random))
            })
            .collect();
        let administrator = CutAdministrator {
            world: world.clone(),
            pools: pools.clone(),
            plan: Rc::clone(&self.plan),
            chains: Rc::clone(&self.chains),
            ledger: Rc::clone(&self.ledger),
            random: world.random("administrator"),
        };
        administrator.work().await?;
        for host in hosts {
            host.await;
        }
        // The same has to hold without a new opening.
        if pools.iter().all(|pool| pool.failure().is_none()) {
            settle_cuts(pools).await?;
            self.check(pools).await?;
        }
        Ok(())
    }

    async fn host(self, (world, devices): (World, [VolumeDevice; 2]), index: usize, mut random: Random) {
        for _ in 0..20 + random.below(60) {
            if self.chains[index].write_next(&devices).await.is_err() {
                return;
            }
            self.ledger.tally.borrow_mut().writes += 1;
            if random.percent(50.0) {
                world.sleep(Duration::from_micros(1 << random.below(10))).await;
            }
        }
    }
}

/// Checks that one pool alone offers what is whole, and nothing that is pending.
fn check_offered(pool: &Pool, cut: &UnsettledCut) -> Result<(), CutRunError> {
    let offered = match cut.id {
        UnsettledId::Snapshot(snapshot) => pool.snapshot_device(VOLUME, snapshot).map(drop),
        UnsettledId::Operation(_) => pool.volume(VOLUME).map(drop),
    };
    let is_offered =
        cut.state == UnsettledState::Whole || matches!(cut.operation, Some(GroupOperation::Clone { .. }));
    match offered {
        Ok(()) if is_offered => Ok(()),
        Err(Error::CutPending(_) | Error::OperationPending(_)) if !is_offered => Ok(()),
        offered => {
            let what = format!("{} is {:?} in one pool, and opens as {offered:?}", cut.name, cut.state);
            Err(CutRunError::Broken(what))
        }
    }
}
