//! A site file of pools that are there, with the names, rights and unit numbers that initiators know.

use super::{
    handle::{PoolHandle, SiteView},
    known_dr_group::{KnownDrGroups, with_dr_groups},
};
use crate::{presenting::board::PresentationBoard, view::VolumeView};
use array::format::{RedundancyClass, VolumeId, row::WriteCache};
use plan::{
    catalogue::Raid,
    site::{
        DrGroup, Group, Role, Site, SiteExport, SiteIndex, SiteInitiator, SiteTarget, SiteUnit, Volume,
        split_snapshot,
    },
};
use report::Refusal;
use serving::{
    export::{AccessFile, CredentialsLine, IdentityOrigin, InitiatorLine, PlannedTarget, unique_name_of},
    pool::{folder::OpenReadOnlyPool, pools_on_drives::PoolOnDrives},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};
use world::{World, real::host_files};

const GIB: f64 = (1u64 << 30) as f64;
const MIB_KIB: f64 = 1024.0;

/// A pool that is there.
pub struct FoundPool {
    /// The name of its folder.
    pub name: String,
    pub folder: PathBuf,
    /// Block devices and URIs; none if its drives are files.
    pub devices: Vec<String>,
    pub drives: u32,
    pub volumes: Vec<VolumeView>,
    /// Clones of presentations, which no site file needs.
    pub presented: BTreeSet<VolumeId>,
}

impl FoundPool {
    /// The pools that are served and have a view.
    pub(super) fn all_served(site: &SiteView, presentations: &PresentationBoard) -> Vec<Self> {
        let presented = presentations.clones();
        let served = |pool: &PoolHandle| {
            Some(Self {
                name: pool.name.clone(),
                folder: pool.folder.clone(),
                devices: Vec::new(),
                drives: 0,
                volumes: listed_volumes(pool.view()?.volumes.iter().cloned()),
                presented: presented.clone(),
            })
        };
        site.pools.values().filter_map(served).collect()
    }

    /// Looks into the pool of a folder. Nothing is written.
    ///
    /// # Errors
    ///
    /// The folder is no pool, or it is open elsewhere, or cannot be read.
    pub async fn look(world: &World, folder: &Path) -> Result<Self, Refusal> {
        Self::of(&OpenReadOnlyPool::open(world, folder).await?, folder)
    }

    /// The pool of a folder, which is open read-only.
    pub(super) fn of(open: &OpenReadOnlyPool, folder: &Path) -> Result<Self, Refusal> {
        let folder = host_files::canonical(folder)
            .map_err(|error| Refusal::new(error.to_string(), "check the folder"))?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let drives = &open.held.drives.drives;
        let is_device = |path: &Path| path.starts_with("/dev") || path.to_string_lossy().contains("://");
        let devices = drives.iter().map(|drive| drive.recorded.path.clone()).filter(|path| is_device(path));
        Ok(Self {
            name,
            devices: devices.map(|path| path.display().to_string()).collect(),
            drives: u32::try_from(drives.len()).unwrap_or(u32::MAX),
            volumes: listed_volumes(open.pool.volumes().into_iter().map(VolumeView::of)),
            presented: BTreeSet::new(),
            folder,
        })
    }

    /// A pool that was found on its drives, and belongs into a folder.
    pub fn on_drives(pool: &PoolOnDrives, folder: PathBuf) -> Self {
        Self {
            name: pool.name.clone(),
            folder,
            devices: pool.devices.clone(),
            drives: u32::try_from(pool.drives()).unwrap_or(u32::MAX),
            volumes: listed_volumes(pool.pool.volumes().into_iter().map(VolumeView::of)),
            presented: BTreeSet::new(),
        }
    }

    fn group(&self) -> Group {
        let is_of_devices = self.devices.len() == self.drives as usize;
        Group {
            name: self.name.clone(),
            folder: self.folder.display().to_string(),
            devices: if is_of_devices { self.devices.clone() } else { Vec::new() },
            drives: Some(self.drives),
            ..Group::default()
        }
    }
}

