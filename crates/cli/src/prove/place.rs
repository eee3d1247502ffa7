//! One path of the user's, as plain facts, and the rules under which Spindle will write there.
//!
//! The facts are gathered by [`super::survey`]; here nothing is touched, so every rule can be tried
//! on facts made up by a test. What the rules promise:
//!
//! 1. Nothing that Spindle did not make is ever written over: not a file, not a signed drive.
//! 2. A mounted drive is never written to, whatever the flags.
//! 3. A refused path is left exactly as it was.

use super::{manifest::Manifest, sizing::Volume};
use crate::refusal::Refusal;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::{ByteCount, IoError, IoErrorKind};

/// Below this much free space on a raw device a run makes no sense.
pub const DEVICE_SIZE_MIN: ByteCount = ByteCount::mib(64);
/// Share of its time a device may be at work for others before a warning, in percent.
pub const BUSY_PERCENT_MAX: f64 = 10.0;

/// What a path will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Databases (and logs, if none are placed elsewhere).
    Databases,
    /// Transaction logs only.
    Logs,
    /// Nothing more: what is there is to be removed.
    Cleaning,
}

/// What a path leads to, at first sight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing is there. `nearest` is the closest parent that exists.
    Missing {
        /// The closest parent that exists.
        nearest: PathBuf,
    },
    /// The path, or a part of it, is a link to nothing.
    DanglingLink {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Something is there that can hold no database: what it is, with its article.
    NotStorage(&'static str),
    /// The path could not be looked at: the kernel's reason.
    Unreachable(String),
    /// A folder.
    Folder,
    /// A raw block device.
    Device,
}

/// A path that leads somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// As the user wrote it.
    pub given: PathBuf,
    /// Absolute, without links.
    pub canonical: PathBuf,
    /// True of a raw device.
    pub is_device: bool,
}

/// What is known of the drive below a path. Anything may be unknown (a network mount has no model).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveFacts {
    /// Kernel name, such as `sda` or `nvme0n1`.
    pub name: Option<String>,
    /// Model as the drive tells it.
    pub model: Option<String>,
    /// Serial number as the drive tells it.
    pub serial: Option<String>,
    /// True for a spinning disk.
    pub rotational: Option<bool>,
    /// Share of the time it was at work while we looked, in percent.
    pub busy_percent: Option<f64>,
}

/// A folder, before anything is written.
#[derive(Clone, Debug)]
pub struct FolderFacts {
    /// Absolute, without links; of a default folder not yet made, where it will be.
    pub canonical: PathBuf,
    /// False if this run must make it.
    pub exists: bool,
    /// Type of the filesystem, such as `ext4`.
    pub filesystem: String,
    /// Where that is mounted.
    pub mount_point: PathBuf,
    /// What is mounted there, such as `/dev/sda1`.
    pub source: String,
    /// Size of the filesystem.
    pub total: ByteCount,
    /// Free for this user.
    pub free: ByteCount,
    /// The filesystem is mounted read-only.
    pub read_only: bool,
    /// This user may make files here.
    pub writable: bool,
    /// Names in the folder that are not listed in its manifest.
    pub foreign: Vec<String>,
    /// The record an earlier run left.
    pub manifest: Option<Manifest>,
    /// Why that record could not be read.
    pub manifest_damage: Option<String>,
    /// Files Spindle made there before, and their sizes.
    pub made: BTreeMap<String, ByteCount>,
    /// The drive below.
    pub drive: DriveFacts,
}

/// A raw block device, before anything is written.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Its path without links.
    pub canonical: PathBuf,
    /// Its size.
    pub size: ByteCount,
    /// Where it or a part of it is mounted (or `swap`).
    pub mounted: Option<String>,
    /// What its first bytes say it holds.
    pub signature: Option<String>,
    /// That has no mark of a known format, so `wipefs` finds nothing to remove.
    pub is_unmarked: bool,
    /// Its first bytes are Spindle's own, and this record lies on it if a run got that far.
    pub ours: Option<Option<Manifest>>,
    /// Files Spindle made there before, and their sizes.
    pub made: BTreeMap<String, ByteCount>,
    /// The device cannot be written.
    pub read_only: bool,
    /// Why it could not be opened alone (O_EXCL).
    pub held: Option<IoError>,
    /// The drive itself.
    pub drive: DriveFacts,
}

