//! Records of groups: one encoding each, and nothing that is believed although it contradicts itself.

use crate::record_bytes::{check, examples};
use array::format::{EpochId, Fence, GroupId, SiteId, SnapshotId, Stamp, VolumeId, WallNanoseconds};
use expect_test::expect;
use replication::{
    connect::{SiteRole, UnfinishedPass},
    cut::GroupCut,
    group_record::{AutoFailover, GroupRecord, GroupRecordError, GroupSettings},
    group_state::{
        BroughtStamp, GroupState, HeldSnapshot, JointMark, JointPoint, JointPointState, JointProgress,
        JointSlot, KeptFork,
    },
    joint_group::{JoinId, JointPart},
    lineage::Lineage,
    merge_plan::{DayWindow, MergePlan, MergeStart, Suspension},
    session::{BoundPolicy, ReplicationMode, SuspensionReason},
};
use std::time::Duration;
use world::Random;

fn record(random: &mut Random) -> GroupRecord {
    let mode = match random.below(3) {
        0 => ReplicationMode::Sync {
            hold: Duration::from_millis(random.below(30_000)),
            is_failsafe: random.percent(50.0),
        },
        1 => ReplicationMode::Async {
            behind_max: Duration::from_secs(random.below(100)),
            behind_bytes_max: random.below(1 << 40),
            over: if random.percent(50.0) { BoundPolicy::Behind } else { BoundPolicy::PushBack },
        },
        _ => ReplicationMode::Periodic { every: Duration::from_secs(60), kept: 3 },
    };
    let volumes = (1..=1 + random.below(123) as u8).map(|number| VolumeId([number; 16])).collect();
    let mut lineage = Lineage::new(EpochId([1; 16]), 1);
    for number in 2..2 + random.below(5) as u8 {
        let at = lineage.current().spans[0].start.0 + random.below(1 << 20);
        lineage.promote(EpochId([number; 16]), &GroupCut::new(vec![Stamp(at)])).unwrap();
    }
    let is_primary = random.percent(50.0);
    let cut = |stamp| GroupCut::new(vec![Stamp(stamp)]);
    let unfinished = random.percent(30.0).then(|| UnfinishedPass { since: cut(7), until: cut(9) });
    let brought = if unfinished.is_some() && random.percent(50.0) { brought(random) } else { Vec::new() };
    let may_be_auto = matches!(mode, ReplicationMode::Sync { is_failsafe: false, .. });
    let addresses = (0..1 + random.below(8)).map(|number| format!("192.0.2.{number}:7790"));
    let auto = (may_be_auto && random.percent(50.0)).then(|| AutoFailover { witness: addresses.collect() });
    let fork = KeptFork {
        volume: VolumeId([4; 16]),
        has: Stamp(random.below(1 << 60)),
        blocks: random.below(1 << 40),
        kept_unix_s: random.below(1 << 40),
    };
    let may_be_joint = !matches!(mode, ReplicationMode::Periodic { .. });
    let joint = (may_be_joint && random.percent(50.0)).then(|| JointPart {
        whole: GroupId([8; 16]),
        index: random.below(3) as u8,
        parts: 3,
    });
    let joint_state = JointPointState {
        has: Stamp(random.below(1 << 60)),
        cut: Stamp(1 << 60),
        complete_until: WallNanoseconds(random.below(1 << 60)),
        lineage: lineage.clone(),
        slot: if random.percent(30.0) { JointSlot::Second } else { JointSlot::First },
    };
    let later = JointPointState { slot: joint_state.slot.other(), ..joint_state.clone() };
    let next = random.percent(30.0).then_some(JointMark { mark: JoinId([7; 16]), state: later });
    let point = (!is_primary && random.percent(50.0))
        .then(|| JointPoint { join: JoinId([4; 16]), state: random.percent(70.0).then_some(joint_state) });
    let progress = match joint {
        Some(_) => {
            let cutting = (!is_primary && point.is_none() && random.percent(30.0)).then_some(Stamp(7));
            let next =
                next.filter(|_| point.as_ref().is_some_and(|point: &JointPoint| point.state.is_some()));
            let marked = JoinId([random.below(2) as u8; 16]);
            JointProgress { joined: JoinId([random.below(3) as u8; 16]), cutting, point, next, marked }
        }
        None => JointProgress::default(),
    };
    let name = "Postfächer".to_owned();
    GroupRecord {
        group: GroupId([9; 16]),
        settings: GroupSettings { name, mode, peer: SiteId([5; 16]), volumes, auto, joint },
        state: GroupState {
            suspension: (is_primary && random.percent(30.0)).then(|| suspension(random)),
            merge: if random.percent(50.0) { merge_plan(random) } else { MergePlan::default() },
            forks: if random.percent(20.0) { vec![fork] } else { Vec::new() },
            role: if is_primary { SiteRole::Primary } else { SiteRole::Secondary },
            fence: Fence(random.below(1 << 50)),
            lineage: (is_primary || random.percent(80.0)).then_some(lineage),
            is_alone: random.percent(50.0),
            unfinished,
            brought,
            told: Stamp(random.below(1 << 60)),
            forked_at: random.percent(50.0).then(|| Stamp(random.below(1 << 60))),
            joint: progress,
            held: if is_primary || random.percent(70.0) { Vec::new() } else { held(random) },
        },
    }
}

