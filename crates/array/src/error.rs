//! Errors of a pool.

use crate::{
    drive::WriteFailures,
    election::OpenRefusal,
    format::{
        BlockIndex, BranchNumber, DecodeError, DriveId, FormatLevel, GroupId, MemberIndex, PoolId, Position,
        SegmentNumber, SlotAddress, Stamp, VolumeNumber,
    },
    pool::{ImportFindings, UnsettledId},
};
use std::{fmt, time::Duration};
use world::{ByteCount, IoError};

pub type Result<T> = std::result::Result<T, Error>;

/// Data on an absent drive, in bytes of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveNeeds {
    /// Segments that name the drive.
    pub segments: u64,
    /// Size of those with other copies, which are not all made yet.
    pub not_copied_bytes: u64,
    /// Size of those without another copy.
    pub only_there_bytes: u64,
}

impl fmt::Display for DriveNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { not_copied_bytes, only_there_bytes, .. } = *self;
        if only_there_bytes > 0 {
            let bytes = ByteCount(only_there_bytes);
            write!(f, "{bytes} lie on no other drive; connect it, or delete the volumes that lie there")?;
        }
        if not_copied_bytes > 0 {
            let separator = if only_there_bytes > 0 { "; and " } else { "" };
            let bytes = ByteCount(not_copied_bytes);
            write!(f, "{separator}{bytes} lack a copy that is not made yet; wait, or add a drive")?;
        }
        if only_there_bytes + not_copied_bytes == 0 {
            f.write_str("the next checkpoint is not made yet; try it again")?;
        }
        Ok(())
    }
}

