//! Page stamps, which Spindle keeps beside its own databases: the identity of each page's last write,
//! independent of its checksum. Only they reveal a lost write or an outdated page.

use super::file_place::FilePlace;
use crate::{FileFinding, FileLocation, FilePart, database::PageTally};
use maildb::{
    PageNumber,
    format::header::HeaderCopies,
    verify::{StampsVerdict, stamps::StampsBeside},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{
    ByteCount, ByteOffset, Directory, DirectoryEntry, File, IoError, IoErrorKind, IoResult, LocalFuture,
    real::{AccessMode, FolderDirectory},
};

/// Opens the stamps beside the database at `place`, whose first bytes are `start`, with their verdict.
pub async fn beside(
    place: &FilePlace,
    start: &[u8],
    size: ByteCount,
) -> (Option<StampsBeside>, StampsVerdict) {
    let copies = HeaderCopies::decode(start);
    let name = place.name();
    let Ok(header) = copies.best() else { return (None, StampsVerdict::NotKept) };
    if maildb::stamps::file_name(&name).len() > world::NAME_BYTES_MAX {
        // Stamps cannot exist under such a name.
        return (None, StampsVerdict::NotKept);
    }
    let directory = match place.directory() {
        Ok(directory) => directory,
        Err(error) => return (None, StampsVerdict::Unusable(error.to_string())),
    };
    let pages = (size.0 / header.page_size.bytes() as u64).saturating_sub(2);
    let pages_max = u32::try_from(pages).unwrap_or(u32::MAX);
    match StampsBeside::read(&directory, &name, header, pages_max).await {
        Ok(read) => read,
        Err(error) => (None, StampsVerdict::Unusable(error.to_string())),
    }
}

/// Compares the pages of a chunk whose checksums are right with their stamps, and adjusts its tally. `first`
/// is the chunk's first page.
pub fn hold_against(
    stamps: &StampsBeside,
    first: PageNumber,
    page_bytes: usize,
    chunk: &[u8],
    tally: &mut PageTally,
) {
    let damaged: BTreeSet<FilePart> = tally.findings.iter().map(|finding| finding.place.part).collect();
    for (index, bytes) in chunk.chunks_exact(page_bytes).enumerate() {
        let page = PageNumber(first.0 + index as u32);
        if damaged.contains(&FilePart::Page(page)) {
            continue;
        }
        let Some(problem) = stamps.problem(page, bytes) else { continue };
        let at = ByteOffset((u64::from(page.0) + 1) * page_bytes as u64);
        tally.findings.push(FileFinding::damage(FileLocation::new(FilePart::Page(page), at), problem));
        tally.damaged += 1;
        // It was counted by its checksum before.
        let counted = if bytes.iter().all(|&byte| byte == 0) {
            &mut tally.blank
        } else {
            tally.good.iter_mut().find(|good| **good > 0).unwrap_or(&mut tally.slack)
        };
        *counted = counted.saturating_sub(1);
    }
}

/// A read-only view of a folder: a snapshot may be mounted read-only.
pub struct ReadOnly(pub FolderDirectory);

impl ReadOnly {
    fn refuse<T>(&self) -> LocalFuture<IoResult<T>> {
        let error = IoError::new(IoErrorKind::ReadOnly, format!("{}: only read here", self.0.describe()));
        Box::pin(async { Err(error) })
    }
}

impl Directory for ReadOnly {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let opened = self.0.open_file(name, AccessMode::Read);
        Box::pin(async { Ok(Rc::new(opened?) as Rc<dyn File>) })
    }

    fn create(&self, _: &str, _: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.refuse()
    }

    fn rename(&self, _: &str, _: &str) -> LocalFuture<IoResult<()>> {
        self.refuse()
    }

    fn remove(&self, _: &str) -> LocalFuture<IoResult<()>> {
        self.refuse()
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.refuse()
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.0.free()
    }
}
