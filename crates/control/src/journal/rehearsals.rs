//! The last rehearsal of each DR group.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// By the UUIDs of groups, as JSON.
pub(super) const REHEARSALS: TableDefinition<&str, &str> = TableDefinition::new("rehearsals");

/// The answer of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RehearsalOutcome {
    /// All that was checked is in order.
    Passed,
    /// The check failed.
    Failed,
}

/// A rehearsal that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastRehearsal {
    /// Seconds since 1970, UTC.
    pub ended_unix_s: i64,
    pub outcome: RehearsalOutcome,
    /// From the cut to the answer.
    pub seconds: f64,
    /// The kept states that rehearsals proved, in the order in which they did, [`PROVEN_MAX`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proven: Vec<ProvenState>,
}

/// Proven states of a group that are remembered.
pub const PROVEN_MAX: usize = 64;

/// A kept state of a group that a rehearsal has checked and found in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenState {
    /// UUID of the snapshots that keep it.
    pub snapshot: String,
    pub name: String,
}

impl PastRehearsal {
    /// The rehearsal that ends now, after the one before it, which `state` was rehearsed in if it is a kept one.
    pub fn after(self, before: Option<Self>, state: Option<ProvenState>) -> Self {
        let mut proven = before.map(|before| before.proven).unwrap_or_default();
        if let Some(state) = state {
            proven.retain(|known| known.snapshot != state.snapshot);
            if self.outcome == RehearsalOutcome::Passed {
                proven.push(state);
            }
        }
        let surplus = proven.len().saturating_sub(PROVEN_MAX);
        proven.drain(..surplus);
        Self { proven, ..self }
    }
}

impl DaemonJournal {
    /// The last rehearsals, by the UUIDs of their groups.
    pub fn rehearsals(&self) -> Result<BTreeMap<String, PastRehearsal>, JournalError> {
        let records = self.0.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(REHEARSALS)?.iter()? {
                let (group, record) = record?;
                records.push((group.value().to_owned(), record.value().to_owned()));
            }
            Ok(records)
        })?;
        let parsed = |(group, record): (String, String)| {
            Ok((group, self.0.parsed(&record, "its record of a rehearsal")?))
        };
        records.into_iter().map(parsed).collect()
    }

    /// Records the last rehearsal of a group, in the place of the one before.
    pub fn put_rehearsal(&self, group: &str, past: &PastRehearsal) -> Result<(), JournalError> {
        let record = serde_json::to_string(past).expect("plain fields");
        self.0.change(|transaction| {
            transaction.open_table(REHEARSALS)?.insert(group, record.as_str())?;
            Ok(())
        })
    }

    /// Forgets the last rehearsal of a group.
    pub fn forget_rehearsal(&self, group: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(REHEARSALS)?.remove(group)?;
            Ok(())
        })
    }
}
