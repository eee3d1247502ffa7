//! Groups of drives: redundancy, isolation, what they carry.

use crate::{
    advice::subject::{Outcome, Subject, hold, holds_mail},
    catalogue::Raid,
    fit::spindle,
    site::{Group, Role},
    units::{counted, shown},
};

/// Of these recommended for peaks (HP EVA8000: 15 to 20 %).
const HEADROOM_LEAST: f64 = 1.15;
/// Sizes in a file are rounded, each by less than a thousandth.
const ROUNDED: f64 = 0.5;

/// Mirrored, or a level whose maker answers for its writes.
fn is_fit_for_writes(raid: Raid) -> bool {
    // A level that keeps nothing is another rule's.
    raid.is_mirrored() || raid.is_bare() || matches!(raid, Raid::Inside | Raid::RaidDp)
}

fn with_level(group: &Group) -> String {
    format!("{} is {}", group.name, group.raid.word())
}

/// Name and level of `group` unless it is fit.
fn unless(is_fit: bool, group: &Group) -> Option<String> {
    (!is_fit).then(|| with_level(group))
}

pub fn logs_apart(subject: &Subject<'_>) -> Outcome {
    if subject.has_copies() {
        return Outcome::Outside;
    }
    if !subject.site.volumes.iter().any(|volume| volume.role.has_logs()) {
        return Outcome::Outside;
    }
    let groups = subject.groups_with(|volume| volume.role.has_databases()).into_iter();
    // Cloud volumes are drives of their own, whatever they are filed under.
    let of_drives = groups.filter(|group| group.raid != Raid::Inside);
    Outcome::among(of_drives, |group| {
        let has_logs = subject.in_group(group).any(|volume| volume.role.has_logs());
        has_logs.then(|| format!("{} holds both", group.name))
    })
}

pub fn log_raid(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|volume| volume.role == Role::Log).into_iter();
    // With copies logs may lie beside their databases (Dell 2010), whose level then decides.
    let concerned = groups.filter(|group| {
        !subject.has_copies() || !subject.in_group(group).any(|volume| volume.role.has_databases())
    });
    Outcome::among(concerned, |group| unless(is_fit_for_writes(group.raid), group))
}

pub fn database_raid(subject: &Subject<'_>) -> Outcome {
    if subject.has_copies() {
        return Outcome::Outside;
    }
    let groups = subject.groups_with(|volume| volume.role.has_databases()).into_iter();
    Outcome::among(groups, |group| unless(is_fit_for_writes(group.raid), group))
}

pub fn raid50_not_raid5(subject: &Subject<'_>) -> Outcome {
    if !subject.has_copies() {
        return Outcome::Outside;
    }
    let groups = subject.groups_with(|volume| volume.role.has_databases()).into_iter();
    Outcome::among(groups, |group| unless(group.raid != Raid::Raid5, group))
}

pub fn no_raid0(subject: &Subject<'_>) -> Outcome {
    let groups =
        subject.groups_with(|volume| holds_mail(volume.role) || volume.role == Role::Backup).into_iter();
    Outcome::among(groups, |group| unless(!group.raid.is_bare(), group))
}

pub fn backup_raid(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|volume| volume.role == Role::Backup).into_iter();
    // Beside mail, mail decides.
    let alone = groups.filter(|group| !subject.in_group(group).any(|volume| holds_mail(volume.role)));
    // Spindle's pools have no parity yet.
    let alone = alone.filter(|group| !group.array.starts_with(spindle::NAME));
    Outcome::among(alone, |group| unless(!group.raid.is_mirrored(), group))
}

pub fn backup_apart(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|volume| volume.role == Role::Backup).into_iter();
    Outcome::among(groups.filter(|group| group.raid != Raid::Inside), |group| {
        let has_mail = subject.in_group(group).any(|volume| holds_mail(volume.role));
        has_mail.then(|| format!("{} holds backups and mail", group.name))
    })
}

pub fn other_workloads(subject: &Subject<'_>) -> Outcome {
    Outcome::among(subject.mail_groups(), |group| {
        let others = &group.other_workloads;
        (!others.is_empty()).then(|| format!("{} also serves {}", group.name, others.join(", ")))
    })
}

