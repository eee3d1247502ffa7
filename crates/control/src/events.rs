//! Events of the daemon: the newest ones in memory, by number, for readers that look or wait.
//!
//! Invariants:
//!
//! 1. Numbers grow by one; they begin at the time of the server's start in microseconds, so that they grow over restarts, too, as
//!    long as the clock does not go back by more than that.
//! 2. At most [`EVENTS_MAX`] events and [`EVENT_BYTES_MAX`] bytes of text are kept; the oldest go first.
//! 3. Nobody waits for a reader: one that is too slow finds that events are missing.

use crate::notice::Notice;
use report::{Severity, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use serving::pool::events::EventReport;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::watch;
use world::WallTime;

/// Most events that are kept.
pub const EVENTS_MAX: usize = 100_000;
/// Most bytes of their texts.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedEvent {
    pub id: u64,
    #[serde(flatten)]
    pub report: EventReport,
}

/// The newest events; clones are the same log.
#[derive(Clone)]
pub struct DaemonEventLog {
    kept: Arc<Mutex<KeptEvents>>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct KeptEvents {
    events: VecDeque<Arc<NumberedEvent>>,
    bytes: usize,
    next_id: u64,
}

impl DaemonEventLog {
    /// A log of a server that starts now.
    pub fn new(now: WallTime) -> Self {
        let micros = u64::try_from(now.seconds).unwrap_or_default() * 1_000_000 + u64::from(now.nanos / 1000);
        let kept = KeptEvents { next_id: micros + 1, ..KeptEvents::default() };
        Self { kept: Arc::new(Mutex::new(kept)), newest: watch::Sender::new(micros) }
    }

    /// Keeps what a thread has told.
    pub fn keep(&self, notice: &Notice, now: WallTime) {
        let report = notice.event.clone().unwrap_or_else(|| report_of(notice, now));
        let mut kept = self.kept();
        let id = kept.next_id;
        kept.next_id += 1;
        kept.bytes += bytes_of(&report);
        kept.events.push_back(Arc::new(NumberedEvent { id, report }));
        while kept.events.len() > EVENTS_MAX || (kept.bytes > EVENT_BYTES_MAX && kept.events.len() > 1) {
            let oldest = kept.events.pop_front().expect("there are some");
            kept.bytes -= bytes_of(&oldest.report);
        }
        drop(kept);
        self.newest.send_replace(id);
    }

    /// At most `most` events after the one with the number `after`, oldest first.
    pub fn after(&self, after: u64, most: usize) -> Vec<Arc<NumberedEvent>> {
        let kept = self.kept();
        let first = kept.events.partition_point(|event| event.id <= after);
        kept.events.iter().skip(first).take(most).cloned().collect()
    }

    /// Number of the oldest event that is kept; that of the next one if there is none.
    pub fn oldest(&self) -> u64 {
        let kept = self.kept();
        kept.events.front().map_or(kept.next_id, |event| event.id)
    }

    /// Number of the newest event.
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Waits until there is an event after the one with the number `after`.
    pub async fn wait_after(&self, after: u64) {
        let mut newest = self.newest.subscribe();
        newest.wait_for(|&newest| newest > after).await.expect("the log has a sender itself");
    }

    fn kept(&self) -> MutexGuard<'_, KeptEvents> {
        self.kept.lock().expect("nothing panics with the lock held")
    }
}

/// A line of a thread as an event.
fn report_of(notice: &Notice, now: WallTime) -> EventReport {
    let severity = if notice.is_warning { Severity::Warning } else { Severity::Note };
    EventReport {
        event: if notice.is_warning { "warning" } else { "note" }.to_owned(),
        severity,
        time: utc_time(now.seconds),
        pool: notice.thread.clone(),
        text: notice.text.clone(),
        next_step: String::new(),
        details: Map::new(),
    }
}

fn bytes_of(report: &EventReport) -> usize {
    let EventReport { event, time, pool, text, next_step, details, .. } = report;
    let details: usize = details.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    event.len() + time.len() + pool.len() + text.len() + next_step.len() + details
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Notice {
        Notice { thread: "mail".to_owned(), is_warning: true, text: text.to_owned(), event: None }
    }

    #[test]
    fn numbers_grow_and_pages_begin_after_one() {
        let start = WallTime { seconds: 10, nanos: 5_000 };
        let log = DaemonEventLog::new(start);
        let first = 10_000_006;
        assert_eq!((log.oldest(), log.newest()), (first, first - 1));
        (0..5).for_each(|number| log.keep(&notice(&format!("{number}")), start));
        let texts = |after, most| -> Vec<String> {
            log.after(after, most).iter().map(|event| event.report.text.clone()).collect()
        };
        assert_eq!(texts(0, 2), ["0", "1"]);
        assert_eq!(texts(first + 2, 9), ["3", "4"]);
        assert_eq!(texts(log.newest(), 9), Vec::<String>::new());
        let later = DaemonEventLog::new(WallTime { seconds: 11, nanos: 0 });
        assert!(later.oldest() > log.newest(), "they grow over a restart");
    }

    #[test]
    fn the_oldest_events_go_when_there_is_no_room() {
        let log = DaemonEventLog::new(WallTime { seconds: 0, nanos: 0 });
        let long = "x".repeat(1 << 20);
        (0..20).for_each(|_| log.keep(&notice(&long), WallTime { seconds: 0, nanos: 0 }));
        assert_eq!(log.newest() - log.oldest() + 1, 15);
        assert!(log.kept().bytes <= EVENT_BYTES_MAX);
    }
}
