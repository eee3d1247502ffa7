//! Opening a pool: electing a superblock, reading trees and log, and starting a new incarnation.
//!
//! 1. The drives elect a superblock; it is written to current drives that lack it.
//! 2. The catalogue is read and the log replayed: the state in RAM is then everything that was acknowledged.
//! 3. A superblock with the next incarnation, and with numbers that were never used, is written. It leaves
//!    out absent drives.
//! 4. A checkpoint merges the replayed records, and the log continues in a new segment.
//!
//! After a crash at any point, the pool opens in the same way.

use super::{
    OpenSetting, Parts, Pool,
    read_only::{WriteAnswer, WriteShield},
};
use crate::{
    drive::Drives,
    election::{Election, OpenRefusal, can_go_on_with, elect},
    engine::{
        Absences, Catalogue, Nodes, Phase, PoolLog, Shared, State,
        events::{DriveName, PoolEventLog, given_drives},
    },
    error::{Error, Result},
    format::{
        BLOCK_GRAINS, CatalogueTable, Checkpoint, CheckpointNumber, ChecksumSeed, DriveId, Incarnation,
        LogStart, MemberIndex, MemberState, MirroredSegment, NodePointer, Position, RowKey, SegmentBlock,
        SegmentKind, SegmentNumber, SegmentUse, SlotAddress, Stamp, Superblock,
        checkpoint::OPENING_STEP,
        features::READ_ONLY_BRANCH_STAMPS,
        row::{SegmentRow, SegmentState},
    },
    log::{LogSink, LogTail, LogWriter, LogWriterSetting, ReplayOutcome, ReplayStart, replay},
    redundancy::SegmentLayout,
    segments::Segments,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
    superblocks::{look, write_generation},
    timed_device::DriveTimeouts,
    tree::{NodeStore, Trees},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{BlockDevice, BoxedFuture, IoError, World};

const BATCH_RECORDS_MAX: usize = 4;

/// Opens the pool on `devices`.
///
/// # Errors
///
/// The pool cannot be opened. Nothing was written except elected superblocks.
pub fn open<'a>(
    world: &'a World,
    devices: &'a [Rc<dyn BlockDevice>],
    setting: OpenSetting,
) -> BoxedFuture<'a, Result<Rc<Pool>>> {
    Box::pin(async move {
        let (read, checkpoint) = read_all(world, devices, setting).await?;
        let under_way = UnderWay::begin(Sometimes::CutWhileBeginning);
        let pool = go_on(read, &checkpoint, setting).await?;
        under_way.end();
        Ok(pool)
    })
}

/// Tries to open the pool without writing to any drive.
///
/// # Errors
///
/// The error that an opening would return.
pub fn check_opens<'a>(
    world: &'a World,
    devices: &'a [Rc<dyn BlockDevice>],
    setting: OpenSetting,
) -> BoxedFuture<'a, Result<()>> {
    Box::pin(async move {
        let devices = WriteShield::over(devices, WriteAnswer::Pretend);
        let (read, _) = read_all(world, &devices, setting).await?;
        if !setting.forced {
            check_none_left_behind(&read.shared, &read.replayed)?;
        }
        // The first generation written by an opening requires this of the remaining drives.
        check_enough(&read.shared.drives, &read.shared.superblock.borrow())
    })
}

/// Reads the state of the pool. Returns it with the checkpoint at which the log begins.
async fn read_all(
    world: &World,
    devices: &[Rc<dyn BlockDevice>],
    setting: OpenSetting,
) -> Result<(ReadIn, Checkpoint)> {
    let watch = DriveTimeouts::new(world, setting.answer_within, setting.read_within);
    let devices: Vec<_> = devices.iter().map(|device| watch.watch(device)).collect();
    let seen = look(&devices).await;
    let election = elect(&seen, setting.forced)?;
    let events = PoolEventLog::new(world);
    events.report_election(&election, &seen);
    let (given, copies_after) = (given_drives(&seen), setting.copies_after);
    let around = Around { world, watch: &watch, events: &events, given, copies_after };
    let drives = drives_of(&election, &devices);
    drives.follow(&election.superblock);
    let superblock = election.superblock;
    let under_way = UnderWay::begin(Sometimes::CutWhileReplaying);
    settle_generation(&around, &drives, &superblock).await?;
    let read = loop {
        match read_in(&around, &drives, &superblock, setting).await? {
            Ok(read) => break read,
            // A drive that fails now is treated as absent.
            Err((member, error)) => {
                around.lose((member, error), &drives, &superblock);
                check_enough(&drives, &superblock)?;
            }
        }
    };
    under_way.end();
    Ok((read, superblock.checkpoint))
}

