//! The site against itself: what one part of it says, and another does not bear out.

use crate::{
    advice::subject::{Outcome, Subject, hold},
    catalogue::Raid,
    demand::Mode,
    site::{Group, Role, Volume},
    units::{SoldGb, counted, shown},
};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers in a file are rounded, each by less than this.
const ROUNDED: f64 = 0.5;
/// Of a product of rounded numbers, what may be rounding.
const NEAR: f64 = 0.05;

/// Volumes with databases, by the database.
fn volumes_by_database<'a>(subject: &Subject<'a>) -> BTreeMap<&'a str, Vec<&'a Volume>> {
    let mut by_database: BTreeMap<&str, Vec<&Volume>> = BTreeMap::new();
    for volume in subject.site.volumes.iter().filter(|volume| volume.role.has_databases()) {
        for database in &volume.databases {
            by_database.entry(database).or_default().push(volume);
        }
    }
    by_database
}

pub fn copies_laid_out(subject: &Subject<'_>) -> Outcome {
    let databases = &subject.site.databases;
    let Some(copies) = databases.copies else { return Outcome::Unsaid("copies of the databases".to_owned()) };
    let mut broken = Vec::new();
    match databases.mode {
        Some(Mode::Copies) if copies < 2 => broken.push(format!("mode is copies, and copies is {copies}")),
        Some(mode @ (Mode::StandAlone | Mode::BackupWindow)) if copies > 1 => {
            broken.push(format!("mode is {}, and copies is {copies}", mode.word()));
        }
        _ => {}
    }
    let laid_out = volumes_by_database(subject);
    let looked_at = laid_out.len() + broken.len();
    // Copies with one number are one copy.
    let of = |volumes: &[&Volume]| volumes.iter().map(|volume| volume.copy).collect::<BTreeSet<_>>().len();
    let odd = laid_out.iter().filter(|(_, volumes)| of(volumes) != copies as usize);
    broken.extend(odd.map(|(database, volumes)| {
        format!("{database} has volumes for {}, copies is {}", of(volumes), counted(copies))
    }));
    Outcome::of(looked_at, broken)
}

/// Two copies of a database of which `place` says the same.
fn together<'a>(subject: &Subject<'a>, place: impl Fn(&Volume) -> Option<&'a str>) -> (usize, Vec<String>) {
    let (mut looked_at, mut broken) = (0, Vec::new());
    for (database, volumes) in volumes_by_database(subject) {
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for volume in volumes {
            let Some(place) = place(volume) else { continue };
            match seen.get(place) {
                Some(other) if *other != volume.copy => {
                    broken.push(format!("{database}: copies {other} and {} in {place}", volume.copy));
                }
                Some(_) => {}
                None => {
                    seen.insert(place, volume.copy);
                }
            }
        }
        looked_at += usize::from(seen.len() > 1);
    }
    (looked_at, broken)
}

pub fn copies_in_one_array(subject: &Subject<'_>) -> Outcome {
    // Two groups of one array; one group is another rule's.
    let group_of = |volume: &Volume| subject.site.group(&volume.group);
    let array = |volume: &Volume| {
        group_of(volume).filter(|group| group.raid != Raid::Inside).map(|group| group.array.as_str())
    };
    let (looked_at, broken) = together(subject, |volume| array(volume).filter(|array| !array.is_empty()));
    let (_, in_one_group) = together(subject, |volume| {
        array(volume).filter(|array| !array.is_empty()).and(group_of(volume).map(|group| group.name.as_str()))
    });
    let broken = if in_one_group.is_empty() { broken } else { Vec::new() };
    Outcome::of(looked_at, broken)
}

pub fn copies_in_one_server(subject: &Subject<'_>) -> Outcome {
    let server = |volume: &Volume| {
        let known = subject.site.servers.iter().find(|server| server.name == volume.server);
        known.map(|server| server.name.as_str())
    };
    let (mut looked_at, mut broken) = together(subject, server);
    let servers = subject.site.servers.len();
    if let Some(copies) = subject.site.databases.copies.filter(|copies| *copies > 1 && servers > 0) {
        looked_at += 1;
        if servers < copies as usize {
            let servers = counted(servers as u64);
            broken.push(format!("copies is {}, and there are {servers} servers", counted(copies)));
        }
    }
    Outcome::of(looked_at, broken)
}

pub fn quota_fits(subject: &Subject<'_>) -> Outcome {
    let (users, databases) = (&subject.site.users, &subject.site.databases);
    Outcome::each([()], "mailboxes and quota_mb of the users, count and gb of the databases", |()| {
        let full = users.mailboxes? as f64 * users.quota_mb? / 1024.0;
        let room = databases.gb? * databases.count? as f64;
        hold(full <= room + ROUNDED, || {
            format!("full mailboxes are {} GB, databases are {} GB", shown(full), shown(room))
        })
    })
}

