//! Drives that answer in time: one that does not is given up like one that fails, and reads turn to another copy long
//! before.
//!
//! 1. Every operation under way is known, and since when. One that is done counts as such also while nobody asks: who waits
//!    for several waits for the drive that hangs, and not for the one that has answered.
//! 2. A drive with an operation older than the pool's patience is given up, if at least half of those it knows of answer:
//!    where all hang, it is not the drives. All its operations then fail, and every later one.
//! 3. While anything has fewer copies than it should, none is given up: it may have the last one.
//! 4. What was given up may still be done by the drive, late. Nobody relies on it: such a drive is lost, and stale.

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

/// How often operations are looked at, of the pool's patience with reads.
const LOOKS: u32 = 4;

/// All drives of a pool.
pub struct Watch {
    world: World,
    /// How long a drive may take.
    answer_within: Duration,
    /// How long a read may take before another copy is asked, too.
    read_within: Duration,
    drives: RefCell<Vec<Weak<State>>>,
    /// Who waits for a read, and until when.
    waiting: RefCell<BTreeMap<(Moment, u64), Waker>>,
    waited: Cell<u64>,
    is_ticking: Cell<bool>,
    /// Nobody is given up for now.
    holds: Cell<bool>,
}

/// Somebody who waits for a read.
struct Waiting {
    watch: Rc<Watch>,
    key: (Moment, u64),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.watch.waiting.borrow_mut().remove(&self.key);
    }
}

/// A drive that is watched.
struct Watched {
    device: Rc<dyn BlockDevice>,
    state: Rc<State>,
}

/// What is known of a drive.
struct State {
    world: World,
    /// By the order in which they began.
    under_way: RefCell<BTreeMap<u64, UnderWay>>,
    begun: Cell<u64>,
    is_given_up: Cell<bool>,
    /// Where the watched drive is in memory: its name among others.
    at: Cell<*const ()>,
    answer_within: Duration,
}

/// What is known of an operation.
struct UnderWay {
    begun: Moment,
    /// Of who waits for it.
    waker: Waker,
    answer: Rc<dyn Answer>,
}

/// Whether a drive has answered.
trait Answer {
    fn is_there(&self, waker: &Waker) -> bool;
}

/// What a drive was asked, and what it answered until somebody takes that.
enum Asked<T> {
    Waiting(LocalFuture<IoResult<T>>),
    Answered(Option<IoResult<T>>),
}

/// An operation of a drive.
struct Operation<T> {
    asked: Rc<RefCell<Asked<T>>>,
    state: Rc<State>,
    number: u64,
}

impl<T> Asked<T> {
    fn look(&mut self, context: &mut Context<'_>) {
        if let Self::Waiting(inner) = self
            && let Poll::Ready(done) = inner.as_mut().poll(context)
        {
            *self = Self::Answered(Some(done));
        }
    }
}

impl<T> Answer for RefCell<Asked<T>> {
    fn is_there(&self, waker: &Waker) -> bool {
        let mut asked = self.borrow_mut();
        asked.look(&mut Context::from_waker(waker));
        matches!(*asked, Asked::Answered(_))
    }
}

