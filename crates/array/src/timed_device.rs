//! Time limits on drives: a drive that does not answer in time is failed, and reads turn to another copy long
//! before.
//!
//! 1. Every operation in progress is tracked with its start. A finished one counts as finished even before
//!    its caller polls it: a caller that waits for several drives is held up by the one that hangs, and must
//!    not incriminate the others.
//! 2. A drive with an operation older than the pool's limit is failed, if at least half of the drives tracked
//!    do answer: if all hang, the drives are not the cause. All its operations then fail, and every later
//!    one.
//! 3. While any data has fewer copies than it should, no drive is failed: it may have the last one.
//! 4. The drive may still complete failed operations later. Nothing relies on them: such a drive is lost, and
//!    stale.

use crate::simulation::sometimes::{self, Sometimes};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    pin::Pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Moment, Stability, World,
};

/// Checks per time limit.
const CHECKS_PER_LIMIT: u32 = 4;

/// Time limits of all drives of a pool.
pub struct DriveTimeouts {
    world: World,
    /// Limit for an operation; then the drive is failed.
    answer_within: Duration,
    /// Limit for a read; then another copy is read, too.
    read_within: Duration,
    drives: RefCell<Vec<Weak<DriveState>>>,
    /// Callers waiting for a read, by deadline.
    waiting: RefCell<BTreeMap<(Moment, u64), Waker>>,
    waited: Cell<u64>,
    is_ticking: Cell<bool>,
    /// True while no drive may be failed.
    holds: Cell<bool>,
}

/// A caller waiting for a read.
struct ReadWaiter {
    watch: Rc<DriveTimeouts>,
    key: (Moment, u64),
}

impl Drop for ReadWaiter {
    fn drop(&mut self) {
        self.watch.waiting.borrow_mut().remove(&self.key);
    }
}

/// A drive with a time limit on its operations.
struct TimedDevice {
    device: Rc<dyn BlockDevice>,
    state: Rc<DriveState>,
}

/// DriveState of a drive.
struct DriveState {
    world: World,
    /// By order of start.
    under_way: RefCell<BTreeMap<u64, UnderWay>>,
    begun: Cell<u64>,
    is_given_up: Cell<bool>,
    /// Address of the [`TimedDevice`], which identifies it.
    at: Cell<*const ()>,
    answer_within: Duration,
    may_be_away: bool,
}

/// An operation in progress.
struct UnderWay {
    begun: Moment,
    /// Waker of the caller.
    waker: Waker,
    operation: Rc<dyn PendingOperation>,
}

/// An operation of any result type.
trait PendingOperation {
    fn is_finished(&self, waker: &Waker) -> bool;
}

/// An operation, or its result until the caller takes it.
enum OperationState<T> {
    Pending(LocalFuture<IoResult<T>>),
    Finished(Option<IoResult<T>>),
}

/// Future of one operation.
struct Operation<T> {
    state: Rc<RefCell<OperationState<T>>>,
    drive: Rc<DriveState>,
    number: u64,
}

impl<T> OperationState<T> {
    fn poll_once(&mut self, context: &mut Context<'_>) {
        if let Self::Pending(inner) = self
            && let Poll::Ready(done) = inner.as_mut().poll(context)
        {
            *self = Self::Finished(Some(done));
        }
    }
}

impl<T> PendingOperation for RefCell<OperationState<T>> {
    fn is_finished(&self, waker: &Waker) -> bool {
        let mut state = self.borrow_mut();
        state.poll_once(&mut Context::from_waker(waker));
        matches!(*state, OperationState::Finished(_))
    }
}

impl DriveTimeouts {
    /// Tracks drives until dropped. A limit of zero disables the check.
    pub fn new(world: &World, answer_within: Duration, read_within: Duration) -> Rc<Self> {
        let watch = Rc::new(Self {
            world: world.clone(),
            answer_within,
            read_within,
            drives: RefCell::default(),
            waiting: RefCell::default(),
            waited: Cell::new(0),
            is_ticking: Cell::new(false),
            holds: Cell::new(false),
        });
        if answer_within > Duration::ZERO {
            world.spawn(
                "array watch",
                check_regularly(world.clone(), answer_within / CHECKS_PER_LIMIT, Rc::downgrade(&watch)),
            );
        }
        watch
    }

    /// Wraps a drive.
    pub fn watch(&self, device: &Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        let state = Rc::new(DriveState {
            world: self.world.clone(),
            under_way: RefCell::default(),
            begun: Cell::new(0),
            is_given_up: Cell::new(false),
            at: Cell::new(std::ptr::null()),
            answer_within: self.answer_within,
            may_be_away: device.may_be_away(),
        });
        self.drives.borrow_mut().push(Rc::downgrade(&state));
        let watched: Rc<dyn BlockDevice> =
            Rc::new(TimedDevice { device: Rc::clone(device), state: Rc::clone(&state) });
        state.at.set(Rc::as_ptr(&watched).cast());
        watched
    }

