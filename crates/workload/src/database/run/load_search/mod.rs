//! The driver's part in a load search: orders trials, judges them, and reports the judgement to the search.
//!
//! Groups report samples. A trial is judged like a whole run: average and worst window of the slowest volume,
//! stalls, and the achieved share of the target.

mod observation;

use crate::database::run::load_search::observation::TrialObservation;
use crate::{
    database::{
        measure::sample::Sample,
        plan::{ProbePlan, RunPlan},
        record::{RunEvent, TrialEvent},
        run::{
            progress::RunState,
            trial::{ReadyGroup, Trial, TrialEffort, TrialLoad},
        },
    },
    measure::{
        processor::{self, BusiestThread},
        windows::WINDOW,
    },
    meter::VolumeRole,
    search::{Judgement, Search, SearchAxis, SearchOptions, SearchStep},
    significance,
    verdict::{
        class::RunClass,
        limits::{Limit, LimitSet, LimitsError, Measure},
    },
};
use report::prose::number;
use std::time::Duration;
use world::World;

use crate::database::results::search::{SearchProgress, SearchResults, TrialResults, describe_level};

/// A rate search starts at this share of the IOPS that the profile's threads did during the cache fill.
const START_SHARE: f64 = 0.5;
/// Minimum rate, in IOPS: a twentieth of what one slow spindle does.
const RATE_MIN: f64 = 5.0;
/// Maximum rate, in IOPS (the plan's own bound).
const RATE_MAX: f64 = 10e6;
/// Minimum share of its rate that a probe must achieve; for a hold see [`significance`].
const PROBE_ACHIEVED_MIN: f64 = 0.97;
/// Standard deviations by which a probe may miss its rate: it is short, and one probe decides nothing.
const PROBE_SIGMAS: f64 = 2.0;
/// A trial is lost when operations worth more than this many seconds wait.
const LOST_BACKLOG_S: f64 = 3.0;
/// Minimum number of samples before a trial can be lost.
const LOST_SAMPLES_MIN: usize = 3;

/// Runs the search of one run.
pub struct LoadSearch {
    plan: RunPlan,
    probe: ProbePlan,
    axis: SearchAxis,
    limits: LimitSet,
    search: Option<Search>,
    volumes: Vec<Vec<(VolumeRole, String)>>,
    trial: Option<Trial>,
    results: SearchResults,
}

impl LoadSearch {
    /// A search for `plan`; None if the plan gives the load.
    ///
    /// # Errors
    /// If the profile names unknown limits.
    pub fn new(plan: &RunPlan) -> Result<Option<Self>, LimitsError> {
        let Some(axis) = plan.load.searched_over() else { return Ok(None) };
        let probe = *plan.load.probe().expect("what is searched for is probed");
        let results = SearchResults::none_yet(axis, plan.sessions_max());
        let limits = LimitSet::load(&plan.profile.limits)?;
        let (plan, volumes) = (plan.clone(), Vec::new());
        Ok(Some(Self { plan, probe, axis, limits, search: None, volumes, trial: None, results }))
    }

    /// Evaluates the groups' samples and orders the next trial. Called repeatedly.
    pub fn look(&mut self, world: &World, shared: &RunState) {
        if shared.trials.are_over() {
            return;
        }
        let Some(trial) = self.trial else {
            if let Some(ready) = shared.trials.ready_groups() {
                self.begin(&ready);
                self.order(world, shared);
            }
            return;
        };
        let (efforts, observation) = shared.trials.look(|groups| {
            let samples: Vec<&[Sample]> = groups.iter().map(|group| group.samples.as_slice()).collect();
            let efforts = groups.iter().map(|group| group.effort.filter(|_| group.done));
            (efforts.collect::<Option<Vec<TrialEffort>>>(), TrialObservation::of(&self.volumes, &samples))
        });
        let Some(efforts) = efforts else {
            if self.is_lost(&trial, &observation) {
                shared.trials.cut();
            }
            return;
        };
        if shared.ending() {
            // A trial that the user cut short says nothing about the load.
            self.note_hold(&trial);
            return;
        }
        let results = self.judge(&trial, &observation, &efforts);
        shared.line(world.wall(), self.describe(&results));
        let search = self.search.as_mut().expect("a trial belongs to a search");
        search.tell(results.judgement, results.achieved_iops);
        self.results.bound = search.bound();
        self.note_hold(&trial);
        shared.record(|| {
            let SearchResults { bound, sessions_max, .. } = self.results;
            RunEvent::Trial(Box::new(TrialEvent { bound, trial: results.clone(), sessions_max }))
        });
        self.results.trials.push(results);
        self.order(world, shared);
    }

