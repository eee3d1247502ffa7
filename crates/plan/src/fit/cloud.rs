//! Cloud volumes: one for each database and one for each log, as many IOPS provisioned as are asked for.

use super::{
    Bound, Choice, DRIVES_MAX, GroupChoice, Purpose, SizedBy,
    load::{GroupLoad, Load},
    meeting::Meeting,
};
use crate::{
    catalogue::{Cloud, Raid},
    units::{Gib, HostIops, SoldGb, shown},
};

/// Volumes of `cloud`.
pub fn choice(load: &Load, cloud: &Cloud) -> Result<Choice, String> {
    let mut groups = Vec::new();
    for asked in &load.asked {
        groups.push(group(asked, load, cloud)?);
    }
    Ok(Choice {
        product: cloud.name.clone(),
        drive: cloud.name.clone(),
        drive_size: SoldGb::ZERO,
        controllers: 0,
        cache_gb: None,
        raid: Raid::Inside,
        copies: load.copies,
        groups,
        source: cloud.source.clone(),
        confidence: cloud.confidence,
    })
}

/// Volumes of one kind: how many, what each holds and is asked for.
struct Kind {
    what: &'static str,
    count: u64,
    each: Gib,
    iops: HostIops,
}

fn group(asked: &GroupLoad, load: &Load, cloud: &Cloud) -> Result<GroupChoice, String> {
    let databases = || Kind {
        what: "database",
        count: load.databases,
        each: load.database_volume,
        iops: asked.databases.map_or(HostIops::ZERO, |stream| stream.iops) + asked.maintenance,
    };
    let logs = || Kind {
        what: "log",
        count: load.logs,
        each: load.log_volume,
        iops: asked.logs.map_or(HostIops::ZERO, |stream| stream.iops),
    };
    let largest = f64::from(cloud.max_gib);
    let backups = || {
        let count = (asked.capacity.get() / largest).ceil().max(1.0);
        Kind {
            what: "backup",
            count: count as u64,
            each: asked.capacity * (1.0 / count),
            iops: HostIops::ZERO,
        }
    };
    let kinds = match asked.purpose {
        Purpose::Mail => vec![databases(), logs()],
        Purpose::Databases => vec![databases()],
        Purpose::Logs => vec![logs()],
        Purpose::Backup => vec![backups()],
    };
    let (mut volumes, mut capacity, mut iops) = (0_u64, Gib::ZERO, HostIops::ZERO);
    for kind in kinds {
        let gib = kind.each.get().ceil().max(f64::from(cloud.min_gib));
        if gib > largest {
            return Err(format!(
                "a {} takes {}, a volume has {} GB at most",
                kind.what,
                kind.each,
                shown(largest)
            ));
        }
        let asked = HostIops::new(kind.iops.get() / kind.count as f64);
        let most = cloud.iops_of(gib);
        if asked > most {
            return Err(format!(
                "a {} asks {asked}, a volume of {} GB does {most} at most",
                kind.what,
                shown(gib)
            ));
        }
        volumes += kind.count;
        capacity = capacity + Gib::new(gib) * kind.count as f64;
        // Provisioned as asked, never below what is included.
        let provisioned = asked.get().ceil().max(cloud.iops_included.get());
        iops = iops + HostIops::new(provisioned) * kind.count as f64;
    }
    let volumes = u32::try_from(volumes).ok().filter(|volumes| *volumes <= DRIVES_MAX);
    let volumes =
        volumes.ok_or_else(|| format!("more than {} volumes are needed", shown(DRIVES_MAX.into())))?;
    // Snapshots and restores have room in volumes made for them, when they are made.
    let beside = (asked.capacity.get() - capacity.get()).max(0.0);
    let capacity = capacity + Gib::new(beside);
    Ok(GroupChoice {
        purpose: asked.purpose,
        raid: Raid::Inside,
        pools: 1,
        units: volumes,
        drives: volumes,
        spares: 0,
        capacity: capacity.meeting(asked.capacity),
        capacity_needed: asked.capacity,
        iops: iops.meeting(asked.iops()),
        iops_needed: asked.iops(),
        iops_beside: HostIops::ZERO,
        bound: Bound::Capacity,
        sized_by: SizedBy::Volumes,
    })
}
