//! Arguments of `spindle protect`.

use super::{
    drill_set::DrillArguments,
    mailboxes::FetchArguments,
    rebuild_set::RebuildArguments,
    recovery::arguments::{ClosingArguments, FindingArguments, ImageMountArguments, OpeningArguments},
    report_set::SetReportArguments,
    restore::{DialToneArguments, MergeArguments, RestoreArguments},
    set_arguments::SetVerb,
    vault::arguments::VaultVerb,
    verify_set::SetVerificationArguments,
};
use crate::server::place::ServerPlace;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect list
  spindle protect now mail --hold upgrade
  spindle protect list mail --server https://array:7780 --token-file token --json
  spindle protect run site.toml --server https://array:7780 --token-file agent.token

docs/protect.md says how sets are described and what the labels of backups mean.

Ends with 0, and with 2 if it was refused.")]
pub struct ProtectArguments {
    #[command(subcommand)]
    pub verb: ProtectVerb,

    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ProtectVerb {
    #[command(flatten)]
    Set(SetVerb),
    /// Take all volumes of a set back to a backup, or clone them beside the live ones
    Restore(RestoreArguments),
    /// Put empty databases into the places of a set's lost ones: mail is sent and received at once
    DialTone(DialToneArguments),
    /// Join a dial tone with the lost databases that were restored beside it: nothing of either is lost
    Merge(MergeArguments),
    /// Prove a backup: export its snapshots, and check the databases and logs in them
    Verify(SetVerificationArguments),
    /// Hold a drill: clone a backup beside the live volumes, prove it, drop the clones, and say how long it took
    Drill(DrillArguments),
    /// Report what became of a set's backups: slots, labels, verifications, deletions, restores, drills
    Report(SetReportArguments),
    /// Make a lost catalogue again, from the notes of the snapshots
    Rebuild(RebuildArguments),
    /// Copy backups into a folder or a bucket elsewhere, in restic's format, and get them back
    Vault {
        #[command(subcommand)]
        verb: VaultVerb,
    },
    /// Find a mailbox or a path in the backups of a set
    Find(FindingArguments),
    /// Copy a mailbox of Spindle's databases in a backup into files of mail
    Fetch(FetchArguments),
    /// Mount the filesystems of a backup on this host, from clones that go again
    Open(OpeningArguments),
    /// Close a backup that was opened
    Close(ClosingArguments),
    /// Mount the volumes of a backup as files
    Mount(ImageMountArguments),
    /// Keep sets on this mail host: run their hooks, freeze filesystems, and ask the server of the pools for cuts
    Run(ProtectRunArguments),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect run site.toml --server https://array:7780 --token-file agent.token
  spindle protect run site.toml --set mail --once      for a timer: make what is due, and end
  spindle protect run site.toml --dry-run              what would be made and deleted, and what will exist

It keeps the sets of the site file that hooks or filesystems of this host freeze; the server of the pools keeps the others by \
itself. The token has the role operate. Freezing filesystems needs root; hooks run as the set's user. If this process dies, \
filesystems thaw, and shipped hooks thaw their applications at the deadline; after a start it goes on with its catalogue.

With --json each line of standard output is an object: an event, or with --dry-run an outlook.

Exits with 0 after SIGINT, SIGTERM or --once, with 1 if with --once a backup failed, and with 2 if it cannot begin.")]
pub struct ProtectRunArguments {
    /// The site file
    #[arg(value_name = "SITE.TOML")]
    pub site: PathBuf,

    /// Only this set (repeatable)
    #[arg(long = "set", value_name = "SET")]
    pub sets: Vec<String>,

    /// Folder of the catalogues, on a filesystem that no set freezes
    /// [default: $STATE_DIRECTORY/sets, /var/lib/spindle/sets for root, ~/.local/state/spindle/sets for others]
    #[arg(long, value_name = "FOLDER")]
    pub catalogues: Option<PathBuf>,

    /// Make what is due now, and end
    #[arg(long)]
    pub once: bool,

    /// Change nothing: show what would be made and deleted now, and what will exist after a day, a month and a year
    #[arg(long, conflicts_with = "once")]
    pub dry_run: bool,
}