    /// None before the first trial and during holds.
    pub fn progress(&self) -> Option<SearchProgress> {
        let (search, trial) = (self.search.as_ref()?, self.trial?);
        let left = search.probes_left();
        let done = f64::from(search.probes());
        // Half of the maximum settling time: fast storage needs less.
        let probe_s = (self.probe.probe_s() - self.probe.settle_s / 2) as f64;
        (!trial.holds).then(|| SearchProgress {
            axis: self.axis,
            level: level_of(&trial),
            probe: search.probes() + 1,
            done: Duration::from_secs_f64(done * probe_s),
            left: Duration::from_secs_f64(left * probe_s),
        })
    }

    pub fn results(self) -> SearchResults {
        self.results
    }

    fn begin(&mut self, ready: &[ReadyGroup]) {
        self.volumes = ready.iter().map(|one| one.volumes.clone()).collect();
        let iops: f64 = ready.iter().map(|one| one.iops).sum();
        let (start, least, most) = match self.axis {
            SearchAxis::Rate => (iops * START_SHARE, RATE_MIN, RATE_MAX),
            SearchAxis::Threads => (
                f64::from(self.plan.profile.threads_per_group()) / 2.0,
                1.0,
                f64::from(self.results.sessions_max),
            ),
        };
        let ProbePlan { probes_max, holds_max, .. } = self.probe;
        let start = start.clamp(least, most);
        self.search =
            Some(Search::new(SearchOptions { axis: self.axis, start, least, most, probes_max, holds_max }));
    }

    fn order(&mut self, world: &World, shared: &RunState) {
        let search = self.search.as_ref().expect("only a search orders trials");
        let (level, holds) = match search.next() {
            SearchStep::Probe(level) => (level, false),
            SearchStep::Hold(level) => (level, true),
            SearchStep::Done => {
                shared.trials.end();
                return;
            }
        };
        let load = match self.axis {
            SearchAxis::Rate => TrialLoad::Rate(level),
            SearchAxis::Threads => TrialLoad::Threads(level as u32),
        };
        let number = self.trial.map_or(1, |trial| trial.number + 1);
        let (settle, measure) =
            (Duration::from_secs(self.probe.settle_s), Duration::from_secs(self.probe.measure_s));
        let trial = Trial { number, load, holds, settle, measure };
        if holds {
            shared.line(world.wall(), format!("holding {}", describe_level(self.axis, level)));
            shared.record(|| RunEvent::Holding { level });
        }
        self.trial = Some(trial);
        shared.trials.order(trial);
    }

    fn note_hold(&mut self, trial: &Trial) {
        if trial.holds {
            self.results.held = Some(level_of(trial));
        }
    }

    /// True if no further sample can make `trial` pass. The last hold runs to its end in any case, since it
    /// is the result.
    fn is_lost(&self, trial: &Trial, observation: &TrialObservation) -> bool {
        let may_step_back = self.search.as_ref().is_some_and(Search::may_step_back);
        if observation.samples.len() < LOST_SAMPLES_MIN || (trial.holds && !may_step_back) {
            return false;
        }
        let window_over = observation.span_s() >= WINDOW.as_secs_f64();
        let backlog_s = observation.backlog() as f64 / observation.operations_per_second().max(1e-9);
        let broken = self.broken(trial, observation);
        let stalls: u64 = observation.samples.iter().map(|sample| sample.page_fault_stalls).sum();
        let class = RunClass::of(self.plan.duration());
        let past_help = |limit: &Limit| match limit.measure {
            // A finished window does not improve.
            Measure::DatabaseReadWindowMaximumMs | Measure::LogWriteWindowMaximumMs => window_over,
            // Nor do stalls disappear: there are already more than the whole run may have.
            Measure::PageFaultStallsPerSecond => {
                trial.holds && stalls as f64 > limit.value(class) * self.plan.duration_s as f64
            }
            _ => false,
        };
        let is_past_help =
            self.limits.limits.iter().any(|limit| broken.contains(&limit.measure) && past_help(limit));
        is_past_help || (!broken.is_empty() && backlog_s > LOST_BACKLOG_S)
    }

