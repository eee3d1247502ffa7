//! Busy polling: the thread polls for a short time before it blocks.
//!
//! Blocking costs processor time on both sides and delays the work: on virtual processors a wake-up is an
//! interrupt through the hypervisor. A thread that polls for about as long as blocking costs, and then
//! blocks, never pays more than twice the minimum, and far less where events come soon (competitive
//! spinning).
//!
//! Invariants:
//!
//! 1. One poll phase takes no longer than its span, and delays nothing: ready tasks run first.
//! 2. A thread whose polling succeeds in fewer than two of three phases polls ever more rarely, down to once
//!    in [`SKIPS_MAX`] sleeps; a thread that never wakes never polls.

use crate::{LocalFuture, Moment, Spawn};
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use tokio::task::yield_now;

/// Failures without a penalty: polling that succeeds in two of three phases stays below this.
const FREE_FAILURES: u32 = 8;
/// Sleeps between two poll phases of a thread that never succeeds.
const SKIPS_MAX: u32 = 63;
/// One iteration takes a microsecond; a longer gap means another thread had the processor.
const PREEMPTION_GAP: Duration = Duration::from_micros(200);
/// Sleeps to skip after that.
const SKIPS_AFTER_PREEMPTION: u32 = 15;

/// Decides whether to poll before a sleep, from the outcome of earlier phases.
#[derive(Debug, Default)]
struct Backoff {
    /// Recent failures: plus 2 for each failed phase, minus 1 for each successful one.
    failures: u32,
    /// Sleeps still to pass without polling.
    skips: u32,
}

impl Backoff {
    /// Called before a sleep; true if the thread should poll first.
    fn should_poll(&mut self) -> bool {
        let skips = self.skips;
        self.skips = skips.saturating_sub(1);
        skips == 0
    }

    fn succeeded(&mut self) {
        self.failures = self.failures.saturating_sub(1);
    }

    fn failed(&mut self) {
        const FAILURES_MAX: u32 = FREE_FAILURES + 2 * (SKIPS_MAX + 1).ilog2();
        self.failures = (self.failures + 2).min(FAILURES_MAX);
        self.skips = (1 << (self.failures.saturating_sub(FREE_FAILURES) / 2)) - 1;
        assert!(self.skips <= SKIPS_MAX, "polling is retried now and then");
    }

    /// Another thread needed the processor.
    fn was_preempted(&mut self) {
        self.failed();
        self.skips = self.skips.max(SKIPS_AFTER_PREEMPTION);
    }
}

/// The busy-polling state of one thread.
pub(super) struct BusyPoll {
    span: Duration,
    /// True if a task was polled since the last check.
    polled: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    backoff: Backoff,
    /// Start of this poll phase, and its latest iteration.
    phase: Option<(Moment, Moment)>,
}

impl BusyPoll {
    /// A poll phase takes `span` at most.
    pub fn new(span: Duration) -> Rc<Self> {
        Rc::new(Self { span, polled: Cell::new(false), state: RefCell::default() })
    }

    /// Runs `all` (every task of the thread) to its end and polls before each sleep.
    pub async fn run<T>(&self, all: impl Future<Output = T>, now: impl Fn() -> Moment) -> T {
        let mut all = pin!(all);
        poll_fn(|context| {
            if let Poll::Ready(value) = all.as_mut().poll(context) {
                return Poll::Ready(value);
            }
            if self.keeps_polling(now()) {
                // The yield makes the executor check the kernel for events and come back.
                let again = pin!(yield_now()).poll(context);
                assert!(again.is_pending(), "it yields once");
            }
            Poll::Pending
        })
        .await
    }

    /// Notes that a task ran.
    pub fn note_work(&self) {
        self.polled.set(true);
    }

    /// Called when no task is ready; true if polling should start or continue.
    pub fn keeps_polling(&self, now: Moment) -> bool {
        let State { backoff, phase } = &mut *self.state.borrow_mut();
        if self.polled.replace(false) {
            if phase.take().is_some() {
                backoff.succeeded();
            }
            *phase = backoff.should_poll().then_some((now, now));
            return phase.is_some();
        }
        let Some((start, last)) = phase else { return false };
        if now.since(*last) > PREEMPTION_GAP {
            backoff.was_preempted();
        } else if now.since(*start) >= self.span {
            backoff.failed();
        } else {
            *last = now;
            return true;
        }
        *phase = None;
        false
    }
}

/// Spawns tasks that record when they are polled.
pub(super) struct PollRecorder {
    pub spawner: Rc<dyn Spawn>,
    pub busy_poll: Rc<BusyPoll>,
}

impl Spawn for PollRecorder {
    fn spawn(&self, name: &'static str, mut task: LocalFuture<()>) {
        let busy_poll = Rc::clone(&self.busy_poll);
        let recorded = poll_fn(move |context| {
            busy_poll.note_work();
            task.as_mut().poll(context)
        });
        self.spawner.spawn(name, Box::pin(recorded));
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.spawner.yield_now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_micros(50);

    /// Runs a task, then polls until an event after `gap` or the end of the phase; true if the event came
    /// during polling.
    fn idle(busy_poll: &BusyPoll, now: &mut Moment, gap: Duration) -> bool {
        let until = *now + gap;
        busy_poll.polled.set(true);
        let mut polls = busy_poll.keeps_polling(*now);
        while polls && *now < until {
            *now = *now + Duration::from_micros(1);
            polls = busy_poll.keeps_polling(*now);
        }
        *now = (*now).max(until);
        polls
    }

    fn share_polling(gaps: impl Iterator<Item = u64>) -> f64 {
        let (busy_poll, mut now) = (BusyPoll::new(SPAN), Moment(0));
        let found = gaps.take(10_000).map(|gap| idle(&busy_poll, &mut now, Duration::from_micros(gap)));
        found.filter(|found| *found).count() as f64 / 10_000.0
    }

    #[test]
    fn a_thread_whose_events_come_soon_never_blocks() {
        assert!(share_polling(std::iter::repeat(20)) > 0.99);
        assert!(share_polling([20, 20, 900].into_iter().cycle()) > 0.6);
    }

    #[test]
    fn a_thread_that_waits_long_hardly_polls() {
        let (busy_poll, mut now) = (BusyPoll::new(SPAN), Moment(0));
        let mut polled_times = 0;
        for _ in 0..10_000 {
            busy_poll.polled.set(true);
            polled_times += u32::from(busy_poll.keeps_polling(now));
            for _ in 0..100 {
                now = now + Duration::from_micros(1);
                if !busy_poll.keeps_polling(now) {
                    break;
                }
            }
            now = now + Duration::from_millis(1);
        }
        assert!((100..300).contains(&polled_times), "{polled_times} polls");
        assert!(share_polling([20, 900].into_iter().cycle()) < 0.1);
    }

    #[test]
    fn without_events_a_thread_does_not_poll() {
        let busy_poll = BusyPoll::new(SPAN);
        assert!(!busy_poll.keeps_polling(Moment(0)) && !busy_poll.keeps_polling(Moment(1)));
    }

    #[test]
    fn a_thread_that_lost_its_processor_blocks_for_a_while() {
        let (busy_poll, mut now) = (BusyPoll::new(SPAN), Moment(0));
        busy_poll.polled.set(true);
        assert!(busy_poll.keeps_polling(now));
        now = now + 2 * PREEMPTION_GAP;
        assert!(!busy_poll.keeps_polling(now));
        let polls = (0..7).filter(|_| idle(&busy_poll, &mut now, Duration::from_micros(1))).count();
        assert_eq!(polls, 0);
    }
}
