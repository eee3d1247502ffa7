//! Search strategy: the next level to try, given the outcomes of earlier trials.
//!
//! Pure: no clock, no I/O, no randomness. Invariants:
//!
//! 1. Passed levels lie below failed ones: both lists ascend, and the last of `passed` is less than the first
//!    of `failed`.
//! 2. A level counts as failed only after it has failed twice in a row, so one disturbed trial decides
//!    nothing. The lowest failed level is tried again next to the highest passed one, so a disturbed period
//!    decides nothing either.
//! 3. The search ends after at most `probes_max` probes and `holds_max` holds.
//!
//! The level doubles until one fails (or halves until one passes); the interval is narrowed to 5 %; then the
//! highest passed level is tried again, then the lowest failed one. If that passes now, it is no bound any
//! more and the search continues upwards. The highest passed level is held. If the hold fails, the level
//! steps back by 5 % and then by more, as TechNet ff459238 says: raise until a test fails, then step back.
//!
//! Storage that nothing can overload is no failure: the search then ends at the limit of the machine or of
//! the options ([`SearchBound`]).

use serde::{Deserialize, Serialize};

/// The search ends when failed / passed is at most this.
pub const RESOLUTION: f64 = 1.05;
/// Failures of a boundary, beyond the first two, before the search accepts it.
const RECHECKS: u32 = 3;
/// Level after each failed hold as a share of it: in total 95, 90, 83, 71, 53, 34, 17 % of the first.
const STEPS_BACK: [f64; 7] = [0.95, 0.95, 0.92, 0.85, 0.75, 0.65, 0.5];
/// Maximum share for the last allowed hold, which should succeed.
const LAST_STEP_BACK: f64 = 0.6;
/// Doubling the threads is worthwhile only if IOPS grow at least by this factor (HP Continuous Access,
/// figures 22 and 23: 40 threads did no more than 20).
const GAIN_MIN: f64 = 1.05;
/// Among thread counts that do this share of the most, the lowest is best: it burdens the cache less.
const AS_GOOD: f64 = 0.98;

/// The searched quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchAxis {
    /// Database IOPS of all groups.
    Rate,
    /// Threads of each group, in whole numbers.
    Threads,
}

/// Judgement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Every limit was kept.
    Within,
    /// The storage broke a limit.
    Beyond,
    /// No limit was broken, but the load generator did not reach the target.
    Generator,
    /// No limit was broken, but the target was missed while every session of a group was busy.
    Sessions,
    /// The target was missed or a limit broken while a group's thread used all of its processor: the
    /// measurement reflects the processor as much as the storage.
    Processor,
}

/// The reason a search went no higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchBound {
    /// The search ended early.
    #[default]
    Unfinished,
    /// Higher levels broke a limit.
    Limit,
    /// The generator could not reach higher levels.
    Generator,
    /// Higher levels need more sessions than a group may have.
    Sessions,
    /// Higher levels need more processor than a group's thread has.
    Processor,
    /// More threads did no more.
    Plateau,
    /// The maximum of the options was reached.
    Most,
}

/// Start and bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    pub axis: SearchAxis,
    /// First level.
    pub start: f64,
    /// Minimum level.
    pub least: f64,
    /// Maximum level.
    pub most: f64,
    pub probes_max: u32,
    pub holds_max: u32,
}

/// Next step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// Try this level briefly.
    Probe(f64),
    /// Hold this level for the whole run.
    Hold(f64),
    /// The last hold is the result.
    Done,
}

/// State of a search.
#[derive(Clone, Debug)]
pub struct Search {
    options: SearchOptions,
    next: SearchStep,
    /// Level and achieved IOPS.
    passed: Vec<(f64, f64)>,
    /// Levels that failed twice.
    failed: Vec<(f64, Judgement)>,
    /// A failed level that failed again, with the number of times, each next to a pass of the level below.
    rechecked: Option<(f64, u32)>,
    /// A level that failed once and is to be tried again.
    doubted: Option<f64>,
    /// True if the highest passed level has passed again.
    confirmed: bool,
    plateau: bool,
    probes: u32,
    holds: u32,
}

