//! Events, digests and tests as messages.

use crate::web::client::EventRow;
use crate::{
    events::NumberedEvent,
    kinds::{self, headline},
};
use lettre::{
    Message,
    message::{Mailbox, header::ContentType},
};
use report::{Severity, calendar::mail_time};
use serde_json::{Value, json};
use std::sync::Arc;

/// Events of one mail that are told in full; of the others, the first lines.
const IN_FULL: usize = 20;
const SUBJECT_CHARS_MAX: usize = 120;
const MISSING: &str = "Events before these are missing: more happened than the server keeps. 'spindle event conditions' has the \
                       present state.\n";

/// A message to a notifier.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NotifierMessage {
    /// The same for the same message when it is sent again.
    pub id: String,
    pub subject: String,
    pub text: String,
    /// The body for programs.
    pub json: Value,
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
}

/// One event, for a program.
pub(super) fn event_message(event: &Arc<NumberedEvent>, missing: bool, unix_s: i64) -> NotifierMessage {
    let mut json = serde_json::to_value(EventRow::of(event)).expect("plain fields");
    json["events_are_missing_before"] = missing.into();
    NotifierMessage { json, ..events_message(std::slice::from_ref(event), missing, unix_s) }
}

/// Events of one severity, for people.
pub(super) fn events_message(events: &[Arc<NumberedEvent>], missing: bool, unix_s: i64) -> NotifierMessage {
    let (first, last) = (&events[0], &events[events.len() - 1]);
    let severity = kinds::notified_severity(&first.report);
    let subject = match events {
        [one] => {
            let word = if kinds::is_cleared(&one.report) { "over" } else { one.report.severity.word() };
            format!("[Spindle] {word}: {}: {}", one.report.pool, one.report.text)
        }
        many => {
            let is_mixed = many.iter().any(|event| kinds::notified_severity(&event.report) != severity);
            let words = match severity {
                _ if is_mixed => "events",
                Severity::Note => "notes",
                Severity::Warning => "warnings",
                Severity::Error => "errors",
            };
            format!("[Spindle] {} {words}: {}: {}", many.len(), first.report.pool, first.report.text)
        }
    };
    let mut text = String::new();
    if missing {
        text += MISSING;
        text.push('\n');
    }
    for event in events.iter().take(IN_FULL) {
        text += &format!("{}  {}", event.report.time, kinds::message(&event.report));
        text += &format!("Number {}.\n\n", event.id);
    }
    for event in events.iter().skip(IN_FULL) {
        text += &format!("{}  {} [{}]\n", event.report.time, headline(&event.report), event.id);
    }
    NotifierMessage {
        id: if first.id == last.id { first.id.to_string() } else { format!("{}-{}", first.id, last.id) },
        subject: shortened(&subject),
        text,
        json: Value::Null,
        unix_s,
    }
}

/// A message that is no event.
pub(super) fn plain_message(
    kind: &str,
    id: String,
    subject: &str,
    text: String,
    unix_s: i64,
) -> NotifierMessage {
    let json = json!({ "event": kind, "id": id, "severity": "note", "text": subject, "message": text });
    NotifierMessage { id, subject: shortened(&format!("[Spindle] {subject}")), text, json, unix_s }
}

/// The message with a line about the channel that it should have gone through.
pub(super) fn redirected(message: &NotifierMessage, from: &str, why: &str) -> NotifierMessage {
    let line = format!("This was meant for the notifier {from}, which does not deliver: {why}\n\n");
    let mut json = message.json.clone();
    json["meant_for"] = from.into();
    NotifierMessage { text: format!("{line}{}", message.text), json, ..message.clone() }
}

