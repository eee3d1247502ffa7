//! A mail record as mail programs read it (RFC 5322): its columns as a header, its body in base64.

use super::mail_record::{MailKey, MailRecord};
use base64::{Engine, prelude::BASE64_STANDARD};
use report::calendar::mail_time;
use std::fmt::Write;

/// Seconds from 1601, from which mail systems count, to 1970.
const SECONDS_FROM_1601: i64 = 11_644_473_600;
/// Units of a time of arrival in a second.
const UNITS_PER_S: i64 = 10_000_000;
/// Bytes on a line of base64: 76 characters (RFC 2045).
const LINE_BYTES: usize = 57;

impl MailRecord {
    /// Time of arrival in seconds since 1970.
    pub fn received_s(&self) -> i64 {
        self.received.div_euclid(UNITS_PER_S) - SECONDS_FROM_1601
    }

    /// The message as a file of mail. `database` is the domain of its Message-ID: a message has the same one each time.
    pub fn to_rfc5322(&self, database: &str) -> Vec<u8> {
        let Self { key: MailKey { mailbox, message }, flags, .. } = *self;
        let mut text = format!(
            "Date: {}\r\nFrom: mailbox-{mailbox}@{database}\r\nSubject: {}\r\n\
             Message-ID: <{message}.{flags}.{mailbox}@{database}>\r\n\
             X-Spindle-Mailbox: {mailbox}\r\nX-Spindle-Message: {message}\r\nX-Spindle-Flags: {flags}\r\n\
             MIME-Version: 1.0\r\nContent-Type: application/octet-stream\r\n\
             Content-Transfer-Encoding: base64\r\n\r\n",
            mail_time(self.received_s()),
            header_text(&self.subject),
        );
        for line in self.body.chunks(LINE_BYTES) {
            write!(text, "{}\r\n", BASE64_STANDARD.encode(line)).expect("a string takes it");
        }
        text.into_bytes()
    }
}

/// A text that fits in a header: as it is, or as an encoded word (RFC 2047) if it has other characters.
fn header_text(text: &str) -> String {
    match text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        true => text.to_owned(),
        false => format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{
        load::mail_record::{RecordMaker, RecordVersion},
        plan::profile::RecordForm,
    };

    const KEY: MailKey = MailKey { mailbox: 3, message: 14 };

    fn record() -> MailRecord {
        let form = RecordForm { record_bytes: 300, compressible_percent: 0 };
        RecordMaker::new(7, form).make(KEY, RecordVersion::FIRST)
    }

    #[test]
    fn a_record_is_a_mail_with_its_columns_in_the_header() {
        let record = record();
        let mail = String::from_utf8(record.to_rfc5322("priv1.edb")).unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("Date: Thu, 01 Jan 2026 00:00:14 +0000\r\n"), "{head}");
        assert!(head.contains("\r\nSubject: message 14 of mailbox 3 "), "{head}");
        assert!(head.contains("\r\nMessage-ID: <14.1.3@priv1.edb>\r\n"), "{head}");
        let lines: Vec<&str> = body.split_terminator("\r\n").collect();
        assert!(lines.iter().all(|line| line.len() <= 76), "{body}");
        assert_eq!(BASE64_STANDARD.decode(lines.concat()).unwrap(), record.body);
    }

    #[test]
    fn a_subject_of_other_characters_ends_no_header() {
        let record = MailRecord { subject: "Grüße\r\nBcc: all".to_owned(), ..record() };
        let mail = String::from_utf8(record.to_rfc5322("priv1.edb")).unwrap();
        assert!(!mail.contains("Bcc"), "{mail}");
        assert!(mail.contains("\r\nSubject: =?utf-8?B?R3LDvMOfZQ0KQmNjOiBhbGw=?=\r\n"), "{mail}");
    }
}
