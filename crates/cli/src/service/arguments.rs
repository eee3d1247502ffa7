//! Arguments of `spindle target`, `initiator`, `session`, `schedule` and `export list|create|delete`.

use crate::server::place::ServerPlace;
use clap::{Args, Subcommand, ValueEnum};
use control::web::client::{NewUnitBody, UnitCache};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle target list
  spindle target create disks --unit 0=mail/store --initiator iqn.2026-11.org.example:host
  spindle target add-unit disks mail/new           initiators of the target see it at once
  spindle target remove-unit disks 1               refused while a host uses it, unless --force is given
  spindle target delete disks --dry-run            show what would go, and for whom

These change what 'spindle serve' serves, under its hosts; only hosts that lose something are logged out. The site file stays \
as it is: each change says what it lacks. A start with the same file keeps the changes, and lists them.

Ends with 0, with 1 if --dry-run finds changes, and with 2 if it was refused.")]
pub struct TargetArguments {
    #[command(subcommand)]
    pub verb: TargetVerb,

    #[command(flatten)]
    pub common: ServiceArguments,
}

/// The server, and the form of answers.
#[derive(Clone, Debug, Args)]
pub struct ServiceArguments {
    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

/// The way of a change.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ChangeArguments {
    /// Only show the changes, and whose sessions would end
    #[arg(long)]
    pub dry_run: bool,

