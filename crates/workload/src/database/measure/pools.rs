//! Pools below a group's files: an array in this process and its statistics. The run does not know the array:
//! it asks the object that the caller supplied, and closes it after verification.

use crate::meter::VolumeRole;
use protect::backup::BackupCutter;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use world::{IoResult, LocalFuture};

/// The pools below the files of one group.
pub trait PoolSet {
    /// Snapshot of each pool, always in the same order.
    fn facts(&self) -> Vec<PoolFacts>;

    /// Cuts all volumes of the group at one moment, for backups; `None` if these pools cannot.
    fn cutter(&self) -> Option<Rc<dyn BackupCutter>> {
        None
    }

    /// Closes the pools cleanly. The files must not be used afterwards.
    fn close(&self) -> LocalFuture<IoResult<()>>;
}

/// Snapshot of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Also the volume name in results.
    pub name: String,
    pub role: VolumeRole,
    /// Drives the pool was made of.
    pub drives: u32,
    /// Drives that are present and current.
    pub drives_there: u32,
    /// Copies of each block.
    pub copies: u32,
    pub drive_bytes: u64,
    /// Maximum data that hosts can store, in bytes.
    pub usable_bytes: u64,
    /// Live host data, in bytes.
    pub used_bytes: u64,
    /// Highest alarm level reached, in percent; None below the first.
    pub alarm_percent: Option<u8>,
    /// Since the pool was opened.
    pub checkpoints: u64,
    /// Wrong or unreadable copies rewritten from a good one, since the pool was opened.
    #[serde(rename = "mended")]
    pub repaired: u64,
    /// Segments with fewer copies than required.
    pub degraded_segments: u64,
    /// Drives that share a device, in words; None if each has its own.
    pub shared: Option<String>,
    /// Since the pool was opened.
    pub traffic: PoolTraffic,
}

/// I/O of a pool's volumes and of its drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolTraffic {
    pub host_read_bytes: u64,
    pub host_written_bytes: u64,
    pub device_read_bytes: u64,
    /// All copies.
    pub device_written_bytes: u64,
    pub device_reads: u64,
    pub device_writes: u64,
    pub device_flushes: u64,
}

impl PoolTraffic {
    /// The difference to an earlier snapshot.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            host_read_bytes: self.host_read_bytes - before.host_read_bytes,
            host_written_bytes: self.host_written_bytes - before.host_written_bytes,
            device_read_bytes: self.device_read_bytes - before.device_read_bytes,
            device_written_bytes: self.device_written_bytes - before.device_written_bytes,
            device_reads: self.device_reads - before.device_reads,
            device_writes: self.device_writes - before.device_writes,
            device_flushes: self.device_flushes - before.device_flushes,
        }
    }

    /// Bytes read from drives for each byte read from volumes; None without reads.
    pub fn read_amplification(&self) -> Option<f64> {
        ratio(self.device_read_bytes, self.host_read_bytes)
    }

    /// Bytes written to drives for each byte written to volumes; None without writes.
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device_written_bytes, self.host_written_bytes)
    }
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}

/// Results of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolResults {
    /// Storage group, from 1.
    pub group: u32,
    /// State after verification, with the highest alarm seen.
    pub facts: PoolFacts,
    /// I/O in the judged part.
    pub measured: PoolTraffic,
}

/// Results of a group's pools: `measured` are the snapshots at both ends of the judged part, `last` those at
/// the end of the run.
pub fn results_of(
    group: u32,
    measured: &(Vec<PoolFacts>, Vec<PoolFacts>),
    last: Vec<PoolFacts>,
) -> Vec<PoolResults> {
    let (before, after) = measured;
    let each = last.into_iter().enumerate().map(|(index, mut facts)| {
        let (before, after) = (before.get(index), after.get(index));
        let measured = before.zip(after).map(|(before, after)| after.traffic.since(&before.traffic));
        facts.alarm_percent = facts.alarm_percent.max(after.and_then(|after| after.alarm_percent));
        PoolResults { group: group + 1, facts, measured: measured.unwrap_or_default() }
    });
    each.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An intact pool of eight drives.
    pub fn sample_facts() -> PoolFacts {
        PoolFacts {
            name: "pool for databases".to_owned(),
            role: VolumeRole::Database,
            drives: 8,
            drives_there: 8,
            copies: 2,
            drive_bytes: 49 << 20,
            usable_bytes: 150 << 20,
            used_bytes: 30 << 20,
            alarm_percent: None,
            checkpoints: 3,
            repaired: 0,
            degraded_segments: 0,
            shared: None,
            traffic: PoolTraffic::default(),
        }
    }

    fn facts(alarm_percent: Option<u8>, bytes: u64) -> PoolFacts {
        let traffic = PoolTraffic {
            host_written_bytes: bytes,
            device_written_bytes: 3 * bytes,
            ..PoolTraffic::default()
        };
        PoolFacts { alarm_percent, traffic, ..sample_facts() }
    }

    #[test]
    fn only_the_judged_part_is_counted_and_the_highest_alarm_is_kept() {
        let measured = (vec![facts(None, 10)], vec![facts(Some(90), 25)]);
        let results = results_of(1, &measured, vec![facts(Some(80), 100)]);
        assert_eq!(results[0].group, 2);
        assert_eq!(results[0].measured.host_written_bytes, 15);
        assert_eq!(results[0].measured.write_amplification(), Some(3.0));
        assert_eq!(results[0].measured.read_amplification(), None, "nothing was read");
        assert_eq!(results[0].facts.alarm_percent, Some(90));
    }

    #[test]
    fn a_run_that_measured_nothing_counted_nothing() {
        let results = results_of(0, &Default::default(), vec![facts(None, 100)]);
        assert_eq!(results[0].measured, PoolTraffic::default());
    }
}