pub fn iops_carried(subject: &Subject<'_>) -> Outcome {
    Outcome::each(subject.mail_groups(), "host_iops of groups, database_iops of the demand", |group| {
        let (asked, carried) = (subject.asked_of(group, false)?, subject.carried_by(group)?);
        hold(carried >= asked, || {
            format!("{} does {} IOPS, {} are asked", group.name, shown(carried), shown(asked))
        })
    })
}

pub fn headroom(subject: &Subject<'_>) -> Outcome {
    Outcome::each(subject.mail_groups(), "host_iops of groups, database_iops of the demand", |group| {
        let (asked, carried) = (subject.asked_of(group, false)?, subject.carried_by(group)?);
        // What is not carried at all is another rule's.
        hold(carried < asked || carried >= asked * HEADROOM_LEAST - 1e-6, || {
            let percent = (carried / asked - 1.0) * 100.0;
            format!(
                "{} has {} % beyond the {} that are asked",
                group.name,
                shown(percent.floor()),
                shown(asked)
            )
        })
    })
}

pub fn fits(subject: &Subject<'_>) -> Outcome {
    let used = subject.groups_with(|_| true);
    Outcome::each(used, "usable_gb of groups, gb of volumes", |group| {
        let usable = group.usable_gb?;
        let taken: Option<f64> = subject.in_group(group).map(|volume| volume.gb).sum();
        let taken = taken?;
        hold(taken <= usable + ROUNDED, || {
            format!("{} holds {} GB, its volumes have {}", group.name, shown(usable), shown(taken))
        })
    })
}

pub fn small_groups(subject: &Subject<'_>) -> Outcome {
    if subject.has_copies() {
        return Outcome::Outside;
    }
    let mut groups = subject.groups_with(|volume| volume.role.has_databases());
    groups.retain(|group| group.raid != Raid::Inside && group.drives.is_some());
    let is_small = |group: &&&Group| group.drives.is_some_and(|drives| drives <= 16);
    let small: Vec<&str> = groups.iter().filter(is_small).map(|group| group.name.as_str()).collect();
    let said = || format!("{} have 16 drives or fewer", small.join(", "));
    Outcome::of(groups.len(), (small.len() > 1).then(said).into_iter().collect())
}

pub fn least_group(subject: &Subject<'_>) -> Outcome {
    let groups = subject.site.groups.iter().filter(|group| group.array.starts_with("EVA"));
    Outcome::each(groups, "drives of groups", |group| {
        let drives = group.drives?;
        hold(drives >= 8, || format!("{} has {}", group.name, counted(drives)))
    })
}

pub fn failure_sets(subject: &Subject<'_>) -> Outcome {
    // Smaller groups are one set.
    let groups = subject.site.groups.iter().filter(|group| group.drives.is_none_or(|drives| drives >= 8));
    let groups = groups.filter(|group| group.raid != Raid::Inside);
    Outcome::each(groups, "failure_sets of groups", |group| {
        if group.failure_sets.is_empty() {
            return None;
        }
        let odd = group.failure_sets.iter().find(|set| !(6..=11).contains(*set));
        hold(odd.is_none(), || format!("{} has one of {}", group.name, odd.expect("there is one")))
    })
}

pub fn spares(subject: &Subject<'_>) -> Outcome {
    // A drive by itself is replaced by a further copy.
    let has_some = |group: &&Group| !matches!(group.raid, Raid::Inside | Raid::Jbod);
    let groups = subject.mail_groups().into_iter().filter(has_some);
    Outcome::each(groups, "spares of groups", |group| {
        let spares = group.spares?;
        hold(spares > 0, || format!("{} has none", group.name))
    })
}

pub fn write_cache(subject: &Subject<'_>) -> Outcome {
    let groups = subject.mail_groups().into_iter().filter(|group| group.raid != Raid::Inside);
    Outcome::each(groups, "write_cache of groups", |group| {
        hold(group.write_cache?, || format!("{} has none", group.name))
    })
}
