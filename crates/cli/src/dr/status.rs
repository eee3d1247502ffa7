//! Groups and sites, shown.

use crate::{console::Console, exit_status::ExitStatus};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::client::{
        DrConnection, DrGroupList, DrGroupRow, DrMergePlan, DrMergeRow, DrMergeStart, DrSiteRow, DrSites,
        DrWithheldRow, FailoverAnswer, PastRehearsalRow, RehearsalOutcome,
    },
};
use replication::primary::PINNED_BYTES_MAX;
use report::{
    Refusal,
    duration::{show_duration, show_estimate},
};
use serde::Serialize;
use std::time::Duration;
use world::ByteCount;

/// The answer of `dr status`, as JSON.
#[derive(Serialize)]
struct DrStatus<'a> {
    site: &'a DrSites,
    #[serde(flatten)]
    groups: &'a DrGroupList,
}

/// Shows all.
pub fn show(sites: &DrSites, groups: &DrGroupList, console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(&DrStatus { site: sites, groups })?;
    }
    lines(sites, groups).iter().for_each(|line| console.say(line));
    warnings(groups).iter().for_each(|warning| console.warn(warning));
    let could_serve =
        |row: &DrGroupRow| !row.is_complete || row.could_serve.as_ref().is_none_or(|could| could.could_serve);
    let is_well = |row: &DrGroupRow| {
        row.connected_since.is_some() && !row.is_behind && row.withheld.is_empty() && could_serve(row)
    };
    let is_all_well = groups.groups.iter().all(is_well)
        && groups.damaged.is_empty()
        && groups.waiting.is_empty()
        && !groups.is_incomplete;
    console.finish(if is_all_well { ExitStatus::Pass } else { ExitStatus::Fail })
}

/// Shows all again, with what changed since the last time: a terminal is redrawn.
pub fn show_again(
    (sites, groups): (&DrSites, &DrGroupList),
    last: &mut Vec<String>,
    console: &Console,
) -> Result<(), Refusal> {
    let mut lines = lines(sites, groups);
    lines.extend(warnings(groups).into_iter().map(|warning| format!("warning: {warning}")));
    if lines != *last {
        console.clear_screen();
        lines.iter().for_each(|line| console.say(line));
        *last = lines;
    }
    console.finish(ExitStatus::Pass).map(drop)
}

fn lines(sites: &DrSites, groups: &DrGroupList) -> Vec<String> {
    let mut lines = vec![format!("site {}, waits for other sites at {}", sites.name, sites.address)];
    lines.extend(sites.peers.iter().map(peer_line));
    if sites.peers.is_empty() {
        lines.push(
            "paired with no site: 'spindle dr token' there, 'spindle dr pair' here, or the other way round"
                .to_owned(),
        );
    }
    lines.extend(groups.groups.iter().flat_map(group_lines));
    lines.extend(groups.waiting.iter().map(|group| {
        format!("{}: not made yet; this server makes it once {} is connected", group.name, group.peer)
    }));
    if groups.groups.is_empty() && groups.waiting.is_empty() {
        lines.push("no DR groups: 'spindle dr create'".to_owned());
    }
    lines
}

fn warnings(groups: &DrGroupList) -> Vec<String> {
    let damaged = groups.damaged.iter().map(|damaged| {
        format!(
            "the record of DR group {} in pool {} cannot be used: {}; no volume of that pool is served",
            damaged.group, damaged.pool, damaged.problem
        )
    });
    let incomplete = groups.is_incomplete.then(|| "a pool is not open: its groups are not shown".to_owned());
    damaged.chain(incomplete).collect()
}

/// Shows a group that was changed.
pub fn show_change(row: &DrGroupRow, console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(row)?;
    }
    group_lines(row).iter().for_each(|line| console.say(line));
    console.finish(ExitStatus::Pass)
}

/// Shows a group that was moved, and the steps of hosts if something that they were answered may be lost.
pub fn show_failover(answer: &FailoverAnswer, console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(answer)?;
    }
    let row = &answer.group;
    if !answer.may_have_lost {
        return show_lines(&group_lines(row), console);
    }
    let mut lines = group_lines(&DrGroupRow { withheld: Vec::new(), ..row.clone() });
    lines.extend(steps_of_hosts(&row.name, &row.peer, &row.withheld));
    show_lines(&lines, console)
}

