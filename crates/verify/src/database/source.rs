//! The pages a tree walk reads, and the guarantees it has about them.

use super::{
    DatabaseFacts,
    check::{PageStatus, check, is_trailer},
    pages::describe,
};
use maildb::{PageNumber, format::page::PageView};

pub trait PageSource {
    /// The page as stored in the file.
    fn page(&mut self, page: PageNumber) -> Result<&[u8], SourceError>;
}

/// The reason a page is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The page lies beyond the end of the file.
    Beyond,
    /// The storage failed, for this reason. The walk records it and continues.
    Unreadable(String),
    /// The run was stopped: the walk returns its results so far.
    Stopped,
}

/// The reason a page cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFault {
    Beyond,
    Unreadable,
    Checksum,
    Blank,
    /// The page verifies, but has the wrong structure for its use.
    Structure,
}

/// The reason a walk cannot use a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageError {
    /// The page has this fault, described in words.
    Page(PageNumber, PageFault, String),
    Stopped,
}

/// The page, if checksum and structure are sound: all accessors of the view are safe then.
pub(crate) fn good_page<'a>(
    source: &'a mut dyn PageSource,
    facts: &DatabaseFacts,
    page: PageNumber,
) -> Result<PageView<'a>, PageError> {
    let wrong = |fault, what: String| PageError::Page(page, fault, what);
    let bytes = source.page(page).map_err(|error| match error {
        SourceError::Beyond => wrong(PageFault::Beyond, "it lies beyond the end of the file".to_owned()),
        SourceError::Unreadable(why) => wrong(PageFault::Unreadable, format!("it cannot be read: {why}")),
        SourceError::Stopped => PageError::Stopped,
    })?;
    assert_eq!(bytes.len(), facts.page_size.bytes(), "a source gives whole pages");
    if !facts.is_temporary {
        match check(bytes, facts.page_size, page) {
            PageStatus::Good(_) => {}
            PageStatus::Blank => return Err(wrong(PageFault::Blank, describe(PageStatus::Blank, page).0)),
            // The check of single pages has counted it already.
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
