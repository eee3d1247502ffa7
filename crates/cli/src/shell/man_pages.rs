//! `spindle man`: a manual page for each verb.

use super::man_page::man_page;
use crate::{arguments::Arguments, console::Console, exit_status::ExitStatus};
use clap::{Args, Command, CommandFactory};
use report::Refusal;
use std::path::{Path, PathBuf};
use world::{IoError, real::host_files};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle man ~/.local/share/man/man1      then: man spindle-pool-create
  spindle man man1 --date 2026-11-29       the date at the foot of the pages

The Debian package installs the pages.

Ends with 0, or 2 if a page could not be written.")]
pub struct ManArguments {
    /// Folder of the pages, made if it is missing: spindle.1, spindle-serve.1, spindle-pool-create.1 …
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Date at the foot of the pages [default: no date]
    #[arg(long, value_name = "DATE", default_value = "", hide_default_value = true)]
    date: String,
}

/// Runs the verb to its end.
pub fn man(arguments: &ManArguments) -> Result<ExitStatus, Refusal> {
    let ManArguments { folder, date } = arguments;
    let refused = |error: IoError| Refusal::new(error.to_string(), "name a folder that you may write");
    host_files::create_dir_all(folder).map_err(refused)?;
    let mut program = Arguments::command();
    // Verbs learn what stands before them on the line.
    program.build();
    let count = write_pages(&program, folder, date).map_err(refused)?;
    let console = Console::new(false, false);
    console.say(&format!("{count} pages in {}", folder.display()));
    console.finish(ExitStatus::Pass)
}

/// Writes the pages of a verb and of all below it; returns their number.
fn write_pages(verb: &Command, folder: &Path, date: &str) -> Result<usize, IoError> {
    let (name, text) = man_page(verb, date);
    host_files::write_atomically_unflushed(&folder.join(name), &text)?;
    let mut count = 1;
    for below in verb.get_subcommands().filter(|below| !below.is_hide_set()) {
        count += write_pages(below, folder, date)?;
    }
    Ok(count)
}
