//! `spindle protect report`: what a set's catalogue says, for an auditor.

use crate::{
    command_line::own_command,
    console::Console,
    exit_status::ExitStatus,
    quantity::parse_duration,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::web::client::{SetKeeperName, SetRow, in_uri};
use protect::{
    UnixSecond,
    backup_schedule::day_start,
    catalogue::{BackupCatalogue, CatalogueReader, CatalogueScope},
    set_report::CatalogueReport,
};
use report::{Meta, Refusal, calendar::shown_time, html, text};
use runs::outputs::check_new_file;
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{host::machine, host_files},
};

/// The report goes back so far if nothing is said.
const SINCE: &str = "30d";

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect report mail                                    the last 30 days
  spindle protect report mail --since 2026-01-01 --html year.html
  spindle protect report mail --catalogue /var/lib/spindle/sets/mail.catalogue     of an agent, on its mail host

It is made from the catalogue alone: every slot that was due (made, missed, failed and why), label and evidence of each backup, \
by whom and by which version it was verified, copies, deletions by whom and by which rule, restores, drills. With --json every \
slot is a line of its own.

Exits with 0, and with 2 if there is no such catalogue, or it is damaged.")]
pub struct SetReportArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Since this day (UTC), such as 2026-01-01, or for so long, such as 90d
    #[arg(long, value_name = "DAY|TIME", default_value = SINCE)]
    pub since: String,

    /// Also write it as a page; the file must not exist
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The catalogue's file, without a server
    #[arg(long, value_name = "FILE")]
    pub catalogue: Option<PathBuf>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &SetReportArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let now = UnixSecond(world.wall().seconds);
    let since = since(&arguments.since, now)?;
    if let Some(page) = &arguments.html {
        check_new_file("--html", page)?;
    }
    let set = &arguments.set;
    let catalogue = match &arguments.catalogue {
        Some(file) => of_file(set, file)?,
        None => of_server(set, &place.connection(world)?).await?,
    };
    let report = CatalogueReport::of(&catalogue, since);
    let document = report.document(Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created_utc: shown_time(now.0),
        machine: machine().hostname,
        seed: None,
        command: Some(own_command()),
    });
    let options = text::TextOptions { width: console.width, colour: console.colour };
    console.say(text::render(&document, options).trim_end());
    if let Some(page) = &arguments.html {
        let written = host_files::write_atomically(page, html::render(&document).as_bytes());
        written.map_err(|error| Refusal::new(format!("--html: {error}"), "the report above stands"))?;
        console.say_always(&format!("Page: {}", page.display()));
    }
    if console.is_for_programs() {
        console.json_of(&report)?;
    }
    console.finish(ExitStatus::Pass)
}

/// A day, or a span before now.
pub fn since(text: &str, now: UnixSecond) -> Result<UnixSecond, Refusal> {
    if let Some(day) = day_start(text) {
        return Ok(day);
    }
    let span = parse_duration(text).ok().and_then(|span| i64::try_from(span.as_secs()).ok());
    match span.filter(|_| !text.contains('-')) {
        Some(span) => Ok(UnixSecond(now.0.saturating_sub(span))),
        None => Err(Refusal::new(
            format!("--since: {text:?} is no day and no span"),
            "say a day such as 2026-01-01, or a span such as 90d",
        )),
    }
}

/// The catalogue of a set that the server keeps.
async fn of_server(set: &str, server: &ServerConnection) -> Result<BackupCatalogue, Refusal> {
    let path = format!("/v1/sets/{}", in_uri(set));
    let row: SetRow = server.get(&path).await?;
    if row.kept_by == SetKeeperName::Agent {
        return Err(Refusal::new(
            format!("an agent on the mail host keeps {set}, and its catalogue"),
            "say ⟨catalogue⟩ FILE there",
        ));
    }
    let mut reader = CatalogueReader::new(CatalogueScope::All);
    let mut offset = 0;
    loop {
        let compactions = reader.catalogue().map(|catalogue| catalogue.header().compactions);
        let same = compactions.map(|compactions| format!("&compactions={compactions}")).unwrap_or_default();
        let part = server.get_text(&format!("{path}/catalogue?offset={offset}{same}")).await?.body;
        if part.is_empty() {
            return whole(reader, set);
        }
        reader.receive(part.as_bytes()).map_err(|error| damaged(set, &error))?;
        offset += part.len();
    }
}

fn of_file(set: &str, file: &Path) -> Result<BackupCatalogue, Refusal> {
    let text = host_files::read_to_string(file).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let mut reader = CatalogueReader::new(CatalogueScope::All);
    reader.receive(text.as_bytes()).map_err(|error| damaged(&file.display().to_string(), &error))?;
    let catalogue = whole(reader, &file.display().to_string())?;
    match &catalogue.header().set {
        of if of == set => Ok(catalogue),
        of => Err(Refusal::new(
            format!("{} is the catalogue of the set {of}", file.display()),
            "name that one, or its file",
        )),
    }
}

fn whole(reader: CatalogueReader, what: &str) -> Result<BackupCatalogue, Refusal> {
    let read = reader.finish().map_err(|error| damaged(what, &error))?;
    let read = read.ok_or_else(|| Refusal::new(format!("the catalogue of {what} is empty"), ""))?;
    Ok(read.catalogue)
}

fn damaged(what: &str, error: &impl std::fmt::Display) -> Refusal {
    Refusal::new(
        format!("the catalogue of {what}: {error}"),
        "'spindle protect rebuild' makes a new one from the pools' notes",
    )
}
