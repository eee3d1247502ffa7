//! A frame of each kind, and the rule for any bytes: what decodes encodes to the same bytes, and nothing panics.
//! The fuzz target applies it, too.

use array::format::{
    BLOCK_BYTES, BlockCount, BlockIndex, EpochId, Fence, GroupId, SiteId, SnapshotId, Stamp, VolumeId,
    WallNanoseconds,
};
use replication::{
    connect::{Introduction, SiteRole, TransferWay, UnfinishedPass, decide},
    cut::GroupCut,
    frame::{
        AgreementFrame, AliveFrame, AttachFrame, BroughtRangesFrame, ChangedRangesFrame, ConfirmationFrame,
        CutFrame, Frame, FrameBody, FrameError, FrameHeader, HEADER_BYTES, HandOverFrame, HelloFrame,
        JoinBeginFrame, JoinNotedFrame, JoinReadyFrame, JoinedFrame, LinkTestFrame, MarkFrame, MarkKeptFrame,
        MarkNotedFrame, MarkReadyFrame, PairingFrame, PassBeginFrame, PassBlock, PassBlocksFrame,
        PassEndFrame, PassPointFrame, PassRangesFrame, PassSnapshotFrame, PassSnapshotsFrame, RangeState,
        ReceiptFrame, RecordFrame, RefusalCode, RefusalFrame, SentChange, SentRange, SentSnapshot,
        SiteMessageFrame, TakenOverFrame, TestCountFrame, TestDataFrame, TestOrderFrame, VerifyCutFrame,
        VerifyDigestsFrame, VerifyEndFrame, VerifyRangeFrame, VerifyReadyFrame, VersionRange, WordFrame,
    },
    joint_group::JoinId,
    lineage::Lineage,
    link::unpack_blocks,
};
use std::sync::Arc;
use world::{Buffer, crc32c::crc32c};

fn cut(stamps: [u64; 2]) -> GroupCut {
    GroupCut::new(stamps.map(Stamp).into())
}

fn block(byte: u8) -> Arc<Buffer> {
    Arc::new(Buffer::copy_of(&[byte; BLOCK_BYTES]))
}

fn range(first: u64, count: u64) -> SentRange {
    SentRange { first: BlockIndex(first), count: BlockCount(count) }
}

fn introduction() -> Introduction {
    let mut lineage = Lineage::new(EpochId([0xa; 16]), 2);
    lineage.promote(EpochId([0xb; 16]), &cut([900, 40])).expect("stamps are left");
    let has = cut([900 + (1 << 32), 40]);
    Introduction {
        group: GroupId([1; 16]),
        role: SiteRole::Primary,
        fence: Fence(7),
        lineage: Some(lineage),
        told: cut([900, 39]),
        is_in_sync: true,
        points: vec![cut([800, 20]), cut([900, 40])],
        log_from: cut([900, 40]),
        last_in_doubt: false,
        has,
        unfinished: None,
    }
}

fn record() -> RecordFrame {
    let volume = VolumeId([3; 16]);
    let (first, count) = (BlockIndex(8), BlockCount(1 << 20));
    let snapshot = SnapshotId([4; 16]);
    let taken = SentSnapshot {
        snapshot,
        created_at: WallNanoseconds(5),
        name: "nightly".to_owned(),
        note: b"note".to_vec(),
        volumes: vec![volume],
    };
    let changes = [
        (1, SentChange::Write { volume, block: BlockIndex(5), data: block(1) }),
        (1, SentChange::Write { volume, block: BlockIndex(6), data: block(2) }),
        (2, SentChange::Zeroes { volume, first, count }),
        (3, SentChange::Discard { volume, first, count }),
        (4, SentChange::Resize { volume, sectors: 1 << 20 }),
        (5, SentChange::Snapshot(taken)),
        (6, SentChange::SnapshotDeleted { snapshot, volumes: vec![volume] }),
        (7, SentChange::RollBack { volume, snapshot, left: VolumeId([5; 16]) }),
        (8, SentChange::VolumeDeleted { volume }),
    ];
    RecordFrame {
        part: 1,
        fence: Fence(7),
        epoch: EpochId([0xb; 16]),
        told: Stamp(7),
        accepted_at: WallNanoseconds(9),
        goes_on: true,
        changes: changes.map(|(stamp, change)| (Stamp(stamp), change)).into(),
    }
}

