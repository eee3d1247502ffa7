//! File operations of a Maildir that gets mails: of this host, or of a test.

use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, Mode, OFlags, flock, open, rename, syncfs},
    io::{Errno, write},
};
use std::path::{Path, PathBuf};
use world::{IoError, IoErrorKind, IoResult, real::host_files};

/// The folders that make a Maildir. Mails are looked for in this order.
pub const FOLDERS: [&str; 3] = ["new", "cur", "tmp"];

/// A Maildir of one writer: mails are begun in `tmp`, and delivered to `new`.
pub trait MailFiles {
    /// Names in one of [`FOLDERS`].
    fn list(&self, folder: &str) -> IoResult<Vec<String>>;

    /// Writes a mail in `tmp`, where nobody reads it yet, over what is left of an earlier one.
    fn begin(&self, name: &str, mail: &[u8]) -> IoResult<()>;

    /// Moves a mail from `tmp` to `new`, at once.
    fn deliver(&self, name: &str) -> IoResult<()>;

    /// Makes everything done so far survive a power cut.
    fn flush(&self) -> IoResult<()>;
}

/// A Maildir on a filesystem of this host, locked against other writers of this kind until it is dropped.
pub struct HostMailFiles {
    folder: PathBuf,
    /// Of the folder, with the lock.
    locked: OwnedFd,
}

impl HostMailFiles {
    /// Locks the folder, and makes it a Maildir.
    ///
    /// # Errors
    ///
    /// `Busy` if another process has it; or it cannot be written.
    pub fn open(folder: &Path) -> IoResult<Self> {
        host_files::create_dir_all(folder)?;
        let failed =
            |error: Errno, what: &str| IoError::from_os(error.into(), format!("{what} {}", folder.display()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked = open(folder, flags, Mode::empty()).map_err(|error| failed(error, "opening"))?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                IoError::new(IoErrorKind::Busy, format!("another fetch writes {} now", folder.display()))
            }
            error => failed(error, "locking"),
        })?;
        for name in FOLDERS {
            host_files::create_private_dir_all(&folder.join(name))?;
        }
        Ok(Self { folder: folder.to_owned(), locked })
    }
}

impl MailFiles for HostMailFiles {
    fn list(&self, folder: &str) -> IoResult<Vec<String>> {
        host_files::list(&self.folder.join(folder))
    }

    fn begin(&self, name: &str, mail: &[u8]) -> IoResult<()> {
        let path = self.folder.join("tmp").join(name);
        let written = || -> Result<(), Errno> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = open(&path, flags, Mode::from_raw_mode(0o666))?;
            let mut left = mail;
            while !left.is_empty() {
                match write(&file, left) {
                    Ok(count) => left = &left[count..],
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        written().map_err(|error| IoError::from_os(error.into(), format!("writing {}", path.display())))
    }

    fn deliver(&self, name: &str) -> IoResult<()> {
        let (begun, whole) = (self.folder.join("tmp").join(name), self.folder.join("new").join(name));
        rename(&begun, &whole)
            .map_err(|error| IoError::from_os(error.into(), format!("renaming to {}", whole.display())))
    }

    fn flush(&self) -> IoResult<()> {
        let flushed = syncfs(&self.locked);
        flushed.map_err(|error| IoError::from_os(error.into(), format!("flushing {}", self.folder.display())))
    }
}
