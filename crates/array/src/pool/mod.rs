//! A pool: one set of drives, one log, one map, and the volumes on them.
//!
//! ```text
//! volume   read · write · discard · flush          snapshots, verbs
//!             │      │                                   │
//!             │      └── parts ─▶ log writer ─ stable ─▶ log sink: applied to the tables, then acknowledged
//!             └── map: active table · merging table · trees ─▶ drives, any good copy
//!          checkpoint: tables ─▶ trees ─▶ superblock; dead segments are freed
//! ```
//!
//! Reading order: `shared` (state), `log_sink` (durable records), `checkpoint`, `membership` (failed drives),
//! `open`, `create`, `verbs`, `events`.

mod admission;
mod block_reads;
mod bounds;
mod catalogue;
mod checkpoint;
mod create;
pub mod events;
mod health;
mod hedged_read;
mod log_sink;
mod mapping;
mod membership;
mod node_writes;
mod nodes;
mod older_history;
mod only_copies;
mod open;
mod read_only;
mod readers;
mod running;
mod shared;
mod snapshot_room;
mod snapshots;
mod space;
mod space_probe;
mod space_wait;
mod usage;
mod verbs;
mod volume_setting;

pub(crate) use catalogue::Catalogue;
pub use create::{NewDrive, NewPool, SLOTS_MIN, create, create_with_copies};
pub use open::{check_opens, open};
pub use read_only::{
    Condition, DriveCondition, LogCondition, ReadOnlyPool, SkippedSuperblock, UnusedReason, open_read_only,
};
pub use snapshot_room::SnapshotRoom;
pub use snapshots::Snapshot;
pub use space::{Alarm, PoolSpace};
pub use verbs::{NewVolume, VolumeInfo};
pub use volume_setting::VolumeSetting;

pub(crate) use block_reads::StoredRun;
pub(crate) use nodes::Nodes;
pub(crate) use read_only::RunBlocks;
pub(crate) use readers::ReadGuard;
pub(crate) use shared::Shared;
pub(crate) use space::Purpose;
pub(crate) use usage::SpacePromise;

use crate::{
    error::Result,
    format::{CheckpointNumber, DriveId, MemberIndex, VolumeNumber},
    log::Lane,
    mover::{Outlook, Progress, ScrubProgress, Throttle, ThrottleFigures, ThrottleSetting},
    tree::Trees,
    volume::{FairQueue, Volume},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    time::Duration,
};
use world::{IoError, JoinHandle, Moment};

/// Settings of an opening, and of the open pool.
#[derive(Clone, Copy, Debug)]
pub struct OpenSetting {
    /// Open even though absent drives may have the only copy of some data, and accept its loss.
    pub forced: bool,
    /// RAM for nodes of the trees, in bytes.
    pub cache_bytes: usize,
    /// Entries of the active table that trigger a checkpoint.
    pub table_entries: usize,
    /// Blocks of log that trigger a checkpoint.
    pub log_blocks: u64,
    /// Longest time between checkpoints while writes arrive.
    pub interval: Duration,
    /// Limit of the versions that one checkpoint examines to reclaim deleted snapshots and volumes; four
    /// times as many for discarded blocks. The next checkpoints continue, also while hosts are idle.
    pub reclaimed_at_once: u64,
    /// Limits of the mover's share of the drives' time.
    pub throttle: ThrottleSetting,
    /// Interval of scrubs; the first one begins after a seventh of it. Zero: only on request.
    pub scrub_every: Duration,
    /// A drive that does not answer for so long is removed as failed, provided that others answer. Zero:
    /// never.
    pub answer_within: Duration,
    /// After so long without an answer another copy is read as well.
    pub read_within: Duration,
}

impl Default for OpenSetting {
    /// 64 MiB of nodes; a checkpoint every 512 Ki entries, 1 GiB of log or 30 s, which reclaims 256 Ki
    /// versions.
    fn default() -> Self {
        Self {
            forced: false,
            cache_bytes: 64 << 20,
            table_entries: 512 << 10,
            log_blocks: 256 << 10,
            interval: Duration::from_secs(30),
            reclaimed_at_once: 256 << 10,
            throttle: ThrottleSetting::default(),
            scrub_every: Duration::from_secs(7 * 24 * 3600),
            answer_within: Duration::from_secs(30),
            read_within: Duration::from_millis(250),
        }
    }
}

/// Limit of the bytes of host writes in the log's queue: two batches.
const LOGGED_AT_ONCE_MAX: u64 = 2 << 20;

