//! Differences across branches: of clones and their sources, and across rollbacks.

use super::model::{ModelState, ModelVolume, check_across};
use crate::scene::{Scene, small};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{Difference, DifferenceRange, NewClone, Pool, RollbackGoal, SnapshotKey, VolumeKey, open},
};
use std::{cell::Cell, rc::Rc};
use world::{ByteCount, ByteOffset, Random};

/// Commands of a volume between two steps.
const COMMANDS: usize = 25;

/// A snapshot with the state that it has, or what a rollback left.
struct KnownPoint {
    volume: String,
    snapshot: Option<String>,
    state: ModelState,
}

/// Volumes that were cloned from one another or rolled back, and all their points.
struct Family {
    pool: Rc<Pool>,
    random: Random,
    volumes: Vec<ModelVolume>,
    points: Vec<KnownPoint>,
    steps: u32,
}

impl Family {
    async fn work(&mut self) {
        for index in 0..self.volumes.len() {
            super::change(&self.pool, &mut self.volumes[index], &mut self.random, COMMANDS).await;
        }
    }

    fn pick_volume(&mut self) -> usize {
        self.random.below(self.volumes.len() as u64) as usize
    }

    /// A snapshot of a volume, if it has one: its index.
    fn pick_snapshot(&mut self, volume: &str) -> Option<usize> {
        let of = |point: &KnownPoint| point.volume == volume && point.snapshot.is_some();
        let indices: Vec<usize> = (0..self.points.len()).filter(|&index| of(&self.points[index])).collect();
        (!indices.is_empty()).then(|| indices[self.random.below(indices.len() as u64) as usize])
    }

    async fn snapshot(&mut self) {
        let index = self.pick_volume();
        let (name, state) = (self.volumes[index].name().to_owned(), self.volumes[index].state.clone());
        let snapshot = format!("at {}", self.steps);
        let id = SnapshotId([self.steps as u8; 16]);
        self.pool.snapshot(&[name.as_str()], &snapshot, id).await.expect("it is taken");
        self.points.push(KnownPoint { volume: name, snapshot: Some(snapshot), state });
    }

    async fn clone(&mut self) {
        let index = self.pick_volume();
        let source = self.volumes[index].name().to_owned();
        let at = self.pick_snapshot(&source);
        let name = format!("clone {}", self.steps);
        let volume = VolumeId([self.steps as u8; 16]);
        let new = NewClone { name: name.clone(), volume, is_independent: false };
        let snapshot = at.map(|at| self.points[at].snapshot.clone().expect("a snapshot"));
        let key = snapshot.as_ref().map(SnapshotKey::from);
        self.pool.clone_volume(&source, key, &new).await.expect("it is made");
        let state = at.map_or_else(|| self.volumes[index].state.clone(), |at| self.points[at].state.clone());
        self.volumes.push(ModelVolume::of(&self.pool, &name, state, self.steps * 100_000));
    }

    async fn roll_back(&mut self) {
        let index = self.pick_volume();
        let name = self.volumes[index].name().to_owned();
        let Some(at) = self.pick_snapshot(&name) else { return };
        let snapshot = self.points[at].snapshot.clone().expect("a snapshot");
        let left_id = VolumeId([self.steps as u8; 16]);
        let to = RollbackGoal::Snapshot(SnapshotKey::from(&snapshot));
        let left = self.pool.roll_back(&name, to, left_id, true).await.expect("it is rolled back");
        let before = self.volumes[index].state.clone();
        self.points.push(KnownPoint { volume: left, snapshot: None, state: before });
        let state = self.points[at].state.clone();
        self.volumes[index] = ModelVolume::of(&self.pool, &name, state, self.steps * 100_000);
    }