/// A path that passed every rule.
#[derive(Clone, Debug)]
pub struct Place {
    /// As the user wrote it.
    pub given: PathBuf,
    /// Facts of it.
    pub ground: Ground,
}

/// Folder or device.
#[derive(Clone, Debug)]
pub enum Ground {
    /// A folder.
    Folder(FolderFacts),
    /// A raw device.
    Device(DeviceFacts),
}

impl Place {
    /// Absolute, without links.
    pub fn canonical(&self) -> &Path {
        match &self.ground {
            Ground::Folder(folder) => &folder.canonical,
            Ground::Device(device) => &device.canonical,
        }
    }

    /// The drive below.
    pub fn drive(&self) -> &DriveFacts {
        match &self.ground {
            Ground::Folder(folder) => &folder.drive,
            Ground::Device(device) => &device.drive,
        }
    }

    /// The drive below, to add to what is known of it.
    pub fn drive_mut(&mut self) -> &mut DriveFacts {
        match &mut self.ground {
            Ground::Folder(folder) => &mut folder.drive,
            Ground::Device(device) => &mut device.drive,
        }
    }

    /// The record of an earlier run there.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.ground {
            Ground::Folder(folder) => folder.manifest.as_ref(),
            Ground::Device(device) => device.ours.as_ref()?.as_ref(),
        }
    }

    /// True of a raw device.
    pub fn is_device(&self) -> bool {
        matches!(self.ground, Ground::Device(_))
    }

    /// Bytes of a filesystem that Spindle took before, and a new run may take again.
    pub fn ours(&self) -> ByteCount {
        match &self.ground {
            Ground::Folder(_) => self.made().values().fold(ByteCount(0), |sum, &size| sum + size),
            // A raw device is counted as free in whole.
            Ground::Device(_) => ByteCount(0),
        }
    }

    /// Files that Spindle made there before, and their sizes.
    pub fn made(&self) -> &BTreeMap<String, ByteCount> {
        match &self.ground {
            Ground::Folder(folder) => &folder.made,
            Ground::Device(device) => &device.made,
        }
    }

    /// The filesystem or device it lies on, with nothing of this run on it yet.
    pub fn volume(&self) -> Volume {
        let given = self.given.display();
        let (name, total, free, is_filesystem) = match &self.ground {
            Ground::Folder(folder) => {
                let name = format!("{given} ({} at {})", folder.filesystem, folder.mount_point.display());
                (name, folder.total, folder.free + self.ours(), true)
            }
            Ground::Device(device) => (given.to_string(), device.size, device.size, false),
        };
        Volume { name, key: self.volume_key(), total, free, is_filesystem, databases: 0, log_series: 0 }
    }

    /// Equal for places on one filesystem, and for nothing else.
    fn volume_key(&self) -> String {
        match &self.ground {
            Ground::Folder(folder) => format!("{} at {}", folder.source, folder.mount_point.display()),
            Ground::Device(device) => device.canonical.display().to_string(),
        }
    }

    /// True if it lies on that filesystem or device.
    pub fn is_on(&self, volume: &Volume) -> bool {
        volume.key == self.volume_key()
    }

    /// What must not be passed over in silence.
    pub fn warnings(&self) -> Vec<String> {
        let given = self.given.display();
        let mut warnings = Vec::new();
        if let Some(busy) = self.drive().busy_percent
            && busy > BUSY_PERCENT_MAX
        {
            let name = self.drive().name.as_deref().unwrap_or("its device");
            warnings.push(format!("{given}: {name} is busy with other work ({busy:.0} % of the time)"));
        }
        match &self.ground {
            Ground::Folder(folder) => {
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
            Ground::Device(device) => {
                if let (Some(signature), None) = (&device.signature, &device.ours) {
                    warnings
                        .push(format!("{given}: {signature} on it will be lost (unlocked by its serial)"));
                }
            }
        }
        warnings
    }
}

