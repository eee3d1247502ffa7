//! The four operations: drawing them, and counting and timing them.

use crate::{
    database::{
        load::{error::storage_cause, mail_record::ContentError},
        plan::profile::OperationMix,
    },
    meter::{IoTally, nanoseconds, record},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, collections::BTreeMap};
use world::{IoErrorKind, Moment, Random};

/// An operation on a record (as vendor blog hmlee lists them: insert = set columns, update; replace = seek,
/// set columns, update; delete = seek, delete; read = seek).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Insert,
    Replace,
    Delete,
    /// The content of the record is checked.
    Read,
}

impl Operation {
    /// In report order.
    pub const ALL: [Self; 4] = [Self::Insert, Self::Replace, Self::Delete, Self::Read];

    /// Draws the next operation. For a database that may not grow, inserts and deletes are equally likely,
    /// with the same sum.
    pub fn draw(mix: OperationMix, may_grow: bool, random: &mut Random) -> Self {
        let place = random.below(100);
        let changing = mix.insert + mix.delete;
        if place < changing && !may_grow {
            return if random.below(2) == 0 { Self::Insert } else { Self::Delete };
        }
        match place {
            place if place < mix.insert => Self::Insert,
            place if place < changing => Self::Delete,
            place if place < changing + mix.replace => Self::Replace,
            _ => Self::Read,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Insert => "Insert",
            Self::Replace => "Replace",
            Self::Delete => "Delete",
            Self::Read => "Read",
        }
    }
}

/// Kinds of failure that fail a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    Io,
    /// A page or log segment failed its checksum.
    Checksum,
    /// A record had other content than was written.
    Content,
    /// The engine stopped for another reason.
    Engine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    pub kind: FailureKind,
    /// Place and cause, in words.
    pub text: String,
}

impl RunFailure {
    /// Classifies an engine error.
    pub fn from_engine(error: &maildb::Error) -> Self {
        let kind = match error {
            error if storage_cause(error).is_some() => FailureKind::Io,
            maildb::Error::PageDamaged { .. } | maildb::Error::LostWrite { .. } => FailureKind::Checksum,
            _ => FailureKind::Engine,
        };
        Self { kind, text: error.to_string() }
    }

    pub fn from_content(database: &str, error: &ContentError) -> Self {
        Self { kind: FailureKind::Content, text: format!("{database}: {error}") }
    }
}

/// Maximum number of failures kept in words for each kind; the rest are counted only.
const FAILURES_KEPT: usize = 20;

/// Transactions and operations of a group, since the judged part began and since the last sample.
#[derive(Default)]
pub struct OperationMeter {
    state: RefCell<OperationState>,
}

#[derive(Default)]
struct OperationState {
    whole: OperationReading,
    sample: IoTally,
    /// Started and unfinished operations by number, with their intended starts.
    outstanding: BTreeMap<u64, Moment>,
    begun: u64,
    /// Operations with an intended start from then on count in samples only.
    judged_until: Option<Moment>,
}

impl OperationState {
    fn is_judged(&self, intended: Moment) -> bool {
        self.judged_until.is_none_or(|until| intended < until)
    }
}

/// A started operation.
#[derive(Debug)]
pub struct OperationTicket {
    number: u64,
    operation: Operation,
    intended: Moment,
}

impl OperationTicket {
    pub fn operation(&self) -> Operation {
        self.operation
    }
}

/// Operations of a group's sessions.
#[derive(Clone, Debug)]
pub struct OperationReading {
    /// Latency of each operation in nanoseconds, from its intended start to the end of its commit, in the
    /// order of [`Operation::ALL`].
    pub latencies: [Histogram<u64>; 4],
    /// Age of operations that arrived in the measured time and were unfinished when waiting for them ended:
    /// less than their latency.
    pub unfinished: Histogram<u64>,
    pub commits_durable: u64,
    pub commits_lazy: u64,
    /// Transactions rolled back because another was changing the same record.
    pub conflicts: u64,
    /// Records read back whose content was right.
    pub records_checked: u64,
}

impl Default for OperationReading {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are within the histogram's range");
        Self {
            latencies: [empty(), empty(), empty(), empty()],
            unfinished: empty(),
            commits_durable: 0,
            commits_lazy: 0,
            conflicts: 0,
            records_checked: 0,
        }
    }
}

