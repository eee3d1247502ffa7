//! `spindle report`: the report of a run, made again from its record, or of what the hosts of a server did over time.

mod host_load;
mod load_document;
mod load_profile;
mod over_time;
mod sending;

use crate::{answer::deliver, arguments::ReportArguments, console::Console, exit_status::ExitStatus};
use report::{Finding, Refusal, Severity, json};
use runs::{document::document_of, outputs::Outputs, record_reader};
use std::path::Path;
use world::WallTime;

/// Runs the verb to its end.
pub fn report(arguments: &ReportArguments) -> Result<ExitStatus, Refusal> {
    match &arguments.run {
        Some(run) => of_run(arguments, run),
        None => over_time::report(arguments),
    }
}

/// The report of a run.
fn of_run(arguments: &ReportArguments, run: &Path) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    if arguments.send && run.extension().is_some_and(|extension| extension == "json") {
        return sending::send_file(arguments, run, &console);
    }
    let recovered = record_reader::read(run)?;
    let mut remarks = recovered.remarks;
    if recovered.dropped_bytes > 0 {
        let text = format!(
            "The last {} bytes of the record were half-written and left out.",
            recovered.dropped_bytes
        );
        remarks.push(Finding { severity: Severity::Note, text, source: String::new() });
    }
    let document = document_of(&recovered.results, &remarks, &recovered.header.command)?;
    let outputs = match &arguments.report {
        Some(prefix) => Outputs::choose_report(Some(prefix), WallTime::default(), &[])?,
        None => Outputs::beside(run, &document)?,
    };
    let status = deliver(&document, &outputs, arguments.json, &console)?;
    if arguments.send {
        let row = sending::send(arguments, run, json::render(&document))?;
        console.say_always(&sending::words(&row));
    }
    console.finish(status)
}