/// Context of an opening.
struct Around<'a> {
    world: &'a World,
    watch: &'a Rc<DriveTimeouts>,
    events: &'a Rc<PoolEventLog>,
    given: BTreeMap<DriveId, usize>,
    copies_after: Duration,
}

impl Around<'_> {
    /// Continues without a drive that failed.
    fn lose(&self, (member, error): (MemberIndex, IoError), drives: &Drives, superblock: &Superblock) {
        sometimes::reached(Sometimes::DriveGivenUpWhileOpening);
        drives.lose(member);
        let row = &superblock.members[usize::from(member.0)];
        self.events.report_loss(DriveName::of(member, row, &self.given), error);
    }
}

/// The present drives. A drive that was joining continues to join, and one that was departing to depart.
fn drives_of(election: &Election, devices: &[Rc<dyn BlockDevice>]) -> Drives {
    let superblock = &election.superblock;
    let present = election.present.iter().map(|(&member, &given)| (member, Rc::clone(&devices[given])));
    let is_joining = |(member, _): &(MemberIndex, _)| {
        superblock.members[usize::from(member.0)].state == MemberState::Joining
    };
    let (joining, members): (Vec<_>, Vec<_>) = present.partition(is_joining);
    sometimes::reached_if(!joining.is_empty(), Sometimes::JoiningWentOn);
    let drives = Drives::new(superblock.geometry, members);
    joining.into_iter().for_each(|(member, device)| drives.let_join(member, device));
    for (&member, &given) in &election.departing {
        drives.let_depart(member, Rc::clone(&devices[given]));
    }
    drives
}

/// Writes the elected superblock to every drive that should have it.
async fn settle_generation(around: &Around<'_>, drives: &Drives, superblock: &Superblock) -> Result<()> {
    while let Err(failures) = write_generation(drives, superblock).await {
        let count = failures.len();
        let failures = drives.set_aside_out_of_space(failures);
        if failures.len() < count {
            return Err(Error::OutOfSpace(drives.out_of_space()));
        }
        failures.into_iter().for_each(|failure| around.lose(failure, drives, superblock));
        check_enough(drives, superblock)?;
    }
    Ok(())
}

fn check_enough(drives: &Drives, superblock: &Superblock) -> Result<()> {
    let left: BTreeSet<MemberIndex> =
        drives.members().into_iter().chain(drives.departing_members()).collect();
    if can_go_on_with(superblock, &left) {
        return Ok(());
    }
    Err(Error::TooFewDrives { present: left.len(), needed: left.len() + 1 })
}

/// The state of a pool as read from its drives.
struct ReadIn {
    shared: Rc<Shared>,
    nodes: Rc<Nodes>,
    trees: Rc<Trees>,
    replayed: ReplayOutcome,
}

/// Reads catalogue and log. The inner error is a drive that failed during a repair.
async fn read_in(
    around: &Around<'_>,
    drives: &Drives,
    superblock: &Superblock,
    setting: OpenSetting,
) -> Result<std::result::Result<ReadIn, (MemberIndex, IoError)>> {
    let checkpoint = &superblock.checkpoint;
    let shared = Rc::new(shared_of(around, drives, superblock)?);
    let nodes = Rc::new(Nodes::new(Rc::clone(&shared)));
    let store = Rc::clone(&nodes) as Rc<dyn NodeStore>;
    let trees = Rc::new(Trees::new(store, superblock.pool, setting.cache_bytes));
    // Blocks of catalogue nodes in each segment.
    let mut catalogue_nodes: BTreeMap<SegmentNumber, u32> = BTreeMap::new();
    let count = |node: &NodePointer| {
        *catalogue_nodes.entry(node.segment).or_default() += u32::from(node.blocks);
    };
    let rows = trees.all_rows(checkpoint.roots.catalogue, count).await?;
    {
        let mut state = shared.state.borrow_mut();
        state.catalogue = catalogue_of(&rows)?;
        for (branch, point) in state.catalogue.deletions() {
            state.reclaim.point_deleted(branch, point);
        }
        let discards = state.catalogue.discards();
        state.table.set_unfinished(&discards);
    }
    let replayed = match replay_into(&shared, checkpoint).await {
        Err(Error::Drive { member, error }) => return Ok(Err((member, error))),
        replayed => replayed?,
    };
    {
        let mut state = shared.state.borrow_mut();
        let announced = std::mem::take(&mut state.announced);
        sometimes::reached_if(!announced.is_empty(), Sometimes::SegmentAnnounced);
        let known = SegmentSources { rows: &rows, catalogue_nodes: &catalogue_nodes, announced };
        state.segments = segments_of(drives, superblock, known, &replayed)?;
    }
    nodes.adopt_catalogue(&catalogue_nodes);
    Ok(Ok(ReadIn { shared, nodes, trees, replayed }))
}

