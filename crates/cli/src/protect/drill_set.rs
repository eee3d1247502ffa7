//! `spindle protect drill`: could a backup be restored, and how fast.

use super::{
    drills::{DrillCheck, HeldDrill, note_drill},
    verification::BackupVerifier,
    verify_set::is_kept_by_agent,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    quantity::{parse_duration, parse_rate},
    server::place::ServerPlace,
    verify::Watching,
};
use clap::Args;
use report::{Refusal, duration::show_duration};
use serde::Serialize;
use std::time::Duration;
use world::{ByteCount, World};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect drill mail
  spindle protect drill mail 17 --throttle 200MB/s
  spindle protect drill mail --check './look-into-mail \"$1\"' --within 30m

All volumes of the set are cloned beside the live ones, exported, proven, and dropped. Databases come up in memory and every \
record is read, as 'spindle verify --level recover' does it; a filesystem on a volume needs --check. The result is in the \
catalogue of a set that the server keeps, with the time to the proof (RTO) and the age of the backup (RPO). The server has to \
serve NBD. It takes a token with the role admin, for the clones go again.

Exits with 0 if the drill was good, with 1 if it was bad, and with 2 if it was refused.")]
pub struct DrillArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    /// Command of a shell on this machine that judges the clones: their NBD URIs are $1, $2 … and SPINDLE_URI_1 …; exit code 0
    /// passes [default: bring the databases up]
    #[arg(long, value_name = "COMMAND")]
    pub check: Option<String>,

    /// Time for the command
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m", requires = "check")]
    pub within: Duration,

    /// Limit the read rate, such as 200MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "check")]
    pub throttle: Option<ByteCount>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct DrillAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    is_good: bool,
    rto_seconds: f64,
    rpo_seconds: u64,
    findings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    /// The catalogue of the set has it.
    is_noted: bool,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &DrillArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let verifier = BackupVerifier { world, server: &server, place, console, watching: &Watching::Person };
    let check = match &arguments.check {
        Some(command) => DrillCheck::Command { command, within: arguments.within },
        None => DrillCheck::Databases { throttle: arguments.throttle },
    };
    let set = arguments.set.as_str();
    let held = verifier.hold_drill(set, arguments.backup.as_deref(), check).await?;
    let is_noted = !is_kept_by_agent(&server, set).await?;
    match is_noted {
        true => note_drill(&server, set, &held).await?,
        false => console.warn("an agent keeps the set: its catalogue does not have this result"),
    }
    let HeldDrill { name: backup, is_good, rto, rpo_s, findings, output, .. } = &held;
    let word = if *is_good { "good" } else { "bad" };
    let rpo = show_duration(Duration::from_secs(*rpo_s));
    console.say(&format!(
        "{backup}: the drill was {word}; {:.1} s to the proof, and the backup was {rpo} old",
        rto.as_secs_f64()
    ));
    findings.iter().for_each(|finding| console.say(&format!("  {finding}")));
    output.iter().for_each(|output| console.say(output));
    if console.is_for_programs() {
        let (rto_seconds, rpo_seconds, output) = (rto.as_secs_f64(), *rpo_s, output.as_deref());
        let is_good = *is_good;
        console.json_of(&DrillAnswer {
            set,
            backup,
            is_good,
            rto_seconds,
            rpo_seconds,
            findings,
            output,
            is_noted,
        })?;
    }
    console.finish(if *is_good { ExitStatus::Pass } else { ExitStatus::Fail })
}
