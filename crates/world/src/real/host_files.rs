//! The only door to ordinary host files: profiles, reports, state files of a few MiB at most.
//!
//! Blocking calls, for moments when nothing is being measured. Storage under test goes through
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
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process,
};

/// What is found at a path; symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing, or a link to nothing.
    Missing,
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A block device.
    BlockDevice,
    /// A pipe, a socket, a character device.
    Other,
}

/// What is at `path`. `PermissionDenied` if a folder on the way cannot be entered.
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

/// What the filesystem says of a file without its being read; symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its length, in bytes; of a block device none.
    pub size: u64,
    /// When it was last written.
    pub modified: WallTime,
    /// What it is, whatever it is called: device and inode. Of two names of one file they are the same.
    pub identity: (u64, u64),
}

/// What the filesystem says of the file at `path`.
pub fn about(path: &Path) -> IoResult<About> {
    let found = fs::metadata(path).map_err(fail("examining", path))?;
    let nanos = u32::try_from(found.mtime_nsec()).unwrap_or_default();
    Ok(About {
        size: found.len(),
        modified: WallTime { seconds: found.mtime(), nanos },
        identity: (found.dev(), found.ino()),
    })
}

/// What a file holds from the byte `from` on, at most `bytes_max` of it, through the page cache.
pub fn read_from(path: &Path, from: u64, bytes_max: u64) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(bytes_max).read_to_end(&mut bytes)
    });
    read.map_err(fail("reading", path))?;
    Ok(bytes)
}

/// The whole of a UTF-8 text file; `Damaged` if it is not UTF-8.
pub fn read_to_string(path: &Path) -> IoResult<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        IoError::new(IoErrorKind::Damaged, format!("reading {}: it is not UTF-8 text", path.display()))
    })
}

/// The whole of a file.
pub fn read(path: &Path) -> IoResult<Vec<u8>> {
    fs::read(path).map_err(fail("reading", path))
}

/// The whole of a file of at most `bytes_max`; `Damaged` if it is longer.
pub fn read_at_most(path: &Path, bytes_max: u64) -> IoResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    read.map_err(fail("reading", path))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(IoError::new(
            IoErrorKind::Damaged,
            format!("reading {}: it has more than {bytes_max} bytes", path.display()),
        )),
        false => Ok(bytes),
    }
}

/// Puts `bytes` at `path` in one step: whoever looks sees the old file or the whole new one, after
/// a power loss too.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> IoResult<()> {
    replace_file(path, bytes, true)
}

/// As [`write_atomically`], but nothing is flushed: after a power loss the file may be older, or empty.
pub fn write_atomically_unflushed(path: &Path, bytes: &[u8]) -> IoResult<()> {
    replace_file(path, bytes, false)
}

fn replace_file(path: &Path, bytes: &[u8], is_flushed: bool) -> IoResult<()> {
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
        let mut file = fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        if is_flushed {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        match is_flushed {
            true => fs::File::open(&folder)?.sync_all(),
            false => Ok(()),
        }
    })();
    written.map_err(|error| {
        // The failure is the news; the half-written file helps nobody.
        let _ = fs::remove_file(&temporary);
        context(error)
    })
}

/// Cuts the new file at `temporary` to `length` bytes, makes it stable, and gives it the name `path` in the same folder;
/// `AlreadyExists` if anything is called so, and then nothing is written over.
pub fn name_new(temporary: &Path, length: u64, path: &Path) -> IoResult<()> {
    let named = (|| {
        let file = fs::OpenOptions::new().write(true).open(temporary)?;
        file.set_len(length)?;
        file.sync_all()?;
        // A plain rename would replace what came there meanwhile.
        match renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
            // A filesystem that cannot promise that.
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

/// Makes a folder and those above it, unless they are there.
pub fn create_dir_all(path: &Path) -> IoResult<()> {
    fs::create_dir_all(path).map_err(fail("creating the folder", path))
}

/// Names of everything in a folder, sorted; those that are not UTF-8 in their lossy form.
pub fn list(path: &Path) -> IoResult<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fail("listing", path))? {
        let entry = entry.map_err(fail("listing", path))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Removes a file; `NotFound` if there is none.
pub fn remove_file(path: &Path) -> IoResult<()> {
    fs::remove_file(path).map_err(fail("removing", path))
}

/// Removes the named files of a folder; those already gone are fine.
pub fn remove_files<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> IoResult<()> {
    for name in names {
        match remove_file(&folder.join(name)) {
            Err(error) if error.kind() == IoErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Removes a folder if it is empty; true if it is gone now.
pub fn remove_folder_if_empty(path: &Path) -> IoResult<bool> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(fail("removing the folder", path)(error)),
    }
}

/// The path without symbolic links and dots.
pub fn canonical(path: &Path) -> IoResult<PathBuf> {
    fs::canonicalize(path).map_err(fail("finding", path))
}

/// Held by one process at a time; let go when dropped, or when the process ends in any way.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "held for what its being open means")] OwnedFd);

/// Takes a folder for this process; `Busy` if another process (or another lock here) holds it.
pub fn lock_folder(path: &Path) -> IoResult<FolderLock> {
    let context = || format!("taking the folder {}", path.display());
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
    fn a_path_is_told_by_its_kind() {
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
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
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
    fn a_new_file_gets_its_name_when_it_is_whole_and_no_other_loses_it() {
        let folder = tempfile::tempdir().unwrap();
        let (temporary, path) = (folder.path().join("t"), folder.path().join("copy"));
        fs::write(&temporary, "whole, and more").unwrap();
        name_new(&temporary, 5, &path).unwrap();
        assert_eq!(list(folder.path()).unwrap(), ["copy"]);
        fs::write(&temporary, "other").unwrap();
        assert_eq!(name_new(&temporary, 5, &path).unwrap_err().kind(), IoErrorKind::AlreadyExists);
        assert_eq!(read_from(&path, 1, 3).unwrap(), b"hol");
        assert_eq!(about(&path).unwrap().size, 5);
    }

    #[test]
    fn no_more_is_read_than_a_file_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        assert_eq!(read_at_most(&path, 4).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(read_at_most(Path::new("/dev/zero"), 4).unwrap_err().kind(), IoErrorKind::Damaged);
    }

    #[test]
    fn text_that_is_no_text_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(read_to_string(&path).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), IoErrorKind::NotFound);
    }

    #[test]
    fn removing_leaves_what_was_not_named() {
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
    fn a_folder_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock_folder(folder.path()).unwrap();
        assert_eq!(lock_folder(folder.path()).unwrap_err().kind(), IoErrorKind::Busy);
        drop(held);
        lock_folder(folder.path()).unwrap();
    }
}
