//! Rows of DR groups and of paired sites.

use super::{
    dr_parts::DrPartRow,
    dr_rehearsals::PastRehearsalRow,
    dr_suspensions::{DrMergePlan, DrSuspensionRow, standstill_words, suspended_summary},
    dr_withheld::{DrWithheldRow, withheld_rows},
    problem::ApiProblem,
};
use crate::{
    dr::{
        LinkView, PeerView,
        group_report::DrMerge,
        group_view::{DrGroupView, DrRole, WitnessStanding},
        mode::DrMode,
    },
    site::handle::{PoolHandle, SiteView},
    view::PoolView,
};
use array::format::SiteId;
use replication::session::ReplicationMode;
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use world::{ByteCount, WallTime};

/// Time in milliseconds for which a peer that is connected has confirmed nothing, before that is said.
const SILENT_MS: u64 = 2_000;

/// A DR group, as this site has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrGroupRow {
    /// UUID: the same at both sites.
    pub group: String,
    pub name: String,
    pub pool: String,
    /// Names of its volumes.
    pub volumes: Vec<String>,
    /// Of a group with volumes in several pools: what of it this pool has. What is asked of one part is done with all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<DrPartRow>,
    /// Name of the other site.
    pub peer: String,
    pub mode: DrMode,
    pub role: DrRole,
    /// As docs/replication.md names it.
    pub state: String,
    /// Hosts are served here.
    pub serves: bool,
    /// In sync mode: hosts are answered without the other site.
    pub is_alone: bool,
    /// The other site is further behind than the mode allows.
    pub is_behind: bool,
    /// The beginning of the next pass of a periodic group that waits for its clock.
    pub next_pass: Option<String>,
    /// This site has the first copy whole.
    pub is_complete: bool,
    /// Bytes that hosts were answered for, or wait for, and the other site has not confirmed.
    pub unconfirmed_bytes: u64,
    /// Age of the oldest of them.
    pub unconfirmed_seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// The end of the last connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnected_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnected_because: Option<String>,
    /// A failover is being rehearsed here since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsing_since: Option<String>,
    /// The last rehearsal here that was not broken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rehearsal: Option<PastRehearsalRow>,
    /// The cost of a disaster at the primary now, and the next step, in a line.
    pub summary: String,
    /// In sync mode: hosts have been answered without the other site since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_since: Option<String>,
    /// Of a primary: hosts have waited, or were disconnected, since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<String>,
    /// Passes under way, which bring one side what it lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<DrMergeRow>,
    /// Of a primary: log that is kept for the other site; none if it became too much, and the map shows what that lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_log_bytes: Option<u64>,
    /// Bytes of blocks since the pool was opened.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Of a secondary: the last time at which its primary said how it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_word: Option<String>,
    /// Of a secondary that is complete: it has everything that hosts were answered until then. Of the rest, an unplanned failover
    /// may lose all; left out if its primary has said nothing since this server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_until: Option<String>,
    /// Names of volumes with what this site once gave up, until they are deleted.
    pub forks: Vec<String>,
    /// Of a primary that sends nothing to the other site, although that may be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<DrSuspensionRow>,
    /// Of a primary: when its passes begin, and how fast they may be.
    pub merge_plan: DrMergePlan,
    /// The reason for which a merge stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standstill: Option<String>,
    /// Of a group that fails over without a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<DrWitnessRow>,
    /// Of a secondary: would hosts be served here now, if it were promoted? Left out while that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub could_serve: Option<DrCouldServeRow>,
    /// Exports and units that came with the group from the other site, by kind and name: served while it is primary here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
    /// Targets, exports and rights that came with the group and are not served, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub row_clashes: Vec<String>,
    /// Hosts from which volumes are withheld: what they cached may belong to what was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<DrWithheldRow>,
}

