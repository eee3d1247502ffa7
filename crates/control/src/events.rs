//! Events of the daemon and the conditions that are open, in memory, by number, for readers that look or wait; what is new of
//! them goes to the journal once a second (`event_keeper`).
//!
//! Invariants:
//!
//! 1. Numbers grow, also over restarts, whatever the clock does: a server begins above all numbers that the journal allowed to
//!    be given, and not below the time of its start in microseconds. (Without a journal that can be written, a clock that goes
//!    back may repeat numbers, after [`NUMBERS_AHEAD`] events.)
//! 2. At most [`EVENTS_MAX`] events and [`EVENT_BYTES_MAX`] bytes of text are kept; the oldest notes go first, then the oldest of
//!    all. The newest one stays.
//! 3. Nobody waits for a reader: one that is too slow finds that events are missing.
//! 4. A condition changes together with its event.

use crate::{
    conditions::{ConditionBoard, ConditionClaim, LoginTally, OpenCondition},
    journal::events::{EventChanges, EventRecords},
    notice::Notice,
    notifying::{NotifierPlace, NotifierState, TestRefusal, TestRequest},
};
use report::{Severity, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use serving::pool::events::EventReport;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::{mpsc, watch};
use world::WallTime;

/// Most events that are kept.
pub const EVENTS_MAX: usize = 100_000;
/// Most bytes of their texts.
pub const EVENT_BYTES_MAX: usize = 16 << 20;
/// Numbers that the journal allows in advance.
pub const NUMBERS_AHEAD: u64 = 1 << 20;
/// Detail of a failed login: the address that it came from.
pub const SOURCE: &str = "source";
/// Tests of notifiers that wait.
const TESTS_MAX: usize = 8;

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedEvent {
    pub id: u64,
    #[serde(flatten)]
    pub report: EventReport,
}

/// The newest events, and the open conditions; clones are the same log.
#[derive(Clone)]
pub struct DaemonEventLog {
    kept: Arc<Mutex<KeptEvents>>,
    newest: watch::Sender<u64>,
    tests: mpsc::Sender<TestRequest>,
}

struct KeptEvent {
    event: Arc<NumberedEvent>,
    /// The gravest of the events that were dropped right before it.
    gap: Option<Severity>,
}

struct KeptEvents {
    events: BTreeMap<u64, KeptEvent>,
    /// Numbers of those that are notes.
    notes: BTreeSet<u64>,
    bytes: usize,
    next_id: u64,
    /// Number of the newest event that was dropped as the oldest one.
    dropped_to: u64,
    /// Numbers of dropped events that the journal may have.
    dropped: Vec<u64>,
    board: ConditionBoard,
    /// Events of this run of the server come after this number.
    before_start: u64,
    /// The time that a caller said last.
    seen_at: WallTime,
    logins: LoginTally,
    /// The thread that evaluates and notifies has ended by an error.
    has_failed: bool,
    /// Conditions were evaluated since the server started.
    is_evaluated: bool,
    /// Ids of conditions that were raised, or raised again, since the server started.
    touched: BTreeSet<String>,
    places: BTreeMap<String, NotifierPlace>,
    /// Of notifiers, while the server runs.
    states: BTreeMap<String, NotifierState>,
    /// Number of the newest event that the journal has.
    flushed_to: u64,
    /// Grows with each change that the journal is to have.
    revision: u64,
    flushed_revision: u64,
    /// Until the thread of events takes it.
    wanted_tests: Option<mpsc::Receiver<TestRequest>>,
}

impl DaemonEventLog {
    /// A log of a server that starts now, and has no journal.
    pub fn new(now: WallTime) -> Self {
        Self::of(EventRecords::default(), now)
    }

    /// The log that a journal has, of a server that starts now.
    pub fn of(records: EventRecords, now: WallTime) -> Self {
        let EventRecords { events, conditions, places, numbers_below, dropped_to, unreadable } = records;
        let micros = u64::try_from(now.seconds).unwrap_or_default() * 1_000_000 + u64::from(now.nanos / 1000);
        let last = events.last().map_or(0, |event| event.id);
        let next_id = numbers_below.max(last + 1).max(micros + 1);
        // The newest that there is: who waits for the next one waits for a number above it.
        let newest = if events.is_empty() { next_id - 1 } else { last };
        let (tests, wanted_tests) = mpsc::channel(TESTS_MAX);
        let is_note = |event: &&NumberedEvent| event.report.severity == Severity::Note;
        let notes = events.iter().filter(is_note).map(|event| event.id).collect();
        let bytes = events.iter().map(|event| bytes_of(&event.report)).sum();
        let kept =
            events.into_iter().map(|event| (event.id, KeptEvent { event: Arc::new(event), gap: None }));
        let mut events: BTreeMap<u64, KeptEvent> = kept.collect();
        if dropped_to > 0
            && let Some(mut first) = events.first_entry()
        {
            first.get_mut().gap = Some(Severity::Error);
        }
        let kept = KeptEvents {
            bytes,
            events,
            notes,
            next_id,
            dropped_to,
            dropped: Vec::new(),
            board: ConditionBoard::of(conditions),
            before_start: next_id - 1,
            seen_at: now,
            logins: LoginTally::default(),
            has_failed: false,
            is_evaluated: false,
            touched: BTreeSet::new(),
            places,
            states: BTreeMap::new(),
            flushed_to: last,
            revision: 0,
            flushed_revision: 0,
            wanted_tests: Some(wanted_tests),
        };
        let log = Self { kept: Arc::new(Mutex::new(kept)), newest: watch::Sender::new(newest), tests };
        if unreadable > 0 {
            let text =
                format!("{unreadable} records of events in the journal cannot be read, and are left out");
            let (thread, is_warning) = ("serve".to_owned(), true);
            log.keep(
                &Notice { thread, is_warning, text, event: None, kind: None, source: None, is_kept: false },
                now,
            );
        }
        log
    }

    /// Keeps what a thread has told, unless it was kept when it was told.
    pub fn keep(&self, notice: &Notice, now: WallTime) {
        if notice.is_kept {
            return;
        }
        let mut kept = self.kept();
        kept.seen_at = now;
        let mut report = notice.event.clone().unwrap_or_else(|| report_of(notice, now));
        if let Some(source) = &notice.source {
            let Some(others) = kept.logins.add(&notice.thread, source, now.seconds) else { return };
            if others > 0 {
                report.text += &format!("; {others} more of this address were not recorded");
            }
            report.details.insert(SOURCE.to_owned(), source.as_str().into());
        }
        drop(kept);
        self.append(report);
    }

    /// Keeps a line of a thread that has no clock, with the time that was seen last.
    pub(crate) fn keep_late(&self, notice: &Notice) {
        let now = self.kept().seen_at;
        self.keep(notice, now);
    }

    /// Keeps an event.
    pub fn append(&self, report: EventReport) -> Arc<NumberedEvent> {
        let mut kept = self.kept();
        let event = kept.append(report);
        // With the lock held: the newest number never goes back.
        self.newest.send_replace(event.id);
        event
    }

    /// Opens a condition, or brings it up to date. Its event, if it has one.
    pub fn raise(&self, claim: &ConditionClaim, now: WallTime) -> Option<Arc<NumberedEvent>> {
        self.kept().touched.insert(claim.id());
        self.change_board(|board| board.raise(claim, now).into_iter().collect()).pop()
    }

    /// True if the condition was raised, or raised again, since the server started.
    pub(crate) fn is_touched(&self, id: &str) -> bool {
        self.kept().touched.contains(id)
    }

    /// Ends a condition. Its event, unless it was not open.
    pub fn clear(&self, id: &str, now: WallTime) -> Option<Arc<NumberedEvent>> {
        // Usually it is not open.
        self.condition(id)?;
        self.change_board(|board| board.clear(id, now).into_iter().collect()).pop()
    }

    /// Brings all conditions of a scope up to date: those that are claimed are open, and no others.
    pub fn evaluate(
        &self,
        is_in_scope: impl Fn(&OpenCondition) -> bool,
        claims: &[ConditionClaim],
        now: WallTime,
    ) -> Vec<Arc<NumberedEvent>> {
        let mut kept = self.kept();
        kept.seen_at = now;
        kept.touched.extend(claims.iter().map(ConditionClaim::id));
        drop(kept);
        // The scope may look at this log.
        let in_scope: BTreeSet<String> =
            self.conditions().into_iter().filter(is_in_scope).map(|open| open.id).collect();
        self.change_board(|board| board.evaluate(|open| in_scope.contains(&open.id), claims, now))
    }

    /// Records who has taken a condition on, and returns it. `None` if it is not open.
    pub fn acknowledge(&self, id: &str, who: &str, now: WallTime) -> Option<OpenCondition> {
        let mut kept = self.kept();
        kept.revision += 1;
        kept.board.acknowledge(id, who, now).then(|| kept.board.get(id).expect("it is open").clone())
    }

    /// All open conditions, by id.
    pub fn conditions(&self) -> Vec<OpenCondition> {
        self.kept().board.open().cloned().collect()
    }

    pub fn condition(&self, id: &str) -> Option<OpenCondition> {
        self.kept().board.get(id).cloned()
    }

    fn change_board(
        &self,
        change: impl FnOnce(&mut ConditionBoard) -> Vec<EventReport>,
    ) -> Vec<Arc<NumberedEvent>> {
        let mut kept = self.kept();
        let before = kept.board.outline();
        let reports = change(&mut kept.board);
        // Texts that change, such as the time left, come to the journal with the next change.
        if kept.board.outline() != before {
            kept.revision += 1;
        }
        let events: Vec<_> = reports.into_iter().map(|report| kept.append(report)).collect();
        if let Some(last) = events.last() {
            self.newest.send_replace(last.id);
        }
        events
    }

    /// At most `most` events after the one with the number `after`, oldest first.
    pub fn after(&self, after: u64, most: usize) -> Vec<Arc<NumberedEvent>> {
        let kept = self.kept();
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        kept.events.range(first..).take(most).map(|(_, kept)| Arc::clone(&kept.event)).collect()
    }

    /// The last events before one number that are wanted, `most` at most, oldest first.
    pub fn before(
        &self,
        before: u64,
        most: usize,
        is_wanted: impl Fn(&NumberedEvent) -> bool,
    ) -> Vec<Arc<NumberedEvent>> {
        let kept = self.kept();
        let wanted = kept.events.range(..before).rev().filter(|(_, kept)| is_wanted(&kept.event));
        let mut found: Vec<_> = wanted.take(most).map(|(_, kept)| Arc::clone(&kept.event)).collect();
        found.reverse();
        found
    }

    /// The gravest of the events that were dropped for want of room between one number and another one that is kept.
    pub fn gap(&self, after: u64, to: u64) -> Option<Severity> {
        match after < to {
            true => self.kept().events.range(after + 1..=to).filter_map(|(_, kept)| kept.gap).min(),
            false => None,
        }
    }

    /// Number of the oldest event that is kept; that of the next one if there is none.
    pub fn oldest(&self) -> u64 {
        let kept = self.kept();
        kept.events.first_key_value().map_or(kept.next_id, |(&id, _)| id)
    }

    /// Number of the newest event.
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Events of this run of the server come after this number.
    pub(crate) fn before_start(&self) -> u64 {
        self.kept().before_start
    }

    /// Waits until there is an event after the one with the number `after`.
    pub async fn wait_after(&self, after: u64) {
        let mut newest = self.newest.subscribe();
        newest.wait_for(|&newest| newest > after).await.expect("the log has a sender itself");
    }

    /// The place of a notifier: the newest event for one that is new.
    pub fn place(&self, notifier: &str) -> NotifierPlace {
        let mut kept = self.kept();
        if let Some(place) = kept.places.get(notifier) {
            return place.clone();
        }
        let place = NotifierPlace::beginning(kept.next_id - 1);
        kept.places.insert(notifier.to_owned(), place.clone());
        kept.revision += 1;
        place
    }

    /// Begins with these lanes of a notifier, and forgets its others. A lane that is new among others begins with what happens
    /// next; if none of the others stays, where the last of them was.
    pub fn begin_lanes(&self, notifier: &str, lanes: &[&str]) {
        let mut kept = self.kept();
        let newest = kept.next_id - 1;
        let place = kept.places.entry(notifier.to_owned());
        let place = place.or_insert_with(|| NotifierPlace::beginning(newest));
        let before = place.clone();
        place.begin_lanes(lanes, newest);
        if *place != before {
            kept.revision += 1;
        }
    }

    /// The places of all notifiers, by name.
    pub fn places(&self) -> BTreeMap<String, NotifierPlace> {
        self.kept().places.clone()
    }

    /// Changes the place of a notifier.
    pub fn change_place(&self, notifier: &str, change: impl FnOnce(&mut NotifierPlace)) {
        let mut kept = self.kept();
        if let Some(place) = kept.places.get_mut(notifier) {
            change(place);
            kept.revision += 1;
        }
    }

    /// Forgets the places of all other notifiers.
    pub fn keep_places(&self, is_known: impl Fn(&str) -> bool) {
        let mut kept = self.kept();
        let before = kept.places.len();
        kept.places.retain(|name, _| is_known(name));
        kept.states.retain(|name, _| is_known(name));
        if kept.places.len() != before {
            kept.revision += 1;
        }
    }

    /// The state of a notifier, while the server runs.
    pub fn notifier_state(&self, notifier: &str) -> NotifierState {
        self.kept().states.get(notifier).cloned().unwrap_or_default()
    }

    pub fn set_notifier_state(&self, notifier: &str, state: NotifierState) {
        self.kept().states.insert(notifier.to_owned(), state);
    }

    /// Asks for a test of a notifier.
    ///
    /// # Errors
    ///
    /// Too many wait, or nobody answers any more.
    pub fn ask_test(&self, request: TestRequest) -> Result<(), TestRefusal> {
        self.tests.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => TestRefusal::Full,
            mpsc::error::TrySendError::Closed(_) => TestRefusal::Ended,
        })
    }

    /// The thread that evaluates conditions and delivers has ended by an error of the program.
    pub(crate) fn note_failed(&self) {
        self.kept().has_failed = true;
    }

    /// True if nothing is evaluated or delivered any more.
    pub fn has_failed(&self) -> bool {
        self.kept().has_failed
    }

    /// All conditions of an open site were looked at.
    pub(crate) fn note_evaluated(&self) {
        self.kept().is_evaluated = true;
    }

    /// True once all conditions were looked at since the server started.
    pub(crate) fn is_evaluated(&self) -> bool {
        self.kept().is_evaluated
    }

    /// The tests that are asked for; once.
    pub(crate) fn take_tests(&self) -> Option<mpsc::Receiver<TestRequest>> {
        self.kept().wanted_tests.take()
    }

    /// The changes that the journal has not, with their revision; `None` if it has all.
    pub fn pending(&self) -> Option<(EventChanges, u64)> {
        let kept = self.kept();
        if kept.revision == kept.flushed_revision {
            return None;
        }
        let new = kept.events.range(kept.flushed_to + 1..);
        let changes = EventChanges {
            new: new.map(|(_, kept)| Arc::clone(&kept.event)).collect(),
            dropped: kept.dropped.clone(),
            conditions: kept.board.open().cloned().collect(),
            places: kept.places.clone(),
            numbers_below: kept.next_id + NUMBERS_AHEAD,
            dropped_to: kept.dropped_to,
        };
        Some((changes, kept.revision))
    }

    /// The journal has these changes.
    pub fn note_flushed(&self, changes: &EventChanges, revision: u64) {
        let mut kept = self.kept();
        kept.flushed_to = changes.new.last().map_or(kept.flushed_to, |event| event.id);
        // Others were dropped meanwhile.
        kept.dropped.drain(..changes.dropped.len());
        kept.flushed_revision = revision;
    }

    fn kept(&self) -> MutexGuard<'_, KeptEvents> {
        self.kept.lock().expect("nothing panics with the lock held")
    }
}

