//! Arguments of the verbs that work on records, and of `export`.

use crate::{
    pool::arguments::WriteCacheState,
    quantity::parse_size,
    server::place::{ServerAddress, ServerPlace},
    service::arguments::ExportVerb,
};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use world::ByteCount;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle report spindle-report-2026-11-21-220500.run      writes the .html and .json beside it
  spindle report spindle-report-2026-11-21-220500.run --send   the console of the server on this machine shows it, too
  spindle report --from 2026-11-16 --to 2026-11-23         what hosts did in a week, and a profile of it
  spindle report --from 2026-11-16 --to 2026-11-23 --volume mail/db1 --mailboxes 2000 --report week

For a completed run, the report is byte for byte the one that the run wrote. For a run that died (a crash, a
power cut) or is still in progress, it shows everything known up to a few seconds before, and verifies nothing.

With --send a server keeps the report, and its console shows it. It refuses another one of the same name; the same
one may be sent again. A .json is sent as it is, and nothing else is written: it ends with 0 if the server has it.

With --from it asks a server for the performance of its volumes over time, and writes PREFIX.toml too: a profile
with which 'spindle prove --server PREFIX.toml' puts the busiest hour of these volumes on other storage. Times are
UTC, as 2026-11-16 or 2026-11-16T08:00.

Ends with 0 for pass, 1 for fail, 2 if the run has no verdict or no report was made. A report of a server's hosts
judges nothing: it ends with 0 if it was made.")]
pub struct ReportArguments {
    /// Record of a run: the .run file that 'spindle prove' writes beside its report; with --send also a report, the
    /// .json beside it
    #[arg(value_name = "RUN", required_unless_present = "from")]
    pub run: Option<PathBuf>,

    /// Begin of the time that is reported, of a server and its hosts
    #[arg(long, value_name = "TIME", conflicts_with = "run")]
    pub from: Option<String>,

    /// Its end [default: now]
    #[arg(long, value_name = "TIME", requires = "from")]
    pub to: Option<String>,

    /// Only this volume; repeat for more. Name those of databases alone for a profile of databases [default: all]
    #[arg(long, value_name = "POOL/VOLUME", requires = "from")]
    pub volume: Vec<String>,

    /// Mailboxes that used these volumes, for the profile
    #[arg(long, value_name = "N", requires = "from", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub mailboxes: u64,

    /// Profile that gives the rest: page size, cache, log [default: exchange-2010]
    #[arg(
        long,
        value_name = "NAME",
        requires = "from",
        default_value = "exchange-2010",
        hide_default_value = true
    )]
    pub base: String,

    /// Also give the report to a server, whose console shows it
    #[arg(long, requires = "run")]
    pub send: bool,

    /// Send: name of the report there [default: that of the file]
    #[arg(long, value_name = "NAME", requires = "send")]
    pub name: Option<String>,

    #[command(flatten)]
    pub place: ServerPlace,

    /// Name of the report: PREFIX.html and PREFIX.json [default: beside the record]
    #[arg(long, value_name = "PREFIX")]
    pub report: Option<PathBuf>,

    /// Print the results as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only the verdict and the names of the report files
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle advise site.toml                        findings, with reasons and remedies
  spindle advise site.toml --run night.run        and what a run of 'spindle prove' says of it
  spindle advise site.toml --html advice.html     the same as a page
  spindle advise --server unix:/var/lib/spindle/spindle.sock       the site that is served
  spindle advise --template > site.toml           a site file to fill in
  spindle advise site.toml --json | jq -r '.findings[].id'

docs/advice.md lists every rule with its source. If the site lacks the figures for a
rule, the rule is skipped, and the missing figures are named.

Ends with 0 if no rule of severity error is broken, 1 if one is, 2 if the site could not be checked.")]
pub struct AdviseArguments {
    /// The site: the file that 'spindle plan' writes (docs/site.md)
    #[arg(value_name = "SITE", required_unless_present_any = ["template", "server"], conflicts_with = "server")]
    pub site: Option<String>,

    /// Print a site file with every key commented out, and check nothing
    #[arg(long, conflicts_with_all = ["site", "run", "html", "json", "quiet", "server"])]
    pub template: bool,

    /// A run on this site: the .run file of 'spindle prove', or the .json beside it
    #[arg(long, value_name = "RUN", conflicts_with = "server")]
    pub run: Option<PathBuf>,

    /// Of a server whose site is checked instead of a file.
    #[command(flatten)]
    pub address: ServerAddress,

    /// Write the findings as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print the findings as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only how many rules are broken
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  spindle compare night-threads-*.run --report night       the table and curves, also as night.html

Each RUN is a record of 'spindle prove', even if the run died. The setting that varies is detected: threads,
mailboxes, groups, databases, volumes or layout. If nothing varies, the runs are named by their files.

Ends with 0 if the runs were compared, 2 if not.")]
pub struct CompareArguments {
    /// Records of runs: the .run files that 'spindle prove' writes beside its reports
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub runs: Vec<PathBuf>,

    /// Also write the comparison to PREFIX.html and PREFIX.json
    #[arg(long, value_name = "PREFIX")]
    pub report: Option<PathBuf>,

