//! Groups of as many drives as are needed: arrays whose bays are filled as one likes, and drives of today.

use super::{
    Bound, Choice, DRIVES_MAX, DriveRating, DriveSizing, GroupChoice, Purpose, SizedBy, Sizing,
    load::{GroupLoad, Load},
    meeting::Meeting,
    pools::{self, Division, too_many},
    spindle,
};
use crate::{
    catalogue::{Array, ArraySize, Catalogue, Drive, Raid, Rated, Rating, Redundancy},
    figure::{Confidence, GIVEN},
    units::{Gib, HostIops, SoldGb, counted},
};

/// Copies of a database from which drives may be lost one by one (Microsoft, storage-configuration: JBOD).
const COPIES_OF_JBOD: u32 = 3;

/// Drives, and where they are bought.
#[derive(Clone, Copy)]
struct Material<'a> {
    product: &'a str,
    drive: &'a str,
    label: SoldGb,
    formatted: Gib,
    holds_source: &'a str,
    controllers: u32,
    cache_gb: Option<f64>,
    /// Spares of a group, where the array's paper says so: one (AMI 2008 has one in each of its groups, HP EVA8000
    /// recommends a single one).
    spares: Option<u32>,
    group_min: u32,
    /// Drives that there is room for, of one copy; none if nothing bounds them.
    bays: Option<u32>,
    /// Its pools mirror, whatever lies in them.
    mirrors_all: bool,
    /// Drives of a pool at most, spares included; none if nothing but the rules bounds them.
    pool_drives: Option<u32>,
}

/// Groups of drives of `array`.
pub fn of_array(
    load: &Load,
    array: &Array,
    size: &ArraySize,
    raid: Raid,
    catalogue: &Catalogue,
    sizing: &Sizing,
) -> Result<Choice, String> {
    if !raid.is_bare() && !array.levels.is_empty() && !array.levels.contains(&raid) {
        let has: Vec<&str> = array.levels.iter().map(|level| level.word()).collect();
        return Err(format!("it has no {}, but {}", raid.word(), has.join(" and ")));
    }
    let rated = match sizing.drive_iops {
        Some(each) => Rated { rating: Rating::Drives { each }, source: GIVEN, confidence: Confidence::Given },
        None => array
            .rated(raid)
            .ok_or_else(|| format!("{} (--set drive_iops=N says it)", unrated(array, raid)))?,
    };
    let material = Material {
        product: &array.name,
        drive: &array.drive,
        label: size.drive_gb,
        formatted: size.formatted_gib.expect("checked when the catalogue was read"),
        holds_source: &array.sizes_source,
        controllers: array.controllers,
        cache_gb: array.cache_gb,
        spares: Some(array.spares),
        group_min: array.group_min,
        bays: Some(array.bays),
        mirrors_all: false,
        pool_drives: None,
    };
    let rating_of = |raid: Raid| array.rated(raid).map(|rated| rated.rating);
    choice(load, &material, raid, &rated, &rating_of, catalogue, sizing)
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
    sizing: &Sizing,
) -> Result<Choice, String> {
    let rating = Rating::Drives { each: drive.array_iops };
    let rated = Rated { rating, source: &drive.source, confidence: drive.confidence };
    let material = Material {
        product: &drive.name,
        drive: &drive.name,
        label: size,
        formatted: size.gib(),
        holds_source: "its label, in 1000s, by 1024s",
        controllers: 0,
        cache_gb: None,
        spares: None,
        group_min: 0,
        bays: None,
        mirrors_all: false,
        pool_drives: None,
    };
    choice(load, &material, raid, &rated, &|_| Some(rating), catalogue, sizing)
}