/// The volumes that a site file can have: those that a rollback left, and unfinished copies, have names that none can give.
pub(super) fn listed_volumes(volumes: impl Iterator<Item = VolumeView>) -> Vec<VolumeView> {
    volumes.filter(|volume| volume.left_by.is_none() && !volume.name.contains('~')).collect()
}

/// The site of these pools, whose volumes are served as `spindle export` would serve all of them, with an access file or
/// to everybody. The second part names what was left out, with the reasons.
///
/// # Errors
///
/// Two pools have one name; or the access file names what is not there, or a target with units of several pools.
pub fn adopt(
    pools: &[FoundPool],
    access: Option<(&AccessFile, &Path)>,
) -> Result<(Site, Vec<String>), Refusal> {
    let mut site = Site::default();
    for pool in pools {
        site.groups.push(pool.group());
        site.volumes.extend(pool.volumes.iter().map(|volume| adopted(&pool.name, volume, Volume::default())));
    }
    let exports = Exports::of(pools);
    let mut left_out = exports.left_out.clone();
    let names: Vec<String> = exports.by_name.keys().cloned().collect();
    let usual = AccessFile::default();
    let (file, folder) = access.unwrap_or((&usual, Path::new("")));
    let is_restricted = !file.initiator.is_empty();
    // NBD knows no rights: it would be a way round those of the file.
    let nbd = exports.by_name.iter().filter(|_| !is_restricted);
    site.exports.extend(nbd.map(|(name, (pool, volume))| SiteExport {
        name: name.clone(),
        volume: format!("{}/{}", pool.name, volume.name),
        read_only: false,
    }));
    if is_restricted {
        left_out.push("NBD: it knows no rights of hosts; add [[nbd]] for what everybody may use".to_owned());
    }
    let mut known_as = BTreeMap::new();
    for target in file.targets(&names).map_err(|problem| Refusal::new(problem, "name what the pools have"))? {
        let name = exports.target_name(&target);
        known_as.insert(target.name.clone(), name.clone());
        let is_used =
            |meant: &String| *meant == target.name || meant.starts_with(&format!("{}/", target.name));
        let users =
            file.initiator.iter().filter(|one| one.uses.iter().chain(&one.reads).any(is_used)).count();
        if is_restricted && users == 0 {
            left_out.push(format!("target {}: no initiator may use it", target.name));
            continue;
        }
        site.targets.push(SiteTarget { name, open: !is_restricted, units: exports.units(&target) });
    }
    site.initiators = file.initiator.iter().map(|line| initiator(line, folder, &known_as)).collect();
    if let Some(CredentialsLine { user, secret_file }) = &file.own {
        site.serve.chap_user = user.clone();
        site.serve.chap_secret_file = absolute(folder, secret_file);
    }
    match site.fault() {
        Some(fault) => Err(Refusal::new(fault, "change the pools or the access file")),
        None => Ok((site, left_out)),
    }
}

/// The same site with the volumes that the pools have now. The second part names what was left out, with the reasons.
///
/// # Errors
///
/// The site and the pools contradict each other.
pub fn refreshed(site: Site, pools: &[FoundPool]) -> Result<(Site, Vec<String>), Refusal> {
    refreshed_with(site, pools, None)
}