/// Starts the new incarnation; from here on the pool is written.
async fn go_on(read: ReadIn, checkpoint: &Checkpoint, setting: OpenSetting) -> Result<Rc<Pool>> {
    let ReadIn { shared, nodes, trees, replayed } = read;
    let incarnation = Incarnation(checkpoint.incarnation.0.max(replayed.incarnation.0) + 1);
    {
        let mut state = shared.state.borrow_mut();
        if shared.superblock.borrow().features.read_only & READ_ONLY_BRANCH_STAMPS == 0 {
            state.assume_stamps_of_branches();
        }
        state.stamp_next = if canary::is(Canary::ForgottenBump) {
            checkpoint.stamp_next
        } else {
            Stamp(state.stamp_next.0 + OPENING_STEP)
        };
    }
    if !setting.forced {
        check_none_left_behind(&shared, &replayed)?;
    }
    announce(&shared, incarnation, &replayed).await?;
    shared.admit_joined();
    shared.await_missing_drives();
    nodes.begin(incarnation);
    let sink = PoolLog::new(&shared);
    let log = new_log(&shared, &sink, incarnation, &replayed).await?;
    let pool = Rc::new(Pool::new(Parts { shared, nodes, trees, sink, log }, setting));
    pool.checkpoint().await?;
    pool.drive_watch.health.check();
    pool.run();
    if !canary::is(Canary::IntentForgotten) {
        pool.complete_intents().await?;
    }
    Ok(pool)
}

fn shared_of(around: &Around<'_>, drives: &Drives, superblock: &Superblock) -> Result<Shared> {
    let checkpoint = &superblock.checkpoint;
    // The catalogue's own segments suffice to read it, and it has all others.
    let mut segments = empty_segments(superblock, SegmentUse(0));
    for segment in &checkpoint.catalogue_segments {
        adopt(&mut segments, segment.number, row_of(drives, segment, SegmentKind::Nodes))?;
    }
    Ok(Shared {
        phase: Cell::new(Phase::Opening),
        world: around.world.clone(),
        drives: drives.clone(),
        pool: superblock.pool,
        seed: ChecksumSeed::of(superblock.pool),
        state: RefCell::new(State::of(checkpoint, segments)),
        readers: Default::default(),
        superblock: RefCell::new(superblock.clone()),
        publishing: Default::default(),
        space_wait: Default::default(),
        node_slots: Default::default(),
        stopped: RefCell::new(None),
        repaired: Cell::new(0),
        are_caches_suspended: Cell::new(false),
        watch: Rc::clone(around.watch),
        events: Rc::clone(around.events),
        absences: Absences::new(around.copies_after),
        given: around.given.clone(),
        has_unsaved_rows: Cell::new(false),
        space_counted: Cell::new(None),
        domains_counted: Cell::new(None),
        sets_counted: Cell::new(None),
        rebuild_slots: Cell::new(0),
        demand: Default::default(),
        wakes: Default::default(),
        subscribers: Default::default(),
        features_under_way: Default::default(),
        changing: Default::default(),
    })
}

fn empty_segments(superblock: &Superblock, use_next: SegmentUse) -> Segments {
    let members = superblock.members.iter().enumerate();
    let counts = members
        .filter(|(_, member)| member.state.has_slots())
        .map(|(index, member)| (MemberIndex(index as u16), member.slot_count));
    Segments::new(superblock.geometry, counts, use_next)
}

