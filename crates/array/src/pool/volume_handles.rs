//! The open handles of volumes. Invariant: all handles of a volume, and everyone else who changes its blocks,
//! share its block locks.

use crate::{
    format::VolumeNumber,
    volume::{BlockLocks, HostPath, Volume},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
};

#[derive(Default)]
struct SharedParts {
    volume: Weak<Volume>,
    locks: Weak<BlockLocks>,
}

impl SharedParts {
    fn locks(&mut self) -> Rc<BlockLocks> {
        let locks = self.locks.upgrade().unwrap_or_default();
        self.locks = Rc::downgrade(&locks);
        locks
    }
}

pub(super) struct VolumeHandles {
    host: Rc<HostPath>,
    all: RefCell<BTreeMap<VolumeNumber, SharedParts>>,
}

impl VolumeHandles {
    pub fn new(host: &Rc<HostPath>) -> Rc<Self> {
        Rc::new(Self { host: Rc::clone(host), all: RefCell::default() })
    }

    /// The handle of a volume.
    pub fn get(&self, number: VolumeNumber) -> Rc<Volume> {
        let mut all = self.all.borrow_mut();
        all.retain(|_, parts| parts.locks.strong_count() > 0);
        let parts = all.entry(number).or_default();
        if let Some(volume) = parts.volume.upgrade() {
            return volume;
        }
        let volume = Rc::new(Volume::new(Rc::clone(&self.host), number, parts.locks()));
        parts.volume = Rc::downgrade(&volume);
        volume
    }

    /// The block locks of a volume, for one who does not count as its user.
    pub fn locks_of(&self, number: VolumeNumber) -> Rc<BlockLocks> {
        self.all.borrow_mut().entry(number).or_default().locks()
    }

    /// True if anyone has the volume open.
    pub fn is_used(&self, number: VolumeNumber) -> bool {
        self.all.borrow().get(&number).is_some_and(|parts| parts.volume.strong_count() > 0)
    }
}
