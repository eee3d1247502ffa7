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

/// The state of a notifier since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierState {
    /// Time of the last message that its own channel accepted; seconds since 1970, UTC.
    pub delivered_unix_s: Option<i64>,
    /// Since when its own channel fails, and why.
    pub failing: Option<(i64, String)>,
}

/// A request for a test message.
#[derive(Debug)]
pub struct TestRequest {
    pub notifier: String,
    /// The error says why it was not delivered; `None` if there is no such notifier.
    pub outcome: oneshot::Sender<Option<Result<(), String>>>,
}
