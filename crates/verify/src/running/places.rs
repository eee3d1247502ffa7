//! Finds the files to check: the files named, and all files below the folders named.
//!
//! The file type is detected from content; the name is used only when content is inconclusive: a file named
//! like a database that is none has lost its headers and must not be skipped.

use super::{divided_device::DividedDevice, file_place::FilePlace};
use crate::{FileKind, identify, kind::START_BYTES};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    ByteCount, IoError, IoErrorKind, IoResult,
    real::host_files::{self, FileMetadata, PathKind},
};

/// Maximum depth of folders.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Candidate {
    pub place: FilePlace,
    pub size: ByteCount,
    pub kind: FileKind,
    /// Metadata that every change of the file changes; `None` if it could not be read.
    pub about: Option<FileMetadata>,
}

impl Candidate {
    /// True if somebody has written to the file since it was found.
    pub async fn has_changed(&self) -> bool {
        self.place.metadata().ok() != self.about || self.place.is_on_changed_device().await
    }

    /// As it is shown.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// The result of a file search.
#[derive(Clone, Default)]
pub struct FileDiscovery {
    /// Files that can be checked, sorted by path.
    pub candidates: Vec<Candidate>,
    /// Files of no ESE engine.
    pub strangers: Vec<PathBuf>,
    /// Files that could not be read, with reasons.
    pub failures: Vec<String>,
    /// Folders and devices of which every file is known.
    pub searched: Vec<PathBuf>,
    /// The devices among them.
    pub devices: Vec<Rc<DividedDevice>>,
}

/// Searches `paths` of the filesystem, and `devices`. Fails if a path does not exist, or names a file that cannot
/// be checked.
pub async fn find(paths: &[PathBuf], devices: &[Rc<DividedDevice>]) -> IoResult<FileDiscovery> {
    let mut found = FileDiscovery::default();
    let mut visited = Visited::new();
    for path in paths {
        match host_files::kind(path)? {
            PathKind::Folder => {
                below(path, 0, &mut visited, &mut found).await?;
                found.searched.push(path.clone());
            }
            PathKind::File | PathKind::BlockDevice => {
                look(FilePlace::in_filesystem(path), &mut found).await?;
            }
            PathKind::Missing => {
                let context = format!("{} does not exist", path.display());
                return Err(IoError::new(IoErrorKind::NotFound, context));
            }
            PathKind::Other => {
                let context = format!("{} is neither a file nor a folder nor a device", path.display());
                return Err(IoError::new(IoErrorKind::WrongType, context));
            }
        }
    }
    for device in devices {
        for entry in device.entries() {
            look(FilePlace::on_device(device, &entry.name), &mut found).await?;
        }
        found.searched.push(device.name().to_owned());
        found.devices.push(Rc::clone(device));
    }
    found.candidates.sort_by(|one, other| one.path().cmp(other.path()));
    found.candidates.dedup_by(|one, other| one.path() == other.path());
    found.strangers.sort();
    Ok(found)
}

/// Visited folders: device and inode.
type Visited = BTreeSet<(u64, u64)>;

/// Searches a folder and those below it. Failures are recorded, and the search continues.
async fn below(
    folder: &Path,
    depth: usize,
    visited: &mut Visited,
    found: &mut FileDiscovery,
) -> IoResult<()> {
    // Links may lead to one folder over and over, by 2^n paths.
    match host_files::metadata(folder) {
        Ok(about) if !visited.insert(about.identity) => return Ok(()),
        // Listing it reports the failure.
        _ => {}
    }
    let names = match host_files::list(folder) {
        Ok(names) => names,
        Err(error) if depth == 0 => return Err(error),
        Err(error) => {
            found.failures.push(error.to_string());
            return Ok(());
        }
    };
    for name in names {
        let path = folder.join(name);
        let outcome = match host_files::kind(&path) {
            Ok(PathKind::Folder) if depth < DEPTH_MAX => {
                Box::pin(below(&path, depth + 1, visited, found)).await
            }
            Ok(PathKind::Folder) => {
                found.failures.push(format!("{}: too many folders in folders", path.display()));
                Ok(())
            }
            Ok(PathKind::File) => look(FilePlace::in_filesystem(&path), found).await,
            // Devices below a folder are not databases.
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            found.failures.push(error.to_string());
        }
    }
    Ok(())
}

async fn look(place: FilePlace, found: &mut FileDiscovery) -> IoResult<()> {
    let source = place.open().await?;
    let size = source.size();
    let start = source.read_any(0, START_BYTES).await?;
    let kind = identify(&start, size);
    let is_ours = match kind {
        FileKind::Unknown => named_kind(&place.name()).is_some(),
        FileKind::Blank => named_kind(&place.name()).is_some() || is_named_log(&place.name()),
        _ => true,
    };
    if is_ours {
        let about = place.metadata().ok();
        found.candidates.push(Candidate { place, size, kind, about })
    } else {
        found.strangers.push(place.path().to_owned())
    }
    Ok(())
}

/// The file type in words by its name, if the name is one the engine uses.
pub fn named_kind(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.rsplit_once('.')?;
    match extension {
        "edb" => Some("a database"),
        // Dictionaries of other programs have this name too.
        "log" | "jtx" if is_log_stem(stem) => Some("a log"),
        "chk" | "jcp" if stem.len() == 3 => Some("a checkpoint"),
        "jfm" => Some("a flush map"),
        _ => None,
    }
}

/// True for the name of a log or of a reserve log.
pub fn is_named_log(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.rsplit_once('.').is_some_and(|(stem, extension)| match extension {
        "log" | "jtx" => is_log_stem(stem),
        "jrs" => true,
        _ => false,
    })
}

/// True for the name of a file that a running engine writes all the time: the current log, the checkpoint.
pub fn is_live_file(name: &str) -> bool {
    let is_checkpoint = named_kind(name) == Some("a checkpoint");
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    is_checkpoint || stem.len() == 3 && is_named_log(name)
}

/// `e00`, `e00tmp`, `e0000012`, `e0000000012`.
fn is_log_stem(stem: &str) -> bool {
    let Some((base, rest)) = stem.split_at_checked(3) else { return false };
    let is_base = base.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_number = matches!(rest.len(), 5 | 8) && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_base && (rest.is_empty() && base.starts_with('e') || rest == "tmp" || is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_engine_are_known_and_those_of_others_are_not() {
        let named = named_kind;
        assert_eq!(named("Mailbox Database 1.edb"), Some("a database"));
        for log in ["E00.log", "e00tmp.log", "E0000012.log", "E000000012A.log"] {
            assert_eq!(named(log), Some("a log"), "{log}");
        }
        assert_eq!(named("E00.chk"), Some("a checkpoint"));
        for other in ["mail.log", "app.log", "setup.log", "E00res00001.jrs", "edb", "x.txt", "syslog.chk"] {
            assert_eq!(named(other), None, "{other}");
        }
        assert!(is_named_log("E00res00001.jrs") && !is_named_log("app.log"));
        assert!(is_live_file("E00.log") && is_live_file("E00.chk"));
        assert!(!["E0000000012.log", "E00tmp.log", "priv1.edb"].into_iter().any(is_live_file));
    }
}
