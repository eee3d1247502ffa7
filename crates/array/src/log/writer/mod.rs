//! The log writer: queues items, writes them to every copy as records, and answers in order.
//!
//! Most callers are promised that their items are stable. Those of volumes with a write cache are promised
//! order only: their items become stable with the first stable write behind them.
//!
//! Invariants:
//!
//! 1. One batch is in flight at a time. The next one is placed after all copies of the last are written and
//!    the sink has applied its records. So records are applied, and callers answered, in the order of
//!    positions.
//! 2. A batch that failed on any copy is not acknowledged. The drive is failed, durably, unless it only
//!    lacked space; then the whole batch is written again in another segment, on drives that accept it.
//! 3. A segment's header, with its successors, and all earlier records are stable on all copies before the
//!    first record of that segment is written. So unstable records lie in the tail's segment alone, on every
//!    copy of it.
//! 4. `is_unstable` is set from the first record that was applied and may not be stable. A caller that was
//!    promised stability gets its answer while it is not set.
//! 5. After a failure that leaves no drive to write to, nothing is answered with success again. The same
//!    holds if no copy of the unstable records becomes stable.

mod entering;
mod queue;

use super::{LogItem, LogTail, PlacedRecord, RecordDraft, room_blocks};
use crate::{
    drive::{Drives, WriteFailures, all_written},
    engine::DeviceTime,
    error::{Error, Result},
    format::{
        ChecksumSeed, LogStart, MirroredSegment, RecordLink, SegmentKind, SegmentNumber, SegmentUse,
        SlotAddress, WallNanoseconds, record::PAYLOAD_BLOCKS_MAX,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use queue::{AppendCommand, Completion, Queue, RecordBatch};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Notify, oneshot};
use world::{Buffer, LocalFuture, Stability, World};

/// The pool, as the log sees it.
pub trait LogSink {
    /// Allocates a segment for records, with as many copies as the pool keeps; none if no segment can be
    /// spared.
    fn allocate(&self, need: Need) -> Option<MirroredSegment>;
    /// Frees segments by a checkpoint, when the log needs one and there is none. Resolves when all that can
    /// be freed is.
    fn make_room(self: Rc<Self>) -> LocalFuture<Result<()>>;
    /// Sees a record that is about to be written to all copies. It may never be taken, and comes again if its batch
    /// is written again.
    fn offer(&self, _placed: &PlacedRecord, _draft: &RecordDraft) {}
    /// Applies a record that is written to all copies; its callers get their answer next. Called in the order
    /// of positions.
    fn take(&self, placed: &PlacedRecord, draft: &RecordDraft);
    /// The log enters `segment`: a replay from before it may pass through, even if all records that are written
    /// to it are withdrawn.
    fn entered(&self, segment: SegmentNumber);
    /// Publishes in a superblock that the log continues at `start`, which no header names. All earlier
    /// records were applied.
    fn publish_start(self: Rc<Self>, start: LogStart) -> LocalFuture<Result<()>>;
    /// The log has failed and accepts nothing more.
    fn stop(&self, error: &Error);
    /// Fails drives that could not be written. Resolves when a superblock that says so is stable on all
    /// others.
    fn lose(self: Rc<Self>, failures: WriteFailures) -> LocalFuture<Result<()>>;
    /// Too few drives have space. Resolves after a pause, when a retry may succeed.
    fn wait_for_space(self: Rc<Self>) -> LocalFuture<Result<()>>;
}

/// Urgency of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The log continues in it now.
    Now,
    /// A successor in reserve. Without any the next segment costs a checkpoint.
    Later,
}

#[derive(Clone, Copy, Debug)]
pub struct LogWriterSetting {
    /// Records in one batch at most.
    pub batch_records_max: usize,
}

