//! One value of each structure, with every field in use: the source of the golden images.

use array::format::{
    checkpoint::{Checkpoint, LogStart, Roots},
    entry::{Interval, LogEntry, Move, PayloadGrain, Put, Write},
    features::{
        INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING, INCOMPATIBLE_GROUPS, INCOMPATIBLE_IMPORTS,
        INCOMPATIBLE_JOINING, INCOMPATIBLE_LEAVING, INCOMPATIBLE_NOTES, INCOMPATIBLE_PIVOTS,
        READ_ONLY_BRANCH_STAMPS,
    },
    node::{CatalogueBuilder, ChildPointer, InnerBuilder, MapBuilder, NodePlace},
    row::{
        BranchRow, CutRow, CutState, DiscardRow, EpochRow, GroupOperation, GroupRow, IdSeed, ImportRow,
        IntentRow, PointRow, PointUses, ReplicationHeadRow, ReplicationPartRow, ScrubCounts, ScrubPlace,
        ScrubRow, SegmentRow, SegmentState, SharedDecision, SiteHeadRow, SitePartRow, VolumeRow, VolumeState,
        WithheldClient, WithholdingRow, WriteCache,
    },
    *,
};
use zerocopy::little_endian as le;

pub const POOL: PoolId = PoolId(*b"a pool of spring");

pub fn slot(member: u16, slot: u32) -> SlotAddress {
    SlotAddress { member: MemberIndex(member), slot: SlotNumber(slot) }
}

pub fn mirrored(number: u32, segment_use: u64, members: &[u16]) -> MirroredSegment {
    MirroredSegment {
        number: SegmentNumber(number),
        segment_use: SegmentUse(segment_use),
        slots: members.iter().map(|&member| slot(member, 100 + u32::from(member))).collect(),
    }
}

pub fn key(branch: u32, block: u64, stamp: u64) -> BlockKey {
    BlockKey { branch: BranchNumber(branch), block: BlockIndex(block), stamp: Stamp(stamp) }
}

pub fn shortened() -> Stored {
    Stored::new(1500, Encoding { compression: Compression::Lz4, encrypted: false }).unwrap()
}

pub fn checkpoint() -> Checkpoint {
    let root = |segment, level, stamp_max| NodePointer {
        segment: SegmentNumber(segment),
        block: SegmentBlock(17),
        blocks: 1,
        level,
        seal: 0x1234_5678 + segment,
        stamp_max: Stamp(stamp_max),
    };
    Checkpoint {
        pool: POOL,
        number: CheckpointNumber(41),
        incarnation: Incarnation(6),
        log: LogStart {
            previous: RecordLink { position: Position(9000), seal: 0xfeed_beef },
            segment: mirrored(12, 700, &[2, 5]),
            block: SegmentBlock(33),
        },
        acknowledged_below: Position(9004),
        position_next: Position(9010),
        stamp_next: Stamp(1_000_000),
        segment_use_next: SegmentUse(711),
        fence: Fence(3),
        written_at: WallNanoseconds(1_795_000_000_000_000_000),
        roots: Roots { head: Some(root(20, 2, 999_000)), history: None, catalogue: Some(root(21, 0, 0)) },
        catalogue_segments: vec![mirrored(21, 650, &[0, 1]), mirrored(22, 651, &[1, 2, 3])],
    }
}

pub fn superblock() -> Superblock {
    let member = |index: u8, state, since| Member {
        drive: DriveId([index; 16]),
        serial: format!("SN-{index:04}"),
        state,
        since: Generation(since),
        sector_bytes: if index.is_multiple_of(2) { 512 } else { 4096 },
        slot_count: 2048,
        domain: None,
        set: None,
    };
    Superblock {
        pool: POOL,
        name: "post".to_owned(),
        generation: Generation(57),
        settled: Generation(56),
        mark: GenerationMark(0x0123_4567_89ab_cdef),
        previous_mark: GenerationMark(0xfedc_ba98_7654_3210),
        features: Features { compatible: 0, read_only: 1, incompatible: 0b10 },
        created_at: WallNanoseconds(1_790_000_000_000_000_000),
        geometry: PoolGeometry { data_start_bytes: 4 << 20, slot_bytes: 4 << 20, log_copies: 2 },
        members: vec![
            member(1, MemberState::Active, 1),
            member(2, MemberState::Missing, 57),
            member(3, MemberState::Joining, 50),
            member(4, MemberState::Leaving, 40),
            member(5, MemberState::Gone, 30),
        ],
        this: MemberIndex(2),
        place: 3,
        checkpoint: checkpoint(),
    }
}

