//! Mounts that may be frozen, and the refusals of others.

use super::supervisor::Helper;
use crate::{
    IoError, IoErrorKind, IoResult, LocalFuture,
    mount_freeze::{FreezableMount, MountThaw},
    real::{
        host::{Backing, Mount, mount_id, open_path},
        plain::Pool,
    },
};
use rustix::{
    fs::{OFlags, syncfs},
    thread::{CapabilitySet, capabilities},
};
use std::{
    collections::BTreeSet,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Filesystems of other machines: their server would go on, and so would its other clients.
const NETWORK_KINDS: [&str; 17] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "smb3",
    "smbfs",
];

/// Filesystems without a device: nothing of them is in a cut.
const MEMORY_KINDS: [&str; 7] = ["devtmpfs", "hugetlbfs", "overlay", "proc", "ramfs", "sysfs", "tmpfs"];

/// A path that must take writes while filesystems are frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritablePlace {
    /// For people: `a drive of the pool main`.
    pub what: String,
    /// A file, a folder or a block device. If it does not exist, its nearest folder that does.
    pub path: PathBuf,
}

/// The program that serves as helper; it must call [`serve_if_helper`](super::serve_if_helper), or
/// [`serve`](super::helper_process::serve) for arguments of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperProgram {
    pub path: PathBuf,
    pub arguments: Vec<String>,
}

impl Default for HelperProgram {
    /// This program, also if its file was replaced meanwhile.
    fn default() -> Self {
        Self { path: PathBuf::from("/proc/self/exe"), arguments: vec![super::HELPER_ARGUMENT.to_owned()] }
    }
}

/// A mount of this machine that may be frozen.
pub struct RealMount {
    point: PathBuf,
    device: (u32, u32),
    /// All filesystems that its writes need, its own among them.
    backing: BTreeSet<(u32, u32)>,
    folder: Arc<OwnedFd>,
    program: HelperProgram,
    helper: Arc<Mutex<Option<Arc<Helper>>>>,
    pool: Pool,
}

/// Checks that this process may freeze filesystems.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN.
pub fn check_privilege() -> IoResult<()> {
    let sets = capabilities(None)
        .map_err(|error| IoError::from_os(error.into(), "reading the capabilities of this process"))?;
    // Root of a user namespace has all capabilities, and none over filesystems of the machine.
    let uids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_namespace = uids.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"];
    if sets.effective.contains(CapabilitySet::SYS_ADMIN) && !is_namespace {
        return Ok(());
    }
    let story = "freezing filesystems needs CAP_SYS_ADMIN; run this as root of the machine \
                 (`user =` runs hooks as another user), or freeze by hooks alone";
    Err(IoError::new(IoErrorKind::PermissionDenied, story))
}

/// Checks that filesystems can be frozen in this order: the freeze of one writes to those below it.
pub fn check_order(mounts: &[&RealMount]) -> IoResult<()> {
    for (index, outer) in mounts.iter().enumerate() {
        for inner in &mounts[index + 1..] {
            let (outer_point, inner_point) = (outer.point.display(), inner.point.display());
            let story = if inner.device == outer.device {
                format!("{outer_point} and {inner_point} are one filesystem; name it once")
            } else if inner.backing.contains(&outer.device) {
                format!("freeze {inner_point} before {outer_point}: it lies on it, and would wait for it")
            } else {
                continue;
            };
            return Err(IoError::new(IoErrorKind::Busy, story));
        }
    }
    Ok(())
}

impl RealMount {
    /// The filesystem mounted at `path`, if it may be frozen while all `places` must take writes.
    ///
    /// # Errors
    /// One line: the path is no mount point; the filesystem is that of `/`, of another machine or of memory; one of
    /// the places lies on it.
    pub fn open(path: &Path, places: &[WritablePlace]) -> IoResult<Self> {
        Self::open_with(path, places, HelperProgram::default())
    }

