//! Filesystems that must take writes so that a path can be written: that of the path, and those of the files behind
//! its loop devices, down to real drives.

use super::{drive::device_number, fact, mount::Mount};
use crate::{IoError, IoErrorKind, IoResult};
use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// The filesystems and devices below a path.
#[derive(Debug, Default)]
pub(in crate::real) struct Backing {
    /// Numbers of filesystems, as in the table of mounts.
    pub filesystems: BTreeSet<(u32, u32)>,
    devices: BTreeSet<(u32, u32)>,
}

impl Backing {
    /// Follows an existing path, a file or a block device, through partitions, mapped devices and loop devices.
    pub fn of(path: &Path, mounts: &[Mount]) -> IoResult<Self> {
        let mut backing = Self::default();
        backing.add_path(path, mounts)?;
        Ok(backing)
    }

    fn add_path(&mut self, path: &Path, mounts: &[Mount]) -> IoResult<()> {
        if let Ok(device) = device_number(path) {
            return self.add_device(device, mounts);
        }
        let mount = mount_of(path, mounts)?;
        if !self.filesystems.insert(mount.device) {
            return Ok(());
        }
        if mount.kind == "overlay" {
            return self.add_overlay(mount, mounts);
        }
        if mount.device.0 != 0 {
            return self.add_device(mount.device, mounts);
        }
        // btrfs has a number that is no device, and may have several devices.
        let Ok(source) = device_number(Path::new(&mount.source)) else { return Ok(()) };
        for device in btrfs_devices_of(source) {
            self.add_device(device, mounts)?;
        }
        self.add_device(source, mounts)
    }

    /// An overlay writes to its upper folder.
    fn add_overlay(&mut self, mount: &Mount, mounts: &[Mount]) -> IoResult<()> {
        let upper = mount.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        // Without one it is never written.
        let Some(upper) = upper else { return Ok(()) };
        self.add_path(Path::new(upper), mounts).map_err(|_| {
            let story = format!("cannot tell where the overlay at {} is written", mount.point.display());
            IoError::new(IoErrorKind::Unsupported, story)
        })
    }

    fn add_device(&mut self, device: (u32, u32), mounts: &[Mount]) -> IoResult<()> {
        if !self.devices.insert(device) {
            return Ok(());
        }
        let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{}:{}", device.0, device.1)) else {
            return Ok(());
        };
        if folder.join("partition").exists()
            && let Some(whole) = folder.parent().and_then(number_in)
        {
            self.add_device(whole, mounts)?;
        }
        for slave in fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
            if let Some(slave) = number_in(&slave.path()) {
                self.add_device(slave, mounts)?;
            }
        }
        if let Some(file) = fact(folder.join("loop/backing_file")) {
            self.add_path(Path::new(&file), mounts).map_err(|_| {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                let story = format!("cannot tell on which filesystem the file of /dev/{name} lies: {file}");
                IoError::new(IoErrorKind::Unsupported, story)
            })?;
        }
        Ok(())
    }
}

/// The mount that holds an existing path, as the kernel resolves it.
fn mount_of<'m>(path: &Path, mounts: &'m [Mount]) -> IoResult<&'m Mount> {
    let opened = open_path(path, OFlags::PATH)?;
    let id = mount_id(&opened).map_err(|error| {
        IoError::from_os(error.into(), format!("examining the mount of {}", path.display()))
    })?;
    mounts.iter().find(|mount| mount.id == id).ok_or_else(|| {
        let story = format!("the mount of {} is not in the table of mounts", path.display());
        IoError::new(IoErrorKind::NotFound, story)
    })
}

pub(in crate::real) fn open_path(path: &Path, flags: OFlags) -> IoResult<OwnedFd> {
    open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| IoError::from_os(error.into(), format!("opening {}", path.display())))
}

/// The mount of an open file or folder, by its number in the table of mounts.
pub(in crate::real) fn mount_id(opened: &OwnedFd) -> Result<u64, Errno> {
    let found = statx(opened, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::NOSYS);
    }
    Ok(found.stx_mnt_id)
}

/// The device number in a folder of /sys.
fn number_in(folder: &Path) -> Option<(u32, u32)> {
    let number = fact(folder.join("dev"))?;
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// All devices of the btrfs filesystem that has this one.
fn btrfs_devices_of(device: (u32, u32)) -> Vec<(u32, u32)> {
    for filesystem in fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten() {
        let devices: Vec<PathBuf> = fs::read_dir(filesystem.path().join("devices"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let numbers: Vec<(u32, u32)> = devices.iter().filter_map(|folder| number_in(folder)).collect();
        if numbers.contains(&device) {
            return numbers;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_on_the_filesystem_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mounts = Mount::all().unwrap();
        let of_file = Backing::of(&file, &mounts).unwrap();
        let own = mount_of(folder.path(), &mounts).unwrap();
        assert!(of_file.filesystems.contains(&own.device), "{of_file:?} {own:?}");
        assert_eq!(Backing::of(folder.path(), &mounts).unwrap().filesystems, of_file.filesystems);
        assert!(folder.path().canonicalize().unwrap().starts_with(&own.point));
        assert!(Backing::of(&folder.path().join("none"), &mounts).is_err());
    }
}