/// The state while a drive joins, or after it has withdrawn.
pub fn superblock_joining(state: MemberState) -> Superblock {
    let mut superblock = superblock();
    superblock.features.incompatible |= INCOMPATIBLE_JOINING;
    let last = superblock.members.last_mut().expect("it has members");
    (last.state, last.since) = (state, superblock.generation);
    superblock
}

/// The features that a pool has from its first checkpoint on.
pub fn superblock_after_checkpoint() -> Superblock {
    let features =
        Features { compatible: 0, read_only: READ_ONLY_BRANCH_STAMPS, incompatible: INCOMPATIBLE_PIVOTS };
    Superblock { features, ..superblock() }
}

/// A pool of which a drive is leaving.
pub fn superblock_leaving() -> Superblock {
    let mut superblock = superblock_after_checkpoint();
    superblock.features.incompatible |= INCOMPATIBLE_LEAVING;
    // A pool has no other row of a kind that an older program would misread.
    superblock.members[2].state = MemberState::Active;
    superblock.members[3].since = superblock.generation;
    superblock
}

/// A pool that keeps room for one lost drive, and should keep it for two.
pub fn superblock_with_sparing() -> Superblock {
    let mut superblock = superblock_after_checkpoint();
    let double = Sparing::whole(SparingLevel::Double);
    superblock.features = superblock.features.with_sparing(double.after_losses(1));
    superblock
}

/// A pool with drives in two shelves; one of its drives is in none, and the gone one neither.
pub fn superblock_with_domains() -> Superblock {
    let mut superblock = superblock_after_checkpoint();
    for (index, name) in [(0, "shelf-1"), (1, "rack_2.unit7"), (2, "shelf-1"), (4, "shelf-1")] {
        superblock.members[index].domain = DomainName::new(name);
    }
    superblock.note_domains();
    superblock
}

/// A pool in two failure sets; its gone drive is in none.
pub fn superblock_with_sets() -> Superblock {
    let mut superblock = superblock_with_domains();
    for (index, set) in [(0, 1), (1, 2), (2, 1), (4, 2)] {
        superblock.members[index].set = SetNumber::new(set);
    }
    superblock.set_wants_sets(true);
    superblock.note_sets();
    superblock
}

/// The features of a pool in which a clone is being filled.
pub fn superblock_with_fillings() -> Superblock {
    let mut superblock = superblock_after_checkpoint();
    superblock.features.incompatible |= INCOMPATIBLE_BRANCHES | INCOMPATIBLE_FILLING;
    superblock
}

/// The features of a pool with a volume that is being imported.
pub fn superblock_with_imports() -> Superblock {
    let mut superblock = superblock_with_fillings();
    superblock.features.incompatible |= INCOMPATIBLE_IMPORTS;
    superblock
}

/// The features of a pool with a group whose snapshots have notes.
pub fn superblock_with_groups() -> Superblock {
    let mut superblock = superblock_after_checkpoint();
    superblock.features.incompatible |= INCOMPATIBLE_GROUPS | INCOMPATIBLE_NOTES;
    superblock
}

pub fn log_slot_header() -> SlotHeader {
    SlotHeader {
        pool: POOL,
        number: SegmentNumber(12),
        segment_use: SegmentUse(700),
        incarnation: Incarnation(6),
        kind: SegmentKind::Log,
        shape: SegmentShape::mirrored(1024, 2),
        slots: vec![slot(2, 102), slot(5, 105)],
        slot_index: 1,
        first_position: Position(8800),
        successors: vec![
            mirrored(13, 701, &[0, 3]),
            mirrored(14, 702, &[1, 4, 6]),
            mirrored(15, 703, &[2, 5]),
            mirrored(16, 704, &[3, 7]),
        ],
    }
}

pub fn raid50_slot_header() -> SlotHeader {
    SlotHeader {
        kind: SegmentKind::Data,
        shape: SegmentShape::new(RedundancyClass::Raid50, 256, 16, 3, 6).unwrap(),
        slots: (0..6).map(|member| slot(member, 9)).collect(),
        slot_index: 5,
        first_position: Position(0),
        successors: Vec::new(),
        ..log_slot_header()
    }
}

