//! Spindle's flush journal beside a database that was in use. Recovery restores a page torn by a power cut
//! from it before it redoes anything, so such a page is no damage as long as the journal holds it.

use super::stamps::ReadOnly;
use crate::{FileKind, SpindleKind, database::PageTally, running::places::Candidate};
use maildb::{PageNumber, format::header::HeaderCopies, verify::JournalBeside};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    ByteCount, Directory,
    real::{FolderDirectory, host_files},
};

/// File extension of flush journals.
const EXTENSION: &str = "fj";

/// The flush journal of a database.
#[derive(Clone, Default)]
pub struct Journal {
    held: Option<Arc<JournalBeside>>,
    /// The journal that was used.
    pub path: Option<PathBuf>,
    /// The reason an existing journal is unusable.
    pub unusable: Option<String>,
}

/// The journals among the files found, sorted by path.
pub fn among(candidates: &[Candidate]) -> Vec<PathBuf> {
    let is_journal = |one: &&Candidate| one.kind == FileKind::Spindle(SpindleKind::FlushJournal);
    candidates.iter().filter(is_journal).map(|one| one.path.clone()).collect()
}

/// The journal of the log that the database at `path` belongs to: from `journals`, or from its folder.
/// `start` is the start of the database.
pub async fn beside(path: &Path, start: &[u8], size: ByteCount, journals: &[PathBuf]) -> Journal {
    let copies = HeaderCopies::decode(start);
    let Ok(header) = copies.best() else { return Journal::default() };
    let mut unusable = None;
    for journal in journals.iter().cloned().chain(in_folder_of(path)).collect::<BTreeSet<PathBuf>>() {
        let Some(base) = journal.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let read = match FolderDirectory::open(folder_of(&journal)) {
            Ok(folder) => {
                let directory: Rc<dyn Directory> = Rc::new(ReadOnly(folder));
                JournalBeside::read(&directory, base, header, size).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(None) => {}
            Ok(Some(held)) => {
                return Journal { held: Some(Arc::new(held)), path: Some(journal), unusable: None };
            }
            Err(why) => unusable = unusable.or(Some(format!("{}: {why}", journal.display()))),
        }
    }
    Journal { unusable, ..Journal::default() }
}

pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Files named like journals in the folder of a database, which may have been given on its own.
fn in_folder_of(path: &Path) -> Vec<PathBuf> {
    let folder = folder_of(path);
    let names = host_files::list(folder).unwrap_or_default();
    let all = names.into_iter().map(|name| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.join(name),
        _ => PathBuf::from(name),
    });
    all.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)).collect()
}

impl Journal {
    /// Moves damaged pages that recovery restores from the tally's damage to its torn pages.
    pub fn take_torn(&self, tally: &mut PageTally) {
        let Some(held) = &self.held else { return };
        let page_of = |part| match part {
            crate::FilePart::Page(page) => page,
            _ => PageNumber(0),
        };
        let (torn, damaged): (Vec<_>, Vec<_>) = std::mem::take(&mut tally.findings)
            .into_iter()
            .partition(|finding| held.restores(page_of(finding.place.part)));
        tally.findings = damaged;
        tally.damaged -= torn.len() as u64;
        tally.correctable -= torn.iter().filter(|finding| finding.fix.is_some()).count() as u64;
        tally.torn += torn.len() as u64;
    }
}