fn brought(random: &mut Random) -> Vec<BroughtStamp> {
    let brought = |number: u8| {
        let as_of = 8 + random.below(1 << 40);
        let volume = random.percent(50.0).then_some(VolumeId([1; 16]));
        let stamp = Stamp(as_of * 4 + u64::from(number));
        BroughtStamp { volume, stamp, as_of: Stamp(as_of), epoch: EpochId([number; 16]) }
    };
    (1..4).map(brought).collect()
}

fn held(random: &mut Random) -> Vec<HeldSnapshot> {
    let held =
        |number| HeldSnapshot { snapshot: SnapshotId([number; 16]), since_unix_s: random.below(1 << 40) };
    (1..4).map(held).collect()
}

fn suspension(random: &mut Random) -> Suspension {
    let reasons = [SuspensionReason::Person, SuspensionReason::TargetFull, SuspensionReason::Fault];
    Suspension { reason: reasons[random.below(3) as usize], since_unix_s: random.below(1 << 40) }
}

fn merge_plan(random: &mut Random) -> MergePlan {
    let start = match random.below(3) {
        0 => MergeStart::AtOnce,
        1 => MergeStart::Staggered(1 + random.below(64) as u8),
        _ => {
            let from = random.below(1_439) as u16;
            MergeStart::Window(DayWindow::new(from, from + 1).unwrap())
        }
    };
    MergePlan { start, rate_max: random.percent(50.0).then(|| 1 + random.below(1 << 40)) }
}

#[test]
fn records_are_read_as_they_were_written() {
    let mut random = Random::new(1, "records");
    for _ in 0..2_000 {
        let record = record(&mut random);
        assert_eq!(GroupRecord::decode(&record.encode()).unwrap(), record);
    }
}

#[test]
fn bytes_that_decode_encode_to_the_same_bytes() {
    let mut random = Random::new(2, "hostile records");
    let mut decoded = 0;
    for _ in 0..20_000 {
        let mut bytes = record(&mut random).encode();
        match random.below(3) {
            0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
            1 => bytes.push(random.below(256) as u8),
            _ => {
                for _ in 0..1 + random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.below(256) as u8;
                }
            }
        }
        decoded += usize::from(check(&bytes));
    }
    for (name, record) in examples() {
        assert!(check(&record.encode()), "the example {name} is none");
    }
    assert!(decoded > 1_000, "many changes are of fields that may have any value: {decoded}");
}

