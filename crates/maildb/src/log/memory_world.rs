//! A world in memory for the tests of the log: one thread, and a seeded choice of the next event.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use world::{Clock, LocalFuture, MachineUptime, Moment, Random, Spawn, WallTime, World};

/// The executor: tasks, and operations in progress that it completes in random order.
pub(super) struct MemoryWorld {
    tasks: RefCell<BTreeMap<u64, LocalFuture<()>>>,
    next_task: Cell<u64>,
    ready: Arc<Mutex<Vec<u64>>>,
    under_way: RefCell<Vec<Rc<Ticket>>>,
    random: RefCell<Random>,
    now_ms: Cell<u64>,
}

struct Ticket {
    done: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct TaskWaker {
    task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().expect("one thread");
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

impl MemoryWorld {
    pub(super) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            tasks: RefCell::new(BTreeMap::new()),
            next_task: Cell::new(0),
            ready: Arc::default(),
            under_way: RefCell::new(Vec::new()),
            random: RefCell::new(Random::new(seed, "scheduling")),
            now_ms: Cell::new(1_700_000_000_000),
        })
    }

    pub(super) fn world(self: &Rc<Self>) -> World {
        World::new(Rc::clone(self) as Rc<dyn Clock>, Rc::clone(self) as Rc<dyn Spawn>, 1)
    }

    /// Runs `main` beside its tasks, for at most `steps` steps; `None` if the steps ran out, which ends every
    /// task.
    pub(super) fn run<T: 'static>(
        self: &Rc<Self>,
        steps: u64,
        main: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let outcome = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&outcome);
        self.spawn("main", Box::pin(async move { *slot.borrow_mut() = Some(main.await) }));
        for _ in 0..steps {
            if outcome.borrow().is_some() {
                break;
            }
            self.step();
        }
        // The end of the world. Its tasks hold it, and it holds them; taken out first, because dropping one
        // may wake others.
        let tasks = self.tasks.take();
        drop(tasks);
        self.under_way.take();
        outcome.take()
    }

    /// Polls one ready task or completes one operation.
    fn step(&self) {
        self.now_ms.set(self.now_ms.get() + 1);
        let ready_count = self.ready.lock().expect("one thread").len();
        let under_way_count = self.under_way.borrow().len();
        let pick = self.random.borrow_mut().below((ready_count + under_way_count).max(1) as u64) as usize;
        assert!(ready_count + under_way_count > 0, "deadlock: nothing is ready and nothing is under way");
        if pick < ready_count {
            let task = self.ready.lock().expect("one thread").swap_remove(pick);
            let Some(mut future) = self.tasks.borrow_mut().remove(&task) else { return };
            let waker = Waker::from(Arc::new(TaskWaker { task, ready: Arc::clone(&self.ready) }));
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.tasks.borrow_mut().insert(task, future);
            }
        } else {
            let ticket = self.under_way.borrow_mut().swap_remove(pick - ready_count);
            ticket.done.set(true);
            if let Some(waker) = ticket.waker.take() {
                waker.wake();
            }
        }
    }

    /// Completes at a later step.
    pub(super) fn pause(&self) -> Pause {
        let ticket = Rc::new(Ticket { done: Cell::new(false), waker: RefCell::new(None) });
        self.under_way.borrow_mut().push(Rc::clone(&ticket));
        Pause(ticket)
    }
}

pub(super) struct Pause(Rc<Ticket>);

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.done.get() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Spawn for MemoryWorld {
    fn spawn(&self, _name: &'static str, task: LocalFuture<()>) {
        let number = self.next_task.get();
        self.next_task.set(number + 1);
        self.tasks.borrow_mut().insert(number, task);
        self.ready.lock().expect("one thread").push(number);
    }
}

impl Clock for MemoryWorld {
    fn now(&self) -> Moment {
        Moment(self.now_ms.get() * 1_000_000)
    }

    fn wall(&self) -> WallTime {
        let ms = self.now_ms.get();
        WallTime { seconds: (ms / 1000) as i64, nanos: (ms % 1000) as u32 * 1_000_000 }
    }

    fn machine_uptime(&self) -> MachineUptime {
        let up = Duration::from_millis(self.now_ms.get());
        MachineUptime { machine: "memory".to_owned(), boot: "memory".to_owned(), up }
    }

    fn sleep_until(&self, _moment: Moment) -> LocalFuture<()> {
        Box::pin(self.pause())
    }
}
