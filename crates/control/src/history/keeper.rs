//! The flow that looks at the counts each second, and keeps what became of them.

use super::{
    DAY_SECONDS, DayFileError, FILES_BYTES_MAX, HistoryStep, KEPT_DAYS, PerformanceHistory, SERIES_MAX,
    SeriesKey,
    counts::{CountKey, CountsNow},
    day::{HistoryDay, SLOT_SECONDS},
    day_file::{decode_day, encode_day},
    files::date_of,
    sample::{IoCounts, IoSample},
};
use crate::{notice::NoticeSender, site::handle::SiteHandle};
use array::format::PoolId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use world::{DeviceCounts, IoErrorKind, IoResult, Moment, WallTime, World};

/// Slots of a second that may stand for one look that came late.
const LATE_MAX: i64 = 10;
/// A pool may publish its counts so much before they are looked at.
const COUNTS_AGE: Duration = Duration::from_secs(1);

/// The counts at the begin of a step.
struct StepBegin {
    step: HistoryStep,
    slot: i64,
    at: Moment,
    counts: BTreeMap<CountKey, Arc<DeviceCounts>>,
}

/// Samples of a step, with the volumes that had I/O.
type StepSamples = BTreeMap<SeriesKey, IoSample>;

/// The flow that looks each second.
pub(super) struct HistoryKeeper {
    history: PerformanceHistory,
    notices: NoticeSender,
    steps: [StepBegin; 3],
    /// Series with samples of their own, with the second at which each last had I/O.
    tracked: BTreeMap<SeriesKey, i64>,
    /// For each pool the time of its counts at the last look, and whether that look found new ones.
    counted: BTreeMap<PoolId, (Option<WallTime>, bool)>,
    /// Of the look before.
    last_second: StepSamples,
    /// Most volumes without a series in the slot of five minutes.
    left_out: u32,
    /// A newer program's file of this day is left alone.
    foreign_day: Option<i64>,
    has_failed: bool,
}

impl HistoryKeeper {
    pub fn begin(
        history: PerformanceHistory,
        world: &World,
        site: &SiteHandle,
        notices: NoticeSender,
    ) -> Self {
        let now = CountsNow::of(&site.look(), world.now());
        let unix_s = world.wall().seconds;
        let steps = HistoryStep::ALL.map(|step| StepBegin {
            step,
            slot: unix_s.div_euclid(step.seconds()),
            at: now.at,
            counts: now.counts(),
        });
        let mut keeper = Self {
            history,
            notices,
            steps,
            tracked: BTreeMap::new(),
            counted: now.pools.iter().map(|(pool, (_, at))| (*pool, (*at, true))).collect(),
            last_second: StepSamples::new(),
            left_out: 0,
            foreign_day: None,
            has_failed: false,
        };
        keeper.turn_to_day(HistoryDay::place_of(unix_s).0);
        keeper
    }

    /// Records the slots that have ended.
    pub fn look(&mut self, world: &World, site: &SiteHandle) {
        let now = CountsNow::of(&site.look(), world.now());
        let unix_s = world.wall().seconds;
        for index in 0..self.steps.len() {
            let step = self.steps[index].step;
            let (slot, began) = (unix_s.div_euclid(step.seconds()), self.steps[index].slot);
            if slot == began {
                continue;
            }
            let samples = match step {
                HistoryStep::Second => self.second_samples(&now),
                _ => self.samples_of(index, &now),
            };
            let begin = &mut self.steps[index];
            (begin.slot, begin.at, begin.counts) = (slot, now.at, now.counts());
            // After a jump of the clock nobody knows which slots these were.
            let is_in_order = slot > began && slot - began <= LATE_MAX;
            match step {
                HistoryStep::Second if is_in_order => {
                    let mut known = self.history.samples();
                    (began..slot).for_each(|slot| known.seconds.record(slot, &samples));
                }
                HistoryStep::Minute if is_in_order => {
                    self.history.samples().minutes.record(slot - 1, &samples);
                }
                HistoryStep::FiveMinutes if is_in_order => self.end_slot(slot - 1, &samples, &now),
                _ => {}
            }
        }
        self.counted = now
            .pools
            .iter()
            .map(|(pool, (_, at))| {
                (*pool, (*at, self.counted.get(pool).is_none_or(|(before, _)| before != at)))
            })
            .collect();
    }

    /// The samples of the last second. A pool publishes its counts once a second, on its own time: a look may find none that
    /// are new, and the next one those of two seconds.
    fn second_samples(&mut self, now: &CountsNow) -> StepSamples {
        let mut samples = self.samples_of(0, now);
        for (pool, (_, counted_at)) in &now.pools {
            let Some((before, was_new)) = self.counted.get(pool) else { continue };
            let own = |key: &SeriesKey| key.pool == *pool;
            if before == counted_at {
                if *was_new {
                    let last = self.last_second.iter().filter(|(key, _)| own(key));
                    samples.extend(last.map(|(key, sample)| (*key, *sample)));
                }
                continue;
            }
            let (Some(before), Some(counted_at)) = (before, counted_at) else { continue };
            let nanos = |at: &WallTime| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
            let between = u64::try_from(nanos(counted_at) - nanos(before)).ok();
            let looked = now.at.since(self.steps[0].at);
            let counted = between.map(Duration::from_nanos).filter(|time| !time.is_zero());
            let time = counted.map_or(looked, |time| time.min(looked + COUNTS_AGE));
            let scale = (looked.as_secs_f64() / time.as_secs_f64()) as f32;
            for (_, sample) in samples.iter_mut().filter(|(key, _)| own(key)) {
                for side in [&mut sample.reads, &mut sample.writes] {
                    side.per_s *= scale;
                    side.bytes_per_s *= scale;
                }
            }
        }
        self.last_second = samples.clone();
        samples
    }