/// A frame of each kind, some of two.
pub fn examples() -> Vec<Frame> {
    let volume = VolumeId([3; 16]);
    let ours = introduction();
    let mut replica = Introduction {
        role: SiteRole::Secondary,
        lineage: None,
        has: cut([0, 0]),
        told: cut([0, 0]),
        is_in_sync: false,
        points: Vec::new(),
        log_from: cut([0, 0]),
        last_in_doubt: false,
        ..ours.clone()
    };
    replica.unfinished = Some(UnfinishedPass { since: cut([0, 0]), until: cut([900, 40]) });
    let versions = VersionRange::new(1, 2).expect("a range");
    let program = "spindle 0.1.0".to_owned();
    let epoch = ours.lineage.as_ref().expect("it has one").current().clone();
    let outcome = decide(&ours, &replica);
    let blocks = [5, 9].map(|at| PassBlock { block: BlockIndex(at), data: block(at as u8) }).into();
    let ranges = vec![range(0, 4), range(9, 1)];
    let begin = PassBeginFrame {
        number: 3,
        fence: Fence(7),
        way: TransferWay::BornSince,
        since: cut([1, 2]),
        until: cut([1, 3]),
        expected_bytes: 1 << 30,
    };
    let word = WordFrame {
        number: 12,
        said_at: WallNanoseconds(5),
        told: cut([900, 39]),
        unconfirmed_bytes: 4096,
        unconfirmed_ms: 20,
        is_in_sync: true,
    };
    let (site, session) = (SiteId([2; 16]), 77);
    let hello =
        HelloFrame { versions, site, session, connection: 1, connections: 4, is_joining: true, program };
    let refusal = RefusalFrame { code: RefusalCode::Unrelated, text: "no common epoch".to_owned() };
    let confirmation =
        ConfirmationFrame { confirmed: cut([900, 40]), shown: 6, window_end: 1 << 26, heard: 11 };
    let ranges_frame = PassRangesFrame {
        volume,
        state: RangeState::Mapped,
        within: range(0, 1 << 20),
        ranges: ranges.clone(),
    };
    let snapshot_of_pass = SentSnapshot {
        snapshot: SnapshotId([4; 16]),
        created_at: WallNanoseconds(5),
        name: "weekly".to_owned(),
        note: Vec::new(),
        volumes: vec![volume],
    };
    let bodies = vec![
        FrameBody::Hello(hello),
        FrameBody::Refusal(refusal.clone()),
        FrameBody::Alive(AliveFrame { number: 9, is_reply: true }),
        FrameBody::Pairing(PairingFrame { site, proof: [8; 32] }),
        FrameBody::LinkTest(LinkTestFrame { version: 2, site, test: 5, connections: 4 }),
        FrameBody::TestOrder(TestOrderFrame { is_download: true, skipped_ms: 250, ends_ms: 1000 }),
        FrameBody::TestData(TestDataFrame { bytes: vec![7; 300] }),
        FrameBody::TestCount(TestCountFrame { bytes: 1 << 20, nanoseconds: 750_000_000 }),
        FrameBody::Attach(AttachFrame { group: GroupId([1; 16]), part: None }),
        FrameBody::Attach(AttachFrame { group: GroupId([1; 16]), part: Some(3) }),
        FrameBody::SiteMessage(SiteMessageFrame { text: "{\"groups\":[]}".to_owned() }),
        FrameBody::Receipt(ReceiptFrame { received: 12, window_end: 1 << 23 }),
        FrameBody::Introduction(Box::new(ours)),
        FrameBody::Introduction(Box::new(replica)),
        FrameBody::Agreement(AgreementFrame { outcome }),
        FrameBody::Record(record()),
        FrameBody::Cut(CutFrame { number: 6, cut: cut([900, 40]) }),
        FrameBody::Word(word),
        FrameBody::Confirmation(confirmation),
        FrameBody::PassBegin(begin),
        FrameBody::PassBlocks(PassBlocksFrame { volume, blocks }),
        FrameBody::PassRanges(ranges_frame),
        FrameBody::PassSnapshots(PassSnapshotsFrame { volume, kept: vec![SnapshotId([4; 16])] }),
        FrameBody::PassPoint(PassPointFrame { volume, stamp: Stamp(9), sectors: 1 << 20, snapshot: None }),
        FrameBody::PassPoint(PassPointFrame {
            volume,
            stamp: Stamp(8),
            sectors: 1 << 20,
            snapshot: Some(SnapshotId([4; 16])),
        }),
        FrameBody::PassSnapshot(PassSnapshotFrame { taken: snapshot_of_pass }),
        FrameBody::PassEnd(PassEndFrame { number: 3, blocks: 2, digest: 5 }),
        FrameBody::ChangedRanges(ChangedRangesFrame { volume, ranges: ranges.clone(), is_last: true }),
        FrameBody::BroughtRanges(BroughtRangesFrame { volume, as_of: Stamp(905), ranges, is_last: false }),
        FrameBody::HandOver(HandOverFrame { cut: cut([900, 40]), fence: Fence(8) }),
        FrameBody::TakenOver(TakenOverFrame { fence: Fence(8), epoch }),
        FrameBody::JoinBegin(JoinBeginFrame { join: JoinId([6; 16]) }),
        FrameBody::JoinReady(JoinReadyFrame { join: JoinId([6; 16]), took_stamp: true }),
        FrameBody::Joined(JoinedFrame { join: JoinId([6; 16]) }),
        FrameBody::JoinNoted(JoinNotedFrame { join: JoinId([6; 16]) }),
        FrameBody::Mark(MarkFrame { join: JoinId([7; 16]), at: WallNanoseconds(1_795_780_800_000_000_000) }),
        FrameBody::MarkReady(MarkReadyFrame { join: JoinId([7; 16]), is_refused: true }),
        FrameBody::MarkKept(MarkKeptFrame { join: JoinId([7; 16]) }),
        FrameBody::MarkNoted(MarkNotedFrame { join: JoinId([7; 16]) }),
    ];
    let bodies = bodies.into_iter().chain(comparison(volume));
    let place = |body: FrameBody| {
        let is_of_test = matches!(
            body,
            FrameBody::LinkTest(_)
                | FrameBody::TestOrder(_)
                | FrameBody::TestData(_)
                | FrameBody::TestCount(_)
        );
        let is_of_session =
            is_of_test || matches!(body, FrameBody::Hello(_) | FrameBody::Alive(_) | FrameBody::Pairing(_));
        let sequence = u64::from(body.kind().is_ordered()) * 12;
        Frame { channel: u32::from(!is_of_session) * 5, sequence, body }
    };
    let of_session = Frame { channel: 0, sequence: 0, body: FrameBody::Refusal(refusal) };
    bodies.map(place).chain([of_session]).collect()
}

