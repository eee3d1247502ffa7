//! Progress of a run: written by the groups, read by the driver.
//!
//! Groups run on separate threads and share only this: each group's progress (overwritten as it goes), the
//! test log, and the rendezvous between phases. The driver makes one [`Job`](world::Job) of their work.

use crate::database::results::test_log::{Phase, TestLogLine};
use crate::database::{
    record::{Recorder, RunEvent},
    results::search::SearchProgress,
    run::trial::Trials,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use world::{Cancellation, JobProgress, WallTime, WorkUnit, World};

/// Interval at which a waiting group checks for the others.
const RENDEZVOUS_POLL: Duration = Duration::from_millis(20);

/// Current rates and latencies of one group, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveFigures {
    /// Transactional database IOPS.
    pub database_iops: f64,
    /// Average; None without reads.
    pub database_read_ms: Option<f64>,
    /// Average; None without writes.
    pub database_write_ms: Option<f64>,
    /// Average; None without writes.
    pub log_write_ms: Option<f64>,
    pub operations_per_second: f64,
    /// Operations that have arrived and not started (held rate).
    pub backlog: u64,
}

/// Progress of a run, for display.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    /// Phase of the slowest group.
    pub phase: Phase,
    /// Work of the phase, in the unit of [`unit_of`].
    pub work: JobProgress,
    /// Time in the phase, in seconds.
    pub elapsed_s: f64,
    /// The last second of the load; None if it does not run.
    pub live: Option<LiveFigures>,
    /// The current trial, in a search.
    pub search: Option<SearchProgress>,
    /// Lines added to the test log since the last call.
    pub lines: Vec<TestLogLine>,
}

/// The unit in which the work of a phase is counted.
pub fn unit_of(phase: Phase) -> WorkUnit {
    match phase {
        Phase::Create | Phase::Verify => WorkUnit::Bytes,
        Phase::Search | Phase::Measure => WorkUnit::Nanoseconds,
        Phase::Fill | Phase::Done => WorkUnit::Millionths,
    }
}

/// Work done of a total, in the unit of its phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseWork {
    pub done: u64,
    pub total: u64,
}

/// Progress of one group.
#[derive(Clone, Debug, Default)]
pub struct GroupProgress {
    pub phase: Phase,
    /// Work of this phase and of earlier ones.
    work: BTreeMap<Phase, PhaseWork>,
    /// The last second of the load.
    pub live: Option<LiveFigures>,
}

impl GroupProgress {
    /// Enters `phase`, or goes on in it.
    pub fn reach(&mut self, phase: Phase, work: PhaseWork) {
        self.phase = phase;
        self.work.insert(phase, work);
    }

    /// Work of `phase`, all of it if the group is in a later one.
    fn work_of(&self, phase: Phase) -> Option<PhaseWork> {
        let work = self.work.get(&phase)?;
        Some(if self.phase > phase { PhaseWork { done: work.total, ..*work } } else { *work })
    }
}

/// State shared by the groups of a run and the driver. Cheap to clone.
#[derive(Clone)]
pub struct RunState {
    groups: Arc<Vec<Mutex<GroupProgress>>>,
    lines: Arc<Mutex<Vec<TestLogLine>>>,
    arrived: Arc<AtomicU32>,
    stop: Cancellation,
    abort: Cancellation,
    recorder: Option<Recorder>,
    pub trials: Trials,
}

/// A panic elsewhere leaves plain numbers behind a lock, nothing half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunState {
    /// State for `groups` groups; `stop` ends the run.
    pub fn new(groups: u32, stop: Cancellation, recorder: Option<Recorder>) -> Self {
        Self {
            groups: Arc::new((0..groups).map(|_| Mutex::default()).collect()),
            lines: Arc::default(),
            arrived: Arc::default(),
            stop,
            abort: Cancellation::default(),
            recorder,
            trials: Trials::new(groups),
        }
    }

    /// Updates the progress of `group`.
    pub fn update(&self, group: u32, change: impl FnOnce(&mut GroupProgress)) {
        change(&mut lock(&self.groups[group as usize]));
    }

    /// A snapshot of every group's progress.
    pub fn groups(&self) -> Vec<GroupProgress> {
        self.groups.iter().map(|progress| lock(progress).clone()).collect()
    }

    pub fn line(&self, wall: WallTime, text: impl Into<String>) {
        let line = TestLogLine { unix_s: wall.seconds, text: text.into() };
        let mut lines = lock(&self.lines);
        self.record(|| RunEvent::Line(line.clone()));
        lines.push(line);
    }

    /// Sends an event to the recorder, if there is one.
    pub fn record(&self, news: impl FnOnce() -> RunEvent) {
        if let Some(recorder) = &self.recorder {
            recorder.tell(news());
        }
    }

    pub fn lines_from(&self, from: usize) -> Vec<TestLogLine> {
        lock(&self.lines)[from..].to_vec()
    }

    /// True if the user ended the run.
    pub fn interrupted(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// True if the run must end: the user ended it, or a group failed.
    pub fn ending(&self) -> bool {
        self.interrupted() || self.abort.is_cancelled()
    }

    /// Ends all groups.
    pub fn abort(&self) {
        self.abort.cancel();
    }

    /// Waits until every group has reached rendezvous number `meeting` (from 1), the run ends, or the search
    /// is over.
    pub async fn meet(&self, world: &World, meeting: u32) {
        let wanted = meeting * self.groups.len() as u32;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let over = || self.ending() || self.trials.are_over();
        while self.arrived.load(Ordering::Acquire) < wanted && !over() {
            world.sleep(RENDEZVOUS_POLL).await;
        }
    }
}

