//! The watchdog of a group's devices.
//!
//! It reports operations slower than a mail server tolerates while they last, and ends the run if one hangs.
//! Storage that stops answering must neither pass nor hang the run: a wait under the watchdog ends when an
//! operation exceeds the run's hung limit, or [`INTERRUPTED_MAX`] if the user ended the run; then the wait is
//! abandoned and the run has failed.

use super::context::GroupContext;
use crate::{
    database::load::{
        error::Error,
        operation::{FailureKind, FailureLog, RunFailure},
    },
    meter::{Backlog, Meter, SlowChanges},
    verdict::limits::SlowLimits,
};
use report::prose::counted;
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// Interval between checks for slow operations.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of test log lines about slow operations of one group; storage may be slow for a day.
const LINES_MAX: u32 = 100;

/// Maximum wait for a device operation after the user ended the run: twice the 30 s after which Linux's SCSI
/// layer considers a command lost.
const INTERRUPTED_MAX: Duration = Duration::from_secs(60);
/// Interval between checks of the time limit.
const LIMIT_POLL: Duration = Duration::from_millis(200);

/// Watches the device operations of one group.
pub(super) struct Watchdog {
    context: GroupContext,
    limits: SlowLimits,
    /// Lines about slow operations so far.
    lines: Cell<u32>,
}

impl Watchdog {
    pub(super) fn new(context: GroupContext, limits: SlowLimits) -> Self {
        Self { context, limits, lines: Cell::new(0) }
    }

    /// Runs `work` while checking for slow operations.
    pub(super) async fn guard<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, mut watch) = (pin!(work), pin!(self.watch()));
        poll_fn(|context| {
            if let Poll::Ready(value) = work.as_mut().poll(context) {
                return Poll::Ready(value);
            }
            assert!(watch.as_mut().poll(context).is_pending(), "the watch never ends");
            Poll::Pending
        })
        .await
    }

    async fn watch(&self) {
        loop {
            self.context.world.sleep(LOOK).await;
            self.look();
        }
    }

    /// Reports the slow operations noticed since the last check.
    pub(super) fn look(&self) {
        let mut news = SlowChanges::default();
        self.context.meters.iter().for_each(|meter| news.merge(meter.look()));
        for line in lines_about(&news, &self.limits) {
            let told = self.lines.replace(self.lines.get().saturating_add(1));
            match told {
                ..LINES_MAX => self.context.say(line),
                LINES_MAX => self.context.say("further slow operations are counted, not listed"),
                _ => {}
            }
        }
        if news.hung > 0 && !self.context.state.ending() {
            self.context.say("the run ends here: a mail server would be restarted");
            self.context.state.abort();
        }
    }

    /// Outstanding operations of all meters.
    pub(super) fn backlog(&self, of: impl Fn(&Meter) -> Backlog) -> Backlog {
        self.context.meters.iter().map(|meter| of(meter)).fold(Backlog::default(), Backlog::and)
    }

    pub(super) fn note_frozen(&self, failures: &FailureLog) {
        let waiting = self.backlog(Meter::outstanding);
        let age = waiting.age(self.context.world.now()).as_secs_f64();
        let text = format!(
            "{} unanswered, the oldest for {age:.0} s; the run ends anyway",
            counted(waiting.count, "device operation")
        );
        self.context.say(text.clone());
        failures.note(RunFailure { kind: FailureKind::Io, text });
    }

    /// Runs `work`; None if a device operation exceeds the time limit.
    pub(super) async fn within_limit<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.unless(work, || self.limit_exceeded()).await
    }

    /// Time limit of a device operation.
    pub(super) fn time_limit(&self) -> Duration {
        let hung = Duration::from_secs_f64(self.limits.hung_s);
        if self.context.state.interrupted() { hung.min(INTERRUPTED_MAX) } else { hung }
    }

    /// True if a device operation has exceeded the time limit.
    pub(super) fn limit_exceeded(&self) -> bool {
        self.backlog(Meter::outstanding).age(self.context.world.now()) > self.time_limit()
    }

    /// Runs `work`; an error if a device operation exceeds the time limit: before measurement there is
    /// nothing to report.
    pub(super) async fn or_fail<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.within_limit(work).await {
            Some(outcome) => outcome,
            None => {
                self.look();
                let oldest = self.context.slow().operations.into_iter().find(|operation| !operation.answered);
                Err(Error::Unanswered(match oldest {
                    Some(oldest) => format!("{oldest} was not answered in {:.0} s", oldest.took_s),
                    None => format!(
                        "a device operation was not answered in {:.0} s",
                        self.time_limit().as_secs_f64()
                    ),
                }))
            }
        }
    }

    /// Runs `work`; drops it and returns None once `given_up` is true.
    pub(super) async fn unless<T>(
        &self,
        work: impl Future<Output = T>,
        given_up: impl Fn() -> bool,
    ) -> Option<T> {
        let mut work = pin!(work);
        let mut nap = self.context.world.sleep(LIMIT_POLL);
        poll_fn(|context| {
            if let Poll::Ready(value) = work.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            if given_up() {
                return Poll::Ready(None);
            }
            while nap.as_mut().poll(context).is_ready() {
                nap = self.context.world.sleep(LIMIT_POLL);
            }
            Poll::Pending
        })
        .await
    }
}

/// Test log lines: at most one for each kind of change, however many operations it concerns.
fn lines_about(news: &SlowChanges, limits: &SlowLimits) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(oldest) = &news.oldest {
        let (long_s, hung_s) = (limits.long_s, limits.hung_s);
        let now_slow = [
            (news.hung, format!("hung, {hung_s} s without an answer")),
            (news.slow, format!("long, {long_s} s without an answer")),
        ];
        if let Some((count, what)) = now_slow.into_iter().find(|(count, _)| *count > 0) {
            let operations = counted(count, "device operation");
            lines.push(format!("{operations} {what}; the oldest: {oldest}, {:.0} s", oldest.took_s));
        }
    }
    if let Some(longest) = &news.longest {
        let operations = counted(news.answered, &format!("{} device operation", longest.slowness.title()));
        lines.push(format!("{operations} answered; the longest: {longest}, after {:.1} s", longest.took_s));
    }
    lines
}
