//! State shared by the parts of an open pool: its drives, the tables in RAM, the current superblock.
//!
//! Invariants:
//!
//! 1. `state` is consistent whenever it is not borrowed: nothing awaits in the middle of a change.
//! 2. `state` is what the trees at `roots`, the merging table and the active table say together; the log
//!    continues at `log_taken`.
//! 3. `superblock` is complete on every present member, unless the pool has stopped.

use super::{
    Absences, Catalogue, PoolSpace, ReadGuard, SpaceDemand, Wakes,
    branch_stamps::BranchStamps,
    change_lock::CatalogueLock,
    domains::DomainBasis,
    events::{EventKind, PoolEventLog},
    failure_sets::SetBasis,
    log_subscribers::LogSubscribers,
    readers::Readers,
    reverse_map::ReverseMap,
    row_features::FeaturesUnderWay,
    space::SpaceBasis,
    space_wait::SpaceWait,
};
use crate::{
    drive::Drives,
    error::{Error, Result},
    format::{
        Checkpoint, CheckpointNumber, ChecksumSeed, DriveId, Generation, LogStart, PoolId, Roots,
        SegmentNumber, Stamp, Superblock, WallNanoseconds, row::SegmentRow,
    },
    map::{MapTable, Reclaim, Sources},
    segments::Segments,
    timed_device::DriveTimeouts,
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};
use world::World;

pub(crate) struct Shared {
    pub phase: Cell<Phase>,
    pub world: World,
    pub drives: Drives,
    pub pool: PoolId,
    /// Seed of block checksums.
    pub seed: ChecksumSeed,
    /// State that changes while the pool is open.
    pub state: RefCell<State>,
    pub readers: Readers,
    /// The superblock written last.
    pub superblock: RefCell<Superblock>,
    /// Held while a generation is written.
    pub publishing: tokio::sync::Mutex<()>,
    pub space_wait: SpaceWait,
    /// Read-locked to write nodes, write-locked to give a node segment another slot.
    pub node_slots: tokio::sync::RwLock<()>,
    /// The error that stopped all writing.
    pub stopped: RefCell<Option<Error>>,
    /// Number of wrong or unreadable copies that were repaired.
    pub repaired: Cell<u64>,
    /// Every write is stable before it is acknowledged, whatever its volume's write cache.
    pub are_caches_suspended: Cell<bool>,
    /// Watchdog of drives that do not answer.
    pub watch: Rc<DriveTimeouts>,
    pub events: Rc<PoolEventLog>,
    pub absences: Absences,
    /// Index of each drive among the devices that the pool was opened with.
    pub given: BTreeMap<DriveId, usize>,
    /// Rows in RAM differ from disk without a record that says so: locations of copies, position of the
    /// scrub.
    pub has_unsaved_rows: Cell<bool>,
    /// Result of the last count, with the change counters of slots and drives.
    pub space_counted: Cell<Option<(SpaceBasis, PoolSpace)>>,
    /// Segments in one failure domain at the last count, with what it was made of.
    pub domains_counted: Cell<Option<(DomainBasis, u64)>>,
    /// Segments across failure sets at the last count, with what it was made of.
    pub sets_counted: Cell<Option<(SetBasis, u64)>>,
    /// Slots of the room spared that the missing copies of lost drives will take.
    pub rebuild_slots: Cell<u64>,
    pub demand: SpaceDemand,
    pub wakes: Rc<Wakes>,
    /// Sinks of records beside the tables.
    pub subscribers: LogSubscribers,
    /// Features of the rows that verbs are about to log.
    pub features_under_way: FeaturesUnderWay,
    /// Held while a verb changes the catalogue.
    pub changing: CatalogueLock,
}

/// Phases of a pool that is open, or being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The log writer does not run yet. Nothing waits for space on the drives.
    Opening,
    /// Writes without space on the drives wait for it.
    Running,
    /// As while opening, nothing waits for space.
    Closing,
}

/// Mirrored segments that may contain blocks of raid0 volumes. Invariant: it has all such segments written
/// since the pool was opened; those before as well, once `is_complete`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    pub segments: BTreeSet<SegmentNumber>,
    pub is_complete: bool,
}

impl Backlog {
    /// Records that a block of a raid0 volume was logged in `segment`.
    pub fn add(&mut self, segment: SegmentNumber) {
        self.segments.insert(segment);
    }

