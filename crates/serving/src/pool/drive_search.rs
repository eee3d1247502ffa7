//! The drives of a pool, found by their superblocks: first at their last paths, then on all block devices and among the
//! files of the pool's folder.
//!
//! Invariants:
//!
//! 1. A device is given to the pool only if its superblock names the pool, read again after the device was opened
//!    exclusively.
//! 2. Of two disks with one superblock neither is used: one is a copy, and only a person knows which.

use super::{
    drive_opening::{open_drive, why_not},
    record::{Hardware, PoolRecord, RecordedDrive},
    remote_drive::DrivePlace,
    sighting::{Observation, PathIdentity, Sighting, all_devices, files_in, look_at_all},
};
use array::{
    error::Error,
    format::{DriveId, PoolId, Superblock},
};
use report::Refusal;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, DeviceMeter, MeteredDevice, World,
    real::{AccessMode, FileDevice, host::Disk},
};

pub struct DriveSearch {
    /// `None` if the record does not name the pool and no drive was found.
    pub pool: Option<PoolId>,
    /// Recorded drives, and drives of the pool that were not recorded.
    pub drives: Vec<PoolDrive>,
    /// Names for messages that hold UUIDs.
    names: BTreeMap<DriveId, String>,
    /// In the order of the member table.
    members: Vec<DriveId>,
}

pub struct PoolDrive {
    /// The entry for the record from now on.
    pub recorded: RecordedDrive,
    /// Former path, if it was found elsewhere.
    pub moved_from: Option<PathBuf>,
    /// The open drive, or the reason why it is missing.
    pub state: Result<OpenDrive, String>,
}

/// A drive that this process has open.
#[derive(Clone)]
pub struct OpenDrive {
    pub path: PathBuf,
    /// `None` for a file, and on another machine.
    pub disk: Option<Disk>,
    /// `None` for a device here or on another machine.
    pub file: Option<FileDevice>,
    /// With its meter around it.
    pub device: Rc<dyn BlockDevice>,
    pub meter: Rc<DeviceMeter>,
}

impl OpenDrive {
    /// A disk of this machine, or a file.
    pub fn local(world: &World, path: PathBuf, disk: Option<Disk>, device: FileDevice) -> Self {
        let file = disk.is_none().then(|| device.clone());
        Self { disk, file, ..Self::remote(world, path, Rc::new(device)) }
    }

    /// A drive on another machine, by its URI.
    pub fn remote(world: &World, uri: PathBuf, device: Rc<dyn BlockDevice>) -> Self {
        let meter = DeviceMeter::new(world);
        let device = MeteredDevice::new(device, &meter);
        Self { path: uri, disk: None, file: None, device, meter }
    }
}

impl PoolDrive {
    /// Name in messages.
    pub fn name(&self, folder: &Path) -> String {
        self.recorded.name(folder, self.state.as_ref().ok().map(|open| open.path.as_path()))
    }
}

impl DriveSearch {
    /// Finds and opens the drives that a record names.
    ///
    /// # Errors
    ///
    /// Drives of two pools where the record does not name the pool; one drive on two disks; no permission to
    /// look at a device that may be one of the drives.
    pub async fn open(
        world: &World,
        folder: &Path,
        record: &PoolRecord,
        access: AccessMode,
    ) -> Result<Self, Refusal> {
        let places = record.drives.iter().map(|drive| drive.place(folder)).collect();
        let at_recorded = look_at_all(world, places).await;
        let Some(pool) = pool_of(folder, record, &at_recorded)? else {
            return Self::nothing(folder, record, at_recorded);
        };
        let is_found = |(drive, (_, seen)): (&RecordedDrive, &(PathBuf, Observation))| match seen {
            Observation::Drive(seen) => {
                let superblock = &seen.superblock;
                superblock.pool == pool && drive.drive.is_none_or(|drive| drive == superblock.drive())
            }
            _ => false,
        };
        let all_found = record.drives.iter().zip(&at_recorded).all(is_found);
        let has_devices = record.drives.iter().any(|drive| drive.path.is_absolute());
        // Files keep their names. Devices get new ones with each start, and a copy of one may be connected.
        let mut further = Vec::new();
        if has_devices || !all_found {
            further.extend(all_devices());
        }
        if !all_found {
            further.extend(files_in(folder));
        }
        let elsewhere = look_at_all(world, further.into_iter().map(DrivePlace::from).collect()).await;
        check_permission(folder, has_devices && !all_found, &at_recorded, &elsewhere)?;
        let paths_of = disks_of_pool(folder, pool, at_recorded.iter().chain(&elsewhere))?;
        let mut search =
            Self { pool: Some(pool), drives: Vec::new(), names: BTreeMap::new(), members: Vec::new() };
        search.name_members(&paths_of);
        for (recorded, sightings) in assigned(record, &at_recorded, paths_of) {
            let at = recorded.place(folder).path;
            let seen = at_recorded.iter().find(|(path, _)| *path == at).map(|(_, seen)| seen);
            let drive = open_drive(world, folder, recorded, (&sightings, seen), access).await?;
            if let (Some(id), Err(why)) = (drive.recorded.drive, &drive.state) {
                search.names.insert(id, format!("{} ({why})", drive.name(folder)));
            } else if let Some(id) = drive.recorded.drive {
                search.names.insert(id, drive.name(folder));
            }
            search.drives.push(drive);
        }
        Ok(search)
    }