#[test]
fn contradictions_are_refused() {
    let mut random = Random::new(3, "contradictions");
    let mut valid = record(&mut random);
    // Version 1, so that a witness without an address is not read as none.
    valid.state = GroupState { lineage: valid.state.lineage, ..GroupState::new_replica() };
    let refused = |change: &dyn Fn(&mut GroupRecord)| {
        let mut wrong = valid.clone();
        change(&mut wrong);
        GroupRecord::decode(&wrong.encode()).unwrap_err().to_string()
    };
    let all = [
        refused(&|record| record.settings.volumes.clear()),
        refused(&|record| record.settings.volumes.push(record.settings.volumes[0])),
        refused(&|record| record.settings.name.clear()),
        refused(&|record| record.settings.peer = SiteId::NONE),
        refused(&|record| (record.state.role, record.state.lineage) = (SiteRole::Primary, None)),
        refused(&|record| record.state.lineage = Some(Lineage::new(EpochId([1; 16]), 2))),
        refused(&|record| {
            let cut = |stamp| GroupCut::new(vec![Stamp(stamp)]);
            record.state.unfinished = Some(UnfinishedPass { since: cut(9), until: cut(7) });
        }),
        refused(&|record| record.settings.auto = Some(AutoFailover { witness: Vec::new() })),
        refused(&|record| {
            record.settings.mode = ReplicationMode::Periodic { every: Duration::from_secs(60), kept: 3 };
            record.settings.auto = Some(AutoFailover { witness: vec!["192.0.2.30".to_owned()] });
        }),
        refused(&|record| record.state.merge.start = MergeStart::Staggered(65)),
        refused(&|record| {
            record.state.role = SiteRole::Secondary;
            record.state.suspension = Some(Suspension { reason: SuspensionReason::Person, since_unix_s: 1 });
        }),
        refused(&|record| make_joint(record, 1)),
        refused(&|record| {
            make_joint(record, 2);
            record.settings.mode = ReplicationMode::Periodic { every: Duration::from_secs(60), kept: 3 };
        }),
        refused(&|record| {
            make_joint(record, 2);
            record.state.role = SiteRole::Primary;
            record.state.suspension = None;
            record.state.lineage = Some(Lineage::new(EpochId([1; 16]), 1));
            record.state.joint.point = Some(JointPoint { join: JoinId([4; 16]), state: None });
        }),
        refused(&|record| {
            make_joint(record, 2);
            record.state.joint.next =
                Some(JointMark { mark: JoinId([4; 16]), state: joint_state(JointSlot::First) });
        }),
        refused(&|record| {
            make_joint(record, 2);
            let state = joint_state(JointSlot::First);
            record.state.joint.point = Some(JointPoint { join: JoinId([4; 16]), state: Some(state) });
            let state = JointPointState { cut: Stamp(902), ..joint_state(JointSlot::First) };
            record.state.joint.next = Some(JointMark { mark: JoinId([4; 16]), state });
        }),
        refused(&|record| {
            record.state.role = SiteRole::Secondary;
            record.state.held = vec![HeldSnapshot { snapshot: SnapshotId([1; 16]), since_unix_s: 7 }; 2];
        }),
        refused(&|record| {
            record.state.role = SiteRole::Primary;
            record.state.lineage = Some(Lineage::new(EpochId([1; 16]), 1));
            record.state.held = vec![HeldSnapshot { snapshot: SnapshotId([1; 16]), since_unix_s: 7 }];
        }),
    ];
    let of_brought = [
        refused(&|record| record.state.brought = vec![brought_stamp(905)]),
        refused(&|record| {
            let cut = |stamp| GroupCut::new(vec![Stamp(stamp)]);
            record.state.unfinished = Some(UnfinishedPass { since: cut(905), until: cut(907) });
            record.state.brought = vec![brought_stamp(905)];
        }),
        refused(&|record| {
            let cut = |stamp| GroupCut::new(vec![Stamp(stamp)]);
            record.state.unfinished = Some(UnfinishedPass { since: cut(900), until: cut(907) });
            record.state.brought = vec![brought_stamp(905); 2];
        }),
    ];
    assert!(of_brought.iter().all(|refused| refused.contains("a stamp of what an unfinished pass brought")));
    let words = all.map(|refused| refused.rsplit_once(": ").unwrap().1.to_owned());
    expect![[r#"
        [
            "the number of volumes has a value that is not allowed",
            "a volume that is there twice has a value that is not allowed",
            "the name has a value that is not allowed",
            "a UUID has a value that is not allowed",
            "a primary without a history has a value that is not allowed",
            "the number of parts has a value that is not allowed",
            "an unfinished pass has a value that is not allowed",
            "the addresses of the witness has a value that is not allowed",
            "a witness of a group that is not in sync, or refuses writes without its peer has a value that is not allowed",
            "the rule for merges has a value that is not allowed",
            "a secondary that is suspended has a value that is not allowed",
            "the number of pools of a group has a value that is not allowed",
            "a group of several pools that is periodic has a value that is not allowed",
            "a primary with a joint state has a value that is not allowed",
            "the next joint state has a value that is not allowed",
            "the next joint state has a value that is not allowed",
            "a held snapshot that is there twice has a value that is not allowed",
            "a primary that holds snapshots has a value that is not allowed",
        ]
    "#]]
    .assert_debug_eq(&words);
    let mut newer = valid.encode();
    newer[2 + 16 * valid.settings.volumes.len()] = 9;
    assert!(matches!(GroupRecord::decode(&newer), Err(GroupRecordError::Version(9))));
}

#[test]
fn records_of_all_versions_keep_their_bytes() {
    let mut record =
        sg1(GroupState { role: SiteRole::Primary, fence: Fence(3), is_alone: true, ..followed() });
    expect!["0100616161616161616161616161616161610100070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e030000000001030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000"].assert_eq(&hex_of(&record));
    record.settings.auto = Some(AutoFailover { witness: vec!["192.0.2.30".to_owned()] });
    expect!["0100616161616161616161616161616161610200070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e0300000000010a003139322e302e322e333001030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000"].assert_eq(&hex_of(&record));
    record.state.suspension =
        Some(Suspension { reason: SuspensionReason::TargetFull, since_unix_s: 1_795_780_800 });
    let night = DayWindow::new(22 * 60, 5 * 60).unwrap();
    record.state.merge = MergePlan { start: MergeStart::Window(night), rate_max: Some(20_000_000) };
    let fork =
        KeptFork { volume: VolumeId([b'a'; 16]), has: Stamp(905), blocks: 3, kept_unix_s: 1_795_780_000 };
    record.state.forks = vec![fork];
    expect!["0100616161616161616161616161616161610300070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e0300000000010a003139322e302e322e333001030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e010000000000000000010000000000000002c070096b000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000"].assert_eq(&hex_of(&record));
    record.settings.auto = None;
    expect!["0100616161616161616161616161616161610300070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000001030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e010000000000000000010000000000000002c070096b000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000"].assert_eq(&hex_of(&record));
    record.settings.joint = Some(JointPart { whole: GroupId([8; 16]), index: 1, parts: 2 });
    record.state.joint.joined = JoinId([4; 16]);
    expect!["0100616161616161616161616161616161610400070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000001030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e010000000000000000010000000000000002c070096b000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000080808080808080808080808080808080102040404040404040404040404040404040000"].assert_eq(&hex_of(&record));
    record.state.role = SiteRole::Secondary;
    record.state.suspension = None;
    let state = joint_state(JointSlot::First);
    record.state.joint.point = Some(JointPoint { join: JoinId([5; 16]), state: Some(state) });
    expect!["0100616161616161616161616161616161610400070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000000000000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b000000000808080808080808080808080808080801020404040404040404040404040404040400010505050505050505050505050505050501840300000000000085030000000000000700000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000"].assert_eq(&hex_of(&record));
    record.state.held = vec![HeldSnapshot { snapshot: SnapshotId([6; 16]), since_unix_s: 1_795_780_900 }];
    expect!["0100616161616161616161616161616161610500070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000000000000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000010808080808080808080808080808080801020404040404040404040404040404040400010505050505050505050505050505050501840300000000000085030000000000000700000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000100060606060606060606060606060606062471096b00000000"].assert_eq(&hex_of(&record));
    record.settings.joint = None;
    record.state.joint = JointProgress::default();
    expect!["0100616161616161616161616161616161610500070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000000000000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000000100060606060606060606060606060606062471096b00000000"].assert_eq(&hex_of(&record));
    make_joint(&mut record, 2);
    record.settings.auto = Some(AutoFailover { witness: vec!["192.0.2.30".to_owned()] });
    expect!["0100616161616161616161616161616161610600070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e0300000000010a003139322e302e322e333000030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000000000000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000010808080808080808080808080808080800020000000000000000000000000000000000000100060606060606060606060606060606062471096b00000000"].assert_eq(&hex_of(&record));
    record.state.held.clear();
    expect!["0100616161616161616161616161616161610600070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e0300000000010a003139322e302e322e333000030000000000000001000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000000000000000000328052c01002d31010000000001006161616161616161616161616161616189030000000000000300000000000000a06d096b00000000010808080808080808080808080808080800020000000000000000000000000000000000000000"].assert_eq(&hex_of(&record));
}

/// A group of one volume, in sync.
fn sg1(state: GroupState) -> GroupRecord {
    GroupRecord {
        group: GroupId([7; 16]),
        settings: GroupSettings {
            name: "sg1".to_owned(),
            mode: ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false },
            peer: SiteId([5; 16]),
            volumes: vec![VolumeId([b'a'; 16])],
            auto: None,
            joint: None,
        },
        state,
    }
}

/// A secondary with a history.
fn followed() -> GroupState {
    GroupState { lineage: Some(Lineage::new(EpochId([0xe; 16]), 1)), ..GroupState::new_replica() }
}

fn joint_state(slot: JointSlot) -> JointPointState {
    JointPointState {
        has: Stamp(900),
        cut: Stamp(901),
        complete_until: WallNanoseconds(7),
        lineage: Lineage::new(EpochId([0xe; 16]), 1),
        slot,
    }
}

fn make_joint(record: &mut GroupRecord, parts: u8) {
    record.settings.mode = ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false };
    record.settings.auto = None;
    record.settings.joint = Some(JointPart { whole: GroupId([8; 16]), index: 0, parts });
    record.state.joint = JointProgress::default();
}

