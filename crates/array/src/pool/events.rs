//! Events of a pool: what an administrator should hear of, in the order in which it happened.
//!
//! The pool appends to a bounded log; readers follow it, each at its own pace. A reader that falls behind gets an
//! [`EventKind::Overflow`] with the number of events it missed. Nobody has to read: appending costs a few hundred bytes
//! and never waits.
//!
//! An accident is reported once: a drive is lost once however many writes it failed, and a task that fails again in the
//! same way is not reported again before it has succeeded.

use super::{Alarm, Pool, Shared, SnapshotRoom, Space};
use crate::{
    election::{Election, Seen},
    error::Error,
    format::{DriveId, Member, MemberIndex},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    mem::{self, Discriminant},
    rc::Rc,
};
use tokio::sync::Notify;
use world::{IoError, IoErrorKind, WallTime, World};

/// Events that a log keeps for readers that are behind.
pub const EVENTS_KEPT: usize = 256;

/// Something that happened to a pool.
#[derive(Clone, Debug)]
pub struct Event {
    /// Counted from 0 since the pool was opened.
    pub number: u64,
    /// When it was noticed.
    pub time: WallTime,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A drive failed, or was not there when the pool was opened. The pool goes on without it, for good.
    DriveLoss {
        /// Which.
        drive: DriveName,
        /// Which operation failed, and why.
        error: IoError,
    },
    /// A drive is connected and not used: the pool went on without it, so what it holds is out of date.
    StaleDrive {
        /// Which.
        drive: DriveName,
    },
    /// A drive has no space left for what the pool writes to it. It stays a member, and is read.
    DriveOutOfSpace {
        /// Which.
        drive: DriveName,
        /// Which operation failed, and why.
        error: IoError,
    },
    /// A drive that was out of space takes writes again.
    DriveReturn {
        /// Which.
        drive: DriveName,
    },
    /// A drive was added, and is a member like the others.
    DriveAddition {
        /// Which.
        drive: DriveName,
    },
    /// Data has fewer copies than the pool keeps, since drives were lost.
    RedundancyLoss(Redundancy),
    /// Everything has all of its copies again.
    FullRedundancy(Redundancy),
    /// How full the pool is passed 80, 90, 95 or 100 %, upwards or downwards.
    Alarm {
        /// The alarm there was.
        before: Option<Alarm>,
        /// The alarm there is.
        now: Option<Alarm>,
        /// The room at that moment.
        space: Space,
    },
    /// Hosts' writes are refused for want of room.
    WriteRefusal {
        /// The room at that moment.
        space: Space,
        /// What the deletion of snapshots would free, the most first; none if that could not be found out soon.
        snapshots: Option<Vec<SnapshotRoom>>,
    },
    /// Hosts' writes are no longer refused.
    WriteAdmission {
        /// The room at that moment.
        space: Space,
    },
    /// A scrub found copies that were wrong, or places no copy of which is right.
    ScrubFindings {
        /// Copies that were wrong and were written again.
        mended: u64,
        /// Places that no copy is right of.
        lost_places: u64,
    },
    /// A background task ended on an error.
    TaskFailure {
        /// Which.
        task: Task,
        /// Why.
        error: Error,
        /// It runs again later; otherwise not before the pool is opened again.
        is_retried: bool,
    },
    /// The pool stopped: nothing is written any more before it is opened again.
    Stop {
        /// Why.
        error: Error,
    },
    /// A reader missed events: so many were dropped before it read them.
    Overflow {
        /// How many.
        events: u64,
    },
}

/// What a pool does in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Merging what was written into the trees.
    Checkpoint,
    /// Emptying segments that are mostly dead.
    Cleaning,
    /// Copying what lost a copy.
    Rebuild,
    /// Moving blocks of raid0 volumes out of the mirrored log.
    Destage,
    /// Leaving drives that do not answer.
    DriveWatch,
    /// Reading every copy of everything.
    Scrub,
}

/// A drive as its pool knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveName {
    /// Its row in the member table.
    pub member: MemberIndex,
    /// Its UUID.
    pub drive: DriveId,
    /// Its serial number, as it was recorded when it became a member.
    pub serial: String,
    /// Its index among the devices the pool was opened with; none if it was not among them.
    pub given: Option<usize>,
}

/// How far data lacks copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// Copies the pool keeps of everything.
    pub copies: u8,
    /// Drives that are in use.
    pub drives: usize,
    /// Segments with fewer copies than that.
    pub segments: u64,
    /// What they hold, in bytes of one copy.
    pub bytes: u64,
    /// Of that, what has one copy left: the next loss may take it.
    pub single_copy_bytes: u64,
    /// Segments of raid0 volumes that lie on drives that are not there.
    pub lost_raid0_segments: u64,
}

/// The events of an open pool.
pub struct EventLog {
    world: World,
    kept: RefCell<VecDeque<Event>>,
    number_next: Cell<u64>,
    is_closed: Cell<bool>,
    arrived: Notify,
    /// Members whose loss was reported.
    lost: RefCell<BTreeSet<MemberIndex>>,
    /// The kind of error that tasks failed with the last time they ran.
    failing: RefCell<BTreeMap<Task, Discriminant<Error>>>,
}

/// Follows the events of a pool.
pub struct EventReader {
    log: Rc<EventLog>,
    number_next: u64,
}

