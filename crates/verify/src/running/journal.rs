//! Spindle's flush journal beside a database that was in use. Recovery restores a page torn by a power cut
//! from it before it redoes anything, so such a page is no damage as long as the journal holds it.

use super::{file_place::FilePlace, places::Candidate};
use crate::{FileKind, SpindleKind, database::PageTally};
use maildb::{PageNumber, format::header::HeaderCopies, verify::JournalBeside};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use world::ByteCount;

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
pub fn among(candidates: &[Candidate]) -> Vec<FilePlace> {
    let is_journal = |one: &&Candidate| one.kind == FileKind::Spindle(SpindleKind::FlushJournal);
    candidates.iter().filter(is_journal).map(|one| one.place.clone()).collect()
}

/// The journal of the log that the database at `place` belongs to: from `journals`, or from its folder.
/// `start` is the start of the database.
pub async fn beside(place: &FilePlace, start: &[u8], size: ByteCount, journals: &[FilePlace]) -> Journal {
    let copies = HeaderCopies::decode(start);
    let Ok(header) = copies.best() else { return Journal::default() };
    let mut unusable = None;
    let all = journals.iter().cloned().chain(in_folder_of(place));
    let all: BTreeMap<PathBuf, FilePlace> = all.map(|place| (place.path().to_owned(), place)).collect();
    for (path, journal) in all {
        let name = journal.name();
        let Some((base, _)) = name.rsplit_once('.') else { continue };
        let read = match journal.directory() {
            Ok(directory) => {
                JournalBeside::read(&directory, base, header, size).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(None) => {}
            Ok(Some(held)) => {
                return Journal { held: Some(Arc::new(held)), path: Some(path), unusable: None };
            }
            Err(why) => unusable = unusable.or(Some(format!("{}: {why}", path.display()))),
        }
    }
    Journal { unusable, ..Journal::default() }
}

/// Files named like journals in the folder of a database, which may have been given on its own.
fn in_folder_of(place: &FilePlace) -> impl Iterator<Item = FilePlace> {
    let is_journal =
        |one: &FilePlace| one.name().rsplit_once('.').is_some_and(|(_, extension)| extension == EXTENSION);
    place.neighbours().into_iter().filter(is_journal)
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
