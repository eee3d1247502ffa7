//! The command line: each verb and flag is declared once, here.
//!
//! This file checks only the form of a value (a number is a number, within bounds that no machine exceeds).
//! Each verb checks whether the storage suits.

pub use crate::verb_arguments::{AdviseArguments, CompareArguments, ExportArguments, ReportArguments};
use crate::{
    disks::DisksArguments,
    dr::arguments::{DrArguments, FailoverArguments},
    help_text,
    link::arguments::LinkArguments,
    plan_arguments::PlanArguments,
    pool::{
        arguments::{PoolArguments, VolumeArguments},
        group_arguments::GroupArguments,
        job_arguments::JobArguments,
    },
    protect::arguments::ProtectArguments,
    prove::protection::parse_protection,
    quantity::{parse_duration, parse_size},
    remote_arguments::RemoteArguments,
    server::{
        arguments::{AuditArguments, TokenArguments},
        drive::DriveArguments,
        event_arguments::EventArguments,
        power::PowerArguments,
    },
    service::arguments::{InitiatorArguments, ScheduleArguments, SessionArguments, TargetArguments},
    setup::arguments::SetupArguments,
    shell::{CompletionsArguments, ManArguments},
    site::arguments::{ApplyArguments, ServeArguments, SiteArguments},
    top::TopArguments,
    verify::arguments::VerifyArguments,
    witness::WitnessArguments,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use report::{Refusal, duration::show_duration};
use runs::{
    layout::LayoutKind,
    request::{DATABASES_MAX, GROUPS_MAX, THREADS_MAX, Threads},
    sweep::SweepSpec,
};
use std::{env, ffi::OsString, path::PathBuf, time::Duration};
use workload::{database::plan::protection::ProtectionPlan, verdict::judged_part::JudgedPart};
use world::ByteCount;

/// Mailboxes in one run.
pub const MAILBOXES_MAX: u32 = 10_000_000;
/// The shortest run that measures anything.
pub const DURATION_MIN: Duration = Duration::from_secs(1);
/// The longest run that is accepted.
pub const DURATION_MAX: Duration = Duration::from_hours(30 * 24);

/// Storage under a mail system: will this storage carry my mail?
#[derive(Debug, Parser)]
#[command(
    name = "spindle",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Example:\n  spindle prove            try the storage under this folder, about 2 minutes"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run real mailbox databases on storage, measure it, and give a verdict
    Prove(Box<ProveArguments>),
    /// Plan the storage for a number of users, and show how every number is computed
    Plan(Box<PlanArguments>),
    /// Check a site against published recommendations
    Advise(AdviseArguments),
    /// Make the report of a run from its record, even if the run died
    Report(ReportArguments),
    /// Compare runs: their curves, and what saturated first
    Compare(CompareArguments),
    /// Check databases and logs of Exchange or Spindle, and whether they can be recovered
    Verify(VerifyArguments),
    /// Serve files, devices and volumes over the network (NBD, iSCSI)
    Export(Box<ExportArguments>),
    /// Write the site file of a first installation: disks, a host, backups, mail; and apply it
    Setup(Box<SetupArguments>),
    /// Make a site as its file says, and serve it: pools, volumes, targets and exports
    Serve(ServeArguments),
    /// Make a site as its file says, without serving it
    Apply(ApplyArguments),
    /// Print a site as a file: the one that is served, or of pools that are there
    Site(SiteArguments),
    /// Change the iSCSI targets and units of a server, under its hosts
    Target(TargetArguments),
    /// Change who may use a server's targets: hosts, their secrets and rights
    Initiator(InitiatorArguments),
    /// List who is connected to a server, and end sessions
    Session(SessionArguments),
    /// Change a server's schedules of snapshots, and show their progress
    Schedule(ScheduleArguments),
    /// Keep backups of sets of volumes
    Protect(ProtectArguments),
    /// Make and delete tokens, with which programs call a server's API
    Token(TokenArguments),
    /// Print and check the list of all changes that were asked of a server
    Audit(AuditArguments),
    /// Print what happened in a server, what happens, and what lasts; test notifiers
    Event(EventArguments),
    /// Warn of a drive, as smartd does, or find it
    Drive(DriveArguments),
    /// Tell a server the power of its machine, as NUT does
    Power(PowerArguments),
    /// Show what a server does: pools, volumes and drives by rate, with latencies
    Top(TopArguments),
    /// List the disks of this machine, and which of them are free for a pool
    Disks(DisksArguments),
    /// Create and maintain pools of drives
    Pool(PoolArguments),
    /// Create and delete volumes and snapshots of a pool
    Volume(VolumeArguments),
    /// Make groups of volumes, and take, clone and roll back their snapshots as one
    Group(GroupArguments),
    /// List the jobs of a server's pools, wait for one, cancel one
    Job(JobArguments),
    /// Keep groups of volumes alike at two sites: pair, create, watch
    Dr(DrArguments),
    /// Move a DR group to the other site, or take it over if that is lost
    Failover(FailoverArguments),
    /// Measure the line to another site: round trips and rates, and whether it carries replication
    Link(LinkArguments),
    /// Decide between two sites which one is primary: a third party that both can reach
    Witness(WitnessArguments),
    /// Print the completions of the verbs for a shell
    Completions(CompletionsArguments),
    /// Write the manual pages of the verbs
    Man(ManArguments),
}

