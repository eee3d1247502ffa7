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
//! `Pool` is the facade: it knows the [`mover`](crate::mover), the volumes and the `engine`,
//! none of which knows it. Reading order: `open`, `create`, `volumes`, `snapshots`, `background`.

mod background;
mod clones;
mod copy;
mod create;
mod cut;
mod departures;
mod difference;
mod domains;
mod drive_watch;
mod drives;
mod exact_space;
mod failure_sets;
mod filling;
mod format;
mod given_commands;
mod group_operations;
mod groups;
mod growth;
mod health;
mod history_points;
mod import;
mod keys;
mod only_copies;
mod open;
mod read_only;
mod replica_cuts;
mod replicas;
mod replication_rows;
mod rollback;
mod segment_list;
mod shared_operations;
mod site_rows;
mod snapshot_room;
mod snapshots;
mod space_probe;
mod sparing;
mod stamps;
mod volume_handles;
mod volume_setting;
mod volumes;
mod withholding;

pub use crate::engine::{
    Alarm, AnswerHold, DeliveredChange, DeliveredRecord, DomainLoss, DomainStatus, FailureSetsStatus, LogPin,
    LogSubscriber, LogSubscription, LossLimit, LossTolerance, OpenSetting, PoolSpace, ReadGate, RowCommand,
    SetStatus, StageCounts, events, events::SnapshotRoom,
};
pub use crate::failure_sets::{SETS_FROM_DRIVES, failure_set_count};
pub use clones::NewClone;
pub use copy::{
    CopySource, FinishedCopy, INCOMPLETE_END, MoveTerms, MovedVolume, MovingHosts, RefreshedCopy,
    SourceHosts, SourceLink, SourceRequests, is_incomplete_copy, is_moved, serve_source, source_link,
};
pub use create::{NewDrive, NewPool, SLOTS_MIN, create, create_with_copies};
pub use cut::{
    CutMember, CutSettlement, UnsettledCut, UnsettledId, UnsettledState, settle_cuts, settlements,
};
pub use difference::{ChangeExtent, ChangeMap, Difference, DifferenceRange, RangeChange};
pub use exact_space::{SnapshotSpace, VolumeSpace};
pub use filling::FillStatus;
pub use given_commands::GivenSnapshot;
pub use group_operations::{GroupMemberChange, NewGroupClone};
pub use groups::{GroupInfo, GroupKey, GroupSnapshot, NewGroup};
pub use history_points::HistoryPoint;
pub use import::{ImportFindings, ImportStatus, ImportTerms, ImportedVolume, NewImport};
pub use keys::{IdOrName, SnapshotKey, VolumeKey};
pub use open::{check_opens, open};
pub use read_only::{
    Condition, DriveCondition, LogCondition, PartContent, ReadOnlyPool, ReadOnlyVolume, SkippedSuperblock,
    UnusedReason, VolumePart, VolumeSurvey, open_read_only,
};
pub use replica_cuts::CUT_NAME_BEGIN;
pub use replication_rows::replicated_volumes;
pub use rollback::RollbackGoal;
pub use segment_list::{SegmentFacts, SegmentStanding};
pub use snapshots::{NewSnapshot, REPLICA_POINT, Snapshot};
pub use volume_setting::VolumeSetting;
pub use volumes::{NewVolume, VolumeInfo, VolumeOrigin};
pub use withholding::WITHHELD_BY_ROLLBACK_MAX;

use crate::{
    engine::{
        Checkpoints, MapReader, NodeRoom, Nodes, PoolLog, Shared, Throttle, ThrottleFigures, ThrottleSetting,
        UsageCounter,
        events::{LevellingOutcome, PoolEventReader, RedundancyStatus},
    },
    error::Result,
    format::{DriveId, MemberIndex},
    log::LogWriter,
    mover::{
        CleaningResult, DegradedSegments, DriveFill, JobKind, Mover, PoolJob, RebuildProgress, ScrubProgress,
        ScrubResult,
    },
    tree::{NodeCacheCounts, Trees},
    volume::{Admission, HostPath},
};
use cut::CutsUnderWay;
use difference::PointHolds;
use drive_watch::DriveWatch;
use filling::Filler;
use import::ImportProblems;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use volume_handles::VolumeHandles;
use world::{IoError, JoinHandle};

/// A pool as an opening has read it, with its log writer.
struct Parts {
    shared: Rc<Shared>,
    nodes: Rc<Nodes>,
    trees: Rc<Trees>,
    sink: Rc<PoolLog>,
    log: Rc<LogWriter>,
}

