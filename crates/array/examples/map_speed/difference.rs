//! The difference of a point and now, beside a walk over all: every block looked up at both points, as a reader
//! without the difference has to.

use super::{BRANCH, FileNodes, Map, NODE_BYTES, NODE_BYTES_MIN, Outcome};
use array::{
    format::{BlockIndex, Stamp},
    map::{BlockMapping, Sources},
    pool::OpenSetting,
    tree::PointPair,
};
use std::path::Path;
use world::World;

/// Blocks of a write, while the map is filled and while it is changed.
const FILL_BLOCKS: u64 = 16;
const CHANGE_BLOCKS: u64 = 2;
/// Blocks of one lookup, as in a pool.
const BLOCKS_AT_ONCE: u64 = 16_384;
/// Nodes of a step of a difference, as in a pool.
const NODES_AT_ONCE: u64 = 1024;

/// Fills a map, changes a share of it at random after a point, and compares the point with now, both ways in
/// turn.
pub async fn compare(world: &World, folder: &Path, blocks: u64, percent: u64, rounds: u64) -> Outcome {
    let setting = OpenSetting::default();
    let nodes = FileNodes::create(folder, (blocks * NODE_BYTES).max(NODE_BYTES_MIN)).await?;
    let mut map = Map::new(nodes, setting.cache_bytes);
    for first in (0..blocks).step_by(FILL_BLOCKS as usize) {
        map.write(first, FILL_BLOCKS);
        if map.table.len() >= setting.table_entries {
            map.merge().await?;
        }
    }
    map.merge().await?;
    map.written += 1;
    let point = Stamp(map.written);
    map.points.insert(BRANCH, point);
    let mut random = world.random("changes");
    for _ in 0..blocks * percent / 100 / CHANGE_BLOCKS {
        map.write(random.below(blocks / CHANGE_BLOCKS) * CHANGE_BLOCKS, CHANGE_BLOCKS);
        if map.table.len() >= setting.table_entries {
            map.merge().await?;
        }
    }
    map.merge().await?;
    let (mut differences, mut walks, mut counts) = (Vec::new(), Vec::new(), None);
    for round in 0..2 * rounds {
        let start = world.now();
        // The two take turns to begin.
        let is_difference = matches!(round % 4, 0 | 3);
        let (changed, nodes) = if is_difference {
            let (changed, nodes) = by_difference(&map, point, blocks).await?;
            (changed, Some(nodes))
        } else {
            (by_lookups(&map, point, blocks).await?, None)
        };
        let seconds = world.now().since(start).as_secs_f64();
        if is_difference { &mut differences } else { &mut walks }.push(seconds);
        let (known, visited) = counts.get_or_insert((changed, nodes));
        assert_eq!(*known, changed, "both ways find the same");
        *visited = visited.or(nodes);
    }
    let (changed, nodes) = counts.expect("a round was measured");
    println!(
        "{{\"blocks\": {blocks}, \"changed\": {changed}, \"nodes_visited\": {}, \"difference_seconds\": {differences:?}, \
         \"walk_seconds\": {walks:?}}}",
        nodes.expect("a difference was measured")
    );
    Ok(())
}

/// Changed blocks, and nodes visited.
async fn by_difference(map: &Map, earlier: Stamp, blocks: u64) -> array::error::Result<(u64, u64)> {
    let pair = PointPair { branch: BRANCH, earlier, later: None };
    let (mut changed, mut nodes, mut next) = (0, 0, Some(0));
    while let Some(first) = next {
        let mut walk = map.trees.changed_blocks(map.roots, pair, first..blocks, NODES_AT_ONCE);
        while let Some((range, _)) = walk.next().await? {
            changed += range.end - range.start;
        }
        nodes += walk.nodes_visited();
        next = walk.paused_at();
    }
    Ok((changed, nodes))
}

/// Changed blocks.
async fn by_lookups(map: &Map, earlier: Stamp, blocks: u64) -> array::error::Result<u64> {
    let sources = || Sources {
        active: &map.table,
        merging: None,
        roots: map.roots,
        branches: &map.branches,
        stamp_next: Stamp(map.written + 1),
    };
    let birth = |mapping: &Option<BlockMapping>| mapping.as_ref().map(|mapping| mapping.version.birth);
    let mut changed = 0;
    for first in (0..blocks).step_by(BLOCKS_AT_ONCE as usize) {
        let count = BLOCKS_AT_ONCE.min(blocks - first) as usize;
        let look_up = |point| sources().look_up(BRANCH, point, BlockIndex(first), count);
        let before = look_up(Some(earlier)).finish(&map.trees).await?;
        let after = look_up(None).finish(&map.trees).await?;
        let pairs = before.iter().zip(&after);
        changed += pairs.filter(|(before, after)| birth(before) != birth(after)).count() as u64;
    }
    Ok(changed)
}