const SWEEP_HELP: &str = "\
Makes one run for each value, one after the other, and compares them:

  threads=1,5,10,20   sessions of each group, on the same databases
  groups=1,2,4        storage groups
  databases=1,2,5     databases of each group
  volumes=1,2,4       the first N of the PATHs
  layouts=together,one-volume   see --layout

Except with threads=, each run makes new databases of the same total size, and removes those of the run before. \
Each run leaves its report and record as PREFIX-WHAT-VALUE; the comparison goes to PREFIX.

Ends with 0 if a value passed, 1 if none did or if any run found damage or I/O errors, 2 if the sweep did not \
finish.";

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle prove                                     this folder's storage, at most 4 GiB, about 2 minutes
  spindle prove /mnt/db1 /mnt/db2 --logs /mnt/log --groups 2 --databases 4 --duration 2h
  spindle prove /mnt/db1 --mailboxes 4000 --iops 0.1 --size 2TiB --duration 24h --allow-writes 20TB
  spindle prove /mnt/db1 --max --duration 2h        how much mail it carries: the highest rate, found and held
  spindle prove --set lazy_commit_percent=0         one figure of the profile changed
  spindle prove --setup eva8000 --size 4GiB --duration 60s     a published test, made small
  spindle prove --site site.toml                    the site that 'spindle plan' planned, made small
  spindle prove /mnt/db1 --fresh --keep-pristine    new databases, and a copy of them as they were made
  spindle prove /mnt/db1 --restore                  the same databases again, as they were made
  spindle prove /mnt/db1 --sweep threads=1,5,10,20  one run for each value, and their comparison
  spindle prove /mnt/db1 --pool --size 1GiB         Spindle's own array on that storage, beside the plain path
  spindle prove /mnt/db1 --pool --protect every=10s,keep=24   and backups of the databases on it
  spindle prove /mnt/db1 --pool --protect every=10s,keep=24,logs=kept   and logs that reach from each to the next
  spindle prove iscsi://10.0.0.5/iqn.2026-11.org.example:mail/0     an empty unit of any iSCSI target
  spindle prove /mnt/db1 --control /run/mail.sock   and others may freeze the databases, to cut their volumes
  spindle prove /mnt/db1 --control /run/mail.sock --keep-logs   and logs stay until a proven backup has them
  spindle prove /mnt/db1 --clean                    remove what Spindle made there

