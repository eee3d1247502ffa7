//! Host files that grow while a run goes on and are read line by line: records of runs.
//!
//! All calls block, so they belong on a thread that measures nothing.

use crate::{IoError, IoErrorKind, IoResult};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

/// A new file that only grows.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
}

impl AppendFile {
    /// Creates the file and makes its name survive a power loss; `AlreadyExists` if the name is taken.
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

    /// Appends `bytes`. They survive the end of this process, but a power loss only after
    /// [`AppendFile::sync`].
    pub fn append(&mut self, bytes: &[u8]) -> IoResult<()> {
        let added = self.file.write_all(bytes);
        added.map_err(|error| IoError::from_os(error, format!("adding to {}", self.path.display())))
    }

    /// Makes all appended bytes survive a power loss.
    pub fn sync(&self) -> IoResult<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| IoError::from_os(error, format!("syncing {}", self.path.display())))
    }
}

#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    reader: BufReader<File>,
}

impl LineFile {
    pub fn open(path: &Path) -> IoResult<Self> {
        let file = File::open(path);
        let file = file.map_err(|error| IoError::from_os(error, format!("opening {}", path.display())))?;
        Ok(Self { path: path.to_owned(), reader: BufReader::new(file) })
    }

    /// The next line without its line break; the last line needs no break. `None` at the end. A line longer
    /// than `bytes_max` is `Damaged`.
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
    fn appended_lines_are_read_back_one_by_one() {
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
    fn an_existing_file_is_not_overwritten_and_a_long_line_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.run");
        fs::write(&path, [b'x'; 1000]).unwrap();
        assert_eq!(AppendFile::create(&path).unwrap_err().kind(), IoErrorKind::AlreadyExists);
        assert_eq!(LineFile::open(&path).unwrap().next(999).unwrap_err().kind(), IoErrorKind::Damaged);
        assert_eq!(LineFile::open(&path).unwrap().next(1000).unwrap().unwrap().len(), 1000);
    }
}
