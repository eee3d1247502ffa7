//! Tasks, timers and device completions of all nodes, in an order drawn from the seed.
//!
//! Invariants:
//!
//! 1. Time moves only while no task can run, and then exactly to the next event.
//! 2. Events of one moment come in the order in which they were entered.
//! 3. A task number is never used twice, so a late wake-up cannot reach another task.
//! 4. Every choice of a task and every step of time is in the trace.
//! 5. Nothing is borrowed while a task, an event or a destructor runs: each may re-enter.
//! 6. A task runs only while its node is up, not paused, and its processor is free.

use super::trace::SimTrace;
use crate::{Clock, LocalFuture, MachineUptime, Moment, Random, Spawn, WallTime};
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

/// Index of a node; 0 is the node of `main`.
pub(super) type NodeNumber = usize;

/// Execution state of one node.
#[derive(Default)]
struct Node {
    is_up: bool,
    is_paused: bool,
    /// Charged processor time keeps the node's tasks from running until then.
    busy_until: Option<Moment>,
    /// Start of its monotonic clock, in time of the simulation.
    started_at: Moment,
    wall_ahead: i64,
    /// Counts starts: what an earlier start left behind cannot spawn into a later one.
    starts: u64,
}

impl Node {
    fn is_blocked(&self) -> bool {
        self.is_paused || self.busy_until.is_some()
    }
}

struct Task {
    name: &'static str,
    node: NodeNumber,
    /// None while it is being polled.
    future: Option<LocalFuture<()>>,
    wake: Arc<TaskWake>,
}

enum Event {
    Wake(Waker),
    Run(Box<dyn FnOnce()>),
    /// Charged processor time of a node may have passed.
    ProcessorFree(NodeNumber),
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
    nodes: RefCell<Vec<Node>>,
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
            nodes: RefCell::new(vec![Node::default()]),
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
        let main = &mut self.nodes.borrow_mut()[0];
        *main = Node { is_up: true, wall_ahead, starts: main.starts + 1, ..Node::default() };
        self.polls.set(0);
    }

    /// Ends an incarnation: every task and every pending event is dropped.
    pub fn close(&self) {
        assert!(self.is_open.replace(false), "an incarnation ends once");
        for node in self.nodes.borrow_mut().iter_mut() {
            *node = Node { starts: node.starts, wall_ahead: node.wall_ahead, ..Node::default() };
        }
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

    /// Adds a node, which is down.
    pub fn add_node(&self) -> NodeNumber {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node::default());
        nodes.len() - 1
    }

    /// Starts a node that is down: its monotonic clock begins at zero. Returns the number of this start.
    pub fn start_node(&self, node: NodeNumber) -> u64 {
        assert!(self.is_open.get(), "nodes run within an incarnation of the simulation");
        let started_at = self.now();
        let state = &mut self.nodes.borrow_mut()[node];
        assert!(!state.is_up, "a node is started while it is down");
        *state = Node {
            is_up: true,
            started_at,
            wall_ahead: state.wall_ahead,
            starts: state.starts + 1,
            ..Node::default()
        };
        state.starts
    }

    /// Stops a node and drops its tasks.
    pub fn stop_node(&self, node: NodeNumber) {
        {
            let state = &mut self.nodes.borrow_mut()[node];
            *state = Node { starts: state.starts, wall_ahead: state.wall_ahead, ..Node::default() };
        }
        let (dead, alive) = self.tasks.take().into_iter().partition(|(_, task)| task.node == node);
        self.tasks.replace(alive);
        // Destructors may spawn on other nodes, start I/O or wake.
        let dead: BTreeMap<TaskNumber, Task> = dead;
        drop(dead);
        self.note(u64::MAX - 1);
        self.note(node as u64);
    }

    pub fn is_up(&self, node: NodeNumber) -> bool {
        self.nodes.borrow()[node].is_up
    }

    /// A paused node runs no task; its clock goes on.
    pub fn set_paused(&self, node: NodeNumber, is_paused: bool) {
        let state = &mut self.nodes.borrow_mut()[node];
        state.is_paused = is_paused && state.is_up;
    }

    pub fn set_wall_ahead(&self, node: NodeNumber, seconds: i64) {
        self.nodes.borrow_mut()[node].wall_ahead = seconds;
    }

    /// Charges `cost` of processor time: no task of the node runs until it has passed. Returns that moment.
    pub fn charge(&self, node: NodeNumber, cost: Duration) -> Moment {
        let until = {
            let state = &mut self.nodes.borrow_mut()[node];
            let until = state.busy_until.unwrap_or(self.now()) + cost;
            state.busy_until = Some(until);
            until
        };
        self.enter(until, Event::ProcessorFree(node));
        until
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
            Event::ProcessorFree(node) => {
                let state = &mut self.nodes.borrow_mut()[node];
                if state.busy_until == Some(self.now()) {
                    state.busy_until = None;
                }
            }
        }
        Step::Passed
    }

    /// Draws one of the ready tasks whose node can run.
    fn take_ready(&self) -> Option<TaskNumber> {
        loop {
            let mut ready = self.ready.lock().expect("one thread");
            let index = self.draw_ready(&ready)?;
            let task = ready.swap_remove(index);
            if self.tasks.borrow().contains_key(&task) {
                return Some(task);
            }
        }
    }

    fn draw_ready(&self, ready: &[TaskNumber]) -> Option<usize> {
        let draw =
            |count: usize| (count > 0).then(|| self.scheduling.borrow_mut().below(count as u64) as usize);
        let nodes = self.nodes.borrow();
        if !nodes.iter().any(Node::is_blocked) {
            return draw(ready.len());
        }
        let tasks = self.tasks.borrow();
        let can_run =
            |number: &TaskNumber| tasks.get(number).is_none_or(|task| !nodes[task.node].is_blocked());
        let runnable: Vec<usize> = (0..ready.len()).filter(|&index| can_run(&ready[index])).collect();
        draw(runnable.len()).map(|pick| runnable[pick])
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
            if let Some(task) = self.tasks.borrow_mut().get_mut(&number) {
                task.future = Some(future);
                return;
            }
            // It stopped its own node.
            drop(future);
        } else {
            let ended = self.tasks.borrow_mut().remove(&number);
            drop(ended);
        }
    }

    /// Names of the existing tasks, for messages about runs that do not end.
    pub fn task_names(&self) -> Vec<&'static str> {
        self.tasks.borrow().values().map(|task| task.name).collect()
    }
}

