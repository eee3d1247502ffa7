//! The search for the most that stays within limits: what to try next, given how the last trials ended.
//!
//! Pure: no clock, no I/O, no randomness. Invariants:
//!
//! 1. What passed lies below what failed: both ascend, and the last of `passed` is less than the first of `failed`.
//! 2. Nothing counts as failed that has not failed twice in a row, so one disturbed trial decides nothing; and the
//!    lowest that failed is tried again beside the highest that passed twice, so a bad spell decides nothing.
//! 3. It ends: after at most `probes_max` probes and `holds_max` holds.
//!
//! It doubles until something fails (or halves until something passes), narrows what lies between to 5 %,
//! tries the highest that passed once more, then the lowest that failed; what fails no longer is no bound, and the
//! search goes on upwards. The highest that passed is held. What cannot be held is stepped back from, by 5 % and
//! then by ever more, as TechNet ff459238 says: raise until a test fails, then step back.
//!
//! Storage that nothing can overload is no failure: the search then ends where the machine, or what was
//! allowed, ends ([`Bound`]).

use serde::{Deserialize, Serialize};

/// Passed and failed lie this near to each other when the search is done.
pub const RESOLUTION: f64 = 1.05;
/// Times a boundary must fail again before it is believed.
const RECHECKS: u32 = 3;
/// Each hold that failed is followed by one at this share of it: together 95, 90, 83, 71, 53, 34, 17 % of the first.
const STEPS_BACK: [f64; 7] = [0.95, 0.95, 0.92, 0.85, 0.75, 0.65, 0.5];
/// The last that is allowed is at this share at most: it is to give an answer.
const LAST_STEP_BACK: f64 = 0.6;
/// Twice the threads that make less than this times the I/O are not worth having (HP Continuous Access, figures 22 and
/// 23: 40 threads did no more than 20).
const GAIN_MIN: f64 = 1.05;
/// Fewer threads that do this share of the most are as good, and burden the cache less.
const AS_GOOD: f64 = 0.98;

/// What is searched over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Database reads and writes a second, of all groups together.
    Rate,
    /// Simulated threads of each group: whole numbers.
    Threads,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Every limit was kept.
    Within,
    /// The storage broke a limit.
    Beyond,
    /// No limit was broken, but less was done than asked for: the load generator could not.
    Generator,
    /// No limit was broken, but less was done than asked for, while every session of a group was busy.
    Sessions,
    /// Less was done than asked for, or a limit was broken, while the thread of a group used all of its
    /// processor: what was measured is the processor's doing as much as the storage's.
    Processor,
}

/// Why the search went no higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It did not come so far.
    #[default]
    Unfinished,
    /// More broke a limit.
    Limit,
    /// More could not be generated.
    Generator,
    /// More needs more sessions than a group may have.
    Sessions,
    /// More needs more processor than a group's thread has.
    Processor,
    /// More threads did no more.
    Plateau,
    /// More was not allowed.
    Most,
}

/// Where the search begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// What is searched over.
    pub axis: Axis,
    /// What is tried first.
    pub start: f64,
    /// Nothing below is tried.
    pub least: f64,
    /// Nothing above is tried.
    pub most: f64,
    /// Probes at most.
    pub probes_max: u32,
    /// Holds at most.
    pub holds_max: u32,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Try this for a moment.
    Probe(f64),
    /// Hold this for the whole run.
    Hold(f64),
    /// Nothing: the last hold is the answer.
    Done,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    options: SearchOptions,
    next: Next,
    /// What passed, and what was achieved then.
    passed: Vec<(f64, f64)>,
    /// What failed, twice.
    failed: Vec<(f64, Judgement)>,
    /// One of them that has failed again, and how often, each time beside what had just passed again.
    rechecked: Option<(f64, u32)>,
    /// What failed once, and is to be tried again.
    doubted: Option<f64>,
    /// Whether the highest that passed has passed again.
    confirmed: bool,
    plateau: bool,
    probes: u32,
    holds: u32,
}