pub fn summary() -> SummaryBlock {
    let entry = |at, block, stored| SummaryEntry {
        key: key(4, block, 5000 + block),
        at: SegmentGrain(at),
        stored,
        checksum: BlockChecksum(0xabcd_0000 + at),
    };
    SummaryBlock {
        pool: POOL,
        number: SegmentNumber(12),
        segment_use: SegmentUse(700),
        block_index: 2,
        block_count: 3,
        entries: vec![
            entry(64, 900, Stored::PLAIN),
            entry(128, 17, shortened()),
            entry(152, 18, shortened()),
        ],
    }
}

pub fn locations() -> [(&'static str, BlockLocation); 4] {
    let fill = Encoding { compression: Compression::Fill, encrypted: true };
    [
        (
            "location-direct-1",
            BlockLocation::Direct { segment: SegmentNumber(12), at: SegmentGrain(130), stored: shortened() },
        ),
        ("location-indirect-1", BlockLocation::Indirect(SharedBlock(0x0102_0304_0506_0708))),
        ("location-inline-1", BlockLocation::Inline(InlineBytes::new(b"pattern!", fill).unwrap())),
        ("location-zero-1", BlockLocation::Zero),
    ]
}

/// The payload of [`record`]: a block, a shortened block, a row.
pub fn payload() -> Vec<u8> {
    let mut payload = vec![0; 2 * 4096];
    payload[..4096].fill(0x11);
    payload[4096..4096 + 1500].fill(0x22);
    payload[4096 + 1536..][..20].fill(0x33);
    payload
}

pub fn record() -> LogRecord {
    let (seed, payload) = (ChecksumSeed::of(POOL), payload());
    let write = |key, at: u16, stored: Stored| {
        let part = &payload[usize::from(at) * 64..][..stored.length()];
        LogEntry::Write(Write { key, at: PayloadGrain(at), stored, checksum: seed.checksum(key, part) })
    };
    let interval = |first, count, stamp| Interval {
        branch: BranchNumber(4),
        first: BlockIndex(first),
        count: BlockCount(count),
        stamp: Stamp(stamp),
    };
    LogRecord {
        pool: POOL,
        incarnation: Incarnation(6),
        position: Position(9001),
        previous: RecordLink { position: Position(9000), seal: 0xfeed_beef },
        acknowledged_below: Position(8999),
        fence: Fence(3),
        accepted_at: WallNanoseconds(1_795_000_000_000_000_001),
        segment: SegmentNumber(12),
        segment_use: SegmentUse(700),
        block: SegmentBlock(33),
        payload_blocks: 2,
        entries: vec![
            write(key(4, 1000, 999_100), 0, Stored::PLAIN),
            write(key(4, 1001, 999_100), 64, shortened()),
            LogEntry::Zeroes(interval(5000, 16, 999_101)),
            LogEntry::Discard(interval(0, 1 << 34, 999_102)),
            LogEntry::Move(Move {
                key: key(3, 77, 400),
                from: BlockLocation::plain(SegmentNumber(9), SegmentGrain(640)),
                to: locations()[0].1,
                checksum: BlockChecksum(0x5555_aaaa),
            }),
            LogEntry::Put(Put {
                row: RowKey { table: CatalogueTable::Point, id: 4, sub: 999_102 },
                at: PayloadGrain(64 + 24),
                length: 20,
                checksum: checksum::crc32c(&payload[4096 + 1536..][..20]),
            }),
            LogEntry::Remove(RowKey { table: CatalogueTable::Volume, id: 8, sub: 0 }),
        ],
    }
}

pub fn segment_row() -> SegmentRow {
    SegmentRow {
        segment_use: SegmentUse(690),
        kind: SegmentKind::Data,
        state: SegmentState::Freed(CheckpointNumber(41)),
        shape: SegmentShape::new(RedundancyClass::Raid5, 1024, 16, 0, 4).unwrap(),
        slots: (2..6).map(|member| slot(member, 77)).collect(),
        live_grains: 12_800,
    }
}

pub fn volume_row() -> VolumeRow {
    VolumeRow {
        volume: VolumeId([0x77; 16]),
        name: "mail 1 – priv".to_owned(),
        state: VolumeState::Hidden,
        class: RedundancyClass::Raid1,
        branch: BranchNumber(4),
        group: Some(GroupNumber(2)),
        write_cache: WriteCache::On,
        compression: Compression::Zstd,
        sectors: 1 << 31,
        reserve: BlockCount(1000),
        limit: BlockCount(2000),
        iops_max: 5000,
        kib_per_second_max: 200_000,
        created_at: WallNanoseconds(1_791_000_000_000_000_000),
        key: [0x99; 16],
        left_by: None,
    }
}

/// A volume that a rollback left.
pub fn left_volume_row() -> VolumeRow {
    VolumeRow {
        name: "mail 1 – priv~1".to_owned(),
        state: VolumeState::Live,
        left_by: Some(VolumeNumber(3)),
        ..volume_row()
    }
}

pub fn branch_row() -> BranchRow {
    BranchRow {
        state: VolumeState::Live,
        volume: VolumeNumber(3),
        parent: Some((BranchNumber(2), Stamp(555))),
        depth: 1,
        is_replica: true,
        stamp_max: Stamp(999_000),
        filled_below: Some(BlockIndex(4096)),
    }
}

/// The seventeenth of its line, which is being filled.
pub fn deep_branch_row() -> BranchRow {
    BranchRow { depth: 16, is_replica: false, filled_below: Some(BlockIndex(0)), ..branch_row() }
}

pub fn point_row() -> PointRow {
    PointRow {
        name: "before the update".to_owned(),
        state: VolumeState::Live,
        uses: PointUses { snapshot: true, fork: true, reader: false, transfer: true },
        references: 2,
        volume: VolumeNumber(3),
        group: Some(GroupNumber(2)),
        snapshot: SnapshotId([0x55; 16]),
        created_at: WallNanoseconds(1_792_000_000_000_000_000),
        expires_at: WallNanoseconds(1_793_000_000_000_000_000),
        sectors: 1 << 31,
        note: Vec::new(),
    }
}

/// A point with a note, which is any bytes.
pub fn noted_point_row() -> PointRow {
    PointRow { note: (0..=255).collect(), ..point_row() }
}

pub fn group_row() -> GroupRow {
    GroupRow {
        group: GroupId([0x66; 16]),
        name: "mail".to_owned(),
        fence: Fence(3),
        created_at: WallNanoseconds(1_790_500_000_000_000_000),
        pools: Vec::new(),
    }
}

pub fn shared_group_row() -> GroupRow {
    GroupRow { pools: vec![PoolId([0x11; 16]), PoolId([0x22; 16])], ..group_row() }
}

pub fn clone_intent_row() -> IntentRow {
    let operation = GroupOperation::Clone { suffix: "-versuch für heute".to_owned(), is_independent: true };
    IntentRow {
        operation,
        snapshot: SnapshotId([0x55; 16]),
        seed: IdSeed([0x5e; 16]),
        created_at: WallNanoseconds(1_792_500_000_000_000_000),
        shared: None,
    }
}

/// Of a group of two pools.
pub fn shared_intent_row() -> IntentRow {
    let pools = vec![PoolId([0x11; 16]), PoolId([0x22; 16])];
    IntentRow { shared: Some(SharedDecision { state: CutState::Pending, pools }), ..clone_intent_row() }
}

pub fn rollback_intent_row() -> IntentRow {
    IntentRow { operation: GroupOperation::RollBack, ..clone_intent_row() }
}

pub fn cut_row() -> CutRow {
    CutRow {
        state: CutState::Pending,
        created_at: WallNanoseconds(1_795_600_000_000_000_000),
        pools: vec![PoolId([0x11; 16]), PoolId([0x22; 16])],
    }
}

/// Of an initiator port with a name of 240 bytes, the longest there is.
pub fn withholding_row() -> WithholdingRow {
    let initiator = format!("iqn.2026-11.org.example:{}", "mail-ü:".repeat(24));
    let port = format!("{initiator:-<199},i,0x00023d000001");
    assert_eq!(port.len(), 240);
    WithholdingRow {
        client: WithheldClient::InitiatorPort(port),
        since: WallNanoseconds(1_795_700_000_000_000_000),
    }
}

pub fn nbd_withholding_row() -> WithholdingRow {
    WithholdingRow { client: WithheldClient::AllNbd, ..withholding_row() }
}

/// With a description of 960 bytes, the longest there is.
pub fn import_row() -> ImportRow {
    let source = format!(r#"{{"from":"nbd://old-array.example/{}"}}"#, "store-".repeat(154));
    assert!(source.len() <= 960, "{}", source.len());
    ImportRow { source_bytes: 4_398_046_511_616, source: format!("{source:960}").into_bytes() }
}

pub fn site_head_row() -> SiteHeadRow {
    SiteHeadRow {
        site: SiteId([0x5a; 16]),
        generation: 7,
        set: 3,
        written_at: WallNanoseconds(1_795_800_000_000_000_000),
        length: 1_500,
        checksum: 0xfeed_beef,
    }
}

pub fn site_part_row() -> SitePartRow {
    SitePartRow { bytes: b"version = 1\ngroup = \"mail\"\n".to_vec() }
}

pub fn replication_head_row() -> ReplicationHeadRow {
    ReplicationHeadRow {
        group: GroupId([0x6b; 16]),
        length: 1_500,
        checksum: 0xfeed_beef,
        bytes: (0..992).map(|index| (index % 251) as u8).collect(),
    }
}

pub fn replication_part_row() -> ReplicationPartRow {
    ReplicationPartRow { bytes: b"the rest of a record".to_vec() }
}

pub fn epoch_row() -> EpochRow {
    EpochRow {
        epoch: EpochId([2; 16]),
        parent: Some(EpochId([1; 16])),
        fork: Stamp(900),
        start: Stamp(900 + (1 << 32)),
    }
}

pub fn discard_row() -> DiscardRow {
    DiscardRow { first: BlockIndex(100), count: BlockCount(50), done_below: BlockIndex(120) }
}

pub fn scrub_row() -> ScrubRow {
    ScrubRow {
        next: Some(ScrubPlace::Blocks(TreeKind::History, NodeKey { major: 4, id: 70_000, minor: 999_102 })),
        begun_at: WallNanoseconds(1_795_000_000_000_000_000),
        ended_at: WallNanoseconds(1_794_000_000_000_000_000),
        counts: ScrubCounts { blocks: 1 << 24, nodes: 200_000, repaired: 3, lost: 1 },
    }
}

fn place() -> NodePlace {
    NodePlace {
        pool: POOL,
        checkpoint: CheckpointNumber(41),
        segment: SegmentNumber(20),
        block: SegmentBlock(17),
    }
}

/// Forty runs of all forms: three groups.
fn map_leaf(tree: TreeKind) -> Vec<u8> {
    let checksums: Vec<le::U32> = (0..64).map(|index: u32| (0x1111_0000 + index).into()).collect();
    let mut runs = Vec::new();
    for index in 0..40_u32 {
        let location = match index % 5 {
            0..=2 => BlockLocation::plain(SegmentNumber(1000 - index * 7), SegmentGrain(index * 640)),
            3 => locations()[index as usize % 4].1,
            _ => BlockLocation::Zero,
        };
        let count = if matches!(index % 5, 3) { 1 } else { 1 + index as u8 % 3 * 4 };
        let stored = if matches!(location, BlockLocation::Direct { .. }) { usize::from(count) } else { 0 };
        let birth = 5_000_000 + u64::from(index * index * 1000) % 77_777;
        runs.push(VersionRun {
            branch: BranchNumber(3 + index / 12),
            first: BlockIndex(100_000 + u64::from(index) * 100),
            birth: Stamp(birth),
            death: tree.is_history().then_some(Stamp(birth + 1 + u64::from(index) * 300)),
            location,
            count,
            checksums: &checksums[..stored],
        });
    }
    if tree == TreeKind::History {
        runs.sort_by_key(VersionRun::first_key);
    }
    let mut builder = MapBuilder::new(tree, 1);
    runs.iter().for_each(|run| builder.push(run).unwrap());
    builder.finish(place()).0
}

pub fn head_leaf() -> Vec<u8> {
    map_leaf(TreeKind::Head)
}

pub fn history_leaf() -> Vec<u8> {
    map_leaf(TreeKind::History)
}

pub fn catalogue_leaf() -> Vec<u8> {
    let mut builder = CatalogueBuilder::new(1);
    for number in [1, 2, 3, 500, 70_000] {
        builder.push(RowKey::of_segment(SegmentNumber(number)), &segment_row().encode()).unwrap();
    }
    for number in 1..16 {
        builder.push(RowKey::of_volume(VolumeNumber(number)), &volume_row().encode()).unwrap();
    }
    builder.push(RowKey::of_point(BranchNumber(4), Stamp(999_102)), &point_row().encode()).unwrap();
    builder.finish(place()).0
}

pub fn inner_node() -> Vec<u8> {
    let mut builder = InnerBuilder::new(TreeKind::History, 2, 1);
    for index in 0..30_u32 {
        let pointer = NodePointer {
            segment: SegmentNumber(20 + index % 3),
            block: SegmentBlock(index * 4),
            blocks: 1 + index as u8 % 4,
            level: 1,
            seal: 0x7777_0000 + index,
            stamp_max: Stamp(u64::from(40 - index) * 1000),
        };
        let first = NodeKey { major: 3 + index / 10, id: u64::from(index) * 500, minor: u64::from(index) };
        builder.push(ChildPointer { first, pointer }).unwrap();
    }
    builder.finish(place()).0
}
