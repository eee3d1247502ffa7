//! Times of a thread's steps: the durations of single polls of its tasks.
//!
//! While a step runs, no other task of the thread does, so every command waits for the longest one. A step is
//! timed by the clock on the wall, and includes time in which another thread has the processor. The thread's own
//! processor time is read at most every [`PROCESSOR_TIME_AGE_MAX`], because that is a system call: for a long step it is
//! known with that uncertainty, upwards.
//!
//! Invariants:
//!
//! 1. Every poll is counted once, by its duration.
//! 2. A task is listed with its long steps exactly if it had one; their sum is `long_count`.

use crate::{LocalFuture, Spawn};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    time::Duration,
};

/// Steps longer than this are counted by task.
pub const LONG_STEP: Duration = Duration::from_millis(1);

/// Name of a thread's main future among the tasks.
pub(super) const MAIN: &str = "main";

/// The thread's processor time is read again when the reading is older.
const PROCESSOR_TIME_AGE_MAX: Duration = Duration::from_micros(200);

/// Longest duration the histogram tells apart from longer ones.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Times of a thread's steps over a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    pub count: u64,
    /// 99.9 % of the steps took no longer, to a hundredth.
    pub p999: Duration,
    pub longest: Duration,
    /// Steps longer than [`LONG_STEP`].
    pub long_count: u64,
    /// Tasks with long steps, those with the most first.
    pub tasks: Vec<LongSteps>,
}

/// Long steps of the tasks of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongSteps {
    pub task: &'static str,
    pub count: u64,
    pub longest: Duration,
    /// Those that used more than [`LONG_STEP`] of processor time; the others waited for a processor or a call.
    pub processor_count: u64,
    /// Most processor time of one of them; the true figure is up to 200 µs less.
    pub processor_longest: Duration,
}

/// Times the steps of one thread.
pub(super) struct StepRecorder {
    state: RefCell<State>,
}

struct State {
    histogram: Histogram<u64>,
    longest: Duration,
    long: Vec<LongSteps>,
    /// Latest reading of the thread's processor time, and its time on the wall.
    reading: (Duration, Duration),
}

impl StepRecorder {
    pub fn new() -> Rc<Self> {
        let most = u64::try_from(STEP_MAX.as_nanos()).expect("a minute");
        let histogram = Histogram::new_with_bounds(1, most, 2).expect("two digits of a minute");
        let state =
            State { histogram, longest: Duration::ZERO, long: Vec::new(), reading: (thread_time(), now()) };
        Rc::new(Self { state: RefCell::new(state) })
    }

    /// Runs one step of the task called `name`.
    pub fn time<T>(&self, name: &'static str, step: impl FnOnce() -> T) -> T {
        let start = now();
        {
            let mut state = self.state.borrow_mut();
            if start.saturating_sub(state.reading.1) > PROCESSOR_TIME_AGE_MAX {
                state.reading = (thread_time(), start);
            }
        }
        // Counted also if the step panics.
        let _running = RunningStep { recorder: self, name, start };
        step()
    }

    /// Runs all steps of a future.
    pub async fn time_all<T>(&self, name: &'static str, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| self.time(name, || future.as_mut().poll(context))).await
    }

    /// Times since the last call.
    pub fn take(&self) -> StepTimes {
        let mut state = self.state.borrow_mut();
        let State { histogram, longest, long, .. } = &mut *state;
        let longest = std::mem::take(longest);
        let mut tasks = std::mem::take(long);
        tasks.sort_by_key(|steps| std::cmp::Reverse(steps.count));
        let times = StepTimes {
            count: histogram.len(),
            // The histogram rounds up.
            p999: Duration::from_nanos(histogram.value_at_quantile(0.999)).min(longest),
            longest,
            long_count: tasks.iter().map(|steps| steps.count).sum(),
            tasks,
        };
        histogram.reset();
        times
    }
}

