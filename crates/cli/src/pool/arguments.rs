//! Arguments of `spindle pool` and `spindle volume`.

pub use super::setting_arguments::{FailureSetsState, SparingArgument, WriteCacheState};

use super::{
    import_arguments::ImportArguments,
    presentations::{PresentArguments, PresentationsArguments, WithdrawArguments},
    setting_arguments::parse_copies,
    upgrade::UpgradeArguments,
    volume_import::VolumeImportArguments,
    volume_limits::VolumeLimits,
    volume_readmission::ReadmitArguments,
};
use crate::{quantity::parse_size, remote_arguments::RemoteArguments, server::place::ServerAddress};
use array::format::DomainName;
use clap::{ArgGroup, Args, Subcommand};
use serving::pool::domains::{NamedDomain, parse_name};
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
  spindle pool show mail                              drives, space, missing copies
  spindle pool add-drive mail --size 100GiB           add a file as a drive, and make missing copies on it
  spindle pool add-drive mail --device /dev/sde
  spindle pool retire mail drive-2.spindle            empty a drive, and take it out of the pool
  spindle pool replace mail /dev/sdc /dev/sde
  spindle pool grow mail drive-1.spindle              use all of a drive that has become larger
  spindle pool level mail                             move data until all drives are about equally full
  spindle pool set mail --sparing single              keep room for a lost drive
  spindle pool set mail --domain shelf-2=/dev/sdc     which drives fail together
  spindle pool import mail                            rebuild a lost record from the drives
  spindle pool import --all                           rebuild the site from its drives, on a new machine
  spindle pool settle mail logs                       what became of snapshots of both that ended early
  spindle pool scrub mail                             check every copy of everything, and fix wrong ones
  spindle pool room mail                              full on which date, what takes the room, what gives some back
  spindle pool salvage mail/store store.img           copy everything readable of a volume, also of a damaged pool

A pool is a folder with a record of its drives. If 'spindle serve' has the pool open, it does the work, under its clients; \
then POOL may also be the pool's name, at the server with the usual state folder or at --server. Ctrl-C ends the wait, and \
the server goes on: see 'spindle job'. Any other process that has the pool open has to be ended first, but for 'pool show'. \
Ends with 0 on success, 1 if data is lost or cannot be read, 2 if nothing was done, or work in a server is not over.")]
pub struct PoolArguments {
    #[command(subcommand)]
    pub verb: PoolVerb,

    #[command(flatten)]
    pub server: ServerAddress,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PoolVerb {
    /// Create a pool of files in its folder, or of blank raw devices
    #[command(after_help = "Examples:
  spindle pool create mail --size 100GiB --drives 4   four drives, as files in the folder mail
  spindle pool create mail --size 100GiB --drives 5 --copies 3
  spindle pool create mail --device /dev/sdb --device nbds://shelf2/disk1 --device iscsi://shelf3/iqn.2026-11.org.x:disks/1
  spindle pool create mail --size 100GiB --drives 6 --domain a=1,2 --domain b=3,4 --domain c=5,6

A drive on another machine may be out of reach for less than 30 s at any time: hosts wait, and nothing is lost. Its URI and the path of its CHAP secret are recorded in the folder of the pool, the secret is not. Nothing keeps another machine from writing to the same export: let its server admit this one alone.

A domain is what drives share that can fail: a shelf, a controller, a machine. Copies lie in different domains, so the \
loss of one loses nothing; where room forbids that, they lie on different drives of one, and 'pool show' says how many. \
A pool opens by itself while more than half of its drives are there: three domains of one size survive the loss of one, \
of two the other has to be forced.")]
    Create {
        /// Folder of the pool, which must be missing or empty; its name is the pool's
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Create drives as files of this size
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
        size: Option<ByteCount>,

        /// Number of drives. With two or more everything is stored twice; with three or more the pool still opens normally
        /// without one of them
        #[arg(long, value_name = "N", default_value_t = 3, requires = "size",
              value_parser = clap::value_parser!(u16).range(1..=i64::from(DRIVES_MAX)))]
        drives: u16,

