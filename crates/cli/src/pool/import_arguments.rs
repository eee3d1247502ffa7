//! Arguments of `spindle pool import`.

use crate::remote_arguments::RemoteArguments;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle pool import --list                          list the pools on the block devices of this machine
  spindle pool import --pool mail --into /srv/mail    write its record with the drives found
  spindle pool import /srv/mail                       the same for drives that are files in that folder
  spindle pool import /dev/sdb nbds://shelf2/disk1 --into /srv/mail
  spindle pool import --all --recovery-key-file key   all pools, and the site that served them, on a new machine
  spindle pool import --all /srv/pools --list         the same for drives in files, without writing anything

Drives are only read, and the pool is not opened for writing. If the drives are files, the record is written beside them; \
otherwise to the folder of --into, or to a folder with the pool's name. If two disks have the superblock of the same drive, \
one of them is a copy, and nothing is written.

With --all, the records of all pools are written, and a site file with the targets, unit numbers, rights, exports and \
schedules that the pools keep: 'spindle serve' goes on where the lost machine ended. Secrets come back with the recovery \
key that was shown once; without it, the answer lists those to put back by hand. Until the site is served or applied, the \
command may be repeated.

Ends with 0 if records were written or pools were listed, 1 if none was found, or with --all if a pool or a secret is \
lacking, 2 if nothing was done.")]
pub struct ImportArguments {
    /// Devices, URIs, files, or folders whose files are examined [default: all block devices]
    #[arg(value_name = "DIR|DEVICE|URI")]
    pub places: Vec<PathBuf>,

    /// Name or UUID of the pool, if several are found
    #[arg(long, value_name = "NAME|UUID")]
    pub pool: Option<String>,

    /// Write the record to this folder, which is created if missing
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["list", "all"])]
    pub into: Option<PathBuf>,

    /// List the pools found, and write nothing
    #[arg(long)]
    pub list: bool,

    /// Bring back the site that served the pools, all of them
    #[arg(long)]
    pub all: bool,

    /// With --all: file with the recovery key of the site's secrets
    #[arg(long, value_name = "FILE", requires = "all")]
    pub recovery_key_file: Option<PathBuf>,

    /// With --all: write the site file here, and secrets beside it [default: site.toml of the server's folder]
    #[arg(long, value_name = "FILE", requires = "all", conflicts_with = "list")]
    pub output: Option<PathBuf>,

    /// With --all: UUID of the site that is to come back, if the pools are of several
    #[arg(long, value_name = "UUID", requires = "all")]
    pub site: Option<String>,

    /// With --all: go on although a pool cannot be read, or cannot be as it was
    #[arg(long, requires = "all")]
    pub partial: bool,

    /// With --all: folder of the server that is to be
    /// [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER", requires = "all")]
    pub state: Option<PathBuf>,

    #[command(flatten)]
    pub remote: RemoteArguments,
}
