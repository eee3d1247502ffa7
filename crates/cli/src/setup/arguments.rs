//! Arguments of `spindle setup`.

use clap::Args;
use std::path::PathBuf;

/// Largest size of a volume, in GiB.
const VOLUME_GB_MAX: f64 = 65_536.0;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle setup                           asks, shows the site file, writes it when you say yes
  spindle setup --disks free --host iqn.2026-11.org.example:mail1 --address 192.0.2.10 --yes
  spindle setup --disks sdb,sdc,sdd,sde --log-disks sdd,sde
  spindle setup --folder trial --gb 4     without disks, to try it; it protects nothing

The site file has pools for databases and for logs, a volume in each, targets for one host with a CHAP secret, and backups: one \
an hour, of which 24 stay, and one a day, of which 14 stay. A running server applies it at once; else the commands that start \
one are printed, and the host's commands from its iSCSI initiator to a mounted filesystem.

A disk that is not free is refused, and so is a site file that is there already. Every block has two copies on different drives. \
Without --log-disks: below four disks, one pool has databases and logs. From four on, logs have a pool of their own: if two kinds \
of disks are there, rotating or not, and two or more of each, the kind with less room; else a quarter of the disks, at \
least two, the smallest. Pools of four drives and more keep room for a lost one. Volumes take 60 % of a pool; \
where they share one, 45 % for databases and 15 % for logs. The rest is for backups.

Ends with 0, 1 if the test message was not delivered, 2 if it was refused.")]
pub struct SetupArguments {
    /// Disks of the pools, by path, by name below /dev/disk/by-id or by kernel name; or 'free' for all that are free
    #[arg(long, value_name = "DISK", value_delimiter = ',', conflicts_with = "folder")]
    pub disks: Vec<String>,

    /// Disks of the logs, among --disks or besides them; or 'none' for one pool of all [default: chosen, and said]
    #[arg(long, value_name = "DISK", value_delimiter = ',', conflicts_with = "folder")]
    pub log_disks: Vec<String>,

    /// Make drives as files in this folder instead, to try it without disks: they protect nothing
    #[arg(long, value_name = "FOLDER", requires = "gb")]
    pub folder: Option<PathBuf>,

    /// With --folder: size of the drive files together, in GB (1000^3 bytes); at most a tenth of the free space
    #[arg(long, value_name = "N", requires = "folder", value_parser = parse_gb)]
    pub gb: Option<f64>,

    /// iSCSI name of the mail host, as its /etc/iscsi/initiatorname.iscsi says it; NAME is its CHAP user
    /// [default: the end of the iSCSI name]
    #[arg(long, value_name = "IQN[=NAME]")]
    pub host: Option<String>,

    /// IP address of this machine at which the host reaches it, with or without a port
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,

    /// Size of the volume for databases, in GiB [default: 60 % of its pool, or 45 % with the logs in it]
    #[arg(long, value_name = "N", value_parser = parse_gb)]
    pub database_gb: Option<f64>,

    /// Size of the volume for logs, in GiB [default: 60 % of its pool, or 15 % with the databases in it]
    #[arg(long, value_name = "N", value_parser = parse_gb)]
    pub log_gb: Option<f64>,

    /// Mail address for warnings and errors [default: none]
    #[arg(long, value_name = "ADDRESS", requires = "mail_server")]
    pub mail: Option<String>,

    /// Mail server for them; port 25 if none is said. Another machine is spoken to over TLS
    #[arg(long, value_name = "HOST[:PORT]", requires = "mail")]
    pub mail_server: Option<String>,

    /// Send mail to that server without TLS: everyone on the way can read it
    #[arg(long, requires = "mail_server")]
    pub mail_unencrypted: bool,

    /// Site file to write [default: /etc/spindle/site.toml if the package is installed, else ./site.toml]
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,

    /// Folder of the server
    /// [default: $STATE_DIRECTORY, /var/lib/spindle for root, ~/.local/state/spindle for others]
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,

    /// Only show the site file
    #[arg(long)]
    pub dry_run: bool,

    /// Ask nothing: write and apply
    #[arg(long)]
    pub yes: bool,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
}

fn parse_gb(text: &str) -> Result<f64, String> {
    let gb: Option<f64> = text.parse().ok().filter(|gb| *gb > 0.0 && *gb <= VOLUME_GB_MAX);
    gb.ok_or_else(|| {
        format!("{text:?} is no number of GB from 0 to {VOLUME_GB_MAX}; say a number, such as 500")
    })
}
