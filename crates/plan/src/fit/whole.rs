//! Arrays that are bought with every bay filled: so many of them to a group.

use super::{
    ArraySizing, Bound, Choice, DRIVES_MAX, GroupChoice, Purpose, SizedBy, Sizing,
    load::{GroupLoad, Load},
    meeting::Meeting,
    of_drives::unrated,
    pools::{self, Division, too_many},
};
use crate::{
    catalogue::{Array, ArraySize, Raid, Rated, Rating},
    figure::{Confidence, GIVEN},
    units::HostIops,
};

/// Databases whose background maintenance the measured arrays had (Dell 2010, table 12, note a).
const MAINTAINED: f64 = 4.0;

/// Groups of whole `array`s with drives of this size, all at one level.
pub fn choice(
    load: &Load,
    array: &Array,
    size: &ArraySize,
    raid: Raid,
    sizing: &Sizing,
) -> Result<Choice, String> {
    let rated = match (array.rated(raid), sizing.array_iops) {
        (Some(rated), _) => rated,
        // Nothing says that logs were on it, so theirs are added.
        (None, Some(iops)) => Rated {
            rating: Rating::Host { raid, drives: array.bays - array.spares, iops, holds_logs: false },
            source: GIVEN,
            confidence: Confidence::Given,
        },
        (None, None) => return Err(format!("{} (--set array_iops=N says it)", unrated(array, raid))),
    };
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
        // Logs have the level that mirrors, backups the one that does not (HP EVA8000).
        let level = match asked.purpose {
            Purpose::Mail | Purpose::Databases => raid,
            Purpose::Logs => Raid::Raid10,
            Purpose::Backup => Raid::Raid50,
        };
        let measured = match array.rated(level).map(|rated| rated.rating) {
            Some(Rating::Host { iops, .. }) => iops,
            _ => iops,
        };
        let by = ArraySizing {
            holds: holds(level)?,
            holds_source: array.sizes_source.clone(),
            does: sizing.array_iops.unwrap_or(measured),
            holds_logs,
            storage_groups_max: None,
        };
        groups.push(group(asked, load, array, by, level, sizing)?);
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
    asked: &GroupLoad,
    load: &Load,
    array: &Array,
    mut by: ArraySizing,
    raid: Raid,
    sizing: &Sizing,
) -> Result<GroupChoice, String> {
    let maintenance_each = HostIops::new(match asked.maintenance > HostIops::ZERO {
        true => asked.maintenance.get() / load.databases as f64,
        false => 0.0,
    });
    let units_max = (sizing.pool_drives / array.bays).max(1);
    let units_of = |asked: &GroupLoad| {
        let units = by.units(asked, maintenance_each);
        let is_countable = units * f64::from(array.bays) <= f64::from(DRIVES_MAX);
        if is_countable { Ok(units as u32) } else { Err(too_many()) }
    };
    let division = pools::divide(load, asked, units_max, units_of)?;
    let Division { pools, asked: of_pool, storage_groups_max, units: of_each } = division;
    by.storage_groups_max = storage_groups_max;
    let units = of_each * pools;
    if units * array.bays > DRIVES_MAX {
        return Err(too_many());
    }
    let needed = by.needed(asked, maintenance_each, f64::from(units));
    let for_capacity = by.for_capacity(&of_pool);
    let bound = match () {
        () if f64::from(of_each) > for_capacity => Bound::Iops,
        () if units > 1 => Bound::Capacity,
        () => Bound::Least,
    };
    Ok(GroupChoice {
        purpose: asked.purpose,
        raid,
        pools,
        units,
        drives: units * (array.bays - array.spares),
        spares: units * array.spares,
        capacity: (by.holds * f64::from(units)).meeting(asked.capacity),
        capacity_needed: asked.capacity,
        iops: (by.does * f64::from(units)).meeting(needed),
        iops_needed: needed,
        iops_beside: HostIops::new((asked.iops().get() - needed.get()).max(0.0)),
        bound,
        sized_by: SizedBy::Arrays(by),
    })
}

fn count(exact: f64) -> f64 {
    (exact - 1e-9).ceil()
}

impl ArraySizing {
    /// I/O of databases, and of logs unless theirs was on the array when it was measured: "do not add log IOPS".
    fn streams(&self, asked: &GroupLoad) -> HostIops {
        match (asked.databases, asked.logs) {
            (Some(databases), Some(_)) if self.holds_logs => databases.iops,
            (databases, logs) => [databases, logs].into_iter().flatten().map(|stream| stream.iops).sum(),
        }
    }

    /// IOPS needed of `units` arrays beyond the maintenance of a few databases that the measurement already held.
    fn needed(&self, asked: &GroupLoad, maintenance_each: HostIops, units: f64) -> HostIops {
        let beyond = asked.maintenance.get() - maintenance_each.get() * MAINTAINED * units;
        self.streams(asked) + HostIops::new(beyond.max(0.0))
    }

    fn for_capacity(&self, asked: &GroupLoad) -> f64 {
        count(asked.capacity.get() / self.holds.get()).max(1.0)
    }

    /// Arrays of a pool that carries what is `asked`.
    fn units(&self, asked: &GroupLoad, maintenance_each: HostIops) -> f64 {
        // Each array takes its databases' maintenance with it; once none is beyond, the streams alone decide.
        let streams = self.streams(asked).get();
        let for_streams = count(streams / self.does.get());
        let with_maintenance = self.does.get() + maintenance_each.get() * MAINTAINED;
        let for_all = count((streams + asked.maintenance.get()) / with_maintenance);
        self.for_capacity(asked).max(for_streams).max(for_all)
    }
}