impl Search {
    /// A search that starts with a probe of `options.start`.
    pub fn new(options: SearchOptions) -> Self {
        assert!(options.least > 0.0 && options.least <= options.most, "a range to search: {options:?}");
        assert!(options.probes_max > 0 && options.holds_max > 0, "something may be tried");
        let start = on_axis(options.axis, options.start).clamp(options.least, options.most);
        Self {
            options,
            next: SearchStep::Probe(start),
            passed: Vec::new(),
            failed: Vec::new(),
            rechecked: None,
            doubted: None,
            confirmed: false,
            plateau: false,
            probes: 0,
            holds: 0,
        }
    }

    pub fn next(&self) -> SearchStep {
        self.next
    }

    /// Number of finished probes.
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Estimated number of further probes.
    pub fn probes_left(&self) -> f64 {
        let most = f64::from(self.options.probes_max - self.probes);
        let narrowing = |low: f64, high: f64| ((high / low).ln() / RESOLUTION.ln()).log2().max(0.0).ceil();
        let guess = match (self.passed.last(), self.failed.first()) {
            (Some((low, _)), Some((high, _))) => narrowing(*low, *high) * 1.5 + 6.0,
            // Two more doublings, and the narrowing after them.
            _ => 2.0 + narrowing(1.0, 2.0) * 1.5 + 2.0,
        };
        guess.min(most)
    }

    /// True if the current or next hold may be followed by another.
    pub fn may_step_back(&self) -> bool {
        self.holds + 1 < self.options.holds_max
    }

    /// The current reason for going no higher.
    pub fn bound(&self) -> SearchBound {
        match (self.failed.first(), self.passed.last()) {
            _ if self.plateau => SearchBound::Plateau,
            (Some((_, Judgement::Generator)), _) => SearchBound::Generator,
            (Some((_, Judgement::Sessions)), _) => SearchBound::Sessions,
            (Some((_, Judgement::Processor)), _) => SearchBound::Processor,
            (Some((_, Judgement::Within | Judgement::Beyond)), _) => SearchBound::Limit,
            (None, Some((level, _))) if *level >= self.options.most => SearchBound::Most,
            (None, _) => SearchBound::Unfinished,
        }
    }

    /// Takes the outcome of the step that [`Search::next`] returned.
    pub fn tell(&mut self, judgement: Judgement, achieved: f64) {
        match self.next {
            SearchStep::Probe(level) => self.tell_probe(level, judgement, achieved),
            SearchStep::Hold(level) => self.tell_hold(level, judgement),
            SearchStep::Done => panic!("the search is over"),
        }
    }

    fn tell_probe(&mut self, level: f64, judgement: Judgement, achieved: f64) {
        self.probes += 1;
        if judgement == Judgement::Within {
            self.doubted = None;
            self.failed.retain(|(failed, _)| *failed > level);
            self.pass(level, achieved);
        } else if self.lowest_failed() == Some(level) {
            let before = self.rechecks_of(level);
            self.rechecked = Some((level, before + 1));
            // First the level below is tried again: a disturbance may be over by then.
            self.confirmed = before + 1 >= RECHECKS;
        } else if self.doubted == Some(level) {
            self.doubted = None;
            self.passed.retain(|(passed, _)| *passed < level);
            self.failed.insert(0, (level, judgement));
            self.confirmed = false;
        } else {
            self.doubted = Some(level);
        }
        self.check();
        self.next = self.after_probe();
    }

    fn pass(&mut self, level: f64, achieved: f64) {
        let best = self.passed.iter().map(|(_, achieved)| *achieved).fold(0.0, f64::max);
        match self.passed.iter_mut().find(|(passed, _)| *passed == level) {
            // It had passed before: this probe confirmed the boundary.
            Some(known) => {
                known.1 = known.1.max(achieved);
                self.confirmed = true;
            }
            None => {
                // Growth is expected only when the threads doubled: steps within an interval are small.
                let doubled =
                    self.options.axis == SearchAxis::Threads && self.failed.is_empty() && best > 0.0;
                self.plateau = doubled && achieved < best * GAIN_MIN;
                self.passed.push((level, achieved));
                self.passed.sort_by(|one, other| one.0.total_cmp(&other.0));
                self.confirmed = false;
            }
        }
    }