pub fn demand_of_users(subject: &Subject<'_>) -> Outcome {
    let (users, demand) = (&subject.site.users, &subject.site.demand);
    Outcome::each([()], "mailboxes and iops_each of the users, database_iops of the demand", |()| {
        let mailboxes = users.mailboxes? as f64;
        let (asked, said) = (mailboxes * users.iops_each?, demand.database_iops?);
        // Each is written with three digits after the point.
        let rounding = asked.max(said) * NEAR + mailboxes * 0.0005 + ROUNDED;
        hold((asked - said).abs() <= rounding, || {
            format!("mailboxes ask {} IOPS, the demand is {}", shown(asked), shown(said))
        })
    })
}

pub fn logs_until_backup(subject: &Subject<'_>) -> Outcome {
    let Some(backup) = &subject.site.backup else { return Outcome::Outside };
    // Only a backup deletes logs; who keeps none has circular logs.
    if backup.to == "none" {
        return Outcome::Outside;
    }
    let Some(every) = backup.every_days else {
        return Outcome::Unsaid("every_days of the backup".to_owned());
    };
    let demand = &subject.site.demand;
    let logs = subject.site.volumes.iter().filter(|volume| volume.role == Role::Log);
    let of_volumes = Outcome::each(logs, "log_gb_per_day of the demand, gb of volumes with logs", |volume| {
        let a_day = demand.log_gb_per_day? * volume.databases.len().max(1) as f64;
        let gb = volume.gb?;
        hold(gb + ROUNDED >= a_day * every, || {
            format!("{} is full after {} days", volume.name, shown(gb / a_day))
        })
    });
    match (demand.log_days.filter(|days| *days < every), of_volumes) {
        (Some(days), of_volumes) => {
            let mut broken =
                vec![format!("log_days is {}, and backups come every {} days", shown(days), shown(every))];
            if let Outcome::Broken(more) = of_volumes {
                broken.extend(more);
            }
            Outcome::Broken(broken)
        }
        (None, of_volumes) => of_volumes,
    }
}

pub fn backup_room(subject: &Subject<'_>) -> Outcome {
    if subject.site.backup.as_ref().is_none_or(|backup| backup.to != "disk") {
        return Outcome::Outside;
    }
    let databases = &subject.site.databases;
    Outcome::each([()], "gb of volumes with role backup, count and gb of the databases", |()| {
        let volumes = subject.site.volumes.iter().filter(|volume| volume.role == Role::Backup);
        let sizes: Vec<f64> = volumes.map(|volume| volume.gb).collect::<Option<_>>()?;
        let needed = databases.gb? * databases.count? as f64;
        let room: f64 = sizes.iter().sum();
        // No volume at all is not said to be none.
        (!sizes.is_empty()).then_some(())?;
        hold(room + ROUNDED >= needed, || {
            format!("backups have {} GB, the databases are {} GB", shown(room), shown(needed))
        })
    })
}

/// Drives of `group` that can hold data at most, and the least drives its level takes.
fn data_drives(group: &Group, drives: u32) -> (u32, u32) {
    match group.raid {
        Raid::Raid0 | Raid::Jbod | Raid::Inside => (drives, 1),
        Raid::Raid1 => (drives / 2, 2),
        Raid::Raid10 => (drives / 2, 4),
        Raid::Raid5 => (drives.saturating_sub(1), 3),
        Raid::Raid50 => (drives.saturating_sub(2), 6),
        Raid::Raid6 => (drives.saturating_sub(2), 4),
        Raid::RaidDp => (drives.saturating_sub(2), 3),
    }
}

pub fn raid_arithmetic(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|_| true).into_iter().filter(|group| group.raid != Raid::Inside);
    Outcome::each(groups, "drives, drive_gb and usable_gb of groups", |group| {
        let (drives, usable) = (group.drives?, group.usable_gb?);
        let each = SoldGb::new(group.drive_gb?).gib().get();
        let (data, least) = data_drives(group, drives);
        if drives < least {
            let (level, drives) = (group.raid.word(), counted(drives));
            return Some(Err(format!("{} is {level} of {drives} drives, which takes {least}", group.name)));
        }
        let holds = f64::from(data) * each;
        hold(usable <= holds + ROUNDED, || {
            format!(
                "{} has {} usable GB, {} of {} drives as {} hold {}",
                group.name,
                shown(usable),
                counted(data),
                counted(drives),
                group.raid.word(),
                shown(holds)
            )
        })
    })
}

pub fn reserve_left(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|_| true).into_iter();
    let reserved = groups.filter(|group| group.snapshot_reserve_percent.is_some());
    Outcome::each(reserved, "usable_gb of groups, gb of volumes", |group| {
        let (percent, usable) = (group.snapshot_reserve_percent?, group.usable_gb?);
        let taken: f64 = subject.in_group(group).map(|volume| volume.gb).sum::<Option<f64>>()?;
        // Volumes beyond the group itself are another rule's.
        let is_over = taken > usable * (1.0 - percent / 100.0) + ROUNDED && taken <= usable + ROUNDED;
        hold(!is_over, || {
            let left = (usable - taken) / usable * 100.0;
            format!(
                "{} keeps {} % free, its volumes leave {} %",
                group.name,
                shown(percent),
                shown(left.max(0.0))
            )
        })
    })
}
