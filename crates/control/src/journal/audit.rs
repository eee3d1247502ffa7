//! The audit: a line for each change that somebody asked for, chained by hashes.
//!
//! Invariants:
//!
//! 1. Lines are only appended. Each has the SHA-256 of itself and of the hash of the line before it, so a line that is changed
//!    or taken out between others breaks the chain. Lines older than [`KEPT_SECONDS`] are removed from its beginning alone, and the
//!    newest [`KEPT_MIN`] never.
//! 2. A line is durable before the change that it announces begins; the line of its outcome follows.

use super::{DaemonJournal, JournalError};
use crate::hexadecimal::hexadecimal;
use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// Audit lines by their numbers, as JSON.
pub(super) const AUDIT: TableDefinition<u64, &str> = TableDefinition::new("audit");
/// Age at which lines are removed: 400 days.
pub const KEPT_SECONDS: i64 = 400 * 86_400;
/// Lines that are kept however old they are: a clock that jumps must not remove them.
pub const KEPT_MIN: u64 = 10_000;
/// Old lines that are removed with a new one, at most.
const REMOVED_AT_ONCE: usize = 16;

/// A line of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// From 1; each line has the next one.
    pub number: u64,
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    #[serde(flatten)]
    pub event: AuditEvent,
    /// Hash of the line before it, in hexadecimal; zeroes for the first one.
    pub before_hash: String,
    /// SHA-256 of `before_hash` and of the line without hashes, in hexadecimal.
    pub hash: String,
}

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// User of this machine, or name of a token.
    pub who: String,
    /// Address, or `socket`.
    pub whence: String,
    /// Method and path.
    pub what: String,
    /// The request's body; no secrets.
    pub wanted: String,
    /// Number of the line that announced the change; none for an announcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// HTTP status and the problem in a line, if there is one; `begun` in an announcement.
    pub outcome: String,
}

/// The first line that does not fit the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    pub number: u64,
    pub problem: &'static str,
}

impl DaemonJournal {
    /// Appends a line, and returns its number.
    pub fn append_audit(&self, unix_s: i64, event: &AuditEvent) -> Result<u64, JournalError> {
        self.0.change(|transaction| {
            let (number, before_hash) = match transaction.open_table(AUDIT)?.last()? {
                Some((number, line)) => (number.value() + 1, hash_in(line.value())),
                None => (1, zero_hash()),
            };
            let mut line =
                AuditLine { number, unix_s, event: event.clone(), before_hash, hash: String::new() };
            line.hash = line.computed_hash();
            let text = serde_json::to_string(&line).expect("plain fields");
            transaction.open_table(AUDIT)?.insert(number, text.as_str())?;
            remove_old(transaction, unix_s)?;
            Ok(number)
        })
    }

    /// At most `most` lines after the line `after`, oldest first.
    pub fn audit_lines(&self, after: u64, most: usize) -> Result<Vec<AuditLine>, JournalError> {
        let database = &self.0;
        let lines = database.read(|transaction| {
            let mut lines = Vec::new();
            for line in transaction.open_table(AUDIT)?.range(after.saturating_add(1)..)?.take(most) {
                lines.push(line?.1.value().to_owned());
            }
            Ok(lines)
        })?;
        lines.iter().map(|line| database.parsed(line, "its audit")).collect()
    }
}

fn remove_old(transaction: &WriteTransaction, now: i64) -> super::database::TransactionResult<()> {
    let mut lines = transaction.open_table(AUDIT)?;
    let spare = lines.len()?.saturating_sub(KEPT_MIN);
    let mut old = Vec::new();
    for line in lines.iter()?.take(REMOVED_AT_ONCE.min(spare as usize)) {
        let (number, line) = line?;
        match serde_json::from_str::<AuditLine>(line.value()) {
            Ok(line) if line.unix_s < now - KEPT_SECONDS => old.push(number.value()),
            _ => break,
        }
    }
    for number in old {
        lines.remove(number)?;
    }
    Ok(())
}

