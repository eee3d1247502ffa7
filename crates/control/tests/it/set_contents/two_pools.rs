//! Two pools on simulated drives, as a keeper beyond a connection asks them: answers get lost, and pools are full.

use super::{mail_service::VOLUMES, verifier::Verifier};
use array::{
    format::{DriveId, PoolId, SnapshotId, SparingLevel, VolumeId},
    pool::{NewDrive, NewPool, NewSnapshot, NewVolume, OpenSetting, Pool, VolumeSetting, create, open},
};
use protect::{
    backup::{StepError, StepResult},
    catalogue::{CutPoint, FoundPoint, PointNote, SetId},
    set_keeper::{BackupPools, PoolRoom, PoolsAnswer, WantedCut},
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use world::{BlockDevice, LocalFuture, Moment, Random, World, sim::SimDrive};

pub type OpenPools = BTreeMap<&'static str, Rc<Pool>>;
pub type PoolDrives = BTreeMap<&'static str, Rc<SimDrive>>;

pub async fn make_pools(world: &World, drives: &PoolDrives) {
    for (index, (name, volume)) in VOLUMES.into_iter().enumerate() {
        let device = Rc::clone(&drives[name]) as Rc<dyn BlockDevice>;
        let id = index as u8 + 1;
        let new = NewPool {
            pool: PoolId([id; 16]),
            name: name.to_owned(),
            slot_bytes: 1 << 20,
            sparing: SparingLevel::None,
        };
        let drive = NewDrive { drive: DriveId([id; 16]), serial: name.to_owned(), domain: None, device };
        create(world, &new, &[drive]).await.expect("a pool is made");
        let pools = open_pool(world, drives, name).await;
        let new = NewVolume {
            name: volume.to_owned(),
            volume: VolumeId([id; 16]),
            size_bytes: 64 << 10,
            setting: VolumeSetting::default(),
        };
        pools.create_volume(&new).await.expect("a volume is made");
        pools.close().await.expect("it is closed");
    }
}

async fn open_pool(world: &World, drives: &PoolDrives, name: &str) -> Rc<Pool> {
    let device = Rc::clone(&drives[name]) as Rc<dyn BlockDevice>;
    open(world, &[device], OpenSetting::default()).await.expect("a crash leaves a pool that opens")
}

pub async fn open_pools(world: &World, drives: &PoolDrives) -> OpenPools {
    let mut pools = OpenPools::new();
    for (name, _) in VOLUMES {
        pools.insert(name, open_pool(world, drives, name).await);
    }
    pools
}

pub struct DistantPools {
    pub world: World,
    pub pools: OpenPools,
    pub random: Rc<RefCell<Random>>,
    /// Percent of calls whose connection is lost, before or after they were followed.
    pub losing: f64,
    pub is_full: bool,
    /// Its exports use points.
    pub verifier: Rc<Verifier>,
}

impl DistantPools {
    fn loses(random: &RefCell<Random>, losing: f64) -> StepResult {
        match random.borrow_mut().percent(losing) {
            true => Err(StepError("the connection was lost".to_owned())),
            false => Ok(()),
        }
    }

    async fn pause(world: &World, random: &RefCell<Random>) {
        let span = Duration::from_millis(random.borrow_mut().below(40));
        world.sleep(span).await;
    }
}

pub fn snapshot_of(point: &CutPoint) -> SnapshotId {
    SnapshotId(u128::from_str_radix(&point.id, 16).expect("an identity").to_be_bytes())
}

impl BackupPools for DistantPools {
    fn points(&self, set: &SetId) -> LocalFuture<PoolsAnswer> {
        let (pools, set) = (self.pools.clone(), set.clone());
        let (random, losing) = (Rc::clone(&self.random), self.losing);
        let in_use = self.verifier.in_use();
        Box::pin(async move {
            let mut answer = PoolsAnswer { in_use, ..PoolsAnswer::default() };
            for (name, volume) in VOLUMES {
                if let Err(lost) = Self::loses(&random, losing) {
                    answer.silent.insert(name.to_owned(), lost.0);
                    continue;
                }
                answer.asked.insert(name.to_owned());
                for snapshot in pools[name].snapshots(volume).expect("it is there") {
                    let Ok(Some(note)) = PointNote::decode(&snapshot.note) else { continue };
                    assert_eq!(note.set, set, "there is one set");
                    let id = format!("{:032x}", u128::from_be_bytes(snapshot.snapshot.0));
                    let point = CutPoint { pool: name.to_owned(), volume: volume.to_owned(), id };
                    answer.found.push(FoundPoint { point, name: snapshot.name, note: snapshot.note });
                }
            }
            answer
        })
    }

    fn cut(&self, cut: WantedCut, deadline: Moment) -> LocalFuture<Result<Vec<CutPoint>, StepError>> {
        let (world, pools) = (self.world.clone(), self.pools.clone());
        let (random, losing) = (Rc::clone(&self.random), self.losing);
        Box::pin(async move {
            let mut id = [0; 16];
            random.borrow_mut().fill(&mut id);
            let mut points = Vec::new();
            for volume in &cut.volumes {
                Self::pause(&world, &random).await;
                Self::loses(&random, losing)?;
                if world.now() >= deadline {
                    return Err(StepError("too late".to_owned()));
                }
                let (name, note) = (cut.name.as_str(), cut.note.as_bytes());
                let new = NewSnapshot { name, snapshot: SnapshotId(id), note };
                let taken = pools[volume.pool.as_str()].take_snapshot(&[volume.volume.as_str()], &new).await;
                taken.map_err(|error| StepError(error.to_string()))?;
                let id = format!("{:032x}", u128::from_be_bytes(id));
                points.push(CutPoint { pool: volume.pool.clone(), volume: volume.volume.clone(), id });
            }
            Self::loses(&random, losing).map(|()| points)
        })
    }

    fn remove(&self, points: Vec<CutPoint>) -> LocalFuture<StepResult> {
        let (world, pools) = (self.world.clone(), self.pools.clone());
        let (random, losing) = (Rc::clone(&self.random), self.losing);
        let verifier = Rc::clone(&self.verifier);
        Box::pin(async move {
            for point in points {
                if verifier.in_use().contains(&point) {
                    return Err(StepError("an export uses it".to_owned()));
                }
                Self::pause(&world, &random).await;
                Self::loses(&random, losing)?;
                let (pool, id) = (&pools[point.pool.as_str()], snapshot_of(&point));
                let known = pool.snapshots(point.volume.as_str()).expect("it is there");
                if known.iter().any(|known| known.snapshot == id) {
                    let deleted = pool.delete_snapshot(point.volume.as_str(), id).await;
                    deleted.map_err(|error| StepError(error.to_string()))?;
                }
            }
            Ok(())
        })
    }

    fn rooms(&self) -> LocalFuture<Vec<PoolRoom>> {
        let used_bytes = if self.is_full { 96 } else { 40 };
        let room = PoolRoom { pool: "east".to_owned(), used_bytes, capacity_bytes: 100 };
        Box::pin(std::future::ready(vec![room]))
    }
}
