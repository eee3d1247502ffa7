//! Dial-tone databases: empty ones in the places of lost ones, so that mail is sent and received until those are back.
//!
//! Such a database has the label of the one that it stands for, so its records are made of the same seed. A second record beside
//! the label has the number of mailboxes and that of their first messages, which no message of the lost database has. It is not
//! filled up to a wanted size.

use super::{
    error::Error,
    mail_record::MailKey,
    mail_table::{
        LABEL_ID, LABEL_TABLE, LABEL_TEXT, MAIL_TABLE, from_values, label_definition, mail_definition,
    },
};
use maildb::{Database, Durability, Session, Value};

/// Key of the record in the label table.
const DIAL_TONE_KEY: i32 = 2;
/// First word of its text.
const MARK: &str = "spindle-dial-tone-1";
/// 2026-01-01 in seconds since 1970: messages of `prove` arrive one a second from then on.
const FIRST_ARRIVAL_S: i64 = 1_767_225_600;

/// The beginning of a dial-tone database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialTone {
    pub mailboxes: u32,
    /// Number of the first message in each mailbox.
    pub first_message: i64,
}

impl DialTone {
    fn to_text(self) -> String {
        format!("{MARK} {} {}", self.mailboxes, self.first_message)
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [MARK, mailboxes, first_message] = words[..] else { return None };
        Some(Self { mailboxes: mailboxes.parse().ok()?, first_message: first_message.parse().ok()? })
    }
}

/// The mark of a dial-tone database; `None` for any other.
///
/// # Errors
///
/// The database cannot be read, or a newer version of Spindle has marked it.
pub async fn read_dial_tone(database: &Database) -> Result<Option<DialTone>, Error> {
    match label_text(database, DIAL_TONE_KEY).await? {
        None => Ok(None),
        Some(text) => DialTone::parse(&text).map(Some).ok_or_else(|| Error::Mismatch {
            database: database.name(),
            problem: "its mark of a dial tone was not written by this version of Spindle".to_owned(),
        }),
    }
}

/// Makes the tables and the label of `lost` in `empty`, and marks it; `now_s` is in seconds since 1970. Stable on return.
///
/// Numbers of messages begin with the seconds since 2026: more than any mailbox has had messages.
///
/// # Errors
///
/// One of them fails; or `lost` has no mail table with a label.
pub async fn begin_dial_tone(
    lost: &Database,
    (empty, session): (&Database, &mut Session),
    now_s: i64,
) -> Result<DialTone, Error> {
    let lacking =
        |what: &str| Error::Mismatch { database: lost.name(), problem: format!("it has no {what}") };
    let label = label_text(lost, 1).await?.ok_or_else(|| lacking("label of Spindle"))?;
    let mail = lost.table(MAIL_TABLE).ok_or_else(|| lacking("mail table"))?;
    let last: Option<MailKey> = lost.last_row(&mail).await?.and_then(from_values).map(|record| record.key);
    let mailboxes = last.map_or(1, |last| u32::try_from(last.mailbox).unwrap_or_default() + 1);
    let above = last.map_or(0, |last| last.message + 1);
    let dial_tone = DialTone { mailboxes, first_message: (now_s - FIRST_ARRIVAL_S).max(above) };
    empty.create_table(mail_definition()).await?;
    let labels = empty.create_table(label_definition()).await?;
    for (key, text) in [(1, label), (DIAL_TONE_KEY, dial_tone.to_text())] {
        session.insert(&labels, &[(LABEL_ID, Value::I32(key)), (LABEL_TEXT, Value::Text(text))]).await?;
    }
    session.commit(Durability::Stable).await?;
    Ok(dial_tone)
}

async fn label_text(database: &Database, key: i32) -> Result<Option<String>, Error> {
    let Some(table) = database.table(LABEL_TABLE) else { return Ok(None) };
    let mut cursor = database.cursor(&table, &[Value::I32(key)])?;
    let row = cursor.next_rows().await?.into_iter().next().unwrap_or_default();
    let is_meant = row.iter().any(|(id, value)| *id == LABEL_ID && *value == Value::I32(key));
    Ok(row.into_iter().filter(|_| is_meant).find_map(|(id, value)| match value {
        Value::Text(text) if id == LABEL_TEXT => Some(text),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_written_and_others_refused() {
        let dial_tone = DialTone { mailboxes: 60, first_message: 28_771_200 };
        assert_eq!(DialTone::parse(&dial_tone.to_text()), Some(dial_tone));
        for other in ["", "spindle-dial-tone-2 60 1", "spindle-dial-tone-1 60", "spindle-dial-tone-1 -1 5"] {
            assert_eq!(DialTone::parse(other), None, "{other}");
        }
    }
}
