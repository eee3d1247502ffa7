//! The names the kernel may use for the devices under test.
//!
//! A volume is several devices: a folder is on a partition of a drive, on a mapped device or on an array of
//! several, and the kernel may name a drive by its address (`0:0:1:0`), its port (`ata3`) or its controller
//! (`nvme0`). All devices down to the lowest are collected from /sys; siblings (another partition of the
//! drive) are not.

use super::record::KernelRecord;
use crate::real::host::{drive::device_number, fact, mount::filesystem_of};
use rustix::fs::{major, minor};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Levels of stacked devices, at most: a loop device may be backed by a file on a loop device.
const DEPTH_MAX: u32 = 16;

/// A set of device names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames(BTreeSet<String>);

impl DeviceNames {
    pub fn of_names(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().filter(|name| !name.is_empty()).collect())
    }

    /// The names of all devices under `path`: a block device, or a folder on a filesystem. Empty where /sys
    /// has no device (memory, an unknown network filesystem).
    pub fn of_path(path: &Path) -> Self {
        let mut names = Self::default();
        names.add_path(path, DEPTH_MAX);
        names
    }

    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names in sorted order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The name by which a message mentions one of the devices; the longest, if it uses several.
    pub fn named_in(&self, record: &KernelRecord) -> Option<String> {
        let apart = record.device.as_deref().map(|device| {
            device
                .strip_prefix('b')
                .unwrap_or_else(|| device.rsplit_once("scsi:").map_or(device, |(_, rest)| rest))
        });
        let named =
            self.0.iter().filter(|name| Some(name.as_str()) == apart || stands_in(name, &record.text));
        // A name identifies a device better than a number.
        let worth = |name: &&String| (name.starts_with(|c: char| c.is_ascii_alphabetic()), name.len());
        named.max_by_key(worth).cloned()
    }

    fn add_path(&mut self, path: &Path, depth: u32) {
        let Ok(found) = fs::metadata(path) else { return };
        if found.file_type().is_block_device() {
            return self.add_device((major(found.rdev()), minor(found.rdev())), depth);
        }
        let device = found.dev();
        self.add_device((major(device), minor(device)), depth);
        // btrfs and overlays have numbers of their own, and a network filesystem has none.
        let Ok(filesystem) = filesystem_of(path) else { return };
        if filesystem.kind.starts_with("nfs") {
            self.0.extend(filesystem.source.split_once(':').map(|(server, _)| server.to_owned()));
        } else if let Ok(number) = device_number(Path::new(&filesystem.source)) {
            self.add_device(number, depth);
        }
    }

    fn add_device(&mut self, (major, minor): (u32, u32), depth: u32) {
        if let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
            self.add_folder(&folder, depth);
        }
    }

    /// Adds the device of a /sys folder and all devices below it.
    fn add_folder(&mut self, folder: &Path, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        self.add_names(folder);
        if folder.join("partition").exists()
            && let Some(whole) = folder.parent()
        {
            self.add_folder(whole, depth);
        }
        for below in fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
            if let Ok(below) = fs::canonicalize(below.path()) {
                self.add_folder(&below, depth);
            }
        }
        if let Some(file) = fact(folder.join("loop/backing_file")) {
            self.add_path(Path::new(&file), depth);
        }
    }

    /// Adds the names of one device: kernel name, number, address, port, controller and session.
    fn add_names(&mut self, folder: &Path) {
        let last = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.0.extend(last(folder.to_owned()));
        self.0.extend(fact(folder.join("dev")));
        // A mapped device's name may be any word, so it counts only with its prefix.
        self.0.extend(fact(folder.join("dm/name")).map(|name| format!("mapper/{name}")));
        let device = fs::canonicalize(folder.join("device")).ok().and_then(last);
        self.0.extend(device.filter(|name| is_address(name) || name.starts_with("nvme")));
        for part in folder.components() {
            self.0.extend(name_on_the_way(&part.as_os_str().to_string_lossy()));
        }
    }
}

/// True of a SCSI address: host, channel, target, unit.
fn is_address(name: &str) -> bool {
    name.split(':').count() == 4 && name.split(':').all(|part| part.parse::<u64>().is_ok())
}

/// The name of a /sys path component that the kernel uses in messages: a port, a controller, an iSCSI
/// session.
fn name_on_the_way(part: &str) -> Option<String> {
    let numbered = |prefix: &str| {
        let number = part.strip_prefix(prefix)?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
    };
    if numbered("ata").is_some() || numbered("nvme").is_some() {
        return Some(part.to_owned());
    }
    numbered("session").map(|number| format!("connection{number}:0"))
}

