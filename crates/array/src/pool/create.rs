//! Making a pool of drives that have none.

use crate::{
    drive::{Drives, all_written, first_of},
    error::{Error, Result},
    format::{
        Checkpoint, CheckpointNumber, DriveId, Features, Fence, Generation, Incarnation, Link, LogStart,
        Member, MemberIndex, MemberState, MirroredSegment, PoolGeometry, PoolId, Position, Roots,
        SegmentBlock, SegmentKind, SegmentUse, SlotHeader, Stamp, Superblock, WallNanoseconds,
        segment::MIRRORS_MAX, superblock::DATA_START_BYTES_MIN,
    },
    log::log_shape,
    segments::Segments,
    succession::LOG_COPIES,
    superblocks::{clear_places, look, write_generation},
};
use std::rc::Rc;
use world::{BlockDevice, Stability, World};

/// Slots a drive must have room for at least: those of the log and its successors, of the trees, and the reserve.
pub const SLOTS_MIN: u32 = 48;

/// A drive that is to become one of a pool.
#[derive(Clone)]
pub struct NewDrive {
    /// Its name in the pool.
    pub drive: DriveId,
    /// For people; printable ASCII, at most 48 characters.
    pub serial: String,
    /// The drive.
    pub device: Rc<dyn BlockDevice>,
}

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// A name no other pool has.
    pub pool: PoolId,
    /// For people.
    pub name: String,
    /// Bytes of a slot: 1, 2 or 4 MiB.
    pub slot_bytes: u32,
}

/// Makes a pool. What the drives held is lost, but a pool is not overwritten.
///
/// # Errors
///
/// A drive is a pool's already, or too small, or fails. A pool that was not made whole is none: opening does not
/// find it.
pub async fn create(world: &World, new: &NewPool, drives: &[NewDrive]) -> Result<()> {
    create_with_copies(world, new, drives, drives.len().min(LOG_COPIES)).await
}

/// As [`create`], with so many copies of the log, of everything that rests in it, and of the trees: two, or three where
/// two drives may be lost; one if there is but one drive, until it gets another.
///
/// # Errors
///
/// As for [`create`]; or there are too few drives, or more copies than three.
pub async fn create_with_copies(
    world: &World,
    new: &NewPool,
    drives: &[NewDrive],
    copies: usize,
) -> Result<()> {
    if drives.is_empty() || drives.len() < copies {
        return Err(Error::TooFewDrives { present: drives.len(), needed: copies.max(1) });
    }
    if !(drives.len().min(LOG_COPIES)..=MIRRORS_MAX).contains(&copies) {
        return Err(Error::BadCopies(copies));
    }
    let devices: Vec<_> = drives.iter().map(|drive| Rc::clone(&drive.device)).collect();
    if let Some(seen) = look(&devices).await.first() {
        return Err(Error::InUse { drive: seen.given, pool: seen.superblock.pool });
    }
    let superblock = first_superblock(world, new, drives, copies)?;
    let members = devices.into_iter().enumerate();
    let there =
        Drives::new(superblock.geometry, members.map(|(index, device)| (MemberIndex(index as u16), device)));
    clear_places(&there).await?;
    write_log_header(&there, &superblock).await?;
    write_generation(&there, &superblock).await.map_err(first_of)
}

fn first_superblock(world: &World, new: &NewPool, drives: &[NewDrive], copies: usize) -> Result<Superblock> {
    let geometry = PoolGeometry {
        data_start_bytes: DATA_START_BYTES_MIN,
        slot_bytes: new.slot_bytes,
        log_copies: copies as u8,
    };
    let mut members = Vec::new();
    for (index, drive) in drives.iter().enumerate() {
        members.push(member_of(geometry, index, drive)?);
    }
    let generation = Generation(1);
    let (log_segment, segment_use_next) = first_log_segment(geometry, &members);
    Ok(Superblock {
        pool: new.pool,
        name: new.name.clone(),
        generation,
        settled: Generation(0),
        mark: super::membership::draw_mark(world, generation),
        previous_mark: Default::default(),
        features: Features::default(),
        created_at: WallNanoseconds::of(world.wall()),
        geometry,
        members,
        this: MemberIndex(0),
        place: 1,
        checkpoint: Checkpoint {
            pool: new.pool,
            number: CheckpointNumber(1),
            incarnation: Incarnation(1),
            log: LogStart { previous: Link::BEGINNING, segment: log_segment, block: SegmentBlock(0) },
            acknowledged_below: Position(1),
            position_next: Position(1),
            stamp_next: Stamp(1),
            segment_use_next,
            fence: Fence(0),
            written_at: WallNanoseconds::of(world.wall()),
            roots: Roots::default(),
            catalogue_segments: Vec::new(),
        },
    })
}

/// The row of a new drive in the member table.
pub(super) fn member_of(geometry: PoolGeometry, index: usize, drive: &NewDrive) -> Result<Member> {
    let size = drive.device.geometry();
    let slots = size.size.0.saturating_sub(geometry.data_start_bytes) / u64::from(geometry.slot_bytes);
    if slots < u64::from(SLOTS_MIN) {
        let needed = geometry.data_start_bytes + u64::from(SLOTS_MIN) * u64::from(geometry.slot_bytes);
        return Err(Error::TooSmall { drive: index, size: size.size.0, needed });
    }
    Ok(Member {
        drive: drive.drive,
        serial: drive.serial.clone(),
        state: MemberState::Active,
        since: Generation(1),
        sector_bytes: size.sector as u16,
        slot_count: u32::try_from(slots).unwrap_or(u32::MAX),
    })
}

fn first_log_segment(geometry: PoolGeometry, members: &[Member]) -> (MirroredSegment, SegmentUse) {
    let indexes: Vec<_> = (0..members.len() as u16).map(MemberIndex).collect();
    let counts = indexes.iter().copied().zip(members.iter().map(|member| member.slot_count));
    let mut segments = Segments::new(geometry, counts, SegmentUse(1));
    let log = segments.allocate(SegmentKind::Log, usize::from(geometry.log_copies), &indexes);
    (log.expect("new drives have room"), segments.use_next())
}

/// The log begins in a segment without successors: opening gives it others.
async fn write_log_header(drives: &Drives, superblock: &Superblock) -> Result<()> {
    let segment = &superblock.checkpoint.log.segment;
    let header = SlotHeader {
        pool: superblock.pool,
        number: segment.number,
        segment_use: segment.segment_use,
        incarnation: superblock.checkpoint.incarnation,
        kind: SegmentKind::Log,
        shape: log_shape(superblock.geometry.slot_blocks(), segment.slots.len()),
        slots: segment.slots.clone(),
        slot_index: 0,
        first_position: superblock.checkpoint.position_next,
        successors: Vec::new(),
    };
    all_written(drives.write_headers(&header, Stability::Stable)).await.map_err(first_of)
}
