//! `spindle protect verify`: the snapshots of a backup exported, its databases checked, and the result in the catalogue.
//!
//! Invariants:
//!
//! 1. The exports are gone when the verb ends, however the check ends. Those of one that was killed are used again by the next
//!    one for the same backup, and deleted then.
//! 2. Only a check that looked at everything is noted.

use super::{
    backup_points::{PointsOfBackup, SetPoints},
    restore::points_to_restore,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    quantity::parse_rate,
    server::{connection::ServerConnection, place::ServerPlace},
    verify::{
        arguments::{VerifyArguments, parse_level},
        checked,
    },
};
use ::verify::{
    answer::finding_lines,
    running::{RunVerdict, VerifyLevel},
};
use clap::Args;
use control::web::client::{
    BackupPointRow, ExportRow, Method, NewExportBody, SetKeeperName, SetRow, VerificationBody, in_uri,
};
use nbd::NbdUri;
use protect::backup_schedule::BackupKind;
use report::Refusal;
use serde::Serialize;
use std::{path::PathBuf, time::Duration};
use world::{Address, ByteCount, World};

/// Time for an export to be there, and the interval of looking for it.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect verify mail                     the newest full backup
  spindle protect verify mail 17 --level recover  its databases come up in memory, and every record is read
  spindle protect verify mail --throttle 200MB/s  beside the mail server

The server has to serve NBD ([serve] nbd): the snapshots are exported read-only meanwhile, so the backup is in use and no rule \
deletes it. The check runs here. Its result is in the catalogue of a set that the server keeps: proven, or damaged. A \
filesystem on a volume is not looked into: use 'protect restore --as'. It takes a token with the role operate.

Exits with 0 if the backup is good, with 1 if it is damaged, and with 2 if not everything could be checked, which is not noted.")]
pub struct SetVerificationArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    /// Depth of the check: chain, pages, deep or recover; see 'spindle verify'
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, default_value = "pages")]
    pub level: VerifyLevel,

    /// Limit the read rate, such as 200MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub throttle: Option<ByteCount>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct VerifiedBackup<'a> {
    set: &'a str,
    backup: &'a str,
    level: &'static str,
    /// `proven`, `damaged`, or `unfinished`.
    result: &'static str,
    findings: Vec<String>,
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
    let known = SetPoints::ask(&server, &arguments.set).await?;
    let backup = match &arguments.backup {
        Some(meant) => known.whole(meant)?,
        None => newest(&known, &arguments.set)?,
    };
    let points = points_to_restore(&known, backup)?;
    let exports = VerificationExports::of(backup, points);
    let checked = exports.check(world, &server, (arguments, place), console).await;
    exports.delete(&server).await?;
    let (verdict, findings) = checked?;
    let is_noted = match verdict {
        RunVerdict::Unfinished => false,
        RunVerdict::Clean | RunVerdict::Damaged => {
            note(&server, arguments, backup, (verdict, &findings)).await?
        }
    };
    let (result, status) = match verdict {
        RunVerdict::Clean => ("proven", ExitStatus::Pass),
        RunVerdict::Damaged => ("damaged", ExitStatus::Fail),
        RunVerdict::Unfinished => ("unfinished", ExitStatus::NoAnswer),
    };
    let level = arguments.level.name();
    console.say(&format!("{}: {result} ({level})", backup.name));
    findings.iter().for_each(|finding| console.say(&format!("  {finding}")));
    if !is_noted && verdict != RunVerdict::Unfinished {
        console.warn("an agent keeps the set: its catalogue does not have this result");
    }
    if console.is_for_programs() {
        let (set, backup) = (arguments.set.as_str(), backup.name.as_str());
        console.json_of(&VerifiedBackup { set, backup, level, result, findings, is_noted })?;
    }
    console.finish(status)
}

fn newest<'k>(known: &'k SetPoints, set: &str) -> Result<&'k PointsOfBackup, Refusal> {
    let newest = known.backups().filter(|backup| backup.note.kind == BackupKind::Full);
    match newest.max_by_key(|backup| backup.note.sequence) {
        Some(newest) => known.whole(&newest.name),
        None => {
            let problem = format!("{set} has no full backup{}", known.silent_text());
            Err(Refusal::new(problem, "see 'spindle protect list'"))
        }
    }
}