/// An open pool.
pub struct Pool {
    shared: Rc<Shared>,
    map: MapReader,
    log: Rc<LogWriter>,
    usage: Rc<UsageCounter>,
    checkpoints: Rc<Checkpoints>,
    throttle: Rc<Throttle>,
    mover: Rc<Mover>,
    drive_watch: Rc<DriveWatch>,
    /// For all volumes and snapshots.
    host: Rc<HostPath>,
    /// Points that are read.
    holds: Rc<PointHolds>,
    scrub_every: Duration,
    answer_within: Duration,
    handles: Rc<VolumeHandles>,
    filler: Rc<Filler>,
    import_problems: ImportProblems,
    cuts_under_way: CutsUnderWay,
    /// Records of DR groups change one after the other.
    replication_changes: tokio::sync::Mutex<()>,
    log_task: RefCell<Option<JoinHandle<Result<()>>>>,
}

/// Ends the events and the background tasks of a pool when nobody has the pool or a volume any more.
struct BackgroundEnd(Rc<Shared>);

impl Drop for BackgroundEnd {
    fn drop(&mut self) {
        self.0.events.close();
        self.0.wakes.wake_all();
    }
}

impl Pool {
    fn new(parts: Parts, setting: OpenSetting) -> Self {
        let Parts { shared, nodes, trees, sink, log } = parts;
        let throttle = Throttle::new(&shared.world, setting.throttle);
        let map = MapReader { shared: Rc::clone(&shared), trees };
        let usage = UsageCounter::new(map.clone());
        let checkpoints = Checkpoints::new((nodes, Rc::clone(&log)), &usage, &throttle, setting);
        sink.attach(&checkpoints);
        let mover = Mover::new(map.clone(), &log, &checkpoints, &throttle);
        let drive_watch = DriveWatch::new(&map, &log, &mover);
        let admission = Admission::new(&usage, &checkpoints, setting.table_entries);
        let holds = PointHolds::new(&shared, &log);
        let end = Rc::new(BackgroundEnd(Rc::clone(&shared)));
        let path = (map.clone(), Rc::clone(&log));
        let background: Vec<Rc<dyn std::any::Any>> = vec![drive_watch.clone(), end];
        let host = HostPath::new(path, Rc::clone(&throttle), admission, background);
        let handles = VolumeHandles::new(&host);
        let filler = Filler::new(&host, (&handles, &holds), (&log, &throttle));
        Self {
            shared,
            map,
            log,
            usage,
            checkpoints,
            throttle,
            mover,
            drive_watch,
            host,
            holds,
            scrub_every: setting.scrub_every,
            answer_within: setting.answer_within,
            handles,
            filler,
            import_problems: ImportProblems::default(),
            cuts_under_way: CutsUnderWay::default(),
            replication_changes: tokio::sync::Mutex::new(()),
            log_task: RefCell::new(None),
        }
    }

    /// The error that stopped the pool, if any.
    pub fn failure(&self) -> Option<String> {
        self.shared.stopped.borrow().as_ref().map(ToString::to_string)
    }

    /// The time for which none of its drives has answered what it was asked; zero if one does, or has nothing to do. The pool goes
    /// on when they do.
    pub fn drives_silent_for(&self) -> Duration {
        self.shared.watch.silent_for()
    }

    /// Wrong or unreadable copies repaired since the pool was opened.
    pub fn repaired(&self) -> u64 {
        self.shared.repaired.get()
    }

    /// Suspends the write caches of all volumes, as on a battery, or ends that: meanwhile each write is stable before it is
    /// acknowledged. Writes of before are stable after the next flush of any volume. Not remembered when the pool is closed.
    pub fn suspend_write_caches(&self, is_suspended: bool) {
        self.shared.are_caches_suspended.set(is_suspended);
    }

