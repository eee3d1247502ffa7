//! Replication of storage to another site, and the link it uses.

use crate::{
    advice::subject::{Outcome, Subject, hold, holds_mail},
    site::{DrGroup, Link, Role, Volume},
    units::{counted, shown},
};

/// Round trips that synchronous replication bore, with eight storage groups and with four (HP Continuous Access).
const RTT_OF_EIGHT_MS: f64 = 8.0;
const RTT_OF_FOUR_MS: f64 = 7.0;
/// Users of a replicated server: 7,500 on two kept within limits (HP Continuous Access, phase 3).
const USERS_MAX: u64 = 3750;
/// Link beyond what is needed; chosen here.
const OVER: f64 = 1.2;
/// Service agreements (HP Continuous Access).
const FAILOVER_MINUTES: f64 = 15.0;
/// Log buffers of the tests (HP Continuous Access).
const LOG_BUFFERS: u64 = 9000;

/// The link that replication uses, or the only one there is.
fn link<'a>(subject: &Subject<'a>) -> Option<&'a Link> {
    let replication = subject.site.replication.as_ref()?;
    let links = &subject.site.links;
    match replication.link.is_empty() {
        true => links.first().filter(|_| links.len() == 1),
        false => links.iter().find(|link| link.name == replication.link),
    }
}

/// Looks at the link, if there is replication.
fn of_link(
    subject: &Subject<'_>,
    missing: &str,
    look: impl FnOnce(&Link) -> Option<Result<(), String>>,
) -> Outcome {
    if subject.site.replication.is_none() {
        return Outcome::Outside;
    }
    Outcome::each(std::iter::once(link(subject)), missing, {
        let mut look = Some(look);
        move |link| look.take().expect("looked at once")(link?)
    })
}

pub fn round_trip(subject: &Subject<'_>) -> Outcome {
    if subject.synchronous().is_none() {
        return Outcome::Outside;
    }
    let of_servers: u64 = subject.site.servers.iter().filter_map(|server| server.storage_groups).sum();
    let storage_groups = subject.site.databases.storage_groups.unwrap_or(of_servers);
    let most = if storage_groups >= 8 { RTT_OF_EIGHT_MS } else { RTT_OF_FOUR_MS };
    of_link(subject, "rtt_ms of the link", |link| {
        let rtt = link.rtt_ms?;
        hold(rtt <= most, || {
            format!("{} has {} ms, {storage_groups} storage groups bear {most}", link.name, shown(rtt))
        })
    })
}

pub fn round_trip_measured(subject: &Subject<'_>) -> Outcome {
    of_link(subject, "rtt_measured of the link", |link| hold(link.rtt_measured?, || link.name.clone()))
}

pub fn users_per_server(subject: &Subject<'_>) -> Outcome {
    if subject.synchronous().is_none() {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "mailboxes of servers", |server| {
        let mailboxes = server.mailboxes?;
        hold(mailboxes <= USERS_MAX, || format!("{} has {}", server.name, counted(mailboxes)))
    })
}

pub fn four_storage_groups(subject: &Subject<'_>) -> Outcome {
    if subject.synchronous().is_none() || subject.has_log_each() {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "storage_groups of servers", |server| {
        let groups = server.storage_groups?;
        hold(groups >= 4, || format!("{} has {groups}", server.name))
    })
}

const RATES: &str = "paths, mbit_each and needed_mbit of the link";

pub fn link_over_provisioned(subject: &Subject<'_>) -> Outcome {
    of_link(subject, RATES, |link| {
        let (paths, each, needed) = (link.paths?, link.mbit_each?, link.needed_mbit?);
        let all = f64::from(paths) * each;
        // What not even all paths carry without one is another rule's.
        let without_one = f64::from(paths.saturating_sub(1)) * each;
        hold(all >= needed * OVER || (paths > 1 && without_one < needed), || {
            format!("{} carries {} Mb/s, {} are needed", link.name, shown(all), shown(needed))
        })
    })
}

pub fn link_redundant(subject: &Subject<'_>) -> Outcome {
    of_link(subject, RATES, |link| hold(link.paths? > 1, || link.name.clone()))
}

pub fn link_without_a_path(subject: &Subject<'_>) -> Outcome {
    of_link(subject, RATES, |link| {
        let (paths, each, needed) = (link.paths?, link.mbit_each?, link.needed_mbit?);
        let left = f64::from(paths.saturating_sub(1)) * each;
        hold(paths < 2 || left >= needed, || {
            format!("{} carries {} Mb/s without one, {} are needed", link.name, shown(left), shown(needed))
        })
    })
}

pub fn write_history_room(subject: &Subject<'_>) -> Outcome {
    let missing = "write_history_gb, change_gb_per_hour and outage_hours of the replication";
    // The mail server ships logs from where they are.
    let replication = subject.site.replication.as_ref().filter(|replication| replication.kind != "logs");
    Outcome::each(replication, missing, |replication| {
        let room = replication.write_history_gb?;
        let needed = replication.change_gb_per_hour? * replication.outage_hours?;
        hold(room >= needed, || format!("{} GB, {} are written meanwhile", shown(room), shown(needed)))
    })
}