    /// The pool is unknown: no recorded drive was found.
    fn nothing(
        folder: &Path,
        record: &PoolRecord,
        at_recorded: Vec<(PathBuf, Observation)>,
    ) -> Result<Self, Refusal> {
        check_permission(folder, false, &at_recorded, &[])?;
        let drives = record.drives.iter().zip(at_recorded);
        let drives = drives.map(|(recorded, (_, seen))| PoolDrive {
            recorded: recorded.clone(),
            moved_from: None,
            state: Err(why_not(Some(&seen), None)),
        });
        Ok(Self { pool: None, drives: drives.collect(), names: BTreeMap::new(), members: Vec::new() })
    }

    /// The open devices.
    pub fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let open = self.drives.iter().filter_map(|drive| drive.state.as_ref().ok());
        open.map(|open| Rc::clone(&open.device)).collect()
    }

    /// Adds a drive that has joined.
    pub(super) fn add(&mut self, drive: PoolDrive, folder: &Path) {
        if let Some(id) = drive.recorded.drive {
            self.names.insert(id, drive.name(folder));
        }
        self.drives.push(drive);
    }

    /// Drops drives that a record lists no more. Their names stay, for messages.
    pub(super) fn keep_recorded(&mut self, record: &PoolRecord) {
        self.drives.retain(|drive| record.drives.contains(&drive.recorded));
    }

    /// The record that the folder should hold from now on.
    pub fn record(&self) -> PoolRecord {
        PoolRecord {
            pool: self.pool,
            drives: self.drives.iter().map(|drive| drive.recorded.clone()).collect(),
        }
    }

    /// The pool's error with names of drives instead of numbers and UUIDs, and the reason for each missing one.
    pub fn in_words(&self, error: &Error) -> String {
        if let Error::Drive { member, error } = error
            && let Some(name) = self.members.get(usize::from(member.0)).and_then(|drive| self.name_of(*drive))
        {
            return format!("drive {name}: {error}");
        }
        self.names.iter().fold(error.to_string(), |text, (id, name)| text.replace(&id.to_string(), name))
    }

    /// Name of a drive in messages, with the reason if it is missing.
    pub fn name_of(&self, drive: DriveId) -> Option<&str> {
        self.names.get(&drive).map(String::as_str)
    }

    /// Missing drives, each with the reason.
    pub fn missing(&self, folder: &Path) -> Vec<String> {
        let missing = self.drives.iter().filter_map(|drive| {
            let why = drive.state.as_ref().err()?;
            Some(format!("{} ({why})", drive.name(folder)))
        });
        missing.collect()
    }

    /// Members that the record does not list are named by their superblocks.
    fn name_members(&mut self, found: &BTreeMap<DriveId, Vec<Sighting>>) {
        let superblocks = found.values().flatten().map(|sighting| &sighting.superblock);
        let newest = superblocks.max_by_key(|superblock| superblock.generation);
        for member in newest.into_iter().flat_map(|superblock| &superblock.members) {
            self.members.push(member.drive);
            if !member.serial.is_empty() {
                self.names.insert(member.drive, format!("{} ({})", member.serial, member.drive));
            }
        }
    }
}