    /// Take away what hosts use: their sessions end
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TargetVerb {
    /// List the targets
    #[command(after_help = "Examples:
  spindle target list
  spindle target list --pool mail --json

Of a server that does not run, the targets that it served last are listed.")]
    List {
        /// Only targets of this pool
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
    },
    /// Show a target: its units, and who may use and who uses it
    #[command(after_help = "Example:
  spindle target show disks")]
    Show {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,
    },
    /// Create a target
    #[command(after_help = "Examples:
  spindle target create disks --unit mail/store --initiator iqn.2026-11.org.example:host
  spindle target create disks --unit 0=mail/store --unit 5=mail/log --open

The initiators must be there: 'spindle initiator create'. Without --initiator and --open, everybody on the server's own \
machine may use the target; where other machines reach it, that is refused. Its units lie in one pool.")]
    Create {
        /// Letters, digits, '-', '.' and ':': the end of its iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        /// Unit: VOLUME or POOL/VOLUME, also with @SNAPSHOT; NUMBER= in front sets its number (repeatable) [default number: the lowest free one]
        #[arg(long = "unit", value_name = "UNIT", value_parser = unit)]
        units: Vec<NewUnitBody>,

        /// Initiator that may use it (repeatable)
        #[arg(long = "initiator", value_name = "NAME")]
        initiators: Vec<String>,

        /// Let every initiator use it, wherever it is
        #[arg(long)]
        open: bool,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Open a target to every initiator, or to those with rights alone
    #[command(after_help = "Example:
  spindle target set disks --open off")]
    Set {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        /// True if every initiator may use it
        #[arg(long, value_name = "STATE")]
        open: OnOff,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Delete a target, and the rights on it; its volumes stay
    #[command(after_help = "Examples:
  spindle target delete disks --dry-run
  spindle target delete disks")]
    Delete {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Add a volume or a snapshot to a target
    #[command(after_help = "Examples:
  spindle target add-unit disks mail/new
  spindle target add-unit disks mail/quorum --number 7 --shared
  spindle target add-unit disks mail/store@monday

Hosts that are logged in and may use the target learn of it at once (REPORTED LUNS DATA HAS CHANGED).")]
    AddUnit {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        /// Volume or snapshot
        #[arg(value_name = "[POOL/]VOLUME[@SNAPSHOT]")]
        volume: String,

        /// Logical unit number [default: the lowest free one]
        #[arg(long, value_name = "N")]
        number: Option<u64>,

        /// Refuse writes
        #[arg(long)]
        read_only: bool,

        /// Let several initiators use it at the same time, as clusters do
        #[arg(long)]
        shared: bool,

        /// Acknowledge writes before they are stable (on), after (off), or as the volume is set
        #[arg(long, value_name = "STATE", default_value = "volume")]
        write_cache: UnitCacheState,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change a unit: sessions that use it end
    #[command(after_help = "Examples:
  spindle target set-unit disks 7 --shared on
  spindle target set-unit disks 0 --volume mail/store2 --force")]
    SetUnit {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        /// Logical unit number
        #[arg(value_name = "NUMBER")]
        number: u64,

        /// Another volume or snapshot: VOLUME or POOL/VOLUME, also with @SNAPSHOT
        #[arg(long, value_name = "VOLUME")]
        volume: Option<String>,

        /// True if it refuses writes
        #[arg(long, value_name = "STATE")]
        read_only: Option<OnOff>,

        /// True if several initiators may use it at the same time
        #[arg(long, value_name = "STATE")]
        shared: Option<OnOff>,

        /// Acknowledge writes before they are stable (on), after (off), or as the volume is set
        #[arg(long, value_name = "STATE")]
        write_cache: Option<UnitCacheState>,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove a unit from a target, with the rights on it alone; its volume stays
    #[command(after_help = "Example:
  spindle target remove-unit disks 7")]
    RemoveUnit {
        /// Name in the site, or iSCSI name
        #[arg(value_name = "TARGET")]
        target: String,

        /// Logical unit number
        #[arg(value_name = "NUMBER")]
        number: u64,

        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle initiator create iqn.2026-11.org.example:host --user host --secret-file host.secret
  spindle initiator set iqn.2026-11.org.example:host --uses disks --uses logs/3
  spindle initiator list
  spindle initiator delete iqn.2026-11.org.example:host

A host is known by its iSCSI name; open-iscsi has it in /etc/iscsi/initiatorname.iscsi. These change what 'spindle serve' \
serves, and not the site file: each change says what that lacks. Secrets are never printed.

Ends with 0, with 1 if --dry-run finds changes, and with 2 if it was refused.")]
pub struct InitiatorArguments {
    #[command(subcommand)]
    pub verb: InitiatorVerb,

    #[command(flatten)]
    pub common: ServiceArguments,
}

/// A secret for CHAP.
#[derive(Clone, Debug, Default, Args)]
pub struct ChapArguments {
    /// User name for CHAP
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,

    /// File with the secret of --user, which only its owner can read; the server keeps a copy in its state folder
    /// ('spindle export --chap-make' makes a secret)
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum InitiatorVerb {
    /// List the hosts that have rights
    #[command(after_help = "Example:
  spindle initiator list --json")]
    List,
    /// Show a host: its rights and its sessions
    #[command(after_help = "Example:
  spindle initiator show iqn.2026-11.org.example:host")]
    Show {
        /// iSCSI name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Make a host known, with its rights
    #[command(after_help = "Examples:
  (umask 077; spindle export --chap-make > host.secret)
  spindle initiator create iqn.2026-11.org.example:host --user host --secret-file host.secret
  spindle initiator create iqn.2026-11.org.example:host --uses disks --reads logs/0")]
    Create {
        /// iSCSI name
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        chap: ChapArguments,

        /// Target, or unit as TARGET/NUMBER, that it may read and write (repeatable)
        #[arg(long, value_name = "TARGET")]
        uses: Vec<String>,

        /// Target, or unit as TARGET/NUMBER, that it may read (repeatable)
        #[arg(long, value_name = "TARGET")]
        reads: Vec<String>,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change a host's secret or rights
    #[command(after_help = "Examples:
  spindle initiator set iqn.2026-11.org.example:host --uses disks/0 --uses logs
  spindle initiator set iqn.2026-11.org.example:host --secret-file new.secret
  spindle initiator set iqn.2026-11.org.example:host --uses none

--uses and --reads replace all that there were. Sessions that have logged in with the old secret go on.")]
    Set {
        /// iSCSI name
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        chap: ChapArguments,

        /// Believe its name from now on
        #[arg(long, conflicts_with_all = ["user", "secret_file"])]
        without_chap: bool,

        /// Target, or unit as TARGET/NUMBER, that it may read and write (repeatable); none for none
        #[arg(long, value_name = "TARGET")]
        uses: Option<Vec<String>>,

        /// Target, or unit as TARGET/NUMBER, that it may read (repeatable); none for none
        #[arg(long, value_name = "TARGET")]
        reads: Option<Vec<String>>,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Forget a host, with its rights
    #[command(after_help = "Example:
  spindle initiator delete iqn.2026-11.org.example:host

Refused if it is the only one that uses a target: that would be open to everybody then.")]
    Delete {
        /// iSCSI name
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle session list                             who is connected, since when, to what
  spindle session list --initiator iqn.2026-11.org.example:host
  spindle session end 3f0c8a1be2d94c57

Sessions of iSCSI and clients of NBD, a second old at most; the paths of a host are a session each.

Ends with 0, or with 2 if there is no answer.")]
pub struct SessionArguments {
    #[command(subcommand)]
    pub verb: SessionVerb,

    #[command(flatten)]
    pub common: ServiceArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SessionVerb {
    /// List who is connected
    #[command(after_help = "Examples:
  spindle session list --pool mail
  spindle session list --json | jq -r '.[].peer'")]
    List {
        /// Only sessions with this pool
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,

        /// Only sessions of this host, by its iSCSI name
        #[arg(long, value_name = "NAME")]
        initiator: Option<String>,

        /// Only sessions to this target, by its iSCSI name, or clients of this NBD export
        #[arg(long, value_name = "NAME")]
        service: Option<String>,
    },
    /// End a session: the host is asked to log out, and is cut off after five seconds
    #[command(after_help = "Example:
  spindle session end 3f0c8a1be2d94c57

Commands that the host has sent are done. It may log in again, as most do by themselves; to keep it out, take its rights \
away with 'spindle initiator set' or 'delete'.")]
    End {
        /// Id of the session, as 'spindle session list' has it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle schedule list                            when each took snapshots last, and takes the next
  spindle schedule create nightly --every 24h --at 03:00 --keep 7 --pool mail
  spindle schedule set nightly --keep 14
  spindle schedule delete nightly                  its snapshots stay

These change what 'spindle serve' does, and not the site file: each change says what that lacks.

Ends with 0, with 1 if --dry-run finds changes, and with 2 if it was refused.")]
pub struct ScheduleArguments {
    #[command(subcommand)]
    pub verb: ScheduleVerb,

    #[command(flatten)]
    pub common: ServiceArguments,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ScheduleVerb {
    /// List the schedules: last and next snapshots, what is kept and what was missed
    #[command(after_help = "Examples:
  spindle schedule list
  spindle schedule list --pool mail --json")]
    List {
        /// Only schedules with volumes of this pool
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
    },
    /// Show a schedule, volume by volume
    #[command(after_help = "Example:
  spindle schedule show nightly")]
    Show {
        /// Name of the schedule
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Create a schedule: its first snapshots are taken at once
    #[command(after_help = "Examples:
  spindle schedule create nightly --every 24h --at 03:00 --keep 7 --pool mail
  spindle schedule create often --every 15m --keep 96 --volume mail/store")]
    Create {
        /// Name of the schedule
        #[arg(value_name = "NAME")]
        name: String,

        /// Time from one snapshot to the next, from a minute to 31 days, such as 15m, 1h or 24h
        #[arg(long, value_name = "TIME", value_parser = hours)]
        every: f64,

        /// Time of day, HH:MM in UTC, if whole days lie between snapshots
        #[arg(long, value_name = "HH:MM")]
        at: Option<String>,

        /// Snapshots that are kept of each volume
        #[arg(long, value_name = "N")]
        keep: u32,

        /// Pool all of whose volumes it has (repeatable)
        #[arg(long = "pool", value_name = "POOL")]
        pools: Vec<String>,

        /// Further volume, [POOL/]VOLUME (repeatable)
        #[arg(long = "volume", value_name = "VOLUME")]
        volumes: Vec<String>,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change a schedule
    #[command(after_help = "Examples:
  spindle schedule set nightly --keep 14
  spindle schedule set nightly --every 12h --at none

--pool and --volume replace all that there were. With fewer to be kept, the oldest are pruned.")]
    Set {
        /// Name of the schedule
        #[arg(value_name = "NAME")]
        name: String,

        /// Time from one snapshot to the next, such as 15m, 1h or 24h
        #[arg(long, value_name = "TIME", value_parser = hours)]
        every: Option<f64>,

        /// Time of day, HH:MM in UTC; none for none
        #[arg(long, value_name = "HH:MM")]
        at: Option<String>,

        /// Snapshots that are kept of each volume
        #[arg(long, value_name = "N")]
        keep: Option<u32>,

        /// Pool all of whose volumes it has (repeatable); none for none
        #[arg(long = "pool", value_name = "POOL")]
        pools: Option<Vec<String>>,

        /// Further volume, [POOL/]VOLUME (repeatable); none for none
        #[arg(long = "volume", value_name = "VOLUME")]
        volumes: Option<Vec<String>>,

        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Delete a schedule; its snapshots stay
    #[command(after_help = "Example:
  spindle schedule delete nightly")]
    Delete {
        /// Name of the schedule
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// The exports of a server, beside those of this process.
#[derive(Clone, Debug, Subcommand)]
pub enum ExportVerb {
    /// List the NBD exports of 'spindle serve'
    #[command(after_help = "Example:
  spindle export list --json")]
    List {
        #[command(flatten)]
        common: ServiceArguments,
    },
    /// Add an NBD export to 'spindle serve'
    #[command(after_help = "Examples:
  spindle export create store mail/store
  spindle export create monday mail/store@monday

NBD knows no rights: whoever reaches the server's NBD address may use it. The site file stays as it is; the answer says \
what it lacks. Ends with 0, with 1 if --dry-run finds changes, and with 2 if it was refused.")]
    Create {
        /// Name of the export
        #[arg(value_name = "NAME")]
        name: String,

        /// Volume or snapshot
        #[arg(value_name = "[POOL/]VOLUME[@SNAPSHOT]")]
        volume: String,

        /// Refuse writes
        #[arg(long)]
        read_only: bool,

        #[command(flatten)]
        change: ChangeArguments,

        #[command(flatten)]
        common: ServiceArguments,
    },
    /// Take an NBD export from 'spindle serve'; its volume stays
    #[command(after_help = "Example:
  spindle export delete monday

Refused while a client uses it, unless --force is given. Clients of other exports of the volume are disconnected with it, \
and may come back.")]
    Delete {
        /// Name of the export
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        change: ChangeArguments,

        #[command(flatten)]
        common: ServiceArguments,
    },
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

impl OnOff {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// The write cache of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitCacheState {
    Volume,
    On,
    Off,
}

impl From<UnitCacheState> for UnitCache {
    fn from(state: UnitCacheState) -> Self {
        match state {
            UnitCacheState::Volume => Self::Volume,
            UnitCacheState::On => Self::On,
            UnitCacheState::Off => Self::Off,
        }
    }
}

/// A unit as `[NUMBER=]VOLUME`.
fn unit(text: &str) -> Result<NewUnitBody, String> {
    let (number, volume) = match text.split_once('=') {
        Some((number, volume)) => {
            let number = number.parse().map_err(|_| format!("{number:?} is no logical unit number"))?;
            (Some(number), volume)
        }
        None => (None, text),
    };
    Ok(NewUnitBody { number, volume: volume.to_owned(), ..NewUnitBody::default() })
}

/// A time span in hours.
fn hours(text: &str) -> Result<f64, String> {
    let span = crate::quantity::parse_duration(text)?;
    Ok(span.as_secs_f64() / 3600.0)
}
