//! The real runtime: one executor, one engine, one clock per thread.
//!
//! Within a thread nothing is shared and nothing is locked. Threads exchange messages only (tokio's channels
//! are fine for that).

use super::{
    busy_poll::{BusyPoll, PollRecorder},
    clock::RealClock,
    engine::Engine,
    executor::Executor,
    process_limits::check_handles,
    ring::Ring,
    signals::survive_large_files,
    step_times::{MAIN, StepRecorder, StepTimer},
};
use crate::{Clock, LocalFuture, Spawn, World, with_deadline};
use std::{
    any::Any,
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    task::Poll,
    thread,
    time::Duration,
};
use tokio::{
    runtime,
    sync::{Notify, oneshot},
    task::{self, LocalSet},
};

/// Options of a real world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealOptions {
    /// Use helper threads even where io_uring would work (tests of the fallback).
    pub force_plain: bool,
    /// Time the thread busy-polls before it blocks, with few transfers of drives under way; polling adapts to its
    /// success. Zero disables it.
    pub busy_poll: Duration,
    /// Measure how long each step of a task keeps the thread ([`Engine::take_step_times`]): two readings of the clock a step.
    pub step_times: bool,
    /// A panic of any task unwinds the whole thread; otherwise only that task ends.
    pub panics_end: bool,
}

impl RealOptions {
    /// Helper threads if `force_plain`; else the best method available.
    pub fn plain(force_plain: bool) -> Self {
        Self { force_plain, ..Self::default() }
    }
}

struct LocalSpawner;

impl Spawn for LocalSpawner {
    fn spawn(&self, _name: &'static str, task: LocalFuture<()>) {
        task::spawn_local(task);
    }
}

/// The first panic of a task, where the executor is not ours: tokio keeps it from the thread.
#[derive(Default)]
struct PanicWatch {
    panic: RefCell<Option<Box<dyn Any + Send>>>,
    raised: Notify,
}

impl PanicWatch {
    /// Runs `main`; a panic of a task ends it.
    async fn run<T>(&self, main: impl Future<Output = T>) -> T {
        match with_deadline(self.raised.notified(), main).await {
            Some(value) => value,
            None => panic::resume_unwind(self.panic.take().expect("it was raised")),
        }
    }
}

struct WatchedSpawner {
    spawner: Rc<dyn Spawn>,
    watch: Rc<PanicWatch>,
}

impl Spawn for WatchedSpawner {
    fn spawn(&self, name: &'static str, mut task: LocalFuture<()>) {
        let watch = Rc::clone(&self.watch);
        let watched = poll_fn(move |context| {
            let polled = panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
            polled.unwrap_or_else(|panic| {
                watch.panic.replace(Some(panic));
                watch.raised.notify_one();
                Poll::Ready(())
            })
        });
        self.spawner.spawn(name, Box::pin(watched));
    }
}

/// Runs `main` in a real world on this thread and returns its result.
///
/// Tasks still running then are dropped; storage operations still in flight are completed first.
/// Panics if the kernel refuses the basics (epoll, timerfd), or if this thread is in a world
/// already.
pub fn run<T>(seed: u64, options: RealOptions, main: impl AsyncFnOnce(World) -> T) -> T {
    survive_large_files();
    let engine = Engine::new(options);
    let (ring, steps) = (engine.ring(), engine.steps());
    // Declared before the tasks, so dropped after them: their operations are completed then.
    let _entered = engine.enter();
    match ring {
        Some(ring) => run_in_ring(seed, ring, options, steps, main),
        None => run_in_tokio(seed, options, steps, main),
    }
}

/// One system call submits, waits for and completes whatever tasks do.
fn run_in_ring<T>(
    seed: u64,
    ring: Rc<Ring>,
    options: RealOptions,
    steps: Option<Rc<StepRecorder>>,
    main: impl AsyncFnOnce(World) -> T,
) -> T {
    let clock = Rc::new(RealClock::without_alarm());
    let executor = Executor::new(ring, Rc::clone(&clock), options, steps);
    let executor = executor.expect("the kernel gives every thread an eventfd");
    let world = World::new(clock, Rc::clone(&executor) as _, seed).with_secrets(fill_from_kernel);
    executor.run(main(world))
}

