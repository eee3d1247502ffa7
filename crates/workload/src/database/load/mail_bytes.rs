//! A message as bytes, for those who deliver it to a run from outside.
//!
//! A byte with the version of the form, 1; then, little-endian, the mailbox (4 bytes), the number (8), the time of arrival in its
//! column's unit (8), the flags (4), the bytes of the subject (4), the subject in UTF-8, and the body to the end.

use super::mail_record::{MailKey, MailRecord};

const FORM: u8 = 1;

/// The message as bytes.
pub fn to_bytes(message: &MailRecord) -> Vec<u8> {
    let MailRecord { key, received, flags, subject, body } = message;
    let mut bytes = vec![FORM];
    bytes.extend(key.mailbox.to_le_bytes());
    bytes.extend(key.message.to_le_bytes());
    bytes.extend(received.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend((subject.len() as u32).to_le_bytes());
    bytes.extend(subject.as_bytes());
    bytes.extend(body);
    bytes
}

/// The message in these bytes; `None` if they are none.
pub fn from_bytes(bytes: &[u8]) -> Option<MailRecord> {
    let (&FORM, rest) = bytes.split_first()? else { return None };
    let (mailbox, rest) = rest.split_first_chunk()?;
    let (message, rest) = rest.split_first_chunk()?;
    let (received, rest) = rest.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let (subject_bytes, rest) = rest.split_first_chunk()?;
    let (subject, body) = rest.split_at_checked(u32::from_le_bytes(*subject_bytes) as usize)?;
    Some(MailRecord {
        key: MailKey { mailbox: i32::from_le_bytes(*mailbox), message: i64::from_le_bytes(*message) },
        received: i64::from_le_bytes(*received),
        flags: i32::from_le_bytes(*flags),
        subject: std::str::from_utf8(subject).ok()?.to_owned(),
        body: body.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{
        load::mail_record::{RecordMaker, RecordVersion},
        plan::profile::RecordForm,
    };

    #[test]
    fn a_message_comes_back_and_what_is_cut_short_or_of_another_form_is_none() {
        let maker = RecordMaker::new(3, RecordForm { record_bytes: 700, compressible_percent: 0 });
        let message = maker.make(MailKey { mailbox: 17, message: 28_000_123 }, RecordVersion::FIRST.next());
        let bytes = to_bytes(&message);
        assert_eq!(from_bytes(&bytes).as_ref(), Some(&message));
        let head = bytes.len() - message.body.len();
        assert!((0..head).all(|length| from_bytes(&bytes[..length]).is_none()));
        assert_eq!(from_bytes(&[&[2], &bytes[1..]].concat()), None);
    }
}
