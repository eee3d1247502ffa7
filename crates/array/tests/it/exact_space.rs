//! Exact space: against a model of who reads which version, and against deletions that are done.

use crate::{
    clones::{clone_of, discard, fill, used_at_rest},
    scene::{MIB, Scene, make_volume, small},
};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{OpenSetting, Pool, RollbackGoal, open},
    volume::VolumeDevice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::Random;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 60;

/// Each block that stores something, with the number of its write.
type Content = BTreeMap<u64, u32>;

/// The volume "mail" and its snapshots.
#[derive(Default)]
struct Model {
    head: Content,
    snapshots: BTreeMap<String, Content>,
    writes: u32,
}

impl Model {
    fn write(&mut self, first: u64, count: u64) {
        self.writes += 1;
        self.head.extend((first..first + count).map(|block| (block, self.writes)));
    }

    fn versions(content: &Content) -> BTreeSet<(u64, u32)> {
        content.iter().map(|(&block, &write)| (block, write)).collect()
    }

    /// Blocks that only these snapshots keep.
    fn kept_by(&self, is_meant: impl Fn(&String) -> bool) -> u64 {
        let mut kept = BTreeSet::new();
        let mut others = Self::versions(&self.head);
        for (name, content) in &self.snapshots {
            let set = if is_meant(name) { &mut kept } else { &mut others };
            set.extend(Self::versions(content));
        }
        kept.difference(&others).count() as u64
    }
}

async fn check_against(pool: &Rc<Pool>, model: &Model) {
    let space = pool.exact_space("mail").await.expect("it is counted");
    let blocks = |bytes: u64| {
        assert!(bytes.is_multiple_of(BLOCK), "whole blocks were written");
        bytes / BLOCK
    };
    let (head, kept) = (model.head.len() as u64, model.kept_by(|_| true));
    assert_eq!((blocks(space.volume_bytes), blocks(space.snapshots_bytes)), (head, kept));
    assert_eq!((blocks(space.used_bytes), space.others_bytes), (head + kept, 0));
    assert_eq!(space.reclaimable_bytes, space.used_bytes, "nobody else reads it");
    assert_eq!(space.snapshots.len(), model.snapshots.len());
    for snapshot in &space.snapshots {
        let alone = model.kept_by(|name| *name == snapshot.name);
        assert_eq!(blocks(snapshot.reclaimable_bytes), alone, "{}", snapshot.name);
    }
}

/// Some blocks from a random one on.
fn range(random: &mut Random) -> (u64, u64) {
    let first = random.below(BLOCKS);
    (first, 1 + random.below(BLOCKS - first))
}

#[test]
fn every_figure_is_that_of_a_model_whatever_is_in_memory_and_in_the_trees() {
    for seed in 0..12 {
        let mut scene = Scene::new(8000 + seed, 3);
        let table_entries = if seed % 2 == 0 { 40 } else { 4000 };
        scene.run(move |world, devices| async move {
            let setting = OpenSetting { table_entries, ..small() };
            let pool = open(&world, &devices, setting).await.expect("it opens");
            let volume = make_volume(&pool, "mail", MIB).await.expect("it is made");
            let (mut random, mut model) = (world.random("space"), Model::default());
            for step in 0..80_u32 {
                let (first, count) = range(&mut random);
                match random.below(10) {
                    0..4 => {
                        fill(&volume, first, count, step as u8 + 1).await;
                        model.write(first, count);
                    }
                    4 => {
                        discard(&volume, first, count).await;
                        model.head.retain(|block, _| !(first..first + count).contains(block));
                    }
                    5..7 => {
                        let (name, id) = (format!("s{step}"), SnapshotId([step as u8 + 1; 16]));
                        pool.snapshot(&["mail"], &name, id).await.expect("it is taken");
                        model.snapshots.insert(name, model.head.clone());
                    }
                    7 => {
                        let nth = random.below(model.snapshots.len().max(1) as u64) as usize;
                        let name = model.snapshots.keys().nth(nth).cloned();
                        if let Some(name) = name {
                            pool.delete_snapshot("mail", name.as_str()).await.expect("it is deleted");
                            model.snapshots.remove(&name);
                        }
                    }
                    8 => pool.checkpoint().await.expect("it is made"),
                    _ => drop(pool.clean().await.expect("it cleans")),
                }
                if random.percent(40.0) {
                    check_against(&pool, &model).await;
                }
            }
            check_against(&pool, &model).await;
        });
    }
}

