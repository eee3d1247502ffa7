//! The search for the most that stays within limits: what to try next, given how the last trials ended.
//!
//! Pure: no clock, no I/O, no randomness. Invariants:
//!
//! 1. What passed lies below what failed: `passed` ascends, and its last is less than `failed`.
//! 2. Nothing counts as failed that has not failed twice in a row, so one disturbed trial decides nothing.
//! 3. It ends: after at most `probes_max` probes and `holds_max` holds.
//!
//! It doubles until something fails (or halves until something passes), narrows what lies between to 5 %,
//! tries the highest that passed once more, and has it held. What cannot be held is stepped back from, by
//! 5 % and then by 10 %, as TechNet ff459238 says: raise until a test fails, then step back.
//!
//! Storage that nothing can overload is no failure: the search then ends where the machine, or what was
//! allowed, ends ([`Bound`]).

use serde::{Deserialize, Serialize};

/// Passed and failed lie this near to each other when the search is done.
pub const RESOLUTION: f64 = 1.05;
/// Each hold that failed is followed by one at this share of it.
const STEPS_BACK: [f64; 2] = [0.95, 0.90];
/// Twice the threads that make less than this times the I/O are not worth having (seed 000, figures 22 and
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
    /// The lowest that failed, twice.
    failed: Option<(f64, Judgement)>,
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
            failed: None,
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
        let guess = match (self.passed.last(), self.failed) {
            (Some((low, _)), Some((high, _))) => narrowing(*low, high) * 1.5 + 1.0,
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
        match (self.failed, self.passed.last()) {
            _ if self.plateau => Bound::Plateau,
            (Some((_, Judgement::Generator)), _) => Bound::Generator,
            (Some(_), _) => Bound::Limit,
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
            self.pass(level, achieved);
        } else if self.doubted == Some(level) {
            self.doubted = None;
            self.passed.retain(|(passed, _)| *passed < level);
            self.failed = Some((level, judgement));
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
                let doubled = self.options.axis == Axis::Threads && self.failed.is_none() && best > 0.0;
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
        let high = self.failed.map(|(level, _)| level);
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

    /// What passed is tried once more before it is held.
    fn boundary(&self) -> Next {
        let best = self.best().expect("only what passed has a boundary");
        if self.confirmed { Next::Hold(best) } else { Next::Probe(best) }
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
        let share = STEPS_BACK[(self.holds as usize - 1).min(STEPS_BACK.len() - 1)];
        let back = on_axis(self.options.axis, level * share).max(self.options.least);
        let held = judgement == Judgement::Within;
        let over = held || self.holds >= self.options.holds_max || back >= level;
        self.next = if over { Next::Done } else { Next::Hold(back) };
    }

    fn check(&self) {
        assert!(self.passed.windows(2).all(|pair| pair[0].0 < pair[1].0), "invariant 1: {:?}", self.passed);
        if let (Some((low, _)), Some((high, _))) = (self.passed.last(), self.failed) {
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
mod tests {
    use super::*;
    use world::Random;

    /// Storage, modelled: how it answers what is asked of it.
    struct Model {
        /// I/O a second at which latency has no bound.
        capacity: f64,
        /// Latency of an I/O nobody else disturbs, in milliseconds.
        service_ms: f64,
        /// Share of the trials that go wrong for a reason of their own, in percent.
        disturbed_percent: f64,
        /// What the generator can do, in I/O a second.
        generator: f64,
    }

    const LIMIT_MS: f64 = 20.0;

    impl Model {
        /// As M/M/1 has it: 1 / (1 − utilisation).
        fn latency_ms(&self, rate: f64) -> f64 {
            let utilisation = rate / self.capacity;
            if utilisation < 1.0 { self.service_ms / (1.0 - utilisation) } else { f64::INFINITY }
        }

        /// The rate at which latency meets the limit.
        fn highest(&self) -> f64 {
            (self.capacity * (1.0 - self.service_ms / LIMIT_MS)).min(self.generator)
        }

        fn answer(&self, rate: f64, random: &mut Random) -> (Judgement, f64) {
            let done = rate.min(self.capacity).min(self.generator);
            // A latency that was measured is off by some percent.
            let latency_ms = self.latency_ms(done.min(rate)) * (0.97 + 0.06 * random.unit());
            match () {
                () if random.percent(self.disturbed_percent) => (Judgement::Beyond, done * 0.8),
                () if rate > self.generator => (Judgement::Generator, done),
                () if latency_ms > LIMIT_MS => (Judgement::Beyond, done),
                () => (Judgement::Within, done),
            }
        }
    }

    fn options(start: f64) -> SearchOptions {
        SearchOptions { axis: Axis::Rate, start, least: 1.0, most: 10e6, probes_max: 40, holds_max: 3 }
    }

    /// Everything that was tried, and the search when it ended.
    fn searched(
        options: SearchOptions,
        mut answer: impl FnMut(Next) -> (Judgement, f64),
    ) -> (Vec<Next>, Search) {
        let mut search = Search::new(options);
        let mut tried = Vec::new();
        while search.next() != Next::Done {
            tried.push(search.next());
            assert!(tried.len() <= (options.probes_max + options.holds_max) as usize, "it ends: {tried:?}");
            let (judgement, achieved) = answer(search.next());
            search.tell(judgement, achieved);
        }
        (tried, search)
    }

    fn level(next: Next) -> f64 {
        match next {
            Next::Probe(level) | Next::Hold(level) => level,
            Next::Done => panic!("nothing is tried when all is done"),
        }
    }

    fn held(tried: &[Next]) -> f64 {
        assert!(matches!(tried.last(), Some(Next::Hold(_))), "{tried:?}");
        level(*tried.last().unwrap())
    }

    #[test]
    fn the_highest_rate_is_found_within_five_percent_wherever_it_begins() {
        for (capacity, service_ms) in [(80.0, 8.0), (1400.0, 5.0), (20_000.0, 0.2), (250_000.0, 0.05)] {
            for start in [1.0, 50.0, 700.0, 9_000.0, 1e6] {
                let model = Model { capacity, service_ms, disturbed_percent: 0.0, generator: 1e9 };
                let mut random = Random::new(3, "noise");
                let (tried, search) = searched(options(start), |next| model.answer(level(next), &mut random));
                let share = held(&tried) / model.highest();
                assert!((0.90..=1.02).contains(&share), "{share} of {} from {start}", model.highest());
                assert_eq!(search.bound(), Bound::Limit);
            }
        }
    }

    #[test]
    fn a_disturbed_trial_now_and_then_decides_nothing() {
        let mut far_off = 0;
        for seed in 0..500 {
            let model = Model { capacity: 2000.0, service_ms: 4.0, disturbed_percent: 8.0, generator: 1e9 };
            let mut random = Random::new(seed, "noise");
            let (tried, _) = searched(options(300.0), |next| model.answer(level(next), &mut random));
            let share = held(&tried) / model.highest();
            assert!(share <= 1.03, "seed {seed}: {share}, more than the storage can");
            far_off += u32::from(share < 0.80);
        }
        // Two disturbed in a row: 0.64 % of the rates tried, and the last hold may be disturbed, too.
        assert!(far_off <= 50, "{far_off} of 500 were misled");
    }

    #[test]
    fn a_cliff_is_found_like_a_slope() {
        let (tried, _) = searched(options(10.0), |next| match level(next) {
            rate if rate <= 777.0 => (Judgement::Within, rate),
            _ => (Judgement::Beyond, 500.0),
        });
        assert!((740.0..=777.0).contains(&held(&tried)), "{tried:?}");
        assert!(tried.len() < 25, "{} trials", tried.len());
    }

    #[test]
    fn infinitely_fast_storage_ends_at_what_can_be_generated() {
        let model = Model { capacity: 1e12, service_ms: 0.0, disturbed_percent: 0.0, generator: 48_000.0 };
        let mut random = Random::new(1, "noise");
        let (tried, search) = searched(options(500.0), |next| model.answer(level(next), &mut random));
        assert!((45_000.0..=48_000.0).contains(&held(&tried)), "{tried:?}");
        assert_eq!(search.bound(), Bound::Generator);
        let capped = SearchOptions { most: 2000.0, ..options(500.0) };
        let (tried, search) = searched(capped, |next| (Judgement::Within, level(next)));
        assert_eq!((held(&tried), search.bound()), (2000.0, Bound::Most));
    }

    #[test]
    fn nothing_fails_by_one_trial() {
        let mut search = Search::new(options(100.0));
        search.tell(Judgement::Beyond, 90.0);
        assert_eq!(search.next(), Next::Probe(100.0), "tried again");
        search.tell(Judgement::Within, 100.0);
        assert_eq!(search.next(), Next::Probe(200.0), "and it was nothing");
        search.tell(Judgement::Beyond, 150.0);
        search.tell(Judgement::Beyond, 150.0);
        assert_eq!(search.next(), Next::Probe(141.4));
    }

    #[test]
    fn what_passed_by_chance_does_not_pass_the_trial_of_the_boundary() {
        let mut lucky = true;
        let (tried, _) = searched(options(100.0), |next| match level(next) {
            rate if rate <= 130.0 => (Judgement::Within, rate),
            rate if rate < 150.0 && std::mem::take(&mut lucky) => (Judgement::Within, rate),
            rate => (Judgement::Beyond, rate),
        });
        assert!((120.0..=130.0).contains(&held(&tried)), "{tried:?}");
    }

    #[test]
    fn what_cannot_be_held_is_stepped_back_from_and_not_for_ever() {
        let holds = |tried: &[Next]| -> Vec<f64> {
            let held = tried.iter().filter(|next| matches!(next, Next::Hold(_)));
            held.map(|next| level(*next)).collect()
        };
        let answer = |within: f64| {
            move |next| match next {
                Next::Hold(rate) if rate > within => (Judgement::Beyond, rate),
                Next::Probe(rate) if rate > 1000.0 => (Judgement::Beyond, rate),
                next => (Judgement::Within, level(next)),
            }
        };
        let (tried, _) = searched(options(1000.0), answer(960.0));
        assert_eq!(holds(&tried), [1000.0, 950.0]);
        let (tried, _) = searched(options(1000.0), answer(0.0));
        assert_eq!(holds(&tried), [1000.0, 950.0, 855.0]);
    }

    #[test]
    fn storage_that_carries_nothing_is_asked_for_the_least() {
        let (tried, search) = searched(options(100.0), |_| (Judgement::Beyond, 0.5));
        assert_eq!((held(&tried), search.bound()), (1.0, Bound::Limit));
    }

    fn threads(most: f64) -> SearchOptions {
        SearchOptions { axis: Axis::Threads, start: 2.0, least: 1.0, most, probes_max: 25, holds_max: 3 }
    }

    #[test]
    fn threads_are_raised_until_a_limit_is_broken_then_narrowed_to_one() {
        // A closed loop: threads / latency; latency grows by 1 ms a thread from 5 ms on.
        let answer = |next| {
            let threads = level(next);
            assert_eq!(threads.fract(), 0.0, "threads are whole");
            let latency_ms = 5.0 + 0.5 * threads;
            let judgement = if latency_ms <= 20.0 { Judgement::Within } else { Judgement::Beyond };
            (judgement, threads / latency_ms * 1000.0)
        };
        let (tried, search) = searched(threads(128.0), answer);
        assert!((27.0..=30.0).contains(&held(&tried)), "{tried:?}");
        assert_eq!(search.bound(), Bound::Limit);
    }

    #[test]
    fn threads_end_where_more_of_them_do_no_more() {
        // Saturated at 8: more would only wait, and take cache pages from each other.
        let answer = |next| (Judgement::Within, level(next).min(8.0) * 140.0);
        let (tried, search) = searched(threads(128.0), answer);
        assert_eq!((held(&tried), search.bound()), (8.0, Bound::Plateau));
        assert!(tried.iter().all(|next| level(*next) <= 16.0), "no overshoot: {tried:?}");
        let (tried, _) = searched(threads(128.0), |_| (Judgement::Beyond, 10.0));
        assert_eq!(held(&tried), 1.0);
    }
}
