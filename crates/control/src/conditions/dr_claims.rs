//! Conditions of paired sites and of DR groups, from the views of the link and of pools.

use super::board::ConditionClaim;
use crate::{
    dr::{
        LinkView, PeerView,
        group_report::DrMerge,
        group_view::{DrGroupView, DrGroups, DrRole, WithheldHost},
    },
    site::handle::SiteView,
    web::standstill_words,
};
use array::format::SiteId;
use replication::{
    primary::PINNED_BYTES_MAX,
    secondary::NO_ROOM,
    session::{ReplicationMode, SuspensionReason},
};
use report::{calendar::shown_time, duration::show_duration, duration::show_estimate};
use std::{collections::BTreeMap, time::Duration};
use world::{ByteCount, WallTime};

/// Pool of a site's condition.
const LINK: &str = "link";
/// Time for which a site is not reached, or a group is alone, before that is a condition.
const LASTS: Duration = Duration::from_secs(3);
/// Time for which hosts are not served: a planned failover takes less.
const HOSTS_WAIT: Duration = Duration::from_secs(10);
/// Time after which both sites have found out what groups they have in common.
const AGREED_WITHIN: Duration = Duration::from_secs(10);
/// A secondary hears of its primary each second.
const SILENT: Duration = Duration::from_secs(30);
/// A merge of which nothing has moved so long after its beginning stands still.
const STILL: Duration = Duration::from_secs(15);
/// A witness answers its primary several times a second.
const CONFIRMS_NOTHING: Duration = Duration::from_secs(5);
/// Time for which a witness has not answered, before that is a condition.
const WITNESS_SILENT: Duration = Duration::from_secs(10);
/// Kept log that grew for less says nothing about its rate.
const RATE_AFTER: Duration = Duration::from_secs(60);
/// Groups that the text of a site names.
const GROUPS_SHOWN: usize = 8;
/// Hosts that a text names.
const HOSTS_SHOWN: usize = 8;
/// Snapshots that a text names.
const HELD_SHOWN: usize = 8;

/// The other site of a group, as this one knows it.
struct OtherSite<'l> {
    name: String,
    /// `None` if both are not paired, or this server has no link.
    peer: Option<&'l PeerView>,
    has_link: bool,
}

fn other_site(link: Option<&LinkView>, site: SiteId) -> OtherSite<'_> {
    let peer = link.and_then(|link| link.peers.iter().find(|peer| peer.site == site));
    let name = peer.map_or_else(|| format!("site {site}"), |peer| peer.name.clone());
    OtherSite { name, peer, has_link: link.is_some() }
}

fn age(since: WallTime, now: WallTime) -> Duration {
    Duration::from_secs(u64::try_from(now.seconds - since.seconds).unwrap_or(0))
}

fn is_older(since: Option<WallTime>, now: WallTime, than: Duration) -> bool {
    since.is_some_and(|since| age(since, now) >= than)
}

/// Paired sites that are not reached.
pub(super) fn site_claims(site: &SiteView, link: &LinkView, now: WallTime) -> Vec<ConditionClaim> {
    let lost = link.peers.iter().filter(|peer| is_older(peer.lost_since, now, LASTS));
    lost.map(|peer| {
        let since = shown_time(peer.lost_since.map_or(0, |since| since.seconds));
        let views = site.pools.values().map(|pool| pool.last_view());
        let mut groups: Vec<String> = views
            .flat_map(|view| view.dr.groups.clone())
            .filter(|group| group.peer == peer.site)
            .map(|group| cost_unreached(&group, &peer.name, now))
            .collect();
        let others = groups.len().saturating_sub(GROUPS_SHOWN);
        groups.truncate(GROUPS_SHOWN);
        if others > 0 {
            groups.push(format!("and {others} other groups"));
        }
        let groups = match groups.is_empty() {
            true => "no DR group is with it".to_owned(),
            false => groups.join("; "),
        };
        let text = format!("{} not reached since {since}: {groups}", peer.name);
        let claim = ConditionClaim::new("dr_site_not_reached", LINK, text).of(&peer.name);
        match &peer.last_error {
            Some((_, reason)) => claim.with_next(format!(
                "look at the line and at the server of {}: the last attempt ended with {reason:?}",
                peer.name
            )),
            None => claim,
        }
    })
    .collect()
}

