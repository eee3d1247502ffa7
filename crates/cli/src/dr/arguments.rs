//! Arguments of `spindle dr` and `spindle failover`.

use super::forks::DrForkVerb;
use super::suspension::{DrGroupChoice, parse_merge, parse_rate};
use crate::{
    quantity::{parse_duration, parse_size},
    server::place::ServerPlace,
    service::arguments::OnOff,
};
use clap::{Args, Subcommand, ValueEnum};
use control::{
    dr::mode::{BEHIND_BYTES, BEHIND_MS},
    web::client::DrMergeStart,
};
use std::{path::PathBuf, time::Duration};
use world::ByteCount;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle dr token > token                                  at denver: one other site may pair with it, for an hour
  spindle dr pair denver 192.0.2.20 --pairing-token token   at the other site
  spindle dr create sg1 mail/sg1 --to denver --mode sync
  spindle dr status                                         roles, what a disaster would cost now, and what to do
  spindle failover sg1                                      moves the hosts to the other site, and back

Both servers listen for each other: [replication] listen in their site files. Targets, exports and rights come with a group: the \
other site serves them while it is primary there.

Ends with 0, or 2 if it was refused; 'status' with 1 if a group needs somebody.")]
pub struct DrArguments {
    #[command(subcommand)]
    pub verb: DrVerb,

    #[command(flatten)]
    pub common: DrCommon,
}

/// The server, and the form of answers.
#[derive(Clone, Debug, Args)]
pub struct DrCommon {
    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DrModeName {
    /// Hosts are answered once both sites have a write
    Sync,
    /// Hosts are answered at once, and the other site is behind within bounds
    Async,
    /// Hosts are answered at once, and the other site gets what changed by the clock
    Periodic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverBound {
    /// The group says that it is behind, and hosts go on
    Behind,
    /// Hosts wait until the other site is within the bounds
    PushBack,
}

/// The bounds of an asynchronous group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindBounds {
    pub time: Duration,
    pub size: ByteCount,
}

impl BehindBounds {
    pub const DEFAULT: Self = Self { time: Duration::from_millis(BEHIND_MS), size: ByteCount(BEHIND_BYTES) };

    fn parse(text: &str) -> Result<Self, String> {
        let (time, size) = text.split_once(',').ok_or("write a time and a size, such as 30s,256MiB")?;
        Ok(Self { time: parse_duration(time)?, size: parse_size(size)? })
    }
}

/// Settings of the modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct DrModeSettings {
    /// Sync: time for which hosts wait for a lost site, at most 25 s [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub hold: Option<Duration>,

    /// Async: bounds of what the other site may lack, TIME,SIZE [default: 30s,256MiB]
    #[arg(long, value_name = "BOUNDS", value_parser = BehindBounds::parse)]
    pub behind: Option<BehindBounds>,

    /// Async: what happens beyond the bounds [default: behind]
    #[arg(long)]
    pub over: Option<OverBound>,

    /// Periodic: interval at which the other site gets what changed [default: 15min]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: Option<Duration>,

    /// Periodic: states that the other site keeps, as snapshots; at most 64 [default: 4]
    #[arg(long, value_name = "NUMBER")]
    pub keep: Option<u16>,
}

/// The loss that an unplanned failover may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedLoss {
    Within(Duration),
    Any,
}

