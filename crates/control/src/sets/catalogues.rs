//! The catalogues of sets that the server keeps: `sets/SET.catalogue` in its state folder.

use std::path::{Path, PathBuf};
use world::{
    IoResult, StateFile,
    real::{HostStateFile, host_files},
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
}