        /// Blank raw block device, or the nbd://, nbds:// or iscsi:// URI of one on another machine (repeatable)
        #[arg(long, value_name = "DEVICE|URI", required_unless_present = "size")]
        device: Vec<PathBuf>,

        /// Copies of all data; with three, any two drives may be lost [default: 2, or 1 in a pool of one drive]
        #[arg(long, value_name = "N", value_parser = parse_copies)]
        copies: Option<usize>,

        /// Lost drives for which room is kept, spread over all drives [default: single from 8 drives on, else none]
        #[arg(long, value_name = "LEVEL", ignore_case = true)]
        sparing: Option<SparingArgument>,

        #[command(flatten)]
        remote: RemoteArguments,
        /// Drives that fail together, by their devices or numbers (repeatable) [default: each drive fails alone]
        #[arg(long, value_name = "NAME=DRIVE,DRIVE", value_parser = NamedDomain::parse)]
        domain: Vec<NamedDomain>,
    },
    /// Add a drive to a pool, and make missing copies
    #[command(
        name = "add-drive",
        after_help = "Examples:
  spindle pool add-drive mail --device /dev/sde       after /dev/sdc was lost
  spindle pool add-drive mail --device nbds://shelf2/disk1

The earlier contents of the new drive are lost. Missing drives are removed from the pool if all their
data has copies elsewhere."
    )]
    AddDrive {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Create the drive as a file of this size in the pool's folder
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
        size: Option<ByteCount>,

        /// Blank raw block device, or the nbd://, nbds:// or iscsi:// URI of one on another machine
        #[arg(long, value_name = "DEVICE|URI", required_unless_present = "size")]
        device: Option<PathBuf>,

        #[command(flatten)]
        remote: RemoteArguments,
        /// Failure domain of the drive: the shelf or machine it is in [default: it fails alone]
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        domain: Option<DomainName>,
    },
    /// Take back a drive that fell behind, and copy to it what changed
    #[command(after_help = "Example:
  spindle pool readmit mail /dev/sdc                  it was away while the pool was written

What the drive still has is compared with the other drives, and only what differs is written; nothing on it is used \
before. Where a block of another drive has gone bad meanwhile and this one is right, the other one is repaired. Data that \
lies on this drive alone is there again. What only this drive has and the pool does not know of (after an opening with \
--force without it) is lost: 'spindle pool salvage' reads it before.")]
    Readmit {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Path, file name, serial number or UUID of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,
    },
    /// Empty a drive and take it out of a pool
    #[command(after_help = "Examples:
  spindle pool retire mail /dev/sdc                   what lies there is copied to the other drives
  spindle pool retire mail drive-2.spindle --keep     cancels it

Waits until nothing lies on the drive. If it is interrupted, or the power fails, the drive still leaves: whatever opens \
the pool next goes on, and the same command waits for the end. Ends with 2 if the other drives are too few or too \
small, with the bytes that lack.")]
    Retire {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Path, file name, serial number or UUID of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,

        /// Keep a drive that was to leave
        #[arg(long)]
        keep: bool,
    },
    /// Add a drive, and take another one out when it is empty
    #[command(after_help = "Examples:
  spindle pool replace mail /dev/sdc /dev/sde         the emptiest drives get what lies on /dev/sdc
  spindle pool replace mail drive-2.spindle --size 100GiB

The earlier contents of the new drive are lost. If it cannot be added, the old one stays. Waits until nothing lies on \
the old one; if that is interrupted, 'pool retire' of the old one waits for the end.")]
    Replace {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Path, file name, serial number or UUID of the drive that leaves
        #[arg(value_name = "OLD")]
        old: String,

        /// Blank raw block device, or the nbd://, nbds:// or iscsi:// URI of one on another machine
        #[arg(value_name = "NEW", required_unless_present = "size", conflicts_with = "size")]
        new: Option<PathBuf>,

        /// Create the new drive as a file of this size in the pool's folder
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: Option<ByteCount>,

        #[command(flatten)]
        remote: RemoteArguments,
        /// Failure domain of the new drive [default: that of the old one]
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        domain: Option<DomainName>,
    },
    /// Remove a drive that is gone from a pool
    #[command(after_help = "Example:
  spindle pool forget mail drive-2.spindle            the file is gone, and all its data has copies elsewhere

