//! A recovery with everything that the engine needs: from opening over reading all records to the shutdown.

use super::{
    BroughtUpGroup, RecoveredContents, RecoveredDatabase, TrialContext, TrialEnd, engine_panic::caught,
};
use crate::{
    FileFinding, FileLocation, FilePart,
    database::judge_headers,
    deep::walk,
    kind::START_BYTES,
    running::{file_place::FilePlace, paging::with_pages, source::Source},
};
use maildb::{
    DatabaseLocation, Error, Instance, InstanceConfig, PageNumber, PageSize,
    log::{LogError, LogNames},
};
use std::{ops::ControlFlow, path::PathBuf, rc::Rc};
use world::{ByteOffset, Directory, IoErrorKind, overlay::OverlayMemory};

pub struct TriedDatabase {
    pub place: FilePlace,
    pub directory: Rc<dyn Directory>,
    pub page_size: PageSize,
    pub is_dirty: bool,
}

/// A trial with everything that the engine needs.
pub struct PreparedTrial {
    pub memory: Rc<OverlayMemory>,
    pub log: Rc<dyn Directory>,
    /// Any file of the log, in its folder.
    pub log_place: FilePlace,
    pub databases: Vec<TriedDatabase>,
    pub config: InstanceConfig,
}

impl PreparedTrial {
    /// Recovers the databases and reads all records.
    pub async fn end(&self, context: &TrialContext<'_>) -> TrialEnd {
        match caught(self.recover(context)).await {
            Ok(Ok(Some(contents))) => TrialEnd::Recovered(contents),
            Ok(Ok(None)) => TrialEnd::Open("the run was ended early".to_owned()),
            Ok(Err(error)) => self.end_of(&error),
            Err(assertion) => {
                let what = format!("the recovery ended here: the engine met a contradiction: {assertion}");
                let path = self.databases[0].place.path().to_owned();
                TrialEnd::Failed(path, FileFinding::damage(FileLocation::FILE, what))
            }
        }
    }

    /// Recovers the databases.
    pub async fn open(&self, context: &TrialContext<'_>) -> Result<Instance, Error> {
        let location = |database: &TriedDatabase| DatabaseLocation {
            directory: Rc::clone(&database.directory),
            file_name: database.place.name(),
        };
        let locations = self.databases.iter().map(location).collect();
        context.limiter.begin("recover", &self.log_place.path().display().to_string());
        Instance::open(context.world, Rc::clone(&self.log), locations, self.config.clone()).await
    }

    /// The databases of an instance that was opened.
    pub fn brought_up(&self, instance: Instance) -> BroughtUpGroup {
        let paths = self.databases.iter().map(|tried| tried.place.path().to_owned());
        BroughtUpGroup::new(paths.zip(instance.databases()).collect(), instance)
    }

    /// Recovers the databases, reads all records, and shuts down; `None` if the run was stopped.
    async fn recover(&self, context: &TrialContext<'_>) -> Result<Option<RecoveredContents>, Error> {
        let limiter = context.limiter;
        let instance = self.open(context).await?;
        let recovery = instance.recovery();
        let mut databases = Vec::new();
        for (tried, database) in self.databases.iter().zip(instance.databases()) {
            let path = tried.place.path().to_owned();
            limiter.begin("read", &path.display().to_string());
            let size = database.size().0;
            limiter.expect(size);
            let mut found = RecoveredDatabase { path, tables: 0, records: 0, findings: Vec::new() };
            for name in database.table_names() {
                let table = database.table(&name).expect("it was just listed");
                let mut cursor = database.cursor(&table, &[])?;
                found.tables += 1;
                loop {
                    limiter.wait().await;
                    if limiter.is_stopped() {
                        return Ok(None);
                    }
                    limiter.slow(tried.page_size.bytes() as u64);
                    match cursor.next_rows().await?.len() as u64 {
                        0 => break,
                        rows => found.records += rows,
                    }
                }
            }
            limiter.done(size);
            databases.push(found);
        }
        instance.close().await?;
        for (tried, found) in self.databases.iter().zip(&mut databases).filter(|(tried, _)| tried.is_dirty) {
            match self.walk(context, tried).await? {
                Some(findings) => found.findings = findings,
                None => return Ok(None),
            }
        }
        Ok(Some(RecoveredContents { recovery, databases, kept: self.memory.peak() }))
    }

