//! A folder of a real filesystem as a [`Directory`].
//!
//! All calls go through one descriptor of the folder, so it stays the same folder if its path changes. Only
//! regular files are visible; symbolic links are neither listed nor followed.

use super::{
    engine::{Engine, RealIoKind},
    file::{AccessMode, FileDevice, create_at, open_best},
    plain::retry,
};
use crate::{
    ByteCount, Directory, DirectoryEntry, File, IoError, IoErrorKind, IoResult, LocalFuture,
    plain_name::check_plain_name,
};
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, fstatvfs, fsync, ioctl_ficlone, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

pub struct FolderDirectory {
    engine: Engine,
    folder: Arc<OwnedFd>,
    path: PathBuf,
    direct: Option<bool>,
}

impl FolderDirectory {
    /// Opens an existing folder. Call it inside [`super::run`]. `WrongType`: not a folder.
    pub fn open(path: &Path) -> IoResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry(|| openat(CWD, path, flags, Mode::empty())).map_err(|error| {
            IoError::from_os(error.into(), format!("opening the folder {}", path.display()))
        })?;
        // An unnamed file (O_TMPFILE) shows this filesystem's abilities and leaves no trace.
        let mode = Mode::RUSR | Mode::WUSR;
        let direct = open_best(folder.as_fd(), Path::new("."), OFlags::TMPFILE | OFlags::RDWR, mode)
            .ok()
            .map(|opened| opened.direct);
        Ok(Self { engine: Engine::current(), folder: Arc::new(folder), path: path.to_owned(), direct })
    }

    /// The I/O path of files here, for reports; `None` if this filesystem cannot be tested without a named
    /// file ([`FileDevice::io_kind`] of a file still works).
    pub fn io_kind(&self) -> Option<RealIoKind> {
        self.direct.map(|direct| self.engine.io_kind(direct))
    }

    /// The path passed to open.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file as a [`FileDevice`], which can do more than [`Directory::open`] promises.
    pub fn open_file(&self, name: &str, access: AccessMode) -> IoResult<FileDevice> {
        check_plain_name(name)?;
        let display = self.display(name);
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| IoError::from_os(error.into(), format!("opening {display}")))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                FileDevice::open_at(self.folder.as_fd(), Path::new(name), &display, access)
            }
            _ => Err(IoError::new(IoErrorKind::WrongType, format!("opening {display}: not a regular file"))),
        }
    }

    /// Clones `from` to `to` by sharing blocks (FICLONE: btrfs, xfs). Returns false and creates nothing if
    /// the filesystem cannot. `AlreadyExists` if `to` exists.
    pub fn clone_file(&self, from: &str, to: &str) -> LocalFuture<IoResult<bool>> {
        if let Err(error) = check_plain_name(from).and_then(|()| check_plain_name(to)) {
            return Box::pin(async { Err(error) });
        }
        let context = format!("cloning {} to {to}", self.display(from));
        let (from, to) = (from.to_owned(), to.to_owned());
        self.blocking(context, move |folder| {
            let source =
                openat(folder, &from, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let target = openat(folder, &to, flags, Mode::RUSR | Mode::WUSR)?;
            match ioctl_ficlone(&target, &source) {
                Ok(()) => Ok(true),
                Err(error) => {
                    unlinkat(folder, &to, AtFlags::empty())?;
                    // Errors of filesystems that cannot clone, or not between these two files
                    // (ioctl_ficlone(2)).
                    let cannot = [Errno::OPNOTSUPP, Errno::NOTTY, Errno::XDEV, Errno::INVAL, Errno::NOSYS];
                    if cannot.contains(&error) { Ok(false) } else { Err(error) }
                }
            }
        })
    }

    fn display(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Runs a call on the folder's descriptor on a helper thread, starting now.
    fn blocking<T: Send + 'static>(
        &self,
        context: String,
        call: impl FnOnce(&OwnedFd) -> rustix::io::Result<T> + Send + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let folder = Arc::clone(&self.folder);
        let done = self.engine.blocking(move || call(&folder));
        Box::pin(async move { done.await.map_err(|error| IoError::from_os(error.into(), context)) })
    }
}

impl Directory for FolderDirectory {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.blocking(format!("listing {}", self.path.display()), regular_files)
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let opened = self.open_file(name, AccessMode::ReadWrite);
        Box::pin(async { Ok(Rc::new(opened?) as Rc<dyn File>) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        if let Err(error) = check_plain_name(name) {
            return Box::pin(async { Err(error) });
        }
        let display = self.display(name);
        let (folder, name, shown) = (Arc::clone(&self.folder), name.to_owned(), display.clone());
        let made = self.engine.blocking(move || create_at(folder.as_fd(), Path::new(&name), &shown, size));
        Box::pin(async move {
            let device = FileDevice::adopt(made.await?, &display, AccessMode::ReadWrite)?;
            Ok(Rc::new(device) as Rc<dyn File>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        if let Err(error) = check_plain_name(from).and_then(|()| check_plain_name(to)) {
            return Box::pin(async { Err(error) });
        }
        let context = format!("renaming {} to {to}", self.display(from));
        let (from, to) = (from.to_owned(), to.to_owned());
        self.blocking(context, move |folder| renameat(folder, &from, folder, &to))
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        if let Err(error) = check_plain_name(name) {
            return Box::pin(async { Err(error) });
        }
        let context = format!("removing {}", self.display(name));
        let name = name.to_owned();
        self.blocking(context, move |folder| unlinkat(folder, &name, AtFlags::empty()))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.blocking(format!("syncing the folder {}", self.path.display()), |folder| retry(|| fsync(folder)))
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.blocking(format!("reading the free space of {}", self.path.display()), |folder| {
            let space = fstatvfs(folder)?;
            Ok(ByteCount(space.f_bavail.saturating_mul(space.f_frsize)))
        })
    }
}

fn regular_files(folder: &OwnedFd) -> rustix::io::Result<Vec<DirectoryEntry>> {
    let mut files = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // Skip names that `create` would refuse.
        let Ok(name) = entry.file_name().to_str() else { continue };
        let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Removed since the listing.
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            let size = ByteCount(u64::try_from(found.st_size).expect("sizes are not negative"));
            files.push(DirectoryEntry { name: name.to_owned(), size });
        }
    }
    files.sort();
    Ok(files)
}
