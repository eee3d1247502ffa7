//! `spindle initiator`: hosts by their iSCSI names, their secrets and rights.

use super::{
    ServiceSource,
    arguments::{ChapArguments, InitiatorArguments, InitiatorVerb},
    counted, names,
    result::change,
    running,
    session::session_line,
    source,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::{
    site::row_change::find_initiator,
    web::client::{InitiatorPatchBody, InitiatorRow, Method, NewInitiatorBody, SessionRow, in_uri},
};
use report::Refusal;
use rustix::fs::stat;
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions, host_files},
};

const PATH: &str = "/v1/initiators";
/// More than a secret and its line end have.
const SECRET_BYTES_MAX: u64 = 4096;

/// Runs the verb to its end.
pub fn initiator(arguments: &InitiatorArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    real::run(0, RealOptions::default(), async |world: World| run(&world, arguments, &console).await)
}

async fn run(
    world: &World,
    arguments: &InitiatorArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let place = &arguments.common.place;
    let path = |name: &str| format!("{PATH}/{}", in_uri(name));
    match arguments.verb.clone() {
        InitiatorVerb::List => {
            let rows: Vec<InitiatorRow> = match source(world, place, console)? {
                ServiceSource::Server(server) => server.get(PATH).await?,
                ServiceSource::Journal(view) => InitiatorRow::all(&view),
            };
            if console.is_for_programs() {
                console.json_of(&rows)?;
            }
            rows.iter().for_each(|row| console.say(&line(row)));
            if rows.is_empty() {
                console.say("no initiators");
            }
            console.finish(ExitStatus::Pass)
        }
        InitiatorVerb::Show { name } => {
            let (row, sessions) = match source(world, place, console)? {
                ServiceSource::Server(server) => {
                    let row: InitiatorRow = server.get(&path(&name)).await?;
                    let sessions: Vec<SessionRow> =
                        server.get(&format!("/v1/sessions?initiator={}", in_uri(&row.name))).await?;
                    (row, sessions)
                }
                ServiceSource::Journal(view) => {
                    let found = find_initiator(&view.site, &name).ok_or_else(|| {
                        Refusal::new(format!("there was no initiator {name}"), "see 'spindle initiator list'")
                    })?;
                    (InitiatorRow::of(&view, found), Vec::new())
                }
            };
            if console.is_for_programs() {
                console.json_of(&row)?;
            }
            console.say(&line(&row));
            sessions.iter().for_each(|session| console.say(&format!("  session {}", session_line(session))));
            console.finish(ExitStatus::Pass)
        }
        InitiatorVerb::Create { name, chap, uses, reads, change: way } => {
            let secret = secret_of(&chap)?;
            let body = NewInitiatorBody { name, user: chap.user, secret, secret_file: None, uses, reads };
            change(&running(world, place)?, (Method::POST, PATH, Some(&body)), way, console).await
        }
        InitiatorVerb::Set { name, chap, without_chap, uses, reads, change: way } => {
            let secret = secret_of(&chap)?;
            let (uses, reads) = (uses.map(names), reads.map(names));
            let body =
                InitiatorPatchBody { user: chap.user, secret, secret_file: None, without_chap, uses, reads };
            let wanted = (Method::PATCH, &*path(&name), Some(&body));
            change(&running(world, place)?, wanted, way, console).await
        }
        InitiatorVerb::Delete { name, change: way } => {
            let wanted = (Method::DELETE, &*path(&name), None::<&()>);
            change(&running(world, place)?, wanted, way, console).await
        }
    }
}

fn line(row: &InitiatorRow) -> String {
    let part = |verb: &str, list: &[String]| match list {
        [] => None,
        list => Some(format!("{verb} {}", list.join(", "))),
    };
    let rights: Vec<String> =
        [part("uses", &row.uses), part("reads", &row.reads)].into_iter().flatten().collect();
    let rights = if rights.is_empty() { "no rights".to_owned() } else { rights.join("; ") };
    let chap = row.user.as_ref().map_or("no CHAP".to_owned(), |user| format!("CHAP user {user}"));
    format!("{}: {rights}; {chap}; {}", row.name, counted(row.sessions, "session"))
}

/// The secret in a file that only its owner can read.
fn secret_of(chap: &ChapArguments) -> Result<Option<String>, Refusal> {
    chap.secret_file.as_deref().map(read_secret).transpose()
}

fn read_secret(file: &Path) -> Result<String, Refusal> {
    let shown = file.display();
    let refuse = |problem: String, next: &str| Refusal::new(format!("{shown}: {problem}"), next);
    let make = "make it: (umask 077; spindle export --chap-make > FILE)";
    let bytes = host_files::read_at_most(file, SECRET_BYTES_MAX)
        .map_err(|error| Refusal::new(error.to_string(), make))?;
    let mode = stat(file).map_err(|error| refuse(error.to_string(), ""))?.st_mode;
    if mode & 0o077 != 0 {
        return Err(refuse("others may read this secret".to_owned(), "chmod 600 it"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is no text".to_owned(), make))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
