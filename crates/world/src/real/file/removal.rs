//! Block devices that are removed while they are open: a disk that was pulled, not one whose medium fails.
//!
//! The kernel fails operations of either with EIO. Soon a removed device has no bytes, too: writes fail with ENOSPC,
//! and reads find its end. But sysfs no longer lists it, or says that it is on its way out.

use crate::{IoError, IoErrorKind, real::engine::Engine};
use rustix::fs::{major, minor};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

/// A failed operation may end some milliseconds before the kernel begins to remove the device.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A block device as sysfs listed it when it was opened.
#[derive(Debug)]
pub(super) struct ListedDevice {
    /// Its link in `/sys/dev/block`.
    link: PathBuf,
    /// Target of the link then.
    folder: PathBuf,
    /// Sectors of it.
    size: PathBuf,
    /// State of the disk that it is, or is a part of, if the disk has one.
    state: PathBuf,
}

impl ListedDevice {
    /// `None` where sysfs does not list the device.
    pub fn find(number: u64) -> Option<Self> {
        Self::below(Path::new("/sys"), (major(number), minor(number)))
    }

    fn below(sys: &Path, (major, minor): (u32, u32)) -> Option<Self> {
        let link = sys.join(format!("dev/block/{major}:{minor}"));
        let folder = fs::canonicalize(&link).ok()?;
        let is_part = folder.join("partition").exists();
        let whole = if is_part { folder.parent()? } else { &folder };
        Some(Self { state: whole.join("device/state"), size: folder.join("size"), link, folder })
    }

    fn is_removed(&self) -> bool {
        let is_listed = fs::canonicalize(&self.link).is_ok_and(|folder| folder == self.folder);
        let is_empty = fs::read_to_string(&self.size).is_ok_and(|sectors| sectors.trim() == "0");
        let state = fs::read_to_string(&self.state).unwrap_or_default();
        // The first two are a SCSI disk's, the third is an NVMe controller's.
        !is_listed
            || is_empty
            || ["cancel", "deleted", "deleting"].iter().any(|leaving| state.starts_with(leaving))
    }

    fn is_removed_soon(&self) -> bool {
        let looks = SEEN_WITHIN.as_millis() / LOOK_EVERY.as_millis();
        (0..looks).any(|look| {
            if look > 0 {
                thread::sleep(LOOK_EVERY);
            }
            self.is_removed()
        })
    }

    /// The error of an operation on this device. A failed write waits a moment for the removal to show, as it costs a
    /// pool the drive; a failed read does not.
    pub fn error(&self, failed: IoError, is_read: bool) -> IoError {
        let is_removed = match failed.kind() {
            // ENXIO and ENODEV.
            IoErrorKind::NotFound => true,
            IoErrorKind::Medium if !is_read => self.is_removed_soon(),
            _ => self.is_removed(),
        };
        if is_removed {
            IoError::new(IoErrorKind::Disconnected, format!("{failed}; the device was removed"))
        } else {
            failed
        }
    }
}

/// The error of a failed operation on a device that sysfs lists, or on another one.
pub(super) async fn error(listed: Option<Arc<ListedDevice>>, failed: IoError, is_read: bool) -> IoError {
    match listed {
        // On a helper thread, as it may wait.
        Some(listed) => Engine::current().blocking(move || listed.error(failed, is_read)).await,
        None => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, os::unix::fs::symlink, time::Instant};

    /// A sysfs with a disk and its first partition.
    fn system() -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        let (device, disk) =
            (system.path().join("devices/scsi"), system.path().join("devices/scsi/block/sdb"));
        fs::create_dir_all(disk.join("sdb1")).unwrap();
        fs::create_dir_all(system.path().join("dev/block")).unwrap();
        fs::write(device.join("state"), "running\n").unwrap();
        fs::write(disk.join("size"), "2048\n").unwrap();
        fs::write(disk.join("sdb1/partition"), "1\n").unwrap();
        symlink(&device, disk.join("device")).unwrap();
        symlink(&disk, system.path().join("dev/block/8:16")).unwrap();
        symlink(disk.join("sdb1"), system.path().join("dev/block/8:17")).unwrap();
        system
    }

    fn failed(errno: i32) -> IoError {
        IoError::from_os(io::Error::from_raw_os_error(errno), "writing to /dev/sdb")
    }

    const EIO: i32 = 5;
    const ENXIO: i32 = 6;
    const ENOSPC: i32 = 28;

    #[test]
    fn a_disk_that_was_pulled_is_told_from_one_whose_medium_fails() {
        let system = system();
        let find = |minor| ListedDevice::below(system.path(), (8, minor));
        let (disk, part) = (find(16).unwrap(), find(17).unwrap());
        assert!(find(32).is_none(), "sysfs does not list it");
        for device in [&disk, &part] {
            assert_eq!(device.error(failed(EIO), false).kind(), IoErrorKind::Medium, "it is there");
            assert_eq!(device.error(failed(ENXIO), true).kind(), IoErrorKind::Disconnected);
            assert_eq!(device.error(failed(ENOSPC), false).kind(), IoErrorKind::NoSpace);
        }
        let size = system.path().join("devices/scsi/block/sdb/size");
        fs::write(&size, "0\n").unwrap();
        assert_eq!(disk.error(failed(ENOSPC), false).kind(), IoErrorKind::Disconnected, "it has no bytes");
        fs::write(&size, "2048\n").unwrap();
        fs::write(system.path().join("devices/scsi/state"), "cancel\n").unwrap();
        for device in [&disk, &part] {
            assert_eq!(device.error(failed(EIO), true).kind(), IoErrorKind::Disconnected, "it is leaving");
        }
        fs::remove_dir_all(system.path().join("devices/scsi")).unwrap();
        let pulled = disk.error(failed(EIO), true);
        assert_eq!(pulled.kind(), IoErrorKind::Disconnected);
        assert!(pulled.to_string().ends_with("; the device was removed"), "{pulled}");
        fs::remove_file(system.path().join("dev/block/8:16")).unwrap();
        let other = system.path().join("devices/other");
        fs::create_dir_all(&other).unwrap();
        symlink(other, system.path().join("dev/block/8:16")).unwrap();
        assert_eq!(disk.error(failed(EIO), true).kind(), IoErrorKind::Disconnected, "another has its number");
    }

    #[test]
    fn a_failed_write_waits_for_a_removal_that_shows_later() {
        let system = system();
        let disk = ListedDevice::below(system.path(), (8, 16)).unwrap();
        let begun = Instant::now();
        assert_eq!(disk.error(failed(EIO), true).kind(), IoErrorKind::Medium);
        assert!(begun.elapsed() < SEEN_WITHIN, "a read does not wait");
        let state = system.path().join("devices/scsi/state");
        let removal = thread::spawn(move || {
            thread::sleep(LOOK_EVERY * 3);
            fs::write(state, "deleted\n").unwrap();
        });
        assert_eq!(disk.error(failed(EIO), false).kind(), IoErrorKind::Disconnected);
        removal.join().unwrap();
    }
}
