//! Reading of a catalogue, line by line.
//!
//! 1. The first line identifies the file.
//! 2. A crash leaves an incomplete last line: it is dropped. An incomplete line before an intact one is damage, and the
//!    file is refused.
//! 3. An intact line that contradicts those before it is damage, named with its line.
//! 4. A compacted file is whole before it has its name: one that ends within the part that was summed up is damaged.

use super::{
    entry::CatalogueEntry,
    line::{
        self, CATALOGUE_FORMAT, CATALOGUE_VERSION, COMPACTED_VERSION, CatalogueDamage, CatalogueLine,
        LINE_BYTES_MAX,
    },
    state::{BackupCatalogue, CatalogueScope},
};
use crate::planted_keeping::{self, KeepingBug};
use serde::Deserialize;
use thiserror::Error;

/// A file that is no intact catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogueReadError {
    #[error("it is no catalogue of backups")]
    NotACatalogue,
    #[error(
        "it is a catalogue of version {found}, and this program knows version {COMPACTED_VERSION}; use a newer program"
    )]
    OtherVersion { found: u64 },
    /// A line within the file is damaged or contradicts those before it.
    #[error("line {number} is damaged: {what}")]
    Damaged {
        /// From 1, as editors count.
        number: u64,
        what: CatalogueDamage,
    },
}

/// A catalogue, and its place in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadCatalogue {
    pub catalogue: BackupCatalogue,
    /// Intact lines.
    pub lines: u64,
    /// Bytes of all intact lines.
    pub intact_bytes: u64,
    /// The last intact line, with its line break.
    pub last_line: Vec<u8>,
    /// Bytes after it, which a crash left.
    pub dropped_bytes: u64,
    pub ages: LineAges,
}

/// The first line of each age, to the hour, and the end of those that were summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineAges {
    /// Age of the catalogue, and bytes of the file before the line: the first of each hour.
    marks: Vec<(u64, u64)>,
    /// Bytes of the part that was summed up.
    compacted_bytes: u64,
}

impl LineAges {
    const STEP_S: u64 = 3_600;

    /// Notes a line, and the bytes before it.
    pub(super) fn note(&mut self, age_s: u64, offset: u64) {
        if self.marks.last().is_none_or(|(last_s, _)| age_s - last_s >= Self::STEP_S) {
            self.marks.push((age_s, offset));
        }
    }

    /// Notes the end of the part that was summed up.
    pub(super) fn note_compacted(&mut self, end: u64) {
        (self.marks, self.compacted_bytes) = (Vec::new(), end);
    }

    pub(super) fn compacted_bytes(&self) -> u64 {
        self.compacted_bytes
    }

    /// Bytes of the file up to the first line that may be younger than `age_s`.
    pub(super) fn offset_of(&self, age_s: u64) -> u64 {
        let older = self.marks.iter().rev().find(|(first_s, _)| *first_s <= age_s);
        older.map_or(self.compacted_bytes, |(_, offset)| *offset)
    }
}

/// Receives the bytes of a catalogue in parts of any size.
pub struct CatalogueReader {
    scope: CatalogueScope,
    /// Bytes of an incomplete line.
    pending: Vec<u8>,
    /// Lines so far, intact or not.
    lines: u64,
    intact_lines: u64,
    intact_bytes: u64,
    last_line: Vec<u8>,
    bytes: u64,
    catalogue: Option<BackupCatalogue>,
    ages: LineAges,
    /// Number (from 1) and damage of the first line that is not intact.
    damage: Option<(u64, CatalogueDamage)>,
}

/// The parts of a header that identify format and version.
#[derive(Deserialize)]
struct OpeningLine {
    entry: OpeningEntry,
}

#[derive(Deserialize)]
struct OpeningEntry {
    header: OpeningHeader,
}

#[derive(Deserialize)]
struct OpeningHeader {
    format: String,
    version: u64,
}

impl CatalogueReader {
    pub fn new(scope: CatalogueScope) -> Self {
        Self {
            scope,
            pending: Vec::new(),
            lines: 0,
            intact_lines: 0,
            intact_bytes: 0,
            last_line: Vec::new(),
            bytes: 0,
            catalogue: None,
            ages: LineAges::default(),
            damage: None,
        }
    }

