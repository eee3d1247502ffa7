//! Mounted filesystems.

use crate::{ByteCount, IoError, IoResult};
use rustix::fs::{StatVfsMountFlags, major, minor, statvfs};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Its type: `ext4`, `xfs`, `tmpfs`, `nfs4`.
    pub kind: String,
    pub mount_point: PathBuf,
    /// The mounted source: a device, a server's export.
    pub source: String,
    pub total: ByteCount,
    /// Bytes available to unprivileged processes.
    pub free: ByteCount,
    pub read_only: bool,
    /// Mount options that affect storage, as in /proc.
    pub options: String,
}

impl Filesystem {
    /// True if its bytes are in memory only.
    pub fn is_memory(&self) -> bool {
        ["tmpfs", "ramfs", "devtmpfs"].contains(&&*self.kind)
    }
}

/// The filesystem that holds the existing `path`.
pub fn filesystem_of(path: &Path) -> IoResult<Filesystem> {
    let context = || format!("examining the filesystem of {}", path.display());
    let fail = |error| IoError::from_os(error, context());
    let path = fs::canonicalize(path).map_err(fail)?;
    let space = statvfs(&path).map_err(|error| fail(error.into()))?;
    let device = fs::metadata(&path).map_err(fail)?.dev();
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(fail)?;
    let mount = holder_of(&mounts, &path, (major(device), minor(device)));
    let (kind, mount_point, source, options) = match mount {
        Some(mount) => (mount.kind, mount.point, mount.source, mount.options),
        None => ("unknown".into(), PathBuf::from("/"), "unknown".into(), String::new()),
    };
    Ok(Filesystem {
        kind,
        mount_point,
        source,
        total: ByteCount(space.f_blocks.saturating_mul(space.f_frsize)),
        free: ByteCount(space.f_bavail.saturating_mul(space.f_frsize)),
        read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
        options,
    })
}

/// The mount that holds `path`: the longest mount point above it, and of equal ones the last, which covers
/// the others. Mounts with the path's own device number win (bind mounts, subvolumes).
fn holder_of(mounts: &str, path: &Path, device: (u32, u32)) -> Option<Mount> {
    let above = mounts.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| (mount.point.components().count(), mount.device == device))
}

/// One line of /proc/self/mountinfo (proc(5)).
#[derive(Clone, Debug)]
pub(in crate::real) struct Mount {
    pub id: u64,
    /// Number of the filesystem. Files of btrfs have others, a number for each subvolume.
    pub device: (u32, u32),
    pub point: PathBuf,
    pub kind: String,
    pub source: String,
    pub options: String,
}

impl Mount {
    /// All mounts that this process sees.
    pub fn all() -> IoResult<Vec<Self>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| IoError::from_os(error, "reading the table of mounts"))?;
        Ok(mounts.lines().filter_map(Self::parse).collect())
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        let (major, minor) = before.get(2)?.split_once(':')?;
        Some(Self {
            id: before.first()?.parse().ok()?,
            device: (major.parse().ok()?, minor.parse().ok()?),
            point: PathBuf::from(unescape(before.get(4)?)),
            kind: (*after.first()?).to_owned(),
            source: unescape(after.get(1)?),
            options: format!("{},{}", before.get(5)?, after.get(2).unwrap_or(&"")),
        })
    }
}

/// Decodes blanks and other special characters, written as three octal digits: `\040`.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|_| first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_covers_a_path_is_found() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                      28 27 0:25 / /mnt/my\\040mail rw - xfs /dev/sdb1 rw\n\
                      29 27 0:26 / /mnt/my\\040mail ro shared:1 - nfs4 server:/x rw\n";
        let found = holder_of(mounts, Path::new("/mnt/my mail/db"), (0, 26)).unwrap();
        assert_eq!((&*found.kind, &*found.source, &*found.options), ("nfs4", "server:/x", "ro,rw"));
        let found = holder_of(mounts, Path::new("/mnt/my mailbox"), (254, 0)).unwrap();
        assert_eq!((&*found.kind, found.point), ("ext4", PathBuf::from("/")));
    }

    #[test]
    fn a_temporary_folder_is_on_a_filesystem_with_free_space() {
        let folder = tempfile::tempdir().unwrap();
        let found = filesystem_of(folder.path()).unwrap();
        assert!(folder.path().canonicalize().unwrap().starts_with(&found.mount_point));
        assert!(found.kind != "unknown" && found.free <= found.total && !found.read_only, "{found:?}");
        assert!(filesystem_of(&folder.path().join("none")).is_err());
    }
}
