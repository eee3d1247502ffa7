//! Arguments of `spindle group`.

use crate::server::place::ServerAddress;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle group create mail-all mail/store logs/store-log
  spindle group snapshot mail/mail-all@monday         both volumes, at one moment
  spindle group show mail/mail-all
  spindle group clone mail/mail-all@monday --suffix -try
  spindle group rollback mail/mail-all@monday         what is there now stays as mail/store~1 and logs/store-log~1
  spindle group delete mail/mail-all@monday           the snapshot
  spindle group delete mail/mail-all                  the group: its volumes and snapshots stay

Each of these happens to all volumes of the group or to none, whatever interrupts it; only the deletion of a group in
several pools, or of its snapshot, goes pool by pool, and is called again if it was interrupted. A group may have volumes
in several pools: name it by any of them. If 'spindle serve' has the pools open, it does the work, under their clients;
then POOL may also be the pool's name, at the server with the usual state folder or at --server. Of pools that nobody has
open, the others are found if their folders lie beside the one named; otherwise say --with. Any other process that has a
pool open has to be ended first. Ends with 0 on success, 2 on failure.")]
pub struct GroupArguments {
    #[command(subcommand)]
    pub verb: GroupVerb,

    #[command(flatten)]
    pub server: ServerAddress,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,

    /// Folder of another pool of the group, if it does not lie beside the one named; repeatable
    #[arg(long, global = true, value_name = "POOL")]
    pub with: Vec<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum GroupVerb {
    /// Make a group of volumes, of one pool or several
    #[command(after_help = "Examples:
  spindle group create mail-all mail/store mail/queue
  spindle group create mail-all mail/store logs/store-log

A group has up to 124 volumes, up to 123 in each of several pools, and a volume is in one group at most. A volume of a
group is not deleted; clones and rollbacks of it alone are possible.")]
    Create {
        /// Name of the group, without the pool
        #[arg(value_name = "NAME")]
        name: String,

        /// Volumes of one pool or several
        #[arg(value_name = "POOL/VOLUME", required = true)]
        volumes: Vec<PathBuf>,
    },
    /// Take a snapshot of all volumes of a group at one moment
    #[command(after_help = "Example:
  spindle group snapshot mail/mail-all@monday         read it with: spindle export mail/store@monday")]
    Snapshot {
        /// The pool, the group, and the name of the snapshot
        #[arg(value_name = "POOL/GROUP@SNAPSHOT")]
        snapshot: PathBuf,

        /// Text to keep with the snapshot: at most 768 bytes
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Make a clone of each volume of a group, from a snapshot
    #[command(after_help = "Example:
  spindle group clone mail/mail-all@monday --suffix -try     makes mail/store-try and mail/queue-try

The clones are in no group. 'spindle volume clone --help' says what they share with their sources.")]
    Clone {
        /// The snapshot of the group
        #[arg(value_name = "POOL/GROUP@SNAPSHOT")]
        snapshot: PathBuf,

        /// Added to the name of each volume, to make the name of its clone
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        suffix: String,

        /// Copy all data, so that the clones need their sources no more
        #[arg(long)]
        independent: bool,
    },
    /// Take all volumes of a group back to a snapshot, and keep their present state as other volumes
    #[command(after_help = "Examples:
  spindle group rollback mail/mail-all@monday         asks for the name of the group
  spindle group rollback mail/mail-all@monday --yes mail-all
  spindle group rollback mail/mail-all@monday --force

The present state of each volume stays as a read-only volume, as after 'spindle volume rollback'. Volumes that a server
serves are rolled back with --force alone: they are withheld from each client then until it has let go of what it cached.")]
    Rollback {
        /// The snapshot of the group
        #[arg(value_name = "POOL/GROUP@SNAPSHOT")]
        snapshot: PathBuf,

        /// Name of the group, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,

        /// Although a server serves the volumes: they are withheld from their clients
        #[arg(long)]
        force: bool,
    },
    /// Delete a group, or a snapshot of one
    #[command(after_help = "Examples:
  spindle group delete mail/mail-all@monday           the snapshots of all its volumes; asks for its name
  spindle group delete mail/mail-all                  the group: its volumes stay, and so do its snapshots, as
                                                      snapshots of the single volumes")]
    Delete {
        /// Group or snapshot to delete
        #[arg(value_name = "POOL/GROUP[@SNAPSHOT]")]
        group: PathBuf,

        /// Name of the snapshot, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Show the groups of a pool, or one of them: volumes and snapshots
    #[command(after_help = "Example:
  spindle group show mail --json                      all groups of the pool")]
    Show {
        /// The pool, or a group of it
        #[arg(value_name = "POOL[/GROUP]")]
        group: PathBuf,
    },
}