    fn after_probe(&self) -> SearchStep {
        let SearchOptions { axis, least, most, probes_max, .. } = self.options;
        let low = self.passed.last().map(|(level, _)| *level);
        let high = self.lowest_failed();
        if self.probes >= probes_max {
            return SearchStep::Hold(self.best().unwrap_or_else(|| high.unwrap_or(least) / 2.0).max(least));
        }
        if let Some(level) = self.doubted {
            return SearchStep::Probe(level);
        }
        match (low, high) {
            (None, None) => unreachable!("a probe passes, fails or is doubted"),
            (None, Some(high)) if high <= least => SearchStep::Hold(least),
            (None, Some(high)) => SearchStep::Probe(on_axis(axis, high / 2.0).max(least)),
            (Some(_), _) if self.plateau => self.boundary(),
            (Some(low), None) if low >= most => self.boundary(),
            (Some(low), None) => SearchStep::Probe((low * 2.0).min(most)),
            (Some(low), Some(high)) if self.is_narrow(low, high) => self.boundary(),
            (Some(low), Some(high)) => {
                SearchStep::Probe(on_axis(axis, (low * high).sqrt()).max(low_step(axis, low)))
            }
        }
    }

    fn lowest_failed(&self) -> Option<f64> {
        self.failed.first().map(|(level, _)| *level)
    }

    fn rechecks_of(&self, level: f64) -> u32 {
        self.rechecked.filter(|(failed, _)| *failed == level).map_or(0, |(_, times)| times)
    }

    /// The next step once the interval is narrow: confirm the best level, then recheck the one above.
    fn boundary(&self) -> SearchStep {
        let best = self.best().expect("only what passed has a boundary");
        match self.lowest_failed() {
            _ if !self.confirmed => SearchStep::Probe(best),
            Some(failed) if self.rechecks_of(failed) < RECHECKS && !self.plateau => SearchStep::Probe(failed),
            _ => SearchStep::Hold(best),
        }
    }

    /// The highest rate that passed, or the lowest thread count that does about as much as any.
    fn best(&self) -> Option<f64> {
        let most = self.passed.iter().map(|(_, achieved)| *achieved).fold(0.0, f64::max);
        match self.options.axis {
            SearchAxis::Rate => self.passed.last().map(|(level, _)| *level),
            SearchAxis::Threads => {
                let as_good = self.passed.iter().find(|(_, achieved)| *achieved >= most * AS_GOOD);
                as_good.map(|(level, _)| *level)
            }
        }
    }

    fn is_narrow(&self, low: f64, high: f64) -> bool {
        high / low <= RESOLUTION || (self.options.axis == SearchAxis::Threads && high - low <= 1.0)
    }

    fn tell_hold(&mut self, level: f64, judgement: Judgement) {
        self.holds += 1;
        let step = STEPS_BACK[(self.holds as usize - 1).min(STEPS_BACK.len() - 1)];
        let is_last = self.holds + 1 == self.options.holds_max;
        let share = if is_last { step.min(LAST_STEP_BACK) } else { step };
        let back = on_axis(self.options.axis, level * share).max(self.options.least);
        let held = judgement == Judgement::Within;
        let over = held || self.holds >= self.options.holds_max || back >= level;
        self.next = if over { SearchStep::Done } else { SearchStep::Hold(back) };
    }

    fn check(&self) {
        assert!(self.passed.windows(2).all(|pair| pair[0].0 < pair[1].0), "invariant 1: {:?}", self.passed);
        assert!(self.failed.windows(2).all(|pair| pair[0].0 < pair[1].0), "invariant 1: {:?}", self.failed);
        if let (Some((low, _)), Some(high)) = (self.passed.last(), self.lowest_failed()) {
            assert!(*low < high, "invariant 1: {low} passed and {high} failed");
        }
        assert!(self.probes <= self.options.probes_max, "invariant 3");
    }
}

/// Rounds a level: rates to a tenth, threads to whole numbers.
fn on_axis(axis: SearchAxis, level: f64) -> f64 {
    match axis {
        SearchAxis::Rate => (level * 10.0).round() / 10.0,
        SearchAxis::Threads => level.floor().max(1.0),
    }
}

/// The lowest level above `low`.
fn low_step(axis: SearchAxis, low: f64) -> f64 {
    match axis {
        SearchAxis::Rate => low,
        SearchAxis::Threads => low + 1.0,
    }
}

#[cfg(test)]
mod tests;
