//! The verdict: a pure function of results and limits.

use crate::{
    database::results::{PacingResults, RunResults, VolumeResults},
    measure::processor::BusiestThread,
    meter::VolumeRole,
    significance,
    verdict::{
        RunVerdict, VerdictOutcome, VerdictRow,
        class::RunClass,
        limits::{Limit, LimitSet, LimitsError, Measure},
    },
};
use report::prose::number;

impl RunVerdict {
    /// Judges `results` by the limits of their profile.
    pub fn of(results: &RunResults) -> Result<Self, LimitsError> {
        Ok(Self::by(results, &LimitSet::load(&results.plan.profile.limits)?))
    }

    pub fn by(results: &RunResults, limits: &LimitSet) -> Self {
        let class = results.class();
        let rows: Vec<VerdictRow> =
            limits.limits.iter().filter_map(|limit| judge(results, limit, class)).collect();
        let failed = rows.iter().any(|row| row.passed == Some(false)) || results.failure_counts.engine > 0;
        // Shorter than planned by more than a tick: the run was cut short.
        let cut_short = results.measured_s + 1.5 < results.plan.judged_part().length_s() as f64;
        let unfinished = results.interrupted || cut_short || results.verified.is_empty();
        let excused = failed && !by_storage(results, &rows);
        let unanswered = unfinished || excused || generator_missed_target(results);
        let answer = if failed && !excused {
            VerdictOutcome::Fail
        } else if unanswered {
            VerdictOutcome::Incomplete
        } else {
            VerdictOutcome::Pass
        };
        Self { answer, class, rows }
    }
}

/// True if the target was missed because the generator asked for too little: everything that arrived was
/// served at once.
pub fn generator_missed_target(results: &RunResults) -> bool {
    let (Some(target), Some(pacing)) = (results.target_iops(), results.pacing) else {
        return false;
    };
    let percent = results.achieved_iops() / target * 100.0;
    let met = excused_by_chance(results).map_or(100.0, |(share, _)| 100.0 * share);
    results.measured_s > 0.0 && percent < met && !fell_behind(results, pacing)
}

/// True if the storage fell behind the arrivals: at some time or at the end, more than a second of operations
/// waited or were under way (so each takes more than a second), or some were shed.
fn fell_behind(results: &RunResults, pacing: PacingResults) -> bool {
    pacing.fell_behind() || results.unfinished_operations as f64 > pacing.operations_per_second
}

/// True if the broken limits are evidence against the storage. Delays are not if a group's thread was
/// saturated.
fn by_storage(results: &RunResults, rows: &[VerdictRow]) -> bool {
    let mut broken = rows.iter().filter(|row| row.passed == Some(false));
    let only_delays = results.failure_counts.engine == 0 && broken.all(|row| row.measure.is_of_time());
    !(only_delays && results.busiest_thread().is_some_and(BusiestThread::is_the_limit))
}

/// The minimum share of the target, 0 to 1, that excuses a miss as significance, and the arrivals behind it (see
/// [`significance`]); None if nothing is excused.
fn excused_by_chance(results: &RunResults) -> Option<(f64, f64)> {
    let (target, pacing) = (results.target_iops()?, results.pacing?);
    if fell_behind(results, pacing) {
        return None;
    }
    let operations: u64 = results.operations.iter().map(|operation| operation.count).sum();
    let io_done = results.achieved_iops() * results.measured_s;
    let arrivals = significance::arrivals_of(target * results.measured_s, io_done, operations as f64);
    Some((significance::least_share(arrivals), arrivals))
}

/// None if the limit does not apply to this run.
fn judge(results: &RunResults, limit: &Limit, class: RunClass) -> Option<VerdictRow> {
    let (measured, place) = match limit.measure {
        Measure::DatabaseReadAverageMs => worst(results, VolumeRole::Database, VolumeResults::judged_read_ms),
        Measure::DatabaseReadWindowMaximumMs => {
            worst(results, VolumeRole::Database, |volume| volume.read_worst_window_ms)
        }
        Measure::DatabaseWriteAverageMs => {
            worst(results, VolumeRole::Database, VolumeResults::judged_write_ms)
        }
        Measure::LogWriteAverageMs => worst(results, VolumeRole::Log, VolumeResults::judged_write_ms),
        Measure::LogWriteWindowMaximumMs => {
            worst(results, VolumeRole::Log, |volume| volume.write_worst_window_ms)
        }
        Measure::PageFaultStallsPerSecond => {
            let per_second = results.engine.page_fault_stalls as f64 / results.measured_s;
            ((results.measured_s > 0.0).then_some(per_second), None)
        }
        Measure::AchievedPercentOfTarget => {
            let target = results.target_iops()?;
            ((results.measured_s > 0.0).then(|| results.achieved_iops() / target * 100.0), None)
        }
        Measure::ChecksumErrors => {
            let known = !results.verified.is_empty() || results.failure_counts.checksum > 0;
            (known.then_some(results.failure_counts.checksum as f64), None)
        }
        Measure::ContentErrors => {
            let known = results.measured_s > 0.0 || results.failure_counts.content > 0;
            (known.then_some(results.failure_counts.content as f64), None)
        }
        Measure::IoErrors => {
            let by_meters: u64 = results.volumes.iter().map(|volume| volume.tallies.errors).sum();
            // The largest, not the sum: mostly they count the same failures.
            let by_kernel = results.kernel.as_ref().map_or(0, |kernel| kernel.count);
            (Some(by_meters.max(results.failure_counts.io).max(by_kernel) as f64), None)
        }
        Measure::LongOperations => (Some(results.slow.long as f64), None),
        Measure::HungOperations => (Some(results.slow.hung as f64), None),
    };
    let (mut bound, mut source) = (limit.value(class), limit.source.clone());
    if limit.measure == Measure::AchievedPercentOfTarget
        && measured.is_some_and(|percent| percent < bound)
        && let Some((share, arrivals)) = excused_by_chance(results)
    {
        source = format!(
            "{source}: {bound} %, less what chance may take, {} standard deviations of {} random arrivals",
            significance::SIGMAS,
            number(arrivals, 0)
        );
        // Rounded to a tenth, as displayed.
        bound = (bound * share * 10.0).floor() / 10.0;
    }
    let keeps = |value: f64| if limit.measure.is_floor() { value >= bound } else { value <= bound };
    let passed = measured.map(keeps);
    let missed = limit.measure == Measure::AchievedPercentOfTarget && generator_missed_target(results);
    Some(VerdictRow {
        measure: limit.measure,
        place,
        measured,
        limit: bound,
        passed: if missed { None } else { passed },
        source,
    })
}

/// The highest value over the volumes in `role`, and the volume's name if there are several.
fn worst(
    results: &RunResults,
    role: VolumeRole,
    of: impl Fn(&VolumeResults) -> Option<f64>,
) -> (Option<f64>, Option<String>) {
    let values = results.in_role(role).filter_map(|volume| of(volume).map(|value| (value, &volume.volume)));
    let several = results.in_role(role).count() > 1;
    match values.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((value, volume)) => (Some(value), several.then(|| volume.clone())),
        None => (None, None),
    }
}
