//! `spindle event`: what happened in a server, what happens, and what lasts.

use super::{
    connection::ServerConnection,
    event_arguments::{EventArguments, EventVerb},
    event_commands::run_command,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::{
    ConditionRow, EventPage, EventRow, EventSeverity, Method, NotifierRow, NotifierTest, in_uri,
};
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
        let status = match &arguments.verb {
            Some(EventVerb::Conditions) => conditions(&server, &console).await?,
            Some(EventVerb::Acknowledge { id }) => acknowledge(&server, id, &console).await?,
            Some(EventVerb::Test { notifier }) => {
                test_notifiers(&server, notifier.as_deref(), &console).await?
            }
            None => {
                let signal = interrupted();
                let ended = Box::pin(async move { _ = signal.await });
                // Ctrl-C is how a follower ends.
                with_deadline(ended, print(&server, arguments, &console)).await.transpose()?;
                ExitStatus::Pass
            }
        };
        console.finish(status)
    })
}

async fn print(
    server: &ServerConnection,
    arguments: &EventArguments,
    console: &Console,
) -> Result<(), Refusal> {
    let wait = if arguments.follow { WAIT_SECONDS } else { 0 };
    let mut after = match (arguments.after, &arguments.exec) {
        (Some(after), _) => after,
        (None, None) => 0,
        (None, Some(_)) => newest(server).await?,
    };
    let mut was_gap_said = false;
    loop {
        let path = format!("/v1/events?after={after}&limit={PAGE_EVENTS}&wait={wait}");
        let page: EventPage = server.get(&path).await?;
        if page.has_gap && !std::mem::replace(&mut was_gap_said, true) {
            console.warn("not all events after that number are kept any more: the oldest notes go first");
        }
        let wanted = arguments.severity.severity();
        for row in page.events.iter().filter(|row| severity_of(row.severity) <= wanted) {
            show(row, console)?;
            if let Some(command) = &arguments.exec {
                run_command(command, row, console).await;
            }
        }
        if page.events.is_empty() && !arguments.follow {
            return Ok(());
        }
        after = page.next;
    }
}

/// Number of the newest event.
async fn newest(server: &ServerConnection) -> Result<u64, Refusal> {
    Ok(server.get::<EventPage>("/v1/events?limit=1").await?.newest)
}

fn severity_of(severity: EventSeverity) -> Severity {
    match severity {
        EventSeverity::Note => Severity::Note,
        EventSeverity::Warning => Severity::Warning,
        EventSeverity::Error => Severity::Error,
    }
}

fn show(row: &EventRow, console: &Console) -> Result<(), Refusal> {
    if console.is_for_programs() {
        return console.json_of(row);
    }
    let EventRow { id, time, pool, text, next_step, details, .. } = row;
    let over = if details.get("state").is_some_and(|state| state == "cleared") { "over: " } else { "" };
    let next = if next_step.is_empty() { String::new() } else { format!("; {next_step}") };
    console.event_line(severity_of(row.severity), time, &format!("{pool}: {over}{text}{next} [{id}]"));
    Ok(())
}

async fn conditions(server: &ServerConnection, console: &Console) -> Result<ExitStatus, Refusal> {
    let rows: Vec<ConditionRow> = server.get("/v1/conditions").await?;
    if console.is_for_programs() {
        console.json_of(&rows)?;
    }
    for row in &rows {
        let ConditionRow { id, pool, text, next_step, raised_at, .. } = row;
        console.event_line(severity_of(row.severity), raised_at, &format!("{pool}: {text} [{id}]"));
        match (&row.acknowledged_by, &row.acknowledged_at) {
            (Some(who), Some(at)) => console.say(&format!("  taken on by {who} at {at}")),
            _ => console.say(&format!("  {next_step}")),
        }
    }
    if rows.is_empty() {
        console.say("no condition is open");
    }
    let is_new = |row: &ConditionRow| row.acknowledged_by.is_none() && row.severity != EventSeverity::Note;
    Ok(if rows.iter().any(is_new) { ExitStatus::Fail } else { ExitStatus::Pass })
}

async fn acknowledge(server: &ServerConnection, id: &str, console: &Console) -> Result<ExitStatus, Refusal> {
    let path = format!("/v1/conditions/{}/acknowledge", in_uri(id));
    let row: ConditionRow = server.change(Method::POST, &path, None::<&()>).await?.parsed()?;
    if console.is_for_programs() {
        console.json_of(&row)?;
    }
    console.say(&format!(
        "{id}: acknowledged; it is no news until it becomes worse, or has ended and comes again"
    ));
    Ok(ExitStatus::Pass)
}

/// Sends a test message over one notifier, or all; passes if each was delivered.
pub async fn test_notifiers(
    server: &ServerConnection,
    notifier: Option<&str>,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let names = match notifier {
        Some(name) => vec![name.to_owned()],
        None => {
            let rows: Vec<NotifierRow> = server.get("/v1/notifiers").await?;
            rows.into_iter().map(|row| row.name).collect()
        }
    };
    if names.is_empty() {
        return Err(Refusal::new("the site has no notifier", "add one to its file: [[notify]]"));
    }
    let mut tests = Vec::new();
    for name in names {
        let path = format!("/v1/notifiers/{}/test", in_uri(&name));
        // Without a key: each test is another one.
        let test: NotifierTest = server.post(&path, &()).await?.parsed()?;
        match &test.reason {
            None => console.say(&format!("{name}: delivered")),
            Some(reason) => console.say(&format!("{name}: not delivered: {reason}")),
        }
        tests.push(test);
    }
    if console.is_for_programs() {
        console.json_of(&tests)?;
    }
    let is_delivered = tests.iter().all(|test| test.is_delivered);
    Ok(if is_delivered { ExitStatus::Pass } else { ExitStatus::Fail })
}