Ends with 0 for pass, 1 for fail, 2 if it could not run.")]
pub struct ProveArguments {
    /// Folders or raw block devices for the databases; a remote device by its URI,
    /// iscsi://HOST:PORT/TARGET/UNIT or nbd://HOST:PORT/EXPORT, where a second HOST:PORT behind a comma is that of another
    /// site [default: ./spindle-data]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Folder or raw device for transaction logs; repeat for more [default: beside the databases]
    #[arg(long, value_name = "PATH")]
    pub logs: Vec<PathBuf>,

    /// Published test that supplies the defaults; other options override them: eva5000, eva5000-throughput,
    /// continuous-access, eva8000, stortrends, stortrends-stress, snapmanager, equallogic,
    /// equallogic-light, or a file
    #[arg(long, value_name = "NAME")]
    pub setup: Option<String>,

    /// Site file of 'spindle plan' that supplies the defaults: groups, databases, mailboxes, paths. Other options override them;
    /// sizes are reduced to the space of this machine
    #[arg(long, value_name = "FILE")]
    pub site: Option<String>,

    /// Storage groups, each with a transaction log and a thread of its own [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count::<GROUPS_MAX>)]
    pub groups: Option<u32>,

    /// Databases in each group [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count::<DATABASES_MAX>)]
    pub databases: Option<u32>,

    /// Threads in each group, each always busy, or 'auto' for the number that achieves the
    /// highest rate within the limits [default: from the profile]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = threads, conflicts_with_all = ["mailboxes", "iops"])]
    pub threads: Option<Threads>,

