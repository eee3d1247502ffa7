//! `spindle protect verify`: one backup, or all that are due, proven by what their snapshots hold.

use super::{
    backup_points::SetPoints,
    verification::{BackupVerifier, VerifiedBackup, VerifyingWay, due_in, note, verify_due},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    quantity::parse_rate,
    server::{connection::ServerConnection, place::ServerPlace},
    verify::{Watching, arguments::parse_level},
};
use ::verify::running::{RunVerdict, VerifyLevel};
use clap::Args;
use control::web::client::{SetKeeperName, SetRow, in_uri};
use report::Refusal;
use serde::Serialize;
use world::{ByteCount, World};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect verify mail                     the newest full backup
  spindle protect verify mail 17 --level recover  its databases come up in memory, and every record is read
  spindle protect verify mail --throttle 200MB/s  beside the mail server
  spindle protect verify --due                    for a timer on another machine: all that the sets want verified now

The server has to serve NBD ([serve] nbd): the snapshots are exported read-only meanwhile, so the backup is in use and no rule \
deletes it. The check runs here. Its result is in the catalogue of a set that the server keeps: proven, or damaged. A \
filesystem on a volume is not looked into: use 'protect restore --as'. It takes a token with the role operate.

Exits with 0 if the backup is good, with 1 if it is damaged, and with 2 if not everything could be checked, which is not \
noted; with --due, for the worst of all that were due.")]
pub struct SetVerificationArguments {
    /// Name of the set
    #[arg(value_name = "SET", required_unless_present = "due")]
    pub set: Option<String>,

    /// Number or name of the backup [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    /// All backups that sets of the server want verified now, newest first, at their levels and rates
    #[arg(long, conflicts_with_all = ["backup", "level", "throttle"])]
    pub due: bool,

    /// Depth of the check: chain, pages, deep or recover; see 'spindle verify' [default: pages]
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    pub level: Option<VerifyLevel>,

    /// Limit the read rate, such as 200MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub throttle: Option<ByteCount>,
}

/// The answer as JSON; with `--due` one on each line.
#[derive(Serialize)]
struct VerificationAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    level: &'static str,
    /// `proven`, `damaged`, or `unfinished`.
    result: &'static str,
    findings: &'a [String],
    /// The catalogue of the set has it.
    is_noted: bool,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &SetVerificationArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let verifier = BackupVerifier { world, server: &server, place, console, watching: &Watching::Person };
    match (&arguments.set, arguments.due) {
        (set, true) => all_due(&verifier, set.as_deref(), console).await,
        (Some(set), false) => one(&verifier, set, arguments, console).await,
        (None, false) => unreachable!("clap asks for the set"),
    }
}

async fn one(
    verifier: &BackupVerifier<'_>,
    set: &str,
    arguments: &SetVerificationArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let known = SetPoints::ask(verifier.server, set).await?;
    let backup = known.meant(arguments.backup.as_deref())?;
    let level = arguments.level.unwrap_or(VerifyLevel::Pages);
    let way = VerifyingWay { purpose: "verify", level, throttle: arguments.throttle };
    let verified = verifier.verify(&known, backup, way).await?;
    let is_noted = match verified.verdict {
        // A person sees why; it is no try of the schedule's.
        RunVerdict::Unfinished => false,
        RunVerdict::Clean | RunVerdict::Damaged if is_kept_by_agent(verifier.server, set).await? => {
            console.warn("an agent keeps the set: its catalogue does not have this result");
            false
        }
        RunVerdict::Clean | RunVerdict::Damaged => {
            note(verifier.server, set, &verified).await?;
            true
        }
    };
    let status = tell(set, &verified, is_noted, console)?;
    console.finish(status)
}

/// True if the catalogue of the set is an agent's.
pub async fn is_kept_by_agent(server: &ServerConnection, set: &str) -> Result<bool, Refusal> {
    let row: SetRow = server.get(&format!("/v1/sets/{}", in_uri(set))).await?;
    Ok(row.kept_by == SetKeeperName::Agent)
}

/// Verifies what is due, until nothing is. Each is tried once.
async fn all_due(
    verifier: &BackupVerifier<'_>,
    only: Option<&str>,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let mut worst = ExitStatus::Pass;
    let mut tried = Vec::new();
    loop {
        let rows: Vec<SetRow> = verifier.server.get("/v1/sets").await?;
        check_sets(&rows, only)?;
        let is_wanted = |row: &&SetRow| only.is_none_or(|only| only == row.name);
        let due = rows.iter().filter(is_wanted).filter_map(due_in);
        let Some(due) = due.into_iter().find(|due| !tried.contains(&(due.set.clone(), due.number))) else {
            if tried.is_empty() {
                console.say("nothing is due");
            }
            return console.finish(worst);
        };
        tried.push((due.set.clone(), due.number));
        let verified = verify_due(verifier, &due, "verify-elsewhere").await?;
        let status = tell(&due.set, &verified, verified.verdict != RunVerdict::Unfinished, console)?;
        worst = worse(worst, status);
        if verified.is_interrupted {
            return console.finish(worst);
        }
    }
}

/// A set that is named must have verifications that can be due here.
fn check_sets(rows: &[SetRow], only: Option<&str>) -> Result<(), Refusal> {
    let Some(only) = only else { return Ok(()) };
    match rows.iter().find(|row| row.name == only) {
        None => Err(Refusal::new(format!("there is no set {only}"), "see 'spindle protect list'")),
        Some(row) if row.kept_by == SetKeeperName::Agent => Err(Refusal::new(
            format!("the agent that keeps {only} verifies its backups"),
            "say which backup is meant, to verify it here all the same",
        )),
        Some(row) if row.verification.is_none() => Err(Refusal::new(
            format!("{only} has no [protect.verify] in the site file, so nothing of it is ever due"),
            "say its level there, or name a backup",
        )),
        Some(_) => Ok(()),
    }
}

fn tell(
    set: &str,
    verified: &VerifiedBackup,
    is_noted: bool,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let (result, status) = match verified.verdict {
        RunVerdict::Clean => ("proven", ExitStatus::Pass),
        RunVerdict::Damaged => ("damaged", ExitStatus::Fail),
        RunVerdict::Unfinished => ("unfinished", ExitStatus::NoAnswer),
    };
    let VerifiedBackup { name: backup, level, findings, .. } = verified;
    let level = level.name();
    console.say(&format!("{backup}: {result} ({level})"));
    findings.iter().for_each(|finding| console.say(&format!("  {finding}")));
    if console.is_for_programs() {
        console.json_of(&VerificationAnswer { set, backup, level, result, findings, is_noted })?;
    }
    Ok(status)
}

/// Damage is worse than what was not looked at.
fn worse(one: ExitStatus, other: ExitStatus) -> ExitStatus {
    match (one, other) {
        (ExitStatus::Fail, _) | (_, ExitStatus::Fail) => ExitStatus::Fail,
        (ExitStatus::Pass, other) => other,
        (one, _) => one,
    }
}