/// Without io_uring: helper threads for files, epoll for sockets and timers.
fn run_in_tokio<T>(
    seed: u64,
    RealOptions { busy_poll, panics_end, .. }: RealOptions,
    steps: Option<Rc<StepRecorder>>,
    main: impl AsyncFnOnce(World) -> T,
) -> T {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the kernel gives every process an epoll instance");
    let tasks = LocalSet::new();
    let clock = {
        let _context = runtime.enter();
        Rc::new(RealClock::with_alarm().expect("the kernel gives every process a timerfd"))
    };
    tasks.spawn_local(must_not_end("clock", clock.drive()));
    let mut spawner: Rc<dyn Spawn> = Rc::new(LocalSpawner);
    if let Some(steps) = &steps {
        spawner = Rc::new(StepTimer { spawner, steps: Rc::clone(steps) });
    }
    let watch = panics_end.then(|| Rc::new(PanicWatch::default()));
    if let Some(watch) = &watch {
        spawner = Rc::new(WatchedSpawner { spawner, watch: Rc::clone(watch) });
    }
    let busy_poll = (!busy_poll.is_zero()).then(|| BusyPoll::new(busy_poll));
    if let Some(busy_poll) = &busy_poll {
        spawner = Rc::new(PollRecorder { spawner, busy_poll: Rc::clone(busy_poll) });
    }
    let world = World::new(Rc::clone(&clock) as _, spawner, seed).with_secrets(fill_from_kernel);
    let main = async {
        let main = async {
            match &steps {
                Some(steps) => steps.time_all(MAIN, main(world)).await,
                None => main(world).await,
            }
        };
        match &watch {
            Some(watch) => watch.run(main).await,
            None => main.await,
        }
    };
    match busy_poll {
        Some(busy_poll) => runtime.block_on(busy_poll.run(tasks.run_until(main), || clock.now())),
        None => tasks.block_on(&runtime, main),
    }
}

fn fill_from_kernel(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
        match filled {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // Callers take these bytes for secrets, so anything less is no option.
            Err(error) => panic!("the kernel has no random bytes: {error}"),
        }
    }
}

async fn must_not_end(driver: &str, work: impl Future<Output = io::Result<()>>) {
    if let Err(error) = work.await {
        // No task waiting for this driver would ever wake again.
        eprintln!("spindle: the {driver} driver of this thread failed: {error}");
        std::process::abort();
    }
}

/// A world on a thread of its own. Dropping the handle detaches the thread.
pub struct ThreadHandle<T> {
    result: oneshot::Receiver<T>,
    thread: thread::JoinHandle<()>,
}

impl<T> ThreadHandle<T> {
    /// Waits for the thread's result without blocking the caller's executor. Propagates a panic of the
    /// thread.
    pub async fn join(self) -> T {
        let result = self.result.await;
        Self::finish(result.ok(), self.thread)
    }

    /// Waits for the thread's result; the error is the message of its panic.
    pub async fn outcome(self) -> Result<T, String> {
        let result = self.result.await.ok();
        match (result, self.thread.join()) {
            (Some(result), Ok(())) => Ok(result),
            (_, Err(panic)) => Err(panic_message(&*panic)),
            (None, Ok(())) => unreachable!("a thread that did not panic gave its result"),
        }
    }

    /// Like [`ThreadHandle::join`], but blocks the calling thread.
    pub fn join_blocking(self) -> T {
        Self::finish(self.result.blocking_recv().ok(), self.thread)
    }

    /// True once the thread has ended, by result or panic.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    fn finish(result: Option<T>, thread: thread::JoinHandle<()>) -> T {
        if let Err(panic) = thread.join() {
            panic::resume_unwind(panic);
        }
        result.expect("a thread that did not panic gave its result")
    }
}

/// The text of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

/// Starts a thread named `name` (`top` shows 15 bytes) with a world of its own and runs `main` in it. Fails
/// if the system has no thread or too few file handles left.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    seed: u64,
    options: RealOptions,
    main: impl FnOnce(World) -> LocalFuture<T> + Send + 'static,
) -> io::Result<ThreadHandle<T>> {
    check_handles()?;
    let (give, result) = oneshot::channel();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let value = run(seed, options, async |world| main(world).await);
        // The handle may be gone; the work was done all the same.
        let _ = give.send(value);
    })?;
    Ok(ThreadHandle { result, thread })
}

/// Lets all other ready tasks of this thread run and processes device completions: for long computations that
/// await nothing. Outside tokio it only wakes its task: in the ring that puts it behind all that are ready, in the
/// simulated world the executor draws the next one.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}
