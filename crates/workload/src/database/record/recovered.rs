//! Recovers results from a record: the run's own if it ended, else those of the recorded part.
//!
//! An incomplete run is assembled from its groups' last entries, as the driver would have done; missing facts
//! stay missing: nothing is verified, nothing was counted after measurement.

use crate::{
    database::{
        load::operation::OperationReading,
        measure::{sample::Sample, verify::VerifiedFile},
        record::{
            CreationProgress, DatabasesReady, LatencyReadings, MeasurementStart, MeasurementUpdate,
            RecordEntry, RecordHeader, RunEnd, TrialEvent, entry::Differences, validation,
        },
        results::{
            CutOff, HostSample, RunFrame, RunResults,
            kernel::KernelResults,
            outcome::{FillOutcome, GroupOutcome},
            search::SearchResults,
            test_log::{Phase, TestLogLine},
        },
    },
    meter::{IoTallies, Latencies, MeterReading, VolumeRole},
    record::buckets,
};
use hdrhistogram::Histogram;
use report::{Finding, prose::counted};

/// A run recovered from its record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredRun {
    pub header: RecordHeader,
    /// Marked as cut off if the run did not end.
    pub results: RunResults,
    /// Additional findings of the report.
    pub remarks: Vec<Finding>,
    /// Bytes at the end that a crash left incomplete.
    pub dropped_bytes: u64,
}

/// State of a recovery.
pub struct RunRecovery {
    header: RecordHeader,
    at_s: f64,
    phase: Phase,
    log: Vec<TestLogLine>,
    creating: Option<CreationProgress>,
    host_samples: Vec<HostSample>,
    search: Option<SearchResults>,
    kernel: Option<KernelResults>,
    groups: Vec<GroupRecovery>,
    failed: Option<String>,
    ended: Option<RunEnd>,
}

/// RecoveredRun state of one group.
#[derive(Default)]
struct GroupRecovery {
    made: Option<DatabasesReady>,
    fill: FillOutcome,
    measuring: Option<MeasurementStart>,
    /// Counters up to the last entry but one.
    measured: Option<MeasurementUpdate<Differences>>,
    samples: Vec<Sample>,
    latencies: Vec<Histogram<u64>>,
    /// The last entry; applied only if every group has come that far.
    newest: Option<MeasurementUpdate<Differences>>,
    verified: Vec<VerifiedFile>,
}

/// Groups that measured the same seconds are at most this far apart.
const SAME_MOMENT_S: f64 = 0.5;

impl RunRecovery {
    pub fn new(header: RecordHeader) -> Self {
        let groups = (0..header.plan.groups).map(|_| GroupRecovery::default()).collect();
        Self {
            header,
            at_s: 0.0,
            phase: Phase::Create,
            log: Vec::new(),
            creating: None,
            host_samples: Vec::new(),
            search: None,
            kernel: None,
            groups,
            failed: None,
            ended: None,
        }
    }

    fn group(&mut self, number: u32) -> Result<&mut GroupRecovery, String> {
        self.groups.get_mut(number as usize).ok_or_else(|| format!("there is no group {number}"))
    }

    /// Applies one entry, written `at_s` seconds after the record began; an error if it is implausible.
    pub fn take(&mut self, at_s: f64, entry: RecordEntry<Differences>) -> Result<(), String> {
        if self.ended.is_some() {
            return Err("it comes after the end of the run".to_owned());
        }
        self.at_s = at_s;
        match entry {
            RecordEntry::Header(_) => return Err("it is a second header".to_owned()),
            RecordEntry::Phase(phase) => self.phase = phase,
            RecordEntry::Line(line) => self.log.push(line),
            RecordEntry::Host(sample) => self.host_samples.push(sample),
            RecordEntry::Creating(creating) => {
                validation::creating(&creating)?;
                self.creating = Some(creating);
            }
            RecordEntry::Made(made) => {
                let databases = self.header.plan.databases_per_group as usize;
                if made.databases.len() != databases {
                    return Err(format!(
                        "{} of a group, not {databases}",
                        counted(made.databases.len() as u64, "database")
                    ));
                }
                validation::made(&made)?;
                let group = self.group(made.group)?;
                group.made = Some(made);
            }
            RecordEntry::Filled { group, fill } => self.group(group)?.fill = fill,
            RecordEntry::Trial(news) => self.take_trial(*news)?,
            RecordEntry::Holding { level } => {
                validation::level(level)?;
                self.search()?.held = Some(level);
                // Samples of the previous hold no longer belong to the run.
                self.host_samples.clear();
            }
            RecordEntry::Kernel(news) => self.take_kernel(news)?,
            RecordEntry::Measuring(measuring) => self.group(measuring.group)?.begin(measuring)?,
            RecordEntry::Measured(measured) => self.group(measured.group)?.take(*measured)?,
            RecordEntry::Verified { group, file } => self.group(group)?.verified.push(file),
            RecordEntry::Failed(text) => self.failed = Some(text),
            RecordEntry::Ended(mut ended) => {
                validation::results(&mut ended.results)?;
                self.ended = Some(*ended);
            }
        }
        Ok(())
    }

