//! A pool: drives that are one disk group, one log, one map, and the volumes on them.
//!
//! ```text
//! volume   read · write · discard · flush          snapshots, verbs
//!             │      │                                   │
//!             │      └── parts ─▶ log lane ─ stable ─▶ owner: taken into the tables, then answered
//!             └── map: active table · merging table · trees ─▶ drives, any good copy
//!          checkpoint: tables ─▶ trees ─▶ superblock; what died is freed
//! ```
//!
//! Reading order: `shared` (what there is), `owner` (what happens to a record), `checkpoint`, `membership` (drives that
//! fail), `open`, `create`, `verbs`, `events` (what an administrator hears of).

mod admission;
mod bounds;
mod catalogue;
mod checkpoint;
mod create;
pub mod events;
mod health;
mod mapping;
mod membership;
mod node_writes;
mod nodes;
mod older_history;
mod only_copies;
mod open;
mod owner;
mod read_only;
mod readers;
mod reading;
mod running;
mod shared;
mod snapshot_room;
mod snapshots;
mod space;
mod space_again;
mod space_wait;
mod turns;
mod usage;
mod verbs;
mod volume_setting;

pub use catalogue::Catalogue;
pub use create::{NewDrive, NewPool, SLOTS_MIN, create, create_with_copies};
pub use open::{check_opens, open};
pub use read_only::{
    Condition, DriveCondition, LogCondition, NotUsed, PassedOver, ReadOnlyPool, open_read_only,
};
pub use snapshot_room::SnapshotRoom;
pub use snapshots::Snapshot;
pub use space::{Alarm, Space};
pub use verbs::{NewVolume, VolumeInfo};
pub use volume_setting::VolumeSetting;

pub(crate) use nodes::Nodes;
pub(crate) use read_only::RunBlocks;
pub(crate) use readers::Reading;
pub(crate) use reading::StoredRun;
pub(crate) use shared::Shared;
pub(crate) use space::Purpose;
pub(crate) use usage::Promised;

use crate::{
    error::Result,
    format::{CheckpointNumber, DriveId, MemberIndex, VolumeNumber},
    log::Lane,
    mover::{Outlook, Pace, PaceFigures, PaceSetting, Progress, ScrubProgress},
    tree::Trees,
    volume::{Gate, Volume},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    time::Duration,
};
use world::{IoError, JoinHandle, Moment};

/// How a pool is opened, and how it works from then on.
#[derive(Clone, Copy, Debug)]
pub struct OpenSetting {
    /// Take the loss of what drives that are not there may hold alone.
    pub forced: bool,
    /// RAM for nodes of the trees.
    pub cache_bytes: usize,
    /// Versions in the active table that bring about a checkpoint.
    pub table_entries: usize,
    /// Blocks of log that bring about a checkpoint.
    pub log_blocks: u64,
    /// A checkpoint is made after so long, if anything was written.
    pub interval: Duration,
    /// Versions that one checkpoint looks at, at most, for room that deleted snapshots and volumes give back; of discarded
    /// blocks it does four times as many. The rest is left for the next: also while nobody writes.
    pub reclaimed_at_once: u64,
    /// How much of the drives' time is the mover's.
    pub pace: PaceSetting,
    /// Every copy of everything is looked at so often; the first time after a seventh of that. Zero: only when asked to.
    pub scrub_every: Duration,
    /// A drive that does not answer for so long is given up like one that fails, if others answer. Zero: never.
    pub answer_within: Duration,
    /// After so long another copy is read, too.
    pub read_within: Duration,
}

impl Default for OpenSetting {
    /// 64 MiB of nodes; a checkpoint every 512 Ki versions, 1 GiB of log or 30 s, which reclaims 256 Ki versions.
    fn default() -> Self {
        Self {
            forced: false,
            cache_bytes: 64 << 20,
            table_entries: 512 << 10,
            log_blocks: 256 << 10,
            interval: Duration::from_secs(30),
            reclaimed_at_once: 256 << 10,
            pace: PaceSetting::default(),
            scrub_every: Duration::from_secs(7 * 24 * 3600),
            answer_within: Duration::from_secs(30),
            read_within: Duration::from_millis(250),
        }
    }
}

/// Bytes that hosts have in the queue of the log at once at most: what two flights take.
const LOGGED_AT_ONCE_MAX: u64 = 2 << 20;

