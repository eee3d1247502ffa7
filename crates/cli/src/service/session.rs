//! `spindle session`: who is connected to a server.

use super::{
    arguments::{SessionArguments, SessionVerb},
    running,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::{Method, SessionKind, SessionRow, in_uri};
use report::{Refusal, duration::show_duration};
use std::time::Duration;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/sessions";

/// Runs the verb to its end.
pub fn session(arguments: &SessionArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = running(&world, &arguments.common.place)?;
        match &arguments.verb {
            SessionVerb::List { pool, initiator, service } => {
                let filters = [("pool", pool), ("initiator", initiator), ("service", service)];
                let query: Vec<String> = filters
                    .iter()
                    .filter_map(|(key, value)| Some(format!("{key}={}", in_uri(value.as_deref()?))))
                    .collect();
                let rows: Vec<SessionRow> = server.get(&format!("{PATH}?{}", query.join("&"))).await?;
                if console.is_for_programs() {
                    console.json_of(&rows)?;
                }
                rows.iter().for_each(|row| console.say(&session_line(row)));
                if rows.is_empty() {
                    console.say("nobody is connected");
                }
            }
            SessionVerb::End { id } => {
                let path = format!("{PATH}/{}", in_uri(id));
                let row: SessionRow = server.change(Method::DELETE, &path, None::<&()>).await?.parsed()?;
                if console.is_for_programs() {
                    console.json_of(&row)?;
                }
                console.say(&format!("ends: {}", session_line(&row)));
                console.say(match row.protocol {
                    SessionKind::Iscsi => {
                        "the host was asked to log out; it may log in again, unless its rights are taken away"
                    }
                    SessionKind::Nbd => "the client is disconnected; it may come back",
                });
            }
        }
        console.finish(ExitStatus::Pass)
    })
}

/// A session in a line.
pub fn session_line(row: &SessionRow) -> String {
    let host = match &row.initiator {
        Some(initiator) => format!("{initiator} ({})", row.peer),
        None => row.peer.clone(),
    };
    let kind = match row.protocol {
        SessionKind::Iscsi => "target",
        SessionKind::Nbd => "NBD export",
    };
    let unit = |unit: &control::web::client::SessionUnit| match unit.may_write {
        true => unit.number.to_string(),
        false => format!("{} (reads)", unit.number),
    };
    let units = match &row.units[..] {
        [] => String::new(),
        units => format!(" units {}", units.iter().map(unit).collect::<Vec<_>>().join(", ")),
    };
    let paths = if row.paths > 1 { format!(", one of {} paths", row.paths) } else { String::new() };
    let flag = |is_set: bool, word: &'static str| if is_set { word } else { "" };
    let span = show_duration(Duration::from_secs(row.seconds));
    format!(
        "{}  {host}: {kind} {}{units}, pool {}, for {span}{paths}{}{}",
        row.id,
        row.service,
        row.pool,
        flag(row.is_read_only, ", read-only"),
        flag(row.is_encrypted, ", TLS")
    )
}
