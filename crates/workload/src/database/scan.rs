//! The background scan: every page of every database read and checked, at a gentle steady rate.
//!
//! Large sequential reads beside the transactions' random ones, as Exchange 2010 and later do
//! (about 256 KB at 5 MB/s for each database). It never counts as transactional I/O.

use super::{
    meter::Meter,
    operation::{Failure, FailureKind},
};
use maildb::{Database, PageNumber, PageSize};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, JoinHandle, World};

/// Longest time a stop may take to be noticed.
const NAP_MAX: Duration = Duration::from_millis(200);

/// What a scan has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanTotals {
    /// Pages read.
    pub pages: u64,
    /// Of those, blank: never used, or what was written there is gone.
    pub empty: u64,
    /// Of those, damaged.
    pub damaged: u64,
    /// Times a scan came to the end of its database and began again.
    pub passes: u64,
}

impl ScanTotals {
    /// Adds what another group's scan did.
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
    found: RefCell<Vec<Failure>>,
}

impl BackgroundScan {
    /// Scans every one of `databases` (each with the meter of its volume) at `rate` bytes a second,
    /// `batch` at a time.
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

    /// Forgets the totals: the measured time begins now.
    pub fn restart(&self) {
        self.state.totals.set(ScanTotals::default());
    }

    /// What was done since the last restart.
    pub fn totals(&self) -> ScanTotals {
        self.state.totals.get()
    }

    /// Has the scans end after what they are reading.
    pub fn stop(&self) {
        self.state.stopped.set(true);
    }

    /// Waits for that; gives all damage ever found.
    pub async fn join(self) -> Vec<Failure> {
        assert!(self.state.stopped.get(), "a scan ends when it was told to");
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
                state.found.borrow_mut().push(Failure::from_engine(&error));
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
            state.found.borrow_mut().push(Failure { kind: FailureKind::Checksum, text });
        }
        place = outcome.next.unwrap_or(FIRST);
        // Behind schedule by more than one read: do not make up for it in a burst.
        due = (due + interval).max(world.now());
        while world.now() < due && !state.stopped.get() {
            world.sleep_until(due.min(world.now() + NAP_MAX)).await;
        }
    }
}