/// Appends to the log of one pool. One task runs it ([`LogWriter::run`]).
pub struct LogWriter {
    world: World,
    drives: Drives,
    seed: ChecksumSeed,
    setting: LogWriterSetting,
    sink: Rc<dyn LogSink>,
    queue: RefCell<Queue>,
    /// Callers of [`LogWriter::sync`].
    syncs: RefCell<Vec<Completion>>,
    is_unstable: Cell<bool>,
    wanted: Notify,
    failure: RefCell<Option<Error>>,
    tail: RefCell<LogTail>,
    /// Segments reserved for the log to continue in.
    successors: RefCell<VecDeque<MirroredSegment>>,
    /// Those that the header of the tail's segment names: replay finds no others.
    named: RefCell<Vec<MirroredSegment>>,
    /// Use of the last segment whose header is stable on all of its copies; uses ascend along the log.
    entered_use: Cell<SegmentUse>,
    /// The segment whose header is being written.
    entering: RefCell<Option<MirroredSegment>>,
    copies_changed: Cell<bool>,
    /// A segment that no header names is to be entered.
    moves_on: Cell<bool>,
    closing: Cell<bool>,
    /// Of the batch in flight, if somebody in it is timed.
    device_time: Cell<Option<Duration>>,
}

impl LogWriter {
    /// A writer that continues at `tail`, whose segment names `successors`. Writes nothing before
    /// [`LogWriter::run`].
    pub fn new(
        world: &World,
        (drives, seed, setting): (Drives, ChecksumSeed, LogWriterSetting),
        sink: Rc<dyn LogSink>,
        (tail, successors): (LogTail, Vec<MirroredSegment>),
    ) -> Rc<Self> {
        assert!(setting.batch_records_max > 0, "a record is written at some time");
        let room_blocks = room_blocks(drives.mirror_shape(1)) as usize;
        assert!(room_blocks > PAYLOAD_BLOCKS_MAX, "an empty segment has room for any record");
        Rc::new(Self {
            world: world.clone(),
            drives,
            seed,
            setting,
            sink,
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
            moves_on: Cell::new(false),
            closing: Cell::new(false),
            device_time: Cell::new(None),
        })
    }

    /// Logs `items`, in order, in one or more records. Resolves when all are stable on every copy and
    /// applied.
    pub fn append(&self, items: Vec<LogItem>) -> LocalFuture<Result<()>> {
        self.enqueue(items, (false, Stability::Stable), None)
    }

    /// As [`LogWriter::append`], but all items go into one record: after a crash all of them are found, or
    /// none. Panics if they do not fit.
    pub fn append_together(&self, items: Vec<LogItem>) -> LocalFuture<Result<()>> {
        self.enqueue(items, (true, Stability::Stable), None)
    }

    /// As [`LogWriter::append`], but a power cut may still revoke them, and everything logged behind them,
    /// until [`LogWriter::sync`] or a stable append behind them resolves.
    pub fn append_volatile(&self, items: Vec<LogItem>) -> LocalFuture<Result<()>> {
        self.enqueue(items, (false, Stability::Volatile), None)
    }

    /// As [`LogWriter::append`], or [`LogWriter::append_volatile`]; adds the time that drives work for it to `device`.
    pub(crate) fn append_timed(
        &self,
        items: Vec<LogItem>,
        stability: Stability,
        device: Option<DeviceTime>,
    ) -> LocalFuture<Result<()>> {
        self.enqueue(items, (false, stability), device)
    }

    /// Resolves when everything acknowledged so far is stable on every copy.
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