Ends with 2 if the drive is in use, or if some data has no copy elsewhere, or not all its copies yet; it says how much.")]
    Forget {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Last path, file name, serial number or UUID of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,
    },
    /// Use all of a drive that has become larger
    #[command(after_help = "Examples:
  truncate --size 200GiB mail/drive-1.spindle; spindle pool grow mail drive-1.spindle
  spindle pool grow mail /dev/vg/mail1                after lvextend

The size is that of the file, partition or volume at the opening of the pool. Ends with 2 if it has not become larger. A drive cannot become smaller: replace it.")]
    Grow {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Path, file name, serial number or UUID of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,
    },
    /// Move data between the drives of a pool until they are about equally full
    #[command(after_help = "Example:
  spindle pool level mail                             after drives were added or have left

An exported pool does this by itself while hosts are idle. No data has fewer copies meanwhile. If it is interrupted,
what was moved stays moved. --json prints {\"outcome\", \"moved_bytes\", \"fullest_percent\", \"emptiest_percent\"}.")]
    Level {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Change the settings of a pool
    #[command(
        group = ArgGroup::new("what the pool gets")
            .args(["sparing", "domain", "no_domain", "failure_sets"]).required(true).multiple(true),
        override_usage = "spindle pool set [OPTIONS] <POOL>",
        after_help = "Examples:
  spindle pool set mail --sparing single              keeps room to copy again what is on one lost drive
  spindle pool set mail --sparing none                gives that room to volumes
  spindle pool set mail --domain shelf-2=/dev/sdc     the drive was moved to another shelf
  spindle pool set mail --no-domain /dev/sdc          it fails alone
  spindle pool set mail --failure-sets on             all copies of a segment within 6 to 11 drives

A lost drive takes the room of one; the next drive that is added gives it back. Ends with 2 if the drives are too few, or
if data needs the room, with the bytes that lack. Copies that lie in one domain then are moved apart while the pool is
exported, or by 'pool level'.

A failure set is 6 to 11 drives that keep all copies of a segment, so two drives may be lost at once unless they are in
one set. Pools created with 12 drives or more have sets; in others they begin at 12 drives after --failure-sets on. As
drives come and go, sets are split and merged. Copies across sets are moved like those in one domain."
    )]
    Set {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Lost drives for which room is kept, spread over all drives
        #[arg(long, value_name = "LEVEL", ignore_case = true)]
        sparing: Option<SparingArgument>,

        /// Drives that fail together, by path, file name, serial number or UUID (repeatable)
        #[arg(long, value_name = "NAME=DRIVE,DRIVE", value_parser = NamedDomain::parse)]
        domain: Vec<NamedDomain>,

        /// Drive that fails alone from now on (repeatable)
        #[arg(long, value_name = "DRIVE")]
        no_domain: Vec<String>,

        /// Keep all copies of a segment in one failure set of 6 to 11 drives, from 12 drives on
        #[arg(long, value_name = "STATE", ignore_case = true)]
        failure_sets: Option<FailureSetsState>,
    },
    /// Let a pool use the format of this program
    Upgrade(UpgradeArguments),
    /// Find pools by the superblocks of their drives, and rebuild lost records, or the whole site
    Import(ImportArguments),
    /// Find out what became of snapshots, clones and rollbacks in several pools that ended early
    #[command(after_help = "Examples:
  spindle pool settle mail logs                       the pools of the snapshot, all of them
  spindle pool settle mail --give-up monday           pool logs is gone for good

