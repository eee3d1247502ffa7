//! The history tree and the catalogue against plain maps.

use crate::tree_store::{MemoryStore, check, run, trees};
use array::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, CatalogueTable, CheckpointNumber,
        Move, NodeKey, NodePointer, RowKey, SegmentBlock, SegmentNumber, Stamp, TreeKind,
    },
    tree::{BlockVersion, HistoryChange, HistoryEvent, RowChange, Trees, WalkPace},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};
use world::Random;

type Versions = BTreeMap<(BranchNumber, BlockIndex, Stamp), (BlockVersion, Stamp)>;

/// A lifetime is within ten stamps, so that no two of a block overlap.
const LIFE: u64 = 10;

struct Draw {
    random: Random,
    place: u32,
    blocks: u64,
    lives: u64,
}

impl Draw {
    fn version(&mut self, birth: Stamp) -> BlockVersion {
        self.place += 1;
        let segment = SegmentNumber(self.place >> 10);
        let location = BlockLocation::plain(segment, SegmentBlock(self.place & 1023).first_grain());
        if self.random.percent(5.0) {
            return BlockVersion { birth, location: BlockLocation::Zero, checksum: None };
        }
        BlockVersion { birth, location, checksum: Some(BlockChecksum(self.random.next_u64() as u32)) }
    }

    /// Versions that are not in the tree: runs of blocks, in any order of births.
    fn inserts(&mut self, there: &Versions) -> Versions {
        let mut inserts = Versions::new();
        for _ in 0..1 + self.random.below(300) {
            let branch = BranchNumber(1 + self.random.below(2) as u32);
            let birth = Stamp(1 + self.random.below(self.lives) * LIFE);
            let death = Stamp(birth.0 + 1 + self.random.below(LIFE - 1));
            let first = self.random.below(self.blocks);
            let count = if self.random.percent(60.0) { 1 } else { 1 + self.random.below(30) };
            for block in first..first + count {
                let version = self.version(birth);
                let key = (branch, BlockIndex(block), birth);
                if !there.contains_key(&key) {
                    inserts.entry(key).or_insert((version, death));
                }
            }
        }
        inserts
    }

    fn known(&mut self, there: &Versions) -> Option<(BlockKey, BlockVersion, Stamp)> {
        let branch = BranchNumber(1 + self.random.below(2) as u32);
        let from =
            (branch, BlockIndex(self.random.below(self.blocks)), Stamp(self.random.below(self.lives) * LIFE));
        let (key, (version, death)) = there.range(from..).next()?;
        Some((BlockKey { branch: key.0, block: key.1, stamp: key.2 }, *version, *death))
    }

    /// Changes of existing versions, and of absent ones.
    fn others(&mut self, there: &Versions, inserts: &Versions) -> Vec<HistoryChange> {
        let mut changes = Vec::new();
        for _ in 0..self.random.below(120) {
            let from = if self.random.percent(20.0) { inserts } else { there };
            let Some((mut key, version, mut death)) = self.known(from) else { break };
            if self.random.percent(15.0) {
                key.stamp.0 += 1;
                death = death.max(Stamp(key.stamp.0 + 1));
            }
            if self.random.percent(70.0) {
                changes.push(HistoryChange::Remove { key, death });
            } else {
                let to = self.version(key.stamp);
                if let Some(checksum) = to.checksum {
                    let moved = Move { key, from: version.location, to: to.location, checksum };
                    changes.push(HistoryChange::Relocate { moved, death });
                }
            }
        }
        changes
    }
}

fn apply(versions: &mut Versions, changes: &[HistoryChange]) -> Vec<HistoryEvent> {
    let mut events = Vec::new();
    for change in changes {
        let (key, _) = change.life();
        let of = (key.branch, key.block, key.stamp);
        match *change {
            HistoryChange::Insert { version, death, .. } => {
                assert_eq!(versions.insert(of, (version, death)), None);
            }
            HistoryChange::Remove { key, .. } => events.push(match versions.remove(&of) {
                Some((version, death)) => {
                    HistoryEvent::Removed { branch: key.branch, block: key.block, version, death }
                }
                None => HistoryEvent::Absent(key),
            }),
            HistoryChange::Relocate { moved, .. } => {
                let there = versions.get_mut(&of).filter(|(version, _)| version.location == moved.from);
                events.push(match there {
                    Some((version, _)) => {
                        (version.location, version.checksum) = (moved.to, Some(moved.checksum));
                        HistoryEvent::Moved(moved)
                    }
                    None => HistoryEvent::Missed(moved),
                });
            }
        }
    }
    events
}