    /// The search results so far; an error if the plan gives the load.
    fn search(&mut self) -> Result<&mut SearchResults, String> {
        let axis = self.header.plan.load.searched_over().ok_or("nothing was searched for")?;
        Ok(self.search.get_or_insert_with(|| SearchResults::none_yet(axis, 0)))
    }

    fn take_trial(&mut self, news: TrialEvent) -> Result<(), String> {
        let search = self.search()?;
        validation::trial(&news.trial, search.trials.len())?;
        (search.bound, search.sessions_max) = (news.bound, news.sessions_max);
        search.trials.push(news.trial);
        Ok(())
    }

    fn take_kernel(&mut self, mut news: KernelResults) -> Result<(), String> {
        let known = self.kernel.get_or_insert_default();
        validation::kernel(&news, known)?;
        known.events.append(&mut news.events);
        *known = KernelResults { events: std::mem::take(&mut known.events), ..news };
        Ok(())
    }

    /// Assembles the results.
    pub fn finish(self, dropped_bytes: u64) -> RecoveredRun {
        if let Some(RunEnd { results, remarks }) = self.ended {
            return RecoveredRun { header: self.header, results, remarks, dropped_bytes };
        }
        let together_s = self.groups.iter().filter_map(GroupRecovery::load_s).fold(f64::INFINITY, f64::min);
        let outcomes: Vec<GroupOutcome> =
            (0..).zip(self.groups).map(|(number, group)| group.outcome(number, together_s)).collect();
        let header = self.header;
        let frame = RunFrame {
            plan: header.plan.clone(),
            generator: header.generator.clone(),
            host: header.host.clone(),
            unix_s: (header.began_unix_s, header.began_unix_s.saturating_add(self.at_s as i64)),
            host_samples: self.host_samples,
            kernel: self.kernel,
            log: self.log,
            search: self.search,
            cut_off: Some(CutOff {
                after_s: self.at_s,
                during: self.phase,
                created: self.creating.map(|creating| (creating.done_bytes, creating.bytes)),
                cause: self.failed,
            }),
        };
        let results = RunResults::assemble(frame, &outcomes);
        RecoveredRun { header, results, remarks: Vec::new(), dropped_bytes }
    }
}

impl GroupRecovery {
    fn begin(&mut self, measuring: MeasurementStart) -> Result<(), String> {
        validation::measuring(&measuring)?;
        let histograms = LatencyReadings::count_of(measuring.meters.len());
        self.latencies = (0..histograms).map(|_| empty()).collect();
        self.samples.clear();
        (self.measured, self.newest) = (None, None);
        self.measuring = Some(measuring);
        Ok(())
    }

    fn take(&mut self, measured: MeasurementUpdate<Differences>) -> Result<(), String> {
        self.apply_newest()?;
        let measuring = self.measuring.as_ref().ok_or("a group measures that has not begun to")?;
        let (meters, databases) = (measuring.meters.len(), measuring.bytes_before.len());
        validation::measured(&measured, meters, databases, self.samples.len())?;
        self.newest = Some(measured);
        Ok(())
    }

    /// Applies the newest entry.
    fn apply_newest(&mut self) -> Result<(), String> {
        let Some(mut newest) = self.newest.take() else { return Ok(()) };
        self.samples.truncate(newest.first_sample);
        self.samples.append(&mut newest.samples);
        for (histogram, pairs) in self.latencies.iter_mut().zip(newest.latencies.take().into_iter().flatten())
        {
            buckets::add(&pairs, histogram)?;
        }
        self.measured = Some(newest);
        Ok(())
    }

