//! Looking whether something has happened, for a moment, before the thread sleeps.
//!
//! A sleep costs processor time on both sides and begins the work late: where processors are virtual, whoever ends it
//! interrupts another one through the hypervisor. Who looks for about as long as a sleep costs, and sleeps then, never
//! pays more than twice what was needed, and far less where the next thing comes soon (competitive spinning).
//!
//! Invariants:
//!
//! 1. A look takes no longer than its span, and nothing waits for it: all that is ready goes first.
//! 2. Who finds something in fewer than two of three looks looks ever more rarely, down to once in [`RESTS_MAX`] sleeps; who
//!    never wakes never looks.

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

/// Failures that count for nothing: who finds something in two of three looks stays below.
const PATIENCE: u32 = 8;
/// Sleeps between two looks of one who never finds anything.
const RESTS_MAX: u32 = 63;
/// One look behind the other takes a microsecond; after so long another thread had the processor in between.
const TAKEN_AWAY: Duration = Duration::from_micros(200);
/// Sleeps after that.
const RESTS_TAKEN_AWAY: u32 = 15;

/// Whether to look, after what earlier looks have found.
#[derive(Debug, Default)]
struct Patience {
    /// How often looks failed of late: 2 for each that did, less 1 for each that did not.
    failures: u32,
    /// Sleeps without a look to come.
    rests: u32,
}

impl Patience {
    /// Nothing is to be done: whether to look.
    fn begins(&mut self) -> bool {
        let rests = self.rests;
        self.rests = rests.saturating_sub(1);
        rests == 0
    }

    fn found(&mut self) {
        self.failures = self.failures.saturating_sub(1);
    }

    fn failed(&mut self) {
        const FAILURES_MAX: u32 = PATIENCE + 2 * (RESTS_MAX + 1).ilog2();
        self.failures = (self.failures + 2).min(FAILURES_MAX);
        self.rests = (1 << (self.failures.saturating_sub(PATIENCE) / 2)) - 1;
        assert!(self.rests <= RESTS_MAX, "it goes on looking now and then");
    }

    /// Others need the processor.
    fn was_taken_away(&mut self) {
        self.failed();
        self.rests = self.rests.max(RESTS_TAKEN_AWAY);
    }
}

/// A thread that looks before it sleeps.
pub(super) struct Looking {
    span: Duration,
    /// Tasks that were polled since it was last asked.
    polled: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    patience: Patience,
    /// When this look began, and when it was last gone on with.
    look: Option<(Moment, Moment)>,
}

impl Looking {
    /// Each look takes `span` at most.
    pub fn new(span: Duration) -> Rc<Self> {
        Rc::new(Self { span, polled: Cell::new(false), state: RefCell::default() })
    }

    /// Runs `all` to its end, which polls all tasks there are, and looks before each sleep.
    pub async fn run<T>(&self, all: impl Future<Output = T>, now: impl Fn() -> Moment) -> T {
        let mut all = pin!(all);
        poll_fn(|context| {
            if let Poll::Ready(value) = all.as_mut().poll(context) {
                return Poll::Ready(value);
            }
            if self.goes_on(now()) {
                // The executor looks what the kernel has for it, and comes back.
                let again = pin!(yield_now()).poll(context);
                assert!(again.is_pending(), "it yields once");
            }
            Poll::Pending
        })
        .await
    }

    /// All that was ready is done: whether to look (on) for more.
    fn goes_on(&self, now: Moment) -> bool {
        let State { patience, look } = &mut *self.state.borrow_mut();
        if self.polled.replace(false) {
            if look.take().is_some() {
                patience.found();
            }
            *look = patience.begins().then_some((now, now));
            return look.is_some();
        }
        let Some((begun, last)) = look else { return false };
        if now.since(*last) > TAKEN_AWAY {
            patience.was_taken_away();
        } else if now.since(*begun) >= self.span {
            patience.failed();
        } else {
            *last = now;
            return true;
        }
        *look = None;
        false
    }
}

/// Spawns tasks that tell when they are polled.
pub(super) struct Watched<S> {
    /// How they are spawned.
    pub spawner: S,
    /// Who is told.
    pub looking: Rc<Looking>,
}

impl<S: Spawn> Spawn for Watched<S> {
    fn spawn(&self, name: &'static str, mut task: LocalFuture<()>) {
        let looking = Rc::clone(&self.looking);
        let watched = poll_fn(move |context| {
            looking.polled.set(true);
            task.as_mut().poll(context)
        });
        self.spawner.spawn(name, Box::pin(watched));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_micros(50);

    /// Works, then looks until something is there after `gap` or the look ends; true if it was still looking then.
    fn idle(looking: &Looking, now: &mut Moment, gap: Duration) -> bool {
        let until = *now + gap;
        looking.polled.set(true);
        let mut looks = looking.goes_on(*now);
        while looks && *now < until {
            *now = *now + Duration::from_micros(1);
            looks = looking.goes_on(*now);
        }
        *now = (*now).max(until);
        looks
    }

    fn share_that_looks(gaps: impl Iterator<Item = u64>) -> f64 {
        let (looking, mut now) = (Looking::new(SPAN), Moment(0));
        let found = gaps.take(10_000).map(|gap| idle(&looking, &mut now, Duration::from_micros(gap)));
        found.filter(|found| *found).count() as f64 / 10_000.0
    }

    #[test]
    fn who_finds_what_comes_soon_never_sleeps() {
        assert!(share_that_looks(std::iter::repeat(20)) > 0.99);
        assert!(share_that_looks([20, 20, 900].into_iter().cycle()) > 0.6);
    }

    #[test]
    fn who_waits_for_long_hardly_looks() {
        let (looking, mut now) = (Looking::new(SPAN), Moment(0));
        let mut looked = 0;
        for _ in 0..10_000 {
            looking.polled.set(true);
            looked += u32::from(looking.goes_on(now));
            for _ in 0..100 {
                now = now + Duration::from_micros(1);
                if !looking.goes_on(now) {
                    break;
                }
            }
            now = now + Duration::from_millis(1);
        }
        assert!((100..300).contains(&looked), "{looked} looks");
        assert!(share_that_looks([20, 900].into_iter().cycle()) < 0.1);
    }

    #[test]
    fn nothing_happens_nobody_looks() {
        let looking = Looking::new(SPAN);
        assert!(!looking.goes_on(Moment(0)) && !looking.goes_on(Moment(1)));
    }

    #[test]
    fn whose_processor_is_taken_away_sleeps_for_a_while() {
        let (looking, mut now) = (Looking::new(SPAN), Moment(0));
        looking.polled.set(true);
        assert!(looking.goes_on(now));
        now = now + 2 * TAKEN_AWAY;
        assert!(!looking.goes_on(now));
        let looks = (0..7).filter(|_| idle(&looking, &mut now, Duration::from_micros(1))).count();
        assert_eq!(looks, 0);
    }
}