fn shortened(subject: &str) -> String {
    // A line break would begin another header.
    let line: String = subject.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    match line.char_indices().nth(SUBJECT_CHARS_MAX) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// # Errors
///
/// The text is no address of mail.
pub(super) fn check_mailbox(text: &str) -> Result<(), String> {
    text.parse::<Mailbox>().map(drop).map_err(|error| error.to_string())
}

/// The address of a mailbox that was checked, `ADDRESS` or `NAME <ADDRESS>`.
pub(super) fn mail_address(mailbox: &str) -> String {
    mailbox.parse::<Mailbox>().expect("it was checked with the site file").email.to_string()
}

/// The message as RFC 5322 has it. Its Message-ID is the same when it is sent again.
pub(super) fn mail_bytes(
    message: &NotifierMessage,
    notifier: &str,
    (from, to): (&str, &[String]),
) -> Vec<u8> {
    let mailbox = |text: &str| text.parse::<Mailbox>().expect("it was checked with the site file");
    let from = mailbox(from);
    let domain = from.email.domain().to_owned();
    let plain: String = notifier.chars().filter(char::is_ascii_alphanumeric).collect();
    let id = format!("<spindle.{plain}.{}@{domain}>", message.id);
    let date = lettre::message::header::HeaderName::new_from_ascii_str("Date");
    let date = lettre::message::header::HeaderValue::new(date, mail_time(message.unix_s));
    let builder = to.iter().fold(Message::builder().from(from), |builder, to| builder.to(mailbox(to)));
    let built = builder
        .raw_header(date)
        .message_id(Some(id))
        .subject(message.subject.as_str())
        .header(ContentType::TEXT_PLAIN)
        .body(message.text.clone());
    built.expect("it has a sender and receivers").formatted()
}

/// A message about events that were dropped before they could be delivered, up to this number.
pub(super) fn missing_message(to: u64, unix_s: i64) -> NotifierMessage {
    plain_message("events_missing", format!("missing-{to}"), "events are missing", MISSING.to_owned(), unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serving::pool::events::EventReport;

    fn event(id: u64, text: &str) -> Arc<NumberedEvent> {
        let report = EventReport {
            event: "warning".to_owned(),
            severity: Severity::Warning,
            time: "2026-11-27T02:00:00Z".to_owned(),
            pool: "mail".to_owned(),
            text: text.to_owned(),
            next_step: String::new(),
            details: serde_json::Map::new(),
        };
        Arc::new(NumberedEvent { id, report })
    }

    #[test]
    fn a_mail_has_its_headers_and_cannot_be_given_others() {
        let message = events_message(&[event(7, "größer\r\nBcc: all@example.org")], false, 1_795_782_896);
        let to = ["ops@example.org".to_owned()];
        let bytes = mail_bytes(&message, "post box", ("Spindle <spindle@example.org>", &to));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("Message-ID: <spindle.postbox.7@example.org>\r\n"), "{text}");
        assert!(text.contains("Date: Fri, 27 Nov 2026 12:34:56 +0000\r\n"), "{text}");
        assert!(text.contains("To: ops@example.org\r\n"), "{text}");
        let (headers, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!headers.contains("\nBcc") && headers.is_ascii(), "{headers}");
    }

    #[test]
    fn the_address_of_a_mailbox_is_the_parsed_one() {
        for mailbox in
            ["Spindle <spindle@example.org>", "\"a <b@c>\" <spindle@example.org>", "spindle@example.org"]
        {
            assert_eq!(mail_address(mailbox), "spindle@example.org");
        }
    }

    #[test]
    fn many_events_are_one_mail_with_the_same_id_when_it_is_sent_again() {
        let events: Vec<_> = (1..=30).map(|id| event(id, &"x".repeat(200))).collect();
        let message = events_message(&events, true, 0);
        assert_eq!(message.id, "1-30");
        assert!(message.subject.starts_with("[Spindle] 30 warnings: mail: xxx"), "{}", message.subject);
        assert!(message.subject.chars().count() <= SUBJECT_CHARS_MAX + 1);
        assert!(message.text.starts_with("Events before these are missing"));
        assert!(
            (1..=30).all(|id| message.text.contains(&format!("[{id}]"))
                || message.text.contains(&format!("Number {id}.")))
        );
    }
}