/// True of filesystems that live in memory.
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

/// Applies the first rule: the path leads to a folder (false) or a raw device (true).
pub fn accept_sight(given: &Path, role: Role, sight: Sight) -> Result<bool, Refusal> {
    let shown = given.display();
    let purpose = match role {
        Role::Databases => "databases",
        Role::Logs => "logs",
        Role::Cleaning => "cleaning",
    };
    match sight {
        Sight::Folder => Ok(false),
        Sight::Device => Ok(true),
        Sight::Missing { .. } if role == Role::Cleaning => {
            Err(Refusal::new(format!("{shown} does not exist"), "there is nothing to clean"))
        }
        Sight::Missing { nearest } => Err(Refusal::new(
            format!("{shown} does not exist (the nearest folder that does: {})", nearest.display()),
            format!("make it first: mkdir -p {shown}"),
        )),
        Sight::DanglingLink { link, target } => Err(Refusal::new(
            format!("{} is a link to {}, which does not exist", link.display(), target.display()),
            "make what it leads to, or remove the link",
        )),
        Sight::NotStorage(what) => Err(Refusal::new(
            format!("{shown} is {what}"),
            format!("give a folder or a raw block device for {purpose}"),
        )),
        Sight::Unreachable(problem) => Err(Refusal::new(
            format!("{shown} cannot be looked at: {problem}"),
            "check its permissions, or run as a user who may",
        )),
    }
}

/// Applies the rules for one place. `unlock` holds serial numbers the user repeated.
pub fn accept(place: &Place, unlock: &[String]) -> Result<(), Refusal> {
    match &place.ground {
        Ground::Folder(folder) => accept_folder(&place.given, folder),
        Ground::Device(device) => accept_device(&place.given, device, unlock),
    }
}

fn accept_folder(given: &Path, folder: &FolderFacts) -> Result<(), Refusal> {
    let shown = given.display();
    if folder.read_only {
        return Err(Refusal::new(
            format!(
                "{shown} cannot be written: {} ({}) is mounted read-only",
                folder.mount_point.display(),
                folder.filesystem
            ),
            "mount it read-write, or choose another folder",
        ));
    }
    if !folder.writable {
        return Err(Refusal::new(
            format!("{shown}: no permission to make files there"),
            "change its owner or mode, or run as a user who may",
        ));
    }
    if let Some(damage) = &folder.manifest_damage {
        return Err(Refusal::new(
            format!("{shown}: the record of the run there cannot be read: {damage}"),
            "look at the folder, and give an empty one if in doubt",
        ));
    }
    if folder.manifest.is_none() && !folder.foreign.is_empty() {
        return Err(Refusal::new(
            format!("{shown} holds what Spindle did not make ({})", name_some(&folder.foreign)),
            format!("give an empty folder, such as {}", given.join("spindle").display()),
        ));
    }
    Ok(())
}

