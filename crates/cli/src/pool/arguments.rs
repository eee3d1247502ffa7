//! Arguments of `spindle pool` and `spindle volume`.

use super::volume_limits::VolumeLimits;
use crate::quantity::parse_size;
use array::format::row::WriteCache;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use world::ByteCount;

/// Drives of one pool, at most, that are made as files.
const DRIVES_MAX: u16 = 64;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle pool create mail --size 100GiB              three drives as files in the folder mail, on one disk
  spindle pool create mail --device /dev/sdb --device /dev/sdc --device /dev/sdd
  spindle volume create mail/store 40GiB
  spindle export mail/store --iscsi 10.0.0.5
  spindle pool show mail                              drives, room, what lacks a copy
  spindle pool add-drive mail --size 100GiB           one more file; missing copies are made on it
  spindle pool add-drive mail --device /dev/sde
  spindle pool import mail                            the folder's record is lost: write it again from the drives
  spindle pool scrub mail                             check every copy of everything, and fix wrong ones
  spindle pool salvage mail/store store.img           what can be read of a damaged pool's volume, as a file

A pool is a folder that says which drives it has. One process at a time has it open; beside it, 'pool show' works.
Ends with 0 if it was done, 1 if something is lost or cannot be read, 2 if it was not done.")]
pub struct PoolArguments {
    #[command(subcommand)]
    pub verb: PoolVerb,

    /// Print the answer as JSON on standard output; all else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PoolVerb {
    /// Make a pool: of files in its folder, or of raw devices that hold nothing
    #[command(after_help = "Examples:
  spindle pool create mail --size 100GiB --drives 4   four drives, as files in the folder mail
  spindle pool create mail --size 100GiB --drives 5 --copies 3")]
    Create {
        /// Folder of the pool, which must be missing or empty; its name is the pool's
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Make drives as files of this size
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
        size: Option<ByteCount>,

        /// Number of drives; with two or more everything is stored twice, and with three or more one may be lost, and the pool
        /// still opens normally
        #[arg(long, value_name = "N", default_value_t = 3, requires = "size",
              value_parser = clap::value_parser!(u16).range(1..=i64::from(DRIVES_MAX)))]
        drives: u16,

        /// A raw block device that holds nothing; repeat for more
        #[arg(long, value_name = "DEVICE", required_unless_present = "size")]
        device: Vec<PathBuf>,

        /// Copies of everything: with three, any two drives may be lost; two, or one in a pool of one drive, if not given
        #[arg(long, value_name = "N", value_parser = parse_copies)]
        copies: Option<usize>,
    },
    /// Take one more drive into a pool, and make the copies that are missing
    #[command(
        name = "add-drive",
        after_help = "Example:
  spindle pool add-drive mail --device /dev/sde       after /dev/sdc was lost

What the drive held is lost. Drives that are not there, and that nothing of the pool lies on alone, are the pool's
no more."
    )]
    AddDrive {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Make the drive as a file of this size in the pool's folder
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
        size: Option<ByteCount>,

        /// A raw block device that holds nothing
        #[arg(long, value_name = "DEVICE", required_unless_present = "size")]
        device: Option<PathBuf>,
    },
    /// Find pools by the superblocks of their drives, and write the record of one whose record is lost
    #[command(after_help = "Examples:
  spindle pool import --list                          what pools the block devices of this machine hold
  spindle pool import --pool mail --into /srv/mail    write its record, with the drives that were found
  spindle pool import /srv/mail                       the same for drives that are files in that folder

The drives are read, never written, and the pool is not opened. Of a pool whose drives are files the record is written
beside them; of one on devices to the folder of --into, or to one with the pool's name. If two disks have the superblock of one
drive, one is a copy, and nothing is written. Ends with 0 if a record was written or pools are listed, with 1 if --list finds
none, with 2 if nothing was done.")]
    Import {
        /// Folders whose files are looked at, devices, files; if none is named, all block devices
        #[arg(value_name = "DIR|DEVICE")]
        places: Vec<PathBuf>,

        /// The pool that is meant, by its name or UUID, if there are several
        #[arg(long, value_name = "NAME|UUID")]
        pool: Option<String>,

        /// Write the record into this folder; it is made if it is not there
        #[arg(long, value_name = "FOLDER", conflicts_with = "list")]
        into: Option<PathBuf>,

        /// List the pools that are found, and write nothing
        #[arg(long)]
        list: bool,
    },
    /// Check every copy of everything in a pool, and fix those that are wrong
    #[command(after_help = "Example:
  spindle pool scrub mail --json                      what was checked, fixed, lost

