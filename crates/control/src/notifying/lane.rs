//! A lane of a notifier: events in order, each until it is accepted.

use super::{
    composing::{NotifierMessage, event_message, events_message, mail_bytes, redirected},
    pace::{LanePace, SAID_AFTER},
    smtp::{self, SmtpEnvelope},
    wanted::{NotifierChannel, WantedNotifier, severity_word},
    webhook::{self, WebhookTarget},
};
use crate::{
    conditions::{ConditionClaim, condition_id},
    events::{DaemonEventLog, NumberedEvent},
    kinds::{is_notified, notified_severity},
    notice::NoticeSender,
};
use report::Severity;
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{Network, World, with_deadline};

/// Time for a message to be accepted.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(30);
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
            Self::Of(severity) => severity_word(severity),
        }
    }

    fn wants(self, event: &NumberedEvent, least: Severity) -> bool {
        let severity = notified_severity(&event.report);
        // Errors are the smallest.
        is_notified(&event.report)
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

fn next_events(log: &DaemonEventLog, (lane, least): (Lane, Severity), after: u64, most: usize) -> NextEvents {
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
            if lane.wants(&event, least) {
                next.events.push(event);
                if next.events.len() == most {
                    break;
                }
            }
        }
    }
    // Also what was dropped meanwhile.
    next.missing = after < log.dropped_to();
    next
}

/// Delivers the events of a lane until the future is dropped.
pub(super) async fn run_lane(context: NotifierContext, lane: Lane) {
    let NotifierContext { world, log, notifier, fallback, .. } = &context;
    let (name, wanted) = (&notifier.name, (lane, notifier.severity));
    let is_mail = matches!(&*notifier.channel, NotifierChannel::Mail { .. });
    let own_most = if is_mail { MAIL_EVENTS_MAX } else { 1 };
    let mut pace = LanePace::new();
    loop {
        let after = log.place(name).of_lane(lane.name());
        let next = next_events(log, wanted, after, own_most);
        if next.events.is_empty() {
            // What is missing is said with the next event.
            if next.scanned_to > after && !next.missing {
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
        if world.now() >= pace.retry_at {
            let message = message_of(&notifier.channel, &next, world.wall().seconds);
            match deliver(&context, notifier, &message).await {
                Ok(()) => {
                    move_on(log, name, lane, next.scanned_to);
                    note_success(&context, &pace);
                    pace.succeeded(world.now());
                    continue;
                }
                Err(why) => {
                    pace.failed(world.now());
                    note_failure(&context, &pace, &why);
                }
            }
        }
        let why = log.notifier_state(name).failing.map_or_else(String::new, |(_, why)| why);
        if let Some(second) = fallback
            && pace.failing_for(world.now()) >= notifier.fallback_after
            && let Some(scanned_to) = fall_back(&context, (second, lane), (after, &why), &pace).await
        {
            move_on(log, name, lane, scanned_to);
            pace.fell_back(world.now());
            continue;
        }
        world.sleep_until(pace.retry_at).await;
    }
}

/// Delivers what is next over the second channel. Returns the number of the last event.
async fn fall_back(
    context: &NotifierContext,
    (second, lane): (&WantedNotifier, Lane),
    (after, why): (u64, &str),
    pace: &LanePace,
) -> Option<u64> {
    let NotifierContext { world, log, notifier, .. } = context;
    let most = match &*second.channel {
        NotifierChannel::Webhook { .. } => 1,
        NotifierChannel::Mail { .. } if world.now() < pace.next_mail_at => return None,
        NotifierChannel::Mail { .. } => MAIL_EVENTS_MAX,
    };
    let next = next_events(log, (lane, notifier.severity), after, most);
    let message = message_of(&second.channel, &next, world.wall().seconds);
    let message = redirected(&message, &notifier.name, why);
    deliver(context, second, &message).await.is_ok().then_some(next.scanned_to)
}

fn message_of(channel: &NotifierChannel, next: &NextEvents, unix_s: i64) -> NotifierMessage {
    match channel {
        NotifierChannel::Webhook { .. } => event_message(&next.events[0], next.missing, unix_s),
        NotifierChannel::Mail { .. } => events_message(&next.events, next.missing, unix_s),
    }
}

fn move_on(log: &DaemonEventLog, notifier: &str, lane: Lane, to: u64) {
    log.change_place(notifier, |place| {
        place.lanes.insert(lane.name().to_owned(), to);
    });
}

/// Records that a notifier's own channel has accepted a message.
pub(super) fn note_success(context: &NotifierContext, pace: &LanePace) {
    let NotifierContext { world, log, notices, notifier, .. } = context;
    let mut state = log.notifier_state(&notifier.name);
    state.delivered_unix_s = Some(world.wall().seconds);
    // Another lane may go on to fail.
    if pace.failing_for(world.now()) > Duration::ZERO || state.failing.is_none() {
        state.failing = None;
        notices.clear(&condition_id("notifier", "notify", &notifier.name), world.wall());
    }
    log.set_notifier_state(&notifier.name, state);
}

/// Records that a notifier's own channel has failed.
pub(super) fn note_failure(context: &NotifierContext, pace: &LanePace, why: &str) {
    let NotifierContext { world, log, notices, notifier, .. } = context;
    let mut state = log.notifier_state(&notifier.name);
    let since = state.failing.map_or(world.wall().seconds, |(since, _)| since);
    state.failing = Some((since, why.to_owned()));
    log.set_notifier_state(&notifier.name, state);
    if pace.failing_for(world.now()) >= SAID_AFTER {
        let text = format!("notifier {} does not deliver: {why}", notifier.name);
        notices.raise(
            &ConditionClaim::new("notifier_failing", "notify", text).of(&*notifier.name),
            world.wall(),
        );
    }
}

/// Sends a message over the channel of `notifier`. The error is the reason for which it was not accepted.
pub(super) async fn deliver(
    NotifierContext { world, network, .. }: &NotifierContext,
    notifier: &WantedNotifier,
    message: &NotifierMessage,
) -> Result<(), String> {
    let surroundings = (world, &**network);
    let sending = async {
        match &*notifier.channel {
            NotifierChannel::Webhook { address, host, path, tls, secret, .. } => {
                let (tls, secret) = (tls.as_ref(), secret.as_ref());
                let target = WebhookTarget { address, host, path, tls, secret };
                webhook::post(surroundings, &target, message).await
            }
            NotifierChannel::Mail { address, tls, login, from, to, .. } => {
                let (tls, login) = (tls.as_ref(), login.as_ref());
                let envelope = SmtpEnvelope { address, tls, login, from, to };
                let mail = mail_bytes(message, &notifier.name, (from, to));
                smtp::send(surroundings, &envelope, &mail).await
            }
        }
    };
    let timeout = || Err(format!("no answer within {} s", ACCEPTED_WITHIN.as_secs()));
    with_deadline(world.sleep(ACCEPTED_WITHIN), sending).await.unwrap_or_else(timeout)
}
