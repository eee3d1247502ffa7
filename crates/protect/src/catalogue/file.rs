//! The file of a catalogue, open for one runner.
//!
//! The state file's lock excludes a second runner. Invariants:
//!
//! 1. Every line but the last is stable: a line is written and synced before the next one, and before anyone acts on it.
//! 2. The state in memory is that of the stable lines.
//! 3. After a write or sync that failed nothing more is written: what the file holds is known only when it is read again.

use super::{
    clock::MachineTime,
    compaction::CompactionError,
    entry::{CatalogueEntry, CatalogueHeader, RunnerOpening, SetId},
    line::{CATALOGUE_FORMAT, CATALOGUE_VERSION, CatalogueLine, LINE_BYTES_MAX},
    reader::{CatalogueReadError, CatalogueReader, LineAges, ReadCatalogue},
    state::{BackupCatalogue, CatalogueContradiction, CatalogueScope},
};
use crate::planted_keeping::{self, KeepingBug};
use thiserror::Error;
use world::{IoError, IoResult, StateFile};

/// Bytes that are read at a time.
const PART_BYTES: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum CatalogueFileError {
    #[error(
        "{file}: {source}; move it away, and make it again from the pools' notes: spindle protect rebuild"
    )]
    Read { file: String, source: CatalogueReadError },
    #[error(
        "{file}: it is the catalogue of {found}, not of {expected}; move it away, or correct the set's name"
    )]
    OtherSet { file: String, found: String, expected: String },
    /// The entry cannot be true.
    #[error("{file}: {source}")]
    Contradiction { file: String, source: CatalogueContradiction },
    #[error("{file}: {source}")]
    Compaction { file: String, source: CompactionError },
    #[error("{file}: nothing is written after an error; open it again")]
    Broken { file: String },
    #[error(transparent)]
    Io(#[from] IoError),
}

/// An open catalogue.
pub struct CatalogueFile {
    pub(super) file: Box<dyn StateFile>,
    pub(super) catalogue: BackupCatalogue,
    runner: String,
    lines: u64,
    /// Bytes of intact lines.
    pub(super) end: u64,
    pub(super) ages: LineAges,
    pub(super) is_broken: bool,
    is_cleaned: bool,
    last_line: Vec<u8>,
}

/// The head of a new catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewCatalogue<'n> {
    pub set: &'n str,
    pub id: SetId,
    pub generator: &'n str,
    pub is_rebuilt: bool,
}

impl NewCatalogue<'_> {
    pub(super) fn header(&self) -> CatalogueHeader {
        CatalogueHeader {
            format: CATALOGUE_FORMAT.to_owned(),
            version: CATALOGUE_VERSION,
            set: self.set.to_owned(),
            id: self.id.clone(),
            generator: self.generator.to_owned(),
            is_rebuilt: self.is_rebuilt,
            compactions: 0,
        }
    }
}

/// Most bytes of a part that is handed out: one line is shorter.
pub(super) const PART_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// Reads all of a catalogue; `None` if it is empty, or a crash cut off its first line.
///
/// # Errors
///
/// The file cannot be read, or is no intact catalogue.
pub fn read(
    file: &dyn StateFile,
    scope: CatalogueScope,
) -> Result<Option<ReadCatalogue>, CatalogueFileError> {
    let mut reader = CatalogueReader::new(scope);
    let wrong = |source| CatalogueFileError::Read { file: file.name().to_owned(), source };
    let size = file.size()?;
    let mut offset = 0;
    let mut part = vec![0; PART_BYTES];
    while offset < size {
        let length = (size - offset).min(PART_BYTES as u64) as usize;
        file.read_at(offset, &mut part[..length])?;
        reader.receive(&part[..length]).map_err(wrong)?;
        offset += length as u64;
    }
    reader.finish().map_err(wrong)
}

impl CatalogueFile {
    /// Opens the catalogue of `set`, or makes it if the file is empty. `runner` says for people who opened it; `id` and
    /// `generator` are for a new one.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, is damaged, or is another set's.
    pub fn open(
        file: Box<dyn StateFile>,
        set: &str,
        id: SetId,
        generator: &str,
        runner: &str,
        now: &MachineTime,
    ) -> Result<Self, CatalogueFileError> {
        match read(&*file, CatalogueScope::Live)? {
            Some(found) => Self::reopen(file, set, runner, found),
            None => Self::create(file, &NewCatalogue { set, id, generator, is_rebuilt: false }, runner, now),
        }
    }

    fn reopen(
        file: Box<dyn StateFile>,
        set: &str,
        runner: &str,
        found: ReadCatalogue,
    ) -> Result<Self, CatalogueFileError> {
        let header = found.catalogue.header();
        if header.set != set {
            let (file, found, expected) = (file.name().to_owned(), header.set.clone(), set.to_owned());
            return Err(CatalogueFileError::OtherSet { file, found, expected });
        }
        Ok(Self {
            file,
            catalogue: found.catalogue,
            runner: runner.to_owned(),
            lines: found.lines,
            end: found.intact_bytes,
            ages: found.ages,
            is_broken: false,
            is_cleaned: false,
            last_line: found.last_line,
        })
    }