fn row_of(drives: &Drives, segment: &MirroredSegment, kind: SegmentKind) -> SegmentRow {
    SegmentRow {
        segment_use: segment.segment_use,
        kind,
        state: SegmentState::Open,
        shape: drives.mirror_shape(segment.slots.len()),
        slots: segment.slots.clone(),
        live_grains: 0,
    }
}

fn adopt(segments: &mut Segments, number: SegmentNumber, row: SegmentRow) -> Result<()> {
    segments.adopt(number, row).map_err(Error::SlotTwice)
}

fn catalogue_of(rows: &[(RowKey, Vec<u8>)]) -> Result<Catalogue> {
    let mut catalogue = Catalogue::default();
    for (key, bytes) in rows.iter().filter(|(key, _)| key.table != CatalogueTable::Segment) {
        let refused = |refusal| Error::Damaged { what: format!("row {key:?}"), refusal };
        catalogue.put(*key, bytes).map_err(refused)?;
    }
    catalogue.is_as_of_checkpoint();
    Ok(catalogue)
}

async fn replay_into(shared: &Shared, checkpoint: &Checkpoint) -> Result<ReplayOutcome> {
    let start = ReplayStart {
        pool: shared.pool,
        log: &checkpoint.log,
        position_next: checkpoint.position_next,
        acknowledged_below: checkpoint.acknowledged_below,
    };
    let mut refused = None;
    let replayed = replay(&shared.drives, start, |taken| {
        let position = taken.record.position;
        if let Err(refusal) = shared.state.borrow_mut().take(&taken.record, taken.rows) {
            refused.get_or_insert(Error::Damaged { what: format!("a row in record {position}"), refusal });
        }
    })
    .await?;
    refused.map_or(Ok(replayed), Err)
}

/// Sources of segment rows, apart from the superblock and the log's chain.
struct SegmentSources<'a> {
    /// From the catalogue.
    rows: &'a [(RowKey, Vec<u8>)],
    /// Segments of the catalogue's own nodes.
    catalogue_nodes: &'a BTreeMap<SegmentNumber, u32>,
    /// From the log: targets of moves.
    announced: Vec<(SegmentNumber, SegmentRow)>,
}

/// All segments: those in the catalogue, those of the catalogue's own nodes, and those begun since.
fn segments_of(
    drives: &Drives,
    superblock: &Superblock,
    known: SegmentSources<'_>,
    replayed: &ReplayOutcome,
) -> Result<Segments> {
    let SegmentSources { rows, catalogue_nodes, announced } = known;
    let checkpoint = &superblock.checkpoint;
    let use_next = checkpoint.segment_use_next.0.max(replayed.segment_use.0 + 1) + OPENING_STEP;
    let mut segments = empty_segments(superblock, SegmentUse(use_next));
    let said_elsewhere: BTreeSet<SegmentNumber> = checkpoint
        .catalogue_segments
        .iter()
        .chain(&replayed.segments)
        .map(|segment| segment.number)
        .collect();
    for (key, bytes) in rows.iter().filter(|(key, _)| key.table == CatalogueTable::Segment) {
        let number = SegmentNumber(key.id as u32);
        let refused = |refusal| Error::Damaged { what: format!("row {key:?}"), refusal };
        let mut row = SegmentRow::decode(bytes).map_err(refused)?;
        if said_elsewhere.contains(&number) {
            continue;
        }
        // The incarnation that wrote it has ended.
        row.state = SegmentState::Sealed;
        adopt(&mut segments, number, row)?;
    }
    for segment in &checkpoint.catalogue_segments {
        let mut row = row_of(drives, segment, SegmentKind::Nodes);
        row.state = SegmentState::Sealed;
        let blocks = catalogue_nodes.get(&segment.number).copied().unwrap_or(0);
        row.live_grains = blocks * BLOCK_GRAINS as u32;
        adopt(&mut segments, segment.number, row)?;
    }
    for (number, row) in announced {
        // Live data is what the trees have. The catalogue's row, if any, is older or the same.
        let live_grains = segments.row(number).filter(|known| known.segment_use == row.segment_use);
        let live_grains = live_grains.map_or(0, |known| known.live_grains);
        adopt(&mut segments, number, SegmentRow { state: SegmentState::Sealed, live_grains, ..row })?;
    }
    let checkpoint_next = CheckpointNumber(checkpoint.number.0 + 1);
    for segment in &replayed.segments {
        let key = RowKey::of_segment(segment.number);
        let known = rows.binary_search_by_key(&key, |(row, _)| *row).ok();
        let known = known.and_then(|index| SegmentRow::decode(&rows[index].1).ok());
        if known.as_ref().is_some_and(|row| row.segment_use > segment.segment_use) {
            // A segment that a replay may pass through is not given back.
            return Err(Error::SegmentTwice(segment.number));
        }
        let live =
            known.filter(|row| row.segment_use == segment.segment_use).map_or(0, |row| row.live_grains);
        let row = SegmentRow { live_grains: live, ..row_of(drives, segment, SegmentKind::Log) };
        adopt(&mut segments, segment.number, row)?;
    }
    for &(number, slot) in &replayed.lacking {
        sometimes::reached(Sometimes::CopyGivenUpForSpace);
        segments.drop_copy(number, slot, checkpoint_next);
    }
    Ok(segments)
}

