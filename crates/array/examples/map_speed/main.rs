//! Speed of the map alone: a table that is merged into a head tree whenever it is as full as in a pool, with
//! nodes in two files. No data is written.
//!
//! `map_speed FOLDER make BLOCKS PIECE random|sequential` writes each of BLOCKS blocks once, PIECE at a time,
//! then as many again at random. It prints one line of JSON: blocks a second of time and of processor time,
//! bytes a block on disk; `map_speed FOLDER read DEPTH SECONDS CACHE_BYTES` looks up random blocks in the
//! tree that was made last. `map_speed FOLDER difference BLOCKS PERCENT ROUNDS` changes a share of a map at
//! random, then compares the point before with now, by a difference and by lookups of all blocks.

mod difference;
mod nodes;

use array::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, CheckpointNumber, NodePointer,
        PoolId, Roots, SegmentBlock, SegmentNumber, Stamp, TreeKind,
    },
    map::{Branch, Branches, Budget, MapTable, Merge, Points, Reclaim, Sources},
    pool::OpenSetting,
    tree::Trees,
};
use nodes::FileNodes;
use std::{env, error::Error, path::Path, process::ExitCode, rc::Rc, time::Duration};
use world::{
    World,
    real::{RealOptions, host::process_use, host_files, run},
};

type Outcome = Result<(), Box<dyn Error>>;

const POOL: PoolId = PoolId([7; 16]);
const BRANCH: BranchNumber = BranchNumber(1);
/// Approximate blocks of a data segment.
const DATA_BLOCKS: u64 = 1000;
/// Space for nodes, in bytes a block of the map: the old tree, the new tree, and partly free segments.
const NODE_BYTES: u64 = 56;
const NODE_BYTES_MIN: u64 = 64 << 20;
const BUDGET: Budget = Budget { discarded: 1 << 20, reclaimed: 1 << 18 };
/// File with the pointer to the root.
const ROOT: &str = "root";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = run(1, RealOptions::default(), async |world| match words[..] {
        [folder, "make", blocks, piece, order @ ("random" | "sequential")] => {
            make(&world, Path::new(folder), blocks.parse()?, piece.parse()?, order == "random").await
        }
        [folder, "read", depth, seconds, cache] => {
            let span = Duration::from_secs_f64(seconds.parse()?);
            read(&world, Path::new(folder), depth.parse()?, span, cache.parse()?).await
        }
        [folder, "difference", blocks, percent, rounds] => {
            let (blocks, percent) = (blocks.parse()?, percent.parse()?);
            difference::compare(&world, Path::new(folder), blocks, percent, rounds.parse()?).await
        }
        _ => Err("usage: map_speed FOLDER make BLOCKS PIECE random|sequential | FOLDER read DEPTH SECONDS \
                  CACHE_BYTES | FOLDER difference BLOCKS PERCENT ROUNDS"
            .into()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The map under test.
struct Map {
    nodes: FileNodes,
    trees: Trees,
    table: MapTable,
    points: Points,
    branches: Branches,
    roots: Roots,
    checkpoint: u64,
    written: u64,
}

impl Map {
    fn new(nodes: FileNodes, cache_bytes: usize) -> Self {
        let mut branches = Branches::new();
        branches.set(BRANCH, Branch { parent: None, filled_below: None, has_head: true });
        Self {
            trees: Trees::new(Rc::new(nodes.clone()), POOL, cache_bytes),
            nodes,
            table: MapTable::new(),
            points: Points::new(),
            branches,
            roots: Roots::default(),
            checkpoint: 0,
            written: 0,
        }
    }

    /// A host command.
    fn write(&mut self, first: u64, count: u64) {
        let stamp = Stamp(self.written + 1);
        let mut dead = Vec::new();
        for block in first..first + count {
            let key = BlockKey { branch: BRANCH, block: BlockIndex(block), stamp };
            let (segment, at) = (self.written / DATA_BLOCKS, self.written % DATA_BLOCKS);
            let location =
                BlockLocation::plain(SegmentNumber(segment as u32), SegmentBlock(at as u32).first_grain());
            // Like checksums of real data, these must not compress.
            let checksum = BlockChecksum((self.written as u32 + 1).wrapping_mul(0x9e37_79b9));
            self.table.write(key, location, Some(checksum), &self.points, &mut dead);
            self.written += 1;
        }
    }

    async fn merge(&mut self) -> Outcome {
        self.checkpoint += 1;
        let frozen = std::mem::take(&mut self.table);
        let reclaim = Reclaim::new().begin();
        let merge = Merge {
            checkpoint: CheckpointNumber(self.checkpoint),
            frozen: &frozen,
            roots: self.roots,
            points: &self.points,
            branches: &self.branches,
            reclaim: &reclaim,
            budget: BUDGET,
            stamp_next: Stamp(self.written + 1),
        };
        self.roots = merge.run(&self.trees).await?.roots;
        self.trees.forget_replaced();
        Ok(self.nodes.settle().await?)
    }
}

/// Time and processor time of the writes.
struct Elapsed {
    seconds: f64,
    cpu_seconds: f64,
}

async fn make(world: &World, folder: &Path, blocks: u64, piece: u64, is_random: bool) -> Outcome {
    let setting = OpenSetting::default();
    let nodes = FileNodes::create(folder, (blocks * NODE_BYTES).max(NODE_BYTES_MIN)).await?;
    let mut map = Map::new(nodes, setting.cache_bytes);
    let mut random = world.random("places");
    let mut order: Vec<u32> = (0..(blocks / piece) as u32).collect();
    if is_random {
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u64 + 1) as usize);
        }
    }
    let inserted = write_all(world, &mut map, order.iter().copied(), piece, setting.table_entries).await?;
    let mut aged = None;
    if is_random {
        let places = order.iter().map(|_| random.below(blocks / piece) as u32);
        aged = Some(write_all(world, &mut map, places, piece, setting.table_entries).await?);
    }
    let root = map.roots.head.expect("something was written");
    let counted = map.trees.check(TreeKind::Head, Some(root), |_| {}).await?;
    assert_eq!(counted.blocks, blocks, "every block has its version");
    host_files::write_atomically(&folder.join(ROOT), pointer_line(&root, blocks).as_bytes())?;
    let shown = |took: &Elapsed| {
        format!(
            "{{\"blocks\": {blocks}, \"seconds\": {}, \"cpu_seconds\": {}}}",
            took.seconds, took.cpu_seconds
        )
    };
    println!(
        "{{\"inserted\": {}, \"overwritten\": {}, \"disk_bytes\": {}, \"bytes_a_block\": {}, \"written_bytes\": {}, \
         \"merges\": {}, \"levels\": {}}}",
        shown(&inserted),
        aged.as_ref().map_or("null".to_owned(), shown),
        map.nodes.live_bytes(),
        map.nodes.live_bytes() as f64 / blocks as f64,
        map.nodes.written_bytes(),
        map.checkpoint,
        root.level + 1,
    );
    Ok(())
}

