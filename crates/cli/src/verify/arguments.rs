//! Arguments of `spindle verify`.

use crate::quantity::{parse_rate, parse_size};
use clap::Args;
use std::{num::NonZeroUsize, path::PathBuf};
use world::ByteCount;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle verify /mnt/snapshot                    all databases and logs below it, and whether they can be recovered
  spindle verify /mnt/db/priv1.edb                one database, page by page
  spindle verify /mnt/db /mnt/logs --deep         trees and log records too; logs on another volume
  spindle verify /mnt/db --throttle 200MB/s       while a server works on the same storage
  spindle verify /mnt/db --resume night.state     stop with Ctrl-C; the same command continues
  spindle verify /mnt/db --at-most 2TB --resume night.state        2 TB of it each night
  spindle verify priv1.edb --fix-ecc priv1-repaired.edb            a copy without single flipped bits
  spindle verify /dev/sdb --scan                  databases and logs on a device that nothing can mount
  spindle verify /mnt/snapshot --json | jq -r '.files[] | select(.result == \"damaged\") | .path'

Input is never written to, so snapshots and backups may be mounted read-only. docs/verify.md explains what is checked,
what is not, and what a clean result proves.

Ends with 0 if everything is clean, 1 if something is damaged or cannot be recovered, 2 if not everything could be checked.")]
pub struct VerifyArguments {
    /// Databases, logs, checkpoints; folders with everything below them; block devices. File types are
    /// detected by content
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    /// Also check the trees of databases and the records of logs: links, order of keys, space
    #[arg(long, conflicts_with = "scan")]
    pub deep: bool,

    /// Search devices and images without a mountable filesystem for databases and logs
    #[arg(long, conflicts_with_all = ["fix_ecc", "resume", "at_most"])]
    pub scan: bool,

    /// Copy the one PATH to OUT, and correct every page or segment with a single flipped bit
    #[arg(long, value_name = "OUT", conflicts_with_all = ["resume", "at_most"])]
    pub fix_ecc: Option<PathBuf>,

    /// Save progress in FILE, and continue from it; FILE is removed when everything is checked
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// Stop after reading SIZE of the databases, as Ctrl-C would
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub at_most: Option<ByteCount>,

    /// Threads that check the data read [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<NonZeroUsize>,

    /// Limit the read rate, such as 200MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub throttle: Option<ByteCount>,

    /// Also write the findings as an HTML page
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,

    /// Print the findings as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Print only the answer
    #[arg(long, short)]
    pub quiet: bool,

    /// Do not use io_uring
    #[arg(long)]
    pub plain_io: bool,
}

/// Threads at most: more than any machine has processors.
const JOBS_MAX: usize = 1_024;

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|&number| number <= JOBS_MAX).and_then(NonZeroUsize::new);
    number.ok_or_else(|| format!("{text:?} is not a number of threads; give 1 to {JOBS_MAX}"))
}
