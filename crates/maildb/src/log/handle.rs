//! [`LogHandle`]: the engine's handle to the transaction log.
//!
//! Invariants:
//!
//! 1. `stable <= requested` unless nothing is requested; `stable <= end` always.
//! 2. `stable` moves only after a completed `Stable` write, and only forward.
//! 3. Once `failure` is set it stays, and every waiter gets an error.
//! 4. No borrow of `state` lives across an await.
//! 5. While the log is held, records of the held generation and of later ones stay in the buffer.

use super::{
    LogConfig, LogError, LogNames, LogRecord, RecoveredTail,
    buffer::{LogBuffer, first_position},
    next_file::PreparationLimit,
    segment::SEGMENT_BYTES,
    writer,
};
use crate::format::header::{LogPosition, Signature};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use tokio::sync::{Notify, oneshot};
use world::{ByteCount, Directory, IoErrorKind, JoinHandle, World};

/// Position of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// Its first byte.
    pub start: LogPosition,
    /// Position behind its last byte: the record survives once the log is stable up to here.
    pub end: LogPosition,
}

/// Activity of a log since it was opened. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes of those records, without framing and fill.
    pub record_bytes: ByteCount,
    /// Write operations on log segments, including shadows.
    pub writes: u64,
    /// Bytes of those.
    pub bytes: ByteCount,
    /// Segments written as shadows.
    pub shadow_writes: u64,
    /// Number of waits for buffer space.
    pub record_stalls: u64,
    /// Generations filled.
    pub rolls: u64,
    /// Files reused for new generations.
    pub recycled: u64,
}

/// Urgency of a wait for stable log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Now,
    InCompany,
}

/// A handle to an open log; clones share it.
#[derive(Clone)]
pub struct LogHandle {
    shared: Rc<Shared>,
}

/// State shared by the handles, the writer and the preparation of the next file.
pub(super) struct Shared {
    pub world: World,
    pub directory: Rc<dyn Directory>,
    pub names: LogNames,
    pub config: LogConfig,
    pub state: RefCell<State>,
    /// Notified when there is something to write, or the log closes. One listener: the writer.
    pub work: Notify,
    /// Notified when buffer space is freed, or never will be.
    room: Notify,
    writer: RefCell<Option<JoinHandle<()>>>,
}

pub(super) struct State {
    pub buffer: LogBuffer,
    /// Everything below survives power loss.
    pub stable: LogPosition,
    /// Everything below is to be written.
    pub requested: LogPosition,
    /// From this generation on nothing is written.
    pub held: Option<u32>,
    /// The preparation of the next generation's file.
    pub preparation: Option<Rc<PreparationLimit>>,
    pub closing: bool,
    pub failure: Option<LogError>,
    waiters: BTreeMap<LogPosition, Vec<oneshot::Sender<Result<(), LogError>>>>,
    /// Filled generations that exist under their archive names.
    pub archived: BTreeSet<u32>,
    /// A released generation whose file is reused next.
    pub spare: Option<u32>,
    pub statistics: LogStatistics,
}

impl LogHandle {
    /// Creates a log, generation 1, in a directory that holds no log of that base name.
    pub async fn create(
        world: &World,
        directory: Rc<dyn Directory>,
        config: LogConfig,
        signature: Signature,
    ) -> Result<Self, LogError> {
        let shared = Shared::new(world, directory, config, first_position(1), BTreeSet::new());
        let writer = writer::Writer::begin_log(Rc::clone(&shared), signature).await?;
        Ok(Self::start(shared, writer))
    }

    /// Continues a log that was read to its end, in a new generation.
    pub async fn continue_after(
        world: &World,
        directory: Rc<dyn Directory>,
        config: LogConfig,
        recovered: RecoveredTail,
    ) -> Result<Self, LogError> {
        let start = first_position(recovered.header.generation + 1);
        let shared = Shared::new(world, directory, config, start, recovered.archived.clone());
        let writer = writer::Writer::continue_after(Rc::clone(&shared), recovered).await?;
        Ok(Self::start(shared, writer))
    }

    fn start(shared: Rc<Shared>, writer: writer::Writer) -> Self {
        let task = shared.world.spawn("log writer", writer.run());
        *shared.writer.borrow_mut() = Some(task);
        Self { shared }
    }

