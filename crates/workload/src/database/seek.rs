//! The driver's side of a search: orders trials, judges them, and tells the search how they ended.
//!
//! Groups report samples; what they saw together is held against the run's limits as a whole run is: the
//! average and the worst window of the slowest volume, stalls, and what was achieved of what was asked for.

use super::{
    limits::{LimitSet, LimitsError, Measure},
    measure::{Sample, windows, worst_window_ms},
    meter::{IoTally, Role},
    plan::{Load, ProbePlan, RunClass, RunPlan, WINDOW},
    progress::Shared,
    search::{Axis, Bound, Judgement, Next, Search, SearchOptions},
    trial::{Arrived, Trial, TrialLoad},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use world::World;

/// A rate search begins at this share of what the profile's threads did while they filled the cache.
const START_SHARE: f64 = 0.5;
/// No lower rate is tried, in I/O a second: a twentieth of what one slow spindle does.
const RATE_MIN: f64 = 5.0;
/// No higher rate is tried, in I/O a second (the plan's own bound).
const RATE_MAX: f64 = 10e6;
/// A probe that achieves less than this share of its rate has missed it; the hold must achieve all.
const PROBE_ACHIEVED_MIN: f64 = 0.97;
/// Arrivals are random: off by this many standard deviations is chance.
const CHANCE: f64 = 2.0;
/// A trial is lost when more than so many seconds of operations wait to begin.
const LOST_BACKLOG_S: f64 = 3.0;
/// A trial is looked at for being lost after so many samples.
const LOST_SAMPLES_MIN: usize = 3;

/// How one trial went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResults {
    /// From 1.
    pub number: u32,
    /// Whether it was the run proper.
    pub holds: bool,
    /// What was tried: I/O a second of all groups, or threads of each.
    pub level: f64,
    /// Seconds measured; less than planned if it was lost before.
    pub measured_s: f64,
    /// Database reads and writes a second.
    pub achieved_iops: f64,
    /// Average latency of database reads on the slowest volume, in milliseconds.
    pub read_ms: Option<f64>,
    /// Average latency of database writes on the slowest volume, in milliseconds.
    pub write_ms: Option<f64>,
    /// Average latency of log writes on the slowest volume, in milliseconds.
    pub log_ms: Option<f64>,
    /// The longest average read latency of one window, in milliseconds.
    pub read_worst_ms: Option<f64>,
    /// The longest average log write latency of one window, in milliseconds.
    pub log_worst_ms: Option<f64>,
    /// Page faults a second that found no free cache page.
    pub stalls_per_second: f64,
    /// Operations that waited to begin when it ended.
    pub backlog: u64,
    /// What it was worth.
    pub judgement: Judgement,
    /// The limits it broke.
    pub broken: Vec<Measure>,
}

/// A search and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResults {
    /// What was searched over.
    pub axis: Axis,
    /// What was held in the end; none if the run ended before.
    pub held: Option<f64>,
    /// Why it went no higher.
    pub bound: Bound,
    /// Every trial, in order.
    pub trials: Vec<TrialResults>,
}

impl SearchResults {
    /// Database reads and writes a second that were asked for in the end; none if it were threads.
    pub fn target_iops(&self) -> Option<f64> {
        self.held.filter(|_| self.axis == Axis::Rate)
    }
}

/// Where a search stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    /// What is searched over.
    pub axis: Axis,
    /// What is being tried.
    pub level: f64,
    /// Which probe it is, from 1.
    pub probe: u32,
    /// Share of the search that is done, guessed.
    pub fraction: f64,
    /// Time it will go on for, guessed, in seconds.
    pub left_s: f64,
}

/// Conducts the search of one run.
pub struct Seeker {
    plan: RunPlan,
    probe: ProbePlan,
    axis: Axis,
    limits: LimitSet,
    search: Option<Search>,
    volumes: Vec<Vec<(Role, String)>>,
    trial: Option<Trial>,
    results: SearchResults,
}

impl Seeker {
    /// For `plan`; none if its load is given.
    ///
    /// # Errors
    /// If the limits its profile names are not there.
    pub fn new(plan: &RunPlan) -> Result<Option<Self>, LimitsError> {
        let axis = match plan.load {
            Load::Maximum { .. } => Axis::Rate,
            Load::TunedThreads { .. } => Axis::Threads,
            Load::Threads { .. } | Load::Mailboxes { .. } => return Ok(None),
        };
        let probe = *plan.load.probe().expect("what is searched for is probed");
        let results = SearchResults { axis, held: None, bound: Bound::Unfinished, trials: Vec::new() };
        let limits = LimitSet::load(&plan.profile.limits)?;
        let (plan, volumes) = (plan.clone(), Vec::new());
        Ok(Some(Self { plan, probe, axis, limits, search: None, volumes, trial: None, results }))
    }

