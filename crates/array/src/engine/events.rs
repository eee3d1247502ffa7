//! Events of a pool for its administrator, in the order in which they happened.
//!
//! The pool appends to a bounded log, and each reader follows at its own speed. A reader that falls behind
//! gets an [`EventKind::Overflow`] with the number of events that it missed. Appending costs a few hundred
//! bytes and never waits, whether or not anyone reads.
//!
//! Each incident is reported once: a drive is lost once however many writes failed, and a task that fails
//! again in the same way is not reported again before it has succeeded.

use super::{Alarm, PoolSpace, Shared};
use crate::{
    election::{DriveSuperblock, Election},
    error::Error,
    format::{DriveId, FormatLevel, Member, MemberIndex, MemberState, Sparing},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    mem::{self, Discriminant},
    rc::Rc,
    time::Duration,
};
use world::{EventLog, EventReader, FollowedEvent, IoError, IoErrorKind, WallTime, World};

/// Events kept for readers that are behind.
pub const EVENTS_KEPT: usize = 256;

/// An event of a pool.
#[derive(Clone, Debug)]
pub struct PoolEvent {
    /// Counted from 0 since the pool was opened.
    pub number: u64,
    /// Time of detection.
    pub time: WallTime,
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A drive failed, or was absent when the pool was opened. The pool continues without it permanently.
    DriveLoss {
        drive: DriveName,
        /// The failed operation and its error.
        error: IoError,
    },
    /// A drive is connected but not used, since its content is out of date: the pool continued without it.
    StaleDrive { drive: DriveName },
    /// A drive has no space for the pool's writes. It stays a member and is read.
    DriveOutOfSpace {
        drive: DriveName,
        /// The failed operation and its error.
        error: IoError,
    },
    /// A drive that was out of space accepts writes again.
    DriveReturn { drive: DriveName },
    /// A drive was added and is in use.
    DriveAddition { drive: DriveName },
    /// A drive is to leave: it gets no new data, and what lies on it is copied elsewhere. Reported again when
    /// the pool is opened.
    DriveLeaving { drive: DriveName },
    /// A drive has left: nothing lies on it, and the pool does not use it any more.
    DriveLeft { drive: DriveName },
    /// A drive that was to leave is kept.
    DriveKept { drive: DriveName },
    /// A lost drive, on which nothing lies that the pool needs, is no member any more.
    DriveForgotten { drive: DriveName },
    /// The pool was upgraded to a newer format level.
    FormatRaised { from: FormatLevel, to: FormatLevel },
    /// Room for lost drives is kept, was spent by a loss, or is given up.
    SparingChange { sparing: Sparing },
    /// Copies of segments lie in one failure domain, for lack of room in others or because drives changed domains: the
    /// loss of that domain would lose them.
    DomainsShared {
        segments: u64,
        /// Size of those segments, in bytes of one copy.
        bytes: u64,
    },
    /// All copies of segments lie in different failure domains again.
    DomainsApart,
    /// Copies of segments lie across failure sets, for lack of room in one or because drives changed sets: the loss of a
    /// drive in each of two sets may lose them.
    SetsSpanned {
        segments: u64,
        /// Size of those segments, in bytes of one copy.
        bytes: u64,
    },
    /// All copies of each segment lie in one failure set again.
    SetsKept,
    /// Drives are divided into another number of failure sets.
    SetChange {
        /// 0 if they are in no sets any more.
        sets: usize,
    },
    /// Data is moved between drives until they are about equally full.
    LevellingStart {
        /// Bytes of slots to move, as far as is known.
        bytes: u64,
    },
    /// Levelling has ended for now.
    LevellingEnd {
        outcome: LevellingOutcome,
        /// Bytes of slots moved.
        moved_bytes: u64,
    },
    /// RedundancyStatus lost: data has fewer copies than configured, after drives were lost.
    RedundancyLoss(RedundancyStatus),
    /// RedundancyStatus restored: all data has all of its copies.
    FullRedundancy(RedundancyStatus),
    /// Usage crossed 80, 90, 95 or 100 %, in either direction.
    Alarm {
        before: Option<Alarm>,
        now: Option<Alarm>,
        /// Space at that moment.
        space: PoolSpace,
    },
    /// Host writes are refused for lack of space.
    WriteRefusal {
        /// Space at that moment.
        space: PoolSpace,
        /// Space that deleting snapshots would free, largest first; `None` if it could not be computed in
        /// time.
        snapshots: Option<Vec<SnapshotRoom>>,
    },
    /// Host writes are admitted again.
    WriteAdmission {
        /// Space at that moment.
        space: PoolSpace,
    },
    /// Hosts ran short of space, so the log is no longer kept for the subscriber that is furthest behind: it
    /// has to compare points of volumes instead.
    LogPinLoss {
        /// Size of the segments that its pin kept, in bytes of one copy. The next checkpoint may free those
        /// that no other pin keeps.
        bytes: u64,
    },
    /// A scrub found wrong copies, or locations without a right copy.
    ScrubFindings {
        /// Wrong copies that were repaired.
        repaired: u64,
        /// Locations of which no copy is right.
        lost_places: u64,
    },
    /// An import has ended: the volume needs its source no more.
    VolumeImported {
        /// Name of the volume.
        volume: String,
        /// Bytes that were compared with the source, and are the same.
        compared_bytes: u64,
        read_back_bytes: u64,
        /// Bytes that hosts have written or discarded meanwhile.
        host_bytes: u64,
        /// Bytes that could not be read, or had changed in the source: given up by order.
        given_up_bytes: u64,
    },
    /// A background task ended on an error.
    TaskFailure {
        task: BackgroundTask,
        error: Error,
        /// True if the task runs again; false if only reopening the pool restarts it.
        is_retried: bool,
    },
    /// The pool stopped writing until it is reopened.
    Stop { error: Error },
    /// The reader missed events that were dropped before it read them.
    Overflow {
        /// Number of events missed.
        events: u64,
    },
}

