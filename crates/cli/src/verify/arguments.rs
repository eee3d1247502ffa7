//! Arguments of `spindle verify`.

use crate::{
    quantity::{parse_rate, parse_size},
    remote_arguments::RemoteArguments,
};
use ::verify::running::VerifyLevel;
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
  spindle verify mail/store@monday --level recover                 a snapshot of a stopped pool: its databases come up
                                                  in memory, and every record is read
  spindle verify nbds://array/store@monday nbds://array/logs@monday            the same from a server
  spindle verify /mnt/snapshot --json | jq -r '.files[] | select(.result == \"damaged\") | .path'

Input is never written to, so snapshots and backups may be mounted read-only. docs/verify.md explains what is checked,
what is not, and what a clean result proves.

Ends with 0 if everything is clean, 1 if something is damaged or cannot be recovered, 2 if not everything could be checked.")]
pub struct VerifyArguments {
    /// Databases, logs, checkpoints; folders with everything below them; block devices and images; volumes and
    /// snapshots of a stopped pool (POOL/VOLUME@SNAPSHOT); remote devices (iscsi://HOST/TARGET/LUN,
    /// nbd://HOST/EXPORT, nbds://, nbd+unix://). File types are detected by content; of a device, the files of
    /// Spindle's extent directory are checked
    #[arg(value_name = "SOURCE", required = true)]
    pub paths: Vec<PathBuf>,

    /// Depth of the check: chain (headers, whole logs, which files go together; no pages), pages (also the checksum
    /// of every page), deep (also trees, and records of logs), recover (also a recovery in memory, and every
    /// record read) [default: pages]
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, conflicts_with_all = ["scan", "fix_ecc", "deep"])]
    pub level: Option<VerifyLevel>,

    /// Also check the trees of databases and the records of logs: links, order of keys, space. The same as
    /// --level deep
    #[arg(long, conflicts_with = "scan")]
    pub deep: bool,

    /// Memory for the changes that a recovery makes [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub scratch: Option<ByteCount>,

    /// Search devices and images without a mountable filesystem for databases and logs
    #[arg(long, conflicts_with_all = ["fix_ecc", "resume", "at_most"])]
    pub scan: bool,

    /// Copy the one file SOURCE to OUT, and correct every page or segment with a single flipped bit
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

    #[command(flatten)]
    pub remote: RemoteArguments,
}

impl VerifyArguments {
    /// Those of a check of these sources, without a person who said more.
    pub fn of(paths: Vec<PathBuf>, level: VerifyLevel) -> Self {
        Self {
            paths,
            level: Some(level),
            deep: false,
            scratch: None,
            scan: false,
            fix_ecc: None,
            resume: None,
            at_most: None,
            jobs: None,
            throttle: None,
            html: None,
            json: false,
            quiet: false,
            plain_io: false,
            remote: RemoteArguments::default(),
        }
    }

    pub fn level(&self) -> VerifyLevel {
        let usual = if self.deep { VerifyLevel::Deep } else { VerifyLevel::default() };
        self.level.unwrap_or(usual)
    }
}

/// A level by its name.
///
/// # Errors
///
/// There is none of that name.
pub fn parse_level(text: &str) -> Result<VerifyLevel, String> {
    let known = VerifyLevel::ALL.into_iter().find(|level| level.name() == text);
    known.ok_or_else(|| format!("{text:?} is no level; say chain, pages, deep or recover"))
}

/// Threads at most: more than any machine has processors.
const JOBS_MAX: usize = 1_024;

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|&number| number <= JOBS_MAX).and_then(NonZeroUsize::new);
    number.ok_or_else(|| format!("{text:?} is not a number of threads; give 1 to {JOBS_MAX}"))
}