pub fn write_history_apart(subject: &Subject<'_>) -> Outcome {
    let Some(replication) = &subject.site.replication else { return Outcome::Outside };
    let with_mail = subject.mail_groups();
    let its = subject.site.groups.iter().filter(|group| group.name == replication.write_history_group);
    Outcome::among(its, |group| {
        let has_mail = with_mail.iter().any(|other| other.name == group.name);
        has_mail.then(|| format!("{} holds mail", group.name))
    })
}

pub fn merge_staggered(subject: &Subject<'_>) -> Outcome {
    let replication = subject.site.replication.as_ref().filter(|replication| replication.kind != "logs");
    Outcome::each(replication, "merge of the replication", |replication| {
        if replication.merge.is_empty() {
            return None;
        }
        hold(replication.merge != "at-once", || "merge is at-once".to_owned())
    })
}

/// True if a volume is in a DR group.
fn has_volume(subject: &Subject<'_>, dr: &DrGroup, volume: &Volume) -> bool {
    let is_it = |known: &Volume| (&known.group, &known.name) == (&volume.group, &volume.name);
    dr.volumes.iter().any(|meant| subject.site.volume(meant).is_some_and(is_it))
}

/// The DR group of the active volume with `has` that serves `database`.
fn group_of<'a>(subject: &Subject<'a>, database: &str, has: fn(Role) -> bool) -> Option<&'a DrGroup> {
    let mut volumes = subject.site.volumes.iter();
    let volume = volumes.find(|volume| {
        volume.copy == 1 && has(volume.role) && volume.databases.iter().any(|name| name == database)
    })?;
    subject.site.dr_groups().iter().find(|dr| has_volume(subject, dr, volume))
}

pub fn dr_group_whole(subject: &Subject<'_>) -> Outcome {
    let (mut looked_at, mut broken) = (0, Vec::new());
    let active = subject.site.volumes.iter().filter(|volume| volume.role.has_databases() && volume.copy == 1);
    for database in active.flat_map(|volume| &volume.databases) {
        // One that is in none at all is another rule's.
        let pair =
            (group_of(subject, database, Role::has_databases), group_of(subject, database, Role::has_logs));
        let (Some(of_database), Some(of_log)) = pair else { continue };
        looked_at += 1;
        if of_database.name != of_log.name {
            broken.push(format!("{database} is in {}, its log in {}", of_database.name, of_log.name));
        }
    }
    Outcome::of(looked_at, broken)
}

pub fn dr_group_each(subject: &Subject<'_>) -> Outcome {
    let logs_in = |dr: &&DrGroup| {
        let volumes = dr.volumes.iter().filter_map(|name| subject.site.volume(name));
        volumes.filter(|volume| volume.role.has_logs()).count()
    };
    Outcome::among(subject.site.dr_groups(), |dr| {
        let logs = logs_in(&dr);
        (logs > 1).then(|| format!("{} has {}", dr.name, counted(logs as u64)))
    })
}

fn not_replicated(subject: &Subject<'_>, is: impl Fn(Role) -> bool) -> Outcome {
    let all = subject.site.dr_groups();
    if all.is_empty() {
        return Outcome::Outside;
    }
    let volumes = subject.site.volumes.iter().filter(|volume| volume.copy == 1 && is(volume.role));
    Outcome::among(volumes, |volume| {
        let is_in_one = all.iter().any(|dr| has_volume(subject, dr, volume));
        (!is_in_one).then(|| volume.name.clone())
    })
}

pub fn all_replicated(subject: &Subject<'_>) -> Outcome {
    not_replicated(subject, holds_mail)
}

pub fn queues_replicated(subject: &Subject<'_>) -> Outcome {
    not_replicated(subject, |role| role == Role::Queue)
}

pub fn standby_warm(subject: &Subject<'_>) -> Outcome {
    let replication = subject.site.replication.as_ref().filter(|replication| replication.kind != "logs");
    Outcome::each(replication, "standby of the replication", |replication| {
        if replication.standby.is_empty() {
            return None;
        }
        hold(replication.standby == "warm", || format!("standby is {}", replication.standby))
    })
}

pub fn failover_time(subject: &Subject<'_>) -> Outcome {
    let replication = subject.site.replication.as_ref().filter(|replication| replication.kind != "logs");
    Outcome::each(replication, "failover_minutes of the replication", |replication| {
        let minutes = replication.failover_minutes?;
        hold(minutes <= FAILOVER_MINUTES, || format!("{} minutes", shown(minutes)))
    })
}

pub fn log_buffers(subject: &Subject<'_>) -> Outcome {
    if subject.synchronous().is_none() || subject.year() != Some(2003) {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "log_buffers of servers", |server| {
        let buffers = server.log_buffers?;
        hold(buffers >= LOG_BUFFERS, || format!("{} has {}", server.name, counted(buffers)))
    })
}
