//! The allowed contents of each sector: an atomic register, checked by the order of operations.
//!
//! Every operation on a sector takes effect at some moment between its start and its end as the caller sees
//! them. An unacknowledged one takes effect before the pool is opened again, or never. An operation explains
//! a read if it began before the read ended, unless another one that is known to have happened lies wholly
//! between the two.
//!
//! A power cut may lose operations acknowledged from a write cache. The pool's log has one order, so the lost
//! operations are its end: no lost operation ended before a surviving one began, or before a stable one
//! began.
//!
//! Invariants:
//!
//! 1. The candidates of a sector include every operation that may explain a read in flight or a later one. A
//!    sector without an entry is zero, and always was.
//! 2. `begun` is before `done`; a candidate without `done` may still happen.
//! 3. Operations that a power cut may restore are kept: a candidate is dropped only for a stable one.

use super::{
    content::{OperationNumber, SectorContent},
    frozen::FrozenRegister,
};
use std::{collections::BTreeMap, ops::Range};

/// Logical time: counts the starts and ends of operations that callers see, in order.
pub type LogicalTime = u64;

/// The end of an operation still in flight.
const NEVER: LogicalTime = LogicalTime::MAX;

/// Candidates of a sector beyond which invisible ones are searched and dropped.
const CANDIDATES_KEPT: usize = 5;

/// The interval of a read, or of the cut of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub begun: LogicalTime,
    pub ended: LogicalTime,
}

/// An operation that a sector may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    operation: OperationNumber,
    /// It leaves zeroes.
    is_zeroes: bool,
    pub(super) begun: LogicalTime,
    /// If it happened at all, it did so by then.
    done: LogicalTime,
    /// It did happen, or will by `done`.
    is_certain: bool,
    /// It is guaranteed to survive a power cut.
    is_stable: bool,
    /// A read of this operation has shown that the candidate is over; a power cut may restore it.
    over_by: Option<OperationNumber>,
    /// It was acknowledged, and the last power cut may have lost it.
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
    const fn new(operation: OperationNumber, begun: LogicalTime) -> Self {
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

    /// A known content.
    pub(super) fn known(found: SectorContent) -> Self {
        match found {
            SectorContent::Zeroes => BEGINNING,
            SectorContent::Of(operation) => Self::new(operation, 0),
        }
    }

    pub(super) fn explains(&self, found: SectorContent) -> bool {
        match found {
            SectorContent::Zeroes => self.is_zeroes,
            SectorContent::Of(operation) => self.operation == operation,
        }
    }

    /// True if it is over and replaced for reads that begin at `moment` or later.
    fn is_hidden(&self, among: &[Self], moment: LogicalTime) -> bool {
        among.iter().any(|other| other.is_certain && self.is_before(other, moment))
    }

    fn is_before(&self, other: &Self, moment: LogicalTime) -> bool {
        self.done < other.begun && other.done < moment
    }

    /// True if it survives a power cut, given that everything completed before `until` is stable.
    fn survives(&self, until: LogicalTime) -> bool {
        self.is_stable || (self.is_certain && self.done < until)
    }

    /// True if no read that begins at `moment` or later can see it, even after a power cut.
    fn is_gone_for_good(&self, among: &[Self], moment: LogicalTime, until: LogicalTime) -> bool {
        among.iter().any(|other| {
            let hides =
                (other.is_certain && self.is_before(other, moment)) || self.over_by == Some(other.operation);
            hides && other.survives(until)
        })
    }
}

pub(super) fn explanations(candidates: &[Candidate], found: SectorContent, span: Interval) -> Vec<usize> {
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

/// The allowed contents of a volume's sectors.
#[derive(Clone, Debug, Default)]
pub struct Register {
    sectors: BTreeMap<u64, Vec<Candidate>>,
    /// Discards and truncations in flight, with the range they clear.
    clearing: Vec<(Range<u64>, Candidate)>,
    /// Operations completed before this are stable.
    stable_until: LogicalTime,
}

/// The lost end of the log at a power cut, as far as reads have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    pub at: LogicalTime,
    /// Operations completed before this have survived.
    pub survived: LogicalTime,
    /// Operations begun after this are lost.
    pub gone: LogicalTime,
}

