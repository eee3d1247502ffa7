//! DR groups and paired sites as views have them, for tests of what is made of them.

use array::format::{GroupId, SiteId, VolumeId};
use control::{
    dr::{
        PeerView,
        group_report::DrGroupReport,
        group_view::{DrGroupView, DrRole, GroupHostsView},
    },
    metrics::{MeteredDrGroup, MeteredSite, NamedFigures},
};
use replication::{
    link::{ConnectionStatus, LineBytes, RoundTrips},
    session::ReplicationMode,
};
use std::time::Duration;
use world::WallTime;

const DENVER: SiteId = SiteId([7; 16]);
const NOON: WallTime = WallTime { seconds: 1_795_780_800, nanos: 500_000_000 };

/// A group that is primary here, in sync mode and alone, and one that follows; with the site of both.
pub fn with_groups(pools: Vec<NamedFigures>) -> MeteredSite {
    let primary = DrGroupView {
        next_pass: None,
        is_pushing_back: false,
        peer_silence_ms: 0,
        group: GroupId([3; 16]),
        name: "sg1".to_owned(),
        peer: DENVER,
        mode: ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false },
        volumes: vec![VolumeId([9; 16])],
        joint: None,
        role: DrRole::Primary,
        state: "connecting",
        serves: true,
        is_alone: true,
        is_behind: false,
        is_complete: true,
        unconfirmed_bytes: 4096,
        unconfirmed_ms: 1500,
        connected_since: None,
        last_end: Some((NOON, "lost".to_owned())),
        complete_until: None,
        witness: None,
        report: DrGroupReport {
            kept_log_bytes: Some(64 << 20),
            sent_bytes: 8192,
            ..DrGroupReport::default()
        },
        hosts: GroupHostsView::default(),
    };
    let secondary = DrGroupView {
        group: GroupId([4; 16]),
        name: "sg2".to_owned(),
        role: DrRole::Secondary,
        state: "following",
        serves: false,
        is_alone: false,
        connected_since: Some(NOON),
        complete_until: Some((NOON, true)),
        hosts: GroupHostsView { reasons_against: Some(Vec::new()), ..GroupHostsView::default() },
        report: DrGroupReport { received_bytes: 12_288, last_word: Some(NOON), ..DrGroupReport::default() },
        ..primary.clone()
    };
    let peer = PeerView {
        site: DENVER,
        name: "denver".to_owned(),
        addresses: vec!["192.0.2.20:7789".to_owned()],
        connected_since: Some(NOON),
        lost_since: None,
        connections: vec![ConnectionStatus {
            index: 0,
            address: "192.0.2.20:7789".to_owned(),
            round_trips: RoundTrips { idle: None, smoothed: Some(Duration::from_millis(12)) },
            sent: LineBytes::default(),
        }],
        last_error: None,
    };
    let metered = |view| MeteredDrGroup { pool: "mail".to_owned(), peer: "denver".to_owned(), view };
    MeteredSite { pools, groups: vec![metered(primary), metered(secondary)], peers: vec![peer] }
}
