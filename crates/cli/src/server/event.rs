//! `spindle event`: what happened in a server, and what happens.

use super::{arguments::EventArguments, connection::ServerConnection};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::{EventPage, EventRow, EventSeverity};
use report::{Refusal, Severity};
use world::{
    World,
    real::{self, RealOptions, signals::interrupted},
    with_deadline,
};

/// Events of a request.
const PAGE_EVENTS: usize = 1000;
/// Seconds for which the server waits for an event before it answers that there is none.
const WAIT_SECONDS: u64 = 20;

/// Runs the verb to its end.
pub fn event(arguments: &EventArguments) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(arguments.json, false);
        let server = arguments.place.connection(&world)?;
        let signal = interrupted();
        let ended = Box::pin(async move { _ = signal.await });
        // Ctrl-C is how a follower ends.
        with_deadline(ended, print(&server, arguments, &console)).await.transpose()?;
        console.finish(ExitStatus::Pass)
    })
}

async fn print(
    server: &ServerConnection,
    arguments: &EventArguments,
    console: &Console,
) -> Result<(), Refusal> {
    let wait = if arguments.follow { WAIT_SECONDS } else { 0 };
    let mut after = arguments.after;
    loop {
        let path = format!("/v1/events?after={after}&limit={PAGE_EVENTS}&wait={wait}");
        let page: EventPage = server.get(&path).await?;
        if page.has_gap {
            console.warn("events before these are not kept any more");
        }
        for row in &page.events {
            show(row, console)?;
        }
        if page.events.is_empty() && !arguments.follow {
            return Ok(());
        }
        after = page.next;
    }
}

fn show(row: &EventRow, console: &Console) -> Result<(), Refusal> {
    if console.is_for_programs() {
        return console.json_of(row);
    }
    let severity = match row.severity {
        EventSeverity::Note => Severity::Note,
        EventSeverity::Warning => Severity::Warning,
        EventSeverity::Error => Severity::Error,
    };
    let EventRow { id, time, pool, text, next_step, .. } = row;
    let next = if next_step.is_empty() { String::new() } else { format!("; {next_step}") };
    console.event_line(severity, time, &format!("{pool}: {text}{next} [{id}]"));
    Ok(())
}