    /// True if no segment is known to have blocks to destage.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// The state of an open pool.
#[derive(Debug)]
pub(crate) struct State {
    /// Rows of volumes, branches, points.
    pub catalogue: Catalogue,
    /// Rows of segments, free slots.
    pub segments: Segments,
    pub roots: Roots,
    /// Records applied since the last freeze.
    pub table: MapTable,
    /// The table that a checkpoint under way merges into the trees.
    pub merging: Option<Rc<MapTable>>,
    /// The last complete checkpoint.
    pub checkpoint: CheckpointNumber,
    pub stamp_next: Stamp,
    /// Last stamps of branches.
    pub branch_stamps: BranchStamps,
    /// Position after the last record that was applied.
    pub log_taken: LogStart,
    /// Segments of the log that a replay would read, oldest first: from that of the last checkpoint's start to
    /// the one the log is in. In those behind `log_taken` all records, if any, were withdrawn.
    pub log_segments: VecDeque<SegmentNumber>,
    /// Blocks of log since the last freeze.
    pub log_blocks: u64,
    /// Data segments whose moves were all applied since the last freeze. The checkpoint that merges the moves
    /// seals them.
    pub filled: Vec<SegmentNumber>,
    /// Data segments found in the log by a replay.
    pub announced: Vec<(SegmentNumber, SegmentRow)>,
    /// Discards and deletions applied, and those that a checkpoint has reclaimed or passed on to the next.
    pub deletions_taken: u64,
    pub deletions_merged: u64,
    /// Data of deleted points and branches that is not reclaimed yet.
    pub reclaim: Reclaim,
    /// Segments with blocks of raid0 volumes that are not destaged yet.
    pub backlog: Backlog,
    /// Blocks of the youngest log segments, by location.
    pub reverse_map: ReverseMap,
    /// Segments that could not be read. Cleaning skips them until the pool is reopened.
    pub unreadable: BTreeSet<SegmentNumber>,
}

impl State {
    /// The state of a checkpoint, before its catalogue and the log are read.
    pub fn of(checkpoint: &Checkpoint, segments: Segments) -> Self {
        Self {
            catalogue: Catalogue::default(),
            segments,
            roots: checkpoint.roots,
            table: MapTable::default(),
            merging: None,
            checkpoint: checkpoint.number,
            stamp_next: checkpoint.stamp_next,
            branch_stamps: BranchStamps::default(),
            log_taken: checkpoint.log.clone(),
            log_segments: VecDeque::new(),
            log_blocks: 0,
            filled: Vec::new(),
            announced: Vec::new(),
            deletions_taken: 0,
            deletions_merged: 0,
            reclaim: Reclaim::new(),
            backlog: Default::default(),
            reverse_map: Default::default(),
            unreadable: BTreeSet::new(),
        }
    }

    /// The current map.
    pub fn sources(&self) -> Sources<'_> {
        Sources {
            active: &self.table,
            merging: self.merging.as_deref(),
            roots: self.roots,
            branches: self.catalogue.branches(),
            stamp_next: self.stamp_next,
        }
    }

    /// True if the last checkpoint left deleted or discarded data to the next.
    pub fn has_leftovers(&self) -> bool {
        self.reclaim.has_begun() || self.catalogue.has_discards()
    }

    /// True if a checkpoint may find less in use than the trees have, because of discards or deletions.
    pub fn may_shrink(&self) -> bool {
        self.deletions_taken > self.deletions_merged || self.has_leftovers()
    }

    /// Takes the next stamp.
    pub(super) fn next_stamp(&mut self) -> Stamp {
        let stamp = self.stamp_next;
        self.stamp_next = Stamp(stamp.0 + 1);
        stamp
    }
}

impl Shared {
    /// Registers a reader: segments that it may find are not reused until this is dropped.
    pub fn begin_reading(&self) -> ReadGuard {
        let checkpoint = self.state.borrow().checkpoint;
        self.readers.begin(checkpoint)
    }

    /// Fails if the pool has stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`], with the reason.
    pub fn check_runs(&self) -> Result<()> {
        match &*self.stopped.borrow() {
            Some(error) => Err(Error::Stopped(error.to_string())),
            None => Ok(()),
        }
    }

    /// The time of day, for timestamps that people read.
    pub fn wall_now(&self) -> WallNanoseconds {
        WallNanoseconds::of(self.world.wall())
    }

    /// Stops all writing because of `error`, and reports it.
    pub fn stop(&self, error: &Error) {
        if self.check_runs().is_ok() {
            *self.stopped.borrow_mut() = Some(error.clone());
            self.events.report(EventKind::Stop { error: error.clone() });
            self.note_end();
        }
    }

    /// Stops all writing because the pool is closed.
    pub fn end(&self) {
        self.stopped.borrow_mut().get_or_insert_with(|| Error::Stopped("it was closed".to_owned()));
        self.note_end();
    }

    /// Wakes everything that waits: nothing is written any more.
    fn note_end(&self) {
        self.demand.note_change();
        self.subscribers.holds.note_change();
        self.wakes.wake_all();
    }

    /// The generation written last.
    pub fn generation(&self) -> Generation {
        self.superblock.borrow().generation
    }
}
