//! State files on a filesystem of this host. All calls block.

use crate::{IoError, IoErrorKind, IoResult, StateFile};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

/// Others may not read it: a state file may hold secrets.
const MODE: u32 = 0o600;
/// Follows the name of a file in that of its successor.
const SUCCESSOR: &str = ".new";

/// A host file of one process at a time; the lock ends with it, or with the process.
#[derive(Debug)]
pub struct HostStateFile {
    name: String,
    path: PathBuf,
    file: File,
    /// Of a successor: the place that it has not taken yet.
    place: Option<PathBuf>,
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
                sync_folder_of(path).map_err(fail)?;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.clone().open(path).map_err(fail)?
            }
            Err(error) => return Err(fail(error)),
        };
        Self::lock(path, file)
    }

    /// Locks an open file, whose name must still be its own then: a successor may have taken it meanwhile.
    fn lock(path: &Path, file: File) -> IoResult<Self> {
        let name = path.display().to_string();
        let fail = |error| IoError::from_os(error, format!("opening {name}"));
        let opened = file.metadata().map_err(fail)?;
        if !opened.is_file() {
            return Err(IoError::new(
                IoErrorKind::WrongType,
                format!("opening {name}: not an ordinary file"),
            ));
        }
        let busy = || IoError::new(IoErrorKind::Busy, format!("opening {name}: another process is using it"));
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            Err(error) => return Err(fail(error.into())),
        }
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        if fs::metadata(path).is_ok_and(|named| identity(&named) == identity(&opened)) {
            Ok(Self { name, path: path.to_owned(), file, place: None })
        } else {
            Err(busy())
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

    fn sync_name(&self) -> IoResult<()> {
        sync_folder_of(&self.path).map_err(self.fail("syncing the folder of"))
    }

    fn begin_successor(&self) -> IoResult<Box<dyn StateFile>> {
        // The file itself is replaced, not a link to it.
        let place = fs::canonicalize(&self.path).map_err(self.fail("examining"))?;
        let mut path = place.clone().into_os_string();
        path.push(SUCCESSOR);
        let path = PathBuf::from(path);
        let fail = |error| IoError::from_os(error, format!("opening {}", path.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(MODE);
        let mut successor = Self::lock(&path, options.open(&path).map_err(fail)?)?;
        successor.place = Some(place);
        successor.set_size(0)?;
        let owner = |file: &File| file.metadata().map(|metadata| (metadata.uid(), metadata.gid()));
        let (own, (user, group)) = (owner(&successor.file).map_err(fail)?, owner(&self.file).map_err(fail)?);
        if own != (user, group) {
            fchown(&successor.file, Some(user), Some(group)).map_err(fail)?;
        }
        Ok(Box::new(successor))
    }

    fn take_place(&mut self) -> IoResult<()> {
        let place = self.place.take().expect("a successor takes its place once");
        fs::rename(&self.path, &place).map_err(self.fail("renaming"))?;
        (self.name, self.path) = (place.display().to_string(), place);
        Ok(())
    }
}

impl Drop for HostStateFile {
    fn drop(&mut self) {
        if self.place.is_some() {
            // What stays is emptied by the next successor.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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
    fn a_successor_takes_the_place_with_its_lock_or_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut file: Box<dyn StateFile> = Box::new(HostStateFile::open(&path).unwrap());
        file.write_at(0, b"before").unwrap();
        fs::write(folder.path().join("state.new"), b"left by a crash, and longer").unwrap();
        // Another process has opened the name, and is about to lock it.
        let late = File::open(&path).unwrap();
        let dropped = file.begin_successor().unwrap();
        assert_eq!(dropped.size().unwrap(), 0);
        assert!(file.begin_successor().is_err(), "one at a time");
        drop(dropped);
        assert!(!folder.path().join("state.new").exists());
        let mut successor = file.begin_successor().unwrap();
        successor.write_at(0, b"after").unwrap();
        successor.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        successor.take_place().unwrap();
        successor.sync_name().unwrap();
        file = successor;
        assert_eq!(HostStateFile::lock(&path, late).unwrap_err().kind(), IoErrorKind::Busy);
        assert_eq!(HostStateFile::open(&path).unwrap_err().kind(), IoErrorKind::Busy);
        assert_eq!(file.name(), path.canonicalize().unwrap().display().to_string());
        file.write_at(5, b"wards").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"afterwards");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(HostStateFile::open(&path).unwrap().size().unwrap(), 10);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
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
