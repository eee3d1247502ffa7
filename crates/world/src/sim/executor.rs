//! One thread's tasks, timers and device completions, in an order drawn from the seed.
//!
//! Invariants:
//!
//! 1. Time moves only while no task is ready, and then exactly to the next event.
//! 2. Events of one moment come in the order in which they were entered.
//! 3. A task number is never used twice, so a late wake-up cannot reach another task.
//! 4. Every choice of a task and every step of time is in the trace.
//! 5. Nothing is borrowed while a task, an event or a destructor runs: each may re-enter.

use super::trace::SimTrace;
use crate::{Clock, LocalFuture, Moment, Random, Spawn, WallTime};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// Civil time when a simulation starts: 2023-11-14T22:13:20Z, a round number of seconds.
const WALL_SECONDS_AT_START: i64 = 1_700_000_000;

/// The effect of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A task was polled.
    Polled,
    /// Time moved to the next event.
    Passed,
    /// No task is ready and no event is pending.
    Deadlock,
    /// The next event lies at or beyond the given end.
    TimeUp,
}

type TaskNumber = u64;

struct Task {
    name: &'static str,
    /// None while it is being polled.
    future: Option<LocalFuture<()>>,
    wake: Arc<TaskWake>,
}

enum Event {
    Wake(Waker),
    Run(Box<dyn FnOnce()>),
}

/// Ready tasks in the order in which they were woken.
type RunQueue = Mutex<Vec<TaskNumber>>;

struct TaskWake {
    task: TaskNumber,
    is_queued: AtomicBool,
    ready: Arc<RunQueue>,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().expect("one thread").push(self.task);
        }
    }
}

/// The executor of a simulation; see the module's invariants.
pub(super) struct Executor {
    now: Cell<Moment>,
    wall_ahead: Cell<i64>,
    tasks: RefCell<BTreeMap<TaskNumber, Task>>,
    task_last: Cell<TaskNumber>,
    ready: Arc<RunQueue>,
    events: RefCell<BTreeMap<(Moment, u64), Event>>,
    event_last: Cell<u64>,
    scheduling: RefCell<Random>,
    trace: RefCell<SimTrace>,
    polls: Cell<u64>,
    /// False between incarnations: tasks and events are refused then.
    is_open: Cell<bool>,
}

