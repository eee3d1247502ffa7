//! The result of a change of what is served, as it is shown.

use super::arguments::ChangeArguments;
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::web::client::{Method, RowChangeOutcome, RowChangeResult, SiteFileDifference};
use report::Refusal;
use serde::Serialize;

/// Asks for a change, and shows its result.
pub async fn change<B: Serialize>(
    server: &ServerConnection,
    (method, path, body): (Method, &str, Option<&B>),
    way: ChangeArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let query = match (way.dry_run, way.force) {
        (false, false) => "",
        (true, false) => "?dry_run=true",
        (false, true) => "?force=true",
        (true, true) => "?dry_run=true&force=true",
    };
    let reply = server.change(method, &format!("{path}{query}"), body).await?;
    show(&reply.parsed()?, console)
}

fn show(result: &RowChangeResult, console: &Console) -> Result<ExitStatus, Refusal> {
    let RowChangeResult { result: outcome, is_dry_run, changes, ended_sessions, notes, site_file } = result;
    if console.is_for_programs() {
        console.json_of(result)?;
    }
    changes.iter().for_each(|change| console.say(&format!("  {change}")));
    let end = if *is_dry_run { "would be logged out" } else { "logged out" };
    ended_sessions.iter().for_each(|host| console.say(&format!("  {end}: {host}")));
    notes.iter().for_each(|note| console.warn(note));
    if *is_dry_run {
        let has_changes = *outcome != RowChangeOutcome::Unchanged;
        if !has_changes {
            console.say("nothing to change");
        }
        return console.finish(if has_changes { ExitStatus::Fail } else { ExitStatus::Pass });
    }
    console.say(match outcome {
        RowChangeOutcome::Unchanged => "nothing to change: it is so already",
        _ => "done; the other hosts were served on",
    });
    show_difference(site_file, console);
    console.finish(ExitStatus::Pass)
}

/// Prints what the site file lacks, and how to bring it there.
fn show_difference(SiteFileDifference { tables, gone }: &SiteFileDifference, console: &Console) {
    if tables.is_empty() && gone.is_empty() {
        return;
    }
    console.say(
        "the site file does not say what is served now. A start with this file keeps it, and 'spindle apply' of the file \
         undoes it.",
    );
    console.say("bring it there with 'spindle site > FILE', or by hand:");
    gone.iter().for_each(|table| console.say(&format!("  take out {table}")));
    if !tables.is_empty() {
        console.say("  say these tables, in the place of those of the same names:");
        console.say(tables);
    }
}
