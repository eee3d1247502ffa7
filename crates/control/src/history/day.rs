//! A day of samples at five minutes.

use super::{
    DAY_SECONDS,
    levels::{level_of, value_of},
    sample::IoSample,
    series::{KnownSeries, SeriesKey},
};
use std::collections::BTreeMap;

/// Seconds of a slot.
pub(super) const SLOT_SECONDS: i64 = 300;
/// Slots of a day.
pub const SLOTS: usize = (DAY_SECONDS / SLOT_SECONDS) as usize;

/// The samples of a day, UTC.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryDay {
    /// Days since 1970.
    pub(super) day: i64,
    /// Slots that the server has recorded.
    pub(super) recorded: [bool; SLOTS],
    pub(super) series: BTreeMap<SeriesKey, DaySeries>,
    /// Most volumes at once that had I/O and no series.
    pub(super) left_out: u32,
}

/// The samples of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DaySeries {
    pub pool: String,
    pub volume: String,
    pub size_bytes: u64,
    /// By figure, then by slot.
    pub levels: Box<[[u8; SLOTS]; IoSample::FIGURES]>,
}

impl HistoryDay {
    pub fn new(day: i64) -> Self {
        Self { day, recorded: [false; SLOTS], series: BTreeMap::new(), left_out: 0 }
    }

    /// The day and slot of a time.
    pub(super) fn place_of(unix_s: i64) -> (i64, usize) {
        (unix_s.div_euclid(DAY_SECONDS), (unix_s.rem_euclid(DAY_SECONDS) / SLOT_SECONDS) as usize)
    }

    /// Records a slot. Series without a sample were idle.
    pub(super) fn record(&mut self, slot: usize, samples: &[(KnownSeries, IoSample)], left_out: u32) {
        self.recorded[slot] = true;
        self.left_out = self.left_out.max(left_out);
        for series in self.series.values_mut() {
            series.levels.iter_mut().for_each(|levels| levels[slot] = 0);
        }
        for (known, sample) in samples {
            let series = self.series.entry(known.key).or_insert_with(|| DaySeries {
                pool: String::new(),
                volume: String::new(),
                size_bytes: 0,
                levels: Box::new([[0; SLOTS]; IoSample::FIGURES]),
            });
            // As they are now.
            series.pool.clone_from(&known.pool);
            series.volume.clone_from(&known.volume);
            series.size_bytes = known.size_bytes;
            for (figure, value) in sample.figures().into_iter().enumerate() {
                series.levels[figure][slot] = level_of(figure, value);
            }
        }
    }

    /// The sample of a slot; `None` if it was not recorded.
    pub fn sample(&self, key: &SeriesKey, slot: usize) -> Option<IoSample> {
        let levels = |series: &DaySeries| {
            IoSample::of_figures(std::array::from_fn(|figure| value_of(figure, series.levels[figure][slot])))
        };
        self.recorded[slot].then(|| self.series.get(key).map(levels).unwrap_or_default())
    }

    /// Its series.
    pub fn known(&self) -> impl Iterator<Item = KnownSeries> + '_ {
        self.series.iter().map(|(key, series)| KnownSeries {
            key: *key,
            pool: series.pool.clone(),
            volume: series.volume.clone(),
            size_bytes: series.size_bytes,
        })
    }

    /// Slots that were recorded.
    pub fn recorded_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter(|slot| self.recorded[*slot])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use array::format::{PoolId, VolumeId};

    pub fn volume(number: u8) -> KnownSeries {
        let key = SeriesKey { pool: PoolId([1; 16]), volume: Some(VolumeId([number; 16])) };
        KnownSeries { key, pool: "mail".to_owned(), volume: format!("store{number}"), size_bytes: 1 << 30 }
    }

    #[test]
    fn a_day_has_the_slots_that_were_recorded() {
        let mut day = HistoryDay::new(20_786);
        let sample = IoSample::of_figures([120.0, 1e6, 0.004, 0.02, 30.0, 250e3, 0.001, 0.003]);
        day.record(7, &[(volume(1), sample)], 0);
        day.record(8, &[(volume(2), sample)], 3);
        let kept = day.sample(&volume(1).key, 7).unwrap();
        assert!((kept.reads.per_s / 120.0 - 1.0).abs() < 0.05, "{kept:?}");
        assert_eq!(day.sample(&volume(1).key, 8), Some(IoSample::default()));
        assert_eq!(day.sample(&volume(1).key, 9), None);
        assert_eq!(day.recorded_slots().collect::<Vec<_>>(), [7, 8]);
        assert_eq!((day.known().count(), day.left_out), (2, 3));
        // A clock that went back.
        day.record(7, &[], 0);
        assert_eq!(day.sample(&volume(1).key, 7), Some(IoSample::default()));
    }

    #[test]
    fn times_have_a_day_and_a_slot() {
        assert_eq!(HistoryDay::place_of(0), (0, 0));
        assert_eq!(HistoryDay::place_of(DAY_SECONDS - 1), (0, SLOTS - 1));
        assert_eq!(HistoryDay::place_of(1_795_298_700), (20_778, 265));
        assert_eq!(HistoryDay::place_of(-1), (-1, SLOTS - 1));
    }
}
