//! Trials: the loads that the driver has all groups run, and their samples.
//!
//! A trial is a load held for some time: a probe of a search, or the run itself. The driver orders one at a
//! time. Every group drains the previous trial, settles, measures, and publishes its samples as they come, so
//! that the driver can end a lost trial. Invariants:
//!
//! 1. Trial numbers ascend, and a new trial starts only after every group has finished the last.
//! 2. Samples of a trial cover its measured time only.

use crate::{database::measure::sample::Sample, meter::VolumeRole};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialLoad {
    /// Database IOPS of all groups.
    Rate(f64),
    /// Sessions of each group.
    Threads(u32),
}

/// An ordered trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// From 1.
    pub number: u32,
    pub load: TrialLoad,
    /// True for the run itself.
    pub holds: bool,
    /// Maximum settling time.
    pub settle: Duration,
    /// Measured time of a probe; a hold takes the run's duration.
    pub measure: Duration,
}

/// One group's view of a trial.
#[derive(Clone, Debug, Default)]
pub struct GroupTrial {
    /// Of the measured time.
    pub samples: Vec<Sample>,
    /// True if the group's throughput is steady.
    pub settled: bool,
    /// Set when the group has finished.
    pub effort: Option<TrialEffort>,
    /// True if the group has finished.
    pub done: bool,
}

/// Use of the machine by a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrialEffort {
    /// Time to steady state, in seconds; None if it was not reached.
    pub settled_s: Option<f64>,
    /// Processor share of the group's thread during measurement, 0 to 1, if known.
    pub processor: Option<f64>,
    /// True if every session was busy most of the time while operations waited.
    pub sessions_full: bool,
}

/// A group that is ready for the search.
#[derive(Clone, Debug)]
pub struct ReadyGroup {
    /// Volumes of its samples, in order.
    pub volumes: Vec<(VolumeRole, String)>,
    /// Database IOPS during the cache fill.
    pub iops: f64,
}

#[derive(Default)]
struct State {
    ready: Vec<Option<ReadyGroup>>,
    trial: Option<Trial>,
    groups: Vec<GroupTrial>,
    /// True once all groups were steady at the same time; then the trial is measured.
    settled: bool,
    cut: bool,
    over: bool,
}

/// The trials of a run. Cheap to clone.
#[derive(Clone)]
pub struct Trials(Arc<Mutex<State>>);

impl Trials {
    pub fn new(groups: u32) -> Self {
        let groups = groups as usize;
        let state = State {
            ready: vec![None; groups],
            groups: vec![GroupTrial::default(); groups],
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn report_ready(&self, group: u32, ready: ReadyGroup) {
        self.state().ready[group as usize] = Some(ready);
    }

    /// All groups, once every one is ready.
    pub fn ready_groups(&self) -> Option<Vec<ReadyGroup>> {
        self.state().ready.iter().cloned().collect()
    }

    /// Starts `trial` in every group.
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

    /// Reports if the throughput of `group` is steady; true once all groups were at the same time.
    pub fn settle(&self, group: u32, is_settled: bool) -> bool {
        let mut state = self.state();
        state.groups[group as usize].settled = is_settled;
        state.settled |= state.groups.iter().all(|group| group.settled);
        state.settled
    }

    pub fn push(&self, group: u32, sample: Sample) {
        self.state().groups[group as usize].samples.push(sample);
    }

    /// Reports that `group` has finished the trial.
    pub fn done(&self, group: u32, effort: TrialEffort) {
        let mut state = self.state();
        let group = &mut state.groups[group as usize];
        (group.effort, group.done) = (Some(effort), true);
    }

    /// Reads the groups' views so far.
    pub fn look<T>(&self, read: impl FnOnce(&[GroupTrial]) -> T) -> T {
        read(&self.state().groups)
    }

    /// Ends the trial early.
    pub fn cut(&self) {
        self.state().cut = true;
    }

    pub fn is_cut(&self) -> bool {
        let state = self.state();
        state.cut || state.over
    }

    /// Ends the search.
    pub fn end(&self) {
        self.state().over = true;
    }

    /// True if the search is over.
    pub fn are_over(&self) -> bool {
        self.state().over
    }
}
