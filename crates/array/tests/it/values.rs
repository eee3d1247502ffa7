//! Strategies for any valid value of each structure.

use array::format::{
    checkpoint::{Checkpoint, LogStart, Roots},
    entry::{Interval, LogEntry, Move, PayloadGrain, Put, Write},
    features::COMPATIBLE_LEVEL,
    *,
};
use proptest::{array::uniform16, collection::vec, option, prelude::*, sample::select};

/// A fixed number of cases, the same in every run. A failing case prints its seed and values; nothing is
/// written.
pub fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(20_261_122);
    ProptestConfig { cases, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

pub fn stored() -> impl Strategy<Value = Stored> {
    let shortened = (1..4096_usize, select(vec![Compression::Lz4, Compression::Zstd]));
    let fill = (0..12).prop_map(|power| (1_usize << power, Compression::Fill));
    let encoding = prop_oneof![Just((4096, Compression::None)), shortened, fill];
    (encoding, any::<bool>()).prop_map(|((length, compression), encrypted)| {
        Stored::new(length, Encoding { compression, encrypted }).expect("they go together")
    })
}

/// A stored form with a valid block and grain.
fn placed(blocks: u32) -> impl Strategy<Value = (Stored, u32)> {
    (stored(), 0..blocks, any::<proptest::sample::Index>()).prop_map(|(stored, block, grain)| {
        (stored, block * 64 + grain.index(65 - stored.grains() as usize) as u32)
    })
}

pub fn location() -> impl Strategy<Value = BlockLocation> {
    let direct = (any::<u32>(), placed(1 << 26)).prop_map(|(segment, (stored, at))| BlockLocation::Direct {
        segment: SegmentNumber(segment),
        at: SegmentGrain(at),
        stored,
    });
    let inline = (vec(any::<u8>(), 1..=12), any::<bool>()).prop_map(|(bytes, encrypted)| {
        let encoding = Encoding { compression: Compression::Zstd, encrypted };
        BlockLocation::Inline(InlineBytes::new(&bytes, encoding).expect("short enough"))
    });
    let indirect = any::<u64>().prop_map(|shared| BlockLocation::Indirect(SharedBlock(shared)));
    prop_oneof![4 => direct, 1 => inline, 1 => indirect, 1 => Just(BlockLocation::Zero)]
}

pub fn block_key() -> impl Strategy<Value = BlockKey> {
    (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(branch, block, stamp)| BlockKey {
        branch: BranchNumber(branch),
        block: BlockIndex(block),
        stamp: Stamp(stamp),
    })
}

pub fn row_key() -> impl Strategy<Value = RowKey> {
    let tables = [
        CatalogueTable::Segment,
        CatalogueTable::Volume,
        CatalogueTable::Branch,
        CatalogueTable::Point,
        CatalogueTable::Group,
        CatalogueTable::Epoch,
        CatalogueTable::Discard,
        CatalogueTable::Scrub,
        CatalogueTable::Intent,
        CatalogueTable::Cut,
        CatalogueTable::Withholding,
        CatalogueTable::Site,
        CatalogueTable::Replication,
        CatalogueTable::Import,
    ];
    (select(tables.to_vec()), any::<u64>(), any::<u64>()).prop_map(|(table, id, sub)| RowKey {
        table,
        id,
        sub,
    })
}

fn slots(counts: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<SlotAddress>> {
    proptest::collection::btree_map(any::<u16>(), any::<u32>(), counts).prop_map(|slots| {
        let address = |(member, slot)| SlotAddress { member: MemberIndex(member), slot: SlotNumber(slot) };
        slots.into_iter().map(address).collect()
    })
}

fn mirrored() -> impl Strategy<Value = MirroredSegment> {
    (any::<u32>(), any::<u64>(), slots(1..=3)).prop_map(|(number, segment_use, slots)| MirroredSegment {
        number: SegmentNumber(number),
        segment_use: SegmentUse(segment_use),
        slots,
    })
}

pub fn slot_header() -> impl Strategy<Value = SlotHeader> {
    let shapes = [
        SegmentShape::mirrored(256, 2),
        SegmentShape::mirrored(1024, 3),
        SegmentShape::new(RedundancyClass::Raid0, 512, 16, 0, 1).unwrap(),
        SegmentShape::new(RedundancyClass::Raid0, 512, 16, 0, 32).unwrap(),
        SegmentShape::new(RedundancyClass::Raid10, 1024, 8, 0, 8).unwrap(),
        SegmentShape::new(RedundancyClass::Raid5, 1024, 16, 0, 5).unwrap(),
        SegmentShape::new(RedundancyClass::Raid6, 1024, 16, 0, 12).unwrap(),
        SegmentShape::new(RedundancyClass::Raid50, 1024, 16, 4, 12).unwrap(),
    ];
    let kinds = select(vec![SegmentKind::Log, SegmentKind::Data, SegmentKind::Nodes]);
    let numbers = (uniform16(any::<u8>()), any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>());
    (select(shapes.to_vec()), kinds, numbers, vec(mirrored(), 0..=4))
        .prop_flat_map(|(shape, kind, numbers, successors)| {
            let count = shape.slot_count();
            (Just((shape, kind, numbers, successors)), slots(count), 0..count)
        })
        .prop_map(
            |((shape, kind, (pool, number, segment_use, incarnation, first), successors), slots, index)| {
                let is_log = kind == SegmentKind::Log;
                SlotHeader {
                    pool: PoolId(pool),
                    number: SegmentNumber(number),
                    segment_use: SegmentUse(segment_use),
                    incarnation: Incarnation(incarnation),
                    kind,
                    shape,
                    slots,
                    slot_index: index,
                    first_position: Position(if is_log { first } else { 0 }),
                    successors: if is_log { successors } else { Vec::new() },
                }
            },
        )
}

pub fn summary() -> impl Strategy<Value = SummaryBlock> {
    let entry = (block_key(), placed(1), any::<u32>());
    let numbers = (uniform16(any::<u8>()), any::<u32>(), any::<u64>(), 0..500_u16);
    (numbers, vec(entry, 0..=126)).prop_map(|((pool, number, segment_use, index), entries)| {
        let entries =
            entries.into_iter().enumerate().map(|(block, (key, (stored, at), checksum))| SummaryEntry {
                key,
                at: SegmentGrain(block as u32 * 64 + at),
                stored,
                checksum: BlockChecksum(checksum),
            });
        SummaryBlock {
            pool: PoolId(pool),
            number: SegmentNumber(number),
            segment_use: SegmentUse(segment_use),
            block_index: index,
            block_count: index + 1,
            entries: entries.collect(),
        }
    })
}

fn interval() -> impl Strategy<Value = Interval> {
    (any::<u32>(), 0..u64::MAX / 2, 1..u64::MAX / 2, any::<u64>()).prop_map(
        |(branch, first, count, stamp)| Interval {
            branch: BranchNumber(branch),
            first: BlockIndex(first),
            count: BlockCount(count),
            stamp: Stamp(stamp),
        },
    )
}

/// An entry by itself; [`record`] assigns the parts of the payload.
fn entry() -> impl Strategy<Value = LogEntry> {
    let write = (block_key(), stored(), any::<u32>()).prop_map(|(key, stored, checksum)| {
        LogEntry::Write(Write { key, at: PayloadGrain(0), stored, checksum: BlockChecksum(checksum) })
    });
    let moved = (block_key(), location(), location(), any::<u32>()).prop_map(|(key, from, to, checksum)| {
        LogEntry::Move(Move { key, from, to, checksum: BlockChecksum(checksum) })
    });
    let put = (row_key(), 1..=1024_u16, any::<u32>()).prop_map(|(row, length, checksum)| {
        LogEntry::Put(Put { row, at: PayloadGrain(0), length, checksum })
    });
    prop_oneof![
        8 => write,
        1 => interval().prop_map(LogEntry::Zeroes),
        1 => interval().prop_map(LogEntry::Discard),
        2 => moved,
        1 => put,
        1 => row_key().prop_map(LogEntry::Remove),
    ]
}

pub fn record() -> impl Strategy<Value = LogRecord> {
    let ids = (uniform16(any::<u8>()), any::<u64>(), 1..u64::MAX, any::<u64>(), any::<u64>());
    let place = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
    // 62 moves fill a header, and 62 parts a payload of 64 blocks at most.
    (ids, place, vec(entry(), 1..=62)).prop_map(|(ids, place, mut entries)| {
        let mut blocks = 0;
        for entry in &mut entries {
            match entry {
                LogEntry::Write(write) => write.at = PayloadGrain(blocks * 64),
                LogEntry::Put(put) => put.at = PayloadGrain(blocks * 64),
                _ => continue,
            }
            blocks += 1;
        }
        LogRecord {
            pool: PoolId(ids.0),
            incarnation: Incarnation(ids.1),
            position: Position(ids.2),
            previous: RecordLink { position: Position(ids.2 - 1 - ids.3 % ids.2.min(3)), seal: place.2 },
            acknowledged_below: Position(ids.3 % ids.2),
            fence: Fence(ids.4),
            accepted_at: WallNanoseconds(ids.3),
            segment: SegmentNumber(place.0),
            segment_use: SegmentUse(place.1),
            block: SegmentBlock(place.3),
            payload_blocks: blocks,
            entries,
        }
    })
}

pub fn pointer() -> impl Strategy<Value = NodePointer> {
    (any::<[u32; 3]>(), 1..=16_u8, any::<u8>(), any::<u64>()).prop_map(|(words, blocks, level, stamp_max)| {
        NodePointer {
            segment: SegmentNumber(words[0]),
            block: SegmentBlock(words[1]),
            blocks,
            level,
            seal: words[2],
            stamp_max: Stamp(stamp_max),
        }
    })
}

pub fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    let roots = (option::of(pointer()), option::of(pointer()), option::of(pointer()));
    let segments = prop_oneof![3 => vec(mirrored(), 0..5), 1 => vec(mirrored(), 90..300)];
    let log = (mirrored(), any::<u32>(), any::<u32>(), any::<u32>());
    (any::<[u64; 6]>(), roots, log, segments).prop_map(|(numbers, roots, log, mut segments)| {
        segments.sort_by_key(|segment| segment.number);
        segments.dedup_by_key(|segment| segment.number);
        let previous = numbers[0] / 2;
        Checkpoint {
            pool: crate::examples::POOL,
            number: CheckpointNumber(numbers[1]),
            incarnation: Incarnation(numbers[2]),
            log: LogStart {
                previous: RecordLink { position: Position(previous), seal: log.1 },
                segment: log.0,
                block: SegmentBlock(log.2),
            },
            acknowledged_below: Position(previous),
            position_next: Position(previous + 1 + u64::from(log.3)),
            stamp_next: Stamp(numbers[3]),
            segment_use_next: SegmentUse(numbers[4]),
            fence: Fence(numbers[5]),
            written_at: WallNanoseconds(numbers[5]),
            roots: Roots { head: roots.0, history: roots.1, catalogue: roots.2 },
            catalogue_segments: segments,
        }
    })
}

fn member() -> impl Strategy<Value = Member> {
    let states = [
        MemberState::Active,
        MemberState::Missing,
        MemberState::Joining,
        MemberState::Leaving,
        MemberState::Gone,
        MemberState::Withdrawn,
    ];
    let serial = vec(32..127_u8, 0..=48).prop_map(|bytes| String::from_utf8(bytes).expect("ASCII"));
    let domain = option::of("[a-zA-Z0-9._-]{1,12}").prop_map(|name| DomainName::new(&name?));
    let sector = select(vec![512_u16, 4096]);
    let set = option::of(1..=u8::MAX).prop_map(|number| SetNumber::new(number?));
    (serial, select(states.to_vec()), any::<u64>(), sector, any::<u32>(), domain, set).prop_map(
        |(serial, state, since, sector_bytes, slot_count, domain, set)| Member {
            drive: DriveId::NONE,
            serial,
            state,
            since: Generation(since),
            sector_bytes,
            slot_count,
            domain,
            set,
        },
    )
}

/// Any features, with a format level that goes with them.
fn features(numbers: [u64; 5]) -> Features {
    let compatible = numbers[1] & !COMPATIBLE_LEVEL;
    let any = Features { compatible, read_only: numbers[2], incompatible: numbers[3] };
    any.raised_to(any.level().max(FormatLevel(numbers[4] as u8)))
}

pub fn superblock() -> impl Strategy<Value = Superblock> {
    let members = prop_oneof![3 => vec(member(), 1..12), 1 => vec(member(), 250..=256)];
    let geometry = (256..(1_u64 << 36), 20..=22, 1..=3_u8);
    let name = vec(any::<char>(), 0..16)
        .prop_map(|name| name.into_iter().filter(|c| !c.is_control()).collect::<String>());
    (any::<[u64; 5]>(), name, geometry, members, any::<[u16; 2]>(), checkpoint()).prop_map(
        |(numbers, name, (start, slot_power, log_copies), mut members, picks, checkpoint)| {
            for (index, member) in members.iter_mut().enumerate() {
                member.drive.0[..8].copy_from_slice(&(index as u64 + 1).to_le_bytes());
            }
            let generation = Generation(numbers[0].max(1));
            let mut superblock = Superblock {
                pool: checkpoint.pool,
                name,
                generation,
                settled: Generation(numbers[4] % generation.0),
                mark: GenerationMark(numbers[1] ^ numbers[2]),
                previous_mark: GenerationMark(numbers[3]),
                features: features(numbers),
                created_at: WallNanoseconds(numbers[4]),
                geometry: PoolGeometry {
                    data_start_bytes: start * 4096,
                    slot_bytes: 1_u32 << slot_power,
                    log_copies,
                },
                this: MemberIndex(picks[0] % members.len() as u16),
                members,
                place: superblock::superblock_places(generation)[usize::from(picks[1] % 2)],
                checkpoint,
            };
            superblock.note_domains();
            superblock.note_sets();
            if superblock.members.iter().any(|member| member.set.is_some()) {
                superblock.set_wants_sets(true);
            }
            superblock
        },
    )
}
