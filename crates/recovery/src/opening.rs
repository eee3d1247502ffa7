//! An open backup as a file on this host remembers it: all that its finder needs to take it away.
//!
//! Invariants:
//!
//! 1. The file is there before anything is made here or on the server, and names all of it.
//! 2. It goes when all of that is gone, and not before; another opening of the same backup can only follow then.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::{IoError, IoErrorKind, IoResult, real::companions::ProcessIdentity, real::host_files};

/// The version of the files. They do not outlive the machine's uptime; a program of another version leaves them alone.
const VERSION: u32 = 1;
const FILE_END: &str = ".json";

/// The way in which a backup is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpeningKind {
    /// Volumes as files, read from the snapshots.
    Images,
    /// Filesystems mounted from clones.
    Filesystems,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpeningPhase {
    Opening,
    Open,
    Closing,
}

/// A clone on the server, which is deleted at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningClone {
    pub pool: String,
    pub volume: String,
}

/// The server, as arguments name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningServer {
    pub state: Option<PathBuf>,
    pub address: Option<String>,
    pub token_file: Option<PathBuf>,
    pub tls_folder: Option<PathBuf>,
}

/// A place in the folder, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPart {
    /// `POOL/VOLUME`.
    pub volume: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PathBuf>,
    /// The filesystem, `files of Spindle`, or why it is not mounted.
    pub content: String,
}

/// An open backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    version: u32,
    pub kind: OpeningKind,
    pub set: String,
    /// Name and number of the backup.
    pub backup: String,
    pub number: u64,
    pub folder: PathBuf,
    /// Folder of the images; that of the mount itself if they are all that is shown.
    pub images: PathBuf,
    /// The folder was made for it, and goes with it.
    pub owns_folder: bool,
    pub is_writable: bool,
    /// Seconds since 1970.
    pub until: i64,
    /// The user and the process.
    pub by: String,
    pub process: u32,
    pub process_started: u64,
    pub server: OpeningServer,
    pub exports: Vec<String>,
    pub clones: Vec<OpeningClone>,
    pub phase: OpeningPhase,
    /// The reasons why it could not be taken away yet.
    pub problems: Vec<String>,
    pub parts: Vec<OpenPart>,
}

