//! The history, as those see it who ask for it.

use super::{
    DAY_SECONDS, HistoryAnswer, HistoryFiles, HistoryPeriod, HistoryStep, KnownSeries, PeriodRefusal,
    SERIES_MAX, SeriesKey,
    day::{HistoryDay, SLOT_SECONDS},
    day_file::decode_day,
    files::date_of,
    keeper::HistoryKeeper,
    recent::RecentSamples,
};
use crate::{notice::NoticeSender, site::handle::SiteHandle};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use world::{IoErrorKind, World};

/// Days that are read and kept for the next question.
const CACHED_DAYS: usize = 8;

/// The performance of a site's volumes over time. Clones are one history.
#[derive(Clone)]
pub struct PerformanceHistory(Arc<HistoryState>);

struct HistoryState {
    files: Box<dyn HistoryFiles>,
    samples: Mutex<KeptSamples>,
}

pub(super) struct KeptSamples {
    pub seconds: RecentSamples,
    pub minutes: RecentSamples,
    pub today: HistoryDay,
    /// Read days, the last one asked for at the end.
    pub cached: VecDeque<(i64, Arc<HistoryDay>)>,
}

/// Reads slots of five minutes one after the other, and each day once.
struct SlotReader<'a> {
    history: &'a PerformanceHistory,
    /// The day of the last slot, if anything of it was recorded.
    day: Option<(i64, Option<Arc<HistoryDay>>)>,
    /// Days that could not be read.
    problems: Vec<String>,
}

impl<'a> SlotReader<'a> {
    fn new(history: &'a PerformanceHistory) -> Self {
        Self { history, day: None, problems: Vec::new() }
    }

    /// The day of a slot, and the slot's number in it; `None` if there is nothing of that day.
    fn at(&mut self, slot: i64) -> Option<(&HistoryDay, usize)> {
        let (number, in_day) = HistoryDay::place_of(slot * SLOT_SECONDS);
        if self.day.as_ref().is_none_or(|(known, _)| *known != number) {
            let read = self.history.day(number);
            self.problems.extend(read.as_ref().err().cloned());
            self.day = Some((number, read.ok().flatten()));
        }
        let (_, day) = self.day.as_ref()?;
        Some((day.as_deref()?, in_day))
    }
}

impl PerformanceHistory {
    pub fn new(files: Box<dyn HistoryFiles>) -> Self {
        let samples = KeptSamples {
            seconds: RecentSamples::new(HistoryStep::Second.seconds(), 3600),
            minutes: RecentSamples::new(HistoryStep::Minute.seconds(), 24 * 60),
            today: HistoryDay::new(i64::MIN),
            cached: VecDeque::new(),
        };
        Self(Arc::new(HistoryState { files, samples: Mutex::new(samples) }))
    }

    pub(super) fn files(&self) -> &dyn HistoryFiles {
        &*self.0.files
    }

