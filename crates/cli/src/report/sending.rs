//! `spindle report --send`: a server keeps the report, and its console shows it.

use crate::{arguments::ReportArguments, console::Console, exit_status::ExitStatus};
use control::web::client::{Method, ReportRow, in_uri};
use report::Refusal;
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions, host_files},
};

/// Most bytes that are read of a report: the server takes fewer.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Sends a report that is a file, as it is.
pub(super) fn send_file(
    arguments: &ReportArguments,
    file: &Path,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if arguments.report.is_some() {
        return Err(Refusal::new("a .json is sent as it is, so ⟨report⟩ names no file", "leave it out"));
    }
    let bytes = host_files::read_file_at_most(file, FILE_BYTES_MAX)
        .map_err(|error| Refusal::new(error.to_string(), "name the .json that 'spindle prove' wrote"))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Refusal::new(format!("{} is no text", file.display()), "name another file"))?;
    let row = send(arguments, file, text)?;
    if console.is_for_programs() {
        console.json_of(&row)?;
    }
    console.say_always(&words(&row));
    console.finish(ExitStatus::Pass)
}

/// Sends a report under the name that was given, or that of its file.
pub(super) fn send(arguments: &ReportArguments, file: &Path, text: String) -> Result<ReportRow, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let of_file = || file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = arguments.name.clone().unwrap_or_else(of_file);
        let server = arguments.place.connection(&world)?;
        let path = format!("/v1/reports/{}", in_uri(&name));
        server.send_json(Method::PUT, &path, text).await?.parsed()
    })
}

/// The line that says it.
pub(super) fn words(row: &ReportRow) -> String {
    format!("The server keeps it as {}; its console shows it at /reports/{}", row.name, row.name)
}