    /// Mailboxes of the whole run; with --iops, the load has a fixed rate
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count::<MAILBOXES_MAX>)]
    pub mailboxes: Option<u32>,

    /// IOPS of one mailbox, such as 0.1
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = rate)]
    pub iops: Option<f64>,

    /// Find the highest rate within the limits, then hold it
    #[arg(long, conflicts_with_all = ["mailboxes", "iops", "threads"])]
    pub max: bool,

    /// Measured time of each trial of a search (--max, --threads auto) [default: 5 to 15 s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = duration)]
    pub probe: Option<Duration>,

    /// Time to measure, such as 60s, 2h or 24h [default: 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = duration)]
    pub duration: Option<Duration>,

    /// Part of the measured time that is judged: all, middle:TIME or last:TIME [default: all]
    #[arg(long, value_name = "PART", value_parser = judged)]
    pub judge: Option<JudgedPart>,

    /// Size of all databases together [default: at most 4 GiB, and less if space is short]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse_size)]
    pub size: Option<ByteCount>,

    /// Cache of each group [default: a twentieth of its databases, within the profile's bounds]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse_size)]
    pub cache: Option<ByteCount>,

    /// Mail server: exchange-2003, exchange-2007, exchange-2010, exchange-2013 (also for 2016 and 2019), or a profile
    /// of your own in a file [default: exchange-2010]
    #[arg(long = "server", alias = "profile", value_name = "NAME")]
    pub profile: Option<String>,

    /// Limits of the verdict: jetstress, jetstress-2013, eva5000, eva8000, snapmanager, equallogic
    /// [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub limits: Option<String>,

    /// Change one figure of the profile (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub set: Vec<(String, String)>,

    /// Add to the report a fact that the system does not reveal, such as raid=raid10 or drives='12 x ST4000';
    /// repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub note: Vec<(String, String)>,

    /// Name of the report: PREFIX.html, PREFIX.json and the record PREFIX.run [default: ./spindle-report-DATE]
    #[arg(long, value_name = "PREFIX")]
    pub report: Option<PathBuf>,

    /// Make one run for each value, and compare them: threads=, groups=, databases=,
    /// volumes= (the first N of the PATHs) or layouts=, values separated by commas
    #[arg(
        long,
        value_name = "WHAT=VALUES",
        value_parser = SweepSpec::parse,
        conflicts_with_all = ["clean", "keep_pristine", "restore"],
        long_help = SWEEP_HELP
    )]
    pub sweep: Option<SweepSpec>,

    /// Also run on Spindle's own array, and compare it with the plain paths: for each group a pool of
    /// eight drives for databases and a pool for logs; the drives are files spread over the paths
    #[arg(long, conflicts_with_all = ["sweep", "layout", "keep_pristine", "restore"])]
    pub pool: bool,

    /// Take a backup of the databases on the array so often while the load is measured, and keep the last
    /// N: every=TIME,keep=N. Commits wait while a group is frozen, and the report shows how long; the
    /// drives of the pools are three times as large. With ,logs=kept a log generation stays until a backup has
    /// it, and not only until the checkpoint has passed: the logs of the backups together have no gap. It is
    /// enough that the backup was taken; it is not verified before
    #[arg(long, value_name = "every=TIME,keep=N", value_parser = parse_protection, requires = "pool")]
    pub protect: Option<ProtectionPlan>,

    /// Socket at which others freeze the databases while the load is on, such as a set of backups with
    /// freeze = { kind = "maildb", sockets = ["SOCKET"] }. Commits wait meanwhile, and count; the test log has each
    /// freeze. Of several groups each has its own: SOCKET-1, SOCKET-2 …
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["pool", "sweep"])]
    pub control: Option<PathBuf>,

    /// Log generations stay until the set of backups that freezes the databases has proven one that has them, and
    /// not only until the checkpoint has passed: a backup can be brought forward to any later moment. Without a
    /// proven backup the log volume fills up, and the run ends
    #[arg(long, requires = "control")]
    pub keep_logs: bool,

    /// Layout of databases and logs over the paths: volume-per-database, together,
    /// half-the-volumes, one-volume [default: round-robin]
    #[arg(long, value_name = "NAME", value_parser = LayoutKind::parse)]
    pub layout: Option<LayoutKind>,

    /// Print the results as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only the verdict and the names of the report files
    #[arg(long, short)]
    pub quiet: bool,

    /// Show what would be written (or removed, with --clean), and stop
    #[arg(long)]
    pub dry_run: bool,

    /// Seed of all random choices [default: a new one; the report shows it]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// Use the existing databases, and fail if none exist
    #[arg(long, conflicts_with = "fresh")]
    pub attach: bool,

    /// Remove the files of an earlier run, and create new databases
    #[arg(long)]
    pub fresh: bool,

    /// Keep a copy of the newly created databases, for --restore
    #[arg(long)]
    pub keep_pristine: bool,

    /// Start with the copies that --keep-pristine made
    #[arg(long, conflicts_with_all = ["fresh", "keep_pristine"])]
    pub restore: bool,

    /// Remove the files that Spindle created at these paths and nothing else, then stop
    #[arg(long, conflicts_with_all = ["attach", "fresh", "keep_pristine", "restore"])]
    pub clean: bool,

    /// Allow the run to write up to SIZE [default: 1 TB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse_size)]
    pub allow_writes: Option<ByteCount>,

    /// Overwrite the raw device with this serial number although it has a signature
    #[arg(long, value_name = "SERIAL")]
    pub unlock_signature: Vec<String>,

    /// For devices elsewhere.
    #[command(flatten)]
    pub remote: RemoteArguments,

    /// Use neither io_uring nor direct I/O
    #[arg(long)]
    pub plain_io: bool,
}

