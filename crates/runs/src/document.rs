//! Reports of runs and of comparisons.

use report::{Document, Finding, Meta, Refusal, calendar::shown_time};
use std::path::Path;
use workload::{
    database::{
        comparison::{self, ComparedRun, RunComparison},
        document,
        results::RunResults,
    },
    verdict::RunVerdict,
};
use world::WallTime;

/// The report of a run, with the `remarks` of the program that ran it and the command it was given.
pub fn document_of(results: &RunResults, remarks: &[Finding], command: &str) -> Result<Document, Refusal> {
    let verdict = RunVerdict::of(results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let mut document = document::document(results, &verdict);
    for remark in remarks {
        let graver = document.findings.iter().take_while(|other| other.severity < remark.severity).count();
        document.findings.insert(graver, remark.clone());
    }
    document.meta.command = Some(command.to_owned());
    Ok(document)
}

/// A run with its verdict, named after its record.
pub fn compared(record: &Path, results: RunResults) -> Result<ComparedRun, Refusal> {
    let verdict = RunVerdict::of(&results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let name = record.file_stem().unwrap_or(record.as_os_str()).to_string_lossy().into_owned();
    Ok(ComparedRun { name, results, verdict })
}

/// The comparison as a report made `now` by `command`.
pub fn comparison_document(comparison: &RunComparison, now: WallTime, command: &str) -> Document {
    let meta = Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created_utc: shown_time(now.seconds),
        machine: comparison.runs[0].results.host.name.clone(),
        seed: None,
        command: Some(command.to_owned()),
    };
    comparison::document::document(comparison, meta)
}
