//! The watchdog of a group's devices: reports operations slower than a mail server tolerates while they last,
//! and ends the run if one hangs.

use crate::{
    database::run::group::GroupRun,
    meter::{Meter, SlowChanges, SlowTally},
    verdict::limits::SlowLimits,
};
use report::prose::counted;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

/// Interval between checks for slow operations.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of test log lines about slow operations of one group; storage may be slow for a day.
const LINES_MAX: u32 = 100;

impl GroupRun {
    /// Runs `work` while checking for slow operations.
    pub(super) async fn under_watch<T>(&self, work: impl Future<Output = T>) -> T {
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
            self.world.sleep(LOOK).await;
            self.look();
        }
    }

    /// Reports the slow operations noticed since the last check.
    pub(super) fn look(&self) {
        let mut news = SlowChanges::default();
        self.meters.iter().for_each(|meter| news.merge(meter.look()));
        for line in tell(&news, &self.limits.slow) {
            let told = self.slow_lines.replace(self.slow_lines.get().saturating_add(1));
            match told {
                ..LINES_MAX => self.say(line),
                LINES_MAX => self.say("further slow operations are counted, not listed"),
                _ => {}
            }
        }
        if news.hung > 0 && !self.shared.ending() {
            self.say("the run ends here: a mail server would be restarted");
            self.shared.abort();
        }
    }

    /// Slow operations of all volumes.
    pub(super) fn slow(&self) -> SlowTally {
        self.meters.iter().map(Rc::as_ref).map(Meter::slow).fold(SlowTally::default(), |mut sum, slow| {
            sum.merge(&slow);
            sum
        })
    }
}

/// Test log lines: at most one for each kind of change, however many operations it concerns.
fn tell(news: &SlowChanges, limits: &SlowLimits) -> Vec<String> {
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