#[test]
fn records_of_parts_that_are_not_in_sync_keep_their_bytes() {
    let mut record = sg1(followed());
    record.settings.mode = ReplicationMode::Async {
        behind_max: Duration::from_secs(30),
        behind_bytes_max: 1 << 28,
        over: BoundPolicy::Behind,
    };
    record.settings.joint = Some(JointPart { whole: GroupId([8; 16]), index: 1, parts: 2 });
    expect!["0100616161616161616161616161616161610700070707070707070707070707070707070505050505050505050505050505050503007367310200ac23fc060000000000001000000000000000000000000000000000000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000000000000000000000020100000000000000000000000000010808080808080808080808080808080801020000000000000000000000000000000000000000000000000000000000000000000000000000"].assert_eq(&hex_of(&record));
    let progress = &mut record.state.joint;
    progress.marked = JoinId([6; 16]);
    let state = Some(joint_state(JointSlot::Second));
    progress.point = Some(JointPoint { join: JoinId([5; 16]), state });
    let state = JointPointState { has: Stamp(904), cut: Stamp(904), ..joint_state(JointSlot::First) };
    progress.next = Some(JointMark { mark: JoinId([9; 16]), state });
    expect!["0100616161616161616161616161616161610700070707070707070707070707070707070505050505050505050505050505050503007367310200ac23fc060000000000001000000000000000000000000000000000000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000000000000000000000020100000000000000000000000000010808080808080808080808080808080801020000000000000000000000000000000000010505050505050505050505050505050501840300000000000085030000000000000700000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000606060606060606060606060606060601010909090909090909090909090909090900880300000000000088030000000000000700000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e01000000000000000001000000000000000000"].assert_eq(&hex_of(&record));
    // A group in sync again still knows its last mark.
    record.settings.mode = ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false };
    (record.state.joint.point, record.state.joint.next) = (None, None);
    expect!["0100616161616161616161616161616161610700070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000000000000000000000000000000000000000000000000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000000000000000000000020100000000000000000000000000010808080808080808080808080808080801020000000000000000000000000000000000000606060606060606060606060606060600000000"].assert_eq(&hex_of(&record));
}

