//! The pace of each drive of a pool, beside that of the others: means of reads and writes, a minute at a time.
//!
//! Invariant: a drive becomes slow, and ceases to be, after [`ROUNDS`] minutes in a row that say so; a minute in which it did
//! little says nothing.

use std::{collections::BTreeMap, time::Duration};
use world::Moment;

const EVERY: Duration = Duration::from_secs(60);
const ROUNDS: u32 = 2;
/// Fewer operations of a minute say nothing.
const OPERATIONS_MIN: u64 = 50;
/// A slow drive takes this long at least.
const SLOW_MIN: Duration = Duration::from_millis(20);
/// And this many times as long as the median drive.
const SLOW_TIMES: u32 = 4;
/// It is well below this many times.
const WELL_TIMES: u32 = 2;

/// Operations of a drive since its pool was opened, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriveWork {
    pub operations: u64,
    pub time: Duration,
}

/// Pace of the drives of one pool.
#[derive(Debug, Default)]
pub(super) struct DrivePace {
    measured_at: Option<Moment>,
    before: BTreeMap<String, DriveWork>,
    drives: BTreeMap<String, DriveVerdict>,
}

#[derive(Debug, Default)]
struct DriveVerdict {
    is_slow: bool,
    /// Minutes in a row that say the opposite.
    opposed: u32,
    mean: Duration,
    median: Duration,
}

/// A drive that is slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlowDrive {
    pub name: String,
    pub mean: Duration,
    /// Of the pool's drives.
    pub median: Duration,
}

impl DrivePace {
    /// Measures, if a minute has passed.
    pub fn measure(&mut self, now: Moment, work: impl FnOnce() -> BTreeMap<String, DriveWork>) {
        if self.measured_at.is_some_and(|last| now.since(last) < EVERY) {
            return;
        }
        let is_first = self.measured_at.is_none();
        self.measured_at = Some(now);
        let work = work();
        let before = std::mem::replace(&mut self.before, work.clone());
        self.drives.retain(|name, _| work.contains_key(name));
        if is_first {
            return;
        }
        let mean = |(name, now): (&String, &DriveWork)| {
            let before = before.get(name)?;
            // Counts begin anew with the pool.
            let operations = now.operations.checked_sub(before.operations)?;
            let time = now.time.checked_sub(before.time)?;
            let count = u32::try_from(operations).ok()?;
            (operations >= OPERATIONS_MIN).then(|| (name.clone(), time / count))
        };
        let means: BTreeMap<String, Duration> = work.iter().filter_map(mean).collect();
        let mut sorted: Vec<Duration> = means.values().copied().collect();
        sorted.sort_unstable();
        // With one drive there is nothing to compare; of two, the faster one is the measure.
        let Some(&median) = sorted.get(sorted.len().saturating_sub(1) / 2).filter(|_| sorted.len() > 1)
        else {
            return;
        };
        for (name, mean) in means {
            let verdict = self.drives.entry(name).or_default();
            (verdict.mean, verdict.median) = (mean, median);
            let says_slow = mean >= SLOW_MIN && mean >= median * SLOW_TIMES;
            let says_well = mean < SLOW_MIN || mean < median * WELL_TIMES;
            let is_opposed = if verdict.is_slow { says_well } else { says_slow };
            verdict.opposed = if is_opposed { verdict.opposed + 1 } else { 0 };
            if verdict.opposed == ROUNDS {
                verdict.is_slow = !verdict.is_slow;
                verdict.opposed = 0;
            }
        }
    }

    pub fn slow(&self) -> Vec<SlowDrive> {
        let slow = self.drives.iter().filter(|(_, verdict)| verdict.is_slow);
        slow.map(|(name, DriveVerdict { mean, median, .. })| SlowDrive {
            name: name.clone(),
            mean: *mean,
            median: *median,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Minutes {
        pace: DrivePace,
        minute: u64,
        work: BTreeMap<String, DriveWork>,
    }

    impl Minutes {
        /// A minute in which each drive does this many operations of this many milliseconds.
        fn pass(&mut self, drives: &[(&str, u64, u64)]) -> Vec<String> {
            for (name, operations, millis) in drives {
                let work = self.work.entry((*name).to_owned()).or_default();
                work.operations += operations;
                work.time += Duration::from_millis(operations * millis);
            }
            self.minute += 1;
            self.pace.measure(Moment(self.minute * 60_000_000_000), || self.work.clone());
            self.pace.slow().into_iter().map(|slow| slow.name).collect()
        }
    }

    #[test]
    fn a_drive_is_slow_after_two_minutes_and_well_after_two() {
        let mut minutes = Minutes { pace: DrivePace::default(), minute: 0, work: BTreeMap::new() };
        let usual = [("a", 100, 5), ("b", 100, 6), ("c", 100, 7)];
        let slow = [("a", 100, 5), ("b", 100, 60), ("c", 100, 7)];
        assert!(minutes.pass(&usual).is_empty());
        assert!(minutes.pass(&slow).is_empty());
        assert!(minutes.pass(&usual).is_empty(), "one minute may be anything");
        assert!(minutes.pass(&slow).is_empty());
        assert_eq!(minutes.pass(&slow), ["b"]);
        assert_eq!(minutes.pass(&[("a", 100, 5), ("b", 3, 5), ("c", 100, 7)]), ["b"], "it did little");
        assert_eq!(minutes.pass(&usual), ["b"]);
        assert!(minutes.pass(&usual).is_empty());
    }

    #[test]
    fn drives_that_are_all_slow_or_fast_are_not_said() {
        let mut minutes = Minutes { pace: DrivePace::default(), minute: 0, work: BTreeMap::new() };
        for _ in 0..5 {
            assert!(minutes.pass(&[("a", 100, 200), ("b", 100, 220), ("c", 100, 1)]).is_empty());
        }
        let mut minutes = Minutes { pace: DrivePace::default(), minute: 0, work: BTreeMap::new() };
        for _ in 0..5 {
            assert!(minutes.pass(&[("a", 100, 1), ("b", 100, 15)]).is_empty(), "flash beside a disk");
        }
        assert!(minutes.pass(&[("a", 100, 2), ("b", 100, 100)]).is_empty());
        assert_eq!(minutes.pass(&[("a", 100, 2), ("b", 100, 100)]), ["b"]);
    }
}
