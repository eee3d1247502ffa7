//! The rate of failed logins, by thread and address.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::Moment;

/// Failures within [`WINDOW`] that are many.
const MANY: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Time without many until it is over.
const QUIET: Duration = Duration::from_secs(600);
/// Addresses that are remembered; then all are forgotten.
const SOURCES_MAX: usize = 4096;

/// A thread, and an address.
type LoginSource = (String, String);

/// Failed logins of the last minute, and the addresses from which there are many.
#[derive(Debug, Default)]
pub(super) struct LoginRate {
    recent: BTreeMap<LoginSource, VecDeque<Moment>>,
    /// With the last moment at which there were many.
    many: BTreeMap<LoginSource, Moment>,
}

/// Failed logins that are recorded one by one: [`MANY`] of an address within a minute; the others are counted.
#[derive(Debug, Default)]
pub(crate) struct LoginTally {
    /// The minute, and the logins in it.
    minutes: BTreeMap<LoginSource, (i64, usize)>,
}

impl LoginTally {
    /// `None` if the login is only counted; else the number of those of an earlier minute that were only counted.
    pub fn add(&mut self, thread: &str, source: &str, unix_s: i64) -> Option<usize> {
        if self.minutes.len() >= SOURCES_MAX {
            self.minutes.clear();
        }
        let minute = unix_s.div_euclid(60);
        let (known, count) =
            self.minutes.entry((thread.to_owned(), source.to_owned())).or_insert((minute, 0));
        let mut counted = 0;
        if *known != minute {
            counted = count.saturating_sub(MANY);
            (*known, *count) = (minute, 0);
        }
        *count += 1;
        (*count <= MANY).then_some(counted)
    }
}

impl LoginRate {
    pub fn add(&mut self, thread: &str, source: &str, now: Moment) {
        if self.recent.len() >= SOURCES_MAX {
            self.recent.clear();
        }
        let from = (thread.to_owned(), source.to_owned());
        let recent = self.recent.entry(from.clone()).or_default();
        recent.push_back(now);
        if recent.len() > MANY {
            recent.pop_front();
        }
        if recent.len() == MANY && now.since(recent[0]) <= WINDOW {
            self.many.insert(from, now);
        }
    }

    /// Threads at which many fail, with the addresses.
    pub fn threads(&mut self, now: Moment) -> BTreeMap<String, Vec<String>> {
        self.many.retain(|_, last| now.since(*last) < QUIET);
        let mut threads = BTreeMap::<String, Vec<String>>::new();
        for (thread, source) in self.many.keys() {
            threads.entry(thread.clone()).or_default().push(source.clone());
        }
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_within_a_minute_are_many_until_ten_quiet_minutes() {
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut rate = LoginRate::default();
        (0..20).for_each(|number| rate.add("mail", "10.0.0.7", at(number * 10)));
        (0..20).for_each(|number| rate.add("mail", &format!("10.0.1.{number}"), at(200)));
        assert!(rate.threads(at(200)).is_empty(), "one in ten seconds is no attack");
        (0..10).for_each(|number| rate.add("mail", "10.0.0.7", at(300 + number)));
        let mail = BTreeMap::from([("mail".to_owned(), vec!["10.0.0.7".to_owned()])]);
        assert_eq!(rate.threads(at(400)), mail);
        assert_eq!(rate.threads(at(308 + 600)), mail);
        assert!(rate.threads(at(310 + 600)).is_empty());
    }

    #[test]
    fn more_than_ten_of_a_minute_are_counted_and_said_with_the_next() {
        let mut tally = LoginTally::default();
        let recorded = (0..30).filter(|_| tally.add("mail", "10.0.0.7", 60).is_some()).count();
        assert_eq!(recorded, MANY);
        assert_eq!(tally.add("mail", "10.0.0.8", 60), Some(0), "another address has its own");
        assert_eq!(tally.add("mail", "10.0.0.7", 121), Some(20));
        assert_eq!(tally.add("mail", "10.0.0.7", 122), Some(0));
    }
}
