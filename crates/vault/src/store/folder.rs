//! A vault in a folder: of a disk, or mounted from another machine.
//!
//! Calls block, so helper threads make them. A file is written under another name, made stable and renamed.

use super::{VaultFile, VaultFileKind, VaultStore};
use crate::blob_id::BlobId;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    IoError, IoErrorKind, IoResult, LocalFuture, WallTime,
    real::{
        Workers,
        host_files::{self, PathKind},
    },
};

/// Calls under way at once.
const CALLS_MAX: NonZeroUsize = NonZeroUsize::new(6).expect("more than none");
/// End of the names of files that are being written.
const UNFINISHED: &str = ".tmp";
const UNFINISHED_AFTER_S: i64 = 24 * 3600;

/// Use it inside [`world::real::run`].
pub struct FolderStore {
    folder: PathBuf,
    workers: Rc<Workers>,
}

impl FolderStore {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), workers: Rc::new(Workers::new(CALLS_MAX)) }
    }

    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Path) -> IoResult<T> + Send + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let folder = self.folder.clone();
        let workers = Rc::clone(&self.workers);
        Box::pin(async move { workers.run(move || call(&folder)).await })
    }

    fn call_on<T: Send + 'static>(
        &self,
        (kind, name): (VaultFileKind, &str),
        call: impl FnOnce(&Path) -> IoResult<T> + Send + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let path = kind.path(name);
        self.call(move |folder| call(&folder.join(path)))
    }
}

impl VaultStore for FolderStore {
    fn describe(&self) -> String {
        self.folder.display().to_string()
    }

    fn prepare(&self) -> LocalFuture<IoResult<()>> {
        self.call(|folder| {
            for kind in VaultFileKind::FOLDERS {
                host_files::create_dir_all(&folder.join(kind.folder()))?;
            }
            for first in 0..=u8::MAX {
                host_files::create_dir_all(&folder.join(format!("data/{first:02x}")))?;
            }
            Ok(())
        })
    }

    fn sweep(&self, now: WallTime) -> LocalFuture<IoResult<()>> {
        self.call(move |folder| {
            for kind in VaultFileKind::FOLDERS {
                let folder = folder.join(kind.folder());
                remove_unfinished(&folder, now)?;
                if kind == VaultFileKind::Pack {
                    for first in host_files::list(&folder)? {
                        remove_unfinished(&folder.join(first), now)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn list(&self, kind: VaultFileKind) -> LocalFuture<IoResult<Vec<VaultFile>>> {
        self.call(move |folder| {
            let folder = folder.join(kind.folder());
            let mut files = Vec::new();
            match kind {
                VaultFileKind::Config => {}
                VaultFileKind::Pack => {
                    for first in host_files::list(&folder)? {
                        add_files(&folder.join(first), &mut files)?;
                    }
                }
                _ => add_files(&folder, &mut files)?,
            }
            files.sort();
            Ok(files)
        })
    }

    fn read(&self, kind: VaultFileKind, name: &str, bytes_max: u64) -> LocalFuture<IoResult<Vec<u8>>> {
        self.call_on((kind, name), move |path| host_files::read_file_at_most(path, bytes_max))
    }

    fn read_range(
        &self,
        kind: VaultFileKind,
        name: &str,
        (at, length): (u64, usize),
    ) -> LocalFuture<IoResult<Vec<u8>>> {
        self.call_on((kind, name), move |path| {
            let bytes = host_files::read_from(path, at, length as u64)?;
            if bytes.len() < length {
                let story = format!("reading {}: it ends before {}", path.display(), at + length as u64);
                return Err(IoError::new(IoErrorKind::OutOfRange, story));
            }
            Ok(bytes)
        })
    }

    fn write(&self, kind: VaultFileKind, name: &str, bytes: Vec<u8>) -> LocalFuture<IoResult<()>> {
        self.call_on((kind, name), move |path| host_files::write_secret(path, &bytes))
    }

    fn delete(&self, kind: VaultFileKind, name: &str) -> LocalFuture<IoResult<()>> {
        self.call_on((kind, name), host_files::remove_file)
    }
}

/// Removes files that were being written a day ago: no write takes so long.
fn remove_unfinished(folder: &Path, now: WallTime) -> IoResult<()> {
    if host_files::kind(folder)? != PathKind::Folder {
        return Ok(());
    }
    for name in host_files::list(folder)? {
        if !name.starts_with('.') || !name.ends_with(UNFINISHED) {
            continue;
        }
        let path = folder.join(name);
        let is_old = host_files::metadata(&path)
            .is_ok_and(|metadata| now.seconds - metadata.modified.seconds > UNFINISHED_AFTER_S);
        if is_old {
            // Another copy may remove it as well.
            let _ = host_files::remove_file(&path);
        }
    }
    Ok(())
}

fn add_files(folder: &Path, files: &mut Vec<VaultFile>) -> IoResult<()> {
    // A stray file among the folders of packs.
    if host_files::kind(folder)? != PathKind::Folder {
        return Ok(());
    }
    for name in host_files::list(folder)? {
        if BlobId::parse(&name).is_none() || name.ends_with(UNFINISHED) {
            continue;
        }
        match host_files::metadata(&folder.join(&name)) {
            Ok(metadata) => files.push(VaultFile { name, bytes: metadata.size }),
            // Removed meanwhile, as locks are.
            Err(error) if error.kind() == IoErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
