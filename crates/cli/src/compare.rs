//! `spindle compare`: records of runs, side by side.

use crate::{
    answer::deliver_whole, arguments::CompareArguments, command_line::own_command, console::Console,
    exit_status::ExitStatus,
};
use report::Refusal;
use runs::{
    document::{compared, comparison_document},
    outputs::Outputs,
    record_reader,
};
use workload::database::comparison::{RunComparison, saturation};
use world::{World, real};

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
        runs.push(compared(path, record_reader::read(path)?.results)?);
    }
    let comparison = RunComparison::of(runs);
    let document = comparison_document(&comparison, now, &own_command());
    let answer = saturation::in_words(&comparison, &saturation::signs(&comparison));
    deliver_whole(&document, &answer, outputs.as_ref(), arguments.json, &console)?;
    console.finish(ExitStatus::Pass)
}