impl OperationReading {
    /// Adds the operations of another group.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(theirs).expect("an auto-resizing histogram takes any value");
        }
        self.unfinished.add(&other.unfinished).expect("an auto-resizing histogram takes any value");
        self.commits_durable += other.commits_durable;
        self.commits_lazy += other.commits_lazy;
        self.conflicts += other.conflicts;
        self.records_checked += other.records_checked;
    }

    /// Finished operations.
    pub fn count(&self) -> u64 {
        self.latencies.iter().map(Histogram::len).sum()
    }

    /// All operations, the unfinished ones with their age.
    pub fn all(&self) -> Histogram<u64> {
        let mut all = self.unfinished.clone();
        for one in &self.latencies {
            all.add(one).expect("an auto-resizing histogram takes any value");
        }
        all
    }
}

impl OperationMeter {
    /// Starts timing `operation`, which was due at `intended`.
    pub fn begin(&self, operation: Operation, intended: Moment) -> OperationTicket {
        let mut state = self.state.borrow_mut();
        let number = state.begun;
        state.begun += 1;
        state.outstanding.insert(number, intended);
        OperationTicket { number, operation, intended }
    }

    /// Finishes an operation. Does nothing if [`OperationMeter::settle`] has counted it already.
    pub fn end(&self, begun: OperationTicket, now: Moment) {
        let mut state = self.state.borrow_mut();
        if state.outstanding.remove(&begun.number).is_some() {
            let took_ns = nanoseconds(now.since(begun.intended));
            if state.is_judged(begun.intended) {
                record(&mut state.whole.latencies[begun.operation as usize], took_ns);
            }
            state.sample.add(0, now.since(begun.intended));
        }
    }

    /// Discards an operation that was rolled back.
    pub fn give_up(&self, begun: &OperationTicket) {
        self.state.borrow_mut().outstanding.remove(&begun.number);
    }

    /// Started and unfinished operations.
    pub fn outstanding(&self) -> u64 {
        self.state.borrow().outstanding.len() as u64
    }

    /// Counts unfinished operations, and those `waiting` to start since the given moments, with their age at
    /// `now`.
    pub fn settle(&self, waiting: &[Moment], now: Moment) {
        let mut state = self.state.borrow_mut();
        let begun: Vec<Moment> = std::mem::take(&mut state.outstanding).into_values().collect();
        for intended in begun.iter().chain(waiting) {
            if state.is_judged(*intended) {
                record(&mut state.whole.unfinished, nanoseconds(now.since(*intended)));
            }
            state.sample.add(0, now.since(*intended));
        }
    }

    /// Updates the counters other than latencies, if the judged part is not over.
    pub fn count(&self, change: impl FnOnce(&mut OperationReading)) {
        let mut state = self.state.borrow_mut();
        if state.judged_until.is_none() {
            change(&mut state.whole);
        }
    }