impl PowerCut {
    pub fn new(at: LogicalTime) -> Self {
        Self { at, survived: 0, gone: NEVER }
    }
}

impl Register {
    /// The register of a branch that begins at a cut, requested at `begun`: all that the cut may show was
    /// there at that moment, and survives.
    pub(super) fn of_fork(sectors: impl Iterator<Item = (u64, Vec<Candidate>)>, begun: LogicalTime) -> Self {
        let at_fork = |candidate: Candidate| Candidate {
            begun,
            done: begun,
            is_certain: true,
            is_stable: true,
            over_by: None,
            is_doubtful: false,
            ..candidate
        };
        let sectors = sectors.map(|(sector, all)| (sector, all.into_iter().map(at_fork).collect()));
        Self { sectors: sectors.collect(), ..Self::default() }
    }

    /// Starts a write to all of `sectors`. No read in flight began before `horizon`.
    pub fn begin_write(
        &mut self,
        sectors: Range<u64>,
        operation: OperationNumber,
        now: LogicalTime,
        horizon: LogicalTime,
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

    /// Starts an operation that zeroes `sectors`.
    pub fn begin_zeroes(&mut self, sectors: Range<u64>, operation: OperationNumber, now: LogicalTime) {
        let candidate = Candidate { is_zeroes: true, ..Candidate::new(operation, now) };
        for (_, candidates) in self.sectors.range_mut(sectors.clone()) {
            candidates.push(candidate);
        }
        self.clearing.push((sectors, candidate));
    }

    /// Acknowledges an operation: it has happened. A stable one survives power cuts.
    pub fn acknowledge(
        &mut self,
        sectors: Range<u64>,
        operation: OperationNumber,
        now: LogicalTime,
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

    /// Withdraws an operation that did not happen, or was undone at once.
    pub fn withdraw(&mut self, sectors: Range<u64>, operation: OperationNumber) {
        for (_, candidates) in self.sectors.range_mut(sectors) {
            candidates.retain(|candidate| candidate.operation != operation);
        }
        self.clearing.retain(|(_, candidate)| candidate.operation != operation);
    }

    /// Zeroes everything from `first` on, whatever was acknowledged before; operations in flight may still
    /// happen.
    pub fn clear_from(&mut self, first: u64, now: LogicalTime) {
        for (_, candidates) in self.sectors.range_mut(first..) {
            candidates.push(Candidate { begun: now, done: now, ..BEGINNING });
        }
    }

    /// Marks everything completed before `until` as surviving power cuts.
    pub fn is_stable_until(&mut self, until: LogicalTime) {
        self.stable_until = self.stable_until.max(until);
    }

    /// Applies a power cut, which loses the end of what is not stable. The loss of an earlier cut is decided,
    /// unless the pool was not opened since.
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

    /// Records what a read of `found` shows about the end of the log lost in a power cut.
    pub fn learn(&self, sector: u64, found: SectorContent, span: Interval, cut: &mut PowerCut) {
        let Some(candidates) = self.sectors.get(&sector) else { return };
        let [only] = explanations(candidates, found, span)[..] else { return };
        let seen = candidates[only];
        if seen.begun >= cut.at {
            return;
        }
        cut.survived = cut.survived.max(seen.begun);
        let gone = candidates.iter().filter(|other| other.is_doubtful && seen.done < other.begun);
        cut.gone = gone.map(|other| other.done).fold(cut.gone, LogicalTime::min);
    }

    /// Decides all operations without a result after the pool was opened again: what has not happened by now
    /// never will.
    pub fn settle(&mut self, now: LogicalTime) {
        for candidate in self.sectors.values_mut().flatten() {
            candidate.done = candidate.done.min(now);
        }
        self.clearing.clear();
    }

    /// Checks a read against the allowed contents. `is_alone`: no other read or cut is in flight, so
    /// operations that this one has shown to be over are dropped.
    ///
    /// # Errors
    ///
    /// The allowed contents, in words.
    pub fn check(
        &mut self,
        sector: u64,
        found: SectorContent,
        span: Interval,
        is_alone: bool,
    ) -> Result<(), String> {
        let Some(candidates) = self.sectors.get_mut(&sector) else {
            let is_zeroes = found == SectorContent::Zeroes;
            return if is_zeroes { Ok(()) } else { Err("zeroes: the sector was never written".to_owned()) };
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

    /// Records that an operation happened before the cut of a snapshot that shows it.
    pub fn note_seen(&mut self, sector: u64, operation: OperationNumber, ended: LogicalTime) {
        for candidate in self.sectors.get_mut(&sector).into_iter().flatten() {
            if candidate.operation == operation {
                candidate.done = candidate.done.min(ended);
                (candidate.is_certain, candidate.is_stable) = (true, true);
            }
        }
    }

    /// Checks whether a read may return this, and learns nothing from it.
    ///
    /// # Errors
    ///
    /// The allowed contents, in words.
    pub fn may_show(&self, sector: u64, found: SectorContent, span: Interval) -> Result<(), String> {
        let candidates = self.sectors.get(&sector).cloned();
        let sectors = candidates.map(|candidates| (sector, candidates)).into_iter().collect();
        let mut alone = Self { sectors, ..Self::default() };
        alone.check(sector, found, span, false)
    }

    /// Accepts any content: drives may have lost anything.
    pub fn believe(&mut self, sector: u64, found: SectorContent, now: LogicalTime) {
        let operation = match found {
            SectorContent::Zeroes => OperationNumber(0),
            SectorContent::Of(operation) => operation,
        };
        let is_zeroes = found == SectorContent::Zeroes;
        let known = Candidate { operation, is_zeroes, begun: now, done: now, ..BEGINNING };
        self.sectors.insert(sector, vec![known]);
    }

    /// Sectors ever written, as runs of at most `most` neighbours.
    pub fn touched(&self, most: u64) -> Vec<Range<u64>> {
        runs_of(self.sectors.keys().copied(), most)
    }

    /// The allowed contents of a cut of the first `end` sectors, made in `span`.
    pub fn freeze(&self, end: u64, span: Interval) -> FrozenRegister {
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

/// A read returned one of `explaining`: all other candidates done before it began are over.
fn forget_what_is_over(
    candidates: &mut Vec<Candidate>,
    explaining: &[usize],
    span: Interval,
    until: LogicalTime,
) {
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

    fn span(begun: LogicalTime, ended: LogicalTime) -> Interval {
        Interval { begun, ended }
    }

    fn may_show(register: &Register, found: SectorContent, span: Interval) -> bool {
        register.clone().check(5, found, span, false).is_ok()
    }

    /// A written and acknowledged, B in flight.
    fn one_and_a_half() -> Register {
        let mut register = Register::default();
        register.begin_write(5..6, A, 1, 0);
        register.acknowledge(5..6, A, 2, true);
        register.begin_write(5..6, B, 3, 0);
        register
    }

    #[test]
    fn a_read_shows_the_last_acknowledged_write_or_one_in_flight_and_nothing_older() {
        let mut register = one_and_a_half();
        assert!(may_show(&register, SectorContent::Of(A), span(4, 5)));
        assert!(may_show(&register, SectorContent::Of(B), span(4, 5)));
        assert!(!may_show(&register, SectorContent::Zeroes, span(4, 5)));
        assert!(may_show(&register, SectorContent::Zeroes, span(0, 5)), "that read began before");
        register.acknowledge(5..6, B, 6, true);
        assert!(!may_show(&register, SectorContent::Of(A), span(7, 8)));
        assert!(may_show(&register, SectorContent::Of(A), span(5, 8)));
        assert!(!may_show(&register, SectorContent::Of(C), span(5, 8)));
    }

    #[test]
    fn a_write_that_was_seen_has_happened() {
        let mut register = one_and_a_half();
        register.check(5, SectorContent::Of(B), span(4, 5), false).unwrap();
        assert!(!may_show(&register, SectorContent::Of(A), span(6, 7)));
        assert!(
            may_show(&register, SectorContent::Of(A), span(4, 7)),
            "a read as old as the write may be late"
        );
    }

    #[test]
    fn after_a_crash_an_unacknowledged_write_has_happened_or_never_will() {
        let mut register = one_and_a_half();
        register.settle(10);
        assert!(may_show(&register, SectorContent::Of(A), span(11, 12)));
        assert!(may_show(&register, SectorContent::Of(B), span(11, 12)));
        register.check(5, SectorContent::Of(A), span(11, 12), true).unwrap();
        assert!(!may_show(&register, SectorContent::Of(B), span(13, 14)));
        assert!(may_show(&register, SectorContent::Of(A), span(13, 14)));
    }

    #[test]
    fn zeroes_may_come_before_or_after_a_concurrent_write() {
        let mut register = Register::default();
        register.begin_zeroes(0..10, A, 1);
        register.begin_write(5..6, B, 2, 0);
        register.acknowledge(5..6, B, 3, true);
        assert!(may_show(&register, SectorContent::Zeroes, span(4, 5)));
        register.acknowledge(0..10, A, 6, true);
        assert!(may_show(&register, SectorContent::Zeroes, span(7, 8)));
        assert!(may_show(&register, SectorContent::Of(B), span(7, 8)));
        register.begin_zeroes(0..10, C, 9);
        register.acknowledge(0..10, C, 10, true);
        assert!(!may_show(&register, SectorContent::Of(B), span(11, 12)));
    }

    #[test]
    fn a_snapshot_is_immutable_and_consistent() {
        let mut register = one_and_a_half();
        let mut frozen = register.freeze(9, span(4, 5));
        register.acknowledge(5..6, B, 6, true);
        assert!(frozen.clone().check(5, SectorContent::Zeroes).is_err());
        frozen.check(5, SectorContent::Of(B)).unwrap();
        assert!(frozen.check(5, SectorContent::Of(A)).is_err(), "it has shown something else");
        assert_eq!(frozen.latest_seen(), 3);
        let mut other = one_and_a_half().freeze(9, span(1, 9));
        other.check(5, SectorContent::Zeroes).unwrap();
        assert!(other.check_behind(1).is_ok());
        assert!(other.check_behind(3).is_err(), "what was answered before that began is missing");
    }

    #[test]
    fn a_power_cut_loses_only_what_is_not_stable() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, false);
        assert!(!may_show(&register, SectorContent::Of(A), span(5, 6)), "B was answered");
        register.check(5, SectorContent::Of(B), span(5, 6), true).unwrap();
        let mut flushed = register.clone();
        flushed.is_stable_until(7);
        for register in [&mut register, &mut flushed] {
            register.lose_power(true);
            register.settle(10);
        }
        assert!(may_show(&register, SectorContent::Of(A), span(11, 12)), "B was only in the cache");
        assert!(may_show(&register, SectorContent::Of(B), span(11, 12)));
        assert!(!may_show(&register, SectorContent::Zeroes, span(11, 12)), "A was stable");
        assert!(!may_show(&flushed, SectorContent::Of(A), span(11, 12)), "and B is, after a flush");
    }

    #[test]
    fn a_power_cut_loses_the_end_of_the_log() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, false);
        register.begin_write(7..8, C, 5, 0);
        register.acknowledge(7..8, C, 6, false);
        register.lose_power(true);
        register.settle(10);
        let mut cut = PowerCut::new(8);
        register.learn(5, SectorContent::Of(A), span(11, 12), &mut cut);
        assert_eq!((cut.survived, cut.gone), (1, 4), "B is gone");
        register.learn(7, SectorContent::Of(C), span(11, 12), &mut cut);
        assert_eq!((cut.survived, cut.gone), (5, 4), "C is there, and began when B was over");
    }

    #[test]
    fn sectors_behind_a_truncation_stay_zero() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4, true);
        register.clear_from(5, 6);
        assert!(!may_show(&register, SectorContent::Of(B), span(7, 8)));
        assert!(may_show(&register, SectorContent::Zeroes, span(7, 8)));
    }
}