    /// Receives the next bytes.
    ///
    /// # Errors
    ///
    /// The file is no catalogue, one of another version, or damaged.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), CatalogueReadError> {
        self.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.pending);
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.receive_line(&line)?;
        }
        // Remains of a crash, or no catalogue at all: nothing of an endless line needs to be kept.
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.pending.len());
        self.pending.extend_from_slice(&rest[..rest.len().min(room)]);
        Ok(())
    }

    fn receive_line(&mut self, bytes: &[u8]) -> Result<(), CatalogueReadError> {
        self.lines += 1;
        let number = self.lines;
        let is_ignored = planted_keeping::is(KeepingBug::DamagedMiddleIgnored);
        if let Some((number, what)) = &self.damage {
            return if line::has_intact_line(bytes) && !is_ignored {
                Err(CatalogueReadError::Damaged { number: *number, what: what.clone() })
            } else {
                Ok(())
            };
        }
        match self.apply(bytes)? {
            Ok(()) => {
                self.intact_lines += 1;
                self.intact_bytes += bytes.len() as u64 + 1;
                self.last_line.clear();
                self.last_line.extend_from_slice(bytes);
                self.last_line.push(b'\n');
                Ok(())
            }
            Err(what) if line::has_intact_line(bytes) && !is_ignored => {
                Err(CatalogueReadError::Damaged { number, what })
            }
            Err(what) => {
                self.damage = Some((number, what));
                Ok(())
            }
        }
    }

    /// Applies a line; the inner error is its damage.
    fn apply(&mut self, bytes: &[u8]) -> Result<Result<(), CatalogueDamage>, CatalogueReadError> {
        let Some(catalogue) = &mut self.catalogue else {
            self.catalogue = Some(first_line(bytes, self.scope)?);
            return Ok(Ok(()));
        };
        let line = match CatalogueLine::decode(bytes) {
            Ok(line) => line,
            Err(damage) => return Ok(Err(damage)),
        };
        let expected = self.intact_lines;
        if line.line != expected {
            return Ok(Err(CatalogueDamage::OutOfOrder { found: line.line, expected }));
        }
        let before = catalogue.clock().age_s();
        if line.age_s < before {
            return Ok(Err(CatalogueDamage::Younger { found: line.age_s, before }));
        }
        if let Err(contradiction) = catalogue.check(&line) {
            return Ok(Err(CatalogueDamage::Contradiction(contradiction.to_string())));
        }
        catalogue.apply(&line);
        match &line.entry {
            CatalogueEntry::Compacted(_) => {
                self.ages.note_compacted(self.intact_bytes + bytes.len() as u64 + 1)
            }
            _ => self.ages.note(line.age_s, self.intact_bytes),
        }
        Ok(Ok(()))
    }

    /// The catalogue so far; `None` before the end of its first line.
    pub fn catalogue(&self) -> Option<&BackupCatalogue> {
        self.catalogue.as_ref()
    }

    /// The catalogue; `None` if not even its first line was completed.
    ///
    /// # Errors
    ///
    /// The file begins with something else, or ends within the part that was summed up.
    pub fn finish(self) -> Result<Option<ReadCatalogue>, CatalogueReadError> {
        let Some(catalogue) = self.catalogue else { return Ok(None) };
        if !catalogue.is_whole() {
            return Err(CatalogueReadError::Damaged {
                number: self.intact_lines + 1,
                what: self.damage.map_or(CatalogueDamage::EndsEarly, |(_, what)| what),
            });
        }
        Ok(Some(ReadCatalogue {
            catalogue,
            lines: self.intact_lines,
            intact_bytes: self.intact_bytes,
            last_line: self.last_line,
            dropped_bytes: self.bytes - self.intact_bytes,
            ages: self.ages,
        }))
    }
}

/// Reads the header.
fn first_line(bytes: &[u8], scope: CatalogueScope) -> Result<BackupCatalogue, CatalogueReadError> {
    let object = line::object(bytes).map_err(|_| CatalogueReadError::NotACatalogue)?;
    let opening: OpeningLine =
        serde_json::from_slice(&object).map_err(|_| CatalogueReadError::NotACatalogue)?;
    let OpeningHeader { format, version } = opening.entry.header;
    if format != CATALOGUE_FORMAT {
        return Err(CatalogueReadError::NotACatalogue);
    }
    if ![CATALOGUE_VERSION, COMPACTED_VERSION].contains(&version) {
        return Err(CatalogueReadError::OtherVersion { found: version });
    }
    let line =
        CatalogueLine::decode(bytes).map_err(|what| CatalogueReadError::Damaged { number: 1, what })?;
    match line.entry {
        CatalogueEntry::Header(header) if line.line == 0 && line.age_s == 0 => {
            if (header.version == COMPACTED_VERSION) != (header.compactions > 0) {
                let what = CatalogueDamage::Contradiction(format!(
                    "a catalogue of version {} that was compacted {} times",
                    header.version, header.compactions
                ));
                return Err(CatalogueReadError::Damaged { number: 1, what });
            }
            let mut catalogue = BackupCatalogue::new(header, scope);
            catalogue.note_header(line.at_s);
            Ok(catalogue)
        }
        _ => Err(CatalogueReadError::NotACatalogue),
    }
}
