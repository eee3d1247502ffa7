//! Differences of two points: equal to those of a model, and few nodes are read for a small change.

use crate::scene::{MIB, Scene, make_volume, small};
use array::{
    format::SnapshotId,
    pool::{OpenSetting, Pool, SnapshotKey, VolumeDifference, open},
    volume::VolumeDevice,
};
use std::{collections::BTreeSet, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability, sim::DriveOptions};

/// A volume, and for each block the number of the write that it has; 0 if it has none.
struct ModelVolume {
    volume: VolumeDevice,
    blocks: Vec<u32>,
    writes: u32,
}

impl ModelVolume {
    async fn write(&mut self, first: u64, count: u64) {
        self.writes += 1;
        let mut data = Buffer::zeroed(count as usize * 4096);
        data.fill(self.writes as u8);
        let written = self.volume.write(ByteOffset(first * 4096), vec![Arc::new(data)], Stability::Stable);
        written.await.expect("it is written");
        self.blocks[first as usize..][..count as usize].fill(self.writes);
    }

    async fn discard(&mut self, first: u64, count: u64) {
        let discarded = self.volume.discard(ByteOffset(first * 4096), ByteCount(count * 4096));
        discarded.await.expect("it is discarded");
        self.blocks[first as usize..][..count as usize].fill(0);
    }

    /// Writes and discards a few blocks at a time.
    async fn change(&mut self, random: &mut Random, commands: usize) {
        for _ in 0..commands {
            let (first, count) = (random.below(self.blocks.len() as u64 - 40), 1 + random.below(16));
            if random.below(4) == 0 {
                self.discard(first, 2 * count).await;
            } else {
                self.write(first, count).await;
            }
        }
    }
}

/// Blocks in which two states differ.
fn changed(one: &[u32], other: &[u32]) -> BTreeSet<u64> {
    (0..one.len()).filter(|&block| one[block] != other[block]).map(|block| block as u64).collect()
}

fn blocks_of(difference: &VolumeDifference) -> BTreeSet<u64> {
    let blocks = &difference.blocks;
    assert!(
        blocks.windows(2).all(|pair| pair[0].end < pair[1].start),
        "as few ranges as it takes: {blocks:?}"
    );
    blocks.iter().cloned().flatten().collect()
}

async fn snapshot(pool: &Rc<Pool>, number: usize) -> String {
    let name = format!("round {number}");
    pool.snapshot(&["mail"], &name, SnapshotId([number as u8 + 1; 16])).await.expect("it is taken");
    name
}

#[test]
fn the_difference_of_any_two_points_is_that_of_the_model() {
    let mut scene = Scene::new(91, 3);
    scene.run(|world, devices| async move {
        // Long discards take several checkpoints.
        let setting = OpenSetting { reclaimed_at_once: 20, ..small() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("it is made");
        let mut modelled = ModelVolume { volume, blocks: vec![0; 2048], writes: 0 };
        let other = make_volume(&pool, "next", 8 * MIB).await.expect("it is made");
        let mut other = ModelVolume { volume: other, blocks: vec![0; 2048], writes: 0 };
        let mut random = world.random("difference");
        let mut states = Vec::new();
        for round in 0..7 {
            modelled.change(&mut random, 40).await;
            other.change(&mut random, 10).await;
            if round == 4 {
                modelled.discard(100, 1500).await;
            }
            states.push((snapshot(&pool, round).await, modelled.blocks.clone()));
        }
        modelled.change(&mut random, 10).await;
        pool.delete_snapshot("mail", "round 3").await.expect("it is deleted");
        states.remove(3);
        for (from_name, from) in &states {
            let since =
                pool.difference("mail", SnapshotKey::from(from_name), None).await.expect("it is found");
            assert_eq!(blocks_of(&since), changed(from, &modelled.blocks), "{from_name} and now");
            for (to_name, to) in &states {
                let keys = (SnapshotKey::from(from_name), SnapshotKey::from(to_name));
                let found = pool.difference("mail", keys.0, Some(keys.1)).await.expect("it is found");
                assert_eq!(blocks_of(&found), changed(from, to), "{from_name} and {to_name}");
            }
        }
        let deleted = pool.difference("mail", SnapshotKey::from("round 3"), None).await;
        assert!(deleted.is_err(), "a deleted snapshot is no point");
    });
}

#[test]
fn a_small_change_in_a_large_volume_visits_few_nodes() {
    let mut scene = Scene::of(92, 3, &DriveOptions::new(ByteCount(401 * MIB)));
    scene.run(|world, devices| async move {
        let setting = OpenSetting { table_entries: 50_000, cache_bytes: 64 << 10, ..OpenSetting::default() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 128 * MIB).await.expect("it is made");
        let mut modelled = ModelVolume { volume, blocks: vec![0; 32 << 10], writes: 0 };
        modelled.write(0, 1).await;
        let empty = snapshot(&pool, 0).await;
        for first in (0..32 << 10).step_by(16) {
            modelled.write(first, 16).await;
        }
        let full = snapshot(&pool, 1).await;
        for block in [7, 8, 20_000] {
            modelled.write(block, 1).await;
        }
        let late = snapshot(&pool, 2).await;
        let [empty, full, late] = [&empty, &full, &late].map(SnapshotKey::from);
        let all = pool.difference("mail", empty, None).await.expect("it is found");
        assert_eq!(blocks_of(&all), (0..32 << 10).collect());
        let few = pool.difference("mail", full, None).await.expect("it is found");
        assert_eq!(few.blocks, [7..9, 20_000..20_001]);
        let same = pool.difference("mail", full, Some(late)).await.expect("it is found");
        assert_eq!(same, few, "nothing was written since");
        let visited = [all.nodes_visited, few.nodes_visited];
        assert!(few.nodes_visited <= 8 && all.nodes_visited >= 5 * few.nodes_visited, "{visited:?}");
        let none = pool.difference("mail", late, None).await.expect("it is found");
        assert!(none.blocks.is_empty() && none.nodes_visited <= 3, "{none:?}");
    });
}
