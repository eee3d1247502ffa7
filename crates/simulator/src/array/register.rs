//! What each sector of a volume may hold: an atomic register, checked by who may have come after whom.
//!
//! Every operation on a sector happened at some moment between its beginning and its end, as the caller saw them; one
//! that was never answered happened before the pool was opened again, or never. A read is explained by an
//! operation that had begun when the read ended, unless another one, known to have happened, lies wholly between
//! the two.
//!
//! Invariants:
//!
//! 1. The candidates of a sector hold every operation a read that is under way, or begins later, may be explained by.
//!    A sector without an entry is zero, and always was.
//! 2. `begun` is before `done`; a candidate without `done` may still happen.

use super::content::{Content, OperationNumber};
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
struct Candidate {
    operation: OperationNumber,
    /// It leaves zeroes.
    is_zeroes: bool,
    begun: Event,
    /// If it happened at all, it did so by then.
    done: Event,
    /// It did happen, or will by `done`.
    is_certain: bool,
}

const BEGINNING: Candidate =
    Candidate { operation: OperationNumber(0), is_zeroes: true, begun: 0, done: 0, is_certain: true };

impl Candidate {
    fn explains(&self, found: Content) -> bool {
        match found {
            Content::Zeroes => self.is_zeroes,
            Content::Of(operation) => self.operation == operation,
        }
    }

    /// Whether this one must be over and replaced for whoever looks from `moment` on.
    fn is_hidden(&self, among: &[Self], moment: Event) -> bool {
        among.iter().any(|other| other.is_certain && self.done < other.begun && other.done < moment)
    }
}

fn explanations(candidates: &[Candidate], found: Content, span: Span) -> Vec<usize> {
    let explaining = candidates.iter().enumerate().filter(|(_, candidate)| {
        candidate.explains(found)
            && candidate.begun < span.ended
            && !candidate.is_hidden(candidates, span.begun)
    });
    explaining.map(|(index, _)| index).collect()
}

fn in_words(candidates: &[Candidate]) -> String {
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
        let candidate = Candidate { operation, is_zeroes: false, begun: now, done: NEVER, is_certain: false };
        for sector in sectors {
            let clearing = &self.clearing;
            let candidates = self.sectors.entry(sector).or_insert_with(|| {
                let under_way = clearing.iter().filter(|(range, _)| range.contains(&sector));
                std::iter::once(BEGINNING).chain(under_way.map(|(_, candidate)| *candidate)).collect()
            });
            if candidates.len() > CANDIDATES_KEPT {
                let all = candidates.clone();
                candidates.retain(|candidate| !candidate.is_hidden(&all, horizon));
            }
            candidates.push(candidate);
        }
    }

    /// `sectors` are about to become zero.
    pub fn begin_zeroes(&mut self, sectors: Range<u64>, operation: OperationNumber, now: Event) {
        let candidate = Candidate { operation, is_zeroes: true, begun: now, done: NEVER, is_certain: false };
        for (_, candidates) in self.sectors.range_mut(sectors.clone()) {
            candidates.push(candidate);
        }
        self.clearing.push((sectors, candidate));
    }

    /// An operation was answered: it has happened.
    pub fn acknowledge(&mut self, sectors: Range<u64>, operation: OperationNumber, now: Event) {
        for (_, candidates) in self.sectors.range_mut(sectors) {
            for candidate in candidates.iter_mut().filter(|candidate| candidate.operation == operation) {
                candidate.done = candidate.done.min(now);
                candidate.is_certain = true;
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
            let mut index = 0;
            candidates.retain(|candidate| {
                let stays = explaining.contains(&index) || candidate.done >= span.begun;
                index += 1;
                stays
            });
        }
        Ok(())
    }

    /// A snapshot shows that an operation happened before its cut was done.
    pub fn note_seen(&mut self, sector: u64, operation: OperationNumber, ended: Event) {
        for candidate in self.sectors.get_mut(&sector).into_iter().flatten() {
            if candidate.operation == operation {
                candidate.done = candidate.done.min(ended);
                candidate.is_certain = true;
            }
        }
    }

    /// Believes what is found: drives may have lost anything.
    pub fn believe(&mut self, sector: u64, found: Content, now: Event) {
        let operation = match found {
            Content::Zeroes => OperationNumber(0),
            Content::Of(operation) => operation,
        };
        let is_zeroes = found == Content::Zeroes;
        let known = Candidate { operation, is_zeroes, begun: now, done: now, is_certain: true };
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
                candidate.begun < span.ended && !candidate.is_hidden(candidates, span.begun)
            });
            (sector, FrozenSector { candidates: visible.copied().collect(), seen: None })
        });
        FrozenRegister { span, sectors: frozen.collect() }
    }
}

