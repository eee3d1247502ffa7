//! Facts of a run for the rules of advice.

use plan::advice::RunFacts;
use report::Refusal;
use workload::{
    database::results::{HostSample, RunResults, VolumeResults},
    meter::VolumeRole,
    verdict::{RunVerdict, VerdictOutcome},
};

/// The facts of a run that rules of advice need.
pub fn run_facts(results: &RunResults) -> Result<RunFacts, Refusal> {
    let verdict = RunVerdict::of(results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let slowest = |role: VolumeRole, of: fn(&VolumeResults) -> Option<f64>| {
        results.in_role(role).filter_map(of).max_by(f64::total_cmp)
    };
    let bytes: u64 = results.databases.iter().map(|database| database.bytes_before).sum();
    let shared = results.plan.volumes.iter().filter(|volume| volume.databases && volume.logs);
    Ok(RunFacts {
        passed: match verdict.answer {
            VerdictOutcome::Pass => Some(true),
            VerdictOutcome::Fail => Some(false),
            VerdictOutcome::Incomplete => None,
        },
        seconds: results.measured_s.round(),
        databases: results.databases.len() as u64,
        gb: bytes as f64 / (1_u64 << 30) as f64,
        iops: results.achieved_iops(),
        database_read_ms: slowest(VolumeRole::Database, VolumeResults::judged_read_ms),
        database_read_window_ms: slowest(VolumeRole::Database, |volume| volume.read_worst_window_ms),
        database_write_ms: slowest(VolumeRole::Database, VolumeResults::judged_write_ms),
        log_write_ms: slowest(VolumeRole::Log, VolumeResults::judged_write_ms),
        damage: (results.failure_counts.checksum + results.failure_counts.content) as f64,
        processor_percent: processor_percent(&results.host_samples, results.host.processor_count),
        shared_volumes: shared.count() as u64,
    })
}

/// Processor time of all programs between the first and the last reading, in percent of the time available.
fn processor_percent(samples: &[HostSample], processor_count: u32) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let there_was = (last.at_s - first.at_s) * f64::from(processor_count);
    (there_was > 0.0).then(|| (last.system_cpu_s - first.system_cpu_s) / there_was * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_share_of_what_there_was() {
        let sample = |at_s, system_cpu_s| HostSample { at_s, system_cpu_s, ..HostSample::default() };
        assert_eq!(processor_percent(&[sample(1.0, 5.0), sample(11.0, 15.0)], 2), Some(50.0));
        assert_eq!(processor_percent(&[sample(1.0, 5.0)], 2), None);
        assert_eq!(processor_percent(&[sample(1.0, 5.0), sample(2.0, 5.0)], 0), None);
    }
}
