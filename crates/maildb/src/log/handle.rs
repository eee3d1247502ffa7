//! [`Log`]: what the engine holds of the transaction log.
//!
//! Invariants:
//!
//! 1. `stable <= requested` or nothing is asked for; `stable <= end` always.
//! 2. `stable` moves only after a completed `Stable` write, and only forward.
//! 3. Once `failure` is set it stays, and no waiter is answered with Ok.
//! 4. No borrow of `state` lives across an await.

use super::{
    LogConfig, LogError, LogNames, LogRecord, RecoveredTail,
    buffer::{LogBuffer, first_position},
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

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// Its first byte.
    pub start: LogPosition,
    /// Behind its last byte: what to make stable for the record to survive.
    pub end: LogPosition,
}

/// What a log has done since it was opened. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes of those records, framing and fill not counted.
    pub record_bytes: ByteCount,
    /// Write operations on log segments, shadows included.
    pub writes: u64,
    /// Bytes of those.
    pub bytes: ByteCount,
    /// Segments written as shadows.
    pub shadow_writes: u64,
    /// Times an appender had to wait for room.
    pub record_stalls: u64,
    /// Generations filled.
    pub rolls: u64,
    /// Files used again.
    pub recycled: u64,
}

/// Whether a wait for stable log asks for a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Now,
    InCompany,
}

/// A handle to an open log; clones share it.
#[derive(Clone)]
pub struct Log {
    shared: Rc<Shared>,
}

/// What the handles, the writer and the preparation of the next file share.
pub(super) struct Shared {
    pub world: World,
    pub directory: Rc<dyn Directory>,
    pub names: LogNames,
    pub config: LogConfig,
    pub state: RefCell<State>,
    /// Something to write, or to stop for. One listener: the writer.
    pub work: Notify,
    /// The buffer has drained a bit, or never will.
    room: Notify,
    writer: RefCell<Option<JoinHandle<()>>>,
}

pub(super) struct State {
    pub buffer: LogBuffer,
    /// Everything below survives power loss.
    pub stable: LogPosition,
    /// Everything below shall be written.
    pub requested: LogPosition,
    pub closing: bool,
    pub failure: Option<LogError>,
    waiters: BTreeMap<LogPosition, Vec<oneshot::Sender<Result<(), LogError>>>>,
    /// Filled generations still there under their archive names.
    pub archived: BTreeSet<u32>,
    /// A released generation whose file is the next to be used again.
    pub spare: Option<u32>,
    pub statistics: LogStatistics,
}

impl Log {
    /// Makes a new log, generation 1, in a directory that holds none of that base name.
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

    /// Goes on behind a log that was read to its end, in a new generation.
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

    /// Adds a record to the buffer. Never waits: call [`Log::room`] before a transaction's first change.
    pub fn append(&self, record: &LogRecord) -> LogRange {
        let mut state = self.shared.state.borrow_mut();
        assert!(!state.closing, "append to a closed log");
        let (start, end, record_bytes) = state.buffer.append(record);
        state.statistics.records += 1;
        state.statistics.record_bytes += ByteCount(record_bytes as u64);
        if self.shared.unwritten(&state).0 * 2 >= self.shared.config.buffer_bytes.0 {
            // Full segments only: a partial one would be written again.
            let upto = state.buffer.sealed_end().unwrap_or(end);
            self.shared.request(&mut state, upto);
        }
        LogRange { start, end }
    }

    /// Waits while more than the configured buffer is unwritten. Fails if the log has.
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

    /// Returns when everything below `upto` survives power loss. Whoever waits shares the write.
    pub async fn make_stable(&self, upto: LogPosition) -> Result<(), LogError> {
        self.wait_until_stable(upto, Urgency::Now).await
    }

    /// As [`Log::make_stable`], but asks for no write: it waits for the next one that somebody else asks for.
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

    /// Fails if the log has.
    pub fn check_running(&self) -> Result<(), LogError> {
        match &self.shared.state.borrow().failure {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Has everything appended so far written soon, without waiting.
    pub fn request_write(&self) {
        let mut state = self.shared.state.borrow_mut();
        let end = state.buffer.end();
        self.shared.request(&mut state, end);
    }

    /// Behind the last record.
    pub fn end(&self) -> LogPosition {
        self.shared.state.borrow().buffer.end()
    }

    /// Everything below survives power loss.
    pub fn stable(&self) -> LogPosition {
        self.shared.state.borrow().stable
    }

    /// Log between two positions, headers and unused ends of files included; zero if `to` is earlier.
    pub fn bytes_between(&self, from: LogPosition, to: LogPosition) -> ByteCount {
        ByteCount(self.shared.address(to).saturating_sub(self.shared.address(from)))
    }

    /// Log behind `from`: what a crash now would make recovery read.
    pub fn bytes_since(&self, from: LogPosition) -> ByteCount {
        self.bytes_between(from, self.end())
    }

    /// Gives up archived generations below `generation`: the caller has them in the databases (or in a
    /// backup). With circular logging one of them is kept to become the next file; the others are removed.
    pub async fn release_before(&self, generation: u32) -> Result<(), LogError> {
        if self.shared.config.circular {
            let mut state = self.shared.state.borrow_mut();
            if let Some(newest) = state.archived.range(..generation).next_back().copied() {
                state.archived.remove(&newest);
                // The spare before becomes an ordinary victim below.
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

    /// What was done so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.state.borrow().statistics
    }

    /// Makes everything stable and ends the writer. Nothing may be appended from now on. The file being
    /// written stays as it is: the next opening goes on behind it.
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

    /// Positions as one running number of bytes.
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

    /// The writer has written everything below `upto`.
    pub(super) fn advance(&self, upto: LogPosition) {
        let mut state = self.state.borrow_mut();
        assert!(state.failure.is_none(), "an acknowledgement after a failure");
        assert!(state.stable <= upto && upto <= state.buffer.end());
        state.stable = upto;
        while let Some(first) = state.waiters.first_entry()
            && *first.key() <= upto
        {
            for waiter in first.remove() {
                // A waiter that went away does not mind.
                let _ = waiter.send(Ok(()));
            }
        }
        self.room.notify_waiters();
    }

    /// The log is dead: everybody hears the same reason.
    pub(super) fn fail(&self, failure: LogError) {
        let mut state = self.state.borrow_mut();
        for waiter in std::mem::take(&mut state.waiters).into_values().flatten() {
            let _ = waiter.send(Err(failure.clone()));
        }
        state.failure.get_or_insert(failure);
        self.room.notify_waiters();
    }
}

/// True for the one error that means "there is nothing to remove or rename".
pub(super) fn is_not_found(error: &world::IoError) -> bool {
    error.kind() == IoErrorKind::NotFound
}
