//! Commands of hosts on a volume, held while the volume changes hands.
//!
//! Invariants:
//!
//! 1. While the gate is held, no command begins; a hold is complete once none is under way.
//! 2. Commands that waited begin in the order in which they came, unless the volume has left: then none begins any more.

use std::{cell::Cell, rc::Rc};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct CommandGate {
    is_held: Cell<bool>,
    has_left: Cell<bool>,
    under_way: Cell<usize>,
    changed: Notify,
}

/// A command that is under way.
#[derive(Debug)]
pub(crate) struct EnteredCommand(Rc<CommandGate>);

/// Commands wait while this is there.
#[derive(Debug)]
#[must_use]
pub(crate) struct GateHold(Rc<CommandGate>);

impl CommandGate {
    /// Begins a command, once nobody holds the gate; `None` if the volume has left.
    pub async fn enter(self: &Rc<Self>) -> Option<EnteredCommand> {
        if self.is_held.get() {
            self.wait_until(|gate| !gate.is_held.get()).await;
        }
        if self.has_left.get() {
            return None;
        }
        // Nothing awaits between the looks and this.
        self.under_way.set(self.under_way.get() + 1);
        Some(EnteredCommand(Rc::clone(self)))
    }

    /// Keeps commands waiting from now on, and returns when none is under way; `None` if somebody holds it already.
    pub async fn hold(self: &Rc<Self>) -> Option<GateHold> {
        if self.is_held.replace(true) {
            return None;
        }
        let hold = GateHold(Rc::clone(self));
        self.wait_until(|gate| gate.under_way.get() == 0).await;
        Some(hold)
    }

    async fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }
}

impl GateHold {
    /// The volume is elsewhere from now on: commands that wait do not begin here.
    pub fn leave(&self) {
        assert!(self.is_complete(), "no command is under way when a volume leaves");
        self.0.has_left.set(true);
    }

    /// True if no command is under way.
    pub fn is_complete(&self) -> bool {
        self.0.under_way.get() == 0
    }
}

impl Drop for EnteredCommand {
    fn drop(&mut self) {
        let under_way = self.0.under_way.get();
        assert!(under_way > 0, "a command that ends has begun");
        self.0.under_way.set(under_way - 1);
        if self.0.is_held.get() {
            self.0.changed.notify_waiters();
        }
    }
}

impl Drop for GateHold {
    fn drop(&mut self) {
        assert!(self.0.is_held.replace(false), "it was held");
        self.0.changed.notify_waiters();
    }
}
