//! `spindle export list|create|delete`: the NBD exports of a server.

use super::{ServiceSource, arguments::ExportVerb, counted, result::change, running, source};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::{ExportRow, Method, NewExportBody, in_uri};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/exports";

/// Runs the verb to its end.
pub fn export_rows(verb: &ExportVerb) -> Result<ExitStatus, Refusal> {
    let (ExportVerb::List { common } | ExportVerb::Create { common, .. } | ExportVerb::Delete { common, .. }) =
        verb;
    let console = Console::new(common.json, false);
    real::run(0, RealOptions::default(), async |world: World| run(&world, verb, &console).await)
}

async fn run(world: &World, verb: &ExportVerb, console: &Console) -> Result<ExitStatus, Refusal> {
    match verb.clone() {
        ExportVerb::List { common } => {
            let rows: Vec<ExportRow> = match source(world, &common.place, console)? {
                ServiceSource::Server(server) => server.get(PATH).await?,
                ServiceSource::Journal(view) => ExportRow::all(&view),
            };
            if console.is_for_programs() {
                console.json_of(&rows)?;
            }
            for row in &rows {
                let flag = |is_set: bool, word: &'static str| if is_set { word } else { "" };
                console.say(&format!(
                    "{}: {}{}{}, {}",
                    row.name,
                    row.volume,
                    flag(row.read_only, ", read-only"),
                    flag(!row.is_served, ", not served now"),
                    counted(row.clients, "client")
                ));
            }
            if rows.is_empty() {
                console.say("no NBD exports");
            }
            console.finish(ExitStatus::Pass)
        }
        ExportVerb::Create { name, volume, read_only, change: way, common } => {
            let body = NewExportBody { name, volume, read_only };
            let server = running(world, &common.place)?;
            change(&server, (Method::POST, PATH, Some(&body)), way, console).await
        }
        ExportVerb::Delete { name, change: way, common } => {
            let path = format!("{PATH}/{}", in_uri(&name));
            let server = running(world, &common.place)?;
            change(&server, (Method::DELETE, &path, None::<&()>), way, console).await
        }
    }
}
