//! The files of days: `history/2026-11-29.day` in the state folder.

use report::calendar::{parse_time, utc_time};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};
use world::{
    IoError, IoErrorKind, IoResult,
    real::host_files::{self, PathKind},
};

/// Name of the folder in the state folder.
const FOLDER: &str = "history";
const END: &str = ".day";
/// No file of a day is larger.
const DAY_BYTES_MAX: u64 = 32 << 20;

/// The places of days, which are days since 1970.
pub trait HistoryFiles: Send + Sync {
    /// The days that have a file, ascending, with its size in bytes.
    ///
    /// # Errors
    ///
    /// The storage failed.
    fn days(&self) -> IoResult<Vec<(i64, u64)>>;

    /// Bytes of a day's file.
    ///
    /// # Errors
    ///
    /// The storage failed, or the file is not there (`NotFound`).
    fn read(&self, day: i64) -> IoResult<Vec<u8>>;

    /// Makes these bytes the file of a day, whole or not at all, stable on return.
    ///
    /// # Errors
    ///
    /// The storage failed: the file is as before, or replaced.
    fn replace(&self, day: i64, bytes: &[u8]) -> IoResult<()>;

    /// # Errors
    ///
    /// The storage failed.
    fn remove(&self, day: i64) -> IoResult<()>;

    /// Keeps a file that cannot be read under another name, which is returned.
    ///
    /// # Errors
    ///
    /// The storage failed.
    fn set_aside(&self, day: i64) -> IoResult<String>;
}

impl<Files: HistoryFiles> HistoryFiles for Arc<Files> {
    fn days(&self) -> IoResult<Vec<(i64, u64)>> {
        (**self).days()
    }

    fn read(&self, day: i64) -> IoResult<Vec<u8>> {
        (**self).read(day)
    }

    fn replace(&self, day: i64, bytes: &[u8]) -> IoResult<()> {
        (**self).replace(day, bytes)
    }

    fn remove(&self, day: i64) -> IoResult<()> {
        (**self).remove(day)
    }

    fn set_aside(&self, day: i64) -> IoResult<String> {
        (**self).set_aside(day)
    }
}

/// Days in the state folder of a server.
pub struct FolderHistory {
    folder: PathBuf,
}

impl FolderHistory {
    /// `state` is the state folder.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    fn path(&self, day: i64) -> PathBuf {
        self.folder.join(format!("{}{END}", date_of(day)))
    }
}

/// A day as `2026-11-29`.
pub(super) fn date_of(day: i64) -> String {
    let time = utc_time(day.saturating_mul(super::DAY_SECONDS));
    time.split('T').next().unwrap_or_default().to_owned()
}

impl HistoryFiles for FolderHistory {
    fn days(&self) -> IoResult<Vec<(i64, u64)>> {
        if matches!(host_files::kind(&self.folder)?, PathKind::Missing) {
            return Ok(Vec::new());
        }
        let mut days = Vec::new();
        for name in host_files::list(&self.folder)? {
            let day = name
                .strip_suffix(END)
                .and_then(parse_time)
                .map(|second| second.div_euclid(super::DAY_SECONDS));
            // Other files are somebody else's.
            if let Some(day) = day.filter(|day| name == format!("{}{END}", date_of(*day))) {
                days.push((day, host_files::metadata(&self.folder.join(&name))?.size));
            }
        }
        days.sort_unstable();
        Ok(days)
    }

    fn read(&self, day: i64) -> IoResult<Vec<u8>> {
        host_files::read_file_at_most(&self.path(day), DAY_BYTES_MAX)
    }

    fn replace(&self, day: i64, bytes: &[u8]) -> IoResult<()> {
        host_files::create_private_dir_all(&self.folder)?;
        host_files::write_atomically(&self.path(day), bytes)
    }

    fn remove(&self, day: i64) -> IoResult<()> {
        host_files::remove_file(&self.path(day))
    }

    fn set_aside(&self, day: i64) -> IoResult<String> {
        let bytes = self.read(day)?;
        let aside = self.path(day).with_extension("day.unreadable");
        host_files::write_atomically(&aside, &bytes)?;
        Ok(aside.display().to_string())
    }
}

/// Days in memory, for simulated sites.
#[derive(Default)]
pub struct MemoryHistory(Mutex<MemoryDays>);

#[derive(Default)]
struct MemoryDays {
    days: BTreeMap<i64, Vec<u8>>,
    aside: Vec<Vec<u8>>,
    /// Nothing can be written.
    is_full: bool,
}

impl MemoryHistory {
    /// Refuses writes from now on, or no longer.
    pub fn set_full(&self, is_full: bool) {
        self.known().is_full = is_full;
    }

    /// Files that were set aside.
    pub fn aside(&self) -> Vec<Vec<u8>> {
        self.known().aside.clone()
    }

    fn known(&self) -> MutexGuard<'_, MemoryDays> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

impl HistoryFiles for MemoryHistory {
    fn days(&self) -> IoResult<Vec<(i64, u64)>> {
        Ok(self.known().days.iter().map(|(day, bytes)| (*day, bytes.len() as u64)).collect())
    }

    fn read(&self, day: i64) -> IoResult<Vec<u8>> {
        let found = self.known().days.get(&day).cloned();
        found.ok_or_else(|| IoError::new(IoErrorKind::NotFound, format!("{} is not there", date_of(day))))
    }

    fn replace(&self, day: i64, bytes: &[u8]) -> IoResult<()> {
        let mut known = self.known();
        if known.is_full {
            return Err(IoError::new(IoErrorKind::NoSpace, "the state folder is full"));
        }
        known.days.insert(day, bytes.to_vec());
        Ok(())
    }

    fn remove(&self, day: i64) -> IoResult<()> {
        self.known().days.remove(&day);
        Ok(())
    }

    fn set_aside(&self, day: i64) -> IoResult<String> {
        let bytes = self.read(day)?;
        self.known().aside.push(bytes);
        Ok(format!("{}.unreadable", date_of(day)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_file_for_each_day_and_leaves_others_alone() {
        let state = tempfile::tempdir().unwrap();
        let history = FolderHistory::new(state.path());
        assert_eq!(history.days().unwrap(), []);
        history.replace(20_786, b"one").unwrap();
        history.replace(20_785, b"before").unwrap();
        history.replace(20_786, b"other").unwrap();
        host_files::write_atomically(&state.path().join("history/notes.txt"), b"mine").unwrap();
        host_files::write_atomically(&state.path().join("history/last.day"), b"mine").unwrap();
        assert_eq!(history.days().unwrap(), [(20_785, 6), (20_786, 5)]);
        assert_eq!(history.read(20_786).unwrap(), b"other");
        assert!(
            host_files::list(&state.path().join("history")).unwrap().contains(&"2026-11-29.day".to_owned())
        );
        let aside = history.set_aside(20_785).unwrap();
        assert!(aside.ends_with("2026-11-28.day.unreadable"), "{aside}");
        history.remove(20_785).unwrap();
        assert_eq!(history.days().unwrap(), [(20_786, 5)]);
        assert_eq!(history.read(20_785).unwrap_err().kind(), IoErrorKind::NotFound);
    }
}
