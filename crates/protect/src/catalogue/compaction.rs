//! Compaction of a catalogue: old lines are summed up in a new file, which takes the place of the one before.
//!
//! The lines before a horizon are read twice. The first pass finds the backups whose lines stay: those that exist, and those to
//! which something happened that an auditor asks for years later. The second one writes:
//!
//! 1. the header, and the lines that stay, in their order, with new numbers;
//! 2. a line for each day of the others;
//! 3. the end of this part, with the state that follows from it;
//! 4. all younger lines, with new numbers.
//!
//! Invariants:
//!
//! 1. A backup's lines stay, or they are summed up: all of them.
//! 2. The new file says the same of all backups that exist as the old one: it is read again, and compared, before it takes the place.
//! 3. It is stable before it takes the place, and its name is before the next line is written. A crash leaves the one or the
//!    other.
//! 4. The horizon is of the confirmed clock: a clock that is set ahead sums nothing up.

use super::{
    clock::MachineTime,
    entry::{BackupStart, CatalogueEntry, CatalogueHeader},
    file::{CatalogueFile, PART_BYTES_MAX},
    line::{self, COMPACTED_VERSION, CatalogueDamage, CatalogueLine},
    reader::{CatalogueReadError, CatalogueReader, ReadCatalogue},
    state::{BackupCatalogue, CatalogueScope},
    summary::{DAY_S, SummedDay},
};
use crate::{
    UnixSecond,
    planted_keeping::{self, KeepingBug},
    retention::DeletionRule,
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use world::{IoError, IoResult, StateFile, World};

/// The time for which lines stay as they are, and when it pays to sum older ones up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueDetail {
    /// Confirmed seconds.
    pub kept_s: u64,
    /// Fewer bytes are not worth a new file.
    pub least_bytes: u64,
    /// Nor is a smaller part of the file than one of so many.
    pub least_part: u64,
}

/// Days for which lines stay as they are: as long as a server keeps its events and its audit.
pub const DETAIL_DAYS: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionResult {
    pub bytes_before: u64,
    pub bytes: u64,
    /// Civil time up to which lines are summed up.
    pub until: UnixSecond,
}

#[derive(Debug, Error)]
pub enum CompactionError {
    #[error("line {number} is damaged: {what}")]
    Damaged { number: u64, what: CatalogueDamage },
    #[error("the new file is unreadable: {0}")]
    Unreadable(CatalogueReadError),
    /// A defect of this program.
    #[error("the new file would not say the same: {0}")]
    Differs(String),
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Bytes that are written at a time, and synced at a time.
const WRITE_BYTES: usize = 1 << 20;
const SYNC_BYTES: u64 = 8 << 20;

impl Default for CatalogueDetail {
    fn default() -> Self {
        Self { kept_s: DETAIL_DAYS * DAY_S.unsigned_abs(), least_bytes: 64 << 10, least_part: 8 }
    }
}

impl CatalogueFile {
    /// Bytes of the lines that it pays to sum up now, from the beginning of the file on.
    pub fn compaction_due(&self, detail: &CatalogueDetail, now: &MachineTime) -> Option<u64> {
        let mut age_s = self.catalogue.clock().age_at(now);
        if planted_keeping::is(KeepingBug::SummedUpByCivilClock) {
            age_s = now.civil.0.abs_diff(self.catalogue.began().0);
        }
        let horizon = self.ages.offset_of(age_s.checked_sub(detail.kept_s)?);
        let old_bytes = horizon - self.ages.compacted_bytes();
        let least = detail.least_bytes.max(self.end / detail.least_part).max(1);
        (old_bytes >= least && !self.is_broken).then_some(horizon)
    }