fn show_lines(lines: &[String], console: &Console) -> Result<ExitStatus, Refusal> {
    lines.iter().for_each(|line| console.say(line));
    console.finish(ExitStatus::Pass)
}

/// The steps of each host from which a group is withheld after a failover that may have lost something.
pub fn steps_of_hosts(group: &str, peer: &str, withheld: &[DrWithheldRow]) -> Vec<String> {
    let mut lines = vec![match withheld {
        [] => format!("{group}: answers may be lost, and no host is known that was connected at {peer}"),
        _ => format!(
            "{group}: answers may be lost, so it is withheld from each host that was connected at {peer}, until that has let go \
             of what it cached. Do this for each:"
        ),
    }];
    for host in withheld {
        lines.push(format!("  {} ({})", host.host(), host.volumes.join(", ")));
        lines.extend(host.steps.iter().enumerate().map(|(at, step)| format!("    {}. {step}", at + 1)));
    }
    lines.push(format!(
        "  a host that connected at {peer} after the line was lost is not known here: stop and unmount it, too, before it \
         connects here"
    ));
    lines
}

/// Shows a group beside others.
pub fn say_group(row: &DrGroupRow, console: &Console) {
    group_lines(row).iter().for_each(|line| console.say(line));
}

/// An address, its round trip, and what packing saves of the line.
fn path_text(connection: &DrConnection) -> String {
    let round_trip = connection.round_trip_us.map(|micros| format!("{:.1} ms", micros as f64 / 1000.0));
    let is_packed = connection.line_bytes < connection.sent_bytes;
    let packed = is_packed.then(|| {
        let share = connection.line_bytes as f64 / connection.sent_bytes as f64;
        format!("packed to {:.0} %", 100.0 * share)
    });
    let figures: Vec<String> = round_trip.into_iter().chain(packed).collect();
    match figures.is_empty() {
        true => connection.address.clone(),
        false => format!("{} ({})", connection.address, figures.join(", ")),
    }
}

fn peer_line(peer: &DrSiteRow) -> String {
    let paths: Vec<String> = peer.connections.iter().map(path_text).collect();
    match (&peer.connected_since, &peer.lost_since, &peer.last_error) {
        (Some(since), _, _) => format!("  {}: connected since {since}, by {}", peer.name, paths.join(", ")),
        (None, Some(since), Some(reason)) => format!("  {}: not reached since {since}: {reason}", peer.name),
        (None, Some(since), None) => format!("  {}: not connected since {since}", peer.name),
        (None, None, _) => format!("  {}: not connected yet", peer.name),
    }
}

/// A group in a few lines: how it is, what a disaster would cost, and what goes on.
fn group_lines(row: &DrGroupRow) -> Vec<String> {
    let role = match row.role {
        DrRole::Primary => "primary",
        DrRole::Secondary => "secondary",
    };
    let mode = match &row.mode {
        DrMode::Sync { hold_ms, failsafe } => {
            let then = if *failsafe { "refuses writes" } else { "goes on alone" };
            format!("sync, holds {} then {then}", show_duration(Duration::from_millis(*hold_ms)))
        }
        DrMode::Async { behind_ms, behind_bytes, push_back } => {
            let time = show_duration(Duration::from_millis(*behind_ms));
            let over = if *push_back { ", hosts wait beyond" } else { "" };
            format!("async, behind by at most {time} and {}{over}", ByteCount(*behind_bytes))
        }
        DrMode::Periodic { every_ms, keep } => {
            let every = show_duration(Duration::from_millis(*every_ms));
            format!("periodic, every {every}, {keep} kept")
        }
    };
    let mut lines = vec![
        format!(
            "{}{}: {role} here, {}, with {}; {mode}; {}/{}",
            row.name,
            row.part.as_ref().map_or_else(String::new, |part| format!(" ({} of {})", part.part, part.parts)),
            row.state,
            row.peer,
            row.pool,
            row.volumes.join(&format!(", {}/", row.pool))
        ),
        format!("  {}", row.summary),
    ];
    if let Some(witness) = &row.witness {
        lines.push(format!("  witness {}: {}", witness.addresses.join(", "), witness.summary));
    }
    if let Some(since) = &row.held_since {
        lines.push(format!("  hosts are not served here since {since}"));
    }
    if let Some(since) = &row.alone_since {
        lines.push(format!("  alone since {since}: hosts are answered without {}", row.peer));
    }
    lines.extend(could_serve_line(row));
    lines.extend(row.merge.as_ref().map(merge_line));
    lines.extend(row.standstill.as_ref().map(|why| format!("  the merge {why}")));
    lines.extend(plan_line(row));
    if let (None, Some(reason)) = (&row.connected_since, &row.disconnected_because) {
        lines.push(format!("  not connected because: {reason}"));
    }
    if let (None, DrRole::Primary) = (&row.connected_since, row.role) {
        lines.push(match row.kept_log_bytes {
            Some(kept) => {
                let (kept, most) = (ByteCount(kept), ByteCount(PINNED_BYTES_MAX));
                format!(
                    "  the log for {} has {kept}, of {most} at most; beyond that the map is read",
                    row.peer
                )
            }
            None => format!("  the log for {} is given up: the map shows what it lacks", row.peer),
        });
    }
    if !row.forks.is_empty() {
        let forks = row.forks.join(&format!(", {}/", row.pool));
        lines.push(format!("  {}/{forks}: what this site gave up, until it is deleted", row.pool));
    }
    lines.extend(rehearsal_line(row).map(|line| format!("  {line}")));
    lines.extend(row.withheld.iter().map(withheld_line));
    lines
}