    /// Looks at what the groups have seen, and orders what comes next. To be called again and again.
    pub fn look(&mut self, world: &World, shared: &Shared) {
        if shared.trials.are_over() {
            return;
        }
        let Some(trial) = self.trial else {
            if let Some(arrived) = shared.trials.arrived() {
                self.begin(&arrived);
                self.order(world, shared);
            }
            return;
        };
        let (done, seen) = shared.trials.look(|groups| {
            let samples: Vec<&[Sample]> = groups.iter().map(|group| group.samples.as_slice()).collect();
            (groups.iter().all(|group| group.done), Seen::of(&self.volumes, &samples))
        });
        if !done {
            if self.is_lost(&trial, &seen) {
                shared.trials.cut();
            }
            return;
        }
        if shared.ending() {
            // What was cut short by the user says nothing of the load.
            self.note_hold(&trial);
            return;
        }
        let results = self.judge(&trial, &seen);
        shared.line(world.wall(), self.describe(&results));
        let search = self.search.as_mut().expect("a trial belongs to a search");
        search.tell(results.judgement, results.achieved_iops);
        self.results.bound = search.bound();
        self.note_hold(&trial);
        self.results.trials.push(results);
        self.order(world, shared);
    }

    /// Where the search stands; none before it begins and while its answer is held.
    pub fn progress(&self) -> Option<SearchProgress> {
        let (search, trial) = (self.search.as_ref()?, self.trial?);
        let left = search.probes_left();
        let done = f64::from(search.probes());
        let left_s = left * self.probe.probe_s() as f64;
        (!trial.holds).then(|| SearchProgress {
            axis: self.axis,
            level: level_of(&trial),
            probe: search.probes() + 1,
            fraction: done / (done + left).max(1.0),
            left_s,
        })
    }

    /// The end of it.
    pub fn results(self) -> SearchResults {
        self.results
    }

    fn begin(&mut self, arrived: &[Arrived]) {
        self.volumes = arrived.iter().map(|one| one.volumes.clone()).collect();
        let iops: f64 = arrived.iter().map(|one| one.iops).sum();
        let (start, least, most) = match self.axis {
            Axis::Rate => (iops * START_SHARE, RATE_MIN, RATE_MAX),
            Axis::Threads => {
                (f64::from(self.plan.profile.threads_per_group()) / 2.0, 1.0, f64::from(SEARCHED_SESSIONS))
            }
        };
        let ProbePlan { probes_max, holds_max, .. } = self.probe;
        let start = start.clamp(least, most);
        self.search =
            Some(Search::new(SearchOptions { axis: self.axis, start, least, most, probes_max, holds_max }));
    }

    fn order(&mut self, world: &World, shared: &Shared) {
        let search = self.search.as_ref().expect("only a search orders trials");
        let (level, holds) = match search.next() {
            Next::Probe(level) => (level, false),
            Next::Hold(level) => (level, true),
            Next::Done => {
                shared.trials.end();
                return;
            }
        };
        let load = match self.axis {
            Axis::Rate => TrialLoad::Rate(level),
            Axis::Threads => TrialLoad::Threads(level as u32),
        };
        let number = self.trial.map_or(1, |trial| trial.number + 1);
        let (settle, measure) =
            (Duration::from_secs(self.probe.settle_s), Duration::from_secs(self.probe.measure_s));
        let trial = Trial { number, load, holds, settle, measure };
        if holds {
            shared.line(world.wall(), format!("{} are held", words(self.axis, level)));
        }
        self.trial = Some(trial);
        shared.trials.order(trial);
    }

    fn note_hold(&mut self, trial: &Trial) {
        if trial.holds {
            self.results.held = Some(level_of(trial));
        }
    }

