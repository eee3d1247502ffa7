//! The catalogues of sets that the server keeps: `sets/SET.catalogue` in its state folder.

use protect::UnixSecond;
use report::calendar::file_stamp;
use std::path::{Path, PathBuf};
use world::{
    IoResult, StateFile,
    real::{
        HostStateFile,
        host_files::{self, PathKind},
    },
};

/// Name of the folder in the state folder.
const FOLDER: &str = "sets";
const END: &str = ".catalogue";

/// The places of catalogues.
pub trait CatalogueFiles {
    /// Opens the catalogue of a set, or makes it empty.
    ///
    /// # Errors
    ///
    /// It cannot be opened; `Busy` if another runner has it.
    fn open(&self, set: &str) -> IoResult<Box<dyn StateFile>>;

    /// Keeps a copy of a set's catalogue beside it, and returns its place; `None` if it is empty, or none is there.
    ///
    /// # Errors
    ///
    /// It cannot be read, or the copy not be written.
    fn keep_copy(&self, set: &str, now: UnixSecond) -> IoResult<Option<String>>;
}

/// Catalogues in the state folder of a server.
pub struct FolderCatalogues {
    folder: PathBuf,
}

impl FolderCatalogues {
    /// `state` is the state folder.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }
}

impl CatalogueFiles for FolderCatalogues {
    fn open(&self, set: &str) -> IoResult<Box<dyn StateFile>> {
        // It may have been removed meanwhile, with all that it had.
        host_files::create_private_dir_all(&self.folder)?;
        Ok(Box::new(HostStateFile::open(&self.folder.join(format!("{set}{END}")))?))
    }

    fn keep_copy(&self, set: &str, now: UnixSecond) -> IoResult<Option<String>> {
        keep_copy(&self.folder.join(format!("{set}{END}")), now)
    }
}

/// The catalogues in the state folder of a server, by the names of their sets.
pub fn catalogues_in(state: &Path) -> Vec<PathBuf> {
    let folder = state.join(FOLDER);
    let mut names = host_files::list(&folder).unwrap_or_default();
    names.retain(|name| name.ends_with(END));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Keeps a copy of a catalogue beside it, as `SET.catalogue.before-TIME`.
///
/// # Errors
///
/// It cannot be read, or the copy not be written.
pub fn keep_copy(catalogue: &Path, now: UnixSecond) -> IoResult<Option<String>> {
    if matches!(host_files::kind(catalogue), Ok(PathKind::Missing)) {
        return Ok(None);
    }
    let bytes = host_files::read(catalogue)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let copy = format!("{}.before-{}", catalogue.display(), file_stamp(now.0));
    host_files::write_secret(Path::new(&copy), &bytes)?;
    Ok(Some(copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::IoErrorKind;

    #[test]
    fn a_catalogue_has_one_runner_and_a_file_by_the_name_of_its_set() {
        let state = tempfile::tempdir().unwrap();
        let catalogues = FolderCatalogues::new(state.path());
        let first = catalogues.open("mail").unwrap();
        first.write_at(0, b"a line").unwrap();
        assert_eq!(catalogues.open("mail").unwrap_err().kind(), IoErrorKind::Busy);
        let other = catalogues.open("mail of boston").unwrap();
        assert_eq!(other.size().unwrap(), 0, "another set has another file");
        drop(first);
        assert_eq!(catalogues.open("mail").unwrap().size().unwrap(), 6);
        let folder = host_files::list(&state.path().join(FOLDER)).unwrap();
        assert_eq!(folder, ["mail of boston.catalogue", "mail.catalogue"]);
        assert_eq!(catalogues_in(state.path()).len(), 2);
        assert!(catalogues_in(&state.path().join("elsewhere")).is_empty());
        let copy = catalogues.keep_copy("mail", UnixSecond(0)).unwrap().unwrap();
        assert_eq!(host_files::read(Path::new(&copy)).unwrap(), b"a line");
        for empty in ["mail of boston", "mail of nowhere"] {
            assert_eq!(catalogues.keep_copy(empty, UnixSecond(0)).unwrap(), None);
        }
    }
}
