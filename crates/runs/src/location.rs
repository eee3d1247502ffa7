//! One path of the user, as plain facts.
//!
//! [`super::survey`] gathers the facts; [`super::acceptance`] has the rules under which Spindle writes
//! there. Neither touches anything, so tests can try every rule on invented facts.

use crate::{manifest::Manifest, remote::RemoteDevice, sizing::RunVolume};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{ByteCount, IoError};

/// Below this much free space on a raw device a run makes no sense.
pub const DEVICE_SIZE_MIN: ByteCount = ByteCount::mib(64);
/// Load of others on a device that is worth a warning, in percent of its time.
pub const BUSY_PERCENT_MAX: f64 = 10.0;

/// Use of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRole {
    /// Databases, and logs unless they have paths of their own.
    Databases,
    /// Transaction logs only.
    Logs,
    /// Files are to be removed.
    Cleaning,
}

/// Kind of a path, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoragePathKind {
    /// `nearest` is the closest parent that exists.
    Missing {
        nearest: PathBuf,
    },
    /// The path, or a part of it, is a link to nothing.
    DanglingLink {
        link: PathBuf,
        target: PathBuf,
    },
    /// An object that can hold no database, with its article.
    NotStorage(&'static str),
    /// The kernel's reason why the path could not be examined.
    Unreachable(String),
    Folder,
    Device,
}

/// A path that exists.
#[derive(Clone, Debug)]
pub struct ResolvedPath {
    /// As the user wrote it.
    pub given: PathBuf,
    /// Absolute, without links.
    pub canonical: PathBuf,
    pub is_device: bool,
    /// Set for a device of another machine.
    pub remote: Option<Arc<dyn RemoteDevice>>,
}

/// Facts of the drive below a path. Any may be unknown (a network mount has no model).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveFacts {
    /// Kernel name, such as `sda` or `nvme0n1`.
    pub name: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    /// True for a spinning disk.
    pub rotational: Option<bool>,
    /// `write back` or `write through`, according to the kernel.
    pub write_cache: Option<String>,
    /// Share of time at work during the survey, in percent.
    pub busy_percent: Option<f64>,
}

/// A folder, before the run writes.
#[derive(Clone, Debug)]
pub struct FolderFacts {
    /// Absolute, without links; for a default folder that is not made yet, its future path.
    pub canonical: PathBuf,
    /// False if this run must make it.
    pub exists: bool,
    /// Type of the filesystem, such as `ext4`.
    pub filesystem: String,
    pub mount_point: PathBuf,
    /// The mounted device, such as `/dev/sda1`.
    pub source: String,
    pub total: ByteCount,
    /// Free for this user.
    pub free: ByteCount,
    pub read_only: bool,
    pub writable: bool,
    /// Names in the folder that are not listed in its manifest.
    pub foreign: Vec<String>,
    /// The record of an earlier run.
    pub manifest: Option<Manifest>,
    /// Damage of that record.
    pub manifest_damage: Option<String>,
    /// Files of an earlier run, and their sizes.
    pub made: BTreeMap<String, ByteCount>,
    pub drive: DriveFacts,
}

/// A raw block device, before the run writes.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Path without links.
    pub canonical: PathBuf,
    pub size: ByteCount,
    /// Mount point of it or of a part of it, or `swap`.
    pub mounted: Option<String>,
    /// Signature found in its first bytes.
    pub signature: Option<String>,
    /// The signature is no known format, so `wipefs` finds nothing to remove.
    pub is_unmarked: bool,
    /// `Some` if its first bytes are Spindle's own; holds the record if a run got that far.
    pub ours: Option<Option<Manifest>>,
    /// Files of an earlier run, and their sizes.
    pub made: BTreeMap<String, ByteCount>,
    pub read_only: bool,
    /// The error when it was opened exclusively (O_EXCL).
    pub held: Option<IoError>,
    pub drive: DriveFacts,
    /// Set for a device of another machine, whose path is a URI.
    pub remote: Option<Arc<dyn RemoteDevice>>,
}

/// A path that passed all rules.
#[derive(Clone, Debug)]
pub struct RunLocation {
    /// As the user wrote it.
    pub given: PathBuf,
    pub facts: LocationFacts,
}

#[derive(Clone, Debug)]
pub enum LocationFacts {
    Folder(FolderFacts),
    Device(DeviceFacts),
}

impl RunLocation {
    /// Absolute, without links.
    pub fn canonical(&self) -> &Path {
        match &self.facts {
            LocationFacts::Folder(folder) => &folder.canonical,
            LocationFacts::Device(device) => &device.canonical,
        }
    }

    pub fn drive(&self) -> &DriveFacts {
        match &self.facts {
            LocationFacts::Folder(folder) => &folder.drive,
            LocationFacts::Device(device) => &device.drive,
        }
    }

    pub fn drive_mut(&mut self) -> &mut DriveFacts {
        match &mut self.facts {
            LocationFacts::Folder(folder) => &mut folder.drive,
            LocationFacts::Device(device) => &mut device.drive,
        }
    }