/// Frames of a comparison.
pub fn comparison(volume: VolumeId) -> Vec<FrameBody> {
    let wanted = VerifyRangeFrame { number: 2, volume, within: range(256, 600), grain: 256 };
    let digests = vec![[1; 16], [2; 16], [3; 16]];
    let answer = VerifyDigestsFrame { number: 2, digests, failed: String::new() };
    let failed = "the snapshot was deleted".to_owned();
    vec![
        FrameBody::VerifyCut(VerifyCutFrame { number: 2 }),
        FrameBody::VerifyReady(VerifyReadyFrame { number: 2, refused: String::new() }),
        FrameBody::VerifyReady(VerifyReadyFrame { number: 2, refused: "no".to_owned() }),
        FrameBody::VerifyRange(wanted),
        FrameBody::VerifyDigests(answer),
        FrameBody::VerifyDigests(VerifyDigestsFrame { number: 2, digests: Vec::new(), failed }),
        FrameBody::VerifyEnd(VerifyEndFrame { number: 2 }),
    ]
}

/// Decodes the frame at the start of some bytes. None if they end within it.
pub fn decode(bytes: &[u8]) -> Option<Result<Frame, FrameError>> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = match FrameHeader::decode(head) {
        Ok(header) => header,
        Err(error) => return Some(Err(error)),
    };
    let (body, rest) = rest.split_at_checked(header.body_bytes)?;
    let blocks = match header.is_packed {
        true => match unpack_blocks(rest, header.blocks)? {
            Ok(blocks) => blocks,
            Err(error) => return Some(Err(error)),
        },
        false => {
            let blocks = rest.get(..header.blocks * BLOCK_BYTES)?.chunks(BLOCK_BYTES);
            blocks.map(|block| Arc::new(Buffer::copy_of(block))).collect()
        }
    };
    Some(Frame::decode(&header, body, blocks))
}

/// Makes the checksums right of a frame that was changed; one of a block only if it is the last of a record.
pub fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let is_packed = bytes[7] & 0x80 != 0;
    let number =
        |bytes: &[u8], at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index])) as usize;
    let body_bytes = number(bytes, 20).min(bytes.len() - HEADER_BYTES);
    let body = crc32c(&[&bytes[HEADER_BYTES..HEADER_BYTES + body_bytes]]);
    bytes[24..28].copy_from_slice(&body.to_le_bytes());
    let head = crc32c(&[&bytes[..28]]);
    bytes[28..32].copy_from_slice(&head.to_le_bytes());
    if let Some(packed) = bytes.get_mut(HEADER_BYTES + body_bytes..).and_then(|rest| rest.get_mut(..8))
        && is_packed
    {
        let length = crc32c(&[&packed[..4]]);
        packed[4..].copy_from_slice(&length.to_le_bytes());
    }
}

/// Checks the rule for some bytes, as they are and with valid checksums. Returns true if one of both decoded.
pub fn check(bytes: &[u8]) -> bool {
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    let decodes = |bytes: &[u8]| match decode(bytes) {
        Some(Ok(frame)) => {
            let again = frame.encode().concat();
            let is_packed = bytes[7] & 0x80 != 0;
            // Blocks can be packed in more than one way.
            assert!(is_packed || bytes.starts_with(&again), "{frame:?} encodes to other bytes");
            assert!(matches!(decode(&again), Some(Ok(_))), "{frame:?} is not accepted when it is sent on");
            true
        }
        _ => false,
    };
    decodes(bytes) | decodes(&sealed)
}