fn brought_stamp(stamp: u64) -> BroughtStamp {
    BroughtStamp { volume: None, stamp: Stamp(stamp), as_of: Stamp(stamp), epoch: EpochId([0xe; 16]) }
}

#[test]
fn records_of_what_an_unfinished_pass_brought_keep_their_bytes() {
    let cut = |stamp| GroupCut::new(vec![Stamp(stamp)]);
    let of_volume = BroughtStamp {
        volume: Some(VolumeId([b'a'; 16])),
        stamp: Stamp(908),
        as_of: Stamp(906),
        ..brought_stamp(0)
    };
    let mut record = sg1(GroupState {
        unfinished: Some(UnfinishedPass { since: cut(900), until: cut(910) }),
        brought: vec![brought_stamp(905), of_volume],
        ..followed()
    });
    expect!["0100616161616161616161616161616161610800070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000000000000000000000000000000000000000000000000000000001018403000000000000018e03000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000000000000000000000020100000000000000000000000000000000020000000000000000000000000000000000890300000000000089030000000000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e616161616161616161616161616161618c030000000000008a030000000000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e"].assert_eq(&hex_of(&record));
    // A part of a group with volumes in several pools.
    make_joint(&mut record, 2);
    expect!["0100616161616161616161616161616161610800070707070707070707070707070707070505050505050505050505050505050503007367310100d6117e03000000000000000000000000000000000000000000000000000000000000000001018403000000000000018e03000000000000010000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0100000000000000000100000000000000000000000000000000020100000000000000000000000000010808080808080808080808080808080800020000000000000000000000000000000000000000000000000000000000000000000000000000020000000000000000000000000000000000890300000000000089030000000000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e616161616161616161616161616161618c030000000000008a030000000000000e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e"].assert_eq(&hex_of(&record));
}

fn hex_of(record: &GroupRecord) -> String {
    assert_eq!(&GroupRecord::decode(&record.encode()).unwrap(), record);
    record.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}