/// An open pool.
pub struct Pool {
    pub(crate) shared: Rc<Shared>,
    nodes: Rc<Nodes>,
    pub(crate) trees: Rc<Trees>,
    pub(crate) lane: Rc<Lane>,
    setting: OpenSetting,
    /// Hosts take turns at the log.
    pub(crate) gate: Rc<Gate>,
    /// Hosts are timed by it, and the mover asks it.
    pub(crate) pace: Rc<Pace>,
    /// One checkpoint is made at a time.
    checkpointing: tokio::sync::Mutex<()>,
    /// One round of cleaning runs at a time.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// One rebuild runs at a time.
    pub(crate) rebuilding: tokio::sync::Mutex<()>,
    pub(crate) progress: RefCell<Progress>,
    /// Rows say what they do not say on disk and no record does: where copies are, how far a scrub is.
    pub(crate) has_unsaved_rows: Cell<bool>,
    /// The members when nothing lacked a copy.
    whole_with: RefCell<Vec<MemberIndex>>,
    /// When what could not be rebuilt is tried again.
    rebuild_again_at: Cell<Moment>,
    /// Drives that were reported to be out of space, and since when each of them has space again.
    out_of_space_reported: RefCell<BTreeMap<MemberIndex, Option<Moment>>>,
    /// One scrub runs at a time.
    pub(crate) scrubbing: tokio::sync::Mutex<()>,
    pub(crate) scrubs: RefCell<ScrubProgress>,
    /// What bounded volumes take.
    usage: Rc<RefCell<usage::Usage>>,
    /// One volume is counted at a time.
    counting: tokio::sync::Mutex<()>,
    /// The room there was, as of changes of slots and of drives.
    space_known: Cell<Option<((u64, u64), Space)>>,
    /// Between hosts that wait for room, and cleaning.
    admission: admission::Admission,
    /// What there was to clean when a round last gained nothing.
    cleaned_out: Cell<Option<admission::CleaningBasis>>,
    /// Rounds of cleaning one behind the other that failed, or that left it open whether they gained something.
    doubtful_rounds: Cell<u32>,
    /// Checkpoints that have begun since the pool was opened.
    checkpoints_begun: Cell<u64>,
    health: RefCell<health::Health>,
    /// What cleaning has before it, as of which checkpoint.
    pub(crate) outlook: Cell<Option<(CheckpointNumber, Outlook)>>,
    /// One verb changes the catalogue at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Those somebody has.
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
        let pace = Pace::new(&shared.world, setting.pace);
        Self {
            shared,
            nodes,
            trees,
            lane,
            setting,
            gate: Gate::new(LOGGED_AT_ONCE_MAX),
            pace,
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

    /// Why nothing is written any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.shared.stopped.borrow().as_ref().map(ToString::to_string)
    }

    /// Copies that were wrong or unreadable since the pool was opened, and were written again from a good one.
    pub fn mended(&self) -> u64 {
        self.shared.mended.get()
    }

    /// How hosts fare beside the mover.
    pub fn pace(&self) -> PaceFigures {
        self.pace.figures()
    }

    /// Gives the mover other floors, and another ceiling, from now on.
    pub fn set_pace(&self, setting: PaceSetting) {
        self.pace.set(setting);
    }

    /// Drives that are there and up to date.
    pub fn drives_there(&self) -> usize {
        self.shared.drives.members().len()
    }

    /// Those drives, by their UUIDs. Others that were given when it was opened are blank, or fell behind.
    pub fn drives_in_use(&self) -> Vec<DriveId> {
        let superblock = self.shared.superblock.borrow();
        let members = self.shared.drives.members().into_iter();
        members.map(|member| superblock.members[usize::from(member.0)].drive).collect()
    }

    /// Drives that have no space for what is written to them, and what each of them said. They are members like the others: they
    /// are read, and tried again from time to time.
    pub fn out_of_space(&self) -> Vec<(MemberIndex, IoError)> {
        self.shared.drives.out_of_space()
    }

    /// The number of the checkpoint that is complete: counted up by one for each.
    pub fn checkpoint_number(&self) -> u64 {
        self.shared.state.borrow().checkpoint.0
    }

    /// Someone begins to read: what may be found from now on stays where it is until this is dropped.
    pub(crate) fn begin_reading(&self) -> Reading {
        let checkpoint = self.shared.state.borrow().checkpoint;
        self.shared.readers.begin(checkpoint)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.events.close();
    }
}
