//! What a check may take of the storage, and when it is to end.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Moment, World};

/// How far it has come, for those who watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is being done: `check`, `walk`, `scan`.
    pub doing: &'static str,
    /// On which file.
    pub file: String,
    /// Bytes that are done, of all files together.
    pub done: u64,
    /// Bytes there are to do, as far as is known.
    pub all: u64,
    /// What was wrong so far.
    pub damage: u64,
}

/// Shared by all that reads: how fast it may go, whether to end, how far it is.
#[derive(Clone)]
pub struct Pace {
    world: World,
    /// Bytes a second; none for as fast as can be.
    rate: Option<ByteCount>,
    shared: Rc<Shared>,
}

struct Shared {
    /// When the next read may start.
    next: Cell<Moment>,
    /// Bytes that may still be read, if that is bounded.
    left: Cell<Option<u64>>,
    is_stopped: Cell<bool>,
    progress: RefCell<Progress>,
}

impl Pace {
    /// At most `rate` bytes a second and `most` bytes in all; none is no bound.
    pub fn new(world: &World, rate: Option<ByteCount>, most: Option<ByteCount>) -> Self {
        assert!(rate.is_none_or(|rate| rate.0 > 0), "nothing would ever be read");
        let shared = Shared {
            next: Cell::new(world.now()),
            left: Cell::new(most.map(|most| most.0)),
            is_stopped: Cell::new(false),
            progress: RefCell::default(),
        };
        Self { world: world.clone(), rate, shared: Rc::new(shared) }
    }

    /// Asks all that reads to end where it is.
    pub fn stop(&self) {
        self.shared.is_stopped.set(true);
    }

    /// Whether it was asked to, or has read all it may.
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped.get() || self.shared.left.get() == Some(0)
    }

    /// Whether a read may start now.
    pub fn allows(&self) -> bool {
        !self.is_stopped() && (self.rate.is_none() || self.world.now() >= self.shared.next.get())
    }

    /// Waits until a read may start; also if it may not any more.
    pub async fn wait(&self) {
        // Asked to stop, it is not to sleep on: a big read at a low rate is followed by a long pause.
        const NAP: Duration = Duration::from_millis(100);
        while !self.is_stopped() && !self.allows() {
            let nap_ends = self.world.now() + NAP;
            self.world.sleep_until(self.shared.next.get().min(nap_ends)).await;
        }
    }

    /// A read of so many bytes starts, after which a later run need not read them again.
    pub fn take(&self, bytes: u64) {
        if let Some(left) = self.shared.left.get() {
            self.shared.left.set(Some(left.saturating_sub(bytes)));
        }
        self.slow(bytes);
    }

    /// A read of so many bytes starts that each run does.
    pub fn slow(&self, bytes: u64) {
        if let Some(rate) = self.rate {
            let from = self.shared.next.get().max(self.world.now());
            let span = Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
            self.shared.next.set(from + span);
        }
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.shared.progress.borrow().clone()
    }

    /// Tells what is being done now, and to which file.
    pub fn begin(&self, doing: &'static str, file: &str) {
        let mut progress = self.shared.progress.borrow_mut();
        progress.doing = doing;
        file.clone_into(&mut progress.file);
    }

    /// More bytes turned out to be to do.
    pub fn expect(&self, bytes: u64) {
        self.shared.progress.borrow_mut().all += bytes;
    }

    /// So many bytes are done.
    pub fn done(&self, bytes: u64) {
        let mut progress = self.shared.progress.borrow_mut();
        progress.done += bytes;
        progress.all = progress.all.max(progress.done);
    }

    /// So much more is wrong.
    pub fn found(&self, damage: u64) {
        self.shared.progress.borrow_mut().damage += damage;
    }
}
