//! Records of runs, read from files.

use report::Refusal;
use std::path::{Path, PathBuf};
use workload::database::record::{RecordReader, RecoveredRun};
use world::real::{
    LineFile,
    host_files::{self, PathKind},
};

/// The longest line: the last one holds some months of samples.
const LINE_BYTES_MAX: u64 = 2 << 30;
/// The first line holds a plan. A database or a drive given by mistake is not read to its end.
const FIRST_LINE_BYTES_MAX: u64 = 4 << 20;
/// Extension of a record's file name.
pub const EXTENSION: &str = "run";

/// Reads the record at `path`. A file that is no record, or a damaged one, is refused.
pub fn read(path: &Path) -> Result<RecoveredRun, Refusal> {
    let shown = path.display();
    match host_files::kind(path) {
        Ok(PathKind::File) => {}
        Ok(PathKind::Missing) => return Err(Refusal::new(format!("{shown} does not exist"), advice(path))),
        Ok(_) => return Err(Refusal::new(format!("{shown} is not a file"), advice(path))),
        Err(error) => return Err(Refusal::new(error.to_string(), "")),
    }
    let mut file = LineFile::open(path).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let mut reader = RecordReader::new();
    let mut bytes_max = FIRST_LINE_BYTES_MAX;
    loop {
        let line = match file.next(bytes_max) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) if bytes_max == FIRST_LINE_BYTES_MAX => {
                return Err(Refusal::new(format!("{shown}: it is no run record"), advice(path)));
            }
            Err(error) => return Err(Refusal::new(error.to_string(), "")),
        };
        reader.line(&line).map_err(|error| Refusal::new(format!("{shown}: {error}"), advice(path)))?;
        bytes_max = LINE_BYTES_MAX;
    }
    reader.finish().map_err(|error| Refusal::new(format!("{shown}: {error}"), advice(path)))
}

/// The remedy: name the record beside the report, if a report was given.
fn advice(path: &Path) -> String {
    let record = path.with_extension(EXTENSION);
    let is_there = record != path && matches!(host_files::kind(&record), Ok(PathKind::File));
    if is_there {
        format!("did you mean {}?", record.display())
    } else {
        format!("give a file that 'spindle prove' left, such as spindle-report-DATE.{EXTENSION}")
    }
}

/// The record that `given` means: itself, or the one beside a report.
pub fn record_of(given: &Path) -> PathBuf {
    let is_report = given.extension().is_some_and(|extension| extension == "json" || extension == "html");
    let record = given.with_extension(EXTENSION);
    if is_report && matches!(host_files::kind(&record), Ok(PathKind::File)) {
        record
    } else {
        given.to_owned()
    }
}