/// The same with the DR groups that there are; without them, those of the site whose volumes are there.
pub(super) fn refreshed_with(
    site: Site,
    pools: &[FoundPool],
    dr_groups: Option<&KnownDrGroups>,
) -> Result<(Site, Vec<String>), Refusal> {
    let site = refreshed_volumes(with_groups_in_references(site), pools, |_| false);
    let (mut site, mut left_out) = match dr_groups {
        Some(known) => with_dr_groups(site, pools, known),
        None => without_lost_dr_groups(site),
    };
    let known = site.clone();
    let index = SiteIndex::of(&known);
    let has = |meant: &str| index.served_volume(meant).is_some();
    for export in site.exports.extract_if(.., |export| !has(&export.volume)) {
        left_out.push(format!("NBD export {}: {} is not there any more", export.name, export.volume));
    }
    for target in &mut site.targets {
        let name = target.name.clone();
        for unit in target.units.extract_if(.., |unit| !has(&unit.volume)) {
            left_out.push(format!("unit {name}/{}: {} is not there any more", unit.number, unit.volume));
        }
    }
    for schedule in &mut site.snapshots {
        let name = schedule.name.clone();
        for volume in schedule.volumes.extract_if(.., |volume| !has(volume)) {
            left_out.push(format!("snapshots {name}: {volume} is not there any more"));
        }
    }
    for set in &mut site.sets {
        let name = set.set.clone();
        for volume in set.volumes.extract_if(.., |volume| !has(volume)) {
            left_out.push(format!("set {name}: {volume} is not there any more"));
        }
        set.logs.retain(|volume| has(volume));
    }
    site.sets.retain(|set| !set.volumes.is_empty());
    let known = site.clone();
    let index = SiteIndex::of(&known);
    for initiator in &mut site.initiators {
        initiator.uses.retain(|meant| index.units_meant(meant).is_some());
        initiator.reads.retain(|meant| index.units_meant(meant).is_some());
    }
    match site.fault() {
        Some(fault) => Err(Refusal::new(fault, "change the pools, or apply a file")),
        None => Ok((site, left_out)),
    }
}

/// The same site without the DR groups of volumes that are not there, which are named.
fn without_lost_dr_groups(mut site: Site) -> (Site, Vec<String>) {
    let known = site.clone();
    let index = SiteIndex::of(&known);
    let mut left_out = Vec::new();
    if let Some(replication) = &mut site.replication {
        let is_lost = |group: &mut DrGroup| group.volumes.iter().any(|meant| index.volume(meant).is_none());
        for group in replication.dr_groups.extract_if(.., is_lost) {
            left_out.push(format!("DR group {}: its volumes are not there any more", group.name));
        }
    }
    (site, left_out)
}

/// The same site with its volumes as the pools have them now, and those of the pools that it lacks, without clones of
/// presentations. Of volumes that are not in
/// an open pool any more, those stay that `keeps`.
pub(super) fn refreshed_volumes(site: Site, pools: &[FoundPool], keeps: impl Fn(&Volume) -> bool) -> Site {
    let open: BTreeSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    let mut known = HashMap::new();
    for pool in pools {
        known.extend(pool.volumes.iter().map(|one| ((&*pool.name, &*one.name), one)));
    }
    let mut volumes = Vec::new();
    for volume in &site.volumes {
        match known.remove(&(&*volume.group, &*volume.name)) {
            Some(known) => volumes.push(adopted(&volume.group, known, volume.clone())),
            None if open.contains(&*volume.group) && !keeps(volume) => {}
            None => volumes.push(volume.clone()),
        }
    }
    for pool in pools.iter().filter(|pool| site.group(&pool.name).is_some()) {
        // Volumes of the site were taken out above.
        let is_new = |one: &&VolumeView| {
            known.contains_key(&(&*pool.name, &*one.name)) && !pool.presented.contains(&one.volume)
        };
        let new = pool.volumes.iter().filter(is_new);
        volumes.extend(new.map(|known| adopted(&pool.name, known, Volume::default())));
    }
    Site { volumes, ..site }
}

/// The same site with `GROUP/VOLUME` wherever it refers to a volume: another group may have one of that name by now.
pub(crate) fn with_groups_in_references(site: Site) -> Site {
    let mut site = site.with_groups_said();
    let known = site.clone();
    let index = SiteIndex::of(&known);
    let whole = |meant: &mut String| {
        let Some(volume) = index.served_volume(meant).filter(|volume| !volume.group.is_empty()) else {
            return;
        };
        let snapshot = split_snapshot(meant).1.map_or(String::new(), |snapshot| format!("@{snapshot}"));
        *meant = format!("{}/{}{snapshot}", volume.group, volume.name);
    };
    site.exports.iter_mut().for_each(|export| whole(&mut export.volume));
    site.snapshots.iter_mut().flat_map(|schedule| &mut schedule.volumes).for_each(whole);
    site.sets.iter_mut().flat_map(|set| set.volumes.iter_mut().chain(&mut set.logs)).for_each(whole);
    site.targets.iter_mut().flat_map(|target| &mut target.units).for_each(|unit| whole(&mut unit.volume));
    let dr_groups = site.replication.iter_mut().flat_map(|replication| &mut replication.dr_groups);
    dr_groups.flat_map(|group| &mut group.volumes).for_each(whole);
    site
}

