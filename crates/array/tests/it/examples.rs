//! One value of each structure, with every field in use: what the golden images are of.

use array::format::{
    checkpoint::{Checkpoint, LogStart, Roots},
    entry::{Entry, Interval, Move, PayloadGrain, Put, Write},
    *,
};

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
            previous: Link { position: Position(9000), seal: 0xfeed_beef },
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
    };
    Superblock {
        pool: POOL,
        name: "post".to_owned(),
        generation: Generation(57),
        features: Features { compatible: 0, read_only: 1, incompatible: 0b10 },
        created_at: WallNanoseconds(1_790_000_000_000_000_000),
        geometry: PoolGeometry { data_start_bytes: 4 << 20, slot_bytes: 4 << 20, log_copies: 2 },
        members: vec![
            member(1, MemberState::Active, 1),
            member(2, MemberState::Missing, 57),
            member(3, MemberState::Rebuilding, 50),
            member(4, MemberState::Leaving, 40),
            member(5, MemberState::Gone, 30),
        ],
        this: MemberIndex(2),
        place: 3,
        checkpoint: checkpoint(),
    }
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

pub fn locations() -> [(&'static str, Location); 4] {
    let fill = Encoding { compression: Compression::Fill, encrypted: true };
    [
        (
            "location-direct-1",
            Location::Direct { segment: SegmentNumber(12), at: SegmentGrain(130), stored: shortened() },
        ),
        ("location-indirect-1", Location::Indirect(SharedBlock(0x0102_0304_0506_0708))),
        ("location-inline-1", Location::Inline(InlineBytes::new(b"pattern!", fill).unwrap())),
        ("location-zero-1", Location::Zero),
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

pub fn record() -> Record {
    let (seed, payload) = (ChecksumSeed::of(POOL), payload());
    let write = |key, at: u16, stored: Stored| {
        let part = &payload[usize::from(at) * 64..][..stored.length()];
        Entry::Write(Write { key, at: PayloadGrain(at), stored, checksum: seed.checksum(key, part) })
    };
    let interval = |first, count, stamp| Interval {
        branch: BranchNumber(4),
        first: BlockIndex(first),
        count: BlockCount(count),
        stamp: Stamp(stamp),
    };
    Record {
        pool: POOL,
        incarnation: Incarnation(6),
        position: Position(9001),
        previous: Link { position: Position(9000), seal: 0xfeed_beef },
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
            Entry::Zeroes(interval(5000, 16, 999_101)),
            Entry::Discard(interval(0, 1 << 34, 999_102)),
            Entry::Move(Move {
                key: key(3, 77, 400),
                from: Location::plain(SegmentNumber(9), SegmentGrain(640)),
                to: locations()[0].1,
                checksum: BlockChecksum(0x5555_aaaa),
            }),
            Entry::Put(Put {
                row: RowKey { table: Table::Point, id: 4, sub: 999_102 },
                at: PayloadGrain(64 + 24),
                length: 20,
                checksum: checksum::crc32c(&payload[4096 + 1536..][..20]),
            }),
            Entry::Remove(RowKey { table: Table::Volume, id: 8, sub: 0 }),
        ],
    }
}
