//! Page writes under way, in two counts: those that have begun, and those of them at the device.
//!
//! A page write with a stamp begins long before it reaches the device: the stamp's log record goes with the
//! next log write somebody needs. One that waits for company burdens no device. If it took a place there, the
//! cleaner would stand still with the drive idle, or ask for a log write of its own for every few pages.
//!
//! Invariants:
//!
//! 1. At the device are at most `device_max`. This protects the device, and the flush journal has a slot for
//!    each.
//! 2. Begun are at most `begun_max`, those at the device among them. This bounds the memory that pages hold
//!    which are changed again while their images wait.
//! 3. Places at the device are given in the order in which they were asked for.

use std::cell::Cell;
use tokio::sync::{Semaphore, SemaphorePermit};

/// With durable stamps, so many times the writes that may be at the device may have begun.
const WAITING_FOR_STAMPS: usize = 8;

/// Page writes under way.
pub struct PageWrites {
    begun: Cell<usize>,
    begun_max: usize,
    device_max: usize,
    device: Semaphore,
}

impl PageWrites {
    /// None yet, and never more than `device_max` at the device.
    pub fn new(device_max: usize, durable_stamps: bool) -> Self {
        assert!(device_max > 0, "a write must be allowed");
        let begun_max = if durable_stamps { device_max * WAITING_FOR_STAMPS } else { device_max };
        Self { begun: Cell::new(0), begun_max, device_max, device: Semaphore::new(device_max) }
    }

    /// Writes that have begun and not ended.
    pub fn begun(&self) -> usize {
        self.begun.get()
    }

    /// Writes at the device.
    pub fn at_device(&self) -> usize {
        self.device_max - self.device.available_permits()
    }

    /// Whether one must end before another may begin.
    pub fn is_full(&self) -> bool {
        self.begun.get() >= self.begun_max
    }

    /// Counts one more.
    pub fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
        assert!(self.begun.get() <= self.begun_max, "invariant 2: {} page writes", self.begun.get());
    }

    /// Waits for a place at the device, which is given back when the answer is dropped.
    pub async fn reach_device(&self) -> SemaphorePermit<'_> {
        let place = self.device.acquire().await.expect("it is never closed");
        assert!(self.at_device() <= self.begun.get(), "only what has begun reaches the device");
        place
    }

    /// Counts one less.
    pub fn end(&self) {
        assert!(self.begun.get() > self.at_device(), "it has begun, and has left the device");
        self.begun.set(self.begun.get() - 1);
    }
}