    /// The limits that `trial` broke. A hold is judged like a run. A probe is too short for a limit of rare
    /// events, and breaks it only if most of its seconds do.
    fn broken(&self, trial: &Trial, observation: &TrialObservation) -> Vec<Measure> {
        let class = RunClass::of(self.plan.duration());
        let exceeds = |measure: Measure, bound: f64| match measure {
            Measure::PageFaultStallsPerSecond if !trial.holds => observation.usual_stalls() > bound,
            _ => observation.measure(measure).is_some_and(|value| value > bound),
        };
        let upper = self.limits.limits.iter().filter(|limit| !limit.measure.is_floor());
        let broken = upper.filter(|limit| exceeds(limit.measure, limit.value(class)));
        broken.map(|limit| limit.measure).collect()
    }

    fn judge(&self, trial: &Trial, observation: &TrialObservation, efforts: &[TrialEffort]) -> TrialResults {
        let (achieved_iops, broken) = (observation.achieved_iops(), self.broken(trial, observation));
        let busiest = BusiestThread::of(efforts.iter().map(|effort| effort.processor));
        let processor_is_the_limit = busiest.is_some_and(BusiestThread::is_the_limit);
        let sessions_full = efforts.iter().any(|effort| effort.sessions_full);
        let is_short = match trial.load {
            TrialLoad::Rate(rate) => {
                achieved_iops < self.achieved_min(trial, rate, observation)
                    || observation.backlog() as f64 > observation.operations_per_second()
            }
            TrialLoad::Threads(_) => false,
        };
        let judgement = match broken.is_empty() {
            true if !is_short => Judgement::Within,
            false if !processor_is_the_limit || !broken.iter().all(|measure| measure.is_of_time()) => {
                Judgement::Beyond
            }
            _ if processor_is_the_limit => Judgement::Processor,
            _ if sessions_full => Judgement::Sessions,
            _ => Judgement::Generator,
        };
        TrialResults {
            number: trial.number,
            holds: trial.holds,
            level: level_of(trial),
            measured_s: observation.span_s(),
            achieved_iops,
            read_ms: observation.measure(Measure::DatabaseReadAverageMs),
            write_ms: observation.measure(Measure::DatabaseWriteAverageMs),
            log_ms: observation.measure(Measure::LogWriteAverageMs),
            read_worst_ms: observation.measure(Measure::DatabaseReadWindowMaximumMs),
            log_worst_ms: observation.measure(Measure::LogWriteWindowMaximumMs),
            stalls_per_second: observation.measure(Measure::PageFaultStallsPerSecond).unwrap_or(0.0),
            backlog: observation.backlog(),
            judgement,
            broken,
            settled_s: efforts
                .iter()
                .map(|effort| effort.settled_s)
                .collect::<Option<Vec<f64>>>()
                .map(|all| all.into_iter().fold(0.0, f64::max)),
            busiest,
            sessions_full,
        }
    }

    /// Minimum IOPS of a trial at `rate`.
    fn achieved_min(&self, trial: &Trial, rate: f64, observation: &TrialObservation) -> f64 {
        let span_s = observation.span_s().max(1.0);
        if trial.holds {
            // The verdict applies the same rule.
            let (io, operations) =
                (observation.achieved_iops() * span_s, observation.operations_per_second() * span_s);
            return rate
                * significance::least_share(significance::arrivals_of(rate * span_s, io, operations));
        }
        let chance = PROBE_SIGMAS * (rate * span_s).sqrt() / span_s;
        (rate * PROBE_ACHIEVED_MIN).min(rate - chance)
    }

    /// A line for the test log.
    fn describe(&self, trial: &TrialResults) -> String {
        let what = if trial.holds { "hold" } else { "probe" };
        let ms = |name: &str, value: Option<f64>| {
            value.map(|ms| format!(", {name} {ms:.2} ms")).unwrap_or_default()
        };
        let verdict = match (trial.judgement, trial.broken.first()) {
            (Judgement::Within, _) => "within every limit".to_owned(),
            (Judgement::Beyond, Some(measure)) => format!("beyond a limit: {}", measure.title()),
            (Judgement::Beyond, None) => "beyond a limit".to_owned(),
            (Judgement::Generator, _) => "more than the load generator could generate".to_owned(),
            (Judgement::Sessions, _) => "more than its sessions could generate".to_owned(),
            (Judgement::Processor, _) => match trial.busiest {
                Some(thread) => processor::describe_limit(thread),
                None => "a processor was the limit, not the storage".to_owned(),
            },
        };
        format!(
            "{what} {}: target {}, achieved {} IOPS{}{}{}: {verdict}",
            trial.number,
            describe_level(self.axis, trial.level),
            number(trial.achieved_iops, 0),
            ms("read", trial.read_ms),
            ms("write", trial.write_ms),
            ms("log", trial.log_ms),
        )
    }
}

