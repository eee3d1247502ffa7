//! What may be written after the verbs that work on records.

use clap::Args;
use std::path::PathBuf;

/// `spindle report`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:
  spindle report spindle-report-2026-11-21-220500.run      writes the .html and .json beside it

Of a run that ended the report is the same to the byte. Of one that died (a crash, a power cut), or that
is still going on, it is what was known a few seconds before, with nothing verified.

Ends with 0 for pass, 1 for fail, 2 if the run came to no answer or there is no report.",
    max_term_width = 100
)]
pub struct ReportArguments {
    /// Record of a run: the .run file that 'spindle prove' writes beside its report
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// Where the report goes: PREFIX.html and PREFIX.json [default: beside the record]
    #[arg(long, value_name = "PREFIX")]
    pub report: Option<PathBuf>,

    /// Print the results as JSON on standard output; all else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only the verdict and where the report lies
    #[arg(long, short)]
    pub quiet: bool,
}

/// `spindle compare`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:
  spindle compare night-threads-*.run --report night       the table and curves, also as night.html

Each run is the record that 'spindle prove' leaves, also of a run that died. What was varied between them is
found by itself: threads, mailboxes, groups, databases, volumes or layout; else they are told by their names.

Ends with 0 if it compared them, 2 if it could not.",
    max_term_width = 100
)]
pub struct CompareArguments {
    /// Records of runs: the .run files that 'spindle prove' writes beside its reports
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub runs: Vec<PathBuf>,

    /// Write the comparison to PREFIX.html and PREFIX.json, too
    #[arg(long, value_name = "PREFIX")]
    pub report: Option<PathBuf>,

    /// Print the comparison as JSON on standard output; all else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only what saturated first and where the report lies
    #[arg(long, short)]
    pub quiet: bool,
}
