//! Records of groups, and the rule for any bytes: what decodes encodes to the same bytes, and nothing panics. The fuzz
//! target applies it, too.

use array::format::{EpochId, Fence, GroupId, SiteId, Stamp, VolumeId};
use replication::{
    connect::{SiteRole, UnfinishedPass},
    cut::GroupCut,
    group_record::{GroupRecord, GroupSettings},
    group_state::GroupState,
    lineage::Lineage,
    session::{BoundPolicy, ReplicationMode},
};
use std::time::Duration;

/// A primary that went on alone, a new replica within its first copy, and a deposed primary with a fork.
pub fn examples() -> Vec<(&'static str, GroupRecord)> {
    let mut lineage = Lineage::new(EpochId([0xa; 16]), 1);
    lineage.promote(EpochId([0xb; 16]), &GroupCut::new(vec![Stamp(900)])).expect("stamps are left");
    let primary = GroupState {
        role: SiteRole::Primary,
        fence: Fence(7),
        lineage: Some(lineage),
        is_alone: true,
        ..GroupState::new_replica()
    };
    let (since, until) = (GroupCut::zero(1), GroupCut::new(vec![Stamp(905)]));
    let replica = GroupState {
        fence: Fence(7),
        unfinished: Some(UnfinishedPass { since, until }),
        ..GroupState::new_replica()
    };
    let deposed = GroupState {
        role: SiteRole::Secondary,
        told: Stamp(903),
        forked_at: Some(Stamp(905)),
        ..primary.clone()
    };
    let sync = ReplicationMode::Sync { hold: Duration::from_secs(5), is_failsafe: false };
    let over = BoundPolicy::PushBack;
    let bounded =
        ReplicationMode::Async { behind_max: Duration::from_secs(60), behind_bytes_max: 1 << 30, over };
    let periodic = ReplicationMode::Periodic { every: Duration::from_secs(900), kept: 4 };
    let record = |mode, state| GroupRecord {
        group: GroupId([1; 16]),
        settings: GroupSettings {
            name: "mail".to_owned(),
            mode,
            peer: SiteId([2; 16]),
            volumes: vec![VolumeId([3; 16]), VolumeId([4; 16])],
            auto: None,
            joint: None,
        },
        state,
    };
    vec![
        ("primary", record(sync, primary)),
        ("replica", record(bounded, replica)),
        ("deposed", record(periodic, deposed)),
    ]
}

/// Checks the rule for some bytes. Returns true if they decoded.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(record) = GroupRecord::decode(bytes) else { return false };
    assert_eq!(record.encode(), bytes, "{record:?} encodes to other bytes");
    true
}
