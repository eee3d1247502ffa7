//! The disks of this machine, and whether each is free for a pool.
//!
//! Nothing is written, and no lock is taken. A disk that is mounted, swap, or part of another device is not read.

use array::{format::PoolId, superblocks::read_places};
use std::{path::PathBuf, rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, IoError, IoErrorKind, IoResult, World,
    real::{
        FileDevice,
        host::{self, DeviceSignature, DeviceUse, Disk, DiskCatalogue, DriveInfo},
    },
    with_deadline,
};

/// A disk that does not answer within this time is not free.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Content of a device, as the creation of a pool sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceContent {
    Blank,
    /// The drive of a pool, open or not.
    PoolDrive {
        name: String,
        pool: PoolId,
    },
    /// Data of something else.
    Held(DeviceSignature),
}

/// Examines a device without changing it.
///
/// # Errors
///
/// It cannot be read.
pub async fn content_of(device: &Rc<dyn BlockDevice>) -> IoResult<DeviceContent> {
    if let Some(superblock) = read_places(device).await.newest {
        return Ok(DeviceContent::PoolDrive { name: superblock.name.clone(), pool: superblock.pool });
    }
    Ok(match host::signature_of(&**device).await? {
        DeviceSignature::Blank => DeviceContent::Blank,
        held => DeviceContent::Held(held),
    })
}

/// A disk or a partition of this machine.
#[derive(Clone, Debug)]
pub struct ListedDisk {
    pub disk: Disk,
    /// The kernel's name of the disk that it is a partition of.
    pub partition_of: Option<String>,
    /// `None` if the kernel does not tell.
    pub is_rotational: Option<bool>,
    /// Has a write cache that loses its content without power; `None` if the kernel does not tell.
    pub has_volatile_cache: Option<bool>,
    pub state: DiskState,
}

/// Use of a disk for a new pool: free, or the reason why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskState {
    Free,
    /// Mounted, swap, or part of another device.
    InUse(Vec<DeviceUse>),
    /// It is whole, and holds this: never [`DeviceContent::Blank`].
    Holds(DeviceContent),
    /// Write-protected.
    ReadOnly,
    /// This process has no permission to read it.
    Denied,
    /// It does not answer, or with an error.
    Unreadable(String),
}

impl ListedDisk {
    /// The path to give to a pool: the same after a restart, where the system has such a name.
    pub fn path(&self) -> &PathBuf {
        self.disk.by_id.as_ref().unwrap_or(&self.disk.node)
    }

    pub fn size(&self) -> ByteCount {
        self.disk.size
    }
}

/// Lists the disks and partitions of a system by kernel name, and examines all of them at once: a slow one does not delay the
/// others, and the call takes 10 s at most.
///
/// # Errors
///
/// sysfs is not mounted.
pub async fn list_disks(world: &World, catalogue: &DiskCatalogue) -> IoResult<Vec<ListedDisk>> {
    let mut under_way = Vec::new();
    for disk in catalogue.disks()? {
        let usage = catalogue.usage(disk.number);
        let drive = catalogue.drive_of(&disk);
        let (timer, examined) = (world.clone(), disk.clone());
        let state = world.spawn("examine a disk", async move { state_of(&timer, &examined, usage).await });
        under_way.push((disk, drive, state));
    }
    let mut disks = Vec::new();
    for (disk, drive, state) in under_way {
        let cache = drive.as_ref().and_then(|drive| drive.write_cache.as_deref());
        let has_volatile_cache = cache.map(|cache| cache == "write back");
        let is_rotational = drive.as_ref().and_then(|drive| drive.rotational);
        let whole = drive.map(|DriveInfo { name, .. }| name).filter(|name| *name != disk.name);
        let state = state.await;
        disks.push(ListedDisk { disk, partition_of: whole, is_rotational, has_volatile_cache, state });
    }
    Ok(disks)
}

async fn state_of(world: &World, disk: &Disk, usage: IoResult<Vec<DeviceUse>>) -> DiskState {
    match usage {
        Err(error) => return DiskState::Unreadable(error.to_string()),
        Ok(usage) if !usage.is_empty() => return DiskState::InUse(usage),
        Ok(_) => {}
    }
    let content = async {
        // In a container the node may be missing, or another disk's.
        if host::device_number(&disk.node)? != disk.number {
            let problem = format!("{} is another device", disk.node.display());
            return Err(IoError::new(IoErrorKind::WrongType, problem));
        }
        let device = Rc::new(FileDevice::open_shared(&disk.node).await?) as Rc<dyn BlockDevice>;
        content_of(&device).await
    };
    match with_deadline(world.sleep(ANSWER_WITHIN), content).await {
        None => DiskState::Unreadable(format!("it did not answer for {} s", ANSWER_WITHIN.as_secs())),
        Some(Err(error)) if error.kind() == IoErrorKind::PermissionDenied => DiskState::Denied,
        Some(Err(error)) => DiskState::Unreadable(error.to_string()),
        Some(Ok(DeviceContent::Blank)) if disk.is_read_only => DiskState::ReadOnly,
        Some(Ok(DeviceContent::Blank)) => DiskState::Free,
        Some(Ok(content)) => DiskState::Holds(content),
    }
}

#[cfg(test)]
// They imitate a system's files.
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink, path::Path};
    use world::real::{self, RealOptions};

    /// A block device in an imitated system, with a file of `sys` for each fact.
    fn add(root: &Path, device: &str, number: &str, facts: &[(&str, &str)]) {
        let folder = root.join("sys/devices").join(device);
        let name = folder.file_name().unwrap().to_str().unwrap();
        for (fact, text) in [("dev", number), ("size", "4096")].iter().chain(facts) {
            fs::create_dir_all(folder.join(fact).parent().unwrap()).unwrap();
            fs::write(folder.join(fact), text).unwrap();
        }
        for link in [format!("sys/class/block/{name}"), format!("sys/dev/block/{number}")] {
            let link = root.join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(&folder, link).unwrap();
        }
    }

    #[test]
    fn disks_are_listed_with_their_caches_and_uses_and_one_that_is_not_there_is_not_free() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        add(root, "a/sda", "8:0", &[("queue/rotational", "1"), ("queue/write_cache", "write back")]);
        add(root, "a/sda/sda1", "8:1", &[("partition", "1")]);
        add(root, "b/sdb", "8:16", &[("queue/rotational", "0"), ("queue/write_cache", "write through")]);
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), "27 1 8:1 / /home rw - ext4 /dev/sda1 rw\n").unwrap();
        let disks = real::run(0, RealOptions::default(), async |world: World| {
            list_disks(&world, &DiskCatalogue::below(root)).await.unwrap()
        });
        let [sda, sda1, sdb] = &disks[..] else { panic!("three: {disks:?}") };
        let home = DiskState::InUse(vec![DeviceUse::Mounted("/home".into())]);
        assert_eq!((&sda.state, &sda1.state), (&home, &home));
        assert_eq!((sda.is_rotational, sda.has_volatile_cache), (Some(true), Some(true)));
        assert_eq!((sdb.is_rotational, sdb.has_volatile_cache), (Some(false), Some(false)));
        assert_eq!((&sda.partition_of, sda1.partition_of.as_deref()), (&None, Some("sda")));
        assert!(matches!(&sdb.state, DiskState::Unreadable(_)), "{:?}", sdb.state);
        assert_eq!(sdb.path(), &root.join("dev/sdb"), "without a link by its identity");
    }
}
