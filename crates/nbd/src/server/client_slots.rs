//! Client slots: the connection limit, and the choice of the idle client to disconnect for a new one.
//!
//! Invariants:
//!
//! 1. A client that has sent a request keeps its slot until it disconnects.
//! 2. A client that has sent none for `idle_max` loses its slot when a new client needs one, and not before.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{Moment, World};

/// Slots of the clients in the transmission phase.
pub struct ClientSlots {
    world: World,
    count_max: usize,
    idle_max: Duration,
    /// By order of arrival.
    holders: RefCell<BTreeMap<u64, Holder>>,
    next: Cell<u64>,
}

struct Holder {
    since: Moment,
    has_requested: bool,
    is_wanted: Rc<Notify>,
}

impl ClientSlots {
    /// `count_max` slots. A client without a request for `idle_max` may lose its slot.
    pub fn new(world: &World, count_max: usize, idle_max: Duration) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            count_max,
            idle_max,
            holders: RefCell::default(),
            next: Cell::new(0),
        })
    }

    pub fn count_max(&self) -> usize {
        self.count_max
    }

    /// Clients in the transmission phase.
    pub fn count(&self) -> usize {
        self.holders.borrow().len()
    }

    /// Takes a slot; `None` if no client is idle.
    pub fn take(self: &Rc<Self>) -> Option<ClientSlot> {
        let now = self.world.now();
        let mut holders = self.holders.borrow_mut();
        if holders.len() >= self.count_max {
            let is_idle = |holder: &Holder| !holder.has_requested && now.since(holder.since) >= self.idle_max;
            let (&number, _) = holders.iter().find(|(_, holder)| is_idle(holder))?;
            let holder = holders.remove(&number).expect("it was found");
            holder.is_wanted.notify_one();
        }
        let number = self.next.replace(self.next.get() + 1);
        let is_wanted = Rc::new(Notify::new());
        let holder = Holder { since: now, has_requested: false, is_wanted: Rc::clone(&is_wanted) };
        holders.insert(number, holder);
        Some(ClientSlot { slots: Rc::clone(self), number, is_wanted })
    }
}

/// A client's slot, freed on drop.
pub struct ClientSlot {
    slots: Rc<ClientSlots>,
    number: u64,
    is_wanted: Rc<Notify>,
}

impl ClientSlot {
    /// Keeps the slot for good: the client has sent a request.
    pub fn keep(&self) {
        if let Some(holder) = self.slots.holders.borrow_mut().get_mut(&self.number) {
            holder.has_requested = true;
        }
    }

    /// Completes when another client has taken the slot.
    pub async fn taken(&self) {
        self.is_wanted.notified().await;
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.slots.holders.borrow_mut().remove(&self.number);
    }
}
