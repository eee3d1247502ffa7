//! What can go wrong with a pool.

use crate::{
    drive::WriteFailures,
    election::NotOpened,
    format::{
        BlockIndex, BranchNumber, MemberIndex, PoolId, Refusal, SegmentNumber, SlotAddress, VolumeNumber,
    },
};
use world::IoError;

/// Result of an operation of a pool.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A drive failed, and there was no other to turn to.
    #[error("drive {member} of the pool: {error}")]
    Drive {
        /// Which.
        member: MemberIndex,
        /// What it said.
        error: IoError,
    },
    /// Bytes of the pool are not what they should be, on any copy.
    #[error("{what}: {refusal}")]
    Damaged {
        /// What was read, and where.
        what: String,
        /// Why it was refused.
        refusal: Refusal,
    },
    /// Records that were acknowledged are missing: the pool may be read ([`open_read_only`](crate::pool::open_read_only)),
    /// and nothing else.
    #[error(
        "the log ends at record {found}, but a record says that all below {acknowledged} were acknowledged; the \
         pool is damaged, and is not written any more"
    )]
    LostRecords {
        /// Position of the last record there is.
        found: u64,
        /// What was acknowledged.
        acknowledged: u64,
    },
    /// No copy of a log segment's header can be read: where the log goes on behind it is not known. The pool may be read
    /// ([`open_read_only`](crate::pool::open_read_only)), and nothing else.
    #[error(
        "the header of log segment {segment}, in {}, cannot be read on any drive that is there: acknowledged writes may \
         lie behind record {last}, and nobody knows where; connect drives that are missing; the pool is not written",
        places(.slots)
    )]
    NoLogHeader {
        /// Which segment.
        segment: SegmentNumber,
        /// Where its copies lie.
        slots: Vec<SlotAddress>,
        /// Position of the last record that can be reached.
        last: u64,
    },
    /// Why a pool is not opened.
    #[error(transparent)]
    NotOpened(#[from] NotOpened),
    /// A drive that is to become one of a pool belongs to one.
    #[error(
        "drive {drive} belongs to pool {pool}, which may need it; 'spindle pool show' of that pool says whether anything \
         lies on it alone"
    )]
    InUse {
        /// Which of those given, from 0.
        drive: usize,
        /// Its pool.
        pool: PoolId,
    },
    /// A drive is too small for a pool.
    #[error(
        "drive {drive} has {size} bytes, and {needed} are the least; give it more, or take smaller slots"
    )]
    TooSmall {
        /// Which of those given, from 0.
        drive: usize,
        /// What it has, in bytes.
        size: u64,
        /// What it needs, in bytes.
        needed: u64,
    },
    /// Something points to a segment that is not there.
    #[error("segment {0} is pointed to and is not there; the pool is damaged")]
    NoSegment(SegmentNumber),
    /// No drive that is there has a copy of a segment.
    #[error("no drive that is there has a copy of segment {0}")]
    NoCopy(SegmentNumber),
    /// Two segments are said to have one slot.
    #[error("slot {} of drive {} is in two segments; the pool is damaged", .0.slot, .0.member)]
    SlotTwice(SlotAddress),
    /// There is no such volume.
    #[error("the pool has no volume {0:?}")]
    NoVolume(String),
    /// There is no such snapshot.
    #[error("volume {volume:?} has no snapshot {snapshot:?}")]
    NoSnapshot {
        /// Of which volume.
        volume: String,
        /// Its name.
        snapshot: String,
    },
    /// The name is taken.
    #[error("{0:?} is there already; take another name")]
    NameTaken(String),
    /// The name cannot be one.
    #[error("{0:?} is no name: 1 to 128 bytes of UTF-8 without control characters")]
    BadName(String),
    /// The size cannot be that of a volume.
    #[error("a volume cannot have {0} bytes: a multiple of 512, at least 512 and at most 64 TiB")]
    BadSize(u64),
    /// There are as many volumes as there can be.
    #[error("the pool has {0} volumes, and cannot have more; delete one first")]
    TooManyVolumes(usize),
    /// The volume takes as much as it may.
    #[error("volume number {0} has reached its limit; raise it, delete something, or delete snapshots")]
    LimitReached(VolumeNumber),
    /// What is left is kept for other volumes.
    #[error(
        "what is left of the pool is kept for volumes other than number {0}; add drives or lower a reserve"
    )]
    Reserved(VolumeNumber),
    /// Bounds that cannot be.
    #[error(
        "a reserve of {reserve_bytes} and a limit of {limit_bytes} bytes: both are multiples of 4096, and the limit is \
         not below the reserve"
    )]
    BadBounds {
        /// The reserve.
        reserve_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The reserves of all volumes would be more than there is.
    #[error("{wanted_bytes} bytes cannot be kept for a volume; {left_bytes} can")]
    NoRoomToReserve {
        /// Asked for.
        wanted_bytes: u64,
        /// Possible.
        left_bytes: u64,
    },
    /// So many copies nothing can have.
    #[error("a pool cannot keep {0} copies: one, two or three")]
    BadCopies(usize),
    /// Snapshots are in the way.
    #[error("volume {volume:?} has {count} snapshots; delete them first, or with it")]
    HasSnapshots {
        /// Which volume.
        volume: String,
        /// How many it has.
        count: usize,
    },
    /// Too many volumes for one cut.
    #[error("{volumes} volumes cannot be cut at once; {at_most} can")]
    TooManyAtOnce {
        /// That were named.
        volumes: usize,
        /// That one record has room for.
        at_most: usize,
    },
    /// No copy of a block is right.
    #[error("block {block} of branch {branch}: no copy of it can be read and is right")]
    Unreadable {
        /// Which block.
        block: BlockIndex,
        /// Of which branch.
        branch: BranchNumber,
    },
    /// The pool holds something that this program cannot read.
    #[error("{0} cannot be read by this program; a newer one can")]
    NotYet(&'static str),
    /// No segment is free for what was asked.
    #[error("the pool is full")]
    Full,
    /// What was answered from a write cache did not become stable on any copy.
    #[error(
        "segment {0} of the log could not be made stable on any of its drives; what was written since the last \
             flush is lost"
    )]
    CacheLost(SegmentNumber),
    /// Too few drives answer for what was asked.
    #[error("{present} drives of the pool can be written, and {needed} copies are needed")]
    TooFewDrives {
        /// Drives that can be written.
        present: usize,
        /// Copies wanted.
        needed: usize,
    },
    /// Too few drives have space for what is written to them.
    #[error(
        "too many drives of the pool are out of space, {}; make room there: until then nothing can be written, and \
         everything stays readable",
        drives_and_reasons(.0)
    )]
    OutOfSpace(WriteFailures),
    /// More drives failed to write than some data has copies to spare.
    #[error(
        "{} cannot be written, and some data has no copy elsewhere: the pool takes no more writes, and gives up none of \
         these drives, so that all it holds stays readable; see to the drives, then open the pool again",
        drives_and_reasons(.0)
    )]
    NoCopyToSpare(WriteFailures),
    /// The pool stopped earlier.
    #[error("the pool has stopped: {0}")]
    Stopped(String),
}

/// Slots, for a person.
fn places(slots: &[SlotAddress]) -> String {
    let named = slots.iter().map(|slot| format!("slot {} of drive {}", slot.slot, slot.member));
    named.collect::<Vec<_>>().join(" and ")
}

/// Drives and what each of them said, for a person.
fn drives_and_reasons(failures: &WriteFailures) -> String {
    let named = failures.iter().map(|(member, error)| format!("drive {member} ({error})"));
    named.collect::<Vec<_>>().join(", ")
}
