//! Creation of a pool on drives that have none.

use super::growth::slots_in;
use crate::{
    drive::{Drives, all_written, first_of},
    error::{Error, Result},
    failure_sets::{SETS_FROM_DRIVES, assign_rows},
    format::{
        Checkpoint, CheckpointNumber, DomainName, DriveId, Features, Fence, FormatLevel, Generation,
        Incarnation, LogStart, Member, MemberIndex, MemberState, MirroredSegment, PoolGeometry, PoolId,
        Position, RecordLink, Roots, SegmentBlock, SegmentKind, SegmentUse, SlotHeader, Sparing,
        SparingLevel, Stamp, Superblock, WallNanoseconds, features::INCOMPATIBLE_PIVOTS,
        segment::MIRRORS_MAX, superblock::DATA_START_BYTES_MIN,
    },
    member_table::LOG_COPIES,
    redundancy::{Copies, FailureDomains, FailureSets, Placement, Raid1},
    segments::Segments,
    superblocks::{clear_places, look, write_generation},
};
use std::rc::Rc;
use world::{BlockDevice, Stability, World};

/// Minimum size of a drive in slots: for the log and its successors, the trees, and the reserve.
pub const SLOTS_MIN: u32 = 48;

/// A drive to add to a pool.
#[derive(Clone)]
pub struct NewDrive {
    pub drive: DriveId,
    /// Printable ASCII, at most 48 characters.
    pub serial: String,
    /// Drives of one domain fail together.
    pub domain: Option<DomainName>,
    pub device: Rc<dyn BlockDevice>,
}

/// Identity and layout of a new pool.
#[derive(Clone, Debug)]
pub struct NewPool {
    pub pool: PoolId,
    pub name: String,
    /// 1, 2 or 4 MiB.
    pub slot_bytes: u32,
    pub sparing: SparingLevel,
}

/// Creates a pool. The drives' content is erased, but drives of another pool are refused.
///
/// # Errors
///
/// A drive belongs to a pool, is too small, or fails. An opening does not find a pool whose creation failed.
pub async fn create(world: &World, new: &NewPool, drives: &[NewDrive]) -> Result<()> {
    create_with_copies(world, new, drives, drives.len().min(LOG_COPIES)).await
}

/// As [`create`], with `copies` copies of the log, of data that stays in it, and of the trees: two, or three
/// to survive the loss of two drives. A pool of one drive has one copy until another drive is added.
///
/// # Errors
///
/// As [`create`]; or too few drives for the copies and the sparing, or more than three copies.
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
    let needed = copies + usize::from(new.sparing.drives());
    if drives.len() < needed {
        return Err(Error::TooFewToSpare { drives: drives.len(), needed });
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
    // Fewer have none.
    let wants_sets = members.len() >= SETS_FROM_DRIVES;
    assign_rows(&mut members, copies);
    let (log_segment, segment_use_next) = first_log_segment(geometry, &members);
    let mut superblock = Superblock {
        pool: new.pool,
        name: new.name.clone(),
        generation,
        settled: Generation(0),
        mark: crate::engine::draw_mark(world, generation),
        previous_mark: Default::default(),
        features: Features { incompatible: INCOMPATIBLE_PIVOTS, ..Features::default() }
            .with_sparing(Sparing::whole(new.sparing))
            .raised_to(FormatLevel::NEWEST),
        created_at: WallNanoseconds::of(world.wall()),
        geometry,
        members,
        this: MemberIndex(0),
        place: 1,
        checkpoint: Checkpoint {
            pool: new.pool,
            number: CheckpointNumber(1),
            incarnation: Incarnation(1),
            log: LogStart { previous: RecordLink::BEGINNING, segment: log_segment, block: SegmentBlock(0) },
            acknowledged_below: Position(1),
            position_next: Position(1),
            stamp_next: Stamp(1),
            segment_use_next,
            fence: Fence(0),
            written_at: WallNanoseconds::of(world.wall()),
            roots: Roots::default(),
            catalogue_segments: Vec::new(),
        },
    };
    superblock.note_domains();
    superblock.set_wants_sets(wants_sets);
    superblock.note_sets();
    Ok(superblock)
}

/// The row of a new drive in the member table.
pub(super) fn member_of(geometry: PoolGeometry, index: usize, drive: &NewDrive) -> Result<Member> {
    let size = drive.device.geometry();
    let slots = slots_in(geometry, size.size);
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
        domain: drive.domain,
        set: None,
    })
}

fn first_log_segment(geometry: PoolGeometry, members: &[Member]) -> (MirroredSegment, SegmentUse) {
    let indexes: Vec<_> = (0..members.len() as u16).map(MemberIndex).collect();
    let counts = indexes.iter().copied().zip(members.iter().map(|member| member.slot_count));
    let mut segments = Segments::new(geometry, counts, SegmentUse(1));
    let copies = Copies::of(geometry).log;
    let (domains, sets) = (FailureDomains::of(members), FailureSets::of(members));
    let placement = Placement::on(&indexes, &domains).within(&sets);
    let log = segments.allocate(SegmentKind::Log, &Raid1, copies, placement);
    (log.expect("new drives have room"), segments.use_next())
}

/// Writes the header of the first log segment. It has no successors; the opening allocates some.
async fn write_log_header(drives: &Drives, superblock: &Superblock) -> Result<()> {
    let segment = &superblock.checkpoint.log.segment;
    let header = SlotHeader {
        pool: superblock.pool,
        number: segment.number,
        segment_use: segment.segment_use,
        incarnation: superblock.checkpoint.incarnation,
        kind: SegmentKind::Log,
        shape: drives.mirror_shape(segment.slots.len()),
        slots: segment.slots.clone(),
        slot_index: 0,
        first_position: superblock.checkpoint.position_next,
        successors: Vec::new(),
    };
    all_written(drives.write_headers(&header, Stability::Stable)).await.map_err(first_of)
}
