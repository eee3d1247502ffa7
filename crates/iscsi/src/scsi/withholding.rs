//! Initiators from which a unit is withheld, because its contents changed under them.
//!
//! What they cached belongs to contents that are no more. They send a command again after a unit attention, and over a new
//! session, so neither protects anything: a mounted filesystem would write today's cache over yesterday's contents.
//!
//! Invariants:
//!
//! 1. An initiator is withheld from until each nexus that it had has logged out by command, or somebody readmits it. A
//!    session that breaks, or a new one, changes nothing.
//! 2. A nexus counts as had by its initiator from its first session on until it logs out by command: its session may
//!    have broken just before, and come back.

use super::reservations::Nexus;
use std::collections::{BTreeMap, BTreeSet};

/// Most nexuses remembered whose sessions broke.
const BROKEN_MAX: usize = 4096;

/// The way in which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The initiator closed the session by command: it has nothing more to write.
    LoggedOut,
    /// The connection broke, or the session was replaced.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct Withholding {
    /// Number of sessions of each nexus: two for a moment when one replaces the other.
    sessions: BTreeMap<Nexus, usize>,
    /// Nexuses without a session that have not logged out.
    broken: BTreeSet<Nexus>,
    /// Nexuses that must log out, by initiator.
    withheld: BTreeMap<String, BTreeSet<Nexus>>,
}

impl Withholding {
    /// Begins a session. True if it replaces another one of the nexus, which ends later.
    pub fn begin_session(&mut self, nexus: &Nexus) -> bool {
        let count = self.sessions.entry(nexus.clone()).or_default();
        *count += 1;
        self.broken.remove(nexus);
        *count > 1
    }

    /// Ends a session. True if the nexus has no other.
    pub fn end_session(&mut self, nexus: &Nexus, end: SessionEnd) -> bool {
        let count = self.sessions.get_mut(nexus).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if count > 0 {
            return false;
        }
        self.sessions.remove(nexus);
        match end {
            SessionEnd::LoggedOut => self.log_out(nexus),
            SessionEnd::Broken if self.broken.len() < BROKEN_MAX => _ = self.broken.insert(nexus.clone()),
            SessionEnd::Broken => {}
        }
        true
    }

    fn log_out(&mut self, nexus: &Nexus) {
        self.broken.remove(nexus);
        let initiator = nexus.initiator();
        if let Some(nexuses) = self.withheld.get_mut(initiator) {
            nexuses.remove(nexus);
            if nexuses.is_empty() {
                self.withheld.remove(initiator);
            }
        }
    }

    /// Withholds the unit from all initiators that have a nexus. Returns those from which it was not withheld yet.
    pub fn withhold(&mut self) -> Vec<String> {
        let before: BTreeSet<String> = self.withheld.keys().cloned().collect();
        for nexus in self.sessions.keys().chain(&self.broken) {
            self.withheld.entry(nexus.initiator().to_owned()).or_default().insert(nexus.clone());
        }
        self.withheld.keys().filter(|initiator| !before.contains(*initiator)).cloned().collect()
    }

    pub fn is_withheld(&self, nexus: &Nexus) -> bool {
        !self.withheld.is_empty() && self.withheld.contains_key(nexus.initiator())
    }

    /// Readmits an initiator. False if the unit is not withheld from it.
    pub fn readmit(&mut self, initiator: &str) -> bool {
        self.broken.retain(|nexus| nexus.initiator() != initiator);
        self.withheld.remove(initiator).is_some()
    }

    pub fn initiators(&self) -> Vec<String> {
        self.withheld.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus(initiator: &str, session: u32) -> Nexus {
        Nexus(format!("iqn.x:{initiator},i,0x{session:012x}"))
    }

    #[test]
    fn an_initiator_comes_back_when_all_its_nexuses_have_logged_out() {
        let mut unit = Withholding::default();
        let (one, two, other) = (nexus("a", 1), nexus("a", 2), nexus("b", 1));
        for nexus in [&one, &two, &other] {
            unit.begin_session(nexus);
        }
        // Its session broke before; it may come back with what it has cached.
        assert!(unit.end_session(&two, SessionEnd::Broken));
        assert_eq!(unit.withhold(), ["iqn.x:a", "iqn.x:b"]);
        unit.begin_session(&two);
        assert!(unit.is_withheld(&two) && unit.is_withheld(&one), "a new session changes nothing");
        unit.end_session(&one, SessionEnd::LoggedOut);
        assert!(unit.is_withheld(&two) && unit.is_withheld(&one), "the other has not logged out");
        unit.end_session(&two, SessionEnd::Broken);
        unit.begin_session(&two);
        unit.end_session(&two, SessionEnd::LoggedOut);
        assert!(!unit.is_withheld(&one) && unit.is_withheld(&other));
        assert!(unit.readmit("iqn.x:b") && !unit.readmit("iqn.x:b") && !unit.is_withheld(&other));
        assert_eq!(unit.withhold(), ["iqn.x:b"], "the first has no nexus any more");
    }

    #[test]
    fn a_session_that_replaces_another_keeps_its_nexus() {
        let mut unit = Withholding::default();
        let own = nexus("a", 1);
        assert!(!unit.begin_session(&own) && unit.begin_session(&own));
        assert!(!unit.end_session(&own, SessionEnd::Broken), "the new one is there");
        assert_eq!(unit.withhold(), ["iqn.x:a"]);
        assert!(unit.end_session(&own, SessionEnd::LoggedOut));
        assert!(!unit.is_withheld(&own));
    }
}