/// `volume` with what the pool says of it.
fn adopted(pool: &str, known: &VolumeView, volume: Volume) -> Volume {
    let setting = &known.setting;
    let gb = |bytes: u64| bytes as f64 / GIB;
    let is_set = |bytes: u64, before: Option<f64>| (bytes > 0 || before.is_some()).then(|| gb(bytes));
    let role = if volume.name.is_empty() { Role::Other } else { volume.role };
    Volume {
        name: known.name.clone(),
        was: String::new(),
        role,
        group: pool.to_owned(),
        copy: 1.max(volume.copy),
        gb: Some(gb(known.size.0)),
        raid: if setting.class == RedundancyClass::Raid0 { Some(Raid::Raid0) } else { volume.raid },
        reserve_gb: is_set(setting.bounds.reserve_bytes, volume.reserve_gb),
        limit_gb: is_set(setting.bounds.limit_bytes, volume.limit_gb),
        iops_max: Some(setting.rates.iops_max).filter(|&iops| iops > 0 || volume.iops_max.is_some()),
        mb_per_second_max: Some(f64::from(setting.rates.kib_per_second_max) / MIB_KIB)
            .filter(|&rate| rate > 0.0 || volume.mb_per_second_max.is_some()),
        write_cache: (setting.write_cache == WriteCache::On || volume.write_cache.is_some())
            .then_some(setting.write_cache == WriteCache::On),
        ..volume
    }
}

fn initiator(line: &InitiatorLine, folder: &Path, known_as: &BTreeMap<String, String>) -> SiteInitiator {
    let renamed = |meant: &String| match known_as.get(meant) {
        Some(name) => name.clone(),
        None => match meant.rsplit_once('/').and_then(|(name, unit)| Some((known_as.get(name)?, unit))) {
            Some((name, unit)) => format!("{name}/{unit}"),
            None => meant.clone(),
        },
    };
    SiteInitiator {
        name: line.name.clone(),
        user: line.user.clone().unwrap_or_default(),
        secret_file: line.secret_file.as_ref().map_or_else(String::new, |file| absolute(folder, file)),
        uses: line.uses.iter().map(renamed).collect(),
        reads: line.reads.iter().map(renamed).collect(),
    }
}

/// A path that the new file may say wherever it lies.
fn absolute(folder: &Path, file: &Path) -> String {
    let path = folder.join(file);
    host_files::canonical(&path).unwrap_or(path).display().to_string()
}

/// The volumes as exports by their names.
struct Exports<'p> {
    by_name: BTreeMap<String, (&'p FoundPool, &'p VolumeView)>,
    left_out: Vec<String>,
}

impl<'p> Exports<'p> {
    fn of(pools: &'p [FoundPool]) -> Self {
        let mut exports = Self { by_name: BTreeMap::new(), left_out: Vec::new() };
        for pool in pools {
            for volume in &pool.volumes {
                match exports.by_name.get(&volume.name) {
                    None => drop(exports.by_name.insert(volume.name.clone(), (pool, volume))),
                    Some((other, _)) => exports.left_out.push(format!(
                        "{}/{} is not served: {}/{} has its name as an export; add a target for it",
                        pool.name, volume.name, other.name, volume.name
                    )),
                }
            }
        }
        exports
    }

    /// The end of the iSCSI name that initiators know.
    fn target_name(&self, target: &PlannedTarget) -> String {
        if target.is_named {
            return target.name.clone();
        }
        let (_, volume) = self.by_name[&target.name];
        let identity = IdentityOrigin::Volume(volume.volume).of_pool().expect("a volume has one");
        let full = unique_name_of(&target.name, identity);
        full.split_once(':').map_or(full.clone(), |(_, end)| end.to_owned())
    }

