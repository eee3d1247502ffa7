//! `spindle protect fetch`: a mailbox of a backup's databases, as files of mail or back into the databases in use.
//!
//! Invariants:
//!
//! 1. The backup and the live volumes are only read; databases in use are changed by the process that has them.
//! 2. A mail that is there already is left alone; so the same command goes on after it ended early.

use super::{
    backup_databases::{MailDatabases, NamedDatabase},
    live::{LiveDatabases, LiveMails},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    protect::{
        backup_points::{SetPoints, set_and_backup},
        report_set::since,
    },
    server::place::ServerPlace,
};
use clap::Args;
use protect::UnixSecond;
use recovery::maildir::MaildirWriter;
use report::Refusal;
use serde::Serialize;
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};
use workload::database::load::{mail_record::MailRecord, mailbox::MailReader};
use world::{ByteCount, IoError, World};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect fetch mail --mailbox 17 --to anna                       of the newest full backup
  spindle protect fetch mail@12 --mailbox 17 --database priv2 --to anna
  spindle protect fetch mail@12 --mailbox 17 --since 7d --to anna         what arrived within a week of now
  doveadm import maildir:anna restored all                                into a mailbox of Dovecot
  spindle protect fetch mail@12 --mailbox 17 --into live                  into the databases in use

For databases of Spindle's own format. They come up in memory from the snapshots of the backup, as 'spindle verify --level \
recover' brings them up; nothing is cloned, and the live volumes are left alone. The mails are files of a Maildir, with the \
columns of each record in its header and its body as an attachment. What is there already stays, so the same command goes on \
if it ended early. With --into the mails that are missing go back into the databases of a run of 'spindle prove --control \
SOCKET', while it works: a mail that is there stays as it is, also if it changed since the backup. Mailboxes of Dovecot come from 'spindle protect open'. The server has to serve NBD ([serve] nbd); the \
backup is in use meanwhile. It takes a token with the role operate.

Exits with 0 if the mailbox is there, with 1 if no database has it, and with 2 if it was refused, or some databases could not be \
looked into and no other has it.")]
pub struct FetchArguments {
    /// Set, and number or name of the backup [default: the newest full one]
    #[arg(value_name = "SET[@BACKUP]")]
    pub backup: String,

    /// Number of the mailbox
    #[arg(long, value_name = "NUMBER")]
    pub mailbox: i32,

    /// Name of its database, if several have such a mailbox: priv1 or priv1.edb
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,

    /// Only mails that arrived since this day (UTC), such as 2026-01-01, or for so long, such as 90d
    #[arg(long, value_name = "DAY|TIME")]
    pub since: Option<String>,

    /// Maildir that gets them; a folder that is missing or empty becomes one
    #[arg(long, value_name = "FOLDER", required_unless_present = "into", conflicts_with = "into")]
    pub to: Option<PathBuf>,

    /// Socket of the databases in use that get them; 'live' for those at which the set is frozen. Can be given several times
    #[arg(long, value_name = "live|SOCKET")]
    pub into: Vec<PathBuf>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct FetchAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    /// None if no database has the mailbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    mailbox: i32,
    /// Mails in it that were asked for.
    mails: u64,
    /// Those of them that were written or delivered now.
    written: u64,
    /// Those that were there before.
    already_there: u64,
    /// Those among these of which another version is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_since: Option<u64>,
    body_bytes: u64,
    /// Databases that could not be looked into.
    problems: &'a [String],
}

/// A mailbox that was fetched.
#[derive(Default)]
struct FetchedMails {
    written: u64,
    kept: u64,
    /// Those of `kept` of which another version is there; of databases in use alone.
    changed: Option<u64>,
    body_bytes: u64,
}

/// The place that gets the mails.
enum MailTarget {
    Folder(PathBuf),
    Live(LiveDatabases),
}

/// Runs the verb to its end.
pub async fn fetch(
    world: &World,
    arguments: &FetchArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let since = arguments.since.as_deref().map(|text| since(text, UnixSecond(world.wall().seconds)));
    let since = since.transpose()?;
    let (set, number) = set_and_backup(&arguments.backup);
    let server = place.connection(world)?;
    let known = SetPoints::ask(&server, set).await?;
    let backup = known.meant(number)?;
    // Before anything is exported: a place that cannot be used is known at once.
    let target = match &arguments.to {
        Some(folder) => {
            MaildirWriter::check(folder).map_err(|error| unusable(&error))?;
            MailTarget::Folder(folder.clone())
        }
        None => MailTarget::Live(LiveDatabases::of(world, (&server, set), &arguments.into).await?),
    };
    let (way, of) = ((&server, place), (&known, backup));
    MailDatabases::with(world, way, of, ("fetch", console), async |databases: &MailDatabases| {
        let found = meant_database(databases, arguments).await?;
        let fetched = match found {
            Some(database) => match &target {
                MailTarget::Folder(folder) => copy(database, arguments, (since, folder)).await?,
                MailTarget::Live(live) => {
                    let LiveMails { added, same, other, body_bytes } =
                        Box::pin(live.deliver(database, arguments.mailbox, since)).await?;
                    FetchedMails { written: added, kept: same + other, changed: Some(other), body_bytes }
                }
            },
            None => FetchedMails::default(),
        };
        databases.check_not_ended()?;
        let answer = FetchAnswer {
            set,
            backup: &backup.name,
            database: found.map(|database| database.name.clone()),
            mailbox: arguments.mailbox,
            mails: fetched.written + fetched.kept,
            written: fetched.written,
            already_there: fetched.kept,
            changed_since: fetched.changed,
            body_bytes: fetched.body_bytes,
            problems: &databases.problems,
        };
        tell(&answer, &target, console)?;
        console.finish(match (found, databases.problems.is_empty()) {
            (Some(_), _) => ExitStatus::Pass,
            (None, true) => ExitStatus::Fail,
            (None, false) => ExitStatus::NoAnswer,
        })
    })
    .await
}