impl Search {
    /// A search that begins by probing `options.start`.
    pub fn new(options: SearchOptions) -> Self {
        assert!(options.least > 0.0 && options.least <= options.most, "a range to search: {options:?}");
        assert!(options.probes_max > 0 && options.holds_max > 0, "something may be tried");
        let start = on_axis(options.axis, options.start).clamp(options.least, options.most);
        Self {
            options,
            next: Next::Probe(start),
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

    /// What to do next.
    pub fn next(&self) -> Next {
        self.next
    }

    /// Probes that have ended.
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Probes that will still be needed, as far as one can say.
    pub fn probes_left(&self) -> f64 {
        let most = f64::from(self.options.probes_max - self.probes);
        let narrowing = |low: f64, high: f64| ((high / low).ln() / RESOLUTION.ln()).log2().max(0.0).ceil();
        let guess = match (self.passed.last(), self.failed.first()) {
            (Some((low, _)), Some((high, _))) => narrowing(*low, *high) * 1.5 + 6.0,
            // Two more doublings, and what follows them.
            _ => 2.0 + narrowing(1.0, 2.0) * 1.5 + 2.0,
        };
        guess.min(most)
    }

    /// Whether the hold that is next, or under way, may be followed by another.
    pub fn may_step_back(&self) -> bool {
        self.holds + 1 < self.options.holds_max
    }

    /// Why it goes, or went, no higher.
    pub fn bound(&self) -> Bound {
        match (self.failed.first(), self.passed.last()) {
            _ if self.plateau => Bound::Plateau,
            (Some((_, Judgement::Generator)), _) => Bound::Generator,
            (Some((_, Judgement::Sessions)), _) => Bound::Sessions,
            (Some((_, Judgement::Processor)), _) => Bound::Processor,
            (Some((_, Judgement::Within | Judgement::Beyond)), _) => Bound::Limit,
            (None, Some((level, _))) if *level >= self.options.most => Bound::Most,
            (None, _) => Bound::Unfinished,
        }
    }

    /// Takes in how the probe or hold that [`Search::next`] asked for ended, and how much I/O a second it
    /// achieved.
    pub fn tell(&mut self, judgement: Judgement, achieved: f64) {
        match self.next {
            Next::Probe(level) => self.tell_probe(level, judgement, achieved),
            Next::Hold(level) => self.tell_hold(level, judgement),
            Next::Done => panic!("the search is over"),
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
            // In between the one below has its turn: a bad spell may be over by then.
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
            // It has passed before: this was the trial of the boundary.
            Some(known) => {
                known.1 = known.1.max(achieved);
                self.confirmed = true;
            }
            None => {
                // Only twice the threads may be expected to do more: steps within a bracket are small.
                let doubled = self.options.axis == Axis::Threads && self.failed.is_empty() && best > 0.0;
                self.plateau = doubled && achieved < best * GAIN_MIN;
                self.passed.push((level, achieved));
                self.passed.sort_by(|one, other| one.0.total_cmp(&other.0));
                self.confirmed = false;
            }
        }
    }

    fn after_probe(&self) -> Next {
        let SearchOptions { axis, least, most, probes_max, .. } = self.options;
        let low = self.passed.last().map(|(level, _)| *level);
        let high = self.lowest_failed();
        if self.probes >= probes_max {
            return Next::Hold(self.best().unwrap_or_else(|| high.unwrap_or(least) / 2.0).max(least));
        }
        if let Some(level) = self.doubted {
            return Next::Probe(level);
        }
        match (low, high) {
            (None, None) => unreachable!("a probe passes, fails or is doubted"),
            (None, Some(high)) if high <= least => Next::Hold(least),
            (None, Some(high)) => Next::Probe(on_axis(axis, high / 2.0).max(least)),
            (Some(_), _) if self.plateau => self.boundary(),
            (Some(low), None) if low >= most => self.boundary(),
            (Some(low), None) => Next::Probe((low * 2.0).min(most)),
            (Some(low), Some(high)) if self.is_narrow(low, high) => self.boundary(),
            (Some(low), Some(high)) => {
                Next::Probe(on_axis(axis, (low * high).sqrt()).max(low_step(axis, low)))
            }
        }
    }

    fn lowest_failed(&self) -> Option<f64> {
        self.failed.first().map(|(level, _)| *level)
    }

    fn rechecks_of(&self, level: f64) -> u32 {
        self.rechecked.filter(|(failed, _)| *failed == level).map_or(0, |(_, times)| times)
    }

    /// What passed is tried once more before it is held, and then what failed above it.
    fn boundary(&self) -> Next {
        let best = self.best().expect("only what passed has a boundary");
        match self.lowest_failed() {
            _ if !self.confirmed => Next::Probe(best),
            Some(failed) if self.rechecks_of(failed) < RECHECKS && !self.plateau => Next::Probe(failed),
            _ => Next::Hold(best),
        }
    }

    /// The highest rate that passed; of threads the fewest that do about as much as any.
    fn best(&self) -> Option<f64> {
        let most = self.passed.iter().map(|(_, achieved)| *achieved).fold(0.0, f64::max);
        match self.options.axis {
            Axis::Rate => self.passed.last().map(|(level, _)| *level),
            Axis::Threads => {
                let as_good = self.passed.iter().find(|(_, achieved)| *achieved >= most * AS_GOOD);
                as_good.map(|(level, _)| *level)
            }
        }
    }

    fn is_narrow(&self, low: f64, high: f64) -> bool {
        high / low <= RESOLUTION || (self.options.axis == Axis::Threads && high - low <= 1.0)
    }

    fn tell_hold(&mut self, level: f64, judgement: Judgement) {
        self.holds += 1;
        let step = STEPS_BACK[(self.holds as usize - 1).min(STEPS_BACK.len() - 1)];
        let is_last = self.holds + 1 == self.options.holds_max;
        let share = if is_last { step.min(LAST_STEP_BACK) } else { step };
        let back = on_axis(self.options.axis, level * share).max(self.options.least);
        let held = judgement == Judgement::Within;
        let over = held || self.holds >= self.options.holds_max || back >= level;
        self.next = if over { Next::Done } else { Next::Hold(back) };
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

/// `level` as it can be tried: rates to a tenth, threads whole.
fn on_axis(axis: Axis, level: f64) -> f64 {
    match axis {
        Axis::Rate => (level * 10.0).round() / 10.0,
        Axis::Threads => level.floor().max(1.0),
    }
}

/// The least that lies above `low`.
fn low_step(axis: Axis, low: f64) -> f64 {
    match axis {
        Axis::Rate => low,
        Axis::Threads => low + 1.0,
    }
}

#[cfg(test)]
mod tests;
