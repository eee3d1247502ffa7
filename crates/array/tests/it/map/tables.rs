//! The table alone: repeated records, discards of any length, and memory.

use array::format::{
    BlockChecksum, BlockCount, BlockIndex, BlockKey, BlockLocation, BranchNumber, Interval, Move,
    SegmentBlock, SegmentNumber, Stamp,
};
use array::map::{DeadVersion, MapTable, Points, VersionLookup};
use array::tree::BlockVersion;
use world::Random;

const BRANCH: BranchNumber = BranchNumber(1);

fn key(block: u64, stamp: u64) -> BlockKey {
    BlockKey { branch: BRANCH, block: BlockIndex(block), stamp: Stamp(stamp) }
}

fn place(place: u32) -> BlockLocation {
    BlockLocation::plain(SegmentNumber(place / 100), SegmentBlock(place % 100).first_grain())
}

fn interval(first: u64, count: u64, stamp: u64) -> Interval {
    Interval { branch: BRANCH, first: BlockIndex(first), count: BlockCount(count), stamp: Stamp(stamp) }
}

fn write(table: &mut MapTable, key: BlockKey, location: BlockLocation, points: &Points) -> Vec<DeadVersion> {
    let mut dead = Vec::new();
    table.write(key, location, Some(BlockChecksum(key.stamp.0 as u32)), points, &mut dead);
    dead
}

fn version(stamp: u64, location: BlockLocation) -> VersionLookup {
    VersionLookup::Version(BlockVersion {
        birth: Stamp(stamp),
        location,
        checksum: Some(BlockChecksum(stamp as u32)),
    })
}

#[test]
fn an_overwritten_version_is_kept_for_a_point_and_dead_without() {
    let mut points = Points::new();
    points.insert(BRANCH, Stamp(15));
    let mut table = MapTable::new();
    assert_eq!(write(&mut table, key(7, 10), place(1), &points), []);
    assert_eq!(write(&mut table, key(7, 20), place(2), &points), [], "the point sees it");
    let dead = write(&mut table, key(7, 30), place(3), &points);
    assert_eq!(dead, [DeadVersion { key: key(7, 20), location: place(2) }]);
    assert_eq!(table.newest(BRANCH, BlockIndex(7)), version(30, place(3)));
    assert_eq!(table.newest_until(BRANCH, BlockIndex(7), Stamp(15)), version(10, place(1)));
    assert_eq!(table.newest(BRANCH, BlockIndex(8)), VersionLookup::NOTHING);
    assert_eq!(table.live().total(), 2 * 64);
}

#[test]
fn a_discard_of_a_whole_volume_is_one_entry_and_later_writes_lie_in_it() {
    let (points, mut table, mut dead) = (Points::new(), MapTable::new(), Vec::new());
    for block in 0..1000 {
        write(&mut table, key(block * 3, 5), place(block as u32), &points);
    }
    table.discard(interval(0, 1 << 34, 6), &points, &mut dead);
    assert_eq!((dead.len(), table.live().total()), (1000, 0));
    table.discard(interval(500, 1 << 30, 7), &points, &mut dead);
    assert!(table.len() <= 2001, "discarded again, nothing changes");
    write(&mut table, key(1 << 20, 8), place(4), &points);
    let zero = |stamp| VersionLookup::Version(BlockVersion::zero(Stamp(stamp)));
    assert_eq!(table.newest(BRANCH, BlockIndex(1 << 33)), zero(6));
    assert_eq!(table.newest(BRANCH, BlockIndex(1 << 20)), version(8, place(4)));
    assert_eq!(table.newest(BRANCH, BlockIndex(1 << 34)), VersionLookup::NOTHING);
}

#[test]
fn an_unfinished_discard_hides_what_is_older_and_nothing_else() {
    let mut table = MapTable::new();
    table.set_unfinished(&[interval(0, 100, 30), interval(50, 100, 10)]);
    let older = |birth| {
        VersionLookup::Version(BlockVersion { birth: Stamp(birth), location: place(1), checksum: None })
    };
    for (block, birth, hidden) in
        [(20, 5, true), (20, 30, false), (70, 20, true), (70, 31, false), (120, 9, true), (120, 20, false)]
    {
        let mut found = table.newest(BRANCH, BlockIndex(block));
        found.refine(older(birth));
        assert_eq!(found != older(birth), hidden, "block {block}, born {birth}");
    }
    let mut at_point = table.newest_until(BRANCH, BlockIndex(70), Stamp(25));
    at_point.refine(older(20));
    assert_eq!(at_point, older(20), "what was discarded after the point");
}