    /// The I/O since a step began, by series, with the sums of pools. Volumes beyond [`SERIES_MAX`] are counted in those alone.
    fn samples_of(&mut self, step: usize, now: &CountsNow) -> StepSamples {
        let begin = &self.steps[step];
        let time = now.at.since(begin.at).max(Duration::from_millis(1));
        let mut sums: BTreeMap<SeriesKey, IoCounts> = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for (key, (known, counts)) in &now.volumes {
            let before = begin.counts.get(key);
            let Some(counts) =
                counts.as_ref().filter(|now| before.is_none_or(|before| !Arc::ptr_eq(before, now)))
            else {
                continue;
            };
            let between = IoCounts::between(before.map(|before| &**before), counts);
            sums.entry(SeriesKey { pool: key.0, volume: None }).or_default().merge(&between);
            if key.2.is_none() && !between.over(time).is_idle() {
                let now_s = begin.slot * begin.step.seconds();
                if self.tracked.len() < SERIES_MAX || self.tracked.contains_key(&known.key) {
                    self.tracked.insert(known.key, now_s);
                    sums.entry(known.key).or_default().merge(&between);
                } else {
                    left_out.insert(known.key);
                }
            }
        }
        self.left_out = self.left_out.max(left_out.len() as u32);
        sums.iter()
            .map(|(key, counts)| (*key, counts.over(time)))
            .filter(|(_, sample)| !sample.is_idle())
            .collect()
    }

    /// Records five minutes in their day, and its file.
    fn end_slot(&mut self, slot: i64, samples: &StepSamples, now: &CountsNow) {
        let began = slot * SLOT_SECONDS;
        let (day, in_day) = HistoryDay::place_of(began);
        self.turn_to_day(day);
        let names = now.names();
        let named = samples.iter().filter_map(|(key, sample)| Some((names.get(key)?.clone(), *sample)));
        let named: Vec<_> = named.collect();
        let bytes = {
            let mut known = self.history.samples();
            known.today.record(in_day, &named, self.left_out);
            encode_day(&known.today)
        };
        self.left_out = 0;
        // Those that were idle for a day make room for others.
        self.tracked.retain(|_, last| began - *last < DAY_SECONDS);
        if self.foreign_day != Some(day) {
            let written = self.write(day, &bytes);
            self.say(written);
        }
    }

    /// Writes a day, and forgets the oldest ones.
    fn write(&self, day: i64, bytes: &[u8]) -> IoResult<()> {
        let files = self.history.files();
        files.replace(day, bytes)?;
        let mut days = files.days()?;
        let mut left: u64 = days.iter().map(|(_, size)| size).sum();
        days.retain(|(other, _)| *other < day);
        for (old, size) in days {
            if day - old < KEPT_DAYS && left <= FILES_BYTES_MAX {
                break;
            }
            if day - old < KEPT_DAYS {
                self.notices.note(format!(
                    "performance of {} is no longer kept: the history has {} MB, the most it may have",
                    date_of(old),
                    FILES_BYTES_MAX >> 20
                ));
            }
            files.remove(old)?;
            left -= size;
        }
        Ok(())
    }

    /// Says the first failure, and the end of failures.
    fn say(&mut self, written: IoResult<()>) {
        match written {
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                self.notices.warn(format!(
                    "performance over time is not written: {error}; it is tried again every five minutes, and nothing else is concerned"
                ));
            }
            Ok(()) if self.has_failed => {
                self.has_failed = false;
                self.notices.note("performance over time is written again".to_owned());
            }
            _ => {}
        }
    }

    /// Makes a day the present one, with what its file has already.
    fn turn_to_day(&mut self, day: i64) {
        if self.history.samples().today.day == day {
            return;
        }
        let today = match self.history.files().read(day) {
            Ok(bytes) => match decode_day(&bytes) {
                Ok(today) if today.day == day => today,
                Ok(_) => self.begin_anyway(day, "it is of another day"),
                Err(newer @ DayFileError::Newer(_)) => {
                    self.foreign_day = Some(day);
                    self.notices.warn(format!(
                        "performance of {} is not written: {newer}; the file stays as it is",
                        date_of(day)
                    ));
                    HistoryDay::new(day)
                }
                Err(damaged) => self.begin_anyway(day, &damaged.to_string()),
            },
            Err(error) if error.kind() == IoErrorKind::NotFound => HistoryDay::new(day),
            Err(error) => {
                // The file must not be replaced.
                self.foreign_day = Some(day);
                self.notices.warn(format!("performance of {} is not written: {error}", date_of(day)));
                HistoryDay::new(day)
            }
        };
        let mut known = self.history.samples();
        known.cached.retain(|(cached, _)| *cached != day);
        known.today = today;
    }

    /// A day whose file is of no use.
    fn begin_anyway(&mut self, day: i64, why: &str) -> HistoryDay {
        match self.history.files().set_aside(day) {
            Ok(place) => self.notices.warn(format!(
                "performance of {} until now is lost: {why}; the file is kept as {place}",
                date_of(day)
            )),
            Err(error) => {
                self.foreign_day = Some(day);
                self.notices.warn(format!(
                    "performance of {} is not written: {why}, and the file cannot be set aside: {error}",
                    date_of(day)
                ));
            }
        }
        HistoryDay::new(day)
    }
}