/// The pool: the record names it, or all drives at the paths of a record of format 1.
fn pool_of(
    folder: &Path,
    record: &PoolRecord,
    at_recorded: &[(PathBuf, Observation)],
) -> Result<Option<PoolId>, Refusal> {
    if record.pool.is_some() {
        return Ok(record.pool);
    }
    let drives = at_recorded.iter().filter_map(|(path, seen)| match seen {
        Observation::Drive(seen) => Some((path, &seen.superblock)),
        _ => None,
    });
    let pools: BTreeMap<PoolId, (&PathBuf, &Superblock)> =
        drives.map(|(path, superblock)| (superblock.pool, (path, superblock))).collect();
    if pools.len() > 1 {
        let each =
            pools.values().map(|(path, superblock)| format!("{} of {:?}", path.display(), superblock.name));
        let problem = format!(
            "{}: its record names drives of different pools: {}",
            folder.display(),
            each.collect::<Vec<_>>().join(", ")
        );
        let remedy = "move the record away, and write it again with 'spindle pool import --pool NAME'";
        return Err(Refusal::new(problem, remedy));
    }
    Ok(pools.into_keys().next())
}

/// A device that cannot be read may be the missing drive: that is no reason to go on without it.
fn check_permission(
    folder: &Path,
    may_be_a_device: bool,
    at_recorded: &[(PathBuf, Observation)],
    elsewhere: &[(PathBuf, Observation)],
) -> Result<(), Refusal> {
    let denied = |(_, seen): &&(PathBuf, Observation)| matches!(seen, Observation::Denied(_));
    let first = at_recorded.iter().find(denied);
    let first = first.or_else(|| elsewhere.iter().find(denied).filter(|_| may_be_a_device));
    match first {
        Some((_, Observation::Denied(why))) => {
            let problem = format!("{}: {why}", folder.display());
            Err(Refusal::new(
                problem,
                "run it as root, or as a user who may read and write the pool's drives",
            ))
        }
        _ => Ok(()),
    }
}

/// Drives of the pool, each with the paths that lead to its disk, the recorded one first.
fn disks_of_pool<'a>(
    folder: &Path,
    pool: PoolId,
    seen: impl Iterator<Item = &'a (PathBuf, Observation)>,
) -> Result<BTreeMap<DriveId, Vec<Sighting>>, Refusal> {
    let mut disks: BTreeMap<DriveId, Vec<Sighting>> = BTreeMap::new();
    for (_, seen) in seen {
        let Observation::Drive(sighting) = seen else { continue };
        if sighting.superblock.pool == pool {
            disks.entry(sighting.superblock.drive()).or_default().push((**sighting).clone());
        }
    }
    for sightings in disks.values_mut() {
        let mut known: Vec<PathIdentity> = Vec::new();
        sightings.retain(|sighting| {
            let is_new = !known.contains(&sighting.identity);
            known.push(sighting.identity.clone());
            is_new
        });
        check_one_disk(folder, sightings)?;
    }
    Ok(disks)
}

/// Refuses two disks with one superblock: one is a copy of the other.
pub fn check_one_disk(folder: &Path, sightings: &[Sighting]) -> Result<(), Refusal> {
    let Some((first, others)) = sightings.split_first() else { return Ok(()) };
    let Some(other) = others.iter().find(|other| !first.is_same_disk(other)) else { return Ok(()) };
    let words = |sighting: &Sighting| {
        let hardware = sighting.disk.as_ref().and_then(|disk| Hardware::of(disk).words());
        let hardware = hardware.map(|words| format!("{words}, ")).unwrap_or_default();
        let generation = sighting.superblock.generation.0;
        format!("{} ({hardware}generation {generation})", sighting.path.display())
    };
    let problem = format!(
        "{}: {} and {} have the superblock of one drive: one is a copy of the other",
        folder.display(),
        words(first),
        words(other)
    );
    Err(Refusal::new(
        problem,
        "disconnect or move away the one that is not to be used, and keep it until the pool is open",
    ))
}