    /// Waits for `work` until another copy should be read; none if it took longer.
    pub async fn is_done_soon<T>(self: &Rc<Self>, work: &mut LocalFuture<T>) -> Option<T> {
        let mut waiting: Option<ReadWaiter> = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            match &waiting {
                None => waiting = Some(self.wait(context.waker())),
                Some(waiting) => match self.waiting.borrow_mut().get_mut(&waiting.key) {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => return Poll::Ready(None),
                },
            }
            Poll::Pending
        })
        .await
    }

    fn wait(self: &Rc<Self>, waker: &Waker) -> ReadWaiter {
        self.waited.set(self.waited.get() + 1);
        let key = (self.world.now() + self.read_within, self.waited.get());
        self.waiting.borrow_mut().insert(key, waker.clone());
        if !self.is_ticking.replace(true) {
            // One timer for all reads: most finish long before they need one.
            self.world.spawn("array late reads", tick(self.world.clone(), Rc::downgrade(self)));
        }
        ReadWaiter { watch: Rc::clone(self), key }
    }

    /// The error of a wrapped drive that was failed.
    pub fn given_up(&self, device: &Rc<dyn BlockDevice>) -> Option<IoError> {
        let at = Rc::as_ptr(device).cast::<()>();
        let drives = self.drives.borrow();
        let mut given_up = drives.iter().filter_map(Weak::upgrade).filter(|drive| drive.is_given_up.get());
        given_up.find(|drive| drive.at.get() == at).map(|drive| drive.error())
    }

    /// While held, no drive is failed, however long it takes: it may have data no other has.
    pub fn hold(&self, holds: bool) {
        self.holds.set(holds);
    }

    /// The time for which no drive has ended what it began first; zero if one has nothing to do, or answers.
    pub fn silent_for(&self) -> Duration {
        let now = self.world.now();
        let drives = self.drives.borrow();
        let there = drives.iter().filter_map(Weak::upgrade).filter(|drive| !drive.is_given_up.get());
        let oldest = |drive: Rc<DriveState>| {
            let under_way = drive.under_way.borrow();
            let mut unfinished = under_way.values().filter(|one| !one.operation.is_finished(&one.waker));
            unfinished.next().map_or(Duration::ZERO, |one| now.since(one.begun))
        };
        there.map(oldest).min().unwrap_or_default()
    }

    fn check(&self, now: Moment) {
        self.drives.borrow_mut().retain(|drive| drive.strong_count() > 0);
        let drives: Vec<Rc<DriveState>> = self.drives.borrow().iter().filter_map(Weak::upgrade).collect();
        let there: Vec<_> = drives.into_iter().filter(|drive| !drive.is_given_up.get()).collect();
        let is_late = |drive: &Rc<DriveState>| {
            let under_way = drive.under_way.borrow();
            let mut old = under_way.values().take_while(|one| now.since(one.begun) > self.answer_within);
            old.any(|one| !one.operation.is_finished(&one.waker))
        };
        let (late, answering): (Vec<_>, Vec<_>) = there.into_iter().partition(is_late);
        if self.holds.get() || answering.len() < late.len() {
            return;
        }
        for drive in late {
            sometimes::reached(Sometimes::StuckDriveGivenUp);
            drive.is_given_up.set(true);
            let under_way: Vec<Waker> =
                drive.under_way.borrow().values().map(|one| one.waker.clone()).collect();
            under_way.into_iter().for_each(Waker::wake);
        }
    }
}

async fn check_regularly(world: World, every: Duration, watch: Weak<DriveTimeouts>) {
    loop {
        world.sleep(every).await;
        let Some(watch) = watch.upgrade() else { return };
        watch.check(world.now());
    }
}

/// Wakes callers past their deadline, as long as any caller waits.
async fn tick(world: World, watch: Weak<DriveTimeouts>) {
    loop {
        let Some(every) = watch.upgrade().map(|watch| watch.read_within / CHECKS_PER_LIMIT) else { return };
        world.sleep(every).await;
        let Some(watch) = watch.upgrade() else { return };
        let late = {
            let mut waiting = watch.waiting.borrow_mut();
            let in_time = waiting.split_off(&(world.now(), u64::MAX));
            std::mem::replace(&mut *waiting, in_time)
        };
        late.into_values().for_each(Waker::wake);
        if watch.waiting.borrow().is_empty() {
            watch.is_ticking.set(false);
            return;
        }
    }
}

impl DriveState {
    fn error(&self) -> IoError {
        let story = format!("no answer for {} s: the drive is failed", self.answer_within.as_secs_f64());
        let kind = if self.may_be_away { IoErrorKind::Disconnected } else { IoErrorKind::Medium };
        IoError::new(kind, story)
    }
}

impl TimedDevice {
    fn begin<T>(
        &self,
        start: impl FnOnce(&dyn BlockDevice) -> LocalFuture<IoResult<T>>,
    ) -> LocalFuture<IoResult<T>>
    where
        T: 'static,
    {
        if self.state.is_given_up.get() {
            let error = self.state.error();
            return Box::pin(async { Err(error) });
        }
        let inner = start(&*self.device);
        // Counts from here, not from the first poll: callers start several operations, and then await one
        // after the other.
        let number = self.state.begun.get() + 1;
        self.state.begun.set(number);
        let state = Rc::new(RefCell::new(OperationState::Pending(inner)));
        let operation = Rc::clone(&state) as Rc<dyn PendingOperation>;
        let begun = self.state.world.now();
        let one = UnderWay { begun, waker: Waker::noop().clone(), operation };
        self.state.under_way.borrow_mut().insert(number, one);
        Box::pin(Operation { state, drive: Rc::clone(&self.state), number })
    }
}

impl<T> Future for Operation<T> {
    type Output = IoResult<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.state.borrow_mut();
        state.poll_once(context);
        if let OperationState::Finished(result) = &mut *state {
            return Poll::Ready(result.take().expect("a result is taken once"));
        }
        drop(state);
        if self.drive.is_given_up.get() {
            return Poll::Ready(Err(self.drive.error()));
        }
        if let Some(one) = self.drive.under_way.borrow_mut().get_mut(&self.number) {
            one.waker.clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        self.drive.under_way.borrow_mut().remove(&self.number);
    }
}

impl BlockDevice for TimedDevice {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.begin(|device| device.read(at, into))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.begin(|device| device.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.begin(|device| device.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.begin(|device| device.discard(at, length))
    }
}
