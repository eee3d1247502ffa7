//! Trials: what the driver has all groups try, and what they saw of it.
//!
//! A trial is a load held for a while: a probe of a search, or the run proper. The driver orders one at a
//! time; every group takes it up, drains what the one before left, settles, measures, and writes its
//! samples down as they come, so that the driver may end a trial that is lost. Invariants:
//!
//! 1. Numbers of trials ascend, and there is a new one only when every group is done with the last.
//! 2. Samples of a trial are of its measured time only.

use super::{measure::Sample, meter::Role};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The load of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialLoad {
    /// Database reads and writes a second, all groups together.
    Rate(f64),
    /// Sessions of each group.
    Threads(u32),
}

/// One trial, as ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// From 1.
    pub number: u32,
    /// The load.
    pub load: TrialLoad,
    /// Whether it is the run proper.
    pub holds: bool,
    /// Time it may take to settle before it is measured.
    pub settle: Duration,
    /// Time it is measured, if it is a probe; the run's duration otherwise.
    pub measure: Duration,
}

/// What one group saw of a trial.
#[derive(Clone, Debug, Default)]
pub struct GroupTrial {
    /// Samples of the measured time.
    pub samples: Vec<Sample>,
    /// Whether throughput has settled, as far as the group has seen.
    pub settled: bool,
    /// What it took of the machine; none before it has ended.
    pub effort: Option<Effort>,
    /// Whether the group has ended it.
    pub done: bool,
}

/// What a trial took of the machine, beside storage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Seconds until throughput had settled; none if it had not when it was measured all the same.
    pub settled_s: Option<f64>,
    /// Share of a processor the group's thread used while it was measured, 0 to 1, where it is known.
    pub processor: Option<f64>,
    /// Whether every session was busy for most of that time, and more operations waited.
    pub sessions_full: bool,
}

/// What a group brings to the search.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// What the volumes of its samples are.
    pub volumes: Vec<(Role, String)>,
    /// Database I/O a second under the load that filled the cache.
    pub iops: f64,
}

#[derive(Default)]
struct State {
    arrived: Vec<Option<Arrived>>,
    trial: Option<Trial>,
    groups: Vec<GroupTrial>,
    /// Whether all groups had settled at some moment: then the trial is measured.
    settled: bool,
    cut: bool,
    over: bool,
}

/// The trials of a run. Cheap to clone.
#[derive(Clone)]
pub struct Trials(Arc<Mutex<State>>);

impl Trials {
    /// For `groups` groups.
    pub fn new(groups: u32) -> Self {
        let groups = groups as usize;
        let state = State {
            arrived: vec![None; groups],
            groups: vec![GroupTrial::default(); groups],
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `group` is ready for trials.
    pub fn arrive(&self, group: u32, arrived: Arrived) {
        self.state().arrived[group as usize] = Some(arrived);
    }

    /// All groups, once every one is ready.
    pub fn arrived(&self) -> Option<Vec<Arrived>> {
        self.state().arrived.iter().cloned().collect()
    }

    /// Has every group take up `trial`.
    pub fn order(&self, trial: Trial) {
        let mut state = self.state();
        let last = state.trial.map_or(0, |trial| trial.number);
        assert!(trial.number == last + 1, "invariant 1: trial {} after {last}", trial.number);
        assert!(last == 0 || state.groups.iter().all(|group| group.done), "invariant 1");
        state.groups.fill(GroupTrial::default());
        (state.trial, state.settled, state.cut) = (Some(trial), false, false);
    }

    /// The trial after number `last`, if it is ordered.
    pub fn after(&self, last: u32) -> Option<Trial> {
        self.state().trial.filter(|trial| trial.number > last)
    }

    /// Notes whether what `group` does has settled; true once all groups had at the same time.
    pub fn settle(&self, group: u32, is_settled: bool) -> bool {
        let mut state = self.state();
        state.groups[group as usize].settled = is_settled;
        state.settled |= state.groups.iter().all(|group| group.settled);
        state.settled
    }

    /// Writes down what `group` saw.
    pub fn push(&self, group: u32, sample: Sample) {
        self.state().groups[group as usize].samples.push(sample);
    }

    /// Notes that `group` has ended the trial, and what it took.
    pub fn done(&self, group: u32, effort: Effort) {
        let mut state = self.state();
        let group = &mut state.groups[group as usize];
        (group.effort, group.done) = (Some(effort), true);
    }

    /// Reads what the groups have seen so far.
    pub fn look<T>(&self, read: impl FnOnce(&[GroupTrial]) -> T) -> T {
        read(&self.state().groups)
    }

    /// Ends the trial before its time.
    pub fn cut(&self) {
        self.state().cut = true;
    }

    /// Whether the trial is to be ended.
    pub fn is_cut(&self) -> bool {
        let state = self.state();
        state.cut || state.over
    }

    /// Has no more trials follow.
    pub fn end(&self) {
        self.state().over = true;
    }

    /// Whether no more follow.
    pub fn are_over(&self) -> bool {
        self.state().over
    }
}
