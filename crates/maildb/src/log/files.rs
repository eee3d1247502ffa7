//! The log files of a directory, by generation.
//!
//! The header identifies a file; the name is only a hint. A crash between the renames of a roll leaves the
//! newest generation under the temporary name, or no file under the current one. A file under the temporary
//! name that does not follow all others does not count: it is unfinished (zeros, a torn header) or a released
//! generation about to be reused.

use super::{
    Damage, LogError, LogNames, file_header::LogFileHeader, names::LogFileName, segment::SEGMENT_BYTES,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{Buffer, ByteOffset, Directory, DirectoryEntry, IoErrorKind};

/// Kind of name that a generation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFileRole {
    /// `E00.log`.
    Current,
    /// `E00tmp.log`, after an interrupted roll.
    Temporary,
    /// `E0000000001.log`.
    Archived,
}

impl LogFileRole {
    pub fn name(self, names: &LogNames, generation: u32) -> String {
        match self {
            Self::Current => names.current(),
            Self::Temporary => names.temporary(),
            Self::Archived => names.archived(generation),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LogFile {
    pub header: LogFileHeader,
    pub role: LogFileRole,
}

/// The generations of one log.
#[derive(Clone)]
pub struct LogFiles {
    pub(super) directory: Rc<dyn Directory>,
    pub(super) names: LogNames,
    pub(super) files: BTreeMap<u32, LogFile>,
    /// Archived names whose files do not verify: an error only if they are needed.
    pub(super) damaged: BTreeMap<u32, Damage>,
    /// Generations of a joined log that lie in other folders.
    elsewhere: BTreeMap<u32, Rc<dyn Directory>>,
}

impl LogFiles {
    /// Reads the headers of all log files of `base_name`. An empty result means that the directory never held
    /// a complete log.
    pub async fn scan(directory: &Rc<dyn Directory>, base_name: &str) -> Result<Self, LogError> {
        let names = LogNames::new(base_name);
        let mut found = Self {
            directory: Rc::clone(directory),
            names,
            files: BTreeMap::new(),
            damaged: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
        };
        let mut temporary = None;
        for entry in directory.list().await? {
            match found.names.parse(&entry.name) {
                Some(LogFileName::Archived(generation)) => match found.read_header(&entry).await? {
                    Ok(header) if header.generation == generation => {
                        found.add(header, LogFileRole::Archived)?;
                    }
                    Ok(_) => drop(found.damaged.insert(generation, Damage::WrongChain)),
                    Err(damage) => drop(found.damaged.insert(generation, damage)),
                },
                // Only a file with a stable header ever gets this name.
                Some(LogFileName::Current) => match found.read_header(&entry).await? {
                    Ok(header) => found.add(header, LogFileRole::Current)?,
                    Err(damage) => return Err(LogError::Damaged { file: entry.name, segment: 0, damage }),
                },
                Some(LogFileName::Temporary) => temporary = found.read_header(&entry).await?.ok(),
                None => {}
            }
        }
        if let Some(header) = temporary
            && found.newest().is_none_or(|newest| header.generation > newest)
        {
            found.add(header, LogFileRole::Temporary)?;
        }
        Ok(found)
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.damaged.is_empty()
    }

    /// The newest generation.
    pub fn newest(&self) -> Option<u32> {
        let readable = self.files.keys().next_back().copied();
        readable.max(self.damaged.keys().next_back().copied())
    }

    /// The oldest generation that is connected to the newest without a gap.
    pub fn oldest(&self) -> Option<u32> {
        let newest = self.newest()?;
        (1..=newest).rev().take_while(|generation| self.files.contains_key(generation)).last()
    }

    /// Names of all files, including damaged ones, oldest generation first.
    pub fn file_names(&self) -> Vec<String> {
        let readable = self
            .files
            .iter()
            .map(|(&generation, file)| (generation, file.role.name(&self.names, generation)));
        let damaged = self.damaged.keys().map(|&generation| (generation, self.names.archived(generation)));
        // Both: a generation may be damaged under its archive name and whole under another.
        let all: BTreeSet<(u32, String)> = readable.chain(damaged).collect();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// The readable generations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &LogFile> {
        self.files.values()
    }

    /// The file of a generation that recovery needs; an error if it is missing or damaged.
    pub(super) fn get(&self, generation: u32) -> Result<&LogFile, LogError> {
        if let Some(&damage) = self.damaged.get(&generation) {
            let file = self.names.archived(generation);
            return Err(LogError::Damaged { file, segment: 0, damage });
        }
        self.files.get(&generation).ok_or(LogError::Missing { generation })
    }

    /// The folder of a generation.
    pub(super) fn directory_of(&self, generation: u32) -> &Rc<dyn Directory> {
        self.elsewhere.get(&generation).unwrap_or(&self.directory)
    }

    /// Adds a generation that lies in another folder.
    pub(super) fn add_elsewhere(&mut self, file: LogFile, directory: &Rc<dyn Directory>) {
        self.files.insert(file.header.generation, file);
        self.elsewhere.insert(file.header.generation, Rc::clone(directory));
    }

    /// Generations under archive names.
    pub(super) fn archived(&self) -> BTreeSet<u32> {
        let is_archived = |file: &&LogFile| file.role == LogFileRole::Archived;
        self.files.values().filter(is_archived).map(|file| file.header.generation).collect()
    }

    /// The generation under the current name.
    pub(super) fn current(&self) -> Option<u32> {
        let current = self.files.values().find(|file| file.role == LogFileRole::Current);
        current.map(|file| file.header.generation)
    }

    fn add(&mut self, header: LogFileHeader, role: LogFileRole) -> Result<(), LogError> {
        let generation = header.generation;
        if self.files.insert(generation, LogFile { header, role }).is_some() {
            let file = role.name(&self.names, generation);
            return Err(LogError::Damaged { file, segment: 0, damage: Damage::DuplicateGeneration });
        }
        Ok(())
    }

    /// The header of a log file, or its damage.
    async fn read_header(&self, entry: &DirectoryEntry) -> Result<Result<LogFileHeader, Damage>, LogError> {
        if entry.size.0 < SEGMENT_BYTES as u64 {
            return Ok(Err(Damage::FileLength));
        }
        let file = self.directory.open(&entry.name).await?;
        let bytes = match file.read(ByteOffset(0), vec![Buffer::zeroed(SEGMENT_BYTES)]).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == IoErrorKind::Medium => return Ok(Err(Damage::FileHeader)),
            Err(error) => return Err(error.into()),
        };
        let Some(header) = LogFileHeader::decode(&bytes[0]) else { return Ok(Err(Damage::FileHeader)) };
        if header.previous_end.is_none() || header.segments < 4 || header.generation == 0 {
            return Ok(Err(Damage::FileHeader));
        }
        if entry.size.0 < u64::from(header.segments) * SEGMENT_BYTES as u64 {
            return Ok(Err(Damage::FileLength));
        }
        Ok(Ok(header))
    }
}