/// Spawns tasks of one start of a node.
pub(super) struct NodeSpawner {
    pub executor: Rc<Executor>,
    pub node: NodeNumber,
    pub start: u64,
}

impl NodeSpawner {
    /// For the node of `main`, in the incarnation that was just opened.
    pub fn of_main(executor: &Rc<Executor>) -> Self {
        let start = executor.nodes.borrow()[0].starts;
        Self { executor: Rc::clone(executor), node: 0, start }
    }
}

impl Spawn for NodeSpawner {
    fn spawn(&self, name: &'static str, task: LocalFuture<()>) {
        let executor = &self.executor;
        let is_current = {
            let node = &executor.nodes.borrow()[self.node];
            node.is_up && (self.node == 0 || node.starts == self.start)
        };
        if !is_current {
            return;
        }
        let number = executor.task_last.get() + 1;
        executor.task_last.set(number);
        let ready = Arc::clone(&executor.ready);
        let wake = Arc::new(TaskWake { task: number, is_queued: AtomicBool::new(false), ready });
        let task = Task { name, node: self.node, future: Some(task), wake: Arc::clone(&wake) };
        executor.tasks.borrow_mut().insert(number, task);
        wake.wake();
    }

    fn work(&self, cost: Duration) -> LocalFuture<()> {
        let (executor, node) = (Rc::clone(&self.executor), self.node);
        Box::pin(async move {
            if !cost.is_zero() {
                let moment = executor.charge(node, cost);
                Sleep { executor, moment, entered: None }.await;
            }
        })
    }
}

/// The clock of one node.
pub(super) struct SimClock {
    pub executor: Rc<Executor>,
    pub node: NodeNumber,
}

impl SimClock {
    /// The clock of the simulation, which is that of the node of `main`.
    pub fn of_main(executor: &Rc<Executor>) -> Self {
        Self { executor: Rc::clone(executor), node: 0 }
    }

    fn started_at(&self) -> Moment {
        self.executor.nodes.borrow()[self.node].started_at
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment(self.executor.now().0 - self.started_at().0)
    }

    fn wall(&self) -> WallTime {
        let nanos = self.executor.now().0;
        let wall_ahead = self.executor.nodes.borrow()[self.node].wall_ahead;
        let seconds = WALL_SECONDS_AT_START + wall_ahead + (nanos / 1_000_000_000) as i64;
        WallTime { seconds, nanos: (nanos % 1_000_000_000) as u32 }
    }

    /// Each node is a machine that starts with the simulation: a crash ends its processes alone.
    fn machine_uptime(&self) -> MachineUptime {
        let up = Duration::from_nanos(self.executor.now().0);
        MachineUptime { machine: format!("node {}", self.node), boot: "simulated".to_owned(), up }
    }

    fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        let moment = Moment(moment.0.saturating_add(self.started_at().0));
        Box::pin(Sleep { executor: Rc::clone(&self.executor), moment, entered: None })
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