    /// Whether nothing that is still to come can have `trial` pass. The last hold goes on to its end all
    /// the same: it is the answer.
    fn is_lost(&self, trial: &Trial, seen: &Seen) -> bool {
        let may_step_back = self.search.as_ref().is_some_and(Search::may_step_back);
        if seen.samples.len() < LOST_SAMPLES_MIN || (trial.holds && !may_step_back) {
            return false;
        }
        let window_over = seen.span_s() >= WINDOW.as_secs_f64();
        let backlog_s = seen.backlog() as f64 / seen.operations_per_second().max(1e-9);
        let broken = self.broken(seen);
        let past_help = |measure: &Measure| match measure {
            // A window that is over stays what it was.
            Measure::DatabaseReadWindowMaximumMs | Measure::LogWriteWindowMaximumMs => window_over,
            _ => false,
        };
        broken.iter().any(past_help) || (!broken.is_empty() && backlog_s > LOST_BACKLOG_S)
    }

    fn broken(&self, seen: &Seen) -> Vec<Measure> {
        let class = RunClass::of(self.plan.duration());
        let exceeds = |measure: Measure, bound: f64| seen.measure(measure).is_some_and(|value| value > bound);
        let upper = self.limits.limits.iter().filter(|limit| !limit.measure.is_floor());
        let broken = upper.filter(|limit| exceeds(limit.measure, limit.value(class)));
        broken.map(|limit| limit.measure).collect()
    }

    fn judge(&self, trial: &Trial, seen: &Seen) -> TrialResults {
        let (achieved_iops, broken) = (seen.achieved_iops(), self.broken(seen));
        let judgement = match trial.load {
            _ if !broken.is_empty() => Judgement::Beyond,
            TrialLoad::Rate(rate) if achieved_iops < self.achieved_min(trial, rate, seen.span_s()) => {
                Judgement::Generator
            }
            TrialLoad::Rate(_) if seen.backlog() as f64 > seen.operations_per_second() => {
                Judgement::Generator
            }
            _ => Judgement::Within,
        };
        TrialResults {
            number: trial.number,
            holds: trial.holds,
            level: level_of(trial),
            measured_s: seen.span_s(),
            achieved_iops,
            read_ms: seen.measure(Measure::DatabaseReadAverageMs),
            write_ms: seen.measure(Measure::DatabaseWriteAverageMs),
            log_ms: seen.measure(Measure::LogWriteAverageMs),
            read_worst_ms: seen.measure(Measure::DatabaseReadWindowMaximumMs),
            log_worst_ms: seen.measure(Measure::LogWriteWindowMaximumMs),
            stalls_per_second: seen.measure(Measure::PageFaultStallsPerSecond).unwrap_or(0.0),
            backlog: seen.backlog(),
            judgement,
            broken,
        }
    }

    /// What a trial of `rate` must achieve.
    fn achieved_min(&self, trial: &Trial, rate: f64, span_s: f64) -> f64 {
        if trial.holds {
            return rate;
        }
        let chance = CHANCE * (rate * span_s.max(1.0)).sqrt() / span_s.max(1.0);
        (rate * PROBE_ACHIEVED_MIN).min(rate - chance)
    }

    /// One line for the test log.
    fn describe(&self, trial: &TrialResults) -> String {
        let what = if trial.holds { "hold" } else { "probe" };
        let ms = |name: &str, value: Option<f64>| {
            value.map(|ms| format!(", {name} {ms:.2} ms")).unwrap_or_default()
        };
        let verdict = match (trial.judgement, trial.broken.first()) {
            (Judgement::Within, _) => "within every limit".to_owned(),
            (Judgement::Beyond, Some(measure)) => format!("beyond a limit: {}", measure.title()),
            (Judgement::Beyond, None) => "beyond a limit".to_owned(),
            (Judgement::Generator, _) => "more than the load generator could ask for".to_owned(),
        };
        format!(
            "{what} {}: {} asked for, {:.0} I/O a second done{}{}{}: {verdict}",
            trial.number,
            words(self.axis, trial.level),
            trial.achieved_iops,
            ms("read", trial.read_ms),
            ms("write", trial.write_ms),
            ms("log", trial.log_ms),
        )
    }
}

/// Sessions a group has while its load is searched for: as many as serve a held rate.
pub const SEARCHED_SESSIONS: u32 = 128;

fn level_of(trial: &Trial) -> f64 {
    match trial.load {
        TrialLoad::Rate(rate) => rate,
        TrialLoad::Threads(threads) => f64::from(threads),
    }
}

