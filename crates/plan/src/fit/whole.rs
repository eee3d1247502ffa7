//! Arrays that are bought with every bay filled: so many of them to a group.

use super::{
    Bound, Choice, DRIVES_MAX, GroupChoice, Purpose,
    load::{Asked, Load},
    meeting::Meeting,
    of_drives::unrated,
};
use crate::{
    catalogue::{Array, ArraySize, Raid, Rating},
    units::{Gib, HostIops, shown},
};

/// Databases whose background maintenance the measured arrays had (seed 004 table 12, note a).
const MAINTAINED: f64 = 4.0;

/// Groups of whole `array`s with drives of this size, all at one level.
pub fn choice(load: &Load, array: &Array, size: &ArraySize, raid: Raid) -> Result<Choice, String> {
    let rated = array.rated(raid).ok_or_else(|| unrated(array, raid))?;
    let Rating::Host { iops, holds_logs, .. } = rated.rating else {
        return Err("it is bought whole, and only one drive of it is rated".to_owned());
    };
    let holds = |raid: Raid| {
        size.whole(raid)
            .map(|capacity| capacity.gib())
            .ok_or_else(|| format!("no source says what it holds at {}", raid.word()))
    };
    let mut groups = Vec::new();
    for asked in &load.asked {
        // Logs have the level that mirrors, backups the one that does not (seed 001).
        let level = match asked.purpose {
            Purpose::Mail | Purpose::Databases => raid,
            Purpose::Logs => Raid::Raid10,
            Purpose::Backup => Raid::Raid50,
        };
        let iops = match array.rated(level).map(|rated| rated.rating) {
            Some(Rating::Host { iops, .. }) => iops,
            _ => iops,
        };
        groups.push(group(asked, load, array, (holds(level)?, iops, holds_logs), level)?);
    }
    Ok(Choice {
        product: array.name.clone(),
        drive: array.drive.clone(),
        drive_size: size.drive_gb,
        controllers: array.controllers,
        cache_gb: array.cache_gb,
        raid,
        copies: load.copies,
        groups,
        source: rated.source.to_owned(),
        confidence: rated.confidence,
    })
}

fn group(
    asked: &Asked,
    load: &Load,
    array: &Array,
    (holds, does, holds_logs): (Gib, HostIops, bool),
    raid: Raid,
) -> Result<GroupChoice, String> {
    // What was measured had logs beside the databases, and the maintenance of a few: "do not add log IOPS".
    let streams = match (asked.databases, asked.logs) {
        (Some(databases), Some(_)) if holds_logs => databases.iops,
        (databases, logs) => [databases, logs].into_iter().flatten().map(|stream| stream.iops).sum(),
    };
    let each = asked.maintenance.get() / load.databases as f64;
    let beyond = |units: f64| HostIops::new((asked.maintenance.get() - each * MAINTAINED * units).max(0.0));
    let count = |exact: f64| (exact - 1e-9).ceil();
    let for_capacity = count(asked.capacity.get() / holds.get()).max(1.0);
    // Each array takes its databases' maintenance with it; once none is beyond, the streams alone decide.
    let for_streams = count(streams.get() / does.get());
    let for_all = count((streams + asked.maintenance).get() / (does.get() + each * MAINTAINED));
    let units = for_capacity.max(for_streams).max(for_all);
    let drives = units * f64::from(array.bays);
    if drives > f64::from(DRIVES_MAX) {
        return Err(format!("more than {} drives are needed", shown(DRIVES_MAX.into())));
    }
    let needed = streams + beyond(units);
    let bound = match () {
        () if units > for_capacity => Bound::Iops,
        () if units > 1.0 => Bound::Capacity,
        () => Bound::Least,
    };
    let units = units as u32;
    let capacity = holds * f64::from(units);
    Ok(GroupChoice {
        purpose: asked.purpose,
        raid,
        units,
        drives: units * (array.bays - array.spares),
        spares: units * array.spares,
        capacity: capacity.meeting(asked.capacity),
        capacity_needed: asked.capacity,
        iops: (does * f64::from(units)).meeting(needed),
        iops_needed: needed,
        iops_beside: HostIops::new((asked.iops().get() - needed.get()).max(0.0)),
        bound,
    })
}
