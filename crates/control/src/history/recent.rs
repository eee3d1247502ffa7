//! The newest samples of all series, at one step, in memory.
//!
//! Invariants:
//!
//! 1. A slot is a whole multiple of the step in seconds since 1970; the last `length` slots are known, as far as they were recorded.
//! 2. A series has a column only while one of its known samples is not idle.
//! 3. A clock that goes back makes the slots behind it unknown: they come again.

use super::{sample::IoSample, series::SeriesKey};
use std::collections::BTreeMap;

pub(super) struct RecentSamples {
    step_s: i64,
    /// The slot that was recorded last.
    newest: Option<i64>,
    recorded: Vec<bool>,
    columns: BTreeMap<SeriesKey, Box<[IoSample]>>,
}

impl RecentSamples {
    /// Keeps `length` slots of `step_s` seconds.
    pub fn new(step_s: i64, length: usize) -> Self {
        assert!(step_s > 0 && length > 0, "there is something to keep");
        Self { step_s, newest: None, recorded: vec![false; length], columns: BTreeMap::new() }
    }

    pub fn step_s(&self) -> i64 {
        self.step_s
    }

    /// Records a slot. Series without a sample were idle.
    pub fn record(&mut self, slot: i64, samples: &BTreeMap<SeriesKey, IoSample>) {
        self.turn_to(slot);
        let index = self.index(slot);
        self.recorded[index] = true;
        for (key, column) in &mut self.columns {
            column[index] = samples.get(key).copied().unwrap_or_default();
        }
        for (key, sample) in samples.iter().filter(|(_, sample)| !sample.is_idle()) {
            if !self.columns.contains_key(key) {
                let mut column = vec![IoSample::default(); self.recorded.len()].into_boxed_slice();
                column[index] = *sample;
                self.columns.insert(*key, column);
            }
        }
        if index == 0 {
            self.columns.retain(|_, column| column.iter().any(|sample| !sample.is_idle()));
        }
    }

    /// Makes the slots unknown that lie between the newest one and this.
    fn turn_to(&mut self, slot: i64) {
        let length = self.recorded.len() as i64;
        match self.newest {
            Some(newest) if (slot - newest).abs() >= length => self.recorded.fill(false),
            Some(newest) => {
                for between in (newest + 1..slot).chain(slot + 1..=newest) {
                    let index = self.index(between);
                    self.recorded[index] = false;
                }
            }
            None => {}
        }
        self.newest = Some(slot);
    }

    /// The sample of a slot; `None` if it is not known.
    pub fn sample(&self, key: &SeriesKey, slot: i64) -> Option<IoSample> {
        let newest = self.newest?;
        let is_known = slot <= newest && newest - slot < self.recorded.len() as i64;
        let index = self.index(slot);
        (is_known && self.recorded[index])
            .then(|| self.columns.get(key).map(|column| column[index]).unwrap_or_default())
    }

    /// The first slot that is known.
    pub fn oldest(&self) -> Option<i64> {
        let newest = self.newest?;
        (newest + 1 - self.recorded.len() as i64..=newest).find(|&slot| self.recorded[self.index(slot)])
    }

    /// Series with columns, which is what the memory goes to.
    #[cfg(test)]
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    fn index(&self, slot: i64) -> usize {
        slot.rem_euclid(self.recorded.len() as i64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::{PoolId, VolumeId};

    fn key(number: u8) -> SeriesKey {
        SeriesKey { pool: PoolId([1; 16]), volume: Some(VolumeId([number; 16])) }
    }

    fn of(per_s: f32) -> IoSample {
        IoSample::of_figures([per_s; IoSample::FIGURES])
    }

    fn busy(number: u8, per_s: f32) -> BTreeMap<SeriesKey, IoSample> {
        BTreeMap::from([(key(number), of(per_s))])
    }

    #[test]
    fn slots_that_were_not_recorded_are_not_zeroes() {
        let mut recent = RecentSamples::new(1, 10);
        assert_eq!((recent.oldest(), recent.sample(&key(1), 5)), (None, None));
        recent.record(100, &busy(1, 7.0));
        recent.record(103, &busy(2, 8.0));
        assert_eq!(recent.sample(&key(1), 100), Some(of(7.0)));
        assert_eq!([101, 102, 104].map(|slot| recent.sample(&key(1), slot)), [None; 3]);
        assert_eq!(recent.sample(&key(1), 103), Some(IoSample::default()), "it was idle");
        assert_eq!(recent.sample(&key(2), 100), Some(IoSample::default()));
        assert_eq!(recent.oldest(), Some(100));
    }

    #[test]
    fn old_slots_go_and_idle_series_take_no_memory() {
        let mut recent = RecentSamples::new(1, 10);
        recent.record(100, &busy(1, 7.0));
        for slot in 101..125 {
            recent.record(slot, &BTreeMap::new());
        }
        assert_eq!((recent.sample(&key(1), 100), recent.oldest()), (None, Some(115)));
        assert_eq!(recent.columns(), 0);
        recent.record(126, &busy(1, 0.0));
        assert_eq!(recent.columns(), 0, "an idle sample is none");
        // So long that nothing is known.
        recent.record(1000, &busy(1, 3.0));
        assert_eq!(recent.oldest(), Some(1000));
    }

    #[test]
    fn a_clock_that_goes_back_makes_its_slots_unknown() {
        let mut recent = RecentSamples::new(60, 10);
        for slot in 100..106 {
            recent.record(slot, &busy(1, slot as f32));
        }
        recent.record(102, &busy(1, 1.0));
        assert_eq!(recent.sample(&key(1), 101), Some(of(101.0)));
        assert_eq!(recent.sample(&key(1), 102), Some(of(1.0)));
        assert_eq!([103, 104, 105].map(|slot| recent.sample(&key(1), slot)), [None; 3]);
        recent.record(4, &busy(1, 2.0));
        assert_eq!((recent.sample(&key(1), 101), recent.oldest()), (None, Some(4)));
    }
}