    /// Walks the trees of a recovered database; `None` if the run was stopped.
    async fn walk(
        &self,
        context: &TrialContext<'_>,
        tried: &TriedDatabase,
    ) -> Result<Option<Vec<FileFinding>>, Error> {
        let TrialContext { workers, limiter, .. } = context;
        limiter.begin("walk", &tried.place.path().display().to_string());
        let source = Source::of(tried.directory.open(&tried.place.name()).await?);
        limiter.expect(source.size().0);
        let start = source.read_any(0, START_BYTES).await?;
        let Some(facts) = judge_headers(&start, source.size()).facts else {
            let what = "its header cannot be used after the recovery";
            return Ok(Some(vec![FileFinding::damage(FileLocation::FILE, what)]));
        };
        let walked = with_pages(&source, tried.page_size, workers, limiter, move |pages| {
            walk(pages, &facts, &mut |_| ControlFlow::Continue(()))
        });
        let walked = walked.await;
        limiter.done(source.size().0);
        Ok(match walked {
            Ok(verdict) if verdict.is_stopped => None,
            Ok(verdict) => Some(verdict.findings.into_iter().map(after_recovery).collect()),
            Err(_) if limiter.is_stopped() => None,
            Err(_) => {
                let what = "its trees cannot be walked after the recovery";
                Some(vec![FileFinding::damage(FileLocation::FILE, what)])
            }
        })
    }

    /// An error of the engine: a fault of the files, or an obstacle of this run.
    fn end_of(&self, error: &Error) -> TrialEnd {
        let storage = match error {
            Error::Storage(error) | Error::Log(LogError::Io(error)) => Some(error),
            _ => None,
        };
        match storage.map(|error| (error.kind(), error)) {
            Some((IoErrorKind::NoSpace, error)) => {
                return TrialEnd::Open(format!("{error}; allow more with ⟨scratch⟩ SIZE"));
            }
            Some((IoErrorKind::Damaged, _)) | None => {}
            Some((_, error)) => return TrialEnd::Open(error.to_string()),
        }
        let (path, location, why) = self.place_of(error);
        TrialEnd::Failed(path, FileFinding::damage(location, format!("the recovery ended here: {why}")))
    }

    /// The file that an error is about, the place in it, and the error without them.
    fn place_of(&self, error: &Error) -> (PathBuf, FileLocation, String) {
        let database = |name: &str| {
            let own = self.databases.iter().find(|database| database.place.name() == name);
            own.unwrap_or(&self.databases[0])
        };
        let page = |name: &str, page: PageNumber, why: String| {
            let tried = database(name);
            let at = ByteOffset(page.file_offset(tried.page_size));
            (tried.place.path().to_owned(), FileLocation::new(FilePart::Page(page), at), why)
        };
        let log = |name: &str| self.log_place.sibling(name).path().to_owned();
        let text = error.to_string();
        match error {
            Error::PageDamaged { database, page: number, problem } => {
                page(database, *number, problem.clone())
            }
            Error::NotAsWritten { database, page: number, finding } => {
                page(database, *number, finding.to_string())
            }
            Error::LostWrite { database, page: number, found, expected } => {
                let why = format!(
                    "it was last changed at {}, and the log was written for a change at {}: a write was lost",
                    found.0, expected.0
                );
                page(database, *number, why)
            }
            Error::DatabaseDamaged { database: name, problem } => {
                (database(name).place.path().to_owned(), FileLocation::FILE, problem.clone())
            }
            Error::StampsUnusable { database: name, .. } => {
                (database(name).place.path().to_owned(), FileLocation::FILE, text)
            }
            Error::Log(LogError::Damaged { file, segment, damage }) => {
                let at = ByteOffset(u64::from(*segment) * 4096);
                let part = FilePart::Segment(*segment);
                (log(file), FileLocation::new(part, at), damage.to_string())
            }
            Error::Log(LogError::Missing { generation }) => {
                let name = LogNames::new(&self.config.base_name).archived(*generation);
                (log(&name), FileLocation::FILE, "this generation of the log is missing".to_owned())
            }
            _ => (self.databases[0].place.path().to_owned(), FileLocation::FILE, text),
        }
    }
}

fn after_recovery(finding: FileFinding) -> FileFinding {
    FileFinding { what: format!("after the recovery: {}", finding.what), ..finding }
}
