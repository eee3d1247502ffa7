//! The executor of a thread with io_uring: it runs ready tasks, and blocks in the ring.
//!
//! A turn runs the tasks that are ready; in a thread with connections also those they wake, up to a bound, or
//! until a task is ready again right after it ran: it yielded, so that completions are taken. Then one system
//! call submits what they requested and takes completions; it blocks if no task is ready, until the next
//! sleeper's time at most. A turn after which there is nothing to submit or to take makes no system call.
//!
//! Invariants:
//!
//! 1. A task is in the queue at most once. A wake-up puts it there unless it is there already.
//! 2. A wake-up rouses the thread if it sleeps: sleep begins, under the queue's lock, only if the queue is
//!    empty, and ends before completions wake tasks. So only other threads rouse it.
//! 3. Tasks are dropped before the ring, on the thread that made them, also if the main future panics.

use super::{
    RealOptions,
    busy_poll::BusyPoll,
    clock::RealClock,
    ring::Ring,
    step_times::{MAIN, StepRecorder},
};
use crate::{Clock, LocalFuture, Spawn};
use rustix::{
    event::{EventfdFlags, PollFlags, eventfd},
    io::{read, write},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

/// With more transfers under way a thread does not busy-poll: no command waits for its wake-up alone, and at depth
/// 32 polling took processor time without serving more.
const BUSY_POLL_TRANSFERS_MAX: usize = 4;

/// Tasks after which a turn of a thread with connections ends. Answers that become ready in one turn leave in one
/// system call: with shorter turns they leave alone. With turns of 64 tasks peers and thread waited for each other.
const TASKS_A_TURN: usize = 24;

/// The executor of one thread.
pub(super) struct Executor {
    ring: Rc<Ring>,
    clock: Rc<RealClock>,
    busy_poll: Option<Rc<BusyPoll>>,
    /// A panic of any task ends the thread.
    panics_end: bool,
    steps: Option<Rc<StepRecorder>>,
    queue: Arc<ReadyQueue>,
    tasks: RefCell<Tasks>,
    /// Set at the end of the world: no task starts any more.
    is_over: Cell<bool>,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Option<Task>>,
    vacant: Vec<usize>,
}

/// A task; its future is away while it is polled.
struct Task {
    name: &'static str,
    entry: Arc<QueueEntry>,
    waker: Waker,
    future: Option<LocalFuture<()>>,
}

/// A task's future, away from its slot.
struct ReadyTask {
    name: &'static str,
    future: LocalFuture<()>,
    waker: Waker,
}

/// Ready tasks. Wakers add to it from any thread.
struct ReadyQueue {
    state: Mutex<QueueState>,
    /// Rouses the thread from the ring.
    rouse: Arc<OwnedFd>,
    #[cfg(test)]
    rousings: std::sync::atomic::AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    ready: VecDeque<Arc<QueueEntry>>,
    is_asleep: bool,
}

/// A task's place in the queue.
struct QueueEntry {
    queue: Arc<ReadyQueue>,
    /// Slot of the task; `None` for the main future.
    slot: Option<usize>,
    is_queued: AtomicBool,
}

impl QueueEntry {
    fn new(queue: &Arc<ReadyQueue>, slot: Option<usize>) -> Arc<Self> {
        Arc::new(Self { queue: Arc::clone(queue), slot, is_queued: AtomicBool::new(false) })
    }
}

impl Wake for QueueEntry {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let queue = Arc::clone(&self.queue);
            queue.push(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.push(Arc::clone(self));
        }
    }
}

