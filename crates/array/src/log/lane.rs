//! The lane: takes what is to be logged, writes it to every copy, answers in order.
//!
//! Invariants:
//!
//! 1. One flight is under way at a time, and the next is placed only after it is stable on all of its copies and
//!    its owner has taken its records. So records are taken, and callers answered, in the order of positions.
//! 2. A flight whose write failed anywhere is not answered. The drive is given up, durably, then the whole flight is
//!    written again in another segment.
//! 3. A segment's header, with its successors, is stable on all copies before the first record in it is written.
//! 4. After a failure that leaves nowhere to write, nothing is ever answered with success again.

use super::{Draft, Part, Placed, Tail, summary_blocks};
use crate::{
    drive::{Drives, WriteFailures, all_written},
    error::{Error, Result},
    format::{
        ChecksumSeed, Link, LogStart, MemberIndex, MirroredSegment, RedundancyClass, SegmentBlock,
        SegmentKind, SegmentNumber, SegmentShape, SlotHeader, WallNanoseconds, record::PAYLOAD_BLOCKS_MAX,
        segment::SUCCESSORS_MAX,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};
use tokio::sync::{Notify, oneshot};
use world::{Buffer, IoError, LocalFuture, Stability, World};

/// What the log needs of its pool.
pub trait LogOwner {
    /// A free segment for records, on as many drives as the log has copies; none if there is none.
    fn allocate(&self) -> Option<MirroredSegment>;
    /// Takes a record in that is stable, and soon acknowledged. Called in the order of positions.
    fn take(&self, placed: &Placed, draft: &Draft);
    /// The log goes on at `start`, which no header names: a checkpoint has to. Everything before was taken.
    fn begin_anew(self: Rc<Self>, start: LogStart) -> LocalFuture<Result<()>>;
    /// A drive failed to write. Done when every drive that is left says so.
    fn lose(self: Rc<Self>, member: MemberIndex, error: IoError) -> LocalFuture<Result<()>>;
}

/// How the lane works.
#[derive(Clone, Copy, Debug)]
pub struct LaneSetting {
    /// Records in one flight at most.
    pub flight_records_max: usize,
    /// Copies each record must be stable on while there are so many drives.
    pub copies: usize,
}

struct Command {
    parts: VecDeque<Part>,
    /// All in one record: they happen together.
    is_one: bool,
    answer: oneshot::Sender<Result<()>>,
}

/// What is written at once, and who waits for it.
struct Flight {
    drafts: VecDeque<Draft>,
    answers: Vec<oneshot::Sender<Result<()>>>,
}

/// See the module's documentation.
pub struct Lane {
    world: World,
    drives: Drives,
    seed: ChecksumSeed,
    setting: LaneSetting,
    owner: Rc<dyn LogOwner>,
    queue: RefCell<VecDeque<Command>>,
    wanted: Notify,
    failure: RefCell<Option<Error>>,
    tail: RefCell<Tail>,
    /// Where the log may go on, as the header of its segment says.
    successors: RefCell<VecDeque<MirroredSegment>>,
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
        owner: Rc<dyn LogOwner>,
        (tail, successors): (Tail, Vec<MirroredSegment>),
    ) -> Rc<Self> {
        assert!(setting.copies > 0 && setting.flight_records_max > 0, "a record is written somewhere");
        let shape = log_shape(drives.geometry().slot_blocks(), setting.copies);
        let room_blocks = (shape.data_blocks() - summary_blocks(shape)) as usize;
        assert!(room_blocks > PAYLOAD_BLOCKS_MAX, "an empty segment has room for any record");
        Rc::new(Self {
            world: world.clone(),
            drives,
            seed,
            setting,
            owner,
            queue: RefCell::default(),
            wanted: Notify::new(),
            failure: RefCell::new(None),
            tail: RefCell::new(tail),
            successors: RefCell::new(successors.into()),
            entering: RefCell::new(None),
            copies_changed: Cell::new(false),
            closing: Cell::new(false),
        })
    }

    /// Logs `parts`, in their order; they may come to lie in several records. Done when all of them are stable on
    /// every copy and the owner has taken them.
    pub fn append(&self, parts: Vec<Part>) -> LocalFuture<Result<()>> {
        self.enqueue(parts, false)
    }

    /// As [`Lane::append`], but all parts come to lie in one record: after a crash all of them are there, or none.
    /// They must fit into one.
    pub fn append_together(&self, parts: Vec<Part>) -> LocalFuture<Result<()>> {
        self.enqueue(parts, true)
    }

    fn enqueue(&self, parts: Vec<Part>, is_one: bool) -> LocalFuture<Result<()>> {
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
        self.queue.borrow_mut().push_back(Command { parts: parts.into(), is_one, answer });
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

    /// Goes on in a segment of its own, with as many successors as there is room for. To be called before
    /// [`Lane::run`].
    ///
    /// # Errors
    ///
    /// There is no room, or no drive to write to.
    pub async fn begin_anew(&self) -> Result<()> {
        self.successors_of_next();
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
                self.stop(Vec::new(), &error);
                return Err(error);
            }
            let flight = self.gather();
            if flight.drafts.is_empty() {
                if self.closing.get() {
                    return Ok(());
                }
                self.wanted.notified().await;
                continue;
            }
            let Flight { drafts, answers } = flight;
            if let Err(error) = self.fly(drafts).await {
                self.stop(answers, &error);
                return Err(error);
            }
            for answer in answers {
                // Who no longer waits has still been served.
                let _ = answer.send(Ok(()));
            }
        }
    }

    fn stop(&self, answers: Vec<oneshot::Sender<Result<()>>>, error: &Error) {
        *self.failure.borrow_mut() = Some(error.clone());
        let waiting = std::mem::take(&mut *self.queue.borrow_mut());
        for answer in answers.into_iter().chain(waiting.into_iter().map(|command| command.answer)) {
            let _ = answer.send(Err(error.clone()));
        }
    }

    /// Packs what waits into records, as many as one flight takes. A command is answered with the flight that
    /// has its last part.
    fn gather(&self) -> Flight {
        let mut queue = self.queue.borrow_mut();
        let mut flight = Flight { drafts: VecDeque::new(), answers: Vec::new() };
        let mut draft = Draft::default();
        'commands: while let Some(command) = queue.front_mut() {
            if command.is_one && !draft.is_empty() {
                flight.drafts.push_back(std::mem::take(&mut draft));
                if flight.drafts.len() == self.setting.flight_records_max {
                    break;
                }
            }
            while let Some(part) = command.parts.pop_front() {
                let Err(part) = draft.push(self.seed, part) else { continue };
                assert!(!command.is_one, "what happens together fits into one record");
                flight.drafts.push_back(std::mem::take(&mut draft));
                if flight.drafts.len() == self.setting.flight_records_max {
                    command.parts.push_front(part);
                    break 'commands;
                }
                draft.push(self.seed, part).expect("an empty draft takes any part");
            }
            flight.answers.extend(queue.pop_front().map(|command| command.answer));
        }
        if !draft.is_empty() {
            flight.drafts.push_back(draft);
        }
        flight
    }

    /// Makes a flight stable on all copies, and has its owner take it.
    async fn fly(&self, mut drafts: VecDeque<Draft>) -> Result<()> {
        while !drafts.is_empty() {
            if !self.has_enough_copies(self.tail.borrow().segment()) {
                self.enter_next().await?;
                continue;
            }
            let last_stable = self.tail.borrow().previous();
            let placed = self.place(&drafts);
            if placed.is_empty() {
                sometimes::reached(Sometimes::SegmentFilled);
                self.enter_next().await?;
                continue;
            }
            match self.write(&placed, &drafts).await {
                Ok(()) => {
                    self.tail.borrow_mut().acknowledge();
                    for placed in &placed {
                        let draft = drafts.pop_front().expect("placed from here");
                        self.owner.take(placed, &draft);
                    }
                }
                Err(failures) => self.turn_away(last_stable, failures).await?,
            }
        }
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
    ) -> std::result::Result<(), WriteFailures> {
        let first = placed.first().expect("something was placed").record.block;
        let mut buffers = Vec::new();
        for (placed, draft) in placed.iter().zip(drafts) {
            buffers.push(Arc::new(Buffer::copy_of(&placed.header)));
            buffers.extend(draft.payload());
        }
        let segment = self.tail.borrow().segment().clone();
        let writes = self.drives.write_all(&segment.slots, 1 + first.0, &buffers, Stability::Stable);
        let copies = writes.len();
        let written = all_written(writes).await;
        let is_on_one = written.as_ref().is_err_and(|failures| failures.len() < copies);
        if is_on_one && canary::is(Canary::OneLegAcknowledged) { Ok(()) } else { written }
    }

    /// Gives up the drives that failed, and takes back what was placed.
    async fn turn_away(&self, last_stable: Link, failures: WriteFailures) -> Result<()> {
        sometimes::reached(Sometimes::FlightTurnedAway);
        self.give_up(failures).await?;
        self.tail.borrow_mut().withdraw(last_stable);
        self.enter_next().await
    }

    /// From now on these drives are not there, and every other one knows.
    async fn give_up(&self, failures: WriteFailures) -> Result<()> {
        for (member, error) in failures {
            self.drives.lose(member);
            Rc::clone(&self.owner).lose(member, error).await?;
        }
        Ok(())
    }

    /// Whether every copy a record must have is there: all of them, or one on each drive there is.
    fn has_enough_copies(&self, segment: &MirroredSegment) -> bool {
        let there = self.drives.copies_there(&segment.slots);
        there > 0 && there >= self.setting.copies.min(self.drives.members().len())
    }

    /// Goes on in the next segment that has enough copies, its header being stable. If none of those that the last
    /// header named has any more (drives went, or came), the log begins anew: then the owner says so in a superblock.
    async fn enter_next(&self) -> Result<()> {
        loop {
            let (next, is_new_beginning) = match self.take_successor() {
                Some(next) => (next, false),
                None => {
                    self.successors.borrow_mut().clear();
                    self.successors_of_next();
                    (self.take_successor().ok_or_else(|| self.nowhere_to_go())?, true)
                }
            };
            *self.entering.borrow_mut() = Some(next.clone());
            let successors = self.successors_of_next();
            if let Err(failures) = self.write_header(&next, &successors).await {
                sometimes::reached(Sometimes::HeaderRefused);
                self.give_up(failures).await?;
                continue;
            }
            let shape = log_shape(self.drives.geometry().slot_blocks(), next.slots.len());
            if is_new_beginning {
                sometimes::reached(Sometimes::BegunAnew);
                let previous = self.tail.borrow().previous();
                let start = LogStart { previous, segment: next.clone(), block: SegmentBlock(0) };
                Rc::clone(&self.owner).begin_anew(start).await?;
            }
            self.tail.borrow_mut().enter(next, shape);
            *self.entering.borrow_mut() = None;
            return Ok(());
        }
    }

    fn take_successor(&self) -> Option<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        let place = successors.iter().position(|segment| self.has_enough_copies(segment))?;
        successors.remove(place)
    }

    fn nowhere_to_go(&self) -> Error {
        let (present, needed) = (self.drives.members().len(), self.setting.copies);
        if present == 0 { Error::TooFewDrives { present, needed } } else { Error::Full }
    }

    /// The segments left to go on in, filled up with new ones.
    fn successors_of_next(&self) -> Vec<MirroredSegment> {
        let mut successors = self.successors.borrow_mut();
        while successors.len() < SUCCESSORS_MAX {
            let Some(segment) = self.owner.allocate() else { break };
            successors.push_back(segment);
        }
        successors.iter().cloned().collect()
    }

    async fn write_header(
        &self,
        segment: &MirroredSegment,
        successors: &[MirroredSegment],
    ) -> std::result::Result<(), WriteFailures> {
        let (pool, incarnation, first_position) = {
            let tail = self.tail.borrow();
            (tail.pool, tail.incarnation, tail.position_next())
        };
        let header = SlotHeader {
            pool,
            number: segment.number,
            segment_use: segment.segment_use,
            incarnation,
            kind: SegmentKind::Log,
            shape: log_shape(self.drives.geometry().slot_blocks(), segment.slots.len()),
            slots: segment.slots.clone(),
            slot_index: 0,
            first_position,
            successors: successors.to_vec(),
        };
        all_written(self.drives.write_headers(&header, Stability::Stable)).await
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
