//! Where a judge that follows pointers gets its pages, and what it may rely on in them.

use super::{
    DatabaseFacts,
    check::{Check, check, is_trailer},
    pages::describe,
};
use maildb::{PageNumber, format::page::PageView};

/// Pages of one database.
pub trait PageSource {
    /// The page, as it lies in the file.
    fn page(&mut self, page: PageNumber) -> Result<&[u8], SourceError>;
}

/// Why a source has no page to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The file ends before it.
    Beyond,
    /// The storage under it refuses, with its reason. The judge notes that and goes on.
    Unreadable(String),
    /// The run is to end: the judge returns what it has.
    Stopped,
}

/// What keeps a judge from relying on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// The file ends before it.
    Beyond,
    /// The storage does not give it.
    Unreadable,
    /// It does not verify.
    Checksum,
    /// It is all zero.
    Blank,
    /// It verifies, and cannot be what it is reached as.
    Structure,
}

/// Why a judge cannot go on with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Something is wrong with that page: which kind of fault, and what in words.
    Page(PageNumber, PageFault, String),
    /// The run is to end.
    Stopped,
}

/// The page, if its checksum and its structure are sound: everything about it may be asked then.
pub(crate) fn good_page<'a>(
    source: &'a mut dyn PageSource,
    facts: &DatabaseFacts,
    page: PageNumber,
) -> Result<PageView<'a>, Trouble> {
    let wrong = |fault, what: String| Trouble::Page(page, fault, what);
    let bytes = source.page(page).map_err(|error| match error {
        SourceError::Beyond => wrong(PageFault::Beyond, "it lies beyond the end of the file".to_owned()),
        SourceError::Unreadable(why) => wrong(PageFault::Unreadable, format!("it cannot be read: {why}")),
        SourceError::Stopped => Trouble::Stopped,
    })?;
    assert_eq!(bytes.len(), facts.page_size.bytes(), "a source gives whole pages");
    if !facts.is_temporary {
        match check(bytes, facts.page_size, page) {
            Check::Good(_) => {}
            Check::Blank => return Err(wrong(PageFault::Blank, describe(Check::Blank, page).0)),
            // The judge of single pages takes it for what it is.
            _ if is_trailer(bytes) => {
                let what = "it is the trailer of a streaming backup, and used as a page".to_owned();
                return Err(wrong(PageFault::Structure, what));
            }
            other => return Err(wrong(PageFault::Checksum, describe(other, PageNumber(u32::MAX)).0)),
        }
    }
    let view = PageView::new(bytes);
    view.check_structure()
        .map_err(|error| wrong(PageFault::Structure, format!("its structure is impossible: {error}")))?;
    Ok(view)
}
