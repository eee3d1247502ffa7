//! The open handles of volumes. Invariant: all handles of a volume, and everyone else who changes its blocks,
//! share its block locks; all handles share its gate.

use super::copy::HeldHosts;
use crate::{
    format::VolumeNumber,
    volume::{BlockLocks, CommandGate, HostPath, Volume},
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
    gate: Weak<CommandGate>,
}

impl SharedParts {
    fn locks(&mut self) -> Rc<BlockLocks> {
        let locks = self.locks.upgrade().unwrap_or_default();
        self.locks = Rc::downgrade(&locks);
        locks
    }

    fn gate(&mut self) -> Rc<CommandGate> {
        let gate = self.gate.upgrade().unwrap_or_default();
        self.gate = Rc::downgrade(&gate);
        gate
    }
}

pub(super) struct VolumeHandles {
    host: Rc<HostPath>,
    all: RefCell<BTreeMap<VolumeNumber, SharedParts>>,
    /// Hosts of volumes that were moved elsewhere, until they have followed.
    left: RefCell<BTreeMap<VolumeNumber, HeldHosts>>,
}

impl VolumeHandles {
    pub fn new(host: &Rc<HostPath>) -> Rc<Self> {
        Rc::new(Self { host: Rc::clone(host), all: RefCell::default(), left: RefCell::default() })
    }

    /// The handle of a volume.
    pub fn get(&self, number: VolumeNumber) -> Rc<Volume> {
        let mut all = self.all.borrow_mut();
        all.retain(|_, parts| parts.locks.strong_count() > 0 || parts.gate.strong_count() > 0);
        let parts = all.entry(number).or_default();
        if let Some(volume) = parts.volume.upgrade() {
            return volume;
        }
        let shared = (parts.locks(), parts.gate());
        let volume = Rc::new(Volume::new(Rc::clone(&self.host), number, shared));
        parts.volume = Rc::downgrade(&volume);
        volume
    }

    /// The block locks of a volume, for one who does not count as its user.
    pub fn locks_of(&self, number: VolumeNumber) -> Rc<BlockLocks> {
        self.all.borrow_mut().entry(number).or_default().locks()
    }

    /// The gate of a volume's commands, for one who does not count as its user.
    pub fn gate_of(&self, number: VolumeNumber) -> Rc<CommandGate> {
        self.all.borrow_mut().entry(number).or_default().gate()
    }

    /// Keeps the hosts of a volume that was moved elsewhere waiting.
    pub fn leave(&self, number: VolumeNumber, held: HeldHosts) {
        let before = self.left.borrow_mut().insert(number, held);
        assert!(before.is_none(), "a volume leaves its pool once");
    }

    /// The hosts that wait for a volume that was moved elsewhere.
    pub fn take_left(&self, number: VolumeNumber) -> Option<HeldHosts> {
        self.left.borrow_mut().remove(&number)
    }

    /// True if anyone has the volume open.
    pub fn is_used(&self, number: VolumeNumber) -> bool {
        self.all.borrow().get(&number).is_some_and(|parts| parts.volume.strong_count() > 0)
    }
}