impl EventLog {
    /// An empty log.
    pub(crate) fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            kept: RefCell::default(),
            number_next: Cell::new(0),
            is_closed: Cell::new(false),
            arrived: Notify::new(),
            lost: RefCell::default(),
            failing: RefCell::default(),
        })
    }

    /// Appends an event. The oldest is dropped if there are more than [`EVENTS_KEPT`].
    pub(crate) fn report(&self, kind: EventKind) {
        let number = self.number_next.replace(self.number_next.get() + 1);
        let mut kept = self.kept.borrow_mut();
        if kept.len() == EVENTS_KEPT {
            kept.pop_front();
        }
        kept.push_back(Event { number, time: self.world.wall(), kind });
        drop(kept);
        self.arrived.notify_waiters();
    }

    /// Reports the loss of a drive, once.
    pub(crate) fn report_loss(&self, drive: DriveName, error: IoError) {
        if self.lost.borrow_mut().insert(drive.member) {
            self.report(EventKind::DriveLoss { drive, error });
        }
    }

    /// Reports why a task failed, unless that is known, or is the loss of a drive that was reported.
    pub(crate) fn report_failure(&self, task: Task, error: &Error, is_retried: bool) {
        if let Error::Drive { member, .. } = error
            && self.lost.borrow().contains(member)
        {
            return;
        }
        // Not its text, which may name another place each time.
        let kind = mem::discriminant(error);
        if self.failing.borrow_mut().insert(task, kind) != Some(kind) {
            self.report(EventKind::TaskFailure { task, error: error.clone(), is_retried });
        }
    }

    /// A task did what it should: the next failure is news.
    pub(crate) fn note_success(&self, task: Task) {
        self.failing.borrow_mut().remove(&task);
    }

    /// Nothing happens any more: readers come to their end.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.arrived.notify_waiters();
    }

    /// Reports which drives do not take part, of those that are connected and of those that should be.
    pub(crate) fn report_election(&self, election: &Election, seen: &[Seen]) {
        let given = given_drives(seen);
        for &stale in &election.stale {
            let superblock = &seen.iter().find(|seen| seen.given == stale).expect("it was seen").superblock;
            let row = &superblock.members[usize::from(superblock.this.0)];
            self.report(EventKind::StaleDrive { drive: DriveName::of(superblock.this, row, &given) });
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

impl EventReader {
    /// Waits for the next event; none once the pool is closed and all of its events were read.
    pub async fn next(&mut self) -> Option<Event> {
        let log = Rc::clone(&self.log);
        loop {
            // From here on a notification is kept, also while nobody waits.
            let arrived = log.arrived.notified();
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if log.is_closed.get() {
                return None;
            }
            arrived.await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        let kept = self.log.kept.borrow();
        let oldest = kept.front()?;
        if self.number_next < oldest.number {
            let events = oldest.number - self.number_next;
            let overflow =
                Event { number: oldest.number - 1, time: oldest.time, kind: EventKind::Overflow { events } };
            self.number_next = oldest.number;
            return Some(overflow);
        }
        let event = kept.get(usize::try_from(self.number_next - oldest.number).ok()?)?;
        self.number_next += 1;
        Some(event.clone())
    }
}

impl DriveName {
    /// The name of the drive in row `member`; `given` as [`given_drives`] has it.
    pub(crate) fn of(member: MemberIndex, row: &Member, given: &BTreeMap<DriveId, usize>) -> Self {
        Self { member, drive: row.drive, serial: row.serial.clone(), given: given.get(&row.drive).copied() }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "checkpoint",
            Self::Cleaning => "cleaning",
            Self::Rebuild => "rebuild",
            Self::Destage => "destaging",
            Self::DriveWatch => "drive watch",
            Self::Scrub => "scrub",
        })
    }
}

/// Which of the devices given each drive is.
pub(crate) fn given_drives(seen: &[Seen]) -> BTreeMap<DriveId, usize> {
    seen.iter().map(|seen| (seen.superblock.drive(), seen.given)).collect()
}

impl Pool {
    /// Follows the pool's events, from the oldest that is kept.
    pub fn events(&self) -> EventReader {
        EventReader { log: Rc::clone(&self.shared.events), number_next: 0 }
    }
}

impl Shared {
    /// What a member is called.
    pub(crate) fn drive_name(&self, member: MemberIndex) -> DriveName {
        let superblock = self.superblock.borrow();
        DriveName::of(member, &superblock.members[usize::from(member.0)], &self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::sim::{Limits, Simulation};

    /// What a reader of `log` reads without waiting: numbers, and what was missed.
    fn read(reader: &mut EventReader) -> (Vec<u64>, u64) {
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
        Simulation::new(1).run(Limits::generous(), work).completed();
    }

    #[test]
    fn a_reader_that_is_behind_is_told_how_many_events_it_missed() {
        in_a_world(|world| async move {
            let log = EventLog::new(&world);
            let mut reader = EventReader { log: Rc::clone(&log), number_next: 0 };
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
            let log = EventLog::new(&world);
            let mut reader = EventReader { log: Rc::clone(&log), number_next: 0 };
            log.report_failure(Task::Scrub, &Error::Full, true);
            log.report_failure(Task::Scrub, &Error::Full, true);
            log.report_failure(Task::Rebuild, &Error::Full, true);
            assert_eq!(read(&mut reader).0, [0, 1], "one of each task");
            log.note_success(Task::Scrub);
            log.report_failure(Task::Scrub, &Error::Full, true);
            assert_eq!(read(&mut reader).0, [2], "it had succeeded meanwhile");
        });
    }

    #[test]
    fn a_reader_waits_for_what_is_yet_to_happen() {
        in_a_world(|world| async move {
            let log = EventLog::new(&world);
            let mut reader = EventReader { log: Rc::clone(&log), number_next: 0 };
            let reading = world.spawn("reader", async move { reader.next().await.map(|event| event.number) });
            world.sleep(std::time::Duration::from_secs(1)).await;
            log.report_failure(Task::Scrub, &Error::Full, true);
            assert_eq!(reading.await, Some(0));
        });
    }
}
