//! Notices of the daemon's threads: lines for its log.

use crate::{
    conditions::{ConditionClaim, OpenCondition},
    events::{DaemonEventLog, NumberedEvent},
    kinds,
};
use report::Severity;
use serving::pool::events::EventReport;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use world::{Moment, WallTime, World};

/// Notices that wait to be read; more are counted and dropped.
pub const NOTICES_MAX: usize = 1024;

/// Time from one line about lost lines to the next.
const LOST_SAID_EVERY: Duration = Duration::from_secs(60);

/// A line about something that happened on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The pool, or `portal`.
    pub thread: String,
    /// An administrator should act on it.
    pub is_warning: bool,
    pub text: String,
    /// An event of a pool, or of a condition, which `text` tells in a line.
    pub event: Option<EventReport>,
    /// Kind of a line that is no event of a pool; that of any line if `None`.
    pub kind: Option<&'static str>,
    /// Address of a host or client whose login failed.
    pub source: Option<String>,
    /// The log of events has it already, or does not need it.
    pub is_kept: bool,
}

/// The sending end, of one thread.
#[derive(Clone)]
pub struct NoticeSender {
    thread: String,
    queue: mpsc::Sender<Notice>,
    lost: Arc<AtomicU64>,
    /// Once there is one.
    log: Arc<OnceLock<DaemonEventLog>>,
}

/// The receiving end, of all threads.
pub struct NoticeReader {
    queue: mpsc::Receiver<Notice>,
    lost: Arc<AtomicU64>,
    /// Log of all that is read, and of conditions.
    log: Arc<OnceLock<DaemonEventLog>>,
    /// The clock of that log.
    clock: Option<World>,
    /// Lines that were lost are said again then at the earliest.
    lost_said_from: Moment,
}

/// A queue of notices; the sender is that of the thread `thread`.
pub fn channel(thread: &str) -> (NoticeSender, NoticeReader) {
    let (give, queue) = mpsc::channel(NOTICES_MAX);
    let lost = Arc::<AtomicU64>::default();
    let log = Arc::<OnceLock<_>>::default();
    let sender = NoticeSender {
        thread: thread.to_owned(),
        queue: give,
        lost: Arc::clone(&lost),
        log: Arc::clone(&log),
    };
    (sender, NoticeReader { queue, lost, log, clock: None, lost_said_from: Moment(0) })
}

impl Notice {
    /// It is recorded also if there are too many lines.
    fn matters(&self) -> bool {
        let is_single = |kind| kinds::kind(kind).is_some_and(|kind| kind.covered_by.is_none());
        self.is_warning || self.event.is_some() || self.kind.is_some_and(is_single)
    }
}

impl NoticeSender {
    /// The sender of another thread.
    pub fn of(&self, thread: &str) -> Self {
        Self { thread: thread.to_owned(), ..self.clone() }
    }

    /// Something good to know. Never waits.
    pub fn note(&self, text: impl Into<String>) {
        self.send(Notice { text: text.into(), ..self.line(false) });
    }

    /// Something an administrator should act on. Never waits.
    pub fn warn(&self, text: impl Into<String>) {
        self.send(Notice { text: text.into(), ..self.line(true) });
    }

    /// Something of a kind of the table. Never waits.
    pub fn occurred(&self, kind: &'static str, text: impl Into<String>) {
        let known = kinds::kind(kind).expect("the table has it");
        let line = self.line(known.severity != Severity::Note);
        self.send(Notice { text: text.into(), kind: Some(kind), ..line });
    }

    /// A login that was refused, with the address that it came from. Never waits.
    pub fn login_failed(&self, source: &str, text: impl Into<String>) {
        let (kind, source) = (Some("login_failed"), Some(source.to_owned()));
        self.send(Notice { text: text.into(), kind, source, ..self.line(false) });
    }

    /// A warning that is a condition as well, and no event of its own. Never waits.
    pub fn show(&self, text: impl Into<String>) {
        self.send(Notice { text: text.into(), is_kept: true, ..self.line(true) });
    }

    /// An event of the pool whose thread this is. Never waits; the log has it however many lines wait to be shown.
    pub fn event(&self, event: EventReport) {
        // By the name that the site gives it, not by its folder.
        let event = EventReport { pool: self.thread.clone(), ..event };
        if let Some(log) = self.log.get() {
            return self.print(&log.append(event));
        }
        let line = self.line(event.severity != Severity::Note);
        self.send(Notice { text: event.line(), event: Some(event), ..line });
    }

    /// Opens a condition. Without a log it is a warning.
    pub fn raise(&self, claim: &ConditionClaim, now: WallTime) {
        match self.log.get() {
            Some(log) => log.raise(claim, now).iter().for_each(|event| self.print(event)),
            None => self.of(&claim.pool).warn(claim.text.as_str()),
        }
    }

