//! Tokens for programs, as the journal keeps them: only their hashes, so that who reads the journal can use none.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Tokens by their names, as JSON.
pub(super) const TOKENS: TableDefinition<&str, &str> = TableDefinition::new("tokens");

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    pub name: String,
    pub role: CallerRole,
    /// Names of the pools that it may see and change; all if empty.
    pub pools: Vec<String>,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// Seconds since 1970, UTC.
    pub made_unix_s: i64,
    /// Seconds since 1970, UTC; none for a token that does not expire.
    pub expires_unix_s: Option<i64>,
}

impl TokenRecord {
    /// True if it is the token of this hash, and has not expired.
    pub fn is_valid(&self, hash: &[u8], now_unix_s: i64) -> bool {
        self.hash == hash && self.expires_unix_s.is_none_or(|end| now_unix_s < end)
    }
}

/// Rights of a caller; each has those of the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallerRole {
    /// Looks at everything but tokens and audit.
    Read,
    /// Makes and changes; loses no data.
    Operate,
    /// Deletes and rolls back, applies site files, makes tokens, reads the audit.
    Admin,
}

impl DaemonJournal {
    /// All tokens, by name.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, JournalError> {
        let database = &self.0;
        let records = database.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(TOKENS)?.iter()? {
                records.push(record?.1.value().to_owned());
            }
            Ok(records)
        })?;
        records.iter().map(|record| database.parsed(record, "its record of a token")).collect()
    }

    /// Records a token. False if there is one of its name: nothing is changed then.
    pub fn add_token(&self, token: &TokenRecord) -> Result<bool, JournalError> {
        let record = serde_json::to_string(token).expect("plain fields");
        self.0.change(|transaction| {
            let mut tokens = transaction.open_table(TOKENS)?;
            let is_new = tokens.get(&*token.name)?.is_none();
            if is_new {
                tokens.insert(&*token.name, record.as_str())?;
            }
            Ok(is_new)
        })
    }

    /// Forgets a token. False if there is none of this name.
    pub fn remove_token(&self, name: &str) -> Result<bool, JournalError> {
        self.0.change(|transaction| Ok(transaction.open_table(TOKENS)?.remove(name)?.is_some()))
    }
}