impl ReadyQueue {
    fn new(rouse: OwnedFd) -> Self {
        Self {
            state: Mutex::default(),
            rouse: Arc::new(rouse),
            #[cfg(test)]
            rousings: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No holder of this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: Arc<QueueEntry>) {
        let mut state = self.lock();
        state.ready.push_back(entry);
        let must_rouse = std::mem::take(&mut state.is_asleep);
        drop(state);
        if must_rouse {
            #[cfg(test)]
            self.rousings.fetch_add(1, Ordering::Relaxed);
            write(&*self.rouse, &1_u64.to_ne_bytes()).expect("a counter of our own counts");
        }
    }

    /// Exchanges the ready tasks for an empty list.
    fn take(&self, empty: &mut VecDeque<Arc<QueueEntry>>) {
        assert!(empty.is_empty(), "all of them have run");
        std::mem::swap(&mut self.lock().ready, empty);
    }

    /// True if the thread may sleep; it has to call [`Self::awake`] afterwards.
    fn may_sleep(&self) -> bool {
        let mut state = self.lock();
        state.is_asleep = state.ready.is_empty();
        state.is_asleep
    }

    fn awake(&self) {
        self.lock().is_asleep = false;
    }

    fn is_empty(&self) -> bool {
        self.lock().ready.is_empty()
    }
}

impl Executor {
    /// An executor that times steps if there is a recorder.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new(
        ring: Rc<Ring>,
        clock: Rc<RealClock>,
        options: RealOptions,
        steps: Option<Rc<StepRecorder>>,
    ) -> io::Result<Rc<Self>> {
        let RealOptions { busy_poll, panics_end, .. } = options;
        let rouse = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Arc::new(ReadyQueue::new(rouse));
        let busy_poll = (!busy_poll.is_zero()).then(|| BusyPoll::new(busy_poll));
        let tasks = RefCell::default();
        Ok(Rc::new(Self {
            ring,
            clock,
            busy_poll,
            panics_end,
            steps,
            queue,
            tasks,
            is_over: Cell::new(false),
        }))
    }

    /// Runs `main` to its end, and all tasks meanwhile; then drops the tasks.
    pub fn run<T>(self: &Rc<Self>, main: impl Future<Output = T>) -> T {
        let _end = End(self);
        let rousing = hear_rousing(Rc::clone(&self.ring), Arc::clone(&self.queue.rouse));
        self.start("rousing", Box::pin(rousing));
        let mut main = pin!(main);
        let entry = QueueEntry::new(&self.queue, None);
        let main_waker = Waker::from(Arc::clone(&entry));
        entry.wake();
        let mut ready = VecDeque::new();
        let (mut tasks, mut has_yielded) = (0, false);
        loop {
            self.queue.take(&mut ready);
            tasks += ready.len();
            while let Some(entry) = ready.pop_front() {
                entry.is_queued.store(false, Ordering::Release);
                match entry.slot {
                    Some(slot) => self.run_task(&entry, slot).unwrap_or_else(|panic| resume_unwind(panic)),
                    None => {
                        let poll = || main.as_mut().poll(&mut Context::from_waker(&main_waker));
                        if let Poll::Ready(value) = self.timed(MAIN, poll) {
                            return value;
                        }
                    }
                }
                has_yielded |= entry.is_queued.load(Ordering::Acquire);
                if !ready.is_empty() {
                    must_work(self.ring.submit_due());
                }
            }
            if has_yielded || self.is_turn_over(tasks) {
                self.exchange();
                (tasks, has_yielded) = (0, false);
            }
        }
    }

    /// True if a turn that has run `tasks` tasks ends. A thread without connections does not gather answers: with
    /// longer turns than those of the tasks ready at first, it and its drives would wait for each other.
    fn is_turn_over(&self, tasks: usize) -> bool {
        !self.ring.serves_connections() || tasks >= TASKS_A_TURN || self.queue.is_empty()
    }

    /// Ends a turn.
    fn exchange(&self) {
        let until_due = self.clock.wake_due();
        if !self.queue.is_empty() {
            if self.ring.has_exchange() {
                must_work(self.ring.exchange(Some(Duration::ZERO)));
            }
            return;
        }
        if let Some(busy_poll) = &self.busy_poll
            && self.ring.transfers() <= BUSY_POLL_TRANSFERS_MAX
            && self.polls(busy_poll)
        {
            return;
        }
        if self.queue.may_sleep() {
            // Awake before completions wake tasks, or the thread would rouse itself: three system calls.
            must_work(self.ring.exchange_and(until_due, || self.queue.awake()));
        }
    }

    /// Polls for an event instead of sleeping; true if there was one.
    fn polls(&self, busy_poll: &BusyPoll) -> bool {
        must_work(self.ring.exchange(Some(Duration::ZERO)));
        while self.queue.is_empty() {
            if !busy_poll.keeps_polling(self.clock.now()) {
                return false;
            }
            std::hint::spin_loop();
            if self.ring.has_exchange() {
                must_work(self.ring.exchange(Some(Duration::ZERO)));
            }
            self.clock.wake_due();
        }
        true
    }

