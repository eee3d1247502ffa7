//! Uses of a block device: mounts, swap, devices built on it.

use super::{
    disk::DiskCatalogue,
    drive::device_number,
    fact,
    mount::{Mount, unescape},
};
use crate::{IoError, IoResult};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A use of a block device or of one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    Mounted(PathBuf),
    Swap,
    /// Part of another device: a RAID, a volume group, an encrypted device.
    HeldBy(String),
}

/// All uses of a block device and its partitions that forbid writing to it; empty if it is free.
pub fn usage_of_device(path: &Path) -> IoResult<Vec<DeviceUse>> {
    DiskCatalogue::default().usage(device_number(path)?)
}

impl DiskCatalogue {
    /// All uses of the block device with this major and minor number, and of its partitions, that forbid writing to it; empty if
    /// it is free.
    ///
    /// # Errors
    ///
    /// The table of mounts cannot be read.
    pub fn usage(&self, number: (u32, u32)) -> IoResult<Vec<DeviceUse>> {
        let parts = self.parts_of(number);
        let mounts = fs::read_to_string(self.proc.join("self/mountinfo"))
            .map_err(|error| IoError::from_os(error, "reading the table of mounts"))?;
        let is_part = |source: &str| self.number_of(source).is_some_and(|source| parts.contains(&source));
        let mounted = mounts
            .lines()
            .filter_map(Mount::parse)
            // btrfs has device numbers of its own, so the mount's source counts as well.
            .filter(|mount| parts.contains(&mount.device) || is_part(&mount.source))
            .map(|mount| DeviceUse::Mounted(mount.point));
        let mut usage: Vec<DeviceUse> = mounted.collect();
        let swaps = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        for line in swaps.lines().skip(1) {
            let source = line.split_whitespace().next().map(unescape).unwrap_or_default();
            if is_part(&source) {
                usage.push(DeviceUse::Swap);
            }
        }
        for part in parts {
            let holders = fs::read_dir(self.folder_of(part).join("holders"));
            for holder in holders.into_iter().flatten().flatten() {
                usage.push(DeviceUse::HeldBy(holder.file_name().to_string_lossy().into_owned()));
            }
        }
        Ok(usage)
    }

    fn folder_of(&self, (major, minor): (u32, u32)) -> PathBuf {
        self.sys.join(format!("dev/block/{major}:{minor}"))
    }

    /// Device numbers of a device and, if it is a whole drive, of its partitions.
    fn parts_of(&self, device: (u32, u32)) -> Vec<(u32, u32)> {
        let mut parts = vec![device];
        for entry in fs::read_dir(self.folder_of(device)).into_iter().flatten().flatten() {
            let folder = entry.path();
            if folder.join("partition").exists() {
                parts.extend(number_in(&folder));
            }
        }
        parts.sort_unstable();
        parts
    }

    /// The number of a device that a table of the kernel names by a path.
    fn number_of(&self, source: &str) -> Option<(u32, u32)> {
        let Some(name) = source.strip_prefix("/dev/") else { return device_number(Path::new(source)).ok() };
        // In a container the node may be missing.
        let by_name = || number_in(&self.sys.join("class/block").join(name));
        device_number(&self.dev.join(name)).ok().or_else(by_name)
    }
}

/// The device number in a folder of /sys.
fn number_in(folder: &Path) -> Option<(u32, u32)> {
    let number = fact(folder.join("dev"))?;
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{super::disk::tests::FakeSystem, *};

    #[test]
    fn a_disk_is_used_by_what_is_mounted_swapped_or_built_on_it_or_its_partitions() {
        let system = FakeSystem::new();
        for (name, number) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32"), ("sdd", "8:48")] {
            system.disk(&format!("virtual/{name}"), number, 4096);
        }
        system.disk("virtual/sda/sda1", "8:1", 2048);
        system.file("sys/devices/virtual/sda/sda1/partition", "1");
        system.file("sys/devices/virtual/sdb/holders/md0", "");
        system.file(
            "proc/self/mountinfo",
            "27 1 8:1 / /srv/my\\040mail rw,relatime - ext4 /dev/sda1 rw\n\
             28 27 0:25 / /mnt rw - btrfs /dev/sdb rw\n",
        );
        system.file("proc/swaps", "Filename Type Size Used Priority\n/dev/sdc partition 1 0 -2\n");
        let usage = |number| system.catalogue().usage(number).unwrap();
        let mounted = |point: &str| DeviceUse::Mounted(point.into());
        assert_eq!(usage((8, 0)), [mounted("/srv/my mail")], "by its partition");
        assert_eq!(usage((8, 1)), [mounted("/srv/my mail")]);
        assert_eq!(usage((8, 16)), [mounted("/mnt"), DeviceUse::HeldBy("md0".to_owned())]);
        assert_eq!(usage((8, 32)), [DeviceUse::Swap]);
        assert_eq!(usage((8, 48)), []);
    }
}