/// The meaning of a lost line for a group.
fn cost_unreached(group: &DrGroupView, peer: &str, now: WallTime) -> String {
    let name = &group.name;
    match (group.role, group.mode) {
        (DrRole::Secondary, _) => match group.complete_until {
            Some((until, _)) => {
                format!("{name} is primary there, and complete here until {}", shown_time(until.seconds))
            }
            None => format!("{name} is primary there, and how far this site has it is not known"),
        },
        (DrRole::Primary, _) if !group.serves => format!("hosts of {name} wait for {peer}"),
        (DrRole::Primary, ReplicationMode::Sync { .. }) if group.is_alone => {
            format!("{name} goes on alone, mail unharmed")
        }
        (DrRole::Primary, ReplicationMode::Sync { hold, is_failsafe }) => {
            let then = if is_failsafe { "are refused" } else { "it goes on alone" };
            format!("hosts of {name} wait for up to {}, then {then}", show_duration(hold))
        }
        (DrRole::Primary, _) => {
            let unsent = ByteCount(group.unconfirmed_bytes);
            format!("{name} goes on, mail unharmed, with {unsent} that {peer} lacks{}", history(group, now))
        }
    }
}

/// The log that is kept for the peer, and how long it has room. Beyond that nothing is lost: passes look into the map.
fn history(group: &DrGroupView, now: WallTime) -> String {
    let Some(kept) = group.report.kept_log_bytes else {
        return "; the kept log is full, so the map shows what it lacks".to_owned();
    };
    let Some((since, _)) = &group.last_end else { return String::new() };
    let time = age(*since, now);
    if group.connected_since.is_some() || time < RATE_AFTER || group.unconfirmed_bytes == 0 {
        return String::new();
    }
    let per_hour = group.unconfirmed_bytes.saturating_mul(3600) / time.as_secs().max(1);
    let room = PINNED_BYTES_MAX.saturating_sub(kept).saturating_mul(3600) / per_hour.max(1);
    format!(
        "; the log for it grows {}/h, room for {}",
        ByteCount(per_hour),
        show_estimate(Duration::from_secs(room))
    )
}

/// The conditions of a pool's groups.
pub(super) fn group_claims(
    pool: &str,
    dr: &DrGroups,
    link: Option<&LinkView>,
    now: WallTime,
) -> Vec<ConditionClaim> {
    let mut claims = Vec::new();
    for damaged in &dr.damaged {
        let text = format!(
            "the record of DR group {} cannot be used: {}; no volume of this pool is served",
            damaged.group, damaged.problem
        );
        let claim = ConditionClaim::new("dr_record_damaged", pool, text);
        claims.push(claim.of(damaged.group.to_string()).with_next(format!(
            "look at the other site first; if the group is not served there, 'spindle dr remove {}' serves the volumes as they \
             are here",
            damaged.group
        )));
    }
    for group in &dr.groups {
        let other = other_site(link, group.peer);
        let of_group = |claim: ConditionClaim| claim.of(&group.name);
        claims.extend(hosts_claim(pool, group, &other, now).map(of_group));
        claims.extend(course_claim(pool, group, &other, now).map(of_group));
        claims.extend(copy_claim(pool, group, &other, now).map(of_group));
        claims.extend(serving_claim(pool, group).map(of_group));
        claims.extend(fork_claim(pool, group).map(of_group));
        claims.extend(held_claim(pool, group, &other.name).map(of_group));
        claims.extend(withheld_claim(pool, group).map(of_group));
        claims.extend(standstill_claim(pool, group, &other, now).map(of_group));
        claims.extend(witness_claim(pool, group, now).map(of_group));
    }
    claims
}