    /// Hits, misses and size of the cache of the trees' nodes.
    pub fn node_cache(&self) -> NodeCacheCounts {
        self.map.trees.cache_counts()
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

    /// Times of sampled host commands by stage, since the pool was opened.
    pub fn stages(&self) -> StageCounts {
        self.host.stages.counts()
    }

    /// Number of the last complete checkpoint.
    pub fn checkpoint_number(&self) -> u64 {
        self.shared.state.borrow().checkpoint.0
    }

    /// A reader of the events, which begins at the oldest one kept.
    pub fn events(&self) -> PoolEventReader {
        self.shared.events.follow()
    }

    /// Registers a sink that gets all records of the log from now on, until the answer is dropped.
    pub fn subscribe(&self, subscriber: Rc<dyn LogSubscriber>) -> LogSubscription {
        self.shared.subscribe(subscriber)
    }

    /// Current space. Cheap: the rows are counted only after slots were taken or freed.
    pub fn space(&self) -> PoolSpace {
        self.shared.space()
    }

    /// Space of the trees' nodes. Reads the rows of all segments.
    pub fn node_room(&self) -> NodeRoom {
        self.shared.node_room()
    }

    /// Data with fewer copies than configured. Reads the rows of all segments.
    pub fn redundancy(&self) -> RedundancyStatus {
        self.shared.redundancy()
    }

    /// Drives that the pool can lose, and why no more. Reads the rows of all segments.
    pub fn loss_tolerance(&self) -> LossTolerance {
        self.shared.loss_tolerance()
    }

    /// Live bytes in segments without a copy on a drive in use, by the drives that should have one, as of the
    /// last checkpoint.
    pub fn only_copies_elsewhere(&self) -> BTreeMap<DriveId, u64> {
        self.shared.only_copies_elsewhere()
    }

    /// Makes a checkpoint of everything applied so far.
    ///
    /// # Errors
    ///
    /// Any error of a step; the pool has stopped.
    pub async fn checkpoint(&self) -> Result<()> {
        self.checkpoints.make_to_its_end().await
    }

    /// Runs one round of cleaning. `None` if no segment can be gained.
    ///
    /// # Errors
    ///
    /// A block of a victim cannot be read, or no segment can be written. No data is lost.
    pub async fn clean(&self) -> Result<Option<CleaningResult>> {
        self.mover.clean().await
    }

    /// Destages all blocks of raid0 volumes from segments that the log has left, as far as there is room, and
    /// returns when their old locations are free. The pool also does this in the background.
    ///
    /// # Errors
    ///
    /// A segment cannot be written or read. No data is lost.
    pub async fn destage(&self) -> Result<CleaningResult> {
        self.mover.destage().await
    }

    /// Segments that lack copies. Reads the rows of all segments.
    pub fn degraded(&self) -> DegradedSegments {
        self.mover.degraded()
    }

    /// Time for which drives that are away are still waited for, before the pool makes copies of what lies on them.
    pub fn copies_wait(&self) -> Duration {
        self.shared.copies_wait()
    }

    /// Makes the missing copies, as far as there is room, and returns when they are durable. The pool also
    /// does this in the background.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub async fn rebuild(&self) -> Result<()> {
        self.mover.rebuild().await
    }

    /// Moves data between the drives until they are about equally full, and returns when the moves are durable.
    /// The pool also does this in the background, if they differ much.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub async fn level(&self) -> Result<LevellingOutcome> {
        self.mover.level().await
    }

    /// Bytes that levelling has moved since the pool was opened, on request and in the background.
    pub fn levelled_bytes(&self) -> u64 {
        self.mover.levelled_bytes()
    }

    /// The drives that are present, and how full they are.
    pub fn fills(&self) -> Vec<DriveFill> {
        self.mover.fills()
    }

    /// True if the drives differ so much that the pool levels them by itself. Reads the rows of all segments.
    pub fn is_uneven(&self) -> bool {
        self.mover.is_uneven()
    }

    /// Progress of rebuild, emptying, levelling, scrub, destaging, reclaiming and filling.
    pub fn jobs(&self) -> Vec<PoolJob> {
        let mut jobs = self.mover.jobs();
        jobs.push(PoolJob { kind: JobKind::Fill, progress: self.filler.progress() });
        jobs
    }

    /// Ends a job early; work that is complete counts. A rebuild begins again when a drive comes or goes, or
    /// on request; a scrub continues when the next one is due; filling goes on when the pool is opened again,
    /// or on request.
    pub fn cancel(&self, kind: JobKind) {
        match kind {
            JobKind::Fill => self.filler.pause(),
            kind => self.mover.cancel(kind),
        }
    }

    /// Progress of the current rebuild, or of the last one.
    pub fn rebuild_progress(&self) -> RebuildProgress {
        self.mover.rebuild_progress()
    }

    /// Checks everything once, from the beginning. Lost locations do not end the scrub.
    ///
    /// # Errors
    ///
    /// A tree cannot be read at all, or the pool has stopped.
    pub async fn scrub(&self) -> Result<ScrubResult> {
        self.mover.scrub().await
    }

    /// As [`Self::scrub`], but continues a round that was begun and has not ended, also before the pool was opened.
    ///
    /// # Errors
    ///
    /// As of [`Self::scrub`].
    pub async fn continue_scrub(&self) -> Result<ScrubResult> {
        self.mover.scrub_on().await
    }

    /// Begin of the scrub that goes on after an opening, or of the last one, in nanoseconds since 1970; 0 if there was none.
    pub fn scrub_begun_ns(&self) -> u64 {
        self.mover.scrub_begun_ns()
    }

    /// Progress of the current scrub, and the result of the last one.
    pub fn scrub_progress(&self) -> ScrubProgress {
        self.mover.scrub_progress()
    }

    /// Space that deleting snapshots would free, largest first: for each volume with snapshots all of them
    /// together, and, if there are few, each one that frees something. A snapshot that frees nothing yet
    /// still prevents overwrites in a full pool. Scans the history tree.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn snapshot_room(&self) -> Result<Vec<SnapshotRoom>> {
        snapshot_room::snapshot_room(&self.map).await
    }
}
