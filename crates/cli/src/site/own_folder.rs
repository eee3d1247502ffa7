//! The folder of a site's server: its journal, and pools whose group says no folder.

use super::socket_of;
use control::journal::DaemonJournal;
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{
    IoErrorKind,
    real::{
        HostStateFile,
        host_files::{self, PathKind},
    },
};

pub const JOURNAL: &str = "journal.redb";

/// A state folder that is used, and whether it was there before.
pub struct OwnFolder {
    path: PathBuf,
    had_folder: bool,
    had_journal: bool,
}

/// A state folder, by who uses it.
pub enum StateFolder {
    Own(OwnFolder, Arc<DaemonJournal>),
    /// A server has it, whose API is at this socket.
    Served(PathBuf),
}

/// The socket of the server that has a state folder; `None` if no server has it.
pub fn served_socket(state: &Path) -> Option<PathBuf> {
    let socket = socket_of(state);
    (OwnFolder::is_taken(state) && host_files::metadata(&socket).is_ok()).then_some(socket)
}

impl StateFolder {
    /// As [`OwnFolder::open`], unless a server has the folder.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        if let Some(socket) = served_socket(path) {
            return Ok(Self::Served(socket));
        }
        let (folder, journal) = OwnFolder::open(path)?;
        Ok(Self::Own(folder, journal))
    }
}

impl OwnFolder {
    /// True if there is a journal, whoever has it.
    pub fn has_journal(path: &Path) -> bool {
        !matches!(host_files::kind(&path.join(JOURNAL)), Ok(PathKind::Missing))
    }

    /// True if another process has the journal.
    fn is_taken(path: &Path) -> bool {
        let journal = path.join(JOURNAL);
        let is_there = !matches!(host_files::kind(&journal), Ok(PathKind::Missing));
        is_there && HostStateFile::open(&journal).is_err_and(|error| error.kind() == IoErrorKind::Busy)
    }

    /// Makes the folder if it is missing, and opens the journal, which this process alone may have.
    pub fn open(path: &Path) -> Result<(Self, Arc<DaemonJournal>), Refusal> {
        let is_there = |path: &Path| !matches!(host_files::kind(path), Ok(PathKind::Missing));
        let (had_folder, had_journal) = (is_there(path), is_there(&path.join(JOURNAL)));
        let folder = Self { path: path.to_owned(), had_folder, had_journal };
        host_files::create_private_dir_all(path)
            .map_err(|error| Refusal::new(error.to_string(), "name another folder with ⟨state⟩ FOLDER"))?;
        let journal = folder.journal()?;
        Ok((folder, Arc::new(journal)))
    }

    fn journal(&self) -> Result<DaemonJournal, Refusal> {
        let file = HostStateFile::open(&self.path.join(JOURNAL)).map_err(|error| {
            let remedy = match error.kind() {
                IoErrorKind::Busy => {
                    "'spindle serve' or 'spindle apply' runs with this state folder: wait until it has begun or ended, and repeat \
                     the command"
                }
                _ => "name another folder with ⟨state⟩ FOLDER",
            };
            Refusal::new(error.to_string(), remedy)
        })?;
        DaemonJournal::open(Arc::new(file)).map_err(|error| error.refusal())
    }

    /// Removes what [`OwnFolder::open`] made, if nothing was recorded since: what was refused leaves all as it was.
    pub fn leave_as_it_was(self) {
        if self.had_journal {
            return;
        }
        let is_unused = self.journal().is_ok_and(|journal| {
            matches!((journal.served_site(), journal.apply_under_way()), (Ok(None), Ok(None)))
        });
        if is_unused {
            // The refusal is the news; a file that stays is empty.
            let _ = host_files::remove_file(&self.path.join(JOURNAL));
            if !self.had_folder {
                let _ = host_files::remove_folder_if_empty(&self.path);
            }
        }
    }
}