/// Hosts of the group are served nowhere.
fn hosts_claim(
    pool: &str,
    group: &DrGroupView,
    other: &OtherSite<'_>,
    now: WallTime,
) -> Option<ConditionClaim> {
    let (name, peer) = (&group.name, &other.name);
    let claim = |text| Some(ConditionClaim::new("dr_hosts_wait", pool, text));
    if group.role == DrRole::Secondary {
        // A primary says how it is each second, whatever else it sends.
        let is_silent = group.report.last_word.is_none_or(|word| age(word, now) >= SILENT);
        let is_lone = is_older(group.connected_since, now, SILENT) && is_silent && group.state == "following";
        return claim(format!(
            "{name} is secondary here, and {peer} is connected and does not lead it either"
        ))
        .filter(|_| is_lone);
    }
    let since = group.report.unserved_since.filter(|since| age(*since, now) >= HOSTS_WAIT)?;
    let why = match (group.state, group.mode) {
        ("connecting", ReplicationMode::Sync { is_failsafe: true, .. }) => {
            format!("{peer} is not reached, and it may not go on alone (failsafe)")
        }
        ("streaming", ReplicationMode::Sync { is_failsafe: true, .. }) => match unconfirmed(group, peer) {
            Some(text) => format!("{text}, and it may not go on alone (failsafe): look at the drives there"),
            None => format!("it comes close to {peer}"),
        },
        ("connecting", _) => format!("{peer} is not reached, and may have writes that this site lacks"),
        ("fetching what was lost here", _) => match &group.report.merge {
            Some(merge) => format!("it gets what it lost from {peer}: {}", merge_words(merge, now)),
            None => format!("it gets what it lost from {peer}"),
        },
        ("refused", _) => "both sites were made primary, and neither has written since".to_owned(),
        (state, _) => format!("it is {state} with {peer}"),
    };
    claim(format!("hosts of {name} wait since {}: {why}", shown_time(since.seconds)))
}

/// The writes that the peer lacks since a time that is named. Those before a restart are not counted.
fn lacked(group: &DrGroupView) -> String {
    match group.unconfirmed_bytes {
        0 => "what hosts wrote since then".to_owned(),
        bytes => ByteCount(bytes).to_string(),
    }
}

/// A peer that is connected and confirms nothing, as its drives hang.
fn unconfirmed(group: &DrGroupView, peer: &str) -> Option<String> {
    let silence = Duration::from_millis(group.peer_silence_ms);
    let is_silent = group.state == "streaming" && silence >= CONFIRMS_NOTHING;
    is_silent.then(|| format!("{peer} is connected and has confirmed nothing for {}", show_duration(silence)))
}

/// The course of the group towards its peer.
fn course_claim(
    pool: &str,
    group: &DrGroupView,
    other: &OtherSite<'_>,
    now: WallTime,
) -> Option<ConditionClaim> {
    let DrGroupView { name, state, .. } = group;
    let peer = &other.name;
    let claim = |kind, text| Some(ConditionClaim::new(kind, pool, text));
    if *state == "awaiting choice" {
        let text = format!("{name}: this site and {peer} have both answered writes that the other lacks");
        let next = format!(
            "say 'spindle dr give-way {name}' at the site whose writes are to become a fork; nothing is deleted"
        );
        return claim("dr_diverged", text).map(|claim| claim.with_next(next));
    }
    if let Some(claim) = suspended_claim(pool, group, peer, now) {
        return Some(claim);
    }
    if let Some(why) = stop_of(group, other, now) {
        return claim("dr_stopped", format!("{name} is not copied: {why}"));
    }
    // Until then nobody can take over anyway.
    if group.report.is_first_copy_lacking {
        return None;
    }
    let merging = group.report.merge.as_ref().map(|merge| format!("; {}", merge_words(merge, now)));
    let merging = merging.unwrap_or_default();
    let silent =
        unconfirmed(group, peer).map(|text| format!("; {text}: look at its drives")).unwrap_or_default();
    if let Some(since) = group.report.alone_since.filter(|since| age(*since, now) >= LASTS) {
        let since = shown_time(since.seconds);
        let lacks = lacked(group);
        let history = history(group, now);
        return claim(
            "dr_alone",
            format!(
                "{name} goes on alone since {since}, mail unharmed; {peer} lacks {lacks}, which a disaster here now would lose{silent}{history}{merging}"
            ),
        );
    }
    if group.role == DrRole::Primary && group.is_behind {
        let (bytes, time) = (ByteCount(group.unconfirmed_bytes), Duration::from_millis(group.unconfirmed_ms));
        let hosts = if group.is_pushing_back { "; hosts are pushed back" } else { "" };
        let text =
            format!("{name}: {peer} is {bytes} and {} behind{hosts}{silent}{merging}", show_duration(time));
        return claim("dr_behind", text);
    }
    None
}

