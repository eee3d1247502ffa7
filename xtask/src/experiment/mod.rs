//! Experiments of the published papers that need more than one program: two sites, a line between them, a load.

mod continuous_access;

use crate::{bench::our_programs::OurPrograms, step};
use anyhow::Result;
use std::{fs, path::PathBuf};

#[derive(clap::Args)]
pub(crate) struct ExperimentOptions {
    name: ExperimentName,
    /// Smaller sizes and shorter runs: about ten minutes, once everything is built
    #[arg(long)]
    quick: bool,
    /// Folder on the storage [default: experiment/ in the target folder]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExperimentName {
    /// Latency by round trip and by storage groups, and the merge after a cut line
    ContinuousAccess,
}

/// Runs an experiment, prints its tables, and leaves its figures as JSON in the folder.
pub fn run(options: &ExperimentOptions) -> Result<()> {
    let ours = OurPrograms::build(true, &[])?;
    let folder = match &options.path {
        Some(path) => path.clone(),
        None => step::target_directory()?.join("experiment"),
    };
    fs::create_dir_all(&folder)?;
    match options.name {
        ExperimentName::ContinuousAccess => continuous_access::run((&ours, &folder), options.quick),
    }
}
