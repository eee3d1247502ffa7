//! Arguments of the verbs about sets that a server keeps.

use crate::quantity::parse_duration;
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum SetVerb {
    /// List the sets with their backups: what each is worth, and why it stays
    #[command(after_help = "Examples:
  spindle protect list
  spindle protect list mail --json
  spindle protect list mail --space         also what the deletion of each would free: it reads the maps of the volumes

The server shows the backups of the sets that it keeps itself, as of the last minute.")]
    List {
        /// Only this set
        #[arg(value_name = "SET")]
        set: Option<String>,

        /// Also count what the deletion of each backup alone would free
        #[arg(long)]
        space: bool,
    },
    /// Make a backup now
    #[command(after_help = "Examples:
  spindle protect now mail
  spindle protect now mail --hold upgrade

Without a hold, it goes when no rule of the set wants it.")]
    Now {
        /// Name of the set
        #[arg(value_name = "SET")]
        set: String,

        /// Hold of this name: the backup stays until it is released
        #[arg(long, value_name = "NAME")]
        hold: Option<String>,
    },
    /// Hold a backup: it stays until the hold is released
    #[command(after_help = "Example:
  spindle protect hold mail 17 audit-2026")]
    Hold(BackupHoldArguments),
    /// Release a hold; if nothing else wants the backup, it goes after the next one
    #[command(after_help = "Example:
  spindle protect release mail 17 audit-2026")]
    Release(BackupHoldArguments),
    /// Lock a backup: until then nobody can delete it, and the lock only becomes longer
    #[command(after_help = "Example:
  spindle protect lock mail 17 --for 14d

The time counts from the cut, by a clock that nobody can set. It takes a token with the role admin.")]
    Lock {
        #[command(flatten)]
        backup: BackupArguments,

        /// Time from the cut, such as 12h or 14d
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        span: Duration,
    },
    /// Delete a backup that nothing holds, locks, uses or needs
    #[command(after_help = "Examples:
  spindle protect delete mail 17
  spindle protect delete mail 17 --last

It takes a token with the role admin.")]
    Delete {
        #[command(flatten)]
        backup: BackupArguments,

        /// Also if no other full backup of the set is left
        #[arg(long)]
        last: bool,
    },
}

/// A backup of a set.
#[derive(Clone, Debug, Args)]
pub struct BackupArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number of the backup, as 'spindle protect list' has it
    #[arg(value_name = "NUMBER")]
    pub number: u64,
}

/// A hold of a backup.
#[derive(Clone, Debug, Args)]
pub struct BackupHoldArguments {
    #[command(flatten)]
    pub backup: BackupArguments,

    /// Name of the hold
    #[arg(value_name = "NAME")]
    pub hold: String,
}