    /// Sums up the lines in the first `horizon` bytes, which are whole lines. Others run meanwhile. If it is dropped, or fails,
    /// the file is as before.
    ///
    /// # Errors
    ///
    /// A file cannot be read or written. If it then [is broken](Self::is_broken), it is to be opened again.
    pub async fn compact(
        &mut self,
        world: &World,
        horizon: u64,
    ) -> Result<CompactionResult, CompactionError> {
        let survey = Survey::of(self, world, horizon).await?;
        let mut writer = SuccessorWriter::begin(&*self.file)?;
        Carrying::new(&survey).write(self, world, horizon, &mut writer).await?;
        let young = (horizon, self.end);
        self.each_line(world, young, survey.lines, |number, bytes| writer.line(bytes, number)).await?;
        let mut successor = writer.finish()?;
        let found = read_again(&*successor, world).await?;
        if let Some(difference) = self.catalogue.difference_of_compacted(&found.catalogue) {
            return Err(CompactionError::Differs(difference));
        }
        let until = found.catalogue.summed_until().expect("it was compacted");
        let result = CompactionResult { bytes_before: self.end, bytes: found.intact_bytes, until };
        // From here on either file may have the name, and nothing is awaited.
        self.is_broken = true;
        successor.take_place()?;
        self.succeed(successor, found);
        if !planted_keeping::is(KeepingBug::NameNotSynced) {
            self.file.sync_name()?;
        }
        self.is_broken = false;
        Ok(result)
    }

    /// Calls `each` with the number (from 0) and bytes of each line between two offsets.
    async fn each_line(
        &self,
        world: &World,
        (mut offset, end): (u64, u64),
        mut number: u64,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), CompactionError>,
    ) -> Result<(), CompactionError> {
        while offset < end {
            let mut part = self.read_part(offset)?;
            part.truncate((end - offset).min(part.len() as u64) as usize);
            if part.last() != Some(&b'\n') {
                return Err(damaged(number, CatalogueDamage::NotALine));
            }
            for bytes in part.split_inclusive(|byte| *byte == b'\n') {
                each(number, &bytes[..bytes.len() - 1])?;
                number += 1;
            }
            offset += part.len() as u64;
            world.yield_now().await;
        }
        Ok(())
    }
}

fn damaged(number: u64, what: CatalogueDamage) -> CompactionError {
    CompactionError::Damaged { number: number + 1, what }
}

/// Findings of the first pass about the old lines.
struct Survey {
    header: CatalogueHeader,
    /// Civil time of the header.
    began_s: i64,
    /// The runner's state at the horizon.
    catalogue: BackupCatalogue,
    /// Ended backups whose lines stay.
    noted: BTreeSet<u64>,
    /// Copies that were made, and whether they are still there.
    copies: BTreeMap<(u64, String), bool>,
    /// Number of the last line of a runner that opened the catalogue: the clock goes on from there.
    last_opened: Option<u64>,
    lines: u64,
}

impl Survey {
    async fn of(file: &CatalogueFile, world: &World, horizon: u64) -> Result<Self, CompactionError> {
        let mut survey = None;
        let surveying = file.each_line(world, (0, horizon), 0, |number, bytes| {
            let line = CatalogueLine::decode(bytes).map_err(|what| damaged(number, what))?;
            match &mut survey {
                None => survey = Some(Self::begin(line).map_err(|what| damaged(number, what))?),
                Some(survey) => survey.receive(&line).map_err(|what| damaged(number, what))?,
            }
            Ok(())
        });
        surveying.await?;
        survey.ok_or_else(|| damaged(0, CatalogueDamage::NotALine))
    }