/// A volume, or a snapshot of one, that is to be deleted.
enum Victim {
    Volume(String),
    Snapshot(String, String),
}

/// Deletions, with the bytes that this is said to free; all figures are checked against each other. Of a deleted
/// volume, clones may keep data that is no volume's.
async fn victims(pool: &Rc<Pool>, all_are_there: bool) -> Vec<(Victim, u64)> {
    let (mut victims, mut used) = (Vec::new(), 0);
    for info in pool.volumes() {
        let space = pool.exact_space(&*info.name).await.expect("it is counted");
        let parts = [space.volume_bytes, space.snapshots_bytes, space.others_bytes];
        assert_eq!(space.used_bytes, parts.iter().sum::<u64>(), "{space:?}");
        assert_eq!(pool.deletion_bytes(&*info.name).await.expect("it is counted"), space.reclaimable_bytes);
        if info.left_by.is_none() {
            used += space.used_bytes;
        }
        for snapshot in space.snapshots {
            let alone = pool.reclaimable_bytes(&*info.name, &[snapshot.name.as_str()]).await;
            assert_eq!(alone.expect("it is counted"), snapshot.reclaimable_bytes, "{}", snapshot.name);
            let victim = Victim::Snapshot(info.name.clone(), snapshot.name);
            victims.push((victim, snapshot.reclaimable_bytes));
        }
        victims.push((Victim::Volume(info.name), space.reclaimable_bytes));
    }
    if all_are_there {
        assert_eq!(used, used_at_rest(pool).await, "all that is used is some volume's");
    }
    victims
}

async fn change(pool: &Rc<Pool>, random: &mut Random, step: u8) {
    let volumes: Vec<_> = pool.volumes().into_iter().filter(|info| info.left_by.is_none()).collect();
    let Some(info) = volumes.get(random.below(volumes.len().max(1) as u64) as usize) else { return };
    let name = info.name.as_str();
    let snapshots = pool.snapshots(name).expect("there");
    let some_snapshot = snapshots.get(random.below(snapshots.len().max(1) as u64) as usize);
    let device = || VolumeDevice(pool.volume(name).expect("there"));
    let (first, count) = range(random);
    match random.below(10) {
        0..5 => fill(&device(), first, count, step).await,
        5 => discard(&device(), first, count).await,
        6 | 7 => {
            let taken = pool.snapshot(&[name], &format!("s{step}"), SnapshotId([step; 16])).await;
            taken.expect("it is taken");
        }
        8 if volumes.len() < 4 => {
            let at = some_snapshot.map(|snapshot| snapshot.name.clone());
            match clone_of(pool, name, at.as_deref(), &format!("c{step}")).await {
                Ok(_) | Err(Error::TooDeep { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        9 => {
            let Some(snapshot) = some_snapshot else { return };
            let goal = RollbackGoal::Snapshot((&*snapshot.name).into());
            match pool.roll_back(name, goal, VolumeId([100 + step; 16]), false).await {
                Ok(_) | Err(Error::TooDeep { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        _ => {}
    }
}

#[test]
fn what_a_deletion_is_said_to_free_comes_back_with_clones_and_rollbacks_too() {
    for seed in 0..10 {
        let mut scene = Scene::new(8100 + seed, 3);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "mail", MIB).await.expect("it is made");
            let (mut random, mut all_are_there) = (world.random("space"), true);
            for step in 1..=90_u8 {
                change(&pool, &mut random, step).await;
                if step % 9 != 0 {
                    continue;
                }
                let mut victims = victims(&pool, all_are_there).await;
                let before = used_at_rest(&pool).await;
                let nth = random.below(victims.len() as u64) as usize;
                let (victim, promised) = victims.swap_remove(nth);
                match &victim {
                    Victim::Volume(name) if pool.volumes().len() > 1 => {
                        pool.delete_volume(name.as_str(), true).await.expect("it is deleted");
                        all_are_there = false;
                    }
                    Victim::Snapshot(volume, name) => {
                        pool.delete_snapshot(volume.as_str(), name.as_str()).await.expect("it is deleted");
                    }
                    Victim::Volume(_) => continue,
                }
                assert_eq!(before - used_at_rest(&pool).await, promised, "seed {seed}, step {step}");
            }
        });
    }
}
