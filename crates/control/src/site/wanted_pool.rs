//! The pools of a site file as the daemon wants them: drives, volumes, and levels that an array has.

use super::wanted::SiteContext;
use array::format::{BLOCK_BYTES, RedundancyClass, SparingLevel, superblock::MEMBERS_MAX};
use plan::{
    catalogue::{Catalogue, Raid},
    site::{Group, Volume},
};
use report::Refusal;
use serving::{export::WantedExports, pool::limits::LimitChange};
use std::path::PathBuf;
use world::ByteCount;

/// Drives in files of a group that says nothing of its drives.
const FILES_USUAL: u16 = 8;
/// Most drives of a pool.
const DRIVES_MAX: u16 = MEMBERS_MAX as u16;
/// Largest size of a volume, in GiB.
const VOLUME_GB_MAX: f64 = 65_536.0;
const GIB: f64 = (1u64 << 30) as f64;

/// A pool: a group of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedPool {
    pub name: String,
    pub folder: PathBuf,
    pub drives: WantedDrives,
    /// As is usual if `None`.
    pub copies: Option<usize>,
    /// As is usual if `None`.
    pub sparing: Option<SparingLevel>,
    pub volumes: Vec<WantedVolume>,
    pub exports: WantedExports,
}

/// Drives of a pool that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedDrives {
    /// In the pool's folder; at most this large.
    Files { count: u16, size_max: Option<ByteCount> },
    /// Block devices, or disks on other machines by their URIs.
    Devices(Vec<PathBuf>),
}

/// A volume of a pool. What is `None` stays as it is, and is usual for a new volume.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedVolume {
    pub name: String,
    /// Its name of before.
    pub was: Option<String>,
    pub size: ByteCount,
    pub class: RedundancyClass,
    pub write_cache: Option<bool>,
    pub limits: LimitChange,
}

pub(super) fn pool(group: &Group, context: &SiteContext) -> Result<WantedPool, Refusal> {
    let name = &group.name;
    if name.contains(['/', '@', '\0']) || name.starts_with('.') {
        return Err(Refusal::new(
            format!("group {name:?} cannot be a folder's name"),
            "choose a name without / and @",
        ));
    }
    let copies = copies(group)?;
    let sparing = match group.spares {
        None => None,
        Some(0) => Some(SparingLevel::None),
        Some(1) => Some(SparingLevel::Single),
        Some(2) => Some(SparingLevel::Double),
        Some(more) => {
            let problem =
                format!("group {name:?}: a pool keeps room for two lost drives at most, not for {more}");
            return Err(Refusal::new(problem, "say spares = 2"));
        }
    };
    let drives = match group.devices.as_slice() {
        [] => {
            let spares = u64::from(group.spares.unwrap_or(0));
            let count = group.drives.map_or(u64::from(FILES_USUAL), |drives| u64::from(drives) + spares);
            let count = u16::try_from(count).ok().filter(|count| (1..=DRIVES_MAX).contains(count));
            let count = count.ok_or_else(|| {
                let problem = format!("group {name:?}: a pool has 1 to {DRIVES_MAX} drives");
                Refusal::new(problem, "say drives = N, or divide the group")
            })?;
            let size_max = group.drive_gb.map(|gb| ByteCount((gb * 1e9) as u64));
            WantedDrives::Files { count, size_max }
        }
        devices => WantedDrives::Devices(devices.iter().map(PathBuf::from).collect()),
    };
    let folder = match group.folder.as_str() {
        "" => context.state.join("pools").join(name),
        folder => context.folder.join(folder),
    };
    Ok(WantedPool {
        name: name.clone(),
        folder,
        drives,
        copies,
        sparing,
        volumes: Vec::new(),
        exports: WantedExports::default(),
    })
}

/// A line for each key that a reader would expect to have an effect, and that has none.
pub(super) fn unused_keys(group: &Group) -> Vec<String> {
    let name = &group.name;
    let unused = [
        (
            !group.failure_sets.is_empty(),
            "failure_sets",
            "'spindle pool set POOL --failure-sets on' forms them",
        ),
        (group.write_cache.is_some(), "write_cache", "say it of each volume"),
        (group.snapshot_reserve_percent.is_some(), "snapshot_reserve_percent", "say limit_gb of each volume"),
    ];
    let lines = unused.into_iter().filter(|(is_said, ..)| *is_said);
    lines.map(|(_, key, next)| format!("group {name:?}: {key} is not used by pools; {next}")).collect()
}

/// Copies of each block in a group's pool; refuses levels that the array does not have.
fn copies(group: &Group) -> Result<Option<usize>, Refusal> {
    check_level(group, group.raid, &format!("group {:?}", group.name))?;
    match group.copies {
        None => Ok(None),
        Some(copies @ (2 | 3)) => Ok(Some(copies as usize)),
        Some(copies) => Err(Refusal::new(
            format!("group {:?}: a pool keeps two copies or three, not {copies}", group.name),
            "say copies = 2 or copies = 3",
        )),
    }
}

