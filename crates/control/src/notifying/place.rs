//! The place of a notifier among the events, and its state.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// The newest event of each lane that was delivered, or passed because nobody wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifierPlace {
    /// Place of a lane that has none of its own yet.
    pub beginning: u64,
    pub lanes: BTreeMap<String, u64>,
    /// Day of the last digest that was delivered, since 1970.
    pub digest_day: Option<i64>,
}

impl NotifierPlace {
    /// The place of a notifier that is told what happens after this event.
    pub fn beginning(event: u64) -> Self {
        Self { beginning: event, ..Self::default() }
    }

    pub fn of_lane(&self, lane: &str) -> u64 {
        self.lanes.get(lane).copied().unwrap_or(self.beginning)
    }

    /// The first event that some lane may still have to deliver comes after this one.
    pub fn earliest(&self) -> u64 {
        self.lanes.values().copied().min().unwrap_or(self.beginning)
    }
}

impl NotifierPlace {
    pub(crate) fn begin_lanes(&mut self, lanes: &[&str], newest: u64) {
        let known: Vec<u64> = lanes.iter().filter_map(|lane| self.lanes.get(*lane).copied()).collect();
        let others = self.lanes.values().copied().min();
        let new = match (known.is_empty(), others) {
            (_, None) => self.beginning,
            // The notifier was of another kind.
            (true, Some(other)) => other,
            (false, Some(_)) => newest,
        };
        self.lanes.retain(|name, _| lanes.contains(&&**name));
        for lane in lanes {
            self.lanes.entry((*lane).to_owned()).or_insert(new);
        }
    }
}

/// The state of a notifier since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierState {
    /// Time of the last message that its own channel accepted; seconds since 1970, UTC.
    pub delivered_unix_s: Option<i64>,
    /// Since when a lane fails with its own channel, and why; by lane.
    pub failing: BTreeMap<String, (i64, String)>,
}

/// A reason for which a test was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRefusal {
    /// Others wait already.
    Full,
    /// The thread of events has ended.
    Ended,
}

/// A request for a test message.
#[derive(Debug)]
pub struct TestRequest {
    pub notifier: String,
    /// The error says why it was not delivered; `None` if there is no such notifier.
    pub outcome: oneshot::Sender<Option<Result<(), String>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_is_new_repeats_nothing_and_one_of_another_kind_skips_nothing() {
        let mut place = NotifierPlace::beginning(10);
        place.begin_lanes(&["error"], 12);
        assert_eq!(place.of_lane("error"), 10, "a notifier that is new");
        place.lanes.insert("error".to_owned(), 50);
        place.begin_lanes(&["error", "warning"], 70);
        assert_eq!((place.of_lane("error"), place.of_lane("warning")), (50, 70));
        place.begin_lanes(&["all"], 90);
        assert_eq!(place.lanes, BTreeMap::from([("all".to_owned(), 50)]));
    }
}