/// `1250 I/O a second`, `12 threads a group`.
pub fn words(axis: Axis, level: f64) -> String {
    match axis {
        Axis::Rate if level < 100.0 => format!("{level:.1} I/O a second"),
        Axis::Rate => format!("{level:.0} I/O a second"),
        Axis::Threads => format!("{level:.0} threads a group"),
    }
}

/// What all groups saw of a trial, as one.
struct Seen {
    roles: Vec<Role>,
    samples: Vec<Sample>,
    windows: Vec<Sample>,
}

impl Seen {
    /// As far as every group has come.
    fn of(volumes: &[Vec<(Role, String)>], groups: &[&[Sample]]) -> Self {
        let mut names: Vec<(Role, String)> = volumes.iter().flatten().cloned().collect();
        names.sort();
        names.dedup();
        let place = |name: &(Role, String)| names.binary_search(name).expect("every name is listed");
        let length = groups.iter().map(|samples| samples.len()).min().unwrap_or(0);
        let merged = (0..length).map(|index| {
            let placed = groups.iter().zip(volumes).map(|(samples, volumes)| {
                let mut sample = samples[index].clone();
                let own = std::mem::replace(&mut sample.volumes, vec![Default::default(); names.len()]);
                for (tallies, name) in own.iter().zip(volumes) {
                    sample.volumes[place(name)].merge(tallies);
                }
                sample
            });
            placed.reduce(|mut one, other| {
                one.merge(&other);
                one
            })
        });
        let samples: Vec<Sample> = merged.flatten().collect();
        let windows = windows(&samples, WINDOW);
        Self { roles: names.into_iter().map(|(role, _)| role).collect(), samples, windows }
    }

    fn span_s(&self) -> f64 {
        self.samples.iter().map(|sample| sample.span_s).sum()
    }

    fn backlog(&self) -> u64 {
        self.samples.last().map_or(0, |sample| sample.backlog)
    }

    fn operations_per_second(&self) -> f64 {
        let count: u64 = self.samples.iter().map(|sample| sample.operations.count).sum();
        count as f64 / self.span_s().max(1e-9)
    }

    fn achieved_iops(&self) -> f64 {
        let io = |sample: &Sample| -> u64 {
            let pairs = self.roles.iter().zip(&sample.volumes);
            pairs.filter(|(role, _)| **role == Role::Database).map(|(_, io)| io.transactional()).sum()
        };
        self.samples.iter().map(io).sum::<u64>() as f64 / self.span_s().max(1e-9)
    }

    /// What a limit is held against; none of what only a whole run shows.
    fn measure(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::DatabaseReadAverageMs => self.average_ms(Role::Database, |io| io.read),
            Measure::DatabaseWriteAverageMs => self.average_ms(Role::Database, |io| io.write),
            Measure::LogWriteAverageMs => self.average_ms(Role::Log, |io| io.write),
            Measure::DatabaseReadWindowMaximumMs => self.worst_ms(Role::Database, |io| io.read),
            Measure::LogWriteWindowMaximumMs => self.worst_ms(Role::Log, |io| io.write),
            Measure::PageFaultStallsPerSecond => {
                let stalls: u64 = self.samples.iter().map(|sample| sample.page_fault_stalls).sum();
                (!self.samples.is_empty()).then(|| stalls as f64 / self.span_s().max(1e-9))
            }
            Measure::IoErrors => {
                let errors = self.samples.iter().flat_map(|sample| &sample.volumes).map(|io| io.errors);
                Some(errors.sum::<u64>() as f64)
            }
            _ => None,
        }
    }

    fn average_ms(&self, role: Role, of: fn(&super::meter::IoTallies) -> IoTally) -> Option<f64> {
        let of_volume = |place: usize| {
            let mut whole = IoTally::default();
            self.samples.iter().for_each(|sample| whole.merge(&of(&sample.volumes[place])));
            whole.average_ms()
        };
        self.places(role).filter_map(of_volume).max_by(f64::total_cmp)
    }

    fn worst_ms(&self, role: Role, of: fn(&super::meter::IoTallies) -> IoTally) -> Option<f64> {
        let of_volume =
            |place: usize| worst_window_ms(&self.samples, &self.windows, |window| of(&window.volumes[place]));
        self.places(role).filter_map(of_volume).max_by(f64::total_cmp)
    }

    fn places(&self, role: Role) -> impl Iterator<Item = usize> {
        self.roles.iter().enumerate().filter(move |(_, of)| **of == role).map(|(place, _)| place)
    }
}