    /// Print the comparison as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only what saturated first, and the names of the report files
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  spindle export disk.img --create 10GiB              nbd://127.0.0.1:10809/disk.img, until Ctrl-C
  spindle export /dev/sdb --read-only --nbd unix:/run/spindle.sock
  spindle export disk.img --iscsi 127.0.0.1:3260     a target iqn.2026-11.org.spindle:disk.img.IDENTITY
  spindle export mail/store mail/store@monday         a volume of the pool mail, and a snapshot of it, read-only
  spindle export mail/store --read-only               writes nothing to the pool, which may be damaged
  spindle export a.img b.img --name mail --name logs --nbd 10.0.0.5
  spindle export mail/store --nbd 10.0.0.5 --nbd-tls /etc/pki/spindle     TLS, for clients with a certificate of the authority in the folder
  spindle export create store mail/store               an NBD export of 'spindle serve', which goes on

Then, with any NBD client:
  nbdinfo nbd://127.0.0.1:10809/disk.img
  qemu-img convert -n -O raw mail.qcow2 nbd://127.0.0.1:10809/disk.img

Lost drives, full pools and other events are reported as lines on standard error, with --json also as JSON
objects (docs/pools.md):
  2026-11-24T10:48:01Z warning: mail: 80 % full: 32.0 MiB used of 37.4 MiB; delete snapshots or data, or give ...

Ends with 0 after Ctrl-C or SIGTERM, 2 if it could not start."
)]
pub struct ExportArguments {
    #[command(subcommand)]
    pub verb: Option<ExportVerb>,

    /// Files, raw block devices, or volumes and snapshots of pools: POOL/VOLUME, POOL/VOLUME@SNAPSHOT
    #[arg(value_name = "PATH", required_unless_present = "chap_make")]
    pub paths: Vec<PathBuf>,

    /// Serve NBD at HOST:PORT or unix:PATH; other machines reach it only if HOST is not loopback
    /// [default: 127.0.0.1:10809, unless --iscsi is given]
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<String>,

    /// Require TLS for NBD, with server-cert.pem and server-key.pem of FOLDER; if it has ca-cert.pem, also require a
    /// client certificate of that authority
    #[arg(long, value_name = "FOLDER")]
    pub nbd_tls: Option<PathBuf>,

    /// With --nbd-tls: also serve NBD clients that do not ask for TLS
    #[arg(long, requires = "nbd_tls")]
    pub nbd_tls_optional: bool,

    /// Serve iSCSI at HOST:PORT; each path is a target of its own, with unit 0
    #[arg(long, value_name = "ADDRESS")]
    pub iscsi: Option<String>,

    /// File that defines the iSCSI targets and who may use them (docs/targets.md) [default: everybody]
    #[arg(long, value_name = "FILE", requires = "iscsi")]
    pub access: Option<PathBuf>,

    /// Also serve iSCSI at HOST:PORT, and redirect logins at the address of --iscsi to it
    /// (repeatable)
    #[arg(long, value_name = "ADDRESS", requires = "iscsi")]
    pub portal: Vec<String>,

    /// Print a new CHAP secret, and exit
    #[arg(long, conflicts_with_all = ["paths", "nbd", "iscsi"])]
    pub chap_make: bool,

    /// Folder for the disk identities of devices without a serial number and of files in read-only
    /// folders [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER", requires = "iscsi")]
    pub state: Option<PathBuf>,

    /// Name of the export; repeat for more, in the order of the paths [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,

    /// Create missing files with this size, allocated and zeroed
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "read_only")]
    pub create: Option<ByteCount>,

    /// Refuse writes, and write nothing to the pool. The pool may be damaged: ranges that cannot be read
    /// return an I/O error
    #[arg(long)]
    pub read_only: bool,

    /// Block size of iSCSI units: logical blocks of 512 bytes on physical blocks of 4096 (512e) or 512
    /// (512n), or both of 4096 (4kn)
    #[arg(long, value_name = "FORMAT", value_enum, ignore_case = true, default_value_t = BlockFormat::Emulated)]
    pub blocks: BlockFormat,

    /// Make iSCSI units removable: initiators can eject and load the medium
    #[arg(long, requires = "iscsi")]
    pub removable: bool,

    /// Acknowledge writes before they are stable (on: clients must flush or use FUA) or after (off)
    /// [default: a volume's own setting; off for files and devices]
    #[arg(long, value_name = "STATE", ignore_case = true, num_args = 0..=1, default_missing_value = "on", conflicts_with = "read_only")]
    pub write_cache: Option<WriteCacheState>,

    /// Print the exports as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Time to busy-poll before blocking, in microseconds; 0 to block at once. Polling uses processor time and makes
    /// single commands faster
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=1000))]
    pub poll: u64,

    /// Measure how long single steps occupy the server's thread, and append a line of JSON each second to
    /// FILE, which must be new
    #[arg(long, value_name = "FILE")]
    pub step_times: Option<PathBuf>,

    /// Print only warnings
    #[arg(long, short)]
    pub quiet: bool,

    /// Use neither io_uring nor direct I/O
    #[arg(long)]
    pub plain_io: bool,
}

/// Sizes of logical and physical blocks, under the names that drives have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BlockFormat {
    /// Of 512 bytes, eight of them to a physical block.
    #[value(name = "512e")]
    Emulated,
    /// Of 512 bytes.
    #[value(name = "512n")]
    Small,
    /// Of 4096 bytes.
    #[value(name = "4kn")]
    Large,
}

impl BlockFormat {
    /// Bytes of a logical block, and of a physical one.
    pub fn bytes(self) -> (u32, u32) {
        match self {
            Self::Emulated => (512, 4096),
            Self::Small => (512, 512),
            Self::Large => (4096, 4096),
        }
    }
}