/// A secondary's answer to whether it would serve its hosts now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrCouldServeRow {
    pub could_serve: bool,
    /// Empty if it could.
    pub reasons: Vec<String>,
    /// In the way of nothing: it was never rehearsed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The witness of a group, as this site knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrWitnessRow {
    pub addresses: Vec<String>,
    /// It gave this site the right to serve hosts, and that has not ended.
    pub has_right: bool,
    /// The other site takes over without a person if the primary is lost now, as far as this site knows.
    pub takes_over: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
    /// In a line, with the reason if nobody would take over.
    pub summary: String,
}

/// Passes of a group under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrMergeRow {
    /// It brings everything, to a side that has nothing.
    pub is_first_copy: bool,
    pub since: String,
    /// Bytes of all passes so far.
    pub done_bytes: u64,
    /// Of the pass under way. What hosts write meanwhile is the next one.
    pub remaining_bytes: u64,
    /// In the last seconds; 0 before it is known.
    pub bytes_per_second: u64,
    /// Of the pass under way, at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

/// DR groups, and records of groups that cannot be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrGroupList {
    /// By name.
    pub groups: Vec<DrGroupRow>,
    pub damaged: Vec<DamagedDrGroupRow>,
    /// Of the site file, and not made yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingDrGroupRow>,
    /// A pool is not open: there may be more.
    pub is_incomplete: bool,
}

/// A DR group of the site file that the server makes once the other site is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingDrGroupRow {
    pub name: String,
    pub pool: String,
    /// Name of the other site.
    pub peer: String,
}

/// A record of a group that cannot be used: no volume of its pool is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedDrGroupRow {
    pub group: String,
    pub pool: String,
    pub problem: String,
}

/// This site towards others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrSites {
    /// UUID of this site.
    pub site: String,
    pub name: String,
    /// The address at which it waits for other sites.
    pub address: String,
    pub peers: Vec<DrSiteRow>,
}

/// A paired site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrSiteRow {
    pub site: String,
    pub name: String,
    /// Its addresses, to which this site connects; empty if the other one connects.
    pub addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// The end of the last session, or the start of this server; none while it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<String>,
    pub connections: Vec<DrConnection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A connection that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrConnection {
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// Bytes that this site sent over it, before blocks are packed.
    #[serde(default)]
    pub sent_bytes: u64,
    /// As many as went over the line.
    #[serde(default)]
    pub line_bytes: u64,
}

fn at(time: WallTime) -> String {
    utc_time(time.seconds)
}

impl DrSites {
    pub(super) fn of(view: &LinkView) -> Self {
        let peers = view.peers.iter().map(DrSiteRow::of).collect();
        Self { site: view.site.to_string(), name: view.name.clone(), address: view.address.clone(), peers }
    }
}

impl DrSiteRow {
    pub(super) fn of(peer: &PeerView) -> Self {
        let connections = peer.connections.iter().map(|connection| DrConnection {
            address: connection.address.clone(),
            round_trip_us: connection.round_trips.smoothed.map(|time| time.as_micros() as u64),
            sent_bytes: connection.sent.plain,
            line_bytes: connection.sent.on_line,
        });
        Self {
            site: peer.site.to_string(),
            name: peer.name.clone(),
            addresses: peer.addresses.clone(),
            connected_since: peer.connected_since.map(at),
            lost_since: peer.lost_since.map(at),
            connections: connections.collect(),
            last_error_at: peer.last_error.as_ref().map(|(time, _)| at(*time)),
            last_error: peer.last_error.as_ref().map(|(_, reason)| reason.clone()),
        }
    }
}

/// Name of a site with which there is a group.
pub(super) fn site_name(link: Option<&LinkView>, site: SiteId) -> String {
    let known = link.and_then(|link| link.peers.iter().find(|peer| peer.site == site));
    known.map_or_else(|| site.to_string(), |peer| peer.name.clone())
}

