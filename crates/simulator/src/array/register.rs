//! What each sector of a volume may hold: an atomic register, checked by who may have come after whom.
//!
//! Every operation on a sector happened at some moment between its beginning and its end, as the caller saw them; one
//! that was never answered happened before the pool was opened again, or never. A read is explained by an
//! operation that had begun when the read ended, unless another one, known to have happened, lies wholly between
//! the two.
//!
//! A power cut may take what was answered from a write cache. The pool's log is one order, so what is taken is the end of
//! it: nothing that was over before something else that survived began, and nothing that was over before something
//! that is stable began.
//!
//! Invariants:
//!
//! 1. The candidates of a sector hold every operation a read that is under way, or begins later, may be explained by.
//!    A sector without an entry is zero, and always was.
//! 2. `begun` is before `done`; a candidate without `done` may still happen.
//! 3. What a power cut may bring back is kept: a candidate is forgotten only for one that is stable.

use super::{
    content::{Content, OperationNumber},
    frozen::FrozenRegister,
};
use std::{collections::BTreeMap, ops::Range};

/// Counts what callers see happen: beginnings and answers, in their order.
pub type Event = u64;

/// An end that has not come.
const NEVER: Event = Event::MAX;

/// Candidates of a sector beyond which those that can no longer be seen are looked for.
const CANDIDATES_KEPT: usize = 5;

/// From when to when a read, or the cut of a snapshot, was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it was asked for.
    pub begun: Event,
    /// When it was answered.
    pub ended: Event,
}

/// An operation that a sector may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    operation: OperationNumber,
    /// It leaves zeroes.
    is_zeroes: bool,
    pub(super) begun: Event,
    /// If it happened at all, it did so by then.
    done: Event,
    /// It did happen, or will by `done`.
    is_certain: bool,
    /// It was promised to survive a power cut.
    is_stable: bool,
    /// A read has shown it to be over, for it found this one; a power cut may bring it back.
    over_by: Option<OperationNumber>,
    /// It was answered, and the last power cut may have taken it.
    is_doubtful: bool,
}

const BEGINNING: Candidate = Candidate {
    is_zeroes: true,
    done: 0,
    is_certain: true,
    is_stable: true,
    ..Candidate::new(OperationNumber(0), 0)
};

impl Candidate {
    const fn new(operation: OperationNumber, begun: Event) -> Self {
        Self {
            operation,
            is_zeroes: false,
            begun,
            done: NEVER,
            is_certain: false,
            is_stable: false,
            over_by: None,
            is_doubtful: false,
        }
    }

    pub(super) fn explains(&self, found: Content) -> bool {
        match found {
            Content::Zeroes => self.is_zeroes,
            Content::Of(operation) => self.operation == operation,
        }
    }

    /// Whether this one must be over and replaced for whoever looks from `moment` on.
    fn is_hidden(&self, among: &[Self], moment: Event) -> bool {
        among.iter().any(|other| other.is_certain && self.is_before(other, moment))
    }

    fn is_before(&self, other: &Self, moment: Event) -> bool {
        self.done < other.begun && other.done < moment
    }

    /// Whether it survives a power cut, all being stable that was over before `until`.
    fn survives(&self, until: Event) -> bool {
        self.is_stable || (self.is_certain && self.done < until)
    }

    /// Whether nobody who looks from `moment` on can see it, also after a power cut.
    fn is_gone_for_good(&self, among: &[Self], moment: Event, until: Event) -> bool {
        among.iter().any(|other| {
            let hides =
                (other.is_certain && self.is_before(other, moment)) || self.over_by == Some(other.operation);
            hides && other.survives(until)
        })
    }
}

pub(super) fn explanations(candidates: &[Candidate], found: Content, span: Span) -> Vec<usize> {
    let explaining = candidates.iter().enumerate().filter(|(_, candidate)| {
        candidate.explains(found)
            && candidate.over_by.is_none()
            && candidate.begun < span.ended
            && !candidate.is_hidden(candidates, span.begun)
    });
    explaining.map(|(index, _)| index).collect()
}