impl Executor {
    pub fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(Moment(0)),
            wall_ahead: Cell::new(0),
            tasks: RefCell::default(),
            task_last: Cell::new(0),
            ready: Arc::default(),
            events: RefCell::default(),
            event_last: Cell::new(0),
            scheduling: RefCell::new(Random::new(seed, "scheduling")),
            trace: RefCell::new(SimTrace::new(seed)),
            polls: Cell::new(0),
            is_open: Cell::new(false),
        })
    }

    /// Starts an incarnation whose civil clock is `wall_ahead` seconds ahead of the first one's.
    pub fn open(&self, wall_ahead: i64) {
        assert!(!self.is_open.replace(true), "one incarnation at a time");
        assert!(self.tasks.borrow().is_empty() && self.events.borrow().is_empty());
        self.wall_ahead.set(wall_ahead);
        self.polls.set(0);
    }

    /// Ends an incarnation: every task and every pending event is dropped.
    pub fn close(&self) {
        assert!(self.is_open.replace(false), "an incarnation ends once");
        // Destructors may spawn, start I/O or wake: all of it is refused or forgotten.
        let tasks = self.tasks.take();
        let events = self.events.take();
        drop(tasks);
        drop(events);
        self.ready.lock().expect("one thread").clear();
        assert!(self.tasks.borrow().is_empty() && self.events.borrow().is_empty());
        self.note(u64::MAX);
    }

    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    pub fn now(&self) -> Moment {
        self.now.get()
    }

    /// Tasks polled in this incarnation.
    pub fn polls(&self) -> u64 {
        self.polls.get()
    }

    pub fn trace(&self) -> SimTrace {
        *self.trace.borrow()
    }

    pub fn note(&self, word: u64) {
        self.trace.borrow_mut().note(word);
    }

    pub fn note_bytes(&self, bytes: &[u8]) {
        self.trace.borrow_mut().note_bytes(bytes);
    }

    /// Calls `run` after `after`, unless the incarnation ends first.
    pub fn schedule(&self, after: Duration, run: impl FnOnce() + 'static) {
        if self.is_open.get() {
            self.enter(self.now() + after, Event::Run(Box::new(run)));
        }
    }

    fn enter(&self, at: Moment, event: Event) -> (Moment, u64) {
        let number = self.event_last.get() + 1;
        self.event_last.set(number);
        let key = (at.max(self.now()), number);
        self.events.borrow_mut().insert(key, event);
        key
    }

    /// Polls one ready task, or advances time to the next event if that lies before `end`.
    pub fn step(&self, end: Moment) -> Step {
        if let Some(task) = self.take_ready() {
            self.poll(task);
            return Step::Polled;
        }
        let next = match self.events.borrow().first_key_value() {
            None => return Step::Deadlock,
            Some((&(at, _), _)) if at >= end => return Step::TimeUp,
            Some((&next, _)) => next,
        };
        let event = self.events.borrow_mut().remove(&next).expect("seen on the line above");
        assert!(next.0 >= self.now(), "time does not run backwards");
        self.now.set(next.0);
        self.note(next.0.0);
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Run(run) => run(),
        }
        Step::Passed
    }

    /// Draws one of the ready tasks.
    fn take_ready(&self) -> Option<TaskNumber> {
        loop {
            let mut ready = self.ready.lock().expect("one thread");
            if ready.is_empty() {
                return None;
            }
            let pick = self.scheduling.borrow_mut().below(ready.len() as u64) as usize;
            let task = ready.swap_remove(pick);
            if self.tasks.borrow().contains_key(&task) {
                return Some(task);
            }
        }
    }

    fn poll(&self, number: TaskNumber) {
        let (mut future, wake) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.get_mut(&number).expect("a ready task exists");
            (task.future.take().expect("a task is polled once at a time"), Arc::clone(&task.wake))
        };
        self.polls.set(self.polls.get() + 1);
        self.note(number);
        wake.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(wake);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.borrow_mut().get_mut(&number).expect("it stays listed").future = Some(future);
        } else {
            self.tasks.borrow_mut().remove(&number);
        }
    }

    /// Names of the existing tasks, for messages about runs that do not end.
    pub fn task_names(&self) -> Vec<&'static str> {
        self.tasks.borrow().values().map(|task| task.name).collect()
    }
}

impl Spawn for Executor {
    fn spawn(&self, name: &'static str, task: LocalFuture<()>) {
        if !self.is_open.get() {
            return;
        }
        let number = self.task_last.get() + 1;
        self.task_last.set(number);
        let wake =
            TaskWake { task: number, is_queued: AtomicBool::new(false), ready: Arc::clone(&self.ready) };
        let wake = Arc::new(wake);
        self.tasks.borrow_mut().insert(number, Task { name, future: Some(task), wake: Arc::clone(&wake) });
        wake.wake();
    }
}

pub(super) struct SimClock(pub Rc<Executor>);

impl Clock for SimClock {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall(&self) -> WallTime {
        let nanos = self.0.now().0;
        let seconds = WALL_SECONDS_AT_START + self.0.wall_ahead.get() + (nanos / 1_000_000_000) as i64;
        WallTime { seconds, nanos: (nanos % 1_000_000_000) as u32 }
    }

    fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        Box::pin(Sleep { executor: Rc::clone(&self.0), moment, entered: None })
    }
}

struct Sleep {
    executor: Rc<Executor>,
    moment: Moment,
    entered: Option<(Moment, u64)>,
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(key) = self.entered.take() {
            // The timer is gone already if it was due.
            let event = self.executor.events.borrow_mut().remove(&key);
            drop(event);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.leave();
        if self.executor.now() >= self.moment {
            return Poll::Ready(());
        }
        let (at, waker) = (self.moment, context.waker().clone());
        self.entered = Some(self.executor.enter(at, Event::Wake(waker)));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}
