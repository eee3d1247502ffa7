//! Arguments of the verbs that open backups on this host.

use crate::quantity::parse_duration;
use clap::Args;
use std::{path::PathBuf, time::Duration};
use world::real::companions::ProcessIdentity;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect mount mail@17 /mnt/look         backup 17, until Ctrl-C
  spindle protect mount mail /mnt/look --for 2h   the newest full backup

Each volume is a file of its real size there, each partition too, and the databases and logs of Spindle's own format are files in \
a folder of their volume. Nothing can be written. The bytes come from the snapshots as they are read, so the server has to serve \
NBD ([serve] nbd); the backup is in use meanwhile, and no rule deletes it. A user who may mount FUSE needs no root. It takes a \
token with the role admin.

Exits with 0 at its time, after SIGINT or SIGTERM, or when somebody unmounts the folder, and with 2 if it was refused.")]
pub struct ImageMountArguments {
    /// Set, and number or name of the backup [default: the newest full one]
    #[arg(value_name = "SET[@BACKUP]")]
    pub backup: String,

    /// Empty folder to mount at
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,

    /// Time after which it ends
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "24h")]
    pub span: Duration,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect open mail@17 --for 24h          its filesystems below /run/spindle/open/mail-17
  spindle protect open mail --at /mnt/yesterday   the newest full backup
  spindle protect open --list

On the mail host, as root. The server clones the snapshots, exports the clones, and this host mounts their filesystems (ext2 to \
ext4, XFS; of partitions, too), read-only: their journals are replayed on the clones. Volumes of Spindle's own format are shown as \
files. What cannot be mounted is named, and the rest goes on. It then goes on in the background, until \
'spindle protect close' or its time ends it; clones and exports are deleted then, also if its process is killed. The backup is in \
use meanwhile. It takes a token with the role admin, and the server has to serve NBD ([serve] nbd).

Exits with 0 once all that can be mounted is, and with 2 if it was refused or nothing can be.")]
pub struct OpeningArguments {
    /// Set, and number or name of the backup [default: the newest full one]
    #[arg(value_name = "SET[@BACKUP]", required_unless_present = "list")]
    pub backup: Option<String>,

    /// Time after which it is closed
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "24h")]
    pub span: Duration,

    /// Folder for the filesystems, empty or not yet there [default: /run/spindle/open/SET-NUMBER]
    #[arg(long, value_name = "FOLDER")]
    pub at: Option<PathBuf>,

    /// Allow writes: they go to the clones, and are gone with them
    #[arg(long)]
    pub read_write: bool,

    /// Stay in the foreground until SIGINT or SIGTERM, as a service does
    #[arg(long)]
    pub foreground: bool,

    /// List the open backups of this host
    #[arg(long, conflicts_with_all = ["backup", "at", "read_write", "foreground"])]
    pub list: bool,

    /// Started by this program: the process that serves the images
    #[arg(long, hide = true)]
    pub kept: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect close mail@17
  spindle protect close /mnt/yesterday
  spindle protect close --all     also what killed processes left, here and on the server

Unmounts, and deletes the clones and exports. A process that uses a file there is named; leave the folder then: it is tried again \
until it is closed.

Exits with 0 if it is closed, with 1 if something is in use, and with 2 if it was refused.")]
pub struct ClosingArguments {
    /// SET@NUMBER, or the folder
    #[arg(value_name = "SET@NUMBER|FOLDER", required_unless_present_any = ["all", "watch"])]
    pub which: Option<String>,

    /// All that is open here, and what is overdue on the server
    #[arg(long, conflicts_with = "which")]
    pub all: bool,

    /// Started by this program: takes away what this file names when its keeper is gone
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["which", "all"], requires = "keeper")]
    pub watch: Option<PathBuf>,

    /// The process that is watched
    #[arg(long, hide = true, value_name = "PROCESS")]
    pub keeper: Option<ProcessIdentity>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect find mail var/vmail/anna/Maildir/cur
  spindle protect find mail --mailbox anna --since 7d
  spindle protect find mail --mailbox anna@example.org --at-most 3 --json
  spindle protect find mail --mailbox 17 --first  in databases of Spindle's own format, too

Opens the backups one after the other, the newest first, read-only as 'spindle protect open' does, and closes them again: on the \
mail host, as root. A path is looked for in each filesystem of the set. A mailbox is a user's folder of Dovecot's usual layouts: \
Maildir (with the folders in it), mdbox or sdbox, by name, or DOMAIN/NAME for NAME@DOMAIN. Of a mailbox, mails are counted: the \
files of a Maildir and of an sdbox; of an mdbox, whose files hold many mails each, bytes only. A number is also looked for as \
a mailbox of databases in Spindle's own format; 'spindle protect fetch' has its mails then.

Exits with 0 if one has it, with 1 if none has, and with 2 if it was refused or some backups could not be looked into.")]
pub struct FindingArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Path in a filesystem of the set, from its root
    #[arg(value_name = "PATH", required_unless_present = "mailbox")]
    pub path: Option<PathBuf>,

    /// Name of a mailbox
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    pub mailbox: Option<String>,

    /// Only backups that are not older
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub since: Option<Duration>,

    /// Look into so many backups at most
    #[arg(long, value_name = "COUNT")]
    pub at_most: Option<usize>,

    /// End with the first backup that has it
    #[arg(long)]
    pub first: bool,
}