/// A group that is suspended here, or at its primary, or gets nothing as a pool is full.
fn suspended_claim(pool: &str, group: &DrGroupView, peer: &str, now: WallTime) -> Option<ConditionClaim> {
    let (name, report) = (&group.name, &group.report);
    let claim = |text| ConditionClaim::new("dr_stopped", pool, text);
    let Some((reason, since)) = report.suspended else {
        let (since, why) = report.stopped.as_ref()?;
        let text = format!("{name} gets nothing from {peer} ({}): {why}", shown_time(since.seconds));
        let next = match why.as_str() {
            NO_ROOM => format!("make room in pool {pool}, or add drives: it goes on before long"),
            _ => format!("say 'spindle dr resume {name}' at {peer} once it may go on"),
        };
        return Some(claim(text).with_next(next));
    };
    if !group.state.starts_with("suspended") {
        return None;
    }
    let lacks = lacked(group);
    let (why, next) = match reason {
        SuspensionReason::TargetFull => (
            format!("the pool at {peer} is full"),
            format!("make room at {peer}, or add drives there: it goes on before long"),
        ),
        _ => {
            ("a person suspended it".to_owned(), format!("say 'spindle dr resume {name}' once it may go on"))
        }
    };
    let text = format!(
        "{name} is not copied since {}, as {why}: mail unharmed; {peer} lacks {lacks}, which a disaster here now would lose{}",
        shown_time(since.seconds),
        history(group, now)
    );
    Some(claim(text).with_next(next))
}

/// A merge that stands still.
fn standstill_claim(
    pool: &str,
    group: &DrGroupView,
    other: &OtherSite<'_>,
    now: WallTime,
) -> Option<ConditionClaim> {
    let (name, peer) = (&group.name, &other.name);
    let claim = |text| Some(ConditionClaim::new("dr_merge_waits", pool, text));
    if let Some(standstill) = &group.report.standstill {
        return claim(format!("{name}: the merge with {peer} {}", standstill_words(standstill)));
    }
    let merge = group.report.merge.as_ref()?;
    let is_still = merge.rate == 0 && merge.remaining_bytes > 0 && age(merge.since, now) >= STILL;
    claim(format!(
        "{name}: nothing of the merge with {peer} has moved for 10 s, {} are left; the line or a pool takes nothing",
        ByteCount(merge.remaining_bytes)
    ))
    .filter(|_| is_still)
}

/// The reason for which a group is not copied, though its site may be reached.
fn stop_of(group: &DrGroupView, other: &OtherSite<'_>, now: WallTime) -> Option<String> {
    let peer = &other.name;
    match group.state {
        "refused" => Some(format!("it has nothing in common with the group of {peer}, or both are primary")),
        state if state.starts_with("suspended") => Some(format!("it is {state}")),
        _ => match other.peer {
            None if !other.has_link => {
                Some("the site file has no listen in [replication], so no other site is reached".to_owned())
            }
            None => Some(format!("this site is not paired with {peer}")),
            Some(known) if group.connected_since.is_none() => {
                let is_late = is_older(known.connected_since, now, AGREED_WITHIN);
                let ended = group.last_end.as_ref();
                let is_flapping = ended.is_some_and(|(time, _)| age(*time, now) < AGREED_WITHIN);
                let why =
                    ended.map_or_else(|| "it may not have the group".to_owned(), |(_, why)| why.clone());
                (is_late && !is_flapping).then(|| format!("{peer} is connected, without the group: {why}"))
            }
            Some(_) => None,
        },
    }
}

fn copy_claim(
    pool: &str,
    group: &DrGroupView,
    other: &OtherSite<'_>,
    now: WallTime,
) -> Option<ConditionClaim> {
    if !group.report.is_first_copy_lacking {
        return None;
    }
    let (name, peer) = (&group.name, &other.name);
    let who = match group.role {
        DrRole::Primary => {
            format!("{name}: {peer} does not have the first copy whole, and cannot take over yet")
        }
        DrRole::Secondary => {
            format!("{name}: the first copy from {peer} is not whole, so it cannot be promoted here yet")
        }
    };
    let left = group.report.merge.as_ref().map(|merge| format!("; {}", merge_words(merge, now)));
    Some(ConditionClaim::new("dr_first_copy", pool, format!("{who}{}", left.unwrap_or_default())))
}

/// Hosts of a secondary would not find their disks here. A first copy that lacks something has a condition of its own.
fn serving_claim(pool: &str, group: &DrGroupView) -> Option<ConditionClaim> {
    let reasons = group.hosts.reasons_against.as_ref().filter(|reasons| !reasons.is_empty())?;
    if !group.is_complete {
        return None;
    }
    let text = format!("{} could not serve its hosts here now: {}", group.name, reasons.join("; "));
    Some(ConditionClaim::new("dr_cannot_serve", pool, text))
}