    /// Adds a record to the buffer. Never waits: call [`LogHandle::room`] before a transaction's first
    /// change.
    pub fn append(&self, record: &LogRecord) -> LogRange {
        let mut state = self.shared.state.borrow_mut();
        assert!(!state.closing, "append to a closed log");
        let (start, end, record_bytes) = state.buffer.append(record);
        state.statistics.records += 1;
        state.statistics.record_bytes += ByteCount(record_bytes as u64);
        if self.shared.unwritten(&state).0 * 2 >= self.shared.config.buffer_bytes.0 {
            // Full segments only: a partial one would have to be written again.
            let upto = state.buffer.sealed_end().unwrap_or(end);
            self.shared.request(&mut state, upto);
        }
        LogRange { start, end }
    }

    /// Waits while more than the configured buffer is unwritten. Fails if the log has failed.
    pub async fn room(&self) -> Result<(), LogError> {
        let mut stalled = false;
        loop {
            let drained = self.shared.room.notified();
            {
                let mut state = self.shared.state.borrow_mut();
                if let Some(failure) = &state.failure {
                    return Err(failure.clone());
                }
                if self.shared.unwritten(&state) <= self.shared.config.buffer_bytes {
                    return Ok(());
                }
                if !std::mem::replace(&mut stalled, true) {
                    state.statistics.record_stalls += 1;
                }
                let end = state.buffer.end();
                self.shared.request(&mut state, end);
            }
            drained.await;
        }
    }

    /// Waits until everything below `upto` is stable. Concurrent callers share a write.
    pub async fn make_stable(&self, upto: LogPosition) -> Result<(), LogError> {
        self.wait_until_stable(upto, Urgency::Now).await
    }

    /// Like [`LogHandle::make_stable`], but triggers no write: waits for the next one that another caller
    /// requests.
    pub async fn become_stable(&self, upto: LogPosition) -> Result<(), LogError> {
        self.wait_until_stable(upto, Urgency::InCompany).await
    }

    async fn wait_until_stable(&self, upto: LogPosition, urgency: Urgency) -> Result<(), LogError> {
        let answer = {
            let mut state = self.shared.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            assert!(upto <= state.buffer.end(), "waiting for log that was never appended");
            if upto <= state.stable {
                return Ok(());
            }
            let (tell, answer) = oneshot::channel();
            state.waiters.entry(upto).or_default().push(tell);
            if urgency == Urgency::Now {
                let end = state.buffer.end();
                self.shared.request(&mut state, end);
            }
            answer
        };
        answer.await.unwrap_or(Err(LogError::Closed))
    }

    /// Finishes the preparation of the next generation's file, so that the generation can begin without delay.
    pub async fn prepare_generation(&self) {
        let preparation = self.shared.state.borrow().preparation.clone();
        if let Some(preparation) = preparation {
            preparation.complete().await;
        }
    }

    /// Ends the current generation and holds the log there: later records wait in the buffer until
    /// [`LogHandle::release`]. Returns the start of the new generation; once the log is stable up to it, the
    /// file of that generation is the current one, and holds no record.
    pub fn hold_at_new_generation(&self) -> LogPosition {
        let mut state = self.shared.state.borrow_mut();
        let start = state.buffer.begin_generation();
        state.held = Some(start.generation);
        start
    }

    /// Lets the log be written again.
    pub fn release(&self) {
        self.shared.state.borrow_mut().held = None;
        self.shared.work.notify_one();
    }