fn accept_device(given: &Path, device: &DeviceFacts, unlock: &[String]) -> Result<(), Refusal> {
    let shown = given.display();
    if let Some(mounted) = &device.mounted {
        return Err(Refusal::new(
            format!("{shown} is in use: {mounted}"),
            "nothing unlocks a mounted device; choose another one",
        ));
    }
    if let Some(held) = &device.held {
        let remedy = match held.kind() {
            IoErrorKind::PermissionDenied => "run as a user who may open it, or choose another device",
            IoErrorKind::Busy => "stop what uses it, or choose another device",
            _ => "check it, or choose another device",
        };
        return Err(Refusal::new(format!("{shown} cannot be opened: {held}"), remedy));
    }
    if device.read_only {
        return Err(Refusal::new(format!("{shown} is a read-only device"), "choose another device"));
    }
    if device.size < DEVICE_SIZE_MIN {
        return Err(Refusal::new(
            format!("{shown} has only {}", device.size),
            format!("at least {DEVICE_SIZE_MIN} are needed"),
        ));
    }
    if device.ours.is_some() {
        return Ok(());
    }
    let Some(signature) = &device.signature else { return Ok(()) };
    match &device.drive.serial {
        Some(serial) if unlock.contains(serial) => Ok(()),
        Some(serial) if unlock.is_empty() => Err(Refusal::new(
            format!("{shown} is not empty: it holds {signature}"),
            format!("to lose that for good, repeat its serial number: --unlock-signature {serial}"),
        )),
        Some(serial) => Err(Refusal::new(
            format!(
                "{shown} is not empty: it holds {signature}, and no serial number given with --unlock-signature is its own"
            ),
            format!("its serial number is {serial}"),
        )),
        None => Err(Refusal::new(
            format!(
                "{shown} is not empty: it holds {signature}, and it has no serial number to unlock it by"
            ),
            match device.is_unmarked {
                true => format!(
                    "empty it yourself if you are sure (blkdiscard --zeroout {shown}, or zeroes over its first and last MiB), or choose another device"
                ),
                false => format!(
                    "empty it yourself if you are sure (wipefs --all {shown}), or choose another device"
                ),
            },
        )),
    }
}