/// The reason why levelling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevellingOutcome {
    /// The drives are about equally full.
    Level,
    /// They are not, and no move would help: the copies of a segment must lie on different drives, or there
    /// is no room.
    NoMoveHelps,
    /// Copies that are missing, or a drive that leaves, come first.
    Postponed,
    /// It was cancelled, or the pool is being closed.
    Cancelled,
}

/// Background tasks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackgroundTask {
    /// Merging the tables into the trees.
    Checkpoint,
    /// Emptying mostly dead segments.
    Cleaning,
    /// Replacing lost copies.
    Rebuild,
    /// Moving blocks of raid0 volumes out of the mirrored log.
    Destage,
    /// Removing drives that do not answer.
    DriveWatch,
    /// Reading every copy of everything.
    Scrub,
    /// Copying what clones read through their sources.
    Fill,
    /// Copying elsewhere what lies on drives that leave.
    Emptying,
    /// Moving data between drives until they are about equally full.
    Levelling,
}

impl BackgroundTask {
    /// Number of tasks.
    pub(crate) const COUNT: usize = Self::Levelling as usize + 1;
}

/// Identity of a drive in its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveName {
    /// Its row in the member table.
    pub member: MemberIndex,
    pub drive: DriveId,
    /// Serial number, as recorded when the drive became a member.
    pub serial: String,
    /// Index among the devices that the pool was opened with; `None` if it was not among them.
    pub given: Option<usize>,
}

/// Space that deleting a snapshot, or all of a volume, would free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRoom {
    pub volume: String,
    /// `None` stands for all snapshots of the volume.
    pub snapshot: Option<String>,
    pub bytes: u64,
}

/// Extent of missing redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedundancyStatus {
    /// Configured number of copies.
    pub copies: u8,
    /// Drives in use.
    pub drives: usize,
    /// Mirrored segments with fewer copies.
    pub segments: u64,
    /// Size of those segments, in bytes of one copy.
    pub bytes: u64,
    /// The part of it with one copy left: another drive failure may lose it.
    pub single_copy_bytes: u64,
    /// Segments of raid0 volumes on absent drives.
    pub lost_raid0_segments: u64,
    /// Time for which drives that are away are waited for before copies are made.
    pub copies_wait: Duration,
}

