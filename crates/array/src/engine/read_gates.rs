//! Gates of reads: a subscriber of the log keeps hosts from reading what another site may take back.
//!
//! Invariants:
//!
//! 1. A gate is asked after a read has its data and before its host gets them. It lasts as long as the subscription.
//! 2. Reads that the pool does for itself pass no gate: passes, cleaning, copies.

use super::{log_subscribers::SubscriberNumber, shared::Shared};
use crate::{
    error::Result,
    format::{BlockCount, BlockIndex, VolumeId, VolumeNumber},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use world::LocalFuture;

/// Decides when hosts get what they read.
pub trait ReadGate {
    /// `None` if the host may have these blocks now. To be quick: each read of the volume asks.
    fn pass(&self, volume: VolumeId, first: BlockIndex, count: BlockCount)
    -> Option<LocalFuture<Result<()>>>;
}

/// A gate, with the subscriber that it is of.
type OwnedGate = (SubscriberNumber, Rc<dyn ReadGate>);

/// The gates of a pool's volumes.
#[derive(Default)]
pub(crate) struct ReadGates {
    gates: RefCell<BTreeMap<VolumeId, OwnedGate>>,
    /// Most pools have none.
    has_any: Cell<bool>,
}

impl ReadGates {
    pub fn set(&self, volume: VolumeId, gate: OwnedGate) {
        self.gates.borrow_mut().insert(volume, gate);
        self.has_any.set(true);
    }

    /// Opens the gates of a subscriber.
    pub fn end(&self, subscriber: SubscriberNumber) {
        let mut gates = self.gates.borrow_mut();
        gates.retain(|_, (owner, _)| *owner != subscriber);
        self.has_any.set(!gates.is_empty());
    }
}

impl Shared {
    /// Waits until a host may have what it read of a volume.
    ///
    /// # Errors
    ///
    /// It gets nothing any more.
    pub async fn wait_for_read_gate(
        &self,
        volume: VolumeNumber,
        first: BlockIndex,
        count: BlockCount,
    ) -> Result<()> {
        let gates = &self.subscribers.read_gates;
        if !gates.has_any.get() {
            return Ok(());
        }
        let Some(volume) = self.state.borrow().catalogue.volume(volume).map(|row| row.volume) else {
            return Ok(());
        };
        let gate = gates.gates.borrow().get(&volume).map(|(_, gate)| Rc::clone(gate));
        match gate.and_then(|gate| gate.pass(volume, first, count)) {
            Some(waiting) => waiting.await,
            None => Ok(()),
        }
    }
}