impl DrGroupRow {
    pub(super) fn of((pool, view): (&str, &PoolView), group: &DrGroupView, link: Option<&LinkView>) -> Self {
        let name_of =
            |id| view.volumes.iter().find(|volume| volume.volume == id).map(|volume| volume.name.clone());
        let peer = site_name(link, group.peer);
        let report = &group.report;
        let part = DrPartRow::of(group);
        let rehearsing = view.rehearsals.iter().find(|one| one.group == group.group);
        Self {
            group: group.group.to_string(),
            name: group.name.clone(),
            pool: pool.to_owned(),
            volumes: group.volumes.iter().filter_map(|&id| name_of(id)).collect(),
            part: part.clone(),
            summary: summary_of(group, part.as_ref(), (&peer, link.is_some())),
            peer,
            mode: DrMode::of(group.mode),
            role: group.role,
            state: group.state.to_owned(),
            serves: group.serves,
            is_alone: group.is_alone,
            is_behind: group.is_behind,
            next_pass: group.next_pass.map(at),
            is_complete: group.is_complete,
            unconfirmed_bytes: group.unconfirmed_bytes,
            unconfirmed_seconds: group.unconfirmed_ms as f64 / 1000.0,
            connected_since: group.connected_since.map(at),
            disconnected_at: group.last_end.as_ref().map(|(time, _)| at(*time)),
            disconnected_because: group.last_end.as_ref().map(|(_, reason)| reason.clone()),
            witness: group.witness.as_ref().map(|witness| DrWitnessRow::of(group, witness)),
            alone_since: report.alone_since.map(at),
            held_since: report.unserved_since.map(at),
            merge: report.merge.as_ref().map(DrMergeRow::of),
            kept_log_bytes: report.kept_log_bytes,
            sent_bytes: report.sent_bytes,
            received_bytes: report.received_bytes,
            last_word: report.last_word.map(at),
            complete_until: group.complete_until.map(|(until, _)| at(until)),
            forks: report.forks.iter().map(|fork| fork.name.clone()).collect(),
            could_serve: group.hosts.reasons_against.clone().map(|reasons| DrCouldServeRow {
                could_serve: reasons.is_empty(),
                reasons,
                remarks: Vec::new(),
            }),
            rows: group.hosts.rows.clone(),
            row_clashes: group.hosts.clashes.clone(),
            withheld: withheld_rows((pool, view), &group.hosts.withheld),
            suspended: DrSuspensionRow::of(group),
            merge_plan: DrMergePlan::of(report.merge_plan),
            standstill: report.standstill.as_ref().map(standstill_words),
            rehearsing_since: rehearsing.map(|one| at(one.began)),
            last_rehearsal: None,
        }
    }
}

impl DrMergeRow {
    fn of(merge: &DrMerge) -> Self {
        Self {
            is_first_copy: merge.is_first_copy,
            since: at(merge.since),
            done_bytes: merge.done_bytes,
            remaining_bytes: merge.remaining_bytes,
            bytes_per_second: merge.rate,
            seconds_left: merge.time_left().map(|left| left.as_secs()),
        }
    }
}

impl DrWitnessRow {
    fn of(group: &DrGroupView, witness: &WitnessStanding) -> Self {
        let reason = why_nobody_takes_over(group, witness);
        let summary = match &reason {
            Some(reason) => format!("nobody takes over without a person: {reason}"),
            None => "if the primary is lost, the other site takes over within 5 s".to_owned(),
        };
        Self {
            addresses: witness.addresses.clone(),
            has_right: witness.has_right,
            takes_over: reason.is_none(),
            last_answer: witness.last_answer.map(at),
            summary,
        }
    }
}

fn why_nobody_takes_over(group: &DrGroupView, witness: &WitnessStanding) -> Option<String> {
    let heard = match witness.last_answer {
        Some(time) => format!("since {}", at(time)),
        None => "since the server was started".to_owned(),
    };
    // A refusal of the right is how a secondary learns that the primary is alive.
    let is_expected = group.role == DrRole::Secondary && witness.is_peer_named;
    match &witness.problem {
        Some(problem) if !is_expected => Some(format!("no answer {heard}: {problem}")),
        _ if witness.last_answer.is_none() => Some("it was not asked yet".to_owned()),
        _ if group.role == DrRole::Primary && !witness.has_right => {
            Some("it has not given this site the right yet".to_owned())
        }
        _ if witness.is_alone || group.is_alone => Some("the primary answers alone".to_owned()),
        _ if !group.is_complete => Some("the first copy is not complete".to_owned()),
        _ => None,
    }
}