/// Of given versions, existing and absent, the existing ones are found, however little is known of their
/// lifetimes.
fn check_lives(
    trees: &Trees,
    root: Option<NodePointer>,
    versions: &Versions,
    lives: u64,
    random: &mut Random,
) {
    let mut sought: Vec<(BlockKey, Stamp)> = Vec::new();
    for (&(branch, block, stamp), (_, death)) in versions.iter().step_by(3) {
        sought.push((BlockKey { branch, block, stamp }, Stamp(stamp.0 + random.below(death.0 - stamp.0))));
        sought.push((BlockKey { branch, block, stamp: Stamp(stamp.0 + 3) }, Stamp(stamp.0 + 3)));
    }
    let mut found = BTreeMap::new();
    let stamp_next = Stamp(lives * LIFE + 20);
    run(trees.lives_of(root, &sought, stamp_next, |index, run| {
        let there = (BlockVersion::of(run, sought[index].0.block), run.death.unwrap());
        assert!(found.insert(index, there).is_none(), "a version is found once");
    }))
    .unwrap();
    for (index, (key, _)) in sought.iter().enumerate() {
        assert_eq!(found.get(&index), versions.get(&(key.branch, key.block, key.stamp)), "{key:?}");
    }
}

/// A walk for some points visits every version alive at one of them, in order, also from a key in the middle.
fn check_scan(trees: &Trees, root: Option<NodePointer>, versions: &Versions, points: &[Stamp]) {
    let branch = BranchNumber(2);
    let mut shown = Vec::new();
    run(trees.scan_lives(root, branch, points, (NodeKey::FIRST, WalkPace::Straight), |run| {
        let blocks = (run.first.0..=run.last().0).map(BlockIndex);
        shown.push((run.first_key(), blocks.map(|block| (block, run.birth)).collect::<Vec<_>>()));
        ControlFlow::Continue(())
    }))
    .unwrap();
    assert!(shown.is_sorted_by(|one, other| one.0 < other.0), "each is shown once, in order");
    let all: BTreeSet<_> = shown.iter().flat_map(|(_, versions)| versions).collect();
    for (&(_, block, birth), &(_, death)) in versions.iter().filter(|((of, ..), _)| *of == branch) {
        let is_seen = points.iter().any(|&point| birth <= point && point < death);
        assert!(
            !is_seen || all.contains(&(block, birth)),
            "block {block} of {birth} lived at one of {points:?}"
        );
    }
    let Some((from, _)) = shown.get(shown.len() / 2) else { return };
    let mut rest = Vec::new();
    run(trees.scan_lives(root, branch, points, (*from, WalkPace::LeafByLeaf), |run| {
        rest.push(run.first_key());
        if rest.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }))
    .unwrap();
    let expected = shown[shown.len() / 2..].iter().take(20).map(|(key, _)| *key);
    assert!(rest.into_iter().eq(expected), "from {from:?} on, until told to stop");
}