    fn begin(line: CatalogueLine) -> Result<Self, CatalogueDamage> {
        let CatalogueEntry::Header(header) = line.entry else { return Err(CatalogueDamage::NotALine) };
        let mut catalogue = BackupCatalogue::new(header.clone(), CatalogueScope::Live);
        catalogue.note_header(line.at_s);
        let (noted, copies) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { header, began_s: line.at_s, catalogue, noted, copies, last_opened: None, lines: 1 })
    }

    fn receive(&mut self, line: &CatalogueLine) -> Result<(), CatalogueDamage> {
        let checked = self.catalogue.check(line);
        checked.map_err(|contradiction| CatalogueDamage::Contradiction(contradiction.to_string()))?;
        if is_noteworthy(&line.entry) {
            self.noted.extend(line.entry.backup());
        }
        match &line.entry {
            CatalogueEntry::Opened(_) => self.last_opened = Some(line.line),
            CatalogueEntry::Copied(copy) => {
                self.copies.insert((copy.backup, copy.to.clone()), true);
                for removed in &copy.removed {
                    if let Some(is_there) = self.copies.get_mut(&(*removed, copy.to.clone())) {
                        *is_there = false;
                    }
                }
            }
            _ => {}
        }
        self.catalogue.apply(line);
        self.lines += 1;
        Ok(())
    }

    /// True if a line stays as it is.
    fn keeps(&self, line: &CatalogueLine) -> bool {
        let Some(backup) = line.entry.backup() else { return Some(line.line) == self.last_opened };
        let exists = self.catalogue.row(backup).is_some();
        let is_of_gone_copy = match &line.entry {
            CatalogueEntry::Copied(copy) => !self.copies[&(backup, copy.to.clone())],
            _ => false,
        };
        let is_forgotten = planted_keeping::is(KeepingBug::HeldSummedUp);
        (exists || self.noted.contains(&backup) && !is_forgotten) && !is_of_gone_copy
    }

    /// True if the lines of this backup are counted.
    fn sums_up(&self, line: &CatalogueLine) -> bool {
        match line.entry.backup() {
            Some(backup) => self.catalogue.row(backup).is_none() && !self.noted.contains(&backup),
            None => true,
        }
    }
}

/// Entries for which the lines of their backups stay, as long as the catalogue does: an auditor asks for them by name.
fn is_noteworthy(entry: &CatalogueEntry) -> bool {
    match entry {
        CatalogueEntry::Held(_)
        | CatalogueEntry::Released(_)
        | CatalogueEntry::Locked(_)
        | CatalogueEntry::Lost(_)
        | CatalogueEntry::Restored(_)
        | CatalogueEntry::Drilled(_) => true,
        CatalogueEntry::Begun(start) => !start.holds.is_empty(),
        CatalogueEntry::Verified(verified) => !verified.is_good,
        CatalogueEntry::Deleting(deletion) => deletion.rule == DeletionRule::Person,
        _ => false,
    }
}

/// The second pass over the old lines.
struct Carrying<'s> {
    survey: &'s Survey,
    days: BTreeMap<i64, SummedDay>,
    /// The backup that has begun, of those that are summed up.
    begun: Option<BackupStart>,
    /// Times of the last line.
    at_s: i64,
    age_s: u64,
}

impl<'s> Carrying<'s> {
    fn new(survey: &'s Survey) -> Self {
        Self { survey, days: BTreeMap::new(), begun: None, at_s: survey.began_s, age_s: 0 }
    }

    async fn write(
        mut self,
        file: &CatalogueFile,
        world: &World,
        horizon: u64,
        writer: &mut SuccessorWriter,
    ) -> Result<(), CompactionError> {
        let mut header = self.survey.header.clone();
        (header.version, header.compactions) = (COMPACTED_VERSION, header.compactions + 1);
        writer.entry(CatalogueEntry::Header(header), (self.at_s, 0))?;
        let carrying = file.each_line(world, (0, horizon), 0, |number, bytes| {
            let line = CatalogueLine::decode(bytes).map_err(|what| damaged(number, what))?;
            self.receive(&line, bytes, writer)
        });
        carrying.await?;
        let times = (self.at_s, self.age_s);
        for day in std::mem::take(&mut self.days).into_values() {
            writer.entry(CatalogueEntry::Summed(day), times)?;
        }
        let mut part = self.survey.catalogue.compacted_part();
        if planted_keeping::is(KeepingBug::SummedSlotsForgotten) {
            part.filled.clear();
        }
        writer.entry(CatalogueEntry::Compacted(part), times)
    }

