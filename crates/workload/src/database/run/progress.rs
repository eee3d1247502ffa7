//! Progress of a run: written by the groups, read by the driver.
//!
//! Groups run on separate threads and share only this: each group's progress (overwritten as it goes), the
//! test log, and the rendezvous between phases.

use crate::database::results::test_log::{Phase, TestLogLine};
use crate::database::{
    record::{Recorder, RunEvent},
    results::search::SearchProgress,
    run::trial::Trials,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use world::{WallTime, World};

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
    /// Share of the phase that is done, 0 to 1.
    pub fraction: f64,
    /// Bytes done and to do, in phases that count bytes (create, verify).
    pub bytes: Option<(u64, u64)>,
    /// Time in the phase, in seconds.
    pub elapsed_s: f64,
    /// Estimated remaining time of the phase, in seconds; None if unknown.
    pub left_s: Option<f64>,
    /// The last second of the load; None if it does not run.
    pub live: Option<LiveFigures>,
    /// The current trial, in a search.
    pub search: Option<SearchProgress>,
    /// Lines added to the test log since the last call.
    pub lines: Vec<TestLogLine>,
}

/// Progress of one group.
#[derive(Clone, Debug, Default)]
pub struct GroupProgress {
    pub phase: Phase,
    /// Share of the phase that is done, 0 to 1.
    pub fraction: f64,
    /// Bytes done and to do, in phases that count bytes.
    pub bytes: Option<(u64, u64)>,
    /// The last second of the load.
    pub live: Option<LiveFigures>,
}

/// State shared by the groups of a run and the driver. Cheap to clone.
#[derive(Clone)]
pub struct RunState {
    groups: Arc<Vec<Mutex<GroupProgress>>>,
    lines: Arc<Mutex<Vec<TestLogLine>>>,
    arrived: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    abort: Arc<AtomicBool>,
    recorder: Option<Recorder>,
    pub trials: Trials,
}

/// A panic elsewhere leaves plain numbers behind a lock, nothing half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunState {
    /// State for `groups` groups; `stop` ends the run.
    pub fn new(groups: u32, stop: Arc<AtomicBool>, recorder: Option<Recorder>) -> Self {
        Self {
            groups: Arc::new((0..groups).map(|_| Mutex::default()).collect()),
            lines: Arc::default(),
            arrived: Arc::default(),
            stop,
            abort: Arc::default(),
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
        self.stop.load(Ordering::Relaxed)
    }

    /// True if the run must end: the user ended it, or a group failed.
    pub fn ending(&self) -> bool {
        self.interrupted() || self.abort.load(Ordering::Relaxed)
    }

    /// Ends all groups.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
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

/// Combines the progress of all groups: the earliest phase, the average fraction, sums of rates.
pub fn merge_progress(groups: &[GroupProgress]) -> GroupProgress {
    let phase = groups.iter().map(|progress| progress.phase).min().unwrap_or_default();
    let in_phase: Vec<&GroupProgress> = groups.iter().filter(|progress| progress.phase == phase).collect();
    let fraction = |progress: &GroupProgress| if progress.phase == phase { progress.fraction } else { 1.0 };
    let bytes = in_phase
        .iter()
        .filter_map(|progress| progress.bytes)
        .reduce(|one, other| (one.0 + other.0, one.1 + other.1));
    let lives: Vec<LiveFigures> = groups.iter().filter_map(|progress| progress.live).collect();
    GroupProgress {
        phase,
        fraction: groups.iter().map(fraction).sum::<f64>() / groups.len().max(1) as f64,
        bytes,
        live: (!lives.is_empty()).then(|| merge_lives(&lives)),
    }
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
        let board = |phase, fraction, bytes| GroupProgress { phase, fraction, bytes, live: None };
        let merged = merge_progress(&[
            board(Phase::Fill, 0.1, None),
            board(Phase::Create, 0.5, Some((50, 100))),
            board(Phase::Create, 0.6, Some((60, 100))),
        ]);
        assert_eq!(merged.phase, Phase::Create);
        assert_eq!(merged.bytes, Some((110, 200)));
        assert!((merged.fraction - 0.7).abs() < 1e-9);
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
