//! Initiators from which a unit is withheld, because its contents changed under them.
//!
//! What they cached belongs to contents that are no more. They send a command again after a unit attention, and over a new
//! session, so neither protects anything: a mounted filesystem would write today's cache over yesterday's contents.
//!
//! Invariants:
//!
//! 1. An initiator is withheld from until each nexus that it had has logged out by command, or somebody readmits it. A
//!    session that breaks, a new one, or a logout that the target asked for changes nothing.
//! 2. That holds for nexuses that an earlier process withheld from, too: they come back as if nothing had happened.
//! 3. A nexus counts as had by its initiator from its first session on until it logs out by command: its session may
//!    have broken just before, and come back.

use super::reservations::Nexus;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use tokio::sync::Notify;

/// Most nexuses remembered whose sessions broke.
const BROKEN_MAX: usize = 4096;

/// The way in which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The initiator closed the session by command, of its own accord: it has nothing more to write.
    LoggedOut,
    /// The connection broke, the session was replaced, or the target has asked for the logout.
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
    /// Notified when a nexus has logged out from which the unit was withheld.
    logouts: Rc<Notify>,
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
            let was_withheld = nexuses.remove(nexus);
            if nexuses.is_empty() {
                self.withheld.remove(initiator);
            }
            if was_withheld {
                self.logouts.notify_one();
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

    /// Withholds the unit from nexuses of earlier sessions, which have not logged out.
    pub fn withhold_from(&mut self, nexuses: impl IntoIterator<Item = Nexus>) {
        for nexus in nexuses {
            if !self.sessions.contains_key(&nexus) && self.broken.len() < BROKEN_MAX {
                self.broken.insert(nexus.clone());
            }
            self.withheld.entry(nexus.initiator().to_owned()).or_default().insert(nexus);
        }
    }

    /// Withholds the unit no more from these initiators. What is known of their nexuses stays known.
    pub fn take_back(&mut self, initiators: &[String]) {
        self.withheld.retain(|initiator, _| !initiators.contains(initiator));
    }

    /// Nexuses with sessions, or whose sessions broke, and those that must log out: each may have cached something.
    pub fn known_nexuses(&self) -> BTreeSet<Nexus> {
        let must_log_out = self.withheld.values().flatten();
        self.sessions.keys().chain(&self.broken).chain(must_log_out).cloned().collect()
    }

    /// Nexuses that must log out.
    pub fn nexuses(&self) -> impl Iterator<Item = &Nexus> {
        self.withheld.values().flatten()
    }

    pub fn set_logouts(&mut self, logouts: &Rc<Notify>) {
        self.logouts = Rc::clone(logouts);
    }

    pub fn is_withheld(&self, nexus: &Nexus) -> bool {
        !self.withheld.is_empty() && self.withheld.contains_key(nexus.initiator())
    }

    /// Readmits an initiator. False if the unit is not withheld from it.
    pub fn readmit(&mut self, initiator: &str) -> bool {
        self.broken.retain(|nexus| nexus.initiator() != initiator);
        self.withheld.remove(initiator).is_some()
    }

    /// Initiators with sessions, sorted.
    pub fn logged_in(&self) -> Vec<String> {
        let names: BTreeSet<String> =
            self.sessions.keys().map(|nexus| nexus.initiator().to_owned()).collect();
        names.into_iter().collect()
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
        assert_eq!(unit.known_nexuses().len(), 3);
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
    fn an_initiator_of_an_earlier_process_has_to_log_out_with_all_its_nexuses() {
        let mut unit = Withholding::default();
        let (one, two, other) = (nexus("a", 1), nexus("a", 2), nexus("b", 1));
        unit.withhold_from([one.clone(), two.clone()]);
        unit.begin_session(&other);
        assert!(unit.is_withheld(&one) && unit.is_withheld(&nexus("a", 3)) && !unit.is_withheld(&other));
        for nexus in [&one, &two] {
            unit.begin_session(nexus);
            unit.end_session(nexus, SessionEnd::Broken);
            unit.begin_session(nexus);
        }
        // A nexus of later does not count.
        unit.begin_session(&nexus("a", 3));
        unit.end_session(&nexus("a", 3), SessionEnd::LoggedOut);
        unit.end_session(&one, SessionEnd::LoggedOut);
        assert_eq!(unit.nexuses().collect::<Vec<_>>(), [&two]);
        unit.end_session(&two, SessionEnd::LoggedOut);
        assert!(!unit.is_withheld(&one) && unit.nexuses().next().is_none());
    }

    #[test]
    fn a_rollback_after_one_that_failed_knows_sessions_that_broke_before() {
        let mut unit = Withholding::default();
        let own = nexus("a", 1);
        unit.begin_session(&own);
        unit.end_session(&own, SessionEnd::Broken);
        let initiators = unit.withhold();
        unit.take_back(&initiators);
        assert!(!unit.is_withheld(&own));
        assert_eq!(unit.withhold(), ["iqn.x:a"], "it may still come back");
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
