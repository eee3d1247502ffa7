//! Failed authentications, which are throttled: secrets of people can be guessed.
//!
//! Invariants:
//!
//! 1. Failures are counted for an initiator's name at an address, without its port. After [`FAILURES_MAX`] within
//!    [`WINDOW`], further logins of that name from there are refused unchecked until the window is over. Nobody else
//!    waits: a host with another name, or elsewhere, is checked as ever.
//! 2. At most `SOURCES_MAX` are known; then the oldest is forgotten.

use std::{cell::RefCell, collections::BTreeMap, fmt, time::Duration};
use world::Moment;

/// Failures of a name at an address within [`WINDOW`] after which it has to wait.
pub const FAILURES_MAX: u32 = 10;
/// Time in which failures count together.
pub const WINDOW: Duration = Duration::from_secs(60);
const SOURCES_MAX: usize = 4096;

/// Failures by initiator's name and address.
#[derive(Default)]
pub(super) struct FailedLogins(RefCell<BTreeMap<LoginSource, FailureWindow>>);

/// An initiator's name, and an address without its port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LoginSource {
    initiator: String,
    host: String,
}

struct FailureWindow {
    since: Moment,
    failures: u32,
    is_told: bool,
}

/// Logins that are refused unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottledLogins {
    pub initiator: String,
    /// Address of the initiator, without the port.
    pub host: String,
    /// The first one of its window; the operator need not see the others.
    pub is_news: bool,
}

impl fmt::Display for ThrottledLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { initiator, host, .. } = self;
        write!(
            f,
            "{FAILURES_MAX} failed logins of {initiator} from {host} within a minute: more are refused unchecked until the \
             minute is over; see which host has the wrong secret"
        )
    }
}

impl FailedLogins {
    /// The refusal of a login that is not to be checked.
    pub fn refusal(&self, initiator: &str, peer: &str, now: Moment) -> Option<ThrottledLogins> {
        let source = LoginSource::new(initiator, peer);
        let mut known = self.0.borrow_mut();
        let window = known.get_mut(&source)?;
        if now.since(window.since) >= WINDOW || window.failures < FAILURES_MAX {
            return None;
        }
        let is_news = !std::mem::replace(&mut window.is_told, true);
        let LoginSource { initiator, host } = source;
        Some(ThrottledLogins { initiator, host, is_news })
    }

    /// Counts a failure.
    pub fn add(&self, initiator: &str, peer: &str, now: Moment) {
        let source = LoginSource::new(initiator, peer);
        let mut known = self.0.borrow_mut();
        if known.len() >= SOURCES_MAX && !known.contains_key(&source) {
            let oldest =
                known.iter().min_by_key(|(_, window)| window.since).map(|(source, _)| source.clone());
            known.remove(&oldest.expect("there are some"));
        }
        let new = || FailureWindow { since: now, failures: 0, is_told: false };
        let window = known.entry(source).or_insert_with(new);
        if now.since(window.since) >= WINDOW {
            *window = new();
        }
        window.failures += 1;
    }
}

impl LoginSource {
    fn new(initiator: &str, peer: &str) -> Self {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host).to_owned();
        // Names count without their case.
        Self { initiator: initiator.to_ascii_lowercase(), host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment(second * 1_000_000_000)
    }

    #[test]
    fn a_name_at_an_address_waits_after_ten_failures_and_nobody_else_does() {
        let failed = FailedLogins::default();
        for second in 0..10 {
            assert_eq!(failed.refusal("iqn.x:a", "10.0.0.7:4000", at(second)), None);
            failed.add("iqn.x:a", &format!("10.0.0.7:{}", 4000 + second), at(second));
        }
        let refusal =
            |name, peer, second| failed.refusal(name, peer, at(second)).map(|refusal| refusal.is_news);
        assert_eq!(refusal("IQN.X:A", "10.0.0.7:1", 59), Some(true));
        assert_eq!(refusal("iqn.x:a", "10.0.0.7:2", 59), Some(false), "once");
        assert_eq!(refusal("iqn.x:b", "10.0.0.7:1", 59), None);
        assert_eq!(refusal("iqn.x:a", "10.0.0.8:1", 59), None);
        assert_eq!(refusal("iqn.x:a", "10.0.0.7:1", 60), None);
        failed.add("iqn.x:a", "10.0.0.7:1", at(60));
        assert_eq!(refusal("iqn.x:a", "10.0.0.7:1", 61), None);
    }

    #[test]
    fn the_oldest_source_is_forgotten_when_there_are_too_many() {
        let failed = FailedLogins::default();
        for number in 0..=SOURCES_MAX as u64 {
            failed.add(&format!("iqn.x:{number}"), "10.0.0.7:1", at(number));
        }
        let known = failed.0.borrow();
        assert_eq!(known.len(), SOURCES_MAX);
        assert!(!known.contains_key(&LoginSource::new("iqn.x:0", "10.0.0.7:1")));
    }
}