    /// As [`RealMount::open`], with another program as helper.
    pub fn open_with(path: &Path, places: &[WritablePlace], program: HelperProgram) -> IoResult<Self> {
        let fail = |error| IoError::from_os(error, format!("examining {}", path.display()));
        let point = fs::canonicalize(path).map_err(fail)?;
        let folder = open_path(&point, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let id = mount_id(&folder).map_err(|error| fail(error.into()))?;
        let mounts = Mount::all()?;
        let mount = mounts.iter().find(|mount| mount.id == id).ok_or_else(|| {
            let story = format!("{} is not in the table of mounts", point.display());
            IoError::new(IoErrorKind::NotFound, story)
        })?;
        if mount.point != point {
            let holder = mount.point.display();
            let story = format!(
                "{} is no mount point: it lies on the {} filesystem at {holder}, which would be frozen whole; \
                 name a mount point",
                point.display(),
                mount.kind,
            );
            return Err(IoError::new(IoErrorKind::WrongType, story));
        }
        refuse_kind(mount)?;
        refuse_root(mount, &mounts)?;
        for place in places {
            refuse_place(mount, place, &mounts)?;
        }
        Ok(Self {
            device: mount.device,
            backing: Backing::of(&point, &mounts)?.filesystems,
            point,
            folder: Arc::new(folder),
            program,
            helper: Arc::default(),
            pool: Pool::of("spindle-mount", 2),
        })
    }

    pub fn path(&self) -> &Path {
        &self.point
    }
}

fn refuse_kind(mount: &Mount) -> IoResult<()> {
    let (point, kind) = (mount.point.display(), &*mount.kind);
    let story = if NETWORK_KINDS.contains(&kind) || kind.starts_with("fuse.") {
        format!("{point} is a network filesystem ({kind}); freeze it on the machine that has its drives")
    } else if MEMORY_KINDS.contains(&kind) {
        format!("{point} is a {kind}, which has no drive; there is nothing to freeze")
    } else {
        return Ok(());
    };
    Err(IoError::new(IoErrorKind::Unsupported, story))
}

fn refuse_root(mount: &Mount, mounts: &[Mount]) -> IoResult<()> {
    if !Backing::of(Path::new("/"), mounts)?.filesystems.contains(&mount.device) {
        return Ok(());
    }
    let point = mount.point.display();
    let story = format!(
        "{point} is the filesystem of /: this machine would stop; give the data a filesystem of its own"
    );
    Err(IoError::new(IoErrorKind::Busy, story))
}

fn refuse_place(mount: &Mount, place: &WritablePlace, mounts: &[Mount]) -> IoResult<()> {
    let existing = place.path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let point = mount.point.display();
    let (what, path) = (&place.what, place.path.display());
    let story = match Backing::of(existing, mounts) {
        Ok(backing) if backing.filesystems.contains(&mount.device) => {
            format!(
                "{what} ({path}) lies on {point}: it must take writes while {point} is frozen; move one of them"
            )
        }
        Ok(_) => return Ok(()),
        Err(error) => format!("{what} ({path}) may lie on {point}: {error}"),
    };
    Err(IoError::new(IoErrorKind::Busy, story))
}

impl FreezableMount for RealMount {
    fn mount_point(&self) -> String {
        self.point.display().to_string()
    }

    fn prepare(&self) -> LocalFuture<IoResult<()>> {
        let (folder, point, kept) = (Arc::clone(&self.folder), self.mount_point(), Arc::clone(&self.helper));
        let program = self.program.clone();
        Box::pin(self.pool.start(move || {
            // The helper of an earlier round, if its thaw was never asked for.
            *kept.lock().expect("no holder of this lock panics") = None;
            syncfs(&*folder).map_err(|error| IoError::from_os(error.into(), format!("syncing {point}")))?;
            let mut command = Command::new(&program.path);
            command.args(&program.arguments);
            let helper = Helper::start(&point, &folder, command)?;
            *kept.lock().expect("no holder of this lock panics") = Some(Arc::new(helper));
            Ok(())
        }))
    }

    fn freeze(&self, within: Duration) -> LocalFuture<IoResult<()>> {
        let helper = self.helper.lock().expect("no holder of this lock panics").clone();
        let point = self.mount_point();
        Box::pin(self.pool.start(move || {
            let unprepared =
                || IoError::new(IoErrorKind::Other, format!("freezing {point}: it was not prepared"));
            helper.ok_or_else(unprepared)?.freeze(within)
        }))
    }

    fn thaw(&self) -> LocalFuture<IoResult<MountThaw>> {
        let kept = Arc::clone(&self.helper);
        Box::pin(self.pool.start(move || {
            let helper = kept.lock().expect("no holder of this lock panics").take();
            helper.map_or(Ok(MountThaw::NotFrozen), |helper| helper.thaw())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_of_other_machines_and_of_memory_are_refused() {
        let check = |kind: &str, refusal: Option<&str>| {
            let (point, source) = (PathBuf::from("/mail"), "server:/mail".to_owned());
            let (kind, options) = (kind.to_owned(), "rw".to_owned());
            let mount = Mount { id: 1, device: (0, 50), point, kind, source, options };
            assert_eq!(refuse_kind(&mount).err().map(|error| error.to_string()).as_deref(), refusal);
        };
        let network = "/mail is a network filesystem (nfs4); freeze it on the machine that has its drives";
        check("nfs4", Some(network));
        let fuse = "/mail is a network filesystem (fuse.sshfs); freeze it on the machine that has its drives";
        check("fuse.sshfs", Some(fuse));
        check("tmpfs", Some("/mail is a tmpfs, which has no drive; there is nothing to freeze"));
        for kind in ["ext4", "xfs", "btrfs", "fuseblk"] {
            check(kind, None);
        }
    }
}
