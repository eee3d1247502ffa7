//! Copies, snapshots, backups.

use crate::{
    advice::subject::{Outcome, Subject, hold},
    site::{Snapshots, Volume},
    units::{counted, shown},
};
use std::collections::BTreeMap;

/// Mailboxes in one copy from which copies are recommended (the Dell paper's example).
const MANY_MAILBOXES: u64 = 5000;
/// Kept free for snapshots (AMI 2008).
const RESERVE_PERCENT: f64 = 20.0;
/// Copies that make a backup (Microsoft, disaster-recovery.md).
const COPIES_AS_BACKUP: u32 = 3;

pub fn copies_apart(subject: &Subject<'_>) -> Outcome {
    let mut seen: BTreeMap<(&str, &str), &Volume> = BTreeMap::new();
    let (mut looked_at, mut broken) = (0, Vec::new());
    // Cloud volumes are drives of their own.
    let is_cloud = |volume: &Volume| {
        subject.site.group(&volume.group).is_some_and(|group| group.raid == crate::catalogue::Raid::Inside)
    };
    let in_groups =
        subject.site.volumes.iter().filter(|volume| !volume.group.is_empty() && !is_cloud(volume));
    for volume in in_groups.filter(|volume| volume.role.has_databases()) {
        looked_at += usize::from(volume.copy > 1);
        for database in &volume.databases {
            match seen.get(&(database.as_str(), volume.group.as_str())) {
                Some(other) if other.copy != volume.copy => broken.push(format!(
                    "{database}: copies {} and {} lie in {}",
                    other.copy, volume.copy, volume.group
                )),
                _ => {
                    seen.insert((database, &volume.group), volume);
                }
            }
        }
    }
    Outcome::of(looked_at, broken)
}

pub fn copies_balanced(subject: &Subject<'_>) -> Outcome {
    if !subject.has_copies() {
        return Outcome::Outside;
    }
    let mut by_site: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for group in subject.groups_with(|volume| volume.role.has_databases()) {
        let active = subject.in_group(group).filter(|volume| volume.role.has_databases() && volume.copy == 1);
        let count = active.map(|volume| volume.databases.len()).sum();
        by_site.entry(&group.site).or_default().push((&group.name, count));
    }
    let mut broken = Vec::new();
    for groups in by_site.values() {
        let (most, least) =
            (groups.iter().max_by_key(|group| group.1), groups.iter().min_by_key(|group| group.1));
        if let (Some(most), Some(least)) = (most, least)
            && most.1 > least.1 + 1
        {
            broken.push(format!(
                "{} has {} of them, {} has {}",
                most.0,
                counted(most.1 as u64),
                least.0,
                counted(least.1 as u64)
            ));
        }
    }
    Outcome::of(by_site.len(), broken)
}

pub fn failover_capacity(subject: &Subject<'_>) -> Outcome {
    if !subject.has_copies() {
        return Outcome::Outside;
    }
    let groups = subject.groups_with(|volume| volume.role.has_databases());
    Outcome::each(groups, "host_iops of groups, database_iops of the demand", |group| {
        let (now, after) = (subject.asked_of(group, false)?, subject.asked_of(group, true)?);
        let carried = subject.carried_by(group)?;
        hold(carried < now || carried >= after, || {
            format!("{} does {} IOPS, {} may be asked", group.name, shown(carried), shown(after))
        })
    })
}

pub fn several_copies(subject: &Subject<'_>) -> Outcome {
    let Some(mailboxes) = subject.site.users.mailboxes else {
        return Outcome::Unsaid("mailboxes of the users".to_owned());
    };
    let is_copied = subject.has_copies() || subject.site.replication.is_some();
    Outcome::expect(is_copied || mailboxes < MANY_MAILBOXES, || format!("{} mailboxes", counted(mailboxes)))
}

/// Looks at whether the site makes backups or snapshots, of sets or by schedules.
fn backed_up(subject: &Subject<'_>) -> Outcome {
    let backup = subject.site.backup.as_ref();
    let is_said = backup.is_some_and(|backup| !backup.to.is_empty() && backup.to != "none");
    let has = is_said || !subject.site.snapshots.is_empty() || !subject.site.sets.is_empty();
    Outcome::expect(has, || "there is no [backup], no [[protect]] and no schedule of snapshots".to_owned())
}

pub fn backup_exists(subject: &Subject<'_>) -> Outcome {
    if subject.has_copies() { Outcome::Outside } else { backed_up(subject) }
}

pub fn backup_of_copies(subject: &Subject<'_>) -> Outcome {
    match subject.has_copies() && subject.site.databases.copies.unwrap_or(2) < COPIES_AS_BACKUP {
        true => backed_up(subject),
        false => Outcome::Outside,
    }
}

pub fn snapshot_reserve(subject: &Subject<'_>) -> Outcome {
    let site = subject.site;
    let has_volume_in = |schedule: &Snapshots, group: &String| {
        let mut named = schedule.volumes.iter().filter_map(|meant| site.served_volume(meant));
        schedule.groups.contains(group) || named.any(|volume| volume.group == *group)
    };
    let is_named = |name: &String| site.snapshots.iter().any(|schedule| has_volume_in(schedule, name));
    let groups = subject.site.groups.iter().filter(|group| is_named(&group.name));
    Outcome::each(groups, "snapshot_reserve_percent of groups with snapshots", |group| {
        let reserve = group.snapshot_reserve_percent?;
        hold(reserve >= RESERVE_PERCENT, || format!("{} keeps {} %", group.name, shown(reserve)))
    })
}

pub fn snapshot_reach(subject: &Subject<'_>) -> Outcome {
    Outcome::each(&subject.site.snapshots, "every_hours, keep and retention_days of snapshots", |schedule| {
        let (every, keep, days) = (schedule.every_hours?, schedule.keep?, schedule.retention_days?);
        let reach = every * f64::from(keep) / 24.0;
        hold(reach >= days, || {
            format!("{} reaches {} days, not {}", schedule.name, shown(reach), shown(days))
        })
    })
}

pub fn verified_apart(subject: &Subject<'_>) -> Outcome {
    Outcome::each(&subject.site.snapshots, "verified_on of snapshots", |schedule| {
        if schedule.verified_on.is_empty() {
            return None;
        }
        let serves = subject.site.servers.iter().any(|server| server.name == schedule.verified_on);
        hold(!serves, || format!("{} on {}", schedule.name, schedule.verified_on))
    })
}