impl Opening {
    /// A new one of this process, as its file has it before anything is made.
    #[expect(clippy::too_many_arguments, reason = "all of them are written down together, and named below")]
    pub fn new(
        kind: OpeningKind,
        (set, backup, number): (&str, &str, u64),
        (folder, images): (PathBuf, PathBuf),
        is_writable: bool,
        until: i64,
        by: String,
        server: OpeningServer,
        (exports, clones): (Vec<String>, Vec<OpeningClone>),
    ) -> Self {
        let own = ProcessIdentity::own();
        Self {
            version: VERSION,
            kind,
            set: set.to_owned(),
            backup: backup.to_owned(),
            number,
            folder,
            images,
            owns_folder: false,
            is_writable,
            until,
            by,
            process: own.process,
            process_started: own.started_ticks,
            server,
            exports,
            clones,
            phase: OpeningPhase::Opening,
            problems: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// The process that serves it.
    pub fn keeper(&self) -> ProcessIdentity {
        ProcessIdentity { process: self.process, started_ticks: self.process_started }
    }
}

/// The folder of the files.
#[derive(Clone, Debug)]
pub struct OpeningFolder(PathBuf);

impl OpeningFolder {
    /// Others can enter it: filesystems below it have permissions of their own.
    ///
    /// # Errors
    ///
    /// The folder is not there, and cannot be made.
    pub fn new(path: PathBuf) -> IoResult<Self> {
        host_files::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The file of an open backup: one of each backup with filesystems, and one a process with images.
    pub fn file_of(&self, opening: &Opening) -> PathBuf {
        let (set, number) = (&opening.set, opening.number);
        match opening.kind {
            OpeningKind::Filesystems => self.0.join(format!("{set}-{number}{FILE_END}")),
            OpeningKind::Images => self.0.join(format!("{set}-{number}-mount-{}{FILE_END}", opening.process)),
        }
    }

    /// The usual folder of a backup with filesystems, that of its images, and the file with what its process says.
    pub fn places_of(&self, set: &str, number: u64) -> (PathBuf, PathBuf, PathBuf) {
        let name = format!("{set}-{number}");
        (self.0.join(&name), self.0.join(".images").join(&name), self.0.join(format!("{name}.log")))
    }

    /// Makes the file of a new one.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the backup is open already: two may begin at a time.
    pub fn create(&self, opening: &Opening) -> IoResult<()> {
        let (file, text) = (self.file_of(opening), text_of(opening));
        let temporary = file.with_extension(format!("{}.new", opening.process));
        host_files::write_atomically_unflushed(&temporary, text.as_bytes())?;
        let named = host_files::name_new(&temporary, text.len() as u64, &file);
        if named.is_err() {
            let _ = host_files::remove_file(&temporary);
        }
        named
    }

    /// Writes the file of one that has one.
    pub fn write(&self, opening: &Opening) -> IoResult<()> {
        host_files::write_atomically_unflushed(&self.file_of(opening), text_of(opening).as_bytes())
    }

    /// True while the file is of this opening: another one of the same backup may have followed.
    pub fn has(&self, opening: &Opening) -> bool {
        let known = self.read(&self.file_of(opening)).ok().flatten();
        known.is_some_and(|known| known.keeper() == opening.keeper())
    }

    /// Removes the file of one that is gone.
    pub fn remove(&self, opening: &Opening) -> IoResult<()> {
        match host_files::remove_file(&self.file_of(opening)) {
            Err(error) if error.kind() != IoErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The open backup of a file; none if there is no such file, or it is of another version.
    pub fn read(&self, file: &Path) -> IoResult<Option<Opening>> {
        match host_files::read_to_string(file) {
            Ok(text) => Ok(serde_json::from_str(&text).ok().filter(|one: &Opening| one.version == VERSION)),
            Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All open backups of this folder, by set and number.
    pub fn all(&self) -> IoResult<Vec<Opening>> {
        let mut found = Vec::new();
        for name in host_files::list(&self.0)?.into_iter().filter(|name| name.ends_with(FILE_END)) {
            match self.read(&self.0.join(&name)) {
                Ok(opening) => found.extend(opening),
                Err(error) => return Err(IoError::new(error.kind(), format!("{name}: {error}"))),
            }
        }
        found.sort_by(|one, other| (&one.set, one.number).cmp(&(&other.set, other.number)));
        Ok(found)
    }
}

fn text_of(opening: &Opening) -> String {
    serde_json::to_string_pretty(opening).expect("it can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(kind: OpeningKind) -> Opening {
        Opening::new(
            kind,
            ("mail", "mail-2026-11-28-1830-17", 17),
            (PathBuf::from("/a"), PathBuf::from("/b")),
            false,
            1,
            "root".to_owned(),
            OpeningServer::default(),
            (vec!["export".to_owned()], Vec::new()),
        )
    }

    #[test]
    fn what_is_written_is_read_until_it_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = OpeningFolder::new(place.path().join("open")).unwrap();
        assert_eq!(folder.all().unwrap(), []);
        let (one, other) = (opening(OpeningKind::Filesystems), opening(OpeningKind::Images));
        folder.create(&one).unwrap();
        folder.write(&other).unwrap();
        assert_eq!(folder.create(&one).unwrap_err().kind(), IoErrorKind::AlreadyExists);
        assert_eq!(folder.all().unwrap().len(), 2);
        assert_eq!(folder.read(&folder.file_of(&one)).unwrap().as_ref(), Some(&one));
        assert!(one.keeper().is_alive() && folder.has(&one));
        // One that follows has the file, and not the process.
        let follower = Opening { process_started: one.process_started + 1, ..one.clone() };
        assert!(!folder.has(&follower) && !follower.keeper().is_alive());
        folder.remove(&one).unwrap();
        folder.remove(&one).unwrap();
        assert!(!folder.has(&one));
        assert_eq!(folder.all().unwrap(), [other]);
    }

    #[test]
    fn a_file_of_another_version_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = OpeningFolder::new(place.path().to_owned()).unwrap();
        let newer = Opening { version: VERSION + 1, ..opening(OpeningKind::Filesystems) };
        folder.write(&newer).unwrap();
        assert_eq!(folder.all().unwrap(), []);
        host_files::write_atomically_unflushed(&folder.file_of(&newer), b"{").unwrap();
        assert_eq!(folder.all().unwrap(), []);
    }
}