/// An error of a pool.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A drive failed, and no other could take its place.
    #[error("drive {member} of the pool: {error}")]
    Drive { member: MemberIndex, error: IoError },
    /// No copy of a structure is valid.
    #[error("{what}: {refusal}")]
    Damaged {
        /// The structure, and its location.
        what: String,
        refusal: DecodeError,
    },
    /// Acknowledged records are missing: the pool can only be read
    /// ([`open_read_only`](crate::pool::open_read_only)).
    #[error(
        "the log ends at record {found}, but records below {acknowledged} were acknowledged; the pool is \
         damaged and can only be read"
    )]
    LostRecords {
        /// Position of the last record found.
        found: u64,
        /// End of the acknowledged records.
        acknowledged: u64,
    },
    /// No copy of a log segment's header can be read, so the end of the log is unknown. The pool can only be
    /// read ([`open_read_only`](crate::pool::open_read_only)).
    #[error(
        "the header of log segment {segment}, in {}, cannot be read on any drive present: acknowledged writes may \
         follow record {last}, in unknown segments; connect the missing drives; the pool can only be read",
        places(.slots)
    )]
    NoLogHeader {
        segment: SegmentNumber,
        slots: Vec<SlotAddress>,
        /// Position of the last record found.
        last: u64,
    },
    /// The election refused to open the pool.
    #[error(transparent)]
    OpenRefused(#[from] OpenRefusal),
    #[error("the pool has no drive {0}")]
    NoDrive(DriveId),
    /// A member that must be present is not.
    #[error(
        "drive {0} is not there, or was lost; only a drive in use can leave: 'spindle pool forget' removes this one"
    )]
    DriveAbsent(DriveId),
    /// Only an absent drive is forgotten.
    #[error("drive {0} is in use; 'spindle pool retire' takes it out")]
    DriveInUse(DriveId),
    /// A drive must stay, because the others are too few.
    #[error(
        "too few other drives are in use ({left}) for the pool: it keeps {}, each on a drive of its own; add a drive \
         first, or replace this one",
        if *copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") }
    )]
    TooFewToLeave { left: usize, copies: usize },
    /// A drive must stay, because the others are too small for the data.
    #[error(
        "the other drives lack {} for the data of the pool; add a drive, replace this one, or delete data or snapshots",
        ByteCount(*lacking_bytes)
    )]
    TooSmallToLeave {
        /// Host data without room, in bytes.
        lacking_bytes: u64,
    },
    /// A drive must stay for now, because too little is free on the others.
    #[error(
        "{} more must be free on the other drives, of the room that the pool keeps for its own work; wait until \
         cleaning has made room, add a drive, or delete data or snapshots",
        ByteCount(*lacking_bytes)
    )]
    TooFullToLeave {
        /// Bytes of one copy.
        lacking_bytes: u64,
    },
    /// Room for lost drives takes more drives.
    #[error(
        "{drives} drives are too few: {needed} are needed for the copies and for the lost drives that room is kept for; add \
         drives, or keep room for fewer"
    )]
    TooFewToSpare { drives: usize, needed: usize },
    /// The room that should be kept for lost drives is in use.
    #[error(
        "{} of data have no room beside that; add a drive, delete data or snapshots, or keep room for fewer drives",
        ByteCount(*lacking_bytes)
    )]
    TooFullToSpare {
        /// Host data without room, in bytes.
        lacking_bytes: u64,
    },
    /// An absent drive has data that lies nowhere else, or that is not copied yet.
    #[error("drive {drive} cannot be forgotten: {needs}")]
    DriveNeeded { drive: DriveId, needs: DriveNeeds },
    /// A drive to be added belongs to a pool already.
    #[error(
        "drive {drive} belongs to pool {pool}, which may need it; 'spindle pool show' of that pool says whether the drive \
         has the only copy of anything"
    )]
    InUse {
        /// Index among those given, from 0.
        drive: usize,
        pool: PoolId,
    },
    /// A drive is too small for a pool.
    #[error(
        "drive {drive} has {size} bytes, and {needed} are the least; give it more, or take smaller slots"
    )]
    TooSmall {
        /// Index among those given, from 0.
        drive: usize,
        /// In bytes.
        size: u64,
        /// In bytes.
        needed: u64,
    },
    /// A reference to a segment that does not exist.
    #[error("segment {0} is referenced but does not exist; the pool is damaged")]
    NoSegment(SegmentNumber),
    /// No drive present has a copy of a segment.
    #[error("no drive present has a copy of segment {0}")]
    NoCopy(SegmentNumber),
    /// Two segments claim one slot.
    #[error("slot {} of drive {} is in two segments; the pool is damaged", .0.slot, .0.member)]
    SlotTwice(SlotAddress),
    /// The log leads through a segment whose number the catalogue gives to a later use.
    #[error("segment {0} is in the log and has another use, too; the pool is damaged")]
    SegmentTwice(SegmentNumber),
    #[error("the pool has no volume {0:?}")]
    NoVolume(String),
    #[error("volume {volume:?} has no snapshot {snapshot:?}")]
    NoSnapshot { volume: String, snapshot: String },
    #[error("{0:?} exists already; choose another name")]
    NameTaken(String),
    #[error(
        "{0:?} is not a valid name: 1 to 128 bytes of UTF-8 without control characters and without any of / @ ~"
    )]
    BadName(String),
    #[error(
        "no snapshot is named {0:?}: VOLUME@{0} is what a volume of another site shows here; say another name"
    )]
    ReservedName(String),
    #[error("a note of {0} bytes is too long: it has at most 768")]
    NoteTooLong(usize),
    #[error("a volume cannot have {0} bytes: the size is a multiple of 512, at least 512 and at most 64 TiB")]
    BadSize(u64),
    /// The volume table is full.
    #[error("the pool has {0} volumes, the most there can be; delete one first")]
    TooManyVolumes(usize),
    /// The volume uses as much as its limit allows.
    #[error("volume number {0} has reached its limit; raise it, delete something, or delete snapshots")]
    LimitReached(VolumeNumber),
    /// The remaining space is reserved for other volumes.
    #[error(
        "what is left of the pool is kept for volumes other than number {0}; add drives or lower a reserve"
    )]
    Reserved(VolumeNumber),
    /// Invalid reserve or limit.
    #[error(
        "a reserve of {reserve_bytes} and a limit of {limit_bytes} bytes: both are multiples of 4096, and the limit is \
         not below the reserve"
    )]
    BadBounds { reserve_bytes: u64, limit_bytes: u64 },
    /// The reserves of all volumes would exceed the pool.
    #[error("{wanted_bytes} bytes cannot be reserved for a volume; {left_bytes} can")]
    NoRoomToReserve { wanted_bytes: u64, left_bytes: u64 },
    #[error("a pool cannot keep {0} copies: one, two or three")]
    BadCopies(usize),
    /// The volume has snapshots.
    #[error("volume {volume:?} has {count} snapshots; delete them first, or with it")]
    HasSnapshots { volume: String, count: usize },
    /// Points of the volume are being read.
    #[error(
        "{count} points of volume {volume:?} are in use by a difference; delete the volume when it has ended"
    )]
    PointsInUse { volume: String, count: usize },
    /// The second point of a difference is older than the first.
    #[error("snapshot {later:?} is older than {earlier:?}; give the older one first")]
    WrongOrder {
        /// Given as the earlier one.
        earlier: String,
        later: String,
    },
    /// Neither point of a difference was reached from the other, or from a common one.
    #[error(
        "{earlier:?} and {later:?} have no snapshot in common: neither was cloned from the other, or a clone was \
         filled and is independent"
    )]
    NothingInCommon { earlier: String, later: String },
    /// The volume is being copied or refreshed, or that was interrupted.
    #[error(
        "volume {0:?} is an incomplete copy: copy, refresh or move it again to complete it, or delete it"
    )]
    IncompleteCopy(String),
    /// An incomplete copy is in the way.
    #[error("volume {0:?} is an incomplete copy of something else; delete it first")]
    OtherCopy(String),
    /// A refresh would overwrite what was written to the copy.
    #[error(
        "volume {volume:?} was written since its snapshot {snapshot:?}; roll it back to that first: its present state \
         stays then"
    )]
    CopyWritten { volume: String, snapshot: String },
    /// The volume stays in its pool.
    #[error("the volume cannot be moved: {0}")]
    NotMovable(String),
    /// Hosts change the volume as fast as it is copied.
    #[error(
        "hosts write as fast as the volume is copied: {passes} passes did not become short; limit its rate, or move it when \
         it is less busy: what was copied stays"
    )]
    MoveTooSlow { passes: u32 },
    /// The last pass of a move took too long for its hosts, who go on with the old volume.
    #[error(
        "the last pass of the move was not over after {} s, so hosts go on with the volume where it was; move it again when \
         both pools are less busy: what was copied stays",
        .0.as_secs()
    )]
    HeldTooLong(Duration),
    /// A snapshot of a volume was taken or deleted during the last pass of its move, which is repeated.
    #[error("a snapshot of the volume was taken or deleted meanwhile; move it again")]
    SnapshotsChanged,
    /// The pool of a copy's source has ended, or its thread.
    #[error("the pool of the source has stopped")]
    SourceGone,
    /// The volume is complete in another pool than the one given, or under another name.
    #[error(
        "volume {0:?} was moved to another pool, and is complete there: 'spindle volume move' to that pool ends it"
    )]
    MovedElsewhere(String),
    /// There is less free space than data to copy.
    #[error("the pool lacks {} for the copy; add a drive, or delete data or snapshots", ByteCount(*lacking_bytes))]
    TooSmallForCopy { lacking_bytes: u64 },
    /// A copy was cancelled, and stays incomplete.
    #[error("the copy was cancelled; copy again to go on, or delete what there is of it")]
    CopyCancelled,
    /// A command of a copy failed in one of both pools.
    #[error("copying: {0}")]
    Copy(IoError),
    /// The volume is not complete in this pool: blocks are read from a source elsewhere.
    #[error(
        "volume {0:?} is being imported: until that has ended it has no snapshots, clones or copies, keeps its size and is in \
         no group; 'spindle volume show' says how far it is"
    )]
    Importing(String),
    /// The volume can only be used together with its source.
    #[error(
        "volume {0:?} is being imported, and its source is not connected here: blocks that are not copied yet would read as \
         zeroes; serve the pool, or go on with 'spindle volume import'"
    )]
    SourceNotAttached(String),
    #[error("volume {0:?} is not being imported")]
    NotImporting(String),
    /// The source has another size than it had.
    #[error("the source has {found_bytes} bytes, and had {source_bytes} when the import began")]
    SourceSize { source_bytes: u64, found_bytes: u64 },
    /// A command of an import's source failed.
    #[error("the source: {0}")]
    Source(IoError),
    /// The import cannot end.
    #[error("{0}")]
    ImportIncomplete(ImportFindings),
    /// An import was stopped before its end, and goes on later.
    #[error(
        "the import was stopped; the volume goes on reading from its source, and the same import goes on from there"
    )]
    ImportStopped,
    /// The volume has what hosts wrote since its import began.
    #[error(
        "hosts wrote {} to volume {volume:?} since its import began: that is lost if the import is given up",
        ByteCount(*host_bytes)
    )]
    ImportWritten { volume: String, host_bytes: u64 },
    /// The volume is what a rollback left.
    #[error(
        "volume {0:?} is what a rollback left, and is never changed; clone it, roll back to it, or delete it"
    )]
    LeftByRollback(String),
    /// A person would change a volume in a way that its replication does not carry to the other site.
    #[error(
        "volume {0:?} is in a DR group: it is not moved, deleted, rolled back with a consistency group, or rolled back to \
         what a rollback left; roll it back to one of its snapshots, or take the DR group apart first ('spindle dr remove')"
    )]
    InDrGroup(String),
    /// Replication carries whole blocks.
    #[error(
        "volume {0:?} is in a DR group: its size must be a multiple of 4096 bytes, which {1} bytes are not"
    )]
    ReplicatedInPart(String, u64),
    /// A host, or a person, would change a replica.
    #[error("volume {0:?} is a replica: only the replication of its group changes it")]
    Replica(String),
    /// A command of a follower cannot be one of the history that is there.
    #[error("a command with stamp {stamp} contradicts what is there: {found}")]
    Contradiction { stamp: Stamp, found: String },
    /// A forced rollback would withhold the volume from more clients than its record has room for.
    #[error(
        "a rollback withholds a volume from {at_most} clients at most, and {clients} are or were connected; let some of them \
         log out first"
    )]
    TooManyWithheld { clients: usize, at_most: usize },
    /// The rows of the site would take more than there is room for.
    #[error("the rows of the site take {bytes} bytes, and a pool keeps {at_most} at most")]
    SiteTooLarge { bytes: usize, at_most: usize },
    #[error("the record of a DR group takes {bytes} bytes, and a pool keeps {at_most} at most")]
    ReplicationRecordTooLarge { bytes: usize, at_most: usize },
    /// Rows that no writer leaves: which record is the newer one is not known.
    #[error("the pool has two replication records of group {0}")]
    TwoReplicationRecords(GroupId),
    /// A rollback to a volume that another one's rollback left, or that none left.
    #[error("volume {0:?} is not what a rollback of {1:?} left")]
    NotLeftBy(String, String),
    /// A rollback of a volume to itself.
    #[error("volume {0:?} would take its own place")]
    SameVolume(String),
    /// A rollback to a volume of another redundancy class.
    #[error("volume {0:?} is of another class than {1:?}, whose place it would take")]
    OtherClass(String, String),
    /// Reads would search more branches than there may be in a line.
    #[error(
        "{0:?} has {limit} branches above it, the most there can be, and is being filled to need none of them; wait until \
         that has ended, or take an older snapshot",
        limit = crate::format::row::BRANCH_DEPTH_MAX
    )]
    TooDeep(String),
    /// The filling of a clone cannot be given up.
    #[error(
        "{0:?} has {limit} branches above it, one more than a clone may keep, so its filling cannot be given up; delete it \
         instead",
        limit = crate::format::row::BRANCH_DEPTH_MAX
    )]
    MustBeFilled(String),
    /// The volume is open.
    #[error("volume {0:?} is in use; end that first, or force the rollback")]
    VolumeInUse(String),
    #[error("the pool has no group {0:?}")]
    NoGroup(String),
    #[error("group {group:?} has no snapshot {snapshot:?}")]
    NoGroupSnapshot { group: String, snapshot: String },
    #[error("a group cannot have {volumes} volumes: at least one, and at most {at_most}")]
    BadGroupSize {
        volumes: usize,
        /// Most volumes one record has room for.
        at_most: usize,
    },
    #[error("volume {0:?} is named twice")]
    NamedTwice(String),
    /// The volume is in a group, which would lose it.
    #[error(
        "volume {volume:?} is in group {group:?}; delete the group first: its volumes and snapshots stay"
    )]
    InGroup { volume: String, group: String },
    /// The snapshot is part of one of a group.
    #[error(
        "snapshot {snapshot:?} is one of all volumes of group {group:?}; delete it there, or first the group"
    )]
    PartOfGroupSnapshot { snapshot: String, group: String },
    /// The group has volumes in other pools, which take part in whatever happens to it.
    #[error("group {0:?} has volumes in several pools: all of them are needed for this")]
    GroupOfSeveralPools(String),
    /// The pools named are not those of the group.
    #[error("group {group:?} is one of {expected} pools, and {given} were named, or others")]
    OtherPools { group: String, expected: usize, given: usize },
    /// An operation on a group of several pools did not happen, in any of them.
    #[error("nothing was changed in any pool: {0}")]
    OperationFailed(String),
    /// The other pools of an operation on a group were not seen yet.
    #[error(
        "a clone or rollback of group {0:?} is not settled in all its pools; 'spindle pool settle' with all of them \
         does it, '--give-up' gives up waiting"
    )]
    OperationPending(String),
    /// Too few pools for a cut, too many, or one twice.
    #[error(
        "a cut over several pools cannot have {pools} of them: at least two different ones, and at most {at_most}"
    )]
    BadCutSize { pools: usize, at_most: usize },
    /// Not all pools could take their part, and none keeps it.
    #[error("no snapshot was taken in any pool: {0}")]
    CutFailed(String),
    /// All pools placed their parts, but not all said that they are durable.
    #[error(
        "snapshot {snapshot:?} stays pending: {reason}; 'spindle pool settle' with all its pools says what became of it"
    )]
    CutUnsettled { snapshot: String, reason: String },
    /// The other pools of the snapshot were not seen yet.
    #[error(
        "snapshot {0:?} is of several pools, and not all are known to have their part; 'spindle pool settle' with all of \
         them decides it, '--give-up' gives up waiting"
    )]
    CutPending(String),
    #[error("no {0} of several pools waits to be settled")]
    NoCut(UnsettledId),
    /// Too many volumes for one snapshot.
    #[error("a snapshot cannot span {volumes} volumes; the limit is {at_most}")]
    TooManyAtOnce {
        volumes: usize,
        /// Most volumes one record has room for.
        at_most: usize,
    },
    /// No copy of a block is valid.
    #[error("block {block} of branch {branch}: no copy is readable and valid")]
    Unreadable { block: BlockIndex, branch: BranchNumber },
    /// The pool uses something this program cannot read.
    #[error("{0} cannot be read by this program; a newer one can")]
    NotYet(&'static str),
    /// The pool was not upgraded since a program came that can do this.
    #[error(
        "the pool has format level {level}, and this needs level {needed}: 'spindle pool upgrade' raises it, and programs \
         from before that level may then not open the pool any more"
    )]
    FormatTooOld { level: FormatLevel, needed: FormatLevel },
    /// A write came with a stamp that is not above those of its branch.
    #[error("stamp {stamp} is not above {last}, the highest that branch {branch} may have")]
    StampTaken {
        branch: BranchNumber,
        stamp: Stamp,
        /// The highest stamp the branch may have.
        last: Stamp,
    },
    /// Records of the log are no longer kept for a subscriber.
    #[error("the log is no longer kept from the pinned position on")]
    LogPinLost,
    /// No copy of a record that is kept can be read.
    #[error("the record {0} of the log cannot be read from any drive")]
    LogUnreadable(Position),
    /// No segment is free.
    #[error("the pool is full")]
    Full,
    /// Writes acknowledged from a write cache did not become stable on any copy.
    #[error(
        "segment {0} of the log could not be made stable on any of its drives; writes since the last \
             flush are lost"
    )]
    CacheLost(SegmentNumber),
    /// Too few drives are writable.
    #[error("{present} drives of the pool are writable; {needed} copies are needed")]
    TooFewDrives { present: usize, needed: usize },
    /// Too few drives have space.
    #[error(
        "too many drives of the pool are out of space, {}; make room there: until then the pool can be read but not \
         written",
        drives_and_reasons(.0)
    )]
    OutOfSpace(WriteFailures),
    /// More drives failed to write than some data has copies to spare.
    #[error(
        "{} cannot be written, and some data has no copy elsewhere: the pool accepts no more writes and keeps \
         these drives, so that all data stays readable; check the drives, then open the pool again",
        drives_and_reasons(.0)
    )]
    NoCopyToSpare(WriteFailures),
    /// The pool stopped earlier.
    #[error("the pool has stopped: {0}")]
    Stopped(String),
    /// The command was done here, and what it waited for elsewhere will not happen.
    #[error("the command is not answered as done: the other site has the right, or may take it")]
    AnswerRefused,
}

impl Error {
    /// Drives failed or lack room, or data on them are damaged: the request was right.
    pub fn is_of_storage(&self) -> bool {
        matches!(
            self,
            Self::Drive { .. }
                | Self::Damaged { .. }
                | Self::LostRecords { .. }
                | Self::NoLogHeader { .. }
                | Self::NoSegment(_)
                | Self::NoCopy(_)
                | Self::SlotTwice(_)
                | Self::SegmentTwice(_)
                | Self::Copy(_)
                | Self::Source(_)
                | Self::Unreadable { .. }
                | Self::CacheLost(_)
                | Self::TooFewDrives { .. }
                | Self::OutOfSpace(_)
                | Self::NoCopyToSpare(_)
        )
    }
}

/// Slots, as text.
fn places(slots: &[SlotAddress]) -> String {
    let named = slots.iter().map(|slot| format!("slot {} of drive {}", slot.slot, slot.member));
    named.collect::<Vec<_>>().join(" and ")
}

/// Drives with their errors, as text.
fn drives_and_reasons(failures: &WriteFailures) -> String {
    let named = failures.iter().map(|(member, error)| format!("drive {member} ({error})"));
    named.collect::<Vec<_>>().join(", ")
}