/// A host that does not get the group's volumes, why, and its next steps.
fn withheld_line(host: &DrWithheldRow) -> String {
    format!(
        "  {} withheld since {} from {}, as what it cached may be of what was lost: {}",
        host.volumes.join(", "),
        host.since,
        host.host(),
        host.steps.join("; ")
    )
}

/// Says whether hosts would be served here now.
fn could_serve_line(row: &DrGroupRow) -> Option<String> {
    let could = row.could_serve.as_ref()?;
    Some(match could.could_serve {
        true if row.rows.is_empty() => "  could serve now: yes, by this site's own file".to_owned(),
        true => format!("  could serve now: yes, by rows that came with it: {}", row.rows.join(", ")),
        false => format!("  could serve now: no, because {}", could.reasons.join("; ")),
    })
}

/// The rule for merges, if it is not the default.
fn plan_line(row: &DrGroupRow) -> Option<String> {
    let DrMergePlan { start, bytes_per_second } = &row.merge_plan;
    let when = match start {
        DrMergeStart::Staggered { groups: 1 } if bytes_per_second.is_none() => return None,
        DrMergeStart::AtOnce => "at once".to_owned(),
        DrMergeStart::Staggered { groups } => format!("in turns, {groups} at one time"),
        DrMergeStart::Window { from, until } => format!("from {from} to {until} UTC"),
    };
    let rate = bytes_per_second.map(|rate| format!(", at most {}/s", ByteCount(rate)));
    Some(format!("  merges {when}{}", rate.unwrap_or_default()))
}

fn merge_line(merge: &DrMergeRow) -> String {
    let what = if merge.is_first_copy { "first copy" } else { "merge" };
    let (done, left) = (ByteCount(merge.done_bytes), ByteCount(merge.remaining_bytes));
    let time = match merge.seconds_left {
        Some(seconds) if merge.remaining_bytes > 0 => {
            let time = show_estimate(Duration::from_secs(seconds));
            format!(" at {}/s, {time}", ByteCount(merge.bytes_per_second))
        }
        _ => String::new(),
    };
    format!("  {what} since {}: {done} done, {left} left{time}", merge.since)
}

/// The last rehearsal at this site; of a group that is primary only if there was one.
fn rehearsal_line(row: &DrGroupRow) -> Option<String> {
    if let Some(since) = &row.rehearsing_since {
        return Some(format!("a failover is being rehearsed since {since}"));
    }
    match (&row.last_rehearsal, row.role) {
        (Some(PastRehearsalRow { ended, outcome, seconds, last_proven }), _) => {
            let outcome = match outcome {
                RehearsalOutcome::Passed => "passed",
                RehearsalOutcome::Failed => "failed",
            };
            let proven = last_proven.as_ref().map(|state| format!("; proven is state {state}"));
            let proven = proven.unwrap_or_default();
            Some(format!("rehearsed {ended}: {outcome} after {seconds:.1} s{proven}"))
        }
        (None, DrRole::Secondary) if row.is_complete => {
            Some(format!("never rehearsed: 'spindle failover {} --rehearse'", row.name))
        }
        (None, _) => None,
    }
}
