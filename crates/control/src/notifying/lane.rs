//! A lane of a notifier: events in order, each until it is accepted, or refused for good.

use super::{
    composing::{NotifierMessage, event_message, events_message, missing_message, redirected},
    delivery::{DeliveryFailure, DeliveryReceipt, deliver},
    pace::{LanePace, SAID_AFTER},
    wanted::{NotifierChannel, WantedNotifier},
};
use crate::{
    conditions::{ConditionClaim, condition_id},
    events::{DaemonEventLog, NumberedEvent},
    kinds::{is_notified, notified_severity},
    notice::NoticeSender,
};
use report::{Severity, calendar::utc_time};
use serde_json::Map;
use serving::pool::events::EventReport;
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{Network, World};

/// Kind of the event about a message that is not tried any more, and its detail.
const PASSED: &str = "message_passed";
const NOTIFIER: &str = "notifier";
/// Events of one incident are told together.
const GATHERED_FOR: Duration = Duration::from_secs(2);
/// Events of one mail.
const MAIL_EVENTS_MAX: usize = 200;
/// Events that are looked at without a pause.
const SCANNED_AT_ONCE: usize = 512;

/// Surroundings of all lanes of a notifier.
#[derive(Clone)]
pub(super) struct NotifierContext {
    pub world: World,
    pub network: Rc<dyn Network>,
    pub log: DaemonEventLog,
    pub notices: NoticeSender,
    pub notifier: WantedNotifier,
    pub fallback: Option<WantedNotifier>,
}

/// The events of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// All that the notifier wants.
    All,
    Of(Severity),
}

impl Lane {
    /// The lanes of a notifier.
    pub fn of(notifier: &WantedNotifier) -> Vec<Self> {
        match &*notifier.channel {
            NotifierChannel::Webhook { .. } => vec![Self::All],
            // Errors first.
            NotifierChannel::Mail { .. } => [Severity::Error, Severity::Warning, Severity::Note]
                .into_iter()
                .filter(|severity| *severity <= notifier.severity)
                .map(Self::Of)
                .collect(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Of(severity) => severity.word(),
        }
    }

    fn wants(self, event: &NumberedEvent, (notifier, least): (&str, Severity)) -> bool {
        let severity = notified_severity(&event.report);
        // A notifier that refuses messages is not told so in another one.
        let is_own = event.report.event == PASSED
            && event.report.details.get(NOTIFIER).is_some_and(|name| name == notifier);
        // Errors are the smallest.
        is_notified(&event.report)
            && !is_own
            && match self {
                Self::All => severity <= least,
                Self::Of(own) => severity == own,
            }
    }
}

/// Events that are next.
struct NextEvents {
    events: Vec<Arc<NumberedEvent>>,
    /// Number of the last event that was looked at.
    scanned_to: u64,
    /// Events before these were dropped.
    missing: bool,
}

impl NextEvents {
    /// Nothing is to be told.
    fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.missing
    }
}

fn next_events(
    NotifierContext { log, notifier, .. }: &NotifierContext,
    (lane, least): (Lane, Severity),
    after: u64,
    most: usize,
) -> NextEvents {
    let mut next = NextEvents { events: Vec::new(), scanned_to: after, missing: false };
    while next.events.len() < most {
        let page = log.after(next.scanned_to, SCANNED_AT_ONCE);
        if page.is_empty() {
            // All that happened before may be gone.
            next.scanned_to = next.scanned_to.max(log.oldest() - 1);
            break;
        }
        for event in page {
            next.scanned_to = event.id;
            if lane.wants(&event, (&notifier.name, least)) {
                next.events.push(event);
                if next.events.len() == most {
                    break;
                }
            }
        }
    }
    // Also what was dropped meanwhile.
    next.missing = log.gap(after, next.scanned_to).is_some_and(|gravest| gravest <= least);
    next
}

/// Delivers the events of a lane until the future is dropped.
pub(super) async fn run_lane(context: NotifierContext, lane: Lane) {
    let NotifierContext { world, log, notifier, fallback, .. } = &context;
    let (name, wanted) = (&notifier.name, (lane, notifier.severity));
    let is_mail = is_mail(notifier);
    let own_most = if is_mail { MAIL_EVENTS_MAX } else { 1 };
    let mut pace = LanePace::new();
    loop {
        let after = log.place(name).of_lane(lane.name());
        let next = next_events(&context, wanted, after, own_most);
        if next.is_empty() {
            if next.scanned_to > after {
                move_on(log, name, lane, next.scanned_to);
            }
            log.wait_after(next.scanned_to).await;
            if is_mail {
                world.sleep(GATHERED_FOR).await;
            }
            continue;
        }
        if is_mail && world.now() < pace.next_mail_at {
            world.sleep_until(pace.next_mail_at).await;
            continue;
        }
        let mut given_up = None;
        if world.now() >= pace.retry_at {
            let message = message_of(&notifier.channel, &next, world.wall().seconds);
            match deliver(&context, notifier, &message).await {
                Ok(receipt) => {
                    move_on(log, name, lane, next.scanned_to);
                    note_success(&context, lane.name(), &receipt);
                    pace.succeeded(world.now());
                    continue;
                }
                Err(DeliveryFailure { why, is_for_good }) => {
                    pace.failed(world.now());
                    note_failure(&context, lane.name(), &pace, &why);
                    if is_for_good && pace.refused_for_good(world.now()) {
                        given_up = Some((message, why));
                    }
                }
            }
        }
        let why =
            log.notifier_state(name).failing.remove(lane.name()).map_or_else(String::new, |(_, why)| why);
        if let Some(second) = fallback
            && (given_up.is_some() || pace.failing_for(world.now()) >= notifier.fallback_after)
            && let Some(scanned_to) = fall_back(&context, (second, lane), (after, &why), &pace).await
        {
            move_on(log, name, lane, scanned_to);
            pace.fell_back(world.now(), self::is_mail(second));
            continue;
        }
        // With a second channel, that one takes it once it can.
        if fallback.is_none()
            && let Some((message, why)) = given_up
        {
            move_on(log, name, lane, next.scanned_to);
            note_passed(&context, &message, &why);
            pace.passed(world.now());
            continue;
        }
        world.sleep_until(pace.retry_at).await;
    }
}