    /// The record of an earlier run.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.facts {
            LocationFacts::Folder(folder) => folder.manifest.as_ref(),
            LocationFacts::Device(device) => device.ours.as_ref()?.as_ref(),
        }
    }

    pub fn is_device(&self) -> bool {
        matches!(self.facts, LocationFacts::Device(_))
    }

    /// The remote device that it is.
    pub fn remote(&self) -> Option<&Arc<dyn RemoteDevice>> {
        match &self.facts {
            LocationFacts::Folder(_) => None,
            LocationFacts::Device(device) => device.remote.as_ref(),
        }
    }

    /// Bytes of a filesystem that an earlier run took, and a new one may take again.
    pub fn ours(&self) -> ByteCount {
        match &self.facts {
            LocationFacts::Folder(_) => self.made().values().fold(ByteCount(0), |sum, &size| sum + size),
            // A raw device counts as free completely.
            LocationFacts::Device(_) => ByteCount(0),
        }
    }

    /// Files of an earlier run, and their sizes.
    pub fn made(&self) -> &BTreeMap<String, ByteCount> {
        match &self.facts {
            LocationFacts::Folder(folder) => &folder.made,
            LocationFacts::Device(device) => &device.made,
        }
    }

    /// The filesystem or device of the location, without files of this run.
    pub fn volume(&self) -> RunVolume {
        let given = self.given.display();
        let (name, total, free, is_filesystem) = match &self.facts {
            LocationFacts::Folder(folder) => {
                let name = format!("{given} ({} at {})", folder.filesystem, folder.mount_point.display());
                (name, folder.total, folder.free + self.ours(), true)
            }
            LocationFacts::Device(device) => (given.to_string(), device.size, device.size, false),
        };
        RunVolume {
            name,
            key: self.volume_key(),
            total,
            free,
            is_filesystem,
            databases: 0,
            log_series: 0,
            drives: (0, 0),
        }
    }

    /// Equal exactly for locations on one filesystem or device.
    fn volume_key(&self) -> String {
        match &self.facts {
            LocationFacts::Folder(folder) => format!("{} at {}", folder.source, folder.mount_point.display()),
            LocationFacts::Device(device) => device.canonical.display().to_string(),
        }
    }

    /// True if it lies on that filesystem or device.
    pub fn is_on(&self, volume: &RunVolume) -> bool {
        volume.key == self.volume_key()
    }

    /// Warnings to print before the run.
    pub fn warnings(&self) -> Vec<String> {
        let given = self.given.display();
        let mut warnings = Vec::new();
        if let Some(busy) = self.drive().busy_percent
            && busy > BUSY_PERCENT_MAX
        {
            let name = self.drive().name.as_deref().unwrap_or("its device");
            warnings.push(format!("{given}: {name} is busy with other work ({busy:.0} % of the time)"));
        }
        match &self.facts {
            LocationFacts::Folder(folder) => {
                if is_memory(&folder.filesystem) {
                    warnings.push(format!(
                        "{given} lies in memory ({}): this proves nothing about a drive",
                        folder.filesystem
                    ));
                }
                if folder.manifest.is_some() && !folder.foreign.is_empty() {
                    warnings.push(format!(
                        "{given} also holds what Spindle did not make, and will not touch: {}",
                        name_some(&folder.foreign)
                    ));
                }
            }
            LocationFacts::Device(device) => {
                if let (Some(signature), None) = (&device.signature, &device.ours) {
                    warnings
                        .push(format!("{given}: {signature} on it will be lost (unlocked by its serial)"));
                }
            }
        }
        warnings
    }
}

/// True for filesystems in memory.
pub fn is_memory(filesystem: &str) -> bool {
    matches!(filesystem, "tmpfs" | "ramfs" | "devtmpfs" | "rootfs")
}

/// Up to three names, and how many more.
pub fn name_some(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        shown.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    shown
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An empty folder on a roomy filesystem.
    pub fn folder(path: &str) -> FolderFacts {
        FolderFacts {
            canonical: path.into(),
            exists: true,
            filesystem: "ext4".to_owned(),
            mount_point: "/".into(),
            source: "/dev/sda1".to_owned(),
            total: ByteCount::gib(100),
            free: ByteCount::gib(80),
            read_only: false,
            writable: true,
            foreign: Vec::new(),
            manifest: None,
            manifest_damage: None,
            made: BTreeMap::new(),
            drive: DriveFacts { name: Some("sda".to_owned()), ..DriveFacts::default() },
        }
    }

    /// An empty raw device with a serial number.
    pub fn device() -> DeviceFacts {
        DeviceFacts {
            canonical: "/dev/sdb".into(),
            size: ByteCount::gib(500),
            mounted: None,
            signature: None,
            is_unmarked: false,
            ours: None,
            made: BTreeMap::new(),
            read_only: false,
            held: None,
            drive: DriveFacts { serial: Some("WD-1234".to_owned()), ..DriveFacts::default() },
            remote: None,
        }
    }

    #[test]
    fn a_busy_drive_and_a_filesystem_in_memory_are_named() {
        let mut facts = folder("/tmp");
        facts.filesystem = "tmpfs".to_owned();
        facts.drive.busy_percent = Some(42.0);
        let location = RunLocation { given: "/tmp".into(), facts: LocationFacts::Folder(facts) };
        assert_eq!(
            location.warnings(),
            [
                "/tmp: sda is busy with other work (42 % of the time)",
                "/tmp lies in memory (tmpfs): this proves nothing about a drive"
            ]
        );
    }
}