    /// Fails if the log has failed.
    pub fn check_running(&self) -> Result<(), LogError> {
        match &self.shared.state.borrow().failure {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Requests a write of everything appended so far, without waiting.
    pub fn request_write(&self) {
        let mut state = self.shared.state.borrow_mut();
        let end = state.buffer.end();
        self.shared.request(&mut state, end);
    }

    /// End of the last record.
    pub fn end(&self) -> LogPosition {
        self.shared.state.borrow().buffer.end()
    }

    /// Everything below survives power loss.
    pub fn stable(&self) -> LogPosition {
        self.shared.state.borrow().stable
    }

    /// Log between two positions, including headers and unused ends of files; zero if `to` is earlier.
    pub fn bytes_between(&self, from: LogPosition, to: LogPosition) -> ByteCount {
        ByteCount(self.shared.address(to).saturating_sub(self.shared.address(from)))
    }

    /// Log behind `from`: the amount recovery would read after a crash now.
    pub fn bytes_since(&self, from: LogPosition) -> ByteCount {
        self.bytes_between(from, self.end())
    }

    /// Releases archived generations below `generation`; the caller no longer needs them for recovery. With
    /// circular logging one of them is kept and reused as the next file; the others are removed.
    pub async fn release_before(&self, generation: u32) -> Result<(), LogError> {
        if self.shared.config.circular {
            let mut state = self.shared.state.borrow_mut();
            if let Some(newest) = state.archived.range(..generation).next_back().copied() {
                state.archived.remove(&newest);
                // The previous spare is removed below with the others.
                if let Some(older) = state.spare.replace(newest) {
                    state.archived.insert(older);
                }
            }
        }
        while let Some(victim) = self.take_archived_before(generation) {
            self.shared.directory.remove(&self.shared.names.archived(victim)).await?;
        }
        Ok(())
    }

    fn take_archived_before(&self, generation: u32) -> Option<u32> {
        let mut state = self.shared.state.borrow_mut();
        let victim = state.archived.range(..generation).next().copied()?;
        state.archived.remove(&victim);
        Some(victim)
    }

    pub fn statistics(&self) -> LogStatistics {
        self.shared.state.borrow().statistics
    }

    /// Makes everything stable and ends the writer. Nothing may be appended afterwards. The current file
    /// stays as it is: the next opening continues behind it.
    pub async fn close(&self) -> Result<(), LogError> {
        let outcome = self.make_stable(self.end()).await;
        self.shared.state.borrow_mut().closing = true;
        self.shared.work.notify_one();
        let writer = self.shared.writer.borrow_mut().take();
        if let Some(writer) = writer {
            writer.await;
        }
        outcome
    }
}

impl Shared {
    fn new(
        world: &World,
        directory: Rc<dyn Directory>,
        config: LogConfig,
        start: LogPosition,
        archived: BTreeSet<u32>,
    ) -> Rc<Self> {
        let state = State {
            buffer: LogBuffer::new(config.segments_per_file(), start),
            stable: start,
            requested: start,
            held: None,
            preparation: None,
            closing: false,
            failure: None,
            waiters: BTreeMap::new(),
            archived,
            spare: None,
            statistics: LogStatistics::default(),
        };
        Rc::new(Self {
            world: world.clone(),
            directory,
            names: LogNames::new(&config.base_name),
            config,
            state: RefCell::new(state),
            work: Notify::new(),
            room: Notify::new(),
            writer: RefCell::new(None),
        })
    }

    /// Converts a position to a byte address in the whole log.
    fn address(&self, position: LogPosition) -> u64 {
        u64::from(position.generation) * self.config.file_bytes.0
            + u64::from(position.segment) * SEGMENT_BYTES as u64
            + u64::from(position.offset)
    }

    fn unwritten(&self, state: &State) -> ByteCount {
        ByteCount(self.address(state.buffer.end()) - self.address(state.stable))
    }

    fn request(&self, state: &mut State, upto: LogPosition) {
        if upto > state.requested {
            state.requested = upto;
            self.work.notify_one();
        }
    }

    /// Called by the writer: everything below `upto` is written.
    pub(super) fn advance(&self, upto: LogPosition) {
        let mut state = self.state.borrow_mut();
        assert!(state.failure.is_none(), "an acknowledgement after a failure");
        assert!(state.stable <= upto && upto <= state.buffer.end());
        state.stable = upto;
        while let Some(first) = state.waiters.first_entry()
            && *first.key() <= upto
        {
            for waiter in first.remove() {
                // The receiver may have been dropped.
                let _ = waiter.send(Ok(()));
            }
        }
        self.room.notify_waiters();
    }

    /// Fails the log: every waiter gets the same error.
    pub(super) fn fail(&self, failure: LogError) {
        let mut state = self.state.borrow_mut();
        for waiter in std::mem::take(&mut state.waiters).into_values().flatten() {
            let _ = waiter.send(Err(failure.clone()));
        }
        state.failure.get_or_insert(failure);
        self.room.notify_waiters();
    }
}

/// True for the one error that means "nothing to remove or rename".
pub(super) fn is_not_found(error: &world::IoError) -> bool {
    error.kind() == IoErrorKind::NotFound
}
