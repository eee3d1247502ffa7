//! Notices of the daemon's threads: lines for its log.

use crate::events::DaemonEventLog;
use report::Severity;
use serving::pool::events::EventReport;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::mpsc;
use world::World;

/// Notices that wait to be read; more are counted and dropped.
pub const NOTICES_MAX: usize = 1024;

/// A line about something that happened on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The pool, or `portal`.
    pub thread: String,
    /// An administrator should act on it.
    pub is_warning: bool,
    pub text: String,
    /// An event of a pool, which `text` tells in a line.
    pub event: Option<EventReport>,
}

/// The sending end, of one thread.
#[derive(Clone)]
pub struct NoticeSender {
    thread: String,
    queue: mpsc::Sender<Notice>,
    lost: Arc<AtomicU64>,
}

/// The receiving end, of all threads.
pub struct NoticeReader {
    queue: mpsc::Receiver<Notice>,
    lost: Arc<AtomicU64>,
    /// Log of all that is read, and the clock of that.
    kept: Option<(DaemonEventLog, World)>,
}

/// A queue of notices; the sender is that of the thread `thread`.
pub fn channel(thread: &str) -> (NoticeSender, NoticeReader) {
    let (give, queue) = mpsc::channel(NOTICES_MAX);
    let lost = Arc::<AtomicU64>::default();
    let sender = NoticeSender { thread: thread.to_owned(), queue: give, lost: Arc::clone(&lost) };
    (sender, NoticeReader { queue, lost, kept: None })
}

impl NoticeSender {
    /// The sender of another thread.
    pub fn of(&self, thread: &str) -> Self {
        Self { thread: thread.to_owned(), ..self.clone() }
    }

    /// Something good to know. Never waits.
    pub fn note(&self, text: impl Into<String>) {
        self.send(false, text.into(), None);
    }

    /// Something an administrator should act on. Never waits.
    pub fn warn(&self, text: impl Into<String>) {
        self.send(true, text.into(), None);
    }

    /// An event of the pool whose thread this is. Never waits.
    pub fn event(&self, event: EventReport) {
        // By the name that the site gives it, not by its folder.
        let event = EventReport { pool: self.thread.clone(), ..event };
        let is_warning = event.severity != Severity::Note;
        let text = event.line();
        self.send(is_warning, text, Some(event));
    }

    fn send(&self, is_warning: bool, text: String, event: Option<EventReport>) {
        let notice = Notice { thread: self.thread.clone(), is_warning, text, event };
        if self.queue.try_send(notice).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
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
    /// The same, keeping what is read as events.
    pub fn keeping(self, events: &DaemonEventLog, world: &World) -> Self {
        Self { kept: Some((events.clone(), world.clone())), ..self }
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

    fn keep(&self, notice: Option<Notice>) -> Option<Notice> {
        if let (Some((events, world)), Some(notice)) = (&self.kept, &notice) {
            events.keep(notice, world.wall());
        }
        notice
    }

    /// Notices that were dropped since the last call, because nobody had read those before.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
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
}
