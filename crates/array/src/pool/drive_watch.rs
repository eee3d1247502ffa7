//! Drives under watch: stuck ones are removed, full ones are probed, and changes of the pool's health are
//! reported.

use super::health::Health;
use crate::{
    engine::{MapReader, Shared, TaskOwner, events::BackgroundTask, spawn_repeated},
    error::Result,
    format::MemberIndex,
    log::LogWriter,
    mover::Mover,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use world::Moment;

/// The watch over the drives of a pool.
pub(super) struct DriveWatch {
    pub shared: Rc<Shared>,
    pub log: Rc<LogWriter>,
    mover: Rc<Mover>,
    pub health: Health,
    /// Drives reported as out of space, and the time since when each has space again.
    pub out_of_space_reported: RefCell<BTreeMap<MemberIndex, Option<Moment>>>,
    pub next_probe: Cell<Moment>,
    /// [`Drives::changes`](crate::drive::Drives::changes) when other tasks were last woken.
    seen_changes: Cell<u64>,
}

/// Looks at stuck drives within the time in which they must answer.
const STUCK_LOOKS: u32 = 8;

/// Interval while a drive is out of space, or was lately.
const SPACE_LOOK_EVERY: Duration = Duration::from_millis(500);

impl TaskOwner for DriveWatch {
    fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl DriveWatch {
    pub fn new(map: &MapReader, log: &Rc<LogWriter>, mover: &Rc<Mover>) -> Rc<Self> {
        Rc::new(Self {
            shared: Rc::clone(&map.shared),
            log: Rc::clone(log),
            mover: Rc::clone(mover),
            health: Health::new(map),
            out_of_space_reported: RefCell::default(),
            next_probe: Cell::new(map.shared.world.now()),
            seen_changes: Cell::new(map.shared.drives.changes()),
        })
    }

    /// Starts the background task. Drives that take longer than `answer_within` are stuck; zero: none is.
    pub fn run(self: &Rc<Self>, answer_within: Duration) {
        let look_every = (answer_within > Duration::ZERO).then_some(answer_within / STUCK_LOOKS);
        let watch = async move |watch: &Self| watch.look(look_every).await;
        spawn_repeated(("array stuck drives", BackgroundTask::DriveWatch), self, watch);
    }

    async fn look(&self, look_every: Option<Duration>) -> Result<Option<Moment>> {
        let shared = &self.shared;
        shared.watch.hold(self.mover.may_lack_copies());
        self.health.check();
        shared.leave_stuck_drives().await?;
        self.probe_space().await?;
        if self.seen_changes.replace(shared.drives.changes()) != shared.drives.changes() {
            shared.note_drive_change();
        }
        let has_space =
            shared.drives.out_of_space().is_empty() && self.out_of_space_reported.borrow().is_empty();
        let for_space = (!has_space).then_some(SPACE_LOOK_EVERY);
        let pauses = [look_every, for_space, self.health.check_within()];
        Ok(pauses.into_iter().flatten().min().map(|pause| shared.world.now() + pause))
    }
}