async fn write_all(
    world: &World,
    map: &mut Map,
    places: impl Iterator<Item = u32>,
    piece: u64,
    table_entries: usize,
) -> Result<Elapsed, Box<dyn Error>> {
    let (start, used) = (world.now(), process_use());
    for place in places {
        map.write(u64::from(place) * piece, piece);
        if map.table.len() >= table_entries {
            map.merge().await?;
        }
    }
    map.merge().await?;
    Ok(Elapsed {
        seconds: world.now().since(start).as_secs_f64(),
        cpu_seconds: process_use().cpu().saturating_sub(used.cpu()).as_secs_f64(),
    })
}

async fn read(world: &World, folder: &Path, depth: u64, span: Duration, cache_bytes: usize) -> Outcome {
    let (root, blocks) = pointer_of(&host_files::read_to_string(&folder.join(ROOT))?)?;
    let mut map = Map::new(FileNodes::open(folder)?, cache_bytes);
    map.roots.head = Some(root);
    let map = Rc::new(map);
    // Fills the cache first, as in a running pool.
    look_up(world, &map, blocks, depth, Duration::from_secs(1)).await?;
    let (start, used) = (world.now(), process_use());
    let lookups = look_up(world, &map, blocks, depth, span).await?;
    println!(
        "{{\"reads\": {lookups}, \"seconds\": {}, \"cpu_seconds\": {}}}",
        world.now().since(start).as_secs_f64(),
        process_use().cpu().saturating_sub(used.cpu()).as_secs_f64(),
    );
    Ok(())
}

/// Returns the number of lookups.
async fn look_up(
    world: &World,
    map: &Rc<Map>,
    blocks: u64,
    depth: u64,
    span: Duration,
) -> array::error::Result<u64> {
    let end = world.now() + span;
    let lanes: Vec<_> = (0..depth)
        .map(|lane| {
            let (world, map) = (world.clone(), Rc::clone(map));
            let mut random = world.random(&format!("lane {lane}"));
            world.clone().spawn("lane", async move {
                let mut lookups = 0;
                while world.now() < end {
                    let block = BlockIndex(random.below(blocks));
                    let sources = Sources {
                        active: &map.table,
                        merging: None,
                        roots: map.roots,
                        branches: &map.branches,
                        stamp_next: Stamp(map.written + 1),
                    };
                    let found = sources.look_up(BRANCH, None, block, 1).finish(&map.trees).await?;
                    assert!(found[0].is_some(), "every block was written");
                    lookups += 1;
                }
                Ok::<u64, array::error::Error>(lookups)
            })
        })
        .collect();
    let mut all = 0;
    for lane in lanes {
        all += lane.await?;
    }
    Ok(all)
}

fn pointer_line(root: &NodePointer, blocks: u64) -> String {
    let NodePointer { segment, block, blocks: node_blocks, level, seal, stamp_max } = root;
    format!("{} {} {node_blocks} {level} {seal} {} {blocks}", segment.0, block.0, stamp_max.0)
}

fn pointer_of(line: &str) -> Result<(NodePointer, u64), Box<dyn Error>> {
    let words: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [segment, block, node_blocks, level, seal, stamp_max, blocks] = words[..] else {
        return Err(format!("{ROOT} has seven numbers, not {}", words.len()).into());
    };
    let root = NodePointer {
        segment: SegmentNumber(segment as u32),
        block: SegmentBlock(block as u32),
        blocks: node_blocks as u8,
        level: level as u8,
        seal: seal as u32,
        stamp_max: Stamp(stamp_max),
    };
    Ok((root, blocks))
}