    fn units(&self, target: &PlannedTarget) -> Vec<SiteUnit> {
        let unit = |unit: &serving::export::PlannedUnit| {
            let (pool, volume) = self.by_name[&unit.export];
            SiteUnit {
                number: unit.number,
                volume: format!("{}/{}", pool.name, volume.name),
                read_only: unit.is_read_only,
                // Several hosts may be using it.
                shared: true,
                write_cache: unit.write_cache,
            }
        };
        target.units.iter().map(unit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::{format::VolumeId, pool::VolumeSetting};
    use world::ByteCount;

    fn volume(name: &str, id: u8, sectors: u64) -> VolumeView {
        VolumeView {
            name: name.to_owned(),
            volume: VolumeId([id; 16]),
            size: ByteCount(sectors * 512),
            branch: 0,
            setting: VolumeSetting::default(),
            snapshots: 0,
            group: None,
            left_by: None,
        }
    }

    fn pool(name: &str, volumes: Vec<VolumeView>) -> FoundPool {
        let folder = format!("/srv/{name}").into();
        FoundPool {
            name: name.to_owned(),
            folder,
            devices: Vec::new(),
            drives: 8,
            volumes,
            presented: BTreeSet::new(),
        }
    }

    #[test]
    fn pools_without_an_access_file_are_open_to_all_under_the_names_they_had() {
        let pools =
            [pool("mail", vec![volume("store", 1, 2_097_153)]), pool("logs", vec![volume("store", 2, 8)])];
        let (site, left_out) = adopt(&pools, None).unwrap();
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert_eq!(Site::from_toml(&site.to_toml()).unwrap(), site);
        let [target] = &site.targets[..] else { panic!("{:?}", site.targets) };
        assert_eq!(target.name, "store.01010101010101010101010101010101");
        assert!(target.open);
        let bytes = site.volume("mail/store").unwrap().gb.unwrap() * GIB;
        assert_eq!(bytes as u64, 2_097_153 * 512, "to the sector");
    }

    #[test]
    fn a_set_is_left_with_the_volumes_that_there_are() {
        let text = "
            [[group]]
            name = 'mail'
            [[volume]]
            name = 'store'
            group = 'mail'
            [[volume]]
            name = 'gone'
            group = 'mail'
            [[protect]]
            set = 'both'
            volumes = ['store', 'gone']
            logs = ['gone']
            [[protect]]
            set = 'lost'
            volumes = ['gone']
        ";
        let pools = [pool("mail", vec![volume("store", 1, 8)])];
        let (site, left_out) = refreshed(Site::from_toml(text).unwrap(), &pools).unwrap();
        let [both] = &site.sets[..] else { panic!("{:?}", site.sets) };
        assert_eq!((&both.volumes[..], &both.logs[..]), (&["mail/store".to_owned()][..], &[][..]));
        let said = ["both", "lost"].map(|set| format!("set {set}: mail/gone is not there any more"));
        assert_eq!(left_out, said);
    }

    #[test]
    fn an_access_file_keeps_its_targets_numbers_and_rights() {
        let text = "
            [[target]]
            name = 'disks'
            units = [{ export = 'b', lun = 7, read-only = true }]
            [[initiator]]
            name = 'iqn.x:host'
            user = 'host'
            secret-file = 'secrets/host'
            uses = ['disks/7', 'a']
        ";
        let file: AccessFile = text.parse().unwrap();
        let volumes = vec![volume("a", 1, 8), volume("b", 2, 8), volume("c", 3, 8)];
        let (site, left_out) =
            adopt(&[pool("mail", volumes)], Some((&file, Path::new("/etc/spindle")))).unwrap();
        assert!(left_out.iter().any(|line| line == "target c: no initiator may use it"), "{left_out:?}");
        assert!(site.exports.is_empty(), "NBD would be a way round the rights");
        let disks = site.targets.iter().find(|target| target.name == "disks").unwrap();
        assert_eq!((disks.units[0].number, disks.units[0].read_only, disks.open), (7, true, false));
        let [host] = &site.initiators[..] else { panic!() };
        assert_eq!(host.uses, ["disks/7", "a.01010101010101010101010101010101"]);
        assert_eq!(host.secret_file, "/etc/spindle/secrets/host");
    }
}