fn fork_claim(pool: &str, group: &DrGroupView) -> Option<ConditionClaim> {
    let forks = &group.report.forks;
    if forks.is_empty() {
        return None;
    }
    let named: Vec<String> = forks.iter().map(|fork| format!("{pool}/{}", fork.name)).collect();
    let text = format!("{}: {} keeps what this site gave up of it", group.name, named.join(", "));
    let drop = named.iter().map(|fork| format!("'spindle dr fork drop {fork}'")).collect::<Vec<_>>();
    let next = format!("see whether mail is there that the group lacks, then {}", drop.join(", "));
    Some(ConditionClaim::new("dr_fork_kept", pool, text).with_next(next))
}

/// Locked backups that the primary has deleted. That its clock is a little ahead is no news.
fn held_claim(pool: &str, group: &DrGroupView, peer: &str) -> Option<ConditionClaim> {
    let held = group.report.held.iter().filter(|held| !held.is_of_clocks());
    let mut ends: BTreeMap<&str, Option<i64>> = BTreeMap::new();
    for one in held {
        ends.insert(&one.name, one.until_unix_s);
    }
    if ends.is_empty() {
        return None;
    }
    let count = ends.len();
    let shown = ends.iter().take(HELD_SHOWN).map(|(name, until)| match until {
        Some(until) => format!("{name} until {}", shown_time(*until)),
        None => format!("{name}, whose note is of a newer program"),
    });
    let mut names: Vec<String> = shown.collect();
    if count > HELD_SHOWN {
        names.push(format!("{} others", count - HELD_SHOWN));
    }
    let text = format!(
        "{}: site {peer} deleted snapshots of backups that are locked, and they stay here: {}",
        group.name,
        names.join(", ")
    );
    Some(ConditionClaim::new("dr_snapshots_held", pool, text))
}

/// Hosts do not get the group's volumes, as what they cached may be of what was lost.
fn withheld_claim(pool: &str, group: &DrGroupView) -> Option<ConditionClaim> {
    let withheld = &group.hosts.withheld;
    let since = withheld.iter().map(|host| host.since_unix_s).max()?;
    let name = |host: &WithheldHost| host.initiator.clone().unwrap_or_else(|| "all NBD clients".to_owned());
    let mut names: Vec<String> = withheld.iter().map(name).collect();
    let others = names.len().saturating_sub(HOSTS_SHOWN);
    names.truncate(HOSTS_SHOWN);
    if others > 0 {
        names.push(format!("{others} others"));
    }
    let text = format!(
        "{} is withheld since {} from {}: what they cached may belong to what was lost",
        group.name,
        shown_time(since),
        names.join(", ")
    );
    let next = format!(
        "on each of them stop what uses it, unmount it and log out; then log in, check and mount; 'spindle dr status {}' has the \
         steps, and the command that readmits one that is still named there",
        group.name
    );
    Some(ConditionClaim::new("dr_hosts_withheld", pool, text).with_next(next))
}

/// A primary whose witness does not answer: the other site would not take over without a person.
fn witness_claim(pool: &str, group: &DrGroupView, now: WallTime) -> Option<ConditionClaim> {
    let witness = group.witness.as_ref().filter(|_| group.role == DrRole::Primary)?;
    let problem = witness.problem.as_ref().filter(|_| !witness.has_right)?;
    let since = witness.last_answer.filter(|answered| age(*answered, now) >= WITNESS_SILENT)?;
    let text = format!(
        "{}: its witness has not answered since {}, so nobody takes over without a person: {problem}",
        group.name,
        shown_time(since.seconds)
    );
    Some(ConditionClaim::new("dr_witness_lost", pool, text))
}

/// The rest of a merge, and its end.
fn merge_words(merge: &DrMerge, now: WallTime) -> String {
    let (remaining, rate) = (ByteCount(merge.remaining_bytes), ByteCount(merge.rate));
    let what = if merge.is_first_copy { "copying" } else { "merging" };
    match merge.time_left() {
        Some(left) if merge.remaining_bytes > 0 => {
            let end = shown_time(now.seconds + left.as_secs() as i64);
            format!("{what}, {remaining} left at {rate}/s, done about {end}")
        }
        _ if merge.remaining_bytes > 0 => format!("{what}, {remaining} left"),
        _ => format!("{what}, {} so far", ByteCount(merge.done_bytes)),
    }
}
