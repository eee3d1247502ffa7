//! The background scan: reads and checks every page of every database at a steady low rate.
//!
//! Large sequential reads beside the transactions' random ones, as in Exchange 2010 and later (about 256 KB
//! at 5 MB/s for each database). They never count as transactional I/O.

use crate::{
    database::load::operation::{FailureKind, RunFailure},
    meter::Meter,
};
use maildb::{Database, PageNumber, PageSize};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, JoinHandle, World};

/// Maximum delay before a stop takes effect.
const NAP_MAX: Duration = Duration::from_millis(200);

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanTotals {
    /// Pages read.
    pub pages: u64,
    /// Blank pages among them: unused, or their content was lost.
    pub empty: u64,
    /// Damaged pages among them.
    pub damaged: u64,
    /// Completed passes over a database.
    pub passes: u64,
}

impl ScanTotals {
    /// Adds the scan of another group.
    pub fn merge(&mut self, other: &Self) {
        self.pages += other.pages;
        self.empty += other.empty;
        self.damaged += other.damaged;
        self.passes += other.passes;
    }
}

/// The scans of a group's databases, one task each.
pub struct BackgroundScan {
    state: Rc<ScanState>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct ScanState {
    stopped: Cell<bool>,
    totals: Cell<ScanTotals>,
    found: RefCell<Vec<RunFailure>>,
}

impl BackgroundScan {
    /// Scans each of `databases` (with the meter of its volume) at `rate` bytes a second, `batch` bytes at a
    /// time.
    pub fn start(
        world: &World,
        databases: Vec<(Database, Rc<Meter>)>,
        rate: ByteCount,
        batch: ByteCount,
        page_size: PageSize,
    ) -> Self {
        assert!(rate.0 > 0 && batch.0 >= page_size.bytes() as u64, "a scan reads something, some time");
        let state: Rc<ScanState> = Rc::default();
        let pages = (batch.0 / page_size.bytes() as u64) as u32;
        let interval = Duration::from_secs_f64(batch.0 as f64 / rate.0 as f64);
        let tasks = databases
            .into_iter()
            .map(|(database, meter)| {
                let scan = scan_database(world.clone(), database, meter, pages, interval, Rc::clone(&state));
                world.spawn("background scan", scan)
            })
            .collect();
        Self { state, tasks }
    }

    /// Resets the totals: measurement begins now.
    pub fn restart(&self) {
        self.state.totals.set(ScanTotals::default());
    }

    /// Totals since the last restart.
    pub fn totals(&self) -> ScanTotals {
        self.state.totals.get()
    }

    /// Stops the scans after their current reads.
    pub fn stop(&self) {
        self.state.stopped.set(true);
    }

    /// Waits for the scans to stop; returns all damage they found.
    pub async fn join(self) -> Vec<RunFailure> {
        assert!(self.state.stopped.get(), "a scan is stopped before it is joined");
        for task in self.tasks {
            task.await;
        }
        self.state.found.take()
    }
}

async fn scan_database(
    world: World,
    database: Database,
    meter: Rc<Meter>,
    pages: u32,
    interval: Duration,
    state: Rc<ScanState>,
) {
    const FIRST: PageNumber = PageNumber(1);
    let mut place = FIRST;
    let mut due = world.now();
    while !state.stopped.get() {
        let outcome = match meter.scanning(database.scan(place, pages)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                state.found.borrow_mut().push(RunFailure::from_engine(&error));
                return;
            }
        };
        let mut totals = state.totals.get();
        totals.pages += u64::from(outcome.pages_checked);
        totals.empty += u64::from(outcome.pages_empty);
        totals.damaged += outcome.damaged.len() as u64;
        totals.passes += u64::from(outcome.next.is_none());
        state.totals.set(totals);
        for (page, problem) in outcome.damaged {
            let text = format!("{}: page {}: {problem} (background scan)", database.name(), page.0);
            state.found.borrow_mut().push(RunFailure { kind: FailureKind::Checksum, text });
        }
        place = outcome.next.unwrap_or(FIRST);
        // If behind schedule by more than one read, do not catch up in a burst.
        due = (due + interval).max(world.now());
        while world.now() < due && !state.stopped.get() {
            world.sleep_until(due.min(world.now() + NAP_MAX)).await;
        }
    }
}