fn level_of(trial: &Trial) -> f64 {
    match trial.load {
        TrialLoad::Rate(rate) => rate,
        TrialLoad::Threads(threads) => f64::from(threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        database::plan::{LoadPlan, tests::sample_plan},
        meter::{IoTallies, IoTally},
    };

    /// Judges a probe of ten seconds at 1,000 IOPS that did `done` a second with latency `read_ms`.
    fn judged(done: u64, read_ms: u64, effort: TrialEffort) -> TrialResults {
        let probe = ProbePlan { settle_s: 10, measure_s: 10, probes_max: 10, holds_max: 2 };
        let plan = RunPlan { load: LoadPlan::Maximum { probe }, ..sample_plan() };
        let seeker = LoadSearch::new(&plan).unwrap().unwrap();
        let read = IoTally {
            count: done,
            bytes: 0,
            total_ns: done * read_ms * 1_000_000,
            max_ns: read_ms * 1_000_000,
        };
        let sample = |second: u32| Sample {
            at_s: f64::from(second),
            span_s: 1.0,
            volumes: vec![IoTallies { read, ..IoTallies::default() }],
            operations: IoTally { count: done, ..IoTally::default() },
            ..Sample::default()
        };
        let samples: Vec<Sample> = (1..=10).map(sample).collect();
        let observation =
            TrialObservation::of(&[vec![(VolumeRole::Database, "disk".to_owned())]], &[&samples]);
        let (settle, measure) = (Duration::from_secs(10), Duration::from_secs(10));
        let trial = Trial { number: 1, load: TrialLoad::Rate(1000.0), holds: false, settle, measure };
        seeker.judge(&trial, &observation, &[effort])
    }

    /// The judged stall rate of a probe with so many stalls in each second.
    fn stalled(stalls: &[u64]) -> f64 {
        let sample = |stalls: &u64| Sample { span_s: 1.0, page_fault_stalls: *stalls, ..Sample::default() };
        let samples: Vec<Sample> = stalls.iter().map(sample).collect();
        TrialObservation::of(&[vec![]], &[&samples]).usual_stalls()
    }

    #[test]
    fn a_probe_excuses_a_burst_of_stalls_but_not_lasting_ones() {
        assert_eq!(stalled(&[0, 6, 0, 0, 0]), 0.0, "1.2 a second, of one moment");
        assert_eq!(stalled(&[0, 0, 120, 90, 0]), 0.0);
        assert_eq!(stalled(&[40, 45, 38, 41, 46]), 41.0, "again and again");
        assert_eq!(stalled(&[0, 15_000]), 0.0);
        assert_eq!(stalled(&[14_000, 15_000]), 14_000.0, "short probes see it, too");
        assert_eq!(stalled(&[15_000]), 15_000.0);
    }

    #[test]
    fn a_trial_names_what_limited_it() {
        let effort =
            |processor, sessions_full| TrialEffort { settled_s: Some(4.0), processor, sessions_full };
        let judgement = |done, read_ms, effort| judged(done, read_ms, effort).judgement;
        let idle = effort(Some(0.3), false);
        assert_eq!(judgement(1000, 10, idle), Judgement::Within);
        assert_eq!(judgement(1000, 30, idle), Judgement::Beyond);
        assert_eq!(judgement(900, 10, idle), Judgement::Generator);
        assert_eq!(judgement(900, 10, effort(Some(0.3), true)), Judgement::Sessions);
        assert_eq!(judgement(900, 10, effort(Some(0.97), true)), Judgement::Processor);
        assert_eq!(judgement(1000, 30, effort(Some(0.97), false)), Judgement::Processor, "not the storage");
        assert_eq!(
            judgement(1000, 30, effort(None, true)),
            Judgement::Beyond,
            "deep queues are the storage's"
        );
        assert_eq!(judgement(1000, 10, effort(Some(0.97), true)), Judgement::Within, "nothing was lacking");
        assert_eq!(judged(900, 10, idle).settled_s, Some(4.0));
    }
}
