//! The daily digest: what is open, and that all is well.

use super::{
    composing::{NotifierMessage, plain_message, redirected},
    delivery::deliver,
    lane::{NotifierContext, note_failure, note_success},
    pace::LanePace,
};
use crate::events::EVENTS_MAX;
use crate::{
    conditions::OpenCondition,
    events::DaemonEventLog,
    site::handle::{SiteHandle, SiteView},
};
use report::{
    Severity,
    calendar::{shown_time, utc_time},
};
use std::time::Duration;

const DAY_SECONDS: i64 = 86_400;
/// Digests among the lanes of a notifier.
const LANE: &str = "digest";
/// The clock may be set: it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Sends a digest each day until the future is dropped.
pub(super) async fn run_digest(context: NotifierContext, site: SiteHandle, time: Duration) {
    let NotifierContext { world, log, notifier, fallback, .. } = &context;
    let name = &notifier.name;
    let mut pace = LanePace::new();
    loop {
        let today = day_of(world.wall().seconds, time);
        let last = log.place(name).digest_day;
        match last {
            // The first one comes at its time. After a clock that was ahead, the next one does.
            None => log.change_place(name, |place| place.digest_day = Some(today)),
            Some(last) if last > today => log.change_place(name, |place| place.digest_day = Some(today)),
            // Whether all is well is not known before.
            Some(last) if last < today && log.is_evaluated() && world.now() >= pace.retry_at => {
                let message = digest(log, &site.look(), world.wall().seconds, today);
                let mut sent = deliver(&context, notifier, &message).await;
                match &sent {
                    Ok(receipt) => {
                        note_success(&context, LANE, receipt);
                        pace.succeeded(world.now());
                    }
                    Err(failure) => {
                        pace.failed(world.now());
                        note_failure(&context, LANE, &pace, &failure.why);
                        if let Some(second) = fallback
                            && pace.failing_for(world.now()) >= notifier.fallback_after
                        {
                            let message = redirected(&message, name, &failure.why);
                            sent = deliver(&context, second, &message).await;
                        }
                    }
                }
                if sent.is_ok() {
                    log.change_place(name, |place| place.digest_day = Some(today));
                }
            }
            Some(_) => {}
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// Number of the day that begins at this time of day.
fn day_of(unix_s: i64, time: Duration) -> i64 {
    let seconds = i64::try_from(time.as_secs()).expect("it is within a day");
    (unix_s - seconds).div_euclid(DAY_SECONDS)
}

fn digest(log: &DaemonEventLog, site: &SiteView, now: i64, day: i64) -> NotifierMessage {
    let open: Vec<OpenCondition> =
        log.conditions().into_iter().filter(|open| open.severity() != Severity::Note).collect();
    let (taken, free): (Vec<_>, Vec<_>) = open.iter().partition(|open| open.acknowledged.is_some());
    let subject = match (free.len(), taken.len()) {
        (0, 0) => "digest: all well".to_owned(),
        (0, taken) => format!("digest: nothing new, {taken} acknowledged"),
        (count, _) => {
            let worst = free.iter().min_by_key(|open| open.severity()).expect("there is one");
            format!("digest: {count} open: {}: {}", worst.pool, worst.text)
        }
    };
    let mut text = format!("{}\n\n", shown_time(now));
    for (title, conditions) in [("Open", &free), ("Acknowledged", &taken)] {
        if !conditions.is_empty() {
            text += &format!("{title}:\n");
        }
        for open in conditions {
            text += &format!("* {}: {} (since {}; {})\n", open.pool, open.text, open.raised_at, open.id);
            if let Some(acknowledged) = &open.acknowledged {
                text += &format!("  taken on by {} at {}\n", acknowledged.who, acknowledged.at);
            }
        }
    }
    if open.is_empty() {
        text += "All well: no condition is open.\n";
    }
    text += "\nPools:\n";
    for (name, pool) in &site.pools {
        let view = pool.last_view();
        let state = if view.failure.is_some() || pool.view().is_none() { ", stopped" } else { "" };
        let percent = u128::from(view.used.0) * 100 / u128::from(view.usable.0.max(1));
        text += &format!("* {name}: {percent} % full, {} of {}{state}\n", view.used, view.usable);
    }
    for (name, refusal) in &site.stopped {
        text += &format!("* {name}: not served: {}\n", refusal.problem());
    }
    if site.pools.is_empty() && site.stopped.is_empty() {
        text += "* none\n";
    }
    let since = utc_time(now - DAY_SECONDS);
    let (mut errors, mut warnings, mut notes) = (0, 0, 0);
    for event in log.after(0, EVENTS_MAX).iter().filter(|event| event.report.time >= since) {
        match event.report.severity {
            Severity::Error => errors += 1,
            Severity::Warning => warnings += 1,
            Severity::Note => notes += 1,
        }
    }
    text += &format!(
        "\nIn the last day: {errors} errors, {warnings} warnings, {notes} notes ('spindle event').\n"
    );
    plain_message("digest", format!("digest-{day}"), &subject, text, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::ConditionClaim;
    use world::WallTime;

    #[test]
    fn a_day_begins_at_the_time_of_its_digest() {
        let seven = Duration::from_secs(7 * 3600);
        let midnight = 20_784 * DAY_SECONDS;
        assert_eq!(day_of(midnight + 7 * 3600 - 1, seven) + 1, day_of(midnight + 7 * 3600, seven));
        assert_eq!(day_of(midnight, Duration::ZERO), 20_784);
    }

    #[test]
    fn a_digest_says_that_all_is_well_or_what_is_not() {
        let now = WallTime { seconds: 1_795_782_896, nanos: 0 };
        let log = DaemonEventLog::new(now);
        let subject = || digest(&log, &SiteView::default(), now.seconds, 0).subject;
        assert_eq!(subject(), "[Spindle] digest: all well");
        log.raise(&ConditionClaim::new("space_80", "mail", "81 % full"), now);
        log.raise(&ConditionClaim::new("pool_failed", "logs", "it has stopped"), now);
        assert_eq!(subject(), "[Spindle] digest: 2 open: logs: it has stopped");
        log.acknowledge("space:mail", "user 0", now);
        log.acknowledge("pool:logs", "user 0", now);
        assert_eq!(subject(), "[Spindle] digest: nothing new, 2 acknowledged");
        let text = digest(&log, &SiteView::default(), now.seconds, 0).text;
        assert!(text.contains("* mail: 81 % full (since 2026-11-27T12:34:56Z; space:mail)"), "{text}");
        assert!(text.contains("In the last day: 1 errors, 1 warnings, 0 notes"), "{text}");
    }
}
