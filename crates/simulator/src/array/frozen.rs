//! What a snapshot of a volume may show: what was there at its cut.

use super::{
    content::{Content, OperationNumber},
    register::{Candidate, Event, Span, explanations, in_words, runs_of},
};
use std::{collections::BTreeMap, ops::Range};

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
    /// Of each sector what may be seen of it.
    pub(super) fn new(span: Span, visible: impl Iterator<Item = (u64, Vec<Candidate>)>) -> Self {
        let frozen = visible.map(|(sector, candidates)| (sector, FrozenSector { candidates, seen: None }));
        Self { span, sectors: frozen.collect() }
    }

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

    /// Whether a read may find this, whatever was read before.
    ///
    /// # Errors
    ///
    /// What it might have found, in words.
    pub fn may_show(&self, sector: u64, found: Content) -> Result<(), String> {
        let frozen = self.sectors.get(&sector).cloned();
        let sectors = frozen.map(|frozen| (sector, frozen)).into_iter().collect();
        Self { span: self.span, sectors }.check(sector, found)
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
