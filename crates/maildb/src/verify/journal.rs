//! The flush journal beside the log of a closed database.

use crate::{
    config::DATABASES_MAX,
    engine::{
        flush_journal::{file_name, restore},
        recovery::replay_range,
    },
    error::{Error, Result},
    format::{
        header::{DatabaseHeader, DatabaseState},
        page_size::PageNumber,
    },
};
use std::{collections::BTreeSet, rc::Rc};
use world::{ByteCount, Directory, IoErrorKind};

/// The pages of a database that its recovery restores from the flush journal, if they are torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBeside {
    name: String,
    pages: BTreeSet<PageNumber>,
}

impl JournalBeside {
    /// Reads the journal of the log series `base_name` in `directory` for the database with that header and a file of
    /// `bytes`, and the log as far as a recovery would replay it. `None` if there is no journal of its log, or it needs
    /// no recovery; an error if the journal or the log cannot be used, with the reason.
    pub async fn read(
        directory: &Rc<dyn Directory>,
        base_name: &str,
        header: &DatabaseHeader,
        bytes: ByteCount,
    ) -> Result<Option<Self>> {
        let pages = pages_held(directory, base_name, header, bytes).await?;
        Ok(pages.map(|pages| Self { name: file_name(base_name), pages }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if recovery would restore this page, should it be torn.
    pub fn restores(&self, page: PageNumber) -> bool {
        self.pages.contains(&page)
    }
}

/// The pages of a database that recovery would restore from the journal of the log `base_name` in `directory`
/// if they are torn; changes nothing. `None` if the journal is missing or of another log, or if the database,
/// whose file has `bytes`, needs no recovery.
async fn pages_held(
    directory: &Rc<dyn Directory>,
    base_name: &str,
    header: &DatabaseHeader,
    bytes: ByteCount,
) -> Result<Option<BTreeSet<PageNumber>>> {
    let name = file_name(base_name);
    let unusable = |problem: &str| Error::Configuration(format!("{name}: {problem}"));
    let Some(index) = header.database_id.checked_sub(1).filter(|&index| (index as usize) < DATABASES_MAX)
    else {
        return Ok(None);
    };
    if header.state == DatabaseState::CleanShutdown {
        return Ok(None);
    }
    let file = match directory.open(&name).await {
        Ok(file) => file,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(layout) = restore::read_head(&file).await else {
        return Err(unusable("its head is damaged, so its slots cannot be located"));
    };
    if layout.log_signature != header.log_signature || layout.page_size != header.page_size {
        return Ok(None);
    }
    let Some(range) = replay_range(directory, base_name).await? else {
        return Err(unusable("its log is missing"));
    };
    let mut targets = [None; DATABASES_MAX];
    targets[index as usize] =
        Some(restore::RestoreTarget { name: "", header, header_time: header.dbtime, bytes, stamps: None });
    let gathered = restore::gather(&file, layout, range, &targets).await;
    Ok(Some(gathered.pages().map(|id| id.page).collect()))
}