/// True if `name` occurs in `text` as a whole word: `sda` does not match `sda1`.
fn stands_in(name: &str, text: &str) -> bool {
    let mut from = 0;
    while let Some(at) = text[from..].find(name) {
        let (start, end) = (from + at, from + at + name.len());
        let before = text[..start].chars().next_back();
        let mut after = text[end..].chars();
        let is_joined = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        // `8:16` does not match `8:16:0:0`, but `sda` matches `sda: …`.
        let goes_on = match after.next() {
            Some(':' | '-') => after.next().is_some_and(|c| c.is_ascii_digit()) && name.contains(':'),
            next => is_joined(next),
        };
        let came_before = match before {
            Some(':') => name.contains(':') && text[..start - 1].ends_with(|c: char| c.is_ascii_digit()),
            before => is_joined(before),
        };
        if !goes_on && !came_before {
            return true;
        }
        from = end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str, device: Option<&str>) -> KernelRecord {
        KernelRecord {
            facility: 0,
            level: 3,
            at_us: 0,
            text: text.to_owned(),
            device: device.map(str::to_owned),
        }
    }

    #[track_caller]
    fn check(names: &[&str], text: &str, expected: Option<&str>) {
        let names = DeviceNames::of_names(names.iter().map(|&name| name.to_owned()));
        assert_eq!(names.named_in(&record(text, None)).as_deref(), expected, "{text}");
    }

    #[test]
    fn a_message_matches_a_device_by_its_full_name() {
        check(&["sda", "sda2"], "I/O error, dev sda, sector 8", Some("sda"));
        check(&["sda", "sda2"], "EXT4-fs error (device sda2): ext4_lookup", Some("sda2"));
        check(&["sda", "sda2"], "EXT4-fs error (device sda1): ext4_lookup", None);
        check(&["sda"], "I/O error, dev sdaa, sector 8", None);
        check(&["loop1"], "I/O error, dev loop10, sector 8", None);
        check(&["loop0"], "JBD2: Detected IO errors -5 while flushing file data on loop0-8", Some("loop0"));
        check(&["nvme0"], "nvme0n1: Read(0x2) @ LBA 2048 (sct 0x2", None);
        check(&["nvme0", "nvme0n1"], "nvme nvme0: I/O 1 QID 2 timeout", Some("nvme0"));
        check(&["ata3"], "ata3.00: failed command: READ DMA", Some("ata3"));
        check(&["ata3"], "ata30: hard resetting link", None);
        check(&["0:0:1:0", "sdb"], "sd 0:0:1:0: [sdb] tag#12 Sense Key", Some("sdb"));
        check(&["0:0:1:0"], "sd 10:0:1:0: rejecting I/O to offline device", None);
        check(&["0:0:1:0"], "sd 1:0:0:1:0: odd", None);
        check(&["8:16"], "multipath: 253:3: Failing path 8:16.", Some("8:16"));
        check(&["8:16"], "sd 8:16:0:0: rejecting I/O", None);
        check(&["connection1:0"], " connection1:0: detected conn error (1022)", Some("connection1:0"));
        check(
            &["mapper/root"],
            "BTRFS error (device dm-0): bdev /dev/mapper/root errs: wr 0",
            Some("mapper/root"),
        );
        check(&["mapper/root"], "EXT4-fs error (device sdz): comm root", None);
        check(&["filer1"], "nfs: server filer1 not responding", Some("filer1"));
        check(&[], "I/O error, dev sda, sector 8", None);
    }

    #[test]
    fn a_device_key_of_the_record_counts() {
        let names = DeviceNames::of_names(["8:16".to_owned(), "0:0:1:0".to_owned()]);
        assert_eq!(names.named_in(&record("I/O error", Some("b8:16"))).as_deref(), Some("8:16"));
        assert_eq!(names.named_in(&record("reset", Some("+scsi:0:0:1:0"))).as_deref(), Some("0:0:1:0"));
        assert_eq!(names.named_in(&record("reset", Some("+scsi:0:0:2:0"))), None);
    }

    #[test]
    fn ports_controllers_and_sessions_are_found_in_a_sys_path() {
        let found = |part| name_on_the_way(part);
        assert_eq!(found("ata3").as_deref(), Some("ata3"));
        assert_eq!(found("nvme0").as_deref(), Some("nvme0"));
        assert_eq!(found("session12").as_deref(), Some("connection12:0"));
        assert_eq!(
            [found("ata_port"), found("nvme"), found("host3"), found("target3:0:0")],
            [None, None, None, None]
        );
        assert!(is_address("3:0:0:1") && !is_address("3:0:0") && !is_address("nvme0"));
    }

    #[test]
    fn a_folder_has_named_devices_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = DeviceNames::of_path(folder.path());
        if names.is_empty() {
            return println!("skipped: no device visible");
        }
        assert!(names.iter().any(|name| name.starts_with(|c: char| c.is_ascii_alphabetic())), "{names:?}");
        assert!(DeviceNames::of_path(&folder.path().join("none")).is_empty());
    }
}