impl AcceptedLoss {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::Any),
            text => parse_duration(text).map(Self::Within),
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
pub enum DrVerb {
    /// Make a token with which one other site can pair, and print it once
    #[command(after_help = "Example:
  spindle dr token --valid 1h > token

Carry it to the other site, and say 'spindle dr pair' there. A restart of the server forgets it.")]
    Token {
        /// Time for which it is valid
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
        valid: Duration,
    },
    /// Pair with a site that made a token; this site keeps connections to it
    #[command(after_help = "Example:
  spindle dr pair denver 192.0.2.20:7789 --pairing-token token

Each site then knows the other one by its key; no authority is needed. The address is [replication] listen of that site.")]
    Pair {
        /// Name of the other site here
        #[arg(value_name = "SITE")]
        site: String,

        /// HOST or HOST:PORT: the address at which it listens
        #[arg(value_name = "ADDRESS")]
        address: String,

        /// File with the token that 'spindle dr token' printed there
        #[arg(long, value_name = "FILE")]
        pairing_token: PathBuf,
    },
    /// End the pairing with a site; its groups stay, unconnected
    #[command(after_help = "Example:
  spindle dr unpair denver

Say it at both sites.")]
    Unpair {
        /// Name of the other site
        #[arg(value_name = "SITE")]
        site: String,
    },
    /// Make a DR group: the other site gets replicas of its volumes, and a first copy
    #[command(after_help = "Examples:
  spindle dr create sg1 mail/sg1 logs/sg1-log --to denver --mode sync
  spindle dr create sg1 mail/sg1 logs/sg1-log --to denver --mode sync --auto --witness 192.0.2.30
  spindle dr create queue mail/queue --to denver --mode async --behind 30s,256MiB --over push-back
  spindle dr create old mail/archive --to denver --mode periodic --every 15min --keep 8

The volumes are consistent as a whole at the other site, also if they lie in several pools; then the group is not periodic. \
Hosts are served meanwhile. A pool there has the same name, unless --pool names another one.")]
    Create {
        /// Name of the group, at both sites
        #[arg(value_name = "GROUP")]
        group: String,

        /// Volumes: VOLUME or POOL/VOLUME
        #[arg(value_name = "VOLUME", required = true)]
        volumes: Vec<String>,

        /// The other site
        #[arg(long, value_name = "SITE")]
        to: String,

        /// Its pool, or HERE=THERE for each of several pools [default: the name of the pool here]
        #[arg(long, value_name = "POOL", value_delimiter = ',')]
        pool: Vec<String>,

        /// Rule for answers to hosts
        #[arg(long)]
        mode: DrModeName,

        /// Sync: refuse writes then, instead of going on alone
        #[arg(long)]
        failsafe: bool,

        /// Sync: the other site takes over without a person when this one is lost, as the witness decides
        #[arg(long, requires = "witness")]
        auto: bool,

        /// Address of a witness that runs on a third machine: HOST or HOST:PORT; or etcd://HOST:PORT, over TLS
        /// etcds://HOST:PORT, of a member of an etcd cluster; may be repeated [default ports: 7790, 2379]
        #[arg(long, value_name = "ADDRESS", requires = "auto")]
        witness: Vec<String>,

        #[command(flatten)]
        settings: DrModeSettings,
    },
    /// Give a group another mode, or other settings of its mode, while hosts use it
    #[command(after_help = "Examples:
  spindle dr set sg1 --mode async --behind 30s,256MiB
  spindle dr set sg1 --mode sync
  spindle dr set sg1 --hold 10s

Said at the site that is primary. Hosts go on, both sites connect again, and nothing is copied again; the other site follows. \
What is not said stays, or has its default if the mode is another one. A group that goes over to sync is in sync once the \
other site has everything; until then it goes on alone. One with a witness stays in sync, without --failsafe; one with volumes \
in several pools does not become periodic.")]
    Set {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        group: String,

        /// Rule for answers to hosts
        #[arg(long)]
        mode: Option<DrModeName>,

        /// Sync: refuse writes then, instead of going on alone
        #[arg(long)]
        failsafe: Option<OnOff>,

        #[command(flatten)]
        settings: DrModeSettings,
    },
    /// Show this site, its peers and its groups: roles, states, what a disaster would cost now, and what to do
    #[command(after_help = "Examples:
  spindle dr status
  spindle dr status sg1 --json
  spindle dr status --watch

Ends with 0 if all groups are connected and none is behind or damaged, and with 1 otherwise.")]
    Status {
        /// Only this group
        #[arg(value_name = "GROUP")]
        group: Option<String>,

        /// Show it again each second until Ctrl-C, if anything has changed
        #[arg(long, conflicts_with = "json")]
        watch: bool,
    },
    /// Say that the other site's writes count, after both have written: those of this site become a fork
    #[command(after_help = "Example:
  spindle dr give-way sg1 --yes sg1

Nothing is deleted: what this site wrote of its own stays as a volume VOLUME-fork1 beside the volume.")]
    GiveWay {
        /// Name of the group, whose own writes become a fork
        #[arg(value_name = "GROUP")]
        group: String,

        /// Its name again, where nobody can be asked
        #[arg(long, value_name = "GROUP")]
        yes: Option<String>,
    },
    /// Say that the other site is off: this one, which is primary and holds its hosts, serves them
    #[command(after_help = "Example:
  spindle dr alone sg1 --peer-is-off

For a group with a witness, when neither that nor the other site is reached: hosts are not served, since the other site may \
have taken over. If it has, both sites write, and one of both histories becomes a fork later.")]
    Alone {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        group: String,

        /// The other site serves no host, for certain: power, or network
        #[arg(long, required = true)]
        peer_is_off: bool,
    },
    /// Compare both sites as of one cut, and name the blocks that differ; changes nothing
    #[command(after_help = "Examples:
  spindle dr verify sg1
  spindle dr verify sg1 --json

Said at the site that is primary, while the group streams. Both sites take the same cut and read it; digests of each MiB go \
over the line, and of each block of a MiB that differs. Hosts write and are copied meanwhile, and the reading gives way to them.

Ends with 0 if both are alike, 1 if blocks differ, 2 if it has no answer.")]
    Verify {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        group: String,
    },
    /// Histories that this site gave up for the other one's, kept as volumes until it is dropped
    #[command(after_help = "Examples:
  spindle dr fork list
  spindle dr fork drop sg1-fork1")]
    Fork {
        #[command(subcommand)]
        verb: DrForkVerb,
    },
    /// Send the other site nothing until 'resume', also over restarts; hosts are served
    #[command(after_help = "Examples:
  spindle dr suspend sg1
  spindle dr suspend --all

Said at the site that is primary. A disaster there would lose what hosts write from now on. Up to 4 GiB of the log are kept \
for the other site; beyond that the map shows what changed, so it never gets everything again.

Ends with 0; with 1 if one of --all was refused; with 2 if the group was.")]
    Suspend {
        #[command(flatten)]
        groups: DrGroupChoice,
    },
    /// Go on sending what the other site lacks, all at once, in turns, or in a window of each day
    #[command(after_help = "Examples:
  spindle dr resume sg1
  spindle dr resume --all --merge staggered=2 --rate 20MB/s
  spindle dr resume sg1 --merge window=22:00-05:00
  spindle dr resume sg1 --merge window=22:00-05:00+02:00        clocks that are 2 h ahead of UTC
  spindle dr resume sg1 --merge at-once        a group that waits for its turn begins now

Groups with one site take turns by name; a group that does not catch up lets the others go first. A pass gives way to hosts \
while 1 % of their writes take longer than 12 ms. The rule stays until the next 'resume' of the group, also over restarts.

Ends with 0; with 1 if one of --all was refused; with 2 if the group was.")]
    Resume {
        #[command(flatten)]
        groups: DrGroupChoice,

        /// When its passes run: at-once, staggered=N (so many groups at one time), or window=HH:MM-HH:MM (UTC, or
        /// with an offset from it behind, which does not follow summer time) [default: staggered=1]
        #[arg(long, value_name = "WHEN", value_parser = parse_merge)]
        merge: Option<DrMergeStart>,

        /// Bytes a second that a pass sends, at most, such as 20MB/s [default: no bound]
        #[arg(long, value_name = "RATE", value_parser = parse_rate)]
        rate: Option<u64>,
    },
    /// Remove a group from this site: its volumes stay, and hosts may write them
    #[command(after_help = "Example:
  spindle dr remove sg1 --yes sg1

Say it at both sites. A new group of the same volumes begins with a first copy.")]
    Remove {
        /// Name of the group; its UUID if its record is damaged
        #[arg(value_name = "GROUP")]
        group: String,

        /// Its name again, where nobody can be asked
        #[arg(long, value_name = "GROUP")]
        yes: Option<String>,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle failover sg1                                        planned, from either site; back is the same command
  spindle failover sg1 --unplanned --accept-loss 90s          the other site is lost: this one becomes primary
  spindle failover sg1 --unplanned --accept-loss all          whatever is lost
  spindle failover sg1 --at last-proven --accept-loss all     the same, as of the newest state that a rehearsal proved
  spindle failover --all                                      every group that is primary here, each whole
  spindle failover --all --from boston                        the same, said at the other site
  spindle failover sg1 --rehearse --report drill.html         at the secondary: could it serve now?
  spindle failover sg1 --rehearse --check './fsck-mail \"$1\"'

A planned failover takes the hosts away, waits until the other site has everything, and makes it primary: nothing is lost. An \
unplanned one says what may be lost, and is refused if that is more than --accept-loss. Make sure that the other site serves \
no hosts any more: when it comes back it compares, and serves nothing before it knows that it may. What it had of its own \
becomes a fork. Where answers may be lost, the volumes are withheld from each host that was connected there, and its steps are \
printed: stop, unmount, log out, log in, check, mount.

A rehearsal moves nothing, and replication goes on: Spindle's own databases, as 'prove' makes them, are recovered as after a \
crash and checked page by page; others need --check.

Ends with 0 once the group serves, or the rehearsal passed; 1 if that failed, or one of --all stayed; 2 if it was refused or has no answer.")]
pub struct FailoverArguments {
    /// Name of the group, as 'dr status' lists it
    #[arg(value_name = "GROUP", required_unless_present = "all")]
    pub group: Option<String>,

    /// All groups that are primary at a site, one after the other, in the order of 'dr status'. One that stays does not
    /// keep the others; said again, it does the rest
    #[arg(long, conflicts_with_all = ["group", "rehearse"])]
    pub all: bool,

    /// All: the site at which they are primary now [default: this one]
    #[arg(long, value_name = "SITE", requires = "all")]
    pub from: Option<String>,

    /// All: name what would be moved, and move nothing
    #[arg(long, requires = "all")]
    pub dry_run: bool,

    /// Make this site primary although the other one is not reached
    #[arg(long)]
    pub unplanned: bool,

    /// Unplanned: answered writes of so much time may be lost; 'all' for whatever is lost
    #[arg(long, value_name = "TIME", value_parser = AcceptedLoss::parse)]
    pub accept_loss: Option<AcceptedLoss>,

    /// Unplanned, with a witness: the other site serves no host, for certain, and the witness is not asked
    #[arg(long)]
    pub peer_is_off: bool,

    /// Unplanned: as of a state that is kept here instead of the newest one, which stays as a fork: the name of a snapshot
    /// of all volumes, such as replica~3, or last-proven. Rehearsal: of that state
    #[arg(long, value_name = "STATE", conflicts_with = "all")]
    pub at: Option<String>,

    /// Move nothing: at the secondary, recover and check clones of what it has, and drop them
    #[arg(long, conflicts_with = "unplanned")]
    pub rehearse: bool,

    /// Rehearsal: judge the clones by a command of this machine, which 'sh -c' runs with their NBD URIs as $1, $2 … and
    /// SPINDLE_URI_1 …; exit code 0 passes [default: recover and check Spindle's own databases]
    #[arg(long, value_name = "COMMAND", requires = "rehearse")]
    pub check: Option<String>,

    /// Rehearsal: also write the report as an HTML page, or as JSON for 'spindle report --send' if its name ends in
    /// .json
    #[arg(long, value_name = "FILE", requires = "rehearse")]
    pub report: Option<PathBuf>,

    /// Rehearsal: longest time of the clones, and of the command
    #[arg(long, value_name = "TIME", requires = "rehearse", default_value = "4h", value_parser = parse_duration)]
    pub within: Duration,

    /// Rehearsal: folder of certificates, for a server whose NBD has TLS
    #[arg(long, value_name = "FOLDER", requires = "rehearse")]
    pub nbd_tls: Option<PathBuf>,

    #[command(flatten)]
    pub common: DrCommon,
}
