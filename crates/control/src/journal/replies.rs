//! Requests that a caller may repeat, by the keys that callers gave them.
//!
//! Invariants:
//!
//! 1. A key is recorded before its change begins, with the seed of all identities that the change makes: the same request,
//!    repeated after a crash, makes the same things, and finds those that are made.
//! 2. A reply that was recorded is given again, for [`KEPT_SECONDS`].

use super::{DaemonJournal, JournalError};
use redb::TableDefinition;
use serde::{Deserialize, Serialize};

/// Requests by caller and key, as JSON.
pub(super) const REPLIES: TableDefinition<&str, &str> = TableDefinition::new("replies");
/// Time for which a key is known: 24 h.
pub const KEPT_SECONDS: i64 = 86_400;

/// A request with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRequest {
    /// SHA-256 of method, path and body.
    pub request_hash: [u8; 32],
    /// Random; identities are made of it.
    pub seed: [u8; 16],
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    /// None while it has not ended.
    pub reply: Option<KeptReply>,
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
        let mut database = self.lock();
        let known = database.read(|transaction| {
            Ok(transaction.open_table(REPLIES)?.get(key)?.map(|record| record.value().to_owned()))
        })?;
        let known: Option<KeyedRequest> = known
            .map(|record| serde_json::from_str(&record))
            .transpose()
            .map_err(|error| database.damaged(format!("its record of a request: {error}")))?;
        if let Some(known) = known.filter(|known| !is_old(known, new.unix_s)) {
            return Ok(known);
        }
        let record = serde_json::to_string(new).expect("plain fields");
        database.change(|transaction| {
            let mut replies = transaction.open_table(REPLIES)?;
            replies.insert(key, record.as_str())?;
            replies.retain(|_, record| {
                serde_json::from_str(record).is_ok_and(|known| !is_old(&known, new.unix_s))
            })?;
            Ok(())
        })?;
        Ok(new.clone())
    }

    /// Records the reply to a request.
    pub fn set_reply(&self, key: &str, request: &KeyedRequest) -> Result<(), JournalError> {
        let record = serde_json::to_string(request).expect("plain fields");
        self.lock().change(|transaction| {
            transaction.open_table(REPLIES)?.insert(key, record.as_str())?;
            Ok(())
        })
    }
}

fn is_old(request: &KeyedRequest, now: i64) -> bool {
    request.unix_s < now - KEPT_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use world::sim::SimStateFile;

    #[test]
    fn a_key_keeps_its_seed_and_its_reply_for_a_day() {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        let request =
            |seed, unix_s| KeyedRequest { request_hash: [7; 32], seed: [seed; 16], unix_s, reply: None };
        let first = journal.keyed_request("admin/1", &request(1, 0)).unwrap();
        assert_eq!(journal.keyed_request("admin/1", &request(2, 10)).unwrap(), first, "begun and not ended");
        let reply = KeptReply { status: 201, body: "{}".to_owned() };
        let ended = KeyedRequest { reply: Some(reply), ..first };
        journal.set_reply("admin/1", &ended).unwrap();
        assert_eq!(journal.keyed_request("admin/1", &request(3, KEPT_SECONDS)).unwrap(), ended);
        let again = request(4, KEPT_SECONDS + 1);
        assert_eq!(journal.keyed_request("admin/1", &again).unwrap(), again, "forgotten after a day");
    }
}