/// Fails if mirrored data, or a segment in which the log may continue, has all its copies on drives that are
/// members and would be left out.
fn check_none_left_behind(shared: &Shared, replayed: &ReplayOutcome) -> Result<()> {
    let superblock = shared.superblock.borrow();
    let state = shared.state.borrow();
    let is_left_out = |slot: &SlotAddress| {
        superblock.members[usize::from(slot.member.0)].state.holds_superblocks()
            && !shared.drives.has(slot.member)
    };
    let rows = state.segments.iter().map(|(_, row)| SegmentLayout::of(row));
    let redundant = rows.filter(|segment| segment.scheme().is_redundant());
    let ahead = replayed.successors.iter().map(|segment| shared.drives.mirror(&segment.slots));
    let is_lost = |segment: &SegmentLayout<'_>| segment.is_lost(shared.drives.copies_there(segment.slots));
    let left_out = redundant.chain(ahead).filter(is_lost).flat_map(|segment| segment.slots);
    let members: BTreeSet<_> = left_out.filter(|slot| is_left_out(slot)).map(|slot| slot.member).collect();
    if members.is_empty() {
        return Ok(());
    }
    let drives = members.iter().map(|member| superblock.members[usize::from(member.0)].drive);
    Err(OpenRefusal::TooFewDrives(drives.collect()).into())
}

/// Publishes the new incarnation and its first numbers to all drives.
async fn announce(shared: &Shared, incarnation: Incarnation, replayed: &ReplayOutcome) -> Result<()> {
    let (stamp_next, segment_use_next) = {
        let state = shared.state.borrow();
        (state.stamp_next, state.segments.use_next())
    };
    let written_at = shared.wall_now();
    shared
        .publish(|superblock| {
            let checkpoint = &mut superblock.checkpoint;
            checkpoint.incarnation = incarnation;
            checkpoint.position_next = replayed.position_next;
            checkpoint.stamp_next = stamp_next;
            checkpoint.segment_use_next = segment_use_next;
            checkpoint.written_at = written_at;
        })
        .await
}

/// Continues the log in a new segment whose copies are all present.
async fn new_log(
    shared: &Rc<Shared>,
    sink: &Rc<PoolLog>,
    incarnation: Incarnation,
    replayed: &ReplayOutcome,
) -> Result<Rc<LogWriter>> {
    let owner = Rc::clone(sink) as Rc<dyn LogSink>;
    let fence = shared.superblock.borrow().checkpoint.fence;
    let acknowledged = Position(replayed.last.position.0 + 1);
    let segment = replayed.segment();
    let shape = shared.drives.mirror_shape(segment.slots.len());
    let tail = LogTail::new(
        (shared.pool, incarnation, fence),
        (replayed.position_next, acknowledged, replayed.last),
        (segment.clone(), shape, replayed.block),
    );
    let setting = LogWriterSetting { batch_records_max: BATCH_RECORDS_MAX };
    let parts = (shared.drives.clone(), shared.seed, setting);
    let log_writer = LogWriter::new(&shared.world, parts, owner, (tail, Vec::new()));
    log_writer.start_elsewhere().await?;
    let tail = log_writer.tail();
    let mut state = shared.state.borrow_mut();
    state.log_taken =
        LogStart { previous: replayed.last, segment: tail.segment().clone(), block: SegmentBlock(0) };
    assert_eq!(state.log_segments.back(), Some(&tail.segment().number), "the log said where it is");
    Ok(log_writer)
}
