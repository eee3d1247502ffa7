//! The handle a room is given: clock, tasks and randomness of the world it runs in.

use crate::{Clock, LocalFuture, Moment, Random, WallTime};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Starts tasks on the thread they were made on.
pub trait Spawn {
    /// Runs `task` beside its spawner until it completes or the world ends.
    fn spawn(&self, name: &'static str, task: LocalFuture<()>);
}

/// One world, seen from one thread. Cheap to clone.
#[derive(Clone)]
pub struct World {
    clock: Rc<dyn Clock>,
    spawner: Rc<dyn Spawn>,
    seed: u64,
    secrets: Rc<RefCell<Draw>>,
}

/// Fills what it is given.
type Draw = dyn FnMut(&mut [u8]);

impl World {
    /// A world made of its parts.
    pub fn new(clock: Rc<dyn Clock>, spawner: Rc<dyn Spawn>, seed: u64) -> Self {
        let mut random = Random::new(seed, "secrets");
        Self {
            clock,
            spawner,
            seed,
            secrets: Rc::new(RefCell::new(move |bytes: &mut [u8]| random.fill(bytes))),
        }
    }

    /// The same world, whose secrets come from `draw` and not from the seed.
    pub fn with_secrets(self, draw: impl FnMut(&mut [u8]) + 'static) -> Self {
        Self { secrets: Rc::new(RefCell::new(draw)), ..self }
    }

    /// Fills `bytes` with what nobody can guess, and never the same twice: in the real world from the kernel, in a simulated one
    /// from its seed.
    pub fn fill_secret(&self, bytes: &mut [u8]) {
        (self.secrets.borrow_mut())(bytes);
    }

    /// Monotonic time.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Civil time.
    pub fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    /// Processor time this thread has used; none in a world without processors.
    pub fn thread_cpu(&self) -> Option<Duration> {
        self.clock.thread_cpu()
    }

    /// Completes `span` from now.
    pub fn sleep(&self, span: Duration) -> LocalFuture<()> {
        self.clock.sleep_until(self.now() + span)
    }

    /// Completes at `moment`.
    pub fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        self.clock.sleep_until(moment)
    }

    /// The random stream `name` of this world's seed. Asking twice gives the same stream twice.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, name)
    }

    /// The seed every stream comes from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Starts `task` and returns a handle to its result. The task goes on if the handle is dropped.
    pub fn spawn<T: 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        let slot = Rc::new(RefCell::new(Slot { value: None, waker: None }));
        let filled = Rc::clone(&slot);
        self.spawner.spawn(
            name,
            Box::pin(async move {
                let value = task.await;
                let waker = {
                    let mut slot = filled.borrow_mut();
                    slot.value = Some(value);
                    slot.waker.take()
                };
                if let Some(waker) = waker {
                    waker.wake();
                }
            }),
        );
        JoinHandle { slot }
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
}

/// Resolves to the task's result.
pub struct JoinHandle<T> {
    slot: Rc<RefCell<Slot<T>>>,
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
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
