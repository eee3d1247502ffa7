//! The log files of one signature, in the order of their generations.

use super::{FileContents, FileFacts, LogName, NamedFindings, names::NamePattern, parse};
use crate::{
    finding::{FileFinding, FileLocation},
    log::LogFacts,
};
use maildb::{
    format::header::{LogPosition, Signature},
    log::last_with_records,
};

pub struct ChainLog<'a> {
    pub name: &'a str,
    pub facts: &'a LogFacts,
    pub is_damaged: bool,
}

pub struct LogChain<'a> {
    pub signature: Signature,
    /// In ascending order of generations; more than one of a generation only in an inconsistent set.
    links: Vec<ChainLog<'a>>,
}

pub fn of(files: &[FileFacts]) -> Vec<LogChain<'_>> {
    let mut chains: Vec<LogChain<'_>> = Vec::new();
    for file in files {
        let FileContents::Log(facts) = &file.facts else { continue };
        let link = ChainLog { name: &file.name, facts, is_damaged: file.is_damaged };
        match chains.iter_mut().find(|chain| chain.signature == facts.signature) {
            Some(chain) => chain.links.push(link),
            None => chains.push(LogChain { signature: facts.signature, links: vec![link] }),
        }
    }
    for chain in &mut chains {
        chain.leave_out_reused();
        chain.links.sort_by_key(|link| (link.facts.generation, link.name));
    }
    chains
}

fn is_temporary(link: &ChainLog<'_>) -> bool {
    matches!(parse(link.name), Some(LogName::Temporary(_)))
}

