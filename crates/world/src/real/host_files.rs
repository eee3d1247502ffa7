//! Access to ordinary host files: profiles, reports, state files of a few MiB at most.
//!
//! All calls block; use them only while nothing is being measured. Storage under test goes through
//! [`FileDevice`](super::FileDevice) and [`FolderDirectory`](super::FolderDirectory).

use crate::{IoError, IoErrorKind, IoResult, WallTime};
use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, renameat_with},
    io::Errno,
};
use std::{
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    process,
};

/// The file type at a path; symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// No such file, or a dangling link.
    Missing,
    File,
    Folder,
    BlockDevice,
    /// A pipe, a socket, a character device.
    Other,
}

/// The file type at `path`. `PermissionDenied` if a folder on the way cannot be entered.
pub fn kind(path: &Path) -> IoResult<PathKind> {
    let found = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(PathKind::Missing);
        }
        Err(error) => return Err(fail("examining", path)(error)),
    };
    Ok(match found {
        found if found.is_file() => PathKind::File,
        found if found.is_dir() => PathKind::Folder,
        found if found.is_block_device() => PathKind::BlockDevice,
        _ => PathKind::Other,
    })
}

/// Metadata of a file, from `stat`; symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// Length in bytes; 0 for a block device.
    pub size: u64,
    pub modified: WallTime,
    /// Device and inode: equal for two names of one file.
    pub identity: (u64, u64),
}

/// Reads the metadata of the file at `path`.
pub fn metadata(path: &Path) -> IoResult<FileMetadata> {
    let found = fs::metadata(path).map_err(fail("examining", path))?;
    let nanos = u32::try_from(found.mtime_nsec()).unwrap_or_default();
    Ok(FileMetadata {
        size: found.len(),
        modified: WallTime { seconds: found.mtime(), nanos },
        identity: (found.dev(), found.ino()),
    })
}

/// Reads at most `bytes_max` bytes from offset `from`, through the page cache.
pub fn read_from(path: &Path, from: u64, bytes_max: u64) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(bytes_max).read_to_end(&mut bytes)
    });
    read.map_err(fail("reading", path))?;
    Ok(bytes)
}

/// Reads a whole UTF-8 text file; `Damaged` if it is not UTF-8.
pub fn read_to_string(path: &Path) -> IoResult<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        IoError::new(IoErrorKind::Damaged, format!("reading {}: it is not UTF-8 text", path.display()))
    })
}

pub fn read(path: &Path) -> IoResult<Vec<u8>> {
    fs::read(path).map_err(fail("reading", path))
}

/// Reads a whole file of at most `bytes_max` bytes; `Damaged` if it is longer.
pub fn read_at_most(path: &Path, bytes_max: u64) -> IoResult<Vec<u8>> {
    let file = fs::File::open(path).map_err(fail("reading", path))?;
    read_whole(file, path, bytes_max)
}

/// Writes `bytes` into a file that is there, as the kernel's own are.
pub fn write_in_place(path: &Path, bytes: &[u8]) -> IoResult<()> {
    let context = fail("writing", path);
    let written = fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(context)
}

/// As [`read_at_most`], of a regular file alone; `WrongType` of anything else. It does not wait for a pipe's other end, as an
/// opening of one does: for paths that somebody else has named.
pub fn read_file_at_most(path: &Path, bytes_max: u64) -> IoResult<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(fail("reading", path))?;
    if !file.metadata().map_err(fail("examining", path))?.is_file() {
        return Err(IoError::new(
            IoErrorKind::WrongType,
            format!("reading {}: it is no file", path.display()),
        ));
    }
    read_whole(file, path, bytes_max)
}

fn read_whole(file: fs::File, path: &Path, bytes_max: u64) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(fail("reading", path))?;
    if bytes.len() as u64 > bytes_max {
        let story = format!("reading {}: it has more than {bytes_max} bytes", path.display());
        return Err(IoError::new(IoErrorKind::Damaged, story));
    }
    Ok(bytes)
}

/// Writes `bytes` to `path` atomically: a reader, or a reboot after power loss, finds the old file or the
/// whole new one.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> IoResult<()> {
    replace_file(path, bytes, true, MODE_USUAL)
}

/// As [`write_atomically`], readable by its owner alone.
pub fn write_secret(path: &Path, bytes: &[u8]) -> IoResult<()> {
    replace_file(path, bytes, true, 0o600)
}

/// Writes `bytes` to `path` atomically for other processes, but without a flush: after a power loss the file
/// may be older, or empty.
pub fn write_atomically_unflushed(path: &Path, bytes: &[u8]) -> IoResult<()> {
    replace_file(path, bytes, false, MODE_USUAL)
}

/// Permissions of new files, less those that the process's mask takes.
const MODE_USUAL: u32 = 0o666;

fn replace_file(path: &Path, bytes: &[u8], is_flushed: bool, mode: u32) -> IoResult<()> {
    let context = fail("writing", path);
    let Some(name) = path.file_name() else {
        return Err(IoError::new(
            IoErrorKind::WrongType,
            format!("writing {}: no file name", path.display()),
        ));
    };
    let folder = folder_of(path);
    let temporary = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), process::id()));
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        if is_flushed {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        if is_flushed { fs::File::open(&folder)?.sync_all() } else { Ok(()) }
    })();
    written.map_err(|error| {
        // Report the error; remove the half-written file.
        let _ = fs::remove_file(&temporary);
        context(error)
    })
}

