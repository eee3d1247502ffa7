//! Metrics of DR groups and of paired sites.

use super::families::{BYTE_COUNTER, BYTES, GAUGE, INFO, MetricFamily, MetricSource, SECONDS, SampleValue};
use crate::dr::{
    PeerView,
    group_view::{DrGroupView, DrRole},
};
use MetricSource::{DrGroup, DrSite};
use SampleValue::{Count, Number};
use replication::session::ReplicationMode;
use world::WallTime;

const fn group(
    name: &'static str,
    shape: super::families::MetricShape,
    help: &'static str,
    of: fn(&DrGroupView) -> Option<SampleValue>,
) -> MetricFamily {
    MetricFamily::new(name, shape, help, DrGroup(of))
}

/// In the order in which they are shown, behind those of pools.
pub static DR_FAMILIES: &[MetricFamily] = &[
    MetricFamily::new(
        "spindle_dr_group",
        INFO,
        "UUID and other site of a DR group.",
        MetricSource::DrGroupInfo,
    ),
    MetricFamily::new(
        "spindle_dr_group_state",
        GAUGE,
        "1 for the state that the group is in towards its other site; no sample for other states.",
        MetricSource::DrGroupState,
    ),
    group(
        "spindle_dr_group_primary",
        GAUGE,
        "1 if the group is primary here, 0 if it is secondary.",
        |group| flag(group.role == DrRole::Primary),
    ),
    group("spindle_dr_group_serving", GAUGE, "1 if hosts are served here.", |group| flag(group.serves)),
    group(
        "spindle_dr_group_connected",
        GAUGE,
        "1 if the group has a connection to its other site.",
        |group| flag(group.connected_since.is_some()),
    ),
    group(
        "spindle_dr_group_in_sync",
        GAUGE,
        "1 if hosts are answered once both sites have a write. Of a primary in sync mode.",
        |group| {
            let are_together = group.joint.as_ref().is_none_or(|joint| joint.is_together);
            let is_kept = !group.is_alone && group.state == "streaming" && are_together;
            primary(group, is_sync(group)).and_then(|()| flag(is_kept))
        },
    ),
    group(
        "spindle_dr_group_alone",
        GAUGE,
        "1 if hosts are answered without the other site. Of a primary in sync mode.",
        |group| primary(group, is_sync(group)).and_then(|()| flag(group.is_alone)),
    ),
    group(
        "spindle_dr_group_behind",
        GAUGE,
        "1 if the other site is further behind than the mode allows. Of a primary.",
        |group| primary(group, true).and_then(|()| flag(group.is_behind)),
    ),
    group(
        "spindle_dr_group_first_copy_complete",
        GAUGE,
        "0 while this site sends or gets a first copy.",
        |group| flag(!group.report.is_first_copy_lacking),
    ),
    group(
        "spindle_dr_group_could_serve",
        GAUGE,
        "1 if hosts would be served here as at the primary if the group were promoted now. Of a secondary.",
        |group| group.hosts.reasons_against.as_ref().and_then(|reasons| flag(reasons.is_empty())),
    ),
    group(
        "spindle_dr_group_unconfirmed_bytes",
        BYTES,
        "Bytes that hosts were answered for, or wait for, and the other site has not confirmed. Of a primary.",
        |group| primary(group, true).map(|()| Count(group.unconfirmed_bytes)),
    ),
    group("spindle_dr_group_unconfirmed_seconds", SECONDS, "Age of the oldest of them.", |group| {
        primary(group, true).map(|()| Number(group.unconfirmed_ms as f64 / 1000.0))
    }),
    group(
        "spindle_dr_group_kept_log_bytes",
        BYTES,
        "Log that is kept for the other site, at most 4 GiB; no sample if it became too much. Of a primary.",
        |group| group.report.kept_log_bytes.map(Count),
    ),
    group(
        "spindle_dr_group_merge_remaining_bytes",
        BYTES,
        "Bytes that the pass under way still has to bring; 0 if there is none.",
        |group| Some(Count(group.report.merge.as_ref().map_or(0, |merge| merge.remaining_bytes))),
    ),
    group(
        "spindle_dr_group_sent_bytes",
        BYTE_COUNTER,
        "Bytes of blocks that were sent to the other site.",
        |group| Some(Count(group.report.sent_bytes)),
    ),
    group(
        "spindle_dr_group_received_bytes",
        BYTE_COUNTER,
        "Bytes of blocks that came from the other site.",
        |group| Some(Count(group.report.received_bytes)),
    ),
    group(
        "spindle_dr_group_last_word_timestamp_seconds",
        SECONDS,
        "The last time at which the primary said how it is: each second while it is connected. Of a secondary.",
        |group| group.report.last_word.map(seconds),
    ),
    group(
        "spindle_dr_group_complete_timestamp_seconds",
        SECONDS,
        "Everything that hosts were answered until then is here, by the clock of the primary. Of a secondary.",
        |group| group.complete_until.map(|(until, _)| seconds(until)),
    ),
    MetricFamily::new(
        "spindle_dr_site_connected",
        GAUGE,
        "1 if a paired site is connected.",
        DrSite(|peer| flag(peer.connected_since.is_some())),
    ),
    MetricFamily::new(
        "spindle_dr_site_connections",
        GAUGE,
        "Connections to a paired site.",
        DrSite(|peer| Some(Count(peer.connections.len() as u64))),
    ),
    MetricFamily::new(
        "spindle_dr_site_round_trip_seconds",
        SECONDS,
        "Longest round trip of the connections to a paired site, smoothed.",
        DrSite(round_trip),
    ),
];

fn flag(is_so: bool) -> Option<SampleValue> {
    Some(Count(u64::from(is_so)))
}

fn is_sync(group: &DrGroupView) -> bool {
    matches!(group.mode, ReplicationMode::Sync { .. })
}

/// Nothing of a secondary, or if the rest does not hold.
fn primary(group: &DrGroupView, is_meant: bool) -> Option<()> {
    (group.role == DrRole::Primary && is_meant).then_some(())
}

fn seconds(time: WallTime) -> SampleValue {
    Number(time.seconds as f64 + f64::from(time.nanos) / 1e9)
}

fn round_trip(peer: &PeerView) -> Option<SampleValue> {
    let longest = peer.connections.iter().filter_map(|connection| connection.round_trips.smoothed).max();
    longest.map(|longest| Number(longest.as_secs_f64()))
}