pub struct Pool {
    pub(crate) shared: Rc<Shared>,
    nodes: Rc<Nodes>,
    pub(crate) trees: Rc<Trees>,
    pub(crate) lane: Rc<Lane>,
    setting: OpenSetting,
    /// Order of host writes to the log.
    pub(crate) log_queue: Rc<FairQueue>,
    /// Times host commands, and limits the mover.
    pub(crate) throttle: Rc<Throttle>,
    /// Held during a checkpoint.
    checkpointing: tokio::sync::Mutex<()>,
    /// Held during a round of cleaning.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Held during a rebuild.
    pub(crate) rebuilding: tokio::sync::Mutex<()>,
    pub(crate) progress: RefCell<Progress>,
    /// Rows in RAM differ from disk without a record that says so: locations of copies, position of the
    /// scrub.
    pub(crate) has_unsaved_rows: Cell<bool>,
    /// The members when no segment lacked a copy.
    whole_with: RefCell<Vec<MemberIndex>>,
    /// When a failed rebuild is tried again.
    rebuild_again_at: Cell<Moment>,
    /// Drives reported as out of space, and the time since when each has space again.
    out_of_space_reported: RefCell<BTreeMap<MemberIndex, Option<Moment>>>,
    /// Held during a scrub.
    pub(crate) scrubbing: tokio::sync::Mutex<()>,
    pub(crate) scrubs: RefCell<ScrubProgress>,
    /// Space used by bounded volumes.
    usage: Rc<RefCell<usage::BranchUsage>>,
    /// Held while a volume is counted.
    counting: tokio::sync::Mutex<()>,
    /// Result of the last count, with the change counters of slots and drives.
    space_known: Cell<Option<((u64, u64), PoolSpace)>>,
    admission: admission::Admission,
    /// Inputs of cleaning when a round last gained nothing.
    cleaned_out: Cell<Option<admission::CleaningBasis>>,
    /// Consecutive rounds of cleaning that failed or whose gain is unknown.
    doubtful_rounds: Cell<u32>,
    /// Checkpoints begun since the pool was opened.
    checkpoints_begun: Cell<u64>,
    health: RefCell<health::Health>,
    /// Forecast of cleaning, and the checkpoint that it is based on.
    pub(crate) outlook: Cell<Option<(CheckpointNumber, Outlook)>>,
    /// Held while a verb changes the catalogue.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Volumes with open handles.
    volumes: RefCell<BTreeMap<VolumeNumber, Weak<Volume>>>,
    lane_task: RefCell<Option<JoinHandle<Result<()>>>>,
}

impl Pool {
    fn new(
        shared: Rc<Shared>,
        nodes: Rc<Nodes>,
        trees: Rc<Trees>,
        lane: Rc<Lane>,
        setting: OpenSetting,
    ) -> Self {
        let throttle = Throttle::new(&shared.world, setting.throttle);
        Self {
            shared,
            nodes,
            trees,
            lane,
            setting,
            log_queue: FairQueue::new(LOGGED_AT_ONCE_MAX),
            throttle,
            checkpointing: Default::default(),
            cleaning: Default::default(),
            rebuilding: Default::default(),
            progress: Default::default(),
            has_unsaved_rows: Cell::new(false),
            whole_with: RefCell::default(),
            rebuild_again_at: Cell::default(),
            out_of_space_reported: RefCell::default(),
            scrubbing: Default::default(),
            scrubs: RefCell::default(),
            usage: Rc::default(),
            counting: Default::default(),
            space_known: Cell::new(None),
            admission: Default::default(),
            cleaned_out: Cell::new(None),
            doubtful_rounds: Cell::new(0),
            checkpoints_begun: Cell::new(0),
            health: RefCell::default(),
            outlook: Cell::new(None),
            changing: Default::default(),
            volumes: RefCell::default(),
            lane_task: RefCell::new(None),
        }
    }

    /// The error that stopped the pool, if any.
    pub fn failure(&self) -> Option<String> {
        self.shared.stopped.borrow().as_ref().map(ToString::to_string)
    }

    /// Wrong or unreadable copies repaired since the pool was opened.
    pub fn repaired(&self) -> u64 {
        self.shared.repaired.get()
    }

    /// Current latency of host commands, and speed of the mover.
    pub fn throttle(&self) -> ThrottleFigures {
        self.throttle.figures()
    }

    /// Replaces floors and ceiling of the mover.
    pub fn set_throttle(&self, setting: ThrottleSetting) {
        self.throttle.set(setting);
    }

    /// Number of present, current drives.
    pub fn drives_present(&self) -> usize {
        self.shared.drives.members().len()
    }

    /// UUIDs of the present, current drives.
    pub fn drives_in_use(&self) -> Vec<DriveId> {
        let superblock = self.shared.superblock.borrow();
        let members = self.shared.drives.members().into_iter();
        members.map(|member| superblock.members[usize::from(member.0)].drive).collect()
    }

    /// Drives without space for the pool's writes, and the error of each. They stay members, are read, and
    /// are probed periodically.
    pub fn out_of_space(&self) -> Vec<(MemberIndex, IoError)> {
        self.shared.drives.out_of_space()
    }

    /// Number of the last complete checkpoint.
    pub fn checkpoint_number(&self) -> u64 {
        self.shared.state.borrow().checkpoint.0
    }

    /// Registers a reader: segments that it may find are not reused until this is dropped.
    pub(crate) fn begin_reading(&self) -> ReadGuard {
        let checkpoint = self.shared.state.borrow().checkpoint;
        self.shared.readers.begin(checkpoint)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.events.close();
    }
}
