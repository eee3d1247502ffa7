//! Arguments of `spindle serve`, `spindle apply` and `spindle site`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle serve                       a demonstration: a pool in files, a volume, and how to use it
  spindle serve site.toml             the pools, volumes, targets and exports of a site file
  spindle serve site.toml --site east     the part of the file that stands in the site east
  kill -HUP PID                       apply the file again, while clients go on
  spindle apply site.toml --dry-run   show what serve would change
  spindle plan --users 1500 --quota 2GB --site site.toml     plan a site, to be given devices and served

What is to change is shown first, and then done. Data are never destroyed here: volumes that the file lacks stay. \
SIGTERM or Ctrl-C asks initiators to log out, flushes, and closes the pools.

Ends with 0 after Ctrl-C or SIGTERM, 1 if a pool had stopped before, 2 if it could not start.")]
pub struct ServeArguments {
    /// Site file [default: site.toml of the state folder; a demonstration is written there if it is missing]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub place: SitePlace,

    /// Write the recovery key of the site's secrets to this file if it is made now, instead of showing it
    #[arg(long, value_name = "FILE")]
    pub recovery_key_file: Option<PathBuf>,

    /// Print the changes and what is served as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle apply site.toml --dry-run            show the changes; ends with 1 if there are any
  spindle apply site.toml
  spindle apply site.toml --destroy mail/old   a volume that the file lacks is destroyed, with its snapshots

While 'spindle serve' runs with the state folder, it makes the changes, under its clients; at its next start it applies \
its own file again, so change that one too. An apply that is interrupted, however that happens, goes on with the next one.

Ends with 0 if everything is as the file says, 1 if --dry-run finds changes, 2 if it could not be applied.")]
pub struct ApplyArguments {
    /// Site file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub place: SitePlace,

    /// Only show the changes
    #[arg(long)]
    pub dry_run: bool,

    /// Destroy this volume, POOL/VOLUME, with its snapshots; the file must lack it (repeatable). Of a pool that is gone for
    /// good, POOL: forget that it was there
    #[arg(long, value_name = "NAME")]
    pub destroy: Vec<String>,

    /// Write the recovery key of the site's secrets to this file if it is made now, instead of showing it
    #[arg(long, value_name = "FILE")]
    pub recovery_key_file: Option<PathBuf>,

    /// Print the changes as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle site                                      the site as it is, as a file
  spindle site --adopt mail logs > site.toml        a site file of pools that are there
  spindle site --adopt mail --access access.toml > site.toml
  spindle site recovery-key                         the key of the secrets in the pools: made, shown?

A file that is applied as it was printed changes nothing. Pools to adopt are not written to; initiators find the \
same disks under the same names and numbers as with 'spindle export'.

Ends with 0, or 2 if there is no answer.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct SiteArguments {
    #[command(subcommand)]
    pub verb: Option<SiteVerb>,

    #[command(flatten)]
    pub place: SitePlace,

    /// Folders of pools to adopt
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    pub adopt: Vec<PathBuf>,

    /// With --adopt: access file of 'spindle export', whose targets and rights are kept
    #[arg(long, value_name = "FILE", requires = "adopt")]
    pub access: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SiteVerb {
    /// The key with which a new machine opens the site's secrets in the pools
    RecoveryKey(RecoveryKeyArguments),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle site recovery-key                     was one made, and has somebody seen it?
  spindle site recovery-key --file /media/usb/key     write it, if nobody has seen it yet
  spindle site recovery-key --renew             make a new one, if the old one is lost or known to others

The pools keep the site's CHAP secrets and TLS keys, sealed with this key. 'spindle serve' or 'spindle apply' makes it with \
the first secret, and shows it once: on a terminal, or in the file of --recovery-key-file. Keep it away from this machine; \
'spindle pool import --all --recovery-key-file FILE' needs it when the machine is lost.

Ends with 0, 1 if there is no key, 2 if there is no answer.")]
pub struct RecoveryKeyArguments {
    #[command(flatten)]
    pub place: StatePlace,

    /// Write the key to this file, which only you can read, if nobody has seen it yet; or the new one of --renew
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Make a new key; the next 'spindle serve' or 'spindle apply' seals the secrets with it
    #[arg(long)]
    pub renew: bool,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// The folder in which a server remembers its site.
#[derive(Clone, Debug, Args)]
pub struct StatePlace {
    /// Folder of the server
    /// [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
}

/// The part of a site that is here, and the folder in which its server remembers it.
#[derive(Clone, Debug, Args)]
pub struct SitePlace {
    /// Folder of the server: its journal, and pools whose group says no folder
    /// [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,

    /// The site of the file that is here, if it has several [default: that of its table serve]
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
}