    fn start(&self, name: &'static str, future: LocalFuture<()>) {
        if self.is_over.get() {
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.vacant.pop().unwrap_or(tasks.slots.len());
        let entry = QueueEntry::new(&self.queue, Some(slot));
        let waker = Waker::from(Arc::clone(&entry));
        let task = Task { name, entry: Arc::clone(&entry), waker, future: Some(future) };
        match tasks.slots.get_mut(slot) {
            Some(vacant) => *vacant = Some(task),
            None => tasks.slots.push(Some(task)),
        }
        drop(tasks);
        entry.wake();
    }

    fn timed<T>(&self, name: &'static str, step: impl FnOnce() -> T) -> T {
        match &self.steps {
            Some(steps) => steps.time(name, step),
            None => step(),
        }
    }

    /// Polls a task. The error is a panic that ends the thread.
    fn run_task(&self, entry: &Arc<QueueEntry>, slot: usize) -> thread::Result<()> {
        if let Some(busy_poll) = &self.busy_poll {
            busy_poll.note_work();
        }
        let Some(ReadyTask { name, mut future, waker }) = self.tasks.borrow_mut().take(entry, slot) else {
            return Ok(());
        };
        let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        let polled = catch_unwind(AssertUnwindSafe(|| self.timed(name, poll)));
        if let Ok(Poll::Pending) = polled {
            self.tasks.borrow_mut().put_back(slot, future);
            return Ok(());
        }
        self.tasks.borrow_mut().remove(slot);
        drop(future);
        match polled {
            Err(panic) if self.panics_end => Err(panic),
            // A task that panicked has been reported by the panic hook; the others go on.
            _ => Ok(()),
        }
    }
}

impl Tasks {
    /// Takes the future of the task that `entry` belongs to out of its slot; `None` if the task has ended.
    fn take(&mut self, entry: &Arc<QueueEntry>, slot: usize) -> Option<ReadyTask> {
        let task = self.slots.get_mut(slot)?.as_mut().filter(|task| Arc::ptr_eq(&task.entry, entry))?;
        let future = task.future.take().expect("a task is polled by one turn at a time");
        Some(ReadyTask { name: task.name, future, waker: task.waker.clone() })
    }

    fn put_back(&mut self, slot: usize, future: LocalFuture<()>) {
        let task = self.slots[slot].as_mut().expect("a task that is polled keeps its slot");
        assert!(task.future.replace(future).is_none(), "its future was away");
    }

    fn remove(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.vacant.push(slot);
    }
}

/// Drops all tasks at the end of the world.
struct End<'e>(&'e Executor);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.set(true);
        loop {
            // Tasks may wake others, and try to start new ones, when they are dropped.
            let last = self.0.tasks.borrow_mut().slots.pop();
            match last {
                Some(task) => drop(task),
                None => return,
            }
        }
    }
}

impl Spawn for Executor {
    fn spawn(&self, name: &'static str, task: LocalFuture<()>) {
        self.start(name, task);
    }
}

/// Empties the counter of the descriptor that rouses the thread, so that the next waker rouses it again.
async fn hear_rousing(ring: Rc<Ring>, rouse: Arc<OwnedFd>) {
    loop {
        let events = u32::from(PollFlags::IN.bits());
        must_work(ring.readiness(&rouse, events).await);
        // Another waker may have been quicker, and nothing is there.
        let _ = read(&*rouse, &mut [0; 8]);
    }
}

/// No task that waits for the ring would ever wake again.
fn must_work(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("spindle: io_uring of this thread failed: {error}");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, real::ring::Memory};
    use std::{fs::File, thread};

    const READS: usize = 100;

    fn executor() -> Option<Rc<Executor>> {
        // Containers may forbid io_uring.
        let ring = Rc::new(Ring::new().ok()?);
        let clock = Rc::new(RealClock::without_alarm());
        Some(Executor::new(ring, clock, RealOptions::default(), None).expect("there are descriptors"))
    }

    #[test]
    fn completions_of_its_own_ring_do_not_rouse_the_thread() {
        let Some(executor) = executor() else { return };
        let zeroes = Arc::new(OwnedFd::from(File::open("/dev/zero").unwrap()));
        let ring = Rc::clone(&executor.ring);
        executor.run(async {
            for _ in 0..READS {
                let (_, outcome) = ring.start(&zeroes, 0, Memory::Fill(vec![Buffer::zeroed(4096)])).await;
                outcome.unwrap();
            }
        });
        assert_eq!(executor.queue.rousings.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn another_thread_rouses_the_sleeping_one() {
        let Some(executor) = executor() else { return };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let queue = Arc::clone(&executor.queue);
        let waker = thread::spawn(move || {
            while !queue.lock().is_asleep {
                thread::yield_now();
            }
            sender.send(()).unwrap();
        });
        executor.run(receiver).unwrap();
        waker.join().unwrap();
        assert_eq!(executor.queue.rousings.load(Ordering::Relaxed), 1);
    }
}