/// The event log of an open pool.
pub(crate) struct PoolEventLog {
    log: EventLog<EventKind>,
    /// Members whose loss was reported.
    lost: RefCell<BTreeSet<MemberIndex>>,
    /// The kind of error of each task whose last run failed.
    failing: RefCell<BTreeMap<BackgroundTask, Discriminant<Error>>>,
}

/// A reader that follows the events of a pool.
pub struct PoolEventReader(EventReader<EventKind>);

impl PoolEventLog {
    pub fn new(world: &World) -> Rc<Self> {
        let log = EventLog::new(world, EVENTS_KEPT);
        Rc::new(Self { log, lost: RefCell::default(), failing: RefCell::default() })
    }

    /// Appends an event, and drops the oldest if there are more than [`EVENTS_KEPT`].
    pub fn report(&self, kind: EventKind) {
        self.log.record(kind);
    }

    /// Reports the loss of a drive, once.
    pub fn report_loss(&self, drive: DriveName, error: IoError) {
        if self.lost.borrow_mut().insert(drive.member) {
            self.report(EventKind::DriveLoss { drive, error });
        }
    }

    /// True if the loss of a drive was reported.
    pub fn is_lost(&self, member: MemberIndex) -> bool {
        self.lost.borrow().contains(&member)
    }

    /// Reports the failure of a task, unless it was reported already, or is due to a drive whose loss was
    /// reported.
    pub fn report_failure(&self, task: BackgroundTask, error: &Error, is_retried: bool) {
        if let Error::Drive { member, .. } = error
            && self.lost.borrow().contains(member)
        {
            return;
        }
        // The text may differ each time, for example in the location.
        let kind = mem::discriminant(error);
        if self.failing.borrow_mut().insert(task, kind) != Some(kind) {
            self.report(EventKind::TaskFailure { task, error: error.clone(), is_retried });
        }
    }

    /// Records that a task succeeded: its next failure is reported again.
    pub fn note_success(&self, task: BackgroundTask) {
        self.failing.borrow_mut().remove(&task);
    }

    /// Ends the log: readers get the remaining events, then `None`.
    pub fn close(&self) {
        self.log.close();
    }

    /// A reader that begins at the oldest event kept.
    pub fn follow(&self) -> PoolEventReader {
        PoolEventReader(self.log.follow())
    }

    /// Reports the drives that do not take part: stale ones, and absent members.
    pub fn report_election(&self, election: &Election, seen: &[DriveSuperblock]) {
        let given = given_drives(seen);
        for &stale in &election.stale {
            let superblock = &seen.iter().find(|seen| seen.given == stale).expect("it was seen").superblock;
            let row = &superblock.members[usize::from(superblock.this.0)];
            let drive = DriveName::of(superblock.this, row, &given);
            // A drive that was only lost does not know it.
            let has_left = !row.state.holds_superblocks();
            self.report(if has_left {
                EventKind::DriveLeft { drive }
            } else {
                EventKind::StaleDrive { drive }
            });
        }
        for &present in election.present.keys() {
            let row = &election.superblock.members[usize::from(present.0)];
            if row.state == MemberState::Leaving {
                self.report(EventKind::DriveLeaving { drive: DriveName::of(present, row, &given) });
            }
        }
        for &absent in &election.absent {
            let drive = DriveName::of(absent, &election.superblock.members[usize::from(absent.0)], &given);
            if drive.given.is_none() {
                let why = "it was not found when the pool was opened";
                self.report_loss(drive, IoError::new(IoErrorKind::NotFound, why));
            }
        }
    }
}

impl PoolEventReader {
    /// Waits for the next event; `None` once the pool is closed and all of its events were read.
    pub async fn next(&mut self) -> Option<PoolEvent> {
        self.0.next().await.map(PoolEvent::of)
    }

    /// The next event, without waiting.
    pub fn try_next(&mut self) -> Option<PoolEvent> {
        self.0.try_next().map(PoolEvent::of)
    }
}