Ends with 1 if no copy of something is right. A pool that is exported is scrubbed automatically, every seven days.")]
    Scrub {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Open a pool without the drives that are missing, and take the loss of what they alone may hold
    #[command(after_help = "Example:
  spindle pool force-open mail                        without the drives that are gone for good

Should they come back, they are not used any more, though 'spindle pool salvage' reads what they alone hold.
'spindle pool scrub' says what was lost. It helps where drives are missing, not where the log or the catalogue is
damaged: a pool that does not open says whether it would.")]
    ForceOpen {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Copy all that can be read of a volume or a snapshot to a file; the pool may be damaged, and is not written
    #[command(after_help = "Examples:
  spindle pool salvage mail/store store.img           what was lost is named in store.img.map
  spindle pool salvage mail/store@monday monday.img   a snapshot
  ddrescuelog --list-blocks=- store.img.map           the blocks of 512 bytes that could not be read

It works on every pool, also on one that opens in no way: the newest state that can be read, the log as far as it goes, and
copies on drives that fell behind. OUT is sparse; what could not be read is zero there. OUT.map is a mapfile of GNU
ddrescue.

Ends with 0 if the volume is whole, 1 if something is missing or may be older than what was acknowledged, 2 if it was not
done: OUT is there already, there is no room for it, there is no such volume.")]
    Salvage {
        /// The volume, or the snapshot
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        volume: PathBuf,

        /// The file to make
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
    /// Show a pool's drives, room, volumes and snapshots; of one that does not open, what can be read
    #[command(after_help = "Example:
  spindle pool show mail --json                       for a program that watches how full it is

Of a damaged pool it says what can be read and what is missing, volume by volume, and ends with 1.")]
    Show {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume create mail/store 40GiB              thin: it takes room as it is written
  spindle volume create mail/scratch 40GiB --raid0    one copy at rest: half the room, lost with its drive
  spindle volume create mail/logs 40GiB --limit 10GiB --iops 500
  spindle volume set mail/store --reserve 20GiB       no other volume takes that of the pool
  spindle volume resize mail/store 60GiB
  spindle volume rename mail/store letters
  spindle volume snapshot mail/store@monday
  spindle export mail/store@monday                    read-only, as it was
  spindle volume delete mail/store@monday

They need a pool that no process has open: end its export first. Ends with 0 if it was done, 2 if not.")]
pub struct VolumeArguments {
    #[command(subcommand)]
    pub verb: VolumeVerb,

    /// Print the answer as JSON on standard output; all else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum VolumeVerb {
    /// Make a volume
    #[command(after_help = "Examples:
  spindle volume create mail/store 40GiB              thin: it takes room as it is written
  spindle volume create mail/logs 40GiB --limit 10GiB --iops 500 --mbps 20")]
    Create {
        /// Its pool and its name
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Size of the volume: a multiple of 512 bytes
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: ByteCount,

        /// Acknowledge writes before they are stable, for clients that flush [default: off]
        #[arg(long, value_name = "STATE", ignore_case = true, num_args = 0..=1, default_missing_value = "on")]
        write_cache: Option<WriteCacheState>,

        /// Keep one copy of what rests, for data that can be had again: a lost drive takes what lay there
        #[arg(long)]
        raid0: bool,

        /// Limits and reserve.
        #[command(flatten)]
        limits: VolumeLimits,
    },
    /// Change what a volume may take and how fast, what is kept for it, and its write cache
    #[command(
        group = ArgGroup::new("what is set")
            .args(["limit", "reserve", "iops", "mbps", "write_cache"]).required(true).multiple(true),
        override_usage = "spindle volume set [OPTIONS] <POOL/VOLUME>",
        after_help = "Examples:
  spindle volume set mail/store --reserve 20GiB       no other volume takes that of the pool
  spindle volume set mail/logs --limit 10GiB --iops 500 --mbps 20
  spindle volume set mail/logs --limit none --write-cache off

What is not said stays as it is; 'spindle pool show' says what is set. A limit below what a volume has takes
nothing from it: writes of new data are refused until it has less."
    )]
    Set {
        /// Its pool and its name
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Limits and reserve.
        #[command(flatten)]
        limits: VolumeLimits,

        /// Acknowledge writes before they are stable, for clients that flush
        #[arg(long, value_name = "STATE", ignore_case = true)]
        write_cache: Option<WriteCacheState>,
    },
    /// Give a volume another size
    #[command(after_help = "Example:
  spindle volume resize mail/store 60GiB

A volume that grows has zeroes behind its old end. What lies behind the new end of one that shrinks is gone;
snapshots keep it.")]
    Resize {
        /// Its pool and its name
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Size from now on: a multiple of 512 bytes
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: ByteCount,

        /// Let it become smaller, and lose what lies behind its new end
        #[arg(long)]
        shrink: bool,
    },
    /// Give a volume another name
    #[command(after_help = "Example:
  spindle volume rename mail/store letters            from now on mail/letters, its snapshots mail/letters@...")]
    Rename {
        /// Its pool and its name
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// The new name, without the pool
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Keep a volume as it is now, under a name
    #[command(after_help = "Example:
  spindle volume snapshot mail/store@monday           read it with: spindle export mail/store@monday")]
    Snapshot {
        /// The pool, the volume, and the name of the snapshot
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        snapshot: PathBuf,
    },
    /// Delete a volume without snapshots, or a snapshot
    #[command(after_help = "Example:
  spindle volume delete mail/store@monday             what it alone kept is free soon after")]
    Delete {
        /// Volume or snapshot to delete
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        volume: PathBuf,
    },
}

fn parse_copies(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(copies @ 1..=3) => Ok(copies),
        _ => Err(format!("{text:?} is no number of copies: 2, 3, or 1 in a pool of one drive")),
    }
}

/// The write cache of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteCacheState {
    /// Before they are stable: a flush makes them so
    On,
    /// After they are stable
    Off,
}

impl WriteCacheState {
    /// As a pool keeps it.
    pub fn setting(self) -> WriteCache {
        match self {
            Self::On => WriteCache::On,
            Self::Off => WriteCache::Off,
        }
    }
}
