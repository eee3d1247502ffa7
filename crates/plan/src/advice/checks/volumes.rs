//! Volumes: owners, what lies on them, filesystems.

use crate::{
    advice::subject::{Outcome, Subject, hold},
    site::{Group, Role, Volume},
    units::{counted, shown},
};
use std::collections::BTreeMap;

/// Room beyond what is counted (Dell 2010, tables 14 and 15).
const ROOM: f64 = 1.2;
/// Databases at most, with copies and without (Dell 2010, section 3.3.3; without, from 2013 on, the vendor).
const WITH_COPIES_GB: f64 = 2048.0;
const ALONE_TO_2010_GB: f64 = 100.0;
const ALONE_GB: f64 = 200.0;
/// Days of logs that are kept at least (Dell 2010, table 15).
const LOG_DAYS: f64 = 3.0;

/// Groups whose controllers share their volumes.
fn owned<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Group> + use<'a> {
    subject.site.groups.iter().filter(|group| group.controllers.len() > 1)
}

pub fn owners_set(subject: &Subject<'_>) -> Outcome {
    let volumes: Vec<&Volume> = owned(subject).flat_map(|group| subject.in_group(group)).collect();
    let without = volumes.iter().filter(|volume| volume.owner.is_empty());
    let without: Vec<&str> = without.map(|volume| volume.name.as_str()).collect();
    let said = (!without.is_empty()).then(|| few(&without));
    Outcome::of(volumes.len(), said.into_iter().collect())
}

pub fn owner_balance(subject: &Subject<'_>) -> Outcome {
    // The controllers of one array own volumes of all its groups.
    let mut counts: BTreeMap<(&str, &str), BTreeMap<&str, u32>> = BTreeMap::new();
    for group in owned(subject) {
        let array = if group.array.is_empty() { group.name.as_str() } else { &group.array };
        for (kind, has) in [("databases", Role::has_databases as fn(Role) -> bool), ("logs", Role::has_logs)]
        {
            // A group with volumes of which none is owned is another rule's.
            let of_kind: Vec<&Volume> = subject
                .in_group(group)
                .filter(|volume| has(volume.role) && !volume.owner.is_empty())
                .collect();
            if of_kind.is_empty() {
                continue;
            }
            let counts = counts.entry((array, kind)).or_default();
            for controller in &group.controllers {
                counts.entry(controller).or_default();
            }
            for volume in of_kind {
                *counts.entry(&volume.owner).or_default() += 1;
            }
        }
    }
    let (looked_at, mut broken) = (counts.len(), Vec::new());
    for ((array, kind), owners) in counts {
        let (most, least) = (owners.values().max().copied(), owners.values().min().copied());
        if most.unwrap_or(0) > least.unwrap_or(0) + 1 {
            let shares: Vec<String> =
                owners.iter().map(|(owner, count)| format!("{owner} {}", counted(*count))).collect();
            broken.push(format!("{kind} of {array}: {}", shares.join(", ")));
        }
    }
    Outcome::of(looked_at, broken)
}

pub fn log_owner(subject: &Subject<'_>) -> Outcome {
    let (mut looked_at, mut broken) = (0, Vec::new());
    for log in
        subject.site.volumes.iter().filter(|volume| volume.role == Role::Log && !volume.owner.is_empty())
    {
        let of_same = |volume: &&Volume| {
            volume.role == Role::Database
                && volume.copy == log.copy
                && volume.databases.iter().any(|database| log.databases.contains(database))
        };
        let Some(database) = subject.site.volumes.iter().find(of_same) else { continue };
        looked_at += usize::from(!database.owner.is_empty());
        if !database.owner.is_empty() && database.owner != log.owner {
            broken
                .push(format!("{} is {}'s, {} is {}'s", database.name, database.owner, log.name, log.owner));
        }
    }
    Outcome::of(looked_at, broken)
}

pub fn separate_volumes(subject: &Subject<'_>) -> Outcome {
    Outcome::among(subject.mail_volumes(), |volume| {
        (volume.role == Role::DatabaseAndLog).then(|| volume.name.clone())
    })
}