/// Pools of Spindle's own array, of `drive`s of this size.
pub fn of_spindle(
    load: &Load,
    drive: &Drive,
    size: SoldGb,
    raid: Raid,
    catalogue: &Catalogue,
    sizing: &Sizing,
) -> Result<Choice, String> {
    let rating = Rating::Drives { each: drive.array_iops };
    let rated = Rated { rating, source: &drive.source, confidence: drive.confidence };
    let material = Material {
        product: spindle::NAME,
        drive: &drive.name,
        label: size,
        formatted: size.gib() * spindle::FILLED_SHARE,
        holds_source: spindle::FILLED_SOURCE,
        controllers: 0,
        cache_gb: None,
        // Room for one lost drive, spread over all.
        spares: Some(1),
        group_min: 0,
        bays: None,
        mirrors_all: true,
        pool_drives: Some(spindle::POOL_DRIVES_MAX),
    };
    choice(load, &material, raid, &rated, &|_| Some(rating), catalogue, sizing)
}

fn choice(
    load: &Load,
    material: &Material<'_>,
    raid: Raid,
    rated: &Rated<'_>,
    rating_of: &dyn Fn(Raid) -> Option<Rating>,
    catalogue: &Catalogue,
    sizing: &Sizing,
) -> Result<Choice, String> {
    if raid.is_bare() {
        return Err(
            "raid0 survives no lost drive: not recommended for any production (HP EVA8000)".to_owned()
        );
    }
    if raid == Raid::Inside {
        return Err("drives need a RAID level".to_owned());
    }
    if raid == Raid::Jbod && load.copies < COPIES_OF_JBOD {
        return Err(format!(
            "jbod survives no lost drive without further copies: it takes {COPIES_OF_JBOD} of each database, and {} {} \
             planned (--copies)",
            load.copies,
            if load.copies == 1 { "is" } else { "are" }
        ));
    }
    let mut groups = Vec::new();
    for asked in &load.asked {
        let level = level_for(asked, raid, material, sizing);
        // A group for backups is bought for what it holds.
        let rating = rating_of(level).unwrap_or(rated.rating);
        groups.push(group(load, asked, material, catalogue.redundancy(level), rating, sizing)?);
    }
    let of_a_copy = |group: &&GroupChoice| group.purpose.is_of_a_copy();
    let all: u32 = groups.iter().map(|group| group.drives + group.spares).sum();
    let of_copy: u32 = groups.iter().filter(of_a_copy).map(|group| group.drives + group.spares).sum();
    let wanted = if load.copies > 1 { of_copy } else { all };
    if let Some(bays) = material.bays
        && wanted > bays
    {
        let wanted = counted(wanted);
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

/// The level of a group: logs are mirrored (HP EVA8000), backups are RAID 5 (HP EVA8000, AMI 2008).
fn level_for(asked: &GroupLoad, databases: Raid, material: &Material<'_>, sizing: &Sizing) -> Raid {
    let one_drive_holds = asked.capacity <= material.formatted;
    // Both drives of a pair write all of it.
    let one_drive_does = asked.iops().get() <= sizing.log_writes.get();
    match asked.purpose {
        Purpose::Mail | Purpose::Databases => databases,
        Purpose::Logs if one_drive_holds && one_drive_does && material.group_min < 4 => Raid::Raid1,
        Purpose::Logs => Raid::Raid10,
        Purpose::Backup if material.mirrors_all => Raid::Raid10,
        Purpose::Backup => Raid::Raid5,
    }
}

/// Rating of one drive for this purpose. A figure set by the user replaces the catalogue's.
fn rating_for(asked: &GroupLoad, rating: Rating, sizing: &Sizing) -> DriveRating {
    match (asked.purpose, sizing.drive_iops, rating) {
        (Purpose::Logs, ..) => DriveRating::Sequential(sizing.log_writes),
        (_, Some(each), _) | (_, None, Rating::Drives { each }) => DriveRating::Random(each),
        (_, None, Rating::Host { drives, iops, .. }) => DriveRating::AtHost(iops * (1.0 / f64::from(drives))),
    }
}

/// The least pools that carry what is asked.
fn group(
    load: &Load,
    asked: &GroupLoad,
    material: &Material<'_>,
    redundancy: &Redundancy,
    rating: Rating,
    sizing: &Sizing,
) -> Result<GroupChoice, String> {
    // An EVA's virtual levels take any number of drives from its least on.
    let step = if material.group_min > 0 { 1 } else { redundancy.step };
    let mut by = DriveSizing {
        rating: rating_for(asked, rating, sizing),
        formatted: material.formatted,
        holds_source: material.holds_source.to_owned(),
        redundancy: redundancy.clone(),
        least: redundancy.min_drives.max(material.group_min),
        step,
        spares: material.spares,
        storage_groups_max: None,
    };
    let drives_max = match redundancy.level {
        Raid::Jbod => 1,
        _ => {
            let most = material.pool_drives.map_or(u32::MAX, |most| most - material.spares.unwrap_or(0));
            (sizing.pool_drives.min(most) / step * step).max(by.least)
        }
    };
    let division =
        pools::divide(load, asked, drives_max, |asked| by.drives(asked).map(|(drives, _)| drives))?;
    let Division { pools, asked: of_pool, storage_groups_max, units: drives } = division;
    by.storage_groups_max = storage_groups_max;
    let (_, bound) = by.drives(&of_pool)?;
    let spares = match (material.spares, redundancy.level) {
        (Some(spares), _) => spares * pools,
        (None, Raid::Jbod) => sizing.spares(pools),
        (None, _) => sizing.spares(drives) * pools,
    };
    let all = f64::from(pools);
    let capacity = material.formatted * (f64::from(redundancy.data_drives(drives)) * all);
    Ok(GroupChoice {
        purpose: asked.purpose,
        raid: redundancy.level,
        pools,
        units: 1,
        drives: drives * pools,
        spares,
        capacity: capacity.meeting(asked.capacity),
        capacity_needed: asked.capacity,
        iops: (by.host_iops(drives, &of_pool) * all).meeting(asked.iops()),
        iops_needed: asked.iops(),
        iops_beside: HostIops::ZERO,
        bound,
        sized_by: SizedBy::Drives(by),
    })
}

impl DriveSizing {
    /// Drives of a pool that carries what is `asked`, and what decided that.
    fn drives(&self, asked: &GroupLoad) -> Result<(u32, Bound), String> {
        let count = |exact: f64| -> Result<u32, String> {
            // What is a thousandth of a drive short is rounding, not need.
            let drives = (exact - 1e-9).ceil();
            if drives > f64::from(DRIVES_MAX) { Err(too_many()) } else { Ok(drives.max(0.0) as u32) }
        };
        let of_drives = || asked.on_drives(self.redundancy.write_penalty).get();
        let for_iops = match self.rating {
            DriveRating::Random(each) | DriveRating::Sequential(each) => count(of_drives() / each.get())?,
            DriveRating::AtHost(each) => count(asked.iops().get() / each.get())?,
        };
        let data = count(asked.capacity.get() / self.formatted.get())?;
        let for_capacity = self.redundancy.drives_for(data).ok_or_else(too_many)?;
        let mut drives = for_iops.max(for_capacity).max(self.least).next_multiple_of(self.step);
        // One drive more may begin another set, whose parity takes more than it brings.
        while self.redundancy.data_drives(drives) < data {
            drives += self.step;
        }
        let bound = match () {
            () if for_iops >= for_capacity && for_iops >= self.least => Bound::Iops,
            () if for_capacity > self.least => Bound::Capacity,
            () => Bound::Least,
        };
        Ok((drives, bound))
    }

    /// Host IOPS of a pool of `drives` with the mix of reads and writes in `asked`.
    fn host_iops(&self, drives: u32, asked: &GroupLoad) -> HostIops {
        let penalty = self.redundancy.write_penalty;
        match self.rating {
            DriveRating::AtHost(each) => each * f64::from(drives),
            DriveRating::Random(each) | DriveRating::Sequential(each) => {
                let of_each = match asked.iops() > HostIops::ZERO {
                    true => asked.on_drives(penalty).get() / asked.iops().get(),
                    false => penalty,
                };
                HostIops::new(each.get() * f64::from(drives) / of_each)
            }
        }
    }
}