    /// Goes on with a successor that has taken the place of the file, whose lines are stable.
    pub(super) fn succeed(&mut self, file: Box<dyn StateFile>, found: ReadCatalogue) {
        assert_eq!(found.dropped_bytes, 0, "it was written whole");
        self.file = file;
        self.catalogue = found.catalogue;
        (self.lines, self.end, self.ages) = (found.lines, found.intact_bytes, found.ages);
        (self.is_cleaned, self.last_line) = (true, Vec::new());
    }

    pub(super) fn create(
        file: Box<dyn StateFile>,
        new: &NewCatalogue<'_>,
        runner: &str,
        now: &MachineTime,
    ) -> Result<Self, CatalogueFileError> {
        let header = new.header();
        let entry = CatalogueEntry::Header(header.clone());
        let line = CatalogueLine { line: 0, at_s: now.civil.0, age_s: 0, entry };
        let mut catalogue = BackupCatalogue::new(header, CatalogueScope::Live);
        catalogue.note_header(now.civil.0);
        file.set_size(0)?;
        let mut made = Self {
            file,
            catalogue,
            runner: runner.to_owned(),
            lines: 0,
            end: 0,
            ages: LineAges::default(),
            is_broken: false,
            is_cleaned: true,
            last_line: Vec::new(),
        };
        made.write(&line.encode())?;
        Ok(made)
    }

    pub fn catalogue(&self) -> &BackupCatalogue {
        &self.catalogue
    }

    /// Whole lines from an offset on, 2 MiB at most; empty at the end of those that are stable.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_part(&self, offset: u64) -> IoResult<Vec<u8>> {
        let length = self.end.saturating_sub(offset).min(PART_BYTES_MAX as u64);
        let mut part = vec![0; length as usize];
        if length > 0 {
            self.file.read_at(offset, &mut part)?;
        }
        let whole = part.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        part.truncate(whole);
        Ok(part)
    }

    /// Bytes of the lines that are stable.
    pub fn size(&self) -> u64 {
        self.end
    }

    /// Lines that are stable.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// True if a write or sync failed: nothing more is written until it is opened again.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Appends an entry. When this returns, it survives a power cut.
    ///
    /// # Errors
    ///
    /// The entry contradicts the catalogue: nothing is written. Or the file cannot be written: nothing more is written
    /// until it is opened again.
    pub fn append(&mut self, mut entry: CatalogueEntry, now: &MachineTime) -> Result<(), CatalogueFileError> {
        entry.bound();
        let age_s = self.catalogue.clock().age_at(now);
        if !self.catalogue.clock().is_open_for(now) && !matches!(entry, CatalogueEntry::Opened(_)) {
            let opening = RunnerOpening {
                runner: self.runner.clone(),
                machine: now.machine.clone(),
                boot: now.boot.clone(),
                up_s: now.up_s,
            };
            self.append_aged(CatalogueEntry::Opened(opening), now, age_s)?;
        }
        self.append_aged(entry, now, age_s)
    }

    fn append_aged(
        &mut self,
        entry: CatalogueEntry,
        now: &MachineTime,
        age_s: u64,
    ) -> Result<(), CatalogueFileError> {
        let line = CatalogueLine { line: self.lines, at_s: now.civil.0, age_s, entry };
        let file = || self.file.name().to_owned();
        if self.is_broken {
            return Err(CatalogueFileError::Broken { file: file() });
        }
        let checked = self.catalogue.check(&line);
        checked.map_err(|source| CatalogueFileError::Contradiction { file: file(), source })?;
        let offset = self.end;
        self.write(&line.encode())?;
        self.catalogue.apply(&line);
        self.ages.note(age_s, offset);
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> Result<(), CatalogueFileError> {
        self.is_broken = true;
        if !self.is_cleaned {
            self.clean()?;
        }
        self.file.write_at(self.end, line)?;
        if !planted_keeping::is(KeepingBug::LineNotSynced) {
            self.file.sync()?;
        }
        self.lines += 1;
        self.end += line.len() as u64;
        self.is_broken = false;
        Ok(())
    }

    /// Cuts off what a crash left, and makes the last line stable: a sync of the runner before may have failed, and the
    /// kernel may still show what no disk has. The name, too: that runner may have died just after a compacted file took it.
    fn clean(&mut self) -> Result<(), CatalogueFileError> {
        if !planted_keeping::is(KeepingBug::NameNotSynced) {
            self.file.sync_name()?;
        }
        self.file.set_size(self.end)?;
        if !planted_keeping::is(KeepingBug::LastLineNotRewritten) {
            self.file.write_at(self.end - self.last_line.len() as u64, &self.last_line)?;
        }
        self.file.sync()?;
        (self.is_cleaned, self.last_line) = (true, Vec::new());
        Ok(())
    }
}
