//! Requests that a caller may repeat, by the keys that callers gave them.
//!
//! Invariants:
//!
//! 1. A key is recorded before its change begins, with the seed of all identities that the change makes: the same request,
//!    repeated after a crash, makes the same things, and finds those that are made.
//! 2. A reply that was recorded is given again, for [`KEPT_SECONDS`] at least. The newest [`KEPT_MIN`] requests are known
//!    whatever their age: a clock that jumps must not make anything happen twice.

use super::{DaemonJournal, JournalError, database::TransactionResult};
use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

/// Requests by caller and key, as JSON.
pub(super) const REPLIES: TableDefinition<&str, &str> = TableDefinition::new("replies");
/// Their keys, by the order in which they came.
pub(super) const REPLY_ORDER: TableDefinition<u64, &str> = TableDefinition::new("reply order");
/// Time for which a key is known: 24 h.
pub const KEPT_SECONDS: i64 = 86_400;
/// Requests that are known however old they are.
pub const KEPT_MIN: u64 = 1000;
/// Old requests that are forgotten with a new one, at most.
const FORGOTTEN_AT_ONCE: usize = 16;

/// A request with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRequest {
    /// SHA-256 of method, path and body.
    pub request_hash: [u8; 32],
    /// Random; identities are made of it.
    pub seed: [u8; 16],
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    /// The volume or drive that its path names, as it was before.
    #[serde(default)]
    pub before: Option<NamedBefore>,
    /// None while it has not succeeded.
    pub reply: Option<KeptReply>,
}

/// A volume or a drive before a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedBefore {
    /// UUID of its pool.
    pub pool: String,
    /// Its ETag; empty for a drive.
    pub tag: String,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptReply {
    pub status: u16,
    /// JSON, or empty.
    pub body: String,
}

impl DaemonJournal {
    /// The request that a key stands for, which is `new` if the key is new or was forgotten.
    pub fn keyed_request(&self, key: &str, new: &KeyedRequest) -> Result<KeyedRequest, JournalError> {
        let database = &self.0;
        let known = database.read(|transaction| {
            Ok(transaction.open_table(REPLIES)?.get(key)?.map(|record| record.value().to_owned()))
        })?;
        if let Some(known) = known {
            return database.parsed(&known, "its record of a request");
        }
        let record = serde_json::to_string(new).expect("plain fields");
        let known = database.change(|transaction| {
            let mut replies = transaction.open_table(REPLIES)?;
            // Another request with it may have come in between.
            if let Some(known) = replies.get(key)? {
                return Ok(Some(known.value().to_owned()));
            }
            replies.insert(key, record.as_str())?;
            drop(replies);
            let mut order = transaction.open_table(REPLY_ORDER)?;
            let number = order.last()?.map_or(0, |(last, _)| last.value() + 1);
            order.insert(number, key)?;
            drop(order);
            forget_old(transaction, new.unix_s)?;
            Ok(None)
        })?;
        match known {
            Some(known) => database.parsed(&known, "its record of a request"),
            None => Ok(new.clone()),
        }
    }

    /// Records the reply to a request.
    pub fn set_reply(&self, key: &str, request: &KeyedRequest) -> Result<(), JournalError> {
        let record = serde_json::to_string(request).expect("plain fields");
        self.0.change(|transaction| {
            transaction.open_table(REPLIES)?.insert(key, record.as_str())?;
            Ok(())
        })
    }
}

fn forget_old(transaction: &WriteTransaction, now: i64) -> TransactionResult<()> {
    let mut replies = transaction.open_table(REPLIES)?;
    let mut order = transaction.open_table(REPLY_ORDER)?;
    for _ in 0..FORGOTTEN_AT_ONCE {
        if order.len()? <= KEPT_MIN {
            break;
        }
        let Some((number, key)) =
            order.first()?.map(|(number, key)| (number.value(), key.value().to_owned()))
        else {
            break;
        };
        let is_old = |record: &str| {
            serde_json::from_str::<KeyedRequest>(record).is_ok_and(|known| known.unix_s < now - KEPT_SECONDS)
        };
        if !replies.get(&*key)?.is_none_or(|record| is_old(record.value())) {
            break;
        }
        replies.remove(&*key)?;
        order.remove(number)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use world::sim::SimStateFile;

    #[test]
    fn a_key_keeps_its_seed_and_its_reply_for_a_day_and_behind_a_thousand_others() {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        let request = |seed, unix_s| KeyedRequest {
            request_hash: [7; 32],
            seed: [seed; 16],
            unix_s,
            before: None,
            reply: None,
        };
        let first = journal.keyed_request("admin/1", &request(1, 0)).unwrap();
        assert_eq!(journal.keyed_request("admin/1", &request(2, 10)).unwrap(), first, "begun and not ended");
        let reply = KeptReply { status: 201, body: "{}".to_owned() };
        let ended = KeyedRequest { reply: Some(reply), ..first };
        journal.set_reply("admin/1", &ended).unwrap();
        let later = 10 * KEPT_SECONDS;
        assert_eq!(
            journal.keyed_request("admin/1", &request(3, later)).unwrap(),
            ended,
            "the clock has jumped"
        );
        for number in 0..KEPT_MIN {
            journal.keyed_request(&format!("other/{number}"), &request(5, KEPT_SECONDS)).unwrap();
        }
        assert_eq!(journal.keyed_request("admin/1", &request(3, 0)).unwrap(), ended, "not a day old");
        journal.keyed_request("another", &request(6, KEPT_SECONDS + 1)).unwrap();
        let again = request(4, KEPT_SECONDS + 1);
        assert_eq!(journal.keyed_request("admin/1", &again).unwrap(), again, "forgotten");
    }
}
