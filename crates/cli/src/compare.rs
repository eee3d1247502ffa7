//! `spindle compare`: records of runs, side by side.

use crate::{
    answer::deliver_whole, arguments::CompareArguments, console::Console, exit_status::ExitStatus,
    outputs::Outputs, prove::performance::command_line, records,
};
use report::{Document, Meta, Refusal, calendar::shown_time};
use std::{env, path::Path};
use workload::database::{
    comparison::{ComparedRun, Comparison, document::document, saturation},
    results::RunResults,
    verdict::Verdict,
};
use world::{WallTime, World, real};

/// Runs the verb to its end.
pub fn compare(arguments: &CompareArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let now = real::run(0, real::RealOptions::default(), async |world: World| world.wall());
    let outputs = match &arguments.report {
        Some(prefix) => Some(Outputs::choose_report(Some(prefix), now, &[])?),
        None => None,
    };
    let mut runs = Vec::new();
    for path in &arguments.runs {
        runs.push(compared(path, records::read(path)?.results)?);
    }
    let comparison = Comparison::of(runs);
    let document = comparison_document(&comparison, now);
    let answer = saturation::in_words(&comparison, &saturation::signs(&comparison));
    deliver_whole(&document, &answer, outputs.as_ref(), arguments.json, &console)?;
    console.finish(ExitStatus::Pass)
}

/// A run with its verdict, called by the name of its record.
pub fn compared(record: &Path, results: RunResults) -> Result<ComparedRun, Refusal> {
    let verdict = Verdict::of(&results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let name = record.file_stem().unwrap_or(record.as_os_str()).to_string_lossy().into_owned();
    Ok(ComparedRun { name, results, verdict })
}

/// The comparison as a report made `now` by this program.
pub fn comparison_document(comparison: &Comparison, now: WallTime) -> Document {
    let meta = Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created_utc: shown_time(now.seconds),
        machine: comparison.runs[0].results.host.name.clone(),
        seed: None,
        command: Some(command_line(env::args())),
    };
    document(comparison, meta)
}