/// Applies the rules between paths: none given twice for one role, none inside another.
pub fn accept_together(databases: &[Resolved], logs: &[Resolved]) -> Result<(), Refusal> {
    for (role, paths) in [("databases", databases), ("logs", logs)] {
        for (index, path) in paths.iter().enumerate() {
            if let Some(twin) = paths[..index].iter().find(|other| other.canonical == path.canonical) {
                return Err(Refusal::new(
                    format!("{} and {} are the same place", twin.given.display(), path.given.display()),
                    format!("name each place for {role} once"),
                ));
            }
        }
    }
    let all: Vec<&Resolved> = databases.iter().chain(logs).collect();
    for outer in &all {
        for inner in &all {
            if outer.canonical != inner.canonical && inner.canonical.starts_with(&outer.canonical) {
                return Err(Refusal::new(
                    format!("{} lies inside {}", inner.given.display(), outer.given.display()),
                    "give folders beside each other",
                ));
            }
        }
    }
    Ok(())
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
        }
    }

    #[track_caller]
    fn check_folder(change: impl FnOnce(&mut FolderFacts), expected: Result<(), &str>) {
        let mut facts = folder("/mnt/db");
        change(&mut facts);
        let place = Place { given: "/mnt/db".into(), ground: Ground::Folder(facts) };
        let outcome = accept(&place, &[]);
        assert_eq!(
            outcome.map(|_| ()).map_err(|refusal| refusal.to_string()),
            expected.map_err(str::to_owned)
        );
    }

    #[track_caller]
    fn check_device(change: impl FnOnce(&mut DeviceFacts), unlock: &[&str], expected: Result<(), &str>) {
        let mut facts = device();
        change(&mut facts);
        let unlock: Vec<String> = unlock.iter().map(|&serial| serial.to_owned()).collect();
        let place = Place { given: "/dev/sdb".into(), ground: Ground::Device(facts) };
        let outcome = accept(&place, &unlock);
        assert_eq!(
            outcome.map(|_| ()).map_err(|refusal| refusal.to_string()),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn an_empty_writable_folder_is_accepted() {
        check_folder(|_| (), Ok(()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused() {
        check_folder(
            |f| f.read_only = true,
            Err(
                "/mnt/db cannot be written: / (ext4) is mounted read-only; mount it read-write, or choose another folder",
            ),
        );
        check_folder(
            |f| f.writable = false,
            Err(
                "/mnt/db: no permission to make files there; change its owner or mode, or run as a user who may",
            ),
        );
    }

    #[test]
    fn a_folder_with_foreign_files_is_refused_unless_a_run_of_ours_is_there() {
        let names = || ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        check_folder(
            |f| f.foreign = names(),
            Err(
                "/mnt/db holds what Spindle did not make (a, b, c and 2 more); give an empty folder, such as /mnt/db/spindle",
            ),
        );
        check_folder(
            |f| {
                f.foreign = names();
                f.manifest = Some(Manifest::default());
            },
            Ok(()),
        );
    }

    #[test]
    fn nothing_unlocks_a_mounted_device() {
        check_device(
            |d| {
                d.mounted = Some("/dev/sdb1 is mounted at /home".to_owned());
                d.signature = Some("a GPT partition table".to_owned());
            },
            &["WD-1234"],
            Err(
                "/dev/sdb is in use: /dev/sdb1 is mounted at /home; nothing unlocks a mounted device; choose another one",
            ),
        );
    }

    #[test]
    fn a_signature_is_unlocked_only_by_the_devices_own_serial() {
        let signed = |d: &mut DeviceFacts| d.signature = Some("an ext4 filesystem".to_owned());
        check_device(
            signed,
            &[],
            Err(
                "/dev/sdb is not empty: it holds an ext4 filesystem; to lose that for good, repeat its serial number: --unlock-signature WD-1234",
            ),
        );
        check_device(
            signed,
            &["WD-9"],
            Err(
                "/dev/sdb is not empty: it holds an ext4 filesystem, and no serial number given with --unlock-signature is its own; its serial number is WD-1234",
            ),
        );
        check_device(signed, &["WD-1234"], Ok(()));
        check_device(
            |d| {
                signed(d);
                d.drive.serial = None;
            },
            &["WD-1234"],
            Err(
                "/dev/sdb is not empty: it holds an ext4 filesystem, and it has no serial number to unlock it by; empty it yourself if you are sure (wipefs --all /dev/sdb), or choose another device",
            ),
        );
        check_device(
            |d| {
                d.signature = Some("unknown data".to_owned());
                d.is_unmarked = true;
                d.drive.serial = None;
            },
            &[],
            Err(
                "/dev/sdb is not empty: it holds unknown data, and it has no serial number to unlock it by; empty it yourself if you are sure (blkdiscard --zeroout /dev/sdb, or zeroes over its first and last MiB), or choose another device",
            ),
        );
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_advised_on_by_the_reason() {
        let held = |kind| move |d: &mut DeviceFacts| d.held = Some(IoError::new(kind, "opening it"));
        check_device(
            held(IoErrorKind::PermissionDenied),
            &[],
            Err(
                "/dev/sdb cannot be opened: opening it; run as a user who may open it, or choose another device",
            ),
        );
        check_device(
            held(IoErrorKind::Busy),
            &[],
            Err("/dev/sdb cannot be opened: opening it; stop what uses it, or choose another device"),
        );
    }

    #[test]
    fn a_path_given_twice_or_inside_another_is_refused() {
        let place = |path: &str| Resolved { given: path.into(), canonical: path.into(), is_device: false };
        let line = |databases: &[Resolved], logs: &[Resolved]| {
            accept_together(databases, logs).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(line(&[place("/a"), place("/b")], &[place("/a")]), Ok(()));
        assert_eq!(
            line(&[place("/a"), place("/a")], &[]),
            Err("/a and /a are the same place; name each place for databases once".to_owned())
        );
        assert_eq!(
            line(&[place("/a")], &[place("/a/logs")]),
            Err("/a/logs lies inside /a; give folders beside each other".to_owned())
        );
        assert_eq!(line(&[place("/a/b"), place("/a/bc")], &[]), Ok(()));
    }

    #[test]
    fn a_busy_drive_and_a_filesystem_in_memory_are_named() {
        let mut facts = folder("/tmp");
        facts.filesystem = "tmpfs".to_owned();
        facts.drive.busy_percent = Some(42.0);
        let place = Place { given: "/tmp".into(), ground: Ground::Folder(facts) };
        assert_eq!(
            place.warnings(),
            [
                "/tmp: sda is busy with other work (42 % of the time)",
                "/tmp lies in memory (tmpfs): this proves nothing about a drive"
            ]
        );
    }
}