impl KeptEvents {
    fn append(&mut self, report: EventReport) -> Arc<NumberedEvent> {
        let id = self.next_id;
        self.next_id += 1;
        self.revision += 1;
        self.bytes += bytes_of(&report);
        let event = Arc::new(NumberedEvent { id, report });
        self.events.insert(id, KeptEvent { event: Arc::clone(&event), gap: None });
        while self.events.len() > EVENTS_MAX || (self.bytes > EVENT_BYTES_MAX && self.events.len() > 1) {
            self.drop_one();
        }
        // Not before: the newest one stays, whatever it is.
        if event.report.severity == Severity::Note {
            self.notes.insert(id);
        }
        event
    }

    /// Drops the oldest note, or the oldest event if there is none.
    fn drop_one(&mut self) {
        let oldest = *self.events.first_key_value().expect("there are some").0;
        let id = self.notes.pop_first().unwrap_or(oldest);
        let KeptEvent { event, gap } = self.events.remove(&id).expect("it is kept");
        self.bytes -= bytes_of(&event.report);
        if id == oldest {
            self.dropped_to = id;
        }
        self.dropped.push(id);
        if let Some((_, next)) = self.events.range_mut(id..).next() {
            next.gap = [gap, next.gap, Some(event.report.severity)].into_iter().flatten().min();
        }
    }
}

