//! State files on a filesystem of this host. All calls block.

use crate::{IoError, IoErrorKind, IoResult, StateFile};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// Others may not read it: a state file may hold secrets.
const MODE: u32 = 0o600;

/// A host file of one process at a time; the lock ends with it, or with the process.
#[derive(Debug)]
pub struct HostStateFile {
    name: String,
    file: File,
}

impl HostStateFile {
    /// Opens the file, or creates it empty; the name of a new one survives a power cut. `Busy` if another process (or
    /// another opening here) has it.
    pub fn open(path: &Path) -> IoResult<Self> {
        let name = path.display().to_string();
        let fail = |error| IoError::from_os(error, format!("opening {name}"));
        let options = OpenOptions::new().read(true).write(true).mode(MODE).clone();
        let file = match options.clone().create_new(true).open(path) {
            Ok(file) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(fail)?;
                folder.sync_all().map_err(fail)?;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.clone().open(path).map_err(fail)?
            }
            Err(error) => return Err(fail(error)),
        };
        if !file.metadata().map_err(fail)?.is_file() {
            return Err(IoError::new(
                IoErrorKind::WrongType,
                format!("opening {name}: not an ordinary file"),
            ));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { name, file }),
            Err(Errno::WOULDBLOCK) => {
                Err(IoError::new(IoErrorKind::Busy, format!("opening {name}: another process is using it")))
            }
            Err(error) => Err(fail(error.into())),
        }
    }

    fn fail(&self, doing: &str) -> impl Fn(io::Error) -> IoError {
        let context = format!("{doing} {}", self.name);
        move |error| IoError::from_os(error, context.clone())
    }
}

impl StateFile for HostStateFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> IoResult<u64> {
        Ok(self.file.metadata().map_err(self.fail("examining"))?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> IoResult<()> {
        self.file.read_exact_at(into, offset).map_err(self.fail("reading"))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        self.file.write_all_at(bytes, offset).map_err(self.fail("writing"))
    }

    fn set_size(&self, size: u64) -> IoResult<()> {
        self.file.set_len(size).map_err(self.fail("resizing"))
    }

    fn sync(&self) -> IoResult<()> {
        self.file.sync_data().map_err(self.fail("syncing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_state_file_is_kept_for_its_owner_and_read_where_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = HostStateFile::open(&path).unwrap();
        file.write_at(3, b"abc").unwrap();
        file.set_size(8).unwrap();
        file.sync().unwrap();
        assert_eq!(HostStateFile::open(&path).unwrap_err().kind(), IoErrorKind::Busy);
        drop(file);
        let file = HostStateFile::open(&path).unwrap();
        let mut all = [1; 8];
        file.read_at(0, &mut all).unwrap();
        assert_eq!((&all, file.size().unwrap()), (b"\0\0\0abc\0\0", 8));
        assert_eq!(file.read_at(1, &mut all).unwrap_err().kind(), IoErrorKind::OutOfRange);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_an_ordinary_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(HostStateFile::open(folder.path()).unwrap_err().kind(), IoErrorKind::WrongType);
        let nowhere = folder.path().join("none").join("state");
        assert_eq!(HostStateFile::open(&nowhere).unwrap_err().kind(), IoErrorKind::NotFound);
        let device = HostStateFile::open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(device.kind(), IoErrorKind::WrongType);
    }
}