/// Notes the result in the catalogue; false if an agent has that.
async fn note(
    server: &ServerConnection,
    arguments: &SetVerificationArguments,
    backup: &PointsOfBackup,
    (verdict, findings): (RunVerdict, &[String]),
) -> Result<bool, Refusal> {
    let path = format!("/v1/sets/{}", in_uri(&arguments.set));
    let row: SetRow = server.get(&path).await?;
    if row.kept_by == SetKeeperName::Agent {
        return Ok(false);
    }
    let body = VerificationBody {
        level: arguments.level.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        is_good: verdict == RunVerdict::Clean,
        findings: findings.to_vec(),
    };
    let path = format!("{path}/backups/{}/verifications", backup.note.sequence);
    server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked()?;
    Ok(true)
}

/// Exports of the snapshots of one backup, for as long as it is verified.
struct VerificationExports {
    /// Their names, with what each exports.
    exports: Vec<(String, BackupPointRow)>,
}

impl VerificationExports {
    fn of(backup: &PointsOfBackup, points: Vec<BackupPointRow>) -> Self {
        let name = |(index, point)| (format!("verify-{}-{index}", backup.name), point);
        Self { exports: points.into_iter().enumerate().map(name).collect() }
    }

    /// Makes the exports, and checks what they hold.
    async fn check(
        &self,
        world: &World,
        server: &ServerConnection,
        (arguments, place): (&SetVerificationArguments, &ServerPlace),
        console: &Console,
    ) -> Result<(RunVerdict, Vec<String>), Refusal> {
        let mut paths = Vec::new();
        for (name, point) in &self.exports {
            paths.push(PathBuf::from(begin_export(world, server, (name, point), place).await?));
        }
        let wanted = VerifyArguments {
            paths,
            level: Some(arguments.level),
            deep: false,
            scratch: None,
            scan: false,
            fix_ecc: None,
            resume: None,
            at_most: None,
            jobs: None,
            throttle: arguments.throttle,
            html: None,
            json: console.is_for_programs(),
            quiet: false,
            plain_io: false,
            remote: Default::default(),
        };
        let report = checked(world, &wanted, console).await?;
        Ok((report.outcome.verdict(), finding_lines(&report)))
    }

    async fn delete(&self, server: &ServerConnection) -> Result<(), Refusal> {
        for (name, _) in &self.exports {
            let path = format!("/v1/exports/{}?force=true", in_uri(name));
            let reply = server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?;
            // One that was not made is gone.
            if reply.status != 404 {
                reply.checked()?;
            }
        }
        Ok(())
    }
}

/// Exports a snapshot, and returns the URI by which it is reached from here.
async fn begin_export(
    world: &World,
    server: &ServerConnection,
    (name, point): (&str, &BackupPointRow),
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let volume = format!("{}/{}@{}", point.pool, point.volume, point.name);
    begin_export_of(world, server, (name, volume, true), place).await
}

/// Exports a volume or a snapshot, and returns the URI by which it is reached from here.
pub(super) async fn begin_export_of(
    world: &World,
    server: &ServerConnection,
    (name, volume, read_only): (&str, String, bool),
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let body = NewExportBody { name: name.to_owned(), volume, read_only };
    server.change_to_its_end(Method::POST, "/v1/exports", Some(&body)).await?.checked()?;
    let path = format!("/v1/exports/{}", in_uri(name));
    let until = world.now() + SERVED_WITHIN;
    loop {
        let row: ExportRow = server.get(&path).await?;
        let Some(uri) = row.uri else {
            return Err(Refusal::new(
                "the server serves no NBD, by which its snapshots would be read",
                "say nbd = \"127.0.0.1\" under [serve] in its site file",
            ));
        };
        if row.is_served {
            return from_here(&uri, server, place);
        }
        if world.now() >= until {
            return Err(Refusal::new(
                format!("export {name} is not served"),
                "see the messages of the server",
            ));
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// The URI with the server's host, where it listens on all of its addresses, and the certificates to check it by.
fn from_here(uri: &str, server: &ServerConnection, place: &ServerPlace) -> Result<String, Refusal> {
    let mut uri: NbdUri =
        uri.parse().map_err(|error| Refusal::new(format!("the server's export {uri}: {error}"), ""))?;
    if let Address::Tcp { host, .. } = &mut uri.address
        && ["0.0.0.0", "::"].contains(&host.as_str())
    {
        *host = match server.address() {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "127.0.0.1".to_owned(),
        };
    }
    if let Some(tls) = &mut uri.tls {
        tls.certificates = place.address.server_tls.clone();
    }
    Ok(uri.to_string())
}
