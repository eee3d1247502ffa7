//! Mounts and loop devices below a folder, and the processes that use them.

use super::{Mount, fact};
use crate::{IoError, IoResult};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A mount at a folder or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountBelow {
    pub point: PathBuf,
    /// Its type, such as `xfs` or `fuse.spindle`.
    pub kind: String,
    /// Device, or what the filesystem calls itself.
    pub source: String,
}

/// Mounts at `folder` and below it, in the order in which they were made. The folder is not entered: it may be a mount whose
/// server is gone.
pub fn mounts_below(folder: &Path) -> IoResult<Vec<MountBelow>> {
    let mounts = Mount::all()?.into_iter().filter(|mount| mount.point.starts_with(folder));
    Ok(mounts.map(|Mount { point, kind, source, .. }| MountBelow { point, kind, source }).collect())
}

/// A loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    /// Such as `/dev/loop3`.
    pub path: PathBuf,
    /// The file behind it, by the name that the kernel knows.
    pub backing: PathBuf,
}

/// Loop devices with files below a folder.
pub fn loop_devices_below(folder: &Path) -> IoResult<Vec<LoopDevice>> {
    let fail = |error| IoError::from_os(error, "listing /sys/block");
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let backing = fact(Path::new("/sys/block").join(&name).join("loop/backing_file"));
        let Some(backing) = backing.map(PathBuf::from) else { continue };
        if backing.starts_with(folder) {
            found.push(LoopDevice { path: Path::new("/dev").join(name), backing });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// A process that uses files below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderUser {
    pub process: u32,
    /// Name of its program, as `ps` shows it.
    pub program: String,
    /// One of the files, or its working folder.
    pub path: PathBuf,
}

/// Processes with a working folder, a root, a program, an open or a mapped file at `folder` or below it. Those that this process
/// may not look into are left out; without root, these are the processes of others.
pub fn users_of_folder(folder: &Path) -> Vec<FolderUser> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let own = entry.path();
        let links = ["cwd", "root", "exe"].map(|link| own.join(link));
        let open = fs::read_dir(own.join("fd")).into_iter().flatten().flatten().map(|file| file.path());
        let linked = links.into_iter().chain(open).filter_map(|link| fs::read_link(link).ok());
        let used = linked.into_iter().find(|path| path.starts_with(folder)).or_else(|| mapped(&own, folder));
        if let Some(path) = used {
            let program = fact(own.join("comm")).unwrap_or_else(|| "a program".to_owned());
            found.insert(process, FolderUser { process, program, path });
        }
    }
    found.into_values().collect()
}

/// A file below the folder that a process has mapped.
fn mapped(process: &Path, folder: &Path) -> Option<PathBuf> {
    let maps = fact(process.join("maps"))?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    paths.into_iter().find(|path| path.starts_with(folder)).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_an_open_file_and_by_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("open");
        assert_eq!(users_of_folder(folder.path()), []);
        let file = fs::File::create(&path).unwrap();
        let users = users_of_folder(folder.path());
        assert_eq!(
            users.iter().map(|user| (user.process, &user.path)).collect::<Vec<_>>(),
            [(std::process::id(), &path)]
        );
        drop(file);
        assert_eq!(users_of_folder(folder.path()), []);
    }

    #[test]
    fn mounts_are_found_below_a_folder_and_not_beside_it() {
        let all = mounts_below(Path::new("/")).unwrap();
        assert!(all.iter().any(|mount| mount.point == Path::new("/proc")), "{all:?}");
        assert_eq!(mounts_below(Path::new("/proc")).unwrap()[0].kind, "proc");
        assert_eq!(mounts_below(Path::new("/pro")).unwrap(), []);
    }
}