impl Watch {
    /// Looks after drives until it is dropped. Zero: nothing ever takes too long.
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
            world.spawn("array watch", look_on(world.clone(), answer_within / LOOKS, Rc::downgrade(&watch)));
        }
        watch
    }

    /// The same drive, watched.
    pub fn watch(&self, device: &Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        let state = Rc::new(State {
            world: self.world.clone(),
            under_way: RefCell::default(),
            begun: Cell::new(0),
            is_given_up: Cell::new(false),
            at: Cell::new(std::ptr::null()),
            answer_within: self.answer_within,
        });
        self.drives.borrow_mut().push(Rc::downgrade(&state));
        let watched: Rc<dyn BlockDevice> =
            Rc::new(Watched { device: Rc::clone(device), state: Rc::clone(&state) });
        state.at.set(Rc::as_ptr(&watched).cast());
        watched
    }

    /// Waits for `work`, but no longer than until another copy should be asked: then there is none.
    pub async fn is_done_soon<T>(self: &Rc<Self>, work: &mut LocalFuture<T>) -> Option<T> {
        let mut waiting: Option<Waiting> = None;
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

    fn wait(self: &Rc<Self>, waker: &Waker) -> Waiting {
        self.waited.set(self.waited.get() + 1);
        let key = (self.world.now() + self.read_within, self.waited.get());
        self.waiting.borrow_mut().insert(key, waker.clone());
        if !self.is_ticking.replace(true) {
            // One timer for all reads: most are done long before, and never need one.
            self.world.spawn("array late reads", tick(self.world.clone(), Rc::downgrade(self)));
        }
        Waiting { watch: Rc::clone(self), key }
    }

    /// Why a drive is given up.
    pub fn error(&self) -> IoError {
        no_answer_for(self.answer_within)
    }

    /// Whether a drive that is watched was given up.
    pub fn has_given_up(&self, device: &Rc<dyn BlockDevice>) -> bool {
        let at = Rc::as_ptr(device).cast::<()>();
        let given_up = |drive: &Weak<State>| {
            drive.upgrade().is_some_and(|drive| drive.is_given_up.get() && drive.at.get() == at)
        };
        self.drives.borrow().iter().any(given_up)
    }

    /// Whether every drive is waited for, however long: it may have what no other has.
    pub fn hold(&self, holds: bool) {
        self.holds.set(holds);
    }

    fn look(&self, now: Moment) {
        self.drives.borrow_mut().retain(|drive| drive.strong_count() > 0);
        let drives: Vec<Rc<State>> = self.drives.borrow().iter().filter_map(Weak::upgrade).collect();
        let there: Vec<_> = drives.into_iter().filter(|drive| !drive.is_given_up.get()).collect();
        let is_late = |drive: &Rc<State>| {
            let under_way = drive.under_way.borrow();
            let mut old = under_way.values().take_while(|one| now.since(one.begun) > self.answer_within);
            old.any(|one| !one.answer.is_there(&one.waker))
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

fn no_answer_for(span: Duration) -> IoError {
    let story = format!("no answer for {} s: the drive is given up", span.as_secs_f64());
    IoError::new(IoErrorKind::Disconnected, story)
}

async fn look_on(world: World, every: Duration, watch: Weak<Watch>) {
    loop {
        world.sleep(every).await;
        let Some(watch) = watch.upgrade() else { return };
        watch.look(world.now());
    }
}

/// Wakes those that have waited long enough for a read, while anybody waits.
async fn tick(world: World, watch: Weak<Watch>) {
    loop {
        let Some(every) = watch.upgrade().map(|watch| watch.read_within / LOOKS) else { return };
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

impl State {
    fn error(&self) -> IoError {
        no_answer_for(self.answer_within)
    }
}

impl Watched {
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
        // From here on, not from when somebody waits for it: several are begun, and then waited for in turn.
        let number = self.state.begun.get() + 1;
        self.state.begun.set(number);
        let asked = Rc::new(RefCell::new(Asked::Waiting(inner)));
        let answer = Rc::clone(&asked) as Rc<dyn Answer>;
        let begun = self.state.world.now();
        let one = UnderWay { begun, waker: Waker::noop().clone(), answer };
        self.state.under_way.borrow_mut().insert(number, one);
        Box::pin(Operation { asked, state: Rc::clone(&self.state), number })
    }
}

impl<T> Future for Operation<T> {
    type Output = IoResult<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut asked = self.asked.borrow_mut();
        asked.look(context);
        if let Asked::Answered(answer) = &mut *asked {
            return Poll::Ready(answer.take().expect("an answer is taken once"));
        }
        drop(asked);
        if self.state.is_given_up.get() {
            return Poll::Ready(Err(self.state.error()));
        }
        if let Some(one) = self.state.under_way.borrow_mut().get_mut(&self.number) {
            one.waker.clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        self.state.under_way.borrow_mut().remove(&self.number);
    }
}

impl BlockDevice for Watched {
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
