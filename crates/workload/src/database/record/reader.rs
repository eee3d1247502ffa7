//! Decodes the lines of a record.
//!
//! 1. Lines come in order; the first one identifies the file.
//! 2. Lines from the first damaged one on are the remains of a crash, and are dropped, unless an intact line
//!    follows: then the file was damaged later, and is rejected.
//! 3. No line follows the end of the run.

use crate::database::record::recovered::RunRecovery;
use crate::{
    database::record::{RecordEntry, RecordHeader, RecoveredRun, entry::Differences, validation},
    record::{
        FORMAT, LineDamage, VERSION,
        line::{self, VERSION_MIN},
    },
};
use serde::Deserialize;
use thiserror::Error;

/// A file that is no intact record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunRecordError {
    #[error("it is no run record")]
    NotARecord,
    #[error("it is a run record of version {found}, this program knows versions {VERSION_MIN} to {VERSION}")]
    OtherVersion { found: u64 },
    /// A line within the file is damaged or implausible.
    #[error("line {number} is damaged: {what}")]
    Damaged {
        /// From 1, as editors count.
        number: u64,
        what: LineDamage,
    },
}

/// Receives the lines of a record in order.
#[derive(Default)]
pub struct RecordReader {
    /// Lines received, intact or not.
    lines: u64,
    at_s: f64,
    recovery: Option<RunRecovery>,
    /// Number (from 1) and damage of the first damaged line.
    damage: Option<(u64, LineDamage)>,
    dropped_bytes: u64,
}

/// The parts of a header that identify format and version.
#[derive(Deserialize)]
struct Opening {
    header: OpeningHeader,
}

#[derive(Deserialize)]
struct OpeningHeader {
    format: String,
    version: u64,
}

impl RecordReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Receives the next line, without its line break.
    pub fn line(&mut self, bytes: &[u8]) -> Result<(), RunRecordError> {
        self.lines += 1;
        if self.lines == 1 {
            let header = opening(bytes)?;
            self.recovery = Some(RunRecovery::new(header));
            return Ok(());
        }
        if let Some((number, what)) = &self.damage {
            self.dropped_bytes += bytes.len() as u64 + 1;
            return if line::is_whole(bytes) {
                Err(RunRecordError::Damaged { number: *number, what: what.clone() })
            } else {
                Ok(())
            };
        }
        match self.next(bytes) {
            Ok(()) => Ok(()),
            Err(what) if line::is_whole(bytes) => Err(RunRecordError::Damaged { number: self.lines, what }),
            Err(what) => {
                self.dropped_bytes += bytes.len() as u64;
                self.damage = Some((self.lines, what));
                Ok(())
            }
        }
    }

    fn next(&mut self, bytes: &[u8]) -> Result<(), LineDamage> {
        let line: line::Line<RecordEntry<Differences>> = line::decode(bytes)?;
        let expected = self.lines - 1;
        if line.line != expected {
            return Err(LineDamage::OutOfOrder { found: line.line, expected });
        }
        let later = self.at_s..=validation::SPAN_S_MAX;
        if !later.contains(&line.at_s) {
            return Err(LineDamage::Unknown(format!("its time, {} s, cannot be", line.at_s)));
        }
        self.at_s = line.at_s;
        let recovery = self.recovery.as_mut().expect("the first line made it");
        recovery.take(line.at_s, line.entry).map_err(LineDamage::Unknown)
    }

    /// Returns the recovered run; an error if the record was empty.
    pub fn finish(self) -> Result<RecoveredRun, RunRecordError> {
        let recovery = self.recovery.ok_or(RunRecordError::NotARecord)?;
        Ok(recovery.finish(self.dropped_bytes))
    }
}

fn opening(bytes: &[u8]) -> Result<RecordHeader, RunRecordError> {
    let opening: line::Line<Opening> = line::decode(bytes).map_err(|_| RunRecordError::NotARecord)?;
    let OpeningHeader { format, version } = opening.entry.header;
    if format != FORMAT {
        return Err(RunRecordError::NotARecord);
    }
    if !(u64::from(VERSION_MIN)..=u64::from(VERSION)).contains(&version) {
        return Err(RunRecordError::OtherVersion { found: version });
    }
    let damaged = |what| RunRecordError::Damaged { number: 1, what };
    let line: line::Line<RecordEntry<Differences>> = line::decode(bytes).map_err(damaged)?;
    match line.entry {
        RecordEntry::Header(mut header) if line.line == 0 => {
            validation::header(&mut header).map_err(|what| damaged(LineDamage::Unknown(what)))?;
            Ok(*header)
        }
        _ => Err(RunRecordError::NotARecord),
    }
}