pub(super) fn in_words(candidates: &[Candidate]) -> String {
    let words = candidates.iter().map(|candidate| {
        let done = if candidate.done == NEVER { "?".to_owned() } else { candidate.done.to_string() };
        let kind = if candidate.is_zeroes { " (zeroes)" } else { "" };
        let doubt = if candidate.is_certain { "" } else { " perhaps" };
        format!("{}{kind} at {}..{done}{doubt}", candidate.operation.0, candidate.begun)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Register {
    sectors: BTreeMap<u64, Vec<Candidate>>,
    /// Discards and cut-off ends that are under way, and what they were told to clear.
    clearing: Vec<(Range<u64>, Candidate)>,
    /// What was over before is stable.
    stable_until: Event,
}

/// What the end of the log that a power cut took may be, as far as reads have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// When it was.
    pub at: Event,
    /// What was over before has survived.
    pub survived: Event,
    /// What began later has not.
    pub gone: Event,
}

impl PowerCut {
    /// Nothing is known yet.
    pub fn new(at: Event) -> Self {
        Self { at, survived: 0, gone: NEVER }
    }
}

impl Register {
    /// A write to all of `sectors` begins. Nobody who looks is older than `horizon`.
    pub fn begin_write(
        &mut self,
        sectors: Range<u64>,
        operation: OperationNumber,
        now: Event,
        horizon: Event,
    ) {
        let (candidate, until) = (Candidate::new(operation, now), self.stable_until);
        for sector in sectors {
            let clearing = &self.clearing;
            let candidates = self.sectors.entry(sector).or_insert_with(|| {
                let under_way = clearing.iter().filter(|(range, _)| range.contains(&sector));
                std::iter::once(BEGINNING).chain(under_way.map(|(_, candidate)| *candidate)).collect()
            });
            if candidates.len() > CANDIDATES_KEPT {
                let all = candidates.clone();
                candidates.retain(|candidate| !candidate.is_gone_for_good(&all, horizon, until));
            }
            candidates.push(candidate);
        }
    }

    /// `sectors` are about to become zero.
    pub fn begin_zeroes(&mut self, sectors: Range<u64>, operation: OperationNumber, now: Event) {
        let candidate = Candidate { is_zeroes: true, ..Candidate::new(operation, now) };
        for (_, candidates) in self.sectors.range_mut(sectors.clone()) {
            candidates.push(candidate);
        }
        self.clearing.push((sectors, candidate));
    }

    /// An operation was answered: it has happened. Stable: a power cut does not take it.
    pub fn acknowledge(
        &mut self,
        sectors: Range<u64>,
        operation: OperationNumber,
        now: Event,
        is_stable: bool,
    ) {
        for (_, candidates) in self.sectors.range_mut(sectors) {
            for candidate in candidates.iter_mut().filter(|candidate| candidate.operation == operation) {
                candidate.done = candidate.done.min(now);
                candidate.is_certain = true;
                candidate.is_stable |= is_stable;
            }
        }
        self.clearing.retain(|(_, candidate)| candidate.operation != operation);
    }

    /// An operation has turned out not to have happened, or to have been undone at once.
    pub fn withdraw(&mut self, sectors: Range<u64>, operation: OperationNumber) {
        for (_, candidates) in self.sectors.range_mut(sectors) {
            candidates.retain(|candidate| candidate.operation != operation);
        }
        self.clearing.retain(|(_, candidate)| candidate.operation != operation);
    }

    /// From `first` on all is zero, whatever was answered before; what is under way may still come.
    pub fn clear_from(&mut self, first: u64, now: Event) {
        for (_, candidates) in self.sectors.range_mut(first..) {
            candidates.push(Candidate { begun: now, done: now, ..BEGINNING });
        }
    }

    /// What was over before `until` survives power cuts.
    pub fn is_stable_until(&mut self, until: Event) {
        self.stable_until = self.stable_until.max(until);
    }

    /// A power cut took the end of what is not stable. What an earlier one may have taken is settled, unless the pool
    /// was not opened since.
    pub fn lose_power(&mut self, was_opened_since: bool) {
        let until = self.stable_until;
        for candidate in self.sectors.values_mut().flatten() {
            candidate.over_by = None;
            candidate.is_doubtful &= !was_opened_since;
            if candidate.is_certain && !candidate.survives(until) {
                (candidate.is_certain, candidate.is_doubtful) = (false, true);
            }
        }
    }

    /// What a read that found `found` shows of the end of the log that a power cut took.
    pub fn learn(&self, sector: u64, found: Content, span: Span, cut: &mut PowerCut) {
        let Some(candidates) = self.sectors.get(&sector) else { return };
        let [only] = explanations(candidates, found, span)[..] else { return };
        let seen = candidates[only];
        if seen.begun >= cut.at {
            return;
        }
        cut.survived = cut.survived.max(seen.begun);
        let gone = candidates.iter().filter(|other| other.is_doubtful && seen.done < other.begun);
        cut.gone = gone.map(|other| other.done).fold(cut.gone, Event::min);
    }

    /// Nobody waits for answers any more, and the pool was opened again: what has not happened by now never will.
    pub fn settle(&mut self, now: Event) {
        for candidate in self.sectors.values_mut().flatten() {
            candidate.done = candidate.done.min(now);
        }
        self.clearing.clear();
    }

    /// Holds what a read found against what it may find. `is_alone`: no other read or cut is under way, and what
    /// this one has shown to be past is forgotten.
    ///
    /// # Errors
    ///
    /// What it might have found, in words.
    pub fn check(&mut self, sector: u64, found: Content, span: Span, is_alone: bool) -> Result<(), String> {
        let Some(candidates) = self.sectors.get_mut(&sector) else {
            let is_zeroes = found == Content::Zeroes;
            return if is_zeroes { Ok(()) } else { Err("zeroes, for nobody wrote there".to_owned()) };
        };
        let explaining = explanations(candidates, found, span);
        match explaining[..] {
            [] => return Err(in_words(candidates)),
            [only] => {
                candidates[only].is_certain = true;
                candidates[only].done = candidates[only].done.min(span.ended);
            }
            _ => {}
        }
        if is_alone {
            forget_what_is_over(candidates, &explaining, span, self.stable_until);
        }
        Ok(())
    }

    /// A snapshot shows that an operation happened before its cut was done.
    pub fn note_seen(&mut self, sector: u64, operation: OperationNumber, ended: Event) {
        for candidate in self.sectors.get_mut(&sector).into_iter().flatten() {
            if candidate.operation == operation {
                candidate.done = candidate.done.min(ended);
                (candidate.is_certain, candidate.is_stable) = (true, true);
            }
        }
    }

    /// Whether a read may find this; nothing is learnt from it.
    ///
    /// # Errors
    ///
    /// What it might have found, in words.
    pub fn may_show(&self, sector: u64, found: Content, span: Span) -> Result<(), String> {
        let candidates = self.sectors.get(&sector).cloned();
        let sectors = candidates.map(|candidates| (sector, candidates)).into_iter().collect();
        let mut alone = Self { sectors, ..Self::default() };
        alone.check(sector, found, span, false)
    }

    /// Believes what is found: drives may have lost anything.
    pub fn believe(&mut self, sector: u64, found: Content, now: Event) {
        let operation = match found {
            Content::Zeroes => OperationNumber(0),
            Content::Of(operation) => operation,
        };
        let is_zeroes = found == Content::Zeroes;
        let known = Candidate { operation, is_zeroes, begun: now, done: now, ..BEGINNING };
        self.sectors.insert(sector, vec![known]);
    }

    /// Sectors that were ever written, as runs of neighbours, none longer than `most`.
    pub fn touched(&self, most: u64) -> Vec<Range<u64>> {
        runs_of(self.sectors.keys().copied(), most)
    }

    /// What a cut of the first `end` sectors, made in `span`, may show.
    pub fn freeze(&self, end: u64, span: Span) -> FrozenRegister {
        let frozen = self.sectors.range(..end).map(|(&sector, candidates)| {
            let visible = candidates.iter().filter(|candidate| {
                candidate.over_by.is_none()
                    && candidate.begun < span.ended
                    && !candidate.is_hidden(candidates, span.begun)
            });
            (sector, visible.copied().collect())
        });
        FrozenRegister::new(span, frozen)
    }
}

/// A read found one of `explaining`: all others that were done before it began are over.
fn forget_what_is_over(candidates: &mut Vec<Candidate>, explaining: &[usize], span: Span, until: Event) {
    let is_stable = explaining.iter().all(|&index| candidates[index].survives(until));
    let only = match explaining {
        [only] => Some(candidates[*only].operation),
        _ => None,
    };
    let mut index = 0;
    candidates.retain_mut(|candidate| {
        let is_over = !explaining.contains(&index) && candidate.done < span.begun;
        index += 1;
        if is_over && !is_stable {
            candidate.over_by = candidate.over_by.or(only);
        }
        !(is_over && is_stable)
    });
}

pub(super) fn runs_of(sectors: impl Iterator<Item = u64>, most: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for sector in sectors {
        match runs.last_mut() {
            Some(run) if run.end == sector && run.end - run.start < most => run.end += 1,
            _ => runs.push(sector..sector + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OperationNumber = OperationNumber(1);
    const B: OperationNumber = OperationNumber(2);
    const C: OperationNumber = OperationNumber(3);

    fn span(begun: Event, ended: Event) -> Span {
        Span { begun, ended }
    }

    fn may_show(register: &Register, found: Content, span: Span) -> bool {
        register.clone().check(5, found, span, false).is_ok()
    }

    /// A written and answered, B asked for.
    fn one_and_a_half() -> Register {
        let mut register = Register::default();
        register.begin_write(5..6, A, 1, 0);
        register.acknowledge(5..6, A, 2, true);
        register.begin_write(5..6, B, 3, 0);
        register
    }

    #[test]
    fn a_read_shows_the_last_write_answered_or_one_under_way_and_nothing_older() {
        let mut register = one_and_a_half();
        assert!(may_show(&register, Content::Of(A), span(4, 5)));
        assert!(may_show(&register, Content::Of(B), span(4, 5)));
        assert!(!may_show(&register, Content::Zeroes, span(4, 5)));
        assert!(may_show(&register, Content::Zeroes, span(0, 5)), "that read began before");
        register.acknowledge(5..6, B, 6, true);
        assert!(!may_show(&register, Content::Of(A), span(7, 8)));
        assert!(may_show(&register, Content::Of(A), span(5, 8)));
        assert!(!may_show(&register, Content::Of(C), span(5, 8)));
    }

    #[test]
    fn a_write_that_was_seen_has_happened() {
        let mut register = one_and_a_half();
        register.check(5, Content::Of(B), span(4, 5), false).unwrap();
        assert!(!may_show(&register, Content::Of(A), span(6, 7)));
        assert!(may_show(&register, Content::Of(A), span(4, 7)), "a read as old as the write may be late");
    }

    #[test]
    fn after_a_crash_an_unanswered_write_is_there_or_not_for_good() {
        let mut register = one_and_a_half();
        register.settle(10);
        assert!(may_show(&register, Content::Of(A), span(11, 12)));
        assert!(may_show(&register, Content::Of(B), span(11, 12)));
        register.check(5, Content::Of(A), span(11, 12), true).unwrap();
        assert!(!may_show(&register, Content::Of(B), span(13, 14)));
        assert!(may_show(&register, Content::Of(A), span(13, 14)));
    }

    #[test]
    fn zeroes_may_come_before_or_after_a_write_that_begins_meanwhile() {
        let mut register = Register::default();
        register.begin_zeroes(0..10, A, 1);
        register.begin_write(5..6, B, 2, 0);
        register.acknowledge(5..6, B, 3, true);
        assert!(may_show(&register, Content::Zeroes, span(4, 5)));
        register.acknowledge(0..10, A, 6, true);
        assert!(may_show(&register, Content::Zeroes, span(7, 8)));
        assert!(may_show(&register, Content::Of(B), span(7, 8)));
        register.begin_zeroes(0..10, C, 9);
        register.acknowledge(0..10, C, 10, true);
        assert!(!may_show(&register, Content::Of(B), span(11, 12)));
    }

    #[test]
    fn a_snapshot_keeps_what_it_showed_and_lies_at_one_moment() {
        let mut register = one_and_a_half();
        let mut frozen = register.freeze(9, span(4, 5));
        register.acknowledge(5..6, B, 6, true);
        assert!(frozen.clone().check(5, Content::Zeroes).is_err());
        frozen.check(5, Content::Of(B)).unwrap();
        assert!(frozen.check(5, Content::Of(A)).is_err(), "it has shown something else");
        assert_eq!(frozen.latest_seen(), 3);
        let mut other = one_and_a_half().freeze(9, span(1, 9));
        other.check(5, Content::Zeroes).unwrap();
        assert!(other.check_behind(1).is_ok());
        assert!(other.check_behind(3).is_err(), "what was answered before that began is missing");
    }

    #[test]
    fn a_power_cut_may_take_what_is_not_stable_and_nothing_else() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, false);
        assert!(!may_show(&register, Content::Of(A), span(5, 6)), "B was answered");
        register.check(5, Content::Of(B), span(5, 6), true).unwrap();
        let mut flushed = register.clone();
        flushed.is_stable_until(7);
        for register in [&mut register, &mut flushed] {
            register.lose_power(true);
            register.settle(10);
        }
        assert!(may_show(&register, Content::Of(A), span(11, 12)), "B was only in the cache");
        assert!(may_show(&register, Content::Of(B), span(11, 12)));
        assert!(!may_show(&register, Content::Zeroes, span(11, 12)), "A was stable");
        assert!(!may_show(&flushed, Content::Of(A), span(11, 12)), "and B is, after a flush");
    }

    #[test]
    fn what_a_power_cut_takes_is_the_end_of_the_log() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, false);
        register.begin_write(7..8, C, 5, 0);
        register.acknowledge(7..8, C, 6, false);
        register.lose_power(true);
        register.settle(10);
        let mut cut = PowerCut::new(8);
        register.learn(5, Content::Of(A), span(11, 12), &mut cut);
        assert_eq!((cut.survived, cut.gone), (1, 4), "B is gone");
        register.learn(7, Content::Of(C), span(11, 12), &mut cut);
        assert_eq!((cut.survived, cut.gone), (5, 4), "C is there, and began when B was over");
    }

    #[test]
    fn behind_a_cut_off_end_nothing_comes_back() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, true);
        register.clear_from(5, 6);
        assert!(!may_show(&register, Content::Of(B), span(7, 8)));
        assert!(may_show(&register, Content::Zeroes, span(7, 8)));
    }
}