fn runs_of(sectors: impl Iterator<Item = u64>, most: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for sector in sectors {
        match runs.last_mut() {
            Some(run) if run.end == sector && run.end - run.start < most => run.end += 1,
            _ => runs.push(sector..sector + 1),
        }
    }
    runs
}

#[derive(Clone, Debug)]
struct FrozenSector {
    candidates: Vec<Candidate>,
    seen: Option<Content>,
}

/// What a snapshot of a volume may show: what it showed once, it shows for ever.
#[derive(Clone, Debug)]
pub struct FrozenRegister {
    span: Span,
    sectors: BTreeMap<u64, FrozenSector>,
}

impl FrozenRegister {
    /// When the cut was made.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Holds what a read found against what was there at the cut, and before.
    ///
    /// # Errors
    ///
    /// What it might have found, in words.
    pub fn check(&mut self, sector: u64, found: Content) -> Result<(), String> {
        let Some(frozen) = self.sectors.get_mut(&sector) else {
            let is_zeroes = found == Content::Zeroes;
            return if is_zeroes { Ok(()) } else { Err("zeroes, for nobody had written there".to_owned()) };
        };
        match frozen.seen {
            Some(seen) if seen == found => Ok(()),
            Some(seen) => Err(format!("{seen:?}, as it was read before")),
            None if explanations(&frozen.candidates, found, self.span).is_empty() => {
                Err(in_words(&frozen.candidates))
            }
            None => {
                frozen.seen = Some(found);
                Ok(())
            }
        }
    }

    /// Whether every sector was read.
    pub fn is_known(&self) -> bool {
        self.sectors.values().all(|frozen| frozen.seen.is_some())
    }

    /// The latest beginning among the operations that were seen: the cut lies behind it.
    pub fn latest_seen(&self) -> Event {
        let seen = self.sectors.values().filter_map(|frozen| {
            let Some(seen @ Content::Of(_)) = frozen.seen else { return None };
            frozen
                .candidates
                .iter()
                .find(|candidate| candidate.explains(seen))
                .map(|candidate| candidate.begun)
        });
        seen.max().unwrap_or(0)
    }

    /// Holds what was seen against a cut that lies behind `moment`, for another part of it shows what began then.
    ///
    /// # Errors
    ///
    /// A sector, and what it may show, in words.
    pub fn check_behind(&self, moment: Event) -> Result<(), (u64, String)> {
        let span = Span { begun: moment.max(self.span.begun), ..self.span };
        for (&sector, frozen) in &self.sectors {
            if let Some(seen) = frozen.seen
                && explanations(&frozen.candidates, seen, span).is_empty()
            {
                return Err((sector, format!("{seen:?} out of {}", in_words(&frozen.candidates))));
            }
        }
        Ok(())
    }

    /// Sectors that may show anything but zeroes, as runs of neighbours, none longer than `most`.
    pub fn touched(&self, most: u64) -> Vec<Range<u64>> {
        runs_of(self.sectors.keys().copied(), most)
    }

    /// Operations that were seen, by sector.
    pub fn seen(&self) -> impl Iterator<Item = (u64, OperationNumber)> {
        self.sectors.iter().filter_map(|(&sector, frozen)| match frozen.seen {
            Some(Content::Of(operation)) => Some((sector, operation)),
            _ => None,
        })
    }

    /// Believes what is found: drives may have lost anything.
    pub fn believe(&mut self, sector: u64, found: Content) {
        self.sectors.insert(sector, FrozenSector { candidates: Vec::new(), seen: Some(found) });
    }
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
        register.acknowledge(5..6, A, 2);
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
        register.acknowledge(5..6, B, 6);
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
        register.acknowledge(5..6, B, 3);
        assert!(may_show(&register, Content::Zeroes, span(4, 5)));
        register.acknowledge(0..10, A, 6);
        assert!(may_show(&register, Content::Zeroes, span(7, 8)));
        assert!(may_show(&register, Content::Of(B), span(7, 8)));
        register.begin_zeroes(0..10, C, 9);
        register.acknowledge(0..10, C, 10);
        assert!(!may_show(&register, Content::Of(B), span(11, 12)));
    }

    #[test]
    fn a_snapshot_keeps_what_it_showed_and_lies_at_one_moment() {
        let mut register = one_and_a_half();
        let mut frozen = register.freeze(9, span(4, 5));
        register.acknowledge(5..6, B, 6);
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
    fn behind_a_cut_off_end_nothing_comes_back() {
        let mut register = one_and_a_half();
        register.acknowledge(5..6, B, 4);
        register.clear_from(5, 6);
        assert!(!may_show(&register, Content::Of(B), span(7, 8)));
        assert!(may_show(&register, Content::Zeroes, span(7, 8)));
    }
}
