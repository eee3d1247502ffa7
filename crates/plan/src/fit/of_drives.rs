//! Groups of as many drives as are needed: arrays whose bays are filled as one likes, and drives of today.

use super::{
    Bound, Choice, DRIVES_MAX, GroupChoice, Purpose,
    load::{Asked, Load},
    meeting::Meeting,
};
use crate::{
    catalogue::{Array, ArraySize, Catalogue, Drive, Raid, Rated, Rating, Redundancy},
    units::{Gib, HostIops, SoldGb, shown},
};

/// What groups are made of.
struct Material<'a> {
    product: &'a str,
    drive: &'a str,
    label: SoldGb,
    formatted: Gib,
    controllers: u32,
    cache_gb: Option<f64>,
    /// Spares of a group: one (seed 002 has one in each of its groups, seed 001 recommends a single one).
    spares: u32,
    group_min: u32,
    /// Drives that there is room for, of one copy; none if nothing bounds them.
    bays: Option<u32>,
}

/// Groups of drives of `array`.
pub fn of_array(
    load: &Load,
    array: &Array,
    size: &ArraySize,
    raid: Raid,
    catalogue: &Catalogue,
) -> Result<Choice, String> {
    if !raid.is_bare() && !array.levels.is_empty() && !array.levels.contains(&raid) {
        let has: Vec<&str> = array.levels.iter().map(|level| level.word()).collect();
        return Err(format!("it has no {}, but {}", raid.word(), has.join(" and ")));
    }
    let rated = array.rated(raid).ok_or_else(|| unrated(array, raid))?;
    let material = Material {
        product: &array.name,
        drive: &array.drive,
        label: size.drive_gb,
        formatted: size.formatted_gib.expect("checked when the catalogue was read"),
        controllers: array.controllers,
        cache_gb: array.cache_gb,
        spares: array.spares,
        group_min: array.group_min,
        bays: Some(array.bays),
    };
    let rating_of = |raid: Raid| array.rated(raid).map(|rated| rated.rating);
    choice(load, &material, raid, &rated, &rating_of, catalogue)
}

/// Why an array cannot be planned with at `raid`.
pub fn unrated(array: &Array, raid: Raid) -> String {
    match array.rated(Raid::Raid10).or(array.rated(Raid::Raid50)) {
        None => format!("no source says what it does: {}", array.source),
        Some(_) => format!("no source says what it does at {}", raid.word()),
    }
}

/// Groups of `drive`s of this size.
pub fn of_drive(
    load: &Load,
    drive: &Drive,
    size: SoldGb,
    raid: Raid,
    catalogue: &Catalogue,
) -> Result<Choice, String> {
    let rating = Rating::Drives { each: drive.array_iops };
    let rated = Rated { rating, source: &drive.source, confidence: drive.confidence };
    let material = Material {
        product: &drive.name,
        drive: &drive.name,
        label: size,
        formatted: size.gib(),
        controllers: 0,
        cache_gb: None,
        spares: 1,
        group_min: 0,
        bays: None,
    };
    choice(load, &material, raid, &rated, &|_| Some(rating), catalogue)
}

fn choice(
    load: &Load,
    material: &Material<'_>,
    raid: Raid,
    rated: &Rated<'_>,
    rating_of: &dyn Fn(Raid) -> Option<Rating>,
    catalogue: &Catalogue,
) -> Result<Choice, String> {
    if raid.is_bare() {
        return Err("raid0 survives no lost drive: not recommended for any production (seed 001)".to_owned());
    }
    if raid == Raid::Inside {
        return Err("drives need a RAID level".to_owned());
    }
    let mut groups = Vec::new();
    for asked in &load.asked {
        let level = level_for(asked.purpose, raid, asked, material);
        // A group for backups is bought for what it holds.
        let rating = rating_of(level).unwrap_or(rated.rating);
        groups.push(group(asked, material, catalogue.redundancy(level), rating)?);
    }
    let of_a_copy = |group: &&GroupChoice| group.purpose.is_of_a_copy();
    let all: u32 = groups.iter().map(|group| group.drives + group.spares).sum();
    let of_copy: u32 = groups.iter().filter(of_a_copy).map(|group| group.drives + group.spares).sum();
    let wanted = if load.copies > 1 { of_copy } else { all };
    if let Some(bays) = material.bays
        && wanted > bays
    {
        return Err(format!("{wanted} drives are needed for one copy, and an array holds {bays}"));
    }
    Ok(Choice {
        product: material.product.to_owned(),
        drive: material.drive.to_owned(),
        drive_size: material.label,
        controllers: material.controllers,
        cache_gb: material.cache_gb,
        raid,
        copies: load.copies,
        groups,
        source: rated.source.to_owned(),
        confidence: rated.confidence,
    })
}