/// The cost of a disaster, and the next step; first what keeps the parts of the group apart.
fn summary_of(group: &DrGroupView, part: Option<&DrPartRow>, (peer, has_link): (&str, bool)) -> String {
    let summary = summary(group, peer, has_link);
    let Some(part) = part else { return summary };
    match part.problem(&group.name) {
        Some(problem) => format!("{problem}; {summary}"),
        None if !matches!(group.mode, ReplicationMode::Sync { .. }) => match group.role {
            DrRole::Primary => summary,
            DrRole::Secondary => format!("shows all of its pools as of one moment of the primary; {summary}"),
        },
        None if !part.is_together && group.is_complete => match group.role {
            DrRole::Primary => {
                format!("its parts are apart, until {peer} has what it lacks of each; {summary}")
            }
            DrRole::Secondary => format!(
                "its parts do not fit yet: a failover now would show the last state in which they did; {summary}"
            ),
        },
        None => summary,
    }
}

/// The cost of a disaster, and the next step.
fn summary(group: &DrGroupView, peer: &str, has_link: bool) -> String {
    let DrGroupView { name, role, state, serves, is_alone, unconfirmed_bytes, unconfirmed_ms, .. } = group;
    let is_sync = matches!(group.mode, ReplicationMode::Sync { .. });
    let lost_since = match &group.last_end {
        Some((time, _)) => format!("since {}", at(*time)),
        None => "since the server was started".to_owned(),
    };
    let unconfirmed = ByteCount(*unconfirmed_bytes);
    if !has_link {
        return "this server has no ⟨listen⟩ in [replication]: it reaches no other site".to_owned();
    }
    if let Some(summary) = suspended_summary(group, peer).filter(|_| state.starts_with("suspended")) {
        return summary;
    }
    if let Some((since, why)) = &group.report.stopped {
        let since = at(*since);
        return format!("gets nothing from {peer}: {why} ({since}); this site has what came before");
    }
    match (role, *state) {
        (DrRole::Primary, "streaming") if is_sync && !is_alone && group.peer_silence_ms >= SILENT_MS => {
            format!(
                "{peer} is connected and has confirmed nothing for {} s: writes wait for it until the hold is over; look at its drives, \
             with 'spindle pool show' there",
                group.peer_silence_ms / 1000
            )
        }
        (DrRole::Primary, "streaming") if is_sync && !is_alone => {
            format!("in sync with {peer}: a disaster here would lose nothing that hosts were answered for")
        }
        (DrRole::Primary, "merging") if group.report.is_first_copy_lacking => format!(
            "{peer} does not have the first copy whole: it cannot take over yet, and a disaster here would lose what it lacks"
        ),
        (DrRole::Primary, "streaming") if group.peer_silence_ms >= SILENT_MS => format!(
            "{peer} is connected and has confirmed nothing for {} s: look at its drives, with 'spindle pool show' there; hosts are \
             served without it, and a disaster now would lose {unconfirmed}",
            group.peer_silence_ms / 1000
        ),
        (DrRole::Primary, "waiting") if *unconfirmed_bytes == 0 => {
            format!("{peer} has everything{}", next_pass(group))
        }
        (DrRole::Primary, "streaming" | "merging" | "waiting") => format!(
            "{peer} is {unconfirmed} and {:.1} s behind: a disaster here would lose that{}",
            *unconfirmed_ms as f64 / 1000.0,
            next_pass(group)
        ),
        (DrRole::Primary, "connecting") if *serves && is_sync && !is_alone => format!(
            "{peer} not reached {lost_since}; writes wait for it until the hold is over, so a disaster now would lose nothing \
             that hosts were answered for"
        ),
        (DrRole::Primary, "connecting") if *serves => format!(
            "{peer} not reached {lost_since}; hosts are served without it, and a disaster now would lose what they wrote {lost_since}: {unconfirmed}"
        ),
        (DrRole::Primary, "connecting") if is_failsafe(group) => format!(
            "{peer} not reached {lost_since}, and hosts are served again when it is (failsafe), or after 'spindle failover {name} \
             --unplanned' here"
        ),
        (DrRole::Primary, "connecting") if group.witness.is_some() => format!(
            "{peer} not reached {lost_since}, and this site has no right from the witness: hosts are not served, as {peer} may serve \
             them. They are when one of both answers; if {peer} is off for certain, 'spindle dr alone {name} --peer-is-off' serves \
             them here"
        ),
        (DrRole::Primary, "connecting") => format!(
            "{peer} not reached {lost_since}, and hosts wait: this side may lack what {peer} has; if that site is lost, 'spindle \
             failover {name} --unplanned' serves them here with what there is"
        ),
        (DrRole::Primary, "awaiting choice") => format!(
            "both sites have writes that the other lacks: say 'spindle dr give-way {name}' at the site whose writes are to become \
             a fork; nothing is deleted"
        ),
        (DrRole::Primary, state) => state.to_owned(),
        (DrRole::Secondary, "following") => {
            format!("follows {peer}; 'spindle failover {name}' moves the hosts here")
        }
        (DrRole::Secondary, "first copy") => {
            format!("the first copy from {peer} is under way: it cannot be promoted yet")
        }
        (DrRole::Secondary, "merging") => {
            format!("gets what it lacks from {peer}; until then it could be promoted as of before")
        }
        (DrRole::Secondary, _) if group.witness.as_ref().is_some_and(|witness| !witness.is_alone) => format!(
            "{peer} not reached {lost_since}; this site takes over when the witness says that the right of {peer} has ended"
        ),
        (DrRole::Secondary, _) => format!(
            "{peer} not reached {lost_since}; if that site is lost, 'spindle failover {name} --unplanned' makes this one primary"
        ),
    }
}

