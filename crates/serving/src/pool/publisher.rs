//! Publishes the status of an open pool in its folder: at once on an event, every few seconds while figures
//! change, and every minute otherwise. Writes are small, rare, and made by a thread of their own: a slow or
//! full folder does not harm the pool. It notes the room in use, too, once an hour.

use super::{
    events::{EventReport, PoolContext},
    room_history::{self, FIRST_AFTER, RoomHistory, RoomSample},
    status::{self, DriveStatuses, PublishedStatus},
};
use crate::notices::Notices;
use array::pool::{
    Pool,
    events::{PoolEvent, PoolEventReader},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    time::Duration,
};
use world::{
    IoResult, Moment, WallTime, World,
    real::{Workers, host_files},
    with_deadline,
};

/// Interval of publishing changed figures.
const CHANGES_EVERY: Duration = Duration::from_secs(5);
/// Interval of publishing an unchanged status, which shows that the process is alive.
const ANYWAY_EVERY: Duration = Duration::from_secs(60);
/// Least interval between two writes.
const PAUSE: Duration = Duration::from_millis(500);
/// Limit on the write rate, over time.
const BYTES_PER_SECOND_MAX: u64 = 64 << 10;
const EVENTS_MAX: usize = 16;
/// Bound on the wait for the first write.
const FIRST_WITHIN: Duration = Duration::from_secs(2);

/// The drives of an open pool as its status shows them and its events name them.
#[derive(Clone, Debug)]
pub struct ShownDrives {
    pub statuses: DriveStatuses,
    pub context: PoolContext,
}

/// Publishes a pool's status until the pool is closed.
pub struct Publisher {
    world: World,
    folder: PathBuf,
    shown: Rc<RefCell<ShownDrives>>,
    pool: Weak<Pool>,
    reader: PoolEventReader,
    opened: WallTime,
    events: VecDeque<EventReport>,
    writer: Workers,
    last: Option<PublishedStatus>,
    written_at: Moment,
    /// Earliest time of the next write.
    next_at: Moment,
    has_failed: bool,
    /// Read when the first sample is due.
    history: Option<RoomHistory>,
    history_from: Moment,
    notices: Rc<dyn Notices>,
}

impl Publisher {
    /// A publisher for a pool that was just opened. Returns after the first status is published.
    pub async fn begin(
        world: &World,
        pool: &Rc<Pool>,
        (folder, shown): (&Path, &Rc<RefCell<ShownDrives>>),
        notices: &Rc<dyn Notices>,
    ) -> Self {
        let mut publisher = Self {
            world: world.clone(),
            folder: folder.to_owned(),
            shown: Rc::clone(shown),
            pool: Rc::downgrade(pool),
            reader: pool.events(),
            opened: world.wall(),
            events: VecDeque::new(),
            writer: Workers::new(NonZeroUsize::MIN),
            last: None,
            written_at: world.now(),
            next_at: world.now(),
            has_failed: false,
            history: None,
            history_from: world.now() + FIRST_AFTER,
            notices: Rc::clone(notices),
        };
        while let Some(event) = publisher.reader.try_next() {
            publisher.note(&event);
        }
        with_deadline(world.sleep(FIRST_WITHIN), publisher.publish(true)).await;
        publisher
    }

    /// Publishes until the pool is closed. The holder of the folder's lock then removes the status.
    pub async fn run(mut self) {
        let mut is_news = false;
        loop {
            let now = self.world.now();
            let next = if is_news { self.next_at } else { self.next_at.max(now + CHANGES_EVERY) };
            match with_deadline(self.world.sleep_until(next), self.reader.next()).await {
                Some(Some(event)) => {
                    self.note(&event);
                    is_news = true;
                }
                Some(None) => return,
                None => {
                    self.publish(is_news).await;
                    is_news = false;
                    self.note_room().await;
                }
            }
        }
    }

    fn note(&mut self, event: &PoolEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(EventReport::new(event, &self.shown.borrow().context));
    }

    /// Publishes the status if there is news, a change, or the last one is old.
    async fn publish(&mut self, is_news: bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        let events = self.events.iter().cloned().collect();
        let status = {
            let shown = self.shown.borrow();
            PublishedStatus::now(&self.world, self.opened, &pool, &shown.statuses, events)
        };
        drop(pool);
        let is_old = self.world.now().since(self.written_at) >= ANYWAY_EVERY;
        let is_known = self.last.as_ref().is_some_and(|last| last.says_the_same_as(&status));
        if is_known && !is_news && !is_old {
            return;
        }
        let text = status.text();
        let pause = PAUSE.max(Duration::from_millis(text.len() as u64 * 1000 / BYTES_PER_SECOND_MAX));
        let path = status::path_in(&self.folder);
        let written =
            self.writer.run(move || host_files::write_atomically_unflushed(&path, text.as_bytes())).await;
        self.note_outcome(written);
        self.last = Some(status);
        self.written_at = self.world.now();
        self.next_at = self.written_at + pause;
    }

    /// Notes the room in use, once an hour.
    async fn note_room(&mut self) {
        if self.world.now() < self.history_from {
            return;
        }
        let Some(pool) = self.pool.upgrade() else { return };
        let (unix_s, used_bytes) = (self.world.wall().seconds, pool.space().used_bytes);
        drop(pool);
        let history = self.history.get_or_insert_with(|| RoomHistory::read(&self.folder));
        if !history.is_due(unix_s) {
            return;
        }
        history.add(RoomSample { unix_s, used_bytes });
        let (path, text) = (room_history::path_in(&self.folder), history.text());
        // Without it there is no forecast, which says so.
        let _ = self.writer.run(move || host_files::write_atomically_unflushed(&path, text.as_bytes())).await;
    }

    /// Warns when publishing starts to fail, and once more when it works again.
    fn note_outcome(&mut self, written: IoResult<()>) {
        let has_failed = written.is_err();
        let changed = has_failed != std::mem::replace(&mut self.has_failed, has_failed);
        match written {
            Err(error) if changed => self.notices.warn(&format!(
                "{error}: 'spindle pool show' cannot show the pool while it is open; the pool itself is not affected"
            )),
            Ok(()) if changed => self.notices.warn("the pool's status is published again"),
            _ => {}
        }
    }
}
