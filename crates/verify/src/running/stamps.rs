//! The stamps that Spindle keeps beside its own databases: what each page was when it was last written, whatever its
//! checksum says. A lost write, and a page of an earlier day, are seen by nothing else.

use super::journal::folder_of;
use crate::{Finding, Part, Place, database::Tally};
use maildb::{
    PageNumber,
    format::header::HeaderCopies,
    verify::{StampsVerdict, stamps::StampsBeside},
};
use std::{collections::BTreeSet, path::Path, rc::Rc};
use world::{
    ByteCount, ByteOffset, Directory, DirectoryEntry, File, IoError, IoErrorKind, IoResult, LocalFuture,
    real::{Access, FolderDirectory},
};

/// The stamps beside the database at `path`, whose first bytes are `start`, and what is to be said of them.
pub async fn beside(path: &Path, start: &[u8], size: ByteCount) -> (Option<StampsBeside>, StampsVerdict) {
    let copies = HeaderCopies::decode(start);
    let name = path.file_name().and_then(|name| name.to_str());
    let (Ok(header), Some(name)) = (copies.best(), name) else { return (None, StampsVerdict::NotKept) };
    if maildb::stamps::file_name(name).len() > world::NAME_BYTES_MAX {
        // Nobody can have kept stamps under such a name.
        return (None, StampsVerdict::NotKept);
    }
    let directory: Rc<dyn Directory> = match FolderDirectory::open(folder_of(path)) {
        Ok(folder) => Rc::new(ReadOnly(folder)),
        Err(error) => return (None, StampsVerdict::Unusable(error.to_string())),
    };
    let pages = (size.0 / header.page_size.bytes() as u64).saturating_sub(2);
    let pages_max = u32::try_from(pages).unwrap_or(u32::MAX);
    match StampsBeside::read(&directory, name, header, pages_max).await {
        Ok(read) => read,
        Err(error) => (None, StampsVerdict::Unusable(error.to_string())),
    }
}

/// Adds to the tally of a chunk, of which the first page is `first`, what the stamps say of those pages whose checksums are right.
pub fn hold_against(
    stamps: &StampsBeside,
    first: PageNumber,
    page_bytes: usize,
    chunk: &[u8],
    tally: &mut Tally,
) {
    let damaged: BTreeSet<Part> = tally.findings.iter().map(|finding| finding.place.part).collect();
    for (index, bytes) in chunk.chunks_exact(page_bytes).enumerate() {
        let page = PageNumber(first.0 + index as u32);
        if damaged.contains(&Part::Page(page)) {
            continue;
        }
        let Some(problem) = stamps.problem(page, bytes) else { continue };
        let at = ByteOffset((u64::from(page.0) + 1) * page_bytes as u64);
        tally.findings.push(Finding::damage(Place::new(Part::Page(page), at), problem));
        tally.damaged += 1;
        // It was counted as what its checksum made it.
        let counted = match bytes.iter().all(|&byte| byte == 0) {
            true => &mut tally.blank,
            false => tally.good.iter_mut().find(|good| **good > 0).unwrap_or(&mut tally.slack),
        };
        *counted = counted.saturating_sub(1);
    }
}

/// A folder in which nothing is changed: a snapshot may be mounted that way.
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
        let opened = self.0.open_file(name, Access::Read);
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