    fn enqueue(
        &self,
        items: Vec<LogItem>,
        (is_one, stability): (bool, Stability),
        device: Option<DeviceTime>,
    ) -> LocalFuture<Result<()>> {
        if items.is_empty() {
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
        self.queue.borrow_mut().push(AppendCommand {
            items: items.into(),
            is_one,
            stability,
            device,
            answer,
        });
        self.wait_for(answered)
    }

    fn wait_for(&self, answered: oneshot::Receiver<Result<()>>) -> LocalFuture<Result<()>> {
        self.wanted.notify_one();
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err(Error::Stopped("its log was closed".to_owned())))
        })
    }

    /// A snapshot of the end of the log.
    pub fn tail(&self) -> LogTail {
        self.tail.borrow().clone()
    }

    /// Segments the log is in, or may continue in.
    pub fn segments_in_use(&self) -> Vec<SegmentNumber> {
        let (tail, successors, entering) =
            (self.tail.borrow(), self.successors.borrow(), self.entering.borrow());
        let all = successors.iter().chain(entering.iter()).chain([tail.segment()]);
        all.map(|segment| segment.number).collect()
    }

    /// True if the header of a segment of this log is stable. Nothing but the header before may lead to one
    /// that is not.
    pub fn has_stable_header(&self, segment: &MirroredSegment) -> bool {
        segment.segment_use <= self.entered_use.get()
    }

    /// Continues in a fresh segment, with as many successors as there is room for. Call it before
    /// [`LogWriter::run`].
    ///
    /// # Errors
    ///
    /// No segment is free, or no drive can be written.
    pub async fn start_elsewhere(&self) -> Result<()> {
        self.enter_next().await
    }

    /// Call it when drives come or go: the log moves on if its segment has fewer copies than it could.
    pub fn check_copies(&self) {
        self.copies_changed.set(true);
        self.wanted.notify_one();
    }

    /// Moves the log on to a new segment, and gives up its successors: some of their drives leave. A checkpoint
    /// is made, so that a replay begins there. Does nothing while no segment can be spared.
    pub fn move_on(&self) {
        self.moves_on.set(true);
        self.wanted.notify_one();
    }

    /// Ends [`LogWriter::run`] once all pending requests are answered.
    pub fn close(&self) {
        self.closing.set(true);
        self.wanted.notify_one();
    }

    /// Runs until the log is closed or cannot be written any more.
    ///
    /// # Errors
    ///
    /// The failure that stopped it; all pending requests get it, too.
    pub async fn run(self: Rc<Self>) -> Result<()> {
        loop {
            let lacks_copies =
                self.copies_changed.take() && !self.has_enough_copies(self.tail.borrow().segment());
            let moves_on = self.moves_on.take() && self.replace_successors();
            if (lacks_copies || moves_on)
                && let Err(error) = self.enter_next().await
            {
                self.stop([], &error);
                return Err(error);
            }
            let batch = self.queue.borrow_mut().gather(self.seed, self.setting.batch_records_max);
            let syncs = std::mem::take(&mut *self.syncs.borrow_mut());
            if batch.drafts.is_empty() && syncs.is_empty() {
                if !self.closing.get() {
                    self.wanted.notified().await;
                    continue;
                }
                if !self.is_unstable.get() {
                    return Ok(());
                }
            }
            let RecordBatch { drafts, answers, is_stable, timed } = batch;
            self.device_time.set((!timed.is_empty()).then_some(Duration::ZERO));
            let written = self.write_batch(drafts, is_stable).await;
            let took = self.device_time.take().unwrap_or_default();
            timed.iter().for_each(|device| device.set(device.get() + took));
            if let Err(error) = written {
                self.stop(answers.into_iter().chain(syncs), &error);
                return Err(error);
            }
            answer_all(answers, &Ok(()));
            // One flush serves all callers of `sync`, and everything acknowledged meanwhile.
            if (!syncs.is_empty() || self.closing.get())
                && let Err(error) = self.make_stable(&[]).await
            {
                self.stop(syncs, &error);
                return Err(error);
            }
            answer_all(syncs, &Ok(()));
        }
    }

    fn stop(&self, answers: impl IntoIterator<Item = Completion>, error: &Error) {
        *self.failure.borrow_mut() = Some(error.clone());
        self.sink.stop(error);
        answer_all(answers, &Err(error.clone()));
        answer_all(self.syncs.take(), &Err(error.clone()));
        self.queue.borrow_mut().refuse(error);
    }

    /// Writes a batch to all copies, makes it stable if required, and applies it.
    async fn write_batch(&self, mut drafts: VecDeque<RecordDraft>, is_stable: bool) -> Result<()> {
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
            // Behind unstable records a flush is needed: it makes all of them stable.
            let is_stable_at_once = is_stable && !self.is_unstable.get();
            let stability = if is_stable_at_once { Stability::Stable } else { Stability::Volatile };
            placed.iter().zip(&drafts).for_each(|(placed, draft)| self.sink.offer(placed, draft));
            if let Err(failures) = self.timed(self.write(&placed, &drafts, stability)).await {
                self.retry_elsewhere(last_taken, failures).await?;
                continue;
            }
            if is_stable_at_once {
                self.tail.borrow_mut().acknowledge();
            } else {
                self.is_unstable.set(true);
            }
            if is_stable {
                self.timed(self.make_stable(&[])).await?;
            }
            for placed in &placed {
                let draft = drafts.pop_front().expect("placed from here");
                self.sink.take(placed, &draft);
            }
        }
        Ok(())
    }

    /// Adds the time of what drives do for the batch, if somebody in it is timed.
    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(before) = self.device_time.get() else { return work.await };
        let begun = self.world.now();
        let done = work.await;
        self.device_time.set(Some(before + self.world.now().since(begun)));
        done
    }

    /// Flushes everything written so far, and the header just written to `others`. A drive that fails to
    /// flush is treated as if it had failed to write: the other copies hold the data.
    ///
    /// # Errors
    ///
    /// No copy is left.
    async fn make_stable(&self, others: &[SlotAddress]) -> Result<()> {
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
            // Whatever the error, the drive's cache may be lost.
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
    fn place(&self, drafts: &VecDeque<RecordDraft>) -> Vec<PlacedRecord> {
        let now = WallNanoseconds::of(self.world.wall());
        let mut tail = self.tail.borrow_mut();
        drafts.iter().map_while(|draft| tail.place(draft, now)).collect()
    }

    /// Writes adjacent records to each copy present. The error lists the drives that failed.
    async fn write(
        &self,
        placed: &[PlacedRecord],
        drafts: &VecDeque<RecordDraft>,
        stability: Stability,
    ) -> std::result::Result<(), WriteFailures> {
        let first = placed.first().expect("something was placed").record.block;
        let mut buffers = Vec::new();
        for (placed, draft) in placed.iter().zip(drafts) {
            buffers.push(Arc::new(Buffer::copy_of(&placed.header)));
            buffers.extend(draft.payload());
        }
        let writes = self.drives.write_data(self.tail.borrow().layout(), first, &buffers, stability);
        let copies = writes.len();
        let written = all_written(writes).await;
        let is_on_one = written.as_ref().is_err_and(|failures| failures.len() < copies);
        if is_on_one && canary::is(Canary::OneLegAcknowledged) { Ok(()) } else { written }
    }

    /// Fails the drives that could not be written, withdraws the records and enters another segment.
    async fn retry_elsewhere(&self, last_taken: RecordLink, failures: WriteFailures) -> Result<()> {
        sometimes::reached(Sometimes::BatchRetriedElsewhere);
        self.give_up(failures).await?;
        self.tail.borrow_mut().withdraw(last_taken);
        self.enter_next().await
    }

    /// Drives without space get nothing new; all others that failed are lost, and a superblock says so.
    async fn give_up(&self, failures: WriteFailures) -> Result<()> {
        self.lose(self.drives.set_aside_out_of_space(failures)).await
    }

    async fn lose(&self, failures: WriteFailures) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let members: Vec<_> = failures.iter().map(|(member, _)| *member).collect();
        Rc::clone(&self.sink).lose(failures).await?;
        members.into_iter().for_each(|member| self.drives.lose(member));
        Ok(())
    }

    /// True if every copy a record must have can be written: all of them, or one on each drive present.
    fn has_enough_copies(&self, segment: &MirroredSegment) -> bool {
        self.drives.has_copies_enough(SegmentKind::Log, &segment.slots)
    }
}

fn answer_all(answers: impl IntoIterator<Item = Completion>, done: &Result<()>) {
    for answer in answers {
        // A caller that was dropped needs no answer.
        let _ = answer.send(done.clone());
    }
}