/// Truncates the new file at `temporary` to `length` bytes, makes it stable and renames it to `path` in the
/// same folder. `AlreadyExists` if `path` exists: nothing is overwritten.
pub fn name_new(temporary: &Path, length: u64, path: &Path) -> IoResult<()> {
    let named = (|| {
        let file = fs::OpenOptions::new().write(true).open(temporary)?;
        file.set_len(length)?;
        file.sync_all()?;
        // A plain rename would replace a file created there meanwhile.
        match renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
            // A filesystem without RENAME_NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::hard_link(temporary, path)?;
                fs::remove_file(temporary)?;
            }
            renamed => renamed?,
        }
        fs::File::open(folder_of(path))?.sync_all()
    })();
    named.map_err(fail("making", path))
}

pub fn create_dir_all(path: &Path) -> IoResult<()> {
    fs::create_dir_all(path).map_err(fail("creating the folder", path))
}

/// As [`create_dir_all`]; folders that are made can be entered by their owner alone.
pub fn create_private_dir_all(path: &Path) -> IoResult<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(fail("creating the folder", path))
}

/// Names of all entries of a folder, sorted; non-UTF-8 names in their lossy form.
pub fn list(path: &Path) -> IoResult<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fail("listing", path))? {
        let entry = entry.map_err(fail("listing", path))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Removes a file; `NotFound` if it does not exist.
pub fn remove_file(path: &Path) -> IoResult<()> {
    fs::remove_file(path).map_err(fail("removing", path))
}

/// Removes the named files of a folder; missing ones are not an error.
pub fn remove_files<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> IoResult<()> {
    for name in names {
        match remove_file(&folder.join(name)) {
            Err(error) if error.kind() == IoErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Removes a folder if it is empty. True if the folder no longer exists.
pub fn remove_folder_if_empty(path: &Path) -> IoResult<bool> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(fail("removing the folder", path)(error)),
    }
}

/// Resolves symbolic links and dots.
pub fn canonical(path: &Path) -> IoResult<PathBuf> {
    fs::canonicalize(path).map_err(fail("finding", path))
}

/// An exclusive lock, held by one process at a time; released on drop or when the process ends.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "the open descriptor holds the lock")] OwnedFd);

/// Locks a folder for this process; `Busy` if another process (or another lock here) holds it.
pub fn lock_folder(path: &Path) -> IoResult<FolderLock> {
    let context = || format!("locking the folder {}", path.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| IoError::from_os(error.into(), context()))?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(FolderLock(folder)),
        Err(Errno::WOULDBLOCK) => {
            Err(IoError::new(IoErrorKind::Busy, format!("{}: another process is using it", context())))
        }
        Err(error) => Err(IoError::from_os(error.into(), context())),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn fail<'a>(doing: &'a str, path: &'a Path) -> impl Fn(io::Error) -> IoError + 'a {
    move |error| IoError::from_os(error, format!("{doing} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_classified_by_file_type() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        assert_eq!(kind(&file).unwrap(), PathKind::File);
        assert_eq!(kind(folder.path()).unwrap(), PathKind::Folder);
        assert_eq!(kind(&folder.path().join("none")).unwrap(), PathKind::Missing);
        assert_eq!(kind(&file.join("below a file")).unwrap(), PathKind::Missing);
        assert_eq!(kind(Path::new("/dev/null")).unwrap(), PathKind::Other);
    }

    #[test]
    fn a_file_is_replaced_whole_and_no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "new");
        write_atomically_unflushed(&path, b"newest").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "newest");
        assert_eq!(list(folder.path()).unwrap(), ["report.json"]);
        fs::create_dir(folder.path().join("taken")).unwrap();
        let refused = write_atomically(&folder.path().join("taken"), b"x").unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::WrongType);
        assert_eq!(list(folder.path()).unwrap(), ["report.json", "taken"]);
    }

    #[test]
    fn a_new_file_is_named_when_complete_and_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let (temporary, path) = (folder.path().join("t"), folder.path().join("copy"));
        fs::write(&temporary, "whole, and more").unwrap();
        name_new(&temporary, 5, &path).unwrap();
        assert_eq!(list(folder.path()).unwrap(), ["copy"]);
        fs::write(&temporary, "other").unwrap();
        assert_eq!(name_new(&temporary, 5, &path).unwrap_err().kind(), IoErrorKind::AlreadyExists);
        assert_eq!(read_from(&path, 1, 3).unwrap(), b"hol");
        assert_eq!(metadata(&path).unwrap().size, 5);
    }

    #[test]
    fn a_file_over_its_size_limit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        assert_eq!(read_at_most(&path, 4).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(read_at_most(Path::new("/dev/zero"), 4).unwrap_err().kind(), IoErrorKind::Damaged);
    }

    #[test]
    fn text_that_is_not_utf8_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(read_to_string(&path).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), IoErrorKind::NotFound);
    }

    #[test]
    fn removing_named_files_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ours", "theirs"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        remove_files(folder.path(), ["ours", "gone already"]).unwrap();
        assert_eq!(list(folder.path()).unwrap(), ["theirs"]);
        assert!(!remove_folder_if_empty(folder.path()).unwrap());
        remove_files(folder.path(), ["theirs"]).unwrap();
        assert!(remove_folder_if_empty(folder.path()).unwrap());
    }

    #[test]
    fn a_folder_can_be_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock_folder(folder.path()).unwrap();
        assert_eq!(lock_folder(folder.path()).unwrap_err().kind(), IoErrorKind::Busy);
        drop(held);
        lock_folder(folder.path()).unwrap();
    }
}