/// The database that has the mailbox; `None` if none has.
async fn meant_database<'d>(
    databases: &'d MailDatabases,
    arguments: &FetchArguments,
) -> Result<Option<&'d NamedDatabase>, Refusal> {
    let is_named = |database: &&NamedDatabase| {
        let name = database.name.as_str();
        arguments.database.as_deref().is_none_or(|wanted| {
            name == wanted || name.rsplit_once('.').is_some_and(|(stem, _)| stem == wanted)
        })
    };
    let named: Vec<&NamedDatabase> = databases.databases.iter().filter(is_named).collect();
    if let (Some(wanted), true, true) = (&arguments.database, named.is_empty(), databases.problems.is_empty())
    {
        let all: Vec<&str> = databases.databases.iter().map(|one| one.name.as_str()).collect();
        return Err(Refusal::new(
            format!("the backup has no database {wanted}"),
            format!("it has {}", all.join(", ")),
        ));
    }
    let mut having = Vec::new();
    for database in named {
        databases.check_not_ended()?;
        if has_mailbox(&database.reader, arguments.mailbox).await.map_err(|error| database.unread(&error))? {
            having.push(database);
        }
    }
    match having[..] {
        [] => Ok(None),
        [database] => Ok(Some(database)),
        _ => {
            let names: Vec<&str> = having.iter().map(|database| database.name.as_str()).collect();
            Err(Refusal::new(
                format!("{} databases have a mailbox {}", having.len(), arguments.mailbox),
                format!("say ⟨database⟩ and one of {}", names.join(", ")),
            ))
        }
    }
}

async fn has_mailbox(
    reader: &MailReader,
    mailbox: i32,
) -> Result<bool, workload::database::load::error::Error> {
    let mut is_there = false;
    reader
        .read(mailbox, |_| {
            is_there = true;
            ControlFlow::Break(())
        })
        .await?;
    Ok(is_there)
}

/// Copies the mails of a mailbox that arrived since then.
async fn copy(
    database: &NamedDatabase,
    arguments: &FetchArguments,
    (since, folder): (Option<UnixSecond>, &Path),
) -> Result<FetchedMails, Refusal> {
    let mut maildir = MaildirWriter::open(folder).map_err(|error| unusable(&error))?;
    let mut body_bytes = 0;
    let mut failed = None;
    let reading = database.reader.read(arguments.mailbox, |mail| {
        if since.is_some_and(|since| mail.received_s() < since.0) {
            return ControlFlow::Continue(());
        }
        body_bytes += mail.body.len() as u64;
        match maildir.add(&file_name(&mail, &database.name), &mail.to_rfc5322(&database.name)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    reading.await.map_err(|error| database.unread(&error))?;
    if let Some(error) = failed {
        return Err(unusable(&error));
    }
    maildir.finish().map_err(|error| unusable(&error))?;
    Ok(FetchedMails { written: maildir.written, kept: maildir.kept, changed: None, body_bytes })
}

/// The same each time for the same version of a mail, and another one for every other.
fn file_name(mail: &MailRecord, database: &str) -> String {
    let MailRecord { key, flags, .. } = mail;
    let plain: String = database.chars().filter(|one| one.is_ascii_alphanumeric() || *one == '.').collect();
    format!("{}.{}-{}-{flags}.{plain}", mail.received_s(), key.mailbox, key.message)
}

fn tell(answer: &FetchAnswer<'_>, target: &MailTarget, console: &Console) -> Result<(), Refusal> {
    let FetchAnswer { backup, mailbox, mails, written, already_there, .. } = answer;
    for problem in answer.problems {
        console.warn(&format!("{backup}: not looked into: {problem}"));
    }
    match &answer.database {
        None => console.say(&format!("{backup}: no mailbox {mailbox}")),
        Some(database) => {
            let size = ByteCount(answer.body_bytes);
            let there = match already_there {
                0 => String::new(),
                count => format!(", of which {count} were there already"),
            };
            console.say(&format!("{backup}: {database}, mailbox {mailbox}: {mails} mails ({size}){there}"));
            match target {
                MailTarget::Folder(folder) => {
                    console.say(&format!("{written} written to {}", folder.display()));
                }
                MailTarget::Live(_) => console.say(&format!("{written} delivered to {database}")),
            }
            if let Some(changed @ 1..) = answer.changed_since {
                console.say(&format!(
                    "{changed} changed since the backup and stay as they are; --to has them as of the backup"
                ));
            }
        }
    }
    if console.is_for_programs() {
        console.json_of(answer)?;
    }
    Ok(())
}

fn unusable(error: &IoError) -> Refusal {
    Refusal::new(format!("--to: {error}"), "give a Maildir, or a folder that is missing or empty")
}
