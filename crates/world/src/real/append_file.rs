//! Host files that grow while something goes on, and are read line by line: records of runs.
//!
//! Blocking calls, so the business of a thread that measures nothing.

use crate::{IoError, IoErrorKind, IoResult};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

/// A new file that is only ever added to.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
}

impl AppendFile {
    /// Makes the file, in a folder that keeps it after a power loss; `AlreadyExists` if there is one.
    pub fn create(path: &Path) -> IoResult<Self> {
        let context = || format!("making {}", path.display());
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        let file = file.map_err(|error| IoError::from_os(error, context()))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| IoError::from_os(error, context()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds `bytes` at the end. They survive the end of this process, not yet a power loss.
    pub fn append(&mut self, bytes: &[u8]) -> IoResult<()> {
        let added = self.file.write_all(bytes);
        added.map_err(|error| IoError::from_os(error, format!("adding to {}", self.path.display())))
    }

    /// Makes everything added until now survive a power loss.
    pub fn sync(&self) -> IoResult<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| IoError::from_os(error, format!("syncing {}", self.path.display())))
    }
}

/// A file read line by line.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    reader: BufReader<File>,
}

impl LineFile {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> IoResult<Self> {
        let file = File::open(path);
        let file = file.map_err(|error| IoError::from_os(error, format!("opening {}", path.display())))?;
        Ok(Self { path: path.to_owned(), reader: BufReader::new(file) })
    }

    /// The next line without its break, the last one even if it has none; none at the end. A line of
    /// more than `bytes_max` bytes is `Damaged`.
    pub fn next(&mut self, bytes_max: u64) -> IoResult<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(bytes_max + 1);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| IoError::from_os(error, format!("reading {}", self.path.display())))?;
        match line.last() {
            None => return Ok(None),
            Some(b'\n') => drop(line.pop()),
            Some(_) if line.len() as u64 > bytes_max => {
                let text = format!("reading {}: a line of more than {bytes_max} bytes", self.path.display());
                return Err(IoError::new(IoErrorKind::Damaged, text));
            }
            Some(_) => {}
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_added_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.run");
        let mut file = AppendFile::create(&path).unwrap();
        file.append(b"one\ntwo").unwrap();
        file.append(b" and more\n\nlast").unwrap();
        file.sync().unwrap();
        let mut lines = LineFile::open(&path).unwrap();
        for expected in ["one", "two and more", "", "last"] {
            assert_eq!(lines.next(100).unwrap().as_deref(), Some(expected.as_bytes()));
        }
        assert_eq!(lines.next(100).unwrap(), None);
    }

    #[test]
    fn nothing_is_written_over_and_no_line_eats_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.run");
        fs::write(&path, [b'x'; 1000]).unwrap();
        assert_eq!(AppendFile::create(&path).unwrap_err().kind(), IoErrorKind::AlreadyExists);
        assert_eq!(LineFile::open(&path).unwrap().next(999).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(LineFile::open(&path).unwrap().next(1000).unwrap().unwrap().len(), 1000);
    }
}
