//! Access to an export, which is withheld when its contents change under its clients.
//!
//! A client may hold data in its caches that belong to contents which are no more, and send a request again over a new
//! connection. NBD names no client, so an export is withheld from all of them.
//!
//! Invariants:
//!
//! 1. While an export is withheld, no request is executed and no client is admitted.
//! 2. A connection from before is never used again, also after the export is given back.

use std::cell::Cell;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct ExportGate {
    is_withheld: Cell<bool>,
    /// Times that the export was withheld.
    closings: Cell<u64>,
    executing: Cell<usize>,
    idle: Notify,
    connected: Cell<usize>,
    /// A client's connection broke, and it may come back with what it has cached.
    has_broken: Cell<bool>,
}

/// The right of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatePass(u64);

/// A request that is being executed.
pub(crate) struct GateGuard<'a>(&'a ExportGate);

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.0.executing.set(self.0.executing.get() - 1);
        if self.0.executing.get() == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

impl ExportGate {
    /// The gate of an export that an earlier process withheld, and that nobody readmitted clients to.
    pub fn withheld() -> Self {
        let gate = Self::default();
        gate.is_withheld.set(true);
        gate
    }

    /// Withholds the export. Afterwards no request is being executed, and connections end with their next request.
    pub async fn withhold(&self) {
        self.is_withheld.set(true);
        self.closings.set(self.closings.get() + 1);
        while self.executing.get() > 0 {
            self.idle.notified().await;
        }
    }

    /// Admits clients again, over new connections.
    pub fn readmit(&self) {
        self.is_withheld.set(false);
        self.has_broken.set(false);
    }

    /// True if a client is connected, or one may come back whose connection broke.
    pub fn has_clients(&self) -> bool {
        self.connected.get() > 0 || self.has_broken.get()
    }

    pub(crate) fn begin_client(&self) {
        self.connected.set(self.connected.get() + 1);
    }

    /// `is_done`: the client has closed the connection of its own accord.
    pub(crate) fn end_client(&self, is_done: bool) {
        self.connected.set(self.connected.get() - 1);
        self.has_broken.set(self.has_broken.get() || !is_done);
    }

    /// Ends the connections of the export with their next request; new ones are admitted as before.
    pub fn end_clients(&self) {
        self.closings.set(self.closings.get() + 1);
    }

    pub fn is_withheld(&self) -> bool {
        self.is_withheld.get()
    }

    /// The pass of a new connection.
    pub(crate) fn pass(&self) -> GatePass {
        GatePass(self.closings.get())
    }

    /// True if a connection may send requests.
    pub(crate) fn admits(&self, pass: GatePass) -> bool {
        !self.is_withheld.get() && pass == self.pass()
    }

    /// Begins a request of a connection, if it may send any.
    pub(crate) fn enter(&self, pass: GatePass) -> Option<GateGuard<'_>> {
        self.admits(pass).then(|| {
            self.executing.set(self.executing.get() + 1);
            GateGuard(self)
        })
    }
}