/// Reads the command line. Help and version are printed as asked and are no refusal.
pub fn parse() -> Result<Option<Arguments>, Refusal> {
    let words: Vec<OsString> = env::args_os().collect();
    let mut command = help_text::fitted(Arguments::command());
    let parsed = command.try_get_matches_from_mut(&words);
    let parsed = parsed.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    match parsed {
        Ok(arguments) => Ok(Some(arguments)),
        Err(error) if is_help(error.kind()) => {
            // A closed pipe (`spindle --help | head -1`) is no failure.
            let _ = error.print();
            Ok(None)
        }
        Err(error) => Err(refusal_of(&error, &words)),
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Joins clap's several lines (the error, a tip, the usage) to one: the error and the tip.
fn refusal_of(error: &clap::Error, words: &[OsString]) -> Refusal {
    let text = error.to_string();
    let before_usage = text.split("\nUsage:").next().unwrap_or(&text);
    let before_usage = before_usage.split("\nFor more information").next().unwrap_or(before_usage);
    let (problem, tip) = match before_usage.split_once("\n\n  tip: ") {
        Some((problem, tips)) => (problem, tips.replace("\n  tip: ", "; ")),
        None => (before_usage, help_of(words)),
    };
    Refusal::new(problem.trim_start_matches("error: "), tip)
}

/// The help to point at: that of the verb, if `words` name one.
fn help_of(words: &[OsString]) -> String {
    let is_verb = |word: &&str| Arguments::command().find_subcommand(word).is_some();
    match words.get(1).and_then(|word| word.to_str()).filter(is_verb) {
        Some(verb) => format!("see 'spindle {verb} --help'"),
        None => "see 'spindle --help'".to_owned(),
    }
}

/// A count of at least one and at most `MAX`.
fn count<const MAX: u32>(text: &str) -> Result<u32, String> {
    match text.parse::<u128>() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(n) if n > u128::from(MAX) => Err(format!("at most {MAX} are possible")),
        Ok(n) => Ok(n as u32),
        Err(_) => Err("a whole number is needed".to_owned()),
    }
}

fn threads(text: &str) -> Result<Threads, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Threads::Auto);
    }
    count::<THREADS_MAX>(text).map(Threads::Count)
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text)?;
    if span < DURATION_MIN {
        return Err(format!("at least {} is needed", show_duration(DURATION_MIN)));
    }
    if span > DURATION_MAX {
        return Err(format!("at most {} are possible", show_duration(DURATION_MAX)));
    }
    Ok(span)
}

fn judged(text: &str) -> Result<JudgedPart, String> {
    let (part, span) = text.split_once(':').unwrap_or((text, ""));
    let seconds = || duration(span).map(|span| span.as_secs());
    match part.to_ascii_lowercase().as_str() {
        "all" if span.is_empty() => Ok(JudgedPart::All),
        "middle" if !span.is_empty() => Ok(JudgedPart::Middle { seconds: seconds()? }),
        "last" if !span.is_empty() => Ok(JudgedPart::Last { seconds: seconds()? }),
        _ => Err("write all, middle:4h or last:4h".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.001..=100.0).contains(&x) => Ok(x),
        Ok(_) => Err("0.001 to 100 make sense".to_owned()),
        Err(_) => Err("a number is needed, such as 0.1".to_owned()),
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_error_of_form_is_one_line_with_a_tip() {
        let line = |words: &[&str]| {
            let error = Arguments::try_parse_from(words).expect_err("refused");
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            refusal_of(&error, &words).to_string()
        };
        assert_eq!(
            line(&["spindle", "prove", "--threads", "0"]),
            "invalid value '0' for '--threads <N>': at least 1 is needed; see 'spindle prove --help'"
        );
        assert_eq!(
            line(&["spindle", "prove", "--thread", "1"]),
            "unexpected argument '--thread' found; a similar argument exists: '--threads'"
        );
        assert_eq!(
            line(&["spindle", "compare", "a.run"]),
            "2 values required by '<RUN> <RUN>...'; only 1 was provided; see 'spindle compare --help'"
        );
        assert_eq!(
            line(&["spindle", "report"]),
            "the following required arguments were not provided: <RUN>; see 'spindle report --help'"
        );
        assert_eq!(
            line(&["spindle", "--nonsense"]),
            "unexpected argument '--nonsense' found; see 'spindle --help'"
        );
        assert_eq!(
            line(&["spindle", "prove", "--judge", "first:1h"]),
            "invalid value 'first:1h' for '--judge <PART>': write all, middle:4h or last:4h; see 'spindle prove --help'"
        );
    }
}