    fn receive(
        &mut self,
        line: &CatalogueLine,
        bytes: &[u8],
        writer: &mut SuccessorWriter,
    ) -> Result<(), CompactionError> {
        assert!(line.age_s >= self.age_s, "it was read before");
        (self.at_s, self.age_s) = (line.at_s, line.age_s);
        match &line.entry {
            CatalogueEntry::Header(_) | CatalogueEntry::Compacted(_) => Ok(()),
            _ if self.survey.keeps(line) => writer.line(bytes, line.line),
            _ if self.survey.sums_up(line) => {
                self.sum(line);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sum(&mut self, line: &CatalogueLine) {
        let at_s = match &line.entry {
            CatalogueEntry::Opened(_) | CatalogueEntry::Hook(_) | CatalogueEntry::Deleting(_) => return,
            CatalogueEntry::Summed(day) => day.day_s,
            _ => line.at_s,
        };
        let start = match &line.entry {
            CatalogueEntry::Begun(start) => {
                self.begun = Some(start.clone());
                None
            }
            CatalogueEntry::Cut(_) | CatalogueEntry::Failed(_) | CatalogueEntry::Found(_) => {
                self.begun.take().filter(|start| Some(start.backup) == line.entry.backup())
            }
            _ => None,
        };
        let new = SummedDay::new(at_s);
        self.days.entry(new.day_s).or_insert(new).count(&line.entry, start.as_ref());
    }
}

/// Lines of a successor, numbered from 0.
struct SuccessorWriter {
    file: Box<dyn StateFile>,
    lines: u64,
    pending: Vec<u8>,
    written: u64,
    synced: u64,
}

impl SuccessorWriter {
    fn begin(before: &dyn StateFile) -> IoResult<Self> {
        Ok(Self { file: before.begin_successor()?, lines: 0, pending: Vec::new(), written: 0, synced: 0 })
    }

    fn entry(&mut self, entry: CatalogueEntry, (at_s, age_s): (i64, u64)) -> Result<(), CompactionError> {
        let bytes = CatalogueLine { line: self.lines, at_s, age_s, entry }.encode();
        self.push(&bytes)
    }

    /// A line of the file before. `number` is its number there, for messages.
    fn line(&mut self, bytes: &[u8], number: u64) -> Result<(), CompactionError> {
        let renumbered = line::renumbered(bytes, self.lines).map_err(|what| damaged(number, what))?;
        self.push(&renumbered)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), CompactionError> {
        self.pending.extend_from_slice(bytes);
        self.lines += 1;
        if self.pending.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Synced now and then: the last sync waits for few bytes.
    fn flush(&mut self) -> Result<(), CompactionError> {
        self.file.write_at(self.written, &self.pending)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Box<dyn StateFile>, CompactionError> {
        self.flush()?;
        if !planted_keeping::is(KeepingBug::SuccessorNotSynced) {
            self.file.sync()?;
        }
        Ok(self.file)
    }
}

/// Reads the new file as its next runner will.
async fn read_again(file: &dyn StateFile, world: &World) -> Result<ReadCatalogue, CompactionError> {
    let mut reader = CatalogueReader::new(CatalogueScope::Live);
    let (size, mut offset) = (file.size()?, 0);
    let mut part = vec![0; PART_BYTES_MAX / 2];
    while offset < size {
        let length = (size - offset).min(part.len() as u64) as usize;
        file.read_at(offset, &mut part[..length])?;
        reader.receive(&part[..length]).map_err(CompactionError::Unreadable)?;
        offset += length as u64;
        world.yield_now().await;
    }
    let read = reader.finish().map_err(CompactionError::Unreadable)?;
    let read = read.ok_or_else(|| damaged(0, CatalogueDamage::NotALine))?;
    assert_eq!(read.dropped_bytes, 0, "whole lines were written");
    Ok(read)
}