impl LogChain<'_> {
    /// The newest generation present.
    pub fn newest(&self) -> u32 {
        self.links.last().map_or(0, |link| link.facts.generation)
    }

    pub fn get(&self, generation: u32) -> Option<&ChainLog<'_>> {
        let at = self.links.partition_point(|link| link.facts.generation < generation);
        self.links.get(at).filter(|link| link.facts.generation == generation)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.name)
    }

    /// The generations from `first` to `last` that are missing, as ranges.
    pub fn missing(&self, first: u32, last: u32) -> Vec<(u32, u32)> {
        let mut missing = Vec::new();
        let mut wanted = u64::from(first);
        for link in &self.links {
            let there = u64::from(link.facts.generation);
            if there > wanted && wanted <= u64::from(last) {
                missing.push((wanted as u32, last.min(there as u32 - 1)));
            }
            wanted = wanted.max(there + 1);
        }
        if wanted <= u64::from(last) {
            missing.push((wanted as u32, last));
        }
        missing
    }

    fn between(&self, first: u32, last: u32) -> impl Iterator<Item = &ChainLog<'_>> {
        self.links.iter().filter(move |link| (first..=last).contains(&link.facts.generation))
    }

    /// The name of a damaged log of these generations.
    pub fn damaged_between(&self, first: u32, last: u32) -> Option<&str> {
        let is_damaged = |link: &&ChainLog<'_>| {
            link.is_damaged || self.problem_at_end(link).is_some() && self.is_proven(link)
        };
        self.between(first, last).find(is_damaged).map(|link| link.name)
    }

    /// The name of a log of these generations that does not continue the log before it, if that is present.
    pub fn broken_between(&self, first: u32, last: u32) -> Option<&str> {
        let pairs = self.links.windows(2).filter(|pair| is_next(pair) && !is_successor(pair));
        let mut broken = pairs.map(|pair| &pair[1]);
        broken
            .find(|link| link.facts.generation > first && link.facts.generation <= last)
            .map(|link| link.name)
    }

    /// With circular logging an old log file is prepared to be the next one: it keeps its old header until
    /// then, and is no longer part of the log.
    fn leave_out_reused(&mut self) {
        let others = self.links.iter().filter(|link| !is_temporary(link));
        let newest = others.map(|link| link.facts.generation).max().unwrap_or(0);
        self.links.retain(|link| !is_temporary(link) || link.facts.generation > newest);
    }

    /// Reports the defects of the chain itself.
    pub fn find(&self, names: &NamePattern, findings: &mut NamedFindings) {
        for pair in self.links.windows(2) {
            let (before, link) = (&pair[0], &pair[1]);
            let (from, to) = (before.facts.generation, link.facts.generation);
            let told = if to == from {
                let what = format!("it is generation {to:#x}, as {} is", before.name);
                Some(FileFinding::warning(FileLocation::FILE, what))
            } else if to > from + 1 {
                let what = format!("before it {} missing", names.are(from + 1, to - 1));
                Some(FileFinding::warning(FileLocation::FILE, what))
            } else if !is_successor(pair) {
                let what =
                    format!("it is not the successor of {}: that was made at another time", before.name);
                Some(FileFinding::damage(FileLocation::FILE, what))
            } else {
                None
            };
            findings.extend(told.map(|finding| (link.name.to_owned(), finding)));
        }
        for link in &self.links {
            let finding = self.problem_at_end(link).map(|what| {
                if self.is_proven(link) {
                    FileFinding::damage(FileLocation::FILE, what)
                } else {
                    FileFinding::warning(FileLocation::FILE, what)
                }
            });
            findings.extend(finding.map(|finding| (link.name.to_owned(), finding)));
            if let Some(LogName::Archived(_, named)) = parse(link.name)
                && named != link.facts.generation
            {
                let what =
                    format!("its name says generation {named:#x}, its header {:#x}", link.facts.generation);
                findings.push((link.name.to_owned(), FileFinding::warning(FileLocation::FILE, what)));
            }
        }
    }

    /// True if the next log's statement about the end of this one is reliable: in Spindle's logs, where the
    /// end is torn, or where the statement holds for another pair of this log. No consecutive logs of
    /// Exchange were available.
    fn is_proven(&self, link: &ChainLog<'_>) -> bool {
        let next = link.facts.generation.checked_add(1).and_then(|generation| self.get(generation));
        let is_ours = next.is_some_and(|next| next.facts.previous_end.is_some());
        let holds = |pair: &[ChainLog<'_>]| {
            let recorded = pair[1].facts.previous_accumulated;
            is_next(pair) && recorded.is_some() && recorded == pair[0].facts.accumulated.last().copied()
        };
        is_ours || link.facts.is_torn || self.links.windows(2).any(holds)
    }

    /// The mismatch between a log's end and the next log's statement about it.
    fn problem_at_end(&self, link: &ChainLog<'_>) -> Option<String> {
        let next = self.get(link.facts.generation.checked_add(1)?)?.facts;
        if next.previous_created != link.facts.created || link.is_damaged {
            return None;
        }
        let accumulated = &link.facts.accumulated;
        let found = match next.previous_end {
            Some(end) => accumulated_until(accumulated, end)?,
            None => accumulated.last().copied().unwrap_or(0),
        };
        match next.previous_accumulated {
            Some(recorded) if recorded != found => {
                Some("its records are not those that the next log says it ended with".to_owned())
            }
            None if link.facts.is_torn => {
                Some("it ends in bytes that do not verify, and the next log had been begun".to_owned())
            }
            _ => None,
        }
    }
}

/// XOR of the segments with records below `end`; `None` if the log ends before.
fn accumulated_until(accumulated: &[u64], end: LogPosition) -> Option<u64> {
    match last_with_records(end) {
        0 => Some(0),
        last => Some(accumulated.get(usize::from(last) - 1).copied().unwrap_or(0)),
    }
}

fn is_next(pair: &[ChainLog<'_>]) -> bool {
    pair[0].facts.generation.checked_add(1) == Some(pair[1].facts.generation)
}

fn is_successor(pair: &[ChainLog<'_>]) -> bool {
    pair[0].facts.created == pair[1].facts.previous_created
}
