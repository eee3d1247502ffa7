//! The rate limit, the stop request and the progress of a run.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Job, JobProgress, Moment, World};

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyProgress {
    /// The current activity: `check`, `walk`, `scan`.
    pub doing: &'static str,
    pub file: String,
    /// Bytes over all files, as far as known.
    pub job: JobProgress,
    /// Findings of damage so far.
    pub damage: u64,
}

/// Limits the rate of reads. Clones share one state: all readers of a run use the same limiter.
#[derive(Clone)]
pub struct RateLimiter {
    world: World,
    /// Bytes per second; `None` for no limit.
    rate: Option<ByteCount>,
    shared: Rc<Shared>,
}

struct Shared {
    /// Earliest start of the next read.
    next: Cell<Moment>,
    /// Remaining byte budget, if there is one.
    left: Cell<Option<u64>>,
    job: Job,
    /// Without the progress of `job`.
    progress: RefCell<VerifyProgress>,
}

impl RateLimiter {
    /// At most `rate` bytes per second and `most` bytes in total; `None` for no limit.
    pub fn new(world: &World, rate: Option<ByteCount>, most: Option<ByteCount>) -> Self {
        assert!(rate.is_none_or(|rate| rate.0 > 0), "nothing would ever be read");
        let shared = Shared {
            next: Cell::new(world.now()),
            left: Cell::new(most.map(|most| most.0)),
            job: Job::under_way(world),
            progress: RefCell::default(),
        };
        Self { world: world.clone(), rate, shared: Rc::new(shared) }
    }

    /// Asks all readers to stop.
    pub fn stop(&self) {
        self.shared.job.cancel();
    }

    /// True after a stop request, or once the byte budget is used up.
    pub fn is_stopped(&self) -> bool {
        self.shared.job.is_cancelled() || self.shared.left.get() == Some(0)
    }

    /// True if a read may start now.
    pub fn allows(&self) -> bool {
        !self.is_stopped() && (self.rate.is_none() || self.world.now() >= self.shared.next.get())
    }

    /// Waits until a read may start, or until the run is stopped.
    pub async fn wait(&self) {
        // Sleep in short steps to notice a stop request: a big read at a low rate is followed by a long
        // pause.
        const NAP: Duration = Duration::from_millis(100);
        while !self.is_stopped() && !self.allows() {
            let nap_ends = self.world.now() + NAP;
            self.world.sleep_until(self.shared.next.get().min(nap_ends)).await;
        }
    }

    /// Accounts a read that a later run need not repeat.
    pub fn take(&self, bytes: u64) {
        if let Some(left) = self.shared.left.get() {
            self.shared.left.set(Some(left.saturating_sub(bytes)));
        }
        self.slow(bytes);
    }

    /// Accounts a read that every run repeats: it counts against the rate, not against the byte budget.
    pub fn slow(&self, bytes: u64) {
        if let Some(rate) = self.rate {
            let from = self.shared.next.get().max(self.world.now());
            let span = Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
            self.shared.next.set(from + span);
        }
    }

    pub fn progress(&self) -> VerifyProgress {
        VerifyProgress { job: self.shared.job.progress(), ..self.shared.progress.borrow().clone() }
    }

    /// Sets the current activity and file.
    pub fn begin(&self, doing: &'static str, file: &str) {
        let mut progress = self.shared.progress.borrow_mut();
        progress.doing = doing;
        file.clone_into(&mut progress.file);
    }

    /// Adds bytes to the known total.
    pub fn expect(&self, bytes: u64) {
        self.shared.job.add_total(bytes);
    }

    /// Adds bytes to those done.
    pub fn done(&self, bytes: u64) {
        self.shared.job.advance(bytes);
    }

    /// Adds findings of damage.
    pub fn found(&self, damage: u64) {
        self.shared.progress.borrow_mut().damage += damage;
    }
}