    /// Ends a condition, with a line if it was open.
    pub fn clear(&self, id: &str, now: WallTime) {
        if let Some(log) = self.log.get() {
            log.clear(id, now).iter().for_each(|event| self.print(event));
        }
    }

    /// A condition that is open.
    pub(crate) fn condition(&self, id: &str) -> Option<OpenCondition> {
        self.log.get()?.condition(id)
    }

    /// Shows an event that the log has.
    pub(crate) fn print(&self, event: &NumberedEvent) {
        let NumberedEvent { report, .. } = event;
        let sender = self.of(&report.pool);
        let end = if kinds::is_cleared(report) { "over: " } else { "" };
        let shown = EventReport { text: format!("{end}{}", report.text), ..report.clone() };
        let line = sender.line(report.severity != Severity::Note);
        self.send(Notice { text: shown.line(), event: Some(report.clone()), is_kept: true, ..line });
    }

    fn line(&self, is_warning: bool) -> Notice {
        Notice { thread: self.thread.clone(), ..empty_line(is_warning) }
    }

    fn send(&self, notice: Notice) {
        let Err(refused) = self.queue.try_send(notice) else { return };
        let notice = refused.into_inner();
        match self.log.get() {
            _ if notice.is_kept => {}
            // Nobody shows it, but notifiers have it.
            Some(log) if notice.matters() => log.keep_late(&notice),
            _ => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl serving::notices::Notices for NoticeSender {
    fn warn(&self, text: &str) {
        self.warn(text);
    }

    fn note(&self, text: &str) {
        self.note(text);
    }
}

impl NoticeReader {
    /// The same, keeping what is read as events, and conditions from now on.
    pub fn keeping(self, events: &DaemonEventLog, world: &World) -> Self {
        // Only the first log counts.
        let _ = self.log.set(events.clone());
        Self { clock: Some(world.clone()), ..self }
    }

    /// The next notice; `None` once all threads have ended.
    pub async fn next(&mut self) -> Option<Notice> {
        let notice = self.queue.recv().await;
        self.keep(notice)
    }

    /// The next notice, if there is one.
    pub fn try_next(&mut self) -> Option<Notice> {
        let notice = self.queue.try_recv().ok();
        self.keep(notice)
    }

    fn keep(&mut self, notice: Option<Notice>) -> Option<Notice> {
        if let (Some(events), Some(world), Some(notice)) = (self.log.get(), &self.clock, &notice) {
            let lost = if world.now() < self.lost_said_from { 0 } else { self.take_lost() };
            if lost > 0 {
                self.lost_said_from = world.now() + LOST_SAID_EVERY;
                let text = format!("{lost} lines came faster than they could be recorded");
                events.keep(&Notice { text, kind: Some("notices_lost"), ..empty_line(true) }, world.wall());
            }
            events.keep(notice, world.wall());
        }
        notice
    }

    /// Notices that were dropped since the last call, because nobody had read those before.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

/// A line of the server itself.
fn empty_line(is_warning: bool) -> Notice {
    let (thread, text) = ("serve".to_owned(), String::new());
    Notice { thread, is_warning, text, event: None, kind: None, source: None, is_kept: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_that_find_no_room_are_counted() {
        let (pool, mut reader) = channel("mail");
        for number in 0..NOTICES_MAX + 3 {
            pool.of("logs").note(format!("{number}"));
        }
        assert_eq!((reader.take_lost(), reader.take_lost()), (3, 0));
        let first = reader.try_next().unwrap();
        assert_eq!((first.thread.as_str(), first.text.as_str(), first.is_warning), ("logs", "0", false));
        pool.warn("room again");
        assert_eq!(reader.take_lost(), 0);
    }

    #[test]
    fn errors_of_pools_and_warnings_are_kept_although_nobody_reads() {
        let (pool, reader) = channel("mail");
        let log = DaemonEventLog::new(WallTime { seconds: 7, nanos: 0 });
        reader.log.set(log.clone()).ok().unwrap();
        (0..NOTICES_MAX).for_each(|_| pool.note("a line"));
        let error = EventReport {
            event: "pool_stopped".to_owned(),
            severity: Severity::Error,
            time: "2026-11-27T02:00:00Z".to_owned(),
            pool: String::new(),
            text: "it has stopped".to_owned(),
            next_step: String::new(),
            details: serde_json::Map::new(),
        };
        pool.event(error);
        pool.warn("a warning");
        pool.occurred("server_stopped", "the end");
        pool.login_failed("10.0.0.7", "one of many");
        pool.note("another line");
        let kept: Vec<String> = log.after(0, 9).iter().map(|event| event.report.event.clone()).collect();
        assert_eq!(kept, ["pool_stopped", "warning", "server_stopped"]);
        assert_eq!(reader.take_lost(), 2);
    }
}