/// The level of a group: logs are mirrored (seed 001), backups are RAID 5 (seeds 001, 002).
fn level_for(purpose: Purpose, databases: Raid, asked: &Asked, material: &Material<'_>) -> Raid {
    let one_drive_holds = asked.capacity <= material.formatted;
    match purpose {
        Purpose::Mail | Purpose::Databases => databases,
        Purpose::Logs if one_drive_holds && material.group_min < 4 => Raid::Raid1,
        Purpose::Logs => Raid::Raid10,
        Purpose::Backup => Raid::Raid5,
    }
}

/// The least group that carries what is asked.
fn group(
    asked: &Asked,
    material: &Material<'_>,
    redundancy: &Redundancy,
    rating: Rating,
) -> Result<GroupChoice, String> {
    let too_many = || format!("more than {} drives are needed", shown(DRIVES_MAX.into()));
    let count = |exact: f64| -> Result<u32, String> {
        // What is a thousandth of a drive short is rounding, not need.
        let drives = (exact - 1e-9).ceil();
        if drives > f64::from(DRIVES_MAX) { Err(too_many()) } else { Ok(drives.max(0.0) as u32) }
    };
    let for_iops = match rating {
        Rating::Drives { each } => count(asked.on_drives(redundancy.write_penalty).get() / each.get())?,
        Rating::Host { drives, iops, .. } => count(asked.iops().get() / iops.get() * f64::from(drives))?,
    };
    let data = count(asked.capacity.get() / material.formatted.get())?;
    let for_capacity = redundancy.drives_for(data).ok_or_else(too_many)?;
    // An EVA's virtual levels take any number of drives from its least on.
    let step = if material.group_min > 0 { 1 } else { redundancy.step };
    let least = redundancy.min_drives.max(material.group_min);
    let mut drives = for_iops.max(for_capacity).max(least).next_multiple_of(step);
    // One drive more may begin another set, whose parity takes more than it brings.
    while redundancy.data_drives(drives) < data {
        drives += step;
    }
    let bound = match () {
        () if for_iops >= for_capacity && for_iops >= least => Bound::Iops,
        () if for_capacity > least => Bound::Capacity,
        () => Bound::Least,
    };
    let capacity = material.formatted * f64::from(redundancy.data_drives(drives));
    let iops = match rating {
        Rating::Host { drives: of, iops, .. } => iops * (f64::from(drives) / f64::from(of)),
        Rating::Drives { each } if asked.iops() > HostIops::ZERO => {
            let of_each = asked.on_drives(redundancy.write_penalty).get() / asked.iops().get();
            HostIops::new(each.get() * f64::from(drives) / of_each)
        }
        Rating::Drives { each } => HostIops::new(each.get() * f64::from(drives) / redundancy.write_penalty),
    };
    Ok(GroupChoice {
        purpose: asked.purpose,
        raid: redundancy.level,
        units: 1,
        drives,
        spares: material.spares,
        capacity: capacity.meeting(asked.capacity),
        capacity_needed: asked.capacity,
        iops: iops.meeting(asked.iops()),
        iops_needed: asked.iops(),
        iops_beside: HostIops::ZERO,
        bound,
    })
}
