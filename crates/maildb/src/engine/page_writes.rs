//! Page writes in progress, in two counts: those that have begun, and those of them at the device.
//!
//! A page write with a stamp begins long before it reaches the device: the stamp's log record goes with the
//! next log write that another task needs. Meanwhile it puts no load on the device. If it counted there, the
//! cleaner would stall with the drive idle, or request a log write of its own for every few pages.
//!
//! Invariants:
//!
//! 1. At most `device_max` are at the device. This protects the device, and the flush journal has a slot for
//!    each.
//! 2. At most `begun_max` have begun, including those at the device. This bounds the memory of images that
//!    wait while their pages are changed again.
//! 3. Device permits are granted in the order of the requests.

use std::cell::Cell;
use tokio::sync::{Semaphore, SemaphorePermit};

/// With durable stamps, this many times the device's limit may have begun.
const WAITING_FOR_STAMPS: usize = 8;

pub struct PageWrites {
    begun: Cell<usize>,
    begun_max: usize,
    device_max: usize,
    device: Semaphore,
}

impl PageWrites {
    /// A counter without writes.
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

    /// True if one must end before another may begin.
    pub fn is_full(&self) -> bool {
        self.begun.get() >= self.begun_max
    }

    /// Counts one more.
    pub fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
        assert!(self.begun.get() <= self.begun_max, "invariant 2: {} page writes", self.begun.get());
    }

    /// Waits for a device permit; dropping it returns it.
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
