//! Pools below a group's files, where the caller brought them along: an array in this process, and what it says of
//! itself. The run knows no array: it asks whoever opened the storage, and has it closed when the files were verified.

use super::meter::Role;
use serde::{Deserialize, Serialize};
use world::{IoResult, LocalFuture};

/// The pools that the files of one group lie on.
pub trait Pools {
    /// How each of them stands; always the same pools in the same order.
    fn facts(&self) -> Vec<PoolFacts>;

    /// Ends them cleanly. Nobody uses the files any more.
    fn close(&self) -> LocalFuture<IoResult<()>>;
}

/// How a pool stands at one moment. Passive data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Its name, which the volumes on it have in results.
    pub name: String,
    /// What lies on it.
    pub role: Role,
    /// Drives it was made of.
    pub drives: u32,
    /// Those of them that are there and up to date.
    pub drives_there: u32,
    /// Copies of each block.
    pub copies: u32,
    /// Size of a drive, in bytes.
    pub drive_bytes: u64,
    /// What hosts can store at most, in bytes.
    pub usable_bytes: u64,
    /// What is stored for them and still needed, in bytes.
    pub used_bytes: u64,
    /// The highest level of use that was reached and alarms, in percent; none below the first.
    pub alarm_percent: Option<u8>,
    /// Checkpoints since it was opened.
    pub checkpoints: u64,
    /// Copies that were wrong or unreadable since then, and were written again from a good one.
    pub mended: u64,
    /// Segments that have fewer copies than they should.
    pub degraded_segments: u64,
    /// Which drives share a device, in words; none if each has its own.
    pub shared: Option<String>,
    /// What went in and out since it was opened.
    pub traffic: PoolTraffic,
}

/// What went into a pool and out of it on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolTraffic {
    /// Bytes read from its volumes.
    pub host_read_bytes: u64,
    /// Bytes written to its volumes.
    pub host_written_bytes: u64,
    /// Bytes read from its drives.
    pub device_read_bytes: u64,
    /// Bytes written to its drives, all copies.
    pub device_written_bytes: u64,
    /// Reads of its drives.
    pub device_reads: u64,
    /// Writes to its drives.
    pub device_writes: u64,
    /// Flushes of its drives.
    pub device_flushes: u64,
}

impl PoolTraffic {
    /// What came after `before`.
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

    /// Bytes read from drives for each byte read from volumes; none if none was.
    pub fn read_amplification(&self) -> Option<f64> {
        ratio(self.device_read_bytes, self.host_read_bytes)
    }

    /// Bytes written to drives for each byte written to volumes; none if none was.
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device_written_bytes, self.host_written_bytes)
    }
}

fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}

/// One pool of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolResults {
    /// Storage group it belongs to, from 1.
    pub group: u32,
    /// How it stood when the files had been verified; the alarm is the highest that was seen.
    pub facts: PoolFacts,
    /// What went in and out in the part that is judged.
    pub measured: PoolTraffic,
}

/// What a group's pools came to: `measured` are the readings around what is judged, `last` those at the end.
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

    /// A whole pool of eight drives.
    pub fn sample_facts() -> PoolFacts {
        PoolFacts {
            name: "pool for databases".to_owned(),
            role: Role::Database,
            drives: 8,
            drives_there: 8,
            copies: 2,
            drive_bytes: 49 << 20,
            usable_bytes: 150 << 20,
            used_bytes: 30 << 20,
            alarm_percent: None,
            checkpoints: 3,
            mended: 0,
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
    fn only_what_is_judged_is_counted_and_no_alarm_is_forgotten() {
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