fn zero_hash() -> String {
    "0".repeat(64)
}

/// The hash of a recorded line. One that is damaged breaks the chain.
fn hash_in(line: &str) -> String {
    serde_json::from_str::<AuditLine>(line).map_or_else(|_| zero_hash(), |line| line.hash)
}

impl AuditLine {
    fn computed_hash(&self) -> String {
        let mut hash = Context::new(&SHA256);
        let AuditEvent { who, whence, what, wanted, of, outcome } = &self.event;
        let (number, time) = (self.number.to_string(), self.unix_s.to_string());
        let of = of.map_or(String::new(), |of| of.to_string());
        for part in [&self.before_hash, &number, &time, who, whence, what, wanted, &of, outcome] {
            // With its length: parts cannot pass for others.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hexadecimal(hash.finish().as_ref())
    }
}

/// Checks lines that follow each other; the first may be any, for older ones are removed.
///
/// # Errors
///
/// The first line that was changed, or does not follow the one before it.
pub fn check_audit(lines: &[AuditLine]) -> Result<(), BrokenChain> {
    for (index, line) in lines.iter().enumerate() {
        let broken = |problem| Err(BrokenChain { number: line.number, problem });
        if line.hash != line.computed_hash() {
            return broken("its contents do not match its hash");
        }
        let Some(before) = index.checked_sub(1).map(|index| &lines[index]) else { continue };
        if line.number != before.number + 1 {
            return broken("lines before it are missing");
        }
        if line.before_hash != before.hash {
            return broken("it does not follow the line before it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use world::sim::SimStateFile;

    fn event(what: &str) -> AuditEvent {
        AuditEvent {
            who: "user 0".to_owned(),
            whence: "socket".to_owned(),
            what: what.to_owned(),
            wanted: String::new(),
            of: None,
            outcome: "begun".to_owned(),
        }
    }

    fn lines() -> Vec<AuditLine> {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        for number in 1..=4 {
            assert_eq!(
                journal.append_audit(100 + number as i64, &event(&format!("{number}"))).unwrap(),
                number
            );
        }
        assert_eq!(journal.audit_lines(2, 1).unwrap()[0].number, 3);
        journal.audit_lines(0, 10).unwrap()
    }

    #[test]
    fn a_chain_holds_and_each_change_of_it_is_found() {
        let whole = lines();
        assert_eq!(check_audit(&whole), Ok(()));
        assert_eq!(check_audit(&whole[1..]), Ok(()), "older lines may be gone");
        let broken = |change: fn(&mut Vec<AuditLine>)| {
            let mut lines = whole.clone();
            change(&mut lines);
            check_audit(&lines).unwrap_err().number
        };
        assert_eq!(broken(|lines| lines[1].event.who = "nobody".to_owned()), 2);
        assert_eq!(broken(|lines| lines[3].unix_s += 1), 4);
        assert_eq!(broken(|lines| drop(lines.remove(1))), 3);
        assert_eq!(broken(|lines| lines.swap(1, 2)), 3);
        // Somebody who computes the hash of a changed line again breaks the next one.
        let forged = broken(|lines| {
            lines[1].event.outcome = "200".to_owned();
            lines[1].hash = lines[1].computed_hash();
        });
        assert_eq!(forged, 3);
    }

    #[test]
    fn old_lines_are_removed_from_the_beginning_and_many_stay_however_old() {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        for number in 0..KEPT_MIN {
            journal.append_audit(number as i64, &event("old")).unwrap();
        }
        journal.append_audit(2 * KEPT_SECONDS, &event("new")).unwrap();
        let left = journal.audit_lines(0, usize::MAX).unwrap();
        assert_eq!((left.len() as u64, left[0].number), (KEPT_MIN, 2));
        assert_eq!(check_audit(&left), Ok(()));
    }
}