/// The next pass of a group that goes by the clock.
fn next_pass(group: &DrGroupView) -> String {
    group.next_pass.map_or_else(String::new, |time| format!("; the next pass begins at {}", at(time)))
}

fn is_failsafe(group: &DrGroupView) -> bool {
    matches!(group.mode, ReplicationMode::Sync { is_failsafe: true, .. })
}

/// All groups that a caller sees.
pub(super) fn rows(
    site: &SiteView,
    link: Option<&LinkView>,
    is_seen: impl Fn(&PoolHandle) -> bool,
) -> DrGroupList {
    let (mut groups, mut damaged) = (Vec::new(), Vec::new());
    for pool in site.pools.values().filter(|pool| is_seen(pool)) {
        let view = pool.last_view();
        groups.extend(view.dr.groups.iter().map(|group| DrGroupRow::of((&pool.name, &view), group, link)));
        damaged.extend(view.dr.damaged.iter().map(|group| DamagedDrGroupRow {
            group: group.group.to_string(),
            pool: pool.name.clone(),
            problem: group.problem.clone(),
        }));
    }
    groups.sort_by(|one, other| (&one.name, &one.group).cmp(&(&other.name, &other.group)));
    let is_in_sight = |pool: &String| site.pools.get(pool).is_some_and(&is_seen);
    let waiting = site.waiting_dr_groups.iter().filter(|group| is_in_sight(&group.pool));
    let waiting = waiting.map(|group| WaitingDrGroupRow {
        name: group.name.clone(),
        pool: group.pool.clone(),
        peer: group.peer.clone(),
    });
    let waiting = waiting.collect();
    DrGroupList { groups, damaged, waiting, is_incomplete: super::orders::has_stopped_pools(site) }
}

/// The problem of a server without a link.
pub(super) fn no_link() -> ApiProblem {
    let refusal = report::Refusal::new(
        "this server does not listen for other sites",
        "add ⟨listen⟩ to [replication] in its site file, for example listen = \"0.0.0.0:7789\", and start it again",
    );
    ApiProblem::refused(&refusal)
}
