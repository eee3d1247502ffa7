//! The lane: takes what is to be logged, writes it to every copy, answers in order.
//!
//! Some callers are promised that what they log is stable; others, of volumes with a write cache, that it comes before
//! whatever is logged later: it is stable with the first thing behind it that is.
//!
//! Invariants:
//!
//! 1. One flight is under way at a time, and the next is placed only after it is written to all of its copies and
//!    its owner has taken its records. So records are taken, and callers answered, in the order of positions.
//! 2. A flight whose write failed anywhere is not answered. The drive is given up, durably, unless all that it lacked was
//!    space; then the whole flight is written again in another segment, on drives that take it.
//! 3. A segment's header, with its successors, and everything before it are stable on all copies before the first
//!    record in it is written. So what is not stable lies in the segment of the tail, on every copy of it that is there.
//! 4. `is_unstable` if a record was taken that may not be stable. Whoever is promised that it is gets his answer while
//!    it is not set.
//! 5. After a failure that leaves nowhere to write, nothing is ever answered with success again. So it is if all
//!    copies of what is not stable fail to become so.

mod entering;
mod queue;

use super::{Draft, Part, Placed, Tail, room_blocks};
use crate::{
    drive::{Drives, WriteFailures, all_written},
    error::{Error, Result},
    format::{
        ChecksumSeed, Link, LogStart, MirroredSegment, RedundancyClass, SegmentNumber, SegmentShape,
        SegmentUse, SlotAddress, WallNanoseconds, record::PAYLOAD_BLOCKS_MAX,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use queue::{Answer, Command, Flight, Queue};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::{Notify, oneshot};
use world::{Buffer, LocalFuture, Stability, World};

/// What the log needs of its pool.
pub trait LogSink {
    /// A free segment for records, on as many drives as the log has copies; none if there is none to spare.
    fn allocate(&self, need: Need) -> Option<MirroredSegment>;
    /// A segment is needed, and there is none. Done when what can be given back is.
    fn make_room(self: Rc<Self>) -> LocalFuture<Result<()>>;
    /// Takes a record in that is written to all copies, and soon acknowledged. Called in the order of positions.
    fn take(&self, placed: &Placed, draft: &Draft);
    /// The log goes on at `start`, which no header names: a checkpoint has to. Everything before was taken.
    fn begin_anew(self: Rc<Self>, start: LogStart) -> LocalFuture<Result<()>>;
    /// Nothing is logged any more.
    fn stop(&self, error: &Error);
    /// Drives failed to write. Done when they are not there any more, and every drive that is left says so.
    fn lose(self: Rc<Self>, failures: WriteFailures) -> LocalFuture<Result<()>>;
    /// Too few drives have space. Done after a while, when it may be worth another look.
    fn wait_for_space(self: Rc<Self>) -> LocalFuture<Result<()>>;
}

/// How much a segment is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The log goes on in it now.
    Now,
    /// The log may go on in it. Without any, its next segment takes a checkpoint.
    Later,
}

/// How the lane works.
#[derive(Clone, Copy, Debug)]
pub struct LaneSetting {
    /// Records in one flight at most.
    pub flight_records_max: usize,
}

/// See the module's documentation.
pub struct Lane {
    world: World,
    drives: Drives,
    seed: ChecksumSeed,
    setting: LaneSetting,
    owner: Rc<dyn LogSink>,
    queue: RefCell<Queue>,
    /// Who waits for what was answered to be stable.
    syncs: RefCell<Vec<Answer>>,
    is_unstable: Cell<bool>,
    wanted: Notify,
    failure: RefCell<Option<Error>>,
    tail: RefCell<Tail>,
    /// Where the log may go on.
    successors: RefCell<VecDeque<MirroredSegment>>,
    /// Those of them that the header of the tail's segment names: whoever replays finds no others.
    named: RefCell<Vec<MirroredSegment>>,
    /// Use of the last segment whose header is stable on all of its copies; uses ascend along the log.
    entered_use: Cell<SegmentUse>,
    /// The segment whose header is being written.
    entering: RefCell<Option<MirroredSegment>>,
    copies_changed: Cell<bool>,
    closing: Cell<bool>,
}

impl Lane {
    /// A lane that goes on at `tail`, whose segment names `successors`. Nothing is written before
    /// [`Lane::run`].
    pub fn new(
        world: &World,
        (drives, seed, setting): (Drives, ChecksumSeed, LaneSetting),
        owner: Rc<dyn LogSink>,
        (tail, successors): (Tail, Vec<MirroredSegment>),
    ) -> Rc<Self> {
        assert!(setting.flight_records_max > 0, "a record is written at some time");
        let shape = log_shape(drives.geometry().slot_blocks(), 1);
        let room_blocks = room_blocks(shape) as usize;
        assert!(room_blocks > PAYLOAD_BLOCKS_MAX, "an empty segment has room for any record");
        Rc::new(Self {
            world: world.clone(),
            drives,
            seed,
            setting,
            owner,
            queue: RefCell::default(),
            syncs: RefCell::default(),
            is_unstable: Cell::new(false),
            wanted: Notify::new(),
            failure: RefCell::new(None),
            entered_use: Cell::new(tail.segment().segment_use),
            tail: RefCell::new(tail),
            named: RefCell::new(successors.clone()),
            successors: RefCell::new(successors.into()),
            entering: RefCell::new(None),
            copies_changed: Cell::new(false),
            closing: Cell::new(false),
        })
    }

    /// Logs `parts`, in their order; they may come to lie in several records. Done when all of them are stable on
    /// every copy and the owner has taken them.
    pub fn append(&self, parts: Vec<Part>) -> LocalFuture<Result<()>> {
        self.enqueue(parts, false, Stability::Stable)
    }

    /// As [`Lane::append`], but all parts come to lie in one record: after a crash all of them are there, or none.
    /// They must fit into one.
    pub fn append_together(&self, parts: Vec<Part>) -> LocalFuture<Result<()>> {
        self.enqueue(parts, true, Stability::Stable)
    }

    /// As [`Lane::append`], but a power cut may take them away again, and everything logged behind them, until
    /// [`Lane::sync`] or anything stable behind them is answered.
    pub fn append_volatile(&self, parts: Vec<Part>) -> LocalFuture<Result<()>> {
        self.enqueue(parts, false, Stability::Volatile)
    }

    /// Done when everything that was answered so far is stable on every copy.
    pub fn sync(&self) -> LocalFuture<Result<()>> {
        if let Some(error) = &*self.failure.borrow() {
            let error = Error::Stopped(error.to_string());
            return Box::pin(async { Err(error) });
        }
        if !self.is_unstable.get() {
            return Box::pin(async { Ok(()) });
        }
        let (answer, answered) = oneshot::channel();
        self.syncs.borrow_mut().push(answer);
        self.wait_for(answered)
    }

    fn enqueue(&self, parts: Vec<Part>, is_one: bool, stability: Stability) -> LocalFuture<Result<()>> {
        if parts.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        if let Some(error) = &*self.failure.borrow() {
            let error = Error::Stopped(error.to_string());
            return Box::pin(async { Err(error) });
        }
        if self.closing.get() {
            return Box::pin(async { Err(Error::Stopped("it was closed".to_owned())) });
        }
        let (answer, answered) = oneshot::channel();
        self.queue.borrow_mut().push(Command { parts: parts.into(), is_one, stability, answer });
        self.wait_for(answered)
    }

    fn wait_for(&self, answered: oneshot::Receiver<Result<()>>) -> LocalFuture<Result<()>> {
        self.wanted.notify_one();
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err(Error::Stopped("its log was closed".to_owned())))
        })
    }

    /// The end of the log as it is now.
    pub fn tail(&self) -> Tail {
        self.tail.borrow().clone()
    }

    /// Segments the log is in, or may go on in.
    pub fn segments_in_use(&self) -> Vec<SegmentNumber> {
        let (tail, successors, entering) =
            (self.tail.borrow(), self.successors.borrow(), self.entering.borrow());
        let all = successors.iter().chain(entering.iter()).chain([tail.segment()]);
        all.map(|segment| segment.number).collect()
    }

    /// Whether the header of a segment of this log is stable: else nothing may lead to it but the header before.
    pub fn has_stable_header(&self, segment: &MirroredSegment) -> bool {
        segment.segment_use <= self.entered_use.get()
    }

    /// Goes on in a segment of its own, with as many successors as there is room for. To be called before
    /// [`Lane::run`].
    ///
    /// # Errors
    ///
    /// There is no room, or no drive to write to.
    pub async fn begin_anew(&self) -> Result<()> {
        self.enter_next().await
    }

    /// Drives came or went: the log moves on by itself if its segment has fewer copies than it could.
    pub fn look_at_copies(&self) {
        self.copies_changed.set(true);
        self.wanted.notify_one();
    }

    /// Ends [`Lane::run`] when everything that was asked for is answered.
    pub fn close(&self) {
        self.closing.set(true);
        self.wanted.notify_one();
    }

    /// Works until it is closed or nothing can be written any more.
    ///
    /// # Errors
    ///
    /// What stopped it; everyone who waits is told.
    pub async fn run(self: Rc<Self>) -> Result<()> {
        loop {
            let lacks_copies =
                self.copies_changed.take() && !self.has_enough_copies(self.tail.borrow().segment());
            if lacks_copies && let Err(error) = self.enter_next().await {
                self.stop([], &error);
                return Err(error);
            }
            let flight = self.queue.borrow_mut().gather(self.seed, self.setting.flight_records_max);
            let syncs = std::mem::take(&mut *self.syncs.borrow_mut());
            if flight.drafts.is_empty() && syncs.is_empty() {
                match self.closing.get() {
                    true if !self.is_unstable.get() => return Ok(()),
                    true => {}
                    false => {
                        self.wanted.notified().await;
                        continue;
                    }
                }
            }
            let Flight { drafts, answers, is_stable } = flight;
            if let Err(error) = self.fly(drafts, is_stable).await {
                self.stop(answers.into_iter().chain(syncs), &error);
                return Err(error);
            }
            answer_all(answers, &Ok(()));
            // One flush is for all who asked, and for what was answered meanwhile.
            if (!syncs.is_empty() || self.closing.get())
                && let Err(error) = self.settle(&[]).await
            {
                self.stop(syncs, &error);
                return Err(error);
            }
            answer_all(syncs, &Ok(()));
        }
    }

    fn stop(&self, answers: impl IntoIterator<Item = Answer>, error: &Error) {
        *self.failure.borrow_mut() = Some(error.clone());
        self.owner.stop(error);
        answer_all(answers, &Err(error.clone()));
        answer_all(self.syncs.take(), &Err(error.clone()));
        self.queue.borrow_mut().refuse(error);
    }

    /// Writes a flight to all copies, makes it stable if it is to be, and has its owner take it.
    async fn fly(&self, mut drafts: VecDeque<Draft>, is_stable: bool) -> Result<()> {
        while !drafts.is_empty() {
            if !self.has_enough_copies(self.tail.borrow().segment()) {
                self.enter_next().await?;
                continue;
            }
            let last_taken = self.tail.borrow().previous();
            let placed = self.place(&drafts);
            if placed.is_empty() {
                sometimes::reached(Sometimes::SegmentFilled);
                self.enter_next().await?;
                continue;
            }
            // Behind records that are not stable it takes a flush: then that is for all of them.
            let is_stable_at_once = is_stable && !self.is_unstable.get();
            let stability = if is_stable_at_once { Stability::Stable } else { Stability::Volatile };
            if let Err(failures) = self.write(&placed, &drafts, stability).await {
                self.turn_away(last_taken, failures).await?;
                continue;
            }
            if is_stable_at_once {
                self.tail.borrow_mut().acknowledge();
            } else {
                self.is_unstable.set(true);
            }
            if is_stable {
                self.settle(&[]).await?;
            }
            for placed in &placed {
                let draft = drafts.pop_front().expect("placed from here");
                self.owner.take(placed, &draft);
            }
        }
        Ok(())
    }

    /// Makes everything written so far stable, and what was just written to `others`. A drive that fails is given up as
    /// if it had failed to write: the other copies hold what it should.
    ///
    /// # Errors
    ///
    /// No copy is left.
    async fn settle(&self, others: &[SlotAddress]) -> Result<()> {
        if !self.is_unstable.get() {
            return Ok(());
        }
        let segment = self.tail.borrow().segment().clone();
        let members: BTreeSet<_> = segment.slots.iter().chain(others).map(|slot| slot.member).collect();
        if let Err(failures) = all_written(self.drives.flush_all(members)).await {
            sometimes::reached(Sometimes::LogFlushFailed);
            let is_stable = |slot: &SlotAddress| {
                self.drives.has(slot.member) && failures.iter().all(|(member, _)| *member != slot.member)
            };
            if !segment.slots.iter().any(is_stable) {
                return Err(Error::CacheLost(segment.number));
            }
            // Whatever it says, what it had in its cache may be gone.
            self.lose(failures).await?;
        }
        if self.drives.copies_there(&segment.slots) == 0 {
            return Err(Error::CacheLost(segment.number));
        }
        self.is_unstable.set(false);
        self.tail.borrow_mut().acknowledge();
        Ok(())
    }

    /// Places as many drafts as the segment has room for.
    fn place(&self, drafts: &VecDeque<Draft>) -> Vec<Placed> {
        let now = WallNanoseconds::of(self.world.wall());
        let mut tail = self.tail.borrow_mut();
        drafts.iter().map_while(|draft| tail.place(draft, now)).collect()
    }

    /// Writes records that lie one behind the other to each copy that is there. On failure: which drives.
    async fn write(
        &self,
        placed: &[Placed],
        drafts: &VecDeque<Draft>,
        stability: Stability,
    ) -> std::result::Result<(), WriteFailures> {
        let first = placed.first().expect("something was placed").record.block;
        let mut buffers = Vec::new();
        for (placed, draft) in placed.iter().zip(drafts) {
            buffers.push(Arc::new(Buffer::copy_of(&placed.header)));
            buffers.extend(draft.payload());
        }
        let segment = self.tail.borrow().segment().clone();
        let writes = self.drives.write_all(&segment.slots, 1 + first.0, &buffers, stability);
        let copies = writes.len();
        let written = all_written(writes).await;
        let is_on_one = written.as_ref().is_err_and(|failures| failures.len() < copies);
        if is_on_one && canary::is(Canary::OneLegAcknowledged) { Ok(()) } else { written }
    }

    /// Gives up the drives that failed, and takes back what was placed.
    async fn turn_away(&self, last_taken: Link, failures: WriteFailures) -> Result<()> {
        sometimes::reached(Sometimes::FlightTurnedAway);
        self.give_up(failures).await?;
        self.tail.borrow_mut().withdraw(last_taken);
        self.enter_next().await
    }

    /// Nothing new goes to drives without space; the others are not there from now on, and every one that is left knows.
    async fn give_up(&self, failures: WriteFailures) -> Result<()> {
        self.lose(self.drives.set_aside_out_of_space(failures)).await
    }

    async fn lose(&self, failures: WriteFailures) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let members: Vec<_> = failures.iter().map(|(member, _)| *member).collect();
        Rc::clone(&self.owner).lose(failures).await?;
        members.into_iter().for_each(|member| self.drives.lose(member));
        Ok(())
    }

    /// Whether every copy a record must have can be written: all of them, or one on each drive there is.
    fn has_enough_copies(&self, segment: &MirroredSegment) -> bool {
        self.drives.has_copies_enough(&segment.slots)
    }
}

fn answer_all(answers: impl IntoIterator<Item = Answer>, done: &Result<()>) {
    for answer in answers {
        // Who no longer waits has still been served.
        let _ = answer.send(done.clone());
    }
}

/// Shape of a log segment of so many copies.
pub fn log_shape(slot_blocks: u16, copies: usize) -> SegmentShape {
    match copies {
        1 => SegmentShape::new(RedundancyClass::Raid0, slot_blocks, slot_blocks - 1, 0, 1)
            .expect("one slot, one row"),
        copies => SegmentShape::mirrored(slot_blocks, copies as u8),
    }
}