    pub(super) fn samples(&self) -> MutexGuard<'_, KeptSamples> {
        self.0.samples.lock().expect("nothing panics with the lock held")
    }

    /// Keeps the history of a site until the future is dropped.
    pub async fn run(self, world: World, site: SiteHandle, notices: NoticeSender) {
        let mut keeper = HistoryKeeper::begin(self, &world, &site, notices);
        loop {
            // To the next whole second: a slot has one look.
            let nanos = world.wall().nanos.min(999_999_999);
            world.sleep(Duration::from_nanos(u64::from(1_000_000_000 - nanos))).await;
            keeper.look(&world, &site);
        }
    }

    /// The samples of a series.
    ///
    /// # Errors
    ///
    /// The period has too many of them, or none.
    pub fn ask(
        &self,
        key: &SeriesKey,
        period: &HistoryPeriod,
    ) -> Result<(HistoryAnswer, Vec<String>), PeriodRefusal> {
        period.check()?;
        let step = period.step.unwrap_or_else(|| self.finest(period));
        let slots = period.slots(step.seconds());
        let first_unix_s = slots.start * step.seconds();
        let mut problems = Vec::new();
        let samples = match step {
            HistoryStep::Second | HistoryStep::Minute => {
                let known = self.samples();
                let recent = if step == HistoryStep::Second { &known.seconds } else { &known.minutes };
                slots.map(|slot| recent.sample(key, slot)).collect()
            }
            HistoryStep::FiveMinutes => {
                let mut days = SlotReader::new(self);
                let of_slot = |slot| days.at(slot).and_then(|(day, in_day)| day.sample(key, in_day));
                let samples = slots.map(of_slot).collect();
                problems = days.problems;
                samples
            }
        };
        Ok((HistoryAnswer { step, first_unix_s, samples }, problems))
    }

    /// The series that have samples of five minutes in a period, by their newest names, and problems with days that cannot
    /// be read.
    ///
    /// # Errors
    ///
    /// The period has too many samples, or none.
    pub fn series(&self, period: &HistoryPeriod) -> Result<(Vec<KnownSeries>, Vec<String>), PeriodRefusal> {
        period.check()?;
        let (mut known, mut problems) = (BTreeMap::new(), Vec::new());
        let days = period.slots(DAY_SECONDS);
        for number in days {
            match self.day(number) {
                Ok(Some(day)) => {
                    let first = number * DAY_SECONDS;
                    let is_in = |slot: usize| {
                        let at = first + slot as i64 * SLOT_SECONDS;
                        at + SLOT_SECONDS > period.from_unix_s && at < period.to_unix_s
                    };
                    let slots: Vec<usize> = day.recorded_slots().filter(|slot| is_in(*slot)).collect();
                    let has_io = |key: SeriesKey| {
                        let idle =
                            |slot: &usize| day.sample(&key, *slot).is_none_or(|sample| sample.is_idle());
                        !slots.iter().all(idle)
                    };
                    let own = day.known().filter(|series| has_io(series.key));
                    known.extend(own.map(|series| (series.key, series)));
                    if day.left_out > 0 {
                        problems.push(format!(
                            "{}: {} busy volumes have no samples of their own, as {SERIES_MAX} others had; they are in the sums of their pools",
                            date_of(number),
                            day.left_out
                        ));
                    }
                }
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        Ok((known.into_values().collect(), problems))
    }

    /// The finest step that has the whole period, as far as anything has it.
    fn finest(&self, period: &HistoryPeriod) -> HistoryStep {
        let first = self.first_recorded(period);
        let known = self.samples();
        let has = |step: &HistoryStep| {
            let recent = match step {
                HistoryStep::Second => &known.seconds,
                HistoryStep::Minute => &known.minutes,
                HistoryStep::FiveMinutes => return true,
            };
            let oldest = recent.oldest().map(|slot| slot * recent.step_s());
            let with_step = HistoryPeriod { step: Some(*step), ..*period };
            // Nothing older is known: a slot of five minutes may have begun before the server.
            let is_first = |oldest: i64| match first {
                Some(first) => oldest < first + SLOT_SECONDS,
                None => oldest < period.to_unix_s,
            };
            oldest.is_some_and(|oldest| oldest <= period.from_unix_s || is_first(oldest))
                && with_step.check().is_ok()
        };
        HistoryStep::ALL.into_iter().find(has).expect("the last one has all")
    }

    /// Begin of the first slot of five minutes that was recorded in a period.
    fn first_recorded(&self, period: &HistoryPeriod) -> Option<i64> {
        let mut slots = period.slots(SLOT_SECONDS);
        let mut days = SlotReader::new(self);
        let found = slots.find(|slot| days.at(*slot).is_some_and(|(day, in_day)| day.recorded[in_day]));
        found.map(|slot| slot * SLOT_SECONDS)
    }

    /// A day; `None` if nothing of it was recorded.
    ///
    /// # Errors
    ///
    /// It cannot be read: the reason in words.
    fn day(&self, number: i64) -> Result<Option<Arc<HistoryDay>>, String> {
        {
            let mut known = self.samples();
            if known.today.day == number {
                return Ok(Some(Arc::new(known.today.clone())));
            }
            if let Some(at) = known.cached.iter().position(|(cached, _)| *cached == number) {
                let found = known.cached.remove(at).expect("it is there");
                known.cached.push_back(found.clone());
                return Ok(Some(found.1));
            }
        }
        let cannot = |why: String| format!("the history of {} cannot be read: {why}", date_of(number));
        let bytes = match self.0.files.read(number) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error.to_string())),
        };
        let day = Arc::new(decode_day(&bytes).map_err(|error| cannot(error.to_string()))?);
        let mut known = self.samples();
        known.cached.push_back((number, Arc::clone(&day)));
        while known.cached.len() > CACHED_DAYS {
            known.cached.pop_front();
        }
        Ok(Some(day))
    }
}
