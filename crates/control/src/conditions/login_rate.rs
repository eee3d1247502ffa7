//! The rate of failed logins, by thread.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::Moment;

/// Failures within [`WINDOW`] that are many.
const MANY: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Time without many until it is over.
const QUIET: Duration = Duration::from_secs(600);

/// Failed logins of the last minute, and the threads at which there are many.
#[derive(Debug, Default)]
pub(super) struct LoginRate {
    recent: BTreeMap<String, VecDeque<Moment>>,
    /// With the last moment at which there were many.
    many: BTreeMap<String, Moment>,
}

impl LoginRate {
    pub fn add(&mut self, thread: &str, now: Moment) {
        let recent = self.recent.entry(thread.to_owned()).or_default();
        recent.push_back(now);
        if recent.len() > MANY {
            recent.pop_front();
        }
        if recent.len() == MANY && now.since(recent[0]) <= WINDOW {
            self.many.insert(thread.to_owned(), now);
        }
    }

    /// Threads at which many fail.
    pub fn threads(&mut self, now: Moment) -> Vec<String> {
        self.many.retain(|_, last| now.since(*last) < QUIET);
        self.many.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_within_a_minute_are_many_until_ten_quiet_minutes() {
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut rate = LoginRate::default();
        (0..20).for_each(|number| rate.add("mail", at(number * 10)));
        assert!(rate.threads(at(200)).is_empty(), "one in ten seconds is no attack");
        (0..10).for_each(|number| rate.add("mail", at(300 + number)));
        assert_eq!(rate.threads(at(400)), ["mail"]);
        assert_eq!(rate.threads(at(308 + 600)), ["mail"]);
        assert!(rate.threads(at(310 + 600)).is_empty());
    }
}