impl State {
    fn count(&mut self, name: &'static str, span: Duration) {
        self.histogram.saturating_record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.longest = self.longest.max(span);
        if span > LONG_STEP {
            let used = thread_time().saturating_sub(self.reading.0).min(span);
            self.count_long(name, span, used);
        }
    }

    fn count_long(&mut self, name: &'static str, span: Duration, used: Duration) {
        let index = self.long.iter().position(|steps| steps.task == name).unwrap_or_else(|| {
            self.long.push(LongSteps {
                task: name,
                count: 0,
                longest: Duration::ZERO,
                processor_count: 0,
                processor_longest: Duration::ZERO,
            });
            self.long.len() - 1
        });
        let steps = &mut self.long[index];
        steps.count += 1;
        steps.longest = steps.longest.max(span);
        steps.processor_count += u64::from(used > LONG_STEP);
        steps.processor_longest = steps.processor_longest.max(used);
    }
}

/// Counts a step when dropped.
struct RunningStep<'r> {
    recorder: &'r StepRecorder,
    name: &'static str,
    start: Duration,
}

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        let span = now().saturating_sub(self.start);
        self.recorder.state.borrow_mut().count(self.name, span);
    }
}

/// Spawns tasks whose steps are timed, where the executor is not ours.
pub(super) struct StepTimer {
    pub spawner: Rc<dyn Spawn>,
    pub steps: Rc<StepRecorder>,
}

impl Spawn for StepTimer {
    fn spawn(&self, name: &'static str, mut task: LocalFuture<()>) {
        let steps = Rc::clone(&self.steps);
        let timed = poll_fn(move |context| steps.time(name, || task.as_mut().poll(context)));
        self.spawner.spawn(name, Box::pin(timed));
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.spawner.yield_now()
    }
}

fn now() -> Duration {
    span(clock_gettime(ClockId::Monotonic))
}

fn thread_time() -> Duration {
    span(clock_gettime(ClockId::ThreadCPUTime))
}

fn span(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).expect("these clocks start at zero");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("nanoseconds are a fraction"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
    };

    #[test]
    fn a_step_that_computes_is_told_from_one_that_waits() {
        let recorder = StepRecorder::new();
        recorder.time("short", || ());
        recorder.time("waiting", || thread::sleep(Duration::from_millis(5)));
        recorder.time("computing", || {
            let start = thread_time();
            while thread_time() - start < Duration::from_millis(5) {}
        });
        let times = recorder.take();
        assert_eq!((times.count, times.long_count), (3, 2));
        assert!(times.longest >= Duration::from_millis(5) && times.p999 <= times.longest, "{times:?}");
        let of = |name: &str| times.tasks.iter().find(|steps| steps.task == name).expect("it was long");
        assert_eq!((of("waiting").count, of("waiting").processor_count), (1, 0));
        assert_eq!((of("computing").count, of("computing").processor_count), (1, 1));
        assert!(of("computing").processor_longest >= Duration::from_millis(5), "{times:?}");
        assert_eq!(recorder.take(), StepTimes::default(), "each step is reported once");
    }

    #[test]
    fn a_step_that_panics_is_counted() {
        let recorder = StepRecorder::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| recorder.time("ill", || panic!("as wanted"))));
        assert!(panicked.is_err());
        assert_eq!(recorder.take().count, 1);
    }

    #[test]
    fn long_steps_are_listed_by_task_those_with_the_most_first() {
        let recorder = StepRecorder::new();
        for (name, span_ms) in [("once", 9), ("often", 3), ("often", 2), ("never", 1)] {
            recorder.state.borrow_mut().count(name, Duration::from_millis(span_ms));
        }
        let times = recorder.take();
        let listed: Vec<_> = times.tasks.iter().map(|steps| (steps.task, steps.count)).collect();
        assert_eq!(listed, [("often", 2), ("once", 1)]);
        assert_eq!(times.tasks[0].longest, Duration::from_millis(3));
        assert_eq!((times.count, times.long_count), (4, 3));
    }
}