A snapshot of several pools that was interrupted is pending: it can neither be used nor deleted, since another pool may
lack its part. Seen together, the pools keep it if all have it, and remove it if one has not. --give-up removes it from
the pools given, or keeps it if it is known that all had it. The same holds for a clone or rollback of a group in several
pools, whose name here is GROUP@SNAPSHOT: it happens in all of them, or in none. Ends with 1 if something still waits.")]
    Settle {
        /// Folders of the pools
        #[arg(value_name = "POOL", required = true)]
        pools: Vec<PathBuf>,

        /// Name of a snapshot, or of a group's, that does not wait for pools not given
        #[arg(long, value_name = "SNAPSHOT")]
        give_up: Option<String>,
    },
    /// Show when a pool is full at this week's rate, what takes its room, and what gives some back
    #[command(after_help = "Examples:
  spindle pool room mail
  spindle pool room mail --json

The steps come by the bytes that each gives back now, most first: exact for what is deleted, 'at most' for others. Bytes \
of two steps do not always add up: what two snapshots keep together is freed when both are deleted. The rate is that of \
the last seven days, or of as much as is known, at least one day: a server or an export notes the room in use once an \
hour in the folder of the pool. The first count reads the map of all volumes.")]
    Room {
        /// Folder of the pool, or its name at a server
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Check every copy of everything in a pool, and fix those that are wrong
    #[command(after_help = "Example:
  spindle pool scrub mail --json                      what was checked, fixed, lost

Ends with 1 if some data has no correct copy. An exported pool is scrubbed every seven days.")]
    Scrub {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
    /// Open a pool without its missing drives, and accept the loss of data that only they may hold
    #[command(after_help = "Example:
  spindle pool force-open mail --yes mail             without drives that are gone for good

If these drives come back they are not used again, but 'spindle pool salvage' reads the data that only they hold.
'spindle pool scrub' reports what was lost. Force-open helps if drives are missing, not if the log or the catalogue
is damaged; the error message of a pool that does not open says whether force-open helps.")]
    ForceOpen {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,

        /// Name of the pool, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Copy everything readable of a volume or a snapshot to a file; the pool may be damaged, and is not written to
    #[command(after_help = "Examples:
  spindle pool salvage mail/store store.img           store.img.map lists the lost ranges
  spindle pool salvage mail/store@monday monday.img   a snapshot
  ddrescuelog --list-blocks=- store.img.map           the blocks of 512 bytes that could not be read

Salvage works on every pool, also on one that does not open. It reads the newest readable state, the log as far as it is
intact, and copies on drives that fell behind. OUT is sparse, with zeroes where data could not be read. OUT.map is a mapfile of
GNU ddrescue.

Ends with 0 if the volume is complete, 1 if data is missing or may be older than what was acknowledged, 2 if nothing was
copied: OUT exists, there is too little space, or there is no such volume.")]
    Salvage {
        /// The volume, or the snapshot
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        volume: PathBuf,

        /// The file to create
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
    /// Show a pool's drives, space, volumes and snapshots, or what is readable if it does not open
    #[command(after_help = "Example:
  spindle pool show mail --json                       for monitoring

For a damaged pool it lists what is readable and what is missing in each volume, and ends with 1.")]
    Show {
        /// Folder of the pool
        #[arg(value_name = "POOL")]
        pool: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume create mail/store 40GiB              thin: takes space only for written data
  spindle volume create mail/scratch 40GiB --raid0    older data has one copy: half the space, lost with its drive
  spindle volume create mail/logs 40GiB --limit 10GiB --iops 500
  spindle volume set mail/store --reserve 20GiB       keeps this space for the volume
  spindle volume resize mail/store 60GiB
  spindle volume rename mail/store letters
  spindle volume snapshot mail/store@monday
  spindle volume diff mail/store@monday               what changed since then
  spindle export mail/store@monday                    read-only
  spindle volume clone mail/store@monday mail/try     a writable copy that takes space for changes only
  spindle volume fill mail/try                        copies the rest: it needs mail/store no more
  spindle volume rollback mail/store@monday           what is there now stays as mail/store~1
  spindle volume delete mail/store@monday

POOL is a folder. If 'spindle serve' has the pool open, it makes the change, under its clients; then POOL may also be the \
pool's name, at the server with the usual state folder or at --server. Any other process that has the pool open has to \
be ended first. Ends with 0 on success, 2 on failure.")]
pub struct VolumeArguments {
    #[command(subcommand)]
    pub verb: VolumeVerb,

    #[command(flatten)]
    pub server: ServerAddress,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum VolumeVerb {
    /// Create a volume
    #[command(after_help = "Examples:
  spindle volume create mail/store 40GiB              thin: takes space only for written data
  spindle volume create mail/logs 40GiB --limit 10GiB --iops 500 --mbps 20")]
    Create {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Size of the volume: a multiple of 512 bytes
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: ByteCount,

        /// Acknowledge writes before they are stable; only for clients that flush [default: off]
        #[arg(long, value_name = "STATE", ignore_case = true, num_args = 0..=1, default_missing_value = "on")]
        write_cache: Option<WriteCacheState>,

        /// Keep only one copy of older data: a lost drive loses its part. Only for data that can be recreated
        #[arg(long)]
        raid0: bool,

        /// Limits and reserve.
        #[command(flatten)]
        limits: VolumeLimits,
    },
    /// Change a volume's limits, reserve and write cache
    #[command(
        group = ArgGroup::new("what is set")
            .args(["limit", "reserve", "iops", "mbps", "write_cache"]).required(true).multiple(true),
        override_usage = "spindle volume set [OPTIONS] <POOL/VOLUME>",
        after_help = "Examples:
  spindle volume set mail/store --reserve 20GiB       keeps this space for the volume
  spindle volume set mail/logs --limit 10GiB --iops 500 --mbps 20
  spindle volume set mail/logs --limit none --write-cache off

Other settings stay; 'spindle pool show' lists them. A limit below the present use deletes nothing: writes of new data
are refused until the volume uses less."
    )]
    Set {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Limits and reserve.
        #[command(flatten)]
        limits: VolumeLimits,

        /// Acknowledge writes before they are stable; only for clients that flush
        #[arg(long, value_name = "STATE", ignore_case = true)]
        write_cache: Option<WriteCacheState>,
    },
    /// Change the size of a volume
    #[command(after_help = "Example:
  spindle volume resize mail/store 60GiB

A grown volume has zeroes beyond its old end. Shrinking deletes the data beyond the new end, except in snapshots.")]
    Resize {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Size from now on: a multiple of 512 bytes
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: ByteCount,

        /// Allow a smaller size, and delete data beyond the new end
        #[arg(long)]
        shrink: bool,

        /// Name of the volume that becomes smaller, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Rename a volume
    #[command(after_help = "Example:
  spindle volume rename mail/store letters            now mail/letters, with snapshots mail/letters@...")]
    Rename {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// The new name, without the pool
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Take a snapshot of a volume, or of several volumes at one moment
    #[command(after_help = "Examples:
  spindle volume snapshot mail/store@monday           read it with: spindle export mail/store@monday
  spindle volume snapshot mail/store@monday --note \"before the update\"
  spindle volume snapshot mail/store logs/store-log --as monday

'spindle pool show' lists snapshots with their notes. Volumes of several pools get their snapshot in all pools or in none;
if that ends early, it is pending until 'spindle pool settle' has seen the pools together.")]
    Snapshot {
        /// The pool, the volume, and the name of the snapshot; with --as, volumes of one pool or several
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]", required = true)]
        volumes: Vec<PathBuf>,

        /// Name of the snapshot, the same for all volumes
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,

        /// Text to keep with the snapshot: at most 768 bytes
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Show what keeps a volume's data, and what each deletion would free
    #[command(after_help = "Examples:
  spindle volume space mail/store                     the volume, its snapshots, its clones
  spindle volume space mail/store --json

Exact to the byte: data of one copy, without the map. What several snapshots keep together is freed only when all of them \
are deleted. The first count of a volume reads its whole map, which takes a while for large ones; a server gives an answer \
of the last minute again for lists, and counts anew here. --json prints {\"path\", \"used_bytes\", \"volume_bytes\", \
\"snapshots_bytes\", \"others_bytes\", \"reclaimable_bytes\", \"snapshots\": [{\"name\", \"reclaimable_bytes\"}]}, with \
\"as_of\" from a server.")]
    Space {
        /// Pool and name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,
    },
    /// Show what changed from a snapshot to another one, or to now
    #[command(after_help = "Examples:
  spindle volume diff mail/store@monday mail/store@tuesday
  spindle volume diff mail/store@monday --json        all ranges, since monday
  spindle volume diff mail/store@monday mail/try      what a clone of it changed

The points are of one volume, or of a volume and its clone, in either direction; a rollback may lie between \
them. Otherwise the older one comes first. 'data' was written, 'zeroes' and 'discarded' read as zeroes, \
'beyond_size' lies beyond the smaller of both sizes. --json prints bytes: {\"volume\", \"from\", \"to_volume\" if another, \
\"to\", \"from_bytes\", \"to_bytes\", \"ranges\": [{\"at\", \"length\", \"change\"}], \"totals\": {CHANGE: {\"bytes\", \"ranges\"}}}.")]
    Diff {
        /// The snapshot to begin with
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT")]
        from: PathBuf,

        /// The point to compare it with; without it, the present
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        to: Option<PathBuf>,
    },
    /// Make a writable volume from a snapshot, or from a volume as it is now
    #[command(after_help = "Examples:
  spindle volume clone mail/store@monday mail/try
  spindle volume clone mail/store mail/try            as mail/store is now
  spindle volume clone mail/store@monday mail/copy --independent
  spindle volume clone mail/store@monday safe/copy --independent   in another pool

The clone shares all data with its source, and takes space only for data written to it. It has the size, class,
rates and write cache of its source, and no limit or reserve. Snapshot and source may be deleted: the data that
the clone reads stays.

An independent clone gets a copy of all data, and shares nothing afterwards. It can be used at once; if this command
is interrupted, an export goes on, or 'spindle volume fill'. The seventeenth clone in a line is filled in the same way.

A copy in another pool survives the loss of its source's pool. It is made of a snapshot, has that snapshot, too, and is \
refreshed from later ones by 'spindle volume refresh'. Until it is complete, its name is safe/copy~copy, and it cannot be \
exported; if this command is interrupted, the same command goes on.")]
    Clone {
        /// The snapshot or volume
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        source: PathBuf,

        /// Pool and name of the new volume
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Copy all data, so that the clone needs its source no more
        #[arg(long)]
        independent: bool,
    },
    /// Copy what a clone shares with its source, so that it needs the source no more
    #[command(after_help = "Examples:
  spindle volume fill mail/try
  spindle volume fill mail/try --cancel               goes on sharing what is not copied yet

Goes on where an earlier one was interrupted. A snapshot of the clone that was taken before may read the source on; then
the clone is filled, and independent when that snapshot is deleted. --json prints {\"path\", \"done\", \"waits_for\"}.")]
    Fill {
        /// Pool and name of the clone
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// Give the filling up: the clone goes on sharing data
        #[arg(long)]
        cancel: bool,
    },
    /// Make a volume of a device of another array, and use it while its blocks are copied
    Import(VolumeImportArguments),
    /// Present a point of a volume to one host, for a bounded time
    Present(PresentArguments),
    /// List the points of a pool that are presented
    Presentations(PresentationsArguments),
    /// End a presentation before its time
    Withdraw(WithdrawArguments),
    /// Move a volume to another pool, with its snapshots
    #[command(after_help = "Examples:
  spindle volume move mail/store fast/store
  spindle volume move mail/store fast/store --json

The volume keeps identity, settings and snapshots, whose names, notes and times are the same. While it is copied, it stays \
in its pool; then it changes pools in a moment, and the old one is deleted. If this command is interrupted, the same \
command goes on: the volume is in one of both pools, or waits between them under the names store~moved and store~copy, \
which nobody can use. It is refused for a volume in a group, or with states that rollbacks left; clones of it stay where \
they are. While one server has both pools open, the server moves it as the job move of the other pool, also under hosts: \
they wait for a moment, are disconnected, and find the volume in its new pool with the same names and numbers when they \
connect again. Units, exports and schedules follow. A volume in a set, in a target with other volumes, or on which hosts \
have persistent reservations is refused then. --json prints {\"path\", \"done\", \"size_bytes\", \"copied_bytes\", \"snapshots\"}.")]
    Move {
        /// The volume
        #[arg(value_name = "POOL/VOLUME")]
        source: PathBuf,

        /// Its pool and name afterwards
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,
    },
    /// Bring a copy in another pool up to a later snapshot of its source
    #[command(after_help = "Examples:
  spindle volume refresh safe/copy --from mail/store@tuesday
  spindle volume refresh safe/copy --from mail/store@tuesday --json

What differs between this snapshot and the newest one that both volumes have is copied, and the copy gets the snapshot. \
It is refused if the copy was written since: roll it back first. Until the refresh is complete, the name of the copy is \
safe/copy~copy, and it cannot be exported; if it is interrupted, the same command begins it again from the common \
snapshot. Keep that snapshot in both pools: without it, a new copy has to be made. --json prints {\"path\", \"done\", \
\"size_bytes\", \"copied_bytes\", \"discarded_bytes\", \"since\", \"snapshot\"}.")]
    Refresh {
        /// Pool and name of the copy
        #[arg(value_name = "POOL/VOLUME")]
        volume: PathBuf,

        /// The snapshot that it will be as
        #[arg(long = "from", value_name = "POOL/VOLUME@SNAPSHOT")]
        source: PathBuf,
    },
    /// Take a volume back to a snapshot, and keep its present state as another volume
    #[command(after_help = "Examples:
  spindle volume rollback mail/store@monday           asks for the name of the volume
  spindle volume rollback mail/store@monday --yes store
  spindle volume rollback mail/store~1 --yes store~1  undoes it
  spindle volume rollback mail/store --to-volume store-trial --yes store      a repaired clone takes its place

A rollback takes a moment, whatever the size of the volume. The present state stays as the read-only volume
mail/store~1 (the next one is ~2), until you delete it or roll back to it; its space counts as space of
mail/store. Newer snapshots stay, too. The volume gets the size that it had at the snapshot.

With --to-volume, another volume of the pool takes its place, such as a clone with what was written to it; it has no
snapshots, and nobody uses it. It is no volume of its own then.

While a server has the volume in use, this takes --force: each client gets the volume again when it has let go of what it
cached; see 'spindle volume readmit'.")]
    Rollback {
        /// The snapshot, or what an earlier rollback left; with --to-volume, the volume
        #[arg(value_name = "POOL/VOLUME@SNAPSHOT|POOL/VOLUME~N")]
        goal: PathBuf,

        /// Another volume of the pool, which takes its place
        #[arg(long, value_name = "NAME")]
        to_volume: Option<String>,

        /// Name of the volume in the path, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,

        /// Although clients use it: it is withheld from them
        #[arg(long)]
        force: bool,
    },
    /// Give a volume to clients again from which a rollback or a failover withholds it
    Readmit(ReadmitArguments),
    /// Delete a volume without snapshots, or a snapshot
    #[command(after_help = "Examples:
  spindle volume delete mail/store@monday             asks for the name of the snapshot; its space is free soon after
  spindle volume delete mail/store@monday --yes monday")]
    Delete {
        /// Volume or snapshot to delete
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        volume: PathBuf,

        /// Name of the volume, or of the snapshot, in place of the question on the terminal
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
}