/// The phase of the slowest group, the work of all groups in it, and the sum of their rates.
pub fn merge_progress(groups: &[GroupProgress]) -> (Phase, PhaseWork, Option<LiveFigures>) {
    let phase = groups.iter().map(|progress| progress.phase).min().unwrap_or_default();
    let works: Vec<PhaseWork> = groups.iter().filter_map(|progress| progress.work_of(phase)).collect();
    let lives: Vec<LiveFigures> = groups.iter().filter_map(|progress| progress.live).collect();
    (phase, merge_work(unit_of(phase), &works), (!lives.is_empty()).then(|| merge_lives(&lives)))
}

/// Groups work side by side: their bytes add up, time and shares are averaged.
fn merge_work(unit: WorkUnit, works: &[PhaseWork]) -> PhaseWork {
    let parts = if unit == WorkUnit::Bytes { 1 } else { works.len().max(1) as u64 };
    let sum = |of: fn(&PhaseWork) -> u64| works.iter().map(of).sum::<u64>() / parts;
    PhaseWork { done: sum(|work| work.done), total: sum(|work| work.total) }
}

fn merge_lives(lives: &[LiveFigures]) -> LiveFigures {
    // Weighting latencies by database I/O is accurate enough for a line on a terminal.
    let weighted = |of: fn(&LiveFigures) -> Option<f64>| {
        let known =
            lives.iter().filter_map(|live| of(live).map(|value| (value, live.database_iops.max(1e-9))));
        let (sum, weight) =
            known.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value * weight, all + weight));
        (weight > 0.0).then(|| sum / weight)
    };
    LiveFigures {
        database_iops: lives.iter().map(|live| live.database_iops).sum(),
        database_read_ms: weighted(|live| live.database_read_ms),
        database_write_ms: weighted(|live| live.database_write_ms),
        log_write_ms: weighted(|live| live.log_write_ms),
        operations_per_second: lives.iter().map(|live| live.operations_per_second).sum(),
        backlog: lives.iter().map(|live| live.backlog).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_of_a_run_is_that_of_its_slowest_group() {
        let group = |works: &[(Phase, u64, u64)]| {
            let mut progress = GroupProgress::default();
            works.iter().for_each(|&(phase, done, total)| progress.reach(phase, PhaseWork { done, total }));
            progress
        };
        let mut groups = [
            group(&[(Phase::Create, 90, 100), (Phase::Fill, 100_000, 1_000_000)]),
            group(&[(Phase::Create, 50, 100)]),
            group(&[(Phase::Create, 60, 100)]),
        ];
        let merged = |groups: &[GroupProgress]| {
            let (phase, work, _) = merge_progress(groups);
            (phase, work.done, work.total)
        };
        assert_eq!(merged(&groups), (Phase::Create, 210, 300), "the first group's creation is over");
        for progress in &mut groups[1..] {
            progress.reach(Phase::Fill, PhaseWork { done: 400_000, total: 1_000_000 });
        }
        assert_eq!(merged(&groups), (Phase::Fill, 300_000, 1_000_000));
    }

    #[test]
    fn rates_add_up_and_latencies_are_averaged_by_rate() {
        let live = |iops, read| LiveFigures {
            database_iops: iops,
            database_read_ms: read,
            ..LiveFigures::default()
        };
        let merged = merge_lives(&[live(100.0, Some(10.0)), live(300.0, Some(2.0)), live(5.0, None)]);
        assert_eq!(merged.database_iops, 405.0);
        assert_eq!(merged.database_read_ms, Some(4.0));
        assert_eq!(merged.log_write_ms, None);
    }
}