    /// Measured time, in seconds; None before measurement.
    fn load_s(&self) -> Option<f64> {
        let last = self.newest.as_ref().or(self.measured.as_ref());
        self.measuring.as_ref().map(|_| last.map_or(0.0, load_s))
    }

    /// The group's outcome up to `together_s` seconds, which every group has recorded.
    fn outcome(mut self, number: u32, together_s: f64) -> GroupOutcome {
        let is_ahead = self.newest.as_ref().is_some_and(|newest| load_s(newest) > together_s + SAME_MOMENT_S);
        if !is_ahead {
            // The entry was validated; an invalid bucket would only end its latencies.
            let _ = self.apply_newest();
        }
        let made = self.made.take();
        let measuring = self.measuring.take();
        let measured = self.measured.take();
        if let Some(pending) = measured.as_ref().and_then(|measured| measured.pending.clone()) {
            self.samples.push(pending);
        }
        let known = measured.as_ref();
        let mut databases = made.as_ref().map(|made| made.databases.clone()).unwrap_or_default();
        for (index, database) in databases.iter_mut().enumerate() {
            let size = |sizes: Option<&Vec<u64>>| sizes.and_then(|sizes| sizes.get(index).copied());
            let before = size(measuring.as_ref().map(|measuring| &measuring.bytes_before));
            database.bytes_before = before.unwrap_or(database.bytes_before);
            database.bytes_after = size(known.map(|known| &known.bytes_now)).unwrap_or(database.bytes_before);
        }
        let meters = measuring.map(|measuring| measuring.meters).unwrap_or_default();
        let of_operations = self.latencies.get(2 * meters.len()..).unwrap_or_default();
        let operations = operations(known, of_operations);
        GroupOutcome {
            group: number,
            recovered: made.as_ref().is_some_and(|made| made.recovered),
            databases,
            create_s: made.as_ref().map_or(0.0, |made| made.create_s),
            fill: self.fill,
            measured_s: known.map_or(0.0, |known| known.measured_s),
            load_s: known.map_or(0.0, load_s),
            interrupted: true,
            meters: readings(meters, known, &self.latencies),
            operations,
            late: known.map(|known| known.late).unwrap_or_default(),
            slow: known.map(|known| known.slow.clone()).unwrap_or_default(),
            samples: self.samples,
            engine: known.map(|known| known.engine).unwrap_or_default(),
            thread_cpu_s: known.and_then(|known| known.thread_cpu_s),
            pacing: known.map(|known| known.pacing).unwrap_or_default(),
            scan: known.map(|known| known.scan).unwrap_or_default(),
            failures: known.map(|known| (known.failures.clone(), known.failure_counts)).unwrap_or_default(),
            verified: self.verified,
            pools: Vec::new(),
            backups: Vec::new(),
        }
    }
}

/// Measured time: at least the judged time.
fn load_s(measured: &MeasurementUpdate<Differences>) -> f64 {
    measured.load_s.max(measured.measured_s)
}

fn empty() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are within the histogram's range")
}

fn readings(
    meters: Vec<(VolumeRole, String)>,
    known: Option<&MeasurementUpdate<Differences>>,
    latencies: &[Histogram<u64>],
) -> Vec<MeterReading> {
    let readings = meters.into_iter().enumerate().map(|(index, (role, volume))| MeterReading {
        volume,
        role,
        tallies: known.map_or_else(IoTallies::default, |known| known.meters[index]),
        latencies: Latencies { read: latencies[2 * index].clone(), write: latencies[2 * index + 1].clone() },
        overdue: IoTallies::default(),
        first_error: None,
        spikes: known.and_then(|known| known.spikes.get(index).cloned()).unwrap_or_default(),
    });
    readings.collect()
}

/// `latencies` has one histogram for each kind of operation, then one for unfinished operations.
fn operations(
    known: Option<&MeasurementUpdate<Differences>>,
    latencies: &[Histogram<u64>],
) -> OperationReading {
    let transactions = known.map(|known| known.transactions).unwrap_or_default();
    let at = |index: usize| latencies.get(index).cloned().unwrap_or_else(empty);
    OperationReading {
        latencies: [at(0), at(1), at(2), at(3)],
        unfinished: at(4),
        commits_durable: transactions.commits_durable,
        commits_lazy: transactions.commits_lazy,
        conflicts: transactions.conflicts,
        records_checked: transactions.records_checked,
    }
}