    /// Compares each snapshot with each other point, and with the present of each volume. Returns the number
    /// of differences across branches that were found, and of refusals for their order.
    async fn compare(&mut self, story: &str) -> [usize; 2] {
        let volumes = self.volumes.iter();
        let present = volumes.map(|volume| (volume.name().to_owned(), volume.state.clone()));
        let present: Vec<_> = present.collect();
        self.points.extend(present.into_iter().map(|(volume, state)| KnownPoint {
            volume,
            snapshot: None,
            state,
        }));
        let mut counts = [0, 0];
        for from in &self.points {
            let Some(snapshot) = &from.snapshot else { continue };
            for to in &self.points {
                let earlier = (VolumeKey::from(&from.volume), SnapshotKey::from(snapshot));
                let later = (VolumeKey::from(&to.volume), to.snapshot.as_ref().map(SnapshotKey::from));
                let story = format!("{story}: {}@{snapshot} to {}@{:?}", from.volume, to.volume, to.snapshot);
                match self.pool.difference_between(earlier, later).await {
                    Ok(walk) => {
                        self.check(walk, from, to, &story).await;
                        counts[0] += 1;
                    }
                    Err(Error::WrongOrder { .. }) if from.volume == to.volume => counts[1] += 1,
                    Err(error) => panic!("{story}: {error}"),
                }
            }
        }
        counts
    }

    async fn check(&self, mut walk: Difference, from: &KnownPoint, to: &KnownPoint, story: &str) {
        let mut ranges: Vec<DifferenceRange> = Vec::new();
        while let Some(more) = walk.next().await.expect("it is found") {
            ranges.extend(more);
        }
        let is_joined = |pair: &[DifferenceRange]| {
            pair[0].end_bytes() < pair[1].at_bytes
                || (pair[0].end_bytes() == pair[1].at_bytes && pair[0].change != pair[1].change)
        };
        assert!(ranges.windows(2).all(is_joined), "{story}: ordered, and as few as it takes: {ranges:?}");
        check_across(&from.state, &to.state, &ranges, story);
        let sizes = [&from.state, &to.state].map(|state| state.bytes.len() as u64);
        assert_eq!(walk.sizes_bytes(), sizes, "{story}");
        walk.end().await.expect("it is ended");
        if from.volume != to.volume {
            return;
        }
        let key = to.snapshot.as_ref().map(SnapshotKey::from);
        let snapshot = SnapshotKey::from(from.snapshot.as_ref().expect("a snapshot"));
        let map = self.pool.changes_since(&to.volume, snapshot, key).expect("both are there");
        let least = from.state.bytes.len().min(to.state.bytes.len()) as u64;
        let mut at = 0;
        while at < to.state.bytes.len() as u64 {
            let length = ByteCount((to.state.bytes.len() as u64 - at).min(700 * 512));
            for extent in map.extents(ByteOffset(at), length).await.expect("it is looked up") {
                for sector in (at..at + extent.length.0).step_by(512) {
                    let of =
                        |range: &&DifferenceRange| range.at_bytes <= sector && sector < range.end_bytes();
                    let is_changed = sector >= least || ranges.iter().any(|range| of(&range));
                    assert_eq!(extent.is_changed, is_changed, "{story}: byte {sector} of the map");
                }
                at += extent.length.0;
            }
        }
    }
}

#[test]
fn any_two_points_of_clones_and_rolled_back_volumes_are_compared() {
    let counts = Rc::new(Cell::new([0, 0]));
    for seed in 0..10 {
        let mut scene = Scene::new(911 + seed, 3);
        let counts = Rc::clone(&counts);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let mail = ModelVolume::make(&pool, "mail").await;
            let random = world.random("family");
            let mut family = Family { pool, random, volumes: vec![mail], points: Vec::new(), steps: 0 };
            family.work().await;
            for step in 1..=9 {
                family.steps = step;
                match family.random.below(5) {
                    _ if step < 2 => family.snapshot().await,
                    0 if family.volumes.len() < 4 => family.clone().await,
                    1 | 2 => family.roll_back().await,
                    _ => family.snapshot().await,
                }
                family.work().await;
            }
            let found = family.compare(&format!("seed {seed}")).await;
            family.pool.close().await.expect("it closes");
            let before = counts.get();
            counts.set([before[0] + found[0], before[1] + found[1]]);
        });
    }
    let counts = counts.get();
    println!("note: {} differences, {} refused for their order", counts[0], counts[1]);
    assert!(counts[0] > 200 && counts[1] > 0, "{counts:?}");
}
