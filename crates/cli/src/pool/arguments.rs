//! What may be written after the verbs that make pools and volumes.

use crate::quantity::parse_size;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use world::ByteCount;

/// Drives of one pool, at most, that are made as files.
const DRIVES_MAX: u16 = 64;

/// `spindle pool`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:
  spindle pool create mail --size 100GiB              three drives as files in the folder mail, on one disk
  spindle pool create mail --device /dev/sdb --device /dev/sdc --device /dev/sdd
  spindle volume create mail/store 40GiB
  spindle export mail/store --iscsi 10.0.0.5
  spindle pool show mail

A pool is a folder that says which drives it has. Ends with 0 if it was done, 2 if not.",
    max_term_width = 100
)]
pub struct PoolArguments {
    /// What is to be done.
    #[command(subcommand)]
    pub verb: PoolVerb,
}

/// What can be done with pools.
#[derive(Clone, Debug, Subcommand)]
pub enum PoolVerb {
    /// Make a pool: of files in its folder, or of raw devices that hold nothing
    Create {
        /// Its folder, which must not be there or be empty; its name is the pool's
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Make drives as files of this size
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
        size: Option<ByteCount>,

        /// How many; from two on everything is there twice, and from three on one may be lost and the pool
        /// opened without a word
        #[arg(long, value_name = "N", default_value_t = 3, requires = "size",
              value_parser = clap::value_parser!(u16).range(1..=i64::from(DRIVES_MAX)))]
        drives: u16,

        /// A raw block device that holds nothing; repeat for more
        #[arg(long, value_name = "DEVICE", required_unless_present = "size")]
        device: Vec<PathBuf>,
    },
    /// Open a pool without the drives that are missing, and take the loss of what they alone may hold
    ForceOpen {
        /// Its folder
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Say what a pool has: drives, room, volumes and snapshots
    Show {
        /// Its folder
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `spindle volume`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:
  spindle volume create mail/store 40GiB              thin: it takes room as it is written
  spindle volume snapshot mail/store@monday
  spindle export mail/store@monday                    read-only, as it was
  spindle volume delete mail/store@monday

While a pool is exported its process has it, and nobody else. Ends with 0 if it was done, 2 if not.",
    max_term_width = 100
)]
pub struct VolumeArguments {
    /// What is to be done.
    #[command(subcommand)]
    pub verb: VolumeVerb,
}

/// What can be done with volumes.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeVerb {
    /// Make a volume
    Create {
        /// Its pool and its name
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// What it holds when it is full: a multiple of 512 bytes
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: ByteCount,

        /// Let writes be answered before they are stable, for clients that flush
        #[arg(long)]
        write_cache: bool,
    },
    /// Keep a volume as it is now, under a name
    Snapshot {
        /// Its pool, its name, and that of the snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: PathBuf,
    },
    /// Delete a volume without snapshots, or a snapshot
    Delete {
        /// Which
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        volume: PathBuf,
    },
}