fn shared<'a>(subject: &Subject<'a>, has: fn(Role) -> bool) -> Outcome {
    if !subject.has_log_each() {
        return Outcome::Outside;
    }
    let volumes = subject.site.volumes.iter().filter(|volume| has(volume.role));
    Outcome::among(volumes, |volume| {
        let is_shared = volume.databases.len() > 1;
        is_shared.then(|| format!("{}: {}", volume.name, volume.databases.join(", ")))
    })
}

pub fn volume_per_database(subject: &Subject<'_>) -> Outcome {
    shared(subject, Role::has_databases)
}

pub fn volume_per_log(subject: &Subject<'_>) -> Outcome {
    // A volume with both is another rule's, and that of its databases.
    shared(subject, |role| role == Role::Log)
}

pub fn volume_room(subject: &Subject<'_>) -> Outcome {
    let volumes = subject.site.volumes.iter().filter(|volume| volume.role == Role::Database);
    Outcome::each(volumes, "gb and used_gb of volumes with databases", |volume| {
        let (gb, used) = (volume.gb?, volume.used_gb?);
        hold(used * ROOM <= gb * (1.0 + 1e-9), || {
            format!("{}: {} of {} GB", volume.name, shown(used), shown(gb))
        })
    })
}

pub fn log_room(subject: &Subject<'_>) -> Outcome {
    let demand = &subject.site.demand;
    let volumes = subject.site.volumes.iter().filter(|volume| volume.role == Role::Log);
    Outcome::each(volumes, "log_gb_per_day of the demand, gb of volumes with logs", |volume| {
        let days = demand.log_days.unwrap_or(LOG_DAYS).max(LOG_DAYS);
        let needed = demand.log_gb_per_day? * volume.databases.len() as f64 * days * ROOM;
        let gb = volume.gb?;
        hold(gb * (1.0 + 1e-9) >= needed, || {
            format!("{} has {} GB, {} are needed", volume.name, shown(gb), shown(needed))
        })
    })
}

pub fn database_size(subject: &Subject<'_>) -> Outcome {
    let (databases, rules) = (&subject.site.databases, &subject.site.users.rules);
    // The figures are Exchange's.
    if !rules.is_empty() && subject.year().is_none() {
        return Outcome::Outside;
    }
    let Some(gb) = databases.gb else { return Outcome::Unsaid("gb of the databases".to_owned()) };
    let most = match subject.has_copies() {
        true => WITH_COPIES_GB,
        false if subject.year().is_some_and(|year| year <= 2010) => ALONE_TO_2010_GB,
        false => ALONE_GB,
    };
    Outcome::expect(gb <= most, || format!("{} GB each, {} at most", shown(gb), shown(most)))
}

pub fn allocation_unit(subject: &Subject<'_>) -> Outcome {
    if !subject.has_log_each() {
        return Outcome::Outside;
    }
    Outcome::each(subject.mail_volumes(), "allocation_unit_kb of volumes", |volume| {
        let unit = volume.allocation_unit_kb?;
        hold(unit == 64.0, || format!("{} has {} KB", volume.name, shown(unit)))
    })
}

pub fn alignment(subject: &Subject<'_>) -> Outcome {
    Outcome::each(subject.mail_volumes(), "partition_offset_kb of volumes", |volume| {
        let offset = volume.partition_offset_kb?;
        hold(offset % 4.0 == 0.0, || format!("{} begins at {} KB", volume.name, shown(offset)))
    })
}

pub fn partition_table(subject: &Subject<'_>) -> Outcome {
    if !subject.has_log_each() {
        return Outcome::Outside;
    }
    Outcome::each(subject.mail_volumes(), "partition_table of volumes", |volume| {
        if volume.partition_table.is_empty() {
            return None;
        }
        hold(volume.partition_table == "gpt", || format!("{} has {}", volume.name, volume.partition_table))
    })
}

/// The first few names, and how many there are.
fn few(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        all => all.join(", "),
    }
}