impl PoolEvent {
    /// The item of the log as an event: missed events are an event, too.
    fn of(item: FollowedEvent<EventKind>) -> Self {
        match item {
            FollowedEvent::Event(recorded) => {
                Self { number: recorded.number, time: recorded.time, kind: recorded.event.clone() }
            }
            FollowedEvent::Overflow { events, resumes } => {
                let kind = EventKind::Overflow { events };
                Self { number: resumes.number - 1, time: resumes.time, kind }
            }
        }
    }
}

impl DriveName {
    /// The name of the drive in row `member`; `given` is the result of [`given_drives`].
    pub(crate) fn of(member: MemberIndex, row: &Member, given: &BTreeMap<DriveId, usize>) -> Self {
        Self { member, drive: row.drive, serial: row.serial.clone(), given: given.get(&row.drive).copied() }
    }
}

impl fmt::Display for BackgroundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "checkpoint",
            Self::Cleaning => "cleaning",
            Self::Rebuild => "rebuild",
            Self::Destage => "destaging",
            Self::DriveWatch => "drive watch",
            Self::Scrub => "scrub",
            Self::Fill => "filling of clones",
            Self::Emptying => "emptying of drives",
            Self::Levelling => "levelling of drives",
        })
    }
}

/// Index of each drive among the devices that the pool was opened with.
pub(crate) fn given_drives(seen: &[DriveSuperblock]) -> BTreeMap<DriveId, usize> {
    seen.iter().map(|seen| (seen.superblock.drive(), seen.given)).collect()
}

impl Shared {
    pub(crate) fn drive_name(&self, member: MemberIndex) -> DriveName {
        let superblock = self.superblock.borrow();
        DriveName::of(member, &superblock.members[usize::from(member.0)], &self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::sim::{SimLimits, Simulation};

    /// Reads without waiting: the numbers of the events, and how many were missed.
    fn read(reader: &mut PoolEventReader) -> (Vec<u64>, u64) {
        let (mut numbers, mut missed) = (Vec::new(), 0);
        while let Some(event) = reader.try_next() {
            match event.kind {
                EventKind::Overflow { events } => missed += events,
                _ => numbers.push(event.number),
            }
        }
        (numbers, missed)
    }

    fn in_a_world<F: Future<Output = ()> + 'static>(work: impl FnOnce(World) -> F) {
        Simulation::new(1).run(SimLimits::generous(), work).completed();
    }

    #[test]
    fn a_reader_that_is_behind_gets_the_number_of_missed_events() {
        in_a_world(|world| async move {
            let log = PoolEventLog::new(&world);
            let mut reader = log.follow();
            let fail = |_: u64| log.report(EventKind::Stop { error: Error::Full });
            (0..3).for_each(fail);
            assert_eq!(read(&mut reader), (vec![0, 1, 2], 0));
            let kept = EVENTS_KEPT as u64;
            (3..3 + kept + 5).for_each(fail);
            assert_eq!(read(&mut reader), ((8..8 + kept).collect(), 5));
            log.close();
            assert!(reader.next().await.is_none(), "it ends when the pool is closed");
        });
    }

    #[test]
    fn a_task_that_fails_again_for_the_same_reason_is_reported_once() {
        in_a_world(|world| async move {
            let log = PoolEventLog::new(&world);
            let mut reader = log.follow();
            log.report_failure(BackgroundTask::Scrub, &Error::Full, true);
            log.report_failure(BackgroundTask::Scrub, &Error::Full, true);
            log.report_failure(BackgroundTask::Rebuild, &Error::Full, true);
            assert_eq!(read(&mut reader).0, [0, 1], "one of each task");
            log.note_success(BackgroundTask::Scrub);
            log.report_failure(BackgroundTask::Scrub, &Error::Full, true);
            assert_eq!(read(&mut reader).0, [2], "it had succeeded meanwhile");
        });
    }

    #[test]
    fn a_reader_waits_for_the_next_event() {
        in_a_world(|world| async move {
            let log = PoolEventLog::new(&world);
            let mut reader = log.follow();
            let reading = world.spawn("reader", async move { reader.next().await.map(|event| event.number) });
            world.sleep(std::time::Duration::from_secs(1)).await;
            log.report_failure(BackgroundTask::Scrub, &Error::Full, true);
            assert_eq!(reading.await, Some(0));
        });
    }
}