/// The drives found, in the order of the record, then drives that the record does not list.
fn assigned(
    record: &PoolRecord,
    at_recorded: &[(PathBuf, Observation)],
    mut found: BTreeMap<DriveId, Vec<Sighting>>,
) -> Vec<(RecordedDrive, Vec<Sighting>)> {
    let mut assigned: Vec<(RecordedDrive, Vec<Sighting>)> = Vec::new();
    for (recorded, (_, seen)) in record.drives.iter().zip(at_recorded) {
        let at_path = match seen {
            Observation::Drive(seen) => Some(seen.superblock.drive()),
            _ => None,
        };
        // A record of format 1 has only the path.
        let drive = recorded.drive.or(at_path.filter(|drive| found.contains_key(drive)));
        let sightings = drive.and_then(|drive| found.remove(&drive)).unwrap_or_default();
        assigned.push((RecordedDrive { drive, ..recorded.clone() }, sightings));
    }
    // Members according to the newest superblock; other drives were removed from the record and hold no data of the pool.
    let all = assigned.iter().map(|(_, sightings)| sightings).chain(found.values());
    let newest =
        all.flatten().map(|sighting| &sighting.superblock).max_by_key(|superblock| superblock.generation);
    let members: BTreeSet<DriveId> = newest.map_or_else(BTreeSet::new, |superblock| {
        let members = superblock.members.iter().filter(|member| member.state.holds_superblocks());
        members.map(|member| member.drive).collect()
    });
    for (drive, sightings) in found.into_iter().filter(|(drive, _)| members.contains(drive)) {
        let nameless = assigned.iter_mut().find(|(recorded, _)| recorded.drive.is_none());
        match nameless {
            Some((recorded, there)) => (recorded.drive, *there) = (Some(drive), sightings),
            None => {
                let recorded = RecordedDrive::found(drive, sightings[0].path.clone());
                assigned.push((recorded, sightings));
            }
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::{super::drive_opening::update, *};
    use crate::remote::RemoteSettings;
    use array::{format::DriveId, superblocks::read_places};
    use world::{
        ByteCount,
        real::{self, RealOptions},
    };

    /// A drive of a pool of one, as seen on a disk with that number and WWID.
    fn sighting(superblock: &Superblock, minor: u32, wwid: Option<&str>) -> Sighting {
        let node = PathBuf::from(format!("/dev/sd{minor}"));
        let disk = Disk {
            name: format!("sd{minor}"),
            node: node.clone(),
            number: (8, minor),
            size: ByteCount::gib(4),
            by_id: None,
            model: None,
            serial: Some(format!("Z{minor}")),
            wwid: wwid.map(str::to_owned),
            bay: None,
            is_thin: false,
            is_read_only: false,
            holders: Vec::new(),
        };
        Sighting {
            path: node,
            identity: PathIdentity::Device(8, minor),
            disk: Some(disk),
            access: RemoteSettings::default(),
            superblock: superblock.clone(),
        }
    }

    /// The superblock of a new pool.
    fn superblock() -> Superblock {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        real::run(0, RealOptions::default(), async |world: World| {
            let device: Rc<dyn BlockDevice> =
                Rc::new(FileDevice::create(&path, ByteCount::mib(64)).await.unwrap());
            let drive = array::pool::NewDrive {
                drive: DriveId([1; 16]),
                serial: "Z1".into(),
                device: Rc::clone(&device),
                domain: None,
            };
            let pool = array::pool::NewPool {
                pool: PoolId([2; 16]),
                name: "mail".into(),
                slot_bytes: 1 << 20,
                sparing: array::format::SparingLevel::None,
            };
            array::pool::create(&world, &pool, &[drive]).await.unwrap();
            read_places(&device).await.newest.unwrap()
        })
    }

    #[test]
    fn paths_of_one_disk_are_no_copies_and_copies_are_named() {
        let superblock = superblock();
        let see = |minor, wwid| sighting(&superblock, minor, wwid);
        let folder = Path::new("mail");
        check_one_disk(folder, &[see(1, Some("naa.5")), see(2, Some("naa.5"))])
            .expect("two paths of one disk");
        for (first, second) in [(Some("naa.5"), Some("naa.6")), (None, None), (Some("naa.5"), None)] {
            let refused = check_one_disk(folder, &[see(1, first), see(2, second)]).unwrap_err().to_string();
            let story = "mail: /dev/sd1 (serial Z1, generation 1) and /dev/sd2 (serial Z2, generation 1) have the \
                         superblock of one drive: one is a copy of the other";
            assert!(refused.starts_with(story), "{refused}");
        }
    }

    #[test]
    fn a_drive_found_elsewhere_is_recorded_by_a_name_that_stays() {
        let mut seen = sighting(&superblock(), 7, None);
        let disk = seen.disk.as_mut().unwrap();
        (disk.by_id, disk.bay) = (Some("/dev/disk/by-id/ata-ST4000NM_Z7".into()), Some("7".into()));
        let mut recorded =
            RecordedDrive { drive: None, ..RecordedDrive::found(DriveId([1; 16]), "/dev/none-such".into()) };
        let before = update(Path::new("mail"), &mut recorded, &seen);
        assert_eq!(before, Some("/dev/none-such".into()));
        assert_eq!(recorded.path, Path::new("/dev/disk/by-id/ata-ST4000NM_Z7"));
        let name = recorded.name(Path::new("mail"), Some(&seen.path));
        assert_eq!(name, "bay 7, serial Z7, now /dev/sd7");
    }
}
