//! The contents a snapshot of a volume may show: those at its cut.

use super::{
    content::{OperationNumber, SectorContent},
    register::{Candidate, Interval, LogicalTime, Register, explanations, in_words, runs_of},
};
use std::{collections::BTreeMap, ops::Range};

#[derive(Clone, Debug)]
struct FrozenSector {
    candidates: Vec<Candidate>,
    seen: Option<SectorContent>,
}

/// The allowed contents of a snapshot; once read, a content is final.
#[derive(Clone, Debug)]
pub struct FrozenRegister {
    span: Interval,
    sectors: BTreeMap<u64, FrozenSector>,
}

impl FrozenRegister {
    /// The candidates of each sector.
    pub(super) fn new(span: Interval, visible: impl Iterator<Item = (u64, Vec<Candidate>)>) -> Self {
        let frozen = visible.map(|(sector, candidates)| (sector, FrozenSector { candidates, seen: None }));
        Self { span, sectors: frozen.collect() }
    }

    /// The interval of the cut.
    pub fn span(&self) -> Interval {
        self.span
    }

    /// Checks a read against the contents at the cut and against earlier reads.
    ///
    /// # Errors
    ///
    /// The allowed contents, in words.
    pub fn check(&mut self, sector: u64, found: SectorContent) -> Result<(), String> {
        let Some(frozen) = self.sectors.get_mut(&sector) else {
            let is_zeroes = found == SectorContent::Zeroes;
            return if is_zeroes { Ok(()) } else { Err("zeroes: the sector was never written".to_owned()) };
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

    /// Checks whether a read may return this, without regard to earlier reads.
    ///
    /// # Errors
    ///
    /// The allowed contents, in words.
    pub fn may_show(&self, sector: u64, found: SectorContent) -> Result<(), String> {
        let frozen = self.sectors.get(&sector).cloned();
        let sectors = frozen.map(|frozen| (sector, frozen)).into_iter().collect();
        Self { span: self.span, sectors }.check(sector, found)
    }

    /// The register of a branch that begins here, requested at `begun`.
    pub fn fork(&self, begun: LogicalTime) -> Register {
        let visible = self.sectors.iter().map(|(&sector, frozen)| match frozen.seen {
            Some(seen) => (sector, vec![Candidate::known(seen)]),
            None => (sector, frozen.candidates.clone()),
        });
        Register::of_fork(visible, begun)
    }

    /// True if every sector was read.
    pub fn is_known(&self) -> bool {
        self.sectors.values().all(|frozen| frozen.seen.is_some())
    }

    /// The latest start among the operations seen: the cut lies behind it.
    pub fn latest_seen(&self) -> LogicalTime {
        let seen = self.sectors.values().filter_map(|frozen| {
            let Some(seen @ SectorContent::Of(_)) = frozen.seen else { return None };
            frozen
                .candidates
                .iter()
                .find(|candidate| candidate.explains(seen))
                .map(|candidate| candidate.begun)
        });
        seen.max().unwrap_or(0)
    }

    /// Checks the contents seen against a cut behind `moment`, at which an operation began that another part
    /// of the cut shows.
    ///
    /// # Errors
    ///
    /// A sector and its allowed contents, in words.
    pub fn check_behind(&self, moment: LogicalTime) -> Result<(), (u64, String)> {
        let span = Interval { begun: moment.max(self.span.begun), ..self.span };
        for (&sector, frozen) in &self.sectors {
            if let Some(seen) = frozen.seen
                && explanations(&frozen.candidates, seen, span).is_empty()
            {
                return Err((sector, format!("{seen:?} out of {}", in_words(&frozen.candidates))));
            }
        }
        Ok(())
    }

    /// Sectors that may show anything but zeroes, as runs of at most `most` neighbours.
    pub fn touched(&self, most: u64) -> Vec<Range<u64>> {
        runs_of(self.sectors.keys().copied(), most)
    }

    /// Operations seen, by sector.
    pub fn seen(&self) -> impl Iterator<Item = (u64, OperationNumber)> {
        self.sectors.iter().filter_map(|(&sector, frozen)| match frozen.seen {
            Some(SectorContent::Of(operation)) => Some((sector, operation)),
            _ => None,
        })
    }

    /// Accepts any content: drives may have lost anything.
    pub fn believe(&mut self, sector: u64, found: SectorContent) {
        self.sectors.insert(sector, FrozenSector { candidates: Vec::new(), seen: Some(found) });
    }
}
