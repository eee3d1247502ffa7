//! What the parts of an open pool share: its drives, its state in RAM, and the superblock written last.
//!
//! Invariants:
//!
//! 1. `state` is whole whenever nothing borrows it: no one awaits while it is half-changed.
//! 2. `state` is what the trees at `roots`, the merging table and the active table say together; `log_taken` is where
//!    the log goes on behind it.
//! 3. `superblock` is complete on every member that is there, unless the pool has stopped.

use super::{
    Catalogue, Pool,
    events::{EventKind, EventLog},
    readers::Readers,
    space_wait::SpaceWait,
};
use crate::{
    drive::Drives,
    error::{Error, Result},
    format::{
        Checkpoint, CheckpointNumber, ChecksumSeed, DriveId, Generation, LogStart, PoolId, Roots,
        SegmentNumber, SlotAddress, Stamp, Superblock, WallNanoseconds, row::SegmentRow,
    },
    map::{Reclaim, Sources, Table},
    mover::{Backlog, RecentLog},
    segments::Segments,
    watch::Watch,
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::{Rc, Weak},
};
use world::World;

/// See the module's documentation.
pub struct Shared {
    /// Whose it is, once it is open.
    pub pool_itself: RefCell<Weak<Pool>>,
    /// Clock, tasks, randomness.
    pub world: World,
    /// Those that are there.
    pub drives: Drives,
    /// Which pool.
    pub pool: PoolId,
    /// Of its blocks' checksums.
    pub seed: ChecksumSeed,
    /// What changes while it is open.
    pub state: RefCell<State>,
    /// Who reads, and since when.
    pub readers: Readers,
    /// Written last.
    pub superblock: RefCell<Superblock>,
    /// One generation is written at a time.
    pub publishing: tokio::sync::Mutex<()>,
    /// What finds no space waits for it: while the pool runs, but not while it is opened or closed.
    pub waits_for_space: Cell<bool>,
    /// How long it has done so.
    pub space_wait: SpaceWait,
    /// Nodes are written under a share of it; alone has it who gives a segment of nodes another slot.
    pub node_slots: tokio::sync::RwLock<()>,
    /// Why nothing is written any more.
    pub stopped: RefCell<Option<Error>>,
    /// Copies that were wrong or unreadable, and were written again from a good one.
    pub mended: Cell<u64>,
    /// Over drives that do not answer.
    pub watch: Rc<Watch>,
    /// What administrators hear of.
    pub events: Rc<EventLog>,
    /// Which of the devices that the pool was opened with each drive is.
    pub given: BTreeMap<DriveId, usize>,
}

/// The state of an open pool.
#[derive(Debug)]
pub struct State {
    /// Volumes, branches, points.
    pub catalogue: Catalogue,
    /// Where things lie.
    pub segments: Segments,
    /// The trees.
    pub roots: Roots,
    /// What was taken since the last freeze.
    pub table: Table,
    /// What a checkpoint that is under way puts into the trees.
    pub merging: Option<Rc<Table>>,
    /// The checkpoint that is complete.
    pub checkpoint: CheckpointNumber,
    /// The next stamp.
    pub stamp_next: Stamp,
    /// Behind the last record that is in the table.
    pub log_taken: LogStart,
    /// Segments of the log that a replay would read, oldest first; the last one is that of `log_taken`.
    pub log_segments: VecDeque<SegmentNumber>,
    /// Blocks of log since the last freeze.
    pub log_blocks: u64,
    /// Segments of data whose moves were all taken since the last freeze: the checkpoint that merges them seals them.
    pub filled: Vec<SegmentNumber>,
    /// Segments of data that the log told of, while it was replayed.
    pub announced: Vec<(SegmentNumber, SegmentRow)>,
    /// Discards and deletions so far, and those that a checkpoint has found the room of, or left to the next.
    pub deletions_taken: u64,
    pub deletions_merged: u64,
    /// What deleted points and branches may have left.
    pub reclaim: Reclaim,
    /// Where blocks of raid0 volumes lie that have not come to rest.
    pub backlog: Backlog,
    /// What lies in the newest segments of the log.
    pub recent: RecentLog,
    /// Segments that could not be read through: they are not cleaned before somebody looks at them.
    pub unreadable: BTreeSet<SegmentNumber>,
}

impl State {
    /// As a checkpoint has it, before its catalogue and the log are read.
    pub fn of(checkpoint: &Checkpoint, segments: Segments) -> Self {
        Self {
            catalogue: Catalogue::default(),
            segments,
            roots: checkpoint.roots,
            table: Table::default(),
            merging: None,
            checkpoint: checkpoint.number,
            stamp_next: checkpoint.stamp_next,
            log_taken: checkpoint.log.clone(),
            log_segments: VecDeque::new(),
            log_blocks: 0,
            filled: Vec::new(),
            announced: Vec::new(),
            deletions_taken: 0,
            deletions_merged: 0,
            reclaim: Reclaim::new(),
            backlog: Default::default(),
            recent: Default::default(),
            unreadable: BTreeSet::new(),
        }
    }

    /// The map as it is now.
    pub fn sources(&self) -> Sources<'_> {
        Sources {
            active: &self.table,
            merging: self.merging.as_deref(),
            roots: self.roots,
            branches: self.catalogue.branches(),
            stamp_next: self.stamp_next,
        }
    }

    /// Whether the last checkpoint left something to the next of what was deleted or discarded.
    pub fn has_leftovers(&self) -> bool {
        self.reclaim.has_begun() || self.catalogue.has_discards()
    }

    /// A stamp nobody had.
    pub fn next_stamp(&mut self) -> Stamp {
        let stamp = self.stamp_next;
        self.stamp_next = Stamp(stamp.0 + 1);
        stamp
    }
}

impl Shared {
    /// Where the slots of a segment are.
    pub fn slots_of(&self, number: SegmentNumber) -> Result<Vec<SlotAddress>> {
        let state = self.state.borrow();
        let row = state.segments.readable(number);
        Ok(row.ok_or(Error::NoSegment(number))?.slots.clone())
    }

    /// Whether it still writes.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check_runs(&self) -> Result<()> {
        match &*self.stopped.borrow() {
            Some(error) => Err(Error::Stopped(error.to_string())),
            None => Ok(()),
        }
    }

    /// The time of day, for people.
    pub fn wall_now(&self) -> WallNanoseconds {
        WallNanoseconds::of(self.world.wall())
    }

    /// Nothing is written from now on: something went wrong.
    pub fn stop(&self, error: &Error) {
        if self.check_runs().is_ok() {
            *self.stopped.borrow_mut() = Some(error.clone());
            self.events.report(EventKind::Stop { error: error.clone() });
        }
    }

    /// Nothing is written from now on: the pool was closed.
    pub fn end(&self) {
        self.stopped.borrow_mut().get_or_insert_with(|| Error::Stopped("it was closed".to_owned()));
    }

    /// The generation written last.
    pub fn generation(&self) -> Generation {
        self.superblock.borrow().generation
    }
}
