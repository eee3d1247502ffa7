//! The handle a room receives: clock, tasks and randomness of its world.

use crate::{Clock, LocalFuture, MachineUptime, Moment, Random, WallTime};
use pin_project_lite::pin_project;
use std::{
    cell::RefCell,
    future::{self, Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

pub trait Spawn {
    /// Runs `task` concurrently on this thread until it completes or the world ends.
    fn spawn(&self, name: &'static str, task: LocalFuture<()>);

    /// Lets all other ready tasks of this thread run, and processes what devices have completed.
    fn yield_now(&self) -> LocalFuture<()> {
        Box::pin(crate::real::yield_now())
    }

    /// Charges `cost` of processor time in virtual time; nothing in a real world, where time passes by itself.
    fn work(&self, _cost: Duration) -> LocalFuture<()> {
        Box::pin(future::ready(()))
    }
}

/// A world as seen from one thread. Cheap to clone.
#[derive(Clone)]
pub struct World {
    clock: Rc<dyn Clock>,
    spawner: Rc<dyn Spawn>,
    seed: u64,
    secrets: Rc<RefCell<Draw>>,
}

/// Fills a slice with secret bytes.
type Draw = dyn FnMut(&mut [u8]);

impl World {
    /// `seed` determines every stream of [`World::random`], and the secrets unless [`World::with_secrets`]
    /// replaces them.
    pub fn new(clock: Rc<dyn Clock>, spawner: Rc<dyn Spawn>, seed: u64) -> Self {
        let mut random = Random::new(seed, "secrets");
        Self {
            clock,
            spawner,
            seed,
            secrets: Rc::new(RefCell::new(move |bytes: &mut [u8]| random.fill(bytes))),
        }
    }

    /// Replaces the source of secrets, which is the seed by default.
    pub fn with_secrets(self, draw: impl FnMut(&mut [u8]) + 'static) -> Self {
        Self { secrets: Rc::new(RefCell::new(draw)), ..self }
    }

    /// The same world with another spawner.
    pub(crate) fn map_spawner(&self, map: impl FnOnce(Rc<dyn Spawn>) -> Rc<dyn Spawn>) -> Self {
        Self { spawner: map(Rc::clone(&self.spawner)), ..self.clone() }
    }

    /// Fills `bytes` with unpredictable bytes, different at each call: from the kernel in the real world,
    /// from the seed in the simulated one.
    pub fn fill_secret(&self, bytes: &mut [u8]) {
        (self.secrets.borrow_mut())(bytes);
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Civil time. It may jump, so order must never come from it.
    pub fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    /// Time since the machine's start.
    pub fn machine_uptime(&self) -> MachineUptime {
        self.clock.machine_uptime()
    }

    /// Processor time this thread has used; `None` in a world without processors.
    pub fn thread_cpu(&self) -> Option<Duration> {
        self.clock.thread_cpu()
    }

    pub fn sleep(&self, span: Duration) -> LocalFuture<()> {
        self.clock.sleep_until(self.now() + span)
    }

    pub fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        self.clock.sleep_until(moment)
    }

    /// Lets all other ready tasks of this thread run: for long computations that await nothing.
    pub fn yield_now(&self) -> LocalFuture<()> {
        self.spawner.yield_now()
    }

    /// Charges `cost` of processor time: in a simulated world no other task of the node runs until it has passed. A real
    /// world does nothing.
    pub fn work(&self, cost: Duration) -> LocalFuture<()> {
        self.spawner.work(cost)
    }

    /// The random stream `name` of this world's seed. Two calls with one name return equal streams.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, name)
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Starts `task` and returns a handle to its result. Dropping the handle does not stop the task.
    pub fn spawn<T: 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        let slot = Rc::new(RefCell::new(Slot { value: None, waker: None, is_lost: false }));
        self.spawner.spawn(name, Box::pin(JoinedTask { task, slot: Rc::clone(&slot) }));
        JoinHandle { slot, name }
    }
}

/// The result of `work`, or `None` if `deadline` completes first: then `work` is dropped where it stands.
pub async fn with_deadline<T>(
    deadline: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut deadline, mut work) = (pin!(deadline), pin!(work));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => deadline.as_mut().poll(context).map(|()| None),
    })
    .await
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// The task is gone and left no value: it panicked.
    is_lost: bool,
}

pin_project! {
    /// A task that hands its result to its handle. A future of its own, because an `async` block around the
    /// task would hold it twice, and tasks are started for every command.
    struct JoinedTask<F: Future> {
        #[pin]
        task: F,
        slot: Rc<RefCell<Slot<F::Output>>>,
    }

    impl<F: Future> PinnedDrop for JoinedTask<F> {
        fn drop(this: Pin<&mut Self>) {
            let waker = {
                let mut slot = this.project().slot.borrow_mut();
                slot.is_lost = true;
                slot.waker.take()
            };
            // Its handle would wait for ever.
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<F: Future> Future for JoinedTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let value = ready!(this.task.poll(context));
        let waker = {
            let mut slot = this.slot.borrow_mut();
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(())
    }
}

/// Resolves to the task's result. Panics if the task did.
pub struct JoinHandle<T> {
    slot: Rc<RefCell<Slot<T>>>,
    name: &'static str,
}

impl<T> JoinHandle<T> {
    /// True once the task has ended and its result was not yet taken.
    pub fn is_finished(&self) -> bool {
        self.slot.borrow().value.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.slot.borrow_mut();
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None if slot.is_lost => panic!("the task {:?}, whose result was awaited, panicked", self.name),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