#[test]
fn a_move_counts_only_from_where_the_version_lies() {
    let (points, mut table, mut dead) = (Points::new(), MapTable::new(), Vec::new());
    write(&mut table, key(7, 10), place(1), &points);
    let moved =
        |from, to| Move { key: key(7, 10), from: place(from), to: place(to), checksum: BlockChecksum(10) };
    table.moved(&moved(1, 2), &mut dead);
    table.moved(&moved(1, 3), &mut dead);
    table.moved(&moved(1, 2), &mut dead);
    assert_eq!(dead, [1, 3].map(|at| DeadVersion { key: key(7, 10), location: place(at) }));
    assert_eq!(table.newest(BRANCH, BlockIndex(7)), version(10, place(2)));

    let old = BlockVersion { birth: Stamp(4), location: place(50), checksum: None };
    let moved =
        |from, to| Move { key: key(7, 4), from: place(from), to: place(to), checksum: BlockChecksum(4) };
    table.moved(&moved(60, 61), &mut dead);
    table.moved(&moved(50, 51), &mut dead);
    table.moved(&moved(51, 52), &mut dead);
    assert_eq!(table.relocated(BRANCH, BlockIndex(7), old).location, place(52), "it is in an older source");
    assert_eq!(table.live().total(), 4 * 64, "no copy is given up before it is known which one counts");
}

/// Log entries, in order.
#[derive(Clone, Copy)]
enum Entry {
    Write(BlockKey, BlockLocation),
    Discard(Interval),
    Move(Move),
}

#[test]
fn records_that_are_taken_twice_change_nothing() {
    for seed in 0..200 {
        let mut random = Random::new(seed, "twice");
        let mut points = Points::new();
        for _ in 0..random.below(5) {
            points.insert(BRANCH, Stamp(random.below(100)));
        }
        let mut entries = Vec::new();
        for stamp in 1..100 {
            let (first, count) = (random.below(40), 1 + random.below(6));
            match random.below(10) {
                0..=6 => {
                    let at = stamp as u32 * 10;
                    let blocks = (first..first + count).zip(at..);
                    entries.extend(blocks.map(|(block, at)| Entry::Write(key(block, stamp), place(at))));
                }
                7 | 8 => entries.push(Entry::Discard(interval(first, count * 3, stamp))),
                _ => {
                    let last = entries.iter().rev().find_map(|entry| match entry {
                        Entry::Write(key, at) => Some((*key, *at)),
                        _ => None,
                    });
                    if let Some((key, from)) = last {
                        let (to, checksum) = (place(5000 + stamp as u32), BlockChecksum(key.stamp.0 as u32));
                        entries.push(Entry::Move(Move { key, from, to, checksum }));
                    }
                }
            }
        }
        let mut table = MapTable::new();
        let mut take = |entries: &[Entry]| {
            for entry in entries {
                match entry {
                    Entry::Write(key, at) => drop(write(&mut table, *key, *at, &points)),
                    Entry::Discard(interval) => table.discard(*interval, &points, &mut Vec::new()),
                    Entry::Move(moved) => table.moved(moved, &mut Vec::new()),
                }
            }
            let reads = (0..80).map(|block| {
                let block = BlockIndex(block);
                let seen = points.of(BRANCH).iter().map(|&point| table.newest_until(BRANCH, block, point));
                (table.newest(BRANCH, block), seen.collect::<Vec<_>>())
            });
            (reads.collect::<Vec<_>>(), table.live().total())
        };
        let (once, live) = take(&entries);
        let from = random.below(entries.len() as u64) as usize;
        let (twice, live_twice) = take(&entries[from..]);
        let births = |reads: &[(VersionLookup, Vec<VersionLookup>)]| {
            let birth = |found: &VersionLookup| match found {
                VersionLookup::Version(version) => Some(version.birth),
                VersionLookup::Unknown { .. } => None,
            };
            reads
                .iter()
                .map(|(head, seen)| (birth(head), seen.iter().map(birth).collect()))
                .collect::<Vec<(_, Vec<_>)>>()
        };
        assert_eq!(births(&once), births(&twice), "seed {seed}");
        assert!(
            live_twice >= live,
            "seed {seed}: a copy that nobody points to may be counted until the next checkpoint"
        );
    }
}

#[test]
fn a_run_costs_little_more_than_its_checksums() {
    let (points, mut table) = (Points::new(), MapTable::new());
    for command in 0..1000u64 {
        for block in 0..64 {
            let at = (command % 1000 * 64 + block) as u32;
            let location =
                BlockLocation::plain(SegmentNumber(at / 6400), SegmentBlock(at % 6400).first_grain());
            write(&mut table, key(command * 70 + block, command + 1), location, &points);
        }
    }
    assert_eq!(table.len(), 1000, "a command in a row is one entry");
    assert!(table.bytes() < 64_000 * 8, "{} bytes", table.bytes());
}
