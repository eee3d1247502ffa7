//! Drives under watch: stuck ones are removed, full ones are probed, and changes of the pool's health are reported.

use super::health::Health;
use crate::{
    engine::{MapReader, Shared, TaskOwner, events::BackgroundTask, spawn_repeated},
    format::MemberIndex,
    log::Lane,
    mover::Mover,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use world::Moment;

/// The watch over the drives of a pool.
pub(super) struct DriveWatch {
    pub shared: Rc<Shared>,
    pub log: Rc<Lane>,
    mover: Rc<Mover>,
    pub health: Health,
    /// Drives reported as out of space, and the time since when each has space again.
    pub out_of_space_reported: RefCell<BTreeMap<MemberIndex, Option<Moment>>>,
    pub next_probe: Cell<Moment>,
}

impl TaskOwner for DriveWatch {
    fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl DriveWatch {
    pub fn new(map: &MapReader, log: &Rc<Lane>, mover: &Rc<Mover>) -> Rc<Self> {
        Rc::new(Self {
            shared: Rc::clone(&map.shared),
            log: Rc::clone(log),
            mover: Rc::clone(mover),
            health: Health::new(map),
            out_of_space_reported: RefCell::default(),
            next_probe: Cell::new(map.shared.world.now()),
        })
    }

    /// Starts the background task.
    pub fn run(self: &Rc<Self>) {
        let watch = async |watch: &Self| {
            watch.shared.watch.hold(watch.mover.may_lack_copies());
            watch.health.check();
            watch.shared.leave_stuck_drives().await?;
            watch.probe_space().await
        };
        spawn_repeated(("array stuck drives", BackgroundTask::DriveWatch), self, watch);
    }
}