#[test]
fn any_versions_come_and_go_and_every_point_sees_its_own() {
    for seed in 0..30 {
        let store = MemoryStore::new(seed);
        let trees = trees(&store, if seed.is_multiple_of(3) { 30_000 } else { 1 << 20 });
        let (blocks, lives) = [(40, 60), (3_000, 8), (1 << 30, 4), (3, 3_000)][seed as usize % 4];
        let mut draw = Draw { random: Random::new(seed, "history"), place: 0, blocks, lives };
        let mut versions = Versions::new();
        let mut root = None;
        for round in 0..10 {
            let inserts = draw.inserts(&versions);
            let others = draw.others(&versions, &inserts);
            let mut changes: Vec<HistoryChange> = inserts
                .iter()
                .map(|(&(branch, block, _), &(version, death))| HistoryChange::Insert {
                    branch,
                    block,
                    version,
                    death,
                })
                .chain(others)
                .collect();
            changes.sort_by_key(HistoryChange::node_key);
            let expected = apply(&mut versions, &changes);
            let mut told = Vec::new();
            let checkpoint = CheckpointNumber(round + 1);
            let merged = trees.merge_history(checkpoint, root, changes, |event| told.push(event));
            root = run(merged).unwrap();
            assert!(told == expected, "seed {seed}, merge {round}: what is told");
            let counted = check(&store, &trees, &[(TreeKind::History, root)]);
            assert_eq!(counted.blocks, versions.len() as u64, "seed {seed}, merge {round}");
            let mut all = Versions::new();
            let end = NodeKey { major: u32::MAX, id: 0, minor: 0 };
            run(trees.scan(TreeKind::History, root, NodeKey::FIRST, end, |run| {
                for block in (run.first.0..=run.last().0).map(BlockIndex) {
                    all.insert(
                        (run.branch, block, run.birth),
                        (BlockVersion::of(run, block), run.death.unwrap()),
                    );
                }
                ControlFlow::Continue(())
            }))
            .unwrap();
            assert!(all == versions, "seed {seed}, merge {round}: all versions are there");
            for _ in 0..40 {
                let Some((key, ..)) = draw.known(&versions) else { break };
                let (branch, first) =
                    (key.branch, BlockIndex(key.block.0.saturating_sub(draw.random.below(20))));
                let point = Stamp(1 + draw.random.below(lives * LIFE + 20));
                let count = draw.random.below(60);
                let mut found = Vec::new();
                run(trees.runs_at(root, branch, first, count, point, |run| {
                    found.extend(
                        (run.first.0..=run.last().0)
                            .map(|block| (block, BlockVersion::of(run, BlockIndex(block)))),
                    );
                }))
                .unwrap();
                found.sort_by_key(|(block, _)| *block);
                let seen = |block: u64| {
                    let of_block = (branch, BlockIndex(block), Stamp(0))..=(branch, BlockIndex(block), point);
                    let (_, (version, death)) = versions.range(of_block).next_back()?;
                    (point < *death).then_some(*version)
                };
                let expected: Vec<_> = versions
                    .range((branch, first, Stamp(0))..(branch, BlockIndex(first.0 + count), Stamp(0)))
                    .map(|((_, block, _), _)| block.0)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .filter_map(|block| Some((block, seen(block)?)))
                    .collect();
                let context =
                    format!("seed {seed}, merge {round}, {branch}: {count} from {first} at {point}");
                assert_eq!(found, expected, "{context}");
                let one = run(trees.version_at(root, branch, key.block, point)).unwrap();
                assert_eq!(one, seen(key.block.0), "{context}: {}", key.block);
            }
            check_lives(&trees, root, &versions, lives, &mut draw.random);
            let points: Vec<_> =
                (0..draw.random.below(9)).map(|_| Stamp(1 + draw.random.below(lives * LIFE + 20))).collect();
            check_scan(&trees, root, &versions, &points);
        }
        let remove = |(&(branch, block, stamp), &(_, death)): (&_, &(_, Stamp))| HistoryChange::Remove {
            key: BlockKey { branch, block, stamp },
            death,
        };
        let mut all: Vec<_> = versions.iter().map(remove).collect();
        all.sort_by_key(HistoryChange::node_key);
        let emptied = run(trees.merge_history(CheckpointNumber(99), root, all, |_| ())).unwrap();
        assert_eq!(emptied, None, "seed {seed}");
        check(&store, &trees, &[]);
    }
}

#[test]
fn rows_of_any_size_come_and_go() {
    for seed in 0..20 {
        let store = MemoryStore::new(seed);
        let trees = trees(&store, 1 << 20);
        let mut random = Random::new(seed, "rows");
        let mut rows = BTreeMap::<RowKey, Vec<u8>>::new();
        let mut root = None;
        for round in 0..12 {
            let mut changes = BTreeMap::new();
            for _ in 0..1 + random.below(400) {
                let tables = [
                    CatalogueTable::Segment,
                    CatalogueTable::Volume,
                    CatalogueTable::Point,
                    CatalogueTable::Discard,
                ];
                let key = RowKey {
                    table: tables[random.below(4) as usize],
                    id: random.below(200),
                    sub: random.below(3) * (u64::MAX / 3),
                };
                let length = if random.percent(20.0) { 1 + random.below(1024) } else { 1 + random.below(64) };
                let mut row = vec![0; length as usize];
                random.fill(&mut row);
                let goes = random.percent(if round % 4 == 3 { 90.0 } else { 20.0 });
                changes.insert(key, Some(row).filter(|_| !goes));
            }
            for (key, row) in &changes {
                match row {
                    Some(row) => rows.insert(*key, row.clone()),
                    None => rows.remove(key),
                };
            }
            let changes: Vec<RowChange> = changes.into_iter().collect();
            root = run(trees.merge_rows(CheckpointNumber(round + 1), root, changes)).unwrap();
            let counted = check(&store, &trees, &[(TreeKind::Catalogue, root)]);
            assert_eq!(counted.entries, rows.len() as u64);
            let mut nodes = 0;
            let all = run(trees.all_rows(root, |_| nodes += 1)).unwrap();
            assert_eq!(nodes, counted.nodes, "every node is shown once");
            assert!(all.into_iter().eq(rows.clone()), "seed {seed}, merge {round}");
        }
        let none: Vec<RowChange> = rows.into_keys().map(|key| (key, None)).collect();
        assert_eq!(run(trees.merge_rows(CheckpointNumber(99), root, none)).unwrap(), None, "seed {seed}");
        check(&store, &trees, &[]);
    }
}