/// Refuses a level that the array does not have, with the nearest one and the drives it takes.
fn check_level(group: &Group, level: Raid, who: &str) -> Result<(), Refusal> {
    let (nearest, copies) = match level {
        Raid::Raid0 | Raid::Raid1 | Raid::Raid10 => return Ok(()),
        Raid::Raid5 | Raid::Raid50 => ("raid = \"raid10\"", 2),
        Raid::Raid6 | Raid::RaidDp => ("raid = \"raid10\" with copies = 3", 3),
        Raid::Jbod | Raid::Inside => ("raid = \"raid10\"", 2),
    };
    let same_room = group.drives.map(|drives| {
        let data = Catalogue::built_in().redundancy(level).data_drives(drives).max(1);
        let wanted = u64::from(data) * copies;
        format!(", which takes {wanted} drives for the room of these {drives}")
    });
    let problem = format!("{who}: Spindle's pools do not have {} yet", level.word());
    Err(Refusal::new(problem, format!("the nearest is {nearest}{}", same_room.unwrap_or_default())))
}

pub(super) fn wanted_volume(volume: &Volume, group: &Group) -> Result<WantedVolume, Refusal> {
    let who = format!("volume {}/{}", group.name, volume.name);
    if volume.name.contains(['/', '@', '~']) {
        return Err(Refusal::new(format!("{who}: a volume's name has no /, @ or ~"), "choose another name"));
    }
    let level = volume.raid.unwrap_or(group.raid);
    check_level(group, level, &who)?;
    let size = volume.gb.filter(|gb| *gb > 0.0);
    let size = size.ok_or_else(|| Refusal::new(format!("{who} says no size"), "say gb = N"))?;
    let largest = [Some(size), volume.reserve_gb, volume.limit_gb].into_iter().flatten().fold(0.0, f64::max);
    if largest > VOLUME_GB_MAX {
        return Err(Refusal::new(
            format!("{who}: {largest} GB are more than a volume has"),
            "at most 65,536",
        ));
    }
    if let (Some(reserve), Some(limit)) = (volume.reserve_gb, volume.limit_gb)
        && limit > 0.0
        && reserve > limit
    {
        return Err(Refusal::new(
            format!("{who}: its reserve exceeds its limit"),
            "say reserve_gb <= limit_gb",
        ));
    }
    let bound = |gb: Option<f64>| gb.map(|gb| whole_blocks(bytes_of(gb)));
    let kib = |mb: f64| (mb * 1024.0).ceil().min(f64::from(u32::MAX)) as u32;
    Ok(WantedVolume {
        name: volume.name.clone(),
        was: Some(volume.was.clone()).filter(|was| !was.is_empty() && *was != volume.name),
        size: size_of(size),
        class: if level == Raid::Raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 },
        write_cache: volume.write_cache,
        limits: LimitChange {
            reserve: bound(volume.reserve_gb),
            limit: bound(volume.limit_gb),
            iops_max: volume.iops_max,
            kib_per_second_max: volume.mb_per_second_max.map(kib),
        },
    })
}

fn bytes_of(gb: f64) -> u64 {
    (gb * GIB).round() as u64
}

fn whole_blocks(bytes: u64) -> ByteCount {
    ByteCount(bytes.next_multiple_of(BLOCK_BYTES as u64))
}

/// A volume's size: whole sectors as they are, since volumes of such sizes exist; anything else in whole blocks.
fn size_of(gb: f64) -> ByteCount {
    let bytes = bytes_of(gb);
    if bytes.is_multiple_of(512) { ByteCount(bytes) } else { whole_blocks(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::WantedSite;
    use plan::site::Site;

    fn read(text: &str) -> Result<WantedSite, String> {
        let context = SiteContext { folder: "/etc".into(), state: "/state".into(), site: None };
        let site = Site::from_toml(text).map_err(|error| error.to_string())?;
        WantedSite::of(&site, &context).map_err(|refusal| refusal.to_string())
    }

    const GROUP: &str = "[[group]]\nname = 'mail'\n";

    #[test]
    fn levels_that_pools_do_not_have_are_refused_with_what_takes_their_place() {
        for (level, nearest) in [
            ("raid5", "the nearest is raid = \"raid10\", which takes 14 drives for the room of these 8"),
            ("raid-dp", "the nearest is raid = \"raid10\" with copies = 3, which takes 18 drives"),
            ("jbod", "the nearest is raid = \"raid10\""),
        ] {
            let refused = read(&format!("{GROUP}raid = '{level}'\ndrives = 8\n")).unwrap_err();
            assert!(
                refused.contains(&format!("do not have {level} yet")) && refused.contains(nearest),
                "{refused}"
            );
        }
        let volume = "[[volume]]\nname = 'store'\ngb = 1\nraid = 'raid6'\n";
        assert!(read(&format!("{GROUP}{volume}")).unwrap_err().starts_with("volume mail/store: "));
    }

    #[test]
    fn sizes_are_exact_and_wrong_ones_are_refused() {
        assert_eq!(size_of(1.0), ByteCount::gib(1));
        assert_eq!(size_of(2_097_153.0 * 512.0 / GIB), ByteCount(2_097_153 * 512));
        assert_eq!(size_of(0.3).0 % 4096, 0);
        for (volume, problem) in [
            ("name = 'store'", "volume mail/store says no size; say gb = N"),
            ("name = 'a~b'\ngb = 1", "volume mail/a~b: a volume's name has no /, @ or ~"),
        ] {
            let refused = read(&format!("{GROUP}[[volume]]\n{volume}\n")).unwrap_err();
            assert!(refused.starts_with(problem), "{refused}");
        }
        for (group, problem) in [
            ("spares = 3", "keeps room for two lost drives at most, not for 3; say spares = 2"),
            ("copies = 4", "a pool keeps two copies or three, not 4"),
        ] {
            let refused = read(&format!("{GROUP}{group}\n")).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
