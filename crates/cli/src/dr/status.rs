//! Groups and sites, shown.

use crate::{console::Console, exit_status::ExitStatus};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::client::{DrGroupList, DrGroupRow, DrSiteRow, DrSites, PastRehearsalRow, RehearsalOutcome},
};
use report::{Refusal, duration::show_duration};
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
    console.say(&format!("site {}, waits for other sites at {}", sites.name, sites.address));
    sites.peers.iter().for_each(|peer| console.say(&peer_line(peer)));
    if sites.peers.is_empty() {
        console.say(
            "paired with no site: 'spindle dr token' there, 'spindle dr pair' here, or the other way round",
        );
    }
    groups.groups.iter().for_each(|row| say(row, console));
    if groups.groups.is_empty() {
        console.say("no DR groups: 'spindle dr create'");
    }
    for damaged in &groups.damaged {
        console.warn(&format!(
            "the record of DR group {} in pool {} cannot be used: {}; no volume of that pool is served",
            damaged.group, damaged.pool, damaged.problem
        ));
    }
    if groups.is_incomplete {
        console.warn("a pool is not open: its groups are not shown");
    }
    let is_well = |row: &DrGroupRow| row.connected_since.is_some() && !row.is_behind;
    let is_all_well = groups.groups.iter().all(is_well) && groups.damaged.is_empty() && !groups.is_incomplete;
    console.finish(if is_all_well { ExitStatus::Pass } else { ExitStatus::Fail })
}

/// Shows a group that was changed.
pub fn show_change(row: &DrGroupRow, console: &Console) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(row)?;
    }
    say(row, console);
    console.finish(ExitStatus::Pass)
}

fn peer_line(peer: &DrSiteRow) -> String {
    let paths: Vec<String> = peer
        .connections
        .iter()
        .map(|connection| match connection.round_trip_us {
            Some(micros) => format!("{} ({:.1} ms)", connection.address, micros as f64 / 1000.0),
            None => connection.address.clone(),
        })
        .collect();
    match (&peer.connected_since, &peer.last_error_at, &peer.last_error) {
        (Some(since), _, _) => format!("  {}: connected since {since}, by {}", peer.name, paths.join(", ")),
        (None, Some(at), Some(reason)) => format!("  {}: not reached since {at}: {reason}", peer.name),
        _ => format!("  {}: not connected yet", peer.name),
    }
}

fn say(row: &DrGroupRow, console: &Console) {
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
    };
    console.say(&format!(
        "{}: {role} here, {}, with {}; {mode}; {}/{}",
        row.name,
        row.state,
        row.peer,
        row.pool,
        row.volumes.join(&format!(", {}/", row.pool))
    ));
    console.say(&format!("  {}", row.summary));
    if let (None, Some(reason)) = (&row.connected_since, &row.disconnected_because) {
        console.say(&format!("  not connected because: {reason}"));
    }
    if let Some(line) = rehearsal_line(row) {
        console.say(&format!("  {line}"));
    }
}

/// The last rehearsal at this site; of a group that is primary only if there was one.
fn rehearsal_line(row: &DrGroupRow) -> Option<String> {
    if let Some(since) = &row.rehearsing_since {
        return Some(format!("a failover is being rehearsed since {since}"));
    }
    match (&row.last_rehearsal, row.role) {
        (Some(PastRehearsalRow { ended, outcome, seconds }), _) => {
            let outcome = match outcome {
                RehearsalOutcome::Passed => "passed",
                RehearsalOutcome::Failed => "failed",
            };
            Some(format!("rehearsed {ended}: {outcome} after {seconds:.1} s"))
        }
        (None, DrRole::Secondary) if row.is_complete => {
            Some(format!("never rehearsed: 'spindle failover {} --rehearse'", row.name))
        }
        (None, _) => None,
    }
}