fn is_mail(notifier: &WantedNotifier) -> bool {
    matches!(&*notifier.channel, NotifierChannel::Mail { .. })
}

/// Delivers what is next over the second channel. Returns the number of the last event.
async fn fall_back(
    context: &NotifierContext,
    (second, lane): (&WantedNotifier, Lane),
    (after, why): (u64, &str),
    pace: &LanePace,
) -> Option<u64> {
    let NotifierContext { world, notifier, .. } = context;
    let most = match &*second.channel {
        NotifierChannel::Webhook { .. } => 1,
        NotifierChannel::Mail { .. } if world.now() < pace.next_mail_at => return None,
        NotifierChannel::Mail { .. } => MAIL_EVENTS_MAX,
    };
    // What was next may have been dropped meanwhile.
    let next = next_events(context, (lane, notifier.severity), after, most);
    if next.is_empty() {
        return None;
    }
    let message = message_of(&second.channel, &next, world.wall().seconds);
    let message = redirected(&message, &notifier.name, why);
    deliver(context, second, &message).await.is_ok().then_some(next.scanned_to)
}

/// # Panics
///
/// If nothing is next.
fn message_of(channel: &NotifierChannel, next: &NextEvents, unix_s: i64) -> NotifierMessage {
    match (channel, &*next.events) {
        (_, []) => missing_message(next.scanned_to, unix_s),
        (NotifierChannel::Webhook { .. }, [first, ..]) => event_message(first, next.missing, unix_s),
        (NotifierChannel::Mail { .. }, events) => events_message(events, next.missing, unix_s),
    }
}

fn move_on(log: &DaemonEventLog, notifier: &str, lane: Lane, to: u64) {
    log.change_place(notifier, |place| {
        place.lanes.insert(lane.name().to_owned(), to);
    });
}

/// Records that a notifier's own channel has accepted a message of a lane, or a digest.
pub(super) fn note_success(context: &NotifierContext, lane: &str, receipt: &DeliveryReceipt) {
    let NotifierContext { world, log, notices, notifier, .. } = context;
    let (name, now) = (&notifier.name, world.wall());
    let mut state = log.notifier_state(name);
    state.delivered_unix_s = Some(now.seconds);
    state.failing.remove(lane);
    // Another lane may go on to fail.
    if state.failing.is_empty() {
        notices.clear(&condition_id("notifier", "notify", name), now);
    }
    log.set_notifier_state(name, state);
    if receipt.refused.is_empty() {
        notices.clear(&condition_id("receiver", "notify", name), now);
    } else {
        let text = format!("notifier {name} does not reach everybody: {}", receipt.refused.join("; "));
        notices.raise(&ConditionClaim::new("receiver_refused", "notify", text).of(&**name), now);
    }
}

/// Records that a notifier's own channel has failed with a message of a lane, or a digest.
pub(super) fn note_failure(context: &NotifierContext, lane: &str, pace: &LanePace, why: &str) {
    let NotifierContext { world, log, notices, notifier, .. } = context;
    let mut state = log.notifier_state(&notifier.name);
    let since = state.failing.get(lane).map_or(world.wall().seconds, |(since, _)| *since);
    state.failing.insert(lane.to_owned(), (since, why.to_owned()));
    log.set_notifier_state(&notifier.name, state);
    if pace.failing_for(world.now()) >= SAID_AFTER {
        let text = format!("notifier {} does not deliver: {why}", notifier.name);
        notices.raise(
            &ConditionClaim::new("notifier_failing", "notify", text).of(&*notifier.name),
            world.wall(),
        );
    }
}

/// Records that a message is not tried any more.
fn note_passed(
    NotifierContext { world, log, notices, notifier, .. }: &NotifierContext,
    message: &NotifierMessage,
    why: &str,
) {
    let mut details = Map::new();
    details.insert(NOTIFIER.to_owned(), notifier.name.as_str().into());
    details.insert("message".to_owned(), message.id.as_str().into());
    let passed = log.append(EventReport {
        event: PASSED.to_owned(),
        severity: Severity::Warning,
        time: utc_time(world.wall().seconds),
        pool: "notify".to_owned(),
        text: format!(
            "notifier {} refuses {:?} (number {}) for good: {why}",
            notifier.name, message.subject, message.id
        ),
        next_step: String::new(),
        details,
    });
    notices.print(&passed);
}
