//! Rules under which Spindle may write to a location. They look at facts only and touch nothing.
//!
//! 1. Nothing that Spindle did not make is ever overwritten: no file, no drive with a signature.
//! 2. A mounted drive is never written to, whatever the flags.
//! 3. A refused path is left exactly as it was.

use crate::location::{
    DEVICE_SIZE_MIN, DeviceFacts, FolderFacts, LocationFacts, PathRole, ResolvedPath, RunLocation,
    StoragePathKind, name_some,
};
use report::Refusal;
use std::path::Path;
use world::IoErrorKind;

/// Applies the first rule: true if the path is a raw device, false if it is a folder.
pub fn accept_kind(
    given: &Path,
    role: PathRole,
    storage_path_kind: StoragePathKind,
) -> Result<bool, Refusal> {
    let shown = given.display();
    let purpose = match role {
        PathRole::Databases => "databases",
        PathRole::Logs => "logs",
        PathRole::Cleaning => "cleaning",
    };
    match storage_path_kind {
        StoragePathKind::Folder => Ok(false),
        StoragePathKind::Device => Ok(true),
        StoragePathKind::Missing { .. } if role == PathRole::Cleaning => {
            Err(Refusal::new(format!("{shown} does not exist"), "there is nothing to clean"))
        }
        StoragePathKind::Missing { nearest } => Err(Refusal::new(
            format!("{shown} does not exist (the nearest folder that does: {})", nearest.display()),
            format!("make it first: mkdir -p {shown}"),
        )),
        StoragePathKind::DanglingLink { link, target } => Err(Refusal::new(
            format!("{} is a link to {}, which does not exist", link.display(), target.display()),
            "make what it leads to, or remove the link",
        )),
        StoragePathKind::NotStorage(what) => Err(Refusal::new(
            format!("{shown} is {what}"),
            format!("give a folder or a raw block device for {purpose}"),
        )),
        StoragePathKind::Unreachable(problem) => Err(Refusal::new(
            format!("{shown} cannot be examined: {problem}"),
            "check its permissions, or run as a user who may",
        )),
    }
}

/// Applies the rules for one location. `unlock` holds serial numbers the user repeated.
pub fn accept(location: &RunLocation, unlock: &[String]) -> Result<(), Refusal> {
    match &location.facts {
        LocationFacts::Folder(folder) => accept_folder(&location.given, folder),
        LocationFacts::Device(device) => accept_device(&location.given, device, unlock),
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
            IoErrorKind::PermissionDenied if device.remote.is_some() => {
                "give credentials: ⟨chap-name⟩ NAME, and its secret with ⟨chap-secret-file⟩"
            }
            _ if device.remote.is_some() => "check its name and that it is served there",
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
            format!("to lose that for good, repeat its serial number: ⟨unlock-signature⟩ {serial}"),
        )),
        Some(serial) => Err(Refusal::new(
            format!(
                "{shown} is not empty: it holds {signature}, and no serial number given with ⟨unlock-signature⟩ is its own"
            ),
            format!("its serial number is {serial}"),
        )),
        None => Err(Refusal::new(
            format!(
                "{shown} is not empty: it holds {signature}, and it has no serial number to unlock it by"
            ),
            match device.is_unmarked {
                _ if device.remote.is_some() => {
                    "empty it where it is served if you are sure, or choose another device".to_owned()
                }
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

/// Applies the rules between paths: none may be given twice for one role, or lie inside another.
pub fn accept_together(databases: &[ResolvedPath], logs: &[ResolvedPath]) -> Result<(), Refusal> {
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
    let all: Vec<&ResolvedPath> = databases.iter().chain(logs).collect();
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
mod tests {
    use super::{
        super::location::tests::{device, folder},
        *,
    };
    use crate::manifest::Manifest;
    use world::IoError;

    #[track_caller]
    fn check_folder(change: impl FnOnce(&mut FolderFacts), expected: Result<(), &str>) {
        let mut facts = folder("/mnt/db");
        change(&mut facts);
        let location = RunLocation { given: "/mnt/db".into(), facts: LocationFacts::Folder(facts) };
        let outcome = accept(&location, &[]);
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
        let location = RunLocation { given: "/dev/sdb".into(), facts: LocationFacts::Device(facts) };
        let outcome = accept(&location, &unlock);
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
                "/dev/sdb is not empty: it holds an ext4 filesystem; to lose that for good, repeat its serial number: ⟨unlock-signature⟩ WD-1234",
            ),
        );
        check_device(
            signed,
            &["WD-9"],
            Err(
                "/dev/sdb is not empty: it holds an ext4 filesystem, and no serial number given with ⟨unlock-signature⟩ is its own; its serial number is WD-1234",
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
        let location = |path: &str| ResolvedPath {
            given: path.into(),
            canonical: path.into(),
            is_device: false,
            remote: None,
        };
        let line = |databases: &[ResolvedPath], logs: &[ResolvedPath]| {
            accept_together(databases, logs).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(line(&[location("/a"), location("/b")], &[location("/a")]), Ok(()));
        assert_eq!(
            line(&[location("/a"), location("/a")], &[]),
            Err("/a and /a are the same place; name each place for databases once".to_owned())
        );
        assert_eq!(
            line(&[location("/a")], &[location("/a/logs")]),
            Err("/a/logs lies inside /a; give folders beside each other".to_owned())
        );
        assert_eq!(line(&[location("/a/b"), location("/a/bc")], &[]), Ok(()));
    }
}