/// A line of a thread as an event.
fn report_of(notice: &Notice, now: WallTime) -> EventReport {
    let (usual, severity) = match notice.is_warning {
        true => ("warning", Severity::Warning),
        false => ("note", Severity::Note),
    };
    EventReport {
        event: notice.kind.unwrap_or(usual).to_owned(),
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
        Notice {
            thread: "mail".to_owned(),
            is_warning: true,
            text: text.to_owned(),
            event: None,
            kind: None,
            source: None,
            is_kept: false,
        }
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
        let before = |before, most| -> Vec<String> {
            let wanted = |event: &NumberedEvent| event.report.text != "3";
            log.before(before, most, wanted).iter().map(|event| event.report.text.clone()).collect()
        };
        assert_eq!(before(u64::MAX, 3), ["1", "2", "4"]);
        assert_eq!(before(first + 2, 9), ["0", "1"]);
        assert_eq!(before(first, 9), Vec::<String>::new());
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

    #[test]
    fn notes_go_before_warnings_and_a_gap_says_how_grave_it_is() {
        let (log, now) = (DaemonEventLog::new(WallTime::default()), WallTime::default());
        let say = |is_warning: bool| log.keep(&Notice { is_warning, ..notice("x") }, now);
        let first = log.newest() + 1;
        say(true);
        (0..3).for_each(|_| say(false));
        (0..EVENTS_MAX - 4).for_each(|_| say(true));
        let (changes, revision) = log.pending().unwrap();
        log.note_flushed(&changes, revision);
        // Two of three notes go, and nothing before them.
        (0..2).for_each(|_| say(true));
        assert_eq!(log.after(0, 2).iter().map(|event| event.id).collect::<Vec<_>>(), [first, first + 3]);
        assert_eq!((log.gap(0, first), log.gap(first, first + 3)), (None, Some(Severity::Note)));
        let (changes, revision) = log.pending().unwrap();
        assert_eq!((&changes.dropped[..], changes.dropped_to), (&[first + 1, first + 2][..], 0));
        log.note_flushed(&changes, revision);
        // The third note, then the oldest warning.
        (0..2).for_each(|_| say(true));
        assert_eq!((log.oldest(), log.gap(0, first + 4)), (first + 4, Some(Severity::Warning)));
        // A note is kept until the next event comes.
        say(false);
        assert_eq!(log.after(0, EVENTS_MAX).last().unwrap().id, log.newest());
        assert_eq!(log.after(0, EVENTS_MAX + 1).len(), EVENTS_MAX);
        assert_eq!(log.after(u64::MAX, 1), []);
    }

    #[test]
    fn numbers_go_on_over_a_restart_whatever_the_clock_and_the_crash_do() {
        let log = DaemonEventLog::new(WallTime { seconds: 1_000, nanos: 0 });
        log.keep(&notice("flushed"), WallTime::default());
        let (changes, revision) = log.pending().unwrap();
        log.note_flushed(&changes, revision);
        assert!(log.pending().is_none(), "the journal has all");
        (0..1000).for_each(|_| log.keep(&notice("lost by the crash"), WallTime::default()));
        let records = EventRecords {
            events: changes.new.iter().map(|event| (**event).clone()).collect(),
            numbers_below: changes.numbers_below,
            ..EventRecords::default()
        };
        let later = DaemonEventLog::of(records, WallTime { seconds: 1, nanos: 0 });
        assert_eq!(later.after(0, 9).len(), 1);
        assert_eq!(later.newest(), later.after(0, 9)[0].id, "a reader that has it waits for the next one");
        later.keep(&notice("new"), WallTime::default());
        assert!(later.newest() > log.newest());
    }

    #[test]
    fn a_new_notifier_begins_with_what_happens_next_and_an_old_one_goes_on() {
        let log = DaemonEventLog::new(WallTime::default());
        log.keep(&notice("before"), WallTime::default());
        let place = log.place("ops");
        assert_eq!(place, NotifierPlace::beginning(log.newest()));
        log.keep(&notice("after"), WallTime::default());
        assert_eq!(log.place("ops"), place);
        log.keep_places(|name| name != "ops");
        assert_eq!(log.place("ops"), NotifierPlace::beginning(log.newest()), "forgotten with its table");
    }
}