    /// Resets everything except unfinished operations: the judged part begins now.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        state.whole = OperationReading::default();
        state.sample = IoTally::default();
        state.judged_until = None;
    }

    /// Ends the judged part: operations due from `now` on count in samples only.
    pub fn end_judged(&self, now: Moment) {
        self.state.borrow_mut().judged_until = Some(now);
    }

    /// Takes the counts since the last call.
    pub fn take_sample(&self) -> IoTally {
        std::mem::take(&mut self.state.borrow_mut().sample)
    }

    /// Transaction counters since the last restart.
    pub fn transactions(&self) -> TransactionResults {
        let whole = &self.state.borrow().whole;
        TransactionResults {
            commits_durable: whole.commits_durable,
            commits_lazy: whole.commits_lazy,
            conflicts: whole.conflicts,
            records_checked: whole.records_checked,
        }
    }

    /// Everything since the last restart.
    pub fn reading(&self) -> OperationReading {
        self.state.borrow().whole.clone()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionResults {
    pub commits_durable: u64,
    pub commits_lazy: u64,
    /// Transactions rolled back because another changed the same record.
    pub conflicts: u64,
    /// Records read back whose content was right.
    pub records_checked: u64,
}

/// Failures of a group.
#[derive(Default)]
pub struct FailureLog {
    state: RefCell<FailureState>,
}

#[derive(Default)]
struct FailureState {
    kept: Vec<RunFailure>,
    counts: FailureCounts,
    no_space: Option<maildb::Error>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCounts {
    /// Failed device operations.
    pub io: u64,
    /// Damaged pages and log segments.
    pub checksum: u64,
    /// Records with wrong content.
    pub content: u64,
    /// Other engine failures.
    pub engine: u64,
}

impl FailureCounts {
    /// Adds the failures of another group.
    pub fn merge(&mut self, other: &Self) {
        self.io += other.io;
        self.checksum += other.checksum;
        self.content += other.content;
        self.engine += other.engine;
    }
}

impl FailureLog {
    pub fn note(&self, failure: RunFailure) {
        let mut state = self.state.borrow_mut();
        match failure.kind {
            FailureKind::Io => state.counts.io += 1,
            FailureKind::Checksum => state.counts.checksum += 1,
            FailureKind::Content => state.counts.content += 1,
            FailureKind::Engine => state.counts.engine += 1,
        }
        let same_kind = state.kept.iter().filter(|kept| kept.kind == failure.kind).count();
        if same_kind < FAILURES_KEPT && !state.kept.contains(&failure) {
            state.kept.push(failure);
        }
    }

    /// Records an engine error. Lack of space is kept apart: it is no fault of the storage.
    pub fn note_engine(&self, error: &maildb::Error) {
        if storage_cause(error).is_some_and(|cause| cause.kind() == IoErrorKind::NoSpace) {
            self.state.borrow_mut().no_space.get_or_insert_with(|| error.clone());
            return;
        }
        self.note(RunFailure::from_engine(error));
    }

    /// The error of the first write that found no space.
    pub fn no_space(&self) -> Option<maildb::Error> {
        self.state.borrow().no_space.clone()
    }

    /// Failures in words and by kind.
    pub fn reading(&self) -> (Vec<RunFailure>, FailureCounts) {
        let state = self.state.borrow();
        (state.kept.clone(), state.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: OperationMix = OperationMix { insert: 40, replace: 5, delete: 30, read: 25 };

    fn draw_many(may_grow: bool) -> [u32; 4] {
        let mut random = Random::new(3, "test");
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[Operation::draw(MIX, may_grow, &mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn operations_come_in_the_shares_of_the_mix() {
        let [insert, replace, delete, read] = draw_many(true);
        for (count, percent) in [(insert, 40), (replace, 5), (delete, 30), (read, 25)] {
            assert!(u32::abs_diff(count, percent * 100) < 200, "{count} for {percent} %");
        }
    }

    #[test]
    fn a_database_that_may_not_grow_is_deleted_from_as_often_as_inserted_into() {
        let [insert, replace, delete, read] = draw_many(false);
        for (count, percent) in [(insert, 35), (replace, 5), (delete, 35), (read, 25)] {
            assert!(u32::abs_diff(count, percent * 100) < 200, "{count} for {percent} %");
        }
    }

    #[test]
    fn running_out_of_space_is_no_fault_of_the_storage() {
        let log = FailureLog::default();
        let error = |kind| maildb::Error::Storage(world::IoError::new(kind, "growing priv1.edb"));
        log.note_engine(&error(IoErrorKind::NoSpace));
        log.note_engine(&error(IoErrorKind::Medium));
        assert_eq!(log.no_space().unwrap().to_string(), "growing priv1.edb");
        assert_eq!(log.reading().1, FailureCounts { io: 1, ..FailureCounts::default() });
    }

    #[test]
    fn the_log_runs_out_of_space_as_the_databases_do() {
        let error = |kind| {
            maildb::Error::from(maildb::log::LogError::Io(world::IoError::new(kind, "making E00tmp.log")))
        };
        let log = FailureLog::default();
        log.note_engine(&error(IoErrorKind::Medium));
        assert!(log.no_space().is_none());
        assert_eq!(log.reading().1, FailureCounts { io: 1, ..FailureCounts::default() });
        log.note_engine(&error(IoErrorKind::NoSpace));
        assert_eq!(log.no_space().unwrap().to_string(), "making E00tmp.log");
        let run = crate::database::Error::from(error(IoErrorKind::NoSpace));
        assert_eq!(run.storage_kind(), Some(IoErrorKind::NoSpace));
    }
}
